// Connections to Redis that die silently, as when its host vanishes and another one takes over its address: they neither fail nor bring an
// answer, but a new connection works.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Redis } from 'ioredis';
import { answerMsMax, assertKept, newProducer, readMetric, untilDrained } from '../harness/fault-checks.js';
import { type Request, startLoad, whileRunning } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import {
  type RedisHandle,
  type SluiceHandle,
  startRedis,
  startSluice,
  startTcpProxy,
  type TcpProxy,
} from '../harness/services.js';

let server: RedisHandle;
let sluice: SluiceHandle;
let redis: Redis;
/** How often connections die at most. */
const faultsMax = 8;
/** Proxies for connections made before the first fault, between two faults, and after the last one. */
const ways: TcpProxy[] = [];
let entrance: TcpProxy;
const target = { port: 0 };

before(async () => {
  server = await startRedis({ appendfsync: 'no' });
  while (ways.length <= faultsMax) ways.push(await startTcpProxy({ port: server.port }));
  target.port = (ways[0] as TcpProxy).port;
  entrance = await startTcpProxy(target);
  const REDIS_URL = `redis://127.0.0.1:${entrance.port}`;
  sluice = await startSluice({
    redis: server,
    // Segments as in production: under load, each costs an insert.
    env: { JOB_LOCK_MS: '1000', SEGMENT_AGE_MS_MAX: '400' },
    apiEnv: { REDIS_URL },
    workerEnv: { REDIS_URL },
  });
  redis = connectTestRedis(server.url);
});

after(async () => {
  redis?.disconnect();
  await sluice?.stop();
  await entrance?.close();
  for (const way of ways) await way.close();
  await server?.remove();
});

test('API and worker replace connections that died silently, and continue', {}, async () => {
  const api = sluice.api[0] ?? assert.fail();
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  let others: readonly Request[] = [];
  await whileRunning(load, async () => {
    await load.more(100);
    for (let fault = 0; fault < faultsMax; fault += 1) {
      const before = producer.settled.length;
      (ways[fault] as TcpProxy).blackHole();
      target.port = (ways[fault + 1] as TcpProxy).port;
      await load.more(300);
      others = producer.settled.slice(before).filter(({ outcome, tookMs }) => {
        return (outcome !== 'acknowledged' && outcome !== 'refused') || tookMs > answerMsMax;
      });
      // Two attempts leave one second. If a process pauses for longer, requests become unknown or late, and the fault is repeated.
      if (others.length === 0) break;
    }
  });
  // Requests that were under way were committed over a new connection, within their deadline.
  assert.deepEqual(others, []);
  // This also needs the worker's connections, and those of the API that commit nothing.
  await untilDrained(sluice, redis);
  assert.equal(await readMetric(api, 'sluice_backlog_rows'), 0);
  await assertKept(sluice, producer);
  const another = await newProducer(sluice);
  const { outcome, code } = await another.send(sluice.baseUrl, [another.nextEvent()]);
  assert.equal(outcome, 'acknowledged', code);
  await untilDrained(sluice, redis);
  await assertKept(sluice, another, { acknowledgedMin: 1 });
});

test('a stop while Redis does not answer ends API and worker with code 0', async (context) => {
  const children = [...sluice.api, ...sluice.workers];
  server.sigstop();
  context.after(() => server.sigcont());
  await Promise.all(children.map((child) => child.sigterm()));
  for (const child of children) {
    const { code } = await child.exited;
    assert.equal(code, 0, child.output().slice(-2_000));
    assert.match(child.output(), /"msg":"stopped"/);
  }
});
