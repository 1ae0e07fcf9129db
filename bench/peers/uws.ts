// Two floors by uWebSockets.js. That of HTTP reads the body and answers `{}`. That of durable acknowledging, with a FILE, appends
// each body to it and answers once it is synced; as with Redis's append-only file, all bodies read in one turn of the event loop
// share a sync. GET /count returns the number of answers.

import { App, type HttpResponse } from 'uWebSockets.js';
import { fdatasyncSync, openSync, writeSync } from 'node:fs';

const { FILE: path, PORT: port } = process.env;
const file = path === undefined ? undefined : openSync(path, 'a');
let answered = 0;
let bodies: Buffer[] = [];
let waiting: HttpResponse[] = [];

const app = App();
if (file === undefined) {
  app.post('/*', (res) => {
    let bytes = 0;
    res.onAborted(() => undefined);
    res.onData((chunk, isLast) => {
      bytes += chunk.byteLength;
      if (isLast && bytes > 0) answered += 1;
      if (isLast) res.writeHeader('Content-Type', 'application/json').end('{}');
    });
  });
} else {
  app.post('/*', (res) => {
    const chunks: Buffer[] = [];
    res.onAborted(() => {
      waiting = waiting.filter((other) => other !== res);
    });
    res.onData((chunk, isLast) => {
      // A copy: after this call uWebSockets.js reuses the chunk's memory.
      chunks.push(Buffer.from(Buffer.from(chunk)));
      if (!isLast) return;
      bodies.push(...chunks);
      waiting.push(res);
      if (waiting.length === 1) setImmediate(sync, file);
    });
  });
}
app
  .get('/count', (res) => {
    res.end(String(answered));
  })
  .listen('127.0.0.1', Number(port), (socket) => {
    if (socket === false) process.exit(1);
  });

function sync(synced: number): void {
  writeSync(synced, Buffer.concat(bodies));
  fdatasyncSync(synced);
  bodies = [];
  const ready = waiting;
  waiting = [];
  for (const res of ready) {
    answered += 1;
    res.cork(() => res.writeHeader('Content-Type', 'application/json').end('{}'));
  }
}
