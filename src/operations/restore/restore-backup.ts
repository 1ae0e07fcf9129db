// Restores a backup of ClickHouse while everything is running. A restore prepares the backup in a staging database beside the one in use:
// it migrates the schema, and again deletes the users that requests have deleted since. Then it exchanges the tables, each in one step;
// during this no deletion round runs and no shard is moved. Redis keeps what it has: accounts, keys, requests. With several servers, each
// restores its own backup, so each shard must be on the same server as in the backup. A restore that is killed at any point is continued by
// calling it again, even if Redis was emptied or the staging databases were dropped by hand. Until it is done, an emptied Redis is not
// loaded. A restore that fails before it exchanges a table leaves nothing.

import { randomUUID } from 'node:crypto';
import { BackupFailed } from '../../clickhouse/backup-faults.js';
import { connectClickHouse, tablesOf } from '../../clickhouse/client.js';
import { extendVoid } from '../../clickhouse/ledger-table.js';
import { migrateServers } from '../../clickhouse/migrate.js';
import { serversOf } from '../../clickhouse/servers.js';
import { notePlan } from '../../clickhouse/staging.js';
import { AdministrationError } from '../../contract/errors.js';
import { loads } from '../../contract/limits.js';
import { createCrashPoint } from '../../crash-point.js';
import { registryKeys } from '../../redis/keys.js';
import { withProcessLock } from '../../redis/lease.js';
import { type Deployment, deploymentKey, shardServersKey } from '../../registry/documents.js';
import { beginLoading } from '../../registry/loading.js';
import { readMirror } from '../../registry/mirror.js';
import { forgetKept } from '../../registry/witness-copies.js';
import { checkAllReachable, checkName, checkPlainTables } from '../backups.js';
import type { AdminContext } from '../context.js';
import {
  type Begun,
  confirmPlan,
  type Planned,
  RedisChanged,
  type Restore,
  readEpoch,
  readStagingIds,
  schemaOf,
} from './confirm.js';
import { resetDeletions, withoutDeletions } from './deletions.js';
import { exchangeTables } from './exchange.js';
import { type Plan, type RestoredBackup, readPlan, readProgress, stagingOf, textOf } from './plan.js';
import { forgetPlan, minuteNow, prepare, recordPlanInRedis, restoredReason } from './prepare.js';
import { copyAll, gatherSecondCopies } from './second-copies.js';
import { dropReplaced, type Found, replaceStaging, stage, takeOver, unstage } from './staging.js';

/** Restores a backup, or continues its interrupted restore. `load`: loads the state of ClickHouse into an emptied Redis. */
export async function restoreBackup(
  context: AdminContext,
  name: string,
  load: () => Promise<unknown>,
): Promise<RestoredBackup> {
  checkName(name);
  const { config } = context;
  checkPlainTables(config);
  const staging = stagingOf(config.clickhouseDatabase);
  const restored = config.clickhouseUrls.map((url) =>
    connectClickHouse({ url, database: staging, ...tablesOf(config) }),
  );
  const crash = createCrashPoint(config.crashAt);
  try {
    const done = await withProcessLock(context.redis, registryKeys.restoreLock, async (lock) =>
      restoreInSteps({ context, name, staging, restored, lock, crash }, load),
    );
    if (done === 'locked')
      throw new AdministrationError('another restore of a backup is running: try again when it has ended');
    return done;
  } catch (error) {
    if (error instanceof BackupFailed) throw new AdministrationError(`the restore failed: ${error.message}`);
    throw error;
  } finally {
    await Promise.all(restored.map((client) => client.close()));
  }
}

async function restoreInSteps(restore: Restore, load: () => Promise<unknown>): Promise<RestoredBackup> {
  const { context, name } = restore;
  const { redis, clickhouse, config } = context;
  await checkAllReachable(clickhouse);
  // The database itself may be missing.
  await migrateServers({ ...schemaOf(config), database: config.clickhouseDatabase });
  const found: Found = {
    ids: await readStagingIds(restore),
    planInRedis: await redis.get(registryKeys.restoringBackup),
  };
  const former = await readPlan(context);
  if (former?.isDone === true) {
    await finish(restore, former, load);
    if (former.name === name) return { ...former.result, was_done: true };
  } else if (former !== undefined) {
    const { hasExchanged, isWhole, tables } = await readProgress(context, former);
    if (hasExchanged && former.name !== name)
      throw new AdministrationError(`the restore of ${former.name} was interrupted: run it again first`);
    // If tables that it needs are gone, what is left of it is still finished before the restore begins again: deletions are wrong until then.
    if (hasExchanged && (isWhole || (await readEpoch(redis)) !== '' || (await isKnown(context)))) {
      const result = await resume(restore, { ...former, tables }, load);
      if (isWhole) return result;
    }
  }
  return begin(restore, found, load);
}

/** Restores the backup from the beginning. If that fails before a table is exchanged, nothing is left of it. */
async function begin(restore: Restore, found: Found, load: () => Promise<unknown>): Promise<RestoredBackup> {
  const id = randomUUID();
  let mayHaveExchanged = false;
  const exchanging = () => {
    mayHaveExchanged = true;
  };
  try {
    // Before Redis is loaded: otherwise a paused process could exchange a table after deletions have started to run again.
    await replaceStaging(restore, found, id);
    const own: Begun = { ...restore, id, exchanging, epoch: await loadIfEmpty(restore, load) };
    await stage(own);
    restore.crash('backup_staged');
    return await complete(own, () => prepare(own), load);
  } catch (error) {
    if (!mayHaveExchanged) await unstage(restore, id);
    throw error;
  }
}

/** Continues a restore that has exchanged tables. */
async function resume(restore: Restore, plan: Plan, load: () => Promise<unknown>): Promise<RestoredBackup> {
  await takeOver(restore, plan);
  const epoch = await readEpoch(restore.context.redis);
  const own: Begun = { ...restore, id: plan.id, exchanging: () => undefined, epoch };
  if (epoch === '') await gatherSecondCopies(own, plan);
  return complete({ ...own, epoch: await loadIfEmpty(restore, load) }, async () => plan, load);
}

/** Loads an emptied Redis, if ClickHouse knows of a deployment. Settles with the epoch that Redis then has. */
async function loadIfEmpty({ context }: Restore, load: () => Promise<unknown>): Promise<string> {
  if ((await readEpoch(context.redis)) === '' && (await isKnown(context))) await load();
  return readEpoch(context.redis);
}

async function isKnown({ clickhouse }: AdminContext): Promise<boolean> {
  return Object.keys((await readMirror(clickhouse)).documents).length > 0;
}

/** Exchanges the tables while no round of deletions runs, and drops what they replace. */
async function complete(
  restore: Begun,
  planOf: () => Promise<Plan>,
  load: () => Promise<unknown>,
): Promise<RestoredBackup> {
  const { context, name, id, epoch, crash } = restore;
  const result = await withoutDeletions(context, async (owner) => {
    crash('rounds_stopped');
    const shardServers = (await context.redis.hget(registryKeys.documents, shardServersKey)) ?? '';
    const planned: Planned = { ...restore, plan: await planOf() };
    await recordPlanInRedis(planned, owner, shardServers);
    crash('users_deleted_again');
    if (epoch !== '') await carryOut(planned);
    else await withLoadingLocked(context, () => carryOut(planned));
    return planned.plan.result;
  });
  if (epoch === '') {
    await load();
    await checkLoaded(context);
  }
  await dropReplaced(restore, name, id);
  return result;
}

/** Completes a restore that has exchanged all tables. */
async function finish(restore: Restore, former: Plan, load: () => Promise<unknown>): Promise<void> {
  const { context } = restore;
  if ((await readEpoch(context.redis)) === '') await load();
  // The killed process's plan would make deletion rounds wait.
  await withoutDeletions(context, () => forgetPlan(context, textOf(former)));
  await dropReplaced(restore, former.name, former.id);
}

/**
 * Exchanges the tables. From then on, repeating the restore only drops the replaced tables, since new records are stored in the restored
 * ones.
 */
async function carryOut(restore: Planned): Promise<void> {
  const { context, staging, plan, epoch, crash } = restore;
  await exchangeTables(restore);
  await extendVoid(context.clickhouse, { to: minuteNow(), reason: restoredReason });
  if (epoch !== '') {
    await resetDeletions(context);
    crash('deletions_reset');
    await copyAll(context);
    crash('copies_rewritten');
    // The restored data is older on purpose, so it must not count as set back.
    await forgetKept(context.redis, [...serversOf(context.clickhouse).all.keys()]);
  }
  await confirmPlan(restore);
  await notePlan(context.clickhouse, staging, JSON.stringify({ ...plan, isDone: true }));
  crash('plan_ended');
  await forgetPlan(context, textOf(plan));
}

/** Runs `work` while no other process can load an empty Redis or create a deployment in it. */
async function withLoadingLocked({ redis }: AdminContext, work: () => Promise<void>): Promise<void> {
  const loading = await beginLoading(redis, loads.restoreWaitMsMax);
  if (loading === undefined) throw new RedisChanged();
  try {
    await work();
  } finally {
    await loading.end();
  }
}

/** Rejects with AdministrationError if Redis was not loaded from the restored tables. */
async function checkLoaded({ redis, clickhouse }: AdminContext): Promise<void> {
  const restored = (await readMirror(clickhouse)).documents[deploymentKey];
  const epoch = restored === undefined ? '' : (JSON.parse(restored) as Deployment).epoch;
  const inRedis = await readEpoch(redis);
  if (inRedis === '' && epoch !== '') throw new RedisChanged();
  if (inRedis !== epoch)
    throw new AdministrationError(
      'Redis holds another deployment than the restored tables: empty Redis, then "npm run admin -- restore"',
    );
}
