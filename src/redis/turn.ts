// Turns that come at most once in a while, over all processes.

import type { Redis } from './client.js';
import { runScript, scripts } from './scripts.js';

/** Whether nobody has taken this turn within `everyMs`; then it is taken. */
export async function takeTurn(redis: Redis, key: string, everyMs: number): Promise<boolean> {
  return Number(await runScript(redis, scripts.takeTurn, [key], [everyMs])) === 1;
}

/** Whether somebody has taken this turn within `everyMs`, so that nothing need be prepared for it. */
export async function isTurnTaken(redis: Redis, key: string, everyMs: number): Promise<boolean> {
  const leftMs = await redis.pttl(key);
  // More than a turn lasts: Redis's clock was set back since, which `takeTurn` mends.
  return leftMs >= 0 && leftMs <= everyMs;
}
