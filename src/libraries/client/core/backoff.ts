// When an app's messages may be sent again after a failure. Kept in storage, so that new pages and other tabs wait too.

import type { Clock, KeyValueStorage, RandomBytes, TransportAnswer } from './adapters.js';
import { parseJson } from './json.js';
import { clientLimits } from './limits.js';
import { randomFraction } from './random-ids.js';
import { msOfDate, msUntil } from './time.js';

export type Backoff = ReturnType<typeof createBackoff>;

/** `ms`: the length of the whole wait, which the remaining wait cannot exceed. */
type State = {
  readonly until: number;
  readonly ms: number;
  readonly failures: number;
  readonly asked: boolean;
};

const none: State = { until: 0, ms: 0, failures: 0, asked: false };

export function createBackoff(storage: KeyValueStorage, key: string, clock: Clock, randomBytes: RandomBytes) {
  const read = (): State => parse(storage.get(key));
  const keep = (state: State): boolean => storage.set(key, JSON.stringify(state));

  return {
    /** Milliseconds to wait; 0 if sending may be tried. `asked`: the server asked for the wait. */
    left() {
      const { until, ms, asked } = read();
      return { ms: msUntil(until, ms, clock), asked };
    },
    /** Records a failure: the wait is twice the last one, and at least what the server asked for. Returns the number of failures in a row. */
    fail(answer: TransportAnswer): number {
      const failures = Math.min(read().failures + 1, 30);
      const doubled = clientLimits.backoffMsMin * 2 ** (failures - 1);
      const ownMs = Math.min(doubled, clientLimits.backoffMsMax) * (1 - randomFraction(randomBytes) / 2);
      const askedMs = readRetryAfter(answer.retryAfter, clock.now());
      // Not before the time that the server named, and spread out after it, so that clients do not all come back at once.
      const ms = Math.ceil(Math.max(ownMs, askedMs + (askedMs > 0 ? Math.min(ownMs, askedMs / 4) : 0)));
      keep({ until: clock.now() + ms, ms, failures, asked: askedMs > 0 });
      return failures;
    },
    /** Records a success. */
    succeed(): void {
      if (storage.get(key) !== undefined) storage.remove(key);
    },
    /** Ends a wait that the server did not ask for. The next failure still waits longer than the last. */
    hurry(): void {
      const state = read();
      if (!state.asked && state.until > 0) keep({ ...state, until: 0 });
    },
  };
}

/** Milliseconds that a `Retry-After` in seconds or as a date asks for; 0 when it asks for nothing. */
function readRetryAfter(header: string | undefined, nowMs: number): number {
  if (header === undefined) return 0;
  const ms = /^\s*\d+\s*$/.test(header) ? Number(header) * 1000 : msOfDate(header) - nowMs;
  return ms > 0 ? Math.min(ms, clientLimits.retryAfterMsMax) : 0;
}

/** The state in a stored text; no wait if there is none, or a damaged one. */
function parse(text: string | undefined): State {
  const { until, ms, failures, asked } = parseJson(text);
  // None of our waits is longer, and no timer could be.
  const isState =
    [until, ms, failures].every((value) => typeof value === 'number' && value >= 0) &&
    ms <= 2 * clientLimits.retryAfterMsMax;
  return isState ? { until, ms, failures, asked: asked === true } : none;
}
