// The content of a file, decompressed, as a stream of bytes. Compressed content is read to its end: whatever is wrong in it, or
// follows after it, is an error.

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { ImportError } from './options.js';
import { corrupt, endsTooEarly, Undecodable, unzstd } from './zstd.js';

export type Compression = 'none' | 'gzip' | 'zstd';

/** `name`: what the user called it; `bytes`: its size. */
export type Source = {
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
  readonly compression: Compression;
};

/** Yields the content. Calls `onShare` with the share of the file that was read. Throws ImportError if it cannot be decompressed. */
export async function* contentOf(
  { name, path, bytes, compression }: Source,
  onShare: (share: number) => void,
): AsyncGenerator<Buffer> {
  async function* fileFrom(start: number): AsyncGenerator<Buffer> {
    let read = start;
    for await (const chunk of createReadStream(path, { start, highWaterMark: 1 << 18 })) {
      read += chunk.length;
      onShare(read / bytes);
      yield chunk;
    }
  }
  try {
    if (compression === 'none') yield* fileFrom(0);
    else if (compression === 'gzip') yield* gunzip(path, fileFrom);
    else for await (const part of unzstd(fileFrom(0))) yield asBuffer(part);
  } catch (error) {
    if (!(error instanceof Undecodable)) throw error;
    throw new ImportError(`${name}: ${error.message}`);
  }
}

/**
 * Throws ImportError unless a whole file can be decompressed and its checksums are right. Settles with a hash of its content as 32
 * hexadecimal digits; undefined if it is not compressed, or if a stop ended this early.
 */
export async function assertSound(source: Source, stop: AbortSignal): Promise<string | undefined> {
  if (source.compression === 'none') return undefined;
  const hash = createHash('sha256');
  try {
    for await (const part of contentOf(source, () => undefined)) {
      if (stop.aborted) return undefined;
      hash.update(part);
    }
    return hash.digest('hex').slice(0, 32);
  } catch (error) {
    throw error instanceof ImportError
      ? new ImportError(`${error.message}; nothing of it was imported`)
      : error;
  }
}

function asBuffer({ buffer, byteOffset, length }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}

/** Node's gunzip reads members that follow each other, but stops at zeros, with which tapes and disks pad files. */
async function* gunzip(
  path: string,
  fileFrom: (start: number) => AsyncIterable<Buffer>,
): AsyncGenerator<Buffer> {
  for (let start = 0; ; ) {
    const file = Readable.from(fileFrom(start), { objectMode: false });
    const inflated = createGunzip({ chunkSize: 1 << 16 });
    file.on('error', (error) => inflated.destroy(error));
    try {
      yield* file.pipe(inflated);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code === 'Z_BUF_ERROR') throw corrupt(endsTooEarly);
      throw code?.startsWith('Z_') ? corrupt(message) : error;
    } finally {
      file.destroy();
    }
    const next = await firstByteAfterZeros(path, start + inflated.bytesWritten);
    if (next === undefined) return;
    start = next;
  }
}

/** The position of the first byte from `start` on that is not zero; undefined if there is none. */
async function firstByteAfterZeros(path: string, start: number): Promise<number | undefined> {
  const file = await open(path);
  try {
    const bytes = Buffer.alloc(1 << 16);
    for (let at = start; ; ) {
      const { bytesRead } = await file.read(bytes, 0, bytes.length, at);
      if (bytesRead === 0) return undefined;
      const found = bytes.subarray(0, bytesRead).findIndex((byte) => byte !== 0);
      if (found >= 0) return at + found;
      at += bytesRead;
    }
  } finally {
    await file.close();
  }
}
