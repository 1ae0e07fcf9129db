// Which shards lack the deployment's state. On a single Redis all shards lose it together with the registry. In a cluster one master may
// be emptied; then the commit script refuses the records of its shards.

import type { Redis } from '../redis/client.js';
import { shardKeys } from '../redis/keys.js';
import type { Deployment } from './documents.js';

export type ShardStates = {
  /** The shards that lacked the state when their server last answered. */
  shardsWithoutState(): readonly number[];
  close(): void;
};

const pollEveryMs = 1_000;

/** Starts to check the shards, once the deployment is known. */
export function followShards(redis: Redis, deployment: () => Deployment | undefined): ShardStates {
  const lacking = new Set<number>();
  const beingRead = new Set<number>();

  async function readState(shard: number, epoch: string): Promise<void> {
    if (beingRead.has(shard)) return;
    beingRead.add(shard);
    try {
      const found = await redis.hget(shardKeys.state(shard), 'epoch');
      if (found === epoch) lacking.delete(shard);
      else lacking.add(shard);
    } catch {
      // The state of a server that does not answer is unknown; commits notice that it is unreachable.
    } finally {
      beingRead.delete(shard);
    }
  }

  const timer = setInterval(() => {
    const known = deployment();
    if (known === undefined) return;
    for (let shard = 0; shard < known.shards; shard += 1) void readState(shard, known.epoch);
  }, pollEveryMs);
  return {
    shardsWithoutState: () => [...lacking].sort((a, b) => a - b),
    close: () => clearInterval(timer),
  };
}
