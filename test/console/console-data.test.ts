// The console's pages about data, in a real browser: deletions and data quality.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, describe } from 'node:test';
import type { Browser, Locator, Page } from 'playwright-core';
import { beginLive } from '../../src/admin/live.js';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { writeLedger } from '../../src/clickhouse/ledger-table.js';
import { deletions } from '../../src/contract/limits.js';
import { listEventNames } from '../../src/insights/data-quality/event-names.js';
import { readTraffic } from '../../src/insights/traffic/charts.js';
import { readArrivedSince } from '../../src/insights/traffic/live.js';
import type { AdminContext } from '../../src/operations/context.js';
import type { AuditEntry } from '../../src/registry/audit/read.js';
import { ledgerWrites } from '../../src/tuning.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { launchBrowser, withoutBrowser } from '../harness/browser.js';
import { withoutRounds } from '../harness/deletion.js';
import { isAccepted, paths, post } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { filesOfArchive } from '../harness/user-export.js';
import { until } from '../harness/wait.js';
import { checkReadable, enter, openConsole, openPage, untilCopied } from '../support/console-browser.js';
import { test } from '../support/test.js';

async function downloaded(page: Page, link: Locator): Promise<string> {
  return (await downloadedFile(page, link)).bytes.toString();
}

async function downloadedFile(page: Page, link: Locator) {
  const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

const skip = withoutBrowser();
const hostile = '<img src=x onerror=alert(1)>';

let sluice: SluiceHandle;
let browser: Browser;
let account: TestAccount;
let faults: readonly string[] = [];

describe('the console', { skip }, () => {
  before(async () => {
    [sluice, browser] = await Promise.all([startSluice({ env: { DEMO: '1' } }), launchBrowser()]);
    account = await createTestAccount(sluice, 'Shop');
  });
  after(async () => {
    await browser?.close();
    await sluice?.stop();
  });
  afterEach(async () => {
    await Promise.all(browser.contexts().map((context) => context.close()));
  });

  async function newPage(): Promise<Page> {
    const opened = await openConsole(browser, sluice);
    faults = opened.faults;
    return opened.page;
  }

  const count = async (where: string) =>
    Number((await sluice.rows<{ n: string }>(`SELECT count() AS n FROM events WHERE ${where}`))[0]?.n);

  test('event names of the last day are counted without reading what is older, though a part holds both', async () => {
    const appId = 'of no environment';
    const clickhouse = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
    const olderRows = 40_000;
    let read = 0;
    const exec = (async (asked: Parameters<typeof clickhouse.exec>[0]) => {
      const settings = { ...asked.clickhouse_settings, wait_end_of_query: 1 as const };
      const result = await clickhouse.exec({ ...asked, clickhouse_settings: settings });
      const summary = JSON.parse(String(result.response_headers['x-clickhouse-summary']));
      read = Number((summary as { read_rows: string }).read_rows);
      return result;
    }) as typeof clickhouse.exec;
    const ask = async (days: number) => {
      const names = await listEventNames({ exec } as typeof clickhouse, appId, days);
      for (const { first_seen, last_seen } of names) {
        assert.match(first_seen, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
        assert.ok(
          first_seen <= last_seen && Date.parse(last_seen) <= Date.now(),
          `${first_seen} ${last_seen}`,
        );
      }
      return names.map(({ event, count }) => [event, count]);
    };
    try {
      await clickhouse.command({
        query: `INSERT INTO stored_events (app_id, event, identity, segment, received_at)
          SELECT {appId:String}, if(number = 0, 'New', 'Older'), 'ada@example.com',
            toUnixTimestamp64Micro(now64(6) - toIntervalHour(if(number = 0, 1, 30))) + number, now64(3)
          FROM numbers(${olderRows + 1})`,
        query_params: { appId },
      });
      assert.deepEqual(await ask(1), [['New', 1]]);
      assert.ok(read < olderRows, `${read} rows read`);
      assert.deepEqual(await ask(7), [
        ['Older', olderRows],
        ['New', 1],
      ]);
      assert.ok(read > olderRows, `${read} rows read`);
    } finally {
      await clickhouse.close();
    }
  });

  test('events are watched from now on by the clock that numbers segments, though the clock of the API is an hour ahead', async (context) => {
    const realNow = Date.now;
    context.mock.method(Date, 'now', () => realNow() + 3_600_000);
    const { place } = await withRedis(sluice, (redis) =>
      beginLive({ redis } as AdminContext, String(account.appIds[0])),
    );
    const ms = Number(place.split('.')[0]) / 1000;
    assert.ok(ms < realNow() && ms > realNow() - 60_000, `${realNow() - ms} ms ago`);
  });

  test('an event that is stored while a page of Live is read is shown once', async () => {
    const appId = 'watched meanwhile';
    const clickhouse = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
    const store = (event: string, segment: number) =>
      clickhouse.command({
        query: `INSERT INTO stored_events (app_id, event, identity, segment) VALUES ('${appId}', '${event}', 'a', ${segment})`,
      });
    let asked = 0;
    const exec = (async (...args: Parameters<typeof clickhouse.exec>) => {
      asked += 1;
      if (asked === 2) await store('Second', 2);
      return clickhouse.exec(...args);
    }) as typeof clickhouse.exec;
    try {
      await store('First', 1);
      const first = await readArrivedSince({ exec } as typeof clickhouse, appId, '0');
      const next = await readArrivedSince(clickhouse, appId, first.segment);
      assert.deepEqual(
        [first, next].map(({ events, arrived }) => [arrived, events.map(({ event }) => event)]),
        [
          [1, ['First']],
          [1, ['Second']],
        ],
      );
    } finally {
      await clickhouse.close();
    }
  });

  test('a chart ends with the last minute that every process has had the time to write', async () => {
    const clickhouse = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
    try {
      const minute = 29_000_000;
      const lastMinute = async (afterMs: number) => {
        const { at } = await readTraffic(
          clickhouse,
          ['of no environment'],
          'hour',
          minute * 60_000 + afterMs,
        );
        return Number(at.at(-1)) / 60;
      };
      const { writtenMsMax } = ledgerWrites;
      assert.equal(await lastMinute(writtenMsMax - 1), minute - 2);
      assert.equal(await lastMinute(writtenMsMax), minute - 1);
    } finally {
      await clickhouse.close();
    }
  });

  test('leads a privacy officer from the invitation to a preview, a complete deletion of the pasted users and nobody else, and its evidence', async () => {
    const identities = ['ada@example.com', 'Doe, John', hostile, 'stays@example.com', 'Doe'];
    for (const [index, identity] of identities.entries())
      await post(sluice.baseUrl, paths.track, { app_id: account.appIds[index % 2], identity, event: 'Seen' });
    await until(async () => (await count(`event = 'Seen'`)) === identities.length, 'the events are stored');
    const page = await newPage();
    await enter(page, sluice, 'privacy@example.com', 'privacy', account.accountId);
    await openPage(page, 'Deletions');
    await page.getByText('Nobody was deleted yet').waitFor();
    await page.getByRole('button', { name: 'New deletion' }).click();
    const dialog = page.getByRole('dialog');
    const pasted = `ada@example.com\n\n  ada@example.com \r\nDoe, John\n${hostile}\nStays@example.com\n${'x'.repeat(256)}\n`;
    await dialog.getByLabel('Users, one per line').fill(pasted);
    await dialog.getByText('4 users to delete, 1 named twice.').waitFor();
    await dialog.getByText('1 line is left out, since it names no user: 7: xxx').waitFor();
    const firstNames = dialog.getByRole('list', { name: 'Read from the list' }).getByRole('listitem');
    assert.deepEqual(await firstNames.allTextContents(), [
      'ada@example.com',
      'Doe, John',
      hostile,
      'Stays@example.com',
    ]);
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('3 found, 1 not found; some look like others').waitFor();
    const unclear = dialog.getByRole('table', { name: 'Users to look at again' }).getByRole('row');
    assert.equal(await unclear.count(), 2);
    assert.equal(
      await unclear.nth(1).textContent(),
      'Stays@example.comnot found1 in another case or with blanksWhich?',
    );
    await dialog.getByRole('button', { name: 'Which are similar to Stays@example.com?' }).click();
    await dialog
      .getByRole('list', { name: 'Similar to Stays@example.com' })
      .getByText('stays@example.com')
      .waitFor();
    await dialog.getByLabel('Reference').fill('ticket 4711');
    await dialog.getByLabel('Suppress these users, too').check();
    await dialog.getByRole('button', { name: 'Delete 4 users' }).click();
    await dialog.getByText('The deletion of 4 users is submitted.').waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('table', { name: 'Deletions' }).getByText('complete', { exact: true }).waitFor();
    await page.getByRole('button', { name: /^Evidence of/ }).click();
    await dialog.getByText('4, of whom 3 had data').waitFor();
    await dialog.getByText('ticket 4711').waitFor();
    const counted = dialog.getByRole('table', { name: 'What was found of each user' }).getByRole('row');
    await counted.nth(4).waitFor();
    assert.deepEqual((await counted.allTextContents()).slice(1), ['11', '21', '31', '4not found1']);
    await dialog.getByRole('button', { name: 'Download what was found of all users' }).waitFor();
    const csv = await downloaded(
      page,
      dialog.getByRole('button', { name: 'Download what was found of all users' }),
    );
    assert.equal(csv, '\ufeffplace,records,similar users\r\n1,1,0\r\n2,1,0\r\n3,1,0\r\n4,0,1');
    const certificate = await downloaded(
      page,
      dialog.getByRole('link', { name: 'Download the certificate' }),
    );
    const fields = (JSON.parse(certificate) as { certificate: Record<string, unknown> }).certificate;
    assert.deepEqual(
      Object.entries(fields).filter(([name, value]) => value === '' || /^(key_|submitted_by)/.test(name)),
      [['submitted_by', 'person']],
      'a person has no key, and no field is empty',
    );
    await dialog.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('button', { name: 'New export' }).click();
    await dialog.getByLabel('Users, one per line').fill('stays@example.com');
    await dialog.getByRole('button', { name: 'Export' }).click();
    const { name, bytes } = await downloadedFile(page, page.getByRole('link', { name: 'Download' }));
    assert.match(name, /^export-[0-9a-f-]{36}\.zip$/);
    assert.ok((await filesOfArchive(bytes)).get('data-1.html')?.includes('stays@example.com'));
    const left = await sluice.rows<{ identity: string }>(
      `SELECT identity FROM events WHERE event = 'Seen' ORDER BY identity`,
    );
    assert.deepEqual(
      left.map(({ identity }) => identity),
      ['Doe', 'stays@example.com'],
    );
    const entries = (await sluice.admin('audit', 'list')) as AuditEntry[];
    const entry = entries.find(({ action }) => action === 'submit_deletion');
    assert.deepEqual(
      [entry?.actor, entry?.actor_name, entry?.account_id, entry?.outcome, entry?.details],
      ['person', 'privacy@example.com', account.accountId, 'done', { users: 4, suppress: true }],
    );
    assert.ok(!JSON.stringify(entries).includes('ada@'), 'the audit log names no user');
    const exported = entries.filter(({ action }) => /_export$/.test(action));
    assert.deepEqual(
      exported.map(({ action, actor_name, account_id, outcome }) => [
        action,
        actor_name,
        account_id,
        outcome,
      ]),
      ['read_export', 'submit_export'].map((action) => [
        action,
        'privacy@example.com',
        account.accountId,
        'done',
      ]),
    );
    assert.deepEqual(faults, []);
  });

  test('finds a user by any of their names, shows what is held, and does what each button says', async () => {
    const app_id = account.appIds[0];
    const identity = 'mia@example.com';
    const at = (minute: number) => new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString();
    const steps = Array.from({ length: 60 }, (_, minute) => ({
      user_id: '7',
      event: 'Step',
      timestamp: at(minute),
      properties: { minute },
    }));
    const bought = { identity, event: hostile, timestamp: at(90), properties: { [hostile]: hostile } };
    for (const [path, record] of [
      [paths.identify, { user_id: '7', identity }],
      [paths.track, { events: [...steps, bought] }],
      [paths.track, { identity: 'Mia@Example.com', event: 'Step' }],
      [paths.userProperties, { identity, properties: { plan: hostile } }],
    ] as const)
      assert.ok(isAccepted(await post(sluice.baseUrl, path, { app_id, ...record })), path);
    const isStored = async () =>
      (await sluice.rows("SELECT 1 FROM user_properties WHERE identity = 'mia@example.com'")).length === 1 &&
      (await count(`user_id = 7 OR lower(identity) = '${identity}'`)) === 62;
    await until(isStored, 'the records are stored');
    const page = await newPage();
    await enter(page, sluice, 'users@example.com', 'privacy', account.accountId);
    await openPage(page, 'Users');
    let looks = 0;
    const find = async (name: string) => {
      looks += 1;
      await page.getByLabel('Name', { exact: true }).fill(name);
      await page.getByRole('button', { name: 'Find' }).click();
    };
    // The same address in another spelling belongs to another user.
    const similar = page.getByRole('button', { name: /^Show mia@example\.com$/i });
    const findsSimilar = async () => {
      await find('MIA@example.com');
      // The button has this name again once the answer is there.
      await page.getByRole('button', { name: 'Find', exact: true }).waitFor();
      await page.getByText('Nothing is held about a user of this name').waitFor();
      const both = similar.nth(1).waitFor({ timeout: 10_000 });
      return both.then(
        () => true,
        () => false,
      );
    };
    // On a busy machine the search may time out before it has found them.
    await until(findsSimilar, 'both similar users are shown');
    await page.getByRole('button', { name: 'Show Mia@Example.com', exact: true }).waitFor();
    await page.getByRole('button', { name: `Show ${identity}`, exact: true }).click();
    looks += 1;
    await page.getByRole('heading', { name: identity, exact: true }).waitFor();
    const about = page.getByRole('region', { name: 'The user', exact: true });
    const place = about.getByRole('table', { name: 'Where the user is' }).getByRole('row').nth(1);
    assert.match(
      String(await place.textContent()),
      /^Main Productionmia@example\.com761Jan 1, 2026Jan 1, 2026$/,
    );
    const inEnvironment = page.getByRole('region', { name: 'In this environment', exact: true });
    await inEnvironment.getByText('plan').waitFor();
    const events = page.getByRole('table', { name: 'Events of the user' }).getByRole('row');
    await events.nth(50).waitFor();
    assert.equal(
      await page.getByRole('cell', { name: hostile, exact: true }).count(),
      2,
      'property and event',
    );
    assert.match(String(await events.nth(1).textContent()), /<img/, 'the latest first');
    await page.getByRole('button', { name: 'Earlier events' }).click();
    await events.nth(61).waitFor();
    assert.equal(await events.count(), 62, 'every event is there once');
    await page.getByLabel('Show', { exact: true }).selectOption(`=${hostile}`);
    await events.nth(2).waitFor({ state: 'detached' });
    await page.getByText('1 property').click();
    await page.getByRole('definition').filter({ hasText: hostile }).waitFor();
    await page.getByLabel('By', { exact: true }).selectOption('user_id');
    await find('7');
    // The list starts again, and has the events of all names.
    await events.nth(50).waitFor();
    await page.getByRole('heading', { name: identity, exact: true }).waitFor();
    const confirm = async (button: string, says: string, yes: string) => {
      await page.getByRole('button', { name: button, exact: true }).click();
      await page.getByRole('dialog').getByText(says).waitFor();
      await page.getByRole('button', { name: yes }).click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    };
    await confirm('Suppress', 'nothing that is sent about', 'Suppress user');
    await about.getByText('suppressed', { exact: true }).waitFor();
    await confirm('Lift the suppression', 'is stored again', 'Store again');
    await about.getByText('suppressed', { exact: true }).waitFor({ state: 'detached' });
    await confirm('Export', 'is kept ready for download', 'Export user');
    await confirm('Delete user', 'This cannot be undone', 'Delete this user');
    await page.getByText('The deletion is submitted.').waitFor();
    const deletion = page.getByRole('table', { name: 'Deletions of this user' }).getByRole('row').nth(1);
    await deletion.getByText('complete', { exact: true }).waitFor();
    assert.match(String(await deletion.textContent()), /complete2/, 'the request has both names');
    await until(
      async () => (await count(`user_id = 7 OR lower(identity) = '${identity}'`)) === 1,
      'only the similar user is left',
    );
    const entries = (await sluice.admin('audit', 'list')) as AuditEntry[];
    const own = entries.filter(({ actor_name }) => actor_name === 'users@example.com').reverse();
    const done = own.map(({ action }) => action);
    assert.deepEqual(
      done.filter((action) => !/^(read|find|count)_|^look_up_user$/.test(action)),
      [
        'accept_invitation',
        ...Array(looks).fill('look_up_user_everywhere'),
        ...['suppress_users', 'look_up_user_everywhere', 'free_users', 'look_up_user_everywhere'],
        ...['submit_export', 'submit_deletion'],
      ],
    );
    assert.doesNotMatch(JSON.stringify(own), /mia@/i, 'the audit log names no user');
    assert.deepEqual(faults, []);
    // After a failed look-up no button acts on the previous user any more.
    assert.equal(await about.count(), 1);
    let answer: (() => Promise<void>) | undefined;
    await page.route(/accounts\/\d+\/user$/, (route) => {
      answer = () => route.fulfill({ status: 503, json: {} });
    });
    await find('somebody@example.com');
    // There is none while the look-up runs either.
    await until(async () => answer !== undefined, 'the look-up has begun');
    assert.equal(await about.count(), 0);
    await answer?.();
    await page.getByRole('alert').getByText('The service answered 503.').waitFor();
    assert.equal(await about.count(), 0);
    assert.equal(await inEnvironment.count(), 0);
    await page.getByRole('region', { name: 'Suppressed users' }).getByText('suppressed').first().waitFor();
  });

  test('submits a file of more users than one request takes, continues where it was interrupted, and begins anew with another list', async () => {
    const page = await newPage();
    await enter(page, sluice, 'many@example.com', 'privacy', account.accountId);
    await openPage(page, 'Deletions');
    const begin = page.getByRole('button', { name: 'New deletion' });
    await begin.click();
    const rows = Array.from({ length: 10_001 }, (_, index) => `"${index}, x",user${index}@example.com,1`);
    const file = page.getByLabel('Or a file (CSV or text)');
    await file.setInputFiles({
      name: 'users.csv',
      mimeType: 'text/csv',
      buffer: Buffer.from(`\uFEFFname,email,count\n${rows.join('\n')}\n`),
    });
    await page.getByText('10,001 users to delete, in 2 requests.').waitFor();
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.getByText('0 found, 10,001 not found').waitFor();
    await page.getByRole('button', { name: 'Copy as CSV: Users to look at again' }).click();
    await untilCopied(page, (csv) => csv.split('\r\n').length === 10_002);
    const list = async () =>
      (await sluice.admin('deletions', 'list')) as { deletion_request_id: string; targets: number }[];
    const earlier = new Set((await list()).map(({ deletion_request_id }) => deletion_request_id));
    const made = async () =>
      (await list())
        .filter(({ deletion_request_id }) => !earlier.has(deletion_request_id))
        .map(({ targets }) => targets);
    // Takes the reference of the second request, so that it will be refused.
    const submit = async (reference: string, name: string) =>
      page.evaluate(
        `fetch('/admin/v1/accounts/${account.accountId}/user_deletion', {
          method: 'POST',
          headers: { 'sluice-console': '1', 'content-type': 'application/json' },
          body: JSON.stringify({ users: [{ identity: '${name}' }], reference: '${reference}' }),
        }).then(({ status }) => status)`,
      );
    assert.equal(await submit('batch (2 of 2)', 'other@example.com'), 201);
    await page.getByRole('dialog').getByLabel('Reference').fill('batch');
    await page.getByLabel('How many users are deleted?').fill('10001');
    const [first] = await Promise.all([
      page.waitForRequest(/user_deletion$/),
      page.getByRole('button', { name: 'Delete 10,001 users' }).click(),
    ]);
    assert.equal(first.postDataJSON().of_users, 10_001, 'a second person confirms the list as a whole');
    await page.getByText('10,000 of 10,001 users are submitted.').waitFor();
    assert.deepEqual(
      (await made()).toSorted((a, b) => a - b),
      [1, 10_000],
    );
    await page.getByRole('button', { name: 'Delete the other 1 user' }).waitFor();
    // Another list has as many users as one request takes, and keeps nothing of the first list. It comes in a file, since a browser takes
    // long to replace what stands in the field.
    const others = Array.from({ length: 10_000 }, (_, index) => `other${index}@example.com`);
    await file.setInputFiles({
      name: 'others.txt',
      mimeType: 'text/plain',
      buffer: Buffer.from(others.join('\n')),
    });
    await page.getByText('10,000 users to delete.').waitFor();
    const button = page.getByRole('button', { name: 'Delete 10,000 users' });
    for (const wrong of ['', '1000', '10001']) {
      await page.getByLabel('How many users are deleted?').fill(wrong);
      await button.click({ force: true });
      await page.getByText('Type 10,000 where the number is asked for.').waitFor();
    }
    await page.getByLabel('How many users are deleted?').fill('10,000');
    await button.click();
    await page.getByText('The deletion of 10,000 users is submitted.').waitFor();
    assert.deepEqual(
      (await made()).toSorted((a, b) => a - b),
      [1, 10_000, 10_000],
    );
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
    await begin.click();
    assert.equal(await page.getByLabel('Users, one per line').inputValue(), '');
    await page.getByRole('button', { name: 'Cancel' }).click();

    await page.getByLabel('Reference').fill('batch (2 of 2)');
    await page.getByRole('button', { name: 'Find' }).click();
    const found = page.getByRole('table', { name: 'Deletions' }).getByRole('row');
    await until(async () => (await found.count()) === 2, 'one is found');
  });

  test('asks which column of a file has the users, reads it in the encoding that is chosen, and shows of a deletion that it found nobody', async () => {
    const of = await createTestAccount(sluice, 'Columns');
    const page = await newPage();
    await enter(page, sluice, 'columns@example.com', 'privacy', of.accountId);
    await openPage(page, 'Deletions');
    await page.getByRole('button', { name: 'New deletion' }).click();
    const dialog = page.getByRole('dialog');
    const file = dialog.getByLabel('Or a file (CSV or text)');
    const upload = (text: string) =>
      file.setInputFiles({ name: 'a.csv', mimeType: 'text/csv', buffer: Buffer.from(text, 'latin1') });
    await upload('Kunde;Mailadresse\nJörgen;jörgen@example.com\n');
    await dialog.getByText('a.csv is not read. Line 2 is not UTF-8.').waitFor();
    assert.equal(await dialog.getByLabel('Users, one per line').inputValue(), '');
    await dialog.getByRole('button', { name: 'Read it as Windows-1252 (ANSI)' }).click();
    await dialog.getByText('No users yet: choose the column that has them.').waitFor();
    await dialog.getByRole('button', { name: 'Delete 0 users' }).click({ force: true });
    await dialog.getByText('The list names nobody yet.').waitFor();
    await dialog.getByLabel('Column of the users').selectOption('2: Mailadresse');
    await dialog.getByText('No users yet: say whether the first line is one.').waitFor();
    await dialog.getByLabel('The first line').selectOption('names the columns');
    await dialog.getByText('1 user to delete.').waitFor();
    const names = dialog.getByRole('list', { name: 'Read from the list' }).getByRole('listitem');
    assert.deepEqual(await names.allTextContents(), ['jörgen@example.com']);
    // The page asks again which column another file's users are in.
    await upload('Mailadresse;Kunde\nada@example.com;Ada\n');
    await dialog.getByText('No users yet: choose the column that has them.').waitFor();
    // A file that another program has open; the list before it must not be taken for it.
    await page.evaluate(`File.prototype.arrayBuffer = () => {
      delete File.prototype.arrayBuffer;
      return Promise.reject(new DOMException('', 'NotReadableError'));
    }`);
    await upload('email\nada@example.com\n');
    await dialog.getByText('a.csv is not read. The browser cannot read it.').waitFor();
    assert.equal(await dialog.getByLabel('Users, one per line').inputValue(), '');
    // So the same file can be chosen again.
    await Promise.all([page.waitForEvent('filechooser'), file.click()]);
    assert.equal(await page.evaluate("document.querySelector('input[type=file]').value"), '');
    await upload('name;email\n"Lovelace; the\nfirst", "nobody@example.com"\n');
    await dialog.getByText('There is text after a closing quote on line 3.').waitFor();
    await upload('name;email\n"Lovelace; the\nfirst"; "nobody@example.com"\n');
    await dialog.getByText('1 user to delete.').waitFor();
    assert.deepEqual(await names.allTextContents(), ['nobody@example.com']);
    await checkReadable(page, 'a list');
    await dialog.getByRole('button', { name: 'Delete 1 user' }).click();
    await dialog.getByText('The deletion of 1 user is submitted.').waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
    // The evidence that is opened before the deletion is complete says so once it is.
    await page.getByRole('button', { name: /^Evidence of/ }).click();
    await dialog.getByText('It found nobody.').waitFor();
    const state = page.getByRole('table', { name: 'Deletions' }).getByText('complete, found nobody');
    assert.equal(await state.getAttribute('class'), 'chip ');
    assert.deepEqual(faults, []);
  });

  test('Escape stops a long submission after the request that is under way, and keeps the list', async () => {
    const page = await newPage();
    await enter(page, sluice, 'stops@example.com', 'privacy', account.accountId);
    await openPage(page, 'Deletions');
    const begin = page.getByRole('button', { name: 'New export' });
    await begin.click();
    const dialog = page.getByRole('dialog');
    const users = Array.from({ length: 250 }, (_, index) => `export${index}@example.com`);
    await dialog.getByLabel('Or a file (CSV or text)').setInputFiles({
      name: 'users.txt',
      mimeType: 'text/plain',
      buffer: Buffer.from(users.join('\r\n')),
    });
    await dialog.getByText('250 users to export, in 3 requests.').waitFor();
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByText('0 found, 250 not found').waitFor();
    let sent = 0;
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route('**/user_exports', async (route) => {
      if (route.request().method() !== 'POST') return route.continue();
      sent += 1;
      await held;
      return route.continue();
    });
    await dialog.getByRole('button', { name: 'Export' }).click();
    await dialog.getByRole('button', { name: 'Stop' }).waitFor();
    await until(() => sent === 1, 'the first request');
    await page.keyboard.press('Escape');
    await dialog.getByRole('button', { name: 'Stopping…' }).waitFor();
    release();
    await dialog.getByText('100 of 250 users are submitted.').waitFor();
    await dialog.getByRole('button', { name: 'Export the other 150 users' }).waitFor();
    assert.equal(sent, 1);
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    assert.equal(await page.evaluate('document.activeElement.textContent'), 'New export');
    await begin.click();
    await dialog.getByRole('button', { name: 'Export the other 150 users' }).click();
    await dialog.waitFor({ state: 'detached' });
    assert.equal(sent, 3);
  });

  test('an open list of deletions keeps up to date by itself after older ones were loaded', async () => {
    const of = await createTestAccount(sluice, 'Lists');
    const page = await newPage();
    await enter(page, sluice, 'lists@example.com', 'privacy', of.accountId);
    const submit = (from: number, to: number) =>
      page.evaluate(
        `(async () => {
          for (let number = ${from}; number < ${to}; number += 1) {
            const { status } = await fetch('/admin/v1/accounts/${of.accountId}/user_deletion', {
              method: 'POST',
              headers: { 'sluice-console': '1', 'content-type': 'application/json' },
              body: JSON.stringify({ users: [{ identity: 'nobody' }], reference: 'number ' + number }),
            });
            if (status !== 201) throw new Error(String(status));
          }
        })()`,
      );
    const { listedMax } = deletions;
    const rows = page.getByRole('table', { name: 'Deletions' }).locator('tbody').getByRole('row');
    // All become complete together, not one after another while the page shows them.
    await withoutRounds(sluice, async () => {
      await submit(0, listedMax + 1);
      await openPage(page, 'Deletions');
      await page.getByRole('button', { name: 'Earlier deletions' }).click();
      await rows.filter({ hasText: 'number 0' }).waitFor();
      await submit(listedMax + 1, listedMax + 2);
      await rows.filter({ hasText: `number ${listedMax + 1}` }).waitFor();
      // Each row is there once, and the oldest one is still shown.
      await rows.nth(listedMax + 1).waitFor();
      const references = await rows.locator('td[data-title=Reference]').allTextContents();
      const wanted = Array.from({ length: listedMax + 2 }, (_, number) => `number ${listedMax + 1 - number}`);
      assert.deepEqual(references, wanted);
    });
    const complete = rows.locator('.chip').getByText('complete, found nobody', { exact: true });
    await complete.nth(listedMax + 1).waitFor();
    assert.deepEqual(faults, []);
  });

  test('lets an operator send refused rows to ClickHouse again, and shows the result', async () => {
    const of = await createTestAccount(sluice, 'Refused');
    const app_id = of.appIds[0];
    const row = (event: string, line: number, userId: string) => {
      const segment = 1_795_255_200_123_456;
      const eventId = String(line).padStart(32, '0');
      const values = `["${app_id}","${eventId}","${event}",${userId},"ada","",null,{},${line},${segment},7,"1795255200.123"]`;
      return `('events', ${segment}, ${line}, '${app_id}', 'ada', '${values}\\n', 27, 'Cannot parse input')`;
    };
    const fail = (...rows: readonly string[]) =>
      sluice.rows(
        `INSERT INTO failed_events (table_name, segment, line, app_id, identity, row, error_code, error) VALUES ${rows.join()}`,
      );
    await fail(row('Mended', 0, 'null'), row('Still bad', 1, '-1'));
    const page = await newPage();
    await enter(page, sluice, 'retries@example.com', 'operator');
    await openPage(page, 'Operations');
    const rows = page
      .getByRole('table', { name: 'Rows that ClickHouse refused' })
      .locator('tbody')
      .getByRole('row');
    await rows.nth(1).waitFor();
    await page.getByRole('button', { name: 'Send again' }).click();
    await page.getByText(/^1 row is stored, 1 left: refused again/).waitFor();
    await rows.nth(1).waitFor({ state: 'detached' });
    assert.equal(await count(`app_id = '${app_id}' AND event = 'Mended'`), 1);
    // Somebody corrects the row by hand.
    await sluice.rows(
      `ALTER TABLE failed_events UPDATE row = replaceOne(row, '-1', '7') WHERE app_id = '${app_id}' SETTINGS mutations_sync = 2`,
    );
    await page.getByRole('button', { name: 'Send again' }).click();
    await page.getByText('1 row is stored, none is left.').waitFor();
    await page.getByText('None: ClickHouse has taken every row.').waitFor();
    assert.equal(await count(`app_id = '${app_id}'`), 2);
    const entries = (await sluice.admin('audit', 'list')) as AuditEntry[];
    const retries = entries.filter(({ action }) => action === 'retry_failed');
    assert.deepEqual(
      retries.map(({ actor_name, outcome }) => [actor_name, outcome]),
      Array(2).fill(['retries@example.com', 'done']),
    );
    assert.deepEqual(faults, []);
  });

  test('shows why records were refused, with hostile field names as text and without values', async () => {
    const app_id = account.appIds[0];
    await post(sluice.baseUrl, paths.track, { app_id, identity: 5, event: 'x' });
    await post(sluice.baseUrl, paths.track, {
      app_id,
      identity: 'a',
      event: 'x',
      properties: { [hostile]: {} },
    });
    const page = await newPage();
    await enter(page, sluice, 'viewer@example.com', 'viewer', account.accountId);
    await openPage(page, 'Data quality');
    const table = page.getByRole('table', { name: 'The last records that were refused' });
    await table.getByRole('row').nth(2).waitFor();
    assert.match(String(await table.textContent()), /invalid_type/);
    assert.equal(await page.getByRole('button', { name: 'New deletion' }).count(), 0);
    await openPage(page, 'Deletions');
    await page.getByRole('table', { name: 'Deletions' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'New deletion' }).count(), 0);
    assert.deepEqual(faults, []);
  });

  test('lists event names with the types of their properties, and shows people who may watch what arrives now', async () => {
    const watched = await createTestAccount(sluice, 'Watched');
    const app_id = String(watched.appIds[0]);
    const longName = `Z${'事'.repeat(1_000)}`;
    const sold = [{ amount: 5, at: '2026-01-31T12:00:00Z' }, { amount: 'five', ok: 'true' }, { amount: 7.5 }];
    const identity = 'ada@example.com';
    const events = [
      ...sold.map((properties) => ({ identity, event: hostile, properties })),
      { identity, event: longName },
    ];
    assert.ok(isAccepted(await post(sluice.baseUrl, paths.track, { app_id, events })));
    await until(async () => (await count(`app_id = '${app_id}'`)) === 4, 'stored');
    const page = await newPage();
    await enter(page, sluice, 'watches@example.com', 'administrator', watched.accountId);
    await openPage(page, 'Data quality');
    const names = page.getByRole('table', { name: 'Event names' });
    await names.getByRole('cell', { name: '3', exact: true }).waitFor();
    const listed = async () => (await names.getByRole('row').allTextContents()).slice(1).map((row) => row[0]);
    assert.deepEqual(await listed(), ['<', 'Z'], 'the most frequent first');
    await names.getByRole('button', { name: 'Event' }).click();
    assert.deepEqual(await listed(), ['Z', '<']);
    await names.getByRole('button', { name: 'Event' }).click();
    await page
      .getByRole('columnheader', { name: 'Event' })
      .and(page.locator('[aria-sort=ascending]'))
      .waitFor();
    assert.deepEqual(await listed(), ['<', 'Z']);
    // What narrows the list stays in sight, even if there is less to search in.
    const many = Array.from({ length: 21 }, (_, n) => ({
      event: `E${n}`,
      count: 1,
      first_seen: null,
      last_seen: null,
    }));
    await page.route(/event-names\?days=30/, (route) => route.fulfill({ json: many }));
    const days = page.getByLabel('Accepted in');
    await days.selectOption('30');
    const search = page.getByLabel('Find an event');
    await search.fill('E20');
    await names.getByRole('row').nth(2).waitFor({ state: 'detached' });
    await days.selectOption('7');
    await page.getByText('No event has this name.').waitFor();
    await search.fill('');
    await names.getByRole('row').nth(2).waitFor();
    await page.getByRole('button', { name: /^Properties of <img/ }).click();
    const properties = page.getByRole('dialog').getByRole('row');
    await properties.nth(3).waitFor();
    assert.deepEqual((await properties.allTextContents()).slice(1), [
      'amount3number 67 %, text 33 %',
      'at1time',
      'ok1boolean',
    ]);
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
    await page.getByRole('button', { name: /^Properties of Z/ }).click();
    await page.getByRole('dialog').getByText('These events have no properties.').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
    await openPage(page, 'Live');
    let looks = 0;
    page.on('response', (response) => {
      if (response.url().includes('/live?')) looks += 1;
    });
    await page.getByRole('button', { name: 'Watch' }).click();
    await page.getByRole('button', { name: 'Pause' }).waitFor();
    // The page looks again and again, even if nothing arrives.
    await until(() => looks >= 3, 'three looks');
    const now = { app_id, identity: 'ada@example.com', event: 'Now', properties: { [hostile]: hostile } };
    assert.ok(isAccepted(await post(sluice.baseUrl, paths.track, now)));
    const row = page
      .getByRole('table', { name: 'Events that arrived' })
      .getByRole('row')
      .filter({ hasText: 'Now' });
    await row.waitFor();
    await row.getByText('1 property').click();
    await row.getByRole('definition').filter({ hasText: hostile }).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    const counter = page.getByText(/ arrived, \d+ shown\.$/);
    const before = await counter.textContent();
    await page.getByRole('button', { name: 'Go on' }).click();
    const looked = looks;
    await until(() => looks >= looked + 2, 'two looks after the pause');
    assert.deepEqual([await counter.textContent(), await row.count()], [before, 1], 'nothing is shown twice');
    assert.deepEqual(faults, []);
    const places = await page.evaluate(
      `(async () => {
        const headers = { 'sluice-console': '1' };
        const of = (id) => '/admin/v1/environments/' + id + '/live';
        const { place } = await (await fetch(of('${app_id}'), { method: 'POST', headers })).json();
        const ask = async (id, text) => (await fetch(of(id) + '?place=' + text)).status;
        const forged = place.replace(/^\\d+/, '1');
        return [await ask('${app_id}', place), await ask('${app_id}', forged), await ask('${watched.appIds[1]}', place)];
      })()`,
    );
    assert.deepEqual(places, [200, 400, 400], 'the cursor is signed for one environment');
    const entries = (await sluice.admin('audit', 'list')) as AuditEntry[];
    const watching = entries.filter(({ action }) => action === 'watch_live');
    assert.equal(watching.length, 2, 'one line for the page, one for the program');
    for (const { actor_name, app_id: of, outcome } of watching)
      assert.deepEqual([actor_name, of, outcome], ['watches@example.com', app_id, 'done']);
  });

  test('a name shows the characters in it that nobody sees, but for those that its script needs, and is copied as it was sent', async () => {
    const names: Readonly<Record<string, readonly string[]>> = {
      'ada\u200b@example.com': ['U+200B'],
      'grace\u200d\u200d@example.com': ['U+200D', 'U+200D'],
      'jos\u00e9\u200e': ['U+200E'],
      'می\u200cخواهم': [],
      '\u2764\ufe0f\u200d\u{1f525}': [],
    };
    const [app_id] = account.appIds;
    for (const identity of Object.keys(names))
      assert.ok(isAccepted(await post(sluice.baseUrl, paths.track, { app_id, identity, event: 'Step' })));
    const list = Object.keys(names).map((name) => `'${name}'`);
    await until(async () => (await count(`identity IN (${list})`)) === list.length, 'all are stored');
    const page = await newPage();
    await enter(page, sluice, 'unseen@example.com', 'privacy', account.accountId);
    await openPage(page, 'Users');
    for (const [name, codes] of Object.entries(names)) {
      await page.getByLabel('Name', { exact: true }).fill(name);
      await page.getByRole('button', { name: 'Find' }).click();
      const cell = page
        .getByRole('table', { name: 'Where the user is' })
        .locator('code')
        .filter({ hasText: name });
      await cell.waitFor();
      assert.equal(await cell.textContent(), name);
      const shown = await cell.locator('.unseen').all();
      assert.deepEqual(await Promise.all(shown.map((each) => each.getAttribute('data-code'))), codes);
    }
  });

  for (const [look, width, colorScheme] of [
    ['wide and dark', 1280, 'dark'],
    ['narrow and light', 360, 'light'],
  ] as const)
    test(`axe finds nothing on any page, ${look}, in dialogs, and on the pages beside the console, and no page or table scrolls sideways`, async () => {
      const page = await newPage();
      await enter(page, sluice, `axe-${width}@example.com`, 'operator');
      await page.getByLabel('Account', { exact: true }).selectOption(account.accountId);
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme });
      const check = async (what: string) => {
        await checkReadable(page, `${what} at ${width}`);
        const tables = "Array.from(document.querySelectorAll('.scroll'))";
        const wide = `${tables}.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.ariaLabel)`;
        for (const each of width > 900 ? [900, 700, width] : [width]) {
          await page.setViewportSize({ width: each, height: 800 });
          if (each <= 900)
            assert.deepEqual(await page.evaluate(wide), [], `tables on ${what} scroll at ${each}`);
        }
      };
      const links = page.getByRole('navigation').getByRole('link');
      assert.ok((await links.count()) >= 10);
      for (const link of await links.all()) {
        const name = String(await link.textContent());
        await link.click();
        await page.getByRole('heading', { level: 1 }).waitFor();
        await page.locator('main').getByText('Loading…').first().waitFor({ state: 'detached' });
        await check(name);
        const { x = -1, width: linkWidth = 0 } = (await link.boundingBox()) ?? {};
        assert.ok(x >= 0 && x + linkWidth <= width, `the link ${name} is in sight`);
      }
      await openPage(page, 'Data quality');
      const names = page.getByRole('table', { name: 'Event names' });
      await names.getByRole('row').nth(1).waitFor();
      await names.getByRole('button', { name: 'Count' }).click();
      await names.getByRole('columnheader', { name: 'Count' }).waitFor();
      await check('Data quality');
      await openPage(page, 'Users');
      await page.getByLabel('Name', { exact: true }).fill('Doe');
      await page.getByRole('button', { name: 'Find', exact: true }).click();
      await page.getByRole('heading', { name: 'Events', exact: true }).waitFor();
      await page.getByRole('table', { name: 'Events of the user' }).waitFor();
      await check('a user');
      await openPage(page, 'Deletions');
      await page
        .getByRole('button', { name: /^Evidence of/ })
        .last()
        .click();
      await page.getByRole('table', { name: 'What was found of each user' }).waitFor();
      await check('the evidence');
      await page.keyboard.press('Escape');
      await page.getByRole('button', { name: 'New deletion' }).click();
      await page.getByLabel('Users, one per line').fill('a@example.com');
      await check('a new deletion');
      await page.getByRole('button', { name: 'Cancel' }).click();
      await page.context().clearCookies();
      await page.goto(sluice.adminUrl);
      await page.getByRole('form', { name: 'Sign in' }).waitFor();
      await check('the sign-in');
      for (const path of ['/visualizer', '/demo']) {
        await page.goto(`${sluice.adminUrl}${path}`);
        await page.getByRole('heading', { level: 1 }).waitFor();
        await page.getByRole('link', { name: 'Console', exact: true }).waitFor();
        await check(path);
      }
    });

  test('open pages say that the service is away, and recover by themselves when it is back', async () => {
    const [viewer, watcher, leaver] = [await newPage(), await newPage(), await newPage()];
    const of = account.accountId;
    await enter(viewer, sluice, 'sees@example.com', 'viewer', of);
    await enter(watcher, sluice, 'hears@example.com', 'administrator', of);
    await enter(leaver, sluice, 'leaves@example.com', 'viewer', of);
    await viewer.getByText(/All is well|Not all is well/).waitFor();
    await openPage(watcher, 'Live');
    await watcher.getByRole('button', { name: 'Watch' }).click();
    await watcher.getByRole('button', { name: 'Pause' }).waitFor();
    const away = 'The service does not answer.';
    await sluice.api[0]?.sigterm();
    try {
      await Promise.all([
        viewer.getByText('Whether all is well is not known now.').waitFor(),
        watcher.getByText(away).first().waitFor(),
      ]);
      await leaver.getByRole('button', { name: 'Sign out' }).click();
      await leaver.getByRole('banner').getByText(away).waitFor();
      await leaver.getByRole('navigation').waitFor();
    } finally {
      await sluice.api[0]?.restart();
    }
    await Promise.all([
      viewer.getByText(/All is well|Not all is well/).waitFor(),
      watcher.getByText(away).first().waitFor({ state: 'detached' }),
    ]);
    await leaver.getByRole('button', { name: 'Sign out' }).click();
    await leaver.getByRole('form', { name: 'Sign in' }).waitFor();
    await leaver.reload();
    await leaver.getByRole('form', { name: 'Sign in' }).waitFor();
  });

  test('Overview says whether all is well, draws the minutes that were written, and shows operators alone the deployment', async () => {
    const counted = await createTestAccount(sluice, 'Counted');
    const app_id = String(counted.appIds[0]);
    await writeMinutes(app_id);
    const page = await newPage();
    await enter(page, sluice, 'looks@example.com', 'viewer', counted.accountId);
    await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
    await page.getByText('All is well').waitFor();
    await page.getByText('No deletion is pending.').waitFor();
    const days = page.locator('.figures > div');
    await days.filter({ hasText: /^In 7 days12 $/ }).waitFor();
    await days.filter({ hasText: /^Refused in 7 days7 37% of all$/ }).waitFor();
    const reasons = page.getByRole('table', { name: 'Reasons' }).getByRole('row');
    await reasons.filter({ hasText: /^A field has the wrong type\.properties\.\*2$/ }).waitFor();
    await reasons.filter({ hasText: /^The rate limit has no room .*3$/ }).waitFor();
    const drawn = 'Records over time: 12 accepted, 2 repeated, 3 over a limit, 4 refused';
    await page.getByRole('img', { name: drawn }).waitFor();
    await page.locator('.plot canvas').first().waitFor();
    assert.equal(await page.locator('.plot canvas').count(), 1);
    // The arrow keys go from minute to minute, and the legend shows the figures of each.
    const minute = page.getByRole('slider', { name: 'Records over time: which minute' });
    const legend = page.locator('.legend');
    assert.equal(await minute.getAttribute('aria-valuetext'), 'all of them');
    await minute.focus();
    const walk = async () => {
      if ((await legend.textContent())?.startsWith('7 accepted')) return true;
      await page.keyboard.press('ArrowLeft');
      return false;
    };
    await until(walk, 'the minute with seven records');
    const said = String(await minute.getAttribute('aria-valuetext'));
    assert.match(said, /\(\d\d:\d\d UTC\): 7 accepted, 2 repeated, 0 over a limit, 4 refused$/);
    await page.keyboard.press('ArrowLeft');
    await legend.getByText('5 accepted').waitFor();
    await legend.getByText('3 over a limit').waitFor();
    await minute.blur();
    await legend.getByText('12 accepted').waitFor();
    await page.getByLabel('Over', { exact: true }).selectOption('week');
    await page.getByRole('button', { name: 'Copy as CSV: Records over time' }).click();
    await page.getByLabel('Environment', { exact: true }).selectOption(String(counted.appIds[1]));
    await page.getByRole('img', { name: 'Records over time: 0 accepted' }).waitFor();
    assert.equal(await page.getByRole('link', { name: 'Operations' }).count(), 0);
    await openPage(page, 'Data quality');
    const why = '2 invalid_type in properties.*, 1 invalid_json, 1 too_long in event';
    const refused = page.getByRole('img', { name: `Refused records over time: ${why}`, exact: true });
    await refused.waitFor();
    await page.getByLabel('Over', { exact: true }).selectOption('hour');
    await refused.waitFor();
    assert.deepEqual(faults, []);

    const operators = await newPage();
    await enter(operators, sluice, 'runs@example.com', 'operator');
    await openPage(operators, 'Operations');
    const processes = operators.getByRole('table', { name: 'Processes' });
    await processes.getByRole('cell', { name: 'api', exact: true }).waitFor();
    await processes.getByRole('cell', { name: 'worker', exact: true }).waitFor();
    await operators.getByRole('meter', { name: 'Use of the backlog' }).waitFor();
    const stores = operators.getByRole('table', { name: 'Redis and ClickHouse' }).getByRole('row');
    await stores.filter({ hasText: /^Redisanswers\d/ }).waitFor();
    await stores.filter({ hasText: /^ClickHouseanswers\d/ }).waitFor();
    const shards = operators.getByRole('table', { name: 'Shards, and what waits in them' });
    await shards.getByRole('cell', { name: 'works' }).first().waitFor();
    await sluice.workers[0]?.sigterm();
    await processes.getByRole('cell', { name: 'worker', exact: true }).waitFor({ state: 'detached' });
    await openPage(operators, 'Overview');
    await operators.getByText('No worker is running').waitFor();
    assert.deepEqual(faults, []);
  });

  /** Writes two minutes of the ledger as a worker does. */
  async function writeMinutes(app_id: string): Promise<void> {
    const clickhouse = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
    const minute = Math.floor(Date.now() / 60_000) - 10;
    const row = { app_id, minute, kind: '', detail: '' };
    const next = { ...row, minute: minute + 1 };
    await writeLedger(clickhouse, [
      { ...row, kind: 'events', term: 'accepted', records: 5 },
      { ...row, term: 'limited', records: 3 },
      { ...next, kind: 'events', term: 'accepted', records: 7 },
      { ...next, kind: 'events', term: 'repeated', records: 1 },
      { ...next, kind: 'events', term: 'differing', records: 1 },
      { ...next, term: 'rejected', detail: 'too_long event', records: 1 },
      { ...next, term: 'rejected', detail: 'invalid_type properties.*', records: 2 },
      { ...next, term: 'rejected', detail: 'invalid_json', records: 1 },
    ]);
    await clickhouse.close();
  }
});
