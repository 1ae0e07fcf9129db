// The HTTP server: routes, listening and closing. A known path answers other methods with 405, and an unknown path is answered 404, both in
// JSON. Otherwise uWebSockets.js would close the connection.

import type { HttpRequest, HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { AdministrationError } from '../../contract/errors.js';
import { rejection } from '../../contract/outcomes.js';
import type { Buckets } from '../../hot-histogram.js';
import type { Log } from '../../log.js';
import { requestSeconds } from '../../metrics.js';
import { type CallerAddress, createCallerAddress } from './caller-address.js';
import { allAnswered, Exchange, type Headers } from './exchange.js';
import { noteFault } from './failed.js';
import { front, headerBound } from './front.js';

/** Handles a request; `req` may be read only until this returns. If it throws, only this request fails. */
export type Handler = (exchange: Exchange, req: HttpRequest) => unknown;

export type Method = 'get' | 'head' | 'post' | 'put' | 'patch' | 'del' | 'options' | 'any';

export type Route = {
  readonly method: Method;
  readonly path: string;
  readonly handle: Handler;
  /** Sent with every answer of the path, including the 405 for other methods. */
  readonly headers?: Headers;
  /** The route in the OpenAPI document, made by `operation` of openapi/document.ts. Without it, the route is not in the document. */
  readonly doc?: object;
};

/** A route that answers HEAD as well as GET. */
export function withHead(route: Omit<Route, 'method'>): Route[] {
  const { doc: _, ...head } = route;
  return [
    { method: 'get', ...route },
    { method: 'head', ...head },
  ];
}

export type Server = {
  /** Stops accepting connections. Settles when all requests that had begun are answered. */
  close(): Promise<void>;
};

/**
 * Listens on an address. If that fails, rejects and names the variable that sets the port. `attach` adds handlers that are not routes, such
 * as WebSockets. By default no proxy is trusted.
 */
export async function listen(
  host: string,
  port: number,
  portVariable: string,
  shared: boolean,
  routes: readonly Route[],
  log: Log,
  callerAddress: CallerAddress = createCallerAddress([]),
  attach: (app: TemplatedApp) => void = () => undefined,
): Promise<Server> {
  // uWebSockets.js lets two processes listen on the same port without an error.
  if (!shared) await assertPortFree(host, port, portVariable);
  const uws = front();
  const app = uws.App();
  attach(app);
  addRoutes(app, routes, log, callerAddress);
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

export class PortTaken extends AdministrationError {
  constructor(variable: string, host: string, port: number) {
    super(`${variable}: cannot listen on ${host}:${port}; is it in use?`);
  }
}

function addRoutes(
  app: TemplatedApp,
  routes: readonly Route[],
  log: Log,
  callerAddress: CallerAddress,
): void {
  const add = ({ method, path, handle, headers = [] }: Route) => {
    const note = (error: unknown) => noteFault(log, path, error);
    const time = timeOf(path);
    app[method](path, (res: HttpResponse, req: HttpRequest) => {
      const exchange = new Exchange(res, req, headers, note, callerAddress, time);
      exchange.run(
        exchange.framing.headerBytes > headerBound.bytesMax ? refuseHeaders : handle,
        exchange,
        req,
      );
    });
  };
  for (const route of routes) add(route);
  for (const path of new Set(routes.map((route) => route.path))) {
    const ofPath = routes.filter((route) => route.path === path);
    if (ofPath.some(({ method }) => method === 'any')) continue;
    const methods = ofPath.map(({ method }) => (method === 'del' ? 'DELETE' : method.toUpperCase()));
    const allow = [['Allow', methods.join(', ')]] as const;
    const headers = ofPath.find((route) => route.headers !== undefined)?.headers;
    const reason = rejection('method_not_allowed');
    const handle: Handler = (exchange) => exchange.dropBody().refuse(reason, {}, allow);
    add({ method: 'any', path, handle, ...(headers === undefined ? {} : { headers }) });
  }
  if (!routes.some(({ path }) => path === '/*')) add({ method: 'any', path: '/*', handle: notFound });
}

/** Measures how long requests of a path take, by the status of their answers. */
function timeOf(path: string): (status: number, ms: number) => void {
  const byStatus: (Buckets | undefined)[] = [];
  // These series exist from the start: otherwise a rate would miss the first 503, with which its series begins.
  for (const status of [200, 503])
    byStatus[status] = requestSeconds.of({ endpoint: path, status: `${status}` });
  return (status, ms) => {
    let buckets = byStatus[status];
    if (buckets === undefined) {
      buckets = requestSeconds.of({ endpoint: path, status: `${status}` });
      byStatus[status] = buckets;
    }
    buckets.observe(ms / 1_000);
  };
}

function refuseHeaders(exchange: Exchange): void {
  const reason = `The headers must have at most ${headerBound.bytesMax} bytes: cookies or a proxy's tokens may be too long.`;
  exchange.dropBody().refuse(rejection('headers_too_large', reason));
}

/** Answers 404. */
export function notFound(exchange: Exchange): void {
  exchange.dropBody().refuse(rejection('not_found'));
}

async function assertPortFree(host: string, port: number, variable: string): Promise<void> {
  const probe = createServer().listen({ host, port, exclusive: true });
  await once(probe, 'listening').catch(() => {
    throw new PortTaken(variable, host, port);
  });
  await once(probe.close(), 'close');
}
