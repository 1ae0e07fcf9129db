// Anonymous users that commits have joined to suppressed ones (redis/commit-3.lua). Until they are moved from their shard to the list
// of the suppressions, the shard's commits skip what is sent about them. They are moved once a second, many at a time, and before
// a change of the suppressions, which so finds them in the list.

import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { type ChangeOptions, type Joined, joinNames, raiseShards } from './change.js';
import type { NameText } from './names.js';

/**
 * Moves the joined users of some shards, or of all. Settles, with how many found no room, when every shard knows them from the list.
 * Several processes may do it at once; whoever is cut off leaves them in their shard.
 */
export async function moveJoins(options: ChangeOptions, of?: Iterable<number>): Promise<number> {
  const shards = [...(of ?? Array.from({ length: options.shards }, (_, shard) => shard))];
  let withoutRoom = 0;
  for (;;) {
    const found = await Promise.all(shards.map((shard) => readJoins(options, shard)));
    const joined = byAccount(found.flat());
    if (joined.size === 0) return withoutRoom;
    for (const [accountId, pairs] of joined) withoutRoom += await joinNames(options, accountId, pairs);
    await raiseShards(options);
    await Promise.all(shards.map((shard, at) => forget(options, shard, found[at] ?? [])));
  }
}

/** What a commit notes beside the name of a joined user. */
export function joinTo(accountId: string, identity: NameText): string {
  return `${accountId} ${identity}`;
}

type Found = {
  readonly name: NameText;
  readonly value: string;
  readonly accountId: string;
  readonly identity: NameText;
};

const namesPerRead = 500;

async function readJoins({ redis }: ChangeOptions, shard: number): Promise<Found[]> {
  if (!(await redis.hget(shardKeys.state(shard), 'joined'))) return [];
  let cursor = '0';
  do {
    const [next, entries] = await redis.hscan(shardKeys.joined(shard), cursor, 'COUNT', namesPerRead);
    if (entries.length > 0) return foundIn(entries);
    cursor = next;
  } while (cursor !== '0');
  return [];
}

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
  if (found.length === 0) return;
  const args = found.flatMap(({ name, value }) => [name, value]);
  await runScript(redis, scripts.forgetJoins, [shardKeys.state(shard), shardKeys.joined(shard)], args);
}
