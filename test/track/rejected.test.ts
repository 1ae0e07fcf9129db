// The list of rejected records: what it contains, what it never contains, and its bounds.

import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { rejectedRecords } from '../../src/contract/limits.js';
import {
  keepRejectedIn,
  listRejected,
  type RejectedEntry,
} from '../../src/insights/data-quality/rejected-records.js';
import { createLog } from '../../src/log.js';
import { Redis } from '../../src/packages/ioredis.js';
import { registryKeys } from '../../src/redis/keys.js';
import { rejectedWrites } from '../../src/tuning.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';
import { filesWith } from '../support/traces.js';

const log = createLog('test', 'silent');

const sluice = await ownSluice({ workers: 0 });
const redis = new Redis(sluice.redisUrl);

after(() => redis.disconnect());

beforeEach(async () => {
  await redis.del(registryKeys.rejected(sluice.appId));
});

async function send(path: string, body: object | string, status: number): Promise<void> {
  const reply = await fetch(`${sluice.baseUrl}${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  assert.equal(reply.status, status, await reply.text());
}

/** The list that an administrator sees, once it has this many entries. */
function listed(count: number): Promise<RejectedEntry[]> {
  const what = `${count} rejected records are listed`;
  return until(async () => {
    const entries = await listRejected(redis, sluice.appId);
    return entries.length >= count && entries;
  }, what);
}

const source = () => ({ endpoint: 'track' as const, appId: sluice.appId });
const refusal = { code: 'missing_field' as const, field: 'event' };

test('lists a refused request with time, endpoint, code, field and size, and prints it', async () => {
  const body = JSON.stringify({ app_id: sluice.appId, identity: 'wrong@example.com', event: 7 });
  const sentMs = Date.now();
  await send('/api/track', body, 400);
  await listed(1);
  const [entry, ...rest] = (await sluice.admin('rejected', 'list', sluice.appId)) as RejectedEntry[];
  assert.deepEqual(rest, []);
  assert.ok(Math.abs(Date.parse(entry?.time ?? '') - sentMs) < 30_000);
  assert.deepEqual(
    { ...entry, time: '' },
    {
      time: '',
      endpoint: 'track',
      code: 'invalid_type',
      field: 'event',
      bytes: body.length,
      index: null,
    },
  );
});

test('lists the bad elements of a bulk request with their positions and sizes, not the good ones', async () => {
  const good = { event: 'Listed', identity: 'good@example.com' };
  const bad = [
    { event: 'Listed', identity: 'ä@example.com', user_id: '7' },
    { event: 'Listed', user_id: '07' },
  ];
  await send('/api/track', { app_id: sluice.appId, events: [good, bad[0], good, bad[1]] }, 200);
  const entries = await listed(2);
  assert.deepEqual(entries.map(({ index, code, field, bytes }) => [index, code, field, bytes]).sort(), [
    [1, 'ambiguous_user', 'user_id', Buffer.byteLength(JSON.stringify(bad[0]))],
    [3, 'invalid_user_id', 'user_id', Buffer.byteLength(JSON.stringify(bad[1]))],
  ]);
});

test('lists what every endpoint refuses: whole bulk requests, user properties, identifications', async () => {
  const { appId } = sluice;
  await send('/api/track', { app_id: appId, events: [] }, 400);
  await send('/api/track?strict=1', { app_id: appId, events: [{ event: 'x', identity: 'a' }, {}] }, 400);
  await send('/api/add_user_properties', { app_id: appId, users: [{ identity: '' }] }, 400);
  await send('/api/v1/identify', { app_id: appId, user_id: '1', identity: 'null' }, 400);
  await send('/api/track', { app_id: appId, event: 'x', identity: 'y', junk: 'z'.repeat(2 ** 20) }, 413);
  await send('/api/track', `{"app_id":${appId},"event":"x","identity":"y"}`, 400);
  const entries = await listed(6);
  assert.deepEqual(entries.map(({ endpoint, code, field, index }) => [endpoint, code, field, index]).sort(), [
    ['identify', 'merges_strangers', 'identity', null],
    ['track', 'body_too_large', null, null],
    ['track', 'empty', 'events', null],
    ['track', 'invalid_type', 'app_id', null],
    ['track', 'missing_field', 'event', 1],
    ['user_properties', 'empty', 'identity', 0],
  ]);
});

test('keeps no identity, value, text or personal name of a property anywhere in Redis or in its output', async () => {
  const { appId } = sluice;
  const secret = (what: string) => `sEcReT-${what}-19b7`;
  const properties = { color: { shade: secret('value') } };
  await send(
    '/api/track',
    { app_id: appId, event: secret('event'), identity: secret('id'), properties },
    400,
  );
  const keys = ['sEcReT@example.com', 'call 5550100', 'sEcReT_0049301234', 'about_sEcReT-id-19b7', 'is_gift'];
  const events = keys.map((key) => ({
    event: secret('event'),
    identity: secret('id'),
    session_id: secret('session'),
    idempotency_key: secret('key'),
    properties: { [key]: { nested: secret('value') } },
  }));
  await send('/api/track', { app_id: appId, events }, 400);
  // This path begins with a name that the sender made up.
  const surrogate = `{"app_id":"${appId}","event":"x","identity":"y","sEcReT@example.com":"\\ud800"}`;
  await send('/api/track', surrogate, 400);

  const entries = await listed(7);
  assert.deepEqual(entries.map(({ field }) => field).sort(), [
    '*',
    ...Array(4).fill('properties.*'),
    'properties.color',
    'properties.is_gift',
  ]);
  const printed = JSON.stringify(await sluice.admin('rejected', 'list', appId));
  const { dir } = sluice.redis;
  assert.notDeepEqual(
    filesWith(dir, [registryKeys.rejected(appId)]),
    [],
    'Redis’s append-only file is searched',
  );
  assert.deepEqual(filesWith(dir, ['sEcReT', '5550100']), []);
  for (const text of [printed, ...sluice.api.map((api) => api.output())]) {
    assert.doesNotMatch(text, /sEcReT|5550100/);
  }
});

test('does not record refusals without a known environment, nor good or limited requests', async () => {
  await redis.del(registryKeys.rejected('123'));
  await send('/api/track', { app_id: '123', event: 'x', identity: 'y', properties: { a: true } }, 400);
  await send('/api/track', '{"app_id":', 400);
  await send('/api/track', { event: 'x' }, 400);
  for (let i = 0; i < 30; i++) {
    await send('/api/track', { app_id: sluice.appId, event: 'x', identity: 'limited' }, 200);
  }
  await send('/api/track', { app_id: sluice.appId, event: 'x', identity: 'limited' }, 429);
  // This one is listed. If those before were listed too, they would come before it.
  await send('/api/track', { app_id: sluice.appId, event: 'x' }, 400);
  const entries = await listed(1);
  assert.deepEqual(
    entries.map(({ code }) => code),
    ['missing_user'],
  );
  const keys = await redis.keys(registryKeys.rejected('*'));
  assert.deepEqual(keys, [registryKeys.rejected(sluice.appId)]);
  await assert.rejects(sluice.admin('rejected', 'list', '123'), /there is no environment 123/);
});

test('keeps the last 100 of an environment, and nothing for longer than 7 days', async () => {
  const key = registryKeys.rejected(sluice.appId);
  const dayMs = 24 * 60 * 60 * 1000;
  const entry = { time: '', endpoint: 'track', code: 'empty', field: 'old' };
  await redis.zadd(key, Date.now() - 7 * dayMs - 1, `a:${JSON.stringify(entry)}`);
  assert.deepEqual(await listRejected(redis, sluice.appId), [], 'entries that are too old are not shown');

  const startedMs = Date.now();
  for (let round = 0; round < 3; round++) {
    // Entries that two processes write in the same millisecond have no order, so each round has its own time.
    const kept = keepRejectedIn(redis, log, () => startedMs + round);
    for (let i = 0; i < 60; i++) kept.noteRequest(source(), refusal, {}, round * 1000 + i);
    await kept.close();
  }
  const entries = await listRejected(redis, sluice.appId);
  assert.equal(entries.length, 100);
  assert.equal(await redis.zcard(key), 100);
  assert.equal(entries.filter(({ bytes }) => bytes >= 2000).length, 60, 'the latest are kept');
  assert.equal(entries.filter(({ bytes }) => bytes < 1000).length, 0, 'the oldest are gone');
  assert.equal(await redis.zcount(key, '-inf', Date.now() - 7 * dayMs), 0);
  const leftMs = await redis.pttl(key);
  assert.ok(leftMs > 7 * dayMs - 60_000 && leftMs <= 7 * dayMs);
});

test('holds a bounded number in memory, however many are refused, and writes them with few commands', async () => {
  const kept = keepRejectedIn(redis, log);
  const commandsBefore = await commandsRun();
  const appIds = Array.from({ length: 40 }, (_, i) => `flood-${i}`);
  for (let i = 0; i < 100_000; i++) {
    kept.noteRequest({ ...source(), appId: appIds[i % 40] as string }, refusal, { identity: 'x' }, i);
  }
  const elements = Array.from({ length: 1000 }, () => ({ identity: 'x' }));
  const refusals = elements.map((_, index) => ({ ...refusal, index }));
  kept.noteElements(source(), refusals, elements);
  await kept.close();
  const counts = await Promise.all(appIds.map((appId) => redis.zcard(registryKeys.rejected(appId))));
  assert.ok(counts.every((count) => count <= rejectedRecords.perEnvironmentMax));
  assert.equal(
    counts.reduce((sum, count) => sum + count, 0),
    rejectedWrites.waitingMax,
  );
  assert.equal(await redis.zcard(registryKeys.rejected(sluice.appId)), 0, 'there was no room left');
  // The API processes also send commands all the time.
  assert.ok((await commandsRun()) - commandsBefore < 5_000);
  await redis.del(...appIds.map(registryKeys.rejected));
});

test('measures only as many refused elements of a request as other requests can wait for', async () => {
  const kept = keepRejectedIn(redis, log);
  const elements = Array.from({ length: 90 }, () => ({ event: 'x'.repeat(160_000) }));
  const refusals = elements.map((_, index) => ({ ...refusal, index }));
  kept.noteElements(source(), refusals, elements);
  kept.noteElements(source(), refusals.slice(0, 1), elements);
  await kept.close();
  const entries = await listRejected(redis, sluice.appId);
  const most = Math.ceil(rejectedWrites.measuredBytesMax / 160_000) + 1;
  assert.ok(entries.length >= 2 && entries.length <= most + 1, `${entries.length} are listed`);
  assert.ok(entries.every(({ bytes }) => bytes > 160_000));
});

test('drops what it could not write in time', async () => {
  let nowMs = Date.now();
  const kept = keepRejectedIn(redis, log, () => nowMs);
  for (let i = 0; i < 60; i++) kept.noteRequest(source(), refusal, {}, 1);
  nowMs += 1;
  for (let i = 0; i < 60; i++) kept.noteRequest(source(), refusal, {}, 2);
  nowMs += rejectedWrites.waitingMsMax;
  await kept.close();
  const entries = await listRejected(redis, sluice.appId);
  assert.deepEqual(
    entries.map(({ bytes }) => bytes),
    Array.from({ length: 40 }, () => 2),
  );
});

test('keeps nothing that distinguishes one user’s entries from another’s', async () => {
  const kept = keepRejectedIn(redis, log);
  for (const user of [{ identity: 'ada' }, { identity: 'eve' }, { user_id: '7' }, {}]) {
    kept.noteRequest(source(), refusal, user, 1);
  }
  await kept.close();
  const entries = await listRejected(redis, sluice.appId);
  assert.equal(entries.length, 4);
  const forms = new Set(entries.map((entry) => JSON.stringify({ ...entry, time: '' })));
  assert.equal(forms.size, 1, 'entries of different users differ in nothing but their time');
});

async function commandsRun(): Promise<number> {
  return Number(/total_commands_processed:(\d+)/.exec(await redis.info('stats'))?.[1]);
}
