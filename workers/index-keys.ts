// Adds the keys of a shard's stored segments to the index, so that Redis may forget them. Each step may be repeated, by several
// workers at once: add the keys, then write the marker, then tell Redis.

import { addKeys, readMarkers, stepsOf, writeMarker } from '../src/clickhouse/key-index.js';
import { keyIndexSteps } from '../src/metrics.js';
import { shardKeys } from '../src/redis/keys.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { takeTurn } from '../src/redis/turn.js';
import { keyIndex } from '../src/tuning.js';
import type { WorkerContext } from './context.js';

export type IndexOptions = Pick<WorkerContext, 'redis' | 'clickhouse' | 'epoch' | 'crash' | 'log'>;

/**
 * Brings the index of a shard up to its oldest segment that is not stored. Settles with how far it reaches, or with undefined if
 * another worker is doing it or Redis does not hold the deployment.
 */
export async function indexKeys(options: IndexOptions, shard: number): Promise<string | undefined> {
  const { redis, clickhouse, epoch, crash, log } = options;
  const turn = shardKeys.indexing(shard);
  if (!(await takeTurn(redis, turn, keyIndex.turnMs))) return undefined;
  try {
    const keys = [shardKeys.state(shard), shardKeys.segments(shard)];
    const to = (await runScript(redis, scripts.indexable, keys, [epoch])) as string | null;
    if (to === null) return undefined;
    // The marker in ClickHouse decides, since the index may have been lost or set back.
    const marker = (await readMarkers(clickhouse)).get(shard) ?? '0';
    let from = marker;
    const steps = BigInt(marker) < BigInt(to) ? await stepsOf(clickhouse, shard, marker, to) : [];
    if (marker === '0' && steps.length > 0)
      log.info({ shard, steps: steps.length }, 'the index of keys is made from the stored rows');
    for (const [i, step] of steps.entries()) {
      // Not written anew: a full Redis refuses that, and only segments that wait for the index make room.
      await redis.pexpire(turn, keyIndex.turnMs);
      await addKeys(clickhouse, shard, from, step);
      crash('keys_added');
      await writeMarker(clickhouse, shard, step);
      crash('keys_marked');
      await noteIndexed(options, shard, step);
      keyIndexSteps.inc();
      from = step;
      if (steps.length > 1) log.info({ shard, step: i + 1, steps: steps.length }, 'the index of keys grows');
    }
    // Redis may not know of a step that was cut off after its marker.
    if (steps.length === 0) await noteIndexed(options, shard, marker);
    if (marker === '0' && steps.length > 0) log.info({ shard }, 'the index of keys is complete');
    return from;
  } finally {
    await redis.del(turn);
  }
}

async function noteIndexed({ redis, epoch, crash }: IndexOptions, shard: number, to: string): Promise<void> {
  await runScript(redis, scripts.keysIndexed, [shardKeys.state(shard)], [epoch, to]);
  crash('keys_index_noted');
}
