// The public server: routes, listening and closing. Every known path answers other methods with 405, and
// every other path with 404, both in JSON; an unmatched route would close the connection.

import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js';
import uws from 'uWebSockets.js';
import { createServer } from 'node:net';
import { outcomes, rejection } from '../contract/outcomes.js';
import type { Log } from '../log.js';
import { allAnswered, Exchange, type Headers } from './exchange.js';
import { noteFault } from './fault.js';

/** Begins with a request; `req` may be read until this returns. What it throws fails the request alone. */
export type Handler = (exchange: Exchange, req: HttpRequest) => unknown;

export type Method = 'get' | 'head' | 'post' | 'put' | 'patch' | 'del' | 'options' | 'any';

export type Route = {
  readonly method: Method;
  readonly path: string;
  readonly handle: Handler;
  /** Sent with whatever answer the path gives, also with the 405 that other methods of it get. */
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
  log: Log,
  attach: (app: TemplatedApp) => void = () => undefined,
): Promise<Server> {
  // Two processes that listen through uWebSockets.js share a port without an error.
  if (!shared) await assertPortFree(host, port, portVariable);
  const app = uws.App();
  attach(app);
  addRoutes(app, routes, log);
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

function addRoutes(app: TemplatedApp, routes: readonly Route[], log: Log): void {
  const add = ({ method, path, handle, headers = [] }: Route) => {
    const note = (error: unknown) => noteFault(log, path, error);
    app[method](path, (res: HttpResponse, req: HttpRequest) => {
      const exchange = new Exchange(res, req, headers, note);
      exchange.guard(handle)(exchange, req);
    });
  };
  for (const route of routes) add(route);
  for (const path of new Set(routes.map((route) => route.path))) {
    const its = routes.filter((route) => route.path === path);
    if (its.some(({ method }) => method === 'any')) continue;
    const methods = its.map(({ method }) => (method === 'del' ? 'DELETE' : method.toUpperCase()));
    const allow = [['Allow', methods.join(', ')]] as const;
    const headers = its.find((route) => route.headers !== undefined)?.headers;
    const reason = rejection('method_not_allowed', outcomes.method_not_allowed.meaning);
    const handle: Handler = (exchange) => withoutBody(exchange).refuse(reason, {}, allow);
    add({ method: 'any', path, handle, ...(headers === undefined ? {} : { headers }) });
  }
  add({ method: 'any', path: '/*', handle: notFound });
}

/** Answers 404. */
export function notFound(exchange: Exchange): void {
  withoutBody(exchange).refuse(rejection('not_found', outcomes.not_found.meaning));
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
