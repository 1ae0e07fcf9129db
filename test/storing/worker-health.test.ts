// What a worker reports over HTTP to the probes of a container and to the scraper of metrics.

import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { test } from 'node:test';
import { Counter, Registry } from '../../src/packages/prom-client.js';
import { registryKeys } from '../../src/redis/keys.js';
import { readSharedMetrics } from '../../src/redis/shared-metrics.js';
import { freePort } from '../harness/free-port.js';
import { connectTestRedis } from '../harness/redis-client.js';
import type { Child } from '../harness/services.js';
import { track } from '../harness/track.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

let worker: Child;

const sluice = await ownSluice({ workers: 0 });
const port = await freePort();
const url = `http://127.0.0.1:${port}`;
worker = await sluice.addWorker({ WORKER_ADMIN_PORT: String(port) });
await until(async () => (await get('/health/ready')).status === 200, 'the worker is ready');

async function get(path: string, from = url): Promise<{ status: number; text: string }> {
  const reply = await fetch(`${from}${path}`, { signal: AbortSignal.timeout(15_000) });
  return { status: reply.status, text: await reply.text() };
}

test('shows its own metrics, which the API process then leaves out', async () => {
  await track(sluice.baseUrl, { body: { app_id: sluice.appId, event: 'Told', identity: 'ada' } });
  await until(
    async () => (await get('/metrics')).text.includes('sluice_insert_rows_total{table="events"} 1\n'),
    'the worker counts the row that it stored',
  );
  // A second worker, without a port, shares its metrics. Once the API process shows those, it would show the first one's too.
  const sharing = await sluice.addWorker();
  const shared = /^sluice_rows_quarantined_total\{table="events"\} 0$/m;
  await until(
    async () => shared.test((await get('/metrics', sluice.adminUrl)).text),
    'the API process shows the metrics of the worker without a port',
  );
  const { text } = await get('/metrics', sluice.adminUrl);
  assert.match(text, /^sluice_records_accepted_total\{endpoint="track"\} 1$/m);
  assert.doesNotMatch(text, /^sluice_insert_rows_total\{/m);
  await sharing.stop();
});

test('metrics of other processes count while Redis is away, and afterwards until all have written again', async () => {
  const redis = connectTestRedis(sluice.redisUrl);
  const registry = new Registry();
  new Counter({ name: 'told_total', help: 'Told.', registers: [registry] }).inc(7);
  const metrics = await registry.getMetricsAsJSON();
  const key = registryKeys.metrics(hostname());
  const nowMs = Date.now();
  const write = (name: string, agoMs: number, beforeAgoMs: number) =>
    redis.hset(key, name, JSON.stringify({ atMs: nowMs - agoMs, beforeMs: nowMs - beforeAgoMs, metrics }));
  const isShown = async () => /^told_total 7$/m.test(await readSharedMetrics(redis, 'asked'));
  await write('other', 60_000, 62_000);
  await write('asked', 0, 62_000);
  assert.equal(await isShown(), true, 'none could write for a minute');
  redis.disconnect();
  assert.equal(await isShown(), true, 'Redis is away');
  await redis.connect();
  await write('asked', 0, 2_000);
  assert.equal(await isShown(), false, 'the other has ended');
  await redis.hdel(key, 'asked', 'other');
  redis.disconnect();
});

test('counts quarantined rows of every table from 0', async () => {
  const { text } = await get('/metrics');
  for (const table of ['events', 'user_properties', 'user_identities']) {
    assert.match(text, new RegExp(`^sluice_rows_quarantined_total\\{table="${table}"\\} 0$`, 'm'));
  }
});

test('answers other paths with 404 and other methods with 405', async () => {
  assert.equal((await get('/admin/v1/accounts')).status, 404);
  assert.equal((await fetch(`${url}/metrics`, { method: 'POST' })).status, 405);
});

test('a worker is not ready, but live, while Redis is away', async () => {
  await sluice.redis.stop();
  await until(async () => (await get('/health/ready')).status === 503, 'the worker is not ready');
  assert.equal((await get('/health/ready')).text, '{"ready":false,"missing":["redis"]}');
  assert.equal((await get('/health/live')).status, 200);
  await sluice.redis.restart();
  await until(async () => (await get('/health/ready')).status === 200, 'the worker is ready again');
});

test('a worker is not ready, but live, while ClickHouse is away; an API process stays ready and reports it', async () => {
  await sluice.clickhouse.kill9();
  const waits = 'clickhouse: records wait in Redis until it answers';
  for (const [from, status, ready] of [
    [url, 503, false],
    [sluice.baseUrl, 200, true],
  ] as const) {
    await until(
      async () => (await get('/health/ready', from)).text.includes(waits),
      `${from} says that ClickHouse is away`,
    );
    assert.deepEqual(await get('/health/ready', from), {
      status,
      text: JSON.stringify({ ready, missing: [waits] }),
    });
  }
  assert.equal((await get('/health/live')).status, 200);
  await sluice.clickhouse.restart();
  for (const from of [url, sluice.baseUrl])
    await until(
      async () => (await get('/health/ready', from)).text === '{"ready":true,"missing":[]}',
      `${from} is ready, and nothing is missing`,
    );
});

test('a worker is live, but not ready, while the state is not loaded', async () => {
  const port = await freePort();
  // Another database number is like another, empty Redis.
  const waiting = await sluice.addWorker({
    WORKER_ADMIN_PORT: String(port),
    REDIS_URL: `${sluice.redisUrl}/9`,
  });
  const other = `http://127.0.0.1:${port}`;
  await until(
    async () => (await get('/health/ready', other)).text.includes('"state:'),
    'the worker says that the state is missing',
  );
  assert.equal((await get('/health/ready', other)).status, 503);
  assert.equal((await get('/health/live', other)).status, 200);
  assert.equal((await waiting.sigterm()).code, 0);
});

test('names the variable if its port is taken', async () => {
  const refusal = async () => {
    const worker = await sluice.addWorker({ WORKER_ADMIN_PORT: new URL(url).port });
    await worker.exited;
    return worker.output();
  };
  const output = await refusal().catch((error: Error) => error.message);
  assert.match(output, /^sluice: WORKER_ADMIN_PORT: cannot listen on 127\.0\.0\.1:\d+; is it in use\?$/m);
});

test('a worker ends with code 0 when it is asked to', async () => {
  assert.deepEqual(await worker.sigterm(), { code: 0, signal: null });
});
