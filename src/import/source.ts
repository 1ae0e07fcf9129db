// The bytes of a file as it was found. Keys and places are derived from its hash, so no later reading may return other content: each
// reading ends where the hashed bytes ended, and fails once the file was written to or replaced.

import { type BigIntStats, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { ImportError } from './options.js';

/** A file that was found. `name`: how the user called it; `bytes`: its size; `version`: identifies the file and its last change. */
export type Source = {
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
  readonly version: string;
};

/** Throws ImportError if it is not a file, and the file system's error if it does not exist. */
export function findSource(name: string, path: string): Source {
  const stats = statSync(path, { bigint: true });
  // Opening a pipe may block for ever, and no signal ends the program then.
  if (!stats.isFile()) throw new ImportError(`${name}: it is not a file`);
  return { name, path, bytes: Number(stats.size), version: versionOf(stats) };
}

function versionOf({ dev, ino, size, mtimeNs }: BigIntStats): string {
  return `${dev} ${ino} ${size} ${mtimeNs}`;
}

function changed(name: string): ImportError {
  return new ImportError(`${name}: it was changed while it was read; import a copy that does not change`);
}

/** Throws ImportError if a file was written to or replaced since it was found. */
export function assertUnchanged({ name, path, version }: Source): void {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  if (stats === undefined || versionOf(stats) !== version) throw changed(name);
}

export type OpenSource = Awaited<ReturnType<typeof openSource>>;

/** Opens a file for many reads. */
export async function openSource(source: Source) {
  const { name, path, version } = source;
  const file = await open(path).catch((error) => {
    assertUnchanged(source);
    throw error;
  });
  return {
    /** The bytes from `start` up to, but not including, `end`. Throws ImportError if the file was changed before they were read. */
    async read(start: number, end: number): Promise<Buffer> {
      const bytes = Buffer.allocUnsafeSlow(end - start);
      for (let at = 0; at < bytes.length; ) {
        const { bytesRead } = await file.read(bytes, at, bytes.length - at, start + at);
        if (bytesRead === 0) throw changed(name);
        at += bytesRead;
      }
      if (versionOf(await file.stat({ bigint: true })) !== version) throw changed(name);
      return bytes;
    },
    close: () => file.close(),
  };
}

const pieceBytes = 1 << 18;

/** Yields the bytes of a file from `start` on. */
export async function* bytesOf(source: Source, start = 0): AsyncGenerator<Buffer> {
  const file = await openSource(source);
  try {
    for (let at = start; at < source.bytes; at += pieceBytes)
      yield await file.read(at, Math.min(at + pieceBytes, source.bytes));
  } finally {
    await file.close();
  }
}
