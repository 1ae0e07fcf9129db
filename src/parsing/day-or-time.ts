// Days and times as people write them in commands. A day that a month does not have is refused: Date.parse takes it for one of the next
// month, and reads other forms in the zone of the machine. Pure.

const form = /^(\d{4}-\d\d-\d\d)(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d))?$/;

/** Milliseconds since 1970 of a day (2026-03-01, in UTC) or of a time with offset; undefined for any other text. */
export function readDayOrTime(text: string): number | undefined {
  const [, day] = form.exec(text) ?? [];
  const [ms, beginMs] = [Date.parse(text), Date.parse(day ?? '')];
  if (day === undefined || Number.isNaN(ms) || Number.isNaN(beginMs)) return undefined;
  return new Date(beginMs).toISOString().startsWith(day) ? ms : undefined;
}

/** The same for a day alone. */
export function readDay(text: string): number | undefined {
  return text.length === 10 ? readDayOrTime(text) : undefined;
}
