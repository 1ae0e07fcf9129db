// The targets, as ratios within one session, and whether they are met.

import { processNames } from '../deployment/deployment.js';
import { sumCpu } from '../deployment/meter.js';
import type { Pair } from '../desk/suppressed.js';
import { figure, median, type Range, rangeOfMedian, type Table, tableOf, valuesOf } from '../figures.js';
import { memoryOf } from '../latency/half-load.js';
import type { FoundOf, Results } from '../results.js';
import type { Run } from '../throughput/measure.js';
import type { Level } from '../throughput/turns.js';
import { ifFound } from './section.js';
import { memoryFloorMib, trendOf } from './trend.js';

export type Target = {
  readonly what: string;
  readonly unit: string;
  readonly value: number;
  readonly bound: number;
  readonly kind: 'at most' | 'at least';
  readonly runs: number;
  /** The range in which the median lies according to the runs; absent if there was only one run. */
  readonly spread?: Range;
  /** `undecided`: the bound lies within the spread. `no floor`: the generator limited the floor. */
  readonly verdict: 'met' | 'missed' | 'undecided' | 'no floor';
};

type Values = readonly (number | undefined)[];
/** Known facts that replace those derived from the values. */
type More = { readonly spread?: Range; readonly runs?: number; readonly noFloor?: boolean };

/** A target with an upper bound; none if there are no values. */
export function atMost(
  what: string,
  unit: string,
  bound: number,
  given: Values,
  { noFloor = false, ...more }: More = {},
  kind: Target['kind'] = 'at most',
): Target[] {
  const values = valuesOf(given);
  if (values.length === 0) return [];
  const value = median(values);
  const { runs = values.length, spread = values.length > 1 ? rangeOfMedian(values) : undefined } = more;
  const isMet = kind === 'at most' ? value <= bound : value >= bound;
  const isUndecided = spread !== undefined && spread.least < bound && bound < spread.most;
  const verdict = noFloor ? 'no floor' : isUndecided ? 'undecided' : isMet ? 'met' : 'missed';
  return [{ what, unit, value, bound, kind, runs, spread, verdict }];
}

function atLeast(what: string, unit: string, bound: number, values: Values): Target[] {
  return atMost(what, unit, bound, values, {}, 'at least');
}

/** In each round, the first value divided by the second. */
export function ratios(above: Values, below: Values): number[] {
  return above.map((value, round) => (value ?? Number.NaN) / (below[round] ?? Number.NaN));
}

/** Two deployments whose costs should be equal may differ by this factor. */
const sameTimesMax = 1.1;
/** The bound is smaller with a generator that takes much CPU, since the floor then costs more. */
const timesOfUwsMax = { wrk: 6, bench: 3 };
/** Bounds of a key's CPU with the smallest index, of how many times that with larger ones, and of its bytes on disk. */
const keyMicrosecondsMax = 10;
const timesOfFewerMax = 1.3;
const keyBytesMax = 40;
/** The bound after ten seconds of new keys: storing is further behind only if the backlog grows by a fifth of what arrives. */
const behindSecondsMax = 2;

/** The targets for which the session measured both sides. */
export function targetsOf(results: Results): Target[] {
  const { curve, halfLoad, backlog, flat, keys, servers, replicas, deletion, desk } = results;
  return [
    ...costTargets(results),
    ...ifFound(curve, curveTargets),
    ...ifFound(halfLoad, halfLoadTargets),
    ...ifFound(backlog, backlogTargets),
    ...ifFound(flat, flatTargets),
    ...ifFound(keys, keysTargets),
    ...ifFound(servers, serversTargets),
    ...ifFound(replicas, replicasTargets),
    ...ifFound(deletion, deletionTargets),
    ...ifFound(desk, deskTargets),
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

/** Whether the subject itself limited every run. Otherwise it does not count as a floor. */
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

/** The cost of an event at a share of the rate, as a multiple of that at full load, in each round. */
export function timesOfFullLoad(curve: FoundOf<'curve'>, runs: readonly Run[]): number[] {
  return ratios(costsOf(runs), costsOf(curve.find(({ share }) => share === 1)?.runs ?? []));
}

function curveTargets(curve: FoundOf<'curve'>): Target[] {
  const half = curve.find(({ share }) => share === 0.5)?.runs ?? [];
  return atMost('single events at half load: CPU, to full load', ' times', 1.4, timesOfFullLoad(curve, half));
}

function halfLoadTargets({ minutes, samples, queryable, runs }: FoundOf<'halfLoad'>): Target[] {
  const [sluice, floor] = ['sluice', 'uws-synced'].map((name) =>
    runs.find(({ subject }) => subject === name),
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

function backlogTargets(found: FoundOf<'backlog'>): Target[] {
  const { drainedPerSecond, ratePerSecond, memoryTimesMost } = found;
  const drains = `backlog: drains while ${figure(ratePerSecond)} events a second come`;
  const memory = 'sealed segments above 100 kB: memory in Redis to bytes of rows, the worst';
  return [
    ...atLeast(drains, ' events/s', 5 * ratePerSecond, [drainedPerSecond]),
    ...atMost(memory, ' times', 1.35, [memoryTimesMost]),
  ];
}

function flatTargets({ single, bulk, environments }: FoundOf<'flat'>): Target[] {
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
    ...target('single events at', single, 1e6, 'million stored events'),
    ...target('bulk of 500 at', bulk, 1e6, 'million stored events'),
    ...target('single events of', environments, 1, 'environments'),
  ];
}

/** Compares, in each round, events when keys were forgotten with events when none ever was. */
function keysTargets({ levels: [none, ...levels], lookedUpBefore, bytesPerKey }: FoundOf<'keys'>): Target[] {
  if (none === undefined || levels.length === 0) return [];
  return [
    ...atMost('keys looked up before any was forgotten', '', 0, [lookedUpBefore]),
    ...levels.slice(0, 2).flatMap(({ keys, withoutKeys, newKeys, repeats, scattered, atRate }, index) => {
      const bound = keyMicrosecondsMax * (index === 0 ? 1 : timesOfFewerMax);
      const held = `${figure(keys)} in the index`;
      const more = (what: string, costs: readonly number[]) => {
        const added = costs.map((cost, round) => cost - (none.newKeys[round] ?? Number.NaN));
        return atMost(`${what}, ${held}`, ' µs', bound, added);
      };
      const without = `events without keys, ${held}: CPU, to before any key was forgotten`;
      const behind = `new keys at ${figure(atRate?.perSecond)} a second, ${held}: stored after the last was due`;
      return [
        ...atMost(without, ' times', sameTimesMax, ratios(withoutKeys, none.withoutKeys)),
        ...more('a new key', newKeys),
        ...more('a late repeat of a key', repeats),
        ...more('a scattered late repeat', scattered),
        ...atMost(behind, ' s', behindSecondsMax, [atRate?.behindSeconds]),
      ];
    }),
    ...atMost('a key in the index, on disk', ' bytes', keyBytesMax, [bytesPerKey]),
  ];
}

/** µs per event in each round, without what the processes use while nothing is sent. */
export function costsAboveIdle({ idle }: FoundOf<'servers'>, { of, runs }: Level): number[] {
  const msPerSecond = sumCpu(idle.find((level) => level.of === of)?.cpu ?? {});
  return runs.map(({ cpuSum, records, seconds, storedAfterMs }) => {
    const measuredSeconds = seconds + storedAfterMs / 1_000;
    return cpuSum - (msPerSecond * 1_000 * measuredSeconds) / records;
  });
}

/** Compares several servers with one of each, at the same rate. */
function serversTargets(servers: FoundOf<'servers'>): Target[] {
  return servers.ways.flatMap(({ name, levels: [one, ...more] }) =>
    more.flatMap((level) => {
      const what = `${name} with ${level.of} masters and ${level.of} ClickHouse servers: CPU above idle, to one of each`;
      const ofOne = one === undefined ? [] : costsAboveIdle(servers, one);
      return atMost(what, ' times', sameTimesMax, ratios(costsAboveIdle(servers, level), ofOne));
    }),
  );
}

/** The bounds of what replicas may add to the cost of an event and to its latency, and of a take-over. */
const timesOfOneRedisMax = 1.3;
const p99TimesMax = 2;
const takeOverMsMax = 10_000;

function replicasTargets({ rates, takeOversMs }: FoundOf<'replicas'>): Target[] {
  const p99s = ({ runs }: Level) => runs.flatMap(({ latency }) => latency?.sinceDueMs.p99 ?? []);
  const costs = rates.flatMap(({ perSecond, levels: [none, ...more] }) =>
    more.flatMap((level) => {
      const what = `${perSecond} events a second, ${level.of} acknowledgements, to one Redis`;
      const ofOne = none ?? { of: 0, runs: [] };
      return [
        ...atMost(
          `${what}: CPU`,
          ' times',
          timesOfOneRedisMax,
          ratios(costsOf(level.runs), costsOf(ofOne.runs)),
        ),
        ...atMost(`${what}: p99`, ' times', p99TimesMax, ratios(p99s(level), p99s(ofOne))),
      ];
    }),
  );
  const worst = takeOversMs.length === 0 ? [] : [Math.max(...takeOversMs)];
  const runs = { runs: takeOversMs.length };
  return [
    ...costs,
    ...atMost('accepted again after a take-over, the longest', ' ms', takeOverMsMax, worst, runs),
  ];
}

function deletionTargets({ one = [], bulk = [], beside, many }: FoundOf<'deletion'>): Target[] {
  const { runs: besideRuns = [], meanwhileMs = [], beforeMs = [] } = beside ?? {};
  const users = figure((bulk[0] ?? besideRuns[0])?.targets);
  const complete = (what: string, bound: number, runs: readonly { readonly completeSeconds: number }[]) =>
    atMost(
      what,
      ' s',
      bound,
      runs.map((run) => run.completeSeconds),
    );
  const bulks = (how: string, runs: typeof bulk, bound: number) => {
    const gone = runs.map((run) => Math.max(run.partsGoneSeconds, run.redisRewrittenSeconds));
    const what = `deletion of ${users} users, ${how}`;
    return [
      ...complete(`${what}: complete`, bound, runs),
      ...atMost(`${what}: bytes gone after that`, ' s', 60, gone),
    ];
  };
  const p99s = (spreads: typeof beforeMs) => spreads.map(({ p99 }) => p99);
  const slower = ratios(p99s(meanwhileMs), p99s(beforeMs));
  const mutations = ifFound(many, ({ mutationsAMinute }) => [Math.max(...Object.values(mutationsAMinute))]);
  return [
    ...bulks('idle', bulk, 10),
    ...bulks('beside ingestion', besideRuns, 30),
    ...atMost('p99 of the acknowledgement, during a deletion to before', ' times', 2, slower),
    ...one.flatMap(({ events, everywhere, inOnePart }) => {
      const ofEvents = `${figure(events / 1e6)} million events`;
      return [
        ...complete(`one user in many parts of ${ofEvents}`, 3, everywhere),
        ...complete(`one user in one part of ${ofEvents}`, 3, inOnePart),
      ];
    }),
    ...atMost(`${figure(many?.requests)} requests: mutations of a table within a minute`, '', 20, mutations),
  ];
}

/** How many µs an event costs more if users are suppressed, in each pair of runs. */
export function addedBySuppressed(pairs: readonly Pair[]): number[] {
  return pairs.map((pair) => pair.with - pair.without);
}

function deskTargets({ events, exports, suppressed }: FoundOf<'desk'>): Target[] {
  const beside = `beside ${figure(suppressed.suppressed)} suppressed users, more`;
  const added = (how: string, pairs: readonly Pair[]) =>
    atMost(`an event ${how} ${beside}`, ' µs', 0.4, addedBySuppressed(pairs));
  const firstBytes = exports.map((run) => run.firstByteSeconds);
  return [
    ...atMost(`export of ${figure(events)} events: first byte`, ' s', 2, firstBytes),
    ...added('alone', suppressed.alone),
    ...added('in bulk', suppressed.inBulk),
  ];
}
