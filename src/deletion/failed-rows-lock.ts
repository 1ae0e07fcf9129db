// Sending a failed row again and deleting its user exclude each other. Otherwise, between its reading from one table and its
// insert into the other, a row would be in no place where a deletion looks. Restoring a backup excludes both, since it replaces
// the tables; and the beginning of a move of a shard excludes all of them. If the process that holds the lock is paused, the lock
// expires. That is safe: ClickHouse takes each row that is sent from the failed rows that are left.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { isExemptInsertRunning } from '../clickhouse/store.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { failedRowsLock } from '../tuning.js';
import { untilTrue } from '../wait.js';

/** Asks Redis whether this process still holds the lock, and renews it. */
export type IsHeld = () => Promise<boolean>;

/**
 * Runs `work` while no other process moves failed rows. If one does, settles with `locked` without running it. `owner`: what the lock
 * holds as long as it is this process's.
 */
export async function withFailedRowsLocked<T>(
  redis: Redis,
  kind: 'round' | 'retention' | 'retry' | 'restore' | 'move',
  work: (isHeld: IsHeld, owner: string) => Promise<T>,
): Promise<T | 'locked'> {
  const owner = `${kind} ${randomBytes(9).toString('base64url')}`;
  const lock = registryKeys.failedRowsLock;
  const taken = await runScript(redis, scripts.lockFailedRows, [lock], [kind, owner, failedRowsLock.holdMs]);
  if (Number(taken) === 0) return 'locked';
  const isHeld = async () =>
    Number(await runScript(redis, scripts.renewFailedRowsLock, [lock], [owner, failedRowsLock.holdMs])) === 1;
  // If a renewal fails, the next one follows. `work` itself asks whether the lock is lost.
  const renewal = setInterval(() => void Promise.allSettled([isHeld()]), failedRowsLock.renewEveryMs);
  try {
    return await work(isHeld, owner);
  } finally {
    clearInterval(renewal);
    await runScript(redis, scripts.deleteEqual, [lock], [owner]);
  }
}

/**
 * Settles when no failed row is being sent again. A process that has lost the lock may have begun to send a row before
 * the row was deleted; a statement that begins later finds no row.
 */
export async function untilNoRetryRuns(clickhouse: ClickHouseClient): Promise<void> {
  const noneRuns = async () => !(await isExemptInsertRunning(clickhouse));
  if (!(await untilTrue(noneRuns, { msMax: failedRowsLock.insertMsMax })))
    throw new Error('a failed row is still being sent again');
}
