// Since when a run of retention has been due: from its first attempt until everything that has expired is deleted.

import { retentionUnfinishedSeconds } from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';

/** Records that a run is due, unless one already is. */
export async function recordDue(redis: Redis): Promise<void> {
  const [seconds] = (await redis.time()) as (string | number)[];
  await redis.set(registryKeys.retentionDue, String(seconds), 'NX');
}

/** For how many seconds a run has been due; 0 if none is. */
export async function secondsOverdue(redis: Redis): Promise<number> {
  const [due, time] = await Promise.all([redis.get(registryKeys.retentionDue), redis.time()]);
  const [seconds] = time as (string | number)[];
  return due === null ? 0 : Math.max(0, Number(seconds) - Number(due));
}

export async function observeRetention(redis: Redis): Promise<void> {
  retentionUnfinishedSeconds.set(await secondsOverdue(redis));
}
