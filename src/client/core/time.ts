// Times as the wire has them, and what follows from two of them.

import { clientLimits } from './limits.js';

/** Taken once: a page may put something else in its place. */
const FirstDate = Date;

/** RFC 3339 with milliseconds in UTC; a clock beyond the years that it can write counts as the nearest. */
export function timestampOf(ms: number): string {
  return new FirstDate(Math.min(Math.max(ms || 0, 0), lastMs)).toISOString();
}

/** Milliseconds since 1970 of a date as HTTP has it; `NaN` for another text. */
export function msOfDate(text: string): number {
  return FirstDate.parse(text);
}

/** The end of the year 9999. */
const lastMs = 253402300799999;

/** Whether what was begun at these times was begun by tabs that did not see each other's. */
export function madeAtOnce(oneMs: number | undefined, otherMs: number | undefined): boolean {
  // Nothing that is not known is near anything.
  return Math.abs(Number(oneMs) - Number(otherMs)) <= clientLimits.unseenMs;
}
