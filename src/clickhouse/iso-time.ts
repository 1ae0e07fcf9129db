// Times in statements whose results go to people and programs as JSON.

/** An expression for a time as text in UTC, such as 2026-01-31T12:00:00.000Z. */
export function isoTime(time: string): string {
  return `concat(replaceOne(toString(toTimeZone(${time}, 'UTC')), ' ', 'T'), 'Z')`;
}
