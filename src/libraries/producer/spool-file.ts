// One file of a spool: its records, one per line, and beside it the marks of settled records.

import { type FileHandle, open, readFile, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import {
  claimFolder,
  listSpoolFiles,
  marksName,
  marksText,
  recordsName,
  releaseFolder,
} from './spool-folder.js';

export type SpoolFile = ReturnType<typeof newFile>;

/** Claims a folder; returns the files that an earlier process left in it. Throws if it cannot be used. */
export function openFolder(folder: string): Map<number, SpoolFile> {
  claimFolder(folder);
  try {
    return new Map(
      listSpoolFiles(folder).map(({ number, bytes }) => [
        number,
        { ...newFile(number), bytes, lines: Number.POSITIVE_INFINITY, loadFrom: 0, isForeign: true },
      ]),
    );
  } catch (error) {
    releaseFolder(folder);
    throw error;
  }
}

function newFile(number: number) {
  return {
    number,
    bytes: 0,
    /** Whether these bytes may be followed by a part of a failed write. */
    isTorn: false,
    /** How many lines it has, and how many of them are settled, whether or not they are marked as such yet. */
    lines: 0,
    settled: 0,
    /** The first line that was not loaded; undefined if all were. */
    loadFrom: undefined as number | undefined,
    /** Whether an earlier process wrote it. */
    isForeign: false,
    records: undefined as FileHandle | undefined,
    marks: undefined as FileHandle | undefined,
  };
}

/** Creates a file, open for records. `sync`: with its name on disk. */
export async function create(folder: string, number: number, sync: boolean): Promise<SpoolFile> {
  const path = join(folder, recordsName(number));
  const records = await open(path, 'ax', 0o600);
  try {
    if (sync) await syncNames(folder);
  } catch (error) {
    await records.close();
    await rm(path, { force: true });
    throw error;
  }
  return { ...newFile(number), records };
}

/** Syncs the names of a folder's files, and its own where its parent may be read. */
async function syncNames(folder: string): Promise<void> {
  // Windows opens no folders; it syncs the name with the file.
  if (process.platform === 'win32') return;
  await syncFolder(folder);
  await syncFolder(dirname(resolve(folder))).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EACCES') throw error;
  });
}

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path);
  await handle
    .sync()
    .catch((error: NodeJS.ErrnoException) => {
      // Some network file systems sync no folders.
      if (error.code !== 'EINVAL') throw error;
    })
    .finally(() => handle.close());
}

/** Cuts off the rest of a failed write, which will be written again. */
export async function cut(file: SpoolFile): Promise<void> {
  if (!file.isTorn) return;
  await file.records?.truncate(file.bytes);
  file.isTorn = false;
}

/** Closes a file of records. */
export async function shut(file: SpoolFile): Promise<void> {
  // Loading stops at the file's known bytes. Only after a crash would the torn lines be sent twice, under the same keys.
  await cut(file).catch(() => undefined);
  await file.records?.close();
  file.records = undefined;
}

/** Marks lines as settled. */
export async function mark(folder: string, file: SpoolFile, lines: readonly number[]): Promise<void> {
  file.marks ??= await open(join(folder, marksName(file.number)), 'a', 0o600);
  await file.marks.appendFile(marksText(lines));
}

export async function erase(folder: string, file: SpoolFile): Promise<void> {
  await file.marks?.close();
  file.marks = undefined;
  await rm(join(folder, recordsName(file.number)), { force: true });
  await rm(join(folder, marksName(file.number)), { force: true });
}

/** A file's lines, and what may follow them; undefined if the file is gone. Rejects if it cannot be read at present. */
export async function readRecords(folder: string, { number, bytes }: SpoolFile): Promise<Buffer | undefined> {
  try {
    return (await readFile(join(folder, recordsName(number)))).subarray(0, bytes);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return undefined;
  }
}
