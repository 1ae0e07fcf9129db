// A Redis with replicas that have to confirm what is acknowledged (`REDIS_REPLICAS_ACK`). A replica is frozen or killed, and a primary is
// lost with its disk.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { canTrace } from '../chaos/power-cut.js';
import { createTestAccount } from '../harness/accounts.js';
import { type Child, startChild } from '../harness/child.js';
import { getToken, readStatus, submitAccepted, untilComplete } from '../harness/deletion.js';
import { answerMsMax, assertKept, newProducer, untilDrained } from '../harness/fault-checks.js';
import { post } from '../harness/ingestion.js';
import { startLoad, whileRunning } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { ask } from '../harness/redis-cluster.js';
import { type RedisReplicasHandle, startRedisReplicas } from '../harness/redis-replicas.js';
import {
  type RedisHandle,
  type SluiceHandle,
  startSluice,
  startTcpProxy,
  type TcpProxy,
} from '../harness/services.js';
import { lookUp } from '../harness/suppression.js';
import { until } from '../harness/wait.js';

let redis: RedisReplicasHandle;
let sluice: SluiceHandle;
/** The replicas reach the first server through `between`; the service reaches the primary through `entrance`. */
let between: TcpProxy;
let entrance: TcpProxy;
const target = { port: 0 };
const source = { port: 0 };

before(async () => {
  between = await startTcpProxy(source);
  const way = (port: number) => {
    source.port = port;
    return between.port;
  };
  redis = await startRedisReplicas({ replicas: 2, way });
  target.port = redis.servers[0]?.port ?? 0;
  entrance = await startTcpProxy(target);
  const REDIS_URL = `redis://127.0.0.1:${entrance.port}`;
  sluice = await startSluice({
    redis: redis.servers[0] as RedisHandle,
    env: { REDIS_URL, REDIS_REPLICAS_ACK: '1', JOB_LOCK_MS: '1000' },
  });
});

after(async () => {
  await sluice?.stop();
  await entrance?.close();
  await between?.close();
  await redis?.remove();
});

test('without a replica that confirms, events and requests get 503 within the deadline, and nothing is stored', async () => {
  const [, first, second] = redis.servers as [RedisHandle, RedisHandle, RedisHandle];
  const event = { app_id: sluice.appId, identity: 'ada', event: 'Frozen', idempotency_key: 'frozen' };
  const account = await createTestAccount(sluice, 'Deleted');
  const token = await getToken(sluice, account);
  const requestId = await submitAccepted(sluice, token, [{ user_id: 1 }]);
  await untilComplete(sluice, token, requestId);
  const stored = () => sluice.rows(`SELECT 1 FROM events WHERE event = 'Frozen'`);
  const earlier = { ...event, event: 'Before', idempotency_key: 'before' };
  await until(
    async () => (await post(sluice.baseUrl, '/api/track', earlier)).status === 200,
    'an event is acknowledged before',
  );
  first.sigstop();
  second.sigstop();
  try {
    // A machine that pauses delays some answers, but rarely all, so the quickest one counts.
    let quickestMs = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < 5 && quickestMs >= answerMsMax; tries += 1) {
      const began = performance.now();
      const { status, code } = await post(sluice.baseUrl, '/api/track', event);
      assert.deepEqual([status, code], [503, tries === 0 ? 'unknown' : code]);
      quickestMs = Math.min(quickestMs, performance.now() - began);
    }
    assert.ok(quickestMs < answerMsMax, `${quickestMs} ms`);
    // The worker gets no turn, and stores nothing that the replicas lack.
    assert.equal((await stored()).length, 0);
    // The primary does not answer with what only it knows, since a take-over could undo that.
    const asked = await readStatus(sluice, token, requestId);
    assert.equal(asked.status, 503);
    for (const query of ['', '?identity=ada'])
      assert.equal((await lookUp(sluice.baseUrl, token, query)).status, 503);
    await assert.rejects(sluice.admin('accounts', 'create', 'Nobody', '--environment', 'Main'));
  } finally {
    first.sigcont();
    second.sigcont();
  }
  await until(
    async () => (await post(sluice.baseUrl, '/api/track', event)).status === 200,
    'the event is acknowledged when it is sent again',
  );
  assert.match((await readStatus(sluice, token, requestId)).text, /"status":"complete"/);
  await until(async () => (await stored()).length > 0, 'the event is stored');
  assert.equal((await stored()).length, 1);
});

test('records that replicas have but have not synced are not acknowledged', {
  skip: !(await canTrace()),
}, async () => {
  const [, first, second] = redis.servers as [RedisHandle, RedisHandle, RedisHandle];
  const event = { app_id: sluice.appId, identity: 'ada', event: 'Unsynced', idempotency_key: 'unsynced' };
  const tracers = [await delaySyncs(first), await delaySyncs(second)];
  try {
    const { status, code } = await post(sluice.baseUrl, '/api/track', event);
    assert.deepEqual([status, code], [503, 'unknown']);
  } finally {
    for (const tracer of tracers) await tracer.stop();
  }
  await until(
    async () => (await post(sluice.baseUrl, '/api/track', event)).status === 200,
    'the record is acknowledged once the replicas have synced',
  );
});

/** Delays each sync of a server to its disk from now on by longer than a commit may take. */
function delaySyncs({ pid }: RedisHandle): Promise<Child> {
  const args = ['-f', '-p', String(pid), '-e', 'trace=fdatasync', '-e', 'inject=fdatasync:delay_enter=3s'];
  return startChild({
    name: 'strace',
    program: { command: 'strace', args, env: process.env },
    healthy: ({ output }) => output().includes('attached'),
    healthyDeadlineMs: 20_000,
  });
}

test('one of two replicas is enough', async () => {
  const [, , second] = redis.servers as [RedisHandle, RedisHandle, RedisHandle];
  await second.kill9();
  const producer = await newProducer(sluice);
  await until(
    async () => (await producer.send(sluice.baseUrl, [producer.nextEvent()])).outcome === 'acknowledged',
    'an event is acknowledged',
  );
  await second.restart();
  await redis.untilReplicated(2);
});

test('a primary that is cut off and then lost with its disk loses nothing that was acknowledged', async () => {
  const [lost, heir, other] = redis.servers as [RedisHandle, RedisHandle, RedisHandle];
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, async () => {
    await load.more(200);
    between.blackHole();
    await load.more(12, { outcomes: ['unknown', 'overloaded', 'acknowledged'] });
    await lost.kill9();
    await ask(heir.port, 'replicaof', 'no', 'one');
    await ask(other.port, 'replicaof', '127.0.0.1', String(heir.port));
    target.port = heir.port;
    await load.more(200);
  });
  const connection = connectTestRedis(heir.url);
  await untilDrained(sluice, connection);
  connection.disconnect();
  await assertKept(sluice, producer);
});
