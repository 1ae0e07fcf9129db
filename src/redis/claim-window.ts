// How long claims are remembered: as long as their byte budget lasts, at most a day, never shorter than a
// quarter of an hour nor than the oldest segment is outstanding. The commit script drops what is older in the
// buckets that it writes, a sweep in the others.

import { claims } from '../contract/limits.js';
import { readBacklog, readTime } from './backlog.js';
import type { Redis } from './client.js';
import { shardKeys } from './keys.js';
import { runScript, scripts } from './scripts.js';

const minuteMs = 60_000;

/** Computes a shard's window anew from its counts a minute; settles with it, in minutes. */
export async function updateClaimWindow(redis: Redis, shard: number, claimBytesMax: number): Promise<number> {
  const [counts, { oldestMs }, nowMs] = await Promise.all([
    redis.hgetall(shardKeys.claimCounts(shard)),
    readBacklog(redis, shard),
    readTime(redis, shard),
  ]);
  const nowMinute = Math.floor(nowMs / minuteMs);
  const byMinute = new Map(Object.entries(counts).map(([minute, count]) => [Number(minute), Number(count)]));
  const minutes = claimWindowMinutes(byMinute, nowMinute, claimBytesMax, oldestMs);

  // What no window can reach any more is not counted again.
  const old = [...byMinute.keys()].filter((minute) => nowMinute - minute > Math.max(minutes, maxMinutes));
  if (old.length > 0) await redis.hdel(shardKeys.claimCounts(shard), ...old.map(String));
  await redis.hset(shardKeys.state(shard), 'claim_window_minutes', minutes);
  return minutes;
}

/** Drops expired claims of some buckets, going on where the last call ended: a million of them in an hour. */
export async function sweepClaims(redis: Redis, shard: number): Promise<void> {
  const keys = [shardKeys.state(shard), shardKeys.claims(shard)];
  await runScript(redis, scripts.sweepClaims, keys, [claims.bucketsPerSweep]);
}

const minMinutes = claims.windowMsMin / minuteMs;
const maxMinutes = claims.windowMsMax / minuteMs;

/**
 * So many buckets that each holds six to twelve claims when the budget is used up: fewer take more memory a
 * claim, more have to be written anew with each. At least so many that the shortest window of a thousand keys a
 * second fits whatever the budget; a power of two, which three bytes can name.
 */
export function claimBucketCount(claimBytesMax: number): number {
  const bits = Math.floor(Math.log2(claimBytesMax / claims.bytesPerClaim / 6));
  return 2 ** Math.min(24, Math.max(16, bits));
}

/** The window for claims counted by minute. `oldestMs`: age of the oldest outstanding segment. */
export function claimWindowMinutes(
  countByMinute: ReadonlyMap<number, number>,
  nowMinute: number,
  claimBytesMax: number,
  oldestMs: number,
): number {
  const claimsMax = claimBytesMax / claims.bytesPerClaim;
  let held = 0;
  let minutes = 0;
  while (minutes < maxMinutes) {
    held += countByMinute.get(nowMinute - minutes) ?? 0;
    if (held > claimsMax) break;
    minutes += 1;
  }
  return Math.max(minutes, minMinutes, Math.ceil(oldestMs / minuteMs) + 1);
}
