// Ensures that only one tab sends at a time: by the browser's locks, which end with their tab, or by a lease in storage where there are
// none (pages without TLS). If two tabs do send at once, the server recognises the repeats.

import type { Clock, KeyValueStorage, RandomBytes, SendingTurn } from '../core/adapters.js';
import { clientLimits } from '../core/limits.js';
import { randomMessageId } from '../core/random-ids.js';
import { msUntil } from '../core/time.js';
import type { Browser } from './browser.js';

/** How long it may take until another tab's write is visible here. */
const lookAgainMs = 60;

export function createSendingTurn(
  browser: Browser,
  storage: KeyValueStorage,
  clock: Clock,
  randomBytes: RandomBytes,
): SendingTurn {
  const { locks } = browser;
  const lease = takeByLease(storage, clock, randomMessageId(randomBytes));
  return {
    async take(name, work) {
      if (locks === undefined) return lease(name, work);
      let began = false;
      try {
        await locks.request(name, () => {
          began = true;
          return work();
        });
      } catch {
        // Some frames are not allowed to use locks, and some pages replace them.
        if (!began) await lease(name, work);
      }
    },
  };
}

/** Runs the work once the lease is free, and releases it afterwards. The lease of a tab that is gone expires. */
function takeByLease(storage: KeyValueStorage, clock: Clock, tab: string) {
  const pause = (ms: number): Promise<void> => new Promise((resolve) => void clock.setTimer(ms, resolve));

  /** For how many milliseconds another tab still holds the lease. */
  function othersMs(name: string): number {
    const [holder, until] = (storage.get(name) ?? '').split(' ');
    return holder === tab ? 0 : msUntil(Number(until), clientLimits.leaseMs, clock);
  }

  return async (name: string, work: () => Promise<void>): Promise<void> => {
    for (;;) {
      const ms = othersMs(name);
      if (ms > 0) {
        await pause(ms);
        continue;
      }
      claim(name);
      await pause(lookAgainMs);
      if (othersMs(name) === 0) break;
    }
    let cancel = renew(name, (next) => {
      cancel = next;
    });
    try {
      await work();
    } finally {
      cancel();
      if (othersMs(name) === 0) storage.remove(name);
    }
  };

  function claim(name: string): void {
    storage.set(name, `${tab} ${clock.now() + clientLimits.leaseMs}`);
  }

  /** Renews the lease while the work continues. Returns how to stop that; each renewal passes a new way to stop to `onNext`. */
  function renew(name: string, onNext: (cancel: () => void) => void): () => void {
    return clock.setTimer(clientLimits.leaseMs / 3, () => {
      claim(name);
      onNext(renew(name, onNext));
    });
  }
}
