// The bench: targets and their verdicts, the guard, and the pages of results.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { BenchError } from '../../bench/failure.js';
import { rangeOfMedian } from '../../bench/figures.js';
import { guard } from '../../bench/report/guard.js';
import { makePage, summary } from '../../bench/report/page.js';
import { targetsOf } from '../../bench/report/targets.js';
import { type Results, readResults } from '../../bench/results.js';
import { limitOf } from '../../bench/throughput/measure.js';
import { inTurns } from '../../bench/throughput/turns.js';
import { tempDir } from '../harness/temp-dir.js';
import { halfLoadOf, latencyOf, resultsOf, runOf, wayOf, withCommits } from '../support/bench-results.js';

function targetOf(results: Results, words: string) {
  const found = targetsOf(results).filter(({ what }) => what.includes(words));
  assert.equal(found.length, 1, `${found.length} targets with ${words}`);
  return found[0];
}

const costs = (...ways: readonly (readonly [name: string, cost: number])[]) =>
  resultsOf({ ways: ways.map(([name, cost]) => wayOf(name, cost)) });
const queryable = (queryableMs: number) => resultsOf({ halfLoad: halfLoadOf([5], [5], { queryableMs }) });
const backlog = (more: object) =>
  resultsOf({
    backlog: {
      events: 3_000_000,
      segments: 2500,
      redisBytesPerEvent: 250,
      memoryTimesMost: 1.35,
      ratePerSecond: 5000,
      drainSeconds: 100,
      drainedPerSecond: 25_000,
      cpu: { api: 5 },
      latency: latencyOf(5),
      left: [],
      ...more,
    },
  });

/** Each target with results at its bound and just beyond. */
const bounds: readonly (readonly [words: string, at: Results, beyond: Results])[] = [
  ['to uWebSockets.js', costs(['single', 24], ['uws', 4]), costs(['single', 24.1], ['uws', 4])],
  [
    'bulk of 500: CPU, to ClickHouse',
    costs(['bulk-500', 18], ['engine', 5]),
    costs(['bulk-500', 18.1], ['engine', 5]),
  ],
  ['with keys', costs(['bulk-500-keys', 27.5], ['engine', 5]), costs(['bulk-500-keys', 27.6], ['engine', 5])],
  ['Fastify', costs(['single', 10], ['fastify-single', 50]), costs(['single', 10], ['fastify-single', 49.9])],
  [
    'Fastify',
    costs(['bulk-500', 10], ['fastify-bulk-500', 10]),
    costs(['bulk-500', 10], ['fastify-bulk-500', 9.9]),
  ],
  ['queryable', queryable(1000), queryable(1001)],
  ['backlog: drains', backlog({}), backlog({ drainedPerSecond: 24_999 })],
  ['sealed segments', backlog({}), backlog({ memoryTimesMost: 1.351 })],
];

test('results exactly at a bound meet the target, and results beyond it miss it', () => {
  for (const [words, at, beyond] of bounds)
    assert.deepEqual(
      [targetOf(at, words)?.verdict, targetOf(beyond, words)?.verdict],
      ['met', 'missed'],
      words,
    );
});

test('an event is judged by its cost above that in the same round where no key was ever forgotten', () => {
  const keys = (repeats: readonly number[], lookedUpBefore = 0, withoutKeys = [11, 11, 11]) =>
    resultsOf({
      keys: {
        levels: [
          { keys: 0, withoutKeys: [10, 10, 10], newKeys: [20, 21, 30], repeats: [], scattered: [] },
          {
            keys: 1e7,
            withoutKeys,
            newKeys: [21, 22, 33],
            repeats: [25, 26, 40],
            scattered: [],
            atRate: { perSecond: 30_000, behindSeconds: 2.1 },
          },
          { keys: 1e8, withoutKeys, newKeys: [23], repeats, scattered: [] },
        ],
        lookedUpBefore,
        bytesPerKey: 36,
      },
    });
  const of = (...repeats: readonly number[]) => targetOf(keys(repeats), 'repeat of a key, 100,000,000');
  assert.equal(targetOf(keys([30]), 'a new key, 10,000,000')?.value, 1);
  assert.equal(targetOf(keys([30]), 'a new key, 100,000,000')?.value, 3);
  assert.equal(targetOf(keys([30]), 'repeat of a key, 10,000,000')?.value, 5);
  assert.deepEqual(targetOf(keys([30]), 'repeat of a key, 10,000,000')?.spread, { least: 5, most: 10 });
  assert.equal(of(33, 34, 43)?.verdict, 'met');
  assert.equal(of(33, 33, 43.1)?.verdict, 'undecided');
  assert.equal(of(33.1, 34.1, 43.1)?.verdict, 'missed');
  assert.equal(targetOf(keys([40]), 'new keys at 30,000 a second, 10,000,000')?.verdict, 'missed');
  const without = (...costs: number[]) => targetOf(keys([30], 0, costs), 'without keys, 10,000,000')?.verdict;
  assert.equal(without(11, 11, 11), 'met');
  assert.equal(without(10.9, 11, 12), 'undecided');
  assert.equal(without(12, 12, 12), 'missed');
  assert.equal(targetOf(keys([30], 0), 'looked up before')?.verdict, 'met');
  assert.equal(targetOf(keys([30], 1), 'looked up before')?.verdict, 'missed');
});

test('costs are judged by the median of the runs', () => {
  const results = resultsOf({ ways: [wayOf('single', 90, 30, 31), wayOf('uws', 10, 10, 10)] });
  assert.equal(targetOf(results, 'to uWebSockets.js')?.value, 3.1);
});

test('more servers of each kind may cost a tenth more than one of each', () => {
  const at = (...threeOfEach: readonly number[]) => {
    const level = (of: number, ...costs: readonly number[]) => ({
      of,
      runs: costs.map((cost) => runOf(cost)),
    });
    const levels = [level(1, 100, 100), level(2, 109, 109), level(3, ...threeOfEach)];
    const idle = [1, 2, 3].map((of) => ({ of, cpu: { api: of / 1000, clickhouse: (7 * of) / 1000 } }));
    const ways = [{ name: 'single', eventsPerSecond: 1000, levels }];
    return resultsOf({ servers: { shards: 12, ways, idle } });
  };
  assert.equal(targetOf(at(111, 112), 'with 2 masters')?.verdict, 'met');
  assert.equal(targetOf(at(111, 112), 'with 3 masters')?.verdict, 'missed');
  assert.equal(targetOf(at(105, 112), 'with 3 masters')?.verdict, 'undecided');
});

test('with a cheap generator an event may cost six times the floor, otherwise three times', () => {
  const at = (generator: string, ...costs: readonly number[]) => {
    const ways = [
      wayOf('single-keys', 500),
      wayOf('single-keys-64', ...costs),
      wayOf('uws-64', ...costs.map(() => 10)),
    ];
    const by = ways.map((way) => ({ ...way, runs: way.runs.map((run) => ({ ...run, generator })) }));
    return targetOf(resultsOf({ ways: by }), 'at 64 connections');
  };
  assert.equal(at('wrk', 60)?.verdict, 'met');
  assert.equal(at('wrk', 60.1)?.verdict, 'missed');
  assert.equal(at('bench', 30)?.verdict, 'met');
  assert.equal(at('bench', 30.1)?.verdict, 'missed');
  assert.equal(at('wrk', 90, 50, 40)?.value, 5);
});

test('the limit is the process whose core is full, and a floor that was not the limit is not called one', () => {
  const shares = { busiest: 0.5, generator: 0.3, machine: 0.8 };
  assert.equal(limitOf({ ...shares, busiest: 0.8 }), 'service');
  assert.equal(limitOf({ ...shares, generator: 0.8 }), 'generator');
  assert.equal(limitOf({ busiest: 0.9, generator: 0.95, machine: 1 }), 'generator');
  assert.equal(limitOf({ ...shares, machine: 0.95 }), 'machine');
  assert.equal(limitOf(shares), 'waiting');
  assert.equal(limitOf({ ...shares, ofRate: 0.96, busiest: 0.9 }), 'rate');
  assert.equal(limitOf({ ...shares, ofRate: 0.9, busiest: 0.9 }), 'service');
  assert.equal(limitOf({ ...shares, ofRate: 0.9 }), 'waiting');
  assert.equal(limitOf({ ...shares, ofRate: 0.96, unsent: 1 }), 'connections');
  assert.equal(limitOf({ ...shares, ofRate: 1, generator: 0.9 }), 'generator');
  const floor = wayOf('uws', 10, 10);
  const [first, second] = floor.runs;
  assert.ok(first && second);
  const starved = { ...floor, subject: 'uws', runs: [first, { ...second, limit: 'generator' as const }] };
  const results = resultsOf({ ways: [wayOf('single', 20), starved] });
  assert.equal(targetOf(results, 'to uWebSockets.js')?.verdict, 'no floor');
});

test('the cost at half load is compared with full load in the same round', () => {
  const at = (full: readonly number[], half: readonly number[]) => {
    const level = (share: number, costs: readonly number[]) => ({
      share,
      runs: costs.map((cost) => runOf(cost)),
    });
    const curve = [level(0.3, [900]), level(0.5, half), level(1, full)];
    return targetOf(resultsOf({ curve }), 'at half load: CPU, to full load');
  };
  assert.deepEqual([at([50], [70])?.value, at([50], [70])?.verdict], [1.4, 'met']);
  assert.equal(at([50], [70.1])?.verdict, 'missed');
  // The second round was in a slow minute.
  assert.deepEqual(at([50, 100, 50], [65, 130, 65])?.spread, { least: 1.3, most: 1.3 });
  assert.equal(at([50, 50, 50], [65, 66, 80])?.verdict, 'undecided');
});

test('an acknowledgement, from when it is due, may take three times as long as that of a server with a synced file', () => {
  const at = (sluice: readonly number[], floor: readonly number[]) =>
    targetOf(resultsOf({ halfLoad: halfLoadOf(sluice, floor) }), 'acknowledgement at half load');
  assert.deepEqual([at([6], [2])?.value, at([6], [2])?.bound, at([6], [2])?.verdict], [3, 3, 'met']);
  assert.equal(at([6.01], [2])?.verdict, 'missed');
});

test('a target is undecided if single runs lie on both sides of its bound', () => {
  const at = (sluice: readonly number[], floor: readonly number[]) =>
    targetOf(resultsOf({ halfLoad: halfLoadOf(sluice, floor) }), 'acknowledgement at half load');
  const wide = at([4, 6, 8], [2]);
  assert.deepEqual([wide?.value, wide?.spread, wide?.verdict], [3, { least: 2, most: 4 }, 'undecided']);
  assert.equal(at([7, 8, 9], [2])?.verdict, 'missed');
  assert.equal(at([4, 5, 6], [2])?.verdict, 'met');
});

test('flat means at most a tenth between minimum and maximum of a round, whatever the speed of the machine', () => {
  const at = (...costs: readonly number[]): Results => {
    // Each round is twice as slow as the one before.
    const levels = (of: (level: number) => number) =>
      costs.map((_, level) => ({ of: level + 1, runs: [1, 2, 4].map((slow) => runOf(of(level) * slow)) }));
    const single = levels((level) => costs[level] ?? 0);
    return resultsOf({ flat: { single, bulk: levels(() => 5), environments: [] } });
  };
  assert.equal(targetOf(at(20, 21, 22), 'single events at')?.verdict, 'met');
  assert.equal(targetOf(at(22, 21, 20), 'single events at')?.verdict, 'met');
  assert.equal(targetOf(at(20, 21, 22.1), 'single events at')?.verdict, 'missed');
  assert.equal(targetOf(at(20, 21), 'bulk of 500 at')?.value, 1);
  assert.deepEqual(targetsOf(at(20)), []);
});

test('memory may grow by a tenth, or by the floor for small processes, after the first fifth', () => {
  const at = (redisMib: (share: number) => number) =>
    targetOf(resultsOf({ halfLoad: halfLoadOf([5], [5], { redisMib }) }), 'memory of redis')?.verdict;
  const growths: [verdict: string, (share: number) => number][] = [
    ['met', (share) => (share < 0.2 ? 100 : 1000)],
    ['met', (share) => 1000 + 90 * share],
    ['missed', (share) => 1000 + 200 * share],
    ['met', (share) => 10 + 15 * share],
  ];
  for (const [verdict, redisMib] of growths) assert.equal(at(redisMib), verdict, String(redisMib));
});

test('the range of a median leaves out the outermost runs of many, but none of few', () => {
  const of = (count: number) => Array.from({ length: count }, (_, i) => i + 1);
  assert.deepEqual(rangeOfMedian(of(3)), { least: 1, most: 3 });
  assert.deepEqual(rangeOfMedian(of(7)), { least: 1, most: 7 });
  assert.deepEqual(rangeOfMedian(of(8)), { least: 2, most: 7 });
  assert.deepEqual(rangeOfMedian(of(9)), { least: 2, most: 8 });
  assert.deepEqual(rangeOfMedian(of(20)), { least: 6, most: 15 });
});

test('the CPU that servers use while nothing is sent is no cost of an event', () => {
  const idle = [1, 2].map((of) => ({ of, cpu: { worker: 50 * of } }));
  // A second for the load and 10 ms until all is stored: 50.5 µs for each of 1,000 events, then 101.
  const levels = [150.5, 211].map((cost, index) => ({ of: index + 1, runs: [runOf(cost), runOf(cost)] }));
  const ways = [{ name: 'single', eventsPerSecond: 1000, levels }];
  const target = targetOf(resultsOf({ servers: { shards: 12, ways, idle } }), 'with 2 masters');
  assert.ok(Math.abs((target?.value ?? 0) - 1.1) < 1e-9, String(target?.value));
});

test('turns are taken round after round; a failed one is left out, and the first round may only warm up', async () => {
  const order: string[] = [];
  const failed: string[] = [];
  const turn = (name: string, rounds: number) => ({
    name,
    rounds,
    run: async (round: number) => {
      order.push(`${name}${round}`);
      if (name === 'c' && round === 1) throw new Error('c fails');
      return runOf(round);
    },
  });
  const said = { say: () => undefined };
  const turns = [turn('a', 2), turn('b', 1), turn('c', 2)];
  const found = await inTurns(turns, said, { failed: (name) => void failed.push(name) });
  assert.deepEqual(order, ['a1', 'b1', 'c1', 'a2']);
  assert.deepEqual(failed, ['c']);
  assert.deepEqual(
    found.map(({ runs }) => runs.map(({ cpuSum }) => cpuSum)),
    [[1, 2], [1], []],
  );
  const [warm] = await inTurns([turn('w', 1)], said, { warmUp: true });
  assert.deepEqual(order.slice(-2), ['w0', 'w1']);
  assert.equal(warm?.runs.length, 1);
  await assert.rejects(inTurns([turn('c', 1)], said), /c fails/);
});

test('the guard finds an event that costs more times its floor, on a machine of another speed', () => {
  const session = (ways: Record<string, readonly number[]>) =>
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
  const verdictOf = (before: readonly number[], after: readonly number[]) =>
    guard(session({ uws: [1, 1, 1], single: before }), session({ uws: [1, 1, 1], single: after }))[0]
      ?.verdict;
  assert.equal(verdictOf([40, 41, 43], [43, 44, 45]), 'same', 'the runs overlap');
  assert.deepEqual(
    [verdictOf([100, 100], [102.9, 102.9]), verdictOf([100, 100], [103, 103])],
    ['same', 'worse'],
  );
  assert.deepEqual([verdictOf([100], [109.9, 109.9]), verdictOf([100], [110, 110])], ['same', 'worse']);
});

test('refuses a file that does not exist, is not JSON or contains something else, and names it', () => {
  const dir = tempDir('bench-results');
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

test('skips a target if one of its two figures was not measured', () => {
  assert.deepEqual(targetsOf(resultsOf({ ways: [wayOf('single', 40)] })), []);
});

test('the page has the verdicts, and a plot for each one that it links', async () => {
  const results = resultsOf({
    ways: [wayOf('uws', 8, 8), wayOf('single', 40, 41), withCommits('single-keys-64', 60, 50, 70)],
    halfLoad: halfLoadOf([5], [1]),
    curve: [0.5, 1].map((share) => ({ share, runs: [runOf(100 - 50 * share)] })),
    failures: [{ scenario: 'bulk-500', message: '5 of 6' }],
  });
  const { markdown, plots } = await makePage(results, '/somewhere/all');
  const linked = [...markdown.matchAll(/!\[[^\]]+\]\(all-([a-z-]+)\.svg\)/g)].map(([, name]) => name);
  assert.deepEqual(linked.sort(), ['curve', 'latency', 'seconds']);
  assert.deepEqual(Object.keys(plots).sort(), linked);
  assert.match(
    markdown,
    /\| single events: CPU, to uWebSockets\.js alone \| 5 times \| 5 to 5\.13 \| 2 \| at most 6 times \| met \|/,
  );
  assert.match(markdown, /\*\*This session failed:\*\*\n- bulk-500: 5 of 6/);
  assert.match(summary(results), /FAILED: bulk-500: 5 of 6/);
  assert.doesNotMatch(markdown + summary(results), /NaN|undefined/);
});

test('a deletion of many users, and what it costs others, are judged', () => {
  const cpu = { seconds: 2, othersShare: 0 };
  const bulk = (completeSeconds: number) => {
    const times = { answeredSeconds: 0.05, completeSeconds, partsGoneSeconds: 3, redisRewrittenSeconds: 4 };
    return { targets: 1000, rows: 10_300, ...times, cpu };
  };
  const latencies = (p99: number) => ({ p50: 1, p99, max: 2 * p99 });
  const beside = { runs: [bulk(3)], beforeMs: [latencies(10)], meanwhileMs: [latencies(15)] };
  const deletion = { events: 1e6, customers: 1e5, one: [], bulk: [bulk(2)] };
  const results = resultsOf({ deletion: { ...deletion, beside: { ratePerSecond: 5000, ...beside } } });
  const of = (words: string) => targetOf(results, words);
  assert.deepEqual(
    [of('beside ingestion: complete'), of('during a deletion to before')].map((each) => [
      each?.value,
      each?.verdict,
    ]),
    [
      [3, 'met'],
      [1.5, 'met'],
    ],
  );
});

test('an export must begin within two seconds, and suppressed users may cost an event 0.4 µs', () => {
  const deskOf = (firstByteSeconds: number, added: number) => {
    const pairs = [{ without: 1, with: 1 + added }];
    const run = {
      gzip: false,
      records: 1e7,
      bytes: 3e9,
      firstByteSeconds,
      seconds: 20,
      cpu: { api: 10, clickhouse: 10 },
      apiMib: { before: 80, most: 120 },
    };
    const previews = [{ what: 'a user', users: 1, rows: 10, ms: [5] }];
    const suppressed = { suppressed: 1e6, alone: pairs, inBulk: pairs };
    const rest = { submittedMs: [2], previews, polledMs: [1], suppressed };
    return resultsOf({ desk: { events: 1e7, othersEvents: 1e7, exports: [run], ...rest } });
  };
  assert.equal(targetOf(deskOf(2, 0.1), 'first byte')?.verdict, 'met');
  assert.equal(targetOf(deskOf(2.1, 0.1), 'first byte')?.verdict, 'missed');
  assert.equal(targetOf(deskOf(1, 0.25), 'event alone')?.verdict, 'met');
  assert.equal(targetOf(deskOf(1, 0.41), 'event in bulk')?.verdict, 'missed');
});
