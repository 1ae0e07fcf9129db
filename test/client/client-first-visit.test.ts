// Several tabs that open at once on a visitor's first visit. None sees the user that another tab created, and yet they
// are one user in one session.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { connect } from '../../src/libraries/client/web/sluice.js';
import { createTestBrowser } from '../support/client-browser.js';
import {
  createLateStorage,
  createWorld,
  type TestPage,
  testSettings,
  type World,
} from '../support/client-world.js';
import fc from '../support/fast-check.js';

/** A world in which a tab sees after `ms` what another one wrote, and a way to open tabs in it. */
function firstVisit(ms: () => number = () => 300): World & { openTab(): TestPage } {
  const world = createWorld('first');
  const late = createLateStorage(world.clock, ms);
  return { ...world, openTab: () => world.start({ storage: late.view() }) };
}

function usersOf({ server }: World): string[] {
  return [...new Set(server.stored.map((message) => message.user_id))];
}

function sessionsOf({ server }: World): string[] {
  return [...new Set(server.stored.map((message) => message.session_id))];
}

test('tabs that open at once on a first visit are one user in one session, with the events that each recorded before', async () => {
  const world = firstVisit();
  const tabs = [world.openTab(), world.openTab(), world.openTab()] as const;
  for (const { client } of tabs) client.track('Opened');
  assert.equal(new Set(tabs.map(({ client }) => client.userId)).size, 3, 'each tab has a user at once');
  tabs[0].client.addUserProperties({ plan: 'pro' });
  await world.clock.advance(1_000);
  assert.equal(new Set(tabs.map(({ client }) => client.userId)).size, 1);
  for (const { client } of tabs) client.track('Later');
  await world.clock.advance(10_000);
  assert.equal(world.server.stored.length, 7);
  assert.deepEqual(usersOf(world), [tabs[0].client.userId]);
  assert.equal(sessionsOf(world).length, 1);
  assert.deepEqual(
    tabs.flatMap(({ warnings }) => warnings),
    [],
  );
});

test('on a first visit a flush waits until the tabs have agreed, if there may be others', async () => {
  const world = firstVisit();
  const tabs = [world.openTab(), world.openTab()] as const;
  const flushed = tabs.map(({ client }, n) => {
    client.track(`e${n}`);
    return client.flush();
  });
  await world.clock.advance(clientLimits.settleMs - 1);
  assert.equal(world.server.received.length, 0);
  await world.clock.advance(1);
  await Promise.all(flushed);
  await world.clock.advance(10_000);
  assert.deepEqual(world.server.events().sort(), ['e0', 'e1']);
  assert.equal(usersOf(world).length, 1);

  const third = firstVisit();
  const early = third.openTab();
  early.client.track('Early');
  void early.client.flush();
  await third.clock.advance(299);
  third.openTab().client.track('Late');
  await third.clock.advance(clientLimits.settleMs - 1);
  assert.equal(third.server.received.length, 0, 'the first second counts from the later user');

  const alone = createWorld('first');
  const { onChange, ...storage } = alone.open().storage;
  const { client } = alone.open({ storage });
  client.start('1', testSettings);
  client.track('Event');
  await client.flush();
  assert.deepEqual(alone.server.events(), ['Event']);
});

test('a clock that is set back right after a first visit does not prevent sending', async () => {
  const world = firstVisit();
  const { client } = world.openTab();
  client.track('Event');
  world.clock.set(world.clock.now() - 86_400_000);
  await client.flush();
  assert.deepEqual(world.server.events(), ['Event']);
});

test('if a tab identified the user that is dropped, the user that stays gets the identity', async () => {
  for (const identified of [0, 1] as const) {
    const world = firstVisit();
    const tabs = [world.openTab(), world.openTab()] as const;
    tabs[identified].client.track('e0');
    tabs[identified].client.identify('ada@example.com');
    tabs[1 - identified]?.client.track('e1');
    await world.clock.advance(10_000);
    for (const { client } of tabs) assert.equal(client.identity, 'ada@example.com');
    assert.equal(tabs[0].client.userId, tabs[1].client.userId);
    assert.deepEqual(usersOf(world), [tabs[0].client.userId]);
    assert.equal(sessionsOf(world).length, 1);
  }
});

test('tabs that identify different people before they see each other keep them apart', async () => {
  const world = firstVisit();
  const tabs = [world.openTab(), world.openTab()] as const;
  for (const [n, { client }] of tabs.entries()) {
    client.identify(`visitor ${n}`);
    client.track(`e${n}`);
  }
  await world.clock.advance(10_000);
  const tracked = world.server.stored.filter(({ type }) => type === 'event');
  assert.equal(new Set(tracked.map((message) => message.user_id)).size, 2);
  assert.equal(new Set(tracked.map((message) => message.identity)).size, 2);
  assert.equal(tabs[0].client.identity, tabs[1].client.identity);
});

test('after a logout in another tab, even right after a first visit, waiting events still belong to the former user', async () => {
  const world = firstVisit();
  const tab = world.openTab();
  tab.client.identify('ada@example.com');
  tab.client.track('Ada');
  await world.clock.advance(500);
  const former = tab.client.userId;
  world.openTab().client.resetIdentity();
  await world.clock.advance(500);
  tab.client.track('Next');
  await world.clock.advance(10_000);
  const users = new Map(
    world.server.stored.flatMap((message) =>
      message.type === 'event' ? [[message.event, message.user_id]] : [],
    ),
  );
  assert.equal(users.get('Ada'), former);
  assert.equal(users.get('Next'), tab.client.userId);
  assert.notEqual(tab.client.userId, former);
});

test('a user that begins after the storage was emptied inherits nothing', async () => {
  const world = createWorld('first');
  const { client } = world.open();
  client.start('1', testSettings);
  client.track('Former');
  const former = client.userId;
  world.clock.set(world.clock.now() + clientLimits.unseenMs + 1);
  world.texts.set('sluice:1:user', JSON.stringify({ id: '7', firstMs: world.clock.now() }));
  assert.equal(client.userId, '7');
  await world.clock.advance(10_000);
  assert.deepEqual(usersOf(world), [former]);
});

test('a message that was sent, or is being sent, keeps its user', async () => {
  for (const sinceMs of [1, clientLimits.exitHoldMs + 1_000]) {
    const world = createWorld('first');
    const page = world.open();
    const { client } = page;
    client.start('1', testSettings);
    client.track('Sent');
    world.server.answerWith = () => ({ status: 0, body: '' });
    page.hide();
    const former = client.userId;
    await world.clock.advance(sinceMs);
    client.track('Waits');
    world.texts.set('sluice:1:user', JSON.stringify({ id: '7', firstMs: world.clock.now() }));
    world.server.answerWith = () => undefined;
    await world.clock.advance(20_000);
    const users = world.server.stored.flatMap((message) =>
      message.type === 'event' ? [[message.event, message.user_id]] : [],
    );
    assert.deepEqual(Object.fromEntries(users), { Sent: former, Waits: '7' });
  }
});

test('a page that ends before it has learned of another tab’s user checks for it once more', async () => {
  const world = createWorld('first');
  const page = world.start();
  page.client.track('Event');
  await world.clock.advance(1);
  world.texts.set('sluice:1:user', JSON.stringify({ id: '7', firstMs: world.clock.now() }));
  page.hide();
  assert.deepEqual(usersOf(world), ['7']);
});

test('tabs that notice the end of the session at the same moment begin one new session', async () => {
  const world = firstVisit();
  const tabs = [world.openTab(), world.openTab()] as const;
  for (const { client } of tabs) client.track('Before');
  await world.clock.advance(testSettings.sessionIdleMs + 10_000);
  const before = sessionsOf(world);
  for (const { client } of tabs) client.track('After');
  await world.clock.advance(10_000);
  assert.equal(before.length, 1);
  assert.equal(sessionsOf(world).length, 2);
  assert.equal(world.server.stored.length, 4);
});

test('whenever tabs open, and however late they see each other, they are one user and lose nothing', async () => {
  // Up to three writes may follow from each other: a user, a session that a tab began before it saw that, and its replacement.
  const latency = fc.nat(Math.floor(clientLimits.settleMs / 3) - 1);
  const opening = fc.record({
    afterMs: fc.nat(500),
    events: fc.integer({ min: 1, max: 3 }),
    flushes: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(opening, { minLength: 2, maxLength: 5 }),
      fc.infiniteStream(latency),
      async (openings, latencies) => {
        const world = firstVisit(() => latencies.next().value as number);
        const names: string[] = [];
        for (const [tab, { afterMs, events, flushes }] of openings.entries()) {
          await world.clock.advance(afterMs);
          const { client } = world.openTab();
          for (let n = 0; n < events; n++) {
            names.push(`${tab}.${n}`);
            client.track(`${tab}.${n}`);
          }
          if (flushes) void client.flush();
        }
        await world.clock.advance(60_000);
        assert.deepEqual(world.server.events().sort(), names.sort());
        assert.equal(usersOf(world).length, 1);
        assert.equal(sessionsOf(world).length, 1);
      },
    ),
    { numRuns: 200 },
  );
});

test('a first user is as old as the script, not as the snippet’s calls that created it', async () => {
  const { clock, server, open } = createTestBrowser('first');
  const calledMs = clock.now();
  await clock.advance(1_500);
  const { sluice, at } = connect(open());
  at(calledMs, () => sluice.load('1', { baseUrl: testSettings.baseUrl, pageViews: false }));
  at(calledMs, () => sluice.track('Event'));
  at(calledMs + 1_400, () => void sluice.flush());
  await clock.advance(900);
  assert.equal(server.received.length, 0, 'other tabs may have made a user too');
  await clock.advance(200);
  assert.equal(server.stored[0]?.time, new Date(calledMs).toISOString());
});
