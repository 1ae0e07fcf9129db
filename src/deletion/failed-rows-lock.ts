// Sending a failed row again and deleting its user exclude each other: between being read from the one table
// and being stored in the other, a row would be in no place where a deletion looks.

import { randomBytes } from 'node:crypto';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';

const lockMs = 60_000;
const renewEveryMs = 10_000;

/** Runs `work` while nobody else moves failed rows; settles with `locked`, without running it, when somebody does. */
export async function withFailedRowsLocked<T>(
  redis: Redis,
  kind: 'round' | 'retry',
  work: () => Promise<T>,
): Promise<T | 'locked'> {
  const owner = `${kind} ${randomBytes(9).toString('base64url')}`;
  const lock = registryKeys.failedRowsLock;
  const taken = await runScript(redis, scripts.lockFailedRows, [lock], [kind, owner, lockMs]);
  if (Number(taken) === 0) return 'locked';
  let lost = false;
  const renewal = setInterval(() => {
    redis.pexpire(lock, lockMs).catch(() => {
      lost = true;
    });
  }, renewEveryMs);
  try {
    return await work();
  } finally {
    clearInterval(renewal);
    // A lock that could not be renewed may be another's by now, and ends by itself.
    if (!lost && (await redis.get(lock)) === owner) await redis.del(lock);
  }
}
