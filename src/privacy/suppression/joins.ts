// Anonymous users that commits have joined to suppressed ones (redis/commit-3.lua). Until they are moved from their shard to the list of
// suppressions, the shard's commits skip records about them. They are moved once a second, many at a time, and also before each change of
// the suppressions, so that the change finds them in the list.

import { grouped, inBatches, inBatchesAsync } from '../../batches.js';
import { hashPieces } from '../../redis/hash-pieces.js';
import { shardKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { suppressionChanges } from '../../tuning.js';
import { takeFences } from '../deletion/fences.js';
import { type ChangeOptions, joinNames } from './change.js';
import type { NameText } from './names.js';

/**
 * Moves the users that these shards had joined before the call, some of each shard in each of `roundsMax` rounds. Users who are joined
 * during the call may be left for the next one, so that this one always ends. Settles when every shard knows the moved users from the list,
 * with how many exceeded the account's limits. Several processes may do it at once; if one is interrupted, the users stay in their shard.
 */
export async function moveJoins(
  options: ChangeOptions,
  shards: Iterable<number>,
  roundsMax: number = Number.POSITIVE_INFINITY,
): Promise<number> {
  let withoutRoom = 0;
  const batches = [...shards].map((shard) =>
    inBatchesAsync(readJoined(options, shard), suppressionChanges.joinsPerRoundMax),
  );
  for (let round = 0; round < roundsMax; round++) {
    const read = await Promise.all(batches.map((ofShard) => ofShard.next()));
    const found = read.map(({ value = [] }): readonly Found[] => value);
    const joined = grouped(found.flat(), ({ accountId }) => accountId);
    if (joined.size === 0) break;
    for (const [accountId, its] of joined)
      withoutRoom += await joinNames(
        options,
        accountId,
        its.map(({ name, identity }) => [name, identity]),
      );
    await takeFences(options);
    await Promise.all(found.map((its) => forget(options, its)));
  }
  return withoutRoom;
}

/** The value that a commit records under the name of a joined user. */
export function joinTo(accountId: string, identity: NameText): string {
  return `${accountId} ${identity}`;
}

type Found = {
  readonly shard: number;
  readonly name: NameText;
  readonly value: string;
  readonly accountId: string;
  readonly identity: NameText;
};

async function* readJoined({ redis }: ChangeOptions, shard: number): AsyncGenerator<Found> {
  for await (const entries of hashPieces(redis, shardKeys.joined(shard), namesPerCommand))
    for (const [name, value] of entries) {
      const [accountId = '', identity = ''] = value.split(' ');
      yield { shard, name, value, accountId, identity };
    }
}

const namesPerCommand = 500;

/** Forgets users of one shard. */
async function forget({ redis }: ChangeOptions, found: readonly Found[]): Promise<void> {
  for (const some of inBatches(found, namesPerCommand)) {
    const [{ shard }] = some as [Found, ...Found[]];
    const keys = [shardKeys.state(shard), shardKeys.joined(shard)];
    const args = some.flatMap(({ name, value }) => [name, value]);
    await runScript(redis, scripts.forgetJoins, keys, args);
  }
}
