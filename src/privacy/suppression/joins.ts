// Anonymous users that commits have joined to suppressed ones (redis/commit-3.lua). Until they are moved from their shard to the list of
// suppressions, the shard's commits skip records about them. They are moved once a second, many at a time, and also before each change of
// the suppressions, so that the change finds them in the list.

import { shardKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { suppressionChanges } from '../../tuning.js';
import { type ChangeOptions, type Joined, joinNames, publishSuppressionVersion } from './change.js';
import type { NameText } from './names.js';

/**
 * Moves the users that these shards had joined before the call. Users who are joined during the call may be left for the next one, so that
 * this one always ends. Settles when every shard knows the moved users from the list, with how many exceeded the account's limits. Several
 * processes may do it at once; if one is interrupted, the users stay in their shard.
 */
export function moveJoins(options: ChangeOptions, shards: Iterable<number>): Promise<number> {
  return move(options, shards, Number.POSITIVE_INFINITY);
}

/** Moves some of the joined users of every shard. */
export function moveSomeJoins(options: ChangeOptions): Promise<number> {
  const shards = Array.from({ length: options.shards }, (_, shard) => shard);
  return move(options, shards, 1);
}

async function move(options: ChangeOptions, shards: Iterable<number>, roundsMax: number): Promise<number> {
  let withoutRoom = 0;
  let reads: Read[] = [...shards].map((shard) => ({ shard, cursor: '0', found: [] }));
  for (let round = 0; round < roundsMax && reads.length > 0; round++) {
    reads = await Promise.all(reads.map((read) => readOn(options, read)));
    const joined = byAccount(reads.flatMap(({ found }) => found));
    for (const [accountId, pairs] of joined) withoutRoom += await joinNames(options, accountId, pairs);
    if (joined.size > 0) {
      await publishSuppressionVersion(options);
      await Promise.all(reads.map(({ shard, found }) => forget(options, shard, found)));
    }
    reads = reads.filter(({ cursor }) => cursor !== '0');
  }
  return withoutRoom;
}

/** The value that a commit records under the name of a joined user. */
export function joinTo(accountId: string, identity: NameText): string {
  return `${accountId} ${identity}`;
}

type Found = {
  readonly name: NameText;
  readonly value: string;
  readonly accountId: string;
  readonly identity: NameText;
};

/** How far a shard was read, and what the last step found. Cursor 0 is the end. */
type Read = { readonly shard: number; readonly cursor: string; readonly found: readonly Found[] };

async function readOn({ redis }: ChangeOptions, { shard, cursor: from }: Read): Promise<Read> {
  let cursor = from;
  const found: Found[] = [];
  do {
    const [next, entries] = await redis.hscan(shardKeys.joined(shard), cursor, 'COUNT', namesPerCommand);
    found.push(...foundIn(entries));
    cursor = next;
  } while (cursor !== '0' && found.length < suppressionChanges.joinsPerRoundMax);
  return { shard, cursor, found };
}

const namesPerCommand = 500;

function foundIn(entries: readonly string[]): Found[] {
  const found: Found[] = [];
  for (let at = 0; at < entries.length; at += 2) {
    const [name, value] = [entries[at] as string, entries[at + 1] as string];
    const [accountId = '', identity = ''] = value.split(' ');
    found.push({ name, value, accountId, identity });
  }
  return found;
}

function byAccount(found: readonly Found[]): Map<string, Joined[]> {
  const joined = new Map<string, Joined[]>();
  for (const { accountId, name, identity } of found) {
    const its = joined.get(accountId);
    if (its === undefined) joined.set(accountId, [[name, identity]]);
    else its.push([name, identity]);
  }
  return joined;
}

async function forget({ redis }: ChangeOptions, shard: number, found: readonly Found[]): Promise<void> {
  const keys = [shardKeys.state(shard), shardKeys.joined(shard)];
  for (let first = 0; first < found.length; first += namesPerCommand) {
    const some = found.slice(first, first + namesPerCommand);
    const args = some.flatMap(({ name, value }) => [name, value]);
    await runScript(redis, scripts.forgetJoins, keys, args);
  }
}
