// Restoring a backup of ClickHouse while everything is running. A restore prepares the backup in a database beside the one in use:
// it migrates the schema, and deletes again the users whom requests have deleted since. Then it exchanges the tables, each in one
// step; meanwhile no deletion round runs and no shard is moved. What Redis has stays: accounts, keys, requests. With several servers,
// each restores its own backup, so each shard must be on the same server as then. A restore that is killed at any point continues
// when it is called again, even if Redis was emptied. Until it is done, an emptied Redis is not loaded.

import { randomUUID } from 'node:crypto';
import { BackupFailed } from '../../clickhouse/backup-faults.js';
import { connectClickHouse, tablesOf } from '../../clickhouse/client.js';
import { extendVoid } from '../../clickhouse/ledger-table.js';
import { migrateServers } from '../../clickhouse/migrate.js';
import { serversOf } from '../../clickhouse/servers.js';
import { notePlan, takeTablesOver } from '../../clickhouse/staging.js';
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
import { hasExchanged, type Plan, type RestoredBackup, readPlan, stagingOf, textOf } from './plan.js';
import { forgetPlan, minuteNow, prepare, recordPlanInRedis, restoredReason } from './prepare.js';
import { copyAll, gatherSecondCopies } from './second-copies.js';
import { dropReplaced, type Found, replaceStaging, stage } from './staging.js';

/** `load` loads the state of ClickHouse into an emptied Redis. */
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
  const { context, name, staging, crash } = restore;
  const { redis, clickhouse, config } = context;
  await checkAllReachable(clickhouse);
  // The database itself may be gone.
  await migrateServers({ ...schemaOf(config), database: config.clickhouseDatabase });
  const found: Found = {
    ids: await readStagingIds(restore),
    planInRedis: await redis.get(registryKeys.restoringBackup),
  };
  const former = await readPlan(context);
  if (former?.isDone === true) {
    await finish(restore, former, load);
    if (former.name === name) return { ...former.result, was_done: true };
  }
  const begun = former?.isDone === true ? undefined : former;
  const isContinued = begun !== undefined && (await hasExchanged(context, begun));
  if (isContinued && begun.name !== name)
    throw new AdministrationError(`the restore of ${begun.name} was interrupted: run it again first`);
  if (isContinued) for (const client of serversOf(clickhouse).all) await takeTablesOver(client, staging);
  const newId = randomUUID();
  const id = isContinued ? begun.id : newId;
  // Before Redis is loaded: otherwise a paused process could exchange a table when deletions run again.
  if (!isContinued) await replaceStaging(restore, found, newId);
  if ((await readEpoch(redis)) === '') {
    if (isContinued) await gatherSecondCopies(restore, begun);
    if (Object.keys((await readMirror(clickhouse)).documents).length > 0) await load();
  }
  const epoch = await readEpoch(redis);
  const wasLoaded = epoch !== '';
  const own: Begun = { ...restore, id, epoch };
  if (!isContinued) await stage(own);
  crash('backup_staged');
  const result = await withoutDeletions(context, async (owner) => {
    crash('rounds_stopped');
    const shardServers = (await redis.hget(registryKeys.documents, shardServersKey)) ?? '';
    const plan = isContinued ? begun : await prepare(own);
    const planned: Planned = { ...own, plan };
    await recordPlanInRedis(planned, owner, shardServers);
    crash('users_deleted_again');
    if (wasLoaded) await carryOut(planned);
    else await withLoadingLocked(context, () => carryOut(planned));
    return plan.result;
  });
  if (!wasLoaded) {
    await load();
    await checkLoaded(context);
  }
  await dropReplaced(restore, name, id);
  return result;
}

/** Does the rest of a restore that has exchanged all tables. */
async function finish(restore: Restore, former: Plan, load: () => Promise<unknown>): Promise<void> {
  const { context } = restore;
  if ((await readEpoch(context.redis)) === '') await load();
  // So that deletion rounds need not wait for the killed process's plan.
  await withoutDeletions(context, () => forgetPlan(context, textOf(former)));
  await dropReplaced(restore, former.name, former.id);
}

/** Exchanges the tables. After that, repeating the restore only drops the replaced tables: records that are stored since stay. */
async function carryOut(restore: Planned): Promise<void> {
  const { context, staging, plan, epoch, crash } = restore;
  await exchangeTables(restore);
  await extendVoid(context.clickhouse, { to: minuteNow(), reason: restoredReason });
  if (epoch !== '') {
    await resetDeletions(context);
    crash('deletions_reset');
    await copyAll(context);
    crash('copies_rewritten');
    // The restored data is older on purpose.
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
