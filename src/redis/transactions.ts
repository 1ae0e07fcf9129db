// Commands that Redis carries out in one step, without other clients' commands between them.

import type { Redis } from './client.js';

type Replies = readonly (readonly [error: Error | null, value: unknown])[];

/** The values that a transaction's `exec` settled with. Throws the first error among them. */
export function transactionValues(replies: Replies | null): unknown[] {
  if (replies === null) throw new Error('Redis did not carry out a transaction');
  return replies.map(([error, value]) => {
    if (error !== null) throw error;
    return value;
  });
}

/** Counts a call in a window that begins with its first call. Settles with the number of calls in the window. */
export async function countWithin(redis: Redis, key: string, windowMs: number): Promise<number> {
  // LT: a window that began before Redis's clock was set back does not last longer because of that.
  const [count] = transactionValues(await redis.multi().incr(key).pexpire(key, windowMs, 'LT').exec());
  return Number(count);
}
