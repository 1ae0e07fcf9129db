// The database beside the one in use: it is made and filled from the backup, and dropped with what a restore has replaced.

import { BackupMissing } from '../../clickhouse/backup-faults.js';
import {
  backupOf,
  endOfBackup,
  hasEnd,
  restoreInto,
  untilNoRestoreRuns,
  withTableOf,
} from '../../clickhouse/backups.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { migrateServers } from '../../clickhouse/migrate.js';
import { MigrationError } from '../../clickhouse/migration-error.js';
import { serversOf } from '../../clickhouse/servers.js';
import { createStaging, dropAllButPlan, dropDatabase, readNotedPlans } from '../../clickhouse/staging.js';
import { AdministrationError } from '../../contract/errors.js';
import { describeError } from '../../log.js';
import { AnotherRestore, type Begun, confirm, confirmDrop, type Restore, schemaOf } from './confirm.js';
import { checkPlaces, readPlaces } from './places.js';
import { forgetPlan } from './prepare.js';

/** What a restore found that has to be replaced. */
export type Found = {
  /** The ids of the databases beside those in use, of each server that has one. */
  readonly ids: readonly (string | undefined)[];
  /** The plan that Redis had. */
  readonly planInRedis: string | null;
};

/** Makes an empty database beside the one in use, on each server, in the place of those that a restore has left. */
export async function replaceStaging(restore: Restore, found: Found, id: string): Promise<void> {
  const { context, staging } = restore;
  const { all } = serversOf(context.clickhouse);
  // Nothing was exchanged, so deletions and moves may go on meanwhile.
  if (found.planInRedis !== null) await forgetPlan(context, found.planInRedis);
  await Promise.all(all.map(untilNoRestoreRuns));
  for (const [server, client] of all.entries()) {
    await confirmDrop(restore, client, (there) => there === found.ids[server]);
    await dropDatabase(client, staging);
    await createStaging(client, staging, id);
  }
}

/** Restores the backup beside the tables in use, with the schema of this version. */
export async function stage(restore: Begun): Promise<void> {
  const { context, name, staging } = restore;
  const { config } = context;
  await checkEnd(restore);
  await restoreAll(restore);
  await confirm(restore);
  try {
    await migrateServers({ ...schemaOf(config), database: staging });
  } catch (error) {
    if (!(error instanceof MigrationError)) throw error;
    await unstage(restore);
    throw new AdministrationError(`the backup ${name} cannot be restored: ${error.message}`);
  }
}

/**
 * Rejects with AdministrationError unless the backup ended well: parts of one that was cut off or failed may be of before and after a
 * move of a shard, and have its rows twice.
 */
async function checkEnd(restore: Begun): Promise<void> {
  const { context, name, staging } = restore;
  const [home] = serversOf(context.clickhouse).all as readonly [ClickHouseClient, ...ClickHouseClient[]];
  const { clickhouseDatabase: database } = context.config;
  try {
    if (await hasEnd(home, database, name, staging)) return;
    // Rejects with BackupMissing if there is no backup of this name.
    const registry = `${staging}.registry_of_backup`;
    await withTableOf(home, `${database}.registry`, backupOf(name, 0), registry, async () => undefined);
  } catch (error) {
    if (error instanceof BackupMissing) await unstage(restore);
    throw error;
  }
  await unstage(restore);
  throw new AdministrationError(
    `the backup ${name} has no mark of its end (${endOfBackup(name)} on the disk of backups): it failed, or was cut off. "backup create ${name}" goes on with one that was cut off`,
  );
}

/** Leaves nothing that looks as if a restore had begun. */
async function unstage(restore: Begun): Promise<void> {
  for (const client of serversOf(restore.context.clickhouse).all) {
    await confirmDrop(restore, client, (there) => there === restore.id);
    await dropDatabase(client, restore.staging);
  }
}

/** Lets each server restore its own backup. One that had no shards when the backup was made has nothing to restore. */
async function restoreAll(restore: Begun): Promise<void> {
  const { context, name, staging, restored, epoch } = restore;
  const { clickhouse, config } = context;
  const { all } = serversOf(clickhouse);
  const into = (client: ClickHouseClient, server: number) =>
    restoreInto(client, config.clickhouseDatabase, backupOf(name, server), staging);
  const [home, ...others] = all as readonly [ClickHouseClient, ...ClickHouseClient[]];
  await into(home, 0);
  if (epoch !== '') await checkPlaces(restore);
  const servers = (await readPlaces(restored))?.servers ?? [];
  const lacking = servers.findIndex((server) => server >= all.length);
  if (lacking !== -1)
    throw new AdministrationError(
      `shard ${lacking} of the backup was on server ${servers[lacking]} (from 0), but CLICKHOUSE_URL names ${all.length}: name all servers, in their order`,
    );
  await Promise.all(
    others.map((client, index) => (servers.includes(index + 1) ? into(client, index + 1) : undefined)),
  );
}

/**
 * Drops the tables that a plan has replaced. Until the last one is gone the plan says that they are only to be dropped. A restore that
 * began later drops them first.
 */
export async function dropReplaced(restore: Restore, name: string, id: string | undefined): Promise<void> {
  const { context, staging } = restore;
  const [home, ...others] = serversOf(context.clickhouse).all as readonly [
    ClickHouseClient,
    ...ClickHouseClient[],
  ];
  const confirmOn = (client: ClickHouseClient) =>
    confirmDrop(restore, client, (there) => id === undefined || there === id);
  const again = (error: unknown) =>
    new AdministrationError(
      error instanceof AnotherRestore
        ? `the backup ${name} is restored; another restore has begun since, and drops what this one replaced`
        : `the backup ${name} is restored, but what it replaced could not be dropped (${describeError(error).message}): the same command again only does that`,
    );
  try {
    for (const client of others) {
      await confirmOn(client);
      await dropDatabase(client, staging);
    }
    await dropAllButPlan(home, staging, () => confirmOn(home));
    await confirmOn(home);
  } catch (error) {
    throw again(error);
  }
  await dropDatabase(home, staging).catch(async (error: unknown) => {
    // It may be gone although the answer was lost. Then the command must not be given again.
    const plans = await readNotedPlans(home, staging).catch(() => undefined);
    if (plans === undefined)
      throw new AdministrationError(
        `the backup ${name} is restored; drop the database ${staging} yourself if it is still there, and do not restore again`,
      );
    if (plans.length > 0) throw again(error);
  });
}
