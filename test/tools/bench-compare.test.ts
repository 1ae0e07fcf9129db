// The bench: two sessions compared.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { BenchError } from '../../bench/failure.js';
import { compare, compareResults } from '../../bench/report/compare.js';
import { guard } from '../../bench/report/guard.js';
import { readResults } from '../../bench/results.js';
import { tempDir } from '../harness/temp-dir.js';
import { halfLoadOf, resultsOf, runOf, wayOf, withCommits } from '../support/bench-results.js';

const costs = 'Highest rates, and the cost of a record';

function verdictOf(a: readonly number[], b: readonly number[]): string | undefined {
  const [from, to] = [a, b].map((each) => resultsOf({ ways: [wayOf('single', ...each)] }));
  assert.ok(from !== undefined && to !== undefined);
  return compare(from, to).find(({ name }) => name === `${costs}, single, by wrk: CPU, µs`)?.verdict;
}

test('compares medians and says by how much they changed', () => {
  const a = resultsOf({ ways: [wayOf('single', 50, 40, 42)] });
  const b = resultsOf({ ways: [wayOf('single', 30, 21, 20)] });
  const name = `${costs}, single, by wrk: CPU, µs`;
  const cost = compare(a, b).find((each) => each.name === name);
  assert.deepEqual(cost, { name, a: 42, b: 21, change: -0.5, verdict: 'better' });
});

test('calls a change real when the runs of the two sessions do not overlap', () => {
  assert.equal(verdictOf([40, 41, 42], [43, 44, 45]), 'worse');
  assert.equal(verdictOf([43, 44, 45], [40, 41, 42]), 'better');
  assert.equal(verdictOf([40, 41, 43], [43, 44, 45]), 'same');
});

test('a change below 3 % does not count, however little the runs vary', () => {
  assert.equal(verdictOf([100, 100], [102.9, 102.9]), 'same');
  assert.equal(verdictOf([100, 100], [103, 103]), 'worse');
});

test('with a single run on one side, a change counts from 10 %', () => {
  assert.equal(verdictOf([100], [109.9, 109.9]), 'same');
  assert.equal(verdictOf([100], [110, 110]), 'worse');
  assert.equal(verdictOf([100, 100], [89]), 'better');
});

test('the guard finds an event that costs more times its floor, on a machine of another speed', () => {
  const session = (ways: Record<string, number[]>) =>
    resultsOf({ ways: Object.entries(ways).map(([name, costs]) => wayOf(name, ...costs)) });
  const same = { engine: [2, 2] };
  const stored = { ...same, uws: [5, 5], single: [40, 41], 'single-keys': [50, 51], 'bulk-500': [8, 8] };
  const now = { ...same, uws: [10, 10], single: [80, 82], 'single-keys': [104, 106], 'bulk-500': [7, 7] };
  const found = guard(session(stored), session(now));
  assert.deepEqual(Object.fromEntries(found.map(({ way, verdict }) => [way, verdict])), {
    single: 'same',
    'single-keys': 'worse',
    'bulk-500': 'better',
    'bulk-500-keys': 'not measured',
  });
});

test('a higher rate is better, a higher cost is worse', () => {
  const way = (rate: number) => ({ ...wayOf('single'), runs: [runOf(10, { recordsPerSecond: rate })] });
  const changes = compare(resultsOf({ ways: [way(1000)] }), resultsOf({ ways: [way(2000)] }));
  assert.equal(changes.find(({ name }) => name === `${costs}, single, by wrk: records/s`)?.verdict, 'better');
});

test('compares the figures that both sessions have, and counts the figures that only one has', () => {
  const a = resultsOf({ ways: [wayOf('single', 40), wayOf('identify', 30)] });
  const b = resultsOf({ ways: [wayOf('single', 40)], halfLoad: halfLoadOf([5, 6, 7], [1]) });
  assert.deepEqual(
    new Set(compare(a, b).map(({ name }) => name.split(':')[0])),
    new Set([`${costs}, single, by wrk`]),
  );
  const text = compareResults(a, b);
  assert.match(text, /Only in A: 3 figures; only in B: 11\./);
  assert.doesNotMatch(text, /different machines/);
});

test('compares how events share commits only for the same generator', () => {
  const of = (generator: string, cost: number) => {
    const way = withCommits('single-keys-64', cost);
    return resultsOf({ ways: [{ ...way, runs: way.runs.map((run) => ({ ...run, generator })) }] });
  };
  const changes = compare(of('wrk', 80), of('wrk', 60)).filter(({ verdict }) => verdict !== 'same');
  assert.deepEqual(
    changes.map(({ name, a, b }) => [name, a, b]),
    [
      [`${costs}, single-keys-64, by wrk: CPU, µs`, 80, 60],
      [`${costs}, single-keys-64, by wrk: api`, 60, 40],
      [`${costs}, single-keys-64, by wrk: api a commit, µs`, 1500, 1000],
    ],
  );
  assert.deepEqual(compare(of('wrk', 80), of('bench', 60)), []);
});

test('says that sessions of different machines cannot be compared directly', () => {
  const a = resultsOf({ ways: [wayOf('single', 40)] });
  const b = { ...a, machine: { ...a.machine, cores: 16 } };
  assert.match(compareResults(a, b), /different machines/);
});

test('refuses a file that does not exist, is not JSON or contains something else, and names it', () => {
  const dir = tempDir('bench-compare');
  const files = {
    'none.json': undefined,
    'text.json': 'results',
    'other.json': '{"machine":{}}',
    'null.json': 'null',
  };
  for (const [name, content] of Object.entries(files)) {
    const path = join(dir, name);
    if (content !== undefined) writeFileSync(path, content);
    assert.throws(
      () => readResults(path),
      (error: Error) => error instanceof BenchError && error.message.startsWith(path),
    );
  }
});
