// Debian's Chromium, driven by playwright-core: headless, as root or not, and without any traffic to the outside.

import { existsSync } from 'node:fs';
import { type Browser, chromium, type Page } from 'playwright-core';
import { within } from './wait.js';

type BrowserProgram = { readonly path: string; readonly package: string };

/** Chromium's engine without windows. Its start and three pages take 0.5 s of CPU; the whole browser takes 1.9 s for them. */
const shell: BrowserProgram = {
  path: '/usr/bin/chromium-headless-shell',
  package: 'chromium-headless-shell',
};
/** The browser of visitors. Unlike the shell it has a back/forward cache. */
export const wholeBrowser: BrowserProgram = { path: '/usr/bin/chromium', package: 'chromium' };

const browserFlags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** The reason why tests with a browser have to be skipped; false if there is a browser. */
export function withoutBrowser(program = shell): string | false {
  return existsSync(program.path)
    ? false
    : `NO BROWSER: install the package ${program.package} (${program.path})`;
}

/** Starts a browser with a profile of its own; the caller closes it. */
export function launchBrowser(program = shell): Promise<Browser> {
  // On a busy machine the start takes ten seconds.
  return chromium.launch({ executablePath: program.path, args: browserFlags, timeout: 120_000 });
}

/**
 * Collects what goes wrong in a page: uncaught errors, and errors and warnings on its console. The browser also logs each 503 there,
 * but a busy API may answer 503, and the page then asks again. So these do not count.
 */
export function faultsOf(page: Page): string[] {
  const faults: string[] = [];
  page.on('pageerror', (error) => faults.push(`uncaught: ${error.message}`));
  page.on('console', (message) => {
    if (/^Failed to load resource: the server responded with a status of 503\b/.test(message.text())) return;
    if (message.type() === 'error' || message.type() === 'warning') faults.push(message.text());
  });
  return faults;
}

/** Kills the process of a page, so that its code stops running. */
export async function crash(page: Page): Promise<void> {
  const crashed = new Promise<void>((resolve) => page.once('crash', () => resolve()));
  const session = await page.context().newCDPSession(page);
  void session.send('Page.crash').catch(() => undefined);
  await within(crashed, 60_000);
}
