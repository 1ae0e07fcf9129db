// Checks whether a deployment's ledger balances now, without waiting until the minute is over. The deployment must be at rest.

import { writeLedger } from '../../src/clickhouse/ledger-table.js';
import { connectServers, serversOf } from '../../src/clickhouse/servers.js';
import { confirm, type FoundDifference, sidesOf } from '../../src/insights/ledger/check.js';
import { readMinute } from '../../src/insights/ledger/write.js';
import type { Cluster, Redis } from '../../src/packages/ioredis.js';
import { shardKeys } from '../../src/redis/keys.js';
import { readLoadedRegistry } from '../../src/registry/registry.js';
import { refreshShardTable } from '../../src/registry/shard-servers.js';

/** Settles with the differences in all minutes since a time in milliseconds since 1970. */
export async function findUnbalanced(
  { clickhouseUrl, database }: { readonly clickhouseUrl: string; readonly database: string },
  redis: Redis | Cluster,
  sinceMs: number,
): Promise<FoundDifference[]> {
  const clickhouse = connectServers({ urls: clickhouseUrl.split(','), database });
  try {
    const { deployment } = await readLoadedRegistry(redis);
    const { shards, epoch } = deployment;
    await refreshShardTable(redis, serversOf(clickhouse));
    for (let shard = 0; shard < shards; shard++) {
      // The worker replaces these rows when the minute is over.
      for (const minute of (await redis.smembers(shardKeys.ledgerMinutes(shard))).map(Number)) {
        await writeLedger(clickhouse, await readMinute(redis, shard, minute));
      }
    }
    const minutes = { from: Math.floor(sinceMs / 60_000), to: Math.floor(Date.now() / 60_000) + 1 };
    const found = [];
    for (const side of await sidesOf({ redis, clickhouse, shards, epoch }))
      found.push(...(await confirm(side, minutes)));
    return found.map(({ minute, ...each }) => ({ ...each, minute: new Date(minute * 60_000).toISOString() }));
  } finally {
    await clickhouse.close();
  }
}
