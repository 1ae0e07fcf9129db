// Debian's Chromium, driven by playwright-core: headless, as root or not, and without a word to the outside.

import { existsSync } from 'node:fs';
import { type Browser, chromium, type Page } from 'playwright-core';
import { type Child, startChild } from './child.js';
import { plainEnvironment } from './environment.js';
import { removeTempDir, tempDir } from './temp-dir.js';
import { until, within } from './wait.js';

const chromiumPath = '/usr/bin/chromium';

const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Why tests with a browser have to be skipped, or false. */
export function withoutBrowser(): string | false {
  return existsSync(chromiumPath) ? false : `NO BROWSER: install the package chromium (${chromiumPath})`;
}

/** Starts a browser with a profile of its own; the caller closes it. */
export function launchBrowser(): Promise<Browser> {
  // On a busy machine it takes ten seconds to start.
  return chromium.launch({ executablePath: chromiumPath, args: flags, timeout: 120_000 });
}

/**
 * Opens a page in a browser that nobody drives: one that is driven prerenders nothing. Servers see what it does.
 * The caller stops it.
 */
export async function startUndrivenBrowser(url: string): Promise<Pick<Child, 'stop'>> {
  const profile = tempDir('profile');
  const own = ['--headless=new', '--remote-debugging-port=0', `--user-data-dir=${profile}`];
  const child = await startChild({
    name: 'chromium',
    program: { command: chromiumPath, args: [...flags, ...own, url], env: plainEnvironment() },
    healthy: () => true,
    healthyDeadlineMs: 30_000,
  });
  return {
    async stop() {
      const exit = await child.stop();
      // Its helpers outlive it for a moment, and write into the profile.
      const removed = () => {
        removeTempDir(profile);
        return !existsSync(profile);
      };
      await until(removed, { deadlineMs: 20_000, what: 'the profile is removed' });
      return exit;
    },
  };
}

/**
 * Notes what goes wrong in a page: errors that nobody caught and what it writes to the console as such. That a busy
 * machine answered 503, after which pages ask again, is the browser's own word and no fault of theirs.
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

/** Ends the process behind a page, so that nothing in it is run any more. */
export async function crash(page: Page): Promise<void> {
  const crashed = new Promise<void>((resolve) => page.once('crash', () => resolve()));
  const session = await page.context().newCDPSession(page);
  void session.send('Page.crash').catch(() => undefined);
  await within(crashed, 20_000);
}
