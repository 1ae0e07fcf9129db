import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EventMessage, Message } from '../src/client/core/messages.js';
import { createWorld, testSettings } from './support/client-world.js';

/** A world with one page that records for the app 1. */
function started(settings = {}) {
  const world = createWorld();
  const page = world.open();
  page.client.start('1', { ...testSettings, ...settings });
  return { ...world, ...page };
}

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
