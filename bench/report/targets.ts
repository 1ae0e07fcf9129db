// The targets, as ratios within one session, and whether they are met.

import { processNames } from '../deployment/deployment.js';
import { addedMicroseconds, type Pair } from '../desk/suppressed.js';
import { figure, median, type Table, tableOf } from '../figures.js';
import { memoryOf } from '../latency/half-load.js';
import type { Results } from '../results.js';
import type { FlatLevel } from '../throughput/flat.js';
import type { KeysLevel } from '../throughput/keys.js';
import type { Run } from '../throughput/measure.js';
import { memoryFloorMib, trendOf } from './trend.js';

export type Target = {
  readonly what: string;
  readonly unit: string;
  readonly value: number;
  readonly bound: number;
  readonly kind: 'at most' | 'at least';
  /** Of the values that single runs would give; absent where there was one run. */
  readonly spread?: Spread;
  /** Undecided: the bound lies within the spread. No floor: what it is compared with was held up by the generator. */
  readonly verdict: 'met' | 'missed' | 'undecided' | 'no floor';
};

type Spread = { readonly least: number; readonly most: number };
type Measured = { readonly value: number; readonly spread?: Spread; readonly noFloor?: boolean };

/** The ratio of the medians, and from the least to the most that single runs would give. */
function ratioOf(above: readonly number[], below: readonly number[]): Measured | undefined {
  const value = median(above) / median(below);
  if (Number.isNaN(value)) return undefined;
  if (above.length < 2 && below.length < 2) return { value };
  const least = Math.min(...above) / Math.max(...below);
  return { value, spread: { least, most: Math.max(...above) / Math.min(...below) } };
}

/** The median of what each round gave, whose runs were in turns. */
function inTurns(ratios: readonly number[]): Measured | undefined {
  if (ratios.length === 0) return undefined;
  if (ratios.length === 1) return { value: median(ratios) };
  return { value: median(ratios), spread: { least: Math.min(...ratios), most: Math.max(...ratios) } };
}

/** Beside a generator that takes much CPU the floor costs more too. */
const timesOfUwsMax = { wrk: 6, bench: 3 };
const halfLoadTimesMax = 1.4;
/** CPU of a forgotten key at the first level, and how much more it may be at the second; bytes of it on disk. */
const keyMicrosecondsMax = 10;
const timesOfFewerMax = 1.3;
const keyBytesMax = 40;
const firstByteSecondsMax = 2;
const suppressedMicrosecondsMax = 0.3;
const timesOfSyncedMax = 3;
const queryableMsMax = 1_000;
const memoryTimesMax = 1.35;
const tolerance = 1.1;

/** Those that the session measured both sides of. */
export function targetsOf(results: Results): Target[] {
  return [
    ...costTargets(results),
    ...curveTargets(results),
    ...halfLoadTargets(results),
    ...backlogTargets(results),
    ...flatTargets(results),
    ...keysTargets(results),
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

/** A floor that the service itself did not limit is none. */
export function isSaturated(runs: readonly Run[]): boolean {
  return runs.every(({ limit }) => limit === 'service');
}

function costTargets({ ways }: Results): Target[] {
  const runsOf = (name: string) => ways.find((way) => way.name === name)?.runs ?? [];
  const ratio = (a: string, b: string) => ratioOf(costsOf(runsOf(a)), costsOf(runsOf(b)));
  const toFloor = (name: string, floor: string): Measured | undefined => {
    const found = ratio(name, floor);
    return found && { ...found, noFloor: !isSaturated(runsOf(floor)) };
  };
  const uwsMax = (floor: string) => timesOfUwsMax[runsOf(floor)[0]?.generator === 'wrk' ? 'wrk' : 'bench'];
  const uws = 'CPU, to uWebSockets.js alone';
  const fastify = 'CPU of Fastify + BullMQ, to ours';
  return [
    atMost(`single events: ${uws}`, ' times', toFloor('single', 'uws'), uwsMax('uws')),
    atMost(
      `single events with keys at 64 connections: ${uws}`,
      ' times',
      toFloor('single-keys-64', 'uws-64'),
      uwsMax('uws-64'),
    ),
    atLeast(`single events: ${fastify}`, ' times', ratio('fastify-single', 'single'), 5),
    atMost('bulk of 500: CPU, to ClickHouse alone', ' times', toFloor('bulk-500', 'engine'), 3.6),
    atMost(
      'bulk of 500 with keys: CPU, to ClickHouse alone',
      ' times',
      toFloor('bulk-500-keys', 'engine'),
      5.5,
    ),
    atLeast(`bulk of 500: ${fastify}`, ' times', ratio('fastify-bulk-500', 'bulk-500'), 1),
  ].flat();
}

function curveTargets({ curve = [] }: Results): Target[] {
  const full = curve.find(({ share }) => share === 1)?.runs ?? [];
  const half = curve.find(({ share }) => share === 0.5)?.runs ?? [];
  const ratios = half.flatMap(({ cpuSum }, round) => cpuSum / (full[round]?.cpuSum ?? Number.NaN));
  return atMost('single events at half load: CPU, to full load', ' times', inTurns(ratios), halfLoadTimesMax);
}

function halfLoadTargets({ halfLoad }: Results): Target[] {
  if (halfLoad === undefined) return [];
  const of = (subject: string) => halfLoad.runs.find((run) => run.subject === subject);
  const [sluice, floor] = [of('sluice'), of('uws-synced')];
  const p99 = (run: typeof sluice) => run?.run.latency?.sinceDueMs.p99 ?? Number.NaN;
  const spread = ratioOf(sluice?.p99OfMinutes ?? [], floor?.p99OfMinutes ?? [])?.spread;
  const { minutes, samples } = halfLoad;
  return [
    ...atMost(
      `acknowledgement at half load for ${minutes} min: p99 since due, to a server with a synced file`,
      ' times',
      { value: p99(sluice) / p99(floor), ...(spread && { spread }) },
      timesOfSyncedMax,
    ),
    ...atMost('queryable at half load, p99', ' ms', { value: halfLoad.queryable.ms.p99 }, queryableMsMax),
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
    ...atMost(memory, ' times', { value: memoryTimesMost }, memoryTimesMax),
  ];
}

function flatTargets({ flat }: Results): Target[] {
  if (flat === undefined) return [];
  const target = (what: string, levels: readonly FlatLevel[], unit: (of: number) => number, of: string) => {
    const rounds = levels.length < 2 ? 0 : Math.min(...levels.map(({ runs }) => runs.length));
    const ratios = Array.from({ length: rounds }, (_, round) => {
      const costs = levels.map(({ runs }) => runs[round]?.cpuSum ?? Number.NaN);
      return Math.max(...costs) / Math.min(...costs);
    });
    const amounts = levels.map((level) => figure(unit(level.of))).join(', ');
    return atMost(`flat: ${what}${amounts} ${of}, most to least`, ' times', inTurns(ratios), tolerance);
  };
  const stored = 'million stored events';
  return [
    ...target('single events at ', flat.single, (events) => events / 1e6, stored),
    ...target('bulk of 500 at ', flat.bulk, (events) => events / 1e6, stored),
    ...target('single events of ', flat.environments, (count) => count, 'environments'),
  ];
}

/** What an event with a key costs more than before a key was forgotten. */
function keysTargets({ keys }: Results): Target[] {
  const [none, ...levels] = keys?.levels ?? [];
  if (keys === undefined || none === undefined || levels.length === 0) return [];
  const costOf = ({ newKeys }: KeysLevel) => median(newKeys) - median(none.newKeys) + keys.addMicroseconds;
  return [
    ...levels.slice(0, 2).flatMap((level, index) => {
      const bound = keyMicrosecondsMax * (index === 0 ? 1 : timesOfFewerMax);
      return atMost(`a new key, ${figure(level.keys)} in the index`, ' µs', { value: costOf(level) }, bound);
    }),
    ...atMost('a key in the index, on disk', ' bytes', { value: keys.bytesPerKey }, keyBytesMax),
  ];
}

function deletionTargets({ deletion }: Results): Target[] {
  const { one = [], bulk = [], beside, many } = deletion ?? {};
  const seconds = (what: string, values: readonly number[], bound: number) =>
    atMost(what, ' s', inTurns(values), bound);
  const users = figure((bulk[0] ?? beside?.runs[0])?.targets);
  const bulks = (how: string, runs: typeof bulk, bound: number) => [
    ...seconds(
      `deletion of ${users} users, ${how}: complete`,
      runs.map((run) => run.completeSeconds),
      bound,
    ),
    ...seconds(
      `deletion of ${users} users, ${how}: bytes gone after that`,
      runs.map((run) => Math.max(run.partsGoneSeconds, run.redisRewrittenSeconds)),
      60,
    ),
  ];
  const slower = beside?.meanwhileMs.map(({ p99 }, run) => p99 / (beside.beforeMs[run]?.p99 ?? Number.NaN));
  return [
    ...bulks('idle', bulk, 10),
    ...bulks('beside ingestion', beside?.runs ?? [], 30),
    ...atMost('p99 of the acknowledgement, during a deletion to before', ' times', inTurns(slower ?? []), 2),
    ...one.flatMap(({ events, everywhere, inOnePart }) =>
      [everywhere, inOnePart].flatMap((runs, index) =>
        seconds(
          `one user in ${index === 0 ? 'many parts' : 'one part'} of ${figure(events / 1e6)} million events`,
          runs.map((run) => run.completeSeconds),
          3,
        ),
      ),
    ),
    ...(many === undefined
      ? []
      : atMost(
          `${figure(many.requests)} requests: mutations of a table within a minute`,
          '',
          { value: Math.max(...Object.values(many.mutationsAMinute)) },
          20,
        )),
  ];
}

function deskTargets({ desk }: Results): Target[] {
  if (desk === undefined) return [];
  const { exports, suppressed } = desk;
  const firstBytes = exports.map((run) => run.firstByteSeconds);
  const users = figure(suppressed.suppressed);
  const added = (what: string, pairs: readonly Pair[]) =>
    atMost(
      `an event ${what} beside ${users} suppressed users, more`,
      ' µs',
      { value: addedMicroseconds(pairs) },
      suppressedMicrosecondsMax,
    );
  return [
    ...atMost(
      `export of ${figure(desk.events)} events: first byte`,
      ' s',
      inTurns(firstBytes),
      firstByteSecondsMax,
    ),
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
  const isKept = kind === 'at most' ? value <= bound : value >= bound;
  const isUndecided = spread !== undefined && spread.least < bound && bound < spread.most;
  const verdict = noFloor ? 'no floor' : isUndecided ? 'undecided' : isKept ? 'met' : 'missed';
  return [{ ...target, value, ...(spread && { spread }), verdict }];
}
