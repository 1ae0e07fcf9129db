// How much of Redis's memory a backlog takes.

import type { Redis } from 'ioredis';
import { segmentOfMember, shardKeys } from '../../src/redis/keys.js';

/** STRLEN of a segment; and MEMORY USAGE, which includes the key and the allocator's rounding. */
type SegmentMemory = { readonly bytes: number; readonly memoryBytes: number };

/** All outstanding segments of the shard, oldest first. */
export async function readSegments(redis: Redis, shard: number): Promise<SegmentMemory[]> {
  const found: SegmentMemory[] = [];
  for (const member of await redis.zrange(shardKeys.segments(shard), '0', '-1')) {
    const key = shardKeys.segment(shard, segmentOfMember(member));
    const [bytes, memory] = await Promise.all([redis.strlen(key), redis.memory('USAGE', key)]);
    found.push({ bytes, memoryBytes: memory ?? 0 });
  }
  return found;
}

/** The bytes that Redis has allocated. */
export async function usedMemory(redis: Redis): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1]);
}
