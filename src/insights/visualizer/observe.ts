// The metrics of the visualizer: how many pairings there are.

import { visualizerPairings } from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { visualizerKeys } from '../../redis/keys.js';

/** Sets the gauge of pairings from Redis. */
export async function observePairings(redis: Redis): Promise<void> {
  const [seconds] = await redis.time();
  const [waiting, live] = await Promise.all([
    redis.zcount(visualizerKeys.waiting, Number(seconds) * 1000, '+inf'),
    redis.zcount(visualizerKeys.live, Number(seconds) * 1000, '+inf'),
  ]);
  visualizerPairings.set({ state: 'waiting' }, waiting);
  visualizerPairings.set({ state: 'live' }, live);
}
