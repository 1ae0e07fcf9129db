// What the client library does after an answer: refusals, pauses, Retry-After, time-outs, and the size of the next batch.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TransportAnswer } from '../../src/libraries/client/core/adapters.js';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { isNamed, started, watchTimes } from '../support/client-sending.js';
import { createSharedStorage, createWorld, failure } from '../support/client-world.js';

test('network errors, 429 and 5xx are retried with the same ids, after growing pauses with jitter', async () => {
  for (const status of [0, 429, 500, 503]) {
    const world = started();
    const { client, clock, server } = world;
    const ids = new Set<string>();
    server.answerWith = ({ request }) => {
      for (const { id } of request.messages) ids.add(id);
      return failure(status);
    };
    const times = watchTimes(world);
    client.track('Event');
    await clock.advance(40 * 60_000);
    const waits = times.slice(1).map((time, i) => time - (times[i] as number));
    assert.ok(waits.length >= 12, `${waits}`);
    for (const [i, wait] of waits.entries()) {
      const full = Math.min(1000 * 2 ** i, 5 * 60_000);
      assert.ok(wait >= full / 2 && wait <= full + 1, `${status}: wait ${i} of ${wait} ms`);
    }
    assert.ok(new Set(waits.slice(-6)).size > 1, 'they differ');
    assert.equal(ids.size, 1);
    server.answerWith = () => undefined;
    await clock.advance(5 * 60_000);
    assert.deepEqual(server.events(), ['Event']);
    assert.equal(client.droppedCount, 0);
  }
});

test('Retry-After is obeyed, in seconds and as a date, and by the next page too', async () => {
  for (const [form, status, code] of [
    ['seconds', 503, 'overloaded'],
    ['date', 503, 'unknown'],
    ['seconds', 500, 'internal_error'],
  ] as const) {
    const world = started();
    const { client, clock, server } = world;
    const retryAfter = form === 'seconds' ? '120' : new Date(clock.now() + 123_000).toUTCString();
    server.answerWith = () => failure(status, code, retryAfter);
    client.track('Event');
    await clock.advance(3_000);
    server.answerWith = () => undefined;
    world.hide();
    world.crash();
    const page = world.start();
    page.client.track('Another');
    page.resume();
    await clock.advance(119_999);
    assert.equal(server.received.length, 1, form);
    await clock.advance(2_000);
    assert.deepEqual(server.events(), ['Event', 'Another'], form);
    assert.equal(client.droppedCount + page.client.droppedCount, 0);
  }
});

test('after a Retry-After clients do not all return at once', async () => {
  const world = createWorld();
  const waits = new Set<number>();
  for (let n = 0; n < 20; n++) {
    const page = world.start({ storage: createSharedStorage().view() });
    page.client.track('Event');
    world.server.answerWith = () => failure(429, 'rate_limited', '60');
    await world.clock.advance(3_000);
    world.server.answerWith = () => undefined;
    const { length } = world.server.received;
    const at = world.clock.now();
    while (world.server.received.length === length) await world.clock.advance(50);
    waits.add(world.clock.now() - at);
    page.crash();
  }
  const all = [...waits];
  assert.ok(Math.min(...all) >= 60_000 && Math.max(...all) <= 61_050, `${all}`);
  assert.ok(Math.max(...all) - Math.min(...all) >= 200, `${all}`);
});

test('a Retry-After beyond an hour, or none at all, does not silence the library', async () => {
  for (const retryAfter of ['999999999', '-5', 'soon', '']) {
    const { client, clock, server } = started();
    server.answerWith = () => failure(429, 'rate_limited', retryAfter);
    client.track('Event');
    await clock.advance(3_000);
    server.answerWith = () => undefined;
    await clock.advance(3_600_000 + 2_000);
    assert.deepEqual(server.events(), ['Event'], retryAfter);
  }
});

test('a wait ends when the network is back, except a wait that the server asked for', async () => {
  const { client, clock, server, resume } = started();
  server.answerWith = () => failure(0);
  client.track('Event');
  await clock.advance(60_000);
  const failures = server.received.length;
  server.answerWith = () => undefined;
  resume();
  await clock.advance(clientLimits.resumeMs);
  assert.equal(server.received.length, failures + 1);
  assert.deepEqual(server.events(), ['Event']);
});

test('a clock that is set back does not lengthen a wait, not even one that the server asked for', async () => {
  for (const retryAfter of [undefined, '60']) {
    const world = started();
    const { clock, server } = world;
    server.answerWith = () => failure(503, 'overloaded', retryAfter);
    world.client.track('Event');
    await clock.advance(60_000);
    server.answerWith = () => undefined;
    clock.set(clock.now() - 400 * 24 * 3_600_000);
    world.crash();
    world.start();
    await clock.advance(3_000);
    assert.deepEqual(server.events(), ['Event']);
  }
});

test('an answer of something other than the service counts as no answer', async () => {
  for (const [status, body] of [
    [400, '<html>Log in to the Wi-Fi</html>'],
    [200, '<html>Sign in to the network</html>'],
    [200, ''],
    [200, 'null'],
    [200, '{}'],
    [200, '{"messages":{}}'],
    [200, '{"messages":[]}'],
  ] as const) {
    const { client, clock, server } = started();
    server.answerWith = () => ({ status, body });
    client.track('Event');
    await clock.advance(20_000);
    assert.ok(server.received.length > 1 && server.received.length < 8, `${server.received.length} requests`);
    server.answerWith = () => undefined;
    await clock.advance(60_000);
    assert.deepEqual(server.events(), ['Event']);
  }
});

test('other refusals, such as 404 of a wrong address, are retried with one warning', async () => {
  const { client, clock, server, warnings } = started();
  server.answerWith = () => failure(404, 'not_found');
  client.track('Event');
  await clock.advance(60_000);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? '', /404 not_found/);
  server.answerWith = () => undefined;
  await clock.advance(60_000);
  assert.deepEqual(server.events(), ['Event']);
});

test('400 is never repeated as it is: halves find the bad message, the others arrive in order', async () => {
  const { client, clock, server, warnings } = started();
  const bodies = new Set<string>();
  server.answerWith = ({ request }) => {
    const key = request.messages.map(({ id }) => id).join();
    assert.ok(!bodies.has(key), 'a refused batch came again');
    if (!request.messages.some((message) => isNamed(message, 'bad') || isNamed(message, 'worse')))
      return undefined;
    bodies.add(key);
    return failure(400, 'invalid_json');
  };
  const names = Array.from({ length: 40 }, (_, i) => (i === 13 ? 'bad' : i === 29 ? 'worse' : `e${i}`));
  for (const name of names) client.track(name);
  await clock.advance(3_000);
  assert.deepEqual(
    server.events(),
    names.filter((name) => name.startsWith('e')),
  );
  assert.equal(client.droppedCount, 2);
  assert.match(warnings[0] ?? '', /dropped 1 message, 1 in all: 400 invalid_json/);
  assert.ok(server.received.length < 40, `${server.received.length} requests`);
});

test('gives a batch up at once if the server does not know its app_id', async () => {
  const { client, clock, server, warnings } = started();
  server.answerWith = () => failure(400, 'unknown_app_id');
  for (let i = 0; i < 10; i++) client.track(`e${i}`);
  await clock.advance(3_000);
  assert.equal(server.received.length, 1);
  assert.equal(client.droppedCount, 10);
  assert.match(warnings[0] ?? '', /dropped 10 messages, 10 in all: 400 unknown_app_id/);
});

test('413 halves the batch, down to a single message, which is then given up', async () => {
  const { client, clock, server } = started();
  const sizes: number[] = [];
  server.answerWith = ({ body, request }) => {
    sizes.push(request.messages.length);
    return body.length > 3000 || request.messages.some((message) => isNamed(message, 'huge'))
      ? failure(413, 'body_too_large')
      : undefined;
  };
  const names = Array.from({ length: 30 }, (_, i) => (i === 9 ? 'huge' : `e${i}`));
  for (const name of names) client.track(name);
  await clock.advance(3_000);
  assert.equal(sizes[0], 30);
  assert.equal(sizes[1], 15);
  assert.ok(Math.max(...sizes.slice(sizes.indexOf(1))) > 2, 'batches grow again after a success');
  assert.deepEqual(
    server.events(),
    names.filter((name) => name !== 'huge'),
  );
  assert.equal(client.droppedCount, 1);
});

test('a message that the server rejects leaves the queue with a warning; the others are kept', async () => {
  const { client, clock, server, warnings } = started();
  server.answerMessage = (message) =>
    isNamed(message, 'bad')
      ? { id: message.id, status: 'rejected', code: 'too_long', field: 'properties.a', message: 'Too long.' }
      : undefined;
  for (const name of ['first', 'bad', 'last']) client.track(name);
  await clock.advance(60_000);
  assert.deepEqual(server.events(), ['first', 'last']);
  assert.equal(server.received.length, 1);
  assert.equal(client.droppedCount, 1);
  assert.match(warnings[0] ?? '', /properties\.a too_long: Too long\./);
});

test('a limited message waits as long as the server says, and delays no other kind', async () => {
  const { client, clock, server } = started();
  server.answerMessage = (message) =>
    message.type === 'user_properties'
      ? { id: message.id, status: 'limited', code: 'rate_limited', retry_after: 20 }
      : undefined;
  client.addUserProperties({ plan: 'pro' });
  client.track('first');
  await clock.advance(3_000);
  assert.deepEqual(server.events(), ['first']);
  client.track('second');
  client.addUserProperties({ seats: 3 });
  await clock.advance(3_000);
  assert.deepEqual(server.events(), ['first', 'second']);
  assert.equal(server.received.length, 2);
  server.answerMessage = () => undefined;
  await clock.advance(13_999);
  assert.equal(server.received.length, 2);
  await clock.advance(3_001);
  assert.equal(server.received.length, 3);
  const set = server.stored.filter(({ type }) => type === 'user_properties');
  assert.equal(set.length, 1, 'the limited one and the later one were joined: neither was stored');
  assert.deepEqual(Object.assign({}, ...set.map((m) => ('properties' in m ? m.properties : {}))), {
    plan: 'pro',
    seats: 3,
  });
});

test('a service that refuses everything is asked only after pauses', async () => {
  const world = createWorld();
  world.server.answerWith = () => failure(400, 'invalid_type');
  const page = world.start();
  for (let n = 0; n < 300; n++) page.client.track(`e${n}`);
  await world.clock.advance(5_000);
  assert.ok(world.server.received.length < 40, `${world.server.received.length} requests`);
});

test('a message that a proxy finds too large stays behind; the others go', async () => {
  const world = createWorld();
  world.server.answerWith = ({ body }) =>
    body.length > 20_000 ? { status: 413, body: '<html>' } : undefined;
  const page = world.start();
  page.client.track(
    'large',
    Object.fromEntries(Array.from({ length: 40 }, (_, n) => [`p${n}`, 'x'.repeat(1_000)])),
  );
  for (let n = 0; n < 40; n++) page.client.track(`e${n}`, { text: 'x'.repeat(900) });
  await world.clock.advance(10 * 60_000);
  assert.deepEqual(
    world.server.events(),
    Array.from({ length: 40 }, (_, n) => `e${n}`),
  );
  assert.equal(page.client.droppedCount, 0);
  const before = world.server.received.length;
  await world.clock.advance(10 * 60_000);
  assert.ok(world.server.received.length - before < 5, 'the large message is not sent again and again');
  world.server.answerWith = () => undefined;
  world.start();
  await world.clock.advance(10 * 60_000);
  assert.ok(world.server.events().includes('large'), 'the next page tries the large message again');
});

test('over a slow network batches shrink until they get through, and their time-out grows with their bytes', async () => {
  for (const bytesPerMs of [15, 2, 0.5]) {
    const world = createWorld();
    const page = world.start({
      transport: {
        send: (url, body, timeoutMs) => ({
          answer: new Promise((resolve) => {
            const tookMs = body.length / bytesPerMs;
            world.clock.setTimer(Math.min(tookMs, timeoutMs), () =>
              resolve(tookMs <= timeoutMs ? world.server.take(url, body) : failure(0)),
            );
          }),
          outlivesPage: false,
        }),
      },
    });
    for (let n = 0; n < 500; n++) page.client.track(`e${n}`, { text: 'x'.repeat(900) });
    const bytes = 500 * 1_150;
    await world.clock.advance(6 * (bytes / bytesPerMs) + 20 * 60_000);
    assert.equal(world.server.events().length, 500, `${bytesPerMs} bytes a millisecond`);
  }
});

/**
 * A network that carries `bytesPerMs` to a server that ends each body after 8.5 seconds, with `cut` as its answer. `isOffline`: requests
 * fail at once. Returns the world, a page, and the bytes of each request.
 */
function behindImpatientServer(bytesPerMs: number, cut: TransportAnswer) {
  const world = createWorld();
  const network = { isOffline: false };
  const sent: number[] = [];
  const page = world.start({
    transport: {
      send: (url, body) => ({
        answer: new Promise((resolve) => {
          if (network.isOffline) return resolve(failure(0));
          sent.push(body.length);
          const tookMs = body.length / bytesPerMs;
          world.clock.setTimer(Math.min(tookMs, 8_500), () =>
            resolve(tookMs < 8_500 ? world.server.take(url, body) : cut),
          );
        }),
        outlivesPage: false,
      }),
    },
  });
  return { ...world, ...page, network, sent };
}

test('batches shrink when the server ends slow ones, and do not soon reach that size again', async () => {
  for (const cut of [failure(0), failure(408, 'body_too_slow'), { status: 502, body: '<html>' }]) {
    for (const bytesPerMs of [8, 1]) {
      const { client, clock, server, sent } = behindImpatientServer(bytesPerMs, cut);
      const name = `${cut.status} at ${bytesPerMs} bytes a millisecond`;
      for (let n = 0; n < 800; n++) client.track(`e${n}`, { text: 'x'.repeat(700) });
      await clock.advance(2 * ((800 * 950) / bytesPerMs) + 60_000);
      assert.deepEqual(
        server.events(),
        Array.from({ length: 800 }, (_, n) => `e${n}`),
        name,
      );
      assert.equal(client.droppedCount, 0);
      const cuts = sent.filter((bytes) => bytes / bytesPerMs >= 8_500).length;
      assert.ok(cuts > 0 && cuts < sent.length / 4, `${name}: ${cuts} of ${sent.length} were cut`);
    }
  }
});

test('after hours without a network a few requests deliver everything that waited', async () => {
  const { client, clock, network, server, sent, resume } = behindImpatientServer(1_000, failure(0));
  network.isOffline = true;
  for (let n = 0; n < 300; n++) {
    client.track(`e${n}`, { text: 'x'.repeat(700) });
    if (n % 10 === 0) await clock.advance(4 * 60_000);
  }
  network.isOffline = false;
  resume();
  await clock.advance(10_000);
  assert.equal(server.events().length, 300);
  assert.ok(sent.length <= 8, `${sent.length} requests`);
});

test('a message that is too slow even alone lets others pass until the network is back', async () => {
  const { client, clock, server, sent, resume } = behindImpatientServer(4, failure(0));
  const many = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`p${n}`, 'x'.repeat(1_000)]));
  client.track('large', many);
  for (let n = 0; n < 40; n++) client.track(`e${n}`);
  await clock.advance(10 * 60_000);
  assert.equal(server.events().length, 40);
  const isLarge = (bytes: number) => bytes > 50_000;
  assert.equal(sent.filter(isLarge).length, 2, 'with others, alone, and not again');
  client.track('small');
  resume();
  await clock.advance(60_000);
  assert.equal(sent.filter(isLarge).length, 3);
  assert.ok(isLarge(sent.at(-1) ?? 0) && server.events().includes('small'), 'it goes after all others');
});

/** A page on a network that takes `tookMs` for each batch, and the bytes and time-out of each batch that was sent. */
function onSlowNetwork(tookMs: (bytes: number) => number) {
  const world = createWorld();
  const sent: { readonly bytes: number; readonly timeoutMs: number }[] = [];
  const page = world.start({
    transport: {
      send: (url, body, timeoutMs) => ({
        answer: new Promise((resolve) => {
          sent.push({ bytes: body.length, timeoutMs });
          const ms = tookMs(body.length);
          world.clock.setTimer(Math.min(ms, timeoutMs), () =>
            resolve(ms <= timeoutMs ? world.server.take(url, body) : failure(0)),
          );
        }),
        outlivesPage: false,
      }),
    },
  });
  return { world, page, sent };
}

test('a page begins with batches of 64 KiB, and each answer doubles that up to 512 KiB', async () => {
  const { world, page, sent } = onSlowNetwork(() => 10);
  for (let n = 0; n < 200; n++) page.client.track(`e${n}`, { a: 'x'.repeat(1000), b: 'x'.repeat(1000) });
  for (let n = 0; n < 8; n++)
    for (let m = 0; m < 20; m++) {
      const many = Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`p${i}`, 'x'.repeat(1000)]));
      page.client.track(`f${n}.${m}`, many);
    }
  await world.clock.advance(60_000);
  const largest = [0, 1, 2, 3].map((n) => (sent[n]?.bytes ?? 0) / 1024);
  assert.ok((largest[0] ?? 0) <= 65 && (largest[0] ?? 0) > 55, `${largest}`);
  assert.ok((largest[1] ?? 0) <= 129 && (largest[1] ?? 0) > 110, `${largest}`);
  assert.ok((largest[2] ?? 0) <= 257 && (largest[2] ?? 0) > 180, `${largest}`);
  assert.ok(sent.every(({ bytes }) => bytes <= clientLimits.batchBytesMax + clientLimits.envelopeBytesMax));
});

test('the time-out of a request is 20 seconds plus time for its bytes', async () => {
  const { world, page, sent } = onSlowNetwork(() => 10);
  for (let n = 0; n < 100; n++) page.client.track(`e${n}`, { text: 'x'.repeat(900) });
  await world.clock.advance(10_000);
  assert.ok((sent[0]?.bytes ?? 0) > 50_000);
  for (const { bytes, timeoutMs } of sent) assert.equal(timeoutMs, 20_000 + Math.ceil(bytes / 8));
});

test('time-outs do not make batches smaller than 4 KiB', async () => {
  const { world, page, sent } = onSlowNetwork(() => Number.POSITIVE_INFINITY);
  for (let n = 0; n < 500; n++) page.client.track(`e${n}`, { text: 'x'.repeat(100) });
  await world.clock.advance(3 * 3_600_000);
  const last = sent.at(-1)?.bytes ?? 0;
  assert.ok(sent.length > 10 && last > 3_000 && last < 5_000, `${last} bytes`);
});

test('refusals among accepted messages are no reason to wait', async () => {
  const world = createWorld();
  world.server.answerWith = ({ request }) =>
    request.messages.some((message) => message.type === 'event' && message.event.startsWith('bad'))
      ? failure(400, 'invalid_type')
      : undefined;
  const page = world.start();
  for (let n = 0; n < 40; n++) page.client.track(n % 4 === 0 ? `bad${n}` : `e${n}`);
  await world.clock.advance(3_000);
  assert.deepEqual([world.server.stored.length, page.client.droppedCount], [30, 10]);
});

test('a clock that is set back does not prolong the wait of one kind', async () => {
  const { client, clock, server } = started();
  server.answerMessage = (message) => ({
    id: message.id,
    status: 'limited',
    code: 'rate_limited',
    retry_after: 5,
  });
  client.track('Event');
  await clock.advance(3_000);
  server.answerMessage = () => undefined;
  clock.set(clock.now() - 3_600_000);
  await clock.advance(10_000);
  assert.deepEqual(server.events(), ['Event']);
});
