// All figures of a session as one flat list. Two sessions are compared by these names, so they must stay stable.

import { processNames } from '../deployment/deployment.js';
import type { Pair } from '../desk/suppressed.js';
import type { Results } from '../results.js';
import type { ThroughputRun } from '../throughput/throughput.js';
import { commitFigures } from './sections.js';

export type Metric = {
  readonly name: string;
  readonly unit: string;
  readonly better: 'lower' | 'higher';
  /** One per run. */
  readonly values: readonly number[];
};

type Values = readonly (number | undefined)[];
type Named = readonly [name: string, unit: string, values: Values];

/** Units of which more is better. */
const higher = ['records/s', 'events/s'];

export function metricsOf(results: Results): Metric[] {
  const {
    ways,
    curve = [],
    halfLoad,
    backlog,
    flat,
    keys,
    backfill,
    producer,
    servers,
    deletion,
    desk,
  } = results;
  const { bulk = [], beside: { runs = [], meanwhileMs = [] } = {} } = deletion ?? {};
  const { exports = [] } = desk ?? {};
  const added = (pairs: readonly Pair[] = []) => pairs.map((pair) => pair.with - pair.without);
  const levels = flat && {
    'single, million stored': flat.single.map((level) => ({ ...level, of: level.of / 1e6 })),
    'bulk-500, million stored': flat.bulk.map((level) => ({ ...level, of: level.of / 1e6 })),
    environments: flat.environments,
  };
  const all: Named[] = [
    ...ways.flatMap(({ name, runs }) => ofRuns(name, runs)),
    ...curve.flatMap(({ share, runs }) => ofRuns(`single at ${Math.round(100 * share)} % load`, runs)),
    ...(halfLoad?.runs ?? []).flatMap(({ subject, run, p99OfMinutes }): Named[] => [
      [`half load, ${subject}: since due, p50`, 'ms', [run.latency?.sinceDueMs.p50]],
      [`half load, ${subject}: since due, p99 of minutes`, 'ms', p99OfMinutes],
    ]),
    ['half load: queryable, p99', 'ms', [halfLoad?.queryable.ms.p99]],
    ['backlog: drains', 'events/s', [backlog?.drainedPerSecond]],
    ['backlog: memory in Redis', 'bytes/event', [backlog?.redisBytesPerEvent]],
    ...Object.entries(levels ?? {}).flatMap(([what, found]) =>
      found.map(
        ({ of, runs }): Named => [`flat, ${of} ${what}: CPU`, 'µs/record', runs.map((run) => run.cpuSum)],
      ),
    ),
    ...(keys?.levels ?? []).flatMap(({ keys: held, newKeys, repeats, scattered = [] }): Named[] => [
      [`keys, ${held / 1e6} million: new, CPU`, 'µs/record', newKeys],
      [`keys, ${held / 1e6} million: repeats, CPU`, 'µs/record', repeats],
      [`keys, ${held / 1e6} million: scattered repeats, CPU`, 'µs/record', scattered],
    ]),
    ...Object.entries({ backfill, producer }).flatMap(([name, run]): Named[] => [
      [`${name}: rate`, 'events/s', [run && run.events / run.storedSeconds]],
      [`${name}: CPU of the program`, 'µs/record', [run?.programCpu]],
    ]),
    ...(servers?.ways ?? []).flatMap(({ name, levels: found }) =>
      found.map(
        ({ of, runs }): Named => [
          `${name}, ${of} of each server: CPU`,
          'µs/record',
          runs.map((run) => run.cpuSum),
        ],
      ),
    ),
    ['deletion: complete', 's', bulk.map((run) => run.completeSeconds)],
    ['deletion beside ingestion: complete', 's', runs.map((run) => run.completeSeconds)],
    ['deletion: acknowledged meanwhile, p99', 'ms', meanwhileMs.map(({ p99 }) => p99)],
    ['export: first byte', 's', exports.map((run) => run.firstByteSeconds)],
    ['export: end', 's', exports.filter(({ gzip }) => !gzip).map((run) => run.seconds)],
    ['suppressed users, alone', 'µs/record', added(desk?.suppressed.alone)],
    ['suppressed users, in bulk', 'µs/record', added(desk?.suppressed.inBulk)],
  ];
  return all.flatMap(([name, unit, values]): Metric[] => {
    const found = values.flatMap((value) => (value !== undefined && Number.isFinite(value) ? value : []));
    const better = higher.includes(unit) ? 'higher' : 'lower';
    return found.length === 0 ? [] : [{ name, unit, better, values: found }];
  });
}

/** The generator affects the cost, so figures from different generators have different names. */
function ofRuns(way: string, runs: readonly ThroughputRun[]): Named[] {
  const name = runs[0]?.generator === 'wrk' ? `${way}, by wrk` : way;
  return [
    [`${name}: rate`, 'records/s', runs.map((run) => run.recordsPerSecond)],
    [`${name}: CPU`, 'µs/record', runs.map((run) => run.cpuSum)],
    ...processNames.map(
      (process): Named => [`${name}: CPU of ${process}`, 'µs/record', runs.map((run) => run.cpu[process])],
    ),
    [`${name}: CPU of api a commit`, 'µs', runs.map((run) => commitFigures(run)?.api)],
    [`${name}: CPU of redis a commit`, 'µs', runs.map((run) => commitFigures(run)?.redis)],
    [`${name}: since due, p99`, 'ms', runs.map((run) => run.latency?.sinceDueMs.p99)],
  ];
}
