// Sending a failed row again and deleting its user exclude each other. Otherwise, between its reading from one table and its
// insert into the other, a row would be in no place where a deletion looks. Restoring a backup excludes both, since it replaces
// the tables; and the beginning of a move of a shard excludes all of them. If the process that holds the lock is paused, the lock
// expires. That is safe: ClickHouse takes each row that is sent from the failed rows that are left.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { isExemptInsertRunning } from '../../clickhouse/store.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { type Lease, newOwner, withLease } from '../../redis/lease.js';
import { maintenanceLock } from '../../tuning.js';
import { untilTrue } from '../../wait.js';

/** What may be taken over from a process that was killed; all of these are safe. */
const takenFrom = {
  round: ['round', 'retention'],
  retention: ['retention'],
  retry: [],
  restore: ['restore'],
  move: ['move'],
} as const;

/** Runs `work` while no other process moves failed rows. If one does, settles with `locked` without running it. */
export async function withMaintenanceLock<Result>(
  redis: Redis,
  kind: keyof typeof takenFrom,
  work: (lease: Lease) => Promise<Result>,
): Promise<Result | 'locked'> {
  const options = { ...maintenanceLock, owner: `${kind} ${newOwner()}`, from: takenFrom[kind] };
  return withLease(redis, registryKeys.maintenanceLock, options, work);
}

/**
 * Settles when no failed row is being sent again. A process that has lost the lock may have begun to send a row before
 * the row was deleted; a statement that begins later finds no row.
 */
export async function untilNoRetryRuns(clickhouse: ClickHouseClient): Promise<void> {
  const noneRuns = async () => !(await isExemptInsertRunning(clickhouse));
  if (!(await untilTrue(noneRuns, { msMax: maintenanceLock.insertMsMax })))
    throw new Error('a failed row is still being sent again');
}
