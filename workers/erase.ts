// Erasing what rounds of deletions and retention have masked (clickhouse/masks.ts): one pass rewrites every part that has masked rows, for
// all requests together. After a pass there is a rest, so that passes take a given share of a core on average. Nothing waits
// longer than a given time, whatever that costs.

import type { ClickHouseClient } from '../src/clickhouse/client.js';
import { eraseMasked, readMaskedBytes } from '../src/clickhouse/masks.js';
import { reachableServers, serversOf } from '../src/clickhouse/servers.js';
import type { Config } from '../src/config.js';
import type { CrashPoint } from '../src/crash-point.js';
import type { Log } from '../src/log.js';
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

/** Whether there is something to erase, or requests whose rows are erased, and now is the time for it. */
export async function isErasureDue({ redis, clickhouse, erasure }: ErasureOptions): Promise<boolean> {
  const [oldest, submittedMs] = await redis.zrange(registryKeys.hiddenDeletions, '0', '0', 'WITHSCORES');
  if ((await readMaskedEverywhere(clickhouse)) === 0) return oldest !== undefined;
  if ((await redis.exists(registryKeys.erasureRest)) === 0) return true;
  // Lists of users that are kept until then would leave others no room for theirs.
  if (Number(await redis.hget(registryKeys.deletionWeights, '')) >= erasures.listsWeightMax) return true;
  return oldest !== undefined && (await readTime(redis)) - Number(submittedMs) >= erasure.withinMs;
}

/** Erases all masked rows of the servers that are there. Rejects with MutationFailed if some are left. */
export async function erase({ redis, clickhouse, erasure, crash, log }: ErasureOptions): Promise<void> {
  const bytes = await readMaskedEverywhere(clickhouse);
  if (bytes === 0) return;
  const startedAt = performance.now();
  try {
    for (const client of await serversThere(clickhouse)) await eraseMasked(client, userTables);
    crash('erased');
  } finally {
    const tookMs = Math.max(performance.now() - startedAt, bytes / erasures.bytesPerMs);
    const restMs = Math.ceil(tookMs / erasure.cpuShare);
    await redis.set(registryKeys.erasureRest, '1', 'PX', restMs);
    log.info({ bytes, tookMs: Math.round(tookMs), restMs }, 'masked rows were erased');
  }
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
