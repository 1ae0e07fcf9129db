// Long answers to a client that reads with pauses: every byte arrives, in its chunk. After an answer that closes its connection, no bytes
// count as a request, however late they come.

import { App, type TemplatedApp, us_socket_local_port } from 'uWebSockets.js';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { AnswerStream } from '../../src/http/protocol/answer-stream.js';
import { Exchange } from '../../src/http/protocol/exchange.js';
import { pieceOf } from '../support/letter-pieces.js';

let app: TemplatedApp;
let port: number;
/** More than the kernel's buffers take. */
const longBody = Buffer.alloc(16 * 1024 * 1024, 'The quick brown fox. ');
let requestsOfLongBody = 0;
before(async () => {
  app = App();
  app.get('/:pieces', (res, req) => {
    const pieces = Number(req.getParameter(0));
    const stream = new AnswerStream(res, false, () => undefined);
    res.onAborted(() => stream.clientIsGone());
    void send(stream, pieces);
  });
  app.post('/long', (res, req) => {
    requestsOfLongBody += 1;
    const fail = (error: unknown) => assert.fail(String(error));
    const exchange = new Exchange(
      res,
      req,
      [],
      fail,
      () => '',
      () => undefined,
    );
    exchange.onData((_, last) => {
      if (last) exchange.reply(200, longBody);
    });
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
  await stream.end();
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

test('a long answer arrives whole, wherever the socket is full', () => readWhole(12_000, 0));

test('a reader that takes nothing for longer than uWebSockets.js waits gets the rest', () =>
  readWhole(2_000, 16_000));

const closing = 'POST /long HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n';

test('a long answer after which the connection closes arrives whole', async () => {
  const socket = connect({ host: '127.0.0.1', port });
  socket.pause();
  socket.write(closing);
  await pause(1_000);
  const pieces: Buffer[] = [];
  for await (const piece of socket as AsyncIterable<Buffer>) {
    pieces.push(piece);
    if (pieces.length % 20 === 0) await pause(5);
  }
  assert.ok(bodyOf(Buffer.concat(pieces)).equals(longBody));
});

test('bytes behind such an answer are never a request, however long its rest waits for its reader', async () => {
  requestsOfLongBody = 0;
  const socket = connect({ host: '127.0.0.1', port });
  socket.on('error', () => undefined);
  socket.pause();
  socket.write(closing);
  await pause(1_000);
  socket.write('POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n');
  await pause(1_000);
  socket.resume();
  await once(socket, 'close');
  assert.equal(requestsOfLongBody, 1);
});

function bodyOf(answer: Buffer): Buffer {
  const pieces: Buffer[] = [];
  let at = answer.indexOf('\r\n\r\n') + 4;
  for (;;) {
    const lineEnd = answer.indexOf('\r\n', at);
    const length = Number.parseInt(answer.toString('latin1', at, lineEnd), 16);
    if (!(length > 0)) return Buffer.concat(pieces);
    pieces.push(answer.subarray(lineEnd + 2, lineEnd + 2 + length));
    at = lineEnd + 2 + length + 2;
  }
}
