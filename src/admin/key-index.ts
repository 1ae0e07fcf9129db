// The index of idempotency keys, for administrators: how large it is, how far it reaches, and how to rebuild it.

import { AdministrationError } from '../accounts/accounts.js';
import { readRegistry, StateNotLoaded } from '../accounts/registry.js';
import type { ClickHouseClient } from '../clickhouse/client.js';
import {
  addKeys,
  type KeyIndexSize,
  readKeyIndexSize,
  readMarkers,
  stepsOf,
  writeMarker,
} from '../clickhouse/key-index.js';
import { serversOf, serversThere } from '../clickhouse/servers.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { takeTurn } from '../redis/turn.js';
import { keyIndex } from '../tuning.js';
import type { AdminContext } from './context.js';

/**
 * The state of the index. `needed_since` is when the first key was forgotten, as far as this Redis knows; null while none was,
 * when nobody asks the index. A shard is `complete` when its index reaches as far as keys were forgotten. While it is not,
 * segments with keys wait. Of several servers those that do not answer are left out, and it is null for their shards.
 */
export async function showKeyIndex({ redis, clickhouse }: AdminContext) {
  const shards = await countShards(redis);
  const servers = serversOf(clickhouse);
  const there = await serversThere(servers);
  const ofThose = <T>(read: (client: ClickHouseClient) => Promise<T>) =>
    Promise.all(servers.all.map((client, number) => (there.has(number) ? read(client) : undefined)));
  const [sizes, markersOf] = await Promise.all([ofThose(readKeyIndexSize), ofThose(readMarkers)]);
  const size = sumOf(sizes.filter((each) => each !== undefined));
  const markerCount = markersOf.reduce((sum, markers) => sum + (markers?.size ?? 0), 0);
  let neededSince: number | undefined;
  const states = [];
  for (let shard = 0; shard < shards; shard++) {
    const [forgottenTo, forgottenS] = await redis.hmget(
      shardKeys.state(shard),
      'keys_forgotten_to',
      'keys_forgotten_s',
    );
    const markers = markersOf[servers.numberOf(shard)];
    const indexedTo = markers?.get(shard) ?? '0';
    if (forgottenS) neededSince = Math.min(neededSince ?? Number(forgottenS), Number(forgottenS));
    states.push({
      shard,
      indexed_to: markers === undefined ? null : timeOf(indexedTo),
      forgotten_to: timeOf(forgottenTo ?? '0'),
      complete: markers === undefined ? null : BigInt(indexedTo) >= BigInt(forgottenTo ?? '0'),
    });
  }
  return {
    keys: Math.max(0, size.keys - markerCount),
    bytes: size.bytes,
    needed_since: neededSince === undefined ? null : new Date(neededSince * 1000).toISOString(),
    shards: states,
  };
}

/**
 * Adds the keys of all stored rows again, while the service runs. What is in the index stays, since it alone has the keys of
 * deleted rows. `say` is called with the progress.
 */
export async function rebuildKeyIndex({ redis, clickhouse }: AdminContext, say: (line: string) => void) {
  const shards = await countShards(redis);
  const servers = serversOf(clickhouse);
  const { deployment } = await readRegistry(redis);
  for (let shard = 0; shard < shards; shard++) {
    if (servers.isMoving(shard))
      throw new AdministrationError(`shard ${shard} is being moved: try again when that is done`);
    const client = servers.ofShard(shard);
    const turn = shardKeys.indexing(shard);
    if (!(await takeTurn(redis, turn, keyIndex.turnMs)))
      throw new AdministrationError('a worker adds keys to the index just now; try again');
    try {
      const keys = [shardKeys.state(shard), shardKeys.segments(shard)];
      const to = (await runScript(redis, scripts.indexable, keys, [deployment?.epoch ?? ''])) as
        | string
        | null;
      if (to === null) throw new StateNotLoaded();
      const steps = await stepsOf(client, shard, '0', to);
      let from = '0';
      for (const [i, step] of steps.entries()) {
        await redis.set(turn, '1', 'PX', keyIndex.turnMs);
        await addKeys(client, shard, from, step);
        from = step;
        say(`shard ${shard}: step ${i + 1} of ${steps.length}, up to ${timeOf(step)}`);
      }
      await writeMarker(client, shard, to);
    } finally {
      await redis.del(turn);
    }
  }
  const { keys, bytes } = sumOf(await Promise.all(servers.all.map(readKeyIndexSize)));
  return { rebuilt: true, keys, bytes };
}

function sumOf(sizes: readonly KeyIndexSize[]): KeyIndexSize {
  const none = { keys: 0, bytes: 0 };
  return sizes.reduce((sum, { keys, bytes }) => ({ keys: sum.keys + keys, bytes: sum.bytes + bytes }), none);
}

async function countShards(redis: AdminContext['redis']): Promise<number> {
  const { deployment } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  return deployment.shards;
}

/** When the segment with a number was opened. */
function timeOf(number: string): string | null {
  return number === '0' ? null : new Date(Number(number) / 1000).toISOString();
}
