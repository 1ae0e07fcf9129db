// How tabs share the client library’s queue, and what becomes of messages when a page is hidden or ends.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { started, waiting } from '../support/client-sending.js';
import {
  createLateStorage,
  createSharedStorage,
  createWorld,
  failure,
  settle,
  type TestPage,
  testSettings,
  type World,
} from '../support/client-world.js';

test('a tab’s hold on messages ends only after they are removed, and tabs that see this late see it in that order', async () => {
  const world = started();
  const removed: string[] = [];
  const { texts } = world;
  const remove = texts.delete.bind(texts);
  texts.delete = (key) => {
    removed.push(key);
    return remove(key);
  };
  for (const name of ['1', '2', '3']) world.client.track(name);
  await world.client.flush();
  assert.deepEqual(world.server.events(), ['1', '2', '3']);
  const kinds = removed.map((key) => key.split(':')[2]).filter((kind) => kind === 'q' || kind === 'h');
  assert.deepEqual(kinds, ['q', 'q', 'q', 'h']);
});

test('user properties that another tab is sending do not change', async () => {
  const world = started();
  const slow = world.start({
    transport: { send: () => ({ answer: new Promise(() => {}), outlivesPage: false }) },
  });
  world.client.addUserProperties({ plan: 'basic' });
  void slow.client.flush();
  await settle();
  world.client.addUserProperties({ seats: 3 });
  slow.crash();
  await world.clock.advance(60_000);
  assert.deepEqual(
    world.server.stored.map((message) => ('properties' in message ? message.properties : {})),
    [{ plan: 'basic' }, { seats: 3 }],
  );
});

test('a batch from a hidden page that got no answer is not retried at once', async () => {
  const world = createWorld();
  const times: number[] = [];
  const begin = world.clock.now();
  const page = world.start({
    transport: {
      send: (url, body) => {
        times.push(world.clock.now() - begin);
        return { answer: Promise.resolve(world.server.take(url, body)), outlivesPage: false };
      },
      sendAtExit: () => {
        times.push(world.clock.now() - begin);
        return Promise.resolve(failure(0));
      },
    },
  });
  page.client.track('Event');
  page.hide();
  await world.clock.advance(60_000);
  assert.equal(times.length, 2);
  assert.ok(
    (times[1] as number) >= clientLimits.exitHoldMs && (times[1] as number) < 2 * clientLimits.exitHoldMs,
  );
});

test('when the page is hidden, waiting messages go at once and are not sent again once answered', async () => {
  const world = started();
  world.client.track('Event');
  world.hide();
  world.hide();
  assert.equal(world.server.received.length, 1);
  await world.clock.advance(60_000);
  assert.equal(world.server.received.length, 1);
  assert.deepEqual(waiting(world), []);
});

test('a page that ends before the answer leaves its messages; the next page waits and then sends them again', async () => {
  const world = started();
  world.client.track('Event');
  world.hide();
  world.crash();
  await settle();
  assert.equal(waiting(world).length, 1);
  const next = world.start();
  next.client.track('Next Page');
  await world.clock.advance(3_000);
  assert.deepEqual(world.server.events(), ['Event', 'Next Page']);
  assert.equal(world.server.received.length, 2, 'the message is not sent again at once');
  await world.clock.advance(clientLimits.exitHoldMs);
  assert.equal(world.server.received.length, 3);
  assert.deepEqual(world.server.events(), ['Event', 'Next Page'], 'the repeat was answered as one');
  assert.deepEqual(waiting(world), []);
});

test('a hidden page sends at most 64 KB in total over all apps, oldest first; the rest waits', async () => {
  const world = started();
  const properties = { text: '€'.repeat(1000) };
  for (let i = 0; i < 15; i++) world.client.track(`e${i}`, properties);
  world.client.start('2', testSettings);
  for (let i = 0; i < 15; i++) world.client.track(`f${i}`, properties);
  world.hide();
  const bytes = world.server.received.reduce((sum, { body }) => sum + Buffer.byteLength(body), 0);
  assert.ok(bytes > 50_000 && bytes <= clientLimits.exitBytesMax, `${bytes}`);
  assert.deepEqual(world.server.events().slice(0, 16), [
    ...Array.from({ length: 15 }, (_, i) => `e${i}`),
    'f0',
  ]);
  const sent = world.server.stored.length;
  world.crash();
  const next = world.start();
  await world.clock.advance(3_000);
  assert.ok(world.server.stored.length > sent);
  await world.clock.advance(10_000);
  assert.equal(world.server.stored.length, 30);
  assert.equal(next.client.droppedCount, 0);
});

test('a message too large for a hidden page waits, and only messages that must not overtake it wait with it', async () => {
  const world = started();
  const large = (size: number) =>
    Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`k${i}`, 'x'.repeat(size)]));
  world.client.track('Large', large(300));
  world.client.track('Small');
  world.client.addUserProperties(large(250));
  world.hide();
  assert.deepEqual(world.server.events(), ['Small']);
  world.client.identify('ada@example.com');
  world.client.addUserProperties({ plan: 'pro' });
  world.client.track('Smaller');
  world.crash();
  world.start().client.track('Next');
  await world.clock.advance(20_000);
  assert.deepEqual(world.server.events(), ['Small', 'Large', 'Smaller', 'Next']);
  const properties = world.server.stored.filter(({ type }) => type === 'user_properties');
  assert.equal(properties.length, 2);
  assert.ok(properties[1] !== undefined && 'plan' in (properties[1] as { properties: object }).properties);

  const other = started();
  other.client.addUserProperties(large(250));
  other.client.identify('ada@example.com');
  other.client.addUserProperties({ plan: 'pro' });
  other.hide();
  assert.deepEqual(
    other.server.stored.map(({ type }) => type),
    ['identify'],
  );
});

test('a hidden page sends as many requests as necessary, even during the pause after a failure', async () => {
  const world = started();
  world.server.answerWith = () => failure(0);
  world.client.track('First');
  await world.clock.advance(3_000);
  world.server.answerWith = () => undefined;
  for (let i = 0; i < 250; i++) world.client.track(`e${i}`);
  world.hide();
  assert.equal(world.server.events().length, 251);
  assert.equal(world.server.received.length, 3);
});

test('a batch under way that ends with its page is sent once more when the page is hidden', async () => {
  const world = createWorld();
  const requests: string[] = [];
  const page = world.start({
    transport: {
      send: (_, body) => {
        requests.push(body);
        return { answer: new Promise(() => {}), outlivesPage: false };
      },
      sendAtExit: (_, body) => {
        requests.push(body);
        return new Promise(() => {});
      },
    },
  });
  page.client.track('Event');
  await world.clock.advance(3_000);
  assert.equal(requests.length, 1);
  page.hide();
  assert.equal(requests.length, 2);
  const [first, second] = requests.map((body) => JSON.parse(body).messages);
  assert.deepEqual(second, first);
});

test('a batch that outlives its page is not sent again', async () => {
  const world = createWorld();
  let requests = 0;
  const page = world.start({
    transport: {
      send: () => {
        requests++;
        return { answer: new Promise(() => {}), outlivesPage: true };
      },
      sendAtExit: () => {
        requests++;
        return new Promise(() => {});
      },
    },
  });
  page.client.track('Event');
  await world.clock.advance(3_000);
  page.hide();
  page.crash();
  assert.equal(requests, 1);
  world.start();
  await world.clock.advance(clientLimits.exitHoldMs + 3_000);
  assert.deepEqual(world.server.events(), ['Event'], 'and the next page asks soon');
});

test('when a visitor switches tabs, no message is sent by both', async () => {
  const world = createWorld();
  const late = createLateStorage(world.clock, () => 20);
  late.kept.set('sluice:1:user', '{"id":"5"}');
  const [left, shown] = [late.view(), late.view()].map((storage) => world.open({ storage })) as [
    TestPage,
    TestPage,
  ];
  for (const { client } of [left, shown]) client.start('1', testSettings);
  left.client.track('Event');
  await world.clock.advance(1_000);
  shown.resume();
  left.hide();
  await world.clock.advance(10_000);
  assert.deepEqual(world.server.events(), ['Event']);
  assert.equal(world.server.received.length, 1);
});

test('another tab sends the messages that a crashed tab leaves', async () => {
  const world = started();
  const other = world.start();
  world.client.track('Event');
  world.crash();
  await world.clock.advance(2_999);
  assert.equal(world.server.received.length, 0);
  await world.clock.advance(6_000);
  assert.deepEqual(world.server.events(), ['Event']);
  assert.deepEqual(other.warnings, []);
});

/** A world in which a page has gone in the middle of a request that outlives it and has no answer yet. */
async function leftInTheMiddle(record: (page: TestPage) => void): Promise<{ world: World; page: TestPage }> {
  const world = createWorld();
  const page = world.start({
    transport: { send: () => ({ answer: new Promise(() => {}), outlivesPage: true }) },
  });
  record(page);
  await world.clock.advance(3_000);
  return { world, page };
}

test('a page whose predecessor left in the middle of a request waits for that, but not for its time-out', async () => {
  const { world, page } = await leftInTheMiddle(({ client }) => client.track('Event'));
  page.hide();
  page.crash();
  world.start();
  await world.clock.advance(clientLimits.exitHoldMs - 1);
  assert.equal(world.server.received.length, 0);
  await world.clock.advance(1_000);
  assert.deepEqual(world.server.events(), ['Event']);
});

test('a clock that is set back does not prolong what another tab was sending', async () => {
  const { world, page } = await leftInTheMiddle(({ client }) => client.track('Event'));
  page.crash();
  world.clock.set(world.clock.now() - 24 * 3_600_000);
  world.start();
  await world.clock.advance(3_000);
  assert.deepEqual(world.server.events(), ['Event']);
});

test('a tab that is opted out by default, where nobody has chosen, leaves others’ messages alone', async () => {
  const world = createWorld();
  const page = world.start();
  for (let n = 0; n < 20; n++) page.client.track(`e${n}`);
  const other = world.open();
  other.client.start('1', { ...testSettings, optedOut: true });
  other.client.track('Not recorded');
  other.hide();
  await other.client.flush();
  await world.clock.advance(3_000);
  assert.equal(world.server.events().length, 20);
  page.client.optOut();
  page.client.track('Not recorded either');
  await world.clock.advance(10_000);
  assert.equal(world.server.events().length, 20);
});

test('a tab that adds little notices that another tab adds much', () => {
  const world = started();
  const other = world.start();
  other.client.track('first');
  for (let n = 0; n < clientLimits.queueMessagesMax - 1; n++) world.client.track(`a${n}`);
  for (let n = 0; n < 200; n++) other.client.track(`b${n}`);
  assert.ok(waiting(world).length <= clientLimits.queueMessagesMax + 50, `${waiting(world).length}`);
});

test('a hidden page survives a failure of its storage', () => {
  const world = createWorld();
  const storage = createSharedStorage().view();
  let broken = false;
  const get = (key: string): string | undefined => {
    if (broken) throw new Error('no storage');
    return storage.get(key);
  };
  const page = world.start({ storage: { ...storage, get } });
  page.client.track('Event');
  broken = true;
  assert.doesNotThrow(() => page.hide());
  assert.doesNotThrow(() => page.resume());
});
