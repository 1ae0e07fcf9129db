// Turns that come at most once in a while, over all processes.

import type { Redis } from './client.js';

/** Whether nobody has taken this turn within `everyMs`; then it is taken. */
export async function takeTurn(redis: Redis, key: string, everyMs: number): Promise<boolean> {
  if ((await redis.set(key, '1', 'PX', everyMs, 'NX')) === 'OK') return true;
  // A turn that was taken before Redis's clock was set back would last for as long as that.
  await redis.pexpire(key, everyMs, 'LT');
  return false;
}

/** Whether somebody has taken this turn within `everyMs`, so that nothing need be prepared for it. */
export async function isTurnTaken(redis: Redis, key: string, everyMs: number): Promise<boolean> {
  const leftMs = await redis.pttl(key);
  // More than a turn lasts: Redis's clock was set back since, which `takeTurn` mends.
  return leftMs >= 0 && leftMs <= everyMs;
}
