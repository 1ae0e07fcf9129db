// Ensures that only one tab sends at a time, by the browser's locks, which end with their tab. Where there are none (pages without TLS),
// tabs may send at once: holds keep them from sending the same messages as far as they see each other, and the server recognises repeats.

import type { SendingTurn } from '../core/adapters.js';
import type { Browser } from './browser.js';

export function createSendingTurn({ locks }: Pick<Browser, 'locks'>): SendingTurn {
  return {
    async take(name, work) {
      let began = false;
      try {
        await locks?.request(name, () => {
          began = true;
          return work();
        });
      } catch {
        // Some frames are not allowed to use locks, and some pages replace them.
      }
      if (!began) await work();
    },
  };
}
