// How long to wait after failures in a row: twice as long each time, partly random so that producers do not come back together, and never
// shorter than the service asked for.

import { producerLimits as limits } from './limits.js';

export function createBackoff() {
  let failures = 0;
  return {
    /** Milliseconds to wait after one more failure. `askedMs`: what the service asked for, or 0. */
    fail(askedMs: number): number {
      const fullMs = Math.min(limits.backoffMsMin * 2 ** failures, limits.backoffMsMax);
      failures = Math.min(failures + 1, 30);
      const ownMs = fullMs * (1 - Math.random() / 2);
      return askedMs > 0 ? Math.ceil(askedMs + Math.min(ownMs, askedMs / 4)) : Math.ceil(ownMs);
    },
    succeed(): void {
      failures = 0;
    },
  };
}
