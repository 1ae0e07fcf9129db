// The pages of privacy officers in a real browser: cases, and what is done in them.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, describe } from 'node:test';
import { TOTP } from 'otpauth';
import type { Browser, Page } from 'playwright-core';
import { createTestAccount } from '../harness/accounts.js';
import { launchBrowser, withoutBrowser } from '../harness/browser.js';
import { getToken } from '../harness/deletion.js';
import { isAccepted, paths, post, untilStored } from '../harness/ingestion.js';
import { until } from '../harness/wait.js';
import { password } from '../support/console.js';
import { checkReadable, enter, openConsole, openPage } from '../support/console-browser.js';
import { sharedSluice } from '../support/sluice.js';
import { test } from '../support/test.js';

const hostile = '<img src=x onerror=alert(1)>=1+1';

const sluice = await sharedSluice();
const account = await createTestAccount(sluice, 'Shop');
let browser: Browser;
let faults: readonly string[] = [];

describe('the desk of privacy officers', { skip: withoutBrowser() }, () => {
  before(async () => {
    browser = await launchBrowser();
    for (const identity of ['ada@desk.example', hostile]) {
      const event = { app_id: account.appIds[1], identity, event: 'Seen' };
      assert.ok(isAccepted(await post(sluice.baseUrl, paths.track, event)));
    }
    await untilStored(sluice);
  });
  after(() => browser?.close());
  afterEach(async () => {
    assert.deepEqual(faults, []);
    await Promise.all(browser.contexts().map((context) => context.close()));
  });

  async function newPage(width?: number, zone?: string): Promise<Page> {
    const opened = await openConsole(browser, sluice, width, zone);
    faults = opened.faults;
    return opened.page;
  }

  async function confirm(page: Page, button: string, yes: string): Promise<void> {
    await page.getByRole('button', { name: button, exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: yes }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  }

  async function findUser(page: Page, name: string): Promise<void> {
    await page.getByLabel('Name', { exact: true }).fill(name);
    await page.getByRole('button', { name: 'Find', exact: true }).click();
    await page.getByRole('heading', { name, exact: true }).waitFor();
  }

  const caseOf = (page: Page, reference: string) =>
    page.getByRole('row').filter({ has: page.getByText(reference, { exact: true }) });

  test('a case goes from its reception over the person to its end, and another officer sees what was done', async () => {
    const page = await newPage();
    await enter(page, sluice, 'officer@desk.example', 'privacy', account.accountId);
    await openPage(page, 'Cases');
    await page.getByText('No case is open.').waitFor();
    await page.getByRole('button', { name: 'New case' }).click();
    await page.getByLabel('Reference').fill(hostile);
    await page.getByLabel('Received on').fill('2026-01-01');
    await checkReadable(page, 'New case');
    await page.getByRole('button', { name: 'Open case' }).click();
    assert.match(String(await caseOf(page, hostile).textContent()), /Jan 1, 2026Jan 31, 2026 \d+ days late/);
    await page.getByRole('button', { name: `Show the case ${hostile}` }).click();
    await page.getByRole('button', { name: 'Find the person' }).click();
    // From there on, everything that is done belongs to this case.
    await findUser(page, hostile);
    await page.getByLabel('In the case').waitFor();
    assert.match(
      String(await page.getByLabel('In the case').locator('option:checked').textContent()),
      /due Jan 31, 2026$/,
    );
    await confirm(page, 'Export', 'Export user');
    await page.getByText('The export is requested.').waitFor();
    await checkReadable(page, 'Users');

    const second = await newPage();
    await enter(second, sluice, 'second@desk.example', 'privacy', account.accountId);
    await openPage(second, 'Cases');
    await caseOf(second, hostile).getByText('asked for an export').waitFor();
    await second.getByRole('button', { name: `Show the case ${hostile}` }).click();
    const lines = second.getByRole('table', { name: 'What was done in the case' }).getByRole('row');
    await lines.nth(2).waitFor();
    assert.match(
      String(await lines.nth(1).textContent()),
      /officer@desk\.example [\d.]+asked for an export1 user/,
    );
    await checkReadable(second, 'The file of a case');
    const [download] = await Promise.all([
      second.waitForEvent('download'),
      second.getByRole('button', { name: 'Download all as CSV' }).click(),
    ]);
    const csv = readFileSync(await download.path(), 'utf8');
    assert.match(csv, /^\ufeffWhen,Who,What,About,Outcome,From,Request\r\n/);
    assert.equal(csv.split('\r\n').length, 3);
    await second.getByText('Close the case', { exact: true }).click();
    await second.getByLabel('What became of it').fill('answered with the export');
    await second.getByRole('button', { name: 'Close case' }).click();
    await second.getByText('answered with the export', { exact: true }).waitFor();
    await openPage(page, 'Cases');
    await page.getByLabel('Show', { exact: true }).selectOption('closed');
    await caseOf(page, hostile).waitFor();
  });

  test('the audit log of a privacy officer is narrowed by who, what and when', async () => {
    const page = await newPage(360);
    await enter(page, sluice, 'reader@desk.example', 'privacy', account.accountId);
    await openPage(page, 'Users');
    await findUser(page, 'ada@desk.example');
    await openPage(page, 'Settings');
    const log = page.getByRole('table', { name: 'Audit log' });
    await log.getByText('looked up a user in all environments').first().waitFor();
    await checkReadable(page, 'Settings');
    await page.getByLabel('Who').fill('Reader@desk.example ');
    await page.getByLabel('What').selectOption({ label: 'looked up a user in all environments' });
    await page.getByRole('button', { name: 'Find', exact: true }).click();
    await log.getByText('accepted an invitation').waitFor({ state: 'detached' });
    await log.getByRole('row').nth(1).waitFor();
    assert.equal(await log.getByRole('row').count(), 2);
    await page.getByLabel('To day').fill('2020-01-01');
    await page.getByRole('button', { name: 'Find', exact: true }).click();
    await page.getByText('No action is as you asked for.').waitFor();
    // After a typing error the browser says that there is no such day.
    await page.getByLabel('To day').fill('20201-01-01');
    await page.getByRole('button', { name: 'Find', exact: true }).click();
    await page.locator('input[type=date]:invalid').waitFor();
    await page.getByText('No action is as you asked for.').waitFor();
  });

  test('days and hours are those of the reader, on a day of 25 hours and where hours begin at half past, too', async () => {
    const page = await newPage(1280, 'Australia/Adelaide');
    const now = '2026-04-05T14:00:30Z';
    await page.clock.setFixedTime(now);
    const at = Array.from({ length: 168 }, (_, n) => Date.parse('2026-03-29T14:00:00Z') / 1000 + n * 3_600);
    const none = at.map(() => 0);
    // Each hour of Saturday has two records, and each of Sunday, when the clocks were set back, has one.
    const accepted = at.map((_, n) => (n < 120 ? 0 : n < 144 ? 2 : 1));
    const traffic = { step_seconds: 3_600, at, accepted, repeated: none, limited: none, rejected: none };
    await page.route(/\/traffic\?/, (route) => route.fulfill({ json: { ...traffic, rejected_for: [] } }));
    const closed = {
      case_id: '00000000-0000-4000-8000-000000000000',
      reference: 'closed on the next day there',
      received_on: '2026-03-20',
      due_on: '2026-04-03',
      opened_at: '2026-03-20T00:00:00.000Z',
      opened_by: 'ada@desk.example',
      state: 'closed',
      closed_at: '2026-04-03T20:00:00.000Z',
      closed_by: 'ada@desk.example',
      done: {},
    };
    await page.route(/\/cases\?state=closed/, (route) => route.fulfill({ json: [closed] }));
    await enter(page, sluice, 'zones@desk.example', 'privacy', account.accountId);
    const days = page.locator('.figures > div');
    await days.filter({ hasText: /^Today24 48% fewer than yesterday at this time$/ }).waitFor();
    await days.filter({ hasText: /^Yesterday48 $/ }).waitFor();
    await page.getByLabel('Over', { exact: true }).selectOption('week');
    const hour = page.getByRole('slider', { name: 'Records over time: which hour' });
    await hour.focus();
    await page.keyboard.press('Home');
    assert.match(String(await hour.getAttribute('aria-valuetext')), /^Mon,? 12:30\sAM \(14:00 UTC\): /);
    await openPage(page, 'Cases');
    await page.getByLabel('Show', { exact: true }).selectOption('closed');
    await page.getByText('1 day late').waitFor();
  });

  test('a certificate is a page to print with words instead of ids, and anybody sees whether its file is genuine', async () => {
    const page = await newPage(1280, 'Asia/Kolkata');
    await enter(page, sluice, 'printer@desk.example', 'privacy', account.accountId);
    const app_id = account.appIds[1];
    const deleted = 'gone@desk.example';
    assert.ok(
      isAccepted(await post(sluice.baseUrl, paths.track, { app_id, identity: deleted, event: 'Seen' })),
    );
    await untilStored(sluice);
    await openPage(page, 'Users');
    await findUser(page, deleted);
    await confirm(page, 'Delete user', 'Delete this user');
    await page
      .getByRole('table', { name: 'Deletions of this user' })
      .getByText('complete', { exact: true })
      .waitFor();
    await openPage(page, 'Deletions');
    await page
      .getByRole('button', { name: /^Evidence of/ })
      .first()
      .click();
    const [paper] = await Promise.all([
      page.waitForEvent('popup'),
      page.getByRole('link', { name: 'Certificate to print' }).click(),
    ]);
    await paper.getByRole('heading', { name: 'Certificate of deletion' }).waitFor();
    const text = String(await paper.locator('main').textContent());
    assert.match(text, /AccountShop/);
    assert.match(text, /Byprinter@desk\.example/);
    assert.match(text, /Complete[^,]+, \d{4}, [\d:]+\s[AP]M GMT\+5:30/u);
    assert.match(text, /Stagingevents1/);
    assert.match(text, /Countedevents, user properties, records set aside, identifications/);
    await checkReadable(paper, 'The certificate');
    const [download] = await Promise.all([
      paper.waitForEvent('download'),
      paper.getByRole('link', { name: 'Download its file' }).click(),
    ]);
    const file = readFileSync(await download.path(), 'utf8');
    // The printed page has no buttons.
    await paper.emulateMedia({ media: 'print' });
    assert.equal(await paper.getByRole('button', { name: 'Print' }).isVisible(), false);

    // This visitor is not signed in.
    const anybody = await newPage(360);
    await anybody.goto(`${sluice.adminUrl}/verify`);
    const [help] = await Promise.all([
      anybody.waitForEvent('popup'),
      anybody.getByRole('link', { name: 'More about certificates' }).click(),
    ]);
    await help.getByRole('heading', { name: 'Certificate', exact: true }).waitFor();
    await help.goto(`${sluice.adminUrl}/docs`);
    await help.getByRole('link', { name: 'Runbook' }).click();
    await help.getByRole('heading', { name: 'What runs' }).waitFor();
    await checkReadable(help, 'The runbook');
    await help.close();
    const choose = (name: string, content: string) =>
      anybody
        .getByLabel('Drop a certificate here')
        .setInputFiles({ name, mimeType: 'application/json', buffer: Buffer.from(content) });
    await choose('mine.json', file);
    await anybody.getByText('mine.json was signed by this service').waitFor();
    await checkReadable(anybody, 'A genuine certificate');
    for (const [name, content, reason] of [
      ['more.json', file.replace('"users":1', '"users":9'), /the signature does not belong/],
      [`${hostile}.json`, '{}', /this is not a certificate/],
      ['no.json', 'no JSON at all', /this is not a certificate/],
      ['key.json', file.replace(/"key_id":"\w+"/, '"key_id":"0000000000000000"'), /does not name the key/],
    ] as const) {
      await choose(name, content);
      const said = anybody.getByRole('alert');
      await said.getByText(name).waitFor();
      assert.match(String(await said.textContent()), reason);
    }
    // The answer about a file is not shown for the next one, however late it comes.
    let answerFirst = () => {};
    const isHeld = new Promise<void>((resolve) => {
      answerFirst = resolve;
    });
    await anybody.route('**/certificates/check', (route) => isHeld.then(() => route.continue()), {
      times: 1,
    });
    await choose('first.json', file);
    await choose('second.json', '{}');
    await anybody.getByRole('alert').getByText('second.json').waitFor();
    const late = anybody.waitForResponse(/certificates\/check/);
    answerFirst();
    await (await late).finished();
    await anybody.getByRole('alert').getByText('second.json').waitFor();
    assert.equal(await anybody.getByText('was signed by this service').count(), 0);
    // A file may be dropped anywhere on the page.
    await anybody.evaluate(
      `const data = new DataTransfer();
      data.items.add(new File([${JSON.stringify(file)}], 'dropped.json'));
      dispatchEvent(new DragEvent('drop', { dataTransfer: data, cancelable: true }));`,
    );
    await anybody.getByText('dropped.json was signed by this service').waitFor();
    faults = faults.filter((fault) => !fault.includes('400'));
  });

  test('a certificate names the kind of program that submitted the deletion', async () => {
    const made = ['program-keys', 'create', 'Desk', '--role', 'privacy', '--account', account.accountId];
    const { program_key: key } = (await sluice.admin(...made)) as { program_key: string };
    const page = await newPage();
    await enter(page, sluice, 'names@desk.example', 'viewer', account.accountId);
    for (const [secret, name] of [
      [key, 'a program with a key of its own'],
      [sluice.adminToken, 'a program with ADMIN_TOKEN'],
    ] as const) {
      const submitted = await fetch(
        `${sluice.adminUrl}/admin/v1/accounts/${account.accountId}/user_deletion`,
        {
          method: 'POST',
          headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
          body: JSON.stringify({ users: [{ identity: 'nobody@desk.example' }] }),
        },
      );
      const { deletion_request_id: id } = (await submitted.json()) as { deletion_request_id: string };
      const isComplete = async () =>
        ((await sluice.admin('deletions', 'show', id)) as { status: string }).status === 'complete';
      await until(isComplete, 'the deletion is complete');
      await page.goto(`${sluice.adminUrl}/certificate#${id}`);
      await page.reload();
      await page.getByText(name, { exact: true }).waitFor();
    }
  });

  test('changing one setting of an account leaves those that another administrator has changed since', async () => {
    const { accountId } = await createTestAccount(sluice, 'Settings');
    const page = await newPage();
    await enter(page, sluice, 'settings@desk.example', 'administrator', accountId);
    await openPage(page, 'Settings');
    await page.getByLabel('Days until a case is due').waitFor();
    await sluice.admin('accounts', 'set', accountId, '--confirm-from', '5');
    await page.getByLabel('Days until a case is due').fill('20');
    await page.getByRole('button', { name: 'Change settings' }).click();
    const settings = async () => {
      const accounts = (await sluice.admin('accounts', 'list')) as {
        account_id: string;
        settings: { due_days: number; confirm_from: number | 'none' };
      }[];
      return accounts.find(({ account_id }) => account_id === accountId)?.settings;
    };
    await page.getByText('The settings hold from now on.').waitFor();
    assert.equal((await settings())?.due_days, 20);
    assert.equal((await settings())?.confirm_from, 5);
  });

  test('a page names nobody as having suppressed a user whom an identification has suppressed', async () => {
    const own = await createTestAccount(sluice, 'Joined');
    const page = await newPage();
    await enter(page, sluice, 'earlier@desk.example', 'privacy', own.accountId);
    const suppress = (who: Page, identity: string) =>
      who.evaluate(
        `fetch('/admin/v1/accounts/${own.accountId}/user_suppression', { method: 'POST',
          headers: { 'sluice-console': '1', 'content-type': 'application/json' },
          body: JSON.stringify({ users: [{ identity: '${identity}' }], suppress: true }) }).then(({ status }) => status)`,
      );
    assert.equal(await suppress(page, 'joins@desk.example'), 200);
    // As if that had been long ago.
    const lines = () =>
      sluice.rows(
        `SELECT 1 FROM audit_log WHERE actor_name = 'earlier@desk.example' AND action = 'suppress_users' AND stage = 1`,
      );
    await until(async () => (await lines()).length > 0, 'the line is stored');
    await sluice.rows(`DELETE FROM audit_log WHERE actor_name = 'earlier@desk.example'`);
    const other = await newPage();
    await enter(other, sluice, 'other@desk.example', 'privacy', own.accountId);
    assert.equal(await suppress(other, 'somebody-else@desk.example'), 200);
    const identified = { app_id: own.appIds[0], user_id: '7700', identity: 'joins@desk.example' };
    assert.ok(isAccepted(await post(sluice.baseUrl, paths.identify, identified)));
    const token = await getToken(sluice, own);
    const isJoined = async () => {
      const found = await fetch(`${sluice.baseUrl}/api/public/v0/user_suppression?user_id=7700`, {
        headers: { authorization: `Bearer ${token}` },
      });
      return ((await found.json()) as { suppressed: boolean }).suppressed;
    };
    await until(isJoined, 'the user is joined');
    await openPage(page, 'Users');
    await page.getByLabel('By').selectOption('user_id');
    await page.getByLabel('Name', { exact: true }).fill('7700');
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.getByRole('button', { name: 'Find', exact: true }).click();
    const about = page.getByRole('region', { name: 'The user', exact: true });
    await about.getByText('suppressed', { exact: true }).waitFor();
    await page.getByText('No deletion of the last 30 days named this user.').waitFor();
    assert.doesNotMatch(asked.join(), /action=suppress_users,submit_deletion/, 'the page asks for nobody');
    assert.doesNotMatch(String(await about.textContent()), /by other@desk/);
  });

  test('a user id that is somebody else in each environment is shown as all of them', async () => {
    const own = await createTestAccount(sluice, 'Shared device');
    for (const [app_id, identity] of [
      [own.appIds[0], 'ada@device.example'],
      [own.appIds[1], 'bob@device.example'],
    ])
      assert.ok(isAccepted(await post(sluice.baseUrl, paths.identify, { app_id, user_id: '7', identity })));
    await untilStored(sluice);
    const page = await newPage();
    await enter(page, sluice, 'device@desk.example', 'privacy', own.accountId);
    await openPage(page, 'Users');
    await page.getByLabel('By').selectOption('user_id');
    await page.getByLabel('Name', { exact: true }).fill('7');
    await page.getByRole('button', { name: 'Find', exact: true }).click();
    await page.getByRole('heading', { name: 'ada@device.example and bob@device.example' }).waitFor();
    await page.getByText('7 is not the same user in every environment.').waitFor();
    await checkReadable(page, 'A user id of two users');
  });

  test('a list is previewed without a click, and the preview says if it found nobody', async () => {
    const page = await newPage();
    await enter(page, sluice, 'previews@desk.example', 'privacy', account.accountId);
    await openPage(page, 'Deletions');
    await page.getByRole('button', { name: 'New deletion' }).click();
    await page
      .getByLabel('Users, one per line')
      .fill('ada@desk.example\nada@desk.example\nnobody@desk.example');
    await page.getByText('1 found, 1 not found.').waitFor();
    await page.getByText('2 users to delete, 1 named twice.').waitFor();
    await page.getByLabel('Users, one per line').fill('nobody@desk.example');
    await page.getByText('None of these users was found.').waitFor();
  });

  test('users are suppressed and lifted by a list, with who did it and why, and the person found says so', async () => {
    const page = await newPage();
    await enter(page, sluice, 'lists@desk.example', 'privacy', account.accountId);
    await openPage(page, 'Users');
    const own = page.getByRole('region', { name: 'Suppressed users' });
    await own.getByText('Nobody is suppressed.').waitFor();
    await own.getByRole('button', { name: 'Suppress a list' }).click();
    await page.getByLabel('Users, one per line').fill(`ada@desk.example\n${hostile}`);
    await page.getByLabel('Why').fill(hostile);
    await checkReadable(page, 'Suppress a list');
    await page.getByRole('button', { name: 'Suppress 2 users' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await own.getByText('2 users suppressed.').waitFor();
    const lines = own.getByRole('table', { name: 'What was suppressed and lifted' }).getByRole('row');
    assert.match(
      String(await lines.nth(1).textContent()),
      /lists@desk\.example [\d.]+suppressed users2 users · “<img/,
    );
    await findUser(page, 'ada@desk.example');
    const about = page.getByRole('region', { name: 'The user', exact: true });
    await about.getByText(`by lists@desk.example, “${hostile}”`).waitFor();
    await checkReadable(page, 'Users');
    await own.getByRole('button', { name: 'Lift a list' }).click();
    await page.getByLabel('Users, one per line').fill(`ada@desk.example\n${hostile}\nnobody@desk.example`);
    await page.getByRole('button', { name: 'Store again what is sent about 3 users' }).click();
    await own.getByText('Nobody is suppressed.').waitFor();
    await own.getByText('lifted the suppression of users').waitFor();
  });

  test('where an account wants it, a second officer confirms a deletion by the same list, and everybody sets up a second factor first', async () => {
    const strict = await createTestAccount(sluice, 'Strict');
    const administrator = await newPage();
    await enter(administrator, sluice, 'strict@desk.example', 'administrator', strict.accountId);
    await openPage(administrator, 'Settings');
    await administrator.getByLabel('A second privacy officer confirms deletions').check();
    await administrator.getByLabel('From how many users on').fill('2');
    await checkReadable(administrator, 'Settings');
    await administrator.getByRole('button', { name: 'Change settings' }).click();
    await administrator.getByLabel('From how many users on').waitFor();
    const proposes = await newPage();
    await enter(proposes, sluice, 'proposes@desk.example', 'privacy', strict.accountId);
    const confirms = await newPage();
    await enter(confirms, sluice, 'confirms@desk.example', 'privacy', strict.accountId);
    const submit = async (page: Page, list: string) => {
      await page.getByRole('button', { name: 'New deletion' }).click();
      await page.getByLabel('Users, one per line').fill(list);
      await page.getByRole('button', { name: 'Delete 3 users' }).click();
    };
    for (const page of [proposes, confirms]) await openPage(page, 'Deletions');
    await submit(proposes, `bob@desk.example\n${hostile}\ncarl@desk.example`);
    await proposes.getByText('The deletion of 3 users is proposed.').waitFor();
    await proposes.getByRole('button', { name: 'Close' }).click();
    const waiting = confirms.getByRole('table', { name: 'Proposed deletions' }).getByRole('row');
    await waiting.getByText('proposes@desk.example').waitFor();
    await checkReadable(confirms, 'Deletions');
    await submit(confirms, `carl@desk.example\nbob@desk.example\n${hostile}`);
    await confirms.getByText('The deletion of 3 users is submitted.').waitFor();
    await confirms.getByRole('button', { name: 'Close' }).click();
    await waiting.first().waitFor({ state: 'detached' });
    // From then on nobody sees anything without a second factor, not even on open pages.
    await proposes.getByRole('button', { name: 'New deletion' }).click();
    await proposes.getByLabel('Users, one per line').fill('entered before');
    await administrator.getByLabel('Everybody needs a second factor').check();
    await administrator.getByRole('button', { name: 'Change settings' }).click();
    for (const page of [administrator, proposes]) {
      await page.getByText('Your account requires a second factor.').waitFor();
      if (page === proposes) await checkReadable(page, 'The first second factor');
      assert.equal(await page.getByRole('navigation').count(), 0);
      await page.getByRole('button', { name: 'Set up second factor' }).click();
      const secret = String(await page.locator('code.value').first().textContent());
      await page.getByLabel('Your password').fill(password);
      await page.getByLabel('Code').fill(new TOTP({ secret: secret.replaceAll(' ', '') }).generate());
      await page.getByRole('button', { name: 'Turn on', exact: false }).click();
      await page.getByRole('navigation').waitFor();
    }
    // They continue where they were.
    assert.equal(await proposes.getByLabel('Users, one per line').inputValue(), 'entered before');
    faults = faults.filter((fault) => !/40[03]/.test(fault));
  });

  test('operators make links for forgotten passwords', async () => {
    const forgets = await newPage();
    await enter(forgets, sluice, 'forgets@desk.example', 'privacy', account.accountId);
    const page = await newPage();
    await enter(page, sluice, 'operator@desk.example', 'operator');
    await openPage(page, 'Settings');
    await page.getByRole('button', { name: 'Password link for forgets@desk.example' }).click();
    await page.getByRole('button', { name: 'Make the link' }).click();
    await page.getByText('Give this link to forgets@desk.example.').waitFor();
  });
});
