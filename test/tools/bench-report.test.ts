import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addAgain, planAgain } from '../../bench/again.js';
import { figure, textTable } from '../../bench/figures.js';
import { makePage } from '../../bench/report/page.js';
import { summary } from '../../bench/report/summary.js';
import { targetsOf } from '../../bench/report/targets.js';
import type { Results } from '../../bench/results.js';
import type { MemorySample, SoakResult } from '../../bench/soak.js';
import type { ConnectionsResult } from '../../bench/throughput/connections.js';
import type { FlatResult } from '../../bench/throughput/flat.js';
import { latenciesOf, latencyRunOf, levelOf, resultsOf, runOf, wayOf } from '../support/bench-results.js';

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
  assert.equal(targetOf(single(24), 'to uWebSockets.js')?.verdict, 'met');
  assert.equal(targetOf(single(24.1), 'to uWebSockets.js')?.verdict, 'missed');
  const bulk = (cost: number) => resultsOf({ ways: [wayOf('bulk-500', cost), wayOf('engine', 5)] });
  assert.equal(targetOf(bulk(18), 'bulk of 500: CPU, to ClickHouse')?.verdict, 'met');
  assert.equal(targetOf(bulk(18.1), 'bulk of 500: CPU, to ClickHouse')?.verdict, 'missed');
  const keys = (cost: number) => resultsOf({ ways: [wayOf('bulk-500-keys', cost), wayOf('engine', 5)] });
  assert.equal(targetOf(keys(27.5), 'with keys')?.verdict, 'met');
  assert.equal(targetOf(keys(27.6), 'with keys')?.verdict, 'missed');
});

test('a peer must cost at least a given multiple', () => {
  const single = (cost: number) => resultsOf({ ways: [wayOf('single', 10), wayOf('fastify-single', cost)] });
  assert.equal(targetOf(single(50), 'Fastify')?.verdict, 'met');
  assert.equal(targetOf(single(49.9), 'Fastify')?.verdict, 'missed');
  const bulk = (cost: number) =>
    resultsOf({ ways: [wayOf('bulk-500', 10), wayOf('fastify-bulk-500', cost)] });
  assert.equal(targetOf(bulk(100), 'Fastify')?.verdict, 'met');
  assert.equal(targetOf(bulk(99.9), 'Fastify')?.verdict, 'missed');
});

test('costs are judged by the median of the runs', () => {
  const results = resultsOf({ ways: [wayOf('single', 90, 30, 31), wayOf('uws', 10, 10, 10)] });
  assert.equal(targetOf(results, 'to uWebSockets.js')?.value, 3.1);
});

const generators = {
  wrk: { name: 'wrk', version: '4.1.0' },
  autocannon: { name: 'autocannon', version: '9.0.0' },
} as const;

test('with a cheap generator an event with a key at 64 connections may cost six times the floor, otherwise three times', () => {
  const at = (name: keyof typeof generators, ...costs: readonly number[]) => {
    const levels = [levelOf(16, true, 500), levelOf(64, false, 500), levelOf(64, true, ...costs)];
    const connections: ConnectionsResult = { generator: generators[name], levels };
    return targetOf(resultsOf({ connections }), `at 64 connections, by ${name}`);
  };
  assert.equal(at('wrk', 60)?.verdict, 'met');
  assert.equal(at('wrk', 60.1)?.verdict, 'missed');
  assert.equal(at('autocannon', 30)?.verdict, 'met');
  assert.equal(at('autocannon', 30.1)?.verdict, 'missed');
  assert.equal(at('wrk', 90, 50, 40)?.value, 5);
  const others: ConnectionsResult = { generator: generators.wrk, levels: [levelOf(256, true, 40)] };
  assert.deepEqual(targetsOf(resultsOf({ connections: others })), []);
});

test('the acknowledgement may take three times what a server with a synced file takes', () => {
  const at = (sluice: readonly number[], floor: readonly number[]) =>
    targetOf(
      resultsOf({
        latencies: [
          latenciesOf('sluice', sluice),
          latenciesOf('uws', [0.1]),
          latenciesOf('uws-synced', floor),
        ],
      }),
      'acknowledgement at half load',
    );
  assert.deepEqual([at([6], [2])?.value, at([6], [2])?.bound, at([6], [2])?.verdict], [3, 3, 'met']);
  assert.equal(at([6.01], [2])?.verdict, 'missed');
  assert.equal(at([99, 4, 5, 6, 98], [50, 1, 2, 3, 60])?.value, 2);
});

test('a target is undecided if single runs lie on both sides of its bound', () => {
  const at = (sluice: readonly number[], floor: readonly number[]) =>
    targetOf(
      resultsOf({ latencies: [latenciesOf('sluice', sluice), latenciesOf('uws-synced', floor)] }),
      'acknowledgement at half load',
    );
  const wide = at([4, 6, 8], [2, 2, 2]);
  assert.deepEqual([wide?.value, wide?.spread, wide?.verdict], [3, { least: 2, most: 4 }, 'undecided']);
  assert.equal(at([7, 8, 9], [2, 2, 2])?.verdict, 'missed');
  assert.equal(at([4, 5, 6], [2, 2, 2])?.verdict, 'met');
});

test('without a floor the acknowledgement may take 10 ms', () => {
  const at = (ms: number) =>
    targetOf(resultsOf({ latencies: [latenciesOf('sluice', [ms])] }), 'acknowledgement at half load');
  assert.equal(at(10)?.verdict, 'met');
  assert.equal(at(10.01)?.verdict, 'missed');
});

test('an event must be queryable within a second at half load', () => {
  const at = (ms: number) => resultsOf({ latencies: [latenciesOf('sluice', [5], ms)] });
  assert.equal(targetOf(at(1000), 'queryable')?.verdict, 'met');
  assert.equal(targetOf(at(1001), 'queryable')?.verdict, 'missed');
});

test('a backlog must drain at five times the rate of incoming events', () => {
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
  assert.equal(targetOf(at(25_000), 'backlog')?.verdict, 'met');
  assert.equal(targetOf(at(24_999), 'backlog')?.verdict, 'missed');
});

test('flat means at most a tenth between minimum and maximum, whatever the speed of the machine', () => {
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
  assert.equal(targetOf(at(20, 21, 22), 'single events at')?.verdict, 'met');
  assert.equal(targetOf(at(22, 21, 20), 'single events at')?.verdict, 'met');
  assert.equal(targetOf(at(20, 21, 22.1), 'single events at')?.verdict, 'missed');
  assert.equal(targetOf(at(20, 21), 'bulk of 500 at')?.value, 1);
  assert.deepEqual(targetsOf(at(20)), []);
});

test('memory may grow by a tenth from the second quarter of a soak to the last; the first does not count', () => {
  const at = (megabytes: (share: number) => number) =>
    targetOf(resultsOf({ soak: soakOf(megabytes) }), 'memory of redis')?.verdict === 'met';
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

test('only the worst sealed segment above 100 kB counts', () => {
  const at = (...segments: readonly (readonly [number, number])[]) =>
    resultsOf({
      segments: {
        events: 1,
        redisBytesPerEvent: 1,
        segments: segments.map(([bytes, memoryBytes]) => ({ bytes, memoryBytes, rows: 10 })),
      },
    });
  assert.deepEqual(targetsOf(at([100_000, 900_000])), []);
  assert.equal(targetOf(at([100_000, 900_000], [200_000, 270_000]), 'segments')?.verdict, 'met');
  assert.equal(targetOf(at([200_000, 270_001], [900_000, 900_000]), 'segments')?.verdict, 'missed');
});

test('a target is left out if one of its two figures was not measured', () => {
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
    /\| single events: CPU, to uWebSockets\.js alone \| 5 times \| 5 to 5\.13 \| at most 3 times \| missed \|/,
  );
  assert.match(markdown, /After every run exactly the acknowledged records were stored/);
});

test('the page and the end of a session show how connections share commits, and name the generator', async () => {
  const levels = [levelOf(16, false, 150), levelOf(64, true, 50, 60, 70)];
  const at = (name: keyof typeof generators) =>
    resultsOf({ connections: { generator: generators[name], levels } });
  const { markdown } = await makePage(at('wrk'), 'all');
  assert.match(markdown, /## Events that share a commit\n\n.*sent by wrk 4\.1\.0,\nwhich leaves nearly all/);
  // 1,000 events in 40 commits are 25 per commit, so a commit costs 25 times as much as an event.
  const row =
    '| 64, with keys | 1,000 | 25 | 30 + 10 | 7 + 5 | 3 + 1 | 3 + 1 | 60 | 10 | 6 | 1,000 | 300 | 1 | 1,000 | 0 | 3 |';
  assert.ok(markdown.includes(row), markdown);
  assert.match(markdown, /\| 16 \| 1,000 \| 25 \| 97\.5 \+ 32\.5 \|/);
  assert.match(summary(at('wrk')), /^Connections, by wrk 4\.1\.0$/m);
  assert.match(
    (await makePage(at('autocannon'), 'all')).markdown,
    /sent by autocannon 9\.0\.0,\nsince wrk was not/,
  );
});

test('plots carry the sums and are legible on a light and on a dark page', async () => {
  const { plots } = await makePage(resultsOf({ ways: [wayOf('uws', 8), wayOf('single', 41.4)] }), 'all');
  const svg = plots['cost-single'] ?? '';
  assert.match(svg, /^<svg [^>]*xmlns="http:\/\/www\.w3\.org\/2000\/svg"/);
  assert.match(svg, />41\.4<\/text>/);
  assert.match(svg, /<rect [^>]*fill="#ffffff"/);
  assert.match(svg, /@media \(prefers-color-scheme:dark\)\{[^<]*\[fill="#ffffff"\]\{fill:#0d1117\}/);
});

test('a failed session says so on its page and at its end', async () => {
  const results = resultsOf({ failures: [{ scenario: 'single', message: '5 of 6' }] });
  assert.match((await makePage(results, 'all')).markdown, /\*\*This session failed:\*\*\n- single: 5 of 6/);
  assert.match(summary(results), /FAILED: single: 5 of 6/);
});

test('failed parts of a session run again with its options, and its page says so', async () => {
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

test('figures have three significant digits', () => {
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
