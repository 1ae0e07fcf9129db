// Erases the rows that deletion rounds and retention have masked (clickhouse/masks.ts): one pass rewrites every part that has masked
// rows, for all requests together. ClickHouse does that in the background, so rounds continue: each starts a pass if one is due, or
// checks whether one has ended. Passes are spaced so that they use a given share of one core on average. No request waits longer than
// a given time, whatever that costs.
// In small tables rounds and passes may use the share of some minutes in advance: single deletions are complete within seconds, and those
// of a steady stream are erased together.

import type { ClickHouseClient } from '../src/clickhouse/client.js';
import {
  beginErasing,
  endErasing,
  isErasing,
  readLargestMasked,
  readMaskedBytes,
  readRewrittenBytes,
  readStoredBytes,
} from '../src/clickhouse/masks.js';
import { reachableClients } from '../src/clickhouse/servers.js';
import type { Config } from '../src/config.js';
import { isStuck } from '../src/contract/deletion-states.js';
import { unobstructedClients } from '../src/privacy/deletion/obstacles.js';
import { type DeletionRequest, readDeletions } from '../src/privacy/deletion/request.js';
import { type UserTable, userTables } from '../src/privacy/deletion/user-tables.js';
import type { Redis } from '../src/redis/client.js';
import { registryKeys } from '../src/redis/keys.js';
import { takeTurn } from '../src/redis/lease.js';
import { readTime } from '../src/registry/registry.js';
import { erasures } from '../src/tuning.js';
import { untilTrue } from '../src/wait.js';
import type { WorkerContext } from './context.js';

export type ErasureOptions = Pick<WorkerContext, 'redis' | 'clickhouse' | 'crash' | 'log'> & {
  readonly erasure: Config['erasure'];
};

/** Whether there is something to do: a pass to start or to check, or hidden requests to count. */
export async function isErasureDue(options: ErasureOptions): Promise<boolean> {
  const { redis } = options;
  if ((await redis.exists(registryKeys.erasurePass)) === 1) return true;
  if ((await readMaskedEverywhere(options)) === 0)
    return (await redis.zcard(registryKeys.hiddenDeletions)) > 0;
  return mayBegin(options);
}

/** Starts a pass if one is due. Settles with whether one is running. Rejects with MutationFailed if it fails. */
export async function eraseInPasses(options: ErasureOptions): Promise<boolean> {
  const { redis, log } = options;
  if (await isPassRunning(options)) return true;
  // A pass has ended: what it erased is counted before the next one starts.
  if ((await redis.exists(registryKeys.erasurePass)) === 1) return false;
  const bytes = await readMaskedEverywhere(options);
  if (bytes === 0 || !(await mayBegin(options))) return false;
  const restMs = await charge(options, bytes);
  await redis.set(registryKeys.erasurePass, '1');
  for (const client of await unobstructedClients(options)) await beginErasing(client, userTables);
  log.info({ bytes, restMs }, 'a pass erases masked rows');
  return true;
}

/** Whether masked rows are being erased where rows can be deleted now. Rejects with MutationFailed if that fails. */
export async function isPassRunning(options: ErasureOptions): Promise<boolean> {
  return isRunningOn(await unobstructedClients(options));
}

async function isRunningOn(clients: readonly ClickHouseClient[]): Promise<boolean> {
  return (await Promise.all(clients.map(isErasing))).includes(true);
}

/**
 * Stops a running pass on servers where it would delay the hiding of users, unless it is small there or a request has waited for it too
 * long. Parts that it has rewritten stay erased; those under way are rewritten again. So after it gave way, a pass first gets the time for
 * its largest part.
 */
export async function interruptPass(
  options: ErasureOptions,
  clients: readonly ClickHouseClient[],
): Promise<void> {
  const { redis, erasure, crash, log } = options;
  // Without this key, the rows of a moved shard are being erased. That is not interrupted.
  if ((await redis.exists(registryKeys.erasurePass)) === 0 || (await isOverdue(options))) return;
  const bytes = await readMasked(clients);
  if (bytes <= erasure.atOnceBytesMax) return;
  const largest = await Promise.all(clients.map((client) => readLargestMasked(client, userTables)));
  const everyMs = erasures.givesWayEveryMs + Math.ceil(Math.max(...largest) / erasures.bytesPerMs);
  // A pass that fails holds up nobody.
  const isRunning = () => isRunningOn(clients).catch(() => false);
  const mayEnd = async () =>
    !(await isRunning()) || (await takeTurn(redis, registryKeys.erasureGaveWay, everyMs));
  await untilTrue(mayEnd, { everyMs: 500, msMax: Number.POSITIVE_INFINITY });
  for (const client of clients)
    if (await endErasing(client, userTables, crash))
      log.info({ bytes }, 'a pass was interrupted so that users can be hidden sooner');
}

/** Whether a round may erase rows of small tables at once. Their erasing has a budget, unless other tables are large. */
export async function mayEraseAtOnce(options: ErasureOptions): Promise<boolean> {
  if (!(await areTablesSmall(options))) return true;
  // Otherwise rounds could leave no budget for the pass that erases what is masked.
  if ((await readMaskedEverywhere(options)) > 0) return false;
  return (await readRestMs(options)) <= advanceMs(options);
}

/** Counts what erasing the rows of one table that meet a condition will cost. Call it before. */
export async function chargeForRows(
  options: ErasureOptions,
  client: ClickHouseClient,
  table: UserTable,
  condition: string,
): Promise<void> {
  // Passes over large tables must not wait for this.
  if (await areTablesSmall(options))
    await charge(options, await readRewrittenBytes(client, table, condition));
}

async function mayBegin(options: ErasureOptions): Promise<boolean> {
  const restMs = await readRestMs(options);
  if (restMs === 0 || (restMs <= advanceMs(options) && (await areTablesSmall(options)))) return true;
  return isUrgent(options);
}

/** How long nothing should be erased so that what was erased has used its share. */
async function readRestMs({ redis }: ErasureOptions): Promise<number> {
  return Math.max(0, await redis.pttl(registryKeys.erasureRest));
}

function restMsAfter({ erasure }: ErasureOptions, cpuMs: number): number {
  return Math.ceil(cpuMs / erasure.cpuShare);
}

function advanceMs(options: ErasureOptions): number {
  return restMsAfter(options, erasures.advanceCpuMs);
}

/** Adds the pause that rewriting this much requires. Settles with its length. */
async function charge(options: ErasureOptions, bytes: number): Promise<number> {
  const restMs = restMsAfter(options, bytes / erasures.bytesPerMs);
  if (restMs === 0) return 0;
  // An urgent pass does not wait for it to end, so pauses could add up without end.
  const earlierMs = Math.min(await readRestMs(options), advanceMs(options));
  await options.redis.set(registryKeys.erasureRest, '1', 'PX', earlierMs + restMs);
  return restMs;
}

/** Whether the tables of each server may be rewritten at once. */
async function areTablesSmall({ clickhouse, erasure }: ErasureOptions): Promise<boolean> {
  const clients = await reachableClients(clickhouse);
  const bytes = await Promise.all(clients.map(([, client]) => readStoredBytes(client, userTables)));
  return bytes.every((each) => each <= erasure.atOnceBytesMax);
}

/** Whether a hidden request has waited as long as it may. Then its pass is not interrupted, so each pass ends. */
async function isOverdue({ redis, erasure }: ErasureOptions): Promise<boolean> {
  const [oldest, submittedMs] = await redis.zrange(registryKeys.hiddenDeletions, '0', '0', 'WITHSCORES');
  return oldest !== undefined && (await readTime(redis)) - Number(submittedMs) >= erasure.withinMs;
}

/** Whether a hidden request is overdue or must not wait at all, or the kept lists of users have grown too large. */
async function isUrgent(options: ErasureOptions): Promise<boolean> {
  const { redis } = options;
  if ((await redis.zcard(registryKeys.hiddenDeletions)) === 0) return false;
  if (await isOverdue(options)) return true;
  // Lists of users, which are kept until their rows are erased, would leave no room for those of other requests.
  if (Number(await redis.hget(registryKeys.deletionWeights, '')) >= erasures.listsWeightMax) return true;
  const ids = await redis.smembers(registryKeys.erasuresWanted);
  const requests = await readDeletions(redis, ids);
  const ended = requests.filter(({ status, state }) => status === 'complete' || isStuck(state));
  if (ended.length > 0) await redis.srem(registryKeys.erasuresWanted, ...ended.map(idOf));
  return requests.some(({ state }) => state === 'hidden');
}

/**
 * Records the requests whose rows must be erased at once. Call it before requests are marked hidden, so that these are known even if a pass
 * fails.
 */
export async function recordUrgent(redis: Redis, requests: readonly DeletionRequest[]): Promise<void> {
  const urgent = requests.filter(({ erase }) => erase === 'now').map(idOf);
  if (urgent.length > 0) await redis.sadd(registryKeys.erasuresWanted, ...urgent);
}

function idOf(request: DeletionRequest): string {
  return request.deletion_request_id;
}

async function readMaskedEverywhere(options: ErasureOptions): Promise<number> {
  return readMasked(await unobstructedClients(options));
}

async function readMasked(clients: readonly ClickHouseClient[]): Promise<number> {
  const bytes = await Promise.all(clients.map((client) => readMaskedBytes(client, userTables)));
  return bytes.reduce((sum, each) => sum + each, 0);
}
