// Segments of different shards never have the same number: a table holds the segments of all shards and knows them only by their numbers.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { shardKeys, shardOf } from '../../src/redis/keys.js';
import { restoreState } from '../harness/accounts.js';
import { assertKept, newProducer } from '../harness/fault-checks.js';
import type { Producer } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

const shards = 2;

const sluice = await ownSluice({ env: { SHARDS: String(shards) } });
const redis = connectTestRedis(sluice.redisUrl);

after(() => redis.disconnect());

/** A producer for an environment of every shard. */
async function newProducers(): Promise<Producer[]> {
  const byShard = new Map<number, Producer>();
  while (byShard.size < shards) {
    const producer = await newProducer(sluice);
    byShard.set(shardOf(producer.appId, shards), producer);
  }
  return [...byShard.values()];
}

async function untilAllStored(): Promise<void> {
  for (let shard = 0; shard < shards; shard += 1) {
    await until(
      async () => (await redis.zcard(shardKeys.segments(shard))) === 0,
      `no segment of shard ${shard} is outstanding`,
    );
  }
}

test('stores the first segments of every shard after a restore although the clock is behind', {}, async () => {
  const producers = await newProducers();
  // The numbers of all shards must continue above this one, which is ahead of the clock.
  const ahead = BigInt(Date.now() + 3_600_000) * 1000n;
  await sluice.rows(`INSERT INTO stored_events (app_id, segment) VALUES ('', ${ahead})`);
  await redis.flushall();
  await restoreState(sluice);
  for (const producer of producers) {
    for (let request = 0; request < 3; request += 1) {
      const { outcome, message } = await producer.send(sluice.baseUrl, [producer.nextEvent()]);
      assert.equal(outcome, 'acknowledged', message);
    }
    await untilAllStored();
  }
  for (const producer of producers) {
    await assertKept(sluice, producer, { acknowledgedMin: 3 });
    producer.close();
  }
});
