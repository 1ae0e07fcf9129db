// How the client library sends: batches, their order, and a queue that is full or damaged.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TransportAnswer } from '../../src/libraries/client/core/adapters.js';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { started, waiting } from '../support/client-sending.js';
import { createWorld, failure, settle, testSettings } from '../support/client-world.js';

test('a full batch goes at once, the rest after it, in order', async () => {
  const { client, clock, server } = started();
  const names = Array.from({ length: 450 }, (_, i) => `e${i}`);
  for (const name of names) client.track(name);
  await clock.advance(0);
  assert.deepEqual(
    server.received.map(({ request }) => request.messages.length),
    [200, 200, 50],
  );
  assert.deepEqual(server.events(), names);
});

test('a batch has a limit in bytes, and once that many bytes wait they go at once', async () => {
  const { client, clock, server } = started();
  const properties = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`k${i}`, 'é'.repeat(1000)]));
  for (let i = 0; i < 6; i++) client.track(`e${i}`, properties);
  await clock.advance(0);
  assert.equal(server.stored.length, 6);
  assert.ok(server.received.length > 1);
  for (const { body } of server.received) {
    assert.ok(Buffer.byteLength(body) <= clientLimits.batchBytesMax + clientLimits.envelopeBytesMax);
  }
});

test('a message leaves storage when the server has answered for it, and no earlier', async () => {
  const world = started();
  world.client.track('Event');
  assert.equal(waiting(world).length, 1);
  let answer: (answer: TransportAnswer) => void = () => {};
  const page = world.open({
    transport: {
      send: () => ({
        answer: new Promise((resolve) => {
          answer = resolve;
        }),
        outlivesPage: false,
      }),
    },
  });
  world.crash();
  page.client.start('1', testSettings);
  await world.clock.advance(3_000);
  assert.equal(waiting(world).length, 1);
  answer(
    world.server.accept({
      app_id: '1',
      sent_at: '',
      messages: [JSON.parse(world.texts.get(waiting(world)[0] as string) as string)],
    }),
  );
  await settle();
  assert.equal(waiting(world).length, 0);
  assert.deepEqual(
    [...world.texts.keys()].filter((key) => /:h:|backoff/.test(key)),
    [],
    'no hold and no pause stays either',
  );
});

test('user properties that may have arrived no longer change', async () => {
  const { client, clock, server } = started();
  server.answerWith = ({ request }) => {
    server.accept(request);
    return failure(0);
  };
  client.addUserProperties({ plan: 'basic' });
  await clock.advance(3_000);
  server.answerWith = () => undefined;
  client.addUserProperties({ seats: 3 });
  await clock.advance(60_000);
  assert.deepEqual(
    server.stored.map((message) => ('properties' in message ? message.properties : {})),
    [{ plan: 'basic' }, { seats: 3 }],
  );
});

test('the queue is bounded: the oldest messages are dropped first and counted', async () => {
  const world = started();
  const { client, clock, server } = world;
  server.answerWith = () => failure(0);
  for (let i = 0; i < clientLimits.queueMessagesMax; i++) client.track(`e${i}`);
  assert.equal(waiting(world).length, clientLimits.queueMessagesMax);
  assert.equal(client.droppedCount, 0);
  client.track('one more');
  const dropped = clientLimits.queueMessagesMax / 100 + 1;
  assert.equal(
    client.droppedCount,
    dropped,
    'makes room for many at once, since reading through the queue is expensive',
  );
  for (let i = 0; i < 400; i++) client.track(`f${i}`);
  assert.ok(waiting(world).length <= clientLimits.queueMessagesMax);
  assert.equal(client.droppedCount + waiting(world).length, clientLimits.queueMessagesMax + 401);
  assert.ok(world.warnings.length <= 5, `${world.warnings.length} warnings`);
  server.answerWith = () => undefined;
  await clock.advance(10_000);
  assert.equal(server.events()[0], `e${client.droppedCount}`);
  assert.equal(client.droppedCount + server.stored.length, clientLimits.queueMessagesMax + 401);
});

test('a message that is being sent is not evicted', async () => {
  const world = createWorld();
  let answer: (answer: TransportAnswer) => void = () => {};
  const bodies: string[] = [];
  const page = world.start({
    transport: {
      send: (_, body) => {
        bodies.push(body);
        return {
          answer: new Promise((resolve) => {
            answer = resolve;
          }),
          outlivesPage: false,
        };
      },
    },
  });
  page.client.track('Under Way');
  await world.clock.advance(3_000);
  for (let i = 0; i < clientLimits.queueMessagesMax; i++) page.client.track(`e${i}`);
  const dropped = page.client.droppedCount;
  assert.ok(dropped > 0);
  const names = waiting(world).map((key) => JSON.parse(world.texts.get(key) as string).event);
  assert.deepEqual(
    [names.includes('Under Way'), names.includes(`e${dropped - 1}`), names.includes(`e${dropped}`)],
    [true, false, true],
  );
  answer(world.server.take('', bodies[0] as string));
  await settle();
  assert.equal(page.client.droppedCount, dropped);
});

test('the queue is bounded in bytes too', () => {
  const world = started();
  const properties = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`k${i}`, 'é'.repeat(500)]));
  for (let i = 0; i < 30; i++) world.client.track(`e${i}`, properties);
  const bytes = waiting(world).reduce(
    (sum, key) => sum + Buffer.byteLength(world.texts.get(key) as string),
    0,
  );
  assert.ok(bytes <= clientLimits.queueBytesMax && bytes > clientLimits.queueBytesMax - 240_000, `${bytes}`);
  assert.equal(world.client.droppedCount, 30 - waiting(world).length);
});

test('damaged texts in storage are dropped and delay nothing', async () => {
  const world = createWorld();
  world.texts.set('sluice:1:q:00000000001.5.e.x', '{"id":');
  world.texts.set('sluice:1:q:garbage', 'null');
  world.texts.set('sluice:1:h:x', '{');
  world.texts.set('sluice:1:backoff', '[]');
  world.texts.set('sluice:%E0%A4%A:q:1', 'x');
  world.texts.set('sluice', 'x');
  const page = world.start();
  page.client.track('Event');
  await world.clock.advance(3_000);
  assert.deepEqual(world.server.events(), ['Event']);
  assert.equal(page.client.droppedCount, 2);
  assert.deepEqual(waiting(world), []);
});

test('a key in storage with the highest possible order does not mix up what comes after it', async () => {
  const world = createWorld();
  world.texts.set('sluice:1:q:zzzzzzzzzzzzzzzz.1.e.x', '{"type":"event","id":"x","user_id":"1"}');
  const page = world.start();
  const names = Array.from({ length: 12 }, (_, i) => `e${i}`);
  for (const name of names) page.client.track(name);
  await world.clock.advance(3_000);
  const sent = world.server.events().filter((name) => name !== undefined);
  assert.deepEqual(sent, names);
});

test('flush sends at once and settles after the attempt', async () => {
  const { client, server, clock } = started();
  client.track('Event');
  const flushed = client.flush();
  await flushed;
  assert.deepEqual(server.events(), ['Event']);
  client.track('Another');
  await Promise.all([client.flush(), client.flush(), client.flush()]);
  assert.deepEqual(server.events(), ['Event', 'Another']);
  server.answerWith = () => failure(500);
  client.track('Failing');
  await client.flush();
  await client.flush();
  assert.equal(server.received.length, 3, 'flush does not end a wait');
  await clock.advance(0);
});

test('a message made while a batch is under way does not wait for more than the interval', async () => {
  const { client, clock, server } = started();
  client.track('First');
  await clock.advance(2_999);
  server.answerWith = (request) => {
    server.answerWith = () => undefined;
    client.track('Second');
    return server.accept(request.request);
  };
  await clock.advance(1);
  await clock.advance(3_000);
  assert.deepEqual(server.events(), ['First', 'Second']);
});

test('adapters that fail do not reach the page, and nothing is lost', async () => {
  const world = createWorld();
  let broken = true;
  const page = world.start({
    transport: {
      send: (url, body) => {
        if (broken) throw new Error('no transport');
        return { answer: Promise.resolve(world.server.take(url, body)), outlivesPage: false };
      },
    },
  });
  page.client.track('Event');
  await page.client.flush();
  assert.match(page.warnings[0] ?? '', /sending failed inside the library/);
  broken = false;
  page.client.track('Later');
  await world.clock.advance(60_000);
  assert.deepEqual(world.server.events(), ['Event', 'Later']);
});

test('messages that could not be sent for 30 days are dropped and counted; younger ones are not', async () => {
  const world = createWorld();
  world.server.answerWith = () => failure(0);
  const first = world.start();
  first.client.track('Old');
  await world.clock.advance(3_000);
  first.crash();
  await world.clock.advance(31 * 86_400_000);
  const { client } = world.start();
  client.track('Young');
  await world.clock.advance(60_000);
  assert.equal(client.droppedCount, 0, 'a few failures are not enough: the clock may be wrong');
  await world.clock.advance(2 * 3_600_000);
  assert.equal(client.droppedCount, 1);
  world.server.answerWith = () => undefined;
  await world.clock.advance(3_600_000);
  assert.deepEqual(world.server.events(), ['Young']);
});
