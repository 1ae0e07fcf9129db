// The floor of HTTP: uWebSockets.js reads the body and answers `{}`. GET /count returns the number of answers.

import { App } from 'uWebSockets.js';

let answered = 0;
App()
  .post('/*', (res) => {
    let bytes = 0;
    res.onAborted(() => undefined);
    res.onData((chunk, isLast) => {
      bytes += chunk.byteLength;
      if (!isLast) return;
      if (bytes > 0) answered += 1;
      res.writeHeader('Content-Type', 'application/json').end('{}');
    });
  })
  .get('/count', (res) => {
    res.end(String(answered));
  })
  .listen('127.0.0.1', Number(process.env.PORT), (socket) => {
    if (socket === false) process.exit(1);
  });
