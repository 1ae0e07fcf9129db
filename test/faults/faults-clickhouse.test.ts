// ClickHouse is away, slow or loses its answers, and workers stop in the middle: segments are delivered at least once and stored exactly
// once. Records that do not fit into the backlog while ClickHouse is away are refused.

import assert from 'node:assert/strict';
import { after, afterEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { kindsOfCopies } from '../../src/registry/outbox.js';
import { witnesses } from '../../src/tuning.js';
import { isCompressed } from '../../workers/segment-bytes.js';
import { createTestAccount } from '../harness/accounts.js';
import {
  type Choice,
  type ClickHouseGate,
  inserts,
  markerLooks,
  startClickHouseGate,
} from '../harness/clickhouse-gate.js';
import { getToken, readStatus, sendEvents, submitAccepted, untilComplete } from '../harness/deletion.js';
import {
  assertStoredOnce,
  newProducer,
  readMetric,
  unknownMax,
  untilDrained,
} from '../harness/fault-checks.js';
import { countOutcomes, type Producer, startLoad, whileRunning } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import type { Child } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

const backlogBytesMax = 300_000;

const sluice = await ownSluice({
  workers: 0,
  env: { JOB_LOCK_MS: '1000', BACKLOG_BYTES_MAX: String(backlogBytesMax) },
});
const redis = connectTestRedis(sluice.redisUrl);
const gates: readonly [ClickHouseGate, ClickHouseGate] = [
  await startClickHouseGate(sluice.clickhouseUrl),
  await startClickHouseGate(sluice.clickhouseUrl),
];
const workers: readonly [Child, Child] = [
  await sluice.addWorker({ CLICKHOUSE_URL: gates[0].url }),
  await sluice.addWorker({ CLICKHOUSE_URL: gates[1].url }),
];

after(async () => {
  redis.disconnect();
  for (const gate of gates) await gate.close();
});

afterEach(async () => {
  for (const gate of gates) gate.pass();
  for (const worker of workers) {
    worker.sigcont();
    if (!worker.running) await worker.restart();
  }
});

/** Sends 30 events in three acknowledged requests, and further ones if a pause left the outcome of some open. */
async function sendSome(producer: Producer): Promise<void> {
  for (let acknowledged = 0, requests = 0; acknowledged < 3; requests += 1) {
    const events = Array.from({ length: 10 }, () => producer.nextEvent());
    const { outcome, code } = await producer.send(sluice.baseUrl, events);
    if (outcome === 'acknowledged') acknowledged += 1;
    else assert.ok(outcome === 'unknown' && requests < 10, code);
  }
}

async function storedRows(producer: Producer): Promise<number> {
  const [row] = await sluice.rows<{ rows: number }>(
    `SELECT toUInt32(count()) AS rows FROM events WHERE app_id = '${producer.appId}'`,
  );
  return row?.rows ?? 0;
}

const assertStored = (producer: Producer) =>
  assertStoredOnce(sluice, redis, producer, { acknowledgedMin: 3 });

/** Sends some events; their inserts are held. */
async function sendToHeld(): Promise<Producer> {
  const producer = await newProducer(sluice);
  for (const gate of gates) gate.hold(inserts);
  await sendSome(producer);
  return producer;
}

/** Waits until some worker's insert is held; settles with that worker and the other one, and their gates. */
async function untilInsertHeld() {
  const at = await until(
    () => (gates[0].held.length > 0 ? 'first' : gates[1].held.length > 0 && 'second'),
    'an insert is held',
  );
  const [holding, other] = at === 'first' ? [0, 1] : [1, 0];
  return {
    worker: workers[holding] as Child,
    gate: gates[holding] as ClickHouseGate,
    otherGate: gates[other] as ClickHouseGate,
  };
}

/** The statements that count what a round of deletions has left in a table. */
const countsOfLeft: Choice = ({ sql }) => sql.startsWith('SELECT app_id, count() AS rows FROM');

test('completes no deletion while the answers about the rows that are left are empty, and completes it afterwards', async () => {
  const account = await createTestAccount(sluice, 'Cut off', ['Main']);
  const token = await getToken(sluice, account);
  const appId = account.appIds[0] ?? '';
  await sendEvents(sluice, appId, 'go', [{ identity: 'ada' }]);
  await untilDrained(sluice, redis);
  // Rows really are left: ClickHouse acknowledges mutations and does not carry them out.
  for (const gate of gates) {
    gate.change(countsOfLeft, () => Buffer.alloc(0));
    gate.pretend(({ sql }) => sql.includes(' DELETE IN PARTITION '));
  }
  const requestId = await submitAccepted(sluice, token, [{ identity: 'ada' }]);
  const asked = () => gates[0].changed.length + gates[1].changed.length;
  await until(() => asked() > 1, 'workers have tried');
  assert.match((await readStatus(sluice, token, requestId)).text, /"status":"pending"/);
  const left = () => sluice.rows(`SELECT 1 FROM events WHERE app_id = '${appId}'`);
  assert.equal((await left()).length, 1);
  for (const gate of gates) gate.pass();
  await untilComplete(sluice, token, requestId, 120_000);
  assert.equal((await left()).length, 0);
});

test('stores a segment once if another worker stored it while the first one was stopped before its insert', async () => {
  const producer = await sendToHeld();
  const { worker, gate, otherGate } = await untilInsertHeld();
  worker.sigstop();
  otherGate.release();
  await until(
    async () => (await redis.zcard(shardKeys.segments(0))) === 0,
    'the other worker stored everything',
  );
  const rows = await storedRows(producer);
  assert.ok(rows > 0);
  assert.ok(gate.held.length > 0, 'the insert of the stopped worker is still to come');
  worker.sigcont();
  gate.release();
  // The worker that wakes up finishes that job, and then later ones.
  await sendSome(producer);
  await assertStored(producer);
});

test('stores a segment once if two workers insert it at the same moment', async () => {
  const producer = await sendToHeld();
  const { worker } = await untilInsertHeld();
  worker.sigstop(); // it loses its jobs, not its inserts
  const tokens = ({ held }: ClickHouseGate) =>
    held.map(({ parameters }) => parameters.get('insert_deduplication_token'));
  await until(
    () => tokens(gates[0]).some((token) => tokens(gates[1]).includes(token)),
    'both workers insert the same segment',
  );
  worker.sigcont();
  for (const gate of gates) gate.release();
  await assertStored(producer);
});

test('stores a segment once if the answer to its insert was lost and ClickHouse forgot the token', async (context) => {
  const setWindow = (size: number) =>
    sluice.rows(`ALTER TABLE stored_events MODIFY SETTING non_replicated_deduplication_window = ${size}`);
  const producer = await newProducer(sluice);
  await setWindow(0);
  context.after(() => setWindow(100_000));
  for (const gate of gates) gate.loseAnswers(inserts);
  await sendSome(producer);
  await until(() => gates[0].lost.length + gates[1].lost.length > 0, 'an answer is lost');
  for (const gate of gates) gate.pass();
  await assertStored(producer);
});

test('stores a segment once if its worker was killed before it saw the answer to its insert', async () => {
  const producer = await sendToHeld();
  const { worker, gate, otherGate } = await untilInsertHeld();
  gate.hold(markerLooks); // the next look is the one after the insert
  otherGate.hold(() => true);
  assert.ok(gate.held.length > 0);
  // Lets only the insert pass.
  gate.release();
  gate.hold(markerLooks);
  await until(() => gate.held.length > 0, 'the worker looks for the marker');
  // The worker may be sending another insert while it looks for the marker of the first one.
  await until(async () => (await storedRows(producer)) > 0, 'the insert has stored its rows');
  await worker.kill9();
  for (const each of gates) each.pass();
  await worker.restart();
  await assertStored(producer);
});

test('stores once a segment that five workers, one after another, were killed while storing', async () => {
  const producer = await sendToHeld();
  for (let round = 0; round < 5; round += 1) {
    const { worker, gate } = await untilInsertHeld();
    await worker.kill9();
    gate.forget();
    await worker.restart();
  }
  for (const gate of gates) gate.pass();
  await assertStored(producer);
});

test('stores a segment that ClickHouse believes to be stored, because it logged the token before a crash', async () => {
  const api = sluice.api[0] ?? assert.fail();
  const producer = await sendToHeld();
  const { gate } = await untilInsertHeld();
  // Such a crash leaves a known token without its rows.
  for (const { parameters } of gate.held) {
    const token = parameters.get('insert_deduplication_token') ?? '';
    const number = token.slice(0, token.indexOf('-'));
    await sluice.rows(
      `INSERT INTO stored_events (app_id, segment) SETTINGS async_insert = 0, insert_deduplication_token = '${token}'
        VALUES ('', ${BigInt(number) - 1n})`,
    );
  }
  for (const each of gates) each.pass();
  await assertStored(producer);
  await until(
    async () => ((await readMetric(api, 'sluice_tokens_burnt_total')) ?? 0) > 0,
    'the burnt token is counted',
  );
});

test('compresses segments that wait for a ClickHouse that does not answer, also in a full Redis, and stores them once when it does', async (context) => {
  const producer = await newProducer(sluice);
  const areCompressed = async () => {
    const keys = await redis.keys('{s0}:segment:*');
    const stored = await Promise.all(keys.map((key) => redis.getBuffer(key)));
    return keys.length > 0 && stored.every((bytes) => bytes !== null && isCompressed(bytes));
  };
  for (const gate of gates) gate.hold(() => true);
  // The copy of a document waits for ClickHouse too, and must hold nothing up.
  await redis.zadd(registryKeys.uncopied, kindsOfCopies.document, `environment:${producer.appId}`);
  await sendSome(producer);
  context.after(() => redis.config('SET', 'maxmemory', '0'));
  await redis.config('SET', 'maxmemory', '1');
  await until(areCompressed, 'all segments are compressed');
  await redis.config('SET', 'maxmemory', '0');
  for (const gate of gates) gate.pass();
  await assertStored(producer);
});

test('a worker asks a ClickHouse that answers too late no more often, and makes it end statements that nobody waits for', async () => {
  const heldMs = 20_000;
  const [gate] = gates;
  gate.hold(({ sql }) => /\bwitness\b/.test(sql));
  await until(() => gate.held.length > 0, 'the stores are compared');
  await pause(heldMs);
  const asked = [...gate.held];
  const roundsMs = witnesses.roundsPerCopy * witnesses.everyMs;
  assert.ok(asked.length <= 1 + heldMs / roundsMs, `${asked.length} statements`);
  for (const { parameters } of asked)
    assert.equal(Number(parameters.get('max_execution_time')), witnesses.clickhouseMsMax / 1000);
});

test('accepts events up to the high-water mark while ClickHouse is stopped, then refuses, then drains', async () => {
  const api = sluice.api[0] ?? assert.fail();
  const producer = await newProducer(sluice);
  const load = startLoad(producer, { targets: [api.baseUrl] });
  const { bytesAtFirst, bytesAtMost } = await whileRunning(load, async () => {
    await load.more(50);
    let most = 0;
    let first: number | undefined;
    const look = async () => {
      const bytes = Number(await redis.hget(shardKeys.state(0), 'bytes'));
      most = Math.max(most, bytes);
      // Segments that wait for long are compressed, so the backlog may have become smaller when the refusal is seen.
      if (producer.settled.some(({ message }) => message?.includes('backlog full'))) first ??= most;
      return first !== undefined;
    };
    // The look begins before ClickHouse stops, since waiting segments may fill the backlog and be compressed while it stops.
    const stopped = sluice.clickhouse.stop();
    await Promise.all([
      load.more(1, { outcomes: ['overloaded'] }),
      until(look, { what: 'the backlog is full', everyMs: 20 }),
    ]);
    await stopped;
    await load.more(100, { outcomes: ['overloaded'] });
    await look();
    await sluice.clickhouse.restart();
    await load.more(200);
    return { bytesAtFirst: first ?? 0, bytesAtMost: most };
  });
  // A commit that does not fit is refused as a whole; rows get their stamps only after the bound is checked.
  assert.ok(bytesAtFirst > 0.7 * backlogBytesMax, `refused at ${bytesAtFirst} bytes`);
  assert.ok(bytesAtMost < 1.3 * backlogBytesMax, `took ${bytesAtMost} bytes`);
  // A full backlog never leaves the outcome of a commit unknown. Only a process that pauses may do so.
  const { unknown } = countOutcomes(producer.settled);
  assert.ok(unknown <= unknownMax, `${unknown} requests are unknown`);
  for (const { retryAfter } of producer.settled.filter(({ status }) => status === 503)) {
    assert.match(retryAfter ?? '', /^[1-9]\d*$/);
  }
  await untilDrained(sluice, redis);
  // This event has its own user, since a user of the load is above its limit.
  const { user_id: _, ...event } = producer.nextEvent();
  const last = await producer.send(api.baseUrl, [{ ...event, identity: `${producer.mark}-afterwards` }]);
  assert.equal(last.outcome, 'acknowledged', last.code);
  await assertStoredOnce(sluice, redis, producer);
});
