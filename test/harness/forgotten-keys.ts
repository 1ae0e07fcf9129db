// Makes Redis forget idempotency keys at once, which else takes hours, on a deployment with one shard.

import type { Redis } from 'ioredis';
import { shardKeys } from '../../src/redis/keys.js';
import { until } from './wait.js';

const minuteUs = 60_000_000;

/** Advances the clock of claims until Redis has forgotten all earlier keys. Workers must run. */
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
  // Workers would remove the forgotten keys bucket by bucket within the hour; here all go at once.
  await redis.del(shardKeys.claims(0));
}
