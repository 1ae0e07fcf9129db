// The plan of a restore: which tables take the place of which. It is noted on the home beside the restored tables, then in Redis,
// before the first table is exchanged, and forgotten with the tables that were replaced. As long as it is noted, no round of
// deletions and no move of a shard begins, and a restore that was cut off goes on.

import { serversOf } from '../../clickhouse/servers.js';
import { readDatabaseId, readNotedPlans, readTableIds } from '../../clickhouse/staging.js';
import { AdministrationError } from '../../contract/errors.js';
import type { DeletionRequest } from '../../privacy/deletion/request.js';
import { registryKeys } from '../../redis/keys.js';
import type { AdminContext } from '../context.js';

export type RestoredBackup = {
  readonly name: string;
  /** `kept`: accounts, keys and requests stay as Redis has them. `restored`: Redis was empty, they come from the backup. */
  readonly state: 'kept' | 'restored';
  /** Nothing was restored now: an earlier run had, and this one only dropped what it had replaced. */
  readonly was_done?: true;
  /** Requests that were carried out again, and the rows that they took. */
  readonly deleted_again: { readonly requests: number; readonly rows: number };
  /** Requests whose users are lost, so that their callers have to submit them again. */
  readonly submit_again: readonly Pick<
    DeletionRequest,
    'deletion_request_id' | 'account_id' | 'app_id' | 'submitted_at' | 'completed_at' | 'targets'
  >[];
};

export type Plan = {
  /** The id of the database in which the tables were restored. */
  readonly id: string;
  readonly name: string;
  /** The ids of the restored tables, of each server. */
  readonly tables: readonly Readonly<Record<string, string>>[];
  /** Of each server, by shard: keys of later segments may have been stored since they were put into the restored index. */
  readonly keysTo: readonly Readonly<Record<string, string>>[];
  readonly result: RestoredBackup;
  /** All is exchanged, and nothing is left to do but to drop what was replaced. */
  readonly isDone?: true;
};

/** A plan as Redis has it while it is not done: its tables may be exchanged only as long as that stands there. */
export function textOf({ isDone: _, ...plan }: Plan): string {
  return JSON.stringify(plan);
}

/** The database in which a backup is restored. */
export function stagingOf(database: string): string {
  return `${database}_restore`;
}

/** The plan of a restore that was cut off or runs. Redis has it too, and may have been emptied, or lack its end. */
export async function readPlan({ redis, clickhouse, config }: AdminContext): Promise<Plan | undefined> {
  const noted = await readNotedPlans(clickhouse, stagingOf(config.clickhouseDatabase));
  const inRedis = noted.length > 0 ? null : await redis.get(registryKeys.restoringBackup);
  const plans = [...noted, ...(inRedis === null ? [] : [inRedis])].map((text) => JSON.parse(text) as Plan);
  return plans.find(({ isDone }) => isDone === true) ?? plans[0];
}

/** Whether a restore has exchanged any of its tables. */
export async function hasExchanged({ clickhouse, config }: AdminContext, plan: Plan): Promise<boolean> {
  const isExchanged = async (server: number) => {
    const client = serversOf(clickhouse).all[server];
    const inUse = client && (await readTableIds(client, config.clickhouseDatabase));
    return Object.entries(plan.tables[server] ?? {}).some(([table, id]) => inUse?.get(table) === id);
  };
  return (await Promise.all(plan.tables.map((_, server) => isExchanged(server)))).includes(true);
}

/** Whether a restore runs, or was cut off after it had noted its plan. */
export async function isRestoring({ redis }: AdminContext): Promise<boolean> {
  return (await redis.exists(registryKeys.restoreLock, registryKeys.restoringBackup)) > 0;
}

/**
 * Rejects with AdministrationError if a restore has begun: ClickHouse may be empty because the backup takes its place only at the end.
 * To be called by a process that has the right to load Redis, which the restore takes before it exchanges the tables.
 */
export async function checkNoRestore(context: AdminContext): Promise<void> {
  const staging = stagingOf(context.config.clickhouseDatabase);
  const isBegun =
    (await isRestoring(context)) || (await readDatabaseId(context.clickhouse, staging)) !== undefined;
  if (isBegun)
    throw new AdministrationError(
      `a backup is being restored, or its restore was cut off: "backup restore NAME --yes" goes on with it. For a new deployment instead, drop the database ${staging} of ClickHouse first`,
    );
}

/**
 * Rejects with AdministrationError if a restore has noted its plan and has not ended: ClickHouse may have some tables of the backup and
 * some of now, or a process that stands still may be about to exchange the first one. To be called by a process that has the right to
 * load Redis: a restore into an empty Redis has that right until it has ended.
 */
export async function checkNoneCutOff(context: AdminContext): Promise<void> {
  const plan = await readPlan(context);
  if (plan === undefined || plan.isDone === true) return;
  const staging = stagingOf(context.config.clickhouseDatabase);
  const instead = (await hasExchanged(context, plan))
    ? ''
    : `. It has exchanged nothing: to load what there was before, drop the database ${staging} of ClickHouse first`;
  throw new AdministrationError(
    `the restore of ${plan.name} was cut off: "backup restore ${plan.name} --yes" goes on with it, and loads Redis${instead}`,
  );
}
