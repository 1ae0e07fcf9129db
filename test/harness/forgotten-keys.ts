// Has Redis forget idempotency keys as after hours, on a deployment with one shard.

import type { Redis } from 'ioredis';
import { shardKeys } from '../../src/redis/keys.js';
import { until } from './wait.js';

const minuteUs = 60_000_000;

/** Sets the clock of claims forward; settles when Redis has forgotten all earlier keys. Workers have to run. */
export async function forgetKeys(redis: Redis): Promise<void> {
  const state = shardKeys.state(0);
  const sentAt = Number(await redis.hget(state, 'claim_clock_us')) / minuteUs;
  await until(
    async () => {
      await redis.hincrby(state, 'claim_clock_us', 60 * minuteUs);
      return Number(await redis.hget(state, 'claims_kept_from')) > sentAt;
    },
    { what: 'Redis has forgotten the keys', everyMs: 200 },
  );
  // The rest of them would be removed bucket by bucket within the hour; here it goes at once.
  await redis.del(shardKeys.claims(0));
}
