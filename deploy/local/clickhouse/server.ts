// Owns the HTTP side of the embedded ClickHouse: who may ask, and one request's way from top to bottom.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Log } from '../../../src/log.js';
import type { Engine } from './engine.js';
import { toException } from './errors.js';
import { headerBytesMax, keepAliveMs } from './limits.js';
import { header, readOptions } from './request.js';
import { Reply } from './response.js';
import { runRequest } from './run-request.js';

/** Makes the HTTP server of an engine; the caller lets it listen, on a loopback address only. */
export function createClickHouseServer(engine: Engine, log: Log): Server {
  const options = { maxHeaderSize: headerBytesMax, keepAliveTimeout: keepAliveMs, requestTimeout: 0 };
  const server = createServer(options, (request, response) => {
    handle(server, engine, request, response).catch((error: unknown) => {
      log.error({ error }, 'request failed');
      response.destroy();
    });
  });
  return server;
}

async function handle(
  server: Server,
  engine: Engine,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (!isFromThisHost(request)) return answer(response, 403, 'Only programs on this host are answered\n');
  if (!server.listening) response.setHeader('Connection', 'close');
  const target = `http://localhost${request.url}`;
  if (!request.url?.startsWith('/') || !URL.canParse(target))
    return answer(response, 400, 'Bad request target\n');
  const url = new URL(target);
  if (url.pathname === '/ping') return answer(response, 200, 'Ok.\n');
  if (url.pathname !== '/') return answer(response, 404, `There is no handle ${url.pathname}\n`);
  if (request.method !== 'GET' && request.method !== 'POST')
    return answer(response, 405, 'Use GET or POST\n');
  if (!server.listening) return answer(response, 503, 'The server is stopping\n');

  const reply = new Reply(response, engine.version);
  try {
    const options = readOptions(request, url);
    if (options.query === '' && request.method === 'GET') return answer(response, 200, 'Ok.\n');
    reply.accept(request, options);
    reply.end(await runRequest(engine, request, options, reply));
  } catch (error) {
    if (!reply.isClosed) reply.fail(toException(error));
  }
  request.unpipe();
  request.resume(); // what is left of a refused body: the client has to see the reply
}

function answer(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'Content-Type': 'text/plain; charset=UTF-8' }).end(text);
}

/**
 * The socket is bound to loopback, but a browser on this host would carry requests of any web page to it:
 * by a name that the page points at 127.0.0.1 (the Host header tells), or straight to the address (Origin
 * and Sec-Fetch-Site tell).
 */
function isFromThisHost(request: IncomingMessage): boolean {
  const origin = header(request, 'origin');
  const site = header(request, 'sec-fetch-site');
  return (
    isLoopbackName(header(request, 'host').replace(/:\d+$/, '')) &&
    (origin === '' || (URL.canParse(origin) && isLoopbackName(new URL(origin).hostname))) &&
    ['', 'none', 'same-origin'].includes(site)
  );
}

function isLoopbackName(name: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|\[::1\])?$/i.test(name);
}
