import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addAgain, planAgain } from '../bench/again.js';
import { figure, textTable } from '../bench/figures.js';
import type { FlatResult } from '../bench/flat.js';
import { makePage } from '../bench/report/page.js';
import { summary } from '../bench/report/summary.js';
import { targetsOf } from '../bench/report/targets.js';
import type { Results } from '../bench/results.js';
import type { MemorySample, SoakResult } from '../bench/soak.js';
import { latenciesOf, latencyRunOf, resultsOf, runOf, wayOf } from './support/bench-results.js';

function targetOf(results: Results, words: string) {
  const found = targetsOf(results).filter(({ what }) => what.includes(words));
  assert.equal(found.length, 1, `${found.length} targets with ${words}`);
  return found[0];
}

const { latency } = latencyRunOf('sluice', 1);

function soakOf(redisMegabytes: (share: number) => number): SoakResult {
  const samples = Array.from({ length: 101 }, (_, i): MemorySample => {
    const redis = redisMegabytes(i / 100) * 1e6;
    return { seconds: i, memory: { api: 1e8, redis, worker: 1e8, clickhouse: 4e8 }, redisUsed: redis };
  });
  return { minutes: 2, ratePerSecond: 5000, events: 600_000, cpu: { api: 5 }, latency, samples };
}

test('a cost exactly at its bound is met, a little above is missed', () => {
  const single = (cost: number) => resultsOf({ ways: [wayOf('single', cost), wayOf('uws', 8)] });
  assert.equal(targetOf(single(40), 'to uWebSockets.js')?.met, true);
  assert.equal(targetOf(single(40.1), 'to uWebSockets.js')?.met, false);
  const bulk = (cost: number) => resultsOf({ ways: [wayOf('bulk-500', cost), wayOf('engine', 5)] });
  assert.equal(targetOf(bulk(11), 'bulk of 500: CPU, to ClickHouse')?.met, true);
  assert.equal(targetOf(bulk(11.1), 'bulk of 500: CPU, to ClickHouse')?.met, false);
  const keys = (cost: number) => resultsOf({ ways: [wayOf('bulk-500-keys', cost), wayOf('engine', 5)] });
  assert.equal(targetOf(keys(14), 'with keys')?.met, true);
  assert.equal(targetOf(keys(14.1), 'with keys')?.met, false);
});

test('a peer must cost at least so many times as much', () => {
  const single = (cost: number) => resultsOf({ ways: [wayOf('single', 10), wayOf('fastify-single', cost)] });
  assert.equal(targetOf(single(50), 'Fastify')?.met, true);
  assert.equal(targetOf(single(49.9), 'Fastify')?.met, false);
  const bulk = (cost: number) =>
    resultsOf({ ways: [wayOf('bulk-500', 10), wayOf('fastify-bulk-500', cost)] });
  assert.equal(targetOf(bulk(100), 'Fastify')?.met, true);
  assert.equal(targetOf(bulk(99.9), 'Fastify')?.met, false);
});

test('costs are judged by the median of the runs', () => {
  const results = resultsOf({ ways: [wayOf('single', 90, 30, 31), wayOf('uws', 10, 10, 10)] });
  assert.equal(targetOf(results, 'to uWebSockets.js')?.value, 3.1);
});

test('the acknowledgement may take 10 ms, or three times what the floor takes if that is more', () => {
  const at = (sluice: readonly number[], floor: readonly number[]) =>
    targetOf(
      resultsOf({ latencies: [latenciesOf('sluice', sluice), latenciesOf('uws', floor)] }),
      'acknowledgement at half load',
    );
  assert.deepEqual([at([10], [1])?.bound, at([10], [1])?.met], [10, true]);
  assert.equal(at([10.01], [1])?.met, false);
  assert.deepEqual([at([15], [5])?.bound, at([15], [5])?.met], [15, true]);
  assert.equal(at([15.01], [5])?.met, false);
  assert.equal(at([99, 4, 5, 6, 98], [1])?.value, 6);
});

test('an event must be queryable within a second at half load', () => {
  const at = (ms: number) => resultsOf({ latencies: [latenciesOf('sluice', [5], ms)] });
  assert.equal(targetOf(at(1000), 'queryable')?.met, true);
  assert.equal(targetOf(at(1001), 'queryable')?.met, false);
});

test('a backlog must drain at five times the rate of what comes', () => {
  const at = (drainedPerSecond: number) =>
    resultsOf({
      backlog: {
        events: 3_000_000,
        segments: 2500,
        redisBytesPerEvent: 250,
        ratePerSecond: 5000,
        drainSeconds: 100,
        drainedPerSecond,
        cpu: { api: 5 },
        latency,
        left: [],
      },
    });
  assert.equal(targetOf(at(25_000), 'backlog')?.met, true);
  assert.equal(targetOf(at(24_999), 'backlog')?.met, false);
});

test('flat means a tenth between the least and the most, whatever the speed of the machine', () => {
  const at = (...costs: readonly number[]): Results => {
    const flat: FlatResult = {
      byEvents: costs.map((cost, i) => ({
        events: (i + 1) * 1e6,
        // Half as fast at each next level.
        single: [runOf(cost * 2 ** i)],
        bulk: [runOf(5 * 2 ** i)],
        reference: { single: [runOf(20 * 2 ** i)], bulk: [runOf(5 * 2 ** i)] },
      })),
      byEnvironments: [],
    };
    return resultsOf({ flat });
  };
  assert.equal(targetOf(at(20, 21, 22), 'single events at')?.met, true);
  assert.equal(targetOf(at(22, 21, 20), 'single events at')?.met, true);
  assert.equal(targetOf(at(20, 21, 22.1), 'single events at')?.met, false);
  assert.equal(targetOf(at(20, 21), 'bulk of 500 at')?.value, 1);
  assert.deepEqual(targetsOf(at(20)), []);
});

test('memory may grow by a tenth from the second quarter of a soak to the last; the first does not count', () => {
  const at = (megabytes: (share: number) => number) =>
    targetOf(resultsOf({ soak: soakOf(megabytes) }), 'memory of redis')?.met;
  assert.equal(
    at((share) => (share < 0.3 ? 10 : 100)),
    true,
  );
  assert.equal(
    at((share) => (share < 0.6 ? 100 : 110)),
    true,
  );
  assert.equal(
    at((share) => (share < 0.6 ? 100 : 110.1)),
    false,
  );
  assert.equal(
    at((share) => 100 * (1 + share)),
    false,
  );
});

test('only sealed segments above 100 kB count, and the worst of them', () => {
  const at = (...segments: readonly (readonly [number, number])[]) =>
    resultsOf({
      segments: {
        events: 1,
        redisBytesPerEvent: 1,
        segments: segments.map(([bytes, memoryBytes]) => ({ bytes, memoryBytes, rows: 10 })),
      },
    });
  assert.deepEqual(targetsOf(at([100_000, 900_000])), []);
  assert.equal(targetOf(at([100_000, 900_000], [200_000, 270_000]), 'segments')?.met, true);
  assert.equal(targetOf(at([200_000, 270_001], [900_000, 900_000]), 'segments')?.met, false);
});

test('a target of which one side was not measured is left out', () => {
  assert.deepEqual(targetsOf(resultsOf({ ways: [wayOf('single', 40)] })), []);
  const { cpuSum: _, ...run } = runOf(1);
  const elsewhere = { ...wayOf('single'), runs: [{ ...run, cpu: {} }] };
  assert.deepEqual(targetsOf(resultsOf({ ways: [elsewhere, wayOf('uws', 8)] })), []);
});

test('the page has every table, and a plot for each one that it links', async () => {
  const results = resultsOf({
    ways: [wayOf('uws', 8), wayOf('single', 40, 41), wayOf('bulk-500', 9), wayOf('engine', 4)],
    latencies: [latenciesOf('sluice', [5]), latenciesOf('uws', [1])],
    soak: soakOf(() => 50),
  });
  const { markdown, plots } = await makePage(results, '/somewhere/all');
  const linked = [...markdown.matchAll(/!\[[^\]]+\]\((all-[a-z-]+\.svg)\)/g)].map(([, file]) => file);
  assert.deepEqual(linked, ['all-cost-single.svg', 'all-cost-bulk.svg', 'all-latency.svg', 'all-soak.svg']);
  assert.deepEqual(Object.keys(plots), ['cost-single', 'cost-bulk', 'latency', 'soak']);
  assert.match(
    markdown,
    /\| single events: CPU, to uWebSockets\.js alone \| 5 times \| at most 5 times \| met \|/,
  );
  assert.match(markdown, /After every run exactly the acknowledged records were stored/);
});

test('plots carry the sums and are legible on a light and on a dark page', async () => {
  const { plots } = await makePage(resultsOf({ ways: [wayOf('uws', 8), wayOf('single', 41.4)] }), 'all');
  const svg = plots['cost-single'] ?? '';
  assert.match(svg, /^<svg [^>]*xmlns="http:\/\/www\.w3\.org\/2000\/svg"/);
  assert.match(svg, />41\.4<\/text>/);
  assert.match(svg, /<rect [^>]*fill="#ffffff"/);
  assert.match(svg, /@media \(prefers-color-scheme:dark\)\{[^<]*\[fill="#ffffff"\]\{fill:#0d1117\}/);
});

test('a session that failed says so on its page and at its end', async () => {
  const results = resultsOf({ failures: [{ scenario: 'single', message: '5 of 6' }] });
  assert.match((await makePage(results, 'all')).markdown, /\*\*This session failed:\*\*\n- single: 5 of 6/);
  assert.match(summary(results), /FAILED: single: 5 of 6/);
});

test('what failed in a session runs again with its options, and its page says so', async () => {
  const session = resultsOf({
    command: 'all --flat-events 1,10',
    ways: [wayOf('single', 41)],
    failures: [
      { scenario: 'uws', message: '64 × 503' },
      { scenario: 'bulk-500', message: 'lost' },
    ],
  });
  assert.deepEqual(planAgain(session), { names: ['uws', 'bulk-500'], args: ['--flat-events', '1,10'] });
  const again = resultsOf({
    ways: [wayOf('uws', 8)],
    failures: [{ scenario: 'bulk-500', message: 'lost again' }],
  });
  const both = addAgain(session, again);
  assert.deepEqual(
    both.ways.map(({ name }) => name),
    ['single', 'uws'],
  );
  assert.deepEqual(both.failures, again.failures);
  const { markdown } = await makePage(both, 'all');
  assert.match(markdown, /ran again after it:\n- uws, 2026-01-02T03:04: 64 × 503\n/);
  assert.match(markdown, /This session failed:\*\*\n- bulk-500: lost again/);
  assert.throws(() => planAgain(resultsOf()), /nothing failed/);
});

test('figures have three digits that count', () => {
  const written = [0, 5, 0.5314, 12.34, 99.96, 104.4, 999, 1000.4, 28_149, 1_234_567, -12.34, Number.NaN];
  assert.deepEqual(written.map(figure), [
    '0',
    '5',
    '0.53',
    '12.3',
    '100.0',
    '104',
    '999',
    '1,000',
    '28,100',
    '1,230,000',
    '-12.3',
    '–',
  ]);
});

test('a table for the terminal is aligned: text to the left, figures to the right', () => {
  assert.equal(
    textTable(
      ['', 'µs'],
      [
        ['single', '5'],
        ['uws', '10.5'],
      ],
    ),
    '          µs\nsingle     5\nuws     10.5',
  );
});
