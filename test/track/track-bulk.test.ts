// POST /api/track with many events: which elements are stored, and what the answer says about each.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { counts, lengths } from '../../src/contract/limits.js';
import type { OutcomeCode } from '../../src/contract/outcomes.js';
import { createEnvironment } from '../harness/accounts.js';
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
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const ledger = openLedger(sluice, sluice.appId);
const other = openLedger(sluice, await createEnvironment(sluice));

type Element = { event: string; identity: string } & Record<string, unknown>;

/** An event without its app_id, as bulk requests hold it. */
function element(name: string, fields: Record<string, unknown> = {}, of: Ledger = ledger): Element {
  const { event, identity } = of.newEvent(name);
  return { event, identity, ...fields };
}

const bulk = (events: unknown, query = '') =>
  track(sluice.baseUrl, { body: { app_id: ledger.appId, events }, query });

type Refusal = readonly [index: number, code: OutcomeCode, field?: string];

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
    assert.equal((await bulk([good, null], '?strict=true')).status, 400);
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

describe('after all that', () => {
  test('exactly what was accepted is stored', () => ledger.check());
  test('exactly what was accepted is stored in the other environment', () => other.check());
});
