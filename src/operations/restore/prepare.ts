// Prepares the restored tables for the exchange and notes the plan, on the home and in Redis.

import { BackupFailed } from '../../clickhouse/backup-faults.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { voidSince } from '../../clickhouse/ledger-table.js';
import { tablesOfSchema } from '../../clickhouse/migrate.js';
import { serversOf } from '../../clickhouse/servers.js';
import { notePlan, readTableIds } from '../../clickhouse/staging.js';
import { backups } from '../../contract/limits.js';
import { deleteAgain } from '../../privacy/deletion/delete-again.js';
import type { DeletionRequest } from '../../privacy/deletion/request.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { keepsSince } from '../../registry/backups.js';
import { type Backup, backupsKey, shardServersKey } from '../../registry/documents.js';
import { readMirror } from '../../registry/mirror.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import type { AdminContext } from '../context.js';
import { type Begun, confirm, type Planned, RedisChanged, type Restore } from './confirm.js';
import { findDeleted, readCompleteIds, submitAgainOf } from './deletions.js';
import { joinIndexes, ofServer } from './exchange.js';
import { checkPlaces } from './places.js';
import { type Plan, type RestoredBackup, textOf } from './plan.js';

/** Prepares the restored tables for the exchange, and notes the plan on the home. */
export async function prepare(restore: Begun): Promise<Plan> {
  const { context, name, staging, restored, id = '', epoch } = restore;
  const { clickhouse } = context;
  const isLoaded = epoch !== '';
  // A move may have begun while the servers restored their backups.
  if (isLoaded) await checkPlaces(restore);
  const result = isLoaded
    ? await deleteSince(restore)
    : { name, state: 'restored' as const, deleted_again: { requests: 0, rows: 0 }, submit_again: [] };
  const keysTo = await Promise.all(
    serversOf(clickhouse).all.map((client, server) =>
      joinIndexes(restore, client, restored[server] as ClickHouseClient),
    ),
  );
  // Other tables stay as they are: a table that only one of the two databases has cannot be exchanged.
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

/** What was accepted since the backup began is not in it, or not all of it: the restored ledger says so. */
async function voidRestored({ restored: [home], name }: Begun): Promise<void> {
  if (home === undefined) return;
  const began = Date.parse((await readOwnNote(home, name))?.began_at ?? '');
  const from = Number.isNaN(began) ? {} : { earliest: Math.floor(began / 60_000) };
  await voidSince(home, { to: minuteNow(), reason: restoredReason, ...from });
}

/**
 * Once the plan is there, no round of deletions begins and no shard is moved. A restore that goes on notes it again: whoever
 * has put Redis in order since may not have known of it. `owner`: who has stopped the rounds. `places`: where the shards were before
 * the plan was made.
 */
export async function notePlanInRedis(restore: Planned, owner: string, places: string): Promise<void> {
  const { context, epoch, lock, plan } = restore;
  const noted = await runScript(
    context.redis,
    scripts.noteRestore,
    [
      registryKeys.maintenanceLock,
      registryKeys.restoreLock,
      registryKeys.epoch,
      registryKeys.documents,
      registryKeys.restoringBackup,
    ],
    [owner, lock.owner, epoch, shardServersKey, places, textOf(plan)],
  );
  // A round that began meanwhile may have completed requests which are not deleted again.
  if (Number(noted) === 0) throw new BackupFailed('it stood still for too long: run it again');
  if (Number(noted) === -1) throw new RedisChanged();
  if (Number(noted) === -2) throw new BackupFailed('a shard was moved meanwhile: run it again');
}

/** Lets rounds of deletions begin. A plan that another process has noted since stays. */
export async function forgetPlan({ redis }: AdminContext, text: string): Promise<void> {
  await runScript(redis, scripts.deleteEqual, [registryKeys.restoringBackup], [text]);
}

/** Deletes from the restored tables the users whom requests have reached since the backup began, as far as that is known. */
async function deleteSince({ context, name, restored }: Restore): Promise<RestoredBackup> {
  const { redis } = context;
  const { deployment, environments } = await readLoadedRegistry(redis);
  const [home] = restored as readonly [ClickHouseClient, ...ClickHouseClient[]];
  const backup = await readOwnNote(home, name);
  // If Redis was emptied since, or the backup came from elsewhere, timestamps show which requests it lacks.
  const doneInBackup = await readCompleteIds(home);
  const knowsAll = backup !== undefined && (await keepsSince(redis, name, backup.began_at));
  const isInBackup = ({ deletion_request_id: id, completed_at }: DeletionRequest) =>
    doneInBackup.has(id) &&
    (backup === undefined ||
      Date.parse(completed_at ?? '') < Date.parse(backup.began_at) - backups.clockDifferenceMsMax);
  const { known, unknown } = await findDeleted(redis, (request) => knowsAll || isInBackup(request));
  let rows = 0;
  for (const clickhouse of restored) {
    const { shards } = deployment;
    const where = { redis, clickhouse, shards, environments: [...environments.values()] };
    rows += await deleteAgain(where, known);
  }
  return {
    name,
    state: 'kept',
    deleted_again: { requests: known.length, rows },
    submit_again: unknown.map(submitAgainOf),
  };
}

/** The entry of a backup in its own copy of the registry. A later entry of the same name may describe another backup. */
async function readOwnNote(home: ClickHouseClient, name: string): Promise<Backup | undefined> {
  const text = (await readMirror(home)).documents[backupsKey];
  return (JSON.parse(text ?? '[]') as Backup[]).find((backup) => backup.name === name);
}
