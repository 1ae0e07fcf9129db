// The metrics of all processes of a host. Each process writes its own to Redis every two seconds, and the process that is
// asked adds them up. While Redis is away it answers with its own only.

import { hostname } from 'node:os';
import type { Log } from '../log.js';
import { processRegistry } from '../metrics.js';
import { AggregatorRegistry, type MetricObject } from '../packages/prom-client.js';
import { repeat } from '../repeat.js';
import { sharedMetrics } from '../tuning.js';
import type { Redis } from './client.js';
import { registryKeys } from './keys.js';

type Shared = { readonly atMs: number; readonly metrics: MetricObject[] };

/** Starts sharing this process's metrics. The returned function stops that and removes them. */
export function shareMetrics(redis: Redis, processName: string, log: Log): () => Promise<void> {
  const key = registryKeys.metrics(hostname());
  const share = async () => {
    const shared: Shared = { atMs: Date.now(), metrics: await processRegistry.getMetricsAsJSON() };
    await redis.hset(key, processName, JSON.stringify(shared));
    await redis.pexpire(key, sharedMetrics.staleMs);
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

/** The metrics of all processes of this host in Prometheus's text format. */
export async function readSharedMetrics(redis: Redis, processName: string): Promise<string> {
  const own = await processRegistry.getMetricsAsJSON();
  const others = await redis
    .hgetall(registryKeys.metrics(hostname()))
    .then((shared) =>
      Object.entries(shared)
        .filter(([name]) => name !== processName)
        .map(([, text]) => JSON.parse(text) as Shared)
        .filter(({ atMs }) => Date.now() - atMs < sharedMetrics.staleMs)
        .map(({ metrics }) => metrics),
    )
    .catch((): MetricObject[][] => []);
  return AggregatorRegistry.aggregate([own, ...others]).metrics();
}
