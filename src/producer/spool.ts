// Keeps what waits in files, so that a killed process loses nothing that it was told is kept. A file of records is a line
// for each, in the order of the calls; beside it stand the lines that are settled. When all are, both files go. What does
// not fit into memory is in the files only, and so is everything after it until all of it was loaded: records reach the
// lanes in the order of the calls. What an earlier process left comes first.

import { type FileHandle, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { producerLimits as limits } from './limits.js';
import { lineOf, type QueuedRecord, recordOfLine } from './records.js';
import type { Reporter } from './reports.js';
import {
  claimFolder,
  listSpoolFiles,
  marksName,
  marksText,
  readMarks,
  recordsName,
  releaseFolder,
} from './spool-folder.js';

export type SpoolOptions = {
  readonly folder: string;
  /** Whether each write is synced. */
  readonly sync: boolean;
  readonly reporter: Reporter;
  /** Called when a file is gone. */
  readonly onSpace: () => void;
};

export type Spool = {
  /** Keeps a record; settles when it is in a file. `isLoaded`: a lane has it already. Never while `isBehind`. */
  keep(record: QueuedRecord, isLoaded: boolean): Promise<void>;
  /** To be told that a record is settled. */
  forget(record: QueuedRecord): void;
  /** Whether there are records that no lane has. */
  readonly isBehind: boolean;
  /** Hands over some of these, in their order. */
  load(hand: (record: QueuedRecord) => void): Promise<void>;
  /** Of all its files. */
  readonly bytes: number;
  /** Of records that wait to be written. */
  readonly unwrittenBytes: number;
  /** Writes what is not written yet; settles with whether all records were settled. */
  close(): Promise<boolean>;
};

type Entry = { readonly record: QueuedRecord; isLoaded: boolean };

/** Records that are written together, and the promise of it. */
type Write = { readonly entries: Entry[]; readonly written: Promise<void>; readonly settle: () => void };

type Place = { readonly file: number; readonly line: number };

type File = {
  readonly number: number;
  bytes: number;
  /** How many it has, and how many of them are settled. */
  lines: number;
  settled: number;
  /** The lines from this one on were not loaded. */
  loadFrom: number | undefined;
  /** An earlier process wrote it. */
  readonly isForeign: boolean;
  records: FileHandle | undefined;
  marks: FileHandle | undefined;
};

/** Throws when the folder cannot be used, or belongs to a process that lives. */
export function createSpool({ folder, sync, reporter, onSpace }: SpoolOptions): Spool {
  claimFolder(folder);
  /** The oldest first. */
  const files = new Map<number, File>();
  let bytes = 0;
  for (const found of listSpoolFiles(folder)) {
    const file = newFile(found.number, true);
    files.set(found.number, { ...file, bytes: found.bytes, lines: Number.POSITIVE_INFINITY, loadFrom: 0 });
    bytes += found.bytes;
  }
  let nextNumber = Math.max(0, ...files.keys()) + 1;
  let isBehind = files.size > 0;
  /** The file that grows. */
  let current: File | undefined;
  /** What comes is added to the next write. */
  let next = newWrite();
  let underWay: Write | undefined;
  let marks: Place[] = [];
  let unwrittenBytes = 0;
  let isWorking = false;
  let isClosing = false;

  function begin(): void {
    if (isWorking) return;
    isWorking = true;
    // Calls of the same turn of the event loop share a write.
    setImmediate(() => void work());
  }

  /** One thing after another, so that marks are in the files in the order in which records were settled. */
  async function work(): Promise<void> {
    try {
      while (underWay !== undefined || next.entries.length > 0 || marks.length > 0) {
        await writeRecords();
        await writeMarks();
      }
      isWorking = false;
    } catch (error) {
      const { code = 'spool', message } = error as NodeJS.ErrnoException;
      reporter.tell('problem', { code, message: `the spool cannot be written: ${message}` });
      if (isClosing) {
        isWorking = false;
        // Nobody waits for a disk that fails.
        underWay?.settle();
        next.settle();
      } else setTimeout(() => void work(), limits.spoolRetryMs);
    }
  }

  async function writeRecords(): Promise<void> {
    if (underWay === undefined) {
      if (next.entries.length === 0) return;
      underWay = next;
      next = newWrite();
    }
    const entries = underWay.entries.filter(({ record }) => !record.isSettled);
    if (entries.length > 0) await append(entries);
    for (const { record } of underWay.entries) unwrittenBytes -= record.bytes;
    underWay.settle();
    underWay = undefined;
  }

  async function append(entries: readonly Entry[]): Promise<void> {
    const file = await growingFile();
    const handle = file.records as FileHandle;
    const data = Buffer.from(entries.map(({ record }) => lineOf(record)).join(''));
    try {
      await handle.appendFile(data);
      if (sync) await handle.datasync();
    } catch (error) {
      // Half of it may be there. It will be written again.
      await handle.truncate(file.bytes);
      throw error;
    }
    for (const { record, isLoaded } of entries) {
      const line = file.lines++;
      if (!isLoaded) {
        file.loadFrom ??= line;
        continue;
      }
      record.place = { file: file.number, line };
      if (record.isSettled) marks.push(record.place);
    }
    file.bytes += data.length;
    bytes += data.length;
  }

  async function growingFile(): Promise<File> {
    if (current !== undefined && current.bytes >= limits.spoolFileBytes) await finish();
    if (current === undefined) {
      const file = newFile(nextNumber++, false);
      file.records = await open(join(folder, recordsName(file.number)), 'ax', 0o600);
      files.set(file.number, file);
      current = file;
    }
    return current;
  }

  /** Nothing is added to the current file any more. */
  async function finish(): Promise<void> {
    const file = current;
    current = undefined;
    await file?.records?.close();
    if (file !== undefined) await removeIfSettled(file);
  }

  async function writeMarks(): Promise<void> {
    const taken = marks;
    marks = [];
    const byFile = new Map<number, number[]>();
    for (const { file, line } of taken) byFile.set(file, [...(byFile.get(file) ?? []), line]);
    // A user's records are in ascending files: whoever reads the marks of half of them sees the earlier ones settled.
    for (const [number, lines] of [...byFile].sort(([a], [b]) => a - b)) {
      const file = files.get(number) as File;
      try {
        file.marks ??= await open(join(folder, marksName(number)), 'a', 0o600);
        await file.marks.appendFile(marksText(lines));
      } catch (error) {
        marks = [...taken.filter((place) => place.file >= number), ...marks];
        throw error;
      }
      file.settled += lines.length;
      await removeIfSettled(file);
    }
  }

  async function removeIfSettled(file: File): Promise<void> {
    if (file === current || file.settled < file.lines) return;
    files.delete(file.number);
    await file.marks?.close();
    await rm(join(folder, recordsName(file.number)), { force: true });
    await rm(join(folder, marksName(file.number)), { force: true });
    bytes -= file.bytes;
    onSpace();
  }

  async function load(hand: (record: QueuedRecord) => void): Promise<void> {
    const file = [...files.values()].find(({ loadFrom }) => loadFrom !== undefined);
    if (underWay !== undefined && (file === undefined || file === current)) return underWay.written;
    if (file === undefined) {
      // What is left was not written yet, and is at hand.
      for (const entry of next.entries) {
        if (!entry.isLoaded) hand(entry.record);
        entry.isLoaded = true;
      }
      isBehind = false;
      return;
    }
    if (file === current) current = undefined;
    await loadFile(file, hand);
  }

  async function loadFile(file: File, hand: (record: QueuedRecord) => void): Promise<void> {
    const { number } = file;
    const from = file.loadFrom as number;
    const text = await readFile(join(folder, recordsName(number)), 'utf8');
    const settled = file.isForeign ? await readMarks(folder, number) : new Set<number>();
    // What stands behind the last end of a line was not written to its end, and nobody was told that it is kept.
    const lines = text.split('\n').slice(0, -1);
    file.lines = lines.length;
    file.settled += settled.size;
    file.loadFrom = undefined;
    for (const [index, line] of lines.entries()) {
      if (index < from || settled.has(index)) continue;
      const record = recordOfLine(line);
      if (record === undefined) {
        reporter.tell('problem', {
          code: 'spool',
          message: `line ${index + 1} of file ${number} is damaged`,
        });
        marks.push({ file: number, line: index });
        continue;
      }
      record.place = { file: number, line: index };
      hand(record);
    }
    await file.records?.close();
    await removeIfSettled(file);
    if (marks.length > 0) begin();
  }

  return {
    keep(record, isLoaded) {
      next.entries.push({ record, isLoaded });
      unwrittenBytes += record.bytes;
      if (!isLoaded) isBehind = true;
      begin();
      return next.written;
    },
    forget(record) {
      record.isSettled = true;
      if (record.place === undefined) return;
      marks.push(record.place);
      begin();
    },
    get isBehind() {
      return isBehind;
    },
    load,
    get bytes() {
      return bytes;
    },
    get unwrittenBytes() {
      return unwrittenBytes;
    },
    async close() {
      isClosing = true;
      begin();
      while (isWorking) await new Promise((settle) => setTimeout(settle, 1));
      await finish();
      for (const file of files.values()) await file.marks?.close();
      releaseFolder(folder);
      return files.size === 0;
    },
  };
}

function newFile(number: number, isForeign: boolean): File {
  return {
    number,
    bytes: 0,
    lines: 0,
    settled: 0,
    loadFrom: undefined,
    isForeign,
    records: undefined,
    marks: undefined,
  };
}

function newWrite(): Write {
  let settle: () => void = () => undefined;
  const written = new Promise<void>((resolve) => {
    settle = resolve;
  });
  return { entries: [], written, settle };
}
