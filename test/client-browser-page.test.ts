// The client library's script in real Chromium: how it comes into a page, what it does there by itself, and what
// a page may forbid.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { snippet } from '../src/client/web/snippet.js';
import { faultsOf, startUndrivenBrowser, withoutBrowser } from './support/browser.js';
import { type ClientRig, libraryIn, startClientRig, userOf } from './support/client-page.js';
import { until } from './support/wait.js';

describe('the script in a browser', { skip: withoutBrowser(), concurrency: 2 }, () => {
  let rig: ClientRig;
  before(async () => {
    rig = await startClientRig();
  });
  after(() => rig?.stop());

  /** A script of its own address, of which a test decides when it comes. */
  function delayedScript() {
    const path = `/sdk.js?${Math.random()}`;
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    rig.front.treatPath(path, async () => {
      await released;
      return 'pass' as const;
    });
    return { script: rig.front.url + path, path, release };
  }

  const namesOf = (rows: readonly { event: string }[]) => rows.map((row) => row.event);
  const sentNames = (appId: string) =>
    rig.front
      .batches(appId)
      .filter(({ status = 200 }) => status === 200)
      .flatMap(({ messages }) => messages.flatMap(({ event }) => event ?? []));

  describe('the snippet', { concurrency: 1 }, () => {
    test('keeps calls until the script is there, then makes them in order, at their times', async (t) => {
      const appId = rig.newAppId(t);
      const { script, release } = delayedScript();
      const url = rig.pageUrl({ appId, script });
      const page = await (await rig.browser.newContext()).newPage();
      t.after(() => page.context().close());
      await page.goto(url, { waitUntil: 'commit' });
      await page.waitForFunction('window.sluice && sluice.calls.length > 0');
      const atMs = Number(
        await page.evaluate(`
        sluice.addEventProperties({ theme: 'dark' });
        sluice.track('1', { n: 1 }); sluice.identify('ada@example.com'); sluice.track('2');
        sluice.resetIdentity(); sluice.clearEventProperties(); sluice.track('3'); sluice.flush();
        for (const call of sluice.calls) call[2] -= 60_000;
        Date.now()`),
      );
      release();
      await libraryIn(page);
      const rows = await rig.stored(appId, 3);
      assert.deepEqual(sentNames(appId), ['1', '2', '3']);
      const row = Object.fromEntries(rows.map((one) => [one.event, one]));
      assert.deepEqual(row['1']?.properties, { n: '1', theme: 'dark' });
      assert.deepEqual([row['2']?.identity, row['3']?.identity], ['ada@example.com', '']);
      assert.deepEqual(row['3']?.properties, {});
      assert.notEqual(row['3']?.user_id, row['1']?.user_id);
      for (const { time_ms } of rows)
        assert.ok(Math.abs(time_ms - (atMs - 60_000)) < 15_000, String(time_ms));
    });

    test('of an older version is given resetIdentity once the script is there', async (t) => {
      const appId = rig.newAppId(t);
      const older = `(function (w, d) {
        var s = (w.sluice = { snippetVersion: 1, calls: [] });
        ['load', 'track', 'identify', 'addUserProperties', 'addEventProperties'].forEach(function (m) {
          s[m] = function () { s.calls.push([m, [].slice.call(arguments)]); };
        });
        var e = d.createElement('script'); e.async = 1; e.src = '${rig.front.url}/sdk.js'; d.head.appendChild(e);
      })(window, document);
      var kept = window.sluice;
      sluice.load('${appId}', { baseUrl: '${rig.front.url}', pageViews: false, intervalMs: 100 });
      sluice.identify('ada@example.com'); sluice.track('Old');`;
      const page = await rig.open({ appId, html: `<script>${older}</script>` });
      assert.equal((await userOf(page)).identity, 'ada@example.com');
      await page.evaluate('kept.resetIdentity(); kept.track("New")');
      assert.equal((await userOf(page)).identity, undefined);
      const rows = await rig.stored(appId, 2);
      const identities = Object.fromEntries(rows.map((row) => [row.event, row.identity]));
      assert.deepEqual(identities, { Old: 'ada@example.com', New: '' });
    });

    test('breaks nothing when the script is blocked, and keeps no more than a bounded number of calls', async (t) => {
      const appId = rig.newAppId(t);
      const path = '/sdk.js?blocked';
      rig.front.treatPath(path, () => 'cut');
      const page = await rig.open({ appId, script: rig.front.url + path, wait: false });
      const uncaught: string[] = [];
      page.on('pageerror', (error) => uncaught.push(error.message));
      const calls = await page.evaluate(`
        for (let n = 0; n < 5000; n += 1) sluice.track('E' + n);
        sluice.identify('a@b.example'); sluice.resetIdentity(); sluice.optOut(); sluice.flush();
        document.title = 'still works';
        sluice.calls.length`);
      assert.equal(calls, 1_000);
      assert.equal(await page.title(), 'still works');
      assert.deepEqual(uncaught, []);
    });

    test('and script twice in one page record once', async (t) => {
      const appId = rig.newAppId(t);
      const options = { appId, baseUrl: rig.front.url, intervalMs: 100 };
      const twice = `<script>${snippet(options)}</script>`.repeat(2);
      const page = await rig.open({ appId, html: `${twice}<script src="${rig.front.url}/sdk.js"></script>` });
      await page.evaluate('sluice.track("Once")');
      assert.deepEqual(namesOf(await rig.stored(appId, 2)).sort(), ['Once', 'Page View']);
    });
  });

  describe('page views', { concurrency: 1 }, () => {
    test('are captured once for each page, with the global event properties, or not at all by option', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId, pageViews: true });
      await page.evaluate('sluice.addEventProperties({ theme: "dark" }); sluice.flush()');
      await page.goto(`${page.url()}?again=1#part`);
      await libraryIn(page);
      await page.evaluate(`history.pushState({}, '', '/basket'); document.title = 'Basket'`);
      await until(() => sentNames(appId).length === 3, { deadlineMs: 20_000, what: 'three views are sent' });
      const silent = await rig.open({ appId, context: page.context(), pageViews: false });
      await silent.evaluate(`history.pushState({}, '', '/silent'); sluice.track('Last'); sluice.flush()`);
      const rows = await rig.stored(appId, 4);
      assert.deepEqual(namesOf(rows), ['Page View', 'Page View', 'Page View', 'Last']);
      const [first, second, third] = rows;
      const path = new URL(page.url()).pathname;
      assert.equal(path, '/basket');
      assert.equal(first?.properties.theme, undefined);
      assert.deepEqual([second?.properties.theme, third?.properties.theme], ['dark', 'dark']);
      assert.equal(first?.properties.title, 'Shop');
      assert.ok(second?.properties.url?.endsWith('?again=1#part'));
      assert.equal(third?.properties.path, '/basket');
    });

    test('a prerendered page records and sends nothing until it is shown, then its view and calls once', async (t) => {
      const appId = rig.newAppId(t);
      let show = () => {};
      const shown = new Promise<void>((resolve) => {
        show = resolve;
      });
      const allowed = { status: 200, headers: { 'access-control-allow-origin': '*' } };
      rig.front.treatPath('/shown', async () => {
        await shown;
        return allowed;
      });
      // The page says that the library is there, and has been for longer than its interval.
      const report = `<script>sluice.track('Called'); sluice.flush(); addEventListener('load', () => setTimeout(() => {
        fetch('${rig.front.url}/loaded?' + document.prerendering + '&' + sluice.droppedCount + '&' + sluice.userId, { mode: 'no-cors' });
      }, 500))</script>`;
      const script = `<script>${snippet({ appId, baseUrl: rig.front.url, intervalMs: 100 })}</script>`;
      const target = rig.put(`<!doctype html><title>Next</title>${script}${report}`);
      const rules = JSON.stringify({
        prerender: [{ source: 'list', urls: [target], eagerness: 'immediate' }],
      });
      const start =
        rig.put(`<!doctype html><title>Start</title><script type="speculationrules">${rules}</script>
        <script>fetch('${rig.front.url}/shown').then(() => { location.href = '${target}'; });</script>`);
      const browser = await startUndrivenBrowser(start);
      t.after(() => browser.stop());
      const loaded = await until(() => rig.front.seen.find((one) => one.path.startsWith('/loaded')), {
        deadlineMs: 90_000,
        what: 'the page is prerendered',
      });
      assert.equal(loaded.path, '/loaded?true&0&undefined');
      assert.equal(rig.front.batches(appId).length, 0);
      show();
      const rows = await rig.stored(appId, 2);
      assert.deepEqual(namesOf(rows).sort(), ['Called', 'Page View']);
      assert.ok((rig.front.batches(appId)[0]?.atMs ?? 0) > loaded.atMs);
    });
  });

  describe('what a page forbids or lacks', { concurrency: 1 }, () => {
    test('from another origin, all requests are simple ones, without preflight or cookies', async (t) => {
      const appId = rig.newAppId(t);
      const context = await rig.browser.newContext();
      await context.addCookies([{ name: 'secret', value: '1', url: rig.front.url }]);
      const page = await rig.open({ appId, context, pageViews: true });
      const faults = faultsOf(page);
      await page.evaluate(`sluice.track('E'); sluice.identify('ada@example.com'); sluice.flush()`);
      await page.evaluate(`sluice.track('F'); location.href = 'about:blank'`);
      await rig.stored(appId, 3);
      const batches = rig.front.batches(appId);
      for (const { headers, status } of batches) {
        assert.equal(headers.origin, rig.siteUrl);
        assert.equal(headers.cookie, undefined);
        assert.match(String(headers['content-type'] ?? 'text/plain'), /^text\/plain/);
        assert.ok(status === 200 || status === 503, String(status));
      }
      assert.deepEqual(
        rig.front.seen.filter(({ method }) => method === 'OPTIONS'),
        [],
      );
      assert.deepEqual(faults, []);
    });

    test('a strict Content Security Policy need only allow the script and its address', async (t) => {
      const appId = rig.newAppId(t);
      const origin = rig.front.url;
      const policy = `default-src 'none'; script-src ${origin}; connect-src ${origin}; require-trusted-types-for 'script'`;
      const page = await rig.open({
        appId,
        html: `<script src="${origin}/sdk.js"></script>`,
        headers: { 'content-security-policy': policy },
        wait: false,
      });
      const faults = faultsOf(page);
      await page.evaluate(
        `sluice.load('${appId}', { baseUrl: '${origin}', intervalMs: 100 }); sluice.track('E')`,
      );
      await rig.stored(appId, 2);
      await page.evaluate(`sluice.track('Leaving'); location.href = 'about:blank'`);
      assert.deepEqual(namesOf(await rig.stored(appId, 3)).sort(), ['E', 'Leaving', 'Page View']);
      assert.deepEqual(faults, []);
    });

    test('the snippet works with a nonce', async (t) => {
      const appId = rig.newAppId(t);
      const origin = rig.front.url;
      const html = `<script nonce="n0">${snippet({ appId, baseUrl: origin, pageViews: false, intervalMs: 100 })}</script>`;
      const policy = `default-src 'none'; script-src 'nonce-n0' ${origin}; connect-src ${origin}`;
      const page = await rig.open({ appId, html, headers: { 'content-security-policy': policy } });
      await page.evaluate(`sluice.track('E')`);
      await rig.stored(appId, 1);
    });

    test('where storage and cookies are denied, events arrive all the same', async (t) => {
      const appId = rig.newAppId(t);
      const inner = rig.pageUrl({ appId, pageViews: true });
      const page = await rig.open({
        appId,
        html: `<iframe sandbox="allow-scripts" src="${inner}"></iframe>`,
        wait: false,
      });
      const uncaught: string[] = [];
      page.on('pageerror', (error) => uncaught.push(error.message));
      const frame = page.frames()[1];
      assert.ok(frame);
      await frame.waitForFunction('window.sluice && sluice.userId !== undefined');
      const denied = `(() => { try { return String(localStorage.length) } catch (error) { return error.name } })()`;
      assert.equal(await frame.evaluate(denied), 'SecurityError');
      await frame.evaluate(`sluice.addEventProperties({ theme: 'dark' }); sluice.identify('ada@example.com');
        sluice.track('E'); sluice.resetIdentity(); sluice.track('F')`);
      const rows = await rig.stored(appId, 3);
      assert.deepEqual(namesOf(rows).sort(), ['E', 'F', 'Page View']);
      const row = Object.fromEntries(rows.map((one) => [one.event, one]));
      assert.deepEqual([row.E?.identity, row.F?.identity], ['ada@example.com', '']);
      assert.deepEqual([row.E?.properties.theme, row.F?.properties.theme], ['dark', 'dark']);
      assert.deepEqual(uncaught, []);
      assert.equal(rig.front.batches(appId)[0]?.headers.origin, 'null');
    });

    test('where the page has filled the storage, events arrive all the same, exactly once', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({
        appId,
        head: `<script>for (let size = 1 << 22; size >= 1; size >>= 1) {
          try { for (let n = 0; ; n++) localStorage.setItem('fill' + size + '-' + n, 'x'.repeat(size)) } catch {}
        }</script>`,
      });
      await page.evaluate(`for (let n = 0; n < 50; n += 1) sluice.track('E' + n); sluice.identify('a@b.example');
        sluice.track('Last', { text: 'x'.repeat(1000) })`);
      const rows = await rig.stored(appId, 51);
      assert.equal(new Set(namesOf(rows)).size, 51);
      assert.equal(rows.length, 51);
      assert.equal(new Set(rows.map(({ session_id }) => session_id)).size, 1);
      assert.equal(rows.find((row) => row.event === 'Last')?.identity, 'a@b.example');
    });
  });

  test('the script as it is served is under 12 kB gzipped, and its source map leads to its sources', async () => {
    const reply = await fetch(`${rig.sluice.baseUrl}/sdk.js`, { headers: { 'accept-encoding': 'gzip' } });
    assert.equal(reply.headers.get('content-encoding'), 'gzip');
    assert.ok(
      Number(reply.headers.get('content-length')) < 12_000,
      String(reply.headers.get('content-length')),
    );
    const script = await reply.text();
    assert.ok(gzipSync(script).length < 12_000);
    const [, address] = /\n\/\/# sourceMappingURL=(\S+)\s*$/.exec(script) ?? [];
    const map = (await (await fetch(new URL(String(address), reply.url))).json()) as {
      version: number;
      sources: string[];
      sourcesContent: string[];
      mappings: string;
    };
    assert.equal(map.version, 3);
    assert.ok(map.sources.some((source) => source.endsWith('src/client/web/script.ts')));
    for (const source of map.sources) assert.doesNotMatch(source, /^\/|node_modules/);
    assert.equal(map.sourcesContent.length, map.sources.length);
    const counts = { lines: map.mappings.split(';').length, ...lastsOf(map.mappings, map.sourcesContent) };
    assert.ok(counts.lines <= script.split('\n').length);
    assert.ok(counts.segments > 500);
    assert.equal(counts.outside, 0);
  });
});

/** How many places a map names, and how many of them are outside of its sources. */
function lastsOf(mappings: string, contents: readonly string[]): { segments: number; outside: number } {
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const lines = contents.map((content) => content.split('\n'));
  const at = [0, 0, 0];
  let [segments, outside] = [0, 0];
  for (const segment of mappings.split(/[;,]/)) {
    const numbers: number[] = [];
    let [value, shift] = [0, 0];
    for (const digit of segment) {
      const bits = digits.indexOf(digit);
      value |= (bits & 31) << shift;
      shift += 5;
      if ((bits & 32) !== 0) continue;
      numbers.push((value & 1) === 1 ? -(value >> 1) : value >> 1);
      [value, shift] = [0, 0];
    }
    if (numbers.length < 4) continue;
    segments += 1;
    for (let n = 0; n < 3; n += 1) at[n] = (at[n] as number) + (numbers[n + 1] as number);
    const [source, line, column] = at as [number, number, number];
    const text = lines[source]?.[line];
    if (text === undefined || column < 0 || column > text.length) outside += 1;
  }
  return { segments, outside };
}
