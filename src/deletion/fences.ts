// The fence of a moment: for each shard the highest segment number given until then. Every record that was acknowledged
// before is at or below it, and every record that is accepted from now on above it.

import { StateNotLoaded } from '../accounts/registry.js';
import type { Redis } from '../redis/client.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';

/** By shard, from 0. Throws StateNotLoaded when a shard does not belong to the deployment. */
export async function takeFences(redis: Redis, epoch: string, shards: number): Promise<string[]> {
  const fences: string[] = [];
  for (let shard = 0; shard < shards; shard++) {
    const fence = await runScript(redis, scripts.fence, [shardKeys.state(shard)], [epoch]);
    if (fence === null) throw new StateNotLoaded();
    fences.push(String(fence));
  }
  return fences;
}
