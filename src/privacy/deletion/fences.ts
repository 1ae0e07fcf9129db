// The fence of a moment: for each shard the highest segment number given until then. Every record that was acknowledged
// before is at or below it, and every record that is accepted from now on above it. What is stored up to a fence is complete.

import { StateNotLoaded } from '../../contract/errors.js';
import type { Redis } from '../../redis/client.js';
import { shardKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { untilTrue } from '../../wait.js';

/** The Redis of a deployment. */
export type Fenced = { readonly redis: Redis; readonly epoch: string; readonly shards: number };

/** Of one shard. Throws StateNotLoaded when it does not belong to the deployment. */
export async function takeFence(
  { redis, epoch }: Pick<Fenced, 'redis' | 'epoch'>,
  shard: number,
): Promise<string> {
  const fence = await runScript(redis, scripts.fence, [shardKeys.state(shard)], [epoch]);
  if (fence === null) throw new StateNotLoaded();
  return String(fence);
}

/** By shard, from 0. Throws StateNotLoaded when a shard does not belong to the deployment. */
export async function takeFences(fenced: Fenced): Promise<string[]> {
  const fences: string[] = [];
  for (let shard = 0; shard < fenced.shards; shard++) fences.push(await takeFence(fenced, shard));
  return fences;
}

/** Whether ClickHouse has everything of a shard up to a fence; it stays so. */
export type IsStored = (shard: number, fence: string | undefined) => boolean;

/**
 * Asks all shards. Not stored is also what is unknown: the shard's Redis server is away, or was emptied, and then inserts of what it
 * held may be under way.
 */
export async function readStored({ redis, epoch, shards }: Fenced): Promise<IsStored> {
  const oldest = await Promise.all(
    Array.from({ length: shards }, async (_, shard) => {
      const keys = [shardKeys.state(shard), shardKeys.segments(shard)];
      return runScript(redis, scripts.oldestOutstanding, keys, [epoch]).catch(() => null);
    }),
  );
  return (shard, fence = '0') => {
    const number = oldest[shard];
    if (number === null || number === undefined) return false;
    return number === '' || BigInt(String(number)) > BigInt(fence);
  };
}

/** Settles with whether all up to the fences is stored in time, in these shards: what happens to others does not hold it up. */
export async function untilStored(
  fenced: Fenced,
  fences: readonly string[],
  ownShards: ReadonlySet<number>,
  times: { readonly everyMs?: number; readonly msMax: number },
): Promise<boolean> {
  return untilTrue(async () => {
    const isStored = await readStored(fenced);
    return [...ownShards].every((shard) => isStored(shard, fences[shard]));
  }, times);
}
