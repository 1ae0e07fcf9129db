// Since when a run of retention has been due: from its first attempt until everything that has expired is deleted.

import { retentionUnfinishedSeconds } from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { readTime } from '../../registry/registry.js';

/** Records that a run is due, unless one already is. */
export async function recordDue(redis: Redis): Promise<void> {
  await redis.set(registryKeys.retentionDue, String(await secondsNow(redis)), 'NX');
}

/** For how many seconds a run has been due; 0 if none is. */
export async function secondsOverdue(redis: Redis): Promise<number> {
  const [due, now] = await Promise.all([redis.get(registryKeys.retentionDue), secondsNow(redis)]);
  return due === null ? 0 : Math.max(0, now - Number(due));
}

async function secondsNow(redis: Redis): Promise<number> {
  return Math.floor((await readTime(redis)) / 1_000);
}

export async function observeRetention(redis: Redis): Promise<void> {
  retentionUnfinishedSeconds.set(await secondsOverdue(redis));
}
