// What POST /api/collect does with good messages of the client library: where each type is stored, for which user and with
// what time; what a repeat does; and how the views show an anonymous user who is identified.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { counts, timestampAheadMsMax } from '../../src/contract/limits.js';
import { createEnvironments } from '../harness/accounts.js';
import {
  answersOf,
  event,
  type Fields,
  identify,
  newId,
  storeAll,
  userProperties,
} from '../harness/collect.js';
import { paths, post, readUserEvents, readUsers, untilStored } from '../harness/ingestion.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const appIds = await createEnvironments(
  sluice,
  Array.from({ length: 12 }, (_, i) => (i === 0 ? ['--allow-identity', 'guest'] : [])),
);

let used = 0;
/** An environment of the test's own. */
const nextAppId = () => appIds[++used] ?? assert.fail('too few environments');

const store = (appId: string, messages: readonly Fields[], fields: Fields = {}) =>
  storeAll(sluice.baseUrl, appId, messages, fields);

type Row = Readonly<Record<string, unknown>>;

/** Rows of one table of an environment, in the order of their acceptance. */
async function rowsOf(appId: string, table: string, columns: string): Promise<Row[]> {
  await untilStored(sluice);
  return sluice.rows<Row>(
    `SELECT ${columns} FROM ${table} WHERE app_id = '${appId}' ORDER BY segment, commit_number, row_number`,
  );
}

const user = 'toString(user_id) AS user_id, identity';
const eventsOf = (appId: string) => rowsOf(appId, 'events', `event, ${user}, session_id, properties`);

test('stores events under the identity when there is one, else under the user_id', async () => {
  const appId = nextAppId();
  await store(appId, [
    event({ session_id: 'session-1', properties: { tags: ['a', 2], amount: 12.5 } }),
    event({ event: 'Bought', identity: 'ada@example.com', session_id: 'session-2', properties: {} }),
    event({
      event: 'Screen',
      user_id: '9007199254740991',
      autocaptured: true,
      properties: { screen_name: 'Home' },
    }),
    event({ event: 'Zero', user_id: '0', autocaptured: false }),
  ]);
  assert.deepEqual(await eventsOf(appId), [
    {
      event: 'Opened',
      user_id: '5',
      identity: '',
      session_id: 'session-1',
      properties: { tags: 'a||2', amount: '12.5' },
    },
    { event: 'Bought', user_id: null, identity: 'ada@example.com', session_id: 'session-2', properties: {} },
    {
      event: 'Screen',
      user_id: '9007199254740991',
      identity: '',
      session_id: '',
      properties: { screen_name: 'Home' },
    },
    { event: 'Zero', user_id: '0', identity: '', session_id: '', properties: {} },
  ]);
});

test('gives an event the id that track gives to the same key', async () => {
  const appId = nextAppId();
  const [ours, theirs] = [newId(), newId()];
  await store(appId, [event({ id: ours })]);
  const track = (idempotency_key: string) =>
    post(sluice.baseUrl, paths.track, { app_id: appId, event: 'Tracked', user_id: '5', idempotency_key });
  for (const key of [ours, theirs]) assert.equal((await track(key)).status, 200);
  assert.deepEqual(await answersOf(sluice.baseUrl, appId, [event({ id: theirs })]), [
    { id: theirs, status: 'repeat' },
  ]);
  const events = (await eventsOf(appId)).map((row) => row.event);
  assert.deepEqual(events, ['Opened', 'Tracked']);
});

test('keeps the order of the request, over the types and with limited calls between', async () => {
  const appId = nextAppId();
  const messages = Array.from({ length: counts.collectMessagesMax }, (_, i) =>
    i % 40 === 20 ? userProperties({ n: i }) : event({ event: `Event ${i}` }),
  );
  await store(appId, messages);
  const events = await rowsOf(appId, 'events', 'event, row_number, commit_number');
  assert.equal(events.length, 975);
  assert.deepEqual(
    events.map(({ event: name }) => name),
    messages.flatMap((message) => ('event' in message ? [message.event] : [])),
  );
  assert.equal(new Set(events.map((row) => row.commit_number)).size, 1, 'one commit');
  const properties = await rowsOf(appId, 'user_properties', "properties['n'] AS n, row_number");
  assert.deepEqual(
    properties.map(({ n }) => Number(n)),
    Array.from({ length: 25 }, (_, i) => 20 + 40 * i),
  );
  const rowNumbers = [...events, ...properties].map((row) => Number(row.row_number)).sort((a, b) => a - b);
  assert.deepEqual(rowNumbers.at(-1), 999);
  assert.equal(new Set(rowNumbers).size, 1000);
});

describe('a repeated id', () => {
  test('is answered repeat and changes nothing, whatever its type, body and user', async () => {
    const appId = nextAppId();
    const first = [
      event({ event: 'First' }),
      identify('5', 'ada@example.com'),
      userProperties({ plan: 'first' }),
    ];
    await store(appId, first);
    const later = userProperties({ plan: 'later' });
    await store(appId, [later]);
    const ids = first.map(({ id }) => id);
    const repeats: Fields[] = ids.flatMap((id) => [
      event({ id, event: 'Second', user_id: '6', time: '2020-01-01T00:00:00Z' }),
      identify('6', 'grace@example.com', { id }),
      userProperties({ plan: 'repeated' }, { id }),
    ]);
    assert.deepEqual(
      await answersOf(sluice.baseUrl, appId, repeats),
      repeats.map(({ id }) => ({ id, status: 'repeat' })),
    );
    assert.deepEqual(
      (await eventsOf(appId)).map((row) => row.event),
      ['First'],
    );
    assert.deepEqual(await rowsOf(appId, 'user_identities', user), [
      { user_id: '5', identity: 'ada@example.com' },
    ]);
    const [ada, ...others] = await readUsers(sluice, appId);
    assert.deepEqual(others, []);
    assert.deepEqual(ada?.properties, { plan: 'later' });
  });

  test('keeps the first message within one request, and is another id in another environment', async () => {
    const [appId, other] = [nextAppId(), nextAppId()];
    const id = newId();
    const twins = [event({ id, event: 'First' }), event({ id, event: 'Second' }), userProperties({}, { id })];
    assert.deepEqual(await answersOf(sluice.baseUrl, appId, twins), [
      { id, status: 'stored' },
      { id, status: 'repeat' },
      { id, status: 'repeat' },
    ]);
    await store(other, [event({ id, event: 'Elsewhere' })]);
    assert.deepEqual(
      (await eventsOf(appId)).map((row) => row.event),
      ['First'],
    );
    assert.deepEqual(
      (await eventsOf(other)).map((row) => row.event),
      ['Elsewhere'],
    );
    assert.deepEqual(await rowsOf(appId, 'user_properties', user), []);
  });
});

describe('time', () => {
  const hour = 3_600_000;
  const day = 24 * hour;
  const iso = (ms: number) => new Date(ms).toISOString();
  const now = Date.now();
  type Skew = {
    readonly name: string;
    readonly sentAt: number;
    readonly time?: number;
    readonly ageMs?: number;
  };
  const table: readonly Skew[] = [
    { name: 'a right clock', sentAt: now, time: now - 1500, ageMs: 1500 },
    { name: 'the moment of sending', sentAt: now, time: now, ageMs: 0 },
    {
      name: 'a clock 30 years slow',
      sentAt: now - 30 * 365 * day,
      time: now - 30 * 365 * day - 5000,
      ageMs: 5000,
    },
    { name: 'a clock at 1970', sentAt: 2500, time: 500, ageMs: 2000 },
    { name: 'a clock before 1970', sentAt: -50 * 365 * day, time: -50 * 365 * day - 7000, ageMs: 7000 },
    {
      name: 'a clock in the year 50',
      sentAt: Date.parse('0050-01-01T00:00:10Z'),
      time: Date.parse('0050-01-01T00:00:00Z'),
      ageMs: 10_000,
    },
    {
      name: 'a clock 100 years fast',
      sentAt: now + 100 * 365 * day,
      time: now + 100 * 365 * day - hour,
      ageMs: hour,
    },
    { name: "yesterday's queue", sentAt: now, time: now - day, ageMs: day },
    {
      name: 'a queue of ten years',
      sentAt: now - 5 * day,
      time: now - 5 * day - 3650 * day,
      ageMs: 3650 * day,
    },
    { name: 'a call after the sending', sentAt: now, time: now + 1, ageMs: 0 },
    {
      name: 'a call far after the sending',
      sentAt: now - day,
      time: now + timestampAheadMsMax * 400,
      ageMs: 0,
    },
    { name: 'no time', sentAt: now - 40 * 365 * day },
  ];

  test('is corrected by the error of the client’s clock', async () => {
    const appId = nextAppId();
    const received: { fromMs: number; toMs: number }[] = [];
    for (const { name, sentAt, time } of table) {
      const fromMs = Date.now();
      const message = event({ event: name, ...(time === undefined ? {} : { time: iso(time) }) });
      await store(appId, [message], { sent_at: iso(sentAt) });
      received.push({ fromMs, toMs: Date.now() });
    }
    const rows = await rowsOf(
      appId,
      'events',
      'event, toUnixTimestamp64Milli(time) AS ms, toUnixTimestamp64Milli(received_at) AS received',
    );
    for (const [index, { name, ageMs }] of table.entries()) {
      const row = rows[index] ?? {};
      assert.equal(row.event, name);
      const { fromMs, toMs } = received[index] ?? { fromMs: 0, toMs: 0 };
      if (ageMs === undefined) {
        assert.equal(row.ms, row.received, 'the default is the time of acceptance');
        continue;
      }
      const ms = Number(row.ms);
      assert.ok(ms >= fromMs - ageMs && ms <= toMs - ageMs, `${name}: ${ms - fromMs + ageMs} ms off`);
    }
  });

  test('is 1970 for a call that the correction moves before 1970', async () => {
    const appId = nextAppId();
    await store(appId, [event({ time: '1850-01-01T00:00:00.000Z' })]);
    await store(appId, [event({ time: '0001-01-01T00:00:00Z' })], { sent_at: '9999-12-31T23:59:59.999Z' });
    const rows = await rowsOf(appId, 'events', 'toString(time) AS time');
    assert.deepEqual(
      rows,
      Array.from({ length: 2 }, () => ({ time: '1970-01-01 00:00:00.000' })),
    );
  });
});

describe('the merged user', () => {
  test('has the properties from before and after the identification, with the latest value of each key', async () => {
    const appId = nextAppId();
    await store(appId, [
      userProperties({ plan: 'free', email: 'first@example.com', seen: 1 }),
      event({ event: 'Before' }),
      userProperties({ plan: 'other' }, { user_id: '6' }),
      userProperties(undefined, { user_id: '7' }),
    ]);
    const plain = (identity: string, user_ids: string[], email: string, properties: object) => ({
      identity,
      user_ids,
      email,
      properties,
    });
    await untilStored(sluice);
    const others = [plain('', ['6'], '', { plan: 'other' }), plain('', ['7'], '', {})];
    assert.deepEqual(await readUsers(sluice, appId), [
      plain('', ['5'], 'first@example.com', { plan: 'free', email: 'first@example.com', seen: '1' }),
      ...others,
    ]);

    await store(appId, [
      identify('5', 'A'),
      userProperties({ plan: 'pro' }, { identity: 'A' }),
      event({ event: 'After', identity: 'A' }),
      // These were set on another device of the same user, which is identified only afterwards.
      userProperties({ seen: 2 }, { user_id: '8' }),
      identify('8', 'A', { user_id: '8' }),
    ]);
    await untilStored(sluice);
    const merged = { plan: 'pro', email: 'first@example.com', seen: '2' };
    assert.deepEqual(await readUsers(sluice, appId), [
      ...others,
      plain('A', ['5', '8'], 'first@example.com', merged),
    ]);
    assert.deepEqual(await readUserEvents(sluice, appId), [
      { event: 'After', identity: 'A', user_id: null, user_properties: merged },
      { event: 'Before', identity: 'A', user_id: '5', user_properties: merged },
    ]);
  });

  test('has the first identity that its user_id was given, and a later one changes nothing', async () => {
    const appId = nextAppId();
    await store(appId, [identify('5', 'A'), identify('5', 'B'), userProperties({ plan: 'pro' })]);
    await untilStored(sluice);
    assert.deepEqual(await readUsers(sluice, appId), [
      { identity: 'A', user_ids: ['5'], email: '', properties: { plan: 'pro' } },
    ]);
  });

  test('may have a generic word as identity where the environment allows it', async () => {
    const [appId = ''] = appIds;
    assert.deepEqual(
      (await answersOf(sluice.baseUrl, appId, [identify('5', 'guest'), identify('6', 'anonymous')])).map(
        ({ status, code, field }) => [status, code, field],
      ),
      [
        ['stored', undefined, undefined],
        ['rejected', 'merges_strangers', 'identity'],
      ],
    );
    // Records of such a user are stored as they are, as track does it.
    await store(appId, [event({ identity: 'null' }), userProperties({}, { identity: 'undefined' })]);
  });
});
