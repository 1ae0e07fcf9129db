// A row of a file of any format, and what the readers of the formats have in common.

import { type Input, wordsOf } from './inputs.js';
import { ImportError } from './options.js';
import type { Zone } from './zones.js';

/** A row, or the reason why it cannot be read. */
export type Row = {
  readonly place: number;
  /** Undefined if the row cannot be read. */
  readonly value: Readonly<Record<string, unknown>> | undefined;
  readonly surrogates: boolean;
  readonly longNumerals: ReadonlySet<string>;
  /** Why it cannot be read, and its text. */
  readonly fault?: string;
  readonly text?: string;
};

export const rowsPerChunk = 1000;
/** A chunk ends beyond so many bytes, too: rows may be large, and several chunks are in memory at once. */
export const chunkBytesMax = 8 * 1024 * 1024;

export type ReadOptions = {
  /** Rows up to this place are left out. */
  readonly after: number;
  /** The columns that the mapping names; a file with a header must have them. */
  readonly columns: readonly string[];
  /** The column of times, and the zone of times that name none. */
  readonly timeColumn: string | undefined;
  readonly zone: Zone | undefined;
  /** Called with the share of the file that was read. */
  readonly onShare: (share: number) => void;
};

const none: ReadonlySet<string> = new Set();
/** Of rows that come from no JSON. */
export const plain = { surrogates: false, longNumerals: none };

export function assertColumns({ name }: Input, wanted: readonly string[], there: readonly string[]): void {
  for (const column of wanted) {
    const known = there.includes(column) || there.includes(column.replace(/\..*$/, ''));
    if (!known) throw new ImportError(`${name}: there is no column ${column}; there are ${there.join(', ')}`);
  }
}

/** An error of reading, in words that name the file. */
export function unreadable(input: Input, error: unknown): ImportError {
  return error instanceof ImportError
    ? error
    : new ImportError(`${input.name}: it cannot be read as ${input.format}: ${wordsOf(error)}`);
}
