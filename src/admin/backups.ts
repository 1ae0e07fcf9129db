// Backups of ClickHouse: making them, and restoring one while everything runs. A restore prepares the backup in a database
// beside the one in use: brings its schema up to date, and deletes again whom requests have deleted since. Then it
// exchanges the tables, each in one step. While it does that no round of deletions runs. What Redis knows stands: accounts,
// keys, requests. Killed at any point, it goes on when it is called again.

import { AdministrationError } from '../accounts/accounts.js';
import { forgetBackup, noteBackup, readBackups } from '../accounts/backups.js';
import type { Backup } from '../accounts/documents.js';
import { mirrorRegistry, readMirror } from '../accounts/mirror.js';
import { readRegistry, StateNotLoaded } from '../accounts/registry.js';
import {
  addRowsOf,
  BackupFailed,
  backupStates,
  dropDatabase,
  exchangeTable,
  makeBackup,
  readTableIds,
  restoreInto,
  unkeptTables,
  untilNoRestoreRuns,
} from '../clickhouse/backups.js';
import { type ClickHouseClient, connectClickHouse, tablesOf } from '../clickhouse/client.js';
import { migrate } from '../clickhouse/migrate.js';
import { refuseSegments } from '../clickhouse/store.js';
import { backups, loads } from '../contract/limits.js';
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
import type { AdminContext } from './context.js';

export type BackupView = Backup & { readonly status: 'running' | 'complete' | 'unknown' };

export type CreateOptions = {
  readonly name?: string | undefined;
  /** A backup of which the new one holds only what has changed. */
  readonly base?: string | undefined;
  readonly keepDays?: number | undefined;
};

/** Makes a backup; settles when it is on the disk. It is noted first, so that no deletion completes unnoticed meanwhile. */
export async function createBackup(context: AdminContext, options: CreateOptions): Promise<BackupView> {
  const { redis, clickhouse, config } = context;
  onlyServerOf(config);
  const began = new Date();
  const { base, keepDays = backups.keepDays } = options;
  const name = checkName(options.name ?? began.toISOString().replaceAll(/[-:]|\.\d+/g, ''));
  if (base !== undefined) checkName(base);
  if (!(keepDays >= 1 && keepDays <= backups.keepDaysMax))
    throw new AdministrationError(`a backup is kept for 1 to ${backups.keepDaysMax} days`);
  const keepMs = keepDays * 24 * 60 * 60_000;
  const known = await readBackups(redis);
  if (known.some((backup) => backup.name === name))
    throw new AdministrationError(`there is a backup ${name}`);
  const backup: Backup = {
    name,
    began_at: began.toISOString(),
    keep_until: new Date(began.getTime() + keepMs).toISOString(),
  };
  await noteBackup(redis, backup);
  // From here on workers keep the hashes of whom they delete.
  await redis.set(registryKeys.deletedUsersSince(name), '1', 'PX', keepMs);
  try {
    await mirrorRegistry(redis, clickhouse);
    await mirrorDeletions(redis, clickhouse);
    const bytes = await makeBackup(clickhouse, config.clickhouseDatabase, name, base);
    const made = { ...backup, ended_at: new Date().toISOString(), bytes };
    await noteBackup(redis, made);
    return { ...made, status: 'complete' };
  } catch (error) {
    if (!(error instanceof BackupFailed)) throw error;
    await forgetBackup(redis, name);
    throw new AdministrationError(`the backup failed: ${error.message}`);
  }
}

/** A backup of one server of several would restore a deployment that never was: its shards at different times. */
function onlyServerOf({ clickhouseUrls: [url = '', ...others] }: AdminContext['config']): string {
  if (others.length > 0)
    throw new AdministrationError(
      'with several ClickHouse servers Sluice makes and restores no backups: see the runbook, "Several ClickHouse servers"',
    );
  return url;
}

/** The backups that are kept still. Of one whose `create` was cut off ClickHouse knows the rest, until it is restarted. */
export async function listBackups({ redis, clickhouse }: AdminContext): Promise<BackupView[]> {
  const [noted, states] = [await readBackups(redis), await backupStates(clickhouse)];
  return noted.map((backup) => {
    const isComplete = backup.ended_at !== undefined || states.get(backup.name) === 'BACKUP_CREATED';
    const isRunning = states.get(backup.name) === 'CREATING_BACKUP';
    return { ...backup, status: isComplete ? 'complete' : isRunning ? 'running' : 'unknown' };
  });
}

export type RestoredBackup = {
  readonly name: string;
  /** `kept`: accounts, keys and requests are those of Redis. `restored`: Redis was empty, they are those of the backup. */
  readonly state: 'kept' | 'restored';
  /** Requests that were carried out again, and the rows that they took. */
  readonly deleted_again: { readonly requests: number; readonly rows: number };
  /** Requests whose users nobody knows any more, so that their callers have to submit them again. */
  readonly submit_again: readonly Pick<
    DeletionRequest,
    'deletion_request_id' | 'account_id' | 'app_id' | 'submitted_at' | 'completed_at' | 'targets'
  >[];
};

/** What a restore notes in Redis before it exchanges the first table. */
type Plan = {
  readonly name: string;
  /** The ids of the restored tables. */
  readonly tables: Readonly<Record<string, string>>;
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
  const staging = stagingOf(config.clickhouseDatabase);
  const restored = connectClickHouse({ url: onlyServerOf(config), database: staging, ...tablesOf(config) });
  const crash = createCrashPoint(config.crashAt);
  try {
    return await restoreInSteps({ context, name, staging, restored, crash }, load);
  } catch (error) {
    if (error instanceof BackupFailed) throw new AdministrationError(`the restore failed: ${error.message}`);
    throw error;
  } finally {
    await restored.close();
  }
}

type Restore = {
  readonly context: AdminContext;
  readonly name: string;
  /** The database beside the one in use, and a connection to it. */
  readonly staging: string;
  readonly restored: ClickHouseClient;
  readonly crash: CrashPoint;
};

async function restoreInSteps(restore: Restore, load: () => Promise<unknown>): Promise<RestoredBackup> {
  const { context, name, staging, crash } = restore;
  const { redis, clickhouse, config } = context;
  const database = config.clickhouseDatabase;
  const schema = { url: onlyServerOf(config), ...tablesOf(config) };
  // There may be no database any more.
  await migrate({ ...schema, database });
  const isLoaded = async () => (await redis.exists(registryKeys.epoch)) === 1;
  if (!(await isLoaded()) && Object.keys((await readMirror(clickhouse)).documents).length > 0) await load();
  const begun = await readPlan(context);
  if (begun !== undefined && begun.name !== name) {
    throw new AdministrationError(`the restore of ${begun.name} was cut off: run it again first`);
  }
  const inUse = await readTableIds(clickhouse, database);
  const goesOn =
    begun !== undefined && Object.entries(begun.tables).some(([table, id]) => inUse.get(table) === id);
  if (!goesOn) {
    await untilNoRestoreRuns(clickhouse);
    await dropDatabase(clickhouse, staging);
    await restoreInto(clickhouse, database, name, staging);
    await migrate({ ...schema, database: staging });
    // The backup may have been made while a run of retention removed identifications.
    await undoRuns(restore.restored);
  }
  crash('backup_staged');
  const wasLoaded = await isLoaded();
  const result = await withoutDeletions(context, async (isHeld) => {
    crash('rounds_stopped');
    const plan = goesOn ? begun : await prepare(restore, wasLoaded, isHeld);
    crash('users_deleted_again');
    await exchangeTables(restore, plan);
    if (wasLoaded) {
      await resetDeletions(context);
      crash('deletions_reset');
      await copyAll(context);
      crash('copies_rewritten');
    }
    await redis.del(registryKeys.restoringBackup);
    return plan.result;
  });
  if (!wasLoaded) await load();
  await dropDatabase(clickhouse, staging);
  return result;
}

function stagingOf(database: string): string {
  return `${database}_restore`;
}

async function readPlan({ redis }: AdminContext): Promise<Plan | undefined> {
  const text = await redis.get(registryKeys.restoringBackup);
  return text === null ? undefined : (JSON.parse(text) as Plan);
}

/** Makes the restored tables ready to take the place of those in use. From the plan on no round of deletions begins. */
async function prepare(restore: Restore, isLoaded: boolean, isHeld: IsHeld): Promise<Plan> {
  const { context, name, staging, restored } = restore;
  const result = isLoaded
    ? await deleteSince(restore)
    : { name, state: 'restored' as const, deleted_again: { requests: 0, rows: 0 }, submit_again: [] };
  const tables = [...(await readTableIds(restored, staging))].filter(
    ([table]) => !unkeptTables.includes(table),
  );
  const plan: Plan = { name, tables: Object.fromEntries(tables), result };
  // A round that began meanwhile may have completed requests which are not deleted again.
  if (!(await isHeld())) throw new BackupFailed('it stood still for too long: run it again');
  await context.redis.set(registryKeys.restoringBackup, JSON.stringify(plan));
  return plan;
}

/** Exchanges the tables that are not exchanged yet. The registry comes last: an emptied Redis is loaded from it. */
async function exchangeTables({ context, staging, crash }: Restore, plan: Plan): Promise<void> {
  const { clickhouse, config } = context;
  const inUse = await readTableIds(clickhouse, config.clickhouseDatabase);
  const staged = await readTableIds(clickhouse, staging);
  const names = Object.keys(plan.tables).sort((a, b) => Number(a === 'registry') - Number(b === 'registry'));
  for (const table of names) {
    // These only grow: of the suppressions the latest version stands.
    if (table === auditTable || table === suppressedNamesTable) {
      await addRowsOf(clickhouse, table, staging, config.clickhouseDatabase);
      continue;
    }
    if (inUse.get(table) === plan.tables[table]) continue;
    if (staged.get(table) !== plan.tables[table]) throw new BackupFailed('another restore has begun');
    await exchangeTable(clickhouse, table, staging, config.clickhouseDatabase);
    crash('table_exchanged');
  }
}

const auditTable = 'audit_log';

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

/** Deletes from the restored tables whom requests have reached since the backup began, as far as that is known. */
async function deleteSince({ context, name, staging, restored }: Restore): Promise<RestoredBackup> {
  const { redis } = context;
  const { deployment, environments } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  const backup = (await readBackups(redis)).find((each) => each.name === name);
  // If Redis was emptied since, or the backup is a stranger, times have to tell which requests it lacks.
  const doneInBackup = await readCompleteIds(restored);
  const knowsAll = (await redis.exists(registryKeys.deletedUsersSince(name))) === 1;
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
  const rows = await deleteAgain(
    {
      redis,
      clickhouse: restored,
      database: staging,
      shards: deployment.shards,
      environments: [...environments.values()],
    },
    known,
  );
  // A worker may have read a segment that another one has stored since, and whose users are deleted by now. The restored
  // tables do not know its token, so they refuse it unless Redis has it still.
  for (let shard = 0; shard < deployment.shards; shard++) {
    const last = await runScript(redis, scripts.fence, [shardKeys.state(shard)], [deployment.epoch]);
    if (last === null) throw new StateNotLoaded();
    await refuseSegments(restored, shard, String(last));
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

async function readCompleteIds(restored: ClickHouseClient): Promise<ReadonlySet<string>> {
  const result = await restored.query({
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
 * Has the pending requests begin anew: the restored tables lack what they had found out, and have rows that they had
 * deleted. What was found before any was deleted stays, as the evidence.
 */
async function resetDeletions({ redis }: AdminContext): Promise<void> {
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  for (const { requestId } of await readPendingMembers(redis, deployment.epoch)) {
    const request = await readDeletion(redis, requestId);
    if (request === undefined) continue;
    const { left: _, verified_at: __, verified_tables: ___, targets_kept: ____, ...anew } = request;
    try {
      await updateDeletion(redis, anew, { state: 'submitted', resolved: false, mutations: [] });
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
  for (let first = 0; first < names.length; first += loads.documentsPerCallMax)
    yield names.slice(first, first + loads.documentsPerCallMax);
}

function checkName(name: string): string {
  if (!/^[\w-]+$/.test(name) || name.length > backups.nameCharactersMax) {
    throw new AdministrationError(
      `the name of a backup is up to ${backups.nameCharactersMax} letters, digits, dashes and underscores`,
    );
  }
  return name;
}
