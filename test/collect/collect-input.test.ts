// What POST /api/collect accepts and refuses: single messages, good and bad ones in one request, just inside and just
// outside of each bound; requests as a whole; and what a lenient environment mends.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { bodies, counts, lengths } from '../../src/contract/limits.js';
import { type OutcomeCode, outcomes } from '../../src/contract/outcomes.js';
import { listRejected } from '../../src/insights/data-quality/rejected-records.js';
import { Redis } from '../../src/packages/ioredis.js';
import { createEnvironments } from '../harness/accounts.js';
import {
  answersOf,
  type CollectReply,
  collect,
  event,
  type Fields,
  identify,
  newId,
  request,
  userProperties,
} from '../harness/collect.js';
import { readMetric } from '../harness/fault-checks.js';
import { untilStored } from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const [api = assert.fail()] = sluice.api;
const redis = new Redis(sluice.redisUrl);
const [appId = '', lenient = '', quiet = '', listed = ''] = await createEnvironments(sluice, [
  ['--limit', 'user_properties=none'],
  ['--validation', 'lenient', '--limit', 'user_properties=none'],
  [],
  [],
]);
after(() => redis.disconnect());

const emoji = '😀';
const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`key-${i}`, i]));

type Bad = { readonly message: unknown; readonly code: OutcomeCode; readonly field?: string };
const bad = (message: unknown, code: OutcomeCode, field?: string): Bad =>
  field === undefined ? { message, code } : { message, code, field };

const taken: readonly Fields[] = [
  event({ event: 'n'.repeat(lengths.clientEventMax) }),
  event({ event: emoji.repeat(lengths.clientEventMax) }),
  event({ id: emoji.repeat(lengths.idempotencyKeyMax) }),
  event({ id: '7' }),
  event({ identity: 'i'.repeat(lengths.clientIdentityMax - 1) }),
  event({ identity: emoji.repeat(lengths.clientIdentityMax) }),
  event({ session_id: 's'.repeat(lengths.sessionIdMax) }),
  event({ user_id: '0' }),
  event({ user_id: String(Number.MAX_SAFE_INTEGER) }),
  event({ time: '2026-03-01t12:30:00.123456789-03:30' }),
  event({ properties: { ['k'.repeat(lengths.propertyKeyMax)]: 'v'.repeat(lengths.propertyValueMax) } }),
  event({ properties: many(counts.propertiesMax) }),
  event({ properties: { list: ['a', 1], Screen_Name: 'x' } }),
  event({ autocaptured: true, properties: { screen_name: 'Home' } }),
  event({ autocaptured: false }),
  event({ unknown: { deep: [true] }, timestamp: 5, idempotency_key: 7 }),
  identify('5', emoji.repeat(lengths.clientIdentityMax)),
  identify('5', 'ada', { time: '2026-03-01T12:30:00Z', session_id: 's' }),
  userProperties({ ['k'.repeat(lengths.propertyKeyMax)]: emoji.repeat(lengths.userPropertyValueMax) }),
  userProperties(many(counts.propertiesMax)),
  userProperties(undefined),
  userProperties({}, { identity: 'ada', time: '1969-12-31T23:59:59Z' }),
];

const refused: readonly Bad[] = [
  ...[null, 'event', 7, true, [], [event()]].map((message) => bad(message, 'invalid_type')),
  bad({}, 'missing_field', 'type'),
  bad(event({ type: undefined }), 'missing_field', 'type'),
  ...['track', 'Event', '', null, 7, '__proto__', 'toString', ['event']].map((type) =>
    bad(event({ type }), 'unknown_message_type', 'type'),
  ),
  ...[
    event,
    (fields: Fields) => identify('5', 'ada', fields),
    (fields: Fields) => userProperties({}, fields),
  ].flatMap((make) => [
    bad(make({ id: undefined }), 'missing_field', 'id'),
    bad(make({ id: '' }), 'empty', 'id'),
    bad(make({ id: 'x'.repeat(lengths.idempotencyKeyMax + 1) }), 'too_long', 'id'),
    bad(make({ id: 7 }), 'invalid_type', 'id'),
    bad(make({ user_id: undefined }), 'missing_field', 'user_id'),
    bad(make({ user_id: 5 }), 'invalid_type', 'user_id'),
    ...['', '05', '-1', '5.0', '1e3', ' 5', '9007199254740992', 'null'].map((user_id) =>
      bad(make({ user_id }), 'invalid_user_id', 'user_id'),
    ),
    bad(make({ identity: '' }), 'empty', 'identity'),
    bad(make({ identity: null }), 'invalid_type', 'identity'),
    bad(make({ identity: 'i'.repeat(lengths.clientIdentityMax + 1) }), 'too_long', 'identity'),
    bad(make({ identity: emoji.repeat(lengths.identityMax) }), 'too_long', 'identity'),
    bad(make({ identity: 'a\ud800' }), 'invalid_text', 'identity'),
    bad(make({ session_id: '' }), 'empty', 'session_id'),
    bad(make({ session_id: 's'.repeat(lengths.sessionIdMax + 1) }), 'too_long', 'session_id'),
    ...[
      '',
      'yesterday',
      '2026-02-30T12:00:00Z',
      '2026-03-01',
      '2026-03-01T12:30:00',
      '2026-03-01T12:30Z',
    ].map((time) => bad(make({ time }), 'invalid_timestamp', 'time')),
    bad(make({ time: Date.now() }), 'invalid_type', 'time'),
  ]),
  bad(event({ event: undefined }), 'missing_field', 'event'),
  bad(event({ event: '' }), 'empty', 'event'),
  bad(event({ event: emoji.repeat(lengths.clientEventMax + 1) }), 'too_long', 'event'),
  bad(event({ event: 'a\udfff' }), 'invalid_text', 'event'),
  bad(event({ autocaptured: 'true' }), 'invalid_type', 'autocaptured'),
  bad(event({ properties: [] }), 'invalid_type', 'properties'),
  bad(event({ properties: { ['k'.repeat(lengths.propertyKeyMax + 1)]: 1 } }), 'too_long', 'properties'),
  bad(event({ properties: { a: 'v'.repeat(lengths.propertyValueMax + 1) } }), 'too_long', 'properties.a'),
  bad(event({ properties: { a: true } }), 'invalid_type', 'properties.a'),
  bad(event({ properties: { a: null } }), 'invalid_type', 'properties.a'),
  bad(event({ properties: { a: { b: 1 } } }), 'invalid_type', 'properties.a'),
  bad(event({ properties: many(counts.propertiesMax + 1) }), 'too_many_properties', 'properties'),
  bad(event({ properties: { screen_name: 'Home' } }), 'reserved_property', 'properties.screen_name'),
  bad(
    event({ autocaptured: false, properties: { screen_name: 'Home' } }),
    'reserved_property',
    'properties.screen_name',
  ),
  bad(event({ autocaptured: true, properties: { user_id: 1 } }), 'reserved_property', 'properties.user_id'),
  bad(
    event({ autocaptured: true, properties: { session_id: 1 } }),
    'reserved_property',
    'properties.session_id',
  ),
  bad(identify('5', 'ada', { identity: undefined }), 'missing_field', 'identity'),
  ...['null', 'Undefined', ' user ', '"anonymous"', '[object Object]', '0'].map((identity) =>
    bad(identify('5', identity), 'merges_strangers', 'identity'),
  ),
  bad(userProperties({ user_id: 1 }), 'reserved_property', 'properties.user_id'),
  bad(userProperties({ a: emoji.repeat(lengths.userPropertyValueMax + 1) }), 'too_long', 'properties.a'),
  bad(userProperties({ a: ['b'] }), 'invalid_type', 'properties.a'),
  bad(userProperties({ ['k'.repeat(lengths.propertyKeyMax + 1)]: 1 }), 'too_long', 'properties'),
  bad(userProperties(many(counts.propertiesMax + 1)), 'too_many_properties', 'properties'),
];

async function countRows(app: string): Promise<Record<string, number>> {
  await untilStored(sluice);
  const tables = ['events', 'user_properties', 'user_identities'];
  const selects = tables.map(
    (table) => `SELECT '${table}' AS name, toUInt32(count()) AS n FROM ${table} WHERE app_id = '${app}'`,
  );
  const rows = await sluice.rows<{ name: string; n: number }>(selects.join(' UNION ALL '));
  return Object.fromEntries(rows.map(({ name, n }) => [name, n]));
}

test('answers each message by itself: the good ones are stored, the bad ones named with their reasons', async () => {
  const accepted = (await readMetric(api, 'sluice_records_accepted_total')) ?? 0;
  const rejected = (await readMetric(api, 'sluice_records_rejected_total')) ?? 0;
  // Good and bad messages take turns.
  const rows = [...refused.keys()].flatMap((i) => [refused[i], taken[i]].filter((row) => row !== undefined));
  assert.equal(rows.length, taken.length + refused.length);
  const isBad = (row: Bad | Fields): row is Bad => 'code' in row;
  const messages = rows.map((row) => (isBad(row) ? row.message : row));
  const answers = await answersOf(sluice.baseUrl, appId, messages);
  for (const [index, row] of rows.entries()) {
    const { message: words, ...answer } = answers[index] ?? { status: 'stored' };
    const { id } = (messages[index] ?? {}) as { id?: unknown };
    const named = typeof id === 'string' ? { id: id.toWellFormed() } : {};
    const shown = JSON.stringify(messages[index])?.slice(0, 200);
    if (!isBad(row)) assert.deepEqual(answer, { ...named, status: 'stored' }, shown);
    else {
      const field = row.field === undefined ? {} : { field: row.field };
      assert.deepEqual(answer, { ...named, status: 'rejected', code: row.code, ...field }, shown);
      assert.ok((words ?? '').length > 0);
    }
  }
  assert.deepEqual(await countRows(appId), { events: 16, user_properties: 4, user_identities: 2 });
  // Other files may send to this process meanwhile; the counts of a process that a busy machine holds up are missing for a moment.
  await until(async () => {
    const [acceptedNow, rejectedNow] = [
      await readMetric(api, 'sluice_records_accepted_total'),
      await readMetric(api, 'sluice_records_rejected_total'),
    ];
    return Number(acceptedNow) >= accepted + taken.length && Number(rejectedNow) >= rejected + refused.length;
  }, 'all of them are counted');
});

test('claims nothing for a rejected message: its id can be sent again', async () => {
  const id = newId();
  const answers = await answersOf(sluice.baseUrl, quiet, [event({ id, event: '' }), event({ id })]);
  assert.deepEqual(
    answers.map(({ status }) => status),
    ['rejected', 'stored'],
  );
});

test('answers 200 when every message is bad', async () => {
  const answers = await answersOf(sluice.baseUrl, quiet, [event({ event: '' }), {}]);
  assert.deepEqual(
    answers.map(({ code }) => code),
    ['empty', 'missing_field'],
  );
});

test('lists rejected messages and refused requests, without a value', async () => {
  const app = listed;
  const secret = `secret-${newId()}`;
  await answersOf(sluice.baseUrl, app, [event(), event({ identity: secret, properties: { plan: null } })]);
  await collect(sluice.baseUrl, request(app, [], { secret }));
  await collect(sluice.baseUrl, request(app, [event()], { sent_at: secret }));
  const entries = await until(async () => {
    const found = await listRejected(redis, app);
    return found.length === 3 && found;
  }, 'three entries are listed');
  assert.deepEqual(
    entries.map(({ endpoint, code, field, index }) => ({ endpoint, code, field, index })).reverse(),
    [
      { endpoint: 'collect', code: 'invalid_type', field: 'properties.plan', index: 1 },
      { endpoint: 'collect', code: 'empty', field: 'messages', index: null },
      { endpoint: 'collect', code: 'invalid_timestamp', field: 'sent_at', index: null },
    ],
  );
  assert.ok(!JSON.stringify(entries).includes(secret));
});

describe('a request as a whole', () => {
  const valid = () => request(quiet, [event()]);
  type Whole = {
    readonly name: string;
    readonly body: () => unknown;
    readonly code?: OutcomeCode;
    readonly field?: string;
  };
  /** A body of exactly this many bytes. */
  const padded = (bytes: number) => {
    const text = JSON.stringify({ ...valid(), padding: '' });
    return text.replace('"padding":""', `"padding":"${'x'.repeat(bytes - text.length)}"`);
  };
  /** A valid request with other fields, of which one is wrong. */
  const withFields = (name: string, fields: object, code: OutcomeCode, field: string): Whole => ({
    name,
    body: () => ({ ...valid(), ...fields }),
    code,
    field,
  });
  const withMessages = (count: number) => () =>
    request(
      quiet,
      Array.from({ length: count }, () => event()),
    );
  const wholes: readonly Whole[] = [
    { name: 'one message', body: valid },
    { name: 'unknown fields', body: () => ({ ...valid(), batch: 1, pairing: 7 }) },
    { name: 'as many messages as allowed', body: withMessages(counts.collectMessagesMax) },
    {
      name: 'one message too many',
      body: withMessages(counts.collectMessagesMax + 1),
      code: 'too_many_records',
      field: 'messages',
    },
    withFields('no messages', { messages: [] }, 'empty', 'messages'),
    withFields('messages left out', { messages: undefined }, 'missing_field', 'messages'),
    withFields('messages that are no list', { messages: event() }, 'invalid_type', 'messages'),
    withFields('no sent_at', { sent_at: undefined }, 'missing_field', 'sent_at'),
    ...[null, 7, 1.5].map((sent_at) =>
      withFields(`sent_at ${sent_at}`, { sent_at }, 'invalid_type', 'sent_at'),
    ),
    ...[
      '',
      'now',
      '2026-02-29T00:00:00Z',
      '2026-03-01T12:30:00',
      '2026-03-01T12:30Z',
      '+012026-03-01T12:30:00Z',
    ].map((sent_at) => withFields(`sent_at "${sent_at}"`, { sent_at }, 'invalid_timestamp', 'sent_at')),
    withFields('an unknown app_id', { app_id: '7' }, 'unknown_app_id', 'app_id'),
    withFields('no app_id', { app_id: undefined }, 'missing_field', 'app_id'),
    withFields('the app_id as a number', { app_id: Number(quiet) }, 'invalid_type', 'app_id'),
    ...['', '{', 'null', '[]', '"text"', `${JSON.stringify({})}x`].map((body) => ({
      name: `the body ${body || 'of no bytes'}`,
      body: () => body,
      code:
        body === '' || body === '{' || body.endsWith('x')
          ? ('invalid_json' as const)
          : ('invalid_type' as const),
    })),
    { name: 'the largest body', body: () => padded(bodies.collectBytesMax) },
    { name: 'a byte too much', body: () => padded(bodies.collectBytesMax + 1), code: 'body_too_large' },
  ];

  for (const { name, body, code, field } of wholes) {
    test(`with ${name} is ${code === undefined ? 'accepted' : `answered ${outcomes[code].status} ${code}`}`, async () => {
      const reply: CollectReply = await collect(sluice.baseUrl, body());
      if (code === undefined) {
        assert.equal(reply.status, 200, reply.text.slice(0, 300));
        assert.ok(reply.json.messages?.every(({ status }) => status === 'stored'));
        assert.deepEqual(Object.keys(reply.json), ['messages']);
        return;
      }
      assert.equal(reply.status, outcomes[code].status, reply.text.slice(0, 300));
      assert.equal(reply.json.err?.code, code);
      if (code !== 'invalid_type' || field !== undefined) assert.equal(reply.json.err?.field, field);
      assert.deepEqual(Object.keys(reply.json), ['err']);
    });
  }

  for (const type of [
    'application/json',
    'text/plain',
    'Text/Plain; charset="utf-8"',
    'text/plain;charset=UTF-8',
    '',
  ]) {
    test(`of the type "${type}" is accepted`, async () => {
      const reply = await collect(sluice.baseUrl, valid(), { 'content-type': type });
      assert.equal(reply.status, 200, reply.text);
    });
  }
  for (const type of [
    'text/plain;charset=utf-16',
    'text/html',
    'application/octet-stream',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'text/plain, text/plain',
  ]) {
    test(`of the type "${type}" is answered 400`, async () => {
      const reply = await collect(sluice.baseUrl, valid(), { 'content-type': type });
      assert.equal(reply.json.err?.code, 'invalid_content_type', reply.text);
    });
  }
});

describe('a lenient environment', () => {
  test('mends messages as the other endpoints mend records, and counts that', async () => {
    const sentMs = Date.now() - 400_000_000;
    const messages = [
      event({ event: 'a', user_id: 5, identity: 7, session_id: null, time: sentMs - 5000 }),
      event({
        event: 'b',
        properties: {
          yes: true,
          no: null,
          deep: { a: { b: 1 } },
          screen_name: 'x',
          list: [1, null, true],
          long: 'x'.repeat(1100),
        },
      }),
      event({ event: 'c', autocaptured: true, properties: { screen_name: 'Home', user_id: 5 } }),
      event({ event: 'd', properties: null, autocaptured: null, identity: null, time: null }),
      userProperties({ tags: ['a', 'b'], long: 'x'.repeat(300), user_id: 1 }, { identity: 8 }),
      identify('9', 'ada', { user_id: 9, time: '2026-03-01T12:30Z' }),
      event({ event: 7 }),
      identify('5', 'null'),
      event({ event: 'seconds', time: Math.floor(sentMs / 1000) }),
    ];
    const before = Date.now();
    const answers = await answersOf(sluice.baseUrl, lenient, messages, {
      app_id: Number(lenient),
      sent_at: sentMs,
    });
    assert.deepEqual(
      answers.map(({ status, code }) => code ?? status),
      [
        'stored',
        'stored',
        'stored',
        'stored',
        'stored',
        'stored',
        'invalid_type',
        'merges_strangers',
        'invalid_timestamp',
      ],
    );
    await untilStored(sluice);
    const rows = await sluice.rows<{ event: string; ms: number }>(
      `SELECT event, toString(user_id) AS user_id, identity, properties, toUnixTimestamp64Milli(time) AS ms FROM events WHERE app_id = '${lenient}' ORDER BY event`,
    );
    const ms = Number(rows[0]?.ms);
    assert.ok(ms >= before - 5000 && ms <= Date.now() - 5000, `${ms - before + 5000} ms off`);
    assert.deepEqual(
      rows.map(({ ms: _, ...row }) => row),
      [
        { event: 'a', user_id: null, identity: '7', properties: {} },
        {
          event: 'b',
          user_id: '5',
          identity: '',
          properties: { yes: 'true', 'deep.a.b': '1', list: '1||true', long: 'x'.repeat(1023) },
        },
        { event: 'c', user_id: '5', identity: '', properties: { screen_name: 'Home' } },
        { event: 'd', user_id: '5', identity: '', properties: {} },
      ],
    );
    assert.deepEqual(
      await sluice.rows(
        `SELECT user_id, identity, properties FROM user_properties WHERE app_id = '${lenient}'`,
      ),
      [{ user_id: null, identity: '8', properties: { tags: 'a||b', long: 'x'.repeat(255) } }],
    );
    const expected = {
      numeric_app_id: 1,
      numeric_identity: 2,
      numeric_user_id: 2,
      numeric_timestamp: 2,
      short_timestamp: 1,
      null_field: 5,
      null_property: 2,
      boolean_property: 2,
      nested_property: 2,
      joined_array: 1,
      long_property: 2,
      reserved_property: 3,
    };
    await until(async () => {
      assert.deepEqual(
        ((await sluice.admin('environments', 'stats', lenient)) as { mended: object }).mended,
        expected,
      );
      return true;
    }, 'the mendings are counted');
  });
});
