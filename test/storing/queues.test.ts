// Jobs of BullMQ with clocks that are wrong, workers that are killed, and answers that never come.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog } from '../../src/log.js';
import { Worker } from '../../src/packages/bullmq.js';
import { connectForQueue } from '../../src/redis/client.js';
import { takeTurn } from '../../src/redis/lease.js';
import {
  openQueue,
  queueOptions,
  storeJobOptions,
  storeQueueName,
  undoEffectsOfWrongClocks,
} from '../../workers/queues.js';
import { repeatTicks } from '../../workers/tick.js';
import { until } from '../harness/wait.js';
import { startStore } from '../support/stores.js';

const { server, redis } = await startStore();

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
    await until(async () => (await queue.getDelayedCount()) === 1, 'the job is delayed');
  } finally {
    Date.now = realNow;
    await worker.close();
  }
  assert.equal(failures, 1);
  await queue.add('store', {}, { ...storeJobOptions, jobId: 'near', delay: 5_000 });
  await undoEffectsOfWrongClocks(redis, queue, 5_000, Date.now());
  assert.deepEqual(
    (await queue.getWaiting()).map(({ id }) => id),
    ['far'],
  );
  assert.deepEqual(
    (await queue.getDelayed()).map(({ id }) => id),
    ['near'],
    'a delay that we set ourselves stays',
  );
  await queue.close();
});

test('a killed worker’s job is given to another one although Redis’s clock was a day ahead meanwhile', async (context) => {
  const queue = openQueue(storeQueueName, 1, redis);
  const options = {
    ...queueOptions(1, redis),
    lockDuration: 5_000,
    stalledInterval: 200,
    maxStalledCount: 100,
  };
  const ran: string[] = [];
  const killed = new Worker(storeQueueName, undefined, { ...options, autorun: false });
  const survivor = new Worker(storeQueueName, async ({ id }) => void ran.push(String(id)), {
    ...options,
    autorun: false,
  });
  context.after(async () => {
    await Promise.all([killed.close(true), survivor.close()]);
    await queue.close();
  });
  await queue.add('store', {}, { ...storeJobOptions, jobId: 'held' });
  assert.equal((await killed.getNextJob('token'))?.id, 'held');
  // The lock and the check have the times to live that they would have if they had been set while the clock was a day ahead.
  assert.equal(await redis.pexpire(`${queue.toKey('held')}:lock`, 24 * hourMs), 1);
  await redis.set(queue.toKey('stalled-check'), '1', 'PX', 24 * hourMs);
  await undoEffectsOfWrongClocks(redis, queue, 500, Date.now());
  void survivor.run();
  await until(() => ran.length > 0, 'another worker runs the job');
  assert.deepEqual(ran, ['held']);
});

test('a command of the queues settles even if its answer never comes', async (context) => {
  const queueRedis = connectForQueue(
    { redisUrl: server.url, redisCluster: false },
    createLog('test', 'silent'),
    // Long enough for the first command, which waits for the connection, on a busy machine.
    5_000,
  );
  await queueRedis.ping();
  server.sigstop();
  context.after(() => {
    server.sigcont();
    queueRedis.disconnect();
  });
  const settled = queueRedis.ping().then(
    () => 'answered',
    () => 'given up',
  );
  assert.equal(await settled, 'given up');
});

test('turns from before the clock was set back by a day do not last longer than others', async () => {
  assert.equal(await takeTurn(redis, 'turn', 60_000), true);
  assert.equal(await takeTurn(redis, 'turn', 60_000), false);
  await redis.pexpire('turn', 24 * hourMs);
  assert.equal(await takeTurn(redis, 'turn', 60_000), false);
  assert.ok((await redis.pttl('turn')) <= 60_000, 'the next turn is not a day away');
});

test('a process whose ticks fail leaves turns to one whose ticks succeed', async () => {
  let done = 0;
  const [shard, log] = [7, createLog('test', 'silent')];
  const fail = () => Promise.reject(new Error('as without a connection to the queue'));
  const succeed = async () => {
    done += 1;
    return true;
  };
  const stops = [fail, succeed].map((run) => repeatTicks({ redis, shard, run, log }));
  try {
    await until(() => done >= 10, 'ten ticks succeed');
  } finally {
    await Promise.all(stops.map((stop) => stop()));
  }
});
