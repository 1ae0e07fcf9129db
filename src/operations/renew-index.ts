// Renews a shard's index of keys after it got keys that no worker has added.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { raiseGeneration } from '../clickhouse/key-index.js';
import { StateNotLoaded } from '../contract/errors.js';
import { shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { readLoadedRegistry } from '../registry/registry.js';
import type { AdminContext } from './context.js';

/**
 * Gives the shard's index on a server a new generation, and records it in Redis, so that a rebuild starts again and workers reload their
 * filters. `name`: while the server accepts statements of only one name, that name.
 */
export async function renewIndex(
  { redis }: AdminContext,
  client: ClickHouseClient,
  shard: number,
  name?: string,
): Promise<void> {
  const { deployment } = await readLoadedRegistry(redis);
  const state = shardKeys.state(shard);
  const known = await redis.hget(state, 'keys_generation');
  const generation = await raiseGeneration(client, shard, known, name);
  if (generation === undefined) return;
  const recorded = await runScript(redis, scripts.keysIndexed, [state], [deployment.epoch, '0', generation]);
  if (recorded === null) throw new StateNotLoaded();
}
