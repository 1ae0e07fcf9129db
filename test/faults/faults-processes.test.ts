// Processes that are killed or asked to end under load: everything acknowledged is stored exactly once, the backlog
// drains, the rest of the service continues without a restart, and no log holds what was sent.

import assert from 'node:assert/strict';
import { after } from 'node:test';
import { assertStoredOnce, newProducer, underLoad } from '../harness/fault-checks.js';
import { type Load, startLoad, whileRunning } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import type { Child } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';
import { test } from '../support/test.js';

const sluice = await ownSluice({
  apiProcesses: 2,
  workers: 2,
  // Segments as in production: under load, each costs an insert.
  env: { JOB_LOCK_MS: '1000', SEGMENT_AGE_MS_MAX: '400', LOG_LEVEL: 'debug' },
});
const redis = connectTestRedis(sluice.redisUrl);

after(() => redis.disconnect());

const all = [...sluice.api, ...sluice.workers, sluice.redis, sluice.clickhouse];

/** Runs load on both API processes while `fault` kills some; then checks every promise, and that no other process was restarted. */
async function killUnderLoad(killed: readonly Child[], fault: (load: Load) => Promise<void>) {
  const others = all.filter((child) => !killed.includes(child));
  const pids = others.map(({ pid }) => pid);
  await underLoad(sluice, redis, fault);
  assert.deepEqual(
    others.map(({ name, pid, running }) => (running ? pid : `${name} ended`)),
    pids,
  );
}

test('stores every acknowledged event once when API processes die at each step of a commit', async () => {
  const dying = sluice.api[0] ?? assert.fail();
  await killUnderLoad([dying], async (load) => {
    for (const point of ['commit_packed', 'commit_sent', 'commit_answered', 'group_answered']) {
      // It may die before it is ready.
      await dying.restart({ CRASH_AT: `${point}:5` }).catch(() => undefined);
      await until(() => !dying.running, `a process passes ${point}`);
      await load.more(20);
    }
    await dying.restart();
  });
});

test('stores every acknowledged event once when all workers are killed', () =>
  killUnderLoad(sluice.workers, async (load) => {
    for (let round = 0; round < 2; round += 1) {
      await load.more(150);
      await Promise.all(sluice.workers.map((worker) => worker.kill9()));
      await load.more(100);
      await Promise.all(sluice.workers.map((worker) => worker.restart()));
    }
  }));

test('stores every acknowledged event once when ClickHouse is killed, and lacks a table when it is back', () =>
  killUnderLoad([sluice.clickhouse], async (load) => {
    await load.more(87);
    await sluice.clickhouse.kill9();
    await load.more(50);
    await sluice.clickhouse.restart();
    await load.more(50);
    await sluice.rows('RENAME TABLE stored_events TO stored_events_away');
    await load.more(50);
    await sluice.clickhouse.kill9();
    await load.more(50);
    await sluice.clickhouse.restart();
    await sluice.rows('RENAME TABLE stored_events_away TO stored_events');
  }));

test('stores every acknowledged event once when Redis is killed', () =>
  killUnderLoad([sluice.redis], async (load) => {
    for (let round = 0; round < 2; round += 1) {
      await load.more(150);
      await sluice.redis.kill9();
      await sluice.redis.restart();
      await load.more(100);
    }
  }));

test('stores every acknowledged event once when everything is killed at once', () =>
  killUnderLoad(all, async (load) => {
    await Promise.all(all.map((child) => child.kill9()));
    await Promise.all([sluice.redis.restart(), sluice.clickhouse.restart()]);
    await Promise.all([...sluice.api, ...sluice.workers].map((child) => child.restart()));
    await load.more(100);
  }));

test('an API process that is asked to end answers every request that it accepted, and ends', async () => {
  const [ended, other] = sluice.api;
  assert.ok(ended && other);
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: [ended.baseUrl], clients: 12, pauseMs: 0 });
  const exit = await whileRunning(load, async () => {
    await load.more(200);
    return ended.sigterm();
  });
  assert.deepEqual(exit, { code: 0, signal: null });
  // A request without an answer was never accepted, so a producer may send the same event again.
  await assertStoredOnce(sluice, redis, producer, { unansweredAbsent: true });
  await ended.restart();
});

test('a worker that is asked to end finishes what it is storing, and ends', async () => {
  const ended = sluice.workers[0] ?? assert.fail();
  await killUnderLoad([ended], async (load) => {
    const exit = await ended.sigterm();
    assert.deepEqual(exit, { code: 0, signal: null });
    await load.more(100);
    await ended.restart();
  });
});
