// How much a shard holds that ClickHouse does not have yet, and how long it remembers keys.

import { claims } from '../contract/limits.js';
import { backlog, claimWindowSeconds, workersTicking } from '../metrics.js';
import type { Redis } from './client.js';
import { shardKeys } from './keys.js';
import { runScript, scripts } from './scripts.js';

const minuteMs = 60_000;

export type Backlog = Readonly<Awaited<ReturnType<typeof readBacklog>>>;

/** Reads the backlog of a shard: segments, rows and bytes in Redis, the age of the oldest segment, and the window of claims. */
export async function readBacklog(redis: Redis, shard: number) {
  const { state, segments, claimMinutes, ticked } = shardKeys;
  const keys = [state, segments, claimMinutes, ticked].map((key) => key(shard));
  const found = (await runScript(redis, scripts.backlog, keys, [])) as number[];
  const [segmentCount = 0, rows = 0, bytes = 0, oldestMs = 0, works, claimWindowMinutes] = found;
  return {
    segments: segmentCount,
    rows,
    bytes,
    /** Age of the oldest outstanding segment; 0 if there is none. */
    oldestMs,
    /** Whether workers tick. */
    works: works === 1,
    claimWindowMinutes: claimWindowMinutes ?? claims.windowMsMax / minuteMs,
  };
}

/**
 * `oldest`: the lowest number of a shard's segments that ClickHouse does not have yet; undefined if there is none. `storedTo`: it has every
 * segment up to this number. Settles with undefined if Redis does not hold this deployment.
 */
export async function readOutstanding(redis: Redis, shard: number, epoch: string) {
  const keys = [shardKeys.state(shard), shardKeys.segments(shard)];
  const found = (await runScript(redis, scripts.outstanding, keys, [epoch])) as [string, string] | null;
  if (found === null) return undefined;
  const [oldest, last] = found;
  return oldest === '' ? { storedTo: last } : { oldest, storedTo: String(BigInt(oldest) - 1n) };
}

/** Sets the deployment's gauges from Redis. Those of shards whose server does not answer are unknown. */
export async function observeBacklog(redis: Redis, shards: number): Promise<void> {
  const observe = async (shard: string) => {
    const now = await readBacklog(redis, Number(shard));
    backlog.segments.set({ shard }, now.segments);
    backlog.rows.set({ shard }, now.rows);
    backlog.bytes.set({ shard }, now.bytes);
    backlog.oldestSeconds.set({ shard }, now.oldestMs / 1000);
    claimWindowSeconds.set({ shard }, now.claimWindowMinutes * 60);
    workersTicking.set({ shard }, now.works ? 1 : 0);
  };
  const gauges = [...Object.values(backlog), claimWindowSeconds, workersTicking];
  const all = Array.from({ length: shards }, async (_, number) => {
    const shard = String(number);
    await observe(shard).catch(() => {
      for (const gauge of gauges) gauge.remove({ shard });
    });
  });
  await Promise.all(all);
}
