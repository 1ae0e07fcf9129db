// What separates the cells of a CSV file: one character for the whole file, which its first record shows.

export const separators = [',', ';', '\t'] as const;
export type Separator = (typeof separators)[number];

/** Excel's first line `sep=;`, which is not a record: the separator that it names, and where the text goes on after it. */
export function declaredSeparator(
  text: string,
): { readonly separator: string; readonly end: number } | undefined {
  const [line, separator] = /^"?sep=([^\r\n"])"?[ \t;,]*(?:\r\n|\r|\n|$)/i.exec(text) ?? [];
  return line === undefined || separator === undefined ? undefined : { separator, end: line.length };
}

/** How often each separator occurs in the first record, outside quotes. */
export function separatorsIn(text: string): Readonly<Record<Separator, number>> {
  const found = { ',': 0, ';': 0, '\t': 0 };
  let isQuoted = false;
  const start = /^[\ufeff\r\n]*/.exec(text)?.[0].length ?? 0;
  for (let at = start; at < text.length; at += 1) {
    const unit = text[at] ?? '';
    if (unit === '"') isQuoted = !isQuoted;
    else if (isQuoted) continue;
    else if (unit === '\n' || unit === '\r') break;
    else if (unit === ',' || unit === ';' || unit === '\t') found[unit] += 1;
  }
  return found;
}

/** The most frequent separator; undefined if there is none. */
export function mostFrequent(found: Readonly<Record<Separator, number>>): Separator | undefined {
  const best = separators.reduce((one, other) => (found[other] > found[one] ? other : one));
  return found[best] === 0 ? undefined : best;
}
