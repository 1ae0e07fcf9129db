// Which codings a client accepts for an answer.

/** Whether Accept-Encoding names a coding without refusing it. */
export function accepts(header: string, coding: string): boolean {
  const entry = header
    .toLowerCase()
    .split(',')
    .map((part) => part.split(';').map((text) => text.trim()))
    .find(([name]) => name === coding);
  return entry !== undefined && !entry.some((parameter) => /^q=0(?:\.0*)?$/.test(parameter));
}
