// The metrics of all processes of a host. Each process writes its own to Redis every two seconds, and the process that is asked adds them
// up. While Redis is away, and after that until all have written again, those that were read or written before count: a counter that falls
// for a moment would look like a restart.

import { hostname } from 'node:os';
import type { Log } from '../log.js';
import { processRegistry } from '../metrics.js';
import { AggregatorRegistry, type MetricObject } from '../packages/prom-client.js';
import { repeat } from '../repeat.js';
import { sharedMetrics } from '../tuning.js';
import type { Redis } from './client.js';
import { registryKeys } from './keys.js';

/** `beforeMs`: when the process had written the time before, or when it began. */
type Shared = { readonly atMs: number; readonly beforeMs: number; readonly metrics: MetricObject[] };

/** Starts sharing this process's metrics. The returned function stops that and removes them. */
export function shareMetrics(redis: Redis, processName: string, log: Log): () => Promise<void> {
  const key = registryKeys.metrics(hostname());
  let beforeMs = Date.now();
  const share = async () => {
    const atMs = Date.now();
    const shared: Shared = { atMs, beforeMs, metrics: await processRegistry.getMetricsAsJSON() };
    await redis.hset(key, processName, JSON.stringify(shared));
    await redis.pexpire(key, sharedMetrics.keptMs);
    beforeMs = atMs;
  };
  const { stop } = repeat({
    work: share,
    everyMs: sharedMetrics.writeEveryMs,
    failed: (error) => log.debug({ error }, 'metrics are not shared'),
  });
  return async () => {
    void stop();
    // If Redis does not answer, the process stops all the same: what is left there expires.
    if (redis.status === 'ready') await redis.hdel(key, processName).catch(() => undefined);
  };
}

/** The others' metrics as they were read last. */
let known: MetricObject[][] = [];

/** The metrics of all processes of this host in Prometheus's text format. */
export async function readSharedMetrics(redis: Redis, processName: string): Promise<string> {
  const own = await processRegistry.getMetricsAsJSON();
  known = await redis.hgetall(registryKeys.metrics(hostname())).then(
    (texts) => {
      const shared = new Map(
        Object.entries(texts).map(([name, text]) => [name, JSON.parse(text) as Shared] as const),
      );
      const sinceMs = (shared.get(processName)?.beforeMs ?? 0) - sharedMetrics.staleMs;
      shared.delete(processName);
      return [...shared.values()].filter(({ atMs }) => atMs > sinceMs).map(({ metrics }) => metrics);
    },
    () => known,
  );
  return AggregatorRegistry.aggregate([own, ...known]).metrics();
}
