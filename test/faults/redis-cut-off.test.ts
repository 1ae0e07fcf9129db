// A primary of Redis that is cut off from its replicas and the sentinels, but not from some API processes and workers: these continue
// beside those that follow the new primary, and nothing that they do counts.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { assertKept, newProducer, untilDrained } from '../harness/fault-checks.js';
import { startLoad, whileRunning } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { ask } from '../harness/redis-cluster.js';
import { type RedisReplicasHandle, startRedisReplicas } from '../harness/redis-replicas.js';
import { type RedisHandle, type SluiceHandle, startSluice } from '../harness/services.js';
import { until } from '../harness/wait.js';

let redis: RedisReplicasHandle;
/** `followers` are processes that follow the sentinels; `left` know the first server only. */
let followers: SluiceHandle;
let left: SluiceHandle;

before(async () => {
  redis = await startRedisReplicas({ replicas: 2, sentinels: 3, isProxied: true });
  const first = redis.servers[0] as RedisHandle;
  const env = { REDIS_REPLICAS_ACK: '1', JOB_LOCK_MS: '1000' };
  followers = await startSluice({ redis: first, env: { ...env, REDIS_URL: redis.url } });
  left = await startSluice({
    redis: first,
    clickhouse: followers.clickhouse,
    env: { ...env, REDIS_URL: first.url, CLICKHOUSE_DATABASE: followers.database },
  });
});

after(async () => {
  await left?.stop();
  await followers?.stop();
  await redis?.remove();
});

test('processes left with the former primary acknowledge and store nothing, and records sent to them are accepted once', async () => {
  const [former] = redis.servers as [RedisHandle];
  const [way] = redis.ways;
  const [producer, lonely] = [await newProducer(followers), await newProducer(followers)];
  const load = startLoad(producer, { targets: [followers.baseUrl] });
  const beside = startLoad(lonely, { targets: [left.baseUrl] });
  await whileRunning(beside, () =>
    whileRunning(load, async () => {
      await Promise.all([load.more(100), beside.more(100)]);
      way?.blackHole();
      await until(async () => (await redis.primary()) !== former, 'another server is the primary');
      const acknowledged = lonely.settled.filter(({ outcome }) => outcome === 'acknowledged').length;
      await load.more(300);
      // The former primary still believes that it is the primary.
      assert.match(await ask(former.port, 'info', 'replication'), /^role:master/m);
      assert.equal(lonely.settled.filter(({ outcome }) => outcome === 'acknowledged').length, acknowledged);
      // The processes left behind know of no later change, so they report that they are not ready.
      await until(
        async () => (await fetch(`${left.baseUrl}/health/ready`)).status === 503,
        'the processes left behind are not ready',
      );
      way?.pass();
      await redis.untilReplicated(2);
    }),
  );
  // Requests that were sent to the processes left behind are sent again to the others, under the same keys.
  for (const { events, outcome } of [...lonely.settled]) {
    if (outcome !== 'acknowledged' && events.every(({ idempotency_key }) => idempotency_key !== undefined))
      await lonely.send(followers.baseUrl, events);
  }
  const connection = connectTestRedis((await redis.primary()).url);
  await untilDrained(followers, connection);
  connection.disconnect();
  await assertKept(followers, producer);
  await assertKept(followers, lonely);
});
