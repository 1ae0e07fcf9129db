// Finds the files of an import, their formats, and the hashes of their content, which identify them regardless of their names.

import { createHash } from 'node:crypto';
import { createWriteStream, readdirSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { kindOfContent } from '../parsing/csv/content-kind.js';
import {
  createDecoder,
  type Encoding,
  encodingNames,
  markedEncoding,
  WrongEncoding,
} from '../parsing/csv/text.js';
import { unpackZip } from './archive.js';
import { assertSound, type Compression, contentOf, type Packed, type Unpacked } from './content.js';
import { type Format, ImportError, withoutPassword } from './options.js';
import { connectS3, isS3Address, type S3, type S3Object } from './s3.js';
import { assertUnchanged, bytesOf, findSource, type Source } from './source.js';
import { reasonOf, temporaryFile } from './temporary.js';
import { isZstd } from './zstd.js';

/** A file of an import. `name`: as on the command line. */
export type Input = Packed & {
  readonly format: Format;
  readonly encoding: Encoding;
  /** A hash of the file's bytes, in 32 hexadecimal digits. */
  readonly hash: string;
};

/** What the command line says about every file. */
export type FileOptions = {
  readonly format?: Format | undefined;
  readonly encoding?: 'windows-1252' | undefined;
  /** The import's own files. A folder or pattern that contains them does not stand for them. */
  readonly stateFile?: string;
  readonly rejectsFile?: string;
};

/**
 * Finds and hashes the files that the arguments name, in natural order of their names, `hour-9` before `hour-10`: the last value of a user
 * property counts. Throws ImportError for a file that cannot be read, and when `stop` ends the reading of stdin, which may have no end.
 */
export async function openInputs(
  words: readonly string[],
  given: FileOptions = {},
  stop: AbortSignal = new AbortController().signal,
): Promise<Input[]> {
  let s3: S3 | undefined;
  const objects = new Map<string, S3Object>();
  for (const word of words.filter(isS3Address)) {
    s3 ??= await connectS3(stop);
    for (const object of await s3.list(word)) objects.set(object.name, object);
  }
  const others = words.filter((word) => !isS3Address(word));
  const files = others.flatMap((word) => (word === '-' || isAddress(word) ? [word] : filesOf(word, given)));
  const names = [...files, ...[...objects.keys()].filter((name) => isVisible(basename(name)))];
  const inputs: Input[] = [];
  const add = (input: Input) => {
    if (!inputs.some(({ hash }) => hash === input.hash)) inputs.push(input);
  };
  for (const word of names.toSorted(inOrder)) {
    const address = isAddress(word) ? addressOf(word) : undefined;
    const name = address?.shown ?? word;
    const object = objects.get(word);
    const path =
      address !== undefined
        ? await spoolAddress(address, stop)
        : object !== undefined
          ? await spool(name, await (s3 as S3).read(object), stop)
          : name === '-'
            ? await spool(name, process.stdin, stop)
            : name;
    const found = find(name, path);
    if (!(await isZip(found))) {
      add(await openInput(found, given));
      continue;
    }
    const files = await unpackZip(name, path, (inner) => inner.split('/').every(isVisible));
    if (files.length === 0) throw new ImportError(`${name}: there is no file in it`);
    const sorted = files.toSorted((one, other) => inOrder(one.name, other.name));
    // Two files of one name: one may be an older state of the same rows, and both would be stored.
    const twice = sorted.find((file, i) => file.name === sorted[i - 1]?.name);
    if (twice !== undefined)
      throw new ImportError(`${twice.name}: the archive has two files of this name; unpack the one you mean`);
    for (const file of sorted) add(await openInput(find(file.name, file.path), given));
  }
  return inputs;
}

const naturally = new Intl.Collator('en', { numeric: true }).compare;

function inOrder(one: string, other: string): number {
  return naturally(one, other) || Number(one > other) - Number(one < other);
}

/** Whether a file is data, not something that systems or imports leave beside it: `.DS_Store`, `__MACOSX`, `_SUCCESS`. */
function isVisible(name: string): boolean {
  return !/^(\.|__MACOSX$|_SUCCESS$|_committed_|_started_|sluice-import\.(state|rejects\.ndjson)(\.|$))/.test(
    name,
  );
}

async function isZip(found: Source): Promise<boolean> {
  try {
    const head = await headOf({ ...found, compression: 'none' });
    return kindOfContent(head)?.name === 'a zip archive';
  } catch (error) {
    throw named(found.name, error);
  }
}

function find(name: string, path: string): Source {
  try {
    return findSource(name, path);
  } catch (error) {
    throw named(name, error);
  }
}

/**
 * Throws ImportError for a file that cannot be decompressed. This is checked before anything is sent, since a file's checksums come at its
 * end, when wrong rows would already be stored. `stop` ends the check early. Settles with the content of compressed files, by the hashes of
 * their bytes: rows have the same keys however their file is compressed.
 */
export async function assertAllSound(
  inputs: readonly Input[],
  stop: AbortSignal,
): Promise<ReadonlyMap<string, Unpacked>> {
  const contents = new Map<string, Unpacked>();
  for (const input of inputs) {
    if (stop.aborted) break;
    try {
      const content = await assertSound(input, stop);
      if (content !== undefined) contents.set(input.hash, content);
    } catch (error) {
      assertUnchanged(input);
      throw named(input.name, error);
    }
  }
  return contents;
}

/** The files that an argument names: one file, all below a folder, or those that match a pattern with * and ? in its last part. */
function filesOf(word: string, given: FileOptions): string[] {
  try {
    return filesFor(word, given);
  } catch (error) {
    throw named(word, error);
  }
}

function filesFor(word: string, { stateFile, rejectsFile }: FileOptions): string[] {
  const own = [stateFile, rejectsFile].flatMap((file) =>
    file === undefined ? [] : ['', '.next', '.owner'].map((end) => resolve(`${file}${end}`)),
  );
  // Links may lead to a folder twice, or in a circle.
  const read = new Set<string>();
  const filesIn = (folder: string, isWanted = isVisible): string[] => {
    const real = realpathSync(folder);
    if (read.has(real)) return [];
    read.add(real);
    return readdirSync(folder)
      .filter(isWanted)
      .map((name) => join(folder, name))
      .filter((path) => !own.includes(resolve(path)))
      .flatMap((path) => (isFolder(path) ? filesIn(path) : [path]));
  };
  if (!/[*?]/.test(word) || exists(word)) {
    if (!isFolder(word)) return [word];
    const files = filesIn(word);
    if (files.length === 0) throw new ImportError(`${word}: there is no file in this folder`);
    return files;
  }
  const form = new RegExp(
    `^${basename(word)
      .replace(/[.+^${}()|[\]\\]/g, '\\$&')
      .replaceAll('*', '.*')
      .replaceAll('?', '.')}$`,
  );
  // A pattern matches files that systems leave beside data only if it begins as they do, such as `.*`.
  const isWanted = isVisible(basename(word)) ? isVisible : () => true;
  const files = filesIn(dirname(word), (name) => form.test(name) && isWanted(name));
  if (files.length === 0) throw new ImportError(`${word}: no file matches`);
  return files;
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

function exists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** Stores a stream in a file until the import ends, since its content has to be hashed before the first row is sent. */
async function spool(
  name: string,
  content: NodeJS.ReadableStream | AsyncIterable<Uint8Array>,
  stop: AbortSignal,
): Promise<string> {
  try {
    const path = temporaryFile();
    await pipeline(content, createWriteStream(path, { mode: 0o600 }), { signal: stop });
    return path;
  } catch (error) {
    throw stop.aborted ? stopped : unreadable(name, error as Error);
  }
}

const stopped = new ImportError('stopped');

function unreadable(name: string, error: Error): ImportError {
  const { cause } = error;
  return new ImportError(`${name}: it cannot be read: ${reasonOf(cause instanceof Error ? cause : error)}`);
}

function isAddress(word: string): boolean {
  return /^https?:\/\//i.test(word);
}

type Address = {
  readonly url: URL;
  /** The address without its secret parts: the user, and the query of a signed address. */
  readonly shown: string;
  readonly headers: Readonly<Record<string, string>>;
};

function addressOf(word: string): Address {
  try {
    const url = new URL(word);
    const [user, password] = [url.username, url.password].map(decodeURIComponent);
    const basic = Buffer.from(`${user}:${password}`).toString('base64');
    const headers: Record<string, string> = user === '' ? {} : { authorization: `Basic ${basic}` };
    url.username = url.password = '';
    return { url, shown: `${url.origin}${url.pathname}`, headers };
  } catch {
    const shown = withoutPassword(word).replace(/[?#].*$/s, '');
    throw new ImportError(`${shown}: it is not a URL`);
  }
}

async function spoolAddress({ url, shown, headers }: Address, stop: AbortSignal): Promise<string> {
  try {
    const answer = await fetch(url, { headers, signal: stop });
    if (!answer.ok || answer.body === null)
      throw new ImportError(`${shown}: the server answers ${answer.status}`);
    return await spool(shown, answer.body, stop);
  } catch (error) {
    if (error instanceof ImportError) throw error;
    throw stop.aborted ? stopped : unreadable(shown, error as Error);
  }
}

async function openInput(found: Source, given: FileOptions): Promise<Input> {
  const { name } = found;
  try {
    const hash = createHash('sha256');
    let raw: Buffer | undefined;
    for await (const piece of bytesOf(found)) {
      raw ??= piece.subarray(0, headBytes);
      hash.update(piece);
    }
    raw ??= Buffer.alloc(0);
    const compression = compressionOf(raw);
    const source = { ...found, compression };
    const head = compression === 'none' ? raw : await headOf(source);
    const encoding = markedEncoding(head) ?? given.encoding ?? 'utf-8';
    const format = given.format ?? formatOfName(name) ?? formatOfContent(head, encoding);
    assertReadable(name, head, { format, encoding, compression });
    return { ...source, format, encoding, hash: hash.digest('hex').slice(0, 32) };
  } catch (error) {
    throw named(name, error);
  }
}

/** Whether both paths lead to the same file. */
export function isSameFile(one: string, other: string): boolean {
  const [first, second] = [one, other].map((path) => statSync(path, { bigint: true, throwIfNoEntry: false }));
  return first !== undefined && first.dev === second?.dev && first.ino === second.ino;
}

function named(name: string, error: unknown): ImportError {
  return error instanceof ImportError ? error : new ImportError(`${name}: ${wordsOf(error)}`);
}

/** An error of the file system, in words that name no system call. */
export function wordsOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  const words: Readonly<Record<string, string>> = {
    ENOENT: 'there is no such file',
    EACCES: 'it may not be read',
    EISDIR: 'it is a folder',
    ELOOP: 'its links lead in a circle',
  };
  return words[code ?? ''] ?? message;
}

const headBytes = 1 << 16;

/** The beginning of a file's content. Ignores faults of compression, which the check of the whole file reports. */
async function headOf(source: Packed): Promise<Buffer> {
  let head: Buffer = Buffer.alloc(0);
  try {
    for await (const part of contentOf(source, () => undefined)) {
      head = Buffer.concat([head, part]);
      if (head.length >= headBytes) break;
    }
  } catch (error) {
    if (!(error instanceof ImportError)) throw error;
  }
  return head.subarray(0, headBytes);
}

/** Throws ImportError for content that no reader can read. The error says what to do about it. */
function assertReadable(
  name: string,
  head: Buffer,
  { format, encoding, compression }: Pick<Input, 'format' | 'encoding' | 'compression'>,
): void {
  const kind = kindOfContent(head);
  if (kind !== undefined && !(kind.name === 'Parquet' && compression === 'none' && format === 'parquet')) {
    const within = compression === 'none' || kind.name.startsWith('compressed') ? 'it is' : 'in it is';
    const advice = kind.name === 'Parquet' && compression !== 'none' ? 'unpack it first' : kind.advice;
    throw new ImportError(`${name}: ${within} ${kind.name}; ${advice}`);
  }
  const start = head.subarray(0, 64);
  const zeros = start.filter((byte) => byte === 0).length;
  if (format !== 'parquet' && encoding === 'utf-8' && zeros * 3 > start.length)
    throw new ImportError(
      `${name}: it is not text, or it is UTF-16 without a byte order mark; save it as UTF-8`,
    );
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
  const inner = name.replace(/\.(gz|gzip|zst|zstd)$/i, '');
  return formats[/\.([a-z]+)$/i.exec(inner)?.[1]?.toLowerCase() ?? ''];
}

/** The format of a content. JSON whose first line is not a complete object is an array, or objects over several lines. */
function formatOfContent(head: Buffer, encoding: Encoding): Format {
  if (head.subarray(0, 4).toString('latin1') === 'PAR1') return 'parquet';
  const text = textOf(head, encoding).trimStart();
  if (text.startsWith('[')) return 'json';
  if (!text.startsWith('{')) return 'csv';
  const [line = '', ...others] = text.split('\n');
  if (others.length === 0) return 'ndjson';
  try {
    JSON.parse(line);
    return 'ndjson';
  } catch {
    return 'json';
  }
}

/** The text of a file's beginning, without a character that is cut off at its end. Other faults are found when the whole file is read. */
function textOf(head: Buffer, encoding: Encoding): string {
  try {
    return createDecoder(encoding)(head, false);
  } catch (error) {
    if (!(error instanceof WrongEncoding)) throw error;
    return head.toString('latin1');
  }
}

/** The content as UTF-8. Throws ImportError where it is not in its encoding. */
export async function* textIn(
  input: Input,
  onShare: (share: number) => void,
): AsyncGenerator<Buffer, undefined> {
  const { name, encoding } = input;
  const decode = createDecoder(encoding);
  const part = (bytes: Buffer, isLast: boolean): Buffer => {
    try {
      const text = decode(bytes, isLast);
      return encoding === 'utf-8' ? bytes : Buffer.from(text);
    } catch (error) {
      if (!(error instanceof WrongEncoding)) throw error;
      const advice =
        encoding === 'utf-8'
          ? 'if it is Windows-1252 (ANSI), add --encoding windows-1252, else save it as UTF-8'
          : 'save it as UTF-8';
      throw new ImportError(`${name}: it is not ${encodingNames[encoding]} on line ${error.line}; ${advice}`);
    }
  };
  for await (const chunk of contentOf(input, onShare)) yield part(chunk, false);
  yield part(Buffer.alloc(0), true);
  return undefined;
}
