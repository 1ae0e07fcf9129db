// Times as the wire has them, and what follows from two of them.

import { clientLimits } from './limits.js';

/** RFC 3339 with milliseconds in UTC; a clock beyond the years that it can write counts as the nearest. */
export function timestampOf(ms: number): string {
  return new Date(Math.min(Math.max(ms || 0, 0), lastMs)).toISOString();
}

/** The end of the year 9999. */
const lastMs = 253402300799999;

/** Whether what was begun at these times was begun by tabs that did not see each other's. */
export function madeAtOnce(oneMs: number | undefined, otherMs: number | undefined): boolean {
  if (oneMs === undefined || otherMs === undefined) return false;
  return Math.abs(oneMs - otherMs) <= clientLimits.unseenMs;
}
