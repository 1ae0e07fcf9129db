// A server that stops while bodies are arriving.

import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { readJsonBody } from '../../src/http/protocol/body.js';
import { type Handler, listen } from '../../src/http/protocol/server.js';
import { createLog } from '../../src/log.js';
import { freePort } from '../harness/free-port.js';
import { openRaw } from '../harness/raw-http.js';
import { until } from '../harness/wait.js';

test('a server that stops waits for the rest of bodies for some seconds, then answers without them', async (context) => {
  const port = await freePort();
  let heads = 0;
  const handle: Handler = (exchange) => {
    heads += 1;
    readJsonBody(exchange, 1_000_000, () => exchange.ok());
  };
  const routes = [{ method: 'post', path: '/', handle }] as const;
  const server = await listen('127.0.0.1', port, 'PORT', false, routes, createLog('test', 'silent'));
  const begin = async (more: string, bytes: number) => {
    const connection = await openRaw(`http://127.0.0.1:${port}`);
    await connection.send(`POST / HTTP/1.1\r\nHost: a\r\n${more}Content-Length: ${bytes}\r\n\r\n[`);
    return connection;
  };
  const json = 'Content-Type: application/json\r\n';
  const whole = await begin(json, 2);
  const small = await begin(json, 60_000);
  const large = await begin(json, 900_000);
  const refused = await begin(json, 1_500_000);
  const unknown = await openRaw(`http://127.0.0.1:${port}`);
  await unknown.send('POST /unknown HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n[');
  await until(() => heads === 4, 'the requests have begun');
  mock.timers.enable({ apis: ['setInterval'] });
  context.after(() => {
    mock.timers.reset();
    for (const connection of [whole, small, large, refused, unknown]) connection.destroy();
  });
  let isClosed = false;
  const closed = server.close().then(() => {
    isClosed = true;
  });
  await whole.send(']');
  assert.equal((await whole.reply(0)).status, 200);
  assert.equal(isClosed, false);
  mock.timers.tick(5_000);
  for (const connection of [small, large]) {
    const { status, body } = await connection.reply(0);
    assert.equal(status, 503);
    assert.match(body, /"code":"overloaded"/);
  }
  assert.equal((await refused.reply(0)).status, 413);
  assert.equal((await unknown.reply(0)).status, 404);
  await closed;
});
