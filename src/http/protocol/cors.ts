// Opens paths to the pages of any site. Nothing depends on the caller's origin or on cookies, so every preflight gets the same answer,
// without `Vary`. All other paths stay closed: they answer a preflight with 405, without CORS headers.
// @see https://fetch.spec.whatwg.org/#http-cors-protocol

import type { HttpRequest } from 'uWebSockets.js';
import { browserCaches } from '../../contract/limits.js';
import type { Exchange, Headers } from './exchange.js';
import { notFound, type Route } from './server.js';

/** The header that names the fields of a request that the service does not know. */
export const ignoredFieldsHeader = 'Sluice-Ignored';

/** The headers of every answer of an open path. Refusals have them too: otherwise a page cannot read why it was refused. */
export const openToPages: Headers = [
  ['Access-Control-Allow-Origin', '*'],
  ['Access-Control-Expose-Headers', `Retry-After, ${ignoredFieldsHeader}`],
];

/**
 * The routes of endpoints for pages, with their preflights and the 404s for paths below them, all open. Pages may also send the headers
 * `moreHeaders`.
 */
export function openRoutes(routes: readonly Route[], moreHeaders: readonly string[] = []): Route[] {
  const paths = [...new Set(routes.map(({ path }) => path))];
  const sent = ['Content-Type', 'Content-Encoding', ...moreHeaders].join(', ');
  const handle = (exchange: Exchange, req: HttpRequest) => preflight(exchange, req, sent);
  return [
    ...routes,
    ...paths.map((path): Route => ({ method: 'options', path, handle })),
    ...paths.map((path): Route => ({ method: 'any', path: `${path}/*`, handle: notFound })),
  ].map((route) => ({ ...route, headers: openToPages }));
}

function preflight(exchange: Exchange, req: HttpRequest, sentHeaders: string): void {
  // A page on the internet asks for this before it calls a service in a private network.
  const privateNetwork = req.getHeader('access-control-request-private-network') === 'true';
  exchange
    .dropBody()
    .replyEmpty(204, [
      ['Access-Control-Allow-Methods', 'POST'],
      ['Access-Control-Allow-Headers', sentHeaders],
      ['Access-Control-Max-Age', String(browserCaches.preflightSeconds)],
      ...(privateNetwork ? ([['Access-Control-Allow-Private-Network', 'true']] as const) : []),
    ]);
}
