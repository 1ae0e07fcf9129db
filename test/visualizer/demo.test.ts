// The demo page: what it answers and to whom, and in a real browser the way from a button to ClickHouse.

import assert from 'node:assert/strict';
import { request } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { after, afterEach, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { createEnvironment } from '../harness/accounts.js';
import { faultsOf, launchBrowser, withoutBrowser } from '../harness/browser.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

const sluice = await ownSluice({ env: { DEMO: '1' } });
const otherAppId = await createEnvironment(sluice);
for (const appId of [sluice.appId, otherAppId]) {
  const reply = await fetch(`${sluice.baseUrl}/api/track`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      app_id: appId,
      events: [
        { event: 'By id', user_id: '7', properties: { amount: 12.5 } },
        { event: 'By identity', identity: 'ada@example.com' },
        { event: 'Of a stranger', identity: 'eve@example.com' },
        { event: 'Of another stranger', user_id: '8' },
      ],
    }),
  });
  assert.equal(reply.status, 200);
}
await until(async () => (await sluice.rows('SELECT 1 FROM events')).length === 8, 'the events are stored');

type Answer = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  readonly body: {
    readonly events: { readonly event: string }[];
    readonly users: { readonly user_ids: string[]; readonly identity: string }[];
    readonly err?: { readonly code: string; readonly field?: string };
  };
};

/** `fetch` does not let a Host header be chosen. */
function get(path: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
  return new Promise((settle, reject) => {
    request(`${sluice.adminUrl}${path}`, { headers, agent: false }, async (reply) => {
      const text = await textOf(reply);
      const isJson = reply.headers['content-type'] === 'application/json';
      const body = (isJson ? JSON.parse(text) : {}) as Answer['body'];
      settle({ status: reply.statusCode ?? 0, headers: reply.headers, text, body });
    })
      .on('error', reject)
      .end();
  });
}

function askArrived(parameters: Readonly<Record<string, string | string[]>>, headers = {}): Promise<Answer> {
  const query = new URLSearchParams();
  for (const [name, values] of Object.entries({ app_id: sluice.appId, ...parameters })) {
    for (const value of [values].flat()) query.append(name, value);
  }
  return get(`/demo/arrived?${query}`, headers);
}

/** Asks the same until the answer is no 503: on a busy machine a query may take longer than it may. */
function arrived(parameters: Readonly<Record<string, string | string[]>>, headers = {}): Promise<Answer> {
  return until(async () => {
    const answer = await askArrived(parameters, headers);
    return answer.status !== 503 && answer;
  }, 'the query is answered');
}

const namesOf = ({ body }: Answer) => body.events.map(({ event }) => event);

describe('what arrived', () => {
  test('is answered for the named users, and for nobody else', async () => {
    assert.deepEqual(namesOf(await arrived({ user_id: '7' })), ['By id']);
    assert.deepEqual(namesOf(await arrived({ identity: 'ada@example.com' })), ['By identity']);
    const both = await arrived({ user_id: ['7', '9'], identity: ['ada@example.com', 'ADA@example.com'] });
    assert.deepEqual(namesOf(both), ['By identity', 'By id']);
    assert.deepEqual(
      both.body.users.map(({ identity, user_ids }) => [identity, user_ids]),
      [
        ['', ['7']],
        ['ada@example.com', []],
      ],
    );
    for (const hostile of ["' OR 1=1 --", "') OR ('1'='1", '\\', '%', '*', '']) {
      const { status, body } = await arrived({ user_id: '9', identity: hostile });
      assert.deepEqual([status, body.events, body.users], [200, [], []], hostile);
    }
  });

  test('is answered only for environments of the demo account, even if another account has its name', async () => {
    for (const appId of [otherAppId, '1', '', "' OR 1=1"]) {
      const { status, body } = await arrived({ app_id: appId, user_id: '7' });
      assert.deepEqual([status, body.err?.code], [400, 'unknown_app_id'], appId);
    }
  });

  test('is refused if the query is bad', async () => {
    const refused: [Record<string, string | string[]>, string, string?][] = [
      [{}, 'missing_user'],
      [{ identity: '' }, 'missing_user'],
      [{ app_id: [sluice.appId, otherAppId], user_id: '7' }, 'missing_field', 'app_id'],
      [{ user_id: 'x' }, 'invalid_user_id', 'user_id'],
      [{ user_id: '-1' }, 'invalid_user_id', 'user_id'],
      [{ user_id: '07' }, 'invalid_user_id', 'user_id'],
      [{ user_id: '9007199254740992' }, 'invalid_user_id', 'user_id'],
      [{ user_id: Array.from({ length: 11 }, (_, i) => String(i)) }, 'too_many_records'],
      [{ identity: 'x'.repeat(256) }, 'too_long', 'identity'],
    ];
    for (const [parameters, code, field] of refused) {
      const { status, body } = await arrived(parameters);
      assert.deepEqual(
        [status, body.err?.code, body.err?.field],
        [400, code, field],
        JSON.stringify(parameters),
      );
    }
    assert.equal((await arrived({ user_id: '9007199254740991' })).status, 200);
  });

  test('is only for pages of this server, not for other sites or other host names that point here', async () => {
    const { host } = new URL(sluice.adminUrl);
    const port = host.split(':')[1];
    const foreign = [
      { origin: 'https://elsewhere.example' },
      { origin: 'null' },
      { origin: `http://localhost:${port}` },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { host: `rebound.example:${port}` },
      { host: '127.0.0.1.rebound.example' },
      { host: 'localhost.rebound.example' },
    ];
    for (const headers of foreign) {
      const { status, text } = await arrived({ user_id: '7' }, headers);
      assert.equal(status, 404, JSON.stringify(headers));
      assert.ok(!text.includes('By id'));
    }
    for (const headers of [
      { host: `localhost:${port}` },
      { host: `[::1]:${port}` },
      { host: `demo.localhost:${port}`, origin: `http://demo.localhost:${port}` },
      { origin: `http://${host}`, 'sec-fetch-site': 'same-origin' },
      { 'sec-fetch-site': 'none' },
    ]) {
      assert.equal((await arrived({ user_id: '7' }, headers)).status, 200, JSON.stringify(headers));
    }
    const page = await get('/demo', { host: 'rebound.example' });
    assert.equal(page.status, 404);
    assert.match(page.text, /set PUBLIC_BASE_URL/);
    assert.equal((await get('/demo', { 'sec-fetch-site': 'cross-site' })).status, 200, 'a link leads to it');
  });

  test('is queried by at most four requests at a time; others are asked to retry', async () => {
    const answers = await Promise.all(Array.from({ length: 40 }, () => askArrived({ user_id: '7' })));
    const limited = answers.filter(({ text }) => text.includes('Too many queries at once'));
    assert.ok(limited.length > 0 && limited.length <= 36, `${limited.length} of 40`);
    for (const { status, headers, body } of limited) {
      assert.deepEqual([status, headers['retry-after'], body.err?.code], [503, '2', 'overloaded']);
    }
    assert.equal((await arrived({ user_id: '7' })).status, 200);
  });

  test('may not be cached or embedded by another page', async () => {
    const { headers } = await arrived({ user_id: '7' });
    assert.equal(headers['cache-control'], 'no-store');
    assert.equal(headers['cross-origin-resource-policy'], 'same-origin');
    assert.equal(headers['access-control-allow-origin'], undefined);
    const policy = String((await get('/demo')).headers['content-security-policy']);
    assert.match(policy, /default-src 'none'/);
    assert.match(policy, /frame-ancestors 'none'/);
    assert.doesNotMatch(policy, /unsafe|\*/);
  });
});

describe('the page', { skip: withoutBrowser() }, () => {
  let browser: Browser;
  before(async () => {
    browser = await launchBrowser();
  });
  after(() => browser?.close());
  afterEach(async () => {
    await Promise.all(browser.contexts().map((context) => context.close()));
  });

  async function openPage(prepare: (page: Page) => Promise<void> = async () => undefined): Promise<Page> {
    const page = await (await browser.newContext()).newPage();
    page.setDefaultTimeout(60_000);
    await prepare(page);
    await page.goto(`${sluice.adminUrl}/demo`);
    return page;
  }

  const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
  const part = (page: Page, name: string) => page.getByRole('region', { name, exact: true });
  const nameOfUser = (page: Page, at: 'userId' | 'identity') =>
    part(page, "This browser's user").locator(`dt:text-is("${at}") + dd`).textContent();
  const arrivedRow = (page: Page, hasText: string) =>
    part(page, 'Events in ClickHouse').locator('tbody tr', { hasText });
  const calls = (page: Page) => page.locator('.calls li');
  const chipOf = (page: Page, code: string) => calls(page).filter({ hasText: code }).first().locator('.chip');
  const queryable = (page: Page, code: string) =>
    chipOf(page, code)
      .filter({ hasText: /^queryable after \d+\.\d s$/ })
      .waitFor();

  test('shows each call, when it could be queried, and its outcome', async () => {
    const page = await openPage();
    const faults = faultsOf(page);
    await arrivedRow(page, 'Page View').waitFor();
    const userId = String(await nameOfUser(page, 'userId'));
    assert.match(userId, /^\d+$/);

    await press(page, 'Add');
    await press(page, 'Track');
    await queryable(page, 'track("Order Completed"');
    const row = arrivedRow(page, 'Order Completed');
    for (const part of [userId, 'amount: 12.5', 'theme: dark']) {
      assert.ok((await row.textContent())?.includes(part), part);
    }

    await page.fill('#identity-value', 'grace@example.com');
    await page.press('#identity-value', 'Enter');
    await queryable(page, 'identify("grace@example.com")');
    await press(page, 'Add user property');
    await queryable(page, 'addUserProperties(');
    assert.equal(await nameOfUser(page, 'identity'), 'grace@example.com');
    const user = await part(page, 'The user')
      .locator('tbody tr', { hasText: 'grace@example.com' })
      .textContent();
    assert.ok(user?.includes(userId) && user.includes('plan: pro'), String(user));
    const rows = await sluice.rows<{ identity: string; user_ids: string[] }>(
      `SELECT identity, user_ids FROM users WHERE app_id = '${sluice.appId}' AND has(user_ids, ${userId})`,
    );
    assert.deepEqual(
      rows.map(({ identity, user_ids }) => [identity, user_ids.map(String)]),
      [['grace@example.com', [userId]]],
    );

    await press(page, 'Reset identity');
    assert.notEqual(await nameOfUser(page, 'userId'), userId);
    assert.equal(await nameOfUser(page, 'identity'), 'none: anonymous');
    await press(page, 'Remove');
    await press(page, 'Clear all');
    await page.fill('#event', 'Afterwards');
    await press(page, 'Track');
    await press(page, 'Flush');
    await queryable(page, 'track("Afterwards"');
    const last = await arrivedRow(page, 'Afterwards').textContent();
    assert.ok(!last?.includes('theme') && !last?.includes(userId), String(last));
    assert.ok((await arrivedRow(page, '').count()) >= 3, 'the earlier user of this tab is still shown');
    assert.deepEqual(faults, []);
  });

  test('says when the service does not answer, and shows new events when it answers again', async () => {
    const page = await openPage((opened) => opened.clock.install());
    await arrivedRow(page, 'Page View').waitFor();
    const fault = page.getByRole('alert');
    assert.equal(await fault.isVisible(), false);
    await page.route('**/api/**', (route) => route.abort());
    await press(page, 'Shake');
    await page.locator('.screen .message', { hasText: 'no answer came' }).waitFor();
    await press(page, 'Track');
    await page.clock.fastForward(21_000);
    await chipOf(page, 'track(').filter({ hasText: 'not there after 20 s' }).waitFor();

    await page.route('**/demo/arrived*', (route) => route.abort());
    await fault.filter({ hasText: 'The service does not answer' }).waitFor();
    await page.unroute('**/demo/arrived*');
    await fault.waitFor({ state: 'hidden' });

    await page.unroute('**/api/**');
    await press(page, 'Flush');
    await page.clock.fastForward(10_000);
    await queryable(page, 'track(');
  });

  test('works without the script, and says that it is blocked', async () => {
    const page = await openPage(async (opened) => {
      await opened.route('**/sdk.js', (route) => route.abort());
    });
    const uncaught: string[] = [];
    page.on('pageerror', (error) => uncaught.push(error.message));
    await page.getByRole('alert').filter({ hasText: 'has not loaded' }).waitFor();
    await press(page, 'Track');
    await chipOf(page, 'track(').filter({ hasText: 'waits for the script' }).waitFor();
    assert.deepEqual(uncaught, []);
  });
});
