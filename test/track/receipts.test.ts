// Receipts tell the sender of records, and nobody else, what became of them, by idempotency keys and wherever the records are.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { receipts as limits } from '../../src/contract/limits.js';
import { eventIdOfKey } from '../../src/ingest/event-id.js';
import { shardKeys } from '../../src/redis/keys.js';
import { keyIndex } from '../../src/tuning.js';
import { createTestAccount, unlimited } from '../harness/accounts.js';
import { ask, basic, deleteNow, getToken, type Reply, storeFailedRow } from '../harness/deletion.js';
import { forgetKeys } from '../harness/forgotten-keys.js';
import { paths, post, untilStored } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { setSuppressed } from '../harness/suppression.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

type Receipt = {
  readonly idempotency_key: string;
  readonly status: string;
  readonly event_id?: string;
  readonly segment?: string;
  readonly accepted_at?: string;
};

const path = '/api/v1/receipts';

const sluice = await ownSluice({ workers: 0 });
const account = await createTestAccount(sluice, 'Shop');
/** An environment with a write key that it does not require, and one that requires its own. */
const [appId = '', closed = ''] = account.appIds;
const token = await getToken(sluice, account);
for (const id of account.appIds) await sluice.admin('environments', 'set', id, ...unlimited);
const key = await createKey(appId);
const closedKey = await createKey(closed);
await sluice.admin('environments', 'set', closed, '--write-key', 'required');
await until(async () => (await askFor(['k'], closed, closedKey)).status === 200, 'the API knows the keys');

async function createKey(id: string): Promise<string> {
  return ((await sluice.admin('write-keys', 'create', id)) as { write_key: string }).write_key;
}

function askFor(keys: unknown, id: unknown = appId, secret = key): Promise<Reply> {
  return askWith({ app_id: id, idempotency_keys: keys }, secret);
}

function askWith(body: object | string, secret?: string): Promise<Reply> {
  return ask(sluice.baseUrl, {
    method: 'POST',
    path,
    headers: [
      ['Content-Type', 'application/json'],
      ...(secret === undefined ? [] : [['Authorization', `Bearer ${secret}`] as const]),
    ],
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

async function receiptsOf(keys: readonly string[], id = appId, secret = key): Promise<Receipt[]> {
  const reply = await askFor(keys, id, secret);
  assert.equal(reply.status, 200, reply.text);
  return (JSON.parse(reply.text) as { receipts: Receipt[] }).receipts;
}

const statuses = async (keys: readonly string[], id = appId, secret = key) =>
  (await receiptsOf(keys, id, secret)).map(({ status }) => status);

const codeOf = ({ text }: Reply) => (JSON.parse(text) as { err: { code: string } }).err.code;

async function track(...events: readonly (readonly [key: string, identity: string])[]): Promise<void> {
  const body = {
    app_id: appId,
    events: events.map(([name, identity]) => ({ event: 'Paid', identity, idempotency_key: name })),
  };
  const { status, text } = await post(sluice.baseUrl, paths.track, body);
  assert.equal(`${status} ${text}`, '200 {}');
}

/** Sends events with these keys, each of a user of its own. */
const trackAll = (...keys: readonly string[]) =>
  track(...keys.map((name) => [name, `user of ${name}`] as const));

async function segmentsOf(keys: readonly string[]): Promise<(string | undefined)[]> {
  const rows = await sluice.rows<{ id: string; segment: string }>(
    `SELECT toString(event_id) AS id, toString(segment) AS segment FROM events WHERE app_id = '${appId}'`,
  );
  return keys.map(
    (name) => rows.find(({ id }) => id.replaceAll('-', '') === eventIdOfKey(appId, name, 'shared'))?.segment,
  );
}

test('a record waits until ClickHouse has it, and is stored from then on', async () => {
  await trackAll('w1', 'w2');
  const segmentMessage = { type: 'identify', messageId: 'm1', userId: 'zoe', traits: { plan: 'pro' } };
  const batch = { batch: [segmentMessage], writeKey: appId };
  assert.equal((await post(sluice.baseUrl, '/v1/batch', batch)).status, 200);
  assert.deepEqual(await statuses(['w2', 'none', 'w1', 'w2']), ['waiting', 'unknown', 'waiting', 'waiting']);
  await sluice.addWorker();
  await untilStored(sluice);
  const found = await receiptsOf(['w2', 'none', 'w1', 'w2']);
  assert.deepEqual(
    found.map(({ idempotency_key: name, status }) => [name, status]),
    [
      ['w2', 'stored'],
      ['none', 'unknown'],
      ['w1', 'stored'],
      ['w2', 'stored'],
    ],
  );
  assert.deepEqual(found[0], found[3]);
  const [segment] = await segmentsOf(['w1']);
  const { event_id: id, segment: itsSegment, accepted_at: acceptedAt } = found[2] as Receipt;
  assert.equal(id?.replaceAll('-', ''), eventIdOfKey(appId, 'w1', 'shared'));
  assert.equal(itsSegment, segment);
  assert.equal(acceptedAt, new Date(Number(segment) / 1000).toISOString());
  assert.deepEqual(Object.keys(found[1] as Receipt), ['idempotency_key', 'status']);
});

test('asking for receipts makes workers index keys before Redis forgets any, so that few rows are read', async () => {
  await withRedis(sluice, async (redis) => {
    const state = shardKeys.state(0);
    const read = (field: string) => redis.hget(state, field);
    // Keys are indexed two minutes after they were claimed, which may have passed already where the worker started slowly.
    await redis.hincrby(state, 'claim_clock_us', 2 * keyIndex.unindexedMsMax * 1000);
    await until(async () => Number(await read('keys_indexed_to')) > 0, 'the keys are indexed');
    assert.equal(await read('keys_forgotten_to'), '0');
  });
  assert.deepEqual(await statuses(['w1', 'none']), ['stored', 'unknown']);
});

test('a key that Redis has forgotten is known by the index, and one that is sent again keeps its first segment', async () => {
  await trackAll('f1', 'f2');
  await untilStored(sluice);
  const before = await receiptsOf(['f1', 'f2', 'f3']);
  await withRedis(sluice, forgetKeys);
  await until(async () => (await askFor(['f1'])).status === 200, 'the index is made');
  assert.deepEqual(await receiptsOf(['f1', 'f2', 'f3']), before);
  await trackAll('f1');
  await untilStored(sluice);
  assert.deepEqual(await receiptsOf(['f1', 'f2', 'f3']), before);
});

test('the key of a deleted record stays known as deleted, also once Redis has forgotten it', async () => {
  await track(['d1', 'dora'], ['d2', 'dan']);
  await untilStored(sluice);
  await deleteNow(sluice, token, [{ identity: 'dora' }]);
  assert.deepEqual(await statuses(['d1', 'd2']), ['deleted', 'stored']);
  assert.deepEqual(Object.keys((await receiptsOf(['d1']))[0] as Receipt), ['idempotency_key', 'status']);
  await track(['d1', 'dora']);
  await untilStored(sluice);
  assert.deepEqual(await statuses(['d1', 'd2']), ['deleted', 'stored']);
  await withRedis(sluice, forgetKeys);
  await track(['d1', 'dora']);
  await untilStored(sluice);
  assert.deepEqual(await statuses(['d1', 'd2']), ['deleted', 'stored']);
  assert.deepEqual(await segmentsOf(['d1']), [undefined]);
});

test('a row that ClickHouse refused waits, and is deleted with its user', async () => {
  const row = JSON.stringify([appId, eventIdOfKey(appId, 'r1', 'shared'), 'Paid']);
  await storeFailedRow(sluice, appId, 'stay', { identity: 'rolf', row });
  assert.deepEqual(await statuses(['r1', 'r2']), ['waiting', 'unknown']);
  await deleteNow(sluice, token, [{ identity: 'rolf' }]);
  assert.deepEqual(await statuses(['r1']), ['deleted']);
});

test('no receipt reveals that a user is suppressed: it is like those of others, at once and later', async () => {
  await setSuppressed(sluice.baseUrl, token, [{ identity: 'sue' }], true);
  await track(['s1', 'sue'], ['s2', 'sam']);
  assert.deepEqual(await statuses(['s1', 's2']), ['waiting', 'waiting']);
  await untilStored(sluice);
  const [hidden, shown] = (await receiptsOf(['s1', 's2'])) as [Receipt, Receipt];
  assert.deepEqual({ ...hidden, idempotency_key: 's2', event_id: shown.event_id }, shown);
  assert.deepEqual(await segmentsOf(['s1', 's2']), [undefined, shown.segment]);
  await withRedis(sluice, forgetKeys);
  assert.deepEqual(await receiptsOf(['s1', 's2']), [hidden, shown]);

  // The commit that identifies an anonymous user joins it to a suppressed one before every process knows of that.
  const identify = { app_id: appId, user_id: '77', identity: 'sue' };
  assert.equal((await post(sluice.baseUrl, paths.identify, identify)).status, 200);
  const event = { app_id: appId, user_id: '77', event: 'Paid', idempotency_key: 's3' };
  assert.equal((await post(sluice.baseUrl, paths.track, event)).status, 200);
  await untilStored(sluice);
  assert.deepEqual(await statuses(['s3']), ['stored']);
  assert.deepEqual(await segmentsOf(['s3']), [undefined]);
  // The suppressed segment's rows contain neither a name nor anything else that was sent.
  const rows = await sluice.rows(
    `SELECT * FROM stored_events WHERE app_id = '' AND segment = ${hidden.segment}`,
  );
  assert.ok(rows.length >= 2);
  assert.doesNotMatch(JSON.stringify(rows), /Paid|sue|"77"/);
});

test('keys belong to one environment, and each asks with its own write key', async () => {
  await trackAll('a1');
  await untilStored(sluice);
  assert.deepEqual(await statuses(['a1'], closed, closedKey), ['unknown']);
  const other = await createTestAccount(sluice, 'Stranger');
  const strange = await createKey(other.appIds[0] ?? '');
  await until(
    async () => (await askFor(['a1'], other.appIds[0], strange)).status === 200,
    'the API knows the key',
  );
  const answers = await Promise.all([
    askWith({ app_id: appId, idempotency_keys: ['a1'] }),
    ...[strange, closedKey, account.apiKey, sluice.adminToken, token, `${key}x`, ''].map((secret) =>
      askFor(['a1'], appId, secret),
    ),
  ]);
  for (const reply of answers) assert.equal(reply.bytes, answers[0]?.bytes);
  assert.equal(answers[0]?.status, 401);
  assert.equal(codeOf(await askFor(['a1'], other.appIds[1], strange)), 'write_key_required');
  assert.equal((await askFor(['a1'], other.appIds[1], strange)).status, 403);
  assert.equal(codeOf(await askFor(['a1'], '999', key)), 'unknown_app_id');
  const withBasic = await ask(sluice.baseUrl, {
    method: 'POST',
    path,
    headers: [
      ['Content-Type', 'application/json'],
      ['Authorization', basic(appId, key)],
    ],
    body: JSON.stringify({ app_id: appId, idempotency_keys: ['a1'] }),
  });
  assert.equal(withBasic.status, 200, withBasic.text);
});

test('hostile keys are looked up as they are, and bad lists are refused', async () => {
  const hostile = [
    "'; DROP TABLE stored_keys; --",
    "') OR 1 = 1 --",
    '\\',
    '\u0000',
    '__proto__',
    'toString',
    '{s0}:claims',
    '\u{1F600}'.repeat(255),
    '*',
    '%',
    '-inf',
  ];
  await trackAll('h1', ...hostile.slice(0, 3));
  await untilStored(sluice);
  const expected = hostile.map((_, at) => (at < 3 ? 'stored' : 'unknown'));
  assert.deepEqual(await statuses(hostile), expected);
  assert.deepEqual(
    (await receiptsOf(hostile)).map(({ idempotency_key: name }) => name),
    hostile,
  );
  const largest = Array.from({ length: 1000 }, (_, at) =>
    `${at}`.padEnd(255, '\u{1F600}').slice(0, 255).toWellFormed(),
  );
  const escaped = JSON.stringify(largest).replace(
    /[^ -~]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16)}`,
  );
  const reply = await askWith(`{"app_id": "${appId}", "idempotency_keys": ${escaped}}`, key);
  assert.equal(reply.status, 200, reply.text.slice(0, 200));
  for (const [keys, code] of [
    [[], 'empty'],
    [Array.from({ length: 1001 }, (_, at) => `k${at}`), 'too_many_records'],
    [undefined, 'missing_field'],
    ['k', 'invalid_type'],
    [{ length: 1 }, 'invalid_type'],
    [[1], 'invalid_type'],
    [[null], 'invalid_type'],
    [['k', ''], 'empty'],
    [['k'.repeat(256)], 'too_long'],
    [['\ud800'], 'invalid_text'],
  ] as const) {
    const refused = await askFor(keys);
    assert.equal(`${refused.status} ${codeOf(refused)}`, `400 ${code}`, JSON.stringify(keys)?.slice(0, 50));
  }
  assert.equal(codeOf(await askFor(['k'], Number(appId))), 'invalid_type');
});

test('an environment may ask about a limited number of keys per second, and holds up no other one', async () => {
  await withRedis(sluice, async (redis) => {
    const counter = shardKeys.receipts(0, appId);
    assert.equal((await askFor(['a', 'b'])).status, 200);
    assert.ok((await redis.pttl(counter)) <= 1000);
    await redis.set(counter, limits.keysPerSecondMax - 1, 'PX', 5_000);
    assert.equal((await askFor(['a', 'a'])).status, 200, 'one key, asked twice');
    await redis.set(counter, limits.keysPerSecondMax, 'PX', 5_000);
    const limited = await askFor(['b']);
    assert.deepEqual([limited.status, limited.headers['retry-after']], [429, '1']);
    await redis.del(counter);
  });
  assert.deepEqual(await statuses(['k'], closed, closedKey), ['unknown']);
});
