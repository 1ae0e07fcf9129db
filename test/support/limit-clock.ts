// The clock of rate limits. It is Redis's own clock plus an offset in the state of a shard.

import { shardKeys } from '../../src/redis/keys.js';
import { withRedis } from '../harness/redis-client.js';

/**
 * Moves the clock of rate limits forward, for all users of all environments of a deployment with one shard. It is for tests
 * of what happens after a window. Other tests check that a window really lasts as long.
 */
export async function forwardLimitClock(
  sluice: { readonly redisUrl: string },
  seconds: number,
): Promise<void> {
  await withRedis(sluice, (redis) =>
    redis.hincrby(shardKeys.state(0), 'limit_clock_ahead_us', seconds * 1_000_000),
  );
}
