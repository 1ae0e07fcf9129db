// The operations of the client library, called in Node: what each records, before and after the start.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import type { EventMessage, Message } from '../../src/libraries/client/core/messages.js';
import { started } from '../support/client-sending.js';
import { createWorld, testSettings } from '../support/client-world.js';

function events(messages: readonly Message[]): EventMessage[] {
  return messages.filter((message) => message.type === 'event');
}

test('sends an event after the interval, with user, session, time and a unique id', async () => {
  const { client, clock, server } = started();
  const called = new Date(clock.now()).toISOString();
  client.track('Order Completed', { amount: 12.5, currency: 'EUR' });
  client.track('Page Left');
  await clock.advance(2_999);
  assert.equal(server.received.length, 0);
  await clock.advance(1);
  assert.equal(server.received.length, 1);
  const [one] = server.received;
  assert.equal(one?.url, 'https://events.example/api/collect');
  assert.equal(one?.request.app_id, '1');
  assert.equal(one?.request.sent_at, new Date(clock.now()).toISOString());
  const [order, left] = events(server.stored);
  assert.match(order?.id ?? '', /^[0-9a-f]{32}$/);
  assert.notEqual(order?.id, left?.id);
  assert.deepEqual(order, {
    type: 'event',
    id: order?.id,
    user_id: client.userId,
    session_id: order?.session_id,
    time: called,
    event: 'Order Completed',
    properties: { amount: 12.5, currency: 'EUR' },
  });
  assert.match(order?.session_id ?? '', /^\d{1,16}$/);
  assert.equal(left?.session_id, order?.session_id);
  assert.deepEqual(left?.properties, {});
});

test('does nothing before the start but keeps the calls, with their time and their arguments as they were', async () => {
  const { clock, server, open } = createWorld();
  const { client } = open();
  const properties = { step: 1 };
  const called = clock.now();
  client.track('Before', properties);
  client.addEventProperties({ plan: 'pro' });
  client.identify('ada@example.com');
  properties.step = 2;
  assert.equal(client.userId, undefined);
  assert.equal(client.identity, undefined);
  await clock.advance(60_000);
  assert.equal(server.received.length, 0);
  client.start('1', testSettings);
  assert.equal(client.identity, 'ada@example.com');
  await clock.advance(3_000);
  assert.deepEqual(
    server.stored.map(({ type, time }) => [type, time]),
    [
      ['event', new Date(called).toISOString()],
      ['identify', new Date(called).toISOString()],
    ],
  );
  assert.deepEqual(events(server.stored)[0]?.properties, { step: 1 });
});

test('keeps at most a thousand calls before the start, and counts the others', async () => {
  const { clock, server, open } = createWorld();
  const { client, warnings } = open();
  for (let i = 0; i < 1002; i++) client.track(`e${i}`);
  client.start('1', testSettings);
  await clock.advance(3_000);
  assert.equal(server.stored.length, 1000);
  assert.equal(client.droppedCount, 2);
  assert.match(warnings.join('\n'), /dropped 1 message.*too many calls wait/);
});

test('the user id is a random integer of 53 bits as text, the same over pages', () => {
  const world = createWorld('first');
  const bytes = (values: number[]) => (count: number) => Uint8Array.from(values.slice(0, count));
  const page = world.start({ randomBytes: bytes([0xff, 255, 255, 255, 255, 255, 255, 255]) });
  assert.equal(page.client.userId, '9007199254740991');
  const zero = createWorld('first').open({ randomBytes: (count) => new Uint8Array(count) });
  zero.client.start('1', testSettings);
  assert.equal(zero.client.userId, '0');
  const later = world.start();
  assert.equal(later.client.userId, '9007199254740991');
  const other = world.open();
  other.client.start('2', testSettings);
  assert.notEqual(other.client.userId, '9007199254740991', 'each app has a user of its own');
});

test('begins a new user when the stored one is damaged', () => {
  const identities = ['', 'a'.repeat(255), '\ud800', 7, null, { a: 1 }].map((identity) =>
    JSON.stringify({ id: '5', identity }),
  );
  const others = ['', '{', 'null', '[]', '{"id":5}', '{"id":"9007199254740992"}', '{"id":"01"}'];
  for (const damaged of [...identities, ...others]) {
    const { open, texts } = createWorld();
    texts.set('sluice:1:user', damaged);
    const { client } = open();
    client.start('1', testSettings);
    assert.match(client.userId ?? '', /^\d{1,16}$/, damaged);
    assert.notEqual(client.userId, '5', damaged);
    assert.equal(client.identity, undefined);
  }
});

test('identify gives the anonymous user an identity and sends it before later events', async () => {
  const { client, clock, server } = started();
  const anonymous = client.userId;
  client.track('Before');
  client.identify('ada@example.com');
  client.track('After');
  assert.equal(client.userId, anonymous);
  assert.equal(client.identity, 'ada@example.com');
  await clock.advance(3_000);
  const [before, identify, after] = server.stored;
  assert.ok(before !== undefined && !('identity' in before));
  assert.deepEqual(
    { ...identify, id: '', session_id: '', time: '' },
    {
      type: 'identify',
      id: '',
      user_id: anonymous,
      identity: 'ada@example.com',
      session_id: '',
      time: '',
    },
  );
  assert.equal(after?.identity, 'ada@example.com');
  assert.equal(new Set(server.stored.map(({ session_id }) => session_id)).size, 1);
  assert.equal(new Set(server.stored.map(({ user_id }) => user_id)).size, 1);
});

test('identify with the same identity does nothing', async () => {
  const { client, clock, server } = started();
  client.identify('ada@example.com');
  client.identify('ada@example.com');
  await clock.advance(3_000);
  client.identify('ada@example.com');
  await clock.advance(60_000);
  assert.deepEqual(
    server.stored.map(({ type }) => type),
    ['identify'],
  );
});

test('identify with another identity begins a new user and a new session', async () => {
  const { client, clock, server } = started();
  client.identify('ada@example.com');
  const ada = client.userId;
  client.track('Of Ada');
  client.identify('Ada@example.com');
  client.track('Of The Other');
  await clock.advance(3_000);
  const [, ofAda, identify, ofOther] = server.stored;
  assert.notEqual(client.userId, ada);
  assert.equal(ofAda?.user_id, ada);
  assert.equal(ofAda?.identity, 'ada@example.com');
  assert.equal(identify?.user_id, client.userId);
  assert.equal(identify?.identity, 'Ada@example.com');
  assert.equal(ofOther?.user_id, client.userId);
  assert.notEqual(ofOther?.session_id, ofAda?.session_id);
  assert.equal(identify?.session_id, ofOther?.session_id);
});

test('identify refuses what is empty, too long, no text, or would merge strangers', async () => {
  const { client, clock, server, warnings } = started({ allowIdentities: ['guest'] });
  const bad = ['', 'x'.repeat(255), '\ud800', 'user', 'NULL', '[object Object]', ' ', 5, null, undefined, {}];
  for (const identity of bad) client.identify(identity as string);
  assert.equal(warnings.length, bad.length);
  assert.match(warnings[0] ?? '', /^Sluice: identify is ignored: the identity is empty/);
  assert.equal(client.identity, undefined);
  client.identify('guest');
  assert.equal(client.identity, 'guest', 'an allowed word');
  client.identify('😀'.repeat(254));
  assert.equal(client.identity, '😀'.repeat(254), 'counted in code points');
  await clock.advance(3_000);
  assert.equal(server.stored.length, 2);
});

test('resetIdentity does nothing for an anonymous user', async () => {
  const { client, clock, server } = started();
  client.track('Before');
  const { userId } = client;
  client.resetIdentity();
  client.track('After');
  await clock.advance(3_000);
  assert.equal(client.userId, userId);
  assert.equal(new Set(server.stored.map(({ session_id }) => session_id)).size, 1);
});

test('resetIdentity begins a new anonymous user; waiting messages stay the former one’s', async () => {
  const { client, clock, server } = started();
  client.identify('ada@example.com');
  client.track('Of Ada');
  client.addUserProperties({ plan: 'pro' });
  const ada = client.userId;
  client.resetIdentity();
  assert.equal(client.identity, undefined);
  assert.notEqual(client.userId, ada);
  client.track('Of Nobody');
  const nobody = client.userId;
  client.identify('bob@example.com');
  assert.equal(client.userId, nobody, 'the next identity is that of the new user');
  await clock.advance(3_000);
  assert.deepEqual(
    server.stored.map(({ type, user_id, identity }) => [type, user_id, identity]),
    [
      ['identify', ada, 'ada@example.com'],
      ['event', ada, 'ada@example.com'],
      ['user_properties', ada, 'ada@example.com'],
      ['event', nobody, undefined],
      ['identify', nobody, 'bob@example.com'],
    ],
  );
  assert.notEqual(server.stored[3]?.session_id, server.stored[1]?.session_id);
});

test('global event properties go with every event, even the library’s own, and an event’s own properties have priority', async () => {
  const { client, clock, server } = started();
  client.addEventProperties({ plan: 'pro', step: 1 });
  client.addEventProperties({ step: 2 });
  client.track('Checkout', { plan: 'basic' });
  client.autocapture('Page View', { path: '/' });
  client.addUserProperties({ seats: 3 });
  client.removeEventProperty('plan');
  client.removeEventProperty('absent');
  client.track('Later');
  client.clearEventProperties();
  client.track('Last');
  await clock.advance(3_000);
  const [checkout, view, later, last] = events(server.stored);
  assert.deepEqual(checkout?.properties, { plan: 'basic', step: 2 });
  assert.deepEqual(view?.properties, { path: '/', plan: 'pro', step: 2 });
  assert.equal(view?.autocaptured, true);
  assert.ok(checkout !== undefined && !('autocaptured' in checkout));
  assert.deepEqual(later?.properties, { step: 2 });
  assert.deepEqual(last?.properties, {});
  const user = server.stored.filter((message) => message.type === 'user_properties')[0];
  assert.deepEqual(user?.properties, { seats: 3 }, 'user properties do not get them');
});

test('global event properties survive a new page, a new session, identify and resetIdentity', async () => {
  const { client, clock, server, start } = started();
  client.addEventProperties({ plan: 'pro' });
  client.identify('ada@example.com');
  client.resetIdentity();
  await clock.advance(31 * 60_000);
  const later = start();
  later.client.track('Later');
  await clock.advance(3_000);
  assert.deepEqual(events(server.stored)[0]?.properties, { plan: 'pro' });
});

test('refuses global event properties as a whole when the store does not take them', async () => {
  const { clock, server, start } = createWorld();
  let text = '';
  const page = start({
    propertyStore: {
      read: () => text,
      write: (_, more) => {
        if (more.length > 40) return false;
        text = more;
        return true;
      },
    },
  });
  page.client.addEventProperties({ plan: 'pro' });
  page.client.addEventProperties({ a: 1, long: 'x'.repeat(40) });
  assert.equal(page.warnings.length, 1);
  assert.match(page.warnings[0] ?? '', /refused as a whole/);
  page.client.track('Later');
  await clock.advance(3_000);
  assert.deepEqual(events(server.stored)[0]?.properties, { plan: 'pro' });
});

test('refuses global event properties as a whole when there are more than a thousand', async () => {
  const { client, clock, server, warnings } = started();
  const many = (from: number, to: number) =>
    Object.fromEntries(Array.from({ length: to - from }, (_, i) => [`k${from + i}`, 1]));
  client.addEventProperties(many(0, 999));
  client.addEventProperties(many(999, 1001));
  assert.match(warnings.join(), /refused as a whole/);
  client.addEventProperties(many(2000, 2001));
  client.track('Event');
  await clock.advance(3_000);
  const keys = Object.keys(events(server.stored)[0]?.properties ?? {});
  assert.equal(keys.length, 1000);
  assert.ok(keys.includes('k2000') && !keys.includes('k999'));
});

test('global event properties that somebody else damaged are left out', async () => {
  const { client, clock, server, texts } = started();
  const long = 'x'.repeat(1024);
  texts.set('sluice:1:properties', `plan=pro&user_id=7&=&broken=%E0%A4%A&amount:nonsense&l=${long}&%&n:1e2`);
  client.track('Later');
  await clock.advance(3_000);
  assert.deepEqual(events(server.stored)[0]?.properties, { plan: 'pro', '': '', n: 100 });
});

test('a session continues over pages and tabs until nothing was called for the idle time', async () => {
  const { client, clock, server, start } = started();
  const other = start();
  client.track('First');
  await clock.advance(29 * 60_000);
  other.client.track('In Another Tab');
  await clock.advance(30 * 60_000);
  client.track('Still');
  await clock.advance(30 * 60_000 + 1);
  client.track('After The Idle Time');
  await clock.advance(3_000);
  const sessions = server.stored.map(({ session_id }) => session_id);
  assert.equal(sessions[1], sessions[0]);
  assert.equal(sessions[2], sessions[0]);
  assert.notEqual(sessions[3], sessions[0]);
});

test('a clock that is set back by more than the idle time ends the session', async () => {
  const { client, clock, server } = started();
  client.track('First');
  await clock.advance(3_000);
  clock.set(clock.now() - 365 * 24 * 3_600_000);
  client.track('Long Ago');
  client.track('Long Ago Too');
  await clock.advance(3_000);
  const [first, second, third] = server.stored;
  assert.notEqual(second?.session_id, first?.session_id);
  assert.equal(third?.session_id, second?.session_id);
});

test('messages that wait for a former app go to the address with which it was started, even from a later page', async () => {
  const { client, clock, server, open, crash } = started();
  client.track('Of One');
  client.start('2', { ...testSettings, baseUrl: 'https://eu.events.example/' });
  client.track('Of Two');
  crash();
  const later = open();
  later.client.start('3', testSettings);
  later.client.track('Of Three');
  await clock.advance(30_000);
  assert.deepEqual(
    server.received.map(({ url, request }) => [url, request.app_id, request.messages.length]).sort(),
    [
      ['https://eu.events.example/api/collect', '2', 1],
      ['https://events.example/api/collect', '1', 1],
      ['https://events.example/api/collect', '3', 1],
    ],
  );
});

test('messages that wait for a former app of unknown address are kept, and sent once the address is known', async () => {
  const { client, clock, server, open, crash, texts } = started();
  client.track('Of One');
  crash();
  texts.delete('sluice:1:url');
  const later = open();
  later.client.start('2', testSettings);
  later.hide();
  await clock.advance(60_000);
  assert.equal(server.received.length, 0);
  later.client.start('1', testSettings);
  await clock.advance(3_000);
  assert.deepEqual(server.events(), ['Of One']);
});

test('waiting user properties of one user are joined, and the newer values count', async () => {
  const { client, clock, server } = started();
  client.addUserProperties({ plan: 'basic', seats: 3 });
  client.track('Between');
  client.addUserProperties({ plan: 'pro', email: 'ada@example.com' });
  await clock.advance(3_000);
  client.addUserProperties({ seats: 4 });
  await clock.advance(3_000);
  assert.deepEqual(
    server.stored.map((message) => ('properties' in message ? message.properties : undefined)),
    [{}, { plan: 'pro', seats: 3, email: 'ada@example.com' }, { seats: 4 }],
  );
  assert.equal(new Set(server.stored.map(({ id }) => id)).size, 3);
});

test('user properties of different users, or with an identify between, are not joined', async () => {
  const { client, clock, server } = started();
  client.addUserProperties({ a: 1 });
  client.identify('ada@example.com');
  client.addUserProperties({ b: 2 });
  client.resetIdentity();
  client.addUserProperties({ c: 3 });
  await clock.advance(3_000);
  assert.deepEqual(
    server.stored.map((message) => [message.identity, 'properties' in message ? message.properties : '']),
    [
      [undefined, { a: 1 }],
      ['ada@example.com', ''],
      ['ada@example.com', { b: 2 }],
      [undefined, { c: 3 }],
    ],
  );
});

const ofThisApp = (key: string): boolean => key.startsWith('sluice:1:');

test('opting out stops recording and sending, removes waiting messages, and is remembered', async () => {
  const { client, clock, server, texts, start } = started();
  client.track('Before');
  const { userId } = client;
  client.optOut();
  client.track('While Out');
  client.identify('ada@example.com');
  client.addUserProperties({ a: 1 });
  client.addEventProperties({ plan: 'pro' });
  await clock.advance(60_000);
  const later = start();
  later.client.track('Later');
  later.hide();
  await clock.advance(60_000);
  assert.equal(server.received.length, 0);
  assert.deepEqual([...texts.keys()].filter(ofThisApp), ['sluice:1:consent']);
  later.client.optIn();
  later.client.track('Back');
  assert.notEqual(later.client.userId, userId);
  await clock.advance(3_000);
  assert.deepEqual(server.events(), ['Back']);
  assert.deepEqual(events(server.stored)[0]?.properties, {});
  assert.ok(server.stored[0] !== undefined && !('identity' in server.stored[0]));
});

test('opting out leaves nothing of the user on the device but the choice', async () => {
  const { client, clock, server, texts, start } = started();
  client.identify('ada@example.com');
  client.addEventProperties({ plan: 'pro' });
  client.track('Sent');
  await clock.advance(3_000);
  server.answerWith = () => ({ status: 0, body: '' });
  client.track('Waiting');
  await clock.advance(3_000);
  assert.ok([...texts.keys()].length > 4, 'more than the choice was stored before');
  client.optOut();
  const left = () => [...texts].filter(([key]) => ofThisApp(key));
  assert.deepEqual(left(), [['sluice:1:consent', 'out 1']]);
  assert.deepEqual([client.userId, client.identity], [undefined, undefined]);
  client.track('Out');
  client.resetIdentity();
  client.identify('bob@example.com');
  client.removeEventProperty('plan');
  client.clearEventProperties();
  await clock.advance(60_000);
  const next = start();
  next.client.track('Out');
  await clock.advance(60_000);
  assert.deepEqual(left(), [['sluice:1:consent', 'out 1']]);
});

test('what another tab has left of a user who opted out is removed at the next start', () => {
  const { texts, open } = createWorld();
  texts.set('sluice:1:consent', 'out 1');
  texts.set('sluice:1:user', '{"id":"77","identity":"ada@example.com"}');
  texts.set('sluice:1:session', '78 1700000000000');
  open().client.start('1', testSettings);
  assert.deepEqual([...texts.keys()].filter(ofThisApp), ['sluice:1:consent']);
  assert.ok(texts.has('sluice:2:user'), 'the choice was for one app');
});

test('opting out removes waiting messages at once, even if the user opts in again right away', async () => {
  const { client, clock, server, texts } = started();
  client.track('Before');
  client.optOut();
  assert.deepEqual(
    [...texts.keys()].filter((key) => key.includes(':q:')),
    [],
  );
  client.optIn();
  client.track('Back');
  // Other tabs may have created a user since. The tabs agree on one, as on a first visit.
  const flushed = client.flush();
  await clock.advance(clientLimits.settleMs);
  await flushed;
  assert.deepEqual(server.events(), ['Back']);
});

test('opted out by default, nothing is stored until the visitor opts in', async () => {
  const { clock, server, texts, open } = createWorld('first');
  const { client } = open();
  client.start('1', { ...testSettings, optedOut: true, sessionPerStart: true });
  client.track('Before');
  client.addEventProperties({ plan: 'pro' });
  assert.equal(client.userId, undefined);
  await clock.advance(60_000);
  assert.equal(texts.size, 0);
  client.optIn();
  client.track('After');
  await clock.advance(3_000);
  assert.deepEqual(server.events(), ['After']);
});

test('while opted out, a logout and another identity still end the former user', () => {
  const reset = started();
  reset.client.identify('ada@example.com');
  reset.client.optOut();
  reset.client.resetIdentity();
  assert.equal(reset.client.identity, undefined);
  const switched = started();
  switched.client.identify('ada@example.com');
  const ada = switched.client.userId;
  switched.client.optOut();
  switched.client.identify('bob@example.com');
  assert.match(switched.warnings.join(), /identify is not recorded: the user has not opted in/);
  switched.client.optIn();
  assert.equal(switched.client.identity, undefined);
  assert.notEqual(switched.client.userId, ada);
});

test('while paired, batches of other apps do not carry the pairing', async () => {
  const { client, clock, server } = started();
  client.setPairing('secret');
  client.track('Of One');
  client.start('2', testSettings);
  client.track('Of Two');
  await clock.advance(3_000);
  assert.deepEqual(server.received.map(({ request }) => [request.app_id, request.pairing]).sort(), [
    ['1', 'secret'],
    ['2', undefined],
  ]);
});

test('a console that throws, or calls the library, does no harm', async () => {
  const { clock, server, start } = createWorld();
  const throwing = start({
    warn: () => {
      throw new Error('no console');
    },
  });
  throwing.client.track('');
  throwing.client.track('Good');
  let shown = 0;
  const calling = start({
    warn: (line) => {
      shown++;
      calling.client.track('', { line });
      calling.client.track('Warning Shown');
    },
  });
  calling.client.track('');
  calling.client.track('Good Too');
  await clock.advance(6_000);
  assert.equal(shown, 1);
  assert.deepEqual(server.events().sort(), ['Good', 'Good Too', 'Warning Shown']);
});

test('a choice, a logout or an identity is never dropped as one call too many before the start', async () => {
  const { clock, server, texts, start } = createWorld();
  texts.set('sluice:1:user', '{"id":"5","identity":"ada@example.com"}');
  const page = start({ ready: false });
  for (let n = 0; n < clientLimits.callsMax; n++) page.client.track('Early');
  page.client.resetIdentity();
  page.makeReady();
  page.client.track('Late');
  await clock.advance(60_000);
  const late = server.stored.filter((message) => message.type === 'event' && message.event === 'Late');
  assert.deepEqual([late.length, late[0]?.identity], [1, undefined]);

  const other = start({ ready: false });
  for (let n = 0; n < clientLimits.callsMax; n++) other.client.track('Never');
  other.client.optOut();
  other.makeReady();
  other.client.track('Never');
  await clock.advance(60_000);
  assert.ok(!server.events().includes('Never'));
});

test('a choice is kept, whatever number another script wrote to the choice before', async () => {
  const { clock, server, texts, start } = createWorld();
  texts.set('sluice:1:consent', 'in 999999999999999');
  const first = start();
  first.client.optOut();
  const next = start();
  next.client.track('Never');
  await clock.advance(60_000);
  assert.deepEqual(server.events(), []);
});

test('opting out before the choice for a former app is known applies to the app started last', async () => {
  const { clock, server, open, start } = createWorld();
  const waiting: (() => void)[] = [];
  const storage = open().storage;
  const page = start({
    storage: { ...storage, whenKnown: (_, callback) => void waiting.push(callback) },
  });
  page.client.start('2', testSettings);
  page.client.optOut();
  page.client.track('Never');
  for (let callback = waiting.shift(); callback !== undefined; callback = waiting.shift()) callback();
  await clock.advance(60_000);
  assert.deepEqual([server.events(), storage.get('sluice:2:consent')], [[], 'out 1']);
});
