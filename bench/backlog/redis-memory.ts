// What a backlog takes in Redis: for each outstanding segment the bytes of its rows and the memory that it occupies.

import type { Redis } from 'ioredis';
import { memberOf, segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { BenchError } from '../failure.js';

export type SegmentMemory = {
  /** Without the marker. */
  readonly rows: number;
  /** STRLEN. */
  readonly bytes: number;
  /** MEMORY USAGE: including the key, and rounded up by the allocator. */
  readonly memoryBytes: number;
};

const sealedMsMax = 10_000;
const lookEveryMs = 50;

/** Settles when no segment of the shard is open; only workers seal segments that are full or old. */
export async function untilSealed(redis: Redis, shard: number): Promise<void> {
  const deadline = performance.now() + sealedMsMax;
  for (;;) {
    const state = await redis.hgetall(shardKeys.state(shard));
    if (!Object.keys(state).some((field) => field.startsWith('open.'))) return;
    if (performance.now() > deadline) throw new BenchError('the segments are not sealed');
    await new Promise((resolve) => setTimeout(resolve, lookEveryMs));
  }
}

/** All outstanding segments of the shard, oldest first. */
export async function readSegments(redis: Redis, shard: number): Promise<SegmentMemory[]> {
  const members = await redis.zrange(shardKeys.segments(shard), '0', '-1');
  const found: SegmentMemory[] = [];
  for (const member of members) {
    const segment = segmentOfMember(member);
    const key = shardKeys.segment(shard, segment);
    const [bytes, memory, rows] = await Promise.all([
      redis.strlen(key),
      redis.memory('USAGE', key),
      redis.hget(shardKeys.segmentRows(shard), memberOf(segment)),
    ]);
    found.push({ bytes, memoryBytes: memory ?? 0, rows: Number(rows ?? 0) });
  }
  return found;
}

/** The bytes that Redis has allocated. */
export async function usedMemory(redis: Redis): Promise<number> {
  const used = /^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1];
  return Number(used);
}
