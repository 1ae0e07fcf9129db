// The headers of a request that is answered 429, or that should come again.
// @see https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/

import type { NamedLimit } from '../../ingest/request-limits.js';
import type { Headers } from '../protocol/exchange.js';

/** When the client may ask again. */
export function retryAfter(seconds: number): Headers {
  return [['Retry-After', String(Math.ceil(seconds))]];
}

/** Which limit was exceeded, and in how many seconds it has room again. */
export function rateLimitHeaders(
  { name, limit }: Pick<NamedLimit, 'name' | 'limit'>,
  waitMs: number,
): Headers {
  const waitSeconds = Math.max(1, Math.ceil(waitMs / 1000));
  return [
    ...retryAfter(waitSeconds),
    ['RateLimit-Policy', `"${name}";q=${limit.max};w=${limit.windowMs / 1000}`],
    ['RateLimit', `"${name}";r=0;t=${waitSeconds}`],
  ];
}
