// Which shards lack the deployment's state. On one Redis all lose it together with the registry; of a cluster's
// masters a single one may be emptied, and the commit script then refuses that shard's records.

import type { Redis } from '../redis/client.js';
import { shardKeys } from '../redis/keys.js';
import type { Deployment } from './documents.js';

export type ShardStates = {
  /** The shards that lacked the state when their server last answered. */
  lacking(): readonly number[];
  close(): void;
};

const pollEveryMs = 1_000;

/** Starts to look at the shards, once the deployment is known. */
export function followShards(redis: Redis, deployment: () => Deployment | undefined): ShardStates {
  const lacking = new Set<number>();
  const looking = new Set<number>();

  async function look(shard: number, epoch: string): Promise<void> {
    if (looking.has(shard)) return;
    looking.add(shard);
    try {
      const found = await redis.hget(shardKeys.state(shard), 'epoch');
      if (found === epoch) lacking.delete(shard);
      else lacking.add(shard);
    } catch {
      // A server that does not answer says nothing about its state; the commits tell that it is away.
    } finally {
      looking.delete(shard);
    }
  }

  const timer = setInterval(() => {
    const known = deployment();
    if (known === undefined) return;
    for (let shard = 0; shard < known.shards; shard += 1) void look(shard, known.epoch);
  }, pollEveryMs);
  return {
    lacking: () => [...lacking].sort((a, b) => a - b),
    close: () => clearInterval(timer),
  };
}
