// Erasing what rounds of deletions and retention have masked (clickhouse/masks.ts): one pass rewrites every part that has masked rows, for
// all requests together. ClickHouse does that by itself, so rounds go on meanwhile: each begins a pass if one is due, or sees whether
// one has ended. Passes are as far apart as takes a given share of a core on average. Nothing waits longer than a given time,
// whatever that costs.

import type { ClickHouseClient } from '../src/clickhouse/client.js';
import {
  beginErasing,
  endErasing,
  isErasing,
  readMaskedBytes,
  resumeMerges,
} from '../src/clickhouse/masks.js';
import { reachableServers, serversOf } from '../src/clickhouse/servers.js';
import type { Config } from '../src/config.js';
import { isStuck } from '../src/contract/deletion-states.js';
import type { CrashPoint } from '../src/crash-point.js';
import type { Log } from '../src/log.js';
import { type DeletionRequest, readDeletions } from '../src/privacy/deletion/request.js';
import { userTables } from '../src/privacy/deletion/user-tables.js';
import type { Redis } from '../src/redis/client.js';
import { registryKeys } from '../src/redis/keys.js';
import { readTime } from '../src/registry/registry.js';
import { erasures } from '../src/tuning.js';

export type ErasureOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly erasure: Config['erasure'];
  readonly crash: CrashPoint;
  readonly log: Log;
};

/** Whether there is something to do: a pass to begin, or to look at, or hidden requests to count. */
export async function isErasureDue(options: ErasureOptions): Promise<boolean> {
  const { redis, clickhouse } = options;
  if ((await redis.exists(registryKeys.erasurePass)) === 1) return true;
  if ((await readMaskedEverywhere(clickhouse)) === 0)
    return (await redis.zcard(registryKeys.hiddenDeletions)) > 0;
  return mayBegin(options);
}

/** Begins a pass if one is due. Settles with whether one runs. Rejects with MutationFailed if it fails. */
export async function eraseInPasses(options: ErasureOptions): Promise<boolean> {
  const { redis, clickhouse, erasure, log } = options;
  if (await isPassRunning(clickhouse)) return true;
  // What it erased is counted before the next one begins.
  if ((await redis.exists(registryKeys.erasurePass)) === 1) return false;
  const bytes = await readMaskedEverywhere(clickhouse);
  if (bytes === 0 || !(await mayBegin(options))) return false;
  const restMs = Math.ceil(bytes / erasures.bytesPerMs / erasure.cpuShare);
  await redis.set(registryKeys.erasureRest, '1', 'PX', restMs);
  await redis.set(registryKeys.erasurePass, '1');
  for (const client of await serversThere(clickhouse)) await beginErasing(client, userTables);
  log.info({ bytes, restMs }, 'a pass erases masked rows');
  return true;
}

/** Whether masked rows are being erased somewhere. Rejects with MutationFailed if that fails. */
export async function isPassRunning(clickhouse: ClickHouseClient): Promise<boolean> {
  const running = await Promise.all((await serversThere(clickhouse)).map(isErasing));
  return running.includes(true);
}

/** Ends a running pass for which users would have to wait until they are hidden, unless it is short, or some wait for it too long. */
export async function giveWay(options: ErasureOptions): Promise<void> {
  const { redis, clickhouse, erasure, crash, log } = options;
  // Not the erasing of a shard that has moved.
  if ((await redis.exists(registryKeys.erasurePass)) === 0 || (await isUrgent(options))) return;
  const bytes = await readMaskedEverywhere(clickhouse);
  if (bytes <= erasure.atOnceBytesMax) return;
  await redis.set(registryKeys.erasurePass, givesWay);
  for (const client of await serversThere(clickhouse))
    if (await endErasing(client, userTables, crash))
      log.info({ bytes }, 'a pass has given way to users who are to be hidden');
  await redis.set(registryKeys.erasurePass, '1');
}

const givesWay = 'gives way';

/** To be called by each round: without merges nothing can be masked. */
export async function resumeAfterCrash({ redis, clickhouse }: ErasureOptions): Promise<void> {
  if ((await redis.get(registryKeys.erasurePass)) !== givesWay) return;
  for (const client of await serversThere(clickhouse)) await resumeMerges(client, userTables);
  await redis.set(registryKeys.erasurePass, '1');
}

async function mayBegin(options: ErasureOptions): Promise<boolean> {
  return (await options.redis.exists(registryKeys.erasureRest)) === 0 || isUrgent(options);
}

/** Whether a hidden request has waited for as long as it may, or is one that may not wait; or their lists have grown too large. */
async function isUrgent({ redis, erasure }: ErasureOptions): Promise<boolean> {
  const [oldest, submittedMs] = await redis.zrange(registryKeys.hiddenDeletions, '0', '0', 'WITHSCORES');
  if (oldest === undefined) return false;
  if ((await readTime(redis)) - Number(submittedMs) >= erasure.withinMs) return true;
  // Lists of users that are kept until then would leave others no room for theirs.
  if (Number(await redis.hget(registryKeys.deletionWeights, '')) >= erasures.listsWeightMax) return true;
  const ids = await redis.smembers(registryKeys.erasuresWanted);
  const requests = await readDeletions(redis, ids);
  const ended = requests.filter(({ status, state }) => status === 'complete' || isStuck(state));
  if (ended.length > 0) await redis.srem(registryKeys.erasuresWanted, ...ended.map(idOf));
  return requests.some(({ state }) => state === 'hidden');
}

/** To be called before requests are noted as hidden: those that may not wait are erased whatever that costs, also if a pass fails. */
export async function noteWanted(redis: Redis, requests: readonly DeletionRequest[]): Promise<void> {
  const wanted = requests.filter(({ erase }) => erase === 'now').map(idOf);
  if (wanted.length > 0) await redis.sadd(registryKeys.erasuresWanted, ...wanted);
}

function idOf(request: DeletionRequest): string {
  return request.deletion_request_id;
}

async function readMaskedEverywhere(clickhouse: ClickHouseClient): Promise<number> {
  const there = await serversThere(clickhouse);
  const bytes = await Promise.all(there.map((client) => readMaskedBytes(client, userTables)));
  return bytes.reduce((sum, each) => sum + each, 0);
}

async function serversThere(clickhouse: ClickHouseClient): Promise<ClickHouseClient[]> {
  const servers = serversOf(clickhouse);
  const there = await reachableServers(servers);
  return servers.all.filter((_, number) => there.has(number));
}
