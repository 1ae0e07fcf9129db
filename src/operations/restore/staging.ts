// The staging database beside the one in use: created, filled from the backup, and dropped with the tables that a restore has replaced.

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
import {
  createStaging,
  dropAllButPlan,
  dropDatabase,
  notePlan,
  readNotedPlans,
  takeTablesOver,
} from '../../clickhouse/staging.js';
import { AdministrationError } from '../../contract/errors.js';
import { describeError } from '../../log.js';
import { registryKeys } from '../../redis/keys.js';
import { untilTrue } from '../../wait.js';
import {
  AnotherRestore,
  type Begun,
  confirm,
  confirmDrop,
  type Restore,
  readStagingIds,
  schemaOf,
} from './confirm.js';
import { checkPlaces, readPlaces } from './places.js';
import { type Plan, textOf } from './plan.js';
import { forgetPlan } from './prepare.js';

/** What an earlier restore has left, to be replaced. */
export type Found = {
  /** The id of each server's staging database; undefined where there is none. */
  readonly ids: readonly (string | undefined)[];
  /** The plan in Redis. */
  readonly planInRedis: string | null;
};

/** Creates an empty staging database on each server, replacing those that an earlier restore left. */
export async function replaceStaging(restore: Restore, found: Found, id: string): Promise<void> {
  const { context, staging } = restore;
  const { all } = serversOf(context.clickhouse);
  // That restore has exchanged nothing, so deletions and moves may continue.
  if (found.planInRedis !== null) await forgetPlan(context, found.planInRedis);
  await Promise.all(all.map(untilNoRestoreRuns));
  for (const [server, client] of all.entries()) {
    await confirmDrop(restore, client, (id) => id === found.ids[server]);
    await dropDatabase(client, staging);
    await createStaging(client, staging, id);
  }
}

/** Restores the backup into the staging databases, with this version's schema. */
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
    throw new AdministrationError(`the backup ${name} cannot be restored: ${error.message}`);
  }
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
  const registry = `${staging}.registry_of_backup`;
  await withTableOf(clickhouse, `${database}.registry`, backupOf(name, 0), registry, async () => undefined);
  throw new AdministrationError(
    `the backup ${name} has no end mark (${endOfBackup(name)} on the backup disk): it failed or was interrupted. "backup create ${name}" continues an interrupted one`,
  );
}

/**
 * Removes everything of a restore that has failed before it exchanged a table, unless another restore has begun since. If its plan cannot
 * be removed from Redis, its databases stay too. The next restore replaces what cannot be removed.
 */
export async function unstage(restore: Restore, id: string): Promise<void> {
  const { context, staging, lock } = restore;
  const { redis, clickhouse, log } = context;
  const forget = async () => {
    const text = await redis.get(registryKeys.restoringBackup);
    if (text !== null && (JSON.parse(text) as Plan).id === id) await forgetPlan(context, text);
  };
  const drop = async (client: ClickHouseClient) => {
    await untilNoRestoreRuns(client);
    await confirmDrop(restore, client, (found) => found === id);
    await dropDatabase(client, staging);
  };
  const warn = (error: unknown) => log.warn({ error }, 'something is left of a restore that failed');
  // The restore may have failed because of Redis.
  const forgets = async (): Promise<'forgotten' | 'lost' | undefined> => {
    if (!(await lock.isHeld())) return 'lost';
    await forget();
    return 'forgotten';
  };
  let cause: unknown;
  const outcome = await untilTrue(
    () =>
      forgets().catch((error: unknown) => {
        cause = error;
        return undefined;
      }),
    { everyMs: 500, msMax: redisAwayMsMax },
  );
  if (outcome === undefined) return warn(cause);
  if (outcome === 'lost') return;
  for (const client of serversOf(clickhouse).all) await drop(client).catch(warn);
}

const redisAwayMsMax = 10_000;

/** Takes over what a killed restore left. Creates staging databases that were dropped by hand again, empty. */
export async function takeOver(restore: Restore, plan: Plan): Promise<void> {
  const { context, staging } = restore;
  const { all } = serversOf(context.clickhouse);
  const ids = await readStagingIds(restore);
  for (const [server, client] of all.entries()) {
    if (ids[server] === undefined) await createStaging(client, staging, plan.id);
    if (ids[server] === undefined && server === 0) await notePlan(client, staging, textOf(plan));
    await takeTablesOver(client, staging);
  }
}

/** Makes each server restore its own backup. A server that had no shards when the backup was made has nothing to restore. */
async function restoreAll(restore: Begun): Promise<void> {
  const { context, name, staging, restored, epoch } = restore;
  const { clickhouse, config } = context;
  const { all } = serversOf(clickhouse);
  const into = (client: ClickHouseClient, server: number) =>
    restoreInto(client, config.clickhouseDatabase, backupOf(name, server), staging);
  const [primary, ...others] = all;
  await into(primary, 0);
  if (epoch !== '') await checkPlaces(restore);
  const servers = (await readPlaces(restored))?.servers ?? [];
  const lacking = servers.findIndex((server) => server >= all.length);
  if (lacking !== -1)
    throw new AdministrationError(
      `shard ${lacking} of the backup was on server ${servers[lacking]} (from 0), but CLICKHOUSE_URL names ${all.length}: name all servers, in their order`,
    );
  const made = await Promise.allSettled(
    others.map((client, index) => (servers.includes(index + 1) ? into(client, index + 1) : undefined)),
  );
  // Only after all have ended: a restore that begins after the clean-up would stay.
  for (const each of made) if (each.status === 'rejected') throw each.reason;
}

/**
 * Drops the tables that a plan has replaced. Until the last one is gone, the plan says that only this is left to do; a later restore does
 * it first.
 */
export async function dropReplaced(restore: Restore, name: string, id: string | undefined): Promise<void> {
  const { context, staging } = restore;
  const [primary, ...others] = serversOf(context.clickhouse).all;
  const confirmOn = (client: ClickHouseClient) =>
    confirmDrop(restore, client, (found) => id === undefined || found === id);
  const notDropped = (error: unknown) =>
    new AdministrationError(
      error instanceof AnotherRestore
        ? `the backup ${name} is restored; another restore has started since, and drops what this one replaced`
        : `the backup ${name} is restored, but the replaced tables could not be dropped (${describeError(error).message}): run the same command again to drop them`,
    );
  try {
    for (const client of others) {
      await confirmOn(client);
      await dropDatabase(client, staging);
    }
    await dropAllButPlan(primary, staging, () => confirmOn(primary));
    await confirmOn(primary);
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
