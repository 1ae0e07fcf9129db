// Retrying a failed row and deleting its user exclude each other. Otherwise a row could be in no table that a deletion reads, between being
// read from one table and being inserted into the other. Restoring a backup excludes both, since it replaces the tables; and the start of a
// shard's move excludes all of these. If the process that holds the lock is paused, the lock expires. That is safe: the statement of a
// retry reads its row from the failed rows that are still there.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { isExemptInsertRunning } from '../../clickhouse/store.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { type Lease, newOwner, withLease } from '../../redis/lease.js';
import { maintenanceLock } from '../../tuning.js';
import { untilTrue } from '../../wait.js';

/**
 * For each kind of work, the kinds whose lock it may take over, since their process may have been killed. Each of them can safely be cut
 * short.
 */
const takenFrom = {
  round: ['round', 'retention'],
  retention: ['retention'],
  retry: [],
  restore: ['restore'],
  move: ['move'],
} as const;

/**
 * Runs `work` while no other process holds the lock, unless a restore is exchanging tables or was interrupted while it did. Settles with
 * `locked`, without running it, if it cannot. `waitMsMax`: how long it waits for another process.
 */
export async function withMaintenanceLock<Result>(
  redis: Redis,
  kind: keyof typeof takenFrom,
  work: (lease: Lease) => Promise<Result>,
  waitMsMax = 0,
): Promise<Result | 'locked'> {
  const options = { ...maintenanceLock, owner: `${kind} ${newOwner()}`, from: takenFrom[kind], waitMsMax };
  return withLease(redis, registryKeys.maintenanceLock, options, async (lease) => {
    if (kind !== 'restore' && (await redis.exists(registryKeys.restoringBackup)) === 1) return 'locked';
    return work(lease);
  });
}

/**
 * Settles when no failed row is being retried. A process that has lost the lock may have started a retry before the row was deleted;
 * statements that start later find no row.
 */
export async function untilNoRetryRuns(clickhouse: ClickHouseClient): Promise<void> {
  const noneRuns = async () => !(await isExemptInsertRunning(clickhouse));
  if (!(await untilTrue(noneRuns, { msMax: maintenanceLock.insertMsMax })))
    throw new Error('a failed row is still being retried');
}
