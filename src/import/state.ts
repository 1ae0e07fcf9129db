// How far an import has got: for each file, identified by its content, the place up to which all rows are stored or refused, and the counts
// up to there. A new state is written beside the old one and then replaces it, so that a kill leaves one or the other. What was sent after
// the last write is sent again under the same keys.

import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { type Input, wordsOf } from './inputs.js';
import { type Format, ImportError } from './options.js';

export type Counts = { read: number; stored: number; repeats: number; refused: number };

export type FileState = Counts & {
  name: string;
  /** All rows up to this place are stored or refused. */
  place: number;
  done: boolean;
  /** The format to which the place refers: in another format, it would be another row. */
  format: Format;
  /** The size of the file, and the hash of its content at the first import, from which its keys are made. */
  bytes?: number;
  keys?: string;
  /** The size of the content of a compressed file, of which `keys` is the hash. */
  content_bytes?: number;
};

export type ImportState = {
  readonly version: 1;
  readonly app_id: string;
  /** The mapping of the rows. With another mapping the counts would mean nothing. */
  readonly mapping: string;
  /** The size of the rejects file that belongs to this state. */
  rejects_bytes: number;
  readonly files: Record<string, FileState>;
};

/**
 * Reads the state, or begins a new one. `isOld`: one existed before, so that the rejects file belongs to it. Throws ImportError if it belongs
 * to another import that has made progress.
 */
export function openState(path: string, appId: string, mapping: string) {
  const fresh: ImportState = { version: 1, app_id: appId, mapping, rejects_bytes: 0, files: {} };
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      throw new ImportError(`--state ${path}: ${wordsOf(error)}`);
    return { state: fresh, isOld: false };
  }
  let state: ImportState | undefined;
  try {
    state = JSON.parse(text) as ImportState;
  } catch {
    state = undefined;
  }
  if (!isState(state)) throw new ImportError(`--state ${path}: it is not the state of an import`);
  if (state.app_id === appId && state.mapping === mapping) return { state, isOld: true };
  if (totalsOf(state).read > 0)
    throw new ImportError(
      `--state ${path}: it belongs to an import into ${state.app_id} with other options; remove it or name another file`,
    );
  return { state: fresh, isOld: true };
}

function isState(state: ImportState | undefined): state is ImportState {
  if (state?.version !== 1 || typeof state.files !== 'object' || state.files === null) return false;
  const numbers = Object.values(state.files).flatMap((file) =>
    [file?.place, file?.read, file?.stored, file?.repeats, file?.refused].map(Number.isSafeInteger),
  );
  return numbers.every(Boolean) && Number.isSafeInteger(state.rejects_bytes);
}

/** Writes the state. Throws ImportError if that fails. */
export function writeState(path: string, state: ImportState): void {
  const next = `${path}.next`;
  try {
    const file = openSync(next, 'w', 0o600);
    try {
      writeFileSync(file, `${JSON.stringify(state)}\n`);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(next, path);
  } catch (error) {
    throw new ImportError(`--state ${path}: it cannot be written: ${(error as Error).message}`);
  }
}

/** The state of a file; a new one begins at the first row. Throws ImportError if the file was begun in another format. */
export function fileState(
  state: ImportState,
  { hash, name, format, bytes }: Pick<Input, 'hash' | 'name' | 'format' | 'bytes'>,
): FileState {
  state.files[hash] ??= {
    name,
    place: 0,
    done: false,
    read: 0,
    stored: 0,
    repeats: 0,
    refused: 0,
    format,
    bytes,
  };
  const file = state.files[hash] as FileState;
  if (file.format !== format) {
    if (file.read > 0)
      throw new ImportError(
        `${name}: the state has its rows as ${file.format}, and now it is read as ${format}; name another --state and --rejects`,
      );
    // A file that had no rows in one format may have some in another.
    file.done = false;
  }
  file.format = format;
  return file;
}

/** Whether every file of the state is imported; false if it lists none, since the import has not begun. */
export function isDone({ files }: ImportState): boolean {
  const all = Object.values(files);
  return all.length > 0 && all.every(({ done }) => done);
}

/** The counts of all files together. */
export function totalsOf({ files }: ImportState): Counts {
  const totals = { read: 0, stored: 0, repeats: 0, refused: 0 };
  for (const { read, stored, repeats, refused } of Object.values(files)) {
    totals.read += read;
    totals.stored += stored;
    totals.repeats += repeats;
    totals.refused += refused;
  }
  return totals;
}
