// Restores a backup of ClickHouse while everything is running. A restore prepares the backup in a staging database beside the one in use:
// it migrates the schema, and deletes again the users whom requests have deleted since. Then it exchanges the tables, each in one step;
// during this no deletion round runs and no shard is moved. Redis keeps what it has: accounts, keys, requests. With several servers, each
// restores its own backup, so each shard must be on the same server as in the backup. A restore that is killed at any point is continued by
// calling it again, even if Redis was emptied or the staging databases were dropped by hand. Until it is done, an emptied Redis is not
// loaded. A restore that fails before it exchanges a table leaves nothing.

import { randomUUID } from 'node:crypto';
import { connectClickHouse, serversIn } from '../../clickhouse/client.js';
import { extendVoid } from '../../clickhouse/ledger-table.js';
import { migrateServers } from '../../clickhouse/migrate.js';
import { type AllServers, serversOf } from '../../clickhouse/servers.js';
import { BackupFailed, notePlan } from '../../clickhouse/staging.js';
import { AdministrationError } from '../../contract/errors.js';
import { loads } from '../../contract/limits.js';
import { createCrashPoint } from '../../crash-point.js';
import { registryKeys } from '../../redis/keys.js';
import { withProcessLock } from '../../redis/lease.js';
import { shardServersKey } from '../../registry/documents.js';
import { withLoading } from '../../registry/loading.js';
import { readSecondCopy } from '../../registry/second-copy.js';
import { forgetKept } from '../../registry/witness-copies.js';
import { checkAllReachable, checkName, checkPlainTables } from '../backups.js';
import type { AdminContext } from '../context.js';
import { renewSecondCopies, resetDeletions, withoutDeletions } from '../older-data.js';
import { exchangeTables } from './exchange.js';
import {
  type Begun,
  confirmPlan,
  type Plan,
  type Planned,
  RedisChanged,
  type Restore,
  type RestoredBackup,
  readEpoch,
  readPlan,
  readProgress,
  readStagingIds,
  stagingOf,
  textOf,
} from './plan.js';
import { forgetPlan, prepare, recordPlanInRedis, restoredReason } from './prepare.js';
import {
  dropReplaced,
  type Found,
  gatherSecondCopies,
  replaceStaging,
  stage,
  takeOver,
  unstage,
} from './staging.js';

/** Restores a backup, or continues its interrupted restore. `load`: loads the state of ClickHouse into an emptied Redis. */
export async function restoreBackup(
  context: AdminContext,
  name: string,
  load: () => Promise<unknown>,
): Promise<RestoredBackup> {
  checkName(name);
  const { config } = context;
  checkPlainTables(config);
  const servers = serversOf(context.clickhouse).all;
  const staging = stagingOf(config.clickhouseDatabase);
  const connect = (url = '') => connectClickHouse({ ...serversIn(config), url, database: staging });
  const [first, ...others] = config.clickhouseUrls;
  const restored: AllServers = [connect(first), ...others.map(connect)];
  const crash = createCrashPoint(config.crashAt);
  try {
    const done = await withProcessLock(context.redis, registryKeys.restoreLock, async (lock) =>
      restoreInSteps({ context, name, servers, restored, staging, lock, crash, load }),
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

async function restoreInSteps(restore: Restore): Promise<RestoredBackup> {
  const { context, name } = restore;
  const { redis, clickhouse, config } = context;
  await checkAllReachable(clickhouse);
  // The database itself may be missing.
  await migrateServers(serversIn(config));
  const found: Found = {
    ids: await readStagingIds(restore),
    planInRedis: await redis.get(registryKeys.restoringBackup),
  };
  const former = await readPlan(context);
  if (former?.isDone === true) {
    await finish(restore, former);
    if (former.name === name) return { ...former.result, was_done: true };
  } else if (former !== undefined) {
    const { hasExchanged, isWhole, tables } = await readProgress(context, former);
    if (hasExchanged && former.name !== name)
      throw new AdministrationError(`the restore of ${former.name} was interrupted: run it again first`);
    // If tables that it needs are gone, the restore begins again once what is left is exchanged: until then deletions see mixed tables.
    if (hasExchanged && (isWhole || (await readEpoch(redis)) !== '' || (await isKnown(context)))) {
      const result = await resume(restore, { ...former, tables });
      if (isWhole) return result;
    }
  }
  return begin(restore, found);
}

/** Restores the backup from the beginning. If that fails before a table is exchanged, nothing is left of it. */
async function begin(restore: Restore, found: Found): Promise<RestoredBackup> {
  const id = randomUUID();
  let mayHaveExchanged = false;
  const exchanging = () => {
    mayHaveExchanged = true;
  };
  try {
    // Before Redis is loaded: otherwise a paused process could exchange a table after deletions have started to run again.
    await replaceStaging(restore, found, id);
    const own: Begun = { ...restore, id, exchanging, epoch: await loadIfEmpty(restore) };
    const backedUp = await stage(own);
    restore.crash('backup_staged');
    return await complete(own, () => prepare(own, backedUp));
  } catch (error) {
    if (!mayHaveExchanged) await unstage(restore, id);
    throw error;
  }
}

/** Continues a restore that has exchanged tables. */
async function resume(restore: Restore, plan: Plan): Promise<RestoredBackup> {
  await takeOver(restore, plan);
  const epoch = await readEpoch(restore.context.redis);
  const own: Begun = { ...restore, id: plan.id, exchanging: () => undefined, epoch };
  if (epoch === '') await gatherSecondCopies(own, plan);
  return complete({ ...own, epoch: await loadIfEmpty(restore) }, async () => plan);
}

/** Loads an emptied Redis, if ClickHouse knows of a deployment. Settles with the epoch that Redis then has. */
async function loadIfEmpty({ context, load }: Restore): Promise<string> {
  if ((await readEpoch(context.redis)) === '' && (await isKnown(context))) await load();
  return readEpoch(context.redis);
}

async function isKnown({ clickhouse }: AdminContext): Promise<boolean> {
  return Object.keys((await readSecondCopy(clickhouse)).documents).length > 0;
}

/** Exchanges the tables while no round of deletions runs, and drops what they replace. */
async function complete(restore: Begun, planOf: () => Promise<Plan>): Promise<RestoredBackup> {
  const { context, epoch, crash, load } = restore;
  const { redis } = context;
  const plan = await withoutDeletions(context, async ({ owner }) => {
    crash('rounds_stopped');
    const shardServers = (await redis.hget(registryKeys.documents, shardServersKey)) ?? '';
    const planned: Planned = { ...restore, plan: await planOf() };
    await recordPlanInRedis(planned, owner, shardServers);
    crash('users_deleted_again');
    if (epoch !== '') await carryOut(planned);
    // Nobody loads an empty Redis, or creates a deployment in it, meanwhile.
    else if ((await withLoading(redis, loads.restoreWaitMsMax, () => carryOut(planned))) === 'loaded')
      throw new RedisChanged();
    return planned.plan;
  });
  if (epoch === '') await load();
  await dropReplaced(restore, plan);
  return plan.result;
}

/** Completes a restore that has exchanged all tables. */
async function finish(restore: Restore, former: Plan): Promise<void> {
  const { context, load } = restore;
  if ((await readEpoch(context.redis)) === '') await load();
  // The killed process's plan would make deletion rounds wait.
  await withoutDeletions(context, () => forgetPlan(context, textOf(former)));
  await dropReplaced(restore, former);
}

/**
 * Exchanges the tables. From then on, repeating the restore only drops the replaced tables, since new records are stored in the restored
 * ones.
 */
async function carryOut(restore: Planned): Promise<void> {
  const { context, servers, staging, plan, epoch, crash } = restore;
  await exchangeTables(restore);
  await extendVoid(servers[0], restoredReason);
  if (epoch !== '') {
    await resetDeletions(context);
    crash('deletions_reset');
    await renewSecondCopies(context);
    crash('copies_rewritten');
    // The restored data is older on purpose, so it must not count as set back.
    await forgetKept(context.redis, [...servers.keys()]);
  }
  await confirmPlan(restore);
  await notePlan(servers[0], staging, JSON.stringify({ ...plan, isDone: true }));
  crash('plan_ended');
  await forgetPlan(context, textOf(plan));
}
