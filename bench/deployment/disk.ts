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
 * The active parts of a table by their blocks, which leave out what mutations add to the names: their files' bytes by inode, which hard
 * links share, and the inode of the largest column.
 */
export async function readParts({ rows }: Rows, table: string) {
  const parts = await rows<{ blocks: string; path: string }>(
    `SELECT arrayStringConcat(arraySlice(splitByChar('_', name), 1, 4), '_') AS blocks, path
      FROM system.parts WHERE database = currentDatabase() AND table = '${table}' AND active`,
  );
  return new Map(
    parts.map(({ blocks, path }) => {
      const all = readdirSync(path).map((name) => ({ name, ...statSync(join(path, name)) }));
      const columns = all.filter(({ name }) => name.endsWith('.bin'));
      const [largest] = columns.sort((a, b) => b.size - a.size);
      const bytes = new Map(all.map(({ ino, size }) => [ino, size]));
      return [blocks, { bytes, inode: largest?.ino }] as const;
    }),
  );
}

/** Parts of a table that were replaced and are still on the disk. */
export function countReplacedParts(store: Rows, table: string): Promise<number> {
  const from = `system.parts WHERE database = currentDatabase() AND table = '${table}' AND NOT active`;
  return numberOf(store, 'count()', from);
}
