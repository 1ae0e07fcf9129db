// Quirks of real producers, which POST /api/track accepts in a lenient environment and refuses in a strict one. Each row is sent
// to both. What was mended is stored as the table says, and counted by reason.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { counts, lengths, timestampAheadMsMax } from '../../src/contract/limits.js';
import type { OutcomeCode } from '../../src/contract/outcomes.js';
import { mendEvent } from '../../src/ingest/mend.js';
import { createEnvironment } from '../harness/accounts.js';
import { type Reply, type Sent, track } from '../harness/track.js';
import {
  checkAccepted,
  checkRefused,
  describeRows,
  type Fields,
  openLedger,
  type Row,
  refuses,
  type Stored,
  sends,
  withProperty,
} from '../harness/track-rows.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const strict = openLedger(sluice, sluice.appId);
const lenient = openLedger(sluice, await createEnvironment(sluice, '--validation', 'lenient'));
/** Another lenient one, for requests with several faults, whose mendings are not counted one by one. */
const producers = openLedger(sluice, await createEnvironment(sluice, '--validation', 'lenient'));

/** The mendings by the names of `environments stats`. */
type Reason =
  | 'numeric_app_id'
  | 'numeric_identity'
  | 'numeric_user_id'
  | 'numeric_timestamp'
  | 'short_timestamp'
  | 'null_field'
  | 'null_property'
  | 'boolean_property'
  | 'nested_property'
  | 'long_property'
  | 'reserved_property';

type Mended = {
  readonly name: string;
  readonly sent: Row['sent'];
  readonly stored: Stored;
  /** How often each mending happens in it. */
  readonly counts: Partial<Record<Reason, number>>;
  /** The code that a strict environment answers. */
  readonly code: OutcomeCode;
};

const mends = (
  name: string,
  fields: Fields,
  stored: Stored,
  reason: Reason,
  code: OutcomeCode,
  count = 1,
): Mended => ({
  name,
  sent: (event) => ({ body: { ...event, ...fields } }),
  stored,
  counts: { [reason]: count },
  code,
});

const emoji = '😀';
const justAheadMs = Date.now() + timestampAheadMsMax - 5_000;
const storedTime = (ms: number) => new Date(ms).toISOString().replace('T', ' ').slice(0, -1);

const mended: readonly Mended[] = [
  {
    name: 'the app_id as a number',
    sent: (event) => ({ body: { ...event, app_id: Number(event.app_id) } }),
    stored: {},
    counts: { numeric_app_id: 1 },
    code: 'invalid_type',
  },
  ...[7, 0, Number.MAX_SAFE_INTEGER].map((identity) =>
    mends(
      `the identity ${identity} as a number`,
      { identity },
      { identity: String(identity) },
      'numeric_identity',
      'invalid_type',
    ),
  ),
  ...[7, 0, Number.MAX_SAFE_INTEGER].map((user_id) =>
    mends(
      `the user_id ${user_id} as a number`,
      { identity: undefined, user_id },
      { identity: '', user_id: String(user_id) },
      'numeric_user_id',
      'invalid_type',
    ),
  ),
  ...(
    [
      [1_704_067_200_123, '2024-01-01 00:00:00.123'],
      [0, '1970-01-01 00:00:00.000'],
      [99_999_999, '1970-01-02 03:46:39.999'],
      [100_000_000_000, '1973-03-03 09:46:40.000'],
      [justAheadMs, storedTime(justAheadMs)],
    ] as const
  ).map(([timestamp, time]) =>
    mends(
      `the timestamp ${timestamp} as a number`,
      { timestamp },
      { time },
      'numeric_timestamp',
      'invalid_type',
    ),
  ),
  ...Object.entries({
    '2024-01-01T00:00:00+0530': '2023-12-31 18:30:00.000',
    '2024-01-01T00:00:00.250-0030': '2024-01-01 00:30:00.250',
    '2024-01-01T00:00:00+05': '2023-12-31 19:00:00.000',
    '2024-01-01T00:00Z': '2024-01-01 00:00:00.000',
    '2024-01-01T00:00+05:30': '2023-12-31 18:30:00.000',
    '2024-01-01T00:00+0530': '2023-12-31 18:30:00.000',
  }).map(([timestamp, time]) =>
    mends(`the timestamp ${timestamp}`, { timestamp }, { time }, 'short_timestamp', 'invalid_timestamp'),
  ),
  ...['session_id', 'properties', 'timestamp', 'idempotency_key', 'user_id'].map((field) =>
    mends(`null as ${field}`, { [field]: null }, {}, 'null_field', 'invalid_type'),
  ),
  mends(
    'null as identity beside a user_id',
    { identity: null, user_id: '12' },
    { identity: '', user_id: '12' },
    'null_field',
    'invalid_type',
  ),
  mends(
    'null as a property',
    { properties: { gone: null, kept: 'x' } },
    { properties: { kept: 'x' } },
    'null_property',
    'invalid_type',
  ),
  mends(
    'true and false as properties',
    { properties: { yes: true, no: false, text: 'true' } },
    { properties: { yes: 'true', no: 'false', text: 'true' } },
    'boolean_property',
    'invalid_type',
    2,
  ),
  mends(
    'an object as a property',
    { properties: { cart: { total: 12.5, currency: 'EUR', tags: ['a', 1] }, plain: 'x' } },
    { properties: { 'cart.total': '12.5', 'cart.currency': 'EUR', 'cart.tags': 'a||1', plain: 'x' } },
    'nested_property',
    'invalid_type',
  ),
  mends(
    'an object in an object as a property',
    { properties: { a: { b: { c: 1 } } } },
    { properties: { 'a.b.c': '1' } },
    'nested_property',
    'invalid_type',
    2,
  ),
  mends('an empty object as a property', { properties: { a: {} } }, {}, 'nested_property', 'invalid_type'),
  mends(
    'a reserved key inside an object, where it is an ordinary one',
    { properties: { page: { user_id: 'x', screen_name: 'y' } } },
    { properties: { 'page.user_id': 'x', 'page.screen_name': 'y' } },
    'nested_property',
    'invalid_type',
  ),
  {
    name: 'an object in the property __proto__',
    sent: (event) => ({ body: withProperty(JSON.stringify(event), '__proto__', '{"polluted":"x"}') }),
    stored: { properties: { '__proto__.polluted': 'x' } },
    counts: { nested_property: 1 },
    code: 'invalid_type',
  },
  ...(
    [
      ['1024 characters', 'x'.repeat(1024), 'x'.repeat(1023)],
      ['1024 emoji', emoji.repeat(1024), emoji.repeat(1023)],
      ['1023 characters and an emoji', `${'x'.repeat(1023)}${emoji}`, 'x'.repeat(1023)],
      ['1022 characters and two emoji', `${'x'.repeat(1022)}${emoji}${emoji}`, `${'x'.repeat(1022)}${emoji}`],
      ['500,000 characters', 'x'.repeat(500_000), 'x'.repeat(1023)],
    ] as const
  ).map(([what, value, cut]) =>
    mends(
      `a value of ${what}, cut`,
      { properties: { value } },
      { properties: { value: cut } },
      'long_property',
      'too_long',
    ),
  ),
  mends(
    'the three reserved keys',
    { properties: { user_id: '1', session_id: 's', screen_name: 'n', kept: 'x' } },
    { properties: { kept: 'x' } },
    'reserved_property',
    'reserved_property',
    3,
  ),
];

/** Refused by a lenient environment as well as by a strict one. */
const beyondMending: Row[] = [
  refuses('an empty event', 'empty', 'event', { event: '' }),
  refuses('null as event', 'invalid_type', 'event', { event: null }),
  refuses('a number as event', 'invalid_type', 'event', { event: 7 }),
  refuses('an event of 1025 characters', 'too_long', 'event', { event: 'x'.repeat(lengths.eventMax + 1) }),
  refuses('no user', 'missing_user', 'identity', { identity: undefined }),
  refuses('null as identity', 'missing_user', 'identity', { identity: null }),
  refuses('two users', 'ambiguous_user', 'user_id', { user_id: 1 }),
  refuses('an empty identity', 'empty', 'identity', { identity: '' }),
  refuses('an identity of 256 characters, which is never cut', 'too_long', 'identity', {
    identity: 'i'.repeat(lengths.identityMax + 1),
  }),
  ...[1.5, true, {}, ['x']].map((identity) =>
    refuses(`the identity ${JSON.stringify(identity)}`, 'invalid_type', 'identity', { identity }),
  ),
  // Numbers beyond 2^53 that differ by one are the same double, so two strangers would become one user.
  ...['9007199254740993', '1e21', '1e999'].map((number) => ({
    ...sends(`the identity ${number} as a number`, 'invalid_type', (event) => ({
      body: JSON.stringify(event).replace(/"visitor-\d+"/, number),
    })),
    field: 'identity',
  })),
  ...['-1', '01', '9007199254740992'].map((user_id) =>
    refuses(`the user_id ${user_id}`, 'invalid_user_id', 'user_id', { identity: undefined, user_id }),
  ),
  refuses('the user_id -1 as a number', 'invalid_user_id', 'user_id', { identity: undefined, user_id: -1 }),
  ...[1.5, true, {}].map((user_id) =>
    refuses(`the user_id ${JSON.stringify(user_id)}`, 'invalid_type', 'user_id', {
      identity: undefined,
      user_id,
    }),
  ),
  refuses('a number as session_id', 'invalid_type', 'session_id', { session_id: 7 }),
  refuses('an empty session_id', 'empty', 'session_id', { session_id: '' }),
  refuses('a number as idempotency_key', 'invalid_type', 'idempotency_key', { idempotency_key: 7 }),
  refuses('a list as properties', 'invalid_type', 'properties', { properties: [] }),
  refuses('text as properties', 'invalid_type', 'properties', { properties: 'x' }),
  refuses('a key of 1024 characters', 'too_long', 'properties', { properties: { ['k'.repeat(1024)]: 'x' } }),
  refuses('a flattened key of 1024 characters', 'too_long', 'properties', {
    properties: { ['k'.repeat(1000)]: { ['l'.repeat(23)]: 'x' } },
  }),
  refuses('an object of 1001 in one property', 'too_many_properties', 'properties', {
    properties: { a: Object.fromEntries(Array.from({ length: 1001 }, (_, index) => [index, index])) },
  }),
  refuses('a lone surrogate', 'invalid_text', 'properties.key', { properties: { key: '\ud800' } }),
  {
    ...sends('the number 1e999', 'invalid_type', (event) => ({
      body: withProperty(JSON.stringify(event), 'key', '1e999'),
    })),
    field: 'properties.key',
  },
  sends('objects whose keys are too long together', 'too_long', (event) => ({
    body: withProperty(
      JSON.stringify(event),
      'deep',
      `{"${'k'.repeat(50)}":`.repeat(30) + 1 + '}'.repeat(30),
    ),
  })),
  sends('objects of 120 kB that would flatten to 400 MB of keys', 'too_long', (event) => ({
    body: {
      ...event,
      properties: {
        ['k'.repeat(50_000)]: Object.fromEntries(Array.from({ length: 8_000 }, (_, i) => [i, 1])),
      },
    },
  })),
  sends('nested objects of 1 MB with 100,000 values', 'too_many_properties', (event) => ({
    body: {
      ...event,
      properties: {
        ['k'.repeat(1_000)]: Object.fromEntries(Array.from({ length: 90_000 }, (_, i) => [i, 1])),
      },
    },
  })),
  ...[
    '',
    '2024-01-01',
    '2024-01-01T00:00:00',
    '2024-01-01T00:00',
    '2024-01-01T00Z',
    '2024-01-01T00:00.5Z',
    '2024-01-01 00:00:00Z',
    '2024-02-30T00:00Z',
    '2024-01-01T24:00Z',
    '2024-01-01T00:00+2400',
    '2024-01-01T00:00+053',
    '1704067200123',
    'now',
  ].map((timestamp) =>
    refuses(`the timestamp ${JSON.stringify(timestamp)}`, 'invalid_timestamp', 'timestamp', { timestamp }),
  ),
  refuses('the timestamp true', 'invalid_type', 'timestamp', { timestamp: true }),
  refuses('a timestamp of 1969', 'timestamp_out_of_range', 'timestamp', {
    timestamp: '1970-01-01T00:00+0530',
  }),
  // These would be in 1970 if they were read as milliseconds.
  ...[1_704_067_200, 1_704_067_200.25, 100_000_000, 99_999_999_999].map((timestamp) =>
    refuses(`the timestamp ${timestamp} in seconds`, 'invalid_timestamp', 'timestamp', { timestamp }),
  ),
  ...[-1, 253_402_300_800_000].map((timestamp) =>
    refuses(`the timestamp ${timestamp} as a number`, 'timestamp_out_of_range', 'timestamp', { timestamp }),
  ),
  {
    ...sends('a number ten seconds more than a day ahead', 'timestamp_out_of_range', (event) => ({
      body: { ...event, timestamp: Date.now() + timestampAheadMsMax + 10_000 },
    })),
    field: 'timestamp',
  },
  refuses('an unknown app_id as a number', 'unknown_app_id', 'app_id', { app_id: 1 }),
];

/** Valid in both environments, and stored unchanged. */
const untouched: Row[] = [
  sends('a plain event', undefined, (event) => ({ body: { ...event, properties: { amount: 12.5 } } }), {
    properties: { amount: '12.5' },
  }),
  sends(
    'values at their bounds',
    undefined,
    (event) => ({ body: { ...event, properties: { long: 'x'.repeat(1023), list: ['a'.repeat(1025)] } } }),
    { properties: { long: 'x'.repeat(1023), list: 'a'.repeat(1024) } },
  ),
];

const sentJson = (body: unknown, headers: Sent['headers'] = {}): Sent => ({ body, headers });

type Producer = {
  readonly name: string;
  readonly sent: (event: Parameters<Row['sent']>[0]) => Sent;
  readonly stored: Stored;
  /** The code that a strict environment answers; absent if it accepts the request too. */
  readonly code?: OutcomeCode;
};

/** Requests as public clients and integrations send them. */
const realProducers: readonly Producer[] = [
  {
    name: 'a Ruby client: no properties when there are none',
    sent: (event) => sentJson(event, { 'user-agent': 'heap-ruby/1.0.0', accept: '*/*' }),
    stored: {},
  },
  {
    name: 'a Python client: empty properties, and blanks in its JSON',
    sent: ({ app_id, identity, event }) =>
      sentJson(
        `{"app_id": "${app_id}", "identity": "${identity}", "event": ${JSON.stringify(event)}, "properties": {}}`,
      ),
    stored: {},
  },
  {
    name: 'a Go client: null for an empty map, and < and > escaped',
    sent: ({ app_id, event }) =>
      sentJson(
        `{"app_id":"${app_id}","event":${JSON.stringify(event).replace('<', '\\u003c').replace('>', '\\u003e')},"identity":"\\u003cgopher\\u003e","properties":null}`,
      ),
    stored: { identity: '<gopher>' },
    code: 'invalid_type',
  },
  {
    name: 'a web app: Content-type: Application/json, an Authorization header, an ISO timestamp',
    sent: (event) =>
      sentJson(
        { ...event, timestamp: new Date(1_704_067_200_123).toISOString() },
        { 'content-type': 'Application/json', authorization: 'Basic  eDp5' },
      ),
    stored: { time: '2024-01-01 00:00:00.123' },
  },
  {
    name: 'an editor extension: in bulk, with Date.now() and booleans',
    sent: ({ app_id, ...rest }) =>
      sentJson({
        app_id,
        events: [
          { ...rest, timestamp: 1_704_067_200_123, properties: { feature: 'x', enabled: true, count: 3 } },
        ],
      }),
    stored: {
      time: '2024-01-01 00:00:00.123',
      properties: { feature: 'x', enabled: 'true', count: '3' },
    },
    code: 'invalid_type',
  },
  {
    name: "a blog's plugin: a number as identity and as a property user_id",
    sent: (event) => sentJson({ ...event, identity: 4711, properties: { user_id: 4711, page: 'home' } }),
    stored: { identity: '4711', properties: { page: 'home' } },
    code: 'invalid_type',
  },
  {
    name: 'a spreadsheet script: one event in bulk',
    sent: ({ app_id, ...rest }) => sentJson({ app_id, events: [rest] }),
    stored: {},
  },
  {
    name: 'a pipeline: flat keys with dots and brackets, all types of values, an offset of +05:30',
    sent: (event) =>
      sentJson(
        {
          ...event,
          properties: { 'cart.total': 12.5, 'cart.items[0]': 'a', 'cart.gift': false, 'cart.coupon': null },
          timestamp: '2024-01-01T05:30:00.000+05:30',
          idempotency_key: 'pipeline-1',
        },
        { accept: 'application/json' },
      ),
    stored: {
      time: '2024-01-01 00:00:00.000',
      properties: { 'cart.total': '12.5', 'cart.items[0]': 'a', 'cart.gift': 'false' },
    },
    code: 'invalid_type',
  },
  {
    name: 'a pipeline that makes text of everything',
    sent: (event) =>
      sentJson({ ...event, properties: { 'cart.total': '12.5', 'cart.gift': 'false' }, library: 'server' }),
    stored: { properties: { 'cart.total': '12.5', 'cart.gift': 'false' } },
  },
  {
    name: 'a dashboard: prefixed keys, values cut to 1024',
    sent: (event) => sentJson({ ...event, properties: { 'Looker Orders Total': 'x'.repeat(1024) } }),
    stored: { properties: { 'Looker Orders Total': 'x'.repeat(1023) } },
    code: 'too_long',
  },
  {
    name: 'a client with a numeric app_id, nested traits and unknown fields',
    sent: (event) =>
      sentJson({
        ...event,
        app_id: Number(event.app_id),
        library: { name: 'x', version: 1 },
        sent_at: 1_704_067_200_123,
        context: { ip: '192.0.2.1', user_id: '7' },
        properties: {
          user: { name: 'Ada', admin: true, manager: null, tags: ['a', 'b'] },
          screen_name: 'Home',
        },
      }),
    stored: { properties: { 'user.name': 'Ada', 'user.admin': 'true', 'user.tags': 'a||b' } },
    code: 'invalid_type',
  },
  {
    name: 'a mobile client: gzip, and an offset without colon',
    sent: (event) => ({
      body: gzipSync(JSON.stringify({ ...event, timestamp: '2024-01-01T00:00:00.123+0530' })),
      headers: { 'content-encoding': 'gzip' },
    }),
    stored: { time: '2023-12-31 18:30:00.123' },
    code: 'invalid_timestamp',
  },
];

const asAccepted = ({ name, sent, stored }: { name: string; sent: Row['sent']; stored: Stored }): Row =>
  sends(name, undefined, sent, stored);
const asRefused = ({ name, sent, code }: { name: string; sent: Row['sent']; code?: OutcomeCode }): Row =>
  sends(name, code, sent);

describeRows('a lenient environment mends', mended.map(asAccepted), () => lenient);
describeRows('a lenient environment, beyond mending,', beyondMending, () => lenient);
describeRows('a lenient environment, unchanged,', untouched, () => lenient);
describeRows('a strict environment mends nothing:', mended.map(asRefused), () => strict);

describeRows(
  'a lenient environment takes what real producers send:',
  realProducers.map(asAccepted),
  () => producers,
);
describeRows(
  'a strict environment takes what is valid of it:',
  realProducers.map((producer) => (producer.code === undefined ? asAccepted(producer) : asRefused(producer))),
  () => strict,
);

describe('a bulk request to a lenient environment', () => {
  const element = (name: string, fields: Fields) => {
    const { app_id: _, ...event } = producers.newEvent(name);
    return { ...event, ...fields };
  };

  test('mends each element by itself, and names the elements that it cannot mend', async () => {
    const plain = element('plain element', {});
    const boolean = element('element with a boolean', { properties: { on: true } });
    const numeric = element('element with a number as timestamp', { timestamp: 1_704_067_200_123 });
    const bad = element('element beyond mending', { identity: 'i'.repeat(256) });
    const reply = await track(sluice.baseUrl, {
      body: { app_id: Number(producers.appId), events: [plain, boolean, bad, numeric] },
    });
    assert.equal(reply.status, 200);
    const { accepted, rejected, errors } = reply.json as {
      accepted: number;
      rejected: number;
      errors: { index: number; code: string }[];
    };
    assert.deepEqual([accepted, rejected], [3, 1]);
    assert.deepEqual(
      errors.map(({ index, code }) => [index, code]),
      [[2, 'too_long']],
    );
    producers.expect(plain);
    producers.expect(boolean, { properties: { on: 'true' } });
    producers.expect(numeric, { time: '2024-01-01 00:00:00.123' });
  });

  test('in which every event needs mending is answered with exactly {}', async () => {
    const events = Array.from({ length: 1000 }, (_, index) => ({
      event: 'one of a thousand',
      identity: 4712,
      properties: { index, even: index % 2 === 0 },
    }));
    checkAccepted(await track(sluice.baseUrl, { body: { app_id: producers.appId, events } }));
    for (const { event, properties } of events) {
      producers.expect(
        { event, identity: '4712' },
        { properties: { index: String(properties.index), even: String(properties.even) } },
      );
    }
  });
});

describe('an idempotency key in a lenient environment', () => {
  test('keeps the first, mended or not', async () => {
    const event = producers.newEvent('mended first');
    const send = (more: Fields): Promise<Reply> =>
      track(sluice.baseUrl, { body: { ...event, idempotency_key: 'mended', ...more } });
    checkAccepted(await send({ properties: { on: true } }));
    checkAccepted(await send({ properties: { on: 'later' } }));
    producers.expect(event, { properties: { on: 'true' } });
    checkRefused(await send({ identity: 'i'.repeat(256) }), 'too_long', 'identity');
  });
});

describe('environments stats', () => {
  type Stats = { app_id: string; mended: Record<string, number> };
  const stats = async (appId: string) => (await sluice.admin('environments', 'stats', appId)) as Stats;

  test('counts what was mended, by reason, and nothing of refused events', async () => {
    const counts: Record<string, number> = {};
    for (const row of mended) {
      for (const [reason, count] of Object.entries(row.counts))
        counts[reason] = (counts[reason] ?? 0) + count;
    }
    await until(
      async () => {
        const { app_id, mended: found } = await stats(lenient.appId);
        assert.equal(app_id, lenient.appId);
        const some = Object.fromEntries(Object.entries(found).filter(([, count]) => count > 0));
        assert.deepEqual(some, counts);
        return true;
      },
      { what: 'all mending is counted', everyMs: 500 },
    );
  });

  test('counts nothing in a strict environment', async () => {
    const { mended: found } = await stats(strict.appId);
    assert.deepEqual(new Set(Object.values(found)), new Set([0]));
  });
});

describe('after all that', () => {
  test('the strict environment has exactly what it accepted', () => strict.check());
  test('the lenient environment has the mended events, and nothing else', () => lenient.check());
  test('so does the lenient environment of the real producers', () => producers.check());
});

test('an object is flattened only up to the fault that refuses it', () => {
  const inner = Object.fromEntries(Array.from({ length: 20_000 }, (_, index) => [index, 1]));
  const keysOf = (key: string) => {
    const context = { note: () => undefined, longNumerals: new Set<string>(), flattenedBytesLeft: 1e9 };
    const mended = mendEvent({ properties: { [key]: inner } }, context);
    assert.ok('value' in mended);
    return Object.keys((mended.value as { properties: object }).properties).length;
  };
  assert.equal(keysOf('k'), counts.propertiesMax + 1);
  assert.equal(keysOf('k'.repeat(lengths.propertyKeyMax)), 1);
});
