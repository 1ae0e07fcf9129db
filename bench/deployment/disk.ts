// Inspects the disk: which files contain a text, and which parts of a table were rewritten.

import { execFile } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { BenchError } from '../failure.js';
import { numberOf, type Rows } from './stored.js';

/**
 * Counts the files below a folder that contain a text. ClickHouse's files are compressed: a text can be found in them only if no four
 * consecutive letters of it occurred earlier in the file.
 */
export function countFilesWith(text: string, folder: string): Promise<number> {
  const args = ['--recursive', '--files-with-matches', '--fixed-strings', '--regexp', text, folder];
  return new Promise((settle, reject) => {
    execFile('grep', args, { env: { ...process.env, LC_ALL: 'C' } }, (error, found, complaints) => {
      const lines = (output: string) => output.split('\n').filter((line) => line !== '');
      // Exit code 1: nothing was found. 2: an error, such as files that vanished during the search.
      const wrong = lines(complaints).filter((line) => !line.endsWith(': No such file or directory'));
      if (wrong.length > 0 || typeof error?.code === 'string' || !existsSync(folder)) {
        reject(new BenchError(`${folder} cannot be searched: ${wrong[0] ?? error?.message}`));
      } else settle(lines(found).length);
    });
  });
}

/**
 * The active parts of a table by their blocks, without what mutations add to the names: for each, the bytes of its files by inode, which
 * hard links share, and the inode of the largest column.
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

/** How many parts of a table were replaced and are still on the disk. */
export function countReplacedParts(store: Rows, table: string): Promise<number> {
  const from = `system.parts WHERE database = currentDatabase() AND table = '${table}' AND NOT active`;
  return numberOf(store, 'count()', from);
}
