// The plan of a restore: which tables replace which. Before the first table is exchanged, it is recorded on the primary server beside the
// restored tables, and then in Redis; it is dropped with the replaced tables. While it is recorded, no deletion round and no move of a
// shard starts, and an interrupted restore continues. Each irreversible step is confirmed first: if this process was paused, another one may
// have started a restore, or Redis may have been emptied.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { type AllServers, serversOf } from '../../clickhouse/servers.js';
import { BackupFailed, readDatabaseId, readNotedPlans, readTableIds } from '../../clickhouse/staging.js';
import { AdministrationError } from '../../contract/errors.js';
import type { CrashPoint } from '../../crash-point.js';
import { suppressedNamesTable } from '../../privacy/suppression/second-copy.js';
import { registryKeys } from '../../redis/keys.js';
import type { Lease } from '../../redis/lease.js';
import type { AdminContext } from '../context.js';
import type { DeletedAgain } from '../older-data.js';

export type RestoredBackup = DeletedAgain & {
  readonly name: string;
  /** `kept`: accounts, keys and requests stay as they are in Redis. `restored`: Redis was empty, and they come from the backup. */
  readonly state: 'kept' | 'restored';
  /** An earlier run had already restored the backup; this one only dropped the tables that it had replaced. */
  readonly was_done?: true;
};

export type Plan = {
  /** The id of the database in which the tables were restored. */
  readonly id: string;
  readonly name: string;
  /** The ids of the restored tables, of each server. */
  readonly tables: readonly Readonly<Record<string, string>>[];
  /** By server and shard: the segment number up to which the restored index has all keys. */
  readonly keysTo: readonly Readonly<Record<string, string>>[];
  readonly result: RestoredBackup;
  /** All tables are exchanged; only the replaced ones remain to be dropped. */
  readonly isDone?: true;
};

/** The text of an unfinished plan in Redis. Tables may be exchanged only while Redis has exactly this text. */
export function textOf({ isDone: _, ...plan }: Plan): string {
  return JSON.stringify(plan);
}

export function stagingOf(database: string): string {
  return `${database}_restore`;
}

/**
 * The plan of a running or interrupted restore. ClickHouse decides, since Redis may have been emptied, or may not know that a plan has
 * ended.
 */
export async function readPlan({ redis, clickhouse, config }: AdminContext): Promise<Plan | undefined> {
  const noted = await readNotedPlans(clickhouse, stagingOf(config.clickhouseDatabase));
  const inRedis = noted.length > 0 ? null : await redis.get(registryKeys.restoringBackup);
  const plans = [...noted, ...(inRedis === null ? [] : [inRedis])].map((text) => JSON.parse(text) as Plan);
  return plans.find(({ isDone }) => isDone === true) ?? plans[0];
}

/** The tables that a restore does not exchange: it only adds the backup's rows. For each suppression the latest version counts. */
export const addedTables: readonly string[] = ['audit_log', suppressedNamesTable];

/**
 * How far a restore got; its staging databases may have been dropped by hand. `isWhole`: everything that it still needs is there. `tables`:
 * the restored tables that still exist, in use or in a staging database.
 */
export async function readProgress({ clickhouse, config }: AdminContext, plan: Plan) {
  const database = config.clickhouseDatabase;
  const servers = await Promise.all(
    serversOf(clickhouse).all.map(async (client, server) => {
      const inUse = await readTableIds(client, database);
      const beside = new Set((await readTableIds(client, stagingOf(database))).values());
      const restored = Object.entries(plan.tables[server] ?? {});
      const isExchanged = ([table, id]: readonly [string, string]) => inUse.get(table) === id;
      const left = restored.filter((each) => isExchanged(each) || beside.has(each[1]));
      return {
        hasExchanged: restored.some(isExchanged),
        isWhole:
          left.length === restored.length ||
          restored.every((each) => isExchanged(each) || addedTables.includes(each[0])),
        tables: Object.fromEntries(left),
      };
    }),
  );
  return {
    hasExchanged: servers.some(({ hasExchanged }) => hasExchanged),
    isWhole: servers.every(({ isWhole }) => isWhole),
    tables: servers.map(({ tables }) => tables),
  };
}

/** Whether a restore is running, or was interrupted after it had recorded its plan. */
export async function isRestoring({ redis }: AdminContext): Promise<boolean> {
  return (await redis.exists(registryKeys.restoreLock, registryKeys.restoringBackup)) > 0;
}

/**
 * Rejects with AdministrationError if a restore has begun: ClickHouse may look empty only because the registry is exchanged last. The
 * caller must have the right to load Redis, which a restore takes before it exchanges tables.
 */
export async function checkNoneBegun(context: AdminContext): Promise<void> {
  const staging = stagingOf(context.config.clickhouseDatabase);
  const isBegun =
    (await isRestoring(context)) || (await readDatabaseId(context.clickhouse, staging)) !== undefined;
  if (isBegun)
    throw new AdministrationError(
      `a backup is being restored, or its restore was interrupted: "backup restore NAME --yes" continues it. For a new deployment instead, drop the ClickHouse database ${staging} first`,
    );
}

/**
 * Rejects with AdministrationError if a restore has recorded its plan and has not ended: ClickHouse may have a mixture of restored and
 * replaced tables, or a paused process may be about to exchange the first table. The caller must have the right to load Redis, which a
 * restore into an empty Redis keeps until it has ended.
 */
export async function checkNoneUnfinished(context: AdminContext): Promise<void> {
  const plan = await readPlan(context);
  if (plan === undefined || plan.isDone === true) return;
  const staging = stagingOf(context.config.clickhouseDatabase);
  const instead = (await readProgress(context, plan)).hasExchanged
    ? ''
    : `. It has exchanged nothing: to load the previous state instead, drop the ClickHouse database ${staging} first`;
  throw new AdministrationError(
    `the restore of ${plan.name} was interrupted: "backup restore ${plan.name} --yes" continues it and loads Redis${instead}`,
  );
}

export type Restore = {
  readonly context: AdminContext;
  readonly name: string;
  /** Connections to the database in use on each server, and to the one beside it. */
  readonly servers: AllServers;
  readonly restored: AllServers;
  /** The name of the database beside the one in use. */
  readonly staging: string;
  readonly lock: Lease;
  readonly crash: CrashPoint;
  /** Loads the state of ClickHouse into an emptied Redis. */
  readonly load: () => Promise<unknown>;
};

export type Begun = Restore & {
  /** The id of the staging databases. */
  readonly id: string;
  /** Called before each statement that exchanges tables. */
  readonly exchanging: () => void;
  /** The epoch of the deployment in Redis; empty if there is none. */
  readonly epoch: string;
};

export type Planned = Begun & { readonly plan: Plan };

export class AnotherRestore extends BackupFailed {
  constructor() {
    super('another restore has started, or this one was paused for too long: run it again');
  }
}

export class RedisChanged extends BackupFailed {
  constructor() {
    super('Redis was emptied or loaded meanwhile: run it again');
  }
}

/**
 * Rejects with BackupFailed if another process is restoring too, or if Redis was emptied or loaded since the restore began. The id of the
 * staging database tells a process that its database was replaced, even if Redis was emptied.
 */
export async function confirm(restore: Begun): Promise<void> {
  const { context, lock, id, epoch } = restore;
  // The lock first: the checks that follow then see whatever another process did while it held the lock.
  if (!(await lock.isHeld())) throw new AnotherRestore();
  const isOwn = (await readStagingIds(restore)).every((each) => each === id);
  if (!isOwn) throw new AnotherRestore();
  if ((await readEpoch(context.redis)) !== epoch) throw new RedisChanged();
}

/**
 * Like `confirm`, and also rejects unless Redis still has the plan. A Redis that was emptied and loaded again has the same epoch, but
 * deletion rounds may have started in it.
 */
export async function confirmPlan(restore: Planned): Promise<void> {
  await confirm(restore);
  const text = await restore.context.redis.get(registryKeys.restoringBackup);
  if (text !== textOf(restore.plan)) throw new RedisChanged();
}

/**
 * Rejects with BackupFailed if this process may not drop a server's staging database. The database may already be gone. `id`: the only id
 * with which it may be dropped; undefined if it has to be gone.
 */
export async function confirmDrop(
  { staging, lock }: Restore,
  client: ClickHouseClient,
  id: string | undefined,
): Promise<void> {
  if (!(await lock.isHeld())) throw new AnotherRestore();
  const found = await readDatabaseId(client, staging);
  if (found !== undefined && found !== id) throw new AnotherRestore();
}

export function readStagingIds({ servers, staging }: Restore): Promise<readonly (string | undefined)[]> {
  return Promise.all(servers.map((client) => readDatabaseId(client, staging)));
}

export async function readEpoch(redis: AdminContext['redis']): Promise<string> {
  return (await redis.get(registryKeys.epoch)) ?? '';
}
