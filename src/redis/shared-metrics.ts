// The metrics of all processes of one host: each leaves its own in Redis every two seconds, and whichever is
// asked adds them up. While Redis is away the answer is the asked process's own.

import { hostname } from 'node:os';
import { AggregatorRegistry, type MetricObject } from 'prom-client';
import { describeError, type Log } from '../log.js';
import { registry } from '../metrics.js';
import type { Redis } from './client.js';
import { registryKeys } from './keys.js';

const shareEveryMs = 2_000;
const staleMs = 10_000;

type Shared = { readonly atMs: number; readonly metrics: MetricObject[] };

/** Starts to share this process's metrics; the function returned stops it and takes them back. */
export function shareMetrics(redis: Redis, processName: string, log: Log): () => Promise<void> {
  const key = registryKeys.metrics(hostname());
  const share = async () => {
    const shared: Shared = { atMs: Date.now(), metrics: await registry.getMetricsAsJSON() };
    await redis.hset(key, processName, JSON.stringify(shared));
    await redis.pexpire(key, staleMs);
  };
  const timer = setInterval(() => {
    share().catch((error: unknown) => log.debug({ error: describeError(error) }, 'metrics are not shared'));
  }, shareEveryMs);
  return async () => {
    clearInterval(timer);
    if (redis.status === 'ready') await redis.hdel(key, processName);
  };
}

/** The metrics of all processes of this host in Prometheus's text format. */
export async function readSharedMetrics(redis: Redis, processName: string): Promise<string> {
  const own = await registry.getMetricsAsJSON();
  const others = await redis
    .hgetall(registryKeys.metrics(hostname()))
    .then((shared) =>
      Object.entries(shared)
        .filter(([name]) => name !== processName)
        .map(([, text]) => JSON.parse(text) as Shared)
        .filter(({ atMs }) => Date.now() - atMs < staleMs)
        .map(({ metrics }) => metrics),
    )
    .catch((): MetricObject[][] => []);
  return AggregatorRegistry.aggregate([own, ...others]).metrics();
}
