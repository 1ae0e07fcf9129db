// The files in a zip archive, the form in which some systems export. They are unpacked into temporary files and then treated like any
// others, so rows have the same keys whether or not somebody unpacked the archive first.

import { createWriteStream } from 'node:fs';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import zlib from 'node:zlib';
import { type Entry, openPromise, type ZipFile } from 'yauzl';
import { ImportError } from './options.js';
import { reasonOf, temporaryFile } from './temporary.js';

export type Unpacked = { readonly name: string; readonly path: string };

/** Unpacks the wanted files. Throws ImportError for an archive that is broken or encrypted. */
export async function unpackZip(
  name: string,
  path: string,
  isWanted: (inner: string) => boolean,
): Promise<Unpacked[]> {
  const unpacked: Unpacked[] = [];
  let inner = '';
  try {
    const archive = await openPromise(path, { lazyEntries: true, autoClose: false });
    try {
      for await (const entry of archive.eachEntry()) {
        inner = entry.fileName;
        if (inner.endsWith('/') || !isWanted(inner)) continue;
        if (entry.isEncrypted()) throw new Error('it is encrypted');
        const file = temporaryFile();
        await unpackEntry(archive, entry, file);
        unpacked.push({ name: `${name}/${inner}`, path: file });
      }
    } finally {
      archive.close();
    }
  } catch (error) {
    const place = inner === '' ? name : `${name}/${inner}`;
    throw new ImportError(`${place}: it cannot be unpacked: ${reasonOf(error as Error)}`);
  }
  return unpacked;
}

async function unpackEntry(archive: ZipFile, entry: Entry, file: string): Promise<void> {
  let sum = 0;
  const summing = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      // Only Node 20.15 and later have it.
      sum = zlib.crc32?.(chunk, sum) ?? entry.crc32;
      done(null, chunk);
    },
  });
  const content = await archive.openReadStreamPromise(entry);
  await pipeline(content, summing, createWriteStream(file, { mode: 0o600 }));
  if (sum !== entry.crc32) throw new Error('its content is not what its checksum says');
}
