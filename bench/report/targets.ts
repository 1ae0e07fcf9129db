// The targets, as ratios within one session, and whether they are met.

import { type ProcessName, processNames } from '../deployment.js';
import { figure, median } from '../figures.js';
import type { FlatLevel } from '../flat.js';
import type { LatencyRun } from '../latency.js';
import type { Run } from '../measure.js';
import type { Results } from '../results.js';
import { growthOf } from '../soak.js';

export type Target = {
  readonly what: string;
  readonly unit: string;
  readonly value: number;
  readonly bound: number;
  readonly kind: 'at most' | 'at least';
  readonly met: boolean;
};

/** Memory of segments counts from here: below, an allocator's rounding is most of it. */
const segmentBytesMin = 100_000;
const acknowledgedMsMax = 10;
const tolerance = 1.1;

/** Those that the session measured both sides of. */
export function targetsOf(results: Results): Target[] {
  return [
    ...costTargets(results),
    ...latencyTargets(results),
    ...backlogTargets(results),
    ...flatTargets(results),
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
  return median(runs.flatMap(({ cpuSum }) => cpuSum ?? []));
}

function costTargets(results: Results): Target[] {
  const ratio = (a: string, b: string): number | undefined => {
    const [above, below] = [costOf(results, a), costOf(results, b)];
    return above === undefined || below === undefined ? undefined : above / below;
  };
  return [
    atMost('single events: CPU, to uWebSockets.js alone', ' times', ratio('single', 'uws'), 5),
    atLeast(
      'single events: CPU of Fastify + BullMQ, to ours',
      ' times',
      ratio('fastify-single', 'single'),
      5,
    ),
    atMost('bulk of 500: CPU, to ClickHouse alone', ' times', ratio('bulk-500', 'engine'), 2.2),
    atMost(
      'bulk of 500 with keys: CPU, to ClickHouse alone',
      ' times',
      ratio('bulk-500-keys', 'engine'),
      2.8,
    ),
    atLeast(
      'bulk of 500: CPU of Fastify + BullMQ, to ours',
      ' times',
      ratio('fastify-bulk-500', 'bulk-500'),
      10,
    ),
  ].flat();
}

function latencyTargets({ latencies }: Results): Target[] {
  const half = (subject: string) =>
    latencies.find((runs) => runs.subject === subject && runs.share === 0.5)?.runs ?? [];
  const p99 = (runs: readonly LatencyRun[]) => median(runs.map(({ latency }) => latency.acknowledgedMs.p99));
  const [sluice, floor] = [half('sluice'), half('uws')];
  if (sluice.length === 0) return [];
  const bound = floor.length === 0 ? acknowledgedMsMax : Math.max(3 * p99(floor), acknowledgedMsMax);
  const queryable = median(sluice.flatMap((run) => run.queryable?.ms.p99 ?? []));
  return [
    ...atMost('acknowledgement at half load, p99', ' ms', p99(sluice), bound),
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

function deletionTargets({ deletionBeside }: Results): Target[] {
  if (deletionBeside === undefined) return [];
  const { before, meanwhile, run } = deletionBeside;
  const ratio = meanwhile.acknowledgedSinceSentMs.p99 / before.acknowledgedSinceSentMs.p99;
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

function atMost(what: string, unit: string, value: number | undefined, bound: number): Target[] {
  if (value === undefined || Number.isNaN(value)) return [];
  return [{ what, unit, value, bound, kind: 'at most', met: value <= bound }];
}

function atLeast(what: string, unit: string, value: number | undefined, bound: number): Target[] {
  if (value === undefined || Number.isNaN(value)) return [];
  return [{ what, unit, value, bound, kind: 'at least', met: value >= bound }];
}
