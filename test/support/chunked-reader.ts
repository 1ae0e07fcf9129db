// Reads a long answer in HTTP chunks, with pauses, in a thread of its own so that it reads while the answer is written. It posts how many
// bytes arrived, or what was wrong.

import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';
import { pieceOf } from './letter-pieces.js';

/** After the first 10 MB it reads nothing for `pauseMs`. */
const { port, path, pauseMs } = workerData as {
  readonly port: number;
  readonly path: string;
  readonly pauseMs: number;
};

async function read(): Promise<number> {
  const socket = connect(port, '127.0.0.1', () => socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`));
  const check = createCheck();
  let waiting: Buffer = Buffer.alloc(0);
  let hasHead = false;
  let hasPaused = pauseMs === 0;
  /** How many bytes of the chunk are still missing, with the line end after it. */
  let left = 0;
  let total = 0;
  for await (const bytes of socket as AsyncIterable<Buffer>) {
    waiting = waiting.length === 0 ? bytes : Buffer.concat([waiting, bytes]);
    if (Math.random() < 0.3) spin(Math.random() / 2);
    if (!hasPaused && total > 10_000_000) {
      hasPaused = true;
      await new Promise((settle) => setTimeout(settle, pauseMs));
    }
    for (;;) {
      if (left > 2) {
        const part = waiting.subarray(0, left - 2);
        check(part);
        total += part.length;
        left -= part.length;
        waiting = waiting.subarray(part.length);
      }
      if (left > 0) {
        if (left > 2 || waiting.length < 2) break;
        assert.equal(waiting.toString('latin1', 0, 2), '\r\n', `the end of a chunk after ${total} bytes`);
        waiting = waiting.subarray(2);
        left = 0;
      }
      const mark = hasHead ? '\r\n' : '\r\n\r\n';
      const end = waiting.indexOf(mark);
      if (end < 0) break;
      const line = waiting.toString('latin1', 0, end);
      waiting = waiting.subarray(end + mark.length);
      if (!hasHead) hasHead = true;
      else if (line === '0') return total;
      else {
        assert.match(line, /^[0-9a-f]+$/i, `the length of a chunk after ${total} bytes`);
        left = Number.parseInt(line, 16) + 2;
      }
    }
  }
  throw new Error(`the answer ended after ${total} bytes`);
}

/** Compares the bytes that arrive with the pieces. */
function createCheck(): (bytes: Buffer) => void {
  let number = 0;
  let left = pieceOf(0);
  return (bytes) => {
    for (let from = 0; from < bytes.length; ) {
      const part = bytes.subarray(from, from + left.length);
      assert.ok(part.equals(left.subarray(0, part.length)), `piece ${number}`);
      from += part.length;
      left = left.subarray(part.length);
      if (left.length === 0) left = pieceOf(++number);
    }
  };
}

/** Keeps this thread busy, so that the sender's socket fills up at different points of the answer. */
function spin(ms: number): void {
  const untilMs = performance.now() + ms;
  while (performance.now() < untilMs);
}

parentPort?.postMessage(await read().catch((error: Error) => error.message));
