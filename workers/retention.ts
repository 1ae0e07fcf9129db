// Retention: a few times a day one worker masks expired rows, in all environments together, with one mutation per table. The passes
// for deletions erase them (erase.ts). It drops whole partitions if everything in them has expired: their markers would stay, one for
// each segment there has ever been. It does not begin beside a round of deletions, a restore or a retry of
// failed rows. If a round begins meanwhile, it ends with the statement that runs. Each step may be repeated; a run that is cut
// off is repeated as a whole. Accounts with pending deletion requests wait, without delaying other accounts.

import { randomBytes } from 'node:crypto';
import { readRow } from '../src/clickhouse/answers.js';
import type { ClickHouseClient } from '../src/clickhouse/client.js';
import { indexKeysOf } from '../src/clickhouse/key-index.js';
import { writeLedger } from '../src/clickhouse/ledger-table.js';
import { maskRows } from '../src/clickhouse/masks.js';
import { reachableServers, serversOf } from '../src/clickhouse/servers.js';
import { refuseSegments } from '../src/clickhouse/shard-limits.js';
import { isInsertRunning } from '../src/clickhouse/store.js';
import { storedTable } from '../src/clickhouse/tables.js';
import { noteTaken } from '../src/clickhouse/taken-records.js';
import { takeFences, untilStored } from '../src/privacy/deletion/fences.js';
import { untilNoRetryRuns, withMaintenanceLock } from '../src/privacy/deletion/maintenance-lock.js';
import { readDeletions, readPendingMembers } from '../src/privacy/deletion/request.js';
import { type UserTable, userTables } from '../src/privacy/deletion/user-tables.js';
import { noteDue } from '../src/privacy/retention/due.js';
import {
  countExpired,
  dropPartition,
  type ExpiredUsers,
  endRuns,
  expiredPredicate,
  findExpiredUsers,
  findWholePartitions,
  inPartition,
  type Retained,
  retainedOf,
} from '../src/privacy/retention/expired-rows.js';
import { registryKeys, shardOf } from '../src/redis/keys.js';
import { type Lease, takeTurn } from '../src/redis/lease.js';
import type { Environment } from '../src/registry/documents.js';
import { readLoadedRegistry, readRegistry } from '../src/registry/registry.js';
import { refreshShardTable } from '../src/registry/shard-servers.js';
import { assertCurrent } from '../src/registry/witness.js';
import { retentionRuns } from '../src/tuning.js';
import { untilTrue } from '../src/wait.js';
import type { WorkerContext } from './context.js';

export type RetentionContext = Pick<
  WorkerContext,
  'redis' | 'clickhouse' | 'config' | 'shards' | 'epoch' | 'crash' | 'log'
>;

const storedTimes = { msMax: retentionRuns.storedMsMax };

/** Reading the registry is too much for every second. */
export const retentionCheckedEveryMs = 60_000;

/** To be called again and again; makes a run a few times a day. */
export async function expireRowsIfDue(context: RetentionContext): Promise<void> {
  const { redis } = context;
  const { environments } = await readRegistry(redis);
  if ([...environments.values()].every(({ retain_days: days }) => days === undefined)) {
    await redis.del(registryKeys.retentionDue);
    return;
  }
  if (!(await takeTurn(redis, registryKeys.retentionRun, retentionRuns.everyMs))) return;
  let outcome: 'done' | 'busy' | 'failed' = 'failed';
  try {
    await noteDue(redis);
    outcome = await expireRows(context, await earliestClock(context));
  } finally {
    if (outcome === 'done') await redis.del(registryKeys.retentionDue);
    else await redis.pexpire(registryKeys.retentionRun, retentionRuns.retryMs);
  }
}

/** A clock that is ahead must not delete what is not over yet, so the slower of the two clocks counts. */
export async function earliestClock({
  redis,
  clickhouse,
}: Pick<RetentionContext, 'redis' | 'clickhouse'>): Promise<number> {
  const [seconds] = (await redis.time()) as (string | number)[];
  const clocks = await Promise.all(serversOf(clickhouse).all.map(readClock));
  return Math.min(Date.now(), Number(seconds) * 1000, ...clocks.flatMap((ms) => ms ?? []));
}

/** Undefined if a server of several is away, from which nothing is deleted then. */
async function readClock(clickhouse: ClickHouseClient, _: number, all: readonly unknown[]) {
  try {
    const { now } = await readRow<{ now: number }>(clickhouse, {
      query: 'SELECT toUnixTimestamp(now()) AS now',
    });
    return Number(now) * 1000;
  } catch (error) {
    if (all.length === 1) throw error;
    return undefined;
  }
}

/** Why something is left for another run. */
type Reason =
  | 'deletions, a retry of failed rows or a restore have the tables'
  | 'a round of deletions took over'
  | 'a backup is being restored'
  | 'a ClickHouse server is away, or a shard is being moved'
  | 'not everything that was accepted is stored'
  | 'deletion requests are pending';

function waits({ log }: RetentionContext, reason: Reason, more: object = {}): 'busy' {
  log.info({ ...more, reason }, 'some expired rows have to wait for another run');
  return 'busy';
}

/**
 * Deletes what has expired at a given time. Settles with `busy` if something is left for another run; the log says why.
 */
export async function expireRows(context: RetentionContext, nowMs: number): Promise<'done' | 'busy'> {
  const { redis } = context;
  const { environments } = await readLoadedRegistry(redis);
  const retaining = [...environments.values()].filter(({ retain_days: days }) => days !== undefined);
  if (retaining.length === 0) return 'done';
  const done = await withMaintenanceLock(redis, 'retention', async ({ isHeld }) => {
    if ((await redis.exists(registryKeys.restoringBackup)) === 1)
      return waits(context, 'a backup is being restored');
    await assertCurrent(redis, context.clickhouse);
    const fences = await takeFences(context);
    const ofServers: ('done' | 'busy')[] = [];
    for (const part of await partsOf(context, retaining)) {
      if (part === 'away')
        ofServers.push(waits(context, 'a ClickHouse server is away, or a shard is being moved'));
      else
        ofServers.push(
          await expireOn(
            { ...context, home: context.clickhouse, clickhouse: part.client, isHeld },
            part,
            nowMs,
            fences,
          ).catch(async (error: unknown): Promise<'busy'> => {
            // A round has taken over and dropped the run's tables.
            if (!(await isHeld())) return waits(context, 'a round of deletions took over');
            throw error;
          }),
        );
    }
    return ofServers.includes('busy') ? 'busy' : 'done';
  });
  if (done !== 'locked') return done;
  return waits(context, 'deletions, a retry of failed rows or a restore have the tables');
}

/** On one server, until another worker takes over. */
type Run = RetentionContext & Pick<Lease, 'isHeld'> & { readonly home: ClickHouseClient };

/** The environments of one server. */
type Part = {
  readonly client: ClickHouseClient;
  readonly environments: readonly Environment[];
  /** The shards that are there when the run begins. */
  readonly ownShards: ReadonlySet<number>;
};

/** The environments by the server that has their rows; `away` if it does not answer, is not named, or their shard moves. */
async function partsOf(
  { redis, clickhouse, shards }: RetentionContext,
  environments: readonly Environment[],
): Promise<(Part | 'away')[]> {
  const servers = serversOf(clickhouse);
  const numbers = Array.from({ length: shards }, (_, shard) => shard);
  await refreshShardTable(redis, servers);
  const there = await reachableServers(servers);
  const parts: (Part | 'away')[] = [];
  for (const [number, client] of servers.all.entries()) {
    const ownShards = new Set(
      numbers.filter((shard) => servers.numberOf(shard) === number && !servers.isMoving(shard)),
    );
    const here = environments.filter(({ app_id }) => ownShards.has(shardOf(app_id, shards)));
    if (here.length > 0) parts.push(there.has(number) ? { client, environments: here, ownShards } : 'away');
  }
  if (numbers.some((shard) => servers.isMoving(shard) || !servers.isNamed(shard))) parts.push('away');
  return parts;
}

/** Deletes what has expired on one server, to which the context is connected. */
async function expireOn(
  context: Run,
  { environments, ownShards }: Part,
  nowMs: number,
  fences: readonly string[],
): Promise<'done' | 'busy'> {
  const { clickhouse, crash, log, isHeld } = context;
  // An event that was accepted and is not stored yet keeps its user.
  if (!(await untilStored(context, fences, ownShards, storedTimes)))
    return waits(context, 'not everything that was accepted is stored');
  await endRuns(clickhouse);
  await untilNoRetryRuns(clickhouse);
  const users = await findExpiredUsers(
    clickhouse,
    retainedOf(environments, nowMs),
    randomBytes(6).toString('hex'),
  );
  crash('expired_users_found');
  const daysOf = new Map(environments.map(({ app_id, retain_days: days }) => [app_id, days]));
  // Whoever has to wait for one table waits for all that follow: what identifies a user goes last.
  const waiting = new Set<string>();
  for (const place of userTables) {
    const { pending, counted } = await accountsThatDelete(context);
    for (const { account_id } of environments) if (pending.has(account_id)) waiting.add(account_id);
    const heldUp = place === events ? counted : waiting;
    const retained = retainedOf(
      environments.filter(({ account_id }) => !heldUp.has(account_id)),
      nowMs,
    );
    if (retained.length === 0) continue;
    const rows = await expirePlace(context, { place, retained, users, fences });
    for (const [appId, count] of rows)
      log.info(
        { environment: appId, retainDays: daysOf.get(appId), table: place, rows: count },
        'expired rows were deleted',
      );
  }
  await endRuns(clickhouse);
  if (!(await isHeld())) return waits(context, 'a round of deletions took over');
  if (waiting.size === 0) return 'done';
  return waits(context, 'deletion requests are pending', { accounts: [...waiting] });
}

/**
 * The accounts with pending requests, and those with a request whose rows were counted. A pending request reaches the users who
 * were merged when it was submitted, so what identifies and describes users has to stay. What is counted has to be deleted by
 * the request itself, since its certificate says so. To be called after the users were found, and before each table: a request that is
 * submitted later does not reach who returns while the table's rows are removed.
 */
async function accountsThatDelete({ redis, epoch }: RetentionContext) {
  const members = await readPendingMembers(redis, epoch);
  const requests = await readDeletions(
    redis,
    members.map(({ requestId }) => requestId),
  );
  const counted = requests.filter(
    ({ found, verified_at }) => found !== undefined && verified_at === undefined,
  );
  return {
    pending: new Set(members.map(({ accountId }) => accountId)),
    counted: new Set(counted.map(({ account_id }) => account_id)),
  };
}

/** What a run deletes from one table. */
type Step = {
  readonly place: UserTable;
  readonly retained: readonly Retained[];
  readonly users: ExpiredUsers;
  readonly fences: readonly string[];
};

const events = storedTable('events');
const identifications = storedTable('user_identities');

/** Deletes the expired rows of a table. Settles with their number by environment. */
async function expirePlace(
  context: Run,
  { place, retained, users, fences }: Step,
): Promise<ReadonlyMap<string, number>> {
  const { clickhouse, crash, isHeld } = context;
  const predicate = expiredPredicate(place, retained, users);
  const rows = await countExpired(clickhouse, place, predicate);
  if (rows.size === 0) return rows;
  if (!(await isHeld())) return new Map();
  // Of events all go that were accepted before a time: that time says as much as a list of them.
  if (place === events) await writeExpired(context.home, retained);
  // A late DROP names no table of the run, so it would take identifications that a later deletion needs.
  if (place !== 'failed_events' && place !== identifications)
    await dropWholePartitions(context, place, predicate, fences);
  const left = await countExpired(clickhouse, place, predicate);
  if (left.size === 0) return rows;
  // A repeat of what is deleted must stay out, but after this its row no longer shows that it is one.
  await indexKeysOf(clickhouse, place, predicate);
  if (place !== events) await noteTaken(clickhouse, place, predicate, 'expired');
  crash('expired_keys_kept');
  if (!(await isHeld())) return without(rows, left);
  await maskRows(clickhouse, place, predicate, users.mark);
  crash('place_expired');
  return rows;
}

/** Writes into the ledger from when on events of these environments are there. */
function writeExpired(home: ClickHouseClient, retained: readonly Retained[]): Promise<void> {
  const row = { kind: 'events', term: 'expired_to', detail: '', records: 1 };
  return writeLedger(
    home,
    retained.flatMap(({ appIds, cutoffMs }) =>
      appIds.map((app_id) => ({ ...row, app_id, minute: Math.floor(cutoffMs / 60_000) + aheadMinutes })),
    ),
  );
}

/** A segment's number may be ahead of when its records were accepted: after a loss or take-over of Redis numbers are skipped. */
const aheadMinutes = 10;

function without(
  rows: ReadonlyMap<string, number>,
  left: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  return new Map(
    [...rows]
      .map(([appId, count]) => [appId, count - (left.get(appId) ?? 0)] as const)
      .filter(([, n]) => n > 0),
  );
}

function least(fences: readonly string[]): string {
  return fences.reduce((lowest, fence) => (BigInt(fence) < BigInt(lowest) ? fence : lowest));
}

/**
 * Drops the partitions in which only markers would be left. That erases the tokens of their segments. So ClickHouse first gets
 * a constraint that refuses these segments: a worker that was paused must not bring the rows back.
 */
async function dropWholePartitions(
  { clickhouse, crash, log, isHeld }: Run,
  place: UserTable,
  predicate: string,
  fences: readonly string[],
): Promise<void> {
  const find = () => findWholePartitions(clickhouse, place, predicate, least(fences));
  if ((await find()).length === 0) return;
  for (const [shard, fence] of fences.entries()) await refuseSegments(clickhouse, shard, fence);
  // ClickHouse does not refuse inserts that it had begun before.
  if (!(await untilTrue(async () => !(await isInsertRunning(clickhouse)), storedTimes))) return;
  for (const partition of await find()) {
    await indexKeysOf(clickhouse, place, inPartition(partition));
    if (place !== events) await noteTaken(clickhouse, place, inPartition(partition), 'expired');
    crash('expired_keys_kept');
    if (!(await isHeld())) return;
    await dropPartition(clickhouse, place, partition);
    crash('partition_dropped');
    log.info({ table: place, partition }, 'an expired partition was dropped');
  }
}
