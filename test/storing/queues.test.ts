// Jobs of BullMQ with clocks that are wrong, workers that are killed, and answers that never come.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { noCrash } from '../../src/crash-point.js';
import { createLog } from '../../src/log.js';
import { type Queue, Worker } from '../../src/packages/bullmq.js';
import { readBacklog } from '../../src/redis/backlog.js';
import { connectForQueue } from '../../src/redis/client.js';
import { rewriteAppendOnlyFileIfWanted } from '../../src/redis/deleted-data.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { takeTurn } from '../../src/redis/lease.js';
import {
  openQueue,
  queueOptions,
  storeJobOptions,
  storeQueueName,
  tickTurnMs,
  undoEffectsOfWrongClocks,
} from '../../workers/queues.js';
import { repeatTicks, tick } from '../../workers/tick.js';
import { until } from '../harness/wait.js';
import { commit, epoch, eventRecord, group, loadShard } from '../support/shard.js';
import { startStore } from '../support/stores.js';

const { server, redis } = await startStore();
const log = createLog('test', 'silent');

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

test('a worker that is killed while it asks for a rewrite of the append-only file leaves that to the next one', async (t) => {
  await redis.set(registryKeys.rewriteWanted, 'a deletion');
  const asks = t.mock.method(redis, 'bgrewriteaof', () => new Promise(() => undefined));
  void rewriteAppendOnlyFileIfWanted(redis, log);
  await until(() => asks.mock.callCount() === 1, 'the worker asks');
  for (const during of ['another deletion', undefined]) {
    await redis.del(registryKeys.rewriteSpacing);
    asks.mock.mockImplementation(async () => {
      if (during !== undefined) await redis.set(registryKeys.rewriteWanted, during);
      return 'started';
    });
    await rewriteAppendOnlyFileIfWanted(redis, log);
    assert.equal(await redis.get(registryKeys.rewriteWanted), during ?? null);
  }
  assert.equal(asks.mock.callCount(), 3);
});

test('a command of the queues settles even if its answer never comes', async (context) => {
  const queueRedis = connectForQueue(
    { redisUrl: server.url, redisCluster: false },
    log,
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

  await redis.set(shardKeys.tickTurn(0), '', 'PX', 24 * hourMs);
  assert.equal(await tick(ticking(async () => assert.fail('it is the turn of another worker'))), true);
  assert.ok((await redis.pttl(shardKeys.tickTurn(0))) <= tickTurnMs, 'nor is the next tick');
});

/** The options of ticks of a shard with a segment; its queue is given the segment's job. */
function ticking(addBulk: () => Promise<unknown>) {
  const storeQueue = { addBulk, getFailedCount: async () => 0 } as unknown as Queue;
  const bounds = { segmentAgeMsMax: 0, jobsMax: () => 1 };
  const store = async () => assert.fail('segments have jobs');
  return { redis, storeQueue, shard: 0, epoch, ...bounds, store, crash: noCrash, log };
}

test('a process whose ticks fail leaves turns to one whose ticks succeed', async () => {
  await loadShard(redis);
  await commit(redis, [group([eventRecord('a')])]);
  let done = 0;
  const fail = () => Promise.reject(new Error('as without a connection to the queue'));
  const succeed = async () => {
    done += 1;
  };
  const stops = [fail, succeed].map((addBulk) => repeatTicks(ticking(addBulk)));
  try {
    await until(() => done >= 10, 'ten ticks succeed');
  } finally {
    await Promise.all(stops.map((stop) => stop()));
  }
});

test('while Redis is full, ticks store without jobs, and workers do not count as missing', async () => {
  await redis.flushall();
  await loadShard(redis);
  await commit(redis, [group([eventRecord('a')])]);
  const storeQueue = openQueue(storeQueueName, 0, redis);
  const stored: unknown[] = [];
  await redis.config('SET', 'maxmemory', '1');
  try {
    const store = async (segment: unknown) => stored.push(segment);
    assert.equal(await tick({ ...ticking(assert.fail), storeQueue, store }), true);
    assert.equal((await readBacklog(redis, 0)).works, true);
  } finally {
    await redis.config('SET', 'maxmemory', '0');
    await storeQueue.close();
  }
  assert.equal(stored.length, 1);
});
