// A test's own connection to Redis, which outlives faults.

import { Redis } from 'ioredis';

export function connectTestRedis(url: string): Redis {
  const redis = new Redis(url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
  redis.on('error', () => {
    // It tries again by itself; a test that waits for too long fails on its own deadline.
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
