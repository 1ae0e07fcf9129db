import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { createLog } from '../src/log.js';
import { connectForQueue } from '../src/redis/client.js';
import { shardKeys } from '../src/redis/keys.js';
import { takeTurn } from '../src/redis/turn.js';
import {
  hasTicked,
  noteTick,
  openQueue,
  promoteOverdelayed,
  queueOptions,
  storeJobOptions,
  storeQueueName,
} from '../workers/queues.js';
import { type RedisHandle, startRedis } from './support/services.js';
import { until } from './support/wait.js';

let server: RedisHandle;
let redis: Redis;

before(async () => {
  server = await startRedis();
  redis = new Redis(server.url, { maxRetriesPerRequest: null });
});

after(async () => {
  redis.disconnect();
  await server.remove();
});

const hourMs = 3_600_000;

test('a job that failed on a worker whose clock is hours ahead does not wait for hours', async () => {
  const queue = openQueue(storeQueueName, 0, redis);
  const realNow = Date.now;
  let failures = 0;
  const worker = new Worker(
    storeQueueName,
    async () => {
      failures += 1;
      Date.now = () => realNow() + hourMs;
      throw new Error('as ClickHouse does');
    },
    { ...queueOptions(0, redis), settings: { backoffStrategy: () => 1_000 } },
  );
  try {
    await queue.add('store', {}, { ...storeJobOptions, jobId: 'far' });
    await until(async () => (await queue.getDelayedCount()) === 1, {
      deadlineMs: 30_000,
      what: 'the job is delayed',
    });
  } finally {
    Date.now = realNow;
    await worker.close();
  }
  assert.equal(failures, 1);
  await queue.add('store', {}, { ...storeJobOptions, jobId: 'near', delay: 5_000 });
  await promoteOverdelayed(redis, queue, Date.now());
  assert.deepEqual(
    (await queue.getWaiting()).map(({ id }) => id),
    ['far'],
  );
  assert.deepEqual(
    (await queue.getDelayed()).map(({ id }) => id),
    ['near'],
    'a wait of ours is kept',
  );
  await queue.close();
});

test('a command of the queues settles though its answer never comes', async () => {
  const queueRedis = connectForQueue(
    { redisUrl: server.url, redisCluster: false },
    createLog('test', 'silent'),
    // Long enough that the first command, which waits for the connection, is answered on a busy machine.
    5_000,
  );
  await queueRedis.ping();
  server.sigstop();
  try {
    const settled = queueRedis.ping().then(
      () => 'answered',
      () => 'given up',
    );
    assert.equal(await settled, 'given up');
  } finally {
    server.sigcont();
    queueRedis.disconnect();
  }
});

test('ticks and turns that were noted before the clock was set back by a day count no longer than others', async () => {
  assert.equal(await hasTicked(redis, 0), false);
  await noteTick(redis, 0);
  assert.equal(await hasTicked(redis, 0), true);
  assert.equal(await takeTurn(redis, 'turn', 4_000), true);
  assert.equal(await takeTurn(redis, 'turn', 4_000), false);
  for (const key of [shardKeys.ticked(0), 'turn']) await redis.pexpire(key, 24 * hourMs);
  assert.equal(await hasTicked(redis, 0), false, 'so they are started again');
  assert.equal(await takeTurn(redis, 'turn', 4_000), false);
  assert.ok((await redis.pttl('turn')) <= 4_000, 'the next turn is not a day away');
});
