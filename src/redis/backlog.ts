// How much a shard holds that ClickHouse does not have yet, and how long it remembers keys.

import { backlog, claimWindowSeconds } from '../metrics.js';
import type { Redis } from './client.js';
import { segmentOfMember, shardKeys } from './keys.js';
import { runScript, scripts } from './scripts.js';

export type Backlog = {
  readonly segments: number;
  readonly rows: number;
  readonly bytes: number;
  /** Age of the oldest outstanding segment by the clock of Redis; 0 when there is none. */
  readonly oldestMs: number;
  readonly claimWindowMinutes: number;
};

export async function readBacklog(redis: Redis, shard: number): Promise<Backlog> {
  const [state, segments, oldest, nowMs] = await Promise.all([
    redis.hmget(shardKeys.state(shard), 'bytes', 'rows', 'claim_window_minutes'),
    redis.zcard(shardKeys.segments(shard)),
    redis.zrange(shardKeys.segments(shard), '0', '0'),
    readTime(redis, shard),
  ]);
  const openedMs = oldest[0] === undefined ? nowMs : Number(segmentOfMember(oldest[0]).number) / 1000;
  return {
    segments,
    rows: Number(state[1] ?? 0),
    bytes: Number(state[0] ?? 0),
    oldestMs: Math.max(0, nowMs - openedMs),
    claimWindowMinutes: Number(state[2] ?? 24 * 60),
  };
}

/** The clock by which a shard's records are stamped, in milliseconds since 1970. */
export async function readTime(redis: Redis, shard: number): Promise<number> {
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
  }
}
