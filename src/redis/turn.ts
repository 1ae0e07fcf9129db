// Turns that may be taken at most once per period, over all processes.

import type { Redis } from './client.js';
import { runScript, scripts } from './scripts.js';

/** Takes the turn for `everyMs` if it is free. Settles with whether it did. `owner`: who may end it. */
export async function takeTurn(redis: Redis, key: string, everyMs: number, owner = '1'): Promise<boolean> {
  return Number(await runScript(redis, scripts.takeTurn, [key], [everyMs, owner])) === 1;
}

/** Ends the owner's turn after `leftMs` from now, unless another process has taken it since. */
export async function endTurn(redis: Redis, key: string, owner: string, leftMs = 0): Promise<void> {
  await runScript(redis, scripts.endTurn, [key], [owner, leftMs]);
}

/** Whether this turn was taken within `everyMs`; then the caller need not prepare for it. */
export async function isTurnTaken(redis: Redis, key: string, everyMs: number): Promise<boolean> {
  const leftMs = await redis.pttl(key);
  // Longer than a turn lasts: Redis's clock was set back since. `takeTurn` repairs that.
  return leftMs >= 0 && leftMs <= everyMs;
}
