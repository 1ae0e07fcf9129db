// The client library on pages, without a browser: what it keeps in cookies and storage, and how that fails.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { createSluice } from '../../src/libraries/client/web/sluice.js';
import { createTestBrowser, type TestWindow } from '../support/client-browser.js';
import { failure } from '../support/client-world.js';
import { baseUrl, begin, events, lastWaiting, names, openPage, visit } from '../support/web-page.js';

test('global event properties are one cookie of the whole site, for 400 days, secure where the page is', async () => {
  const { browser, page } = visit();
  page.sluice.addEventProperties({ plan: 'pro', 'first name': 'Ada; née' });
  assert.equal(browser.cookies.get('sluice_1'), 'plan=pro&first%20name=Ada%3B%20n%C3%A9e');
  assert.match(browser.cookieWrites[0] ?? '', /;path=\/;max-age=34560000;samesite=lax;secure$/);
  const plain = openPage(browser, { url: 'http://shop.example/' });
  plain.sluice.addEventProperties({ a: 1 });
  assert.match(browser.cookieWrites.at(-1) ?? '', /;samesite=lax$/);
  page.sluice.clearEventProperties();
  assert.equal(browser.cookies.get('sluice_1'), '~1', 'other tabs see that there was a removal');
  await browser.clock.advance(clientLimits.propertiesCheckMs * clientLimits.propertiesChecks);
  assert.equal(browser.cookies.size, 0);
});

test('each page that records renews the life of the cookie', () => {
  const browser = createTestBrowser();
  browser.cookies.set('sluice_1', 'plan=pro');
  const page = openPage(browser);
  page.sluice.track('Event');
  page.sluice.track('Another');
  assert.equal(browser.cookieWrites.length, 1);
  assert.match(browser.cookieWrites[0] ?? '', /^sluice_1=plan=pro;path=\/;max-age=34560000/);
});

test('where cookies are denied, or quietly not kept, global event properties last as long as the page', async () => {
  for (const cookies of ['denied', 'ignored'] as const) {
    const { browser, page } = visit({ cookies });
    page.sluice.addEventProperties({ plan: 'pro' });
    page.sluice.addEventProperties({ step: 2 });
    page.sluice.removeEventProperty('plan');
    page.sluice.track('Event');
    await browser.clock.advance(3_000);
    assert.deepEqual(events(browser)[0]?.properties, { step: 2 });
    assert.equal(page.warnings.length, 1);
    page.sluice.clearEventProperties();
    page.sluice.track('Later');
    await browser.clock.advance(3_000);
    assert.deepEqual(events(browser)[1]?.properties, {});
  }
});

test('where cookies are no longer kept, an older one does not hide what was added since', () => {
  const browser = createTestBrowser();
  const options: { cookies?: 'ignored' } = {};
  const page = openPage(browser, options);
  page.sluice.addEventProperties({ plan: 'free' });
  options.cookies = 'ignored';
  page.sluice.addEventProperties({ plan: 'pro' });
  page.sluice.track('Event');
  assert.deepEqual(JSON.parse(lastWaiting(browser)).properties, { plan: 'pro' });
  assert.equal(page.warnings.length, 1);
});

test('where storage is denied, absent or full, the page still works, with one warning', async () => {
  for (const localStorage of ['denied', 'absent', 'full', 'silent'] as const) {
    const browser = createTestBrowser('first');
    const page = openPage(browser, { localStorage });
    page.sluice.identify('ada@example.com');
    const { userId } = page.sluice;
    page.sluice.track('Event');
    page.sluice.addUserProperties({ a: 1 });
    page.sluice.addUserProperties({ b: 2 });
    assert.equal(page.sluice.userId, userId);
    browser.server.answerWith = () => failure(500);
    await browser.clock.advance(3_000);
    browser.server.answerWith = () => undefined;
    await browser.clock.advance(60_000);
    assert.deepEqual(names(browser), ['Event']);
    assert.equal(browser.server.stored.length, 3, localStorage);
    assert.equal(page.warnings.length, 1);
    assert.match(page.warnings[0] ?? '', /^Sluice: localStorage is full or denied/);
    assert.equal(browser.storage.size, 0);
  }
});

test('storage that fills up while the page lives keeps order and loses nothing', async () => {
  const options: { localStorage?: 'full' } = {};
  const { browser, page } = visit(options);
  page.sluice.identify('ada@example.com');
  page.sluice.track('Stored');
  options.localStorage = 'full';
  page.sluice.track('In Memory');
  page.sluice.resetIdentity();
  assert.equal(page.sluice.identity, undefined);
  assert.equal(browser.storage.has('sluice:1:user'), false, 'no later page takes up the former user');
  delete options.localStorage;
  page.sluice.track('Stored Again');
  page.sluice.identify('bob@example.com');
  assert.equal(page.sluice.identity, 'bob@example.com');
  assert.match(browser.storage.get('sluice:1:user') ?? '', /bob@example\.com/);
  await browser.clock.advance(3_000);
  assert.deepEqual(names(browser), ['Stored', 'In Memory', 'Stored Again']);
});

test('messages that stayed in memory while storage was full are stored once there is room, and outlive the page', async () => {
  const browser = createTestBrowser();
  const options: { localStorage?: 'full' } = { localStorage: 'full' };
  const page = openPage(browser, options);
  page.sluice.identify('ada@example.com');
  page.sluice.track('In Memory');
  page.sluice.track('In Memory Too');
  const { userId } = page.sluice;
  delete options.localStorage;
  page.sluice.track('Stored');
  page.end();
  const next = openPage(browser);
  assert.deepEqual([next.sluice.userId, next.sluice.identity], [userId, 'ada@example.com']);
  await browser.clock.advance(3_000);
  assert.deepEqual(names(browser), ['In Memory', 'In Memory Too', 'Stored']);
  assert.equal(browser.server.stored.length, 4);
});

test('messages that stayed in memory are stored once sent ones make room', async () => {
  const options: { localStorage?: 'full' } = {};
  const { browser, page } = visit(options);
  page.sluice.track('Event');
  options.localStorage = 'full';
  page.sluice.identify('ada@example.com');
  browser.server.answerWith = () => {
    delete options.localStorage;
    return undefined;
  };
  await browser.clock.advance(3_000);
  assert.match(browser.storage.get('sluice:1:user') ?? '', /ada@example\.com/);
});

test('messages that stayed in memory do not overwrite those that another tab has stored since', () => {
  const options: { localStorage?: 'full' } = {};
  const { browser, page } = visit(options);
  options.localStorage = 'full';
  page.sluice.identify('ada@example.com');
  page.sluice.resetIdentity();
  const other = openPage(browser);
  other.sluice.identify('bob@example.com');
  delete options.localStorage;
  page.sluice.track('Event');
  assert.equal(other.sluice.identity, 'bob@example.com');
  assert.deepEqual([page.sluice.userId, page.sluice.identity], [other.sluice.userId, other.sluice.identity]);
});

test('opting out in one tab also removes messages that another one has only in memory', async () => {
  for (const way of ['interval', 'hidden'] as const) {
    const { browser, page } = visit({ localStorage: 'full' });
    const other = openPage(browser);
    page.sluice.track('Event');
    other.sluice.optOut();
    if (way === 'hidden') page.setVisibility('hidden');
    else await browser.clock.advance(3_000);
    other.sluice.optIn();
    await browser.clock.advance(60_000);
    await page.sluice.flush();
    assert.deepEqual(names(browser), []);
  }
});

/** The storage of a window, which counts how often its keys are listed and how often it is written and read. */
function countStorage(win: TestWindow) {
  const used = { lists: 0, writes: 0, reads: 0 };
  const storage = new Proxy(win.localStorage as object, {
    ownKeys(target) {
      used.lists++;
      return Reflect.ownKeys(target);
    },
    get(target, name) {
      if (name === 'setItem' || name === 'removeItem') used.writes++;
      if (name === 'getItem') used.reads++;
      return Reflect.get(target, name);
    },
  });
  Object.defineProperty(win, 'localStorage', { value: storage });
  return used;
}

/** A page with this many waiting events, while the network is away. */
async function openWaiting(count: number) {
  const browser = createTestBrowser();
  browser.server.answerWith = () => failure(503, 'overloaded', '3600');
  const former = openPage(browser);
  for (let n = 0; n < count; n++) former.sluice.track(`e${n}`, { a: 1 });
  await former.sluice.flush();
  former.end();
  const win = browser.open();
  const used = countStorage(win);
  const page = begin(win);
  page.sluice.track('first');
  page.sluice.addUserProperties({ turn: -1 });
  const since = { ...used };
  return { browser, page, used, since };
}

test('a call writes the same few texts, and an event seldom lists the keys, however many messages wait', async () => {
  for (const count of [0, 4_800]) {
    const { page, used, since } = await openWaiting(count);
    for (let n = 0; n < 50; n++) page.sluice.track(`f${n}`, { a: 1 });
    assert.equal(used.writes - since.writes, 50, 'each is written once');
    assert.ok(used.lists - since.lists <= 3, `${used.lists - since.lists} lists`);
    Object.assign(since, used);
    for (let n = 0; n < 50; n++) page.sluice.addUserProperties({ turn: n });
    assert.equal(used.writes - since.writes, 100, 'each is written, and replaces the one before');
    assert.ok(used.reads - since.reads <= 50 * 25, `${used.reads - since.reads} reads`);
  }
});

test('a full queue makes room for many messages at once', async () => {
  const { browser, page, used, since } = await openWaiting(clientLimits.queueMessagesMax);
  for (let n = 0; n < 1_000; n++) page.sluice.track(`f${n}`);
  assert.ok(used.lists - since.lists <= 4 * 21, `${used.lists - since.lists} lists`);
  assert.ok(used.writes - since.writes <= 2_000 + 60, `${used.writes - since.writes} writes`);
  const waiting = [...browser.storage.keys()].filter((key) => key.includes(':q:'));
  assert.ok(waiting.length <= clientLimits.queueMessagesMax);
  assert.equal(waiting.length + page.sluice.droppedCount, clientLimits.queueMessagesMax + 1_002);
});

test('an event that waits takes at most 280 characters of storage beyond its properties', () => {
  const { browser, page } = visit();
  const properties = { product: 'Espresso machine', price: 249.5, currency: 'EUR', quantity: 1 };
  page.sluice.track('Product Viewed', properties);
  const [key = ''] = [...browser.storage.keys()].filter((name) => name.includes(':q:'));
  const stored = key.length + (browser.storage.get(key)?.length ?? 0);
  assert.ok(stored - JSON.stringify(properties).length <= 280, `${stored}`);
});

test('however many keys somebody has put into the storage, a page records and sends', async () => {
  const browser = createTestBrowser();
  for (let n = 0; n < 200_000; n++) browser.storage.set(`sluice:1:h:${n}`, '');
  const win = browser.open();
  const sluice = createSluice(win);
  sluice.load('1', { baseUrl, pageViews: false });
  sluice.track('Event');
  await sluice.flush();
  assert.deepEqual(browser.server.events(), ['Event']);
});
