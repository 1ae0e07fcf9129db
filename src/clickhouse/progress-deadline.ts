// Waits for work of ClickHouse that may take hours, as long as it makes progress.

import { setTimeout as pause } from 'node:timers/promises';

/** The clock of the waiting caller. */
export type Time = {
  readonly nowMs: () => number;
  /** Settles after this many milliseconds, or when the signal is aborted. */
  readonly pause: (ms: number, signal?: AbortSignal) => Promise<void>;
};

export const realTime: Time = {
  nowMs: () => performance.now(),
  // It rejects only when aborted, which is not an error here.
  pause: (ms, signal) => pause(ms, undefined, { signal }).catch(() => undefined),
};

/**
 * Call the returned function periodically with a text that changes with progress (undefined: ClickHouse could not be asked). It returns
 * true once the text has not changed for `msMax`.
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
