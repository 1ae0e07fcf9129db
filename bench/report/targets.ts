// The targets, as ratios within one session, and whether they are met.

import { type ProcessName, processNames } from '../deployment/deployment.js';
import { figure, median } from '../figures.js';
import type { LatencyRun } from '../latency/latency.js';
import type { Results } from '../results.js';
import { growthOf } from '../soak.js';
import { isTarget, targetLevel } from '../throughput/connections.js';
import type { FlatLevel } from '../throughput/flat.js';
import type { KeysLevel } from '../throughput/keys.js';
import type { Run } from '../throughput/measure.js';

export type Target = {
  readonly what: string;
  readonly unit: string;
  readonly value: number;
  readonly bound: number;
  readonly kind: 'at most' | 'at least';
  /** Of the values that single runs would give; absent where there was one run. */
  readonly spread?: Spread;
  /** Undecided: the bound lies within the spread. */
  readonly verdict: 'met' | 'missed' | 'undecided';
};

type Spread = { readonly least: number; readonly most: number };
type Measured = { readonly value: number; readonly spread?: Spread };

/** The ratio of the medians, and from the least to the most that single runs would give. */
function ratioOf(above: readonly number[], below: readonly number[]): Measured | undefined {
  const value = median(above) / median(below);
  if (Number.isNaN(value)) return undefined;
  if (above.length < 2 && below.length < 2) return { value };
  const least = Math.min(...above) / Math.max(...below);
  return { value, spread: { least, most: Math.max(...above) / Math.min(...below) } };
}

/** Memory of segments counts from here: below, an allocator's rounding is most of it. */
const segmentBytesMin = 100_000;
/** CPU of a forgotten key at the first level, and how much more it may be at the second; bytes of it on disk. */
const keyMicrosecondsMax = 10;
const timesOfFewerMax = 1.3;
const keyBytesMax = 40;
/** Where no floor stands beside the service. */
const acknowledgedMsMax = 10;
const timesOfSyncedMax = 3;
const tolerance = 1.1;

/** Those that the session measured both sides of. */
export function targetsOf(results: Results): Target[] {
  return [
    ...costTargets(results),
    ...connectionsTargets(results),
    ...latencyTargets(results),
    ...backlogTargets(results),
    ...flatTargets(results),
    ...keysTargets(results),
    ...soakTargets(results),
    ...segmentTargets(results),
    ...deletionTargets(results),
  ];
}

/** Medians of the CPU of a record, in µs, or undefined when it was not measured. */
export function costOf(results: Results, name: string): number | undefined {
  const cost = medianCost(results.ways.find((way) => way.name === name)?.runs ?? []);
  return Number.isNaN(cost) ? undefined : cost;
}

/** NaN when CPU was not measured. */
export function medianCost(runs: readonly Pick<Run, 'cpuSum'>[]): number {
  return median(costsOf(runs));
}

function costsOf(runs: readonly Pick<Run, 'cpuSum'>[]): number[] {
  return runs.flatMap(({ cpuSum }) => cpuSum ?? []);
}

function costTargets(results: Results): Target[] {
  const costs = (name: string) => costsOf(results.ways.find((way) => way.name === name)?.runs ?? []);
  const ratio = (a: string, b: string) => ratioOf(costs(a), costs(b));
  return [
    atMost('single events: CPU, to uWebSockets.js alone', ' times', ratio('single', 'uws'), 3),
    atLeast(
      'single events: CPU of Fastify + BullMQ, to ours',
      ' times',
      ratio('fastify-single', 'single'),
      5,
    ),
    atMost('bulk of 500: CPU, to ClickHouse alone', ' times', ratio('bulk-500', 'engine'), 3.6),
    atMost(
      'bulk of 500 with keys: CPU, to ClickHouse alone',
      ' times',
      ratio('bulk-500-keys', 'engine'),
      5.5,
    ),
    atLeast(
      'bulk of 500: CPU of Fastify + BullMQ, to ours',
      ' times',
      ratio('fastify-bulk-500', 'bulk-500'),
      10,
    ),
  ].flat();
}

/** Beside a generator that takes much CPU the floor costs more too, and more requests wait for each commit. */
const timesOfUwsMax = { wrk: 6, autocannon: 3 } as const;

function connectionsTargets({ connections }: Results): Target[] {
  const level = connections?.levels.find(isTarget);
  if (connections === undefined || level === undefined) return [];
  const { name } = connections.generator;
  return atMost(
    `single events with keys at ${targetLevel.connections} connections, by ${name}: CPU, to uWebSockets.js alone`,
    ' times',
    ratioOf(costsOf(level.sluice), costsOf(level.uws)),
    timesOfUwsMax[name],
  );
}

function latencyTargets({ latencies }: Results): Target[] {
  const half = (subject: string) =>
    latencies.find((runs) => runs.subject === subject && runs.share === 0.5)?.runs ?? [];
  const p99s = (runs: readonly LatencyRun[]) => runs.map(({ latency }) => latency.sinceDueMs.p99);
  const [sluice, floor] = [half('sluice'), half('uws-synced')];
  if (sluice.length === 0) return [];
  const queryable = median(sluice.flatMap((run) => run.queryable?.ms.p99 ?? []));
  return [
    ...(floor.length === 0
      ? atMost('acknowledgement at half load, p99', ' ms', median(p99s(sluice)), acknowledgedMsMax)
      : atMost(
          'acknowledgement at half load: p99, to a server with a synced file',
          ' times',
          ratioOf(p99s(sluice), p99s(floor)),
          timesOfSyncedMax,
        )),
    ...atMost('queryable at half load, p99', ' ms', queryable, 1000),
  ];
}

function backlogTargets({ backlog }: Results): Target[] {
  if (backlog === undefined) return [];
  const { drainedPerSecond, ratePerSecond } = backlog;
  const what = `backlog: drains while ${figure(ratePerSecond)} events a second come`;
  return atLeast(what, ' events/s', drainedPerSecond, 5 * ratePerSecond);
}

/**
 * What an event costs with so many stored, in parts of what it costs the deployment beside it, whose runs were in turns
 * with these; undefined when CPU was not measured.
 */
export function toReference({ reference, ...level }: FlatLevel, way: 'single' | 'bulk'): number | undefined {
  const ratio = medianCost(level[way]) / medianCost(reference[way]);
  return Number.isNaN(ratio) ? undefined : ratio;
}

/**
 * The CPU of a single event, in parts of what its request cost the generator of the same run. A machine that is
 * shared is up to half faster at one time than at another; what the generator does for a request never changes.
 */
export function costsToGenerator(runs: readonly Pick<Run, 'cpuSum' | 'generatorCpu'>[]): number[] {
  return runs.flatMap(({ cpuSum, generatorCpu }) => (cpuSum === undefined ? [] : cpuSum / generatorCpu));
}

function flatTargets({ flat }: Results): Target[] {
  if (flat === undefined) return [];
  const { byEvents, byEnvironments } = flat;
  const spread = (costs: readonly number[]) =>
    costs.length < 2 ? undefined : Math.max(...costs) / Math.min(...costs);
  const millions = byEvents.map(({ events }) => figure(events / 1e6)).join(', ');
  const environments = byEnvironments.map((level) => figure(level.environments)).join(', ');
  const events = `${millions} million stored events`;
  return [
    atMost(
      `flat: single events at ${events}, to the reference, most to least`,
      ' times',
      spread(byEvents.flatMap((level) => toReference(level, 'single') ?? [])),
      tolerance,
    ),
    atMost(
      `flat: bulk of 500 at ${events}, to the reference, most to least`,
      ' times',
      spread(byEvents.flatMap((level) => toReference(level, 'bulk') ?? [])),
      tolerance,
    ),
    atMost(
      `flat: single events of ${environments} environments, to the generator's CPU, most to least`,
      ' times',
      spread(byEnvironments.map((level) => median(costsToGenerator(level.single)))),
      tolerance,
    ),
  ].flat();
}

function soakTargets({ soak }: Results): Target[] {
  if (soak === undefined || soak.samples.length === 0) return [];
  return processNames.flatMap((name: ProcessName) => {
    const { before, after } = growthOf(soak.samples, name);
    const what = `soak of ${soak.minutes} min: memory of ${name}, last quarter to second`;
    return atMost(what, ' times', after / before, tolerance);
  });
}

function segmentTargets({ segments }: Results): Target[] {
  const large = segments?.segments.filter(({ bytes }) => bytes > segmentBytesMin) ?? [];
  if (large.length === 0) return [];
  const worst = Math.max(...large.map(({ bytes, memoryBytes }) => memoryBytes / bytes));
  return atMost(
    'sealed segments above 100 kB: memory in Redis to bytes of rows, the worst',
    ' times',
    worst,
    1.35,
  );
}

/** What an event with a key costs more than before a key was forgotten. */
function keysTargets({ keys }: Results): Target[] {
  const [none, fewer, more] = keys?.levels ?? [];
  if (keys === undefined || none === undefined || fewer === undefined) return [];
  const costOf = ({ newKeys }: KeysLevel) => median(newKeys) - median(none.newKeys) + keys.addMicroseconds;
  const few = costOf(fewer);
  return [
    ...atMost(`a new key, ${figure(fewer.keys)} in the index`, ' µs', few, keyMicrosecondsMax),
    ...(more === undefined
      ? []
      : atMost(
          `a new key, ${figure(more.keys)} in the index`,
          ' µs',
          costOf(more),
          timesOfFewerMax * keyMicrosecondsMax,
        )),
    ...atMost('a key in the index, on disk', ' bytes', keys.bytesPerKey, keyBytesMax),
  ];
}

function deletionTargets({ deletionBeside }: Results): Target[] {
  if (deletionBeside === undefined) return [];
  const { before, meanwhile, run } = deletionBeside;
  const ratio = meanwhile.acknowledgedSinceDueMs.p99 / before.acknowledgedSinceDueMs.p99;
  return [
    ...atMost(
      `deletion of ${figure(run.targets)} users beside ingestion: complete`,
      ' s',
      run.completeSeconds,
      30,
    ),
    ...atMost('p99 of the acknowledgement, during a deletion to before', ' times', ratio, 2),
  ];
}

function atMost(
  what: string,
  unit: string,
  measured: number | Measured | undefined,
  bound: number,
): Target[] {
  return targetOf({ what, unit, bound, kind: 'at most' }, measured);
}

function atLeast(
  what: string,
  unit: string,
  measured: number | Measured | undefined,
  bound: number,
): Target[] {
  return targetOf({ what, unit, bound, kind: 'at least' }, measured);
}

function targetOf(
  target: Pick<Target, 'what' | 'unit' | 'bound' | 'kind'>,
  measured: number | Measured | undefined,
): Target[] {
  const { value, spread }: Measured =
    typeof measured === 'object' ? measured : { value: measured ?? Number.NaN };
  if (Number.isNaN(value)) return [];
  const { bound, kind } = target;
  const isKept = kind === 'at most' ? value <= bound : value >= bound;
  const isUndecided = spread !== undefined && spread.least < bound && bound < spread.most;
  const verdict = isUndecided ? 'undecided' : isKept ? 'met' : 'missed';
  return [{ ...target, value, ...(spread === undefined ? {} : { spread }), verdict }];
}
