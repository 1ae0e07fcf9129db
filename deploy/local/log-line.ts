// Turns a line of a child's log into the text for the terminal.

const levelNames = new Map([
  [40, 'warn'],
  [50, 'error'],
  [60, 'fatal'],
]);

/** A short text for a warning, an error, or a line that is not a log entry (a stack); undefined for other entries. */
export function logLineText(line: string): string | undefined {
  if (!line.startsWith('{'))
    return line.trim() === '' ? undefined : line.replace(/^sluice: /, '').slice(0, 300);
  const entry = parse(line);
  const level = levelNames.get(Number(entry?.level));
  if (entry === undefined || level === undefined) return undefined;
  const error = entry.error as { code?: string; message?: string } | undefined;
  const details = error === undefined ? '' : ` (${[error.code, error.message].filter(Boolean).join(': ')})`;
  return `${level} ${String(entry.msg ?? '')}${details}`.slice(0, 300);
}

function parse(line: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    // The line begins like an entry but is not one.
    return undefined;
  }
}
