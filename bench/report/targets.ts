// The targets, as ratios within one session, and whether they are met.

import { processNames } from '../deployment/deployment.js';
import type { Pair } from '../desk/suppressed.js';
import { figure, median, type Range, rangeOfMedian, type Table, tableOf, valuesOf } from '../figures.js';
import { memoryOf } from '../latency/half-load.js';
import type { Results } from '../results.js';
import type { Run } from '../throughput/measure.js';
import type { ServersResult } from '../throughput/servers.js';
import type { Level } from '../throughput/turns.js';
import { memoryFloorMib, trendOf } from './trend.js';

export type Target = {
  readonly what: string;
  readonly unit: string;
  readonly value: number;
  readonly bound: number;
  readonly kind: 'at most' | 'at least';
  readonly runs: number;
  /** Where the median lies by the runs; absent if there was one. */
  readonly spread?: Range;
  /** Undecided: the bound lies within the spread. No floor: the generator limited the floor. */
  readonly verdict: 'met' | 'missed' | 'undecided' | 'no floor';
};

type Values = readonly (number | undefined)[];
/** What is known better than from the values alone. */
type More = { readonly spread?: Range | undefined; readonly runs?: number; readonly noFloor?: boolean };

/** No target without a value. */
export function atMost(what: string, unit: string, bound: number, values: Values, more?: More): Target[] {
  return judge({ what, unit, bound, kind: 'at most' }, values, more);
}

function atLeast(what: string, unit: string, bound: number, values: Values): Target[] {
  return judge({ what, unit, bound, kind: 'at least' }, values);
}

function judge(
  target: Pick<Target, 'what' | 'unit' | 'bound' | 'kind'>,
  given: Values,
  more: More = {},
): Target[] {
  const values = valuesOf(given);
  if (values.length === 0) return [];
  const { bound, kind } = target;
  const value = median(values);
  const { runs = values.length, spread = values.length > 1 ? rangeOfMedian(values) : undefined } = more;
  const isMet = kind === 'at most' ? value <= bound : value >= bound;
  const isUndecided = spread !== undefined && spread.least < bound && bound < spread.most;
  const verdict = more.noFloor ? 'no floor' : isUndecided ? 'undecided' : isMet ? 'met' : 'missed';
  return [{ ...target, value, runs, ...(spread && { spread }), verdict }];
}

/** The first by the second value of each round. */
function ratios(above: Values, below: Values): number[] {
  return above.map((value, round) => (value ?? Number.NaN) / (below[round] ?? Number.NaN));
}

function differences(above: Values, below: Values): number[] {
  return above.map((value, round) => (value ?? Number.NaN) - (below[round] ?? Number.NaN));
}

/** Costs of two deployments that should be the same differ by less. */
const sameTimesMax = 1.1;
/** A floor costs more beside a generator that takes much CPU. */
const timesOfUwsMax = { wrk: 6, bench: 3 };
/** A key's CPU with the fewest keys in the index, and how many times that with more; its bytes on disk. */
const keyMicrosecondsMax = 10;
const timesOfFewerMax = 1.3;
const keyBytesMax = 40;
/** After ten seconds of new keys. If the backlog grew by a fifth of what came, it would be more. */
const behindSecondsMax = 2;

/** The targets for which the session measured both sides. */
export function targetsOf(results: Results): Target[] {
  return [
    ...costTargets(results),
    ...curveTargets(results),
    ...halfLoadTargets(results),
    ...backlogTargets(results),
    ...flatTargets(results),
    ...keysTargets(results),
    ...serversTargets(results),
    ...deletionTargets(results),
    ...deskTargets(results),
  ];
}

export function targetTable(targets: readonly Target[]): Table {
  return tableOf(targets, [
    ['', ({ what }) => what],
    ['measured', ({ value, unit }) => `${figure(value)}${unit}`],
    ['by the runs', ({ spread }) => (spread ? `${figure(spread.least)} to ${figure(spread.most)}` : '')],
    ['runs', ({ runs }) => runs],
    ['target', ({ kind, bound, unit }) => `${kind} ${figure(bound)}${unit}`],
    ['verdict', ({ verdict, runs }) => `${verdict}${runs === 1 ? ', one run' : ''}`],
  ]);
}

export const targetNote = `Medians within this session; CPU is summed over all processes but the load generator. "By the runs" is where the median
lies with a probability of nine tenths; fewer than five runs cannot be so sure, and all of them count. If the bound lies within,
the target is undecided. "No floor": the generator was the limit, not the floor.`;

export function costsOf(runs: readonly Run[]): number[] {
  return runs.map(({ cpuSum }) => cpuSum);
}

/** Whether the subject itself limited every run. A floor that did not is not called one. */
export function isSaturated(runs: readonly Run[]): boolean {
  return runs.every(({ limit }) => limit === 'service');
}

function costTargets({ ways }: Results): Target[] {
  const runsOf = (name: string) => ways.find((way) => way.name === name)?.runs ?? [];
  const times = (name: string, other: string) => ratios(costsOf(runsOf(name)), costsOf(runsOf(other)));
  const toFloor = (what: string, name: string, floor: string, bound: number) =>
    atMost(what, ' times', bound, times(name, floor), { noFloor: !isSaturated(runsOf(floor)) });
  const toUws = (what: string, name: string, floor: string) => {
    const bound = timesOfUwsMax[runsOf(floor)[0]?.generator === 'wrk' ? 'wrk' : 'bench'];
    return toFloor(`${what}: CPU, to uWebSockets.js alone`, name, floor, bound);
  };
  const fastify = 'CPU of Fastify + BullMQ, to ours';
  return [
    ...toUws('single events', 'single', 'uws'),
    ...toUws('single events with keys at 64 connections', 'single-keys-64', 'uws-64'),
    ...atLeast(`single events: ${fastify}`, ' times', 5, times('fastify-single', 'single')),
    ...toFloor('bulk of 500: CPU, to ClickHouse alone', 'bulk-500', 'engine', 3.6),
    ...toFloor('bulk of 500 with keys: CPU, to ClickHouse alone', 'bulk-500-keys', 'engine', 5.5),
    ...atLeast(`bulk of 500: ${fastify}`, ' times', 1, times('fastify-bulk-500', 'bulk-500')),
  ];
}

/** In each round. */
export function timesOfFullLoad(curve: NonNullable<Results['curve']>, runs: readonly Run[]): number[] {
  return ratios(costsOf(runs), costsOf(curve.find(({ share }) => share === 1)?.runs ?? []));
}

function curveTargets({ curve = [] }: Results): Target[] {
  const half = curve.find(({ share }) => share === 0.5)?.runs ?? [];
  return atMost('single events at half load: CPU, to full load', ' times', 1.4, timesOfFullLoad(curve, half));
}

function halfLoadTargets({ halfLoad }: Results): Target[] {
  if (halfLoad === undefined) return [];
  const { minutes, samples, queryable } = halfLoad;
  const [sluice, floor] = ['sluice', 'uws-synced'].map((name) =>
    halfLoad.runs.find(({ subject }) => subject === name),
  );
  const p99 = (run: typeof sluice) => run?.run.latency?.sinceDueMs.p99 ?? Number.NaN;
  const ofMinutes = (sluice?.p99OfMinutes ?? []).map((ms) => ms / p99(floor));
  const spread = ofMinutes.length > 1 ? rangeOfMedian(ofMinutes) : undefined;
  const what = `acknowledgement at half load for ${minutes} min: p99 since due, to a server with a synced file`;
  return [
    ...atMost(what, ' times', 3, [p99(sluice) / p99(floor)], { spread, runs: ofMinutes.length }),
    ...atMost('queryable at half load, p99', ' ms', 1_000, [queryable.ms.p99]),
    ...processNames.flatMap((name) => {
      const trend = trendOf(memoryOf(samples, name), memoryFloorMib[name] * 1024 ** 2);
      const times = (bytes: number) => 1 + bytes / trend.median;
      const memory = `half load for ${minutes} min: memory of ${name}, by its trend`;
      return atMost(memory, ' times', times(trend.growthMax), [times(trend.growth)]);
    }),
  ];
}

function backlogTargets({ backlog }: Results): Target[] {
  if (backlog === undefined) return [];
  const { drainedPerSecond, ratePerSecond, memoryTimesMost } = backlog;
  const drains = `backlog: drains while ${figure(ratePerSecond)} events a second come`;
  const memory = 'sealed segments above 100 kB: memory in Redis to bytes of rows, the worst';
  return [
    ...atLeast(drains, ' events/s', 5 * ratePerSecond, [drainedPerSecond]),
    ...atMost(memory, ' times', 1.35, [memoryTimesMost]),
  ];
}

function flatTargets({ flat }: Results): Target[] {
  if (flat === undefined) return [];
  const target = (what: string, levels: readonly Level[], unit: number, of: string) => {
    const rounds = levels.length < 2 ? [] : (levels[0]?.runs ?? []);
    const apart = rounds.map((_, round) => {
      const costs = levels.map(({ runs }) => runs[round]?.cpuSum ?? Number.NaN);
      return Math.max(...costs) / Math.min(...costs);
    });
    const amounts = levels.map((level) => figure(level.of / unit)).join(', ');
    return atMost(`flat: ${what} ${amounts} ${of}, most to least`, ' times', sameTimesMax, apart);
  };
  return [
    ...target('single events at', flat.single, 1e6, 'million stored events'),
    ...target('bulk of 500 at', flat.bulk, 1e6, 'million stored events'),
    ...target('single events of', flat.environments, 1, 'environments'),
  ];
}

/** What an event costs more, in each round, where keys have been forgotten than where none ever was. */
function keysTargets({ keys }: Results): Target[] {
  const [none, ...levels] = keys?.levels ?? [];
  if (keys === undefined || none === undefined || levels.length === 0) return [];
  return [
    ...atMost('keys looked up before any was forgotten', '', 0, [keys.lookedUpBefore]),
    ...levels.slice(0, 2).flatMap((level, index) => {
      const bound = keyMicrosecondsMax * (index === 0 ? 1 : timesOfFewerMax);
      const held = `${figure(level.keys)} in the index`;
      const more = (what: string, costs: Values) =>
        atMost(`${what}, ${held}`, ' µs', bound, differences(costs, none.newKeys));
      const without = `events without keys, ${held}: CPU, to before any key was forgotten`;
      const atRate = `new keys at ${figure(level.atRate?.perSecond)} a second, ${held}: stored after the last was due`;
      return [
        ...atMost(without, ' times', sameTimesMax, ratios(level.withoutKeys, none.withoutKeys)),
        ...more('a new key', level.newKeys),
        ...more('a late repeat of a key', level.repeats),
        ...more('a scattered late repeat', level.scattered),
        ...atMost(atRate, ' s', behindSecondsMax, [level.atRate?.behindSeconds]),
      ];
    }),
    ...atMost('a key in the index, on disk', ' bytes', keyBytesMax, [keys.bytesPerKey]),
  ];
}

/** µs an event in each round, without what the processes use while nothing is sent. */
export function costsAboveIdle({ idle }: ServersResult, { of, runs }: Level): number[] {
  const cpu = idle.find((level) => level.of === of)?.cpu ?? {};
  const msPerSecond = Object.values(cpu).reduce((sum, ms) => sum + ms, 0);
  return runs.map(({ cpuSum, records, seconds, storedAfterMs }) => {
    const measuredSeconds = seconds + storedAfterMs / 1_000;
    return cpuSum - (msPerSecond * 1_000 * measuredSeconds) / records;
  });
}

/** More servers to one of each, at the same rate. */
function serversTargets({ servers }: Results): Target[] {
  return (servers?.ways ?? []).flatMap(({ name, levels: [one, ...more] }) =>
    more.flatMap((level) => {
      const what = `${name} with ${level.of} masters and ${level.of} ClickHouse servers: CPU above idle, to one of each`;
      if (servers === undefined || one === undefined) return [];
      return atMost(
        what,
        ' times',
        1.1,
        ratios(costsAboveIdle(servers, level), costsAboveIdle(servers, one)),
      );
    }),
  );
}

function deletionTargets({ deletion }: Results): Target[] {
  const { one = [], bulk = [], beside, many } = deletion ?? {};
  const users = figure((bulk[0] ?? beside?.runs[0])?.targets);
  const bulks = (how: string, runs: typeof bulk, bound: number) => {
    const gone = runs.map((run) => Math.max(run.partsGoneSeconds, run.redisRewrittenSeconds));
    const what = `deletion of ${users} users, ${how}`;
    const complete = runs.map((run) => run.completeSeconds);
    return [
      ...atMost(`${what}: complete`, ' s', bound, complete),
      ...atMost(`${what}: bytes gone after that`, ' s', 60, gone),
    ];
  };
  const { meanwhileMs = [], beforeMs = [] } = beside ?? {};
  const p99s = (spreads: typeof beforeMs) => spreads.map(({ p99 }) => p99);
  const slower = ratios(p99s(meanwhileMs), p99s(beforeMs));
  const mutations = many && [Math.max(...Object.values(many.mutationsAMinute))];
  return [
    ...bulks('idle', bulk, 10),
    ...bulks('beside ingestion', beside?.runs ?? [], 30),
    ...atMost('p99 of the acknowledgement, during a deletion to before', ' times', 2, slower),
    ...one.flatMap(({ events, everywhere, inOnePart }) =>
      Object.entries({ 'many parts': everywhere, 'one part': inOnePart }).flatMap(([where, runs]) => {
        const what = `one user in ${where} of ${figure(events / 1e6)} million events`;
        return atMost(
          what,
          ' s',
          3,
          runs.map((run) => run.completeSeconds),
        );
      }),
    ),
    ...atMost(
      `${figure(many?.requests)} requests: mutations of a table within a minute`,
      '',
      20,
      mutations ?? [],
    ),
  ];
}

/** µs that an event costs more beside suppressed users, in each pair of runs. */
export function addedBySuppressed(pairs: readonly Pair[]): number[] {
  return pairs.map((pair) => pair.with - pair.without);
}

function deskTargets({ desk }: Results): Target[] {
  if (desk === undefined) return [];
  const { events, exports, suppressed } = desk;
  const users = figure(suppressed.suppressed);
  const firstBytes = exports.map((run) => run.firstByteSeconds);
  const added = (how: string, pairs: readonly Pair[]) =>
    atMost(`an event ${how} beside ${users} suppressed users, more`, ' µs', 0.3, addedBySuppressed(pairs));
  return [
    ...atMost(`export of ${figure(events)} events: first byte`, ' s', 2, firstBytes),
    ...added('alone', suppressed.alone),
    ...added('in bulk', suppressed.inBulk),
  ];
}
