// Medians, percentiles, and numbers as the reports write them.

/** Of ascending values; the smallest one that at least `percent` of all do not exceed. */
export function percentile(ascending: ArrayLike<number>, percent: number): number {
  const index = Math.ceil((percent / 100) * ascending.length) - 1;
  return ascending[Math.max(0, index)] ?? Number.NaN;
}

/** The middle value; of two middle ones the lower, so that it was measured. */
export function median(values: readonly number[]): number {
  return percentile(
    [...values].sort((a, b) => a - b),
    50,
  );
}

/** With three digits that count, thousands set apart: 0.531, 12.3, 104, 28,100; whole ones below 1000 as they are. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (Number.isInteger(value) && value < 1000) return String(value);
  if (value >= 1000) return Number(value.toPrecision(3)).toLocaleString('en-US');
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A table in Markdown; the first column is text, the others are figures. */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...rows.map(line)].join('\n');
}
