// When a page may record, when it may end, and when it is worth trying to send again.

import type { Lifecycle } from '../core/adapters.js';
import type { Browser } from './browser.js';

export function createLifecycle(browser: Browser): Lifecycle {
  const { document } = browser;
  return {
    whenReady(callback) {
      // A prerendered page may never be seen.
      if (document?.prerendering) document.addEventListener('prerenderingchange', callback, { once: true });
      else callback();
    },
    onHide(listener) {
      // Phones end hidden pages without another word; `pagehide` comes where a page is left while in view.
      document?.addEventListener('visibilitychange', () => {
        if (document.visibilityState === 'hidden') listener();
      });
      browser.addEventListener?.('pagehide', listener);
    },
    onResume(listener) {
      document?.addEventListener('visibilitychange', () => {
        if (document.visibilityState === 'visible') listener();
      });
      browser.addEventListener?.('online', listener);
      browser.addEventListener?.('pageshow', ({ persisted }) => {
        if (persisted) listener();
      });
    },
  };
}
