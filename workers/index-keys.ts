// Adds the keys of a shard's stored segments to the index, so that Redis may forget them, and rebuilds the index when an
// administrator asks for that. The order is: add keys to ClickHouse, write the marker there, record it in Redis. Each step may be
// repeated, by several workers at once.

import type { ClickHouseClient } from '../src/clickhouse/client.js';
import {
  addKeys,
  generationAbove,
  type Marker,
  readMarkers,
  stepsOf,
  writeMarker,
} from '../src/clickhouse/key-index.js';
import { indexNameOf, isRefusedSegment } from '../src/clickhouse/store.js';
import { readOutstanding } from '../src/redis/backlog.js';
import { type Rebuild, rebuildOf, rebuildText } from '../src/redis/key-rebuild.js';
import { shardKeys } from '../src/redis/keys.js';
import { withLease } from '../src/redis/lease.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { keyIndex } from '../src/tuning.js';
import type { WorkerContext } from './context.js';

export type IndexOptions = Pick<WorkerContext, 'redis' | 'clickhouse' | 'epoch' | 'crash' | 'log'>;

/** Keys were added to an index that is no longer the one of the shard: the next call begins again. */
const replaced = 'the index of keys was exchanged or moved meanwhile';

/**
 * Extends the index of a shard up to the oldest segment that is not stored yet, and continues a rebuild. Settles with the segment
 * number that the index reaches, or with undefined if another worker is doing it or Redis does not hold the deployment.
 */
export async function indexKeys(options: IndexOptions, shard: number): Promise<string | undefined> {
  const { redis, epoch } = options;
  const indexed = await withLease(redis, shardKeys.indexing(shard), keyIndex.lease, async () => {
    const found = await readOutstanding(redis, shard, epoch);
    if (found === undefined) return undefined;
    const marker = await extend(options, shard, await readMarker(options, shard), found.storedTo);
    await rebuild(options, shard, marker);
    return marker.indexedTo;
  });
  return indexed === 'locked' ? undefined : indexed;
}

/** The marker in ClickHouse decides, since the index may have been lost or set back. Without one, a new generation begins. */
async function readMarker({ redis, clickhouse }: IndexOptions, shard: number): Promise<Marker> {
  const marker = (await readMarkers(clickhouse)).get(shard);
  if (marker !== undefined) return marker;
  const known = await redis.hget(shardKeys.state(shard), 'keys_generation');
  const first = { indexedTo: '0', generation: generationAbove(known) };
  await mark(clickhouse, shard, first, undefined);
  return first;
}

async function addStep(clickhouse: ClickHouseClient, shard: number, from: string, to: string): Promise<void> {
  await addKeys(clickhouse, shard, from, to).catch((error: unknown) => {
    throw isRefusedSegment(error) ? new Error(replaced) : error;
  });
}

async function mark(
  clickhouse: ClickHouseClient,
  shard: number,
  marker: Marker,
  during: string | undefined,
): Promise<void> {
  if (!(await writeMarker(clickhouse, shard, marker, during, indexNameOf(shard)))) throw new Error(replaced);
}

async function extend(
  options: IndexOptions,
  shard: number,
  { indexedTo, generation }: Marker,
  to: string,
): Promise<Marker> {
  const { clickhouse, crash, log } = options;
  let from = indexedTo;
  const steps = BigInt(from) < BigInt(to) ? await stepsOf(clickhouse, shard, from, to) : [];
  const isFirst = from === '0' && steps.length > 0;
  if (isFirst) log.info({ shard, steps: steps.length }, 'the index of keys is built from the stored rows');
  for (const [i, step] of steps.entries()) {
    await addStep(clickhouse, shard, from, step);
    crash('keys_added');
    await mark(clickhouse, shard, { indexedTo: step, generation }, generation);
    crash('keys_marked');
    await recordIndexed(options, shard, { indexedTo: step, generation });
    from = step;
    if (steps.length > 1) log.info({ shard, step: i + 1, steps: steps.length }, 'the index of keys grows');
  }
  // Redis may lack a step that was interrupted after its marker was written.
  if (steps.length === 0) await recordIndexed(options, shard, { indexedTo, generation });
  if (isFirst) log.info({ shard }, 'the index of keys is complete');
  return { indexedTo: from, generation };
}

/**
 * Adds the keys of all stored rows again. Existing keys stay, since only the index has the keys of deleted rows. The rebuilt index
 * gets a new generation, so that no worker keeps using a filter that lacks the added keys.
 */
async function rebuild(options: IndexOptions, shard: number, marker: Marker): Promise<void> {
  const { clickhouse, crash, log } = options;
  let asked = await readRebuild(options, shard);
  if (asked === undefined) return;
  // Progress in an index that was replaced since does not count.
  if (asked.generation !== marker.generation) {
    const restarted = { ...asked, generation: marker.generation, doneTo: '0', to: marker.indexedTo };
    if (!(await writeRebuild(options, shard, asked, restarted))) return;
    asked = restarted;
  }
  const steps = await stepsOf(clickhouse, shard, asked.doneTo, asked.to);
  // The limit begins here, since computing the steps alone may take longer than it.
  const untilMs = performance.now() + keyIndex.rebuildMsMax;
  for (const step of steps) {
    // Keys that are stored meanwhile must not wait for the whole rebuild: the next call continues here.
    if (performance.now() > untilMs) return;
    await addStep(clickhouse, shard, asked.doneTo, step);
    crash('keys_added');
    const further: Rebuild = { ...asked, doneTo: step };
    if (!(await writeRebuild(options, shard, asked, further))) return;
    asked = further;
    log.info({ shard, done_to: step, to: asked.to }, 'the index of keys is rebuilt');
  }
  const rebuilt = { indexedTo: marker.indexedTo, generation: generationAbove(marker.generation) };
  await mark(clickhouse, shard, rebuilt, marker.generation);
  crash('keys_marked');
  await recordIndexed(options, shard, rebuilt);
  await writeRebuild(options, shard, asked, undefined);
}

async function readRebuild({ redis }: IndexOptions, shard: number): Promise<Rebuild | undefined> {
  return rebuildOf(await redis.hget(shardKeys.state(shard), 'keys_rebuild'));
}

/** Settles with whether it was written: not if another process has changed the rebuild meanwhile. */
async function writeRebuild(
  { redis, epoch }: IndexOptions,
  shard: number,
  current: Rebuild,
  next: Rebuild | undefined,
): Promise<boolean> {
  const args = [epoch, rebuildText(current), next === undefined ? '' : rebuildText(next)];
  return (await runScript(redis, scripts.noteRebuild, [shardKeys.state(shard)], args)) === 1;
}

async function recordIndexed(
  { redis, epoch, crash }: IndexOptions,
  shard: number,
  marker: Marker,
): Promise<void> {
  const args = [epoch, marker.indexedTo, marker.generation];
  await runScript(redis, scripts.keysIndexed, [shardKeys.state(shard)], args);
  crash('keys_index_noted');
}
