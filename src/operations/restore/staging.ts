// The staging database beside the one in use: created, filled from the backup, and dropped with the tables that a restore has replaced.

import {
  backupOf,
  endOfBackup,
  hasEnd,
  restoreInto,
  tryTable,
  untilNoRestoreRuns,
} from '../../clickhouse/backups.js';
import { type ClickHouseClient, serversIn } from '../../clickhouse/client.js';
import { MigrationError } from '../../clickhouse/definitions.js';
import { migrateServers } from '../../clickhouse/migrate.js';
import {
  addRowsOf,
  createStaging,
  dropAllButPlan,
  dropDatabase,
  notePlan,
  readNotedPlans,
  readTableIds,
  takeTablesOver,
} from '../../clickhouse/staging.js';
import { AdministrationError } from '../../contract/errors.js';
import { describeError } from '../../log.js';
import { registryKeys } from '../../redis/keys.js';
import { untilTrue } from '../../wait.js';
import { type BackedUp, checkPlaces, readBackedUp } from './backed-up.js';
import {
  AnotherRestore,
  type Begun,
  confirm,
  confirmDrop,
  type Plan,
  type Restore,
  readStagingIds,
  textOf,
} from './plan.js';
import { forgetPlan } from './prepare.js';

/** What an earlier restore has left, to be replaced. */
export type Found = {
  /** The id of each server's staging database; undefined where there is none. */
  readonly ids: readonly (string | undefined)[];
  readonly planInRedis: string | null;
};

/** Creates an empty staging database on each server, replacing those that an earlier restore left. */
export async function replaceStaging(restore: Restore, found: Found, id: string): Promise<void> {
  const { context, servers, staging } = restore;
  // That restore has exchanged nothing, so deletions and moves may continue.
  if (found.planInRedis !== null) await forgetPlan(context, found.planInRedis);
  await Promise.all(servers.map(untilNoRestoreRuns));
  for (const [server, client] of servers.entries()) {
    await confirmDrop(restore, client, found.ids[server]);
    await dropDatabase(client, staging);
    await createStaging(client, staging, id);
  }
}

/** Restores the backup into the staging databases, with this version's schema. */
export async function stage(restore: Begun): Promise<BackedUp> {
  const { context, name, staging } = restore;
  const { config } = context;
  await checkEnd(restore);
  const backedUp = await restoreAll(restore);
  await confirm(restore);
  try {
    await migrateServers({ ...serversIn(config), database: staging });
  } catch (error) {
    if (!(error instanceof MigrationError)) throw error;
    throw new AdministrationError(`the backup ${name} cannot be restored: ${error.message}`);
  }
  return backedUp;
}

/**
 * Rejects with AdministrationError unless the backup was completed. Parts of an interrupted or failed backup may be from before and after a
 * move of a shard, so that its rows would be there twice.
 */
async function checkEnd(restore: Begun): Promise<void> {
  const { context, name, staging } = restore;
  const { clickhouse, config } = context;
  const database = config.clickhouseDatabase;
  if (await hasEnd(clickhouse, database, name, staging)) return;
  // Rejects with BackupMissing if there is no backup of this name.
  await tryTable(clickhouse, `${database}.registry`, backupOf(name, 0), `${staging}.registry_of_backup`);
  throw new AdministrationError(
    `the backup ${name} has no end mark (${endOfBackup(name)} on the backup disk): it failed or was interrupted. "backup create ${name}" continues an interrupted one`,
  );
}

/**
 * Removes everything of a restore that has failed before it exchanged a table, unless another restore has begun since. If its plan cannot
 * be removed from Redis, its databases stay too. The next restore replaces what cannot be removed.
 */
export async function unstage(restore: Restore, id: string): Promise<void> {
  const { context, servers, staging, lock } = restore;
  const { redis, log } = context;
  const remove = async () => {
    if (!(await lock.isHeld())) return;
    const text = await redis.get(registryKeys.restoringBackup);
    if (text !== null && (JSON.parse(text) as Plan).id === id) await forgetPlan(context, text);
    await allEnded(
      servers.map(async (client) => {
        await untilNoRestoreRuns(client);
        await confirmDrop(restore, client, id);
        await dropDatabase(client, staging);
      }),
    );
  };
  // Tried again for a while: the restore may have failed because Redis was away.
  let cause: unknown;
  const failed = (error: unknown) => {
    cause = error;
    return false;
  };
  const isRemoved = () => remove().then(() => true, failed);
  if (!(await untilTrue(isRemoved, { everyMs: 500, msMax: redisAwayMsMax })))
    log.warn({ error: cause }, 'something is left of a restore that failed');
}

const redisAwayMsMax = 10_000;

/** Takes over what a killed restore left. Recreates, empty, the staging databases that were dropped by hand. */
export async function takeOver(restore: Restore, plan: Plan): Promise<void> {
  const { servers, staging } = restore;
  const ids = await readStagingIds(restore);
  for (const [server, client] of servers.entries()) {
    if (ids[server] === undefined) await createStaging(client, staging, plan.id);
    if (ids[server] === undefined && server === 0) await notePlan(client, staging, textOf(plan));
    await takeTablesOver(client, staging);
  }
}

/**
 * For a Redis that was emptied after the first table was exchanged. Some of its second copies are in the replaced tables, and those made
 * since then are in the restored ones. For each document the latest version counts.
 */
export async function gatherSecondCopies(restore: Begun, plan: Plan): Promise<void> {
  const { context, staging } = restore;
  const { redis, clickhouse, config } = context;
  const inUse = await readTableIds(clickhouse, config.clickhouseDatabase);
  const replaced = await readTableIds(clickhouse, staging);
  for (const table of exchangedCopies) {
    const isExchanged = inUse.get(table) === plan.tables[0]?.[table];
    if (isExchanged && replaced.has(table))
      await addRowsOf(clickhouse, table, staging, config.clickhouseDatabase);
  }
  await confirm(restore);
  // Before Redis is loaded: without this, deletion rounds would start once it is.
  await redis.set(registryKeys.restoringBackup, textOf(plan));
}

const exchangedCopies = ['registry', 'deletion_requests', 'deletion_targets'];

/** Makes each server restore its own backup. A server that had no shards when the backup was made has nothing to restore. */
async function restoreAll(restore: Begun): Promise<BackedUp> {
  const { context, name, servers, staging } = restore;
  const { clickhouseDatabase: database } = context.config;
  const into = (client: ClickHouseClient, server: number) =>
    restoreInto(client, database, backupOf(name, server), staging);
  const [primary, ...others] = servers;
  await into(primary, 0);
  const backedUp = await readBackedUp(restore);
  await checkPlaces(restore, backedUp);
  const places = backedUp.servers ?? [];
  const lacking = places.findIndex((server) => server >= servers.length);
  if (lacking !== -1)
    throw new AdministrationError(
      `shard ${lacking} of the backup was on server ${places[lacking]} (from 0), but CLICKHOUSE_URL names ${servers.length}: name all servers, in their order`,
    );
  await allEnded(
    others.map(async (client, index) => {
      if (places.includes(index + 1)) await into(client, index + 1);
    }),
  );
  return backedUp;
}

/** Settles once all have ended, then rejects if one has failed: what a server still restored after a clean-up would stay. */
async function allEnded(works: readonly Promise<unknown>[]): Promise<void> {
  for (const each of await Promise.allSettled(works)) if (each.status === 'rejected') throw each.reason;
}

/**
 * Drops the tables that a plan has replaced. Until the last one is gone, the plan says that only this is left to do; a later restore does
 * it first.
 */
export async function dropReplaced(restore: Restore, { name, id }: Pick<Plan, 'name' | 'id'>): Promise<void> {
  const { staging } = restore;
  const [primary, ...others] = restore.servers;
  const notDropped = (error: unknown) =>
    new AdministrationError(
      error instanceof AnotherRestore
        ? `the backup ${name} is restored; another restore has started since, and drops what this one replaced`
        : `the backup ${name} is restored, but the replaced tables could not be dropped (${describeError(error).message}): run the same command again to drop them`,
    );
  try {
    for (const client of others) {
      await confirmDrop(restore, client, id);
      await dropDatabase(client, staging);
    }
    const confirmed = () => confirmDrop(restore, primary, id);
    await dropAllButPlan(primary, staging, confirmed);
    await confirmed();
  } catch (error) {
    throw notDropped(error);
  }
  await dropDatabase(primary, staging).catch(async (error: unknown) => {
    // The database may be gone although the answer was lost. The command must not be repeated then.
    const plans = await readNotedPlans(primary, staging).catch(() => undefined);
    if (plans === undefined)
      throw new AdministrationError(
        `the backup ${name} is restored; drop the database ${staging} yourself if it is still there, and do not restore again`,
      );
    if (plans.length > 0) throw notDropped(error);
  });
}
