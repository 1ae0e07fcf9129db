// A test's own connection to Redis, which survives faults.

import { Redis } from '../../src/packages/ioredis.js';

export function connectTestRedis(url: string): Redis {
  const redis = new Redis(url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
  redis.on('error', () => {
    // The client reconnects by itself; a test that waits too long fails by its own deadline.
  });
  return redis;
}

export async function withRedis<Result>(
  { redisUrl }: { readonly redisUrl: string },
  work: (redis: Redis) => Promise<Result>,
): Promise<Result> {
  const redis = connectTestRedis(redisUrl);
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}
