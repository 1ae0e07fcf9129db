// Times as the wire has them.

/** RFC 3339 with milliseconds in UTC; a clock beyond the years that it can write counts as the nearest. */
export function timestampOf(ms: number): string {
  return new Date(Math.min(Math.max(ms || 0, 0), lastMs)).toISOString();
}

/** The end of the year 9999. */
const lastMs = 253402300799999;
