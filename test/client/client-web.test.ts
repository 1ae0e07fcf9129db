// The client library on pages, without a browser: page views, sessions, users over tabs and cookies, consent.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KeyValueStorage } from '../../src/client/core/adapters.js';
import { clientLimits, requestMs } from '../../src/client/core/limits.js';
import type { EventMessage } from '../../src/client/core/messages.js';
import { takeBrowser } from '../../src/client/web/browser.js';
import { createLocalStorage } from '../../src/client/web/local-storage.js';
import { createSluice, type LoadOptions, type Sluice } from '../../src/client/web/sluice.js';
import { createSendingTurn } from '../../src/client/web/tabs.js';
import {
  createTestBrowser,
  type TestBrowser,
  type TestWindow,
  type WindowOptions,
} from '../support/client-browser.js';
import { failure, settle } from '../support/client-world.js';

const baseUrl = 'https://events.example';

/** A page of the browser that has loaded the library for the app 1, without page views unless they are asked for. */
function openPage(
  browser: TestBrowser,
  options: WindowOptions = {},
  load: Partial<LoadOptions> = {},
): TestWindow & { sluice: Sluice } {
  return begin(browser.open(options), load);
}

function begin(win: TestWindow, load: Partial<LoadOptions> = {}): TestWindow & { sluice: Sluice } {
  const sluice = createSluice(win);
  sluice.load('1', { baseUrl, pageViews: false, ...load });
  return Object.assign(win, { sluice });
}

function events(browser: TestBrowser): EventMessage[] {
  return browser.server.stored.filter((message) => message.type === 'event');
}

function names(browser: TestBrowser): string[] {
  return browser.server.events();
}

/** The last message that waits in storage. */
function lastWaiting({ storage }: TestBrowser): string {
  const keys = [...storage.keys()].filter((key) => key.startsWith('sluice:1:q:'));
  return storage.get(keys.at(-1) as string) as string;
}

test('a page view is recorded with address, path, title and referrer, and the global event properties', async () => {
  const browser = createTestBrowser();
  const first = openPage(browser);
  first.sluice.addEventProperties({ plan: 'pro' });
  const referrer = 'https://search.example/?q=ada@example.com';
  openPage(browser, { title: 'Offers', referrer }, { pageViews: true });
  await browser.clock.advance(3_000);
  const [view] = events(browser);
  assert.equal(view?.event, 'Page View');
  assert.equal(view?.autocaptured, true);
  assert.deepEqual(view?.properties, {
    url: 'https://shop.example/start',
    path: '/start',
    title: 'Offers',
    referrer: 'https://search.example/',
    plan: 'pro',
  });
  assert.equal(events(browser).length, 1, 'there is none where the option is off');
});

test('a page view holds the query only on request, and a function may redact its addresses', async () => {
  const browser = createTestBrowser();
  const referrer = 'https://search.example/?q=1#2';
  const redact = (url: string) =>
    url.replace(/\/users\/[^/?#]*/, '/users/someone').replace(/token=\w+/, 'token=');
  const url = 'https://shop.example/users/ada?token=secret&tab=2#top';
  const broken = () => {
    throw new Error('a fault of the page');
  };
  const recorded: unknown[] = [];
  for (const pageViews of [true, {}, { query: true }, { redact }]) {
    openPage(browser, { url, referrer }, { pageViews } as never);
    await browser.clock.advance(3_000);
    const { properties } = events(browser).at(-1) ?? {};
    recorded.push([properties?.url, properties?.path, properties?.referrer]);
  }
  assert.deepEqual(recorded, [
    ['https://shop.example/users/ada', '/users/ada', 'https://search.example/'],
    ['https://shop.example/users/ada', '/users/ada', 'https://search.example/'],
    ['https://shop.example/users/ada?token=secret&tab=2', '/users/ada', 'https://search.example/?q=1'],
    ['https://shop.example/users/someone?token=&tab=2#top', '/users/someone', referrer],
  ]);
  // If the function fails, the address is not recorded, and the page goes on.
  for (const redact of [broken, () => 7, 'no function']) {
    const page = openPage(browser, { url, referrer }, { pageViews: { query: true, redact } } as never);
    page.history?.pushState(null, '', '/users/bob?token=secret');
    page.fire('popstate');
    page.fire('pageshow', { persisted: true });
    page.sluice.track('Next');
    await browser.clock.advance(3_000);
    assert.match(page.warnings.join(), /failed inside the library/);
  }
  assert.deepEqual(names(browser).slice(4), ['Next', 'Next', 'Next']);
});

test('the campaign labels of a link are properties of the page view, as far as the page lets the library see them', async () => {
  const browser = createTestBrowser();
  const url =
    'https://shop.example/start?q=ada&utm_source=news+letter&utm_medium=e%2Dmail&utm_term=%E0&utm_user=ada#utm_id=7';
  const recorded: unknown[] = [];
  for (const pageViews of [true, { redact: (url: string) => url.replace(/&utm_medium=[^&#]*/, '') }]) {
    openPage(browser, { url }, { pageViews });
    await browser.clock.advance(3_000);
    const properties = events(browser).at(-1)?.properties ?? {};
    recorded.push(Object.entries(properties).filter(([key]) => key.startsWith('utm_')));
  }
  const source = ['utm_source', 'news letter'];
  assert.deepEqual(recorded, [[source, ['utm_medium', 'e-mail']], [source]]);
});

test('a page that routes by the fragment may count its changes as page views', async () => {
  for (const fragment of [false, true]) {
    const browser = createTestBrowser();
    const page = openPage(browser, {}, { pageViews: { fragment } });
    page.go('/start?a=1#/offers');
    page.fire('popstate');
    await browser.clock.advance(0);
    page.go('/start?a=1#/orders');
    page.fire('popstate');
    await browser.clock.advance(3_000);
    const urls = events(browser).map(({ properties }) => properties.url);
    const start = 'https://shop.example/start';
    const first = `${start}#top`;
    assert.deepEqual(urls, fragment ? [first, `${start}#/offers`, `${start}#/orders`] : [start, start]);
  }
});

test('a session ends after the idle minutes that the page asks for', async () => {
  for (const [sessionIdleMinutes, minutes] of [
    [1, 1],
    [90, 90],
    [0, 30],
    [1441, 30],
    ['soon', 30],
  ] as const) {
    const browser = createTestBrowser();
    const { sluice } = openPage(browser, {}, { sessionIdleMinutes } as never);
    sluice.track('One');
    await browser.clock.advance(minutes * 60_000 - 1_000);
    sluice.track('Two');
    await browser.clock.advance(minutes * 60_000 + 2_000);
    sluice.track('Three');
    await browser.clock.advance(3_000);
    const [one, two, three] = events(browser).map(({ session_id }) => session_id);
    assert.equal(one, two, String(sessionIdleMinutes));
    assert.notEqual(two, three, String(sessionIdleMinutes));
  }
});

test('beforeSend changes or drops what is recorded, and what it returns is checked', async () => {
  const browser = createTestBrowser();
  const asked: unknown[] = [];
  const page = openPage(
    browser,
    { url: 'https://shop.example/users/ada' },
    {
      pageViews: true,
      beforeSend: (message) => {
        asked.push(JSON.parse(JSON.stringify(message)));
        if (message.type === 'identify') return { ...message, identity: `hash of ${message.identity}` };
        if (message.type === 'user_properties')
          return { ...message, properties: { plan: 'x'.repeat(256), b: 2 } };
        if (message.event === 'Debug') return null;
        if (message.event === 'Broken') throw new Error('of the page');
        if (message.event === 'Nothing') return undefined as never;
        if (message.event === 'Renamed') return { type: 'event', event: '' };
        if (message.event === 'Other') return { type: 'identify', identity: 'bob' };
        if (message.event === 'Nested') page.sluice.track('Within');
        return {
          ...message,
          properties: { ...message.properties, url: undefined, seen: true, own: {} as never },
        };
      },
    },
  );
  const { sluice } = page;
  sluice.addEventProperties({ global: 'g' });
  for (const name of ['Kept', 'Debug', 'Broken', 'Nothing', 'Renamed', 'Other', 'Nested'])
    sluice.track(name, { a: 1 });
  sluice.identify('ada@example.com');
  sluice.addUserProperties({ a: 1 });
  await browser.clock.advance(3_000);
  assert.deepEqual(names(browser), ['Page View', 'Kept', 'Nested']);
  assert.deepEqual(events(browser)[1]?.properties, { a: 1, global: 'g', seen: 'true' });
  assert.equal(events(browser)[0]?.properties.url, undefined);
  assert.deepEqual(asked.slice(0, 2), [
    {
      type: 'event',
      event: 'Page View',
      properties: { url: 'https://shop.example/users/ada', path: '/users/ada', title: 'Start', referrer: '' },
      autocaptured: true,
    },
    { type: 'event', event: 'Kept', properties: { a: 1, global: 'g' } },
  ]);
  assert.equal(asked.length, 10);
  assert.equal(sluice.identity, 'hash of ada@example.com');
  const others = browser.server.stored.filter(({ type }) => type !== 'event');
  assert.deepEqual(
    others.map((message) => [message.type, message.identity, 'properties' in message && message.properties]),
    [
      ['identify', 'hash of ada@example.com', false],
      ['user_properties', 'hash of ada@example.com', { b: 2 }],
    ],
  );
  // The same identity again is not a new user.
  const user = sluice.userId;
  sluice.identify('ada@example.com');
  assert.equal(sluice.userId, user);
});

test('beforeSend that opts out records nothing more, and is not asked while the user has opted out', async () => {
  const browser = createTestBrowser();
  let asked = 0;
  const { sluice } = openPage(
    browser,
    {},
    {
      beforeSend: (message) => {
        asked += 1;
        sluice.optOut();
        return message;
      },
    },
  );
  for (const name of ['One', 'Two']) sluice.track(name);
  sluice.identify('ada@example.com');
  await browser.clock.advance(3_000);
  assert.deepEqual([names(browser), asked], [[], 1]);
});

test('a page view’s texts are cut to what a property takes', async () => {
  const browser = createTestBrowser();
  openPage(
    browser,
    { url: `https://shop.example/${'x'.repeat(3000)}`, title: '😀'.repeat(2000) },
    { pageViews: true },
  );
  await browser.clock.advance(3_000);
  assert.equal(String(events(browser)[0]?.properties.url).length, 1023);
  assert.equal([...String(events(browser)[0]?.properties.title)].length, 1023);
});

test('if a page has frozen its history, only the page views of that history are missing', async () => {
  for (const prerendering of [false, true]) {
    const browser = createTestBrowser();
    const more = { history: Object.freeze({ pushState() {}, replaceState() {} }) };
    const page = openPage(browser, { more, prerendering }, { pageViews: true });
    page.activate();
    page.sluice.track('Event');
    await browser.clock.advance(3_000);
    assert.deepEqual(names(browser), ['Page View', 'Event']);
    assert.deepEqual(page.warnings, []);
  }
});

test('navigation by the history is a page view each, with the new title and the last address as referrer', async () => {
  const browser = createTestBrowser();
  const page = openPage(browser, {}, { pageViews: true });
  page.history?.pushState(null, '', '/offers');
  (page.document as { title: string }).title = 'Offers';
  await browser.clock.advance(0);
  page.history?.pushState(null, '', '/offers#details');
  await browser.clock.advance(0);
  page.go('/start');
  page.fire('popstate');
  page.sluice.load('1', { baseUrl });
  await browser.clock.advance(3_000);
  assert.deepEqual(
    events(browser).map(({ properties }) => [properties.path, properties.title, properties.referrer]),
    [
      ['/start', 'Start', ''],
      ['/offers', 'Offers', 'https://shop.example/start'],
      ['/start', 'Offers', 'https://shop.example/offers'],
    ],
  );
});

test('an address that the page replaces, or navigates to, is a page view, and so is a page that is shown again', async () => {
  const browser = createTestBrowser();
  const listeners: (() => void)[] = [];
  const navigation = { addEventListener: (_: string, listener: () => void) => listeners.push(listener) };
  const page = openPage(browser, { more: { navigation } }, { pageViews: true });
  page.history?.replaceState(null, '', '/replaced');
  await browser.clock.advance(0);
  page.go('/navigated');
  for (const listener of listeners) listener();
  await browser.clock.advance(0);
  page.fire('pageshow', { persisted: false });
  page.fire('pageshow', { persisted: true });
  await browser.clock.advance(3_000);
  assert.deepEqual(
    events(browser).map(({ properties }) => properties.path),
    ['/start', '/replaced', '/navigated', '/navigated'],
  );
});

test('user, session, identity and global event properties go on over page loads and tabs', async () => {
  const browser = createTestBrowser();
  const first = openPage(browser);
  first.sluice.identify('ada@example.com');
  first.sluice.addEventProperties({ plan: 'pro' });
  const second = openPage(browser);
  assert.equal(second.sluice.userId, first.sluice.userId);
  assert.equal(second.sluice.identity, 'ada@example.com');
  second.sluice.track('Event');
  await browser.clock.advance(3_000);
  assert.deepEqual(events(browser)[0]?.properties, { plan: 'pro' });
  assert.equal(new Set(browser.server.stored.map(({ session_id }) => session_id)).size, 1);
});

test('global event properties are one cookie of the whole site, for 400 days, secure where the page is', async () => {
  const browser = createTestBrowser();
  const page = openPage(browser);
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

test('a call that makes the cookie larger than 4,096 bytes is refused whole, and the old properties stay', async () => {
  const browser = createTestBrowser();
  const page = openPage(browser);
  page.sluice.addEventProperties({ plan: 'pro' });
  const text = 'x'.repeat(900);
  page.sluice.addEventProperties({ a: text, b: text, c: text, d: text });
  const size = (): number => `sluice_1=${browser.cookies.get('sluice_1')}`.length;
  const room = clientLimits.cookieBytesMax - size() - '&e='.length;
  const before = browser.cookies.get('sluice_1');
  page.sluice.addEventProperties({ f: 1, e: 'x'.repeat(room - '&f:1'.length + 1) });
  assert.equal(browser.cookies.get('sluice_1'), before);
  assert.equal(page.warnings.length, 1);
  page.sluice.addEventProperties({ e: 'x'.repeat(room + 1) });
  assert.equal(browser.cookies.get('sluice_1'), before);
  assert.equal(page.warnings.length, 2);
  page.sluice.addEventProperties({ e: 'x'.repeat(room - 1) });
  assert.equal(size(), clientLimits.cookieBytesMax - 1);
  page.sluice.addEventProperties({ e: 'x'.repeat(room) });
  assert.equal(size(), clientLimits.cookieBytesMax);
  assert.equal(page.warnings.length, 2);
  page.sluice.track('Event');
  await browser.clock.advance(3_000);
  assert.equal(events(browser)[0]?.properties.plan, 'pro');
});

test('where cookies are denied, or quietly not kept, global event properties last as long as the page', async () => {
  for (const cookies of ['denied', 'ignored'] as const) {
    const browser = createTestBrowser();
    const page = openPage(browser, { cookies });
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
  for (const localStorage of ['denied', 'absent', 'full'] as const) {
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
  const browser = createTestBrowser();
  const options: { localStorage?: 'full' } = {};
  const page = openPage(browser, options);
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

test('what stayed in memory while storage was full is stored once there is room, and outlives the page', async () => {
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
  const browser = createTestBrowser();
  const options: { localStorage?: 'full' } = {};
  const page = openPage(browser, options);
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

test('what stayed in memory is not stored over what another tab stored since', () => {
  const browser = createTestBrowser();
  const options: { localStorage?: 'full' } = {};
  const page = openPage(browser, options);
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

test('opting out in one tab also removes what another one has only in memory', async () => {
  for (const way of ['interval', 'hidden'] as const) {
    const browser = createTestBrowser();
    const page = openPage(browser, { localStorage: 'full' });
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

test('batches are texts without credentials or headers of their own, so that browsers send no preflight', async () => {
  const browser = createTestBrowser();
  const page = openPage(browser);
  page.sluice.track('Event');
  await browser.clock.advance(3_000);
  const [request] = page.fetched;
  assert.equal(request?.url, 'https://events.example/api/collect');
  assert.equal(request?.options.method, 'POST');
  assert.equal(typeof request?.options.body, 'string');
  assert.equal(request?.options.credentials, 'omit');
  assert.equal('headers' in (request?.options ?? {}), false);
  assert.equal(request?.keepalive, true, 'a small one outlives the page');
});

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

test('after a batch without an answer in time the client sends half of it', async () => {
  const browser = createTestBrowser();
  const page = openPage(browser, { fetch: 'never' });
  for (let n = 0; n < 60; n++) page.sluice.track(`e${n}`, { text: 'x'.repeat(900) });
  await browser.clock.advance(4_000 + 2 * requestMs(64 * 1024));
  const sizes = page.fetched.map(({ options }) => String(options.body).length);
  assert.ok(sizes.length >= 2 && (sizes[1] ?? 0) < 0.6 * (sizes[0] ?? 0), `${sizes}`);
});

test('a fetch that throws, is absent or is blocked breaks nothing; the messages wait', async () => {
  for (const fetch of ['throws', 'absent'] as const) {
    const browser = createTestBrowser();
    const page = openPage(browser, { fetch, beacon: 'refused' });
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
  const browser = createTestBrowser();
  const page = openPage(browser);
  browser.server.answerWith = () => failure(503, 'overloaded', '100');
  page.sluice.track('Event');
  await browser.clock.advance(3_000 + 99_999);
  assert.equal(page.fetched.length, 1);
});

test('a page that is hidden or left sends what waits by a request that outlives it', async () => {
  for (const way of ['visibilitychange', 'pagehide'] as const) {
    const browser = createTestBrowser();
    const page = openPage(browser);
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
  const browser = createTestBrowser();
  const page = openPage(browser, { fetch: 'never', beacon: 'refused' });
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
  const browser = createTestBrowser();
  const page = openPage(browser);
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
  const browser = createTestBrowser();
  const page = openPage(browser, { keepalive: 'absent' });
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
  // Less than a bit of a byte, with which the library mixes what the browser's source gives.
  context.mock.method(Math, 'random', () => 1 / 512);
  for (const way of ['online', 'visible', 'pageshow'] as const) {
    const browser = createTestBrowser();
    // Waits without jitter: the next one ends after 130 s.
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

for (const locks of ['browser', 'absent', 'denied'] as const) {
  const option = locks === 'browser' ? {} : { locks };

  test(`of several tabs one sends at a time (locks: ${locks})`, async () => {
    const browser = createTestBrowser();
    let underWay = 0;
    let most = 0;
    const tabs = Array.from({ length: 4 }, () => {
      const tab = browser.open(option);
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

  test(`another tab goes on when a tab closes in the middle of sending (locks: ${locks})`, async () => {
    const browser = createTestBrowser();
    const stuck = openPage(browser, { ...option, fetch: 'never' });
    const other = openPage(browser, option);
    stuck.sluice.track('Event');
    await browser.clock.advance(3_500);
    assert.equal(stuck.fetched.length, 1);
    stuck.end();
    other.sluice.track('Other');
    await browser.clock.advance(clientLimits.leaseMs + 6_000);
    assert.deepEqual(names(browser), ['Other']);
    await browser.clock.advance(clientLimits.holdMsMax);
    assert.deepEqual(names(browser), ['Other', 'Event']);
  });
}

test('a lease lasts as long as its tab works', async () => {
  const browser = createTestBrowser();
  const slow = openPage(browser, { locks: 'absent', fetch: 'never' });
  const other = openPage(browser, { locks: 'absent' });
  slow.sluice.track('Event');
  await browser.clock.advance(3_500);
  other.sluice.track('Other');
  await browser.clock.advance(clientLimits.requestMsMin - 1_000);
  assert.equal(other.fetched.length, 0);
});

test('a lease that would last too long because the clock was set back does not count', async () => {
  const browser = createTestBrowser();
  browser.storage.set('sluice:1:turn', `another ${browser.clock.now() + 86_400_000}`);
  const page = openPage(browser, { locks: 'absent' });
  page.sluice.track('Event');
  await browser.clock.advance(4_000);
  assert.deepEqual(names(browser), ['Event']);
});

test('tabs that take the lease at once, before they see each other, do not both have it', async () => {
  const browser = createTestBrowser();
  const { clock } = browser;
  const shared = new Map<string, string>();
  /** What a tab writes, the others see after 30 ms. */
  function slowView(): KeyValueStorage {
    const own = new Map<string, string>();
    return {
      get: (key) => own.get(key) ?? shared.get(key),
      set(key, text) {
        own.set(key, text);
        clock.setTimer(30, () => {
          shared.set(key, text);
          own.delete(key);
        });
        return true;
      },
      remove: (key) => {
        own.delete(key);
        shared.delete(key);
      },
      keys: () => [],
    };
  }
  let underWay = 0;
  let most = 0;
  let done = 0;
  for (let tab = 0; tab < 4; tab++) {
    const win = browser.open({ locks: 'absent' });
    const turn = createSendingTurn(takeBrowser(win), slowView(), clock, (count) =>
      new Uint8Array(count).fill(tab),
    );
    void turn.take('turn', async () => {
      most = Math.max(most, ++underWay);
      await new Promise<void>((resolve) => void clock.setTimer(500, resolve));
      underWay--;
      done++;
    });
    await clock.advance(7);
  }
  await clock.advance(60_000);
  assert.deepEqual([most, done], [1, 4]);
});

test('load refuses bad arguments with a warning, and the right ones are taken later', async () => {
  const browser = createTestBrowser();
  const win = browser.open();
  const sluice = createSluice(win);
  const load = sluice.load as (...args: unknown[]) => void;
  const throwing = {
    get baseUrl(): string {
      throw new Error('no');
    },
  };
  for (const args of [
    [],
    ['1'],
    ['1', null],
    ['1', {}],
    [1, { baseUrl }],
    ['1', throwing],
    ['1', 'https://events.example'],
  ])
    load(...args);
  assert.equal(win.warnings.length, 7);
  sluice.track('Event');
  load('1', {
    baseUrl: `${baseUrl}//`,
    pageViews: 0,
    intervalMs: 'soon',
    allowIdentities: 'user',
    optedOut: 'no',
  });
  await browser.clock.advance(3_000);
  assert.deepEqual(names(browser).sort(), ['Event', 'Page View']);
  assert.equal(win.fetched[0]?.url, 'https://events.example/api/collect');
});

test('an interval that no timer takes is brought within its bounds', async () => {
  for (const [intervalMs, waitedMs] of [
    [Number.POSITIVE_INFINITY, clientLimits.intervalMsMax],
    [2 ** 31, clientLimits.intervalMsMax],
    [0.001, clientLimits.intervalMsMin],
  ] as const) {
    const browser = createTestBrowser();
    const page = openPage(browser, {}, { intervalMs });
    page.sluice.track('Event');
    await browser.clock.advance(waitedMs - 1);
    assert.deepEqual(names(browser), [], `${intervalMs}`);
    await browser.clock.advance(1);
    assert.deepEqual(names(browser), ['Event'], `${intervalMs}`);
  }
});

test('without a document, as on a server, every call is quiet', async () => {
  const bare = { setTimeout: () => assert.fail(), clearTimeout: () => {}, Date } as never;
  const sluice = createSluice(bare);
  sluice.load('1', { baseUrl });
  sluice.track('Event');
  sluice.identify('ada@example.com');
  await sluice.flush();
  assert.equal(sluice.userId, undefined);
  assert.equal(sluice.identity, undefined);
  assert.equal(sluice.droppedCount, 0);
});

test('a window that lacks nearly everything still takes calls', async () => {
  const browser = createTestBrowser();
  const page = openPage(
    browser,
    {
      localStorage: 'absent',
      cookies: 'ignored',
      keepalive: 'absent',
      more: {
        navigator: undefined,
        console: undefined,
        AbortController: undefined,
        Request: undefined,
        history: undefined,
        crypto: undefined,
      },
    },
    { pageViews: true },
  );
  page.sluice.addEventProperties({ a: 1 });
  page.sluice.track('Event');
  page.setVisibility('hidden');
  await browser.clock.advance(4_000);
  assert.deepEqual(names(browser), ['Page View', 'Event']);
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

test('a call writes the same few texts and never lists the keys, however many messages wait', async () => {
  for (const count of [0, 4_800]) {
    const { browser, page, used, since } = await openWaiting(count);
    for (let n = 0; n < 50; n++) page.sluice.track(`f${n}`, { a: 1 });
    assert.equal(used.writes - since.writes, 50, 'each is written once');
    Object.assign(since, used);
    for (let n = 0; n < 50; n++) page.sluice.addUserProperties({ turn: n });
    assert.equal(used.writes - since.writes, 100, 'each is written, and takes the place of the one before');
    assert.equal(used.lists - since.lists, 0, `${count} waiting`);
    assert.ok(used.reads - since.reads <= 50 * 25, `${used.reads - since.reads} reads`);
    for (let n = 0; n < 10; n++) {
      browser.clock.set(browser.clock.now() + 1_100);
      page.sluice.addUserProperties({ turn: n });
    }
    assert.equal(used.lists - since.lists, 0, 'no list after a pause either');
  }
});

test('a full queue makes room without listing what waits again and again', async () => {
  const { browser, page, used, since } = await openWaiting(clientLimits.queueMessagesMax);
  for (let n = 0; n < 1_000; n++) page.sluice.track(`f${n}`);
  assert.equal(used.lists - since.lists, 0);
  assert.ok(used.writes - since.writes <= 2_000 + 60, `${used.writes - since.writes} writes`);
  const waiting = [...browser.storage.keys()].filter((key) => key.includes(':q:'));
  assert.ok(waiting.length <= clientLimits.queueMessagesMax);
  assert.equal(waiting.length + page.sluice.droppedCount, clientLimits.queueMessagesMax + 1_002);
});

test('an event that waits takes at most 280 characters of storage beyond its properties', () => {
  const browser = createTestBrowser();
  const page = openPage(browser);
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

test('the keys of a storage are those in it: after it was emptied, after a minute, and in a page shown again', () => {
  const browser = createTestBrowser();
  const win = browser.open();
  const storage = createLocalStorage(takeBrowser(win), () => {});
  storage.onChange?.(() => {});
  storage.set('sluice:1:q:a', 'x');
  assert.deepEqual(storage.keys('sluice:1:q:'), ['sluice:1:q:a']);
  win.clearStorage();
  assert.deepEqual(storage.keys('sluice:1:q:'), []);
  // Changes the storage without telling the page.
  browser.storage.set('sluice:1:q:b', 'x');
  browser.clock.set(browser.clock.now() + 61_000);
  assert.deepEqual(storage.keys('sluice:1:q:'), ['sluice:1:q:b']);
  browser.storage.set('sluice:1:q:c', 'x');
  win.fire('pageshow', { persisted: true });
  assert.deepEqual(storage.keys('sluice:1:'), ['sluice:1:q:b', 'sluice:1:q:c']);
  assert.deepEqual(storage.keys('sluice:2:'), []);
  browser.storage.delete('sluice:1:q:b');
  win.fire('storage', { key: 'sluice:1:q:b' });
  browser.storage.set('sluice:1:h:d', 'x');
  win.fire('storage', { key: 'sluice:1:h:d' });
  assert.deepEqual(storage.keys('sluice:1:'), ['sluice:1:q:c', 'sluice:1:h:d']);
  const full = createLocalStorage(takeBrowser(browser.open({ localStorage: 'full' })), () => {});
  full.set('sluice:1:q:e', 'x');
  browser.clock.set(browser.clock.now() + 61_000);
  assert.deepEqual(full.keys('sluice:1:q:').sort(), ['sluice:1:q:c', 'sluice:1:q:e']);
});
