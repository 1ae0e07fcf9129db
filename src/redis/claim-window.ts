// How long Redis remembers claims: as long as their byte budget lasts, but at most a day, at least a quarter of an hour, and
// always until their segment is stored and their key is in the index on disk (clickhouse/key-index.ts). Claims age by a
// clock of the shard that only workers move (age-claims-4.lua): while no worker runs, nothing is forgotten.

import { claims } from '../contract/limits.js';
import { claimSweeps, commitBatches, keyIndex } from '../tuning.js';
import type { Redis } from './client.js';
import { shardKeys } from './keys.js';
import { runScript, scripts } from './scripts.js';

const minuteMs = 60_000;

export type ClaimAgingOptions = {
  readonly redis: Redis;
  readonly shard: number;
  /** The byte budget of the shard. */
  readonly claimBytesMax: number;
  /** A monotonic clock in milliseconds; only differences count. */
  readonly clockMs?: () => number;
};

export type ClaimAge = {
  readonly keptMinutes: number;
  /** Claims wait to be forgotten, or the index is behind: more segments have to be indexed. */
  readonly wantsIndex: boolean;
};

/**
 * Makes the function that a worker calls for a shard's claims once a second. It moves their clock, recomputes the window
 * and drops expired claims from some buckets, a million of them in an hour. Each call settles with undefined before the
 * first commit. Several workers may call it at once.
 */
export function createClaimAging(options: ClaimAgingOptions): () => Promise<ClaimAge | undefined> {
  const { redis, shard, claimBytesMax } = options;
  const clockMs = options.clockMs ?? (() => performance.now());
  const keys = [
    shardKeys.state(shard),
    shardKeys.claims(shard),
    shardKeys.claimMinutes(shard),
    shardKeys.answers(shard),
  ];
  let lastMs = clockMs();
  return async () => {
    const windowMinutes = await readWindow(redis, shard, claimBytesMax);
    // Measured from one call to the next, including calls that fail. So the sum is never more than the time that passed.
    const nowMs = clockMs();
    const passedMs = Math.max(0, Math.floor(nowMs - lastMs));
    lastMs = nowMs;
    const aged = await runScript(redis, scripts.ageClaims, keys, [
      passedMs,
      claimSweeps.clockStepMsMax,
      windowMinutes,
      commitBatches.answerKeptMs / minuteMs,
      claimSweeps.bucketsMax,
      keyIndex.unindexedMsMax / minuteMs,
    ]);
    if (aged === null) return undefined;
    const [keptMinutes, wantsIndex] = aged as number[];
    return { keptMinutes: Number(keptMinutes), wantsIndex: wantsIndex === 1 };
  };
}

/** The window that the budget allows, by the counts of each minute. Forgets minutes that no window can reach. */
async function readWindow(redis: Redis, shard: number, claimBytesMax: number): Promise<number> {
  const [counts, clockUs] = await Promise.all([
    redis.hgetall(shardKeys.claimCounts(shard)),
    redis.hget(shardKeys.state(shard), 'claim_clock_us'),
  ]);
  // Nothing was claimed before the clock began.
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
 * The number of buckets: with the budget used up, each holds six to twelve claims. With fewer claims in a bucket each takes
 * more memory; with more, each new claim rewrites more. Whatever the budget, there are enough buckets for the shortest
 * window of a thousand keys a second. A power of two that three bytes can name.
 */
export function claimBucketCount(claimBytesMax: number): number {
  const bits = Math.floor(Math.log2(claimBytesMax / claims.bytesPerClaim / 6));
  return 2 ** Math.min(24, Math.max(16, bits));
}

/**
 * The window for claims counted by minute. As many minutes are kept as fit the budget. The window that is reported is two
 * minutes shorter: the current minute has just begun, and the clock of claims lags.
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
