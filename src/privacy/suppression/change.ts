// Changes the names of the suppressions in Redis. Call `takeFences` after each change: it makes the change binding in every shard. From then
// on a commit of an API process that does not know the change stores nothing, so no clock and no message decides when it takes effect.

import { inBatches } from '../../batches.js';
import { NotPossible, StateNotLoaded } from '../../contract/errors.js';
import { suppressions as bounds } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { readLoaded } from '../../registry/registry.js';
import { suppressionChanges } from '../../tuning.js';
import type { Fenced } from '../deletion/fences.js';
import type { NameText } from './names.js';

export type ChangeOptions = Fenced & {
  /** How many names an account may have, if not the general limit. */
  readonly namesPerAccountMax?: number;
};

/** A name, and its root: the name because of which it is suppressed, or `-` for itself. */
export type Suppressed = readonly [name: NameText, root: NameText];

/** The name of an anonymous user in its environment, and the name of the suppressed identity that it was identified as. */
export type Joined = readonly [name: NameText, identity: NameText];

/** The account would have more names than it may. */
export class TooManyNames extends NotPossible {
  override readonly toCallers = this.message;

  constructor() {
    super(
      'The account has as many suppressed users as it may have. Some of those you sent may be suppressed now.',
    );
  }
}

/**
 * Suppresses names. Settles with the number of new pairs once the names are in Redis. Throws TooManyNames or StateNotLoaded.
 */
export async function suppressNames(
  options: ChangeOptions,
  accountId: string,
  names: readonly Suppressed[],
): Promise<number> {
  return changeAll(options, accountId, 'suppress', names);
}

/**
 * Suppresses anonymous users who were identified as suppressed ones, with the same roots. Settles with how many exceeded the limits and
 * were not suppressed.
 */
export async function joinNames(
  options: ChangeOptions,
  accountId: string,
  joined: readonly Joined[],
): Promise<number> {
  return changeAll(options, accountId, 'join', joined);
}

/** Frees the names, and all other users that are suppressed for the same roots. */
export async function freeNames(
  options: ChangeOptions,
  accountId: string,
  names: Iterable<NameText>,
): Promise<void> {
  for (const some of inBatches(names, suppressionChanges.namesPerReadMax)) {
    const values = await readNames(options.redis, accountId, some);
    // Most of these names are not suppressed: the list has one for every environment of each user.
    const there = some.filter((_, index) => values[index] != null);
    for (let first = 0; first < there.length; ) {
      const { done } = await change(options, accountId, 'free', there.slice(first, first + namesPerCall));
      first += done;
    }
  }
  for (let left = 1; left > 0; ) ({ count: left } = await change(options, accountId, 'free', []));
}

/**
 * Whether the names are suppressed in Redis, each for its root. Call it once ClickHouse has the change: Redis may have been emptied before
 * that, and loaded again without it.
 */
export async function areSuppressed(
  { redis }: Pick<ChangeOptions, 'redis'>,
  accountId: string,
  names: Iterable<Suppressed>,
): Promise<boolean> {
  for (const some of inBatches(names, suppressionChanges.namesPerReadMax)) {
    const asked = some.map(([name]) => name);
    const values = await readNames(redis, accountId, asked);
    const has = ([, root]: Suppressed, index: number) => {
      const roots = values[index]?.split(' ').slice(1) ?? [];
      return roots.includes(root) || (root !== '-' && roots.length >= bounds.rootsPerNameMax);
    };
    if (!some.every(has)) return false;
  }
  return true;
}

/** Whether none of the names is suppressed in Redis. Like `areSuppressed`, call it once ClickHouse has the change. */
export async function areFree(
  { redis }: Pick<ChangeOptions, 'redis'>,
  accountId: string,
  names: Iterable<NameText>,
): Promise<boolean> {
  for (const some of inBatches(names, suppressionChanges.namesPerReadMax)) {
    const values = await readNames(redis, accountId, some);
    if (values.some((value) => value !== null)) return false;
  }
  return true;
}

async function readNames(
  redis: Redis,
  accountId: string,
  names: readonly NameText[],
): Promise<(string | null)[]> {
  const [found] = await readLoaded(redis, (transaction) =>
    transaction.hmget(registryKeys.suppressedNames(accountId), ...names),
  );
  return found as (string | null)[];
}

const namesPerCall = suppressionChanges.workMax;

/** Each call of the script does a limited amount of work, so it is repeated until all is done. Settles with the sum of its counts. */
async function changeAll(
  options: ChangeOptions,
  accountId: string,
  action: 'suppress' | 'join',
  pairs: readonly (readonly [string, string])[],
): Promise<number> {
  let sum = 0;
  for (let first = 0; first < pairs.length; ) {
    const some = pairs.slice(first, first + namesPerCall);
    const { done, count } = await change(options, accountId, action, some.flat());
    first += done / 2;
    sum += count;
  }
  return sum;
}

async function change(
  { redis, epoch, namesPerAccountMax = bounds.namesPerAccountMax }: ChangeOptions,
  accountId: string,
  action: 'suppress' | 'join' | 'free',
  args: readonly string[],
): Promise<{ done: number; count: number }> {
  const reply = await runScript(
    redis,
    scripts.changeSuppressions,
    [
      registryKeys.epoch,
      registryKeys.suppressions,
      registryKeys.suppressionChanges,
      registryKeys.suppressedNames(accountId),
      registryKeys.suppressedBy(accountId, ''),
      registryKeys.freedRoots(accountId),
      registryKeys.uncopied,
      registryKeys.uncopiedSuppressions,
    ],
    [
      epoch,
      accountId,
      action,
      namesPerAccountMax,
      suppressionChanges.keptMax,
      bounds.rootsPerNameMax,
      bounds.joinedPerIdentityMax,
      bounds.joinedPerAccountMax,
      suppressionChanges.workMax,
      ...args,
    ],
  );
  if (reply === null) throw new StateNotLoaded();
  if (reply === 'full') throw new TooManyNames();
  const [, done, count] = reply as [string, number, number];
  return { done, count };
}
