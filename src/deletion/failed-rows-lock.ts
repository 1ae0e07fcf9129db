// Sending a failed row again and deleting its user exclude each other: between being read from the one table
// and being stored in the other, a row would be in no place where a deletion looks. The lock ends under a process that
// stands still; what it has sent, or sends then, ClickHouse takes from the failed rows that are left.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { isAskedInsertRunning } from '../clickhouse/store.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';

const lockMs = 60_000;
const renewEveryMs = 10_000;

/** Asks Redis whether the lock is still held, and renews it. */
export type IsHeld = () => Promise<boolean>;

/** Runs `work` while nobody else moves failed rows; settles with `locked`, without running it, when somebody does. */
export async function withFailedRowsLocked<T>(
  redis: Redis,
  kind: 'round' | 'retry',
  work: (isHeld: IsHeld) => Promise<T>,
): Promise<T | 'locked'> {
  const owner = `${kind} ${randomBytes(9).toString('base64url')}`;
  const lock = registryKeys.failedRowsLock;
  const taken = await runScript(redis, scripts.lockFailedRows, [lock], [kind, owner, lockMs]);
  if (Number(taken) === 0) return 'locked';
  const isHeld = async () =>
    Number(await runScript(redis, scripts.renewFailedRowsLock, [lock], [owner, lockMs])) === 1;
  // A renewal that fails is followed by the next one; whether the lock is lost, `work` asks by itself.
  const renewal = setInterval(() => void Promise.allSettled([isHeld()]), renewEveryMs);
  try {
    return await work(isHeld);
  } finally {
    clearInterval(renewal);
    await runScript(redis, scripts.freeFailedRowsLock, [lock], [owner]);
  }
}

/**
 * Settles when no failed row is being sent again. Whoever has lost the lock may have begun to before the row was
 * deleted; what begins afterwards finds no row.
 */
export async function untilNoRetryRuns(clickhouse: ClickHouseClient): Promise<void> {
  const giveUpAt = performance.now() + retryMsMax;
  while (await isAskedInsertRunning(clickhouse)) {
    if (performance.now() > giveUpAt) throw new Error('a failed row is still being sent again');
    await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
  }
}

/** Longer than the sender of a row waits for its insert. */
const retryMsMax = 150_000;
const lookEveryMs = 50;
