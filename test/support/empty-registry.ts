// A registry without accounts on a real Redis, for tests of its documents. It needs neither ClickHouse nor our processes.

import { randomUUID } from 'node:crypto';
import type { Redis } from '../../src/packages/ioredis.js';
import { registryKeys } from '../../src/redis/keys.js';
import { startStore } from './stores.js';

export type EmptyRegistry = {
  readonly redis: Redis;
  /** Removes everything, and writes the document of a new deployment. */
  clear(): Promise<void>;
  /** Writes documents unchecked, such as older ones that exceed a newer bound. */
  write(documents: Readonly<Record<string, object>>): Promise<void>;
};

export async function startEmptyRegistry(): Promise<EmptyRegistry> {
  const { redis } = await startStore();
  const write: EmptyRegistry['write'] = async (documents) => {
    const texts = Object.entries(documents).map(
      ([key, document]) => [key, JSON.stringify(document)] as const,
    );
    await redis.hset(registryKeys.documents, Object.fromEntries(texts));
    await redis.incr(registryKeys.version);
  };
  return {
    redis,
    clear: async () => {
      await redis.flushall();
      const epoch = randomUUID();
      await redis.set(registryKeys.epoch, epoch);
      await write({ 'deployment:': { epoch, secret: '', shards: 1, created_at: '' } });
    },
    write,
  };
}
