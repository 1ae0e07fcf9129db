// Redis is away, silent, or loses its answers: every request is answered in time and correctly, and the service recovers by itself.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { shardKeys } from '../../src/redis/keys.js';
import {
  answerMsMax,
  assertAnsweredInTime,
  assertStoredOnce,
  newProducer,
  readMetric,
  underLoad,
  untilDrained,
} from '../harness/fault-checks.js';
import { type Load, type Outcome, type Request, startLoad, whileRunning } from '../harness/load.js';
import { until } from '../harness/wait.js';
import { redisWorld } from '../support/redis-world.js';

const unavailable: readonly Outcome[] = ['overloaded', 'unknown'];

const { server, proxy, sluice, redis } = await redisWorld('apiEnv');

afterEach(() => {
  proxy.pass();
  for (const child of [server, ...sluice.workers]) child.sigcont();
});

/** Runs load while `fault` happens; then checks every promise and every answer, and that no process was replaced. */
async function checkUnderLoad(fault: (load: Load) => Promise<void>): Promise<void> {
  const children = [...sluice.api, ...sluice.workers];
  const pids = children.map(({ pid }) => pid);
  const { settled } = await underLoad(sluice, redis, fault);
  assert.deepEqual(
    children.map(({ pid, running }) => running && pid),
    pids,
  );
  assertAsPromised(settled);
}

function assertAsPromised(requests: readonly Request[]): void {
  assertAnsweredInTime(requests);
  for (const { outcome, retryAfter } of requests.filter(({ status }) => status === 503)) {
    assert.match(retryAfter ?? '', /^[1-9]\d*$/, `${outcome} without Retry-After`);
  }
  assert.ok(
    !requests.some(({ code }) => code === 'unknown_app_id'),
    'a known environment was called unknown',
  );
}

for (const [what, begin, end] of [
  ['Redis is stopped, and continues when it is back', () => server.stop(), () => server.restart()],
  ['Redis hangs, and continues afterwards', () => server.sigstop(), () => server.sigcont()],
  [
    'nothing passes between API and Redis, and continues when data passes again',
    () => proxy.blackHole(),
    () => proxy.pass(),
  ],
] as const) {
  test(`answers 503 in time while ${what}`, () =>
    checkUnderLoad(async (load) => {
      await begin();
      await load.more(12, { outcomes: unavailable });
      await end();
    }));
}

test('answers 503 in time while every connection to Redis is reset, and continues afterwards', () =>
  checkUnderLoad(async (load) => {
    for (let round = 0; round < 5; round += 1) {
      proxy.reset();
      await load.more(20);
    }
    proxy.cut();
    await load.more(12, { outcomes: unavailable });
    proxy.pass();
  }));

function filler(bytes: number): Record<string, string> {
  const parts = Array.from({ length: Math.ceil(bytes / 1000) }, (_, i) => [`filler ${i}`, 'x'.repeat(1000)]);
  return Object.fromEntries(parts);
}

async function acceptedRows(): Promise<number> {
  return Number(await redis.hget(shardKeys.state(0), 'rows'));
}

test('repeats a commit whose reply was lost under its number, and stores its events once', async () => {
  const api = sluice.api[0] ?? assert.fail();
  const countRepeats = async () => (await readMetric(api, 'sluice_commit_repeats_total')) ?? 0;
  const repeatsBefore = await countRepeats();
  const producer = await newProducer(sluice);
  assert.equal((await producer.send(api.baseUrl, [producer.nextEvent()])).outcome, 'acknowledged');
  for (const worker of sluice.workers) worker.sigstop(); // the backlog counts the rows of commits
  const sendAndLoseReply = async () => {
    // Connections that lost replies were reset, and a new one must be ready before it loses any.
    const isReady = async () =>
      (await producer.send(api.baseUrl, [producer.nextEvent()])).outcome === 'acknowledged';
    await until(isReady, 'the API reaches Redis');
    const rowsBefore = await acceptedRows();
    // The events have no keys, so only the commit's number distinguishes the repeat from another request.
    const events = Array.from({ length: 20 }, () => {
      const { idempotency_key: _, ...event } = producer.nextEvent();
      return event;
    });
    proxy.dropReplies();
    const answer = producer.send(sluice.baseUrl, events);
    try {
      await until(async () => (await acceptedRows()) >= rowsBefore + events.length, {
        deadlineMs: 20_000,
        what: 'the commit is made',
        everyMs: 5,
      });
    } finally {
      proxy.pass();
    }
    return answer;
  };
  // If the machine pauses for as long as a commit may take, the commit is not repeated, and a reply may come just when the proxy passes
  // data again. Then another commit is tried.
  await until(
    async () =>
      (await sendAndLoseReply()).outcome === 'acknowledged' && (await countRepeats()) > repeatsBefore,
    'a commit is repeated before its deadline',
  );
  for (const worker of sluice.workers) worker.sigcont();
  await assertStoredOnce(sluice, redis, producer, { acknowledgedMin: 1 });
});

test('does not report a request as refused that a late copy of its commit may still store', async () => {
  const api = sluice.api[0] ?? assert.fail();
  const producer = await newProducer(sluice);
  assert.equal((await producer.send(api.baseUrl, [producer.nextEvent()])).outcome, 'acknowledged');
  await untilDrained(sluice, redis);
  const event = producer.nextEvent();
  const large = { ...event, properties: { ...event.properties, ...filler(50_000) } };
  // Not recognised by the number of bytes, since the API process also writes tens of kilobytes of metrics to Redis every two seconds.
  const isSent = proxy.lookFor('filler 49');
  // The first copy is delayed so long that the second one, on a new connection, overtakes it.
  proxy.delay(10_000);
  await redis.hincrby(shardKeys.state(0), 'bytes', 1e12); // no room in the backlog, until the first copy comes
  const answer = producer.send(api.baseUrl, [large]);
  await until(isSent, 'the commit is sent');
  proxy.pass();
  const { outcome } = await answer;
  await redis.hincrby(shardKeys.state(0), 'bytes', -1e12);
  const stored = async () =>
    (await sluice.rows(`SELECT 1 FROM events WHERE app_id = '${producer.appId}'`)).length === 2;
  await until(stored, 'the first copy arrived and is stored');
  assert.equal(outcome, 'unknown');
  await assertStoredOnce(sluice, redis, producer, { acknowledgedMin: 1 });
});

test('stores everything once while replies of Redis are lost again and again', () =>
  checkUnderLoad(async (load) => {
    for (let round = 0; round < 8; round += 1) {
      const sent = proxy.bytesReceived;
      proxy.dropReplies();
      await until(() => proxy.bytesReceived > sent, {
        deadlineMs: 30_000,
        what: 'a reply is lost',
        everyMs: 1,
      });
      proxy.pass();
      await load.more(30);
    }
    // Replies are now lost for longer than the deadline of a commit.
    proxy.dropReplies();
    await load.more(12, { outcomes: unavailable });
    proxy.pass();
  }));

test('answers 503, not 400, for a known environment when an API process starts without Redis', async () => {
  const api = sluice.api[0] ?? assert.fail();
  const producer = await newProducer(sluice);
  assert.equal((await producer.send(api.baseUrl, [producer.nextEvent()])).outcome, 'acknowledged');
  await api.stop();
  await server.stop();
  // The process cannot become ready, so the test does not wait for its start.
  const restarted = api.restart();
  const answers = async () => (await fetch(`${api.baseUrl}/health/live`)).status === 200;
  await until(answers, 'the API process listens');
  const refused: Request[] = [];
  for (let request = 0; request < 3; request += 1) {
    refused.push(await producer.send(api.baseUrl, [producer.nextEvent()]));
  }
  await server.restart();
  await restarted;
  for (const { outcome, status, code } of refused) assert.equal(outcome, 'overloaded', `${status} ${code}`);
  assertAsPromised(refused);
  assert.ok(Math.min(...refused.map(({ tookMs }) => tookMs)) <= answerMsMax);
  assert.equal((await producer.send(api.baseUrl, [producer.nextEvent()])).outcome, 'acknowledged');
  await assertStoredOnce(sluice, redis, producer, { acknowledgedMin: 2 });
});

test('answers 503, not 400, in time for an environment created while nothing passes between API and Redis', async () => {
  proxy.blackHole();
  const producer = await newProducer(sluice); // its commands reach Redis directly
  const requests: Request[] = [];
  for (let round = 0; round < 3; round += 1) {
    const sent = Array.from({ length: 5 }, () => producer.send(sluice.baseUrl, [producer.nextEvent()]));
    requests.push(...(await Promise.all(sent)));
  }
  proxy.pass();
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, () => load.more(20));
  for (const { outcome, status, code } of requests)
    assert.ok(unavailable.includes(outcome), `${status} ${code}`);
  assertAsPromised(requests);
  await assertStoredOnce(sluice, redis, producer, { acknowledgedMin: 20 });
});
