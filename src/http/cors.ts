// Opens paths to the pages of any site. Nothing here looks at who asks, and no answer depends on cookies, so the
// answer to every preflight is the same and needs no `Vary`. All other paths stay closed: they answer a
// preflight 405, without a word of CORS.
// @see https://fetch.spec.whatwg.org/#http-cors-protocol

import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { Exchange, type Headers } from './exchange.js';
import { notFound, type Route, withoutBody } from './server.js';

/** For every answer of an open path, refusals too: without them a page cannot read why it was refused. */
export const openToPages: Headers = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', 'Retry-After'],
];

/** How long browsers may remember the answer to a preflight; most keep it for two hours at most. */
const preflightSeconds = 24 * 60 * 60;

/**
 * The routes of POST endpoints for pages, with their preflights. A handler makes its exchange with
 * `openToPages`; what the router answers by itself (404 below the path, 405) carries the same headers.
 */
export function openRoutes(routes: readonly Route[]): Route[] {
  const paths = [...new Set(routes.map(({ path }) => path))];
  return [
    ...routes.map((route) => ({ ...route, headers: openToPages })),
    ...paths.map((path): Route => ({ method: 'options', path, handle: preflight })),
    ...paths.map((path): Route => ({ method: 'any', path: `${path}/*`, handle: notFound(openToPages) })),
  ];
}

function preflight(res: HttpResponse, req: HttpRequest): void {
  // A page on the internet asks so before it talks to a service in a private network.
  const privateNetwork = req.getHeader('access-control-request-private-network') === 'true';
  const exchange = withoutBody(new Exchange(res, req, openToPages));
  exchange.replyEmpty(204, [
    ['Access-Control-Allow-Methods', 'POST'],
    ['Access-Control-Allow-Headers', 'Content-Type, Content-Encoding'],
    ['Access-Control-Max-Age', String(preflightSeconds)],
    ...(privateNetwork ? ([['Access-Control-Allow-Private-Network', 'true']] as const) : []),
  ]);
}
