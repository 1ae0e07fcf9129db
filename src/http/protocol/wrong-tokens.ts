// Wrong ADMIN_TOKENs are answered late, counted and logged. A right one never waits, however many wrong ones came before, since only
// refusals go through here.

import { administration } from '../../contract/limits.js';
import type { Log } from '../../log.js';
import { adminTokensRefused } from '../../metrics.js';
import { wrongTokensLoggedEveryMs } from '../../tuning.js';

export type WrongTokens = {
  /** Settles when the caller may be answered. At once if too many are waiting already, since a waiting answer occupies a connection. */
  delay(): Promise<void>;
};

export function createWrongTokens(log: Log): WrongTokens {
  let waiting = 0;
  let unlogged = 0;
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  return {
    async delay() {
      adminTokensRefused.inc();
      unlogged += 1;
      if (performance.now() - loggedAtMs >= wrongTokensLoggedEveryMs) {
        log.warn({ count: unlogged }, 'wrong ADMIN_TOKENs were refused');
        loggedAtMs = performance.now();
        unlogged = 0;
      }
      if (waiting >= administration.wrongTokensWaitingMax) return;
      waiting += 1;
      await new Promise((resolve) => setTimeout(resolve, administration.wrongTokenMs));
      waiting -= 1;
    },
  };
}
