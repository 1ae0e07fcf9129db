// How much a shard holds that ClickHouse does not have yet, and how long it remembers keys.

import { claims } from '../contract/limits.js';
import { backlog, claimWindowSeconds, workersTicking } from '../metrics.js';
import type { Redis } from './client.js';
import { segmentOfMember, shardKeys } from './keys.js';
import { runScript, scripts } from './scripts.js';

const minuteMs = 60_000;

export type Backlog = Readonly<Awaited<ReturnType<typeof readBacklog>>>;

/** Reads the backlog of a shard: segments, rows and bytes in Redis, the age of the oldest segment, and the window of claims. */
export async function readBacklog(redis: Redis, shard: number) {
  const [state, segments, oldest, nowMs] = await Promise.all([
    redis.hmget(shardKeys.state(shard), 'bytes', 'rows', 'claim_window_minutes', 'claim_clock_us'),
    redis.zcard(shardKeys.segments(shard)),
    redis.zrange(shardKeys.segments(shard), '0', '0'),
    readRedisClockMs(redis, shard),
  ]);
  const [bytes, rows, claimWindowMinutes, claimClockUs] = state.map((value) => value ?? undefined);
  return {
    segments,
    rows: Number(rows ?? 0),
    bytes: Number(bytes ?? 0),
    /**
     * Age of the oldest outstanding segment; 0 if there is none. Computed by Redis's clock and by the clock of claims, which counts in
     * minutes; the higher value counts. So it also rises after Redis's clock was set back.
     */
    oldestMs: oldest[0] === undefined ? 0 : await ageOf(redis, shard, oldest[0], nowMs, Number(claimClockUs)),
    claimWindowMinutes: Number(claimWindowMinutes ?? claims.windowMsMax / minuteMs),
  };
}

async function ageOf(
  redis: Redis,
  shard: number,
  member: string,
  nowMs: number,
  claimClockUs: number,
): Promise<number> {
  const { number } = segmentOfMember(member);
  const byRedisMs = nowMs - Number(number) / 1000;
  const key = shardKeys.claimMinutes(shard);
  const [minute] = await redis.zrevrangebyscore(key, `(${number}`, '-inf', 'LIMIT', 0, 1);
  const byClaimsMs = minute === undefined ? 0 : claimClockUs / 1000 - (Number(minute) + 1) * minuteMs;
  return Math.max(0, byRedisMs, byClaimsMs);
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

/** The clock of the server that holds a shard, in milliseconds since 1970. */
async function readRedisClockMs(redis: Redis, shard: number): Promise<number> {
  const [seconds, microseconds] = (await runScript(redis, scripts.time, [shardKeys.state(shard)], [])) as [
    string,
    string,
  ];
  return Number(seconds) * 1000 + Number(microseconds) / 1000;
}

/** Sets the deployment's gauges from Redis. */
export async function observeBacklog(redis: Redis, shards: number): Promise<void> {
  for (let shard = 0; shard < shards; shard++) {
    const labels = { shard: String(shard) };
    const now = await readBacklog(redis, shard);
    backlog.segments.set(labels, now.segments);
    backlog.rows.set(labels, now.rows);
    backlog.bytes.set(labels, now.bytes);
    backlog.oldestSeconds.set(labels, now.oldestMs / 1000);
    claimWindowSeconds.set(labels, now.claimWindowMinutes * 60);
    workersTicking.set(labels, await redis.exists(shardKeys.ticked(shard)));
  }
}
