// Long answers to a client that reads with pauses: every byte arrives, in its chunk.

import { App, type TemplatedApp, us_socket_local_port } from 'uWebSockets.js';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { AnswerStream } from '../../src/http/protocol/answer-stream.js';
import { pieceOf } from '../support/letter-pieces.js';

let app: TemplatedApp;
let port: number;
before(async () => {
  app = App();
  app.get('/:pieces', (res, req) => {
    const pieces = Number(req.getParameter(0));
    const stream = new AnswerStream(res, false, () => undefined);
    res.onAborted(() => stream.clientIsGone());
    void send(stream, pieces);
  });
  port = await new Promise((settle) => {
    app.listen('127.0.0.1', 0, (socket) => settle(us_socket_local_port(socket)));
  });
});
after(() => app.close());

async function send(stream: AnswerStream, pieces: number): Promise<void> {
  for (let number = 0; number < pieces; number++) {
    if (!(await stream.write(pieceOf(number)))) return;
    if (number % 3 === 0) await new Promise((settle) => setImmediate(settle));
  }
  stream.end();
}

async function readWhole(pieces: number, pauseMs: number): Promise<void> {
  let length = 0;
  for (let number = 0; number < pieces; number++) length += pieceOf(number).length;
  const reader = new Worker(new URL('../support/chunked-reader.js', import.meta.url), {
    workerData: { port, path: `/${pieces}`, pauseMs },
  });
  const [read] = await once(reader, 'message');
  await reader.terminate();
  assert.equal(read, length);
}

test('a long answer arrives whole, wherever the socket is full', () => readWhole(40_000, 0));

test('a reader that takes nothing for longer than uWebSockets.js waits gets the rest', () =>
  readWhole(2_000, 16_000));
