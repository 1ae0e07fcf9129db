// The client library on pages, without a browser: requests, pages that end, and tabs that take turns to send.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientLimits, requestMs } from '../../src/libraries/client/core/limits.js';
import { createTestBrowser, type WindowOptions } from '../support/client-browser.js';
import { failure, settle } from '../support/client-world.js';
import { begin, events, names, openPage, visit } from '../support/web-page.js';

test('a batch without an answer is given up after the time-out and sent again', async () => {
  const browser = createTestBrowser();
  const options: WindowOptions & { fetch?: 'never' | 'throws' | 'absent' } = { fetch: 'never' };
  const page = openPage(browser, options);
  page.sluice.track('Event');
  await browser.clock.advance(3_000 + requestMs(1_000));
  assert.equal(page.fetched.length, 1);
  const signal = page.fetched[0]?.options.signal as AbortSignal | undefined;
  assert.equal(signal?.aborted, true);
  delete options.fetch;
  await browser.clock.advance(2_000);
  assert.equal(page.fetched.length, 2);
  assert.deepEqual(names(browser), ['Event']);
});

test('a fetch that throws, is absent or is blocked breaks nothing; the messages wait', async () => {
  for (const fetch of ['throws', 'absent'] as const) {
    const { browser, page } = visit({ fetch, beacon: 'refused' });
    page.sluice.track('Event');
    page.setVisibility('hidden');
    await browser.clock.advance(600_000);
    assert.deepEqual(page.warnings, []);
    page.end();
    openPage(browser);
    await browser.clock.advance(600_000);
    assert.deepEqual(names(browser), ['Event']);
  }
});

test('the time-out needs no AbortController, and ends with the answer', async () => {
  const browser = createTestBrowser();
  const options: WindowOptions & { fetch?: 'never' } = {
    fetch: 'never',
    more: { AbortController: undefined },
  };
  const page = openPage(browser, options);
  page.sluice.track('Event');
  await browser.clock.advance(3_000 + requestMs(1_000));
  delete options.fetch;
  await browser.clock.advance(2_000);
  assert.deepEqual(names(browser), ['Event']);
  assert.equal(browser.clock.timerCount(), 0);
});

test('Retry-After reaches the library', async () => {
  const { browser, page } = visit();
  browser.server.answerWith = () => failure(503, 'overloaded', '100');
  page.sluice.track('Event');
  await browser.clock.advance(3_000 + 99_999);
  assert.equal(page.fetched.length, 1);
});

test('a page that is hidden or left sends waiting messages by a request that outlives it', async () => {
  for (const way of ['visibilitychange', 'pagehide'] as const) {
    const { browser, page } = visit();
    page.sluice.track('Event');
    if (way === 'pagehide') page.fire('pagehide');
    else page.setVisibility('hidden');
    page.end();
    assert.deepEqual(
      page.fetched.map(({ keepalive }) => keepalive),
      [true],
    );
    assert.deepEqual(names(browser), ['Event']);
  }
});

test('requests that outlive the page have at most 64 KB together, those already under way included', async () => {
  const { browser, page } = visit({ fetch: 'never', beacon: 'refused' });
  const properties = { text: 'x'.repeat(1000) };
  for (let i = 0; i < 40; i++) page.sluice.track(`e${i}`, properties);
  await browser.clock.advance(3_000);
  for (let i = 0; i < 40; i++) page.sluice.track(`f${i}`, properties);
  page.setVisibility('hidden');
  const kept = page.fetched
    .filter(({ keepalive }) => keepalive)
    .map(({ options }) => String(options.body).length);
  assert.equal(kept.length, 1);
  assert.ok((kept[0] ?? 0) > 40_000 && (kept[0] ?? 0) < 64 * 1024);
  assert.deepEqual(page.beacons, []);
  await settle();
});

test('answered requests free their room for later ones', async () => {
  const { browser, page } = visit();
  for (let batch = 0; batch < 4; batch++) {
    for (let i = 0; i < 25; i++) page.sluice.track('Event', { text: 'x'.repeat(1000) });
    await browser.clock.advance(3_000);
  }
  assert.deepEqual(
    page.fetched.map(({ keepalive }) => keepalive),
    [true, true, true, true],
  );
});

test('without keepalive the page’s last messages go by sendBeacon', async () => {
  const { browser, page } = visit({ keepalive: 'absent' });
  page.sluice.track('Event');
  page.setVisibility('hidden');
  assert.equal(page.beacons.length, 1);
  assert.deepEqual(names(browser), ['Event']);
  await browser.clock.advance(60_000);
  assert.equal(page.fetched.length, 1, 'it is sent again later, since a beacon has no answer');
  assert.deepEqual(names(browser), ['Event']);
  assert.deepEqual(
    [...browser.storage.keys()].filter((key) => key.includes(':q:')),
    [],
  );
});

test('nothing is sent or counted while the page is prerendered', async () => {
  const browser = createTestBrowser('first');
  const page = openPage(browser, { prerendering: true }, { pageViews: true });
  page.sluice.track('Event');
  page.setVisibility('hidden');
  await browser.clock.advance(60_000);
  assert.equal(page.fetched.length, 0);
  assert.equal(browser.storage.size + browser.cookies.size, 0);
  assert.equal(page.sluice.userId, undefined);
  const activated = browser.clock.now();
  page.activate();
  await browser.clock.advance(3_000);
  assert.deepEqual(names(browser), ['Event', 'Page View']);
  assert.equal(events(browser)[1]?.time, new Date(activated).toISOString());
});

test('sending is tried again when the network is back, or the page is shown, also from the cache', async (context) => {
  // The library mixes this into the bytes of the browser's random source. It is less than one bit of a byte, so it changes nothing.
  context.mock.method(Math, 'random', () => 1 / 512);
  for (const way of ['online', 'visible', 'pageshow'] as const) {
    const browser = createTestBrowser();
    // These random numbers make waits without jitter: the next one ends after 130 s.
    const crypto = { getRandomValues: (bytes: Uint8Array) => bytes };
    const page = openPage(browser, { more: { crypto } });
    browser.server.answerWith = () => failure(0);
    page.sluice.track('Event');
    await browser.clock.advance(100_000);
    browser.server.answerWith = () => undefined;
    const { length } = page.fetched;
    page.fire('pageshow', { persisted: false });
    await browser.clock.advance(clientLimits.resumeMs);
    assert.equal(page.fetched.length, length);
    if (way === 'visible') page.setVisibility('visible');
    else page.fire(way, { persisted: true });
    await browser.clock.advance(clientLimits.resumeMs);
    assert.deepEqual(names(browser), ['Event'], way);
  }
});

test('of several tabs one sends at a time', async () => {
  const browser = createTestBrowser();
  let underWay = 0;
  let most = 0;
  const tabs = Array.from({ length: 4 }, () => {
    const tab = browser.open();
    const { fetch } = tab;
    Object.assign(tab, {
      fetch: async (url: string, init: object) => {
        most = Math.max(most, ++underWay);
        await new Promise<void>((resolve) => void browser.clock.setTimer(700, resolve));
        underWay--;
        return fetch?.call(tab, url, init);
      },
    });
    return begin(tab);
  });
  for (let i = 0; i < 40; i++) {
    (tabs[i % 4] as (typeof tabs)[0]).sluice.track(`e${i}`);
    await browser.clock.advance(200);
  }
  await browser.clock.advance(120_000);
  assert.equal(most, 1);
  assert.deepEqual(
    names(browser),
    Array.from({ length: 40 }, (_, i) => `e${i}`),
  );
  const sent = tabs.flatMap(({ fetched }) =>
    fetched.flatMap(({ options }) => JSON.parse(String(options.body)).messages),
  );
  assert.equal(sent.length, 40, 'none twice');
});

for (const locks of ['browser', 'absent', 'denied'] as const)
  test(`another tab continues when a tab closes in the middle of sending (locks: ${locks})`, async () => {
    const option = locks === 'browser' ? {} : { locks };
    const browser = createTestBrowser();
    const stuck = openPage(browser, { ...option, fetch: 'never' });
    const other = openPage(browser, option);
    stuck.sluice.track('Event');
    await browser.clock.advance(3_500);
    assert.equal(stuck.fetched.length, 1);
    stuck.end();
    other.sluice.track('Other');
    await browser.clock.advance(6_000);
    assert.deepEqual(names(browser), ['Other']);
    await browser.clock.advance(clientLimits.holdMsMax);
    assert.deepEqual(names(browser), ['Other', 'Event']);
  });

test('flush settles after three seconds although another tab waits for an answer; what waits is sent after it', async () => {
  const browser = createTestBrowser();
  const slow = openPage(browser, { fetch: 'never' });
  slow.sluice.track('Slow');
  await browser.clock.advance(3_000);
  const page = openPage(browser);
  page.sluice.track('Event');
  let isSettled = false;
  void page.sluice.flush().then(() => {
    isSettled = true;
  });
  await browser.clock.advance(clientLimits.flushTurnMs);
  assert.deepEqual([isSettled, names(browser)], [true, []]);
  await browser.clock.advance(3 * requestMs(1_000));
  assert.deepEqual(names(browser).sort(), ['Event', 'Slow']);
});
