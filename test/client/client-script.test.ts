// The built script that pages load, in a window of its own; and the snippet that comes before it.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createContext, runInContext } from 'node:vm';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { transformSync } from 'esbuild';
import type { Sluice } from '../../src/libraries/client/web/sluice.js';
import { snippet, snippetCallsMax, snippetVersion } from '../../src/libraries/client/web/snippet.js';
import { createTestBrowser, type TestBrowser, type TestWindow } from '../support/client-browser.js';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
const script = readFileSync(join(root, 'dist/sdk.js'), 'utf8');
const baseUrl = 'https://events.example';

type Page = TestWindow & {
  sluice: Sluice & { snippetVersion?: number; calls?: unknown[] };
  readonly scripts: { async?: unknown; src?: string }[];
  run(code: string): unknown;
};

const usualSnippet = snippet({ appId: '1', baseUrl, pageViews: false });

/** A page of a new browser in which scripts run, after it has run this one. */
function open(code = ''): { browser: TestBrowser; page: Page } {
  const browser = createTestBrowser();
  const win = browser.open() as Page;
  const scripts: Page['scripts'] = [];
  Object.assign(win.document as object, {
    createElement: () => ({}),
    head: { appendChild: (element: Page['scripts'][0]) => scripts.push(element) },
  });
  Object.assign(win, { window: win, scripts });
  createContext(win);
  const page = Object.assign(win, { run: (code: string) => runInContext(code, win) });
  page.run(code);
  return { browser, page };
}

test('the script is under 13 KiB compressed, and contains nothing that only the server needs', () => {
  assert.ok(
    gzipSync(script, { level: 9 }).length < 13 * 1024,
    `${gzipSync(script, { level: 9 }).length} bytes`,
  );
  assert.ok(brotliCompressSync(script).length < 13 * 1024);
  for (const absent of ['contradict', 'attemptMs', 'tokenMsMax', 'unknown_app_id:', 'typebox']) {
    assert.ok(!script.includes(absent), absent);
  }
});

test('the script has a source map that names its sources and holds their text', () => {
  assert.match(script, /\n\/\/# sourceMappingURL=sdk\.js\.map$/);
  const map = JSON.parse(readFileSync(join(root, 'dist/sdk.js.map'), 'utf8'));
  assert.ok(map.sources.includes('../src/libraries/client/core/client.ts') && map.sources.length > 20);
  for (const [at, source] of (map.sources as string[]).entries()) {
    assert.match(source, /^\.\.\/src\/(libraries\/client|contract)\//);
    assert.ok(existsSync(join(root, 'dist', source)), source);
    assert.equal(map.sourcesContent[at], readFileSync(join(root, 'dist', source), 'utf8'));
  }
});

test('uses only the syntax of ES2020', () => {
  const written = (target: string) => transformSync(script, { target, minifyWhitespace: true }).code;
  // A build for ES2020 would rewrite any later syntax.
  assert.equal(written('es2020'), written('esnext'));
  assert.notEqual(transformSync('a ||= b', { target: 'es2020' }).code, 'a ||= b;\n');
});

test('the snippet keeps the calls; the script makes them in order, with their times, on the same object', async () => {
  const { browser, page } = open();
  const loaded = browser.clock.now();
  page.run(snippet({ appId: '1', baseUrl }));
  const before = page.sluice;
  assert.equal(before.snippetVersion, snippetVersion);
  assert.equal(before.userId, undefined);
  assert.equal(before.identity, undefined);
  before.track('First', { step: 1 });
  before.identify('ada@example.com');
  await browser.clock.advance(1_000);
  before.addEventProperties({ plan: 'pro' });
  before.track('Second');
  assert.deepEqual(
    page.scripts.map(({ src }) => src),
    ['https://events.example/sdk.js'],
  );
  await browser.clock.advance(5_000);

  page.run(script);
  assert.equal(page.sluice, before);
  assert.match(before.userId ?? '', /^\d+$/);
  assert.equal(before.identity, 'ada@example.com');
  before.track('Third');
  await before.flush();
  assert.deepEqual(
    browser.server.stored.map((message) => [
      message.type === 'event' ? message.event : message.type,
      Date.parse(message.time) - loaded,
      message.identity,
    ]),
    [
      ['Page View', 0, undefined],
      ['First', 0, undefined],
      ['identify', 0, 'ada@example.com'],
      ['Second', 1_000, 'ada@example.com'],
      ['Third', 6_000, 'ada@example.com'],
    ],
  );
  assert.deepEqual(page.warnings, []);
});

test('a method taken from the snippet still works when the script is loaded, and never throws', async () => {
  const { browser, page } = open(usualSnippet);
  const { track, identify, flush } = page.sluice;
  track('Before');
  assert.equal(await flush().then(() => 'settled'), 'settled', 'without the script');
  await browser.clock.advance(1_000);
  page.run(script);
  const loaded = browser.clock.now();
  await browser.clock.advance(1_000);
  identify('ada@example.com');
  track('After', { step: 2 });
  await flush();
  await browser.clock.advance(3_000);
  assert.equal(page.sluice.identity, 'ada@example.com');
  assert.deepEqual(browser.server.events(), ['Before', 'After']);
  const after = browser.server.stored.find(
    (message) => message.type === 'event' && message.event === 'After',
  );
  assert.equal(Date.parse(after?.time ?? ''), loaded + 1_000);
  assert.deepEqual(page.warnings, []);
});

test('a method taken from the snippet never throws in a page that has replaced Date since', async () => {
  const { browser, page } = open(usualSnippet);
  const { track } = page.sluice;
  page.run(script);
  page.run('Date = function () {}');
  track('After');
  await browser.clock.advance(5_000);
  assert.deepEqual(browser.server.events(), ['After']);
  assert.deepEqual(page.warnings, []);
});

test('works in a page that has added a `value` to every object, which no accessor may have', async () => {
  const { browser, page } = open(`Object.prototype.value = 5;${usualSnippet}`);
  page.run(script);
  page.sluice.track('Event');
  await browser.clock.advance(5_000);
  assert.deepEqual(browser.server.events(), ['Event']);
  assert.deepEqual(page.warnings, []);
});

test('an older snippet gets the methods that it lacks', async () => {
  const { browser, page } = open(`window.sluice = { snippetVersion: 1, calls: [] };
    ['load', 'track', 'identify'].forEach(function (m) {
      sluice[m] = function () { sluice.calls.push([m, [].slice.call(arguments)]); };
    });
    sluice.load('1', { baseUrl: '${baseUrl}', pageViews: false });
    sluice.identify('ada@example.com');`);
  assert.equal(page.sluice.resetIdentity, undefined);
  page.run(script);
  assert.equal(page.sluice.identity, 'ada@example.com');
  page.sluice.resetIdentity();
  assert.equal(page.sluice.identity, undefined);
  page.sluice.addEventProperties({ plan: 'pro' });
  page.sluice.track('Event');
  await page.sluice.flush();
  assert.deepEqual(browser.server.events(), ['Event']);
});

test('works without a snippet, and a second script or snippet changes nothing', async () => {
  const { browser, page } = open(script);
  page.sluice.load('1', { baseUrl, pageViews: false });
  const { sluice } = page;
  const { track, userId } = sluice;
  page.run(script);
  page.run(usualSnippet);
  assert.equal(page.sluice, sluice);
  assert.equal(page.sluice.track, track);
  assert.equal(page.sluice.userId, userId);
  assert.deepEqual(page.scripts, []);
  page.sluice.track('Event');
  await page.sluice.flush();
  assert.deepEqual(browser.server.events(), ['Event']);
});

test('a script that never loads costs the page a bounded list and nothing else', () => {
  const { page } = open(snippet({ appId: '1', baseUrl }));
  page.run(snippet({ appId: '1', baseUrl }));
  assert.equal(page.scripts.length, 1);
  page.run(`for (var i = 0; i < 2000; i++) sluice.track('e' + i, { i: i });
    sluice.identify(); sluice.resetIdentity(); sluice.addUserProperties({}); sluice.removeEventProperty('a');
    sluice.clearEventProperties(); sluice.optOut(); sluice.optIn(); sluice.flush();`);
  assert.equal(
    page.sluice.calls?.length,
    snippetCallsMax + 7,
    'the bounded calls, and the calls that record nothing',
  );
  page.run('for (var i = 0; i < 5000; i++) sluice.optOut()');
  assert.equal(page.sluice.calls?.length, 2 * snippetCallsMax);
});

test('the snippet keeps copies: what the page changes afterwards does not change the call', async () => {
  const { browser, page } = open(usualSnippet);
  page.run(`var cart = { total: 1 }, all = { theme: 'dark' }, user = { plan: 'free' };
    sluice.addEventProperties(all); sluice.track('Cart', cart); sluice.addUserProperties(user);
    cart.total = 2; delete cart.total; all.theme = 'light'; user.plan = 'paid';`);
  page.run(script);
  await page.sluice.flush();
  const sent = browser.server.stored as unknown as { properties: object }[];
  assert.deepEqual(
    sent.map(({ properties }) => properties),
    [{ total: 1, theme: 'dark' }, { plan: 'free' }],
  );
});

test('calls that the snippet has no room for are counted as given up', () => {
  const { page } = open(usualSnippet);
  page.run(`for (var i = 0; i < ${snippetCallsMax + 4}; i++) sluice.track('e' + i)`);
  page.run(script);
  assert.equal(page.sluice.droppedCount, 5);
  assert.match(page.warnings.join(), /dropped 5 messages/);
});

test('calls that no snippet makes are skipped', async () => {
  const { browser, page } = open(`window.sluice = { calls: [
    ['load', ['1', { baseUrl: '${baseUrl}', pageViews: false }], 'yesterday'], null, 5, ['constructor', []],
    ['track'], ['track', 'Text'], ['userId', []], ['track', ['Future'], 9e15], ['track', ['Good'], NaN] ] };`);
  page.run(script);
  await page.sluice.flush();
  assert.deepEqual(browser.server.events(), ['Future', 'Good']);
  const now = new Date(browser.clock.now()).toISOString();
  assert.deepEqual(
    browser.server.stored.map(({ time }) => time),
    [now, now],
  );
});

test('a `sluice` that cannot be replaced breaks nothing', () => {
  const { page } = open('window.sluice = Object.freeze({ track: 1 });');
  page.run(script);
  assert.match(page.warnings[0] ?? '', /cannot replace/);
});

test('the page for web pages shows the snippet as it is', () => {
  const code = snippet({ appId: '1234567890', baseUrl: 'https://events.example.com' });
  assert.ok(
    readFileSync(join(root, 'src/libraries/client/README.md'), 'utf8').includes(
      `<script>\n${code}\n</script>`,
    ),
  );
});

test('nothing in the snippet’s options can end the script element', () => {
  const code = snippet({
    appId: '</script><script>alert(1)//',
    baseUrl: 'https://a.example/<!--',
    script: '\u2028&',
  });
  assert.doesNotMatch(code, /<[/!a-z]|[>\u2028]/i);
  const { page } = open(code);
  assert.equal(page.scripts[0]?.src, '\u2028&');
});

test('a second snippet changes nothing: the page records for the environment of the first', async () => {
  const { browser, page } = open(usualSnippet);
  page.run(snippet({ appId: '2', baseUrl: 'https://other.example', pageViews: true }));
  page.run(`sluice.track('Before')`);
  page.run(script);
  page.run(snippet({ appId: '3', baseUrl: 'https://third.example', pageViews: true }));
  page.run(`sluice.track('After')`);
  await browser.clock.advance(3_000);
  assert.deepEqual(browser.server.events(), ['Before', 'After']);
  assert.deepEqual(page.warnings, [
    'Sluice: a second snippet is ignored.',
    'Sluice: a second snippet is ignored.',
  ]);
  assert.deepEqual([...new Set(page.fetched.map(({ url }) => url))], [`${baseUrl}/api/collect`]);
});
