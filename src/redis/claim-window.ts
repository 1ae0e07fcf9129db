// How long claims are remembered: as long as their byte budget lasts, at most a day, never shorter than a
// quarter of an hour nor than the oldest segment is outstanding. Time passes for them by a clock of the shard that
// only workers move (age-claims-5.lua): where none runs, nothing is forgotten.

import { claims, commits } from '../contract/limits.js';
import type { Redis } from './client.js';
import { shardKeys } from './keys.js';
import { runScript, scripts } from './scripts.js';

const minuteMs = 60_000;

export type ClaimAgingOptions = {
  readonly redis: Redis;
  readonly shard: number;
  /** Budget of the shard. */
  readonly claimBytesMax: number;
  /** A clock that no step moves, in milliseconds; only its differences count. */
  readonly clockMs?: () => number;
};

/**
 * Makes what a worker does for a shard's claims once a second: it moves their clock, computes the window anew and
 * drops what has expired from some buckets, a million of them in an hour. Each call settles with the minutes that
 * claims are kept, and undefined before the first commit. Several workers may do so at once.
 */
export function createClaimAging(options: ClaimAgingOptions): () => Promise<number | undefined> {
  const { redis, shard, claimBytesMax } = options;
  const clockMs = options.clockMs ?? (() => performance.now());
  const keys = [
    shardKeys.state(shard),
    shardKeys.segments(shard),
    shardKeys.claims(shard),
    shardKeys.claimMinutes(shard),
    shardKeys.answers(shard),
  ];
  let lastMs = clockMs();
  return async () => {
    const windowMinutes = await readWindow(redis, shard, claimBytesMax);
    // Counted from sending to sending, also of calls that fail: together they never tell more than has passed.
    const nowMs = clockMs();
    const passedMs = Math.max(0, Math.floor(nowMs - lastMs));
    lastMs = nowMs;
    const kept = await runScript(redis, scripts.ageClaims, keys, [
      passedMs,
      claims.clockStepMsMax,
      windowMinutes,
      commits.answerKeptMs / minuteMs,
      claims.bucketsPerSweep,
    ]);
    return kept === null ? undefined : Number(kept);
  };
}

/** The window that the budget allows by the counts of each minute; forgets those that no window reaches. */
async function readWindow(redis: Redis, shard: number, claimBytesMax: number): Promise<number> {
  const [counts, clockUs] = await Promise.all([
    redis.hgetall(shardKeys.claimCounts(shard)),
    redis.hget(shardKeys.state(shard), 'claim_clock_us'),
  ]);
  // Nothing has been claimed before the clock began, or only by an older version, which the next call counts.
  if (clockUs === null) return maxMinutes;
  const nowMinute = Math.floor(Number(clockUs) / 1000 / minuteMs);
  const byMinute = new Map(Object.entries(counts).map(([minute, count]) => [Number(minute), Number(count)]));
  const old = [...byMinute.keys()].filter((minute) => nowMinute - minute > maxMinutes + 2);
  if (old.length > 0) await redis.hdel(shardKeys.claimCounts(shard), ...old.map(String));
  return claimWindowMinutes(byMinute, nowMinute, claimBytesMax);
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

/**
 * The window for claims counted by minute. Kept are the minutes that the budget holds, and of those two are not
 * told: the one that has just begun, and one because the clock of claims lags.
 */
export function claimWindowMinutes(
  countByMinute: ReadonlyMap<number, number>,
  nowMinute: number,
  claimBytesMax: number,
): number {
  const claimsMax = claimBytesMax / claims.bytesPerClaim;
  let held = 0;
  let minutes = 0;
  while (minutes < maxMinutes + 2) {
    held += countByMinute.get(nowMinute - minutes) ?? 0;
    if (held > claimsMax) break;
    minutes += 1;
  }
  return Math.max(minutes - 2, minMinutes);
}
