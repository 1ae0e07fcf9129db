// Everything that a session measured as one flat list, under stable names by which two sessions are compared.

import { processNames } from '../deployment/deployment.js';
import { median } from '../figures.js';
import type { Results } from '../results.js';
import { growthOf } from '../soak.js';
import { commitFigures } from '../throughput/connections.js';

export type Metric = {
  readonly name: string;
  readonly unit: string;
  readonly better: 'lower' | 'higher';
  /** One per run. */
  readonly values: readonly number[];
};

export function metricsOf(results: Results): Metric[] {
  const {
    ways,
    connections,
    latencies,
    segments,
    backlog,
    flat,
    keys,
    soak,
    backfill,
    producer,
    deletionBeside,
  } = results;
  const metrics: Metric[] = [];
  const add = (
    name: string,
    unit: string,
    better: Metric['better'],
    values: readonly (number | undefined)[],
  ) => {
    const found = values.flatMap((value) => (value !== undefined && Number.isFinite(value) ? value : []));
    if (found.length > 0) metrics.push({ name, unit, better, values: found });
  };
  for (const { name, runs } of ways) {
    add(
      `${name}: rate`,
      'records/s',
      'higher',
      runs.map((run) => run.recordsPerSecond),
    );
    add(
      `${name}: CPU`,
      'µs/record',
      'lower',
      runs.map((run) => run.cpuSum),
    );
    for (const process of processNames) {
      add(
        `${name}: CPU of ${process}`,
        'µs/record',
        'lower',
        runs.map((run) => run.cpu[process]),
      );
    }
    add(
      `${name}: acknowledged, p99`,
      'ms',
      'lower',
      runs.map((run) => run.latency?.acknowledgedMs.p99),
    );
  }
  for (const { connections: count, keys, sluice, uws } of connections?.levels ?? []) {
    // The cost depends on the generator, so figures from different generators have different names.
    const name = `${count} connections${keys ? ', with keys' : ''}, by ${connections?.generator.name}`;
    add(
      `${name}: rate`,
      'records/s',
      'higher',
      sluice.map((run) => run.recordsPerSecond),
    );
    add(
      `${name}: CPU`,
      'µs/record',
      'lower',
      sluice.map((run) => run.cpuSum),
    );
    add(
      `${name}: CPU of uWebSockets.js alone`,
      'µs/record',
      'lower',
      uws.map((run) => run.cpuSum),
    );
    for (const process of ['api', 'redis'] as const) {
      add(
        `${name}: CPU of ${process} a commit`,
        'µs',
        'lower',
        sluice.map((run) => commitFigures(run)?.[process]),
      );
    }
  }
  for (const { subject, share, runs } of latencies) {
    const name = `latency of ${subject} at ${share === undefined ? 'the given rate' : `${100 * share} %`}`;
    add(
      `${name}: acknowledged, p50`,
      'ms',
      'lower',
      runs.map((run) => run.latency.acknowledgedMs.p50),
    );
    add(
      `${name}: acknowledged, p99`,
      'ms',
      'lower',
      runs.map((run) => run.latency.acknowledgedMs.p99),
    );
    add(
      `${name}: queryable, p99`,
      'ms',
      'lower',
      runs.map((run) => run.queryable?.ms.p99),
    );
  }
  add('segments: memory in Redis', 'bytes/event', 'lower', [segments?.redisBytesPerEvent]);
  add('backlog: drains', 'events/s', 'higher', [backlog?.drainedPerSecond]);
  add('backlog: memory in Redis', 'bytes/event', 'lower', [backlog?.redisBytesPerEvent]);
  for (const { events, single, bulk } of flat?.byEvents ?? []) {
    const name = `flat, ${events / 1e6} million stored`;
    add(
      `${name}: single, CPU`,
      'µs/record',
      'lower',
      single.map((run) => run.cpuSum),
    );
    add(
      `${name}: bulk-500, CPU`,
      'µs/record',
      'lower',
      bulk.map((run) => run.cpuSum),
    );
  }
  for (const { keys: held, newKeys, repeats } of keys?.levels ?? []) {
    add(`keys, ${held / 1e6} million: new, CPU`, 'µs/record', 'lower', newKeys);
    add(`keys, ${held / 1e6} million: repeats, CPU`, 'µs/record', 'lower', repeats);
  }
  for (const { environments, single } of flat?.byEnvironments ?? []) {
    add(
      `flat, ${environments} environments: CPU`,
      'µs/record',
      'lower',
      single.map((run) => run.cpuSum),
    );
  }
  if (soak !== undefined && soak.samples.length > 0) {
    for (const process of processNames) {
      add(`soak: memory of ${process}`, 'MB', 'lower', [growthOf(soak.samples, process).after / 1e6]);
    }
  }
  add('soak: acknowledged, p99', 'ms', 'lower', [soak?.latency.acknowledgedMs.p99]);
  add('backfill: rate', 'events/s', 'higher', [backfill && backfill.events / backfill.storedSeconds]);
  const backfillCpu = Object.values(backfill?.cpu ?? {});
  add('backfill: CPU', 'µs/record', 'lower', [
    backfillCpu.length === 0 ? undefined : backfillCpu.reduce((sum, used) => sum + used, 0),
  ]);
  add('producer: rate', 'events/s', 'higher', [producer && producer.events / producer.acknowledgedSeconds]);
  add('producer: CPU of the producer', 'µs/record', 'lower', [producer?.producerCpu]);
  add('deletion-beside: complete', 's', 'lower', [deletionBeside?.run.completeSeconds]);
  add('deletion-beside: acknowledged meanwhile, p99', 'ms', 'lower', [
    deletionBeside?.meanwhile.acknowledgedSinceDueMs.p99,
  ]);
  return metrics;
}

export function middle({ values }: Metric): number {
  return median(values);
}
