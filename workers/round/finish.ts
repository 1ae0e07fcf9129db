// The end of a round of deletions: its requests become hidden or complete.

import { inBatches } from '../../src/batches.js';
import { keepDeletedUsers } from '../../src/privacy/deletion/deleted-users.js';
import { purgeTargets } from '../../src/privacy/deletion/kept-targets.js';
import { completeDeletion, type DeletionRequest } from '../../src/privacy/deletion/request.js';
import { copyCompleted } from '../../src/privacy/deletion/second-copy.js';
import { userTables } from '../../src/privacy/deletion/user-tables.js';
import { mastersOf } from '../../src/redis/client.js';
import { emptySlowLogs } from '../../src/redis/deleted-data.js';
import { readBackups } from '../../src/registry/backups.js';
import { copyChanges, kindsOfCopies } from '../../src/registry/outbox.js';
import { readLoadedRegistry } from '../../src/registry/registry.js';
import { assertCurrent } from '../../src/registry/witness.js';
import { deletionRounds } from '../../src/tuning.js';
import { recordUrgent } from '../erase.js';
import { dropTablesEverywhere, type LockedOptions, type Resolved, update } from './round.js';

/** Ends a round for the requests that still have masked rows on disk. */
export async function markHidden(options: LockedOptions, round: Resolved): Promise<void> {
  const requests = [...round.requests.values()];
  if (requests.length === 0) return;
  await recordUrgent(options.redis, requests);
  // Before they are hidden: the next round may be hours away, and the tables name users.
  await dropTablesEverywhere(options);
  const now = new Date().toISOString();
  await update(options, round, ({ hidden_at = now }) => ({ state: 'hidden', left: [], hidden_at }));
  options.crash('hidden');
}

/** Ends a round for the requests that have nothing left. Settles with their number. */
export async function complete(options: LockedOptions, round: Resolved): Promise<number> {
  if (round.requests.size === 0) return 0;
  const verified_at = new Date().toISOString();
  const backups_end_at = (await readBackups(options.redis))
    .map(({ keep_until }) => keep_until)
    .sort()
    .at(-1);
  await update(options, round, ({ hidden_at = verified_at }) => ({
    state: 'verifying',
    left: [],
    hidden_at,
    verified_at,
    verified_tables: userTables,
    ...(backups_end_at === undefined ? {} : { backups_end_at }),
  }));
  options.crash('verified');
  await finish(options, [...round.requests.values()]);
  return round.requests.size;
}

/** Finishes verified requests: removes their targets and empties Redis's slow logs, then marks the requests complete. */
export async function finish(options: LockedOptions, requests: readonly DeletionRequest[]): Promise<void> {
  const { redis, clickhouse, crash, log } = options;
  if (requests.length === 0) return;
  // Before the targets are removed: if Redis is emptied now, the restored state must say that they are no longer needed.
  await copyChanges(redis, clickhouse, { kind: kindsOfCopies.deletion, crash });
  const ids = requests.map((request) => request.deletion_request_id);
  await keepDeletedUsers(redis, clickhouse, ids);
  await purgeTargets(clickhouse, ids);
  await dropTablesEverywhere(options);
  await emptySlowLogs(mastersOf(redis), log);
  crash('targets_purged');
  // ClickHouse may have been set back to an older copy since the tables were counted.
  await assertCurrent(redis, clickhouse);
  const completed_at = new Date().toISOString();
  // An emptied Redis has no callbacks: copying its state would lose the pending call for good.
  const { callbacks } = await readLoadedRegistry(redis);
  const completed = requests.map(
    (request): DeletionRequest => ({
      ...request,
      status: 'complete',
      state: 'complete',
      completed_at,
      ...(callbacks.has(request.account_id) ? { callback: { state: 'pending', tries: [] } } : {}),
    }),
  );
  await copyCompleted(redis, clickhouse, completed);
  crash('completion_copied');
  for (const batch of inBatches(completed, deletionRounds.writesAtOnceMax)) {
    await Promise.all(
      batch.map((request) => completeDeletion(redis, request).then(() => crash('completed'))),
    );
  }
  const called = completed.filter(({ callback }) => callback !== undefined);
  await options.onCallbacksDue?.(called.map((request) => request.deletion_request_id));
}
