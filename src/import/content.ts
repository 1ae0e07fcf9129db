// The content of a file, decompressed, as a stream of bytes. Compressed content is read to its end: any fault in it, and anything that
// follows it, is an error.

import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { ImportError } from './options.js';
import { bytesOf, type Source } from './source.js';
import { corrupt, endsTooEarly, Undecodable, unzstd } from './zstd.js';

export type Compression = 'none' | 'gzip' | 'zstd';

export type Packed = Source & { readonly compression: Compression };

/** Yields the content. Calls `onShare` with the share of the file that has been read. Throws ImportError if it cannot be decompressed. */
export async function* contentOf(source: Packed, onShare: (share: number) => void): AsyncGenerator<Buffer> {
  const { name, bytes, compression } = source;
  async function* fileFrom(start: number): AsyncGenerator<Buffer> {
    let read = start;
    for await (const piece of bytesOf(source, start)) {
      read += piece.length;
      onShare(read / bytes);
      yield piece;
    }
  }
  try {
    if (compression === 'none') yield* fileFrom(0);
    else if (compression === 'gzip') yield* gunzip(source, fileFrom);
    else for await (const part of unzstd(fileFrom(0))) yield asBuffer(part);
  } catch (error) {
    if (!(error instanceof Undecodable)) throw error;
    throw new ImportError(`${name}: ${error.message}`);
  }
}

/** `hash`: of the content, in 32 hexadecimal digits. */
export type Unpacked = { readonly hash: string; readonly bytes: number };

/**
 * Throws ImportError unless a whole file can be decompressed and its checksums are right. Settles with the hash and size of its content;
 * with undefined if the file is not compressed, or if `stop` ended the check early.
 */
export async function assertSound(source: Packed, stop: AbortSignal): Promise<Unpacked | undefined> {
  if (source.compression === 'none') return undefined;
  const hash = createHash('sha256');
  let bytes = 0;
  try {
    for await (const part of contentOf(source, () => undefined)) {
      if (stop.aborted) return undefined;
      hash.update(part);
      bytes += part.length;
    }
    return { hash: hash.digest('hex').slice(0, 32), bytes };
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
  source: Source,
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
    const next = await firstByteAfterZeros(source, start + inflated.bytesWritten);
    if (next === undefined) return;
    start = next;
  }
}

/** The position of the first byte from `start` on that is not zero; undefined if there is none. */
async function firstByteAfterZeros(source: Source, start: number): Promise<number | undefined> {
  let at = start;
  for await (const piece of bytesOf(source, start)) {
    const found = piece.findIndex((byte) => byte !== 0);
    if (found >= 0) return at + found;
    at += piece.length;
  }
  return undefined;
}
