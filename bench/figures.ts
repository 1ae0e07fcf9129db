// Medians, percentiles, and how reports write numbers and tables.

/** Of ascending values: the smallest that at least `percent` of them do not exceed. */
export function percentile(ascending: ArrayLike<number>, percent: number): number {
  // Despite floating-point fractions 99.9 % of 1000 are 999.
  const rank = Math.ceil((percent / 100) * ascending.length - 1e-6);
  return ascending[Math.max(0, rank - 1)] ?? Number.NaN;
}

/** The middle value; of two the lower, so that the median is a measured value. NaN if there is none. */
export function median(values: readonly number[]): number {
  const ascending = [...values].sort((a, b) => a - b);
  return percentile(ascending, 50);
}

/** Three significant digits and separated thousands: 0.53, 12.3, 104, 28,100. Integers below 1000 stay as they are. */
export function figure(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1000) return String(value);
  if (size >= 1000) return Number(value.toPrecision(3)).toLocaleString('en-US');
  if (size >= 100) return value.toFixed(0);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export type Table = { readonly head: readonly string[]; readonly rows: readonly (readonly string[])[] };
type Cell = number | string | undefined;
export type Column<Row> = readonly [name: string, cell: (row: Row) => Cell];

/** A table of rows. Columns without any cell are left out. */
export function tableOf<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): Table {
  const isEmpty = (cell: Cell) => cell === undefined || Number.isNaN(cell);
  const shown = columns.filter(([, cell]) => !rows.every((row) => isEmpty(cell(row))));
  const text = (cell: Cell) => (typeof cell === 'string' ? cell : figure(cell));
  return {
    head: shown.map(([name]) => name),
    rows: rows.map((row) => shown.map(([, cell]) => text(cell(row)))),
  };
}

/** The median of a value that some may lack; undefined if all lack it. */
export function medianOf<Of>(all: readonly Of[], value: (one: Of) => number | undefined): number | undefined {
  const values = all.flatMap((one) => value(one) ?? []);
  return values.length === 0 ? undefined : median(values);
}

/** `least to most`; undefined for a single value. */
export function rangeText(values: readonly number[]): string | undefined {
  return values.length < 2 ? undefined : `${figure(Math.min(...values))} to ${figure(Math.max(...values))}`;
}

/** In Markdown; the first column is text, the others are figures. */
export function markdownTable({ head, rows }: Table): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...rows.map(line)].join('\n');
}

/** For a terminal, with aligned columns. */
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
