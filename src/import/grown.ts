// Files that were imported before and have grown since. A file is identified by its content, so one that grew would be another file,
// and all its rows would be stored again. Instead its import goes on where it was, and its rows keep the keys of the former file.

import { createHash } from 'node:crypto';
import type { Input } from './inputs.js';
import { ImportError } from './options.js';
import { bytesOf, openSource } from './source.js';
import type { FileState, ImportState } from './state.js';

/**
 * Gives each input that grew the state of the former file. Throws ImportError if it cannot go on, such as a JSON array, after whose
 * closing bracket nothing can be added. Returns notes for people about files of the same name with other content.
 */
export async function continueGrown(state: ImportState, inputs: readonly Input[]): Promise<string[]> {
  const words: string[] = [];
  for (const input of inputs) {
    if (state.files[input.hash] !== undefined) continue;
    const found = await beginningOf(state, input);
    if (found !== undefined) {
      const [hash, file] = found;
      if (!(await canGoOn(input, file)))
        throw new ImportError(
          `${input.name}: it begins with all of ${file.name}, which was imported before, so its rows would be stored twice; import a file of the new rows only`,
        );
      delete state.files[hash];
      state.files[input.hash] = {
        ...file,
        name: input.name,
        bytes: input.bytes,
        keys: file.keys ?? hash,
        done: false,
      };
      words.push(
        `${input.name}: it has grown since it was imported; it goes on after its first ${file.read} rows`,
      );
      continue;
    }
    const same = Object.values(state.files).find(({ name, read }) => name === input.name && read > 0);
    if (same !== undefined)
      words.push(
        `${input.name}: a file of this name with other content was imported before (${same.read} rows); rows without a key of their own are stored again`,
      );
  }
  return words;
}

/** The imported file whose whole content is the beginning of this one; the longest if there are several. */
async function beginningOf(state: ImportState, input: Input): Promise<[string, FileState] | undefined> {
  const shorter = Object.entries(state.files)
    .filter(([, { bytes = Number.POSITIVE_INFINITY, read }]) => bytes < input.bytes && bytes > 0 && read > 0)
    .toSorted(([, one], [, other]) => (one.bytes ?? 0) - (other.bytes ?? 0));
  if (shorter.length === 0) return undefined;
  let found: [string, FileState] | undefined;
  const hash = createHash('sha256');
  let at = 0;
  for await (const chunk of bytesOf(input)) {
    let from = 0;
    while (shorter.length > 0 && (shorter[0]?.[1].bytes ?? 0) <= at + chunk.length) {
      const [known, file] = shorter.shift() as [string, FileState];
      const to = (file.bytes ?? 0) - at;
      hash.update(chunk.subarray(from, to));
      from = to;
      if (hash.copy().digest('hex').slice(0, 32) === known) found = [known, file];
    }
    if (shorter.length === 0) break;
    hash.update(chunk.subarray(from));
    at += chunk.length;
  }
  return found;
}

/** Whether rows can have been added: the format has lines, and the former file ended with a whole one. */
async function canGoOn(input: Input, { bytes = 0 }: FileState): Promise<boolean> {
  const { format, compression, encoding } = input;
  const isLines = (format === 'ndjson' || format === 'csv') && compression === 'none';
  if (!isLines || encoding.startsWith('utf-16')) return false;
  const file = await openSource(input);
  try {
    return (await file.read(bytes - 1, bytes))[0] === 0x0a;
  } finally {
    await file.close();
  }
}
