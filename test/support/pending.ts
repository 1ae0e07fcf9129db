// Adds pending deletions and exports that only count towards limits: members of the sets, without a request.

import type { Redis } from '../../src/redis/client.js';
import { registryKeys } from '../../src/redis/keys.js';

const { pendingDeletions, pendingDeletionsByAccount, exports, exportsByAccount } = registryKeys;

/** Adds pending deletions that are older than all others. */
export async function addPending(redis: Redis, members: readonly string[]): Promise<void> {
  await add(redis, [pendingDeletions, pendingDeletionsByAccount], members, 1);
}

/** Removes these pending deletions, or all if none is named. */
export async function removePending(redis: Redis, ...members: readonly string[]): Promise<void> {
  const keys = [pendingDeletions, pendingDeletionsByAccount];
  for (const key of keys) await (members.length === 0 ? redis.del(key) : redis.zrem(key, ...members));
}

/** Adds exports that end at this time and the milliseconds after it. */
export async function addExports(redis: Redis, members: readonly string[], endMs: number): Promise<void> {
  await add(redis, [exports, exportsByAccount], members, endMs);
}

export async function removeExports(redis: Redis, members: readonly string[]): Promise<void> {
  for (const key of [exports, exportsByAccount]) await redis.zrem(key, ...members);
}

async function add(
  redis: Redis,
  [byTime = '', byAccount = '']: readonly string[],
  members: readonly string[],
  score: number,
): Promise<void> {
  await redis.zadd(byTime, ...members.flatMap((member, at) => [score + at, member]));
  await redis.zadd(byAccount, ...members.flatMap((member) => [0, member]));
}
