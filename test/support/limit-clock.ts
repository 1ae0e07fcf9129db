// The clock of rate limits: it runs with Redis's own and is ahead of it by what the state of a shard says.

import { shardKeys } from '../../src/redis/keys.js';
import { withRedis } from './redis-client.js';

/**
 * Moves the clock of rate limits forward, for all users of all environments of a deployment with one shard. For
 * tests of what comes after a window; that a window really lasts as long is for those that wait.
 */
export async function forwardLimitClock(
  sluice: { readonly redisUrl: string },
  seconds: number,
): Promise<void> {
  await withRedis(sluice, (redis) =>
    redis.hincrby(shardKeys.state(0), 'limit_clock_ahead_us', seconds * 1_000_000),
  );
}
