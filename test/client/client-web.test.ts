// The client library on pages, without a browser: page views, sessions, `beforeSend`, and the options of `load`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientLimits } from '../../src/libraries/client/core/limits.js';
import { createSluice } from '../../src/libraries/client/web/sluice.js';
import { createTestBrowser } from '../support/client-browser.js';
import { baseUrl, begin, events, names, openPage, visit } from '../support/web-page.js';

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
  // If the function fails, the address is not recorded, and the page continues.
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
    const { browser, page } = visit({}, { pageViews: { fragment } });
    page.go('/start?a=1#/offers');
    page.fire('popstate');
    await browser.clock.advance(0);
    page.go('/start?a=1#/orders');
    page.fire('popstate');
    await browser.clock.advance(3_000);
    const urls = events(browser).map(({ properties }) => properties.url);
    const start = 'https://shop.example/start';
    const first = `${start}#top`;
    assert.deepEqual(urls, fragment ? [first, `${start}#/offers`, `${start}#/orders`] : [start]);
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
  const { browser, page } = visit({}, { pageViews: true });
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

test('a change that is not recorded is no page view, and a hidden part of the path makes no two pages one', async () => {
  const withoutNumbers = (url: string) => url.replace(/\d+|\?.*/g, '');
  for (const [pageViews, paths] of [
    [true, ['/start', '/orders/7', '/orders/8', '/start']],
    [{ query: true }, ['/start', '/start', '/orders/7', '/orders/7', '/orders/8', '/start']],
    [{ redact: withoutNumbers }, ['/start', '/orders/', '/orders/', '/start']],
  ] as const) {
    const { browser, page } = visit({ url: 'https://shop.example/start?utm_source=mail' }, { pageViews });
    for (const address of ['/start', '/orders/7?q=a', '/orders/7?q=ab', '/orders/8', '/start#top']) {
      page.history?.replaceState(null, '', address);
      await browser.clock.advance(0);
    }
    await browser.clock.advance(6_000);
    assert.deepEqual(
      events(browser).map(({ properties }) => properties.path),
      paths,
    );
  }
});

test('a page view has the title that its page sets later, and the time of the navigation', async () => {
  const { browser, page } = visit({}, { pageViews: true });
  const title = (text: string) => Object.assign(page.document as object, { title: text });
  await browser.clock.advance(10);
  const navigatedAt = browser.clock.now();
  page.history?.pushState(null, '', '/orders');
  page.sluice.track('Orders shown');
  await browser.clock.advance(20);
  title('');
  await browser.clock.advance(700);
  title('Orders');
  await browser.clock.advance(3_000);
  // The title does not change, so the wait ends at its bound.
  page.history?.pushState(null, '', '/orders/7');
  await browser.clock.advance(6_000);
  // Each of these waits ends before there is a title: by the next page, by another user, or by the end of the page.
  page.history?.pushState(null, '', '/one');
  await browser.clock.advance(100);
  page.history?.pushState(null, '', '/two');
  await browser.clock.advance(0);
  title('Two');
  page.sluice.identify('ada@example.com');
  page.history?.pushState(null, '', '/three');
  await browser.clock.advance(100);
  page.setVisibility('hidden');
  await browser.clock.advance(6_000);
  const views = events(browser).filter(({ event }) => event === 'Page View');
  assert.deepEqual(
    views.map(({ properties, identity }) => [properties.path, properties.title, identity]),
    [
      ['/start', 'Start', undefined],
      ['/orders', 'Orders', undefined],
      ['/orders/7', 'Orders', undefined],
      ['/one', 'Orders', undefined],
      ['/two', 'Two', undefined],
      ['/three', 'Two', 'ada@example.com'],
    ],
  );
  assert.equal(Date.parse(views[1]?.time ?? ''), navigatedAt);
});

test('an address that is a document or a file of the device is not recorded', async () => {
  const referrer = 'android-app://com.mail.example/';
  for (const [url, recorded] of [
    ['data:text/html,<p>Ada Lovelace', 'data:'],
    ['file:///home/Jane%20Doe/index.html?a#b', 'file:'],
    ['about:blank', 'about:'],
    ['blob:https://shop.example/3f-44', 'blob:'],
    ['capacitor://localhost/orders?a=1', 'capacitor://localhost/orders'],
    ['https://shop.example/a?b', 'https://shop.example/a'],
  ] as const) {
    const browser = createTestBrowser();
    openPage(browser, { url, referrer }, { pageViews: true });
    await browser.clock.advance(3_000);
    const { properties } = events(browser)[0] ?? {};
    assert.deepEqual([properties?.url, properties?.referrer], [recorded, referrer]);
    assert.equal(properties?.path, recorded.replace(/^\w+:(\/\/[^/]*)?/, ''));
  }
});

test('copies of the library in one window are one library', async () => {
  const { browser, page } = visit({}, { pageViews: true });
  const second = createSluice(page);
  second.track('Second');
  second.load('1', { baseUrl, pageViews: true });
  assert.deepEqual(page.warnings, []);
  second.load('2', { baseUrl: 'https://other.example', pageViews: true });
  assert.match(page.warnings.join(), /load is ignored: this page already records for the app_id 1/);
  second.identify('ada@example.com');
  assert.deepEqual([page.sluice.identity, second.userId], ['ada@example.com', page.sluice.userId]);
  page.history?.pushState(null, '', '/offers');
  await browser.clock.advance(6_000);
  assert.deepEqual(names(browser), ['Page View', 'Second', 'Page View']);
});

test('a copy that is loaded also serves a copy that was used before without being loaded', async () => {
  const browser = createTestBrowser();
  const win = browser.open();
  const early = createSluice(win);
  early.track('Early');
  const { sluice } = begin(win);
  sluice.track('Late');
  await browser.clock.advance(3_000);
  assert.deepEqual(names(browser), ['Early', 'Late']);
});

test('Global Privacy Control counts as an opt-out only on request, and an opt-in stands above it', async () => {
  for (const [asked, signal, recorded] of [
    [undefined, true, ['Event', 'Chosen']],
    [true, true, ['Chosen']],
    [true, false, ['Event', 'Chosen']],
  ] as const) {
    const browser = createTestBrowser();
    const more = { navigator: { globalPrivacyControl: signal } };
    const page = openPage(browser, { more }, { globalPrivacyControl: asked } as never);
    page.sluice.track('Event');
    page.sluice.optIn();
    page.sluice.track('Chosen');
    await browser.clock.advance(4_000);
    assert.deepEqual(names(browser), recorded);
  }
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

test('load refuses bad arguments with a warning, and later accepts the right ones', async () => {
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
    ['', { baseUrl }],
    ['\udc00', { baseUrl }],
    ['1', { baseUrl: 'events.example' }],
    ['1', { baseUrl: 'javascript:alert(1)' }],
    ['1', { baseUrl: 'https://a b' }],
    ['1', { baseUrl, collectPath: 'in' }],
  ])
    load(...args);
  assert.equal(win.warnings.length, 13);
  assert.match(win.warnings.at(-1) ?? '', /collectPath must be a path/);
  sluice.track('Event');
  load('1', {
    baseUrl: `${baseUrl}//`,
    collectPath: '/of/the/site',
    pageViews: 0,
    intervalMs: 'soon',
    allowIdentities: 'user',
    optedOut: 'no',
  });
  await browser.clock.advance(3_000);
  assert.deepEqual(names(browser).sort(), ['Event', 'Page View']);
  assert.equal(win.fetched[0]?.url, 'https://events.example/of/the/site');
});

test('an interval that no timer accepts is brought within its bounds', async () => {
  for (const [intervalMs, waitedMs] of [
    [Number.POSITIVE_INFINITY, clientLimits.intervalMsMax],
    [2 ** 31, clientLimits.intervalMsMax],
    [0.001, clientLimits.intervalMsMin],
  ] as const) {
    const { browser, page } = visit({}, { intervalMs });
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
