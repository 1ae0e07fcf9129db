// Restoring a backup of ClickHouse while everything runs. A restore prepares the backup in a database beside the one in use:
// brings its schema up to date, and deletes again the users whom requests have deleted since. Then it exchanges the tables, each in
// one step. While it does that no round of deletions runs and no shard is moved. What Redis knows stands: accounts, keys,
// requests. With several servers, each restores its own backup, so each shard has to be where it was. A restore that is killed at
// any point goes on when it is called again, even if Redis was emptied meanwhile. Until it is done, an emptied Redis is not loaded.

import { AdministrationError } from '../accounts/accounts.js';
import { keepsSince } from '../accounts/backups.js';
import {
  type Backup,
  backupsKey,
  type Deployment,
  deploymentKey,
  type ShardServers,
  shardServersKey,
} from '../accounts/documents.js';
import { mirrorRegistry, readMirror } from '../accounts/mirror.js';
import { readRegistry, StateNotLoaded } from '../accounts/registry.js';
import {
  addRowsOf,
  BackupFailed,
  backupOf,
  dropDatabase,
  exchangeTable,
  forgetPlan,
  notePlan,
  readNotedPlan,
  readTableIds,
  restoreInto,
  unkeptTables,
  untilNoRestoreRuns,
} from '../clickhouse/backups.js';
import { type ClickHouseClient, connectClickHouse, tablesOf } from '../clickhouse/client.js';
import {
  addIndexOf,
  addKeysAbove,
  generationAbove,
  readMarkers,
  writeMarker,
} from '../clickhouse/key-index.js';
import { migrateServers } from '../clickhouse/migrate.js';
import { serversOf } from '../clickhouse/servers.js';
import { refuseSegments } from '../clickhouse/store.js';
import { backups } from '../contract/limits.js';
import { type CrashPoint, createCrashPoint } from '../crash-point.js';
import { type DeletedRequest, deleteAgain } from '../deletion/delete-again.js';
import { readDeletedUsers } from '../deletion/deleted-users.js';
import { type IsHeld, withFailedRowsLocked } from '../deletion/failed-rows-lock.js';
import { mirrorDeletions } from '../deletion/mirror.js';
import {
  type DeletionRequest,
  Overtaken,
  readDeletion,
  readPendingMembers,
  updateDeletion,
} from '../deletion/request.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { undoRuns } from '../retention/removed-identifications.js';
import { suppressedNamesTable } from '../suppression/mirror.js';
import { stateLoads } from '../tuning.js';
import { checkAllThere, checkName, checkNoMove, checkPlainTables } from './backups.js';
import type { AdminContext } from './context.js';

export type RestoredBackup = {
  readonly name: string;
  /** `kept`: accounts, keys and requests stay as Redis has them. `restored`: Redis was empty, they come from the backup. */
  readonly state: 'kept' | 'restored';
  /** Requests that were carried out again, and the rows that they took. */
  readonly deleted_again: { readonly requests: number; readonly rows: number };
  /** Requests whose users are lost, so that their callers have to submit them again. */
  readonly submit_again: readonly Pick<
    DeletionRequest,
    'deletion_request_id' | 'account_id' | 'app_id' | 'submitted_at' | 'completed_at' | 'targets'
  >[];
};

/** What a restore notes in Redis, and on the home, before it exchanges the first table. */
type Plan = {
  readonly name: string;
  /** The ids of the restored tables, of each server. */
  readonly tables: readonly Readonly<Record<string, string>>[];
  /** Of each server, by shard: keys of later segments may have been stored since they were put into the restored index. */
  readonly keysTo: readonly Readonly<Record<string, string>>[];
  readonly result: RestoredBackup;
};

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
    return await restoreInSteps({ context, name, staging, restored, crash }, load);
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
  readonly crash: CrashPoint;
};

async function restoreInSteps(restore: Restore, load: () => Promise<unknown>): Promise<RestoredBackup> {
  const { context, name, staging, crash } = restore;
  const { redis, clickhouse, config } = context;
  const database = config.clickhouseDatabase;
  const { all } = serversOf(clickhouse);
  await checkAllThere(clickhouse);
  const schema = { urls: config.clickhouseUrls, ...tablesOf(config) };
  // The database may be gone.
  await migrateServers({ ...schema, database });
  const isLoaded = async () => (await redis.exists(registryKeys.epoch)) === 1;
  const begun = await readPlan(context);
  if (begun !== undefined && begun.name !== name) {
    throw new AdministrationError(`the restore of ${begun.name} was cut off: run it again first`);
  }
  const isContinued = begun !== undefined && (await hasExchanged(context, begun));
  if (!(await isLoaded())) {
    if (isContinued) await gatherSecondCopies(restore, begun);
    if (Object.keys((await readMirror(clickhouse)).documents).length > 0) await load();
  }
  if (!isContinued) {
    // Nothing was exchanged, so deletions and moves may go on meanwhile.
    await redis.del(registryKeys.restoringBackup);
    await Promise.all(all.map(untilNoRestoreRuns));
    for (const client of all) await dropDatabase(client, staging);
    await restoreAll(restore, await isLoaded());
    await migrateServers({ ...schema, database: staging });
    // The backup may have been made while a run of retention removed identifications.
    for (const client of restore.restored) await undoRuns(client);
  }
  crash('backup_staged');
  const wasLoaded = await isLoaded();
  const result = await withoutDeletions(context, async (isHeld) => {
    crash('rounds_stopped');
    const plan = isContinued ? begun : await prepare(restore, wasLoaded, isHeld);
    crash('users_deleted_again');
    await exchangeTables(restore, plan, wasLoaded);
    if (wasLoaded) {
      await resetDeletions(context);
      crash('deletions_reset');
      await copyAll(context);
      crash('copies_rewritten');
    }
    await forgetPlan(clickhouse, staging);
    await redis.del(registryKeys.restoringBackup);
    return plan.result;
  });
  if (!wasLoaded) await load();
  for (const client of all) await dropDatabase(client, staging);
  return result;
}

/** Lets each server restore its own backup. One that had no shards when the backup was made has nothing to restore. */
async function restoreAll(restore: Restore, isLoaded: boolean): Promise<void> {
  const { context, name, staging, restored } = restore;
  const { clickhouse, config } = context;
  const { all } = serversOf(clickhouse);
  const into = (client: ClickHouseClient, server: number) =>
    restoreInto(client, config.clickhouseDatabase, backupOf(name, server), staging);
  const [home, ...others] = all as readonly [ClickHouseClient, ...ClickHouseClient[]];
  await into(home, 0);
  if (isLoaded) await checkPlaces(restore);
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
  const own = (await readMirror(restored[0] as ClickHouseClient)).documents[deploymentKey];
  if (own !== undefined && (JSON.parse(own) as Deployment).epoch !== deployment?.epoch)
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

function stagingOf(database: string): string {
  return `${database}_restore`;
}

async function readPlan({ redis, clickhouse, config }: AdminContext): Promise<Plan | undefined> {
  const text =
    (await redis.get(registryKeys.restoringBackup)) ??
    (await readNotedPlan(clickhouse, stagingOf(config.clickhouseDatabase)));
  return text === undefined ? undefined : (JSON.parse(text) as Plan);
}

/** Whether a restore has exchanged any of its tables. */
async function hasExchanged({ clickhouse, config }: AdminContext, plan: Plan): Promise<boolean> {
  const isExchanged = async (client: ClickHouseClient, server: number) => {
    const inUse = await readTableIds(client, config.clickhouseDatabase);
    return Object.entries(plan.tables[server] ?? {}).some(([table, id]) => inUse.get(table) === id);
  };
  return (await Promise.all(serversOf(clickhouse).all.map(isExchanged))).includes(true);
}

/** Rejects with AdministrationError if Redis is empty and ClickHouse has some tables of a backup and some of now. */
export async function checkNoneCutOff(context: AdminContext): Promise<void> {
  if ((await context.redis.exists(registryKeys.epoch)) === 1) return;
  const plan = await readPlan(context);
  if (plan !== undefined && (await hasExchanged(context, plan)))
    throw new AdministrationError(
      `the restore of ${plan.name} was cut off: "backup restore ${plan.name} --yes" goes on with it, and loads Redis`,
    );
}

/**
 * Redis was emptied after the first table was exchanged: what it is to be loaded from is partly among the tables that were
 * exchanged, and what was copied since is in the restored ones. The latest version of each document stands.
 */
async function gatherSecondCopies({ context, staging }: Restore, plan: Plan): Promise<void> {
  const { redis, clickhouse, config } = context;
  const inUse = await readTableIds(clickhouse, config.clickhouseDatabase);
  for (const table of secondCopies) {
    const isExchanged = inUse.get(table) === plan.tables[0]?.[table];
    if (isExchanged) await addRowsOf(clickhouse, table, staging, config.clickhouseDatabase);
  }
  // Before it is loaded: from then on rounds of deletions begin unless it is there.
  await redis.set(registryKeys.restoringBackup, JSON.stringify(plan));
}

const secondCopies = ['registry', 'deletion_requests', 'deletion_targets'];

/** Prepares the restored tables for the exchange. Once the plan is there, no round of deletions begins. */
async function prepare(restore: Restore, isLoaded: boolean, isHeld: IsHeld): Promise<Plan> {
  const { context, name, staging, restored } = restore;
  // A move may have begun while the servers restored their backups.
  if (isLoaded) await checkPlaces(restore);
  const result = isLoaded
    ? await deleteSince(restore)
    : { name, state: 'restored' as const, deleted_again: { requests: 0, rows: 0 }, submit_again: [] };
  const keysTo = await Promise.all(
    serversOf(context.clickhouse).all.map((client, server) =>
      joinIndexes(restore, client, restored[server] as ClickHouseClient),
    ),
  );
  const tables = await Promise.all(
    restored.map(async (client) => {
      const ids = [...(await readTableIds(client, staging))];
      return Object.fromEntries(
        ids.filter(([table]) => ![...unkeptTables, serverNumberTable].includes(table)),
      );
    }),
  );
  const plan: Plan = { name, tables, keysTo, result };
  // A round that began meanwhile may have completed requests which are not deleted again.
  if (!(await isHeld())) throw new BackupFailed('it stood still for too long: run it again');
  const text = JSON.stringify(plan);
  await notePlan(context.clickhouse, staging, text);
  await context.redis.set(registryKeys.restoringBackup, text);
  return plan;
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
async function exchangeTables(restore: Restore, plan: Plan, wasLoaded: boolean): Promise<void> {
  const servers = [...serversOf(restore.context.clickhouse).all.entries()].toReversed();
  for (const [server, client] of servers) {
    await exchangeOn(restore, client, plan.tables[server] ?? {}, (table) => table === keysTable);
    if (wasLoaded) await noteGenerations(restore, server);
  }
  if (wasLoaded) await refuseSegmentsUntilNow(restore);
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
    await raiseGenerations(client);
    if (wasLoaded) await noteGenerations(restore, server);
  }
}

/** Marks the index of a server as another one, however far workers bring it meanwhile. */
async function raiseGenerations(client: ClickHouseClient): Promise<void> {
  for (const shard of (await readMarkers(client)).keys()) {
    for (let isWritten = false; !isWritten; ) {
      const marker = (await readMarkers(client)).get(shard);
      if (marker === undefined) break;
      const raised = { indexedTo: marker.indexedTo, generation: generationAbove(marker.generation) };
      isWritten = await writeMarker(client, shard, raised, marker.generation);
    }
  }
}

/** Has workers load their filters of keys from the index that is now in use. */
async function noteGenerations({ context }: Restore, server: number): Promise<void> {
  const { redis } = context;
  const servers = serversOf(context.clickhouse);
  const client = servers.all[server] as ClickHouseClient;
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
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
async function refuseSegmentsUntilNow({ context, restored }: Restore): Promise<void> {
  const { redis } = context;
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  for (let shard = 0; shard < deployment.shards; shard++) {
    const last = await runScript(redis, scripts.fence, [shardKeys.state(shard)], [deployment.epoch]);
    if (last === null) throw new StateNotLoaded();
    for (const client of restored) await refuseSegments(client, shard, String(last));
  }
}

async function exchangeOn(
  { context, staging, crash }: Restore,
  client: ClickHouseClient,
  tables: Plan['tables'][number],
  isWanted: (table: string) => boolean,
): Promise<void> {
  const { clickhouseDatabase: database } = context.config;
  const inUse = await readTableIds(client, database);
  const staged = await readTableIds(client, staging);
  const names = Object.keys(tables)
    .filter(isWanted)
    .sort((a, b) => Number(a === 'registry') - Number(b === 'registry'));
  for (const table of names) {
    // These only grow: of the suppressions the latest version stands.
    if (table === auditTable || table === suppressedNamesTable) {
      await addRowsOf(client, table, staging, database);
      continue;
    }
    if (inUse.get(table) === tables[table]) continue;
    if (staged.get(table) !== tables[table]) throw new BackupFailed('another restore has begun');
    await exchangeTable(client, table, staging, database);
    crash('table_exchanged');
  }
}

const keysTable = 'stored_keys';
const auditTable = 'audit_log';
/** Says which server it is, also if the others were not exchanged yet. */
const serverNumberTable = 'server_number';

/** Runs `work` when no round of deletions runs, and while none begins. */
async function withoutDeletions<Result>(
  { redis }: AdminContext,
  work: (isHeld: IsHeld) => Promise<Result>,
): Promise<Result> {
  const giveUpAt = performance.now() + backups.roundWaitMsMax;
  for (;;) {
    const done = await withFailedRowsLocked(redis, 'restore', async (isHeld) => ({
      result: await work(isHeld),
    }));
    if (done !== 'locked') return done.result;
    if (performance.now() > giveUpAt)
      throw new AdministrationError('a round of deletions still runs; try again when it has ended');
    await new Promise((resolve) => setTimeout(resolve, roundCheckEveryMs));
  }
}

const roundCheckEveryMs = 100;

/** Deletes from the restored tables the users whom requests have reached since the backup began, as far as that is known. */
async function deleteSince({ context, name, staging, restored }: Restore): Promise<RestoredBackup> {
  const { redis } = context;
  const { deployment, environments } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  const [home] = restored as readonly [ClickHouseClient, ...ClickHouseClient[]];
  const backup = await readOwnNote(home, name);
  // If Redis was emptied since, or the backup came from elsewhere, timestamps show which requests it lacks.
  const doneInBackup = await readCompleteIds(home);
  const knowsAll = backup !== undefined && (await keepsSince(redis, name, backup.began_at));
  const isInBackup = ({ deletion_request_id: id, completed_at }: DeletionRequest) =>
    doneInBackup.has(id) &&
    (backup === undefined ||
      Date.parse(completed_at ?? '') < Date.parse(backup.began_at) - backups.clockDifferenceMsMax);
  const known: DeletedRequest[] = [];
  const unknown: DeletionRequest[] = [];
  for await (const request of eachDeletion(redis)) {
    const hashes = await readDeletedUsers(redis, request.deletion_request_id);
    if (hashes !== undefined) known.push({ request, hashes });
    else if (!knowsAll && request.status === 'complete' && !isInBackup(request)) unknown.push(request);
  }
  let rows = 0;
  for (const clickhouse of restored) {
    const { shards } = deployment;
    const where = { redis, clickhouse, database: staging, shards, environments: [...environments.values()] };
    rows += await deleteAgain(where, known);
  }
  return {
    name,
    state: 'kept',
    deleted_again: { requests: known.length, rows },
    submit_again: unknown.map(
      ({ deletion_request_id, account_id, app_id, submitted_at, completed_at, targets }) => ({
        deletion_request_id,
        account_id,
        app_id,
        submitted_at,
        ...(completed_at === undefined ? {} : { completed_at }),
        targets,
      }),
    ),
  };
}

/** The entry of a backup in its own copy of the registry. A later entry of the same name may describe another backup. */
async function readOwnNote(home: ClickHouseClient, name: string): Promise<Backup | undefined> {
  const text = (await readMirror(home)).documents[backupsKey];
  return (JSON.parse(text ?? '[]') as Backup[]).find((backup) => backup.name === name);
}

async function readCompleteIds(home: ClickHouseClient): Promise<ReadonlySet<string>> {
  const result = await home.query({
    query: `SELECT request_id FROM deletion_requests GROUP BY request_id
      HAVING JSONExtractString(argMax(deletion_requests.document, deletion_requests.version), 'status') = 'complete'`,
    format: 'JSONEachRow',
  });
  return new Set((await result.json<{ request_id: string }>()).map(({ request_id: id }) => id));
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
async function resetDeletions({ redis }: AdminContext): Promise<void> {
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  for (const { requestId } of await readPendingMembers(redis, deployment.epoch)) {
    const request = await readDeletion(redis, requestId);
    if (request === undefined) continue;
    const { left: _, verified_at: __, verified_tables: ___, targets_kept: ____, ...rest } = request;
    try {
      await updateDeletion(redis, rest, { state: 'submitted', resolved: false, mutations: [] });
      await redis.sadd(registryKeys.unkeptDeletions, requestId);
    } catch (error) {
      // It is no longer pending: its targets are lost.
      if (!(error instanceof Overtaken)) throw error;
    }
  }
}

/** Copies all documents to ClickHouse: its restored copies are old. Names that only the backup has are removed. */
async function copyAll(context: AdminContext): Promise<void> {
  const { redis, clickhouse } = context;
  const ofBackup = Object.keys((await readMirror(clickhouse)).documents);
  const documents = [...new Set([...ofBackup, ...(await redis.hkeys(registryKeys.documents))])];
  for (const some of inParts(documents)) {
    await redis.sadd(registryKeys.unmirrored, ...some);
    await mirrorRegistry(redis, clickhouse);
  }
  for (const some of inParts(await redis.hkeys(registryKeys.deletions))) {
    await redis.sadd(registryKeys.unmirroredDeletions, ...some);
    await mirrorDeletions(redis, clickhouse);
  }
}

function* inParts(names: readonly string[]): Generator<readonly string[]> {
  for (let first = 0; first < names.length; first += stateLoads.documentsPerCallMax)
    yield names.slice(first, first + stateLoads.documentsPerCallMax);
}
