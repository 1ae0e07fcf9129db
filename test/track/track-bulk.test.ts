// POST /api/track with many events, and with the same event many times: which elements are stored, what the answer says
// about each, idempotency keys, rate limits, and answers while Redis or ClickHouse is away.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { counts, lengths, rateLimits } from '../../src/contract/limits.js';
import type { OutcomeCode } from '../../src/contract/outcomes.js';
import { type Reply, track } from '../harness/track.js';
import {
  checkAccepted,
  checkRefused,
  describeRows,
  type Ledger,
  openLedger,
  type Row,
  type Stored,
  sends,
  type ValidEvent,
} from '../harness/track-rows.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

/** The deadline of an answer, 2 s, plus time for a busy machine. */
const answeredMsMax = 3_000;
/** A process that is paused for a while delays one or two answers, but not all of them. */
const triesMax = 4;

const sluice = await ownSluice({ apiProcesses: 2 });
const ledger = openLedger(sluice, sluice.appId);
const development = sluice.bootstrap.environments.find((environment) => !environment.main);
/** The ledger of another environment of the same account. */
const other = openLedger(sluice, development?.app_id as string);

type Element = { event: string; identity: string } & Record<string, unknown>;

/** An event without its app_id, as bulk requests hold it. */
function element(name: string, fields: Record<string, unknown> = {}, of: Ledger = ledger): Element {
  const { event, identity } = of.newEvent(name);
  return { event, identity, ...fields };
}

const bulk = (events: unknown, query = '', more: Record<string, unknown> = {}) =>
  track(sluice.baseUrl, { body: { app_id: ledger.appId, events, ...more }, query });
const single = (event: Record<string, unknown>, of: Ledger = ledger, api = 0) =>
  track(sluice.api[api]?.baseUrl as string, { body: { app_id: of.appId, ...event } });

type Refusal = readonly [index: number, code: OutcomeCode, field?: string];

/** Asserts what a reply says about refused elements. */
function checkElements(reply: Reply, accepted: number, refusals: readonly Refusal[]): void {
  const body = reply.json as {
    accepted: number;
    rejected: number;
    errors: { index: number; code: string; field?: string; message: string }[];
  };
  assert.equal(body.accepted, accepted);
  assert.equal(body.rejected, refusals.length);
  assert.deepEqual(
    body.errors.map(({ index, code, field }) => [index, code, field]),
    refusals.map(([index, code, field]) => [index, code, field]),
  );
  for (const { message } of body.errors) assert.ok(message.length > 0);
}

const inBulk = (event: ValidEvent, fields: Record<string, unknown> = {}) => {
  const { app_id, ...rest } = event;
  return { app_id, events: [{ ...rest, ...fields }] };
};

const acceptsElement = (name: string, fields: Record<string, unknown>, stored: Stored = {}): Row =>
  sends(name, undefined, (event) => ({ body: inBulk(event, fields) }), stored);

/** The only element of a request, so that its refusal is the whole answer. */
const refusesElement = (
  name: string,
  code: OutcomeCode,
  field: string,
  fields: Record<string, unknown>,
): Row => ({
  ...sends(name, code, (event) => ({ body: inBulk(event, fields) })),
  field: `events.0.${field}`,
});

const envelopes: Row[] = [
  acceptsElement('a bulk request of one event', {}),
  ...[null, {}, 'x', 1, true].map((events) => ({
    ...sends(`events of ${JSON.stringify(events)}`, 'invalid_type', ({ app_id }) => ({
      body: { app_id, events },
    })),
    field: 'events',
  })),
  {
    ...sends('an empty list of events', 'empty', ({ app_id }) => ({ body: { app_id, events: [] } })),
    field: 'events',
  },
  {
    ...sends('1001 events', 'too_many_records', (event) => ({
      body: { app_id: event.app_id, events: Array.from({ length: counts.bulkEventsMax + 1 }, () => event) },
    })),
    field: 'events',
  },
  {
    ...sends('a bulk request without app_id', 'missing_field', (event) => ({ body: { events: [event] } })),
    field: 'app_id',
  },
  {
    ...sends('a bulk request with an unknown app_id', 'unknown_app_id', (event) => ({
      body: { app_id: '1', events: [event] },
    })),
    field: 'app_id',
  },
  sends('unknown fields of the request and of an element', undefined, (event) => ({
    body: { ...inBulk(event, { library: 'server', send: { to: [1] } }), library: 'server', sent: [1] },
  })),
  acceptsElement('an element that names another app_id, which counts for nothing', { app_id: '1' }),
  ...[null, 1, true, 'x', []].map((value) => ({
    ...sends(`the element ${JSON.stringify(value)}`, 'invalid_type', ({ app_id }) => ({
      body: { app_id, events: [value] },
    })),
    field: 'events.0',
  })),
];

const elements: Row[] = [
  acceptsElement(
    'an element with every field',
    {
      session_id: 's',
      properties: { amount: 12.5, list: ['a', 1] },
      timestamp: '2024-01-01T00:00:00+01:00',
      idempotency_key: 'every-field',
    },
    { session_id: 's', properties: { amount: '12.5', list: 'a||1' }, time: '2023-12-31 23:00:00.000' },
  ),
  acceptsElement(
    'an element with a user_id',
    { identity: undefined, user_id: '9007199254740991' },
    { identity: '', user_id: '9007199254740991' },
  ),
  refusesElement('an element without event', 'missing_field', 'event', { event: undefined }),
  refusesElement('an element with an empty event', 'empty', 'event', { event: '' }),
  refusesElement('an element without user', 'missing_user', 'identity', { identity: undefined }),
  refusesElement('an element with two users', 'ambiguous_user', 'user_id', { user_id: '1' }),
  refusesElement('an element with a bad user_id', 'invalid_user_id', 'user_id', {
    identity: undefined,
    user_id: '01',
  }),
  refusesElement('an element with a long identity', 'too_long', 'identity', {
    identity: 'i'.repeat(lengths.identityMax + 1),
  }),
  refusesElement('an element with a long session_id', 'too_long', 'session_id', {
    session_id: 's'.repeat(256),
  }),
  refusesElement('an element with an empty key', 'empty', 'idempotency_key', { idempotency_key: '' }),
  refusesElement('an element with a reserved property', 'reserved_property', 'properties.user_id', {
    properties: { user_id: 'x' },
  }),
  refusesElement('an element with a bad value', 'invalid_type', 'properties.a\nb', {
    properties: { 'a\nb': [null] },
  }),
  refusesElement('an element with 1001 properties', 'too_many_properties', 'properties', {
    properties: Object.fromEntries(Array.from({ length: 1001 }, (_, index) => [index, 1])),
  }),
  refusesElement('an element with a lone surrogate', 'invalid_text', 'properties.key', {
    properties: { key: '\ud800' },
  }),
  refusesElement('an element with a bad timestamp', 'invalid_timestamp', 'timestamp', {
    timestamp: '2024-01-01',
  }),
  refusesElement('an element from 1969', 'timestamp_out_of_range', 'timestamp', {
    timestamp: '1969-12-31T23:59:59Z',
  }),
  {
    ...sends('an element with an identity by way of __proto__', 'missing_user', ({ app_id, event }) => ({
      body: `{"app_id":"${app_id}","events":[{"event":${JSON.stringify(event)},"__proto__":{"identity":"ghost"}}]}`,
    })),
    field: 'events.0.identity',
  },
];

describeRows('bulk requests', envelopes, () => ledger);
describeRows('elements of bulk requests', elements, () => ledger);

describe('bulk requests of many', () => {
  test('accept 1000 events of one user', async () => {
    const events = Array.from({ length: counts.bulkEventsMax }, (_, index) => ({
      event: 'one of a thousand',
      identity: 'patient',
      properties: { index },
    }));
    checkAccepted(await bulk(events));
    for (const { event, identity, properties } of events) {
      ledger.expect({ event, identity }, { properties: { index: String(properties.index) } });
    }
  });

  test('store each their own events when they come at once, though they take turns with the same memory', async () => {
    const send = async (name: string) => {
      const events = Array.from({ length: 40 }, (_, index) => {
        const properties = Object.fromEntries(
          ['a', 'b', 'c', 'd'].map((key) => [key, `${name} ${index} `.padEnd(lengths.propertyValueMax, key)]),
        );
        return { event: element(name), properties };
      });
      checkAccepted(await bulk(events.map(({ event, properties }) => ({ ...event, properties }))));
      for (const { event, properties } of events) ledger.expect(event, { properties });
    };
    for (let round = 1; round <= 5; round++)
      await Promise.all(['one', 'two', 'three', 'four', 'five'].map((name) => send(`${name} of ${round}`)));
  });

  test('store the good elements and name each bad one, in order', async () => {
    const good = ['first', 'second', 'third'].map((name) => element(`good: ${name}`));
    const reply = await bulk([
      null,
      good[0],
      element('bad: user', { user_id: '1' }),
      element('bad: property', { properties: { screen_name: 'x' } }),
      good[1],
      element('bad: text', { session_id: '\ud800' }),
      [],
      good[2],
      element('bad: time', { timestamp: 1704067200000 }),
    ]);
    assert.equal(reply.status, 200);
    checkElements(reply, 3, [
      [0, 'invalid_type'],
      [2, 'ambiguous_user', 'user_id'],
      [3, 'reserved_property', 'properties.screen_name'],
      [5, 'invalid_text', 'session_id'],
      [6, 'invalid_type'],
      [8, 'invalid_type', 'timestamp'],
    ]);
    for (const event of good) ledger.expect(event);
  });

  test('name 999 bad elements of 1000, and store the one', async () => {
    const good = element('one good of a thousand');
    const events = [...Array.from({ length: 999 }, () => ({ event: 'bad', identity: '' })), good];
    const reply = await bulk(events);
    assert.equal(reply.status, 200);
    checkElements(
      reply,
      1,
      Array.from({ length: 999 }, (_, index): Refusal => [index, 'empty', 'identity']),
    );
    ledger.expect(good);
  });

  test('are refused with 400 when all elements are bad', async () => {
    const reply = await bulk([null, element('bad alone', { user_id: '1' })]);
    checkRefused(reply, 'invalid_type');
    checkElements(reply, 0, [
      [0, 'invalid_type'],
      [1, 'ambiguous_user', 'user_id'],
    ]);
  });

  test('are refused as a whole with ?strict=1 when one element is bad, and claim no key', async () => {
    const good = element('strict', { idempotency_key: 'strict' });
    const reply = await bulk([good, null], '?strict=1');
    checkRefused(reply, 'invalid_type', 'events.1');
    checkAccepted(await bulk([good], '?strict=1'));
    ledger.expect(good);
  });

  test('accept up to exactly 16 MiB', async () => {
    const value = 'x'.repeat(lengths.propertyValueMax);
    const properties = Object.fromEntries(Array.from({ length: 16 }, (_, index) => [`key-${index}`, value]));
    const events = Array.from({ length: counts.bulkEventsMax }, (_, index) =>
      element('large', { properties, idempotency_key: `large ${index}` }, other),
    );
    const body = JSON.stringify({ app_id: other.appId, events });
    assert.ok(body.length > 15 * 2 ** 20 && body.length <= 16 * 2 ** 20, `${body.length} bytes`);
    let reply = await track(sluice.baseUrl, { body });
    // On a busy machine such a large commit may take longer than its deadline. The repeat has the same keys.
    for (let tries = 1; tries < 10 && reply.status === 503; tries += 1)
      reply = await track(sluice.baseUrl, { body });
    checkAccepted(reply);
    for (const event of events) other.expect(event, { properties });
  });
});

describe('idempotency keys', () => {
  const twice = async (name: string, key: string, second: Record<string, unknown>, of = ledger) => {
    const event = element(name, { idempotency_key: key, properties: { version: 1 } }, of);
    checkAccepted(await single(event, of));
    checkAccepted(await single({ ...event, ...second }, of));
    of.expect(event, { properties: { version: '1' } });
  };

  test('keep the first of two equal events', () => twice('the same again', 'same', {}));

  test('keep the first event when the second has another body, user and time', () =>
    twice('something else', 'else', {
      event: 'something else, again',
      identity: 'somebody else',
      properties: { version: 2 },
      timestamp: '2024-01-01T00:00:00Z',
    }));

  test('are compared exactly', async () => {
    const keys = ['k', 'K', 'k ', ' k', 'k\0', 'a:b', '123', '0', '00', 'é', 'e\u0301', '{s0}', '__proto__'];
    for (const key of keys) {
      const event = element(`key ${JSON.stringify(key)}`, { idempotency_key: key });
      checkAccepted(await single(event));
      ledger.expect(event);
    }
  });

  test('mean nothing in another environment', async () => {
    await twice('key of one environment', 'shared', {});
    await twice('key of the other', 'shared', {}, other);
  });

  test('are claimed once in one bulk request', async () => {
    const first = element('first of three in bulk', { idempotency_key: 'in bulk' });
    const others = [2, 3].map((number) =>
      element(`number ${number} of three in bulk`, { idempotency_key: 'in bulk' }),
    );
    checkAccepted(await bulk([first, ...others]));
    ledger.expect(first);
  });

  test('are shared by bulk and single requests', async () => {
    const event = element('single, then in bulk', { idempotency_key: 'both ways' });
    const beside = element('beside a repeat');
    checkAccepted(await single(event));
    checkAccepted(await bulk([event, beside, event]));
    checkAccepted(await single({ ...event, event: 'single after bulk' }));
    ledger.expect(event);
    ledger.expect(beside);
  });

  test('are not claimed by a bad element or a refused request', async () => {
    const good = element('good after bad', { idempotency_key: 'good after bad' });
    checkRefused(await single({ ...good, event: '' }), 'empty', 'event');
    const reply = await bulk([{ ...good, identity: '' }, good]);
    assert.equal(reply.status, 200);
    checkElements(reply, 1, [[0, 'empty', 'identity']]);
    ledger.expect(good);
  });

  test('let through one of 100 requests at once on 4 processes', async () => {
    const event = element('a hundred at once', { idempotency_key: 'a hundred at once' });
    const replies = await Promise.all(
      Array.from({ length: 100 }, (_, index) =>
        // Each request has its own user, since rate limits count repeats too.
        single({ ...event, properties: { sender: index }, identity: `sender-${index}` }, ledger, index % 2),
      ),
    );
    for (const reply of replies) checkAccepted(reply);
    const [winner] = await until(
      () =>
        sluice
          .rows<{ identity: string; sender: string }>(
            `SELECT identity, properties['sender'] AS sender FROM events WHERE event = 'a hundred at once'`,
          )
          .then((rows) => (rows.length > 0 ? rows : undefined)),
      'the winner is stored',
    );
    assert.equal(winner?.identity, `sender-${winner?.sender}`);
    ledger.expect(
      { event: event.event, identity: winner?.identity as string },
      { properties: { sender: winner?.sender as string } },
    );
  });
});

describe('rate limits', () => {
  const retryAfter = (reply: Reply) => Number(reply.headers.get('retry-after'));

  test('let 30 of 31 requests of one identity through, over all processes', async () => {
    const event = element('thirty-one', {}, other);
    const replies = await Promise.all(
      Array.from({ length: 31 }, (_, index) => single({ ...event, properties: { index } }, other, index % 2)),
    );
    const limited = replies.filter((reply) => reply.status !== 200);
    assert.equal(limited.length, 1);
    checkRefused(limited[0] as Reply, 'rate_limited');
    const seconds = retryAfter(limited[0] as Reply);
    // All 31 may arrive in one millisecond, and an entry counts for up to one millisecond more than the window.
    const { windowMs, granularityMs } = rateLimits.track;
    const secondsMax = Math.ceil((windowMs + granularityMs) / 1000);
    assert.ok(Number.isInteger(seconds) && seconds >= 1 && seconds <= secondsMax, `Retry-After: ${seconds}`);
    replies.forEach((reply, index) => {
      if (reply.status === 200) other.expect(event, { properties: { index: String(index) } });
    });
    const neighbour = element('a neighbour of thirty-one', {}, other);
    checkAccepted(await single(neighbour, other));
    other.expect(neighbour);
  });

  test('refuse as a whole a bulk request that does not fit now, and count neither it nor bad elements', async () => {
    const full = Array.from({ length: 999 }, () => ({ event: 'nearly full', identity: 'busy' }));
    checkAccepted(await bulk(full));
    for (const event of full) ledger.expect(event);
    const stranger = element('beside one that is full');
    const two = [{ event: 'over', identity: 'busy' }, stranger, { event: 'over', identity: 'busy' }];
    const reply = await bulk(two);
    checkRefused(reply, 'rate_limited');
    const seconds = retryAfter(reply);
    const { windowMs, granularityMs } = rateLimits.bulk_identity;
    const secondsMax = (windowMs + granularityMs) / 1000;
    assert.ok(Number.isInteger(seconds) && seconds >= 1 && seconds <= secondsMax, `Retry-After: ${seconds}`);
    const one = await bulk([{ event: 'the thousandth', identity: 'busy' }, stranger, { identity: 'busy' }]);
    assert.equal(one.status, 200);
    checkElements(one, 2, [[2, 'missing_field', 'event']]);
    ledger.expect({ event: 'the thousandth', identity: 'busy' });
    ledger.expect(stranger);
    checkRefused(await bulk([{ event: 'over', identity: 'busy' }]), 'rate_limited');
  });
});

describe('after all that', () => {
  test('exactly what was accepted is stored', () => ledger.check());
  test('exactly what was accepted is stored in the other environment', () => other.check());
});

describe('while a service is away', () => {
  /** The first answer that comes in time. */
  async function inTime<T>(ask: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      const startedMs = performance.now();
      const answer = await ask();
      const tookMs = performance.now() - startedMs;
      if (tookMs < answeredMsMax) return answer;
      assert.ok(tries < triesMax, `after ${Math.round(tookMs)} ms`);
    }
  }

  test('accepts events without ClickHouse, and stores them when it is back', async () => {
    sluice.clickhouse.sigstop();
    const event = element('without ClickHouse');
    try {
      checkAccepted(await single(event));
    } finally {
      sluice.clickhouse.sigcont();
    }
    ledger.expect(event);
    await ledger.check();
  });

  test('answers 503 in time while Redis does not answer, and accepts the same key when it is back', async () => {
    const event = element('while Redis is silent', { idempotency_key: 'while Redis is silent' });
    sluice.redis.sigstop();
    try {
      const reply = await inTime(() => single(event));
      assert.equal(reply.status, 503, reply.text);
      checkRefused(reply, (reply.json as { err: { code: OutcomeCode } }).err.code);
      assert.match(reply.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
    } finally {
      sluice.redis.sigcont();
    }
    await until(async () => (await single(event)).status === 200, {
      what: 'the event is accepted',
      everyMs: 500,
    });
    ledger.expect(event);
    await ledger.check();
  });

  test('answers 503 in time while Redis is down, and accepts requests when it is back', async () => {
    const event = element('while Redis is down', { idempotency_key: 'while Redis is down' });
    await sluice.redis.kill9();
    const replies = await inTime(() =>
      Promise.all(sluice.api.map((_, index) => single(event, ledger, index))),
    );
    for (const reply of replies) {
      assert.equal(reply.status, 503, reply.text);
      assert.match(reply.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
    }
    await sluice.redis.restart();
    await until(async () => (await single(event)).status === 200, {
      what: 'the event is accepted',
      everyMs: 500,
    });
    ledger.expect(event);
    await ledger.check();
  });
});
