// The console in a real browser, as tests use it.

import type { Browser, Page } from 'playwright-core';
import { faultsOf } from '../../harness/browser.js';
import type { SluiceHandle } from '../../harness/sluice.js';
import { until } from '../../harness/wait.js';
import type { Role } from '../../src/contract/roles.js';
import { password } from './console.js';

export type ConsoleBrowserPage = { readonly page: Page; readonly faults: readonly string[] };

/** An empty page in its own browser context, which may use the clipboard. */
export async function openConsole(
  browser: Browser,
  { adminUrl }: Pick<SluiceHandle, 'adminUrl'>,
  width = 1280,
): Promise<ConsoleBrowserPage> {
  const context = await browser.newContext({ viewport: { width, height: 800 } });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: adminUrl });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const faults = faultsOf(page);
  page.on('dialog', (dialog) => faults.push(`dialog: ${dialog.message()}`));
  return { page, faults };
}

/** Opens an invitation's link and chooses a password there. */
export async function enter(
  page: Page,
  sluice: Pick<SluiceHandle, 'admin' | 'adminUrl'>,
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
  await page.keyboard.press('Enter');
  await page.getByRole('navigation').waitFor();
}

/** Settles when the clipboard has what is wanted: a page that copies is told later than its click ends. */
export async function untilCopied(page: Page, isWanted: (text: string) => boolean): Promise<void> {
  const copied = async () => isWanted(String(await page.evaluate('navigator.clipboard.readText()')));
  await until(copied, { deadlineMs: 60_000, what: 'the clipboard has the text' });
}

/** Follows a link of the navigation. */
export function openPage(page: Page, name: string): Promise<void> {
  return page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
}
