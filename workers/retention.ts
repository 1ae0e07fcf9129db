// Retention: a few times a day one worker deletes what is over, in all environments together. It takes one mutation per table,
// or drops whole partitions if everything in them is over. It does not begin beside a round of deletions, a restore or a retry of
// failed rows. If a round begins meanwhile, it ends with the statement that runs. Each step may be repeated; a run that is cut
// off is repeated as a whole.

import { randomBytes } from 'node:crypto';
import type { Environment } from '../src/accounts/documents.js';
import { readRegistry, StateNotLoaded } from '../src/accounts/registry.js';
import { refreshShardTable } from '../src/accounts/shard-servers.js';
import type { ClickHouseClient } from '../src/clickhouse/client.js';
import { keepKeysOf } from '../src/clickhouse/key-index.js';
import { deleteRows } from '../src/clickhouse/mutate.js';
import { serversOf, serversThere } from '../src/clickhouse/servers.js';
import { isInsertRunning, refuseSegments } from '../src/clickhouse/store.js';
import { storedTable } from '../src/clickhouse/tables.js';
import { type IsHeld, untilNoRetryRuns, withFailedRowsLocked } from '../src/deletion/failed-rows-lock.js';
import { readOldestOutstanding } from '../src/deletion/outstanding.js';
import { type Place, placesInOrder } from '../src/deletion/places.js';
import { registryKeys, shardKeys, shardOf } from '../src/redis/keys.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { takeTurn } from '../src/redis/turn.js';
import {
  countExpired,
  dropPartition,
  type ExpiredUsers,
  expiredPredicate,
  findExpiredUsers,
  findWholePartitions,
  inPartition,
  type Retained,
  retainedOf,
} from '../src/retention/expired-rows.js';
import {
  copyIdentifications,
  letCopyCount,
  returnUsers,
  undoRuns,
} from '../src/retention/removed-identifications.js';
import { retentionRuns } from '../src/tuning.js';
import type { WorkerContext } from './context.js';

export type RetentionContext = Pick<
  WorkerContext,
  'redis' | 'clickhouse' | 'config' | 'shards' | 'epoch' | 'crash' | 'log'
>;

/** Reading the registry is too much for every second. */
export const retentionCheckedEveryMs = 60_000;

/** To be called again and again; makes a run a few times a day. */
export async function expireRowsIfDue(context: RetentionContext): Promise<void> {
  const { redis } = context;
  const { environments } = await readRegistry(redis);
  if ([...environments.values()].every(({ retain_days: days }) => days === undefined)) return;
  if (!(await takeTurn(redis, registryKeys.retentionRun, retentionRuns.everyMs))) return;
  const done = await expireRows(context, await earliestClock(context));
  // Something else holds the tables, so try again soon.
  if (done === 'busy') await redis.pexpire(registryKeys.retentionRun, retentionRuns.retryMs);
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
    const result = await clickhouse.query({
      query: 'SELECT toUnixTimestamp(now()) AS now',
      format: 'JSONEachRow',
    });
    const [row] = await result.json<{ now: number }>();
    return Number(row?.now ?? 0) * 1000;
  } catch (error) {
    if (all.length === 1) throw error;
    return undefined;
  }
}

/**
 * Deletes what is over at a given time. Settles with `busy` if something is left for another run: rows are being moved or
 * deleted, not everything is stored, or deletions wait.
 */
export async function expireRows(context: RetentionContext, nowMs: number): Promise<'done' | 'busy'> {
  const { redis } = context;
  const { environments, deployment } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  const retaining = [...environments.values()].filter(({ retain_days: days }) => days !== undefined);
  if (retaining.length === 0) return 'done';
  const done = await withFailedRowsLocked(redis, 'retention', async (isHeld) => {
    if ((await redis.exists(registryKeys.restoringBackup)) === 1) return 'busy';
    const fences = await takeFences(context);
    const ofServers: ('done' | 'busy')[] = [];
    for (const part of await partsOf(context, retaining)) {
      if (part === 'away') ofServers.push('busy');
      else
        ofServers.push(
          await expireOn({ ...context, clickhouse: part.client, isHeld }, part, nowMs, fences).catch(
            async (error: unknown): Promise<'busy'> => {
              // A round has taken over and dropped the run's tables.
              if (!(await isHeld())) return 'busy';
              throw error;
            },
          ),
        );
    }
    return ofServers.includes('busy') ? 'busy' : 'done';
  });
  return done === 'done' ? 'done' : 'busy';
}

/** On one server, for as long as nobody else has taken over. */
type Run = RetentionContext & { readonly isHeld: IsHeld };

/** The environments of one server. */
type Part = {
  readonly client: ClickHouseClient;
  readonly environments: readonly Environment[];
  /** The shards that are there when the run begins. */
  readonly ownShards: ReadonlySet<number>;
};

/** The environments by the server that has their rows; `away` for those whose server is away or not named, or whose shard moves. */
async function partsOf(
  { redis, clickhouse, shards }: RetentionContext,
  environments: readonly Environment[],
): Promise<(Part | 'away')[]> {
  const servers = serversOf(clickhouse);
  const numbers = Array.from({ length: shards }, (_, shard) => shard);
  await refreshShardTable(redis, servers);
  const there = await serversThere(servers);
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

/** Deletes what is over on one server, to which the context is connected. */
async function expireOn(
  context: Run,
  { environments, ownShards }: Part,
  nowMs: number,
  fences: readonly string[],
): Promise<'done' | 'busy'> {
  const { redis, clickhouse, crash, log, isHeld } = context;
  // An event that was accepted and is not stored yet keeps its user.
  if (!(await isStoredUpTo(context, fences, ownShards))) return 'busy';
  const retained = retainedOf(environments, nowMs);
  // A request that was submitted before reaches the users who were merged by then, so their identifications have to stay.
  const deletionsWait = (await redis.zcard(registryKeys.pendingDeletions)) > 0;
  await undoRuns(clickhouse);
  await untilNoRetryRuns(clickhouse);
  const users = await findExpiredUsers(clickhouse, retained, randomBytes(6).toString('hex'));
  crash('expired_users_found');
  const expired = new Map<string, Record<string, number>>();
  for (const place of deletionsWait ? [storedTable('events')] : placesInOrder) {
    const run = { place, retained, users, fences, ownShards };
    const rows = await (place === identifications ? expireIdentifications : expirePlace)(context, run);
    for (const [appId, count] of rows) expired.set(appId, { ...expired.get(appId), [place]: count });
  }
  await undoRuns(clickhouse);
  const daysOf = new Map(environments.map(({ app_id, retain_days: days }) => [app_id, days]));
  for (const [appId, rows] of expired)
    log.info({ environment: appId, retainDays: daysOf.get(appId), rows }, 'rows are over and deleted');
  return deletionsWait || !(await isHeld()) ? 'busy' : 'done';
}

/** What a run deletes from one table. */
type Step = {
  readonly place: Place;
  readonly retained: readonly Retained[];
  readonly users: ExpiredUsers;
  readonly fences: readonly string[];
  readonly ownShards: ReadonlySet<number>;
};

const identifications = storedTable('user_identities');

/** Deletes what is over in a table. Settles with how many rows, by environment. */
async function expirePlace(
  context: Run,
  { place, retained, users, fences }: Step,
): Promise<ReadonlyMap<string, number>> {
  const { clickhouse, config, crash, isHeld } = context;
  const predicate = expiredPredicate(place, retained, users, config.clickhouseDatabase);
  const rows = await countExpired(clickhouse, place, predicate);
  if (rows.size === 0) return rows;
  const nothing = new Map<string, number>();
  if (!(await isHeld())) return nothing;
  if (place !== 'failed_events') await dropWholePartitions(context, place, predicate, fences);
  if ((await countExpired(clickhouse, place, predicate)).size === 0) return rows;
  // A repeat of what is deleted must stay out, but after this its row no longer shows that it is one.
  await keepKeysOf(clickhouse, place, predicate);
  crash('expired_keys_kept');
  if (!(await isHeld())) return nothing;
  await deleteRows(clickhouse, place, predicate, users.mark);
  crash('place_expired');
  return rows;
}

/**
 * Deletes the expired identifications, except those of users who have come back meanwhile. Months are not dropped here: a
 * delayed DROP would remove identifications that were put back. Settles with the number of expired rows.
 */
async function expireIdentifications(
  context: Run,
  { place, retained, users, fences, ownShards }: Step,
): Promise<ReadonlyMap<string, number>> {
  const { clickhouse, config, crash, isHeld } = context;
  const predicate = expiredPredicate(place, retained, users, config.clickhouseDatabase);
  const rows = await countExpired(clickhouse, place, predicate);
  if (rows.size === 0) return rows;
  const nothing = new Map<string, number>();
  await keepKeysOf(clickhouse, place, predicate);
  crash('expired_keys_kept');
  await copyIdentifications(clickhouse, users.mark, predicate);
  if (!(await isHeld())) return nothing;
  await letCopyCount(clickhouse, users.mark);
  crash('identifications_copied');
  await deleteRows(clickhouse, place, predicate, users.mark);
  crash('place_expired');
  if (!(await isStoredUpTo(context, await takeFences(context), ownShards))) return nothing;
  const appIds = retained.flatMap((each) => each.appIds);
  const ownFences = [...ownShards].map((shard) => fences[shard] ?? '0');
  await returnUsers(clickhouse, users.mark, appIds, least(ownFences));
  crash('users_returned');
  return rows;
}

function least(fences: readonly string[]): string {
  return fences.reduce((lowest, fence) => (BigInt(fence) < BigInt(lowest) ? fence : lowest));
}

/**
 * Drops the partitions in which only markers would be left. That erases the tokens of their segments. So ClickHouse first gets
 * a constraint that refuses these segments: a worker that stood still must not bring the rows back.
 */
async function dropWholePartitions(
  { clickhouse, crash, log, isHeld }: Run,
  place: Place,
  predicate: string,
  fences: readonly string[],
): Promise<void> {
  const find = () => findWholePartitions(clickhouse, place, predicate, least(fences));
  if ((await find()).length === 0) return;
  for (const [shard, fence] of fences.entries()) await refuseSegments(clickhouse, shard, fence);
  if (!(await untilNoInsertRuns(clickhouse))) return;
  for (const partition of await find()) {
    await keepKeysOf(clickhouse, place, inPartition(partition));
    crash('expired_keys_kept');
    if (!(await isHeld())) return;
    await dropPartition(clickhouse, place, partition);
    crash('partition_dropped');
    log.info({ table: place, partition }, 'a partition is over and dropped');
  }
}

/** Waits for inserts that ClickHouse had begun before. */
async function untilNoInsertRuns(clickhouse: RetentionContext['clickhouse']): Promise<boolean> {
  const giveUpAt = performance.now() + retentionRuns.storedMsMax;
  while (await isInsertRunning(clickhouse)) {
    if (performance.now() > giveUpAt) return false;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return true;
}

async function takeFences({ redis, shards, epoch }: RetentionContext): Promise<string[]> {
  const fences: string[] = [];
  for (let shard = 0; shard < shards; shard++) {
    const fence = await runScript(redis, scripts.fence, [shardKeys.state(shard)], [epoch]);
    if (fence === null) throw new StateNotLoaded();
    fences.push(String(fence));
  }
  return fences;
}

async function isStoredUpTo(
  { redis, shards, epoch }: RetentionContext,
  fences: readonly string[],
  ownShards: ReadonlySet<number>,
): Promise<boolean> {
  const giveUpAt = performance.now() + retentionRuns.storedMsMax;
  for (;;) {
    const oldest = await readOldestOutstanding(redis, epoch, shards);
    const isStored = oldest.every(
      (number, shard) =>
        !ownShards.has(shard) ||
        number === 'none' ||
        (number !== undefined && BigInt(number) > BigInt(fences[shard] ?? '0')),
    );
    if (isStored) return true;
    if (performance.now() > giveUpAt) return false;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
