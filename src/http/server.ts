// The public server: routes, listening and closing. Every known path answers other methods with 405, and
// every other path with 404, both in JSON; an unmatched route would close the connection.

import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js';
import uws from 'uWebSockets.js';
import { createServer } from 'node:net';
import { outcomes, rejection } from '../contract/outcomes.js';
import { allAnswered, Exchange } from './exchange.js';

export type Handler = (res: HttpResponse, req: HttpRequest) => void;

export type Method = 'get' | 'post' | 'put' | 'patch' | 'del';

export type Route = { readonly method: Method; readonly path: string; readonly handle: Handler };

export type Server = {
  /** Stops accepting connections; settles when all requests that were begun are answered. */
  close(): Promise<void>;
};

/** Listens on an address. Rejects, naming the variable that sets the port, when that is not possible. */
export async function listen(
  host: string,
  port: number,
  portVariable: string,
  shared: boolean,
  routes: readonly Route[],
): Promise<Server> {
  // Two processes that listen through uWebSockets.js share a port without an error.
  if (!shared) await assertPortFree(host, port, portVariable);
  const app = uws.App();
  addRoutes(app, routes);
  const socket = await new Promise<us_listen_socket>((resolve, reject) => {
    app.listen(host, port, (listening) => {
      if (listening) resolve(listening);
      else reject(new PortTaken(portVariable, host, port));
    });
  });
  return {
    close: async () => {
      uws.us_listen_socket_close(socket);
      await allAnswered();
      app.close();
    },
  };
}

export class PortTaken extends Error {
  constructor(variable: string, host: string, port: number) {
    super(`${variable}: ${host}:${port} cannot be listened on; is it in use?`);
  }
}

function addRoutes(app: TemplatedApp, routes: readonly Route[]): void {
  const methodsByPath = new Map<string, string[]>();
  for (const { method, path, handle } of routes) {
    app[method](path, handle);
    methodsByPath.set(path, [
      ...(methodsByPath.get(path) ?? []),
      method === 'del' ? 'DELETE' : method.toUpperCase(),
    ]);
  }
  for (const [path, methods] of methodsByPath) {
    const allow = [['Allow', methods.join(', ')]] as const;
    const reason = rejection('method_not_allowed', outcomes.method_not_allowed.meaning);
    app.any(path, (res, req) => withoutBody(new Exchange(res, req)).refuse(reason, {}, allow));
  }
  const notFound = rejection('not_found', outcomes.not_found.meaning);
  app.any('/*', (res, req) => withoutBody(new Exchange(res, req)).refuse(notFound));
}

/** For requests whose body nobody reads. */
export function withoutBody(exchange: Exchange): Exchange {
  exchange.dropBody();
  return exchange;
}

async function assertPortFree(host: string, port: number, variable: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const probe = createServer();
    probe.once('error', () => reject(new PortTaken(variable, host, port)));
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve()));
  });
}
