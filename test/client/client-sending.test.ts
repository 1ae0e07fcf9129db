// How the client library sends: batches, retries, holds between tabs, full and failing storage, pages that end.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TransportAnswer } from '../../src/client/core/adapters.js';
import { clientLimits } from '../../src/client/core/limits.js';
import type { Message } from '../../src/client/core/messages.js';
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

function started(settings = {}): World & TestPage {
  const world = createWorld();
  const page = world.open();
  page.client.start('1', { ...testSettings, ...settings });
  return { ...world, ...page };
}

/** One more page for the app 1, in the same browser. */
function openTab(world: World): TestPage {
  const page = world.open();
  page.client.start('1', testSettings);
  return page;
}

function isNamed(message: Message, event: string): boolean {
  return message.type === 'event' && message.event === event;
}

function waiting({ texts }: World): string[] {
  return [...texts.keys()].filter((key) => key.startsWith('sluice:1:q:'));
}

/** When the requests came, in milliseconds after the start. */
function watchTimes(world: World): number[] {
  const times: number[] = [];
  const begin = world.clock.now();
  const { answerWith } = world.server;
  world.server.answerWith = (request) => {
    times.push(world.clock.now() - begin);
    return answerWith(request);
  };
  return times;
}

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
    'nor does anything else stay',
  );
});

test('a hold ends only after its messages are removed, and tabs that see this late see it in that order', async () => {
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
    const page = openTab(world);
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
    const page = world.open({ storage: createSharedStorage().view() });
    page.client.start('1', testSettings);
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

test('a wait ends with the network’s return, but not one that the server asked for', async () => {
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

test('a clock that is set back does not lengthen a wait', async () => {
  const world = started();
  const { clock, server } = world;
  server.answerWith = () => failure(500);
  world.client.track('Event');
  await clock.advance(60_000);
  server.answerWith = () => undefined;
  clock.set(clock.now() - 400 * 24 * 3_600_000);
  world.crash();
  openTab(world);
  await clock.advance(3_000);
  assert.deepEqual(server.events(), ['Event']);
});

test('an answer of something other than the service counts as no answer', async () => {
  for (const body of [
    '<html>Sign in to the network</html>',
    '',
    'null',
    '{}',
    '{"messages":{}}',
    '{"messages":[]}',
  ]) {
    const { client, clock, server } = started();
    server.answerWith = () => ({ status: 200, body });
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
  assert.ok(Math.max(...sizes.slice(sizes.indexOf(1))) > 2, 'they grow again after a success');
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

test('user properties that another tab is sending do not change either', async () => {
  const world = started();
  const slow = world.open({
    transport: { send: () => ({ answer: new Promise(() => {}), outlivesPage: false }) },
  });
  slow.client.start('1', testSettings);
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
  const page = world.open({
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
  page.client.start('1', testSettings);
  page.client.track('Event');
  page.hide();
  await world.clock.advance(60_000);
  assert.equal(times.length, 2);
  assert.ok(
    (times[1] as number) >= clientLimits.exitHoldMs && (times[1] as number) < 2 * clientLimits.exitHoldMs,
  );
});

test('user properties wait behind earlier ones of their user that are limited or may not have arrived', async () => {
  const { clock, server, open, texts } = createWorld();
  const page = open({
    transport: {
      send: () => ({ answer: new Promise(() => {}), outlivesPage: false }),
      sendAtExit: () => new Promise(() => {}),
    },
  });
  page.client.start('1', testSettings);
  page.client.addUserProperties({ plan: 'old' });
  page.hide();
  page.crash();
  const later = openTab({ clock, server, open, texts });
  later.client.addUserProperties({ plan: 'new' });
  later.client.track('Event');
  await clock.advance(3_000);
  assert.deepEqual(server.events(), ['Event']);
  await clock.advance(clientLimits.exitHoldMs);
  assert.deepEqual(
    server.stored.flatMap((message) => (message.type === 'user_properties' ? [message.properties.plan] : [])),
    ['old', 'new'],
  );
});

test('when the page is hidden, what waits goes at once and is not sent again when it was answered', async () => {
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
  const next = openTab(world);
  next.client.track('Next Page');
  await world.clock.advance(3_000);
  assert.deepEqual(world.server.events(), ['Event', 'Next Page']);
  assert.equal(world.server.received.length, 2, 'not again at once');
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
  const next = openTab(world);
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
  openTab(world).client.track('Next');
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
  const page = world.open({
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
  page.client.start('1', testSettings);
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
  const page = world.open({
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
  page.client.start('1', testSettings);
  page.client.track('Event');
  await world.clock.advance(3_000);
  page.hide();
  page.crash();
  assert.equal(requests, 1);
  openTab(world);
  await world.clock.advance(clientLimits.exitHoldMs + 3_000);
  assert.deepEqual(world.server.events(), ['Event'], 'and the next page asks soon');
});

test('tabs share one user and one queue, and a message is sent by one of them', async () => {
  const world = started();
  const other = openTab(world);
  assert.equal(other.client.userId, world.client.userId);
  for (let i = 0; i < 20; i++) (i % 2 === 0 ? world : other).client.track(`e${i}`);
  await world.clock.advance(60_000);
  assert.equal(world.server.stored.length, 20);
  assert.equal(world.server.received.flatMap(({ request }) => request.messages).length, 20);
  other.client.identify('ada@example.com');
  assert.equal(world.client.identity, 'ada@example.com');
  world.client.resetIdentity();
  assert.equal(other.client.identity, undefined);
  assert.equal(other.client.userId, world.client.userId);
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
  const other = openTab(world);
  world.client.track('Event');
  world.crash();
  await world.clock.advance(2_999);
  assert.equal(world.server.received.length, 0);
  await world.clock.advance(6_000);
  assert.deepEqual(world.server.events(), ['Event']);
  assert.deepEqual(other.warnings, []);
});

test('another tab sends what a crashed tab was sending, and no tab does so before the crash', async () => {
  const world = createWorld();
  const stuck = world.open({
    transport: { send: () => ({ answer: new Promise(() => {}), outlivesPage: false }) },
  });
  stuck.client.start('1', testSettings);
  stuck.client.track('Event');
  await world.clock.advance(3_000);
  const other = openTab(world);
  stuck.crash();
  other.client.track('Other');
  await world.clock.advance(clientLimits.requestMsMin);
  assert.deepEqual(world.server.events(), ['Other']);
  await world.clock.advance(clientLimits.holdMsMax);
  assert.deepEqual(world.server.events(), ['Other', 'Event']);
});

/** A world in which a page is gone, and its last request, which outlives it, has no answer yet. */
async function leftInTheMiddle(record: (page: TestPage) => void): Promise<{ world: World; page: TestPage }> {
  const world = createWorld();
  const page = world.open({
    transport: { send: () => ({ answer: new Promise(() => {}), outlivesPage: true }) },
  });
  page.client.start('1', testSettings);
  record(page);
  await world.clock.advance(3_000);
  return { world, page };
}

test('a page whose predecessor left in the middle of a request waits for that, but not for its time-out', async () => {
  const { world, page } = await leftInTheMiddle(({ client }) => client.track('Event'));
  page.hide();
  page.crash();
  openTab(world);
  await world.clock.advance(clientLimits.exitHoldMs - 1);
  assert.equal(world.server.received.length, 0);
  await world.clock.advance(1_000);
  assert.deepEqual(world.server.events(), ['Event']);
});

test('nothing of a user overtakes an identification that is under way', async () => {
  const { world, page } = await leftInTheMiddle(({ client }) => client.identify('ada@example.com'));
  const other = openTab(world);
  other.client.track('Later');
  other.client.addUserProperties({ plan: 'pro' });
  await world.clock.advance(5_000);
  assert.equal(world.server.received.length, 0);
  page.crash();
  await world.clock.advance(clientLimits.holdMsMax);
  assert.deepEqual(
    world.server.stored.map(({ type }) => type),
    ['identify', 'event', 'user_properties'],
  );
});

test('a clock that is set back does not prolong what another tab was sending', async () => {
  const { world, page } = await leftInTheMiddle(({ client }) => client.track('Event'));
  page.crash();
  world.clock.set(world.clock.now() - 24 * 3_600_000);
  openTab(world);
  await world.clock.advance(3_000);
  assert.deepEqual(world.server.events(), ['Event']);
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
  const page = world.open({
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
  page.client.start('1', testSettings);
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

test('a tab’s bound includes what other tabs put into the queue', () => {
  const world = started();
  const other = openTab(world);
  for (let i = 0; i < clientLimits.queueMessagesMax; i++) world.client.track(`a${i}`);
  for (let i = 0; i < 200; i++) other.client.track(`b${i}`);
  assert.ok(waiting(world).length <= clientLimits.queueMessagesMax + 50, `${waiting(world).length}`);
});

test('damaged texts in storage are dropped and delay nothing', async () => {
  const world = createWorld();
  world.texts.set('sluice:1:q:00000000001.5.e.x', '{"id":');
  world.texts.set('sluice:1:q:garbage', 'null');
  world.texts.set('sluice:1:h:x', '{');
  world.texts.set('sluice:1:backoff', '[]');
  world.texts.set('sluice:%E0%A4%A:q:1', 'x');
  world.texts.set('sluice', 'x');
  const page = openTab(world);
  page.client.track('Event');
  await world.clock.advance(3_000);
  assert.deepEqual(world.server.events(), ['Event']);
  assert.equal(page.client.droppedCount, 2);
  assert.deepEqual(waiting(world), []);
});

test('a key in storage with the highest possible order does not mix up what comes after it', async () => {
  const world = createWorld();
  world.texts.set('sluice:1:q:zzzzzzzzzzzzzzzz.1.e.x', '{"type":"event","id":"x","user_id":"1"}');
  const page = openTab(world);
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
  const page = world.open({
    transport: {
      send: (url, body) => {
        if (broken) throw new Error('no transport');
        return { answer: Promise.resolve(world.server.take(url, body)), outlivesPage: false };
      },
    },
  });
  page.client.start('1', testSettings);
  page.client.track('Event');
  await page.client.flush();
  assert.match(page.warnings[0] ?? '', /sending failed inside the library/);
  broken = false;
  page.client.track('Later');
  await world.clock.advance(60_000);
  assert.deepEqual(world.server.events(), ['Event', 'Later']);
});

test('a 400 from a proxy is not a refusal: the client drops nothing and retries after growing pauses', async () => {
  const world = createWorld();
  world.server.answerWith = () => ({ status: 400, body: '<html>Log in to the Wi-Fi</html>' });
  const page = openTab(world);
  for (let n = 0; n < 300; n++) page.client.track(`e${n}`);
  await world.clock.advance(60_000);
  assert.ok(world.server.received.length < 12, `${world.server.received.length} requests`);
  assert.equal(page.client.droppedCount, 0);
  world.server.answerWith = () => undefined;
  await world.clock.advance(10 * 60_000);
  assert.equal(new Set(world.server.events()).size, 300);
});

test('a service that refuses everything is asked only after pauses', async () => {
  const world = createWorld();
  world.server.answerWith = () => failure(400, 'invalid_type');
  const page = openTab(world);
  for (let n = 0; n < 300; n++) page.client.track(`e${n}`);
  await world.clock.advance(5_000);
  assert.ok(world.server.received.length < 40, `${world.server.received.length} requests`);
});

test('a message that a proxy finds too large stays behind; the others go', async () => {
  const world = createWorld();
  world.server.answerWith = ({ body }) =>
    body.length > 20_000 ? { status: 413, body: '<html>' } : undefined;
  const page = openTab(world);
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
  assert.ok(world.server.received.length - before < 5, 'it is not sent again and again');
  world.server.answerWith = () => undefined;
  openTab(world);
  await world.clock.advance(10 * 60_000);
  assert.ok(world.server.events().includes('large'), 'the next page tries it again');
});

test('over a slow network batches shrink until they get through, and their time-out grows with their bytes', async () => {
  for (const bytesPerMs of [15, 2, 0.5]) {
    const world = createWorld();
    const page = world.open({
      transport: {
        send: (url, body, timeoutMs) => ({
          answer: new Promise((resolve) => {
            const tookMs = body.length / bytesPerMs;
            world.clock.setTimer(Math.min(tookMs, timeoutMs), () =>
              resolve(
                tookMs <= timeoutMs ? world.server.take(url, body) : { status: 0, body: '', timedOut: true },
              ),
            );
          }),
          outlivesPage: false,
        }),
      },
    });
    page.client.start('1', testSettings);
    for (let n = 0; n < 500; n++) page.client.track(`e${n}`, { text: 'x'.repeat(900) });
    const bytes = 500 * 1_150;
    await world.clock.advance(6 * (bytes / bytesPerMs) + 20 * 60_000);
    assert.equal(world.server.events().length, 500, `${bytesPerMs} bytes a millisecond`);
  }
});

test('a clock set back during a Retry-After does not prolong it', async () => {
  const world = createWorld();
  world.server.answerWith = () => failure(503, 'overloaded', '60');
  const { client } = openTab(world);
  client.track('Event');
  await world.clock.advance(3_000);
  world.server.answerWith = () => undefined;
  world.clock.set(world.clock.now() - 3_600_000);
  await world.clock.advance(80_000);
  assert.deepEqual(world.server.events(), ['Event']);
});

test('what could not be sent for 30 days is dropped and counted; younger messages are not', async () => {
  const world = createWorld();
  world.server.answerWith = () => failure(0);
  const first = openTab(world);
  first.client.track('Old');
  await world.clock.advance(3_000);
  first.crash();
  await world.clock.advance(31 * 86_400_000);
  const { client } = openTab(world);
  client.track('Young');
  await world.clock.advance(60_000);
  assert.equal(client.droppedCount, 0, 'a few failures are not enough: the clock may be wrong');
  await world.clock.advance(2 * 3_600_000);
  assert.equal(client.droppedCount, 1);
  world.server.answerWith = () => undefined;
  await world.clock.advance(3_600_000);
  assert.deepEqual(world.server.events(), ['Young']);
});

test('a tab that is opted out by default, where nobody has chosen, leaves others’ messages alone', async () => {
  const world = createWorld();
  const page = openTab(world);
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

/** A page on a network that takes `tookMs` for each batch, and the bytes of each batch that was sent. */
function onSlowNetwork(tookMs: (bytes: number) => number) {
  const world = createWorld();
  const sent: { readonly bytes: number; readonly timeoutMs: number }[] = [];
  const page = world.open({
    transport: {
      send: (url, body, timeoutMs) => ({
        answer: new Promise((resolve) => {
          sent.push({ bytes: body.length, timeoutMs });
          const ms = tookMs(body.length);
          world.clock.setTimer(Math.min(ms, timeoutMs), () =>
            resolve(ms <= timeoutMs ? world.server.take(url, body) : { status: 0, body: '', timedOut: true }),
          );
        }),
        outlivesPage: false,
      }),
    },
  });
  page.client.start('1', testSettings);
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
  const page = openTab(world);
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

test('a tab that adds little notices that another tab adds much', () => {
  const world = started();
  const other = openTab(world);
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
  const page = world.open({ storage: { ...storage, get } });
  page.client.start('1', testSettings);
  page.client.track('Event');
  broken = true;
  assert.doesNotThrow(() => page.hide());
  assert.doesNotThrow(() => page.resume());
});
