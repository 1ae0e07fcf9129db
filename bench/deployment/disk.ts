// Looks at the disk: which files contain a text, and which parts of a table were rewritten.

import { closeSync, type Dirent, openSync, readdirSync, readSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { numberOf, type Rows } from './stored.js';

const pieceBytes = 4 * 1024 * 1024;

/**
 * Searches all files below a folder for a text, and skips files that have not changed since the last search. ClickHouse's
 * files are compressed: a text stays searchable there only if no four letters of it occurred before.
 */
export class TraceSearch {
  readonly #text: Buffer;
  readonly #clean = new Set<string>();

  constructor(text: string) {
    this.#text = Buffer.from(text);
  }

  /** How many files contain the text. */
  count(folder: string): number {
    let found = 0;
    for (const entry of filesBelow(folder)) {
      if (entry.isFile() && this.#holds(join(entry.parentPath ?? entry.path, entry.name))) found += 1;
    }
    return found;
  }

  #holds(path: string): boolean {
    try {
      const { ino, size, mtimeMs } = statSync(path);
      const name = `${ino} ${size} ${mtimeMs}`;
      if (this.#clean.has(name)) return false;
      if (fileHolds(path, this.#text)) return true;
      this.#clean.add(name);
      return false;
    } catch (error) {
      // The file has vanished.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      throw error;
    }
  }
}

/** Lists again if a folder vanishes meanwhile, as those of inserts do. */
function filesBelow(folder: string): Dirent[] {
  for (;;) {
    try {
      return readdirSync(folder, { recursive: true, withFileTypes: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
}

function fileHolds(path: string, text: Buffer): boolean {
  const file = openSync(path, 'r');
  try {
    const buffer = Buffer.allocUnsafe(pieceBytes + text.length);
    let kept = 0;
    for (;;) {
      const read = readSync(file, buffer, kept, pieceBytes, null);
      if (read === 0) return false;
      const held = buffer.subarray(0, kept + read);
      if (held.includes(text)) return true;
      const overlap = held.subarray(Math.max(0, held.length - text.length + 1));
      overlap.copy(buffer);
      kept = overlap.length;
    }
  } finally {
    closeSync(file);
  }
}

/** A part by its blocks, and the inode of its largest column file, which hard links share. */
export type Part = { readonly name: string; readonly rows: number; readonly inode: number };

/** The active parts of a table by their blocks. The keys leave out what mutations add to the names. */
export async function readParts({ rows }: Rows, table: string): Promise<Map<string, Part>> {
  const parts = await rows<{ name: string; rows: string; path: string }>(
    `SELECT name, toString(rows) AS rows, path FROM system.parts
      WHERE database = currentDatabase() AND table = '${table}' AND active`,
  );
  return new Map(
    parts.map(({ name, rows: count, path }) => {
      const blocks = name.split('_').slice(0, 4).join('_');
      return [blocks, { name, rows: Number(count), inode: inodeOfLargest(path) }];
    }),
  );
}

/** Parts of a table that were replaced and are still on the disk. */
export function countReplacedParts(store: Rows, table: string): Promise<number> {
  const from = `system.parts WHERE database = currentDatabase() AND table = '${table}' AND NOT active`;
  return numberOf(store, 'count()', from);
}

function inodeOfLargest(folder: string): number {
  let largest = { size: -1, ino: 0 };
  for (const name of readdirSync(folder)) {
    if (!name.endsWith('.bin')) continue;
    const { size, ino } = statSync(join(folder, name));
    if (size > largest.size) largest = { size, ino };
  }
  return largest.ino;
}
