// Opens paths to the pages of any site. Nothing here looks at who asks, and no answer depends on cookies, so the
// answer to every preflight is the same and needs no `Vary`. All other paths stay closed: they answer a
// preflight 405, without a word of CORS.
// @see https://fetch.spec.whatwg.org/#http-cors-protocol

import type { HttpRequest } from 'uWebSockets.js';
import type { Exchange, Headers } from './exchange.js';
import { notFound, type Route, withoutBody } from './server.js';

/** For every answer of an open path, refusals too: without them a page cannot read why it was refused. */
export const openToPages: Headers = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', 'Retry-After'],
];

/** How long browsers may remember the answer to a preflight; most keep it for two hours at most. */
const preflightSeconds = 24 * 60 * 60;

/** The routes of POST endpoints for pages, with their preflights and the 404s below them, all open. */
export function openRoutes(routes: readonly Route[]): Route[] {
  const paths = [...new Set(routes.map(({ path }) => path))];
  return [
    ...routes,
    ...paths.map((path): Route => ({ method: 'options', path, handle: preflight })),
    ...paths.map((path): Route => ({ method: 'any', path: `${path}/*`, handle: notFound })),
  ].map((route) => ({ ...route, headers: openToPages }));
}

function preflight(exchange: Exchange, req: HttpRequest): void {
  // A page on the internet asks so before it talks to a service in a private network.
  const privateNetwork = req.getHeader('access-control-request-private-network') === 'true';
  withoutBody(exchange).replyEmpty(204, [
    ['Access-Control-Allow-Methods', 'POST'],
    ['Access-Control-Allow-Headers', 'Content-Type, Content-Encoding'],
    ['Access-Control-Max-Age', String(preflightSeconds)],
    ...(privateNetwork ? ([['Access-Control-Allow-Private-Network', 'true']] as const) : []),
  ]);
}
