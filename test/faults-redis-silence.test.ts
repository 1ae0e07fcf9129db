// Connections to Redis that die without a word, as when its host vanishes and another one takes its address:
// nothing is refused there and nothing answered, but a new connection works.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Redis } from 'ioredis';
import { assertKept, newProducer, readMetric, untilDrained } from './support/fault-checks.js';
import { startLoad, whileRunning } from './support/load.js';
import { connectTestRedis } from './support/redis-client.js';
import {
  type RedisHandle,
  type SluiceHandle,
  startRedis,
  startSluice,
  startTcpProxy,
  type TcpProxy,
} from './support/services.js';

let server: RedisHandle;
let sluice: SluiceHandle;
let redis: Redis;
/** The way to Redis of connections made before and after the fault. */
let ways: readonly [TcpProxy, TcpProxy];
let entrance: TcpProxy;
const target = { port: 0 };

before(async () => {
  server = await startRedis();
  ways = [await startTcpProxy({ port: server.port }), await startTcpProxy({ port: server.port })];
  target.port = ways[0].port;
  entrance = await startTcpProxy(target);
  const REDIS_URL = `redis://127.0.0.1:${entrance.port}`;
  sluice = await startSluice({
    redis: server,
    env: { JOB_LOCK_MS: '1000' },
    apiEnv: { REDIS_URL },
    workerEnv: { REDIS_URL },
  });
  redis = connectTestRedis(server.url);
});

after(async () => {
  redis?.disconnect();
  await sluice?.stop();
  await entrance?.close();
  for (const way of ways ?? []) await way.close();
  await server?.remove();
});

test('API and worker leave connections that died without a word, and go on', {}, async () => {
  const [api] = sluice.api;
  assert.ok(api);
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, async () => {
    await load.more(100);
    ways[0].blackHole();
    target.port = ways[1].port;
    await load.more(300);
  });
  // What was under way was committed on a new connection, within its deadline.
  const others = producer.settled.filter(
    ({ outcome }) => outcome !== 'acknowledged' && outcome !== 'refused',
  );
  assert.deepEqual(others, []);
  assert.ok(producer.settled.every(({ tookMs }) => tookMs <= 2_500));
  // The worker's connections, and those of the API on which nothing is committed.
  await untilDrained(sluice, redis, 30_000);
  assert.equal(await readMetric(api, 'sluice_backlog_rows'), 0);
  await assertKept(sluice, producer);
  const another = await newProducer(sluice);
  const { outcome, code } = await another.send(sluice.baseUrl, [another.nextEvent()]);
  assert.equal(outcome, 'acknowledged', code);
  await untilDrained(sluice, redis);
  await assertKept(sluice, another, { acknowledgedMin: 1 });
});
