// Medians, percentiles, and numbers as the reports write them.

/** Of ascending values: the smallest one that at least `percent` of all values do not exceed. */
export function percentile(ascending: ArrayLike<number>, percent: number): number {
  return ascending[Math.max(0, rankOf(percent, ascending.length) - 1)] ?? Number.NaN;
}

/** How many values are `percent` of this many, rounded up: 99.9 % of 1000 are 999, despite floating-point fractions. */
export function rankOf(percent: number, count: number): number {
  return Math.ceil((percent / 100) * count - 1e-6);
}

/** The middle value. Of two middle ones the lower, so that it was really measured. NaN if there is none. */
export function median(values: readonly number[]): number {
  return percentile(
    [...values].sort((a, b) => a - b),
    50,
  );
}

/**
 * With three significant digits and separated thousands: 0.531, 12.3, 104, 28,100. Integers below 1000 stay as they are.
 */
export function figure(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1000) return String(value);
  if (size >= 1000) return Number(value.toPrecision(3)).toLocaleString('en-US');
  if (size >= 100) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export type Table = { readonly head: readonly string[]; readonly rows: readonly (readonly string[])[] };
/** A cell: a figure, or words. */
export type Cell = number | string | undefined;
export type Column<Row> = readonly [name: string, cell: (row: Row) => Cell];

/** A table of rows by its columns; one that has no cell in any row is left out. */
export function tableOf<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): Table {
  const isEmpty = (cell: Cell) => cell === undefined || Number.isNaN(cell);
  const shown = columns.filter(([, cell]) => !rows.every((row) => isEmpty(cell(row))));
  const text = (cell: Cell) => (typeof cell === 'string' ? cell : figure(cell));
  return {
    head: shown.map(([name]) => name),
    rows: rows.map((row) => shown.map(([, cell]) => text(cell(row)))),
  };
}

/** The median of what each has; undefined if none has it. */
export function medianOf<Of>(all: readonly Of[], value: (one: Of) => number | undefined): number | undefined {
  const values = all.flatMap((one) => value(one) ?? []);
  return values.length === 0 ? undefined : median(values);
}

/** From the least to the most; undefined for a single value. */
export function rangeText(values: readonly number[]): string | undefined {
  return values.length < 2 ? undefined : `${figure(Math.min(...values))} to ${figure(Math.max(...values))}`;
}

/** A table in Markdown; the first column is text, the others are figures. */
export function markdownTable({ head, rows }: Table): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...rows.map(line)].join('\n');
}

/** The same table with its columns aligned, for a terminal. */
export function textTable({ head, rows }: Table): string {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => [...(row[column] ?? '')].length)));
  const line = (row: readonly string[]) =>
    widths
      .map((width, column) => {
        const cell = row[column] ?? '';
        const space = ' '.repeat(width - [...cell].length);
        return column === 0 ? cell + space : space + cell;
      })
      .join('  ')
      .trimEnd();
  return all.map(line).join('\n');
}
