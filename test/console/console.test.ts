// The console in a real browser: each role from its invitation to its main task.

import assert from 'node:assert/strict';
import { after, afterEach, before, describe } from 'node:test';
import { gzipSync } from 'node:zlib';
import { type TOTP, URI } from 'otpauth';
import type { Browser, Page } from 'playwright-core';
import decodeQR from 'qr/decode.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { launchBrowser, withoutBrowser } from '../harness/browser.js';
import { freePort } from '../harness/free-port.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { password, signedIn } from '../support/console.js';
import { checkReadable, enter, openConsole, openPage, untilCopied } from '../support/console-browser.js';
import { client, startProvider, type TestProvider } from '../support/provider.js';
import { test } from '../support/test.js';

const skip = withoutBrowser();

/** The text of a QR code whose dark modules a path draws, each as a square. */
function readQrCode(path: string): string {
  const modules = [...path.matchAll(/M(\d+) (\d+)h1v1h-1z/g)].map(
    ([, x, y]) => [Number(x), Number(y)] as const,
  );
  const side = 2 * Math.max(...modules.flat());
  const scale = 4;
  const width = side * scale;
  const data = new Uint8ClampedArray(width * width * 4).fill(255);
  for (const [x, y] of modules)
    for (let line = y * scale; line < (y + 1) * scale; line += 1)
      for (let at = x * scale; at < (x + 1) * scale; at += 1)
        data.fill(0, 4 * (line * width + at), 4 * (line * width + at) + 3);
  return decodeQR({ width, height: width, data });
}

/** As long as the name of an environment may be. */
const hostile = `<img src=x onerror=alert(1)><b>"'=1+1`.padEnd(100, 'W');

let sluice: SluiceHandle;
let browser: Browser;
let provider: TestProvider;
let account: TestAccount;
let faults: readonly string[] = [];

describe('the console', { skip }, () => {
  before(async () => {
    const port = await freePort();
    const env = {
      OIDC_ISSUER: `http://127.0.0.1:${port}`,
      OIDC_CLIENT_ID: client.id,
      OIDC_CLIENT_SECRET: client.secret,
      CALLBACK_ALLOW: '127.0.0.1',
    };
    [sluice, browser] = await Promise.all([startSluice({ env }), launchBrowser()]);
    provider = await startProvider(port, `${sluice.adminUrl}/admin/v1/sign_on/return`);
    account = await createTestAccount(sluice, hostile, ['Main Production', hostile]);
  });
  after(async () => {
    await browser?.close();
    await provider?.close();
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

  test('leads an administrator from the invitation to an API key, with the keyboard alone', async () => {
    const page = await newPage();
    await enter(page, sluice, 'keys@example.com', 'administrator', account.accountId);
    const focused =
      "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent)";
    const tabTo = async (name: string) => {
      for (let presses = 0; presses < 60; presses += 1) {
        if ((await page.evaluate(focused)) === name) return;
        await page.keyboard.press('Tab');
      }
      assert.fail(`${name} is not reached`);
    };
    await tabTo('Keys and access');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Keys and access' }).waitFor();
    await page.getByRole('button', { name: 'Create API key' }).waitFor();
    await tabTo('Create API key');
    await page.keyboard.press('Enter');
    const secret = page.getByRole('status').locator('code');
    await secret.waitFor();
    await page.getByRole('button', { name: 'Create API key' }).waitFor();
    assert.equal(await page.evaluate(focused), 'Create API key');
    const key = String(await secret.textContent());
    // The account's first key has no name, but the new one has.
    await page.getByRole('cell', { name: 'Key 2', exact: true }).waitFor();
    await page.getByRole('button', { name: 'Rotate API key Key 2' }).click();
    await page.getByLabel('The old key ends').selectOption('24h');
    const { y = 0, height = 0 } = (await page.getByRole('dialog').boundingBox()) ?? {};
    assert.equal(Math.round(2 * y + height), page.viewportSize()?.height, 'the dialog is in the middle');
    await page.evaluate(
      `globalThis.visited = []; addEventListener('focusin', () => visited.push(${focused}), true)`,
    );
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal(await page.evaluate(focused), 'Rotate API key Key 2', 'the focus is where it was');
    const visited = (await page.evaluate('visited')) as string[];
    assert.deepEqual([...new Set(visited)], ['Rotate API key Key 2'], 'the focus was nowhere else meanwhile');
    await page.keyboard.press('Enter');
    await page.getByLabel('The old key ends').selectOption('24h');
    await page.getByRole('button', { name: 'Rotate key' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const rows = page.getByRole('cell', { name: 'Key 2', exact: true });
    await rows.nth(1).waitFor();
    assert.equal(await rows.count(), 2);
    await page.getByRole('button', { name: 'Revoke API key Key 2' }).first().click();
    await page.getByRole('dialog').getByText('end at once').waitFor();
    await page.getByRole('button', { name: 'Revoke key' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await rows.nth(1).waitFor({ state: 'detached' });
    assert.equal(await rows.count(), 1);
    // The button that had the focus is gone with its row.
    assert.equal(await page.evaluate(focused), 'API keys');
    await page.getByRole('button', { name: `Copy app ID of Main Production` }).click();
    await untilCopied(page, (text) => text === account.appIds[0]);
    // The reloaded page still has the session, and no longer shows the key.
    await page.reload();
    await page.getByRole('cell', { name: 'Key 2', exact: true }).waitFor();
    assert.ok(!(await page.content()).includes(key));
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(focused), 'Skip to the page');
    assert.deepEqual(faults, []);
  });

  test('saves the settings of an environment that one person changed, and keeps what another person changed meanwhile', async () => {
    const of = await createTestAccount(sluice, 'Set');
    const appId = String(of.appIds[0]);
    const page = await newPage();
    await enter(page, sluice, 'sets@example.com', 'administrator', of.accountId);
    await openPage(page, 'Settings');
    await page.getByRole('button', { name: 'Settings of Main Production' }).click();
    await page.getByLabel('Events of one identity, in 30 s').fill('none');
    await sluice.admin('environments', 'set', appId, '--validation', 'lenient', '--limit', 'collect_user=7');
    await page.getByLabel('Days that events are kept').fill('400');
    await page.getByText('more than 400 days ago are deleted').waitFor();
    await page.getByLabel(/^Words to allow/).fill('guest\n');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const shown = (await sluice.admin('environments', 'show', appId)) as Record<string, unknown>;
    assert.deepEqual(
      [shown.retain_days, shown.allowed_identities, shown.validation, shown.limits],
      [400, ['guest'], 'lenient', { track: 'none', collect_user: 7 }],
    );
    await page.getByRole('button', { name: 'Settings of Main Production' }).click();
    await page.getByText('Allowed now: guest').waitFor();
    await page.getByLabel('Allow guest').uncheck();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const after = (await sluice.admin('environments', 'show', appId)) as Record<string, unknown>;
    assert.deepEqual(after.allowed_identities, []);
    await page.getByRole('button', { name: 'Settings of Main Production' }).click();
    await page.getByText('None is allowed now.').waitFor();
    assert.equal(await page.getByLabel('Days that events are kept').inputValue(), '400');
    assert.deepEqual(faults, []);
    // The page words the refusal itself.
    await page.getByLabel('Days that events are kept').fill('0');
    await page.getByRole('button', { name: 'Save' }).click();
    await page
      .getByText(/^Days that events are kept must be none, or a whole number from 1 to \d+\.$/)
      .waitFor();
  });

  test('lets an operator invite a person, see them in the audit log, and remove them', async () => {
    const page = await newPage();
    await enter(page, sluice, 'operator@example.com', 'operator');
    await page.getByLabel('Account', { exact: true }).selectOption(account.accountId);
    await openPage(page, 'Settings');
    await page.getByLabel('E-mail of the new person').fill('invited@example.com');
    await page.getByLabel(/^Role in/).selectOption('privacy');
    await page.getByRole('button', { name: 'Invite' }).click();
    const link = String(await page.getByRole('status').locator('code').textContent());
    assert.match(link, /\/invitation#pe_/);
    const guest = await newPage();
    const { pathname, hash } = new URL(link);
    await guest.goto(`${sluice.adminUrl}${pathname}${hash}`);
    await guest.getByLabel('Password').fill(password);
    await guest.getByRole('button', { name: 'Choose password' }).click();
    await guest.getByRole('navigation').waitFor();
    assert.ok(!guest.url().includes('#'), 'the link is not in the address any more');
    // This page sends no requests by itself, so the guest learns nothing of the removal here.
    await openPage(guest, 'Settings');
    await guest.getByRole('table', { name: 'Your sessions' }).waitFor();
    await page.getByRole('button', { name: 'Load again' }).click();
    await page.getByRole('cell', { name: 'accepted an invitation' }).first().waitFor();
    await page.getByRole('button', { name: 'Remove invited@example.com' }).click();
    await page.getByRole('button', { name: 'Remove person' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await openPage(guest, 'Keys and access');
    await guest.getByText('Your session has ended').waitFor();
    await guest.getByRole('form', { name: 'Sign in' }).waitFor();
  });

  test('lets an administrator set and test the callback, require write keys, and narrow the origins', async () => {
    const of = await createTestAccount(sluice, 'Writes', ['Only']);
    const page = await newPage();
    await enter(page, sluice, 'writes@example.com', 'administrator', of.accountId);
    await openPage(page, 'Keys and access');
    await page.getByLabel('URL to call').fill('http://10.0.0.1/hook');
    await page.getByRole('button', { name: 'Set callback' }).click();
    await page.getByRole('alert').getByText('an address that callbacks may not reach').waitFor();
    await page.getByText('Nobody is called.').waitFor();
    await page.getByLabel('URL to call').fill('http://127.0.0.1:9/hook');
    await page.getByRole('button', { name: 'Set callback' }).click();
    await page.getByRole('button', { name: 'Test the callback' }).click();
    await page.getByText('The call was not taken').waitFor();
    await page.getByRole('button', { name: 'Remove the callback' }).click();
    await page.getByRole('button', { name: 'Remove callback' }).click();
    await page.getByText('Nobody is called.').waitFor();

    // If write keys were required before there is one, all servers would be refused.
    await page.getByText('Change who may write to Only').click();
    await page.getByText('To require write keys, create one below first').waitFor();
    const require = page.getByRole('button', { name: 'Require write keys' });
    assert.equal(await require.count(), 0);
    await page.getByLabel('Name of the new write key of Only').fill('web');
    await page.getByRole('button', { name: 'Create write key' }).click();
    await require.click();
    const question = page.getByRole('dialog', { name: 'Require write keys for Only?' });
    await question.getByText('Its keys: web.').waitFor();
    await question.getByRole('button', { name: 'Cancel' }).click();
    await question.waitFor({ state: 'detached' });
    const { write_key } = (await sluice.admin('environments', 'show', String(of.appIds[0]))) as {
      write_key?: string;
    };
    assert.equal(write_key, undefined, 'nothing was changed yet');
    await require.click();
    await question.getByRole('button', { name: 'Refuse servers without a key' }).click();
    await page.getByText('Servers need a write key.').waitFor();
    await page.getByLabel('Pages that may write to Only').selectOption('listed');
    await page.getByText('The messages of all pages are refused').waitFor();
    await page.getByLabel('Origins of Only').last().fill('https://shop.example');
    await page.getByText('Messages of pages of other origins are refused').waitFor();
    await page.getByRole('button', { name: 'Save origins' }).click();
    await page.getByText('Servers need a write key. Pages of https://shop.example can write.').waitFor();
    await page.getByRole('button', { name: 'Revoke write key web' }).click();
    await page.getByText('This is the last write key of Only').waitFor();
    await page.getByRole('button', { name: 'Revoke key' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.deepEqual(await sluice.admin('write-keys', 'list', String(of.appIds[0])), []);
  });

  test('signs in with the password, says what is wrong, ends a session, and changes the password', async () => {
    const programs = await signedIn(sluice, 'two@example.com', 'operator');
    const page = await newPage();
    // A link with an unknown reason shows no reason.
    await page.goto(`${sluice.adminUrl}/?sign_on=__proto__`);
    const form = page.getByRole('form', { name: 'Sign in' });
    await form.waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
    await form.getByLabel('E-mail').fill('two@example.com');
    await form.getByLabel('Password').fill('a wrong password');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('The e-mail address or the password is wrong.').waitFor();
    await form.getByLabel('Password').fill(password);
    await page.keyboard.press('Enter');
    await page.getByRole('navigation').waitFor();
    await openPage(page, 'Settings');
    // Waits until the whole page is loaded, since a later request would notice the end of the session too early.
    for (const name of ['People', 'Your sessions', 'Audit log'])
      await page.getByRole('table', { name, exact: true }).waitFor();
    await page.getByRole('button', { name: /^End the session/ }).click();
    await page.getByRole('button', { name: 'End session' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal((await programs.ask('GET', '/sessions')).status, 401);
    await page.getByText('Change your password').click();
    await page.getByLabel('Current password').fill(password);
    await page.getByLabel('New password').fill('another good password');
    await page.getByRole('button', { name: 'Change password' }).click();
    await page.getByText('Your password is changed').waitFor();
    const { status } = await programs.signIn('two@example.com', { password: 'another good password' });
    assert.equal(status, 200);
  });

  test('keeps pasted text if the session ends before it is sent, and only for the same person', async () => {
    const page = await newPage();
    await enter(page, sluice, 'pastes@example.com', 'privacy', account.accountId);
    await openPage(page, 'Deletions');
    await page.getByRole('button', { name: 'New deletion' }).click();
    const list = page.getByLabel('Users, one per line');
    await list.fill('a@example.com\nb@example.com');
    await page.getByRole('dialog').getByLabel('Reference').fill('ticket 7');
    // The page requests the list of deletions every few seconds, and so notices the end.
    const endSession = async () => {
      await page.context().clearCookies();
      await page.getByText('Your session has ended').waitFor();
    };
    const signIn = async (email: string) => {
      const form = page.getByRole('form', { name: 'Sign in' });
      await form.getByLabel('E-mail').fill(email);
      await form.getByLabel('Password').fill(password);
      await page.keyboard.press('Enter');
      await page.locator('nav').waitFor();
    };
    await endSession();
    assert.equal(await list.count(), 0);
    await signIn('pastes@example.com');
    await list.waitFor();
    assert.equal(await list.inputValue(), 'a@example.com\nb@example.com');
    assert.equal(await page.getByRole('dialog').getByLabel('Reference').inputValue(), 'ticket 7');
    await signedIn(sluice, 'other@example.com', 'privacy', account.accountId);
    await endSession();
    await signIn('other@example.com');
    await page.getByRole('button', { name: 'New deletion' }).click();
    assert.equal(await list.inputValue(), '');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await list.waitFor({ state: 'detached' });
  });

  test('texts that change stay correct on a page that the browser translates', async () => {
    const page = await newPage();
    await enter(page, sluice, 'translates@example.com', 'privacy', account.accountId);
    await openPage(page, 'Deletions');
    await page.getByRole('button', { name: 'New deletion' }).click();
    const dialog = page.getByRole('dialog');
    const list = dialog.getByLabel('Users, one per line');
    await list.fill('a@example.com\na@example.com');
    const preview = dialog.locator('.preview');
    await preview.getByText('named twice').waitFor();
    // Replaces texts by elements as Chrome's translation does; of neighbouring texts the first element gets all words.
    await page.evaluate(`for (const parent of document.querySelectorAll('#console *')) {
      const texts = [...parent.childNodes].filter((node) => node.nodeType === 3 && node.data.trim() !== '');
      const all = texts.map((node) => node.data).join('');
      texts.forEach((node, at) => {
        const font = document.createElement('font');
        font.append(document.createElement('font'));
        font.firstChild.textContent = at === 0 ? 'übersetzt: ' + all : '';
        parent.replaceChild(font, node);
      });
    }`);
    assert.match(String(await preview.textContent()), /^übersetzt: 1 user to delete, 1 named twice/);
    await list.fill('a@example.com\nb@example.com\nc@example.com');
    await dialog.getByRole('button', { name: 'Delete 3 users', exact: true }).waitFor();
    assert.equal(await preview.textContent(), '3 users to delete.');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await dialog.waitFor({ state: 'detached' });
    assert.deepEqual(faults, []);
  });

  test('copies without a clipboard, as on a page without TLS, and shows what it cannot copy', async () => {
    const page = await newPage();
    await page.addInitScript("Object.defineProperty(navigator, 'clipboard', { value: undefined })");
    await enter(page, sluice, 'copies@example.com', 'administrator', account.accountId);
    await openPage(page, 'Keys and access');
    const copy = page.getByRole('button', { name: 'Copy app ID of Main Production' });
    await copy.click();
    await copy.getByText('Copied').waitFor();
    const name = page.getByLabel('Name of the new key');
    await name.focus();
    await page.keyboard.press('ControlOrMeta+V');
    assert.equal(await name.inputValue(), account.appIds[0]);
    await page.evaluate('document.execCommand = () => false');
    await copy.click();
    const shown = page.getByLabel('The browser does not let this page copy');
    await shown.waitFor();
    assert.equal(await shown.inputValue(), account.appIds[0]);
    assert.equal(await page.evaluate('getSelection().toString()'), account.appIds[0]);
    assert.deepEqual(faults, []);
  });

  test('an answer that breaks off is no answer: the page says so and asks again, but not after a refusal', async () => {
    const page = await newPage();
    await enter(page, sluice, 'broken@example.com', 'viewer', account.accountId);
    await page.route(/\/event-names/, (route) => route.fulfill({ body: '[{"event": "Or' }), { times: 1 });
    await openPage(page, 'Data quality');
    await page.getByText('The service does not answer.').waitFor();
    await page.getByText('No event was stored in this time.').waitFor();
    assert.deepEqual(faults, []);
    const refusal = { status: 404, json: { err: { message: 'there is no such environment' } } };
    await page.route(/\/event-names/, (route) => route.fulfill(refusal));
    await openPage(page, 'Overview');
    await openPage(page, 'Data quality');
    await page.getByText('There is no such environment.').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Try again' }).count(), 0);
  });

  test('says that there is no such page, and answers programs in JSON', async () => {
    const page = await newPage();
    await enter(page, sluice, 'lost@example.com', 'viewer', account.accountId);
    for (const path of ['/deletion', '/users']) {
      const answer = await page.goto(`${sluice.adminUrl}${path}`);
      assert.equal(answer?.status(), path === '/users' ? 200 : 404);
      await page.getByRole('heading', { name: 'No such page' }).waitFor();
      assert.equal(await page.title(), 'No such page · Sluice');
    }
    await page.getByRole('link', { name: 'Go to the overview' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    // Links to a former address stay good.
    await page.goto(`${sluice.adminUrl}/privacy-and-security`);
    await page.getByRole('heading', { name: 'Keys and access' }).waitFor();
    for (const method of ['GET', 'POST']) {
      const answer = await fetch(`${sluice.adminUrl}/deletion`, { method });
      assert.equal(answer.status, 404, method);
      assert.equal(((await answer.json()) as { err: { code: string } }).err.code, 'not_found');
    }
  });

  test('sets up a second factor by a QR code, and asks for it at the next sign-in', async () => {
    const page = await newPage();
    await enter(page, sluice, 'factor@example.com', 'viewer', account.accountId);
    await openPage(page, 'Settings');
    await page.getByText('Second factor: off').click();
    await page.getByRole('button', { name: 'Set up second factor' }).click();
    const drawn = page.getByRole('img', { name: /to scan/ }).locator('path');
    const uri = readQrCode(String(await drawn.getAttribute('d')));
    assert.ok(uri.startsWith('otpauth://totp/'), uri);
    const totp = URI.parse(uri) as TOTP;
    await page.getByLabel('Code').fill(totp.generate());
    await page.getByLabel('Your password', { exact: true }).fill(password);
    await page.getByRole('button', { name: 'Turn on' }).click();
    await page.getByText('Second factor: on').waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    const form = page.getByRole('form', { name: 'Sign in' });
    await form.getByLabel('E-mail').fill('factor@example.com');
    await form.getByLabel('Password').fill(password);
    await page.keyboard.press('Enter');
    // A code can be used once, so this is the next one, which is already valid.
    await form.getByLabel('Code').fill(totp.generate({ timestamp: Date.now() + 30_000 }));
    await page.keyboard.press('Enter');
    await page.getByRole('navigation').waitFor();
  });

  test('lets people in through the provider, and offers them no password of ours to change', async () => {
    const page = await newPage();
    const signOn = page.getByRole('link', { name: 'Sign in with single sign-on' });
    provider.subject = 'ada';
    provider.people.set('ada', { email: 'ada@provider.example', email_verified: true });
    const giveRole = (role: string) =>
      provider.people.set('ada', {
        email: 'ada@provider.example',
        email_verified: true,
        sluice_role: `${role}:${account.accountId}`,
      });
    await page.goto(`${sluice.adminUrl}/settings#audit`);
    await signOn.click();
    await page.getByRole('alert').getByText('Your single sign-on gives you no access here.').waitFor();
    giveRole('privacy');
    await signOn.click();
    // After the sign-in at the provider, which failed once, the page of the address is shown.
    await page.getByRole('heading', { name: 'Settings' }).waitFor();
    assert.equal(new URL(page.url()).hash, '#audit');
    assert.deepEqual(faults, []);
    // Text that was pasted before the session ended is still there.
    await openPage(page, 'Deletions');
    await page.getByRole('button', { name: 'New deletion' }).click();
    const list = page.getByLabel('Users, one per line');
    await list.fill('a@example.com');
    await page.context().clearCookies();
    await page.getByText('Your session has ended').waitFor();
    await signOn.click();
    await list.waitFor();
    assert.equal(await list.inputValue(), 'a@example.com');
    assert.equal(await page.evaluate('sessionStorage.length'), 0);
    await page.getByRole('button', { name: 'Cancel' }).click();
    giveRole('administrator');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await signOn.click();
    await openPage(page, 'Settings');
    await page.getByText('You sign in through your provider').waitFor();
    await page.getByRole('cell', { name: 'at the provider' }).waitFor();
    for (const text of ['Change your password', /^Second factor: /])
      assert.equal(await page.getByText(text).count(), 0, String(text));
  });

  test('shows hostile names as text that does not widen a page, and copies them as CSV that no spreadsheet computes', async () => {
    const page = await newPage();
    await enter(page, sluice, `${'hostile.'.repeat(8)}@example.com`, 'operator');
    await page.getByLabel('Account', { exact: true }).selectOption(account.accountId);
    await openPage(page, 'Keys and access');
    await page.getByLabel('Name of the new key').fill('=HYPERLINK("http://evil.example"); @SUM(1)');
    await page.getByRole('button', { name: 'Create API key' }).click();
    await page.getByRole('cell', { name: '=HYPERLINK' }).first().waitFor();
    await page.getByRole('button', { name: 'Copy as CSV: API keys' }).click();
    await untilCopied(page, (csv) => csv.includes(`"'=HYPERLINK(""http://evil.example"");' @SUM(1)"`));
    assert.ok(String(await page.textContent('main')).includes(hostile));
    assert.equal(await page.locator('img:not(.sign)').count(), 0);
    // An environment that is chosen on one page stays chosen on the next.
    await openPage(page, 'Data quality');
    await page.getByLabel('Environment', { exact: true }).selectOption(String(account.appIds[1]));
    await openPage(page, 'Live');
    await page.getByRole('heading', { name: `What arrives in ${hostile}` }).waitFor();
    await openPage(page, 'Keys and access');
    await page.getByRole('heading', { name: `Who may write to ${hostile}` }).waitFor();
    assert.equal(await page.getByRole('heading', { name: /^Who may write to/ }).count(), 1);
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 800 });
      for (const name of ['Live', 'Keys and access', 'Users', 'Data quality', 'Settings']) {
        await openPage(page, name);
        await page.getByRole('heading', { level: 1, name }).waitFor();
        await page.locator('main').getByText('Loading…').first().waitFor({ state: 'detached' });
        await checkReadable(page, `${name} at ${width}`);
      }
      const people = `document.querySelector('.scroll[aria-label=People]')`;
      assert.ok(await page.evaluate(`${people}.scrollWidth <= ${people}.clientWidth`), `People at ${width}`);
    }
    assert.deepEqual(faults, []);
  });

  test('draws the reference of the API with the account’s app_id, in a frame without an origin that axe and the keyboard go through', async () => {
    const page = await newPage();
    await page.setViewportSize({ width: 360, height: 800 });
    await page.emulateMedia({ colorScheme: 'dark' });
    await enter(page, sluice, 'reads@example.com', 'viewer', account.accountId);
    const away = { status: 503, json: { err: { message: 'busy' } } };
    await page.route('**/openapi.json', (route) => route.fulfill(away), { times: 1 });
    await openPage(page, 'API');
    await page.getByRole('alert').getByText('The service does not answer.').waitFor();
    const inFrame = page.frameLocator('iframe[title="API reference"]');
    await inFrame.getByRole('heading', { name: /^Sluice/ }).waitFor();
    const frame = page.frames().find((each) => each.url().endsWith('/reference'));
    assert.ok(frame !== undefined);
    await checkReadable(frame, 'the reference');
    await page.setViewportSize({ width: 1280, height: 800 });
    await inFrame.getByRole('button', { name: /^Search/ }).press('Enter');
    await page.keyboard.type('/api/track');
    await inFrame.getByText('Track one event, or many').last().waitFor();
    await checkReadable(frame, 'the search');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await inFrame.getByText(`"${account.appIds[0]}"`).first().waitFor();
    await inFrame.getByText('Identity of the user, case-sensitive').first().waitFor();
    // The link is hidden, since the frame could not open it.
    assert.equal(await inFrame.locator('a[href^="https://redocly"]:visible').count(), 0);
    await page.getByLabel('Document').selectOption('Administration');
    await inFrame.getByText('Own access').first().waitFor();
    assert.deepEqual(faults, []);
    const asks = `fetch('${sluice.adminUrl}/admin/v1/session').then(() => 'an answer', () => 'refused')`;
    const framed = page.frames().find((each) => each.url().endsWith('/reference'));
    assert.deepEqual(await framed?.evaluate(`${asks}.then((answer) => [self.origin, answer])`), [
      'null',
      'refused',
    ]);
  });

  test('the first page takes at most 80 kB, and its policy allows the service’s own scripts only', async () => {
    const page = await fetch(`${sluice.adminUrl}/settings`);
    const html = await page.text();
    const policy = page.headers.get('content-security-policy') ?? '';
    for (const part of [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "frame-src 'self'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ])
      assert.ok(policy.split('; ').includes(part), policy);
    assert.doesNotMatch(policy, /unsafe|\*/);
    assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
    assert.equal(page.headers.get('cache-control'), 'no-store');
    assert.doesNotMatch(html, /<script(?! type="module" src=)|style=|<style| on\w+=/);
    const names = [...html.matchAll(/(?:href|src)="(\/[^"]+)"/g)].map(([, name]) => String(name));
    // Includes the scripts that these import, and the chart, which the first page loads by itself.
    const texts = new Map<string, string>();
    const read = async (name: string): Promise<void> => {
      if (texts.has(name)) return;
      texts.set(name, '');
      const text = await (await fetch(`${sluice.adminUrl}${name}`)).text();
      texts.set(name, text);
      for (const [, part] of text.matchAll(/(?:from|import)"\.(\/console-\w+\.js)"/g))
        await read(String(part));
    };
    for (const name of names) await read(name);
    const later = [...[...texts.values()].join().matchAll(/import\("\.(\/console-\w+\.js)"\)/g)];
    const charts = await Promise.all(
      later.map(async ([, part]) => {
        const text = await (await fetch(`${sluice.adminUrl}${part}`)).text();
        return /export\{\w+ as Chart\};/.test(text) ? String(part) : [];
      }),
    );
    assert.equal(charts.flat().length, 1);
    for (const name of charts.flat()) await read(name);
    const bytes = [...texts.values()].reduce((sum, text) => sum + gzipSync(text).length, 0);
    assert.ok(texts.size >= 5 && bytes <= 80_000, `${[...texts.keys()].join()}: ${bytes} bytes`);
  });
});
