// The index of idempotency keys, for administrators: how large it is, how far it reaches, and how to rebuild it.

import { randomUUID } from 'node:crypto';
import type { ClickHouseClient } from '../clickhouse/client.js';
import { type KeyIndexSize, readKeyIndexSize, readMarkers } from '../clickhouse/key-index.js';
import { reachableServers, serversOf } from '../clickhouse/servers.js';
import { StateNotLoaded } from '../contract/errors.js';
import type { AdminContext } from '../operations/context.js';
import { rebuildOf, rebuildText } from '../redis/key-rebuild.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { readLoadedRegistry } from '../registry/registry.js';

/**
 * The state of the index. `needed_since`: when the first key was forgotten, as far as this Redis knows; null while none was, since the
 * index is not needed until then. A shard is `complete` when its index has all keys that were forgotten; until then, segments with keys
 * wait. `rebuild`: how far the workers are with a requested rebuild. The number of keys of a large index is an estimate. Servers that do
 * not answer are skipped, and `complete` is null for their shards.
 */
export async function showKeyIndex({ redis, clickhouse }: AdminContext) {
  const { deployment } = await readLoadedRegistry(redis);
  const servers = serversOf(clickhouse);
  const reachable = await reachableServers(servers);
  const ofReachable = <T>(read: (client: ClickHouseClient) => Promise<T>) =>
    Promise.all(servers.all.map((client, number) => (reachable.has(number) ? read(client) : undefined)));
  const [sizes, markersOf] = await Promise.all([
    ofReachable(readKeyIndexSize),
    ofReachable((client) => readMarkers(client)),
  ]);
  const size = sumOf(sizes.filter((each) => each !== undefined));
  let neededSince: number | undefined;
  const states = [];
  for (let shard = 0; shard < deployment.shards; shard++) {
    const [forgottenTo, forgottenS, asked] = await redis.hmget(
      shardKeys.state(shard),
      'keys_forgotten_to',
      'keys_forgotten_s',
      'keys_rebuild',
    );
    const markers = markersOf[servers.numberOf(shard)];
    const indexedTo = markers?.get(shard)?.indexedTo ?? '0';
    const rebuild = rebuildOf(asked);
    if (forgottenS) neededSince = Math.min(neededSince ?? Number(forgottenS), Number(forgottenS));
    states.push({
      shard,
      indexed_to: markers === undefined ? null : timeOf(indexedTo),
      forgotten_to: timeOf(forgottenTo ?? '0'),
      complete: markers === undefined ? null : BigInt(indexedTo) >= BigInt(forgottenTo ?? '0'),
      rebuild: rebuild === undefined ? null : { done_to: timeOf(rebuild.doneTo), to: timeOf(rebuild.to) },
    });
  }
  return {
    keys: size.keys,
    bytes: size.bytes,
    needed_since: neededSince === undefined ? null : new Date(neededSince * 1000).toISOString(),
    shards: states,
  };
}

/**
 * Makes the workers add the keys of all stored rows again, while the service runs. Existing entries stay, since only the index has the keys
 * of deleted rows. Settles once the workers are told to; `showKeyIndex` shows their progress. Another call during a rebuild starts it
 * again.
 */
export async function rebuildKeyIndex(context: AdminContext) {
  const { redis } = context;
  const { deployment } = await readLoadedRegistry(redis);
  for (let shard = 0; shard < deployment.shards; shard++) {
    const state = shardKeys.state(shard);
    for (let recorded: unknown = 0; recorded === 0; ) {
      const before = (await redis.hget(state, 'keys_rebuild')) ?? '';
      const asked = rebuildText({ id: randomUUID(), generation: '', doneTo: '0', to: '0' });
      recorded = await runScript(redis, scripts.noteRebuild, [state], [deployment.epoch, before, asked]);
      if (recorded === null) throw new StateNotLoaded();
    }
  }
  return showKeyIndex(context);
}

function sumOf(sizes: readonly KeyIndexSize[]): KeyIndexSize {
  const none = { keys: 0, bytes: 0 };
  return sizes.reduce((sum, { keys, bytes }) => ({ keys: sum.keys + keys, bytes: sum.bytes + bytes }), none);
}

/** When the segment with this number was opened. */
function timeOf(number: string): string | null {
  return number === '0' ? null : new Date(Number(number) / 1000).toISOString();
}
