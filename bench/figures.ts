// Medians and their ranges, and the format of numbers and tables in reports.

/** The middle value; of two middle values the lower, so that the median is a measured value. NaN for no values. */
export function median(values: readonly number[]): number {
  return inOrder(values)[Math.max(0, Math.ceil(values.length / 2) - 1)] ?? Number.NaN;
}

/** The probability with which the median must lie within the range. */
const confidence = 0.9;

export type Range = { readonly least: number; readonly most: number };

/**
 * The range in which the median of infinitely many runs lies with a probability of nine tenths, by the ranks of the values: of eight or more
 * runs it leaves out the outermost on both sides. Fewer than five runs cannot give that probability; the range is then that of all values.
 */
export function rangeOfMedian(values: readonly number[]): Range {
  const ascending = inOrder(values);
  const count = ascending.length;
  let cut = 0;
  let combinations = 1;
  let outside = 2 * 0.5 ** count;
  for (;;) {
    combinations *= (count - cut) / (cut + 1);
    outside += 2 * combinations * 0.5 ** count;
    if (!(outside <= 1 - confidence)) break;
    cut += 1;
  }
  return { least: ascending[cut] ?? Number.NaN, most: ascending[count - 1 - cut] ?? Number.NaN };
}

function inOrder(values: readonly number[]): number[] {
  return [...values].sort((a, b) => a - b);
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

/** A text, a figure, or a figure of each run. */
type Cell = string | number | undefined | readonly (number | undefined)[];
export type Column<Row> = readonly [name: string, cell: (row: Row) => Cell];
export type Table = {
  readonly head: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
};

/** A table of rows. Columns without any cell are left out. */
export function tableOf<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): Table {
  const cells = rows.map((row) => columns.map(([, cell]) => cell(row)));
  const isFilled = (cell: Cell) => typeof cell === 'string' || valuesOf(cell).length > 0;
  const isShown = (_: unknown, column: number) => cells.some((row) => isFilled(row[column]));
  const shown = columns.filter(isShown);
  return {
    head: shown.map(([name]) => name),
    rows: cells.map((row) => row.filter(isShown)),
  };
}

export function valuesOf(cell: Cell): number[] {
  return [cell].flat().filter((value): value is number => Number.isFinite(value));
}

/** The text of a cell; for several runs the median, and the lowest and highest figure. */
export function cellText(cell: Cell): string {
  if (typeof cell === 'string') return cell;
  const values = valuesOf(cell);
  const [least, most] = [figure(Math.min(...values)), figure(Math.max(...values))];
  return least === most ? figure(values[0]) : `${figure(median(values))} (${least} to ${most})`;
}

/** A table in Markdown; the first column is text, the others are figures. */
export function markdownTable({ head, rows }: Table): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const written = rows.map((row) => line(row.map(cellText)));
  return [line(head), line(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...written].join('\n');
}

/** A table for a terminal, with aligned columns. */
export function textTable({ head, rows }: Table): string {
  const all = [head, ...rows.map((row) => row.map(cellText))];
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
