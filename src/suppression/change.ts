// Changes of the suppressions in Redis: first the names, then the version of every shard. From then on no commit of an API
// process that does not know the change stores anything, so no clock and no message decides when it holds.

import { readLoaded, StateNotLoaded } from '../accounts/registry.js';
import { suppressions } from '../contract/limits.js';
import type { Redis } from '../redis/client.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { suppressionChanges } from '../tuning.js';
import type { NameText } from './names.js';

export type ChangeOptions = {
  readonly redis: Redis;
  readonly epoch: string;
  readonly shards: number;
  /** Names that an account may have, if not the bound of all deployments. */
  readonly namesPerAccountMax?: number;
};

/** A name, and the name because of which it is suppressed. `-`: itself. `=<name>`: the same as for that name. */
export type Suppressed = readonly [name: NameText, root: NameText];

/** The account would have more names than it may. */
export class TooManyNames extends Error {
  constructor() {
    super('The account has as many suppressed users as it may have.');
  }
}

/** Settles when the names are in Redis. To be followed by `raiseShards`. Throws TooManyNames or StateNotLoaded. */
export async function suppressNames(
  options: ChangeOptions,
  accountId: string,
  names: readonly Suppressed[],
): Promise<void> {
  for (let first = 0; first < names.length; first += suppressionChanges.namesMax) {
    const some = names.slice(first, first + suppressionChanges.namesMax);
    await change(options, accountId, 'suppress', some.flat());
  }
}

/** Removes everything for whose sake the names are suppressed, including other users. To be followed by `raiseShards`. */
export async function freeNames(
  options: ChangeOptions,
  accountId: string,
  names: readonly NameText[],
): Promise<void> {
  for (let first = 0; first < names.length; first += suppressionChanges.namesMax)
    await change(options, accountId, 'free', names.slice(first, first + suppressionChanges.namesMax));
}

/**
 * Whether the names are suppressed in Redis, each for the sake of its root. To be asked once ClickHouse has the change: Redis
 * may have been emptied before that, and loaded again without it.
 */
export async function areSuppressed(
  { redis }: ChangeOptions,
  accountId: string,
  names: readonly Suppressed[],
): Promise<boolean> {
  const values = await readNames(
    redis,
    accountId,
    names.map(([name]) => name),
  );
  return names.every(([, root], index) => values[index]?.split(' ').includes(root, 1) === true);
}

/** The same for names that were freed. */
export async function areFree(
  { redis }: ChangeOptions,
  accountId: string,
  names: readonly NameText[],
): Promise<boolean> {
  return (await readNames(redis, accountId, names)).every((value) => value === null);
}

async function readNames(
  redis: Redis,
  accountId: string,
  names: readonly NameText[],
): Promise<(string | null)[]> {
  const values: (string | null)[] = [];
  for (let first = 0; first < names.length; first += suppressionChanges.namesPerReadMax) {
    const some = names.slice(first, first + suppressionChanges.namesPerReadMax);
    const [found] = await readLoaded(redis, (transaction) =>
      transaction.hmget(registryKeys.suppressedNames(accountId), ...some),
    );
    values.push(...(found as (string | null)[]));
  }
  return values;
}

async function change(
  { redis, epoch, namesPerAccountMax = suppressions.namesPerAccountMax }: ChangeOptions,
  accountId: string,
  action: 'suppress' | 'free',
  args: readonly string[],
): Promise<void> {
  const reply = await runScript(
    redis,
    scripts.changeSuppressions,
    [
      registryKeys.epoch,
      registryKeys.suppressions,
      registryKeys.suppressionChanges,
      registryKeys.suppressedNames(accountId),
      registryKeys.suppressedBy(accountId, ''),
    ],
    [epoch, accountId, action, namesPerAccountMax, suppressionChanges.keptMax, ...args],
  );
  if (reply === null) throw new StateNotLoaded();
  if (reply === 'full') throw new TooManyNames();
}

/**
 * Makes the present version of the suppressions binding for every shard. Settles with that version, and with the fence of
 * each shard: what was stored without knowing that version is at or below it. Throws StateNotLoaded.
 */
export async function raiseShards({
  redis,
  epoch,
  shards,
}: ChangeOptions): Promise<{ readonly version: string; readonly fences: readonly string[] }> {
  const version = (await redis.hget(registryKeys.suppressions, 'version')) ?? '0';
  const raise = async (shard: number) => {
    const keys = [shardKeys.state(shard)];
    const fence = await runScript(redis, scripts.raiseSuppressions, keys, [epoch, version]);
    if (fence === null) throw new StateNotLoaded();
    return String(fence);
  };
  const fences = await Promise.all(Array.from({ length: shards }, (_, shard) => raise(shard)));
  return { version, fences };
}
