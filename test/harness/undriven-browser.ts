// A whole Chromium without playwright-core, whose control turns off prerendering and the back/forward cache.

import { existsSync } from 'node:fs';
import { browserFlags, wholeBrowser } from './browser.js';
import { type Child, startChild } from './child.js';
import { plainEnvironment } from './environment.js';
import { removeTempDir, tempDir } from './temp-dir.js';
import { until } from './wait.js';

/** Opens a page, whose requests a test sees at its servers. The caller stops the browser. */
export async function startUndrivenBrowser(url: string): Promise<Pick<Child, 'stop'>> {
  const profile = tempDir('profile');
  const own = ['--headless=new', '--remote-debugging-port=0', `--user-data-dir=${profile}`];
  const child = await startChild({
    name: 'chromium',
    program: { command: wholeBrowser.path, args: [...browserFlags, ...own, url], env: plainEnvironment() },
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
      await until(removed, 'the profile is removed');
      return exit;
    },
  };
}
