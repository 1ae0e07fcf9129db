// Advances the clock of rate limits, which is Redis's own clock plus an offset in the state of a shard.

import { shardKeys } from '../../src/redis/keys.js';
import { withRedis } from '../harness/redis-client.js';

/**
 * Advances the clock for all environments of a deployment with one shard. This is for tests of what happens after a window; other tests
 * check how long a window really lasts.
 */
export async function forwardLimitClock(
  sluice: { readonly redisUrl: string },
  seconds: number,
): Promise<void> {
  await withRedis(sluice, (redis) =>
    redis.hincrby(shardKeys.state(0), 'limit_clock_ahead_us', seconds * 1_000_000),
  );
}
