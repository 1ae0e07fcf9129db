// A registry without accounts on a real Redis, for tests of what is in it. It needs neither ClickHouse nor processes of ours.

import { randomUUID } from 'node:crypto';
import { Redis } from '../../src/packages/ioredis.js';
import { registryKeys } from '../../src/redis/keys.js';
import { type RedisHandle, startRedis } from '../harness/services.js';

export type EmptyRegistry = {
  readonly redis: Redis;
  /** Forgets everything but the deployment. */
  clear(): Promise<void>;
  /** Writes documents as they are, such as ones from before there was a bound. */
  write(documents: Readonly<Record<string, object>>): Promise<void>;
  remove(): Promise<void>;
};

export async function startEmptyRegistry(): Promise<EmptyRegistry> {
  const server: RedisHandle = await startRedis({ appendfsync: 'no' });
  const redis = new Redis(server.url);
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
    remove: async () => {
      redis.disconnect();
      await server.remove();
    },
  };
}
