// The file of refused rows, as NDJSON: each row as it was read, with its key and the reason. Once the rows are corrected, the file can be
// imported with the same options, and each row keeps its key.

import { randomBytes } from 'node:crypto';
import { closeSync, ftruncateSync, openSync, rmSync, statSync, writeSync } from 'node:fs';
import { wordsOf } from './inputs.js';
import { rejectColumns } from './mapping.js';
import { ImportError } from './options.js';
import type { Row } from './row.js';

/** What the import's state says about the file. */
type RejectsBefore = {
  readonly bytes: number;
  /** Whether an import is being continued, so that the file is its own. */
  readonly isContinued: boolean;
  /** Whether all files of the state are done, so that the size of the file is final. */
  readonly isDone: boolean;
};

/**
 * Opens the file. If an import continues, removes the rows after `bytes`, which were refused after the state was written. Does not write to
 * a file that another import left, or that was edited since.
 */
export function openRejects(path: string, { bytes, isContinued, isDone }: RejectsBefore) {
  let file: number;
  try {
    const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    if (size > 0 && !isContinued)
      throw new ImportError(`--rejects ${path}: it holds the rows of another import; name another file`);
    if (size < bytes || (size > bytes && isDone))
      throw new ImportError(
        `--rejects ${path}: it has ${size} bytes, but this import left ${bytes}; import a corrected file with another --state and --rejects`,
      );
    file = openSync(path, bytes === 0 ? 'w' : 'r+', 0o600);
    ftruncateSync(file, bytes);
  } catch (error) {
    if (error instanceof ImportError) throw error;
    throw new ImportError(`--rejects ${path}: ${wordsOf(error)}`);
  }
  let end = bytes;
  return {
    /** Adds a row of a file, which is written at once. */
    add(name: string, { place, value, text }: Row, key: string, reason: string): void {
      const row = value ?? { [rejectColumns.text]: text };
      const line = jsonOf({
        ...row,
        [rejectColumns.key]: key,
        [rejectColumns.place]: `${name}:${place}`,
        [rejectColumns.reason]: reason,
      });
      end += writeLine(path, file, `${line}\n`, end);
    },
    /** The size of the file. */
    bytes: () => end,
    close(): void {
      closeSync(file);
      if (end === 0) rmSync(path);
    },
  };
}

/** No other text is this one, since only this process knows it. */
const infinite = randomBytes(15).toString('base64url');

/**
 * JSON in which a number beyond all doubles stays one, so that it is refused again. JSON.stringify writes null, and a row that somebody
 * imports again would be stored without it.
 */
function jsonOf(row: object): string {
  const marked = JSON.stringify(row, (_, value: unknown) =>
    value === Number.POSITIVE_INFINITY
      ? infinite
      : value === Number.NEGATIVE_INFINITY
        ? `-${infinite}`
        : value,
  );
  return marked.replace(new RegExp(`"(-?)${infinite}"`, 'g'), (_, sign: string) => `${sign}1e400`);
}

/** Writes a whole line: a nearly full disk may take only a part of it at first. Throws ImportError if it takes no more. */
function writeLine(path: string, file: number, line: string, end: number): number {
  const bytes = Buffer.from(line);
  try {
    for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at, bytes.length - at, end + at);
  } catch (error) {
    throw new ImportError(`--rejects ${path}: it cannot be written: ${(error as Error).message}`);
  }
  return bytes.length;
}
