// Redis is full, without its scripts, without BullMQ's keys, or far away from the workers. Nothing is stored in part, and only the set of
// segments decides what still has to be stored.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { shardKeys } from '../../src/redis/keys.js';
import type { SentEvent } from '../harness/endpoints.js';
import { assertStoredOnce, newProducer, underLoad, unknownMax } from '../harness/fault-checks.js';
import type { Outcome, Request } from '../harness/load.js';
import { until } from '../harness/wait.js';
import { redisWorld } from '../support/redis-world.js';

const { proxy, sluice, redis } = await redisWorld('workerEnv');

afterEach(async () => {
  proxy.pass();
  for (const worker of sluice.workers) worker.sigcont();
  await redis.config('SET', 'maxmemory', String(1024 ** 3));
  await redis.config('SET', 'proto-max-bulk-len', '512mb');
});

/** Allows unknown outcomes: these faults happen again and again, and leave more of them than a single pause does. */
function assertNoneUnavailable(requests: readonly Request[], more: readonly Outcome[] = []): void {
  const expected: readonly Outcome[] = ['acknowledged', 'refused', ...more];
  const others = requests.filter(({ outcome }) => !expected.includes(outcome));
  assert.deepEqual(
    others.filter(({ outcome }) => outcome !== 'unknown'),
    [],
  );
  assert.ok(others.length <= unknownMax, `${others.length} of ${requests.length} requests are unknown`);
}

test('answers 503 overloaded while Redis is out of memory, stores nothing in part, and continues', async () => {
  const { settled } = await underLoad(sluice, redis, async (load) => {
    for (let round = 0; round < 3; round += 1) {
      await redis.config('SET', 'maxmemory', '1');
      await load.more(50, { outcomes: ['overloaded'] });
      await redis.config('SET', 'maxmemory', '0');
      await load.more(50);
    }
  });
  assertNoneUnavailable(settled, ['overloaded']);
});

test('drains accepted records after Redis ran out of memory', async () => {
  const producer = await newProducer(sluice);
  for (const worker of sluice.workers) worker.sigstop();
  const send = () => producer.send(sluice.baseUrl, [producer.nextEvent(), producer.nextEvent()]);
  assert.equal((await send()).outcome, 'acknowledged');
  // Sets Redis's bound to what it uses now, as if the waiting events had filled it.
  const info = await redis.info('memory');
  await redis.config('SET', 'maxmemory', /used_memory:(\d+)/.exec(info)?.[1] ?? '');
  await until(async () => (await send()).outcome === 'overloaded', 'Redis is full');
  for (const worker of sluice.workers) worker.sigcont();
  await until(
    async () => (await redis.zcard(shardKeys.segments(0))) === 0,
    'the segments are stored although Redis is full',
  );
  await redis.config('SET', 'maxmemory', '0');
  await assertStoredOnce(sluice, redis, producer, { acknowledgedMin: 1 });
});

test('continues without an error when Redis forgets its scripts', async () => {
  const { settled } = await underLoad(sluice, redis, async (load) => {
    for (let round = 0; round < 10; round += 1) {
      await redis.script('FLUSH');
      await load.more(30);
    }
  });
  assertNoneUnavailable(settled);
});

async function deleteQueueKeys(): Promise<number> {
  const keys = [...(await redis.keys('{s0}:store:*')), ...(await redis.keys('{s0}:tick_turn'))];
  return keys.length === 0 ? 0 : redis.unlink(...keys);
}

test('stores everything although the jobs are deleted again and again', async () => {
  const { settled } = await underLoad(sluice, redis, async (load) => {
    for (let round = 0; round < 10; round += 1) {
      await until(async () => (await deleteQueueKeys()) > 0, 'there are jobs');
      await load.more(40);
    }
  });
  assertNoneUnavailable(settled);
});

test('stores everything when the jobs are deleted while a worker is stopped in the middle', async () => {
  await underLoad(sluice, redis, async (load) => {
    for (const worker of sluice.workers) worker.sigstop();
    await load.more(100);
    await deleteQueueKeys();
    for (const worker of sluice.workers) worker.sigcont();
    await load.more(100);
  });
});

test('a worker far away from Redis stores no segment that still grows', async () => {
  const { settled } = await underLoad(sluice, redis, async (load) => {
    proxy.delay(40);
    await load.more(1_500, { deadlineMs: 180_000 });
    proxy.pass();
  });
  assertNoneUnavailable(settled);
});

test('a key whose event could not be appended does not count as known later', async () => {
  const producer = await newProducer(sluice);
  const keyed = (bytes: number): SentEvent => {
    const event = producer.nextEvent({ idempotency_key: `${producer.mark}-${bytes}` });
    const filler = Object.fromEntries(
      Array.from({ length: Math.ceil(bytes / 1000) }, (_, i) => [`filler ${i}`, 'x'.repeat(990)]),
    );
    return { ...event, properties: { ...event.properties, ...filler } };
  };
  // The smallest bound that Redis accepts is one MiB. No worker runs, so the segment grows to nearly that.
  await redis.config('SET', 'proto-max-bulk-len', '1mb');
  for (const worker of sluice.workers) worker.sigstop();
  assert.equal((await producer.send(sluice.baseUrl, [keyed(800_000)])).outcome, 'acknowledged');
  const events = [keyed(300_000), producer.nextEvent(), producer.nextEvent()];
  // The commit fails and is tried again until the segment is overdue and a new one is opened. If the first try had taken the keys, the
  // events would now be repeats of nothing. On a slow machine the commit's time may be over before that.
  await until(
    async () => (await producer.send(sluice.baseUrl, events)).outcome === 'acknowledged',
    'the events are taken',
  );
  await redis.config('SET', 'proto-max-bulk-len', '512mb');
  const repeated = await producer.send(sluice.baseUrl, events);
  assert.equal(repeated.outcome, 'acknowledged');
  for (const worker of sluice.workers) worker.sigcont();
  await assertStoredOnce(sluice, redis, producer, { acknowledgedMin: 2 });
});
