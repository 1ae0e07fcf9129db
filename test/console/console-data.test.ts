// The console's pages about data, in a real browser: deletions and data quality.

import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { createTestAccount, type TestAccount } from '../../harness/accounts.js';
import { launchBrowser, withoutBrowser } from '../../harness/browser.js';
import { paths, post } from '../../harness/ingestion.js';
import { type SluiceHandle, startSluice } from '../../harness/services.js';
import { until } from '../../harness/wait.js';
import type { AuditEntry } from '../../src/audit/mirror.js';
import { enter, openConsole, openPage } from '../support/console-browser.js';

const skip = withoutBrowser();
const hostile = '<img src=x onerror=alert(1)>';

let sluice: SluiceHandle;
let browser: Browser;
let account: TestAccount;
let faults: readonly string[] = [];

describe('the console', { skip }, () => {
  before(async () => {
    [sluice, browser] = await Promise.all([startSluice(), launchBrowser()]);
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

  test('leads a privacy officer from the invitation to a complete deletion of whom they pasted, and of nobody else', async () => {
    const identities = ['ada@example.com', 'Doe, John', hostile, 'stays@example.com', 'Doe'];
    for (const [index, identity] of identities.entries())
      await post(sluice.baseUrl, paths.track, { app_id: account.appIds[index % 2], identity, event: 'Seen' });
    await until(async () => (await count(`event = 'Seen'`)) === identities.length, {
      deadlineMs: 30_000,
      what: 'the events are stored',
    });
    const page = await newPage();
    await enter(page, sluice, 'privacy@example.com', 'privacy', account.accountId);
    await openPage(page, 'Deletions');
    await page.getByText('Nobody was deleted yet').waitFor();
    await page.getByRole('button', { name: 'New deletion' }).click();
    const dialog = page.getByRole('dialog');
    const pasted = `ada@example.com\n\n  ada@example.com \r\nDoe, John\n${hostile}\n${'x'.repeat(256)}\n`;
    await dialog.getByLabel('Users, one a line').fill(pasted);
    await dialog.getByText('3 users to delete, 1 named twice.').waitFor();
    await dialog.getByText('1 line is left out, since it names no user: 6: xxx').waitFor();
    await dialog.getByRole('button', { name: 'Delete 3 users' }).click();
    await dialog.getByText('The deletion of 3 users is submitted.').waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('cell', { name: 'complete', exact: true }).waitFor();
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
      ['person', 'privacy@example.com', account.accountId, 'done', { users: 3 }],
    );
    assert.deepEqual(faults, []);
  });

  test('submits a file of more users than one request takes, by the column that its header names', async () => {
    const page = await newPage();
    await enter(page, sluice, 'many@example.com', 'privacy', account.accountId);
    await openPage(page, 'Deletions');
    await page.getByRole('button', { name: 'New deletion' }).click();
    const rows = Array.from({ length: 10_001 }, (_, index) => `"${index}, x",user${index}@example.com,1`);
    await page.getByLabel('Or a file (CSV or text)').setInputFiles({
      name: 'users.csv',
      mimeType: 'text/csv',
      buffer: Buffer.from(`\uFEFFname,email,count\n${rows.join('\n')}\n`),
    });
    await page.getByText('10,001 users to delete, in 2 requests.').waitFor();
    await page.getByRole('button', { name: 'Delete 10,001 users' }).click();
    await page.getByText('The deletion of 10,001 users is submitted.').waitFor();
    const requests = (await sluice.admin('deletions', 'list')) as { targets: number }[];
    const sizes = requests.map(({ targets }) => targets).filter((targets) => targets !== 3);
    assert.deepEqual(
      sizes.toSorted((a, b) => a - b),
      [1, 10_000],
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
});
