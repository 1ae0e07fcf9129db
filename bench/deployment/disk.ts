// Looks at the disk: which files contain a text, and which parts of a table were rewritten.

import { execFile } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { BenchError } from '../failure.js';
import { numberOf, type Rows } from './stored.js';

/**
 * How many files below a folder contain a text. ClickHouse's files are compressed: a text stays searchable there only if no
 * four letters of it occurred before.
 */
export function countFilesWith(text: string, folder: string): Promise<number> {
  const args = ['--recursive', '--files-with-matches', '--fixed-strings', '--regexp', text, folder];
  return new Promise((settle, reject) => {
    execFile('grep', args, { env: { ...process.env, LC_ALL: 'C' } }, (error, found, complaints) => {
      const lines = (output: string) => output.split('\n').filter((line) => line !== '');
      // 1: nothing found. 2: a complaint, here of files that have vanished meanwhile.
      const wrong = lines(complaints).filter((line) => !line.endsWith(': No such file or directory'));
      if (wrong.length > 0 || typeof error?.code === 'string' || !existsSync(folder)) {
        reject(new BenchError(`${folder} cannot be searched: ${wrong[0] ?? error?.message}`));
      } else settle(lines(found).length);
    });
  });
}

/**
 * The active parts of a table by their blocks, which leave out what mutations add to the names: rows, and the inode of the
 * largest column file, which hard links share.
 */
export async function readParts({ rows }: Rows, table: string) {
  const parts = await rows<{ blocks: string; rows: string; path: string }>(
    `SELECT arrayStringConcat(arraySlice(splitByChar('_', name), 1, 4), '_') AS blocks, toString(rows) AS rows, path
      FROM system.parts WHERE database = currentDatabase() AND table = '${table}' AND active`,
  );
  return new Map(
    parts.map(({ blocks, rows: count, path }) => {
      const files = readdirSync(path).filter((name) => name.endsWith('.bin'));
      const [largest] = files.map((name) => statSync(join(path, name))).sort((a, b) => b.size - a.size);
      return [blocks, { rows: Number(count), inode: largest?.ino }] as const;
    }),
  );
}

/** Parts of a table that were replaced and are still on the disk. */
export function countReplacedParts(store: Rows, table: string): Promise<number> {
  const from = `system.parts WHERE database = currentDatabase() AND table = '${table}' AND NOT active`;
  return numberOf(store, 'count()', from);
}
