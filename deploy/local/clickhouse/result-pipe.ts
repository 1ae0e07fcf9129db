// Owns the way of a query's result from the engine to HTTP: a named pipe that the engine writes with INTO
// OUTFILE, on a thread of its own, in any format. The pipe's buffer is the back-pressure: of a result of any
// size a few hundred KiB are in memory. (chdb's own streams begin on the event loop, which would stand still
// as long as a query's sub-queries are evaluated.)

import { execFileSync } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';

/** Who takes a result. */
export type Sink = {
  /** True: nobody is there any more. */
  readonly isClosed: boolean;
  /** False: `drained` says when to go on. */
  write(chunk: Buffer): boolean;
  /** Settles when more can be written, or nobody is there any more. */
  drained(): Promise<void>;
};

/** Makes `count` named pipes in a directory and returns their paths. */
export function createPipes(directory: string, count: number): string[] {
  const paths = Array.from({ length: count }, (_, index) => join(directory, `result-${index}`));
  execFileSync('mkfifo', ['-m', '600', ...paths]);
  return paths;
}

/**
 * Runs `write`, which lets the engine write to the pipe, while the sink takes what arrives. Settles as
 * `write` does, when the sink has all of it.
 */
export async function readPipe<Result>(
  path: string,
  sink: Sink,
  write: () => Promise<Result>,
): Promise<Result> {
  const reading = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  // Open as long as the engine runs: without a writer the reader would see the end before the beginning.
  const writing = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  const stream = new Socket({ fd: reading, readable: true, writable: false });
  const closed = new Promise<void>((resolve) => stream.once('close', () => resolve()));
  stream.on('error', () => stream.destroy()); // the engine's own error says more
  stream.on('data', (chunk: Buffer) => {
    // Not before there is data: the engine would wait for ever for a reader of the pipe it opens.
    // After that it gets an error at the next write, and the query ends.
    if (sink.isClosed) {
      stream.destroy();
    } else if (!sink.write(chunk)) {
      stream.pause();
      void sink.drained().then(() => stream.resume());
    }
  });
  try {
    return await write();
  } finally {
    closeSync(writing);
    await closed;
  }
}
