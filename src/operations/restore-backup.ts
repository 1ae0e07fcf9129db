// Restoring a backup of ClickHouse while everything runs. A restore prepares the backup in a database beside the one in use:
// brings its schema up to date, and deletes again the users whom requests have deleted since. Then it exchanges the tables, each in
// one step. While it does that no round of deletions runs and no shard is moved. What Redis knows stands: accounts, keys,
// requests. With several servers, each restores its own backup, so each shard has to be where it was. A restore that is killed at
// any point goes on when it is called again, even if Redis was emptied meanwhile. Until it is done, an emptied Redis is not loaded.

import { randomUUID } from 'node:crypto';
import { readRows } from '../clickhouse/answers.js';
import {
  addRowsOf,
  BackupFailed,
  BackupMissing,
  backupOf,
  createStaging,
  dropAllButPlan,
  dropDatabase,
  endOfBackup,
  exchangeTable,
  hasEnd,
  notePlan,
  readDatabaseId,
  readNotedPlans,
  readTableIds,
  restoreInto,
  takeTablesOver,
  unkeptTables,
  untilNoRestoreRuns,
  withTableOf,
} from '../clickhouse/backups.js';
import { type ClickHouseClient, connectClickHouse, tablesOf } from '../clickhouse/client.js';
import {
  addIndexOf,
  addKeysAbove,
  generationAbove,
  raiseGeneration,
  readMarkers,
  writeMarker,
} from '../clickhouse/key-index.js';
import { extendVoid, voidSince } from '../clickhouse/ledger-table.js';
import { migrateServers, tablesOfSchema } from '../clickhouse/migrate.js';
import { MigrationError } from '../clickhouse/migration-error.js';
import { serversOf } from '../clickhouse/servers.js';
import { limitRestored, limitsTable, refuseSegments } from '../clickhouse/shard-limits.js';
import { AdministrationError } from '../contract/errors.js';
import { backups, loads } from '../contract/limits.js';
import { type CrashPoint, createCrashPoint } from '../crash-point.js';
import { describeError } from '../log.js';
import { inPieces } from '../pieces.js';
import { type DeletedRequest, deleteAgain } from '../privacy/deletion/delete-again.js';
import { readDeletedUsers } from '../privacy/deletion/deleted-users.js';
import { takeFences } from '../privacy/deletion/fences.js';
import { withMaintenanceLock } from '../privacy/deletion/maintenance-lock.js';
import { mirrorDeletions } from '../privacy/deletion/mirror.js';
import {
  ConcurrentUpdate,
  type DeletionRequest,
  readDeletion,
  readUnfinishedMembers,
  updateDeletion,
} from '../privacy/deletion/request.js';
import { suppressedNamesTable } from '../privacy/suppression/mirror.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { type Lease, withProcessLock } from '../redis/lease.js';
import { runScript, scripts } from '../redis/scripts.js';
import { keepsSince } from '../registry/backups.js';
import {
  type Backup,
  backupsKey,
  type Deployment,
  deploymentKey,
  type ShardServers,
  shardServersKey,
} from '../registry/documents.js';
import { beginLoading } from '../registry/loading.js';
import { mirrorRegistry, readMirror } from '../registry/mirror.js';
import { readLoadedRegistry, readRegistry } from '../registry/registry.js';
import { forgetKept } from '../registry/witness-copies.js';
import { stateLoads } from '../tuning.js';
import { untilTrue } from '../wait.js';
import { checkAllThere, checkName, checkNoMove, checkPlainTables } from './backups.js';
import type { AdminContext } from './context.js';
import { hasExchanged, type Plan, type RestoredBackup, readPlan, stagingOf, textOf } from './restore-plan.js';

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

type Restore = {
  readonly context: AdminContext;
  readonly name: string;
  /** The database beside the one in use, and a connection to it on each server, the home first. */
  readonly staging: string;
  readonly restored: readonly ClickHouseClient[];
  readonly lock: Lease;
  readonly crash: CrashPoint;
};

/** A restore that knows what it replaces, and where it has the restored tables. */
type Begun = Restore & {
  /** The id of the databases beside those in use. */
  readonly id: string;
  /** The deployment that Redis has; empty if it has none. */
  readonly epoch: string;
};

/** A restore whose plan is noted. */
type Planned = Begun & { readonly plan: Plan };

/** What a restore found that has to be replaced. */
type Found = {
  /** The ids of the databases beside those in use, of each server that has one. */
  readonly ids: readonly (string | undefined)[];
  /** The plan that Redis had. */
  readonly planInRedis: string | null;
};

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

/** Lets rounds of deletions begin. A plan that another process has noted since stays. */
async function forgetPlan({ redis }: AdminContext, text: string): Promise<void> {
  await runScript(redis, scripts.deleteEqual, [registryKeys.restoringBackup], [text]);
}

function schemaOf(config: AdminContext['config']) {
  return { urls: config.clickhouseUrls, ...tablesOf(config) };
}

async function readEpoch(redis: AdminContext['redis']): Promise<string> {
  return (await redis.get(registryKeys.epoch)) ?? '';
}

class AnotherRestore extends BackupFailed {
  constructor() {
    super('another restore has begun, or this one stood still for too long: run it again');
  }
}

/**
 * Rejects with BackupFailed if another process restores too, or if Redis was emptied or loaded since the restore began. The
 * database beside the one in use has an id, so a process whose database was replaced meanwhile notices that even if Redis was emptied.
 */
async function confirm(restore: Begun): Promise<void> {
  const { context, lock, id, epoch } = restore;
  // The lock first: a process that takes it again sees what another one that had it has done meanwhile.
  if (!(await lock.isHeld())) throw new AnotherRestore();
  const isOwn = (await readStagingIds(restore)).every((each) => each === id);
  if (!isOwn) throw new AnotherRestore();
  if ((await readEpoch(context.redis)) !== epoch) throw new RedisChanged();
}

/**
 * The same, and that Redis still has the plan: a Redis that was emptied and loaded again has the same epoch, and rounds of deletions may
 * have begun in it.
 */
async function confirmPlan(restore: Planned): Promise<void> {
  await confirm(restore);
  const noted = await restore.context.redis.get(registryKeys.restoringBackup);
  if (noted !== textOf(restore.plan)) throw new RedisChanged();
}

/**
 * Rejects with BackupFailed if the database beside the one in use is not this process's to drop from a server. It may be gone. `isOwn`
 * says so of its id.
 */
async function confirmDrop(
  { staging, lock }: Restore,
  client: ClickHouseClient,
  isOwn: (id: string) => boolean,
): Promise<void> {
  if (!(await lock.isHeld())) throw new AnotherRestore();
  const id = await readDatabaseId(client, staging);
  if (id !== undefined && !isOwn(id)) throw new AnotherRestore();
}

function readStagingIds({ context, staging }: Restore): Promise<readonly (string | undefined)[]> {
  const { all } = serversOf(context.clickhouse);
  return Promise.all(all.map((client) => readDatabaseId(client, staging)));
}

class RedisChanged extends BackupFailed {
  constructor() {
    super('Redis was emptied or loaded meanwhile: run it again');
  }
}

/** Makes an empty database beside the one in use, on each server, in the place of those that a restore has left. */
async function replaceStaging(restore: Restore, found: Found, id: string): Promise<void> {
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
async function stage(restore: Begun): Promise<void> {
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

/**
 * Drops the tables that a plan has replaced. Until the last one is gone the plan says that they are only to be dropped. A restore that
 * began later drops them first.
 */
async function dropReplaced(restore: Restore, name: string, id: string | undefined): Promise<void> {
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

/** Which server had which shard when the backup was made; undefined if there was only one. */
async function readPlaces([home]: Restore['restored']): Promise<ShardServers | undefined> {
  const text = (await readMirror(home as ClickHouseClient)).documents[shardServersKey];
  return text === undefined ? undefined : (JSON.parse(text) as ShardServers);
}

/** Rejects with AdministrationError unless the backup is the deployment's own, and each shard is where it has its rows. */
async function checkPlaces({ context, restored }: Restore): Promise<void> {
  const { shardServers, deployment } = await readRegistry(context.redis);
  // Only a Redis that has the deployment comes here.
  if (deployment === undefined) throw new RedisChanged();
  const own = (await readMirror(restored[0] as ClickHouseClient)).documents[deploymentKey];
  if (own !== undefined && (JSON.parse(own) as Deployment).epoch !== deployment.epoch)
    throw new AdministrationError(
      'the backup is of another deployment than Redis has: it is restored into an empty Redis only',
    );
  checkNoMove(shardServers?.moves);
  const then = await readPlaces(restored);
  const elsewhere = (shardServers?.servers ?? []).flatMap((server, shard) => {
    const before = then?.servers[shard] ?? 0;
    return before === server ? [] : [{ shard, before }];
  });
  if (elsewhere.length === 0) return;
  const were = elsewhere.map(({ shard, before }) => `shard ${shard} was on server ${before}`).join(', ');
  const servers = [...new Set(elsewhere.map(({ before }) => before))];
  const commands = servers.map((server) => {
    const its = elsewhere.filter(({ before }) => before === server).map(({ shard }) => shard);
    return `"shards move ${its.join(' ')} --to ${server}"`;
  });
  throw new AdministrationError(
    `${were} (from 0) when the backup was made: ${commands.join(' and ')}, then restore`,
  );
}

/**
 * Redis was emptied after the first table was exchanged: what it is to be loaded from is partly among the tables that were
 * exchanged, and what was copied since is in the restored ones. The latest version of each document stands.
 */
async function gatherSecondCopies(restore: Restore, plan: Plan): Promise<void> {
  const { context, staging } = restore;
  const { redis, clickhouse, config } = context;
  const inUse = await readTableIds(clickhouse, config.clickhouseDatabase);
  for (const table of secondCopies) {
    const isExchanged = inUse.get(table) === plan.tables[0]?.[table];
    if (isExchanged) await addRowsOf(clickhouse, table, staging, config.clickhouseDatabase);
  }
  await confirm({ ...restore, id: plan.id, epoch: '' });
  // Before it is loaded: from then on rounds of deletions begin unless it is there.
  await redis.set(registryKeys.restoringBackup, textOf(plan));
}

const secondCopies = ['registry', 'deletion_requests', 'deletion_targets'];

/** Prepares the restored tables for the exchange, and notes the plan on the home. */
async function prepare(restore: Begun): Promise<Plan> {
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

const restoredReason = 'a backup was restored';
const minuteNow = () => Math.floor(Date.now() / 60_000);

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
async function notePlanInRedis(restore: Planned, owner: string, places: string): Promise<void> {
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

/**
 * Adds the keys of the present index to the restored one: keys are never forgotten, whatever happens to their rows. Settles with
 * the number up to which the restored index has all keys, for each shard. The restored index gets a new generation, so that a
 * process that meanwhile adds keys to the present index writes no marker into the restored one.
 */
async function joinIndexes(
  { context, staging }: Restore,
  client: ClickHouseClient,
  restored: ClickHouseClient,
): Promise<Readonly<Record<string, string>>> {
  const { redis, config } = context;
  const [present, ofBackup, { deployment }] = await Promise.all([
    readMarkers(client),
    readMarkers(restored),
    readRegistry(redis),
  ]);
  const shards = new Set([...present.keys(), ...ofBackup.keys(), ...Array(deployment?.shards ?? 0).keys()]);
  const storedTo = new Map<number, string>();
  for (const shard of shards) {
    const keys = [shardKeys.state(shard), shardKeys.segments(shard)];
    const to = (await runScript(redis, scripts.indexable, keys, [deployment?.epoch ?? ''])) as string | null;
    storedTo.set(shard, to ?? present.get(shard)?.indexedTo ?? '0');
  }
  await addIndexOf(client, config.clickhouseDatabase, staging);
  for (const shard of shards) {
    const known = await redis.hget(shardKeys.state(shard), 'keys_generation');
    const before = ofBackup.get(shard);
    const generation = generationAbove(known, before?.generation, present.get(shard)?.generation);
    const joined = { indexedTo: before?.indexedTo ?? '0', generation };
    if (!(await writeMarker(restored, shard, joined, before?.generation)))
      throw new BackupFailed('the marker of the index of keys is missing');
  }
  return Object.fromEntries(storedTo);
}

/**
 * Exchanges the tables that are not exchanged yet. The index of keys comes first: until it is exchanged, workers look keys up in
 * the other one, and from then on no segment whose keys were looked up there is taken by the restored tables. The registry comes
 * last: an emptied Redis is loaded from it.
 */
async function exchangeTables(restore: Planned): Promise<void> {
  const { plan } = restore;
  const wasLoaded = restore.epoch !== '';
  const servers = [...serversOf(restore.context.clickhouse).all.entries()].toReversed();
  for (const [server, client] of servers) {
    await exchangeOn(restore, client, plan.tables[server] ?? {}, (table) => table === keysTable);
    if (wasLoaded) await noteGenerations(restore, server);
  }
  const refused = wasLoaded ? await readLastSegments(restore) : [];
  // Their constraints name the limits of this restore; in use, limits are of all tables.
  await refuseUpTo(restore, refused, plan.id);
  for (const [server, client] of servers) {
    await exchangeOn(restore, client, plan.tables[server] ?? {}, (table) => table !== keysTable);
    restore.crash('rows_exchanged');
    // What was stored since the two indexes were joined is now among the tables that are dropped.
    const { clickhouseDatabase: database } = restore.context.config;
    const keysTo = Object.entries(plan.keysTo?.[server] ?? {}).map(
      ([shard, to]) => [Number(shard), to] as const,
    );
    await addKeysAbove(client, restore.staging, database, new Map(keysTo));
    // A worker may have read the index before these keys were added: it drops what it has of the former generation.
    for (const shard of (await readMarkers(client)).keys()) await raiseGeneration(client, shard);
    if (wasLoaded) await noteGenerations(restore, server);
  }
  await refuseUpTo(restore, refused);
}

/** Has workers load their filters of keys from the index that is now in use. */
async function noteGenerations({ context }: Restore, server: number): Promise<void> {
  const { redis } = context;
  const servers = serversOf(context.clickhouse);
  const client = servers.all[server] as ClickHouseClient;
  const { deployment } = await readLoadedRegistry(redis);
  for (const [shard, { generation }] of await readMarkers(client)) {
    // Every restored server has a marker of each shard, with a generation of its own.
    if (servers.numberOf(shard) !== server) continue;
    await runScript(
      redis,
      scripts.keysIndexed,
      [shardKeys.state(shard)],
      [deployment.epoch, '0', generation],
    );
  }
}

/**
 * A worker may have read a segment that another worker has stored since and whose users were then deleted; or it may have looked
 * up the segment's keys in the previous index. The restored tables do not know its token, so they refuse it unless Redis still has
 * it: then the worker reads the segment and looks up its keys again.
 */
async function refuseUpTo(
  { context }: Restore,
  lastSegments: readonly string[],
  ofRestore = '',
): Promise<void> {
  for (const client of serversOf(context.clickhouse).all)
    for (const [shard, last] of lastSegments.entries()) await refuseSegments(client, shard, last, ofRestore);
}

/** The last segment of each shard. */
async function readLastSegments({ context: { redis } }: Restore): Promise<readonly string[]> {
  const { deployment } = await readLoadedRegistry(redis);
  return takeFences({ ...deployment, redis });
}

async function exchangeOn(
  restore: Planned,
  client: ClickHouseClient,
  tables: Plan['tables'][number],
  isWanted: (table: string) => boolean,
): Promise<void> {
  const { context, staging, lock, crash } = restore;
  const { clickhouseDatabase: database } = context.config;
  const schema = tablesOfSchema();
  const inUse = await readTableIds(client, database);
  const names = Object.keys(tables)
    .filter((table) => isWanted(table) && schema.has(table))
    .sort((a, b) => Number(a === 'registry') - Number(b === 'registry'));
  for (const table of names) {
    const id = tables[table] as string;
    if (inUse.get(table) === id) continue;
    await confirmPlan(restore);
    // These only grow: of the suppressions the latest version stands.
    if (table === auditTable || table === suppressedNamesTable) {
      await addRowsOf(client, table, staging, database);
      continue;
    }
    await limitRestored(client, staging, table, restore.plan.id);
    const exchange = { table, id, staging, database, owner: lock.owner };
    await exchangeTable(client, exchange, () => crash('table_exchanged'));
  }
}

const keysTable = 'stored_keys';
/** A restore leaves these as they are. */
const ofServer: readonly string[] = [...unkeptTables, limitsTable];
const auditTable = 'audit_log';

/** Runs `work` when no round of deletions runs, and while none begins; with what the lock holds that stops them. */
export async function withoutDeletions<Result>(
  { redis }: AdminContext,
  work: (owner: string) => Promise<Result>,
): Promise<Result> {
  const tryIt = async () => {
    const done = await withMaintenanceLock(redis, 'restore', async ({ owner }) => ({
      result: await work(owner),
    }));
    return done === 'locked' ? undefined : done;
  };
  const done = await untilTrue(tryIt, { everyMs: 100, msMax: backups.roundWaitMsMax });
  if (done === undefined)
    throw new AdministrationError('a round of deletions still runs; try again when it has ended');
  return done.result;
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

/** Requests whose users are known, and complete ones whose users are not, unless older data is known to lack their users already. */
export type Deleted = {
  readonly known: readonly DeletedRequest[];
  readonly unknown: readonly DeletionRequest[];
};

export async function findDeleted(
  redis: AdminContext['redis'],
  isDoneAnyway: (request: DeletionRequest) => boolean,
): Promise<Deleted> {
  const known: DeletedRequest[] = [];
  const unknown: DeletionRequest[] = [];
  for await (const request of eachDeletion(redis)) {
    const hashes = await readDeletedUsers(redis, request.deletion_request_id);
    if (hashes !== undefined) known.push({ request, hashes });
    else if (request.status === 'complete' && !isDoneAnyway(request)) unknown.push(request);
  }
  return { known, unknown };
}

export function submitAgainOf({
  deletion_request_id,
  account_id,
  app_id,
  submitted_at,
  completed_at,
  targets,
}: DeletionRequest): RestoredBackup['submit_again'][number] {
  return {
    deletion_request_id,
    account_id,
    app_id,
    submitted_at,
    ...(completed_at === undefined ? {} : { completed_at }),
    targets,
  };
}

/** The entry of a backup in its own copy of the registry. A later entry of the same name may describe another backup. */
async function readOwnNote(home: ClickHouseClient, name: string): Promise<Backup | undefined> {
  const text = (await readMirror(home)).documents[backupsKey];
  return (JSON.parse(text ?? '[]') as Backup[]).find((backup) => backup.name === name);
}

export async function readCompleteIds(home: ClickHouseClient): Promise<ReadonlySet<string>> {
  const rows = await readRows<{ request_id: string }>(home, {
    query: `SELECT request_id FROM deletion_requests GROUP BY request_id
      HAVING JSONExtractString(argMax(deletion_requests.document, deletion_requests.version), 'status') = 'complete'`,
  });
  return new Set(rows.map(({ request_id: id }) => id));
}

/** All requests that ever were, read little by little. */
async function* eachDeletion(redis: AdminContext['redis']): AsyncGenerator<DeletionRequest> {
  let cursor = '0';
  const seen = new Set<string>();
  do {
    const [next, entries] = await redis.hscan(registryKeys.deletions, cursor, 'COUNT', idsPerCall);
    for (let at = 0; at < entries.length; at += 2) {
      const id = entries[at] as string;
      if (seen.has(id)) continue;
      seen.add(id);
      yield JSON.parse(entries[at + 1] as string) as DeletionRequest;
    }
    cursor = next;
  } while (cursor !== '0');
}

const idsPerCall = 1_000;

/**
 * Restarts the pending requests: the restored tables lack their progress, and still have rows that they had deleted. What was
 * found before any row was deleted stays, as the evidence.
 */
export async function resetDeletions({ redis }: AdminContext): Promise<void> {
  const { deployment } = await readLoadedRegistry(redis);
  for (const { requestId } of await readUnfinishedMembers(redis, deployment.epoch)) {
    const request = await readDeletion(redis, requestId);
    if (request === undefined) continue;
    const {
      left: _,
      hidden_at: __,
      verified_at: ___,
      verified_tables: ____,
      targets_kept: _____,
      ...rest
    } = request;
    try {
      await updateDeletion(redis, rest, { state: 'submitted', resolved: false, mutations: [] });
      await redis.sadd(registryKeys.deletionsAwaitingTargetCopy, requestId);
    } catch (error) {
      // It is no longer pending: its targets are lost.
      if (!(error instanceof ConcurrentUpdate)) throw error;
    }
  }
}

/** Copies all documents to ClickHouse: its restored copies are old. Names that only the backup has are removed. */
export async function copyAll(context: AdminContext): Promise<void> {
  const { redis, clickhouse } = context;
  const ofBackup = Object.keys((await readMirror(clickhouse)).documents);
  const documents = [...new Set([...ofBackup, ...(await redis.hkeys(registryKeys.documents))])];
  for (const some of inPieces(documents, stateLoads.documentsPerCallMax)) {
    await redis.sadd(registryKeys.unmirrored, ...some);
    await mirrorRegistry(redis, clickhouse);
  }
  for (const some of inPieces(await redis.hkeys(registryKeys.deletions), stateLoads.documentsPerCallMax)) {
    await redis.sadd(registryKeys.unmirroredDeletions, ...some);
    await mirrorDeletions(redis, clickhouse);
  }
}
