// Files that were imported before and have grown since. A file is identified by its content, so a file that grew would count as another
// one, and all its rows would be stored again. Instead its import continues where it ended, and its rows keep the keys of the former file.

import { createHash } from 'node:crypto';
import { contentOf } from './content.js';
import type { Input } from './inputs.js';
import { ImportError } from './options.js';
import { openSource } from './source.js';
import type { FileState, ImportState } from './state.js';

/**
 * Gives each input that grew the state of the former file. Throws ImportError if an input cannot be continued, such as a JSON array:
 * nothing can follow its closing bracket. Returns notes for people about files that have a known name but other content.
 */
export async function continueGrown(state: ImportState, inputs: readonly Input[]): Promise<string[]> {
  const words: string[] = [];
  for (const input of inputs) {
    if (state.files[input.hash] !== undefined) continue;
    const found = await beginningOf(state, input);
    if (found !== undefined) {
      const { hash, contentBytes } = found;
      const { content_bytes: _, ...file } = found.file;
      if (!(await canGoOn(input, contentBytes)))
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
        `${input.name}: it has grown since it was imported; its import continues after row ${file.read}`,
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

type Known = {
  readonly hash: string;
  readonly file: FileState;
  readonly contentHash: string;
  readonly contentBytes: number;
};

function knownOf([hash, file]: [string, FileState]): Known {
  const { bytes = 0, keys = '', content_bytes: contentBytes } = file;
  return contentBytes === undefined
    ? { hash, file, contentHash: hash, contentBytes: bytes }
    : { hash, file, contentHash: keys, contentBytes };
}

/** The imported file whose whole content is the beginning of this one; the longest if there are several. */
async function beginningOf(state: ImportState, input: Input): Promise<Known | undefined> {
  const isLonger = (bytes: number) => input.compression !== 'none' || bytes < input.bytes;
  const shorter = Object.entries(state.files)
    .map(knownOf)
    .filter(({ contentBytes, file }) => contentBytes > 0 && isLonger(contentBytes) && file.read > 0)
    .toSorted((one, other) => one.contentBytes - other.contentBytes);
  let found: Known | undefined;
  const hash = createHash('sha256');
  let at = 0;
  try {
    for await (const part of shorter.length === 0 ? [] : contentOf(input, () => undefined)) {
      let from = 0;
      for (; shorter[0] !== undefined && shorter[0].contentBytes < at + part.length; shorter.shift()) {
        const to = shorter[0].contentBytes - at;
        hash.update(part.subarray(from, to));
        from = to;
        if (hash.copy().digest('hex').slice(0, 32) === shorter[0].contentHash) found = shorter[0];
      }
      if (shorter.length === 0) break;
      hash.update(part.subarray(from));
      at += part.length;
    }
  } catch (error) {
    // The check of the whole file will report the fault.
    if (!(error instanceof ImportError)) throw error;
    return undefined;
  }
  return found;
}

/** Whether rows can have been appended: the format has lines, and the former content ended with a complete one. */
async function canGoOn(input: Input, contentBytes: number): Promise<boolean> {
  const { format, compression, encoding } = input;
  const isLines = (format === 'ndjson' || format === 'csv') && compression === 'none';
  if (!isLines || encoding.startsWith('utf-16')) return false;
  const opened = await openSource(input);
  try {
    return (await opened.read(contentBytes - 1, contentBytes))[0] === 0x0a;
  } finally {
    await opened.close();
  }
}
