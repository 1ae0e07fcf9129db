// The files of an import: which files, of what format, and the hash of their content, which identifies them whatever their
// names are.

import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  createReadStream,
  createWriteStream,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { assertSound, type Compression, type Source } from './content.js';
import { type Format, ImportError } from './options.js';
import { isZstd } from './zstd.js';

/** `name` is the one on the command line. */
export type Input = Source & {
  readonly format: Format;
  /** 32 hexadecimal digits of a hash of its bytes. */
  readonly hash: string;
  /** Which file it was, and when it was last written, before it was hashed. */
  readonly version: string;
};

/** Finds and hashes the files that the words name. Throws ImportError for one that cannot be read. */
export async function openInputs(words: readonly string[], format: Format | undefined): Promise<Input[]> {
  const names = words.flatMap((word) => (word === '-' ? [word] : filesOf(word)));
  const inputs: Input[] = [];
  for (const name of names) {
    const path = name === '-' ? await spoolStdin() : name;
    const input = await openInput(name, path, format);
    if (inputs.some(({ hash }) => hash === input.hash)) continue;
    inputs.push(input);
  }
  return inputs;
}

/**
 * Throws ImportError for a file that cannot be decompressed: checksums come at the end, when rows that are wrong would be
 * stored already. A stop ends it early.
 */
export async function assertAllSound(inputs: readonly Input[], stop: AbortSignal): Promise<void> {
  for (const input of inputs) {
    if (stop.aborted) return;
    try {
      await assertSound(input, stop);
    } catch (error) {
      assertUnchanged(input);
      throw error instanceof ImportError ? error : new ImportError(`${input.name}: ${wordsOf(error)}`);
    }
  }
}

/** Files that match a pattern whose last part may have * and ?. A word without them is a file. */
function filesOf(word: string): string[] {
  if (!/[*?]/.test(word) || exists(word)) return [word];
  const folder = dirname(word);
  const form = new RegExp(
    `^${basename(word)
      .replace(/[.+^${}()|[\]\\]/g, '\\$&')
      .replaceAll('*', '.*')
      .replaceAll('?', '.')}$`,
  );
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => form.test(name));
  } catch (error) {
    throw new ImportError(`${word}: ${wordsOf(error)}`);
  }
  if (names.length === 0) throw new ImportError(`${word}: no file matches`);
  return names.toSorted().map((name) => join(folder, name));
}

function exists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** The content has to be hashed before its first row is sent, so it is kept in a file until the import ends. */
async function spoolStdin(): Promise<string> {
  const path = join(tmpdir(), `sluice-import-${randomBytes(8).toString('hex')}`);
  process.on('exit', () => rmSync(path, { force: true }));
  await pipeline(process.stdin, createWriteStream(path, { mode: 0o600 }));
  return path;
}

async function openInput(name: string, path: string, format: Format | undefined): Promise<Input> {
  try {
    const version = versionOf(path);
    const stats = statSync(path);
    if (!stats.isFile()) throw new ImportError(`${name}: it is not a file`);
    const hash = createHash('sha256');
    await pipeline(createReadStream(path, { highWaterMark: 1 << 20 }), hash);
    const head = readHead(path);
    const compression = compressionOf(head);
    const inner = name.replace(/\.(gz|gzip|zst|zstd)$/i, '');
    return {
      name,
      path,
      bytes: stats.size,
      compression,
      format: format ?? formatOfName(inner) ?? formatOfContent(name, head, compression),
      hash: hash.digest('hex').slice(0, 32),
      version,
    };
  } catch (error) {
    if (error instanceof ImportError) throw error;
    throw new ImportError(`${name}: ${wordsOf(error)}`);
  }
}

function versionOf(path: string): string {
  const { dev, ino, size, mtimeNs } = statSync(path, { bigint: true });
  return `${dev} ${ino} ${size} ${mtimeNs}`;
}

/**
 * Throws ImportError if a file was written to or replaced since it was hashed: its keys and places rest on its first content,
 * and it is unknown which of its rows were read.
 */
export function assertUnchanged({ name, path, version }: Input): void {
  let now: string | undefined;
  try {
    now = versionOf(path);
  } catch {
    // It is gone.
  }
  if (now !== version)
    throw new ImportError(`${name}: it was changed while it was read; import a copy that does not change`);
}

/** Whether both paths lead to one file. */
export function isSameFile(one: string, other: string): boolean {
  const [first, second] = [one, other].map((path) => statSync(path, { bigint: true, throwIfNoEntry: false }));
  return first !== undefined && first.dev === second?.dev && first.ino === second.ino;
}

/** An error of the file system in words that name no system call. */
export function wordsOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  const words: Readonly<Record<string, string>> = {
    ENOENT: 'there is no such file',
    EACCES: 'it may not be read',
    EISDIR: 'it is a folder',
  };
  return words[code ?? ''] ?? message;
}

function readHead(path: string): Buffer {
  const head = Buffer.alloc(4096);
  const file = openSync(path, 'r');
  try {
    return head.subarray(0, readSync(file, head));
  } finally {
    closeSync(file);
  }
}

function compressionOf(head: Buffer): Compression {
  if (head[0] === 0x1f && head[1] === 0x8b) return 'gzip';
  return isZstd(head) ? 'zstd' : 'none';
}

function formatOfName(name: string): Format | undefined {
  const formats: Readonly<Record<string, Format>> = {
    ndjson: 'ndjson',
    jsonl: 'ndjson',
    csv: 'csv',
    tsv: 'csv',
    parquet: 'parquet',
  };
  return formats[/\.([a-z]+)$/i.exec(name)?.[1]?.toLowerCase() ?? ''];
}

function formatOfContent(name: string, head: Buffer, compression: Compression): Format {
  if (head.subarray(0, 4).toString('latin1') === 'PAR1') return 'parquet';
  if (compression !== 'none')
    throw new ImportError(
      `${name}: --format must say what is compressed in it, unless the name does, as in .csv.gz`,
    );
  const text = head
    .toString('utf8')
    .replace(/^\ufeff/, '')
    .trimStart();
  if (text.startsWith('[')) return 'json';
  return text.startsWith('{') ? 'ndjson' : 'csv';
}
