// The floor of durable acknowledging: uWebSockets.js appends each body to FILE and answers `{}` once the file is synced. As with
// Redis's append-only file, all bodies read in one turn of the event loop share a sync. GET /count returns the number of answers.

import { App, type HttpResponse } from 'uWebSockets.js';
import { fdatasyncSync, openSync, writeSync } from 'node:fs';

const file = openSync(process.env.FILE ?? '', 'a');
let answered = 0;
let rows: Buffer[] = [];
let waiting: HttpResponse[] = [];

App()
  .post('/*', (res) => {
    const chunks: Buffer[] = [];
    res.onAborted(() => {
      waiting = waiting.filter((other) => other !== res);
    });
    res.onData((chunk, isLast) => {
      // A copy: after this call uWebSockets.js reuses the chunk's memory.
      chunks.push(Buffer.from(Buffer.from(chunk)));
      if (!isLast) return;
      rows.push(...chunks);
      waiting.push(res);
      if (waiting.length === 1) setImmediate(sync);
    });
  })
  .get('/count', (res) => {
    res.end(String(answered));
  })
  .listen('127.0.0.1', Number(process.env.PORT), (socket) => {
    if (socket === false) process.exit(1);
  });

function sync(): void {
  writeSync(file, Buffer.concat(rows));
  fdatasyncSync(file);
  rows = [];
  const synced = waiting;
  waiting = [];
  for (const res of synced) {
    answered += 1;
    res.cork(() => res.writeHeader('Content-Type', 'application/json').end('{}'));
  }
}
