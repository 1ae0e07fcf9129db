// The client library's script in real Chromium: how it is loaded, what it records by itself, and what a page may forbid.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import type { Page } from 'playwright-core';
import { snippet } from '../../src/libraries/client/web/snippet.js';
import { faultsOf, withoutBrowser } from '../harness/browser.js';
import { clientRig, type StoredRow } from '../support/client-page.js';
import { test } from '../support/test.js';

const rig = await clientRig();

describe('the script in a browser', { skip: withoutBrowser(), concurrency: 2 }, () => {
  const namesOf = (rows: readonly { event: string }[]) => rows.map((row) => row.event);

  describe('page views', { concurrency: 1 }, () => {
    const addressesOf = (rows: readonly StoredRow[]) =>
      rows
        .filter(({ event }) => event === 'Page View')
        .map(({ properties }) =>
          [properties.url, properties.referrer].map((url) => String(url).slice(rig.siteUrl.length)),
        )
        .sort();

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
      // Each names the one before. Their times may be equal, and on a busy machine they are sent in several requests.
      assert.deepEqual(
        addressesOf(rows),
        [
          [start, ''],
          ['/replaced', start],
          ['/navigated', '/replaced'],
          ['/navigated?q=1', '/navigated'],
          ['/pushed', '/navigated?q=1'],
          ['/navigated?q=1', '/pushed'],
        ].sort(),
      );
      assert.ok(rows.some(({ properties }) => properties.title === 'Replaced'));
      assert.deepEqual(faults, []);
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
      await page.evaluate(`new Promise((settle) => {
        history.pushState(null, '', '${path}');
        setTimeout(() => settle((document.title = '${title}')), 10);
      })`);
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
});
