// The fence of a moment: for each shard the highest segment number that is in use by then. Every record that was acknowledged before is
// at or below it, and every record that is accepted later is above it.

import { StateNotLoaded } from '../../contract/errors.js';
import { readOutstanding } from '../../redis/backlog.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys, shardKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { fenceSpacingMs } from '../../tuning.js';
import { sharing, untilTrue } from '../../wait.js';

export type Fenced = { readonly redis: Redis; readonly epoch: string; readonly shards: number };

/** Takes the fence of one shard, in decimal digits. Throws StateNotLoaded when the shard does not belong to the deployment. */
export async function takeFence(
  { redis, epoch }: Pick<Fenced, 'redis' | 'epoch'>,
  shard: number,
  suppressionVersion = '0',
): Promise<string> {
  const fence = await runScript(redis, scripts.fence, [shardKeys.state(shard)], [epoch, suppressionVersion]);
  if (fence === null) throw new StateNotLoaded();
  return String(fence);
}

/**
 * Takes the fences of all shards, by shard, and makes the current version of the suppressions binding there: every record that was accepted
 * without it is at or below the fence of its shard. Throws StateNotLoaded when a shard does not belong to the deployment. Each fence ends the
 * open segments of all accounts, each of which costs an insert, and a new version makes every API process's next commit fail once. So calls
 * soon after one share the next fences, which are taken after all of them.
 */
export function takeFences(fenced: Fenced): Promise<readonly string[]> {
  const { redis, epoch, shards } = fenced;
  const of = `${epoch} ${shards}`;
  const known = takers.get(redis);
  const taker = known?.of === of ? known : { of, take: sharing(() => takeAll(fenced), fenceSpacingMs) };
  takers.set(redis, taker);
  return taker.take();
}

const takers = new WeakMap<Redis, { readonly of: string; readonly take: () => Promise<readonly string[]> }>();

async function takeAll({ redis, epoch, shards }: Fenced): Promise<readonly string[]> {
  const version = (await redis.hget(registryKeys.suppressions, 'version')) ?? '0';
  return Promise.all(
    Array.from({ length: shards }, (_, shard) => takeFence({ redis, epoch }, shard, version)),
  );
}

/** Whether ClickHouse has all records of a shard up to a fence. Once true, it stays true. */
export type IsStored = (shard: number, fence: string | undefined) => boolean;

/**
 * Asks all shards. A shard whose answer is unknown counts as not stored: its Redis server is unreachable, or was emptied, in which case
 * inserts of what it held may still be running.
 */
export async function readStored({ redis, epoch, shards }: Fenced): Promise<IsStored> {
  const found = await Promise.all(
    Array.from({ length: shards }, (_, shard) => readOutstanding(redis, shard, epoch).catch(() => undefined)),
  );
  return (shard, fence = '0') => {
    const ofShard = found[shard];
    if (ofShard === undefined) return false;
    return ofShard.oldest === undefined || BigInt(ofShard.oldest) > BigInt(fence);
  };
}

/** Settles with whether all records of these shards up to the fences are stored in time. Ignores other shards. */
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
