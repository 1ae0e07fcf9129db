// The content of a file, decompressed, as a stream of bytes.

import { createReadStream } from 'node:fs';
import { type Readable, Transform } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { Decompress } from 'fzstd';
import type { Input } from './inputs.js';

/** `onShare` is called with the share of the file that was read. */
export function contentOf({ path, bytes, compression }: Input, onShare: (share: number) => void): Readable {
  const file = createReadStream(path, { highWaterMark: 1 << 18 });
  let read = 0;
  file.on('data', (chunk) => {
    read += chunk.length;
    onShare(bytes === 0 ? 1 : read / bytes);
  });
  if (compression === 'none') return file;
  const inflated = compression === 'gzip' ? createGunzip() : createZstd();
  file.on('error', (error) => inflated.destroy(error));
  return file.pipe(inflated);
}

function createZstd(): Transform {
  const stream = new Decompress();
  const transform = new Transform({
    transform(chunk: Buffer, _, done) {
      stream.ondata = (data) => void transform.push(Buffer.from(data));
      try {
        stream.push(chunk);
        done();
      } catch (error) {
        done(error as Error);
      }
    },
    flush(done) {
      try {
        stream.push(new Uint8Array(0), true);
        done();
      } catch (error) {
        done(error as Error);
      }
    },
  });
  return transform;
}
