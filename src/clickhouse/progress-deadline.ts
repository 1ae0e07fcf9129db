// How long to wait for work of ClickHouse that may take hours: while it makes progress.

import { setTimeout as pause } from 'node:timers/promises';

/** The time of the caller that waits. */
export type Time = {
  readonly nowMs: () => number;
  /** Settles after so many milliseconds, or when the signal is aborted. */
  readonly pause: (ms: number, signal?: AbortSignal) => Promise<void>;
};

export const realTime: Time = {
  nowMs: () => performance.now(),
  // It rejects only when it is aborted, which is not an error here.
  pause: (ms, signal) => pause(ms, undefined, { signal }).catch(() => undefined),
};

/**
 * What it returns is called with a sign of progress, again and again, and says whether the work makes no progress: whether the sign
 * has not changed for `msMax`. Undefined: ClickHouse could not be asked.
 */
export function createProgressDeadline(
  msMax: number,
  nowMs: () => number,
): (sign: string | undefined) => boolean {
  let last: string | undefined;
  let sinceMs = nowMs();
  return (sign) => {
    if (sign !== undefined && sign !== last) {
      last = sign;
      sinceMs = nowMs();
    }
    return nowMs() - sinceMs >= msMax;
  };
}
