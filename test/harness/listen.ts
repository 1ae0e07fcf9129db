// Servers of tests: on a free port of the loopback.

import { once } from 'node:events';
import {
  createServer,
  Server as HttpServer,
  type IncomingMessage,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo, Server } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** Settles when the server listens; `stop` ends it with its connections. */
export async function listen(server: Server) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const stop = () => {
    server.close();
    if (server instanceof HttpServer) server.closeAllConnections();
  };
  return { port, url: `http://127.0.0.1:${port}`, stop };
}

/** A server that handles each request once its body is there, and forgets one that breaks off. */
export function bodyServer(
  handle: (request: IncomingMessage, reply: ServerResponse, body: Buffer) => unknown,
  options: ServerOptions = {},
): HttpServer {
  return createServer(options, (request, reply) => {
    void buffer(request).then(
      (body) => handle(request, reply, body),
      () => undefined,
    );
  });
}
