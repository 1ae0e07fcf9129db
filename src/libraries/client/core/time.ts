// Times in the form that messages have and in the form of HTTP, and the time between two of them.

import type { Clock } from './adapters.js';
import { clientLimits } from './limits.js';

/** Stored once, since a page may replace `Date`. */
const FirstDate = Date;

/** RFC 3339 with milliseconds in UTC. A clock outside the years of that format counts as the nearest one. */
export function timestampOf(ms: number): string {
  return new FirstDate(Math.min(Math.max(ms || 0, 0), lastMs)).toISOString();
}

/** Milliseconds since 1970 of a date in HTTP's format; `NaN` for any other text. */
export function msOfDate(text: string): number {
  return FirstDate.parse(text);
}

/** The end of the year 9999. */
const lastMs = 253402300799999;

/**
 * Milliseconds until a time; 0 if it has passed or is unknown. `wholeMs`: the length of the whole wait: if more remains, the clock was set
 * back since, and the wait counts as over.
 */
export function msUntil(untilMs: number, wholeMs: number, clock: Clock): number {
  const ms = untilMs - clock.now();
  return ms > 0 && ms <= wholeMs ? ms : 0;
}

/** Whether tabs that began something at these two times may not have seen each other's. */
export function couldNotSeeEachOther(oneMs: number | undefined, otherMs: number | undefined): boolean {
  // An unknown time is not near any other.
  return Math.abs(Number(oneMs) - Number(otherMs)) <= clientLimits.unseenMs;
}
