// Prepares the restored tables for the exchange and records the plan, on the primary server and in Redis.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { voidSince } from '../../clickhouse/ledger-table.js';
import { tablesOfSchema } from '../../clickhouse/migrate.js';
import { BackupFailed, notePlan, readTableIds } from '../../clickhouse/staging.js';
import { backups } from '../../contract/limits.js';
import type { DeletionRequest } from '../../privacy/deletion/request.js';
import { registryKeys } from '../../redis/keys.js';
import { deleteEqual } from '../../redis/lease.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { keepsSince } from '../../registry/backups.js';
import { shardServersKey } from '../../registry/documents.js';
import type { AdminContext } from '../context.js';
import { deleteFromOlderData, noneDeleted } from '../older-data.js';
import { type BackedUp, checkPlaces } from './backed-up.js';
import { joinIndexes, ofServer } from './exchange.js';
import { type Begun, confirm, type Plan, type Planned, RedisChanged, type Restore, textOf } from './plan.js';

/** Prepares the restored tables for the exchange, and records the plan on the primary server. */
export async function prepare(restore: Begun, backedUp: BackedUp): Promise<Plan> {
  const { name, staging, servers, restored, id, epoch } = restore;
  // A shard may have moved while the servers restored their backups.
  await checkPlaces(restore, backedUp);
  const state = epoch === '' ? 'restored' : 'kept';
  const deleted = epoch === '' ? noneDeleted : await deleteSince(restore, backedUp);
  const keysTo = await Promise.all(
    servers.map((client, server) => joinIndexes(restore, client, restored[server] as ClickHouseClient)),
  );
  // Only these tables are exchanged: a table that only one of the two databases has stays where it is.
  const schema = tablesOfSchema();
  const tables = await Promise.all(
    restored.map(async (client) => {
      const ids = [...(await readTableIds(client, staging))];
      return Object.fromEntries(ids.filter(([table]) => schema.has(table) && !ofServer.includes(table)));
    }),
  );
  await voidRestored(restore, backedUp);
  await confirm(restore);
  const plan: Plan = { id, name, tables, keysTo, result: { name, state, ...deleted } };
  await notePlan(servers[0], staging, textOf(plan));
  return plan;
}

export const restoredReason = 'a backup was restored';

/** Marks in the restored ledger that the backup may lack what was accepted since it began. */
async function voidRestored({ restored: [primary] }: Begun, { entry }: BackedUp): Promise<void> {
  const earliest = entry && Math.floor(Date.parse(entry.began_at) / 60_000);
  await voidSince(primary, { reason: restoredReason, earliest });
}

/**
 * Once Redis has the plan, no deletion round starts and no shard is moved. A continued restore writes the plan again, since Redis may have
 * been loaded without it. `owner`: the value of the lock that stops the rounds. `shardServers`: the document with the shards' servers, as
 * read before the plan was made.
 */
export async function recordPlanInRedis(
  restore: Planned,
  owner: string,
  shardServers: string,
): Promise<void> {
  const { context, epoch, lock, plan } = restore;
  const { maintenanceLock, restoreLock, epoch: epochKey, documents, restoringBackup } = registryKeys;
  const keys = [maintenanceLock, restoreLock, epochKey, documents, restoringBackup];
  const args = [owner, lock.owner, epoch, shardServersKey, shardServers, textOf(plan)];
  const recorded = await runScript(context.redis, scripts.noteRestore, keys, args);
  // A deletion round may have started in the meantime and completed requests whose users were not deleted from the restored tables.
  if (Number(recorded) === 0) throw new BackupFailed('it was paused for too long: run it again');
  if (Number(recorded) === -1) throw new RedisChanged();
  if (Number(recorded) === -2) throw new BackupFailed('a shard was moved meanwhile: run it again');
}

/** Lets deletion rounds start again, unless another process has recorded its own plan since. */
export async function forgetPlan({ redis }: AdminContext, text: string): Promise<void> {
  await deleteEqual(redis, registryKeys.restoringBackup, text);
}

/** Deletes from the restored tables the users of requests that were completed since the backup began, where these are still known. */
async function deleteSince({ context, name, restored }: Restore, { entry }: BackedUp) {
  const { redis } = context;
  // If Redis was emptied since, or the backup comes from elsewhere, only timestamps tell which requests the backup lacks.
  const doneInBackup = await readCompleteIds(restored[0]);
  const knowsAll = entry !== undefined && (await keepsSince(redis, name, entry.began_at));
  const isInBackup = ({ deletion_request_id: id, completed_at }: DeletionRequest) =>
    doneInBackup.has(id) &&
    (entry === undefined ||
      Date.parse(completed_at ?? '') < Date.parse(entry.began_at) - backups.clockDifferenceMsMax);
  return deleteFromOlderData(redis, restored, (request) => knowsAll || isInBackup(request));
}

async function readCompleteIds(primary: ClickHouseClient): Promise<ReadonlySet<string>> {
  const rows = await readRows<{ request_id: string }>(primary, {
    query: `SELECT request_id FROM deletion_requests GROUP BY request_id
      HAVING JSONExtractString(argMax(deletion_requests.document, deletion_requests.version), 'status') = 'complete'`,
  });
  return new Set(rows.map(({ request_id: id }) => id));
}
