// Keeps waiting records in files, so that nothing that was reported as kept is lost if the process is killed. A file of records has one
// line for each, in the order of the calls; a file beside it lists the settled lines. When all lines are settled, both files are removed.
// Records for which memory has no room are only in the files, and so are all later ones until those are loaded: records reach the lanes in
// the order of the calls. Records that an earlier process left come first.

import type { FileHandle } from 'node:fs/promises';
import { producerLimits as limits } from './limits.js';
import { isOfNewerVersion, lineOf, type QueuedRecord, recordOfLine } from './records.js';
import type { Reporter } from './reports.js';
import {
  create,
  cut,
  erase,
  type SpoolFile as File,
  mark,
  openFolder,
  readRecords,
  shut,
} from './spool-file.js';
import { readMarks, releaseFolder } from './spool-folder.js';

export type SpoolOptions = {
  readonly folder: string;
  /** Whether each write is synced to disk. */
  readonly sync: boolean;
  readonly reporter: Reporter;
  /** Called when records were written, and when a file was removed. */
  readonly onSpace: () => void;
};

export type Spool = ReturnType<typeof createSpool>;

type Entry = { readonly record: QueuedRecord; isLoaded: boolean };

/** Records that are written together, with a promise for the write. */
type Write = { readonly entries: Entry[]; readonly written: Promise<void>; readonly settle: () => void };

type Place = { readonly file: number; readonly line: number };

/** Throws if the folder cannot be used, or belongs to a running process. */
export function createSpool({ folder, sync, reporter, onSpace }: SpoolOptions) {
  /** The oldest first. */
  const files = openFolder(folder);
  let bytes = 0;
  for (const file of files.values()) bytes += file.bytes;
  let nextNumber = Math.max(0, ...files.keys()) + 1;
  let isBehind = files.size > 0;
  /** The file that grows. */
  let current: File | undefined;
  /** The next write, to which new records are added. */
  let next = newWrite();
  let underWay: Write | undefined;
  let marks: Place[] = [];
  let unwrittenBytes = 0;
  let isWorking = false;
  let isClosing = false;
  /** Whether the last attempt to write failed and the next one has not begun. */
  let isFailing = false;
  let isInTrouble = false;
  /** Settles when the attempt to write has ended, successfully or not. */
  let attempt: Promise<unknown> = Promise.resolve();

  function begin(): void {
    if (isWorking) return;
    isWorking = true;
    // Calls in the same turn of the event loop share a write.
    setImmediate(() => void work());
  }

  /** Does one thing after another, so that marks are written in the order in which records were settled. */
  async function work(): Promise<void> {
    const faults: NodeJS.ErrnoException[] = [];
    isFailing = false;
    while (faults.length === 0 && hasWork()) {
      attempt = writeRecords().catch((error: NodeJS.ErrnoException) => {
        isFailing = true;
        faults.push(error);
      });
      await attempt;
      // Even if that failed: removing settled records makes room.
      await tidy().catch((error: NodeJS.ErrnoException) => faults.push(error));
    }
    const [fault] = faults;
    if (fault === undefined) isInTrouble = false;
    else {
      if (!isInTrouble) tell(fault.code, `the spool cannot be written: ${fault.message}`);
      isInTrouble = true;
      if (!isClosing) return void setTimeout(() => void work(), limits.spoolRetryMs);
    }
    isWorking = false;
  }

  function tell(code: string | undefined, message: string): void {
    reporter.tell('problem', { code: code ?? 'spool', message });
  }

  function hasWork(): boolean {
    if (underWay !== undefined || next.entries.length > 0 || marks.length > 0) return true;
    for (const file of files.values()) if (isDone(file)) return true;
    return false;
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
    onSpace();
  }

  async function append(entries: readonly Entry[]): Promise<void> {
    const file = await growingFile();
    const handle = file.records as FileHandle;
    const data = Buffer.from(entries.map(({ record }) => lineOf(record)).join(''));
    await cut(file);
    file.isTorn = true;
    await handle.appendFile(data);
    if (sync) await handle.datasync();
    file.isTorn = false;
    for (const { record, isLoaded } of entries) {
      const line = file.lines++;
      if (!isLoaded) {
        file.loadFrom ??= line;
        continue;
      }
      record.place = { file: file.number, line };
      if (record.isSettled) settle(record.place);
    }
    file.bytes += data.length;
    bytes += data.length;
  }

  async function growingFile(): Promise<File> {
    // On a full disk, removing a file that is no longer needed makes room.
    const isOver = current?.isTorn === true && current.settled >= current.lines;
    if (current !== undefined && (isOver || current.bytes >= limits.spoolFileBytes)) await finish();
    if (current === undefined) {
      const file = await create(folder, nextNumber++, sync);
      files.set(file.number, file);
      current = file;
    }
    return current;
  }

  /** Adds nothing more to the current file. */
  async function finish(): Promise<void> {
    const file = current;
    current = undefined;
    if (file === undefined) return;
    await shut(file);
    await tidy();
  }

  function settle(place: Place): void {
    const file = files.get(place.file);
    if (file === undefined) return;
    file.settled++;
    marks.push(place);
    begin();
  }

  function isDone(file: File): boolean {
    return file !== current && file.loadFrom === undefined && file.settled >= file.lines;
  }

  /** Marks settled lines, and removes a file once all of its lines are settled. */
  async function tidy(): Promise<void> {
    const taken = new Map<number, number[]>();
    for (const { file, line } of marks) {
      const lines = taken.get(file) ?? [];
      if (lines.push(line) === 1) taken.set(file, lines);
    }
    marks = [];
    // Files are marked in ascending order: if only some marks are written, they are those of a user's earlier records.
    for (const file of [...files.values()]) {
      const lines = taken.get(file.number) ?? [];
      try {
        if (isDone(file)) await remove(file);
        else if (lines.length > 0) await mark(folder, file, lines);
        taken.delete(file.number);
      } catch (error) {
        for (const [number, left] of taken) marks.push(...left.map((line) => ({ file: number, line })));
        throw error;
      }
    }
  }

  async function remove(file: File): Promise<void> {
    await erase(folder, file);
    files.delete(file.number);
    bytes -= file.bytes;
    onSpace();
  }

  /** Hands some of the records that no lane has to lanes, in order. */
  async function load(hand: (record: QueuedRecord) => void): Promise<void> {
    const file = [...files.values()].find(({ loadFrom }) => loadFrom !== undefined);
    if (file !== undefined && file !== current) return loadFile(file, hand);
    if (underWay !== undefined && !isFailing) return void (await attempt);
    if (file !== undefined) {
      current = undefined;
      return loadFile(file, hand);
    }
    // These are in memory and in no file. They must not wait for a failing disk.
    for (const entry of [...(underWay?.entries ?? []), ...next.entries]) {
      if (!entry.isLoaded) hand(entry.record);
      entry.isLoaded = true;
    }
    isBehind = false;
  }

  async function loadFile(file: File, hand: (record: QueuedRecord) => void): Promise<void> {
    const { number } = file;
    const from = file.loadFrom as number;
    const content = await readRecords(folder, file);
    if (content === undefined)
      tell(undefined, `file ${number} is gone, and the records that were only there`);
    const settled = file.isForeign ? await readMarks(folder, number) : new Set<number>();
    await shut(file);
    // Text after the last line end is incomplete, and the promise for it has not settled.
    const lines = (content?.toString('utf8') ?? '').split('\n').slice(0, -1);
    file.lines = lines.length;
    // A power cut may have left marks of lines that were never on the disk.
    for (const line of settled) if (line < lines.length) file.settled++;
    file.loadFrom = undefined;
    let newer = 0;
    for (const [line, text] of lines.entries()) {
      if (line < from || settled.has(line)) continue;
      const record = recordOfLine(text);
      const place = { file: number, line };
      if (record !== undefined) {
        record.place = place;
        hand(record);
      } else if (isOfNewerVersion(text)) newer++;
      else {
        tell(undefined, `line ${line + 1} of file ${number} is damaged`);
        settle(place);
      }
    }
    if (newer > 0) tell(undefined, `${newer} lines of file ${number} are of a newer version, and stay there`);
    begin();
  }

  return {
    /** Keeps a record, and settles when it is in a file. `isLoaded`: a lane already has it, which must not be the case while `isBehind`. */
    keep(record: QueuedRecord, isLoaded: boolean): Promise<void> {
      next.entries.push({ record, isLoaded });
      unwrittenBytes += record.bytes;
      if (!isLoaded) isBehind = true;
      begin();
      return next.written;
    },
    /** To be called when a record is settled. */
    forget(record: QueuedRecord): void {
      record.isSettled = true;
      if (record.place !== undefined) settle(record.place);
    },
    /** Whether there are records that no lane has. */
    get isBehind(): boolean {
      return isBehind;
    },
    load,
    /** The bytes of all its files. */
    get bytes(): number {
      return bytes;
    },
    /** The bytes of records that wait to be written. */
    get unwrittenBytes(): number {
      return unwrittenBytes;
    },
    /**
     * Writes what was not written yet, if the disk accepts it. `isEmpty`: nothing is left in the files. `lost`: records that are neither
     * settled nor in a file.
     */
    async close() {
      isClosing = true;
      begin();
      while (isWorking) await new Promise((settled) => setTimeout(settled, 1));
      await finish().catch((error: NodeJS.ErrnoException) => tell(error.code, error.message));
      for (const file of files.values()) await file.marks?.close();
      releaseFolder(folder);
      const unwritten = [...(underWay?.entries ?? []), ...next.entries];
      // Callers must not wait for a failing disk.
      underWay?.settle();
      next.settle();
      return { isEmpty: files.size === 0, lost: unwritten.filter(({ record }) => !record.isSettled).length };
    },
  };
}

function newWrite(): Write {
  let settle: () => void = () => undefined;
  const written = new Promise<void>((resolve) => {
    settle = resolve;
  });
  return { entries: [], written, settle };
}
