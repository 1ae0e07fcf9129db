// The targets, as ratios within one session, and whether they are met.

import { processNames } from '../deployment/deployment.js';
import { addedMicroseconds, type Pair } from '../desk/suppressed.js';
import { figure, median, type Table, tableOf } from '../figures.js';
import { memoryOf } from '../latency/half-load.js';
import type { Results } from '../results.js';
import type { FlatLevel } from '../throughput/flat.js';
import type { Run } from '../throughput/measure.js';
import { memoryFloorMib, trendOf } from './trend.js';

export type Target = {
  readonly what: string;
  readonly unit: string;
  readonly value: number;
  readonly bound: number;
  readonly kind: 'at most' | 'at least';
  /** The range of single runs; absent if there was one run. */
  readonly spread?: Spread;
  /** Undecided: the bound lies within the spread. No floor: the generator limited the floor. */
  readonly verdict: 'met' | 'missed' | 'undecided' | 'no floor';
};

type Spread = { readonly least: number; readonly most: number };
type Measured = { readonly value: number; readonly spread?: Spread; readonly noFloor?: boolean };

/** The ratio of the medians, with the range that single runs would give. */
function ratioOf(above: readonly number[], below: readonly number[]): Measured | undefined {
  const value = median(above) / median(below);
  if (Number.isNaN(value)) return undefined;
  if (above.length < 2 && below.length < 2) return { value };
  const least = Math.min(...above) / Math.max(...below);
  return { value, spread: { least, most: Math.max(...above) / Math.min(...below) } };
}

/** The median of one value per round, with their range. */
function medianOfRounds(values: readonly number[]): Measured | undefined {
  if (values.length === 0) return undefined;
  const spread = { least: Math.min(...values), most: Math.max(...values) };
  return { value: median(values), ...(values.length > 1 && { spread }) };
}

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

export function targetTable(results: Results): Table {
  return tableOf(targetsOf(results), [
    ['', ({ what }) => what],
    ['measured', ({ value, unit }) => `${figure(value)}${unit}`],
    ['by single runs', ({ spread }) => (spread ? `${figure(spread.least)} to ${figure(spread.most)}` : '')],
    ['target', ({ kind, bound, unit }) => `${kind} ${figure(bound)}${unit}`],
    ['verdict', ({ verdict }) => verdict],
  ]);
}

export function costsOf(runs: readonly Run[]): number[] {
  return runs.map(({ cpuSum }) => cpuSum);
}

/** Whether the subject itself limited every run. A floor that did not is not called one. */
export function isSaturated(runs: readonly Run[]): boolean {
  return runs.every(({ limit }) => limit === 'service');
}

function costTargets({ ways }: Results): Target[] {
  const runsOf = (name: string) => ways.find((way) => way.name === name)?.runs ?? [];
  const ratio = (a: string, b: string) => ratioOf(costsOf(runsOf(a)), costsOf(runsOf(b)));
  const toFloor = (what: string, name: string, floor: string, bound: number) => {
    const found = ratio(name, floor);
    return atMost(what, ' times', found && { ...found, noFloor: !isSaturated(runsOf(floor)) }, bound);
  };
  const toUws = (what: string, name: string, floor: string) => {
    const bound = timesOfUwsMax[runsOf(floor)[0]?.generator === 'wrk' ? 'wrk' : 'bench'];
    return toFloor(`${what}: CPU, to uWebSockets.js alone`, name, floor, bound);
  };
  const engine = 'CPU, to ClickHouse alone';
  const fastify = 'CPU of Fastify + BullMQ, to ours';
  return [
    toUws('single events', 'single', 'uws'),
    toUws('single events with keys at 64 connections', 'single-keys-64', 'uws-64'),
    atLeast(`single events: ${fastify}`, ' times', ratio('fastify-single', 'single'), 5),
    toFloor(`bulk of 500: ${engine}`, 'bulk-500', 'engine', 3.6),
    toFloor(`bulk of 500 with keys: ${engine}`, 'bulk-500-keys', 'engine', 5.5),
    atLeast(`bulk of 500: ${fastify}`, ' times', ratio('fastify-bulk-500', 'bulk-500'), 1),
  ].flat();
}

function curveTargets({ curve = [] }: Results): Target[] {
  const runsAt = (wanted: number) => curve.find(({ share }) => share === wanted)?.runs ?? [];
  const full = runsAt(1);
  const ratios = runsAt(0.5).map(({ cpuSum }, round) => cpuSum / (full[round]?.cpuSum ?? Number.NaN));
  return atMost('single events at half load: CPU, to full load', ' times', medianOfRounds(ratios), 1.4);
}

function halfLoadTargets({ halfLoad }: Results): Target[] {
  if (halfLoad === undefined) return [];
  const { minutes, samples, queryable } = halfLoad;
  const [sluice, floor] = ['sluice', 'uws-synced'].map((name) =>
    halfLoad.runs.find(({ subject }) => subject === name),
  );
  const p99 = (run: typeof sluice) => run?.run.latency?.sinceDueMs.p99 ?? Number.NaN;
  const spread = ratioOf(sluice?.p99OfMinutes ?? [], floor?.p99OfMinutes ?? [])?.spread;
  const toFloor = { value: p99(sluice) / p99(floor), ...(spread && { spread }) };
  const acknowledged = `acknowledgement at half load for ${minutes} min: p99 since due`;
  return [
    ...atMost(`${acknowledged}, to a server with a synced file`, ' times', toFloor, 3),
    ...atMost('queryable at half load, p99', ' ms', { value: queryable.ms.p99 }, 1_000),
    ...processNames.flatMap((name) => {
      const trend = trendOf(memoryOf(samples, name), memoryFloorMib[name] * 1024 ** 2);
      const times = (bytes: number) => 1 + bytes / trend.median;
      const what = `half load for ${minutes} min: memory of ${name}, by its trend`;
      return atMost(what, ' times', { value: times(trend.growth) }, times(trend.growthMax));
    }),
  ];
}

function backlogTargets({ backlog }: Results): Target[] {
  if (backlog === undefined) return [];
  const { drainedPerSecond, ratePerSecond, memoryTimesMost } = backlog;
  const drains = `backlog: drains while ${figure(ratePerSecond)} events a second come`;
  const memory = 'sealed segments above 100 kB: memory in Redis to bytes of rows, the worst';
  return [
    ...atLeast(drains, ' events/s', { value: drainedPerSecond }, 5 * ratePerSecond),
    ...atMost(memory, ' times', { value: memoryTimesMost }, 1.35),
  ];
}

function flatTargets({ flat }: Results): Target[] {
  if (flat === undefined) return [];
  const target = (what: string, levels: readonly FlatLevel[], unit: number, of: string) => {
    const rounds = levels.length < 2 ? 0 : Math.min(...levels.map(({ runs }) => runs.length));
    const ratios = Array.from({ length: rounds }, (_, round) => {
      const costs = levels.map(({ runs }) => runs[round]?.cpuSum ?? Number.NaN);
      return Math.max(...costs) / Math.min(...costs);
    });
    const amounts = levels.map((level) => figure(level.of / unit)).join(', ');
    return atMost(`flat: ${what} ${amounts} ${of}, most to least`, ' times', medianOfRounds(ratios), 1.1);
  };
  return [
    ...target('single events at', flat.single, 1e6, 'million stored events'),
    ...target('bulk of 500 at', flat.bulk, 1e6, 'million stored events'),
    ...target('single events of', flat.environments, 1, 'environments'),
  ];
}

/** The added cost of an event with a key once keys have been forgotten: for a new key, which is indexed, and for a repeat. */
function keysTargets({ keys }: Results): Target[] {
  const [none, ...levels] = keys?.levels ?? [];
  if (keys === undefined || none === undefined || levels.length === 0) return [];
  const more = (costs: readonly number[], added = 0) => ({
    value: median(costs) - median(none.newKeys) + added,
    spread: {
      least: Math.min(...costs) - Math.max(...none.newKeys) + added,
      most: Math.max(...costs) - Math.min(...none.newKeys) + added,
    },
  });
  return [
    ...levels.slice(0, 2).flatMap((level, index) => {
      const bound = keyMicrosecondsMax * (index === 0 ? 1 : timesOfFewerMax);
      const held = `${figure(level.keys)} in the index`;
      return [
        ...atMost(`a new key, ${held}`, ' µs', more(level.newKeys, keys.addMicroseconds), bound),
        ...atMost(`a late repeat of a key, ${held}`, ' µs', more(level.repeats), bound),
        ...atMost(`a scattered late repeat, ${held}`, ' µs', more(level.scattered ?? []), bound),
        ...atMost(
          `new keys at ${figure(level.atRate?.perSecond)} a second, ${held}: stored after the last was due`,
          ' s',
          level.atRate && { value: level.atRate.behindSeconds },
          behindSecondsMax,
        ),
      ];
    }),
    ...atMost('a key in the index, on disk', ' bytes', { value: keys.bytesPerKey }, keyBytesMax),
  ];
}

/** More servers to one of each, at the same rate. */
function serversTargets({ servers }: Results): Target[] {
  return (servers?.ways ?? []).flatMap(({ name, levels: [one, ...more] }) =>
    more.flatMap(({ of, runs }) => {
      const what = `${name} with ${of} masters and ${of} ClickHouse servers: CPU, to one of each`;
      return atMost(what, ' times', ratioOf(costsOf(runs), costsOf(one?.runs ?? [])), 1.1);
    }),
  );
}

function deletionTargets({ deletion }: Results): Target[] {
  const { one = [], bulk = [], beside, many } = deletion ?? {};
  const seconds = <Of>(what: string, runs: readonly Of[], value: (run: Of) => number, bound: number) =>
    atMost(what, ' s', medianOfRounds(runs.map(value)), bound);
  const users = figure((bulk[0] ?? beside?.runs[0])?.targets);
  const bulks = (how: string, runs: typeof bulk, bound: number) => {
    const what = `deletion of ${users} users, ${how}`;
    const goneSeconds = (run: (typeof bulk)[number]) =>
      Math.max(run.partsGoneSeconds, run.redisRewrittenSeconds);
    return [
      ...seconds(`${what}: complete`, runs, (run) => run.completeSeconds, bound),
      ...seconds(`${what}: bytes gone after that`, runs, goneSeconds, 60),
    ];
  };
  const { meanwhileMs = [], beforeMs = [] } = beside ?? {};
  const slower = meanwhileMs.map(({ p99 }, run) => p99 / (beforeMs[run]?.p99 ?? Number.NaN));
  const mutations = many && { value: Math.max(...Object.values(many.mutationsAMinute)) };
  return [
    ...bulks('idle', bulk, 10),
    ...bulks('beside ingestion', beside?.runs ?? [], 30),
    ...atMost('p99 of the acknowledgement, during a deletion to before', ' times', medianOfRounds(slower), 2),
    ...one.flatMap(({ events, everywhere, inOnePart }) =>
      Object.entries({ 'many parts': everywhere, 'one part': inOnePart }).flatMap(([where, runs]) => {
        const what = `one user in ${where} of ${figure(events / 1e6)} million events`;
        return seconds(what, runs, (run) => run.completeSeconds, 3);
      }),
    ),
    ...atMost(`${figure(many?.requests)} requests: mutations of a table within a minute`, '', mutations, 20),
  ];
}

function deskTargets({ desk }: Results): Target[] {
  if (desk === undefined) return [];
  const { events, exports, suppressed } = desk;
  const firstBytes = medianOfRounds(exports.map((run) => run.firstByteSeconds));
  const users = figure(suppressed.suppressed);
  const added = (how: string, pairs: readonly Pair[]) => {
    const what = `an event ${how} beside ${users} suppressed users, more`;
    return atMost(what, ' µs', { value: addedMicroseconds(pairs) }, 0.3);
  };
  return [
    ...atMost(`export of ${figure(events)} events: first byte`, ' s', firstBytes, 2),
    ...added('alone', suppressed.alone),
    ...added('in bulk', suppressed.inBulk),
  ];
}

function atMost(what: string, unit: string, measured: Measured | undefined, bound: number): Target[] {
  return targetOf({ what, unit, bound, kind: 'at most' }, measured);
}

function atLeast(what: string, unit: string, measured: Measured | undefined, bound: number): Target[] {
  return targetOf({ what, unit, bound, kind: 'at least' }, measured);
}

function targetOf(
  target: Pick<Target, 'what' | 'unit' | 'bound' | 'kind'>,
  measured: Measured | undefined,
): Target[] {
  if (measured === undefined || Number.isNaN(measured.value)) return [];
  const { value, spread, noFloor = false } = measured;
  const { bound, kind } = target;
  const isMet = kind === 'at most' ? value <= bound : value >= bound;
  const isUndecided = spread !== undefined && spread.least < bound && bound < spread.most;
  const verdict = noFloor ? 'no floor' : isUndecided ? 'undecided' : isMet ? 'met' : 'missed';
  return [{ ...target, value, ...(spread && { spread }), verdict }];
}
