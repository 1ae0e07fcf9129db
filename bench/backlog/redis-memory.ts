// What a backlog takes in Redis: for each outstanding segment the bytes of its rows and the memory that it occupies.

import type { Redis } from 'ioredis';
import { memberOf, segmentOfMember, shardKeys } from '../../src/redis/keys.js';

export type SegmentMemory = {
  /** Without the marker. */
  readonly rows: number;
  /** STRLEN. */
  readonly bytes: number;
  /** MEMORY USAGE: including the key, and rounded up by the allocator. */
  readonly memoryBytes: number;
};

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
  return Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1]);
}
