// Two floors with uWebSockets.js. The floor of HTTP reads the body and answers `{}`. The floor of durable acknowledging, used if FILE is
// set, appends each body to that file and answers once it is synced; as with Redis's append-only file, all bodies read in one turn of the
// event loop share a sync. GET /count returns the number of answers.

import { App, type HttpResponse } from 'uWebSockets.js';
import { fdatasyncSync, openSync, writeSync } from 'node:fs';

const { FILE: path, PORT: port } = process.env;
let answered = 0;

function answer(res: HttpResponse): void {
  answered += 1;
  res.cork(() => res.writeHeader('Content-Type', 'application/json').end('{}'));
}

const app = App();
if (path === undefined) {
  app.post('/*', (res) => {
    res.onAborted(() => undefined);
    res.onData((_chunk, isLast) => {
      if (isLast) answer(res);
    });
  });
} else {
  const file = openSync(path, 'a');
  let bodies: Buffer[] = [];
  let waiting: HttpResponse[] = [];
  const sync = () => {
    writeSync(file, Buffer.concat(bodies));
    fdatasyncSync(file);
    bodies = [];
    const ready = waiting;
    waiting = [];
    for (const res of ready) answer(res);
  };
  app.post('/*', (res) => {
    const chunks: Buffer[] = [];
    res.onAborted(() => {
      waiting = waiting.filter((other) => other !== res);
    });
    res.onData((chunk, isLast) => {
      // Copied, since uWebSockets.js reuses the chunk's memory after this call.
      chunks.push(Buffer.from(Buffer.from(chunk)));
      if (!isLast) return;
      bodies.push(...chunks);
      waiting.push(res);
      if (waiting.length === 1) setImmediate(sync);
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
