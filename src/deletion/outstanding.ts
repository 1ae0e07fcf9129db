// What ClickHouse does not have yet, from a deletion's point of view: a record that was acknowledged before it may still
// be on its way.

import type { Redis } from '../redis/client.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';

/**
 * For each shard the lowest segment number that ClickHouse does not have; `none` when it has all. Undefined when that is
 * unknown: the shard's server is away, or was emptied, and then inserts of what it held may be under way.
 */
export async function readOldestOutstanding(
  redis: Redis,
  epoch: string,
  shards: number,
): Promise<(string | undefined)[]> {
  return Promise.all(
    Array.from({ length: shards }, async (_, shard) => {
      const keys = [shardKeys.state(shard), shardKeys.segments(shard)];
      const number = await runScript(redis, scripts.oldestOutstanding, keys, [epoch]).catch(() => null);
      if (number === null) return undefined;
      return number === '' ? 'none' : String(number);
    }),
  );
}
