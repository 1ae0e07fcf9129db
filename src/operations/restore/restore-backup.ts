// Restoring a backup of ClickHouse while everything runs. A restore prepares the backup in a database beside the one in use:
// brings its schema up to date, and deletes again the users whom requests have deleted since. Then it exchanges the tables, each in
// one step. While it does that no round of deletions runs and no shard is moved. What Redis knows stands: accounts, keys,
// requests. With several servers, each restores its own backup, so each shard has to be where it was. A restore that is killed at
// any point goes on when it is called again, even if Redis was emptied meanwhile. Until it is done, an emptied Redis is not loaded.

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
import { checkAllThere, checkName, checkPlainTables } from '../backups.js';
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
import { forgetPlan, minuteNow, notePlanInRedis, prepare, restoredReason } from './prepare.js';
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
  await checkAllThere(clickhouse);
  // The database may be gone.
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
    throw new AdministrationError(`the restore of ${begun.name} was cut off: run it again first`);
  if (isContinued) for (const client of serversOf(clickhouse).all) await takeTablesOver(client, staging);
  const newId = randomUUID();
  const id = isContinued ? begun.id : newId;
  // Before Redis is loaded: a process that stands still could exchange a table when deletions go on.
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
    const places = (await redis.hget(registryKeys.documents, shardServersKey)) ?? '';
    const plan = isContinued ? begun : await prepare(own);
    const planned: Planned = { ...own, plan };
    await notePlanInRedis(planned, owner, places);
    crash('users_deleted_again');
    if (wasLoaded) await carryOut(planned);
    else await whileNotLoaded(context, () => carryOut(planned));
    return plan.result;
  });
  if (!wasLoaded) {
    await load();
    await checkLoaded(context);
  }
  await dropReplaced(restore, name, id);
  return result;
}

/** Does what is left of a restore that has exchanged everything. */
async function finish(restore: Restore, former: Plan, load: () => Promise<unknown>): Promise<void> {
  const { context } = restore;
  if ((await readEpoch(context.redis)) === '') await load();
  // Rounds of deletions need not wait until the right of the killed process ends.
  await withoutDeletions(context, () => forgetPlan(context, textOf(former)));
  await dropReplaced(restore, former.name, former.id);
}

/** Exchanges the tables; then a restore of this name only drops what was replaced: records that are stored from then on stay. */
async function carryOut(restore: Planned): Promise<void> {
  const { context, staging, plan, epoch, crash } = restore;
  await exchangeTables(restore);
  await extendVoid(context.clickhouse, { to: minuteNow(), reason: restoredReason });
  if (epoch !== '') {
    await resetDeletions(context);
    crash('deletions_reset');
    await copyAll(context);
    crash('copies_rewritten');
    // Its data is older on purpose.
    await forgetKept(context.redis, [...serversOf(context.clickhouse).all.keys()]);
  }
  await confirmPlan(restore);
  await notePlan(context.clickhouse, staging, JSON.stringify({ ...plan, isDone: true }));
  crash('plan_ended');
  await forgetPlan(context, textOf(plan));
}

/** Runs `work` while no process loads an empty Redis or creates a deployment in it. */
async function whileNotLoaded({ redis }: AdminContext, work: () => Promise<void>): Promise<void> {
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
  const present = await readEpoch(redis);
  if (present === '' && epoch !== '') throw new RedisChanged();
  if (present !== epoch)
    throw new AdministrationError(
      'Redis holds another deployment than the restored tables: empty Redis, then "npm run admin -- restore"',
    );
}
