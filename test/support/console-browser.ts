// The console in a real browser.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Frame, Page } from 'playwright-core';
import type { Role } from '../../src/contract/roles.js';
import { faultsOf } from '../harness/browser.js';
import type { Deployment } from '../harness/sluice.js';
import { until } from '../harness/wait.js';
import { password } from './console.js';
import { root } from './deploy-file.js';

const axe = readFileSync(join(root, 'node_modules/axe-core/axe.min.js'), 'utf8');

export type ConsoleBrowserPage = { readonly page: Page; readonly faults: readonly string[] };

/** Opens an empty page in its own browser context, which may use the clipboard. */
export async function openConsole(
  browser: Browser,
  { adminUrl }: Pick<Deployment, 'adminUrl'>,
  width = 1280,
  zone = 'UTC',
): Promise<ConsoleBrowserPage> {
  const context = await browser.newContext({ viewport: { width, height: 800 }, timezoneId: zone });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: adminUrl });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const faults = faultsOf(page);
  page.on('dialog', (dialog) => faults.push(`dialog: ${dialog.message()}`));
  return { page, faults };
}

/** Invites a person and opens the link of the invitation, where the person chooses a password. */
export async function enter(
  page: Page,
  sluice: Pick<Deployment, 'admin' | 'adminUrl'>,
  email: string,
  role: Role,
  accountId?: string,
): Promise<void> {
  const of = accountId === undefined ? [] : ['--account', accountId];
  const { url } = (await sluice.admin('people', 'invite', email, '--role', role, ...of)) as { url: string };
  const { pathname, hash } = new URL(url);
  await page.goto(`${sluice.adminUrl}${pathname}${hash}`);
  await page.getByText(email).waitFor();
  await page.getByLabel('Password').fill(password);
  // A busy service may answer 503, and a person then presses again.
  for (let presses = 0, status = 503; status === 503 && presses < 5; presses += 1) {
    const answered = page.waitForResponse((answer) => answer.url().endsWith('/invitation/accept'));
    await page.keyboard.press('Enter');
    status = (await answered).status();
  }
  await page.getByRole('navigation').waitFor();
}

/** Settles when the clipboard has the wanted text, which may be later than the end of the click. */
export async function untilCopied(page: Page, isWanted: (text: string) => boolean): Promise<void> {
  const copied = async () => isWanted(String(await page.evaluate('navigator.clipboard.readText()')));
  await until(copied, 'the clipboard has the text');
}

export function openPage(page: Page, name: string): Promise<void> {
  return page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
}

/** Asserts that axe finds nothing in a page or frame, and that it does not scroll sideways. */
export async function checkReadable(of: Page | Frame, name: string): Promise<void> {
  // Playwright evaluates this by the browser's debugger, to which the page's content security policy does not apply. A page keeps axe, since
  // most of a short check is to load it.
  if (!(await of.evaluate("'axe' in globalThis")))
    await of.evaluate(`{ const module = undefined; ${axe}; globalThis.axe = axe; }`);
  const found = await of.evaluate(
    `axe.run(document, { iframes: false, resultTypes: ['violations'] }).then(({ violations }) =>
      violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html).join()))`,
  );
  assert.deepEqual(found, [], name);
  const sideways = Number(await of.evaluate('document.documentElement.scrollWidth - innerWidth'));
  assert.ok(sideways <= 0, `${name} scrolls ${sideways}`);
}
