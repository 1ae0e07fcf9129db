// Debian's Chromium, driven by playwright-core: headless, as root or not, and without any traffic to the outside.

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

/** The reason why tests with a browser have to be skipped; false if there is a browser. */
export function withoutBrowser(): string | false {
  return existsSync(chromiumPath) ? false : `NO BROWSER: install the package chromium (${chromiumPath})`;
}

/** Starts a browser with a profile of its own; the caller closes it. */
export function launchBrowser(): Promise<Browser> {
  // On a busy machine the start takes ten seconds.
  return chromium.launch({ executablePath: chromiumPath, args: flags, timeout: 120_000 });
}

/**
 * Opens a page in a browser without playwright-core, since a browser under its control prerenders nothing. What the page
 * does shows at the servers. The caller stops the browser.
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
      // The browser's helper processes outlive it for a moment and write into the profile.
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
 * Collects what goes wrong in a page: uncaught errors, and errors on its console. The browser also logs each 503 there.
 * Those do not count: a busy machine may answer so, and the page then asks again.
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
