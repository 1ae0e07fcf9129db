// What is on the disk: which files contain certain bytes, and which column files of a table's parts were rewritten.

import { closeSync, openSync, readdirSync, readSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Deployment } from './deployment.js';

const pieceBytes = 4 * 1024 * 1024;

/**
 * Searches all files below some folders for a text. Files that have not changed since the last search are not read again.
 * ClickHouse's files are compressed: a text can be found in them only if no four letters of it repeat something before
 * it.
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
    for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
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
      // It vanished in between.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      throw error;
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
export async function readParts(
  { rows }: Pick<Deployment, 'rows'>,
  table: string,
): Promise<Map<string, Part>> {
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
export async function countReplacedParts({ rows }: Pick<Deployment, 'rows'>, table: string): Promise<number> {
  const [row] = await rows<{ parts: number }>(
    `SELECT toUInt32(count()) AS parts FROM system.parts
      WHERE database = currentDatabase() AND table = '${table}' AND NOT active`,
  );
  return row?.parts ?? 0;
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
