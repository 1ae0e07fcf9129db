// When a page may record, when it may be ending, and when another attempt to send makes sense.

import type { Lifecycle } from '../core/adapters.js';
import type { Browser } from './browser.js';

export function createLifecycle(browser: Browser): Lifecycle {
  const isNow = (state: string): boolean => browser.readText('visibilityState') === state;
  return {
    whenReady(callback) {
      // A prerendered page may never be seen, so it records nothing until it is shown.
      if (browser.isPrerendering()) browser.on('document', 'prerenderingchange', callback);
      else callback();
    },
    onHide(listener) {
      // Phones end hidden pages without notice. `pagehide` comes if a page is left while it is visible.
      browser.on('document', 'visibilitychange', () => {
        if (isNow('hidden')) listener();
      });
      browser.on('window', 'pagehide', listener);
    },
    onResume(listener) {
      browser.on('document', 'visibilitychange', () => {
        if (isNow('visible')) listener();
      });
      browser.on('window', 'online', listener);
      browser.on('window', 'pageshow', ({ persisted }) => {
        if (persisted) listener();
      });
    },
  };
}
