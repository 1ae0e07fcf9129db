// The library in pages that empty their storage, fill it, replace the browser's functions, and change what they passed.
// None of this may reach the page, lose what was recorded, or mix up two visitors.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createTestBrowser, type TestBrowser, type TestWindow } from '../support/client-browser.js';
import { failure } from '../support/client-world.js';
import { begin, openPage, visit } from '../support/web-page.js';

describe('a page that empties its storage', () => {
  for (const end of ['goes on', 'ends', 'goes on, and ends the storage key by key'] as const) {
    test(`loses nothing that it had recorded (it ${end})`, async () => {
      const { browser, page } = visit();
      page.sluice.identify('ada@example.com');
      page.sluice.track('Logout');
      const { userId } = page.sluice;
      if (end.endsWith('key by key')) browser.storage.clear();
      else page.clearStorage();
      if (end === 'ends') {
        page.fire('pagehide');
        page.end();
        openPage(browser);
      }
      await browser.clock.advance(30_000);
      assert.deepEqual(
        browser.server.stored.map(({ type, user_id }) => [type, user_id]),
        [
          ['identify', userId],
          ['event', userId],
        ],
      );
    });
  }

  test('has another visitor afterwards', async () => {
    const options: { localStorage?: 'full' } = {};
    const { browser, page } = visit(options);
    page.sluice.track('Event');
    options.localStorage = 'full';
    page.sluice.identify('ada@example.com');
    const former = page.sluice.userId;
    delete options.localStorage;
    page.clearStorage();
    assert.notEqual(page.sluice.userId, former);
    assert.equal(page.sluice.identity, undefined);
    page.sluice.track('Of somebody else');
    await browser.clock.advance(10_000);
    assert.notEqual(browser.server.stored.at(-1)?.user_id, former);
  });

  test('still knows in every tab and later page that the visitor has opted out', async () => {
    for (const cookies of [undefined, 'denied'] as const) {
      const browser = createTestBrowser();
      const options = cookies === undefined ? {} : { cookies };
      const page = openPage(browser, options);
      const other = openPage(browser, options);
      page.sluice.optOut();
      page.clearStorage();
      page.sluice.track('Event');
      other.sluice.track('Event');
      page.end();
      other.end();
      openPage(browser, options).sluice.track('Event');
      await browser.clock.advance(10_000);
      assert.deepEqual(browser.server.events(), [], `cookies: ${cookies}`);
    }
  });

  test('knows from a cookie the next day that its visitor has opted out', async () => {
    const { browser, page } = visit();
    page.sluice.optOut();
    page.end();
    browser.storage.clear();
    const next = openPage(browser);
    next.sluice.track('Event');
    await browser.clock.advance(10_000);
    assert.deepEqual(browser.server.events(), []);
    next.sluice.optIn();
    next.end();
    browser.storage.clear();
    openPage(browser).sluice.track('After');
    await browser.clock.advance(10_000);
    assert.deepEqual(browser.server.events(), ['After'], 'the last choice counts');
  });

  test('sends nothing again that another tab has sent', async () => {
    const browser = createTestBrowser();
    const tabs = [openPage(browser), openPage(browser)] as const;
    tabs[0].sluice.track('a');
    tabs[1].sluice.track('b');
    await browser.clock.advance(10_000);
    const requests = browser.server.received.length;
    tabs[0].clearStorage();
    tabs[1].sluice.track('c');
    await browser.clock.advance(10_000);
    tabs[0].sluice.track('d');
    await browser.clock.advance(10_000);
    assert.deepEqual(browser.server.events(), ['a', 'b', 'c', 'd']);
    assert.equal(browser.server.received.length, requests + 2);
    const ids = browser.server.received.flatMap(({ request }) => request.messages.map(({ id }) => id));
    assert.equal(new Set(ids).size, ids.length);
  });

  test('gets back at once what another tab recorded, even if that tab is then gone', async () => {
    const browser = createTestBrowser();
    const tabs = [openPage(browser), openPage(browser)] as const;
    tabs[1].sluice.track('Event');
    tabs[0].clearStorage();
    tabs[1].end();
    openPage(browser);
    await browser.clock.advance(30_000);
    assert.deepEqual(browser.server.events(), ['Event']);
  });

  test('key by key, in another tab, loses nothing', async () => {
    const { browser, page } = visit();
    page.sluice.track('Event');
    // Browsers report removals only after all of them.
    const keys = [...browser.storage.keys()].sort((a) => (a.includes(':q:') ? -1 : 1));
    browser.storage.clear();
    for (const key of keys) page.fire('storage', { key });
    page.end();
    openPage(browser);
    await browser.clock.advance(30_000);
    assert.deepEqual(browser.server.events(), ['Event']);
  });

  test('keeps no user in memory that could not be stored', () => {
    const options: { localStorage?: 'full' } = {};
    const { page } = visit(options);
    page.sluice.identify('ada@example.com');
    options.localStorage = 'full';
    page.sluice.resetIdentity();
    page.sluice.identify('bob@example.com');
    assert.equal(page.sluice.identity, 'bob@example.com');
    const { userId } = page.sluice;
    page.clearStorage();
    assert.deepEqual([page.sluice.identity, page.sluice.userId === userId], [undefined, false]);
  });
});

describe('a storage', () => {
  test('that is full keeps the user that it has', () => {
    const options: { localStorage?: 'full' } = {};
    const { browser, page } = visit(options);
    const { userId } = page.sluice;
    options.localStorage = 'full';
    page.sluice.identify('ada@example.com');
    page.end();
    assert.equal(openPage(browser).sluice.userId, userId);
  });

  test('that is full does not take over a user from another tab', () => {
    const options: { localStorage?: 'full' } = {};
    const { browser, page } = visit(options);
    const other = openPage(browser);
    other.sluice.identify('ada@example.com');
    options.localStorage = 'full';
    page.sluice.identify('bob@example.com');
    page.sluice.identify('carl@example.com');
    page.end();
    other.end();
    assert.notEqual(openPage(browser).sluice.identity, 'carl@example.com');
  });

  test('that is full remembers every choice', async () => {
    const options: { localStorage?: 'full' } = {};
    const { browser, page } = visit(options);
    page.sluice.optIn();
    options.localStorage = 'full';
    page.sluice.optOut();
    page.end();
    openPage(browser).sluice.track('Event');
    await browser.clock.advance(10_000);
    assert.deepEqual(browser.server.events(), []);
  });
});

describe('a page that replaces functions of the browser', () => {
  const broken = (): never => {
    throw new Error('of the page');
  };
  const getter = { configurable: true, get: broken };

  /** What is done to the window before the library loads. */
  const before: Record<string, (win: TestWindow) => void> = {
    'no Request': (win) => Object.assign(win, { Request: null }),
    'a Request that cannot be read': (win) => Object.defineProperty(win, 'Request', getter),
    'random numbers that throw': (win) => Object.assign(win, { crypto: { getRandomValues: broken } }),
    'random numbers that are all 0': (win) =>
      Object.assign(win, { crypto: { getRandomValues: (bytes: Uint8Array) => bytes } }),
    'no crypto': (win) => Object.defineProperty(win, 'crypto', getter),
    'locks that throw': (win) => Object.assign(win, { navigator: { locks: { request: broken } } }),
    'a navigator that cannot be read': (win) => Object.defineProperty(win, 'navigator', getter),
    'an AbortController that throws': (win) => Object.assign(win, { AbortController: broken }),
    'a console that throws': (win) => Object.assign(win, { console: { warn: broken } }),
    'a history that cannot be read': (win) => Object.defineProperty(win, 'history', getter),
    'listeners that throw': (win) => Object.assign(win, { addEventListener: broken }),
    'an element named cookie': (win) => clobber(win, 'cookie'),
    'an element named title': (win) => clobber(win, 'title'),
    'an element named addEventListener': (win) => clobber(win, 'addEventListener'),
  };
  /** What is done to the window afterwards. */
  const after: Record<string, (win: TestWindow) => void> = {
    'no fetch': (win) => Object.assign(win, { fetch: undefined }),
    'a fetch that throws': (win) => Object.assign(win, { fetch: broken }),
    'no timers': (win) => Object.assign(win, { setTimeout: broken, clearTimeout: broken }),
    'a Date that stands still': (win) => Object.assign(win.Date, { now: () => 5 }),
    'a performance that throws': (win) => Object.assign(win.performance ?? {}, { now: broken }),
    'no storage': (win) => Object.defineProperty(win, 'localStorage', getter),
    'no document': (win) => Object.defineProperty(win, 'document', getter),
  };

  /** Does what an element with that name does: the document's property becomes the element. */
  function clobber(win: TestWindow, name: string): void {
    const { document } = win;
    const named = Object.create(document as object, { [name]: { value: { nodeName: 'IMG' } } });
    Object.defineProperty(win, 'document', { value: named });
  }

  for (const [when, changes] of [
    ['before', before],
    ['after', after],
  ] as const) {
    for (const [what, change] of Object.entries(changes)) {
      test(`(${what}, ${when} it loads) still works`, async () => {
        const browser = createTestBrowser();
        const win = browser.open({ more: { performance: { now: () => 0 } } });
        if (when === 'before') change(win);
        const page = begin(win, { pageViews: true });
        if (when === 'after') change(win);
        page.sluice.addEventProperties({ plan: 'free' });
        page.sluice.track('Event', { a: 1 });
        page.sluice.identify('ada@example.com');
        page.sluice.addUserProperties({ b: 2 });
        const flushed = page.sluice.flush();
        await browser.clock.advance(10_000);
        assert.equal(await flushed, undefined);
        page.fire('pagehide');
        await browser.clock.advance(60_000);
        assert.deepEqual(
          browser.server.stored.map(({ type }) => type),
          ['event', 'event', 'identify', 'user_properties'],
        );
        const event = browser.server.stored[1] as { properties?: object };
        assert.deepEqual(event.properties, { a: 1, plan: 'free' });
      });
    }
  }

  test('(an element named cookie) still has its global event properties in the cookie', async () => {
    const browser = createTestBrowser();
    const win = browser.open();
    clobber(win, 'cookie');
    begin(win).sluice.addEventProperties({ plan: 'free' });
    assert.equal(browser.cookies.get('sluice_1'), 'plan=free');
    await browser.clock.advance(1);
    const next = browser.open();
    clobber(next, 'cookie');
    begin(next).sluice.track('Event');
    await browser.clock.advance(5_000);
    const [event] = browser.server.stored as unknown as { properties: object }[];
    assert.deepEqual(event?.properties, { plan: 'free' });
  });

  test('(elements named addEventListener and visibilityState) is listened to and read through its class', async () => {
    const browser = createTestBrowser();
    const win = browser.open();
    const { addEventListener } = win.document as NonNullable<TestWindow['document']>;
    Object.assign(win, { EventTarget: { prototype: { addEventListener } } });
    clobber(win, 'addEventListener');
    clobber(win, 'visibilityState');
    const page = begin(win);
    page.sluice.track('Event');
    page.setVisibility('hidden');
    assert.equal(page.fetched.length, 1, 'the event is sent when the page is hidden');
  });

  test('(setTimeout that cannot be read) sees no call fail, and flush settles', async () => {
    const browser = createTestBrowser();
    const win = browser.open();
    Object.defineProperty(win, 'setTimeout', getter);
    const page = begin(win);
    page.sluice.track('Event');
    assert.equal(await page.sluice.flush(), undefined);
  });

  test('(an address that can no longer be read) sees no timer fail', async () => {
    const { browser, page } = visit({}, { pageViews: true });
    Object.defineProperty(page.location, 'href', getter);
    page.history?.pushState(null, '', '/next');
    await browser.clock.advance(10_000);
    assert.deepEqual(browser.server.events(), ['Page View']);
  });

  test('(properties on every object) leaks none into a request, and identifies nobody', async (context) => {
    const browser = createTestBrowser('first');
    Object.assign(Object.prototype, { identity: 'eve@example.com' });
    context.after(() => Reflect.deleteProperty(Object.prototype, 'identity'));
    const page = openPage(browser);
    page.sluice.track('Event');
    // The next page reads the identity from the storage.
    assert.equal(openPage(browser).sluice.identity, undefined);
    page.fire('pagehide');
    const [request] = page.fetched;
    assert.equal(Object.getPrototypeOf(request?.options), null);
  });

  const prototypes: Record<string, () => () => void> = {
    'Array.from of MooTools': () => {
      const { from } = Array;
      Array.from = ((item: unknown) => (item == null ? [] : Array.isArray(item) ? item : [item])) as never;
      return () => {
        Array.from = from;
      };
    },
    'toJSON of arrays, as of Prototype': () => {
      Object.assign(Array.prototype, { toJSON: () => 'an array' });
      return () => Reflect.deleteProperty(Array.prototype, 'toJSON');
    },
    ...Object.fromEntries(
      ['get', 'set', 'identity', 'status', 'own', 'former', 'foo'].map((name) => [
        `a getter of every object named ${name}`,
        () => {
          Object.defineProperty(Object.prototype, name, { configurable: true, get: broken, set() {} });
          return () => Reflect.deleteProperty(Object.prototype, name);
        },
      ]),
    ),
  };
  for (const [what, change] of Object.entries(prototypes)) {
    test(`(${what}) still works`, async () => {
      const { browser, page } = visit();
      const undo = change();
      try {
        page.sluice.addEventProperties({ plan: 'free' });
        page.sluice.track('Event', { a: 1 });
        page.sluice.identify('ada@example.com');
      } finally {
        // Node itself does not work with some of these getters, so they are removed.
        undo();
      }
      await browser.clock.advance(10_000);
      assert.deepEqual(
        browser.server.stored.map(({ type }) => type),
        ['event', 'identify'],
      );
    });
  }
});

describe('a page that records each request that it sees', () => {
  /** Its `fetch`, wrapped before the library loads. */
  function openRecording(browser: TestBrowser) {
    const win = browser.open();
    const { fetch } = win;
    const page = Object.assign(win, {
      fetch(url: string, options: object) {
        if (win.fetched.length < 100) page.sluice.track('Request', { url });
        return fetch?.call(win, url, options);
      },
    }) as unknown as ReturnType<typeof openPage>;
    return begin(page);
  }

  test('causes no endless requests', async () => {
    const browser = createTestBrowser();
    const page = openRecording(browser);
    page.sluice.track('Event');
    await browser.clock.advance(30_000);
    assert.equal(page.fetched.length, 10, 'one every three seconds');
    assert.equal(browser.server.stored.length, 10);
  });

  test('causes no endless requests when it is hidden', () => {
    const browser = createTestBrowser();
    const page = openRecording(browser);
    page.sluice.track('Event');
    page.setVisibility('hidden');
    assert.equal(page.fetched.length, 1);
  });
});

describe('a page that stops its clock', () => {
  test('still has its events sent', async () => {
    const browser = createTestBrowser('first');
    const win = browser.open();
    const startedMs = browser.clock.now();
    Object.assign(win, { performance: { now: () => browser.clock.now() - startedMs } });
    Object.defineProperty(win, 'Date', { value: { now: () => startedMs } });
    const page = begin(win);
    browser.server.answerWith = () => failure(503);
    page.sluice.track('Event');
    await browser.clock.advance(5_000);
    browser.server.answerWith = () => undefined;
    await browser.clock.advance(60_000);
    assert.deepEqual(browser.server.events(), ['Event']);
  });
});

describe('tabs that add global event properties at once', () => {
  test('keep each other’s properties, in any order of their writes', async () => {
    const browser = createTestBrowser();
    const tabs = [0, 1, 2].map(() => openPage(browser));
    // Each tab reads the cookie before the others write, and writes it after them.
    for (let n = 0; n < 20; n++) {
      const stale = browser.cookies.get('sluice_1');
      for (const [tab, { sluice }] of tabs.entries()) {
        if (stale === undefined) browser.cookies.delete('sluice_1');
        else browser.cookies.set('sluice_1', stale);
        sluice.addEventProperties({ [`t${tab}n${n}`]: n });
        await browser.clock.advance(1);
      }
    }
    await browser.clock.advance(5_000);
    tabs[0]?.sluice.track('Event');
    await browser.clock.advance(5_000);
    const [event] = browser.server.stored as unknown as { properties: object }[];
    assert.equal(Object.keys(event?.properties ?? {}).length, 60);
  });

  test('do not undo what one of them has changed since', async () => {
    const browser = createTestBrowser();
    const tabs = [openPage(browser), openPage(browser)] as const;
    tabs[0].sluice.addEventProperties({ plan: 'free' });
    await browser.clock.advance(10);
    tabs[1].sluice.addEventProperties({ plan: 'pro' });
    const writes = browser.cookieWrites.length;
    await browser.clock.advance(5_000);
    assert.equal(browser.cookies.get('sluice_1'), 'plan=pro');
    assert.equal(browser.cookieWrites.length, writes, 'nothing else was written meanwhile');
  });

  test('do not bring back what one of them removes', async () => {
    const browser = createTestBrowser();
    const tabs = [openPage(browser), openPage(browser)] as const;
    tabs[0].sluice.addEventProperties({ a: 1, b: 2 });
    await browser.clock.advance(10);
    tabs[1].sluice.removeEventProperty('a');
    await browser.clock.advance(5_000);
    assert.equal(browser.cookies.get('sluice_1'), '~1&b:2');
    tabs[0].sluice.addEventProperties({ c: 3 });
    await browser.clock.advance(10);
    tabs[1].sluice.clearEventProperties();
    await browser.clock.advance(10);
    tabs[0].sluice.track('Event');
    await browser.clock.advance(5_000);
    assert.equal(browser.cookies.size, 0);
    const [event] = browser.server.stored as unknown as { properties: object }[];
    assert.deepEqual(event?.properties, {});
  });
});
