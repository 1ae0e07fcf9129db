// Prepares the restored tables for the exchange and records the plan, on the primary server and in Redis.

import { BackupFailed } from '../../clickhouse/backup-faults.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { voidSince } from '../../clickhouse/ledger-table.js';
import { tablesOfSchema } from '../../clickhouse/migrate.js';
import { serversOf } from '../../clickhouse/servers.js';
import { notePlan, readTableIds } from '../../clickhouse/staging.js';
import { backups } from '../../contract/limits.js';
import type { DeletionRequest } from '../../privacy/deletion/request.js';
import { registryKeys } from '../../redis/keys.js';
import { deleteEqual } from '../../redis/lease.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { keepsSince } from '../../registry/backups.js';
import { type Backup, backupsKey, shardServersKey } from '../../registry/documents.js';
import { readMirror } from '../../registry/mirror.js';
import type { AdminContext } from '../context.js';
import { type Begun, confirm, type Planned, RedisChanged, type Restore } from './confirm.js';
import { deleteFromOlderData, readCompleteIds } from './deletions.js';
import { joinIndexes, ofServer } from './exchange.js';
import { checkPlaces } from './places.js';
import { type Plan, type RestoredBackup, textOf } from './plan.js';

/** Prepares the restored tables for the exchange, and records the plan on the primary server. */
export async function prepare(restore: Begun): Promise<Plan> {
  const { context, name, staging, restored, id = '', epoch } = restore;
  const { clickhouse } = context;
  const isLoaded = epoch !== '';
  // A shard may have moved while the servers restored their backups.
  if (isLoaded) await checkPlaces(restore);
  const result = isLoaded
    ? await deleteSince(restore)
    : { name, state: 'restored' as const, deleted_again: { requests: 0, rows: 0 }, submit_again: [] };
  const keysTo = await Promise.all(
    serversOf(clickhouse).all.map((client, server) =>
      joinIndexes(restore, client, restored[server] as ClickHouseClient),
    ),
  );
  // Only these tables are exchanged: a table that only one of the two databases has stays where it is.
  const schema = tablesOfSchema();
  const tables = await Promise.all(
    restored.map(async (client) => {
      const ids = [...(await readTableIds(client, staging))];
      return Object.fromEntries(ids.filter(([table]) => schema.has(table) && !ofServer.includes(table)));
    }),
  );
  await voidRestored(restore);
  await confirm(restore);
  const plan: Plan = { id, name, tables, keysTo, result };
  await notePlan(clickhouse, staging, textOf(plan));
  return plan;
}

export const restoredReason = 'a backup was restored';

export const minuteNow = () => Math.floor(Date.now() / 60_000);

/** Marks in the restored ledger that the backup may lack what was accepted since it began. */
async function voidRestored({ restored: [primary], name }: Begun): Promise<void> {
  if (primary === undefined) return;
  const began = Date.parse((await readOwnEntry(primary, name))?.began_at ?? '');
  const from = Number.isNaN(began) ? {} : { earliest: Math.floor(began / 60_000) };
  await voidSince(primary, { to: minuteNow(), reason: restoredReason, ...from });
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
  const recorded = await runScript(
    context.redis,
    scripts.noteRestore,
    [
      registryKeys.maintenanceLock,
      registryKeys.restoreLock,
      registryKeys.epoch,
      registryKeys.documents,
      registryKeys.restoringBackup,
    ],
    [owner, lock.owner, epoch, shardServersKey, shardServers, textOf(plan)],
  );
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
async function deleteSince({ context, name, restored }: Restore): Promise<RestoredBackup> {
  const { redis } = context;
  const [primary] = restored as readonly [ClickHouseClient, ...ClickHouseClient[]];
  const backup = await readOwnEntry(primary, name);
  // If Redis was emptied since, or the backup comes from elsewhere, only timestamps tell which requests the backup lacks.
  const doneInBackup = await readCompleteIds(primary);
  const knowsAll = backup !== undefined && (await keepsSince(redis, name, backup.began_at));
  const isInBackup = ({ deletion_request_id: id, completed_at }: DeletionRequest) =>
    doneInBackup.has(id) &&
    (backup === undefined ||
      Date.parse(completed_at ?? '') < Date.parse(backup.began_at) - backups.clockDifferenceMsMax);
  const isDone = (request: DeletionRequest) => knowsAll || isInBackup(request);
  return { name, state: 'kept', ...(await deleteFromOlderData(redis, restored, isDone)) };
}

/** The entry of a backup in its own copy of the registry. The current registry may have the name for a later backup. */
async function readOwnEntry(primary: ClickHouseClient, name: string): Promise<Backup | undefined> {
  const text = (await readMirror(primary)).documents[backupsKey];
  return (JSON.parse(text ?? '[]') as Backup[]).find((backup) => backup.name === name);
}
