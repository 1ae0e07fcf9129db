// The public server: routes, listening and closing. Every known path answers other methods with 405, and
// every other path with 404, both in JSON; an unmatched route would close the connection.

import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js';
import uws from 'uWebSockets.js';
import { createServer } from 'node:net';
import { outcomes, rejection } from '../contract/outcomes.js';
import { allAnswered, Exchange, type Headers } from './exchange.js';

export type Handler = (res: HttpResponse, req: HttpRequest) => void;

export type Method = 'get' | 'head' | 'post' | 'put' | 'patch' | 'del' | 'options' | 'any';

export type Route = {
  readonly method: Method;
  readonly path: string;
  readonly handle: Handler;
  /** Sent with the 405 that other methods of the path get. */
  readonly headers?: Headers;
};

export type Server = {
  /** Stops accepting connections; settles when all requests that were begun are answered. */
  close(): Promise<void>;
};

/**
 * Listens on an address. Rejects, naming the variable that sets the port, when that is not possible. `attach`
 * adds what is no route, such as WebSockets.
 */
export async function listen(
  host: string,
  port: number,
  portVariable: string,
  shared: boolean,
  routes: readonly Route[],
  attach: (app: TemplatedApp) => void = () => undefined,
): Promise<Server> {
  // Two processes that listen through uWebSockets.js share a port without an error.
  if (!shared) await assertPortFree(host, port, portVariable);
  const app = uws.App();
  attach(app);
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
  for (const { method, path, handle } of routes) app[method](path, handle);
  for (const path of new Set(routes.map((route) => route.path))) {
    const its = routes.filter((route) => route.path === path);
    if (its.some(({ method }) => method === 'any')) continue;
    const methods = its.map(({ method }) => (method === 'del' ? 'DELETE' : method.toUpperCase()));
    const allow = [['Allow', methods.join(', ')]] as const;
    const headers = its.find((route) => route.headers !== undefined)?.headers;
    const reason = rejection('method_not_allowed', outcomes.method_not_allowed.meaning);
    app.any(path, (res, req) => withoutBody(new Exchange(res, req, headers)).refuse(reason, {}, allow));
  }
  app.any('/*', notFound());
}

/** Answers 404. */
export function notFound(headers: Headers = []): Handler {
  const reason = rejection('not_found', outcomes.not_found.meaning);
  return (res, req) => withoutBody(new Exchange(res, req, headers)).refuse(reason);
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
