// A row of a file of any format, and what the readers of all formats share.

import { type Input, wordsOf } from './inputs.js';
import { ImportError } from './options.js';
import { assertUnchanged } from './source.js';
import type { Zone } from './zones.js';

/** A row, or the reason why it cannot be read. */
export type Row = {
  readonly place: number;
  /** Undefined if the row cannot be read. */
  readonly value: Readonly<Record<string, unknown>> | undefined;
  readonly surrogates: boolean;
  readonly longNumerals: ReadonlySet<string>;
  /** Why the row cannot be read, and its text. */
  readonly fault?: string;
  readonly text?: string;
};

export const rowsPerChunk = 1000;
/** A chunk also ends after this many bytes, since rows may be large and several chunks are in memory at once. */
export const chunkBytesMax = 8 * 1024 * 1024;

export type ReadOptions = {
  /** Only rows after this place are read. */
  readonly after: number;
  /** The columns that the mapping names; a file with a header must have them. */
  readonly columns: readonly string[];
  /** Whether the other columns are used as well. */
  readonly takesRest: boolean;
  /** The column of times, and the zone for times that name none. */
  readonly timeColumn: string | undefined;
  readonly zone: Zone | undefined;
  /** Whether MySQL wrote the CSV. */
  readonly isMysql?: boolean;
  /** The text that stands for a missing value in CSV. */
  readonly nullText?: string | undefined;
  /** Called with the share of the file that has been read. */
  readonly onShare: (share: number) => void;
};

const none: ReadonlySet<string> = new Set();
/** These properties of every row that does not come from JSON. */
export const plain = { surrogates: false, longNumerals: none };

/** Throws ImportError if a wanted column is missing or occurs twice: a row can have only one value under a name. */
export function assertColumns(
  { name }: Input,
  { columns, takesRest }: Pick<ReadOptions, 'columns' | 'takesRest'>,
  there: readonly string[],
): void {
  const first = (column: string) => (there.includes(column) ? column : column.replace(/\..*$/, ''));
  const wanted = new Set(columns.map(first));
  for (const column of columns) {
    if (there.includes(first(column))) continue;
    const known = there.map(shown).join(', ');
    throw new ImportError(`${name}: there is no column ${shown(column)}; there are ${known}`);
  }
  const twice = there.find(
    (column, at) => there.indexOf(column) < at && (wanted.has(column) || (takesRest && column !== '')),
  );
  if (twice !== undefined)
    throw new ImportError(
      `${name}: the column ${shown(twice)} is there twice; rename one of them${wanted.has(twice) ? '' : ', or name the columns that you want by --properties'}`,
    );
}

/** A column's name, in quotes if it could be misread. */
function shown(column: string): string {
  return column === '' || column !== column.trim() ? JSON.stringify(column) : column;
}

/** An error while reading a file, with the file's name. If the file was changed, which explains any error, throws ImportError for that. */
export function unreadable(input: Input, error: unknown): ImportError {
  assertUnchanged(input);
  return error instanceof ImportError
    ? error
    : new ImportError(`${input.name}: it cannot be read as ${input.format}: ${wordsOf(error)}`);
}
