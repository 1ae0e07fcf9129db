// The client library's script in real Chromium: how it is loaded, what it records by itself, and what a page may forbid.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, before, describe, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import type { Page } from 'playwright-core';
import { snippet, snippetCallsMax } from '../../src/libraries/client/web/snippet.js';
import { faultsOf, wholeBrowser, withoutBrowser } from '../harness/browser.js';
import type { Deployment } from '../harness/services.js';
import { startUndrivenBrowser } from '../harness/undriven-browser.js';
import { until } from '../harness/wait.js';
import {
  type ClientRig,
  libraryIn,
  type StoredRow,
  startClientRig,
  userOf,
  warningsOf,
} from '../support/client-page.js';
import { sharedSluice } from '../support/sluice.js';
import { test } from '../support/test.js';

/** The suite is skipped without a browser. */
const sluice = withoutBrowser() === false ? await sharedSluice() : undefined;

describe('the script in a browser', { skip: withoutBrowser(), concurrency: 2 }, () => {
  let rig: ClientRig;
  before(async () => {
    rig = await startClientRig(sluice as Deployment);
  });
  after(() => rig?.stop());

  /** Opens a page with the snippet alone; the test decides when the script comes. */
  async function openBeforeScript(t: TestContext, appId: string) {
    const path = `/sdk.js?${Math.random()}`;
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    rig.front.treatPath(path, async () => {
      await released;
      return 'pass' as const;
    });
    const page = await (await rig.browser.newContext()).newPage();
    t.after(() => page.context().close());
    await page.goto(rig.pageUrl({ appId, script: rig.front.url + path }), { waitUntil: 'commit' });
    await page.waitForFunction('window.sluice && sluice.calls.length > 0');
    return { page, release };
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
      const { page, release } = await openBeforeScript(t, appId);
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
        assert.ok(Math.abs(time_ms - (atMs - 60_000)) < 30_000, String(time_ms));
    });

    test('copies the arguments of a call: what the page changes afterwards is not in its event', async (t) => {
      const appId = rig.newAppId(t);
      const { page, release } = await openBeforeScript(t, appId);
      const faults = faultsOf(page);
      await page.evaluate(`{
        const own = { step: 1, gone: 'no' };
        const everywhere = { theme: 'dark' };
        const ofUser = { plan: 'free' };
        sluice.addEventProperties(everywhere);
        sluice.track('1', own);
        sluice.identify('copies@x.example');
        sluice.addUserProperties(ofUser);
        own.step = 2; own.more = 'x'; delete own.gone; everywhere.theme = 'light'; ofUser.plan = 'paid';
        sluice.track('2', own);
        own.step = 3;
      }`);
      release();
      await libraryIn(page);
      await page.evaluate('sluice.flush()');
      const rows = await rig.stored(appId, 2);
      assert.deepEqual(
        rows.map(({ event, properties }) => [event, properties]),
        [
          ['1', { theme: 'dark', step: '1', gone: 'no' }],
          ['2', { theme: 'dark', step: '2', more: 'x' }],
        ],
      );
      const sent = rig.front.batches(appId).flatMap(({ messages }) => messages);
      const ofUser = sent.filter(({ type }) => type === 'user_properties');
      assert.deepEqual(
        ofUser.map(({ properties }) => properties),
        [{ plan: 'free' }],
      );
      assert.deepEqual(faults, []);
    });

    test('counts the calls beyond its bound, and the script reports them as dropped once it is loaded', async (t) => {
      const appId = rig.newAppId(t);
      const { page, release } = await openBeforeScript(t, appId);
      const warnings = warningsOf(page);
      const tooMany = 205;
      // The call of `load` is one of the calls that are kept.
      const kept = snippetCallsMax - 1;
      await page.evaluate(`for (let n = 0; n < ${kept + tooMany}; n += 1) sluice.track('E' + n)`);
      assert.deepEqual(warnings, []);
      release();
      await libraryIn(page);
      assert.equal(await page.evaluate('sluice.droppedCount'), tooMany);
      assert.deepEqual(warnings, [
        `Sluice: dropped ${tooMany} messages, ${tooMany} in all: too many calls waited`,
      ]);
      const rows = await rig.stored(appId, kept);
      assert.deepEqual(namesOf(rows).sort(), Array.from({ length: kept }, (_, n) => `E${n}`).sort());
    });

    test('of an older version gets resetIdentity once the script is loaded', async (t) => {
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
        const calls = [sluice.calls.length];
        for (let n = 0; n < 5000; n += 1) sluice.optOut();
        [...calls, sluice.calls.length]`);
      // After the first thousand it keeps only calls that record nothing, and at most a thousand of them.
      assert.deepEqual(calls, [1_004, 2_000]);
      assert.equal(await page.title(), 'still works');
      assert.deepEqual(uncaught, []);
    });

    test('and the script, both twice in one page, record each event once', async (t) => {
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
      await until(() => sentNames(appId).length >= 3, 'three views are sent');
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
      assert.ok(second?.properties.url?.startsWith('http'));
      assert.doesNotMatch(String(second?.properties.url), /[?#]/);
      assert.equal(third?.properties.path, '/basket');
    });

    const addressesOf = (rows: readonly StoredRow[]) =>
      rows
        .filter(({ event }) => event === 'Page View')
        .sort((a, b) => a.time_ms - b.time_ms)
        .map(({ properties }) =>
          [properties.url, properties.referrer].map((url) => String(url).slice(rig.siteUrl.length)),
        );

    /** Settles when the page has had the time to look at its address. */
    const go = (page: Page, code: string) =>
      page.evaluate(`(async () => { ${code}; await new Promise((resolve) => setTimeout(resolve)) })()`);

    test('come once for each new address, however the application goes there, and not for the same address', async (t) => {
      const appId = rig.newAppId(t);
      const page = await rig.open({ appId, pageViews: { query: true } });
      const faults = faultsOf(page);
      const start = new URL(page.url()).pathname;
      await page.evaluate(`navigation.addEventListener('navigate', (event) => {
        if (event.canIntercept) event.intercept({ handler: () => Promise.resolve() });
      })`);
      await go(page, `history.replaceState({}, '', '/replaced'); document.title = 'Replaced'`);
      await go(page, `history.replaceState({ of: 'the same' }, '', '/replaced')`);
      await go(page, `history.replaceState({}, '', '#part')`);
      await go(page, `history.pushState({}, '')`);
      await go(page, `await navigation.navigate('/navigated').finished`);
      await go(page, `await navigation.navigate('/navigated', { history: 'replace' }).finished`);
      await go(page, `await navigation.navigate('/navigated?q=1', { history: 'replace' }).finished`);
      await go(page, `await navigation.reload().finished`);
      await go(page, `history.pushState({}, '', '/pushed'); history.replaceState({}, '', '/pushed')`);
      await go(page, `await navigation.back().finished`);
      await go(page, 'sluice.flush()');
      const rows = await rig.stored(appId, 6);
      assert.deepEqual(addressesOf(rows), [
        [start, ''],
        ['/replaced', start],
        ['/navigated', '/replaced'],
        ['/navigated?q=1', '/navigated'],
        ['/pushed', '/navigated?q=1'],
        ['/navigated?q=1', '/pushed'],
      ]);
      assert.ok(rows.some(({ properties }) => properties.title === 'Replaced'));
      assert.deepEqual(faults, []);
    });

    test('are the same in a browser that has a history but no `navigation`', async (t) => {
      const appId = rig.newAppId(t);
      const head = `<script>Object.defineProperty(window, 'navigation', { value: undefined })</script>`;
      const page = await rig.open({ appId, head, pageViews: true });
      const start = new URL(page.url()).pathname;
      await go(page, `history.replaceState({}, '', '/replaced')`);
      await go(page, `history.replaceState({ of: 'the same' }, '', '/replaced')`);
      await go(page, `history.pushState({}, '', '/pushed'); history.replaceState({}, '', '/pushed')`);
      const popped = `await new Promise((resolve) => addEventListener('popstate', resolve, { once: true }))`;
      await go(page, `setTimeout(() => history.back()); ${popped}`);
      await go(page, 'sluice.flush()');
      assert.deepEqual(addressesOf(await rig.stored(appId, 4)), [
        [start, ''],
        ['/replaced', start],
        ['/pushed', '/replaced'],
        ['/replaced', '/pushed'],
      ]);
    });

    test('come once more when the browser shows a page again from its cache', {
      skip: withoutBrowser(wholeBrowser),
    }, async (t) => {
      const appId = rig.newAppId(t);
      let leave = () => {};
      const left = new Promise<void>((resolve) => {
        leave = resolve;
      });
      const allowed = { status: 200, headers: { 'access-control-allow-origin': '*' } };
      const report = `/shown-again?${appId}`;
      rig.front.treatPath('/leave', async () => {
        await left;
        return allowed;
      });
      rig.front.treatPath(report, () => allowed);
      const next = rig.put('<!doctype html><script>addEventListener("load", () => history.back())</script>');
      const script = snippet({ appId, baseUrl: rig.front.url, intervalMs: 100 });
      const start = rig.put(`<!doctype html><title>Kept</title><script>${script}</script>
        <script>
          addEventListener('pageshow', ({ persisted }) => {
            if (!persisted) return;
            sluice.track('Shown again');
            sluice.flush().then(() => fetch('${rig.front.url}${report}'));
          });
          // A request that is still under way would keep the page out of the cache.
          addEventListener('load', () => sluice.flush().then(() => fetch('${rig.front.url}/leave'))
            .then(() => { location.href = '${next}'; }));
        </script>`);
      const browser = await startUndrivenBrowser(start);
      t.after(() => browser.stop());
      await until(() => sentNames(appId).length === 1, 'the first view is sent');
      leave();
      await until(
        () => rig.front.seen.some(({ path }) => path === report),
        'the page is shown again as it was',
      );
      const rows = await rig.stored(appId, 3);
      assert.deepEqual(namesOf(rows).sort(), ['Page View', 'Page View', 'Shown again']);
      const [one, two] = rows.filter(({ event }) => event === 'Page View');
      assert.deepEqual([one?.properties.url, two?.properties.url], [start, start]);
      assert.equal(one?.user_id, two?.user_id);
    });

    test('a prerendered page records and sends nothing until it is shown, then its view and calls once', {
      skip: withoutBrowser(wholeBrowser),
    }, async (t) => {
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
      // The page reports when the library has been loaded for longer than its interval.
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
      const loaded = await until(
        () => rig.front.seen.find((one) => one.path.startsWith('/loaded')),
        'the page is prerendered',
      );
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

    // The policies are those that the page for web developers documents.
    const policies = [
      ...readFileSync(new URL('../../../src/libraries/client/README.md', import.meta.url), 'utf8').matchAll(
        /^\| (in the page|in a file|nowhere)(.*?) \| `(script-src .*)` \|$/gm,
      ),
    ];
    test('the page for web developers documents six policies', () => assert.equal(policies.length, 6));
    for (const [, where, how, documented = ''] of policies) {
      test(`the policy for a snippet that is ${where}${how} suffices, and is needed`, async (t) => {
        const origin = rig.front.url;
        const allowed = documented.replaceAll('https://events.example.com', origin);
        const results: unknown[] = [];
        for (const policy of [allowed, allowed.replace(/^script-src [^;]*/, "script-src 'none'")]) {
          const appId = rig.newAppId(t);
          const code = snippet({ appId, baseUrl: origin, pageViews: false, intervalMs: 100 });
          const hash = createHash('sha256').update(code).digest('base64');
          const file = new URL(rig.put(code, { 'content-type': 'text/javascript' })).pathname;
          const html =
            where === 'in a file'
              ? `<script src="${file}"></script>`
              : where === 'nowhere'
                ? `<script src="${origin}/sdk.js"></script>`
                : `<script${policy.includes('nonce') ? ' nonce="n0"' : ''}>${code}</script>`;
          const headers = {
            'content-security-policy': `default-src 'none'; ${policy.replace('NONCE', 'n0').replace('HASH', hash)}`,
          };
          const isAllowed = policy === allowed;
          const page = await rig.open({ appId, html, headers, wait: false });
          const faults = faultsOf(page);
          if (isAllowed) {
            if (where === 'nowhere')
              await page.evaluate(`sluice.load('${appId}', { baseUrl: '${origin}', pageViews: false })`);
            await page.waitForFunction('window.sluice && sluice.userId !== undefined');
            await page.evaluate(`sluice.track('E')`);
            await rig.stored(appId, 1);
          }
          results.push([await page.evaluate('window.sluice && sluice.userId !== undefined'), faults]);
        }
        assert.deepEqual(results, [
          [true, []],
          [undefined, []],
        ]);
      });
    }

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

  test('React: options that a provider gets later count, and page views have the address from redact and the title of their page', async (t) => {
    const appId = rig.newAppId(t);
    const { outputFiles } = await build({
      stdin: {
        resolveDir: fileURLToPath(new URL('../../..', import.meta.url)),
        contents: `
          import { createElement, useEffect, useState } from 'react';
          import { createRoot } from 'react-dom/client';
          import { SluiceProvider, useSluice } from './dist/src/libraries/client/react.js';
          function Orders() {
            useEffect(() => { setTimeout(() => { document.title = 'Orders'; }, 150); }, []);
            return null;
          }
          function App() {
            const [{ consents, path }, set] = useState({ consents: true, path: '/' });
            window.change = (more) => set((now) => ({ ...now, ...more }));
            const beforeSend = (message) => (consents ? message : null);
            const redact = (url) => (url.includes('secret') ? undefined : url);
            const options = { appId: '${appId}', baseUrl: '${rig.front.url}', intervalMs: 100, pageViews: { redact } };
            return createElement(SluiceProvider, { ...options, beforeSend }, createElement(Tracked, { consents, path }));
          }
          function Tracked({ consents, path }) {
            const sluice = useSluice();
            window.sluiceOfPage = sluice;
            useEffect(() => sluice.track(consents ? 'With consent' : 'Without'), [consents]);
            return path === '/' ? null : createElement(Orders);
          }
          createRoot(document.body).render(createElement(App));`,
      },
      bundle: true,
      write: false,
      define: { 'process.env.NODE_ENV': '"production"' },
      logLevel: 'error',
    });
    const script = new URL(rig.put(outputFiles[0]?.text ?? '', { 'content-type': 'text/javascript' }))
      .pathname;
    const html = `<body><script src="${script}"></script></body>`;
    const page = await rig.open({ appId, html, wait: false });
    const faults = faultsOf(page);
    await page.waitForFunction('window.change && sluiceOfPage.userId !== undefined');
    await page.evaluate(`history.pushState(null, '', '/orders?q=1'); change({ path: '/orders' })`);
    await page.waitForFunction(`document.title === 'Orders'`);
    await rig.stored(appId, 3);
    for (const [path, title] of [
      ['/secret?token=1', 'Secret'],
      ['/orders/2', 'Second'],
    ]) {
      await page.evaluate(`history.pushState(null, '', '${path}')`);
      await page.evaluate(`new Promise((settle) => setTimeout(settle, 10))`);
      await page.evaluate(`document.title = '${title}'`);
    }
    await rig.stored(appId, 4);
    await page.evaluate(`change({ consents: false })`);
    await page.evaluate(`sluiceOfPage.track('Later'); sluiceOfPage.flush()`);
    await page.evaluate(`change({ consents: true, path: '/' })`);
    const rows = await rig.stored(appId, 5);
    const titles = rows
      .filter(({ event }) => event === 'Page View')
      .map(({ properties }) => properties.title);
    assert.deepEqual(
      titles,
      ['Shop', 'Orders', 'Second'],
      'where redact returns nothing, nothing is recorded',
    );
    assert.deepEqual(
      namesOf(rows).filter((name) => name !== 'Page View'),
      ['With consent', 'With consent'],
    );
    assert.deepEqual(faults, ['Sluice: failed inside the library.'], 'redact returned nothing');
  });

  test('the script as it is served is under 13 KiB gzipped, and its source map leads to its sources', async () => {
    const reply = await fetch(`${rig.sluice.baseUrl}/sdk.js`, { headers: { 'accept-encoding': 'gzip' } });
    assert.equal(reply.headers.get('content-encoding'), 'gzip');
    assert.ok(
      Number(reply.headers.get('content-length')) < 13 * 1024,
      String(reply.headers.get('content-length')),
    );
    const script = await reply.text();
    assert.ok(gzipSync(script).length < 13 * 1024);
    const [, address] = /\n\/\/# sourceMappingURL=(\S+)\s*$/.exec(script) ?? [];
    const map = (await (await fetch(new URL(String(address), reply.url))).json()) as {
      version: number;
      sources: string[];
      sourcesContent: string[];
      mappings: string;
    };
    assert.equal(map.version, 3);
    assert.ok(map.sources.some((source) => source.endsWith('src/libraries/client/web/script.ts')));
    for (const source of map.sources) assert.doesNotMatch(source, /^\/|node_modules/);
    assert.equal(map.sourcesContent.length, map.sources.length);
    const counts = {
      lines: map.mappings.split(';').length,
      ...placesOf(map.mappings, map.sourcesContent),
    };
    assert.ok(counts.lines <= script.split('\n').length);
    assert.ok(counts.segments > 500);
    assert.equal(counts.outside, 0);
  });
});

/** How many positions a source map names, and how many of them are outside of its sources. */
function placesOf(mappings: string, contents: readonly string[]): { segments: number; outside: number } {
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
