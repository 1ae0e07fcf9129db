// Retention: a few times a day one worker masks the expired rows of all environments, with one mutation per table. The passes for
// deletions erase them (erase.ts). Partitions in which everything has expired are dropped: otherwise their markers would stay, one
// for each segment ever stored. A run does not start during a round of deletions, a restore or a retry of failed rows. If a
// deletion round starts meanwhile, the run ends after its current statement. Each step may be repeated; an interrupted run is
// repeated as a whole. Accounts with pending deletion requests wait, without delaying other accounts.

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
import { recordTaken } from '../src/clickhouse/taken-records.js';
import { takeFences, untilStored } from '../src/privacy/deletion/fences.js';
import { untilNoRetryRuns, withMaintenanceLock } from '../src/privacy/deletion/maintenance-lock.js';
import { leaveOutStuck } from '../src/privacy/deletion/obstacles.js';
import { readDeletions, readPendingMembers } from '../src/privacy/deletion/request.js';
import { type UserTable, userTables } from '../src/privacy/deletion/user-tables.js';
import { recordDue } from '../src/privacy/retention/due.js';
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
import { readLoadedRegistry, readRegistry, readTime } from '../src/registry/registry.js';
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

/** Not every second, since each check reads the registry. */
export const retentionCheckedEveryMs = 60_000;

/** Call it periodically; it makes a run a few times a day. */
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
    await recordDue(redis);
    outcome = await expireRows(context, await earliestClock(context));
  } finally {
    if (outcome === 'done') await redis.del(registryKeys.retentionDue);
    else await redis.pexpire(registryKeys.retentionRun, retentionRuns.retryMs);
  }
}

/** A clock that is ahead must not delete what has not expired yet, so the slowest of all clocks counts. */
export async function earliestClock({
  redis,
  clickhouse,
}: Pick<RetentionContext, 'redis' | 'clickhouse'>): Promise<number> {
  const clocks = await Promise.all(serversOf(clickhouse).all.map(readClock));
  return Math.min(Date.now(), await readTime(redis), ...clocks.flatMap((ms) => ms ?? []));
}

/** A server's clock in milliseconds since 1970. Undefined if one of several servers is unreachable: nothing is deleted on it then. */
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

/** Why some rows are left for another run. */
type Reason =
  | 'deletions, a retry of failed rows or a restore have the tables'
  | 'a round of deletions took over'
  | 'a ClickHouse server is away, or a shard is being moved'
  | 'not everything that was accepted is stored'
  | 'the retention of environments was changed'
  | 'deletion requests are pending';

function postpone({ log }: RetentionContext, reason: Reason, more: object = {}): 'busy' {
  log.info({ ...more, reason }, 'some expired rows have to wait for another run');
  return 'busy';
}

/** Deletes what has expired at a given time. Settles with `busy` if some rows are left for another run; the log says why. */
export async function expireRows(context: RetentionContext, nowMs: number): Promise<'done' | 'busy'> {
  const { redis } = context;
  const { environments } = await readLoadedRegistry(redis);
  const retaining = [...environments.values()].filter(({ retain_days: days }) => days !== undefined);
  if (retaining.length === 0) return 'done';
  const done = await withMaintenanceLock(redis, 'retention', async ({ isHeld }) => {
    await assertCurrent(redis, context.clickhouse);
    const fences = await takeFences(context);
    const outcomes: ('done' | 'busy')[] = [];
    const errors: unknown[] = [];
    for (const part of await partsOf(context, retaining)) {
      if (part === 'away') {
        outcomes.push(postpone(context, 'a ClickHouse server is away, or a shard is being moved'));
        continue;
      }
      const run = { ...context, primary: context.clickhouse, clickhouse: part.client, isHeld };
      const outcome = expireOn(run, part, nowMs, fences).catch(async (error: unknown): Promise<'busy'> => {
        // A round has taken over and dropped the run's tables.
        if (!(await isHeld())) return postpone(context, 'a round of deletions took over');
        // A server that fails holds up no other.
        errors.push(error);
        await leaveOutStuck(context, error);
        return 'busy';
      });
      outcomes.push(await outcome);
    }
    if (errors.length > 0) throw errors[0];
    return outcomes.includes('busy') ? 'busy' : 'done';
  });
  if (done !== 'locked') return done;
  return postpone(context, 'deletions, a retry of failed rows or a restore have the tables');
}

/** On one server, until another worker takes over. */
type Run = RetentionContext & Pick<Lease, 'isHeld'> & { readonly primary: ClickHouseClient };

type Part = {
  readonly client: ClickHouseClient;
  readonly environments: readonly Environment[];
  /** The shards that the server has when the run begins. */
  readonly ownShards: ReadonlySet<number>;
};

/** The environments by the server that has their rows; `away` if it is unreachable or unknown, or their shard is being moved. */
async function partsOf(
  { redis, clickhouse, shards }: RetentionContext,
  environments: readonly Environment[],
): Promise<(Part | 'away')[]> {
  const servers = serversOf(clickhouse);
  const numbers = Array.from({ length: shards }, (_, shard) => shard);
  await refreshShardTable(redis, servers);
  const reachable = await reachableServers(servers);
  const parts: (Part | 'away')[] = [];
  for (const [number, client] of servers.all.entries()) {
    const ownShards = new Set(
      numbers.filter((shard) => servers.numberOf(shard) === number && !servers.isMoving(shard)),
    );
    const here = environments.filter(({ app_id }) => ownShards.has(shardOf(app_id, shards)));
    if (here.length > 0)
      parts.push(reachable.has(number) ? { client, environments: here, ownShards } : 'away');
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
  // A user with an event that was accepted but is not stored yet has not expired.
  if (!(await untilStored(context, fences, ownShards, storedTimes)))
    return postpone(context, 'not everything that was accepted is stored');
  await endRuns(clickhouse);
  await untilNoRetryRuns(clickhouse);
  const users = await findExpiredUsers(
    clickhouse,
    retainedOf(environments, nowMs),
    randomBytes(6).toString('hex'),
  );
  crash('expired_users_found');
  const daysOf = new Map(environments.map(({ app_id, retain_days: days }) => [app_id, days]));
  // An account that waits for one table waits for all later ones: the table that identifies users comes last.
  const waiting = new Set<string>();
  // Environments whose retention was changed since the run began: what expired by the former one may be wanted now. A change during the
  // work on a table counts from the next table: to stop at this one would leave it, for all others, behind those that identify its users.
  const changed = new Set<string>();
  for (const table of userTables) {
    const { pending, counted } = await accountsThatDelete(context);
    for (const { account_id } of environments) if (pending.has(account_id)) waiting.add(account_id);
    const { environments: present } = await readLoadedRegistry(context.redis);
    for (const { app_id, retain_days: days } of environments)
      if (present.get(app_id)?.retain_days !== days) changed.add(app_id);
    const heldUp = table === events ? counted : waiting;
    const retained = retainedOf(
      environments.filter(({ app_id, account_id }) => !changed.has(app_id) && !heldUp.has(account_id)),
      nowMs,
    );
    if (retained.length === 0) continue;
    const rows = await expireTable(context, table, retained, users, fences);
    for (const [appId, count] of rows)
      log.info(
        { environment: appId, retainDays: daysOf.get(appId), table, rows: count },
        'expired rows were deleted',
      );
  }
  await endRuns(clickhouse);
  if (!(await isHeld())) return postpone(context, 'a round of deletions took over');
  if (changed.size > 0)
    return postpone(context, 'the retention of environments was changed', { environments: [...changed] });
  if (waiting.size === 0) return 'done';
  return postpone(context, 'deletion requests are pending', { accounts: [...waiting] });
}

/**
 * The accounts with pending requests, and those with a request whose rows were counted. A pending request deletes the users as merged
 * when it was submitted, so what identifies and describes users has to stay. Counted rows must be deleted by the request itself, since
 * its certificate states their number. Call it after the users were found, and before each table: a request that is submitted later
 * does not include users who return while the table's rows are removed.
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

const events = storedTable('events');
const identifications = storedTable('user_identities');

/** Deletes the expired rows of a table. Settles with their number by environment. */
async function expireTable(
  context: Run,
  table: UserTable,
  retained: readonly Retained[],
  users: ExpiredUsers,
  fences: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const { clickhouse, crash, isHeld } = context;
  const predicate = expiredPredicate(table, retained, users);
  const rows = await countExpired(clickhouse, table, predicate);
  if (rows.size === 0) return rows;
  if (!(await isHeld())) return new Map();
  // All events that were accepted before a time expire: the ledger needs only that time, not a list of them.
  if (table === events) await writeExpired(context.primary, retained);
  // A DROP that arrives late is not stopped by the loss of the run's tables, as a mutation is. So it could remove identifications that a
  // later deletion needs.
  if (table !== 'failed_events' && table !== identifications)
    await dropWholePartitions(context, table, predicate, fences);
  const left = await countExpired(clickhouse, table, predicate);
  if (left.size === 0) return rows;
  // A repeat of a deleted record must stay out, and from now on only the index identifies it.
  await indexKeysOf(clickhouse, table, predicate);
  if (table !== events) await recordTaken(clickhouse, table, predicate, 'expired');
  crash('expired_keys_kept');
  if (!(await isHeld())) return subtract(rows, left);
  await maskRows(clickhouse, table, { condition: predicate, mark: users.mark });
  crash('place_expired');
  return rows;
}

/** Writes into the ledger up to which minute events of these environments have expired. */
function writeExpired(primary: ClickHouseClient, retained: readonly Retained[]): Promise<void> {
  const row = { kind: 'events', term: 'expired_to', detail: '', records: 1 };
  return writeLedger(
    primary,
    retained.flatMap(({ appIds, cutoffMs }) =>
      appIds.map((app_id) => ({ ...row, app_id, minute: Math.floor(cutoffMs / 60_000) + aheadMinutes })),
    ),
  );
}

/** A segment's number may be later than the acceptance of its records: numbers are skipped after a loss or take-over of Redis. */
const aheadMinutes = 10;

function subtract(
  rows: ReadonlyMap<string, number>,
  left: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  return new Map(
    [...rows]
      .map(([appId, count]) => [appId, count - (left.get(appId) ?? 0)] as const)
      .filter(([, count]) => count > 0),
  );
}

function lowestOf(fences: readonly string[]): string {
  return fences.reduce((lowest, fence) => (BigInt(fence) < BigInt(lowest) ? fence : lowest));
}

/**
 * Drops the partitions in which only markers would be left. That also erases the tokens of their segments, so ClickHouse first gets a
 * constraint that refuses these segments: otherwise a worker that was paused could bring the rows back.
 */
async function dropWholePartitions(
  { clickhouse, crash, log, isHeld }: Run,
  table: UserTable,
  predicate: string,
  fences: readonly string[],
): Promise<void> {
  const find = () => findWholePartitions(clickhouse, table, predicate, lowestOf(fences));
  if ((await find()).length === 0) return;
  for (const [shard, fence] of fences.entries()) await refuseSegments(clickhouse, shard, fence);
  // The constraint does not stop inserts that are already running.
  if (!(await untilTrue(async () => !(await isInsertRunning(clickhouse)), storedTimes))) return;
  for (const partition of await find()) {
    await indexKeysOf(clickhouse, table, inPartition(partition));
    if (table !== events) await recordTaken(clickhouse, table, inPartition(partition), 'expired');
    crash('expired_keys_kept');
    if (!(await isHeld())) return;
    await dropPartition(clickhouse, table, partition);
    crash('partition_dropped');
    log.info({ table, partition }, 'an expired partition was dropped');
  }
}
