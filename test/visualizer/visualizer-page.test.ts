// The Event Visualizer's page in a real browser.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, afterEach, before, describe, test } from 'node:test';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { faultsOf, launchBrowser, withoutBrowser } from '../harness/browser.js';
import { enter, openPage as openConsolePage } from '../support/console-browser.js';
import { ownApi } from '../support/sluice.js';
import { beginPairing, collect, stopPairing } from '../support/visualizer.js';

const sluice = await ownApi();
const device = sluice.api[1] ?? assert.fail('no other API process');
const admin = sluice.own;
let browser: Browser;

const skip = withoutBrowser();

function event(name: string, fields: object = {}) {
  return { type: 'event', id: randomUUID(), user_id: '7', session_id: 's1', event: name, ...fields };
}

const send = (messages: readonly object[], pairing: string) =>
  collect(device.baseUrl, sluice.appId, messages, pairing);

describe('the page', { skip }, () => {
  before(async () => {
    browser = await launchBrowser();
  });
  after(async () => {
    await browser?.close();
  });
  afterEach(async () => {
    await Promise.all(browser.contexts().map((context) => context.close()));
  });

  async function openPage(options: BrowserContextOptions = {}, hash = ''): Promise<Page> {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    await page.goto(`${admin.adminUrl}/visualizer${hash}`);
    // The page's script is loaded after the console's first one.
    await page.locator('#code').waitFor();
    return page;
  }

  async function pair(page: Page): Promise<string> {
    const { pairing, code } = await beginPairing(device.baseUrl, sluice.appId);
    await page.fill('#token', sluice.adminToken);
    await page.fill('#code', code);
    await page.press('#code', 'Enter');
    await status(page, 'Paired · waiting for events');
    return pairing;
  }

  const status = (page: Page, text: string) =>
    page.locator('#status', { hasText: text }).waitFor({ timeout: 60_000 });
  const rows = (page: Page) => page.locator('.list > li');
  const names = (page: Page) => page.locator('.list .name').allTextContents();

  test('asks people who are signed in to the console for the code only', async () => {
    const context = await browser.newContext();
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    const faults = faultsOf(page);
    await enter(page, sluice, 'watches@example.com', 'operator');
    await openConsolePage(page, 'Live');
    await page.getByRole('link', { name: 'Open the Event Visualizer' }).click();
    await page.getByText('You are signed in as watches@example.com.').waitFor();
    assert.equal(await page.getByLabel('ADMIN_TOKEN').isVisible(), false);
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    await page.fill('#code', code);
    await page.press('#code', 'Enter');
    await status(page, 'Paired · waiting for events');
    assert.deepEqual(faults, []);
  });

  test('can be used by keyboard alone, from the token to the properties of an event', async () => {
    const page = await openPage();
    const faults = faultsOf(page);
    const { pairing, code } = await beginPairing(device.baseUrl, sluice.appId);
    await page.keyboard.type(sluice.adminToken);
    await page.keyboard.press('Tab');
    await page.keyboard.type(code.toLowerCase().replace('-', ''));
    await page.keyboard.press('Enter');
    await status(page, 'waiting for events');
    const message = event('Order', {
      identity: 'ada@example.com',
      properties: { amount: 12.5, plan: 'pro' },
    });
    await send([message, { ...message }], pairing);
    await status(page, 'Paired · live');
    await rows(page).nth(1).waitFor();
    assert.deepEqual(await page.locator('.list .chip').allTextContents(), [
      'Event',
      'repeat',
      'Event',
      'stored',
    ]);
    assert.equal(await page.locator('.tools .muted').textContent(), '1 stored · 1 repeat');
    // Tab order after the focused button: Clear, End pairing, then the rows.
    for (let i = 0; i < 3; i++) await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    const detail = page.locator('.list .detail');
    await detail.waitFor();
    const text = String(await detail.textContent());
    for (const part of ['repeat', 'ada@example.com', 's1', message.id, 'amount', '12.5', 'number', 'pro']) {
      assert.ok(text.includes(part), `${part} in ${text}`);
    }
    assert.deepEqual(faults, []);
  });

  test('shows hostile text as text, and loads nothing from elsewhere', async () => {
    const page = await openPage();
    const faults = faultsOf(page);
    const requests: string[] = [];
    page.on('request', (request) => requests.push(request.url()));
    page.on('dialog', (dialog) => faults.push(`dialog: ${dialog.message()}`));
    const pairing = await pair(page);
    const hostile = `<img src=x onerror=alert(1)><script>alert(2)</script>"'>\u202E\u2066&lt;${'`'}`;
    await send(
      [
        event(hostile, {
          identity: hostile,
          session_id: hostile,
          properties: { [hostile]: hostile, __proto__: 1 },
        }),
        { type: hostile, id: hostile, user_id: hostile },
        {
          type: 'event',
          event: { toString: 1 },
          user_id: ['x'],
          identity: 5,
          properties: 'text',
          time: hostile,
        },
        { type: '__proto__', properties: { constructor: { a: [null] } }, time: '' },
        'text',
        null,
      ] as object[],
      pairing,
    );
    await rows(page).nth(5).waitFor();
    assert.equal((await names(page)).at(-1), hostile);
    for (const summary of await page.locator('.list summary').all()) await summary.click();
    await page.locator('.list .detail').nth(5).waitFor();
    assert.equal(await page.locator('.list script, .list img').count(), 0);
    assert.ok((await page.locator('.list .detail').last().textContent())?.includes(hostile));
    assert.deepEqual(faults, []);
    for (const url of requests) assert.ok(url.replace(/^ws/, 'http').startsWith(admin.adminUrl), url);
  });

  test('pauses, continues and clears', async () => {
    const page = await openPage();
    const pairing = await pair(page);
    await send([event('one')], pairing);
    await rows(page).first().waitFor();
    await page.click('#pause');
    await send([event('two'), event('three')], pairing);
    await page.locator('#pause', { hasText: 'Resume (2 new)' }).waitFor();
    assert.deepEqual(await names(page), ['one']);
    await page.click('#pause');
    assert.deepEqual(await names(page), ['three', 'two', 'one']);
    await page.getByRole('button', { name: 'Clear' }).click();
    assert.equal(await rows(page).count(), 0);
    assert.equal(await page.locator('.empty').isVisible(), true);
    assert.equal(await page.locator('.tools .muted').textContent(), '');
  });

  test('takes the code of a link, says what is wrong with a token or a code, and lets the user correct it', async () => {
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    const page = await openPage({}, `#code=${code}`);
    assert.equal(await page.inputValue('#code'), code);
    const problem = page.locator('#pair .problem');
    const attempt = async (token: string, entered: string, words: string) => {
      await page.fill('#token', token);
      await page.fill('#code', entered);
      await page.getByRole('button', { name: 'Show events' }).click();
      await problem.filter({ hasText: words }).waitFor();
    };
    await attempt('wrong', code, 'not the ADMIN_TOKEN');
    await attempt(sluice.adminToken, '000-000', 'No device is waiting with this code');
    assert.equal(await page.evaluate('document.activeElement.id'), 'code');
    await page.fill('#code', code);
    await page.press('#code', 'Enter');
    await status(page, 'waiting for events');
    assert.equal(await problem.isVisible(), false);
  });

  test('says that the device has ended the pairing, and pairs again', async () => {
    const page = await openPage();
    const pairing = await pair(page);
    await send([event('first')], pairing);
    await rows(page).first().waitFor();
    await stopPairing(device.baseUrl, sluice.appId, pairing);
    await status(page, 'Pairing ended');
    assert.match(
      String(await page.locator('.problem.soft').textContent()),
      /The device has ended the pairing/,
    );
    await page.click('#again');
    const next = await beginPairing(device.baseUrl, sluice.appId);
    await page.fill('#code', next.code);
    await page.press('#code', 'Enter');
    await status(page, 'Paired');
    await send([event('second')], next.pairing);
    await rows(page).nth(1).waitFor();
    assert.deepEqual(await names(page), ['second', 'first']);
  });

  test('reconnects by itself after the service or the network was away', async () => {
    const page = await openPage();
    const pairing = await pair(page);
    await send([event('before')], pairing);
    await rows(page).first().waitFor();
    await page.locator('.list summary').first().focus();
    admin.sigstop();
    await admin.kill9();
    await status(page, 'The connection was lost. Connecting again');
    await admin.restart();
    await status(page, 'Paired · live');
    assert.match(
      String(await page.locator('.problem.soft').textContent()),
      /^No connection from \d\d:\d\d:\d\d to \d\d:\d\d:\d\d: what the device sent meanwhile is not shown\.$/,
    );
    assert.equal(
      await page.evaluate('document.activeElement.tagName'),
      'SUMMARY',
      'the focus is not taken away',
    );
    await send([event('after')], pairing);
    await rows(page).nth(1).waitFor();
    assert.deepEqual(await names(page), ['after', 'before']);
    assert.ok(await page.locator('.problem.soft').isVisible());
    await page.getByRole('button', { name: 'Clear' }).click();
    assert.equal(await page.locator('.problem.soft').isVisible(), false);
  });

  test('accepts another code while the service does not answer', async () => {
    const page = await openPage();
    admin.sigstop();
    await admin.kill9();
    await page.fill('#token', sluice.adminToken);
    await page.fill('#code', '000-000');
    await page.press('#code', 'Enter');
    await status(page, 'The service does not answer. Connecting again');
    const { code } = await beginPairing(device.baseUrl, sluice.appId);
    await page.fill('#code', code);
    await page.press('#code', 'Enter');
    await admin.restart();
    await status(page, 'Paired · waiting for events');
  });

  test('fits on a phone, whatever is shown', async () => {
    const page = await openPage({ viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true });
    const pairing = await pair(page);
    const long = 'W'.repeat(250);
    await send([event(long, { identity: long, properties: { [long]: long, short: 1 } })], pairing);
    await page.locator('.list summary').click();
    await page.locator('.list .detail').waitFor();
    assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 360);
  });

  test('says that the visualizer is off if there is no ADMIN_TOKEN', async () => {
    await admin.restart({ ADMIN_TOKEN: '' });
    const page = await openPage();
    await page.fill('#token', 'any');
    await page.fill('#code', '000-000');
    await page.press('#code', 'Enter');
    await page.getByRole('alert').filter({ hasText: 'The visualizer is off: set ADMIN_TOKEN' }).waitFor();
    for (const path of ['/visualizer.html', '/demo', '/demo/arrived?app_id=1&user_id=1'])
      assert.equal((await fetch(`${admin.adminUrl}${path}`)).status, 404, path);
    assert.equal((await fetch(`${device.baseUrl}/visualizer`)).status, 404, 'not on the public port');
  });
});
