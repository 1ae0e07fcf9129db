// Commands that Redis carries out in one step, with nothing of anybody else's between them.

import type { Redis } from './client.js';

type Replies = readonly (readonly [error: Error | null, value: unknown])[];

/** The values that a transaction's `exec` settled with. Throws the first error among them. */
export function valuesOf(replies: Replies | null): unknown[] {
  if (replies === null) throw new Error('Redis did not carry out a transaction');
  return replies.map(([error, value]) => {
    if (error !== null) throw error;
    return value;
  });
}

/** Counts a call in a window that the first one began; settles with the calls in it. */
export async function countWithin(redis: Redis, key: string, windowMs: number): Promise<number> {
  // LT: a window that was begun before Redis's clock was set back lasts no longer for that.
  const [count] = valuesOf(await redis.multi().incr(key).pexpire(key, windowMs, 'LT').exec());
  return Number(count);
}
