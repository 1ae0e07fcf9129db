// The origins of pages from which an environment takes the client library's messages. Browsers set the header Origin and pages
// cannot change it, so this keeps the pages of other sites away. Other programs send whatever they like.

import { AdministrationError } from '../contract/errors.js';
import { administration } from '../contract/limits.js';

/** Stands for requests without the header: from phones, and from other programs. */
const apps = 'apps';

/**
 * Reads a list: `any` alone, `none` alone, or origins such as `https://shop.example.com`, `null` (pages without an origin,
 * such as local files) and `apps`. Settles on `any` or the list; an empty one takes nothing.
 */
export function parseOrigins(values: readonly string[]): 'any' | readonly string[] {
  if (values.length === 1 && values[0] === 'any') return 'any';
  if (values.length === 0 || (values.length === 1 && values[0] === 'none')) return [];
  if (values.length > administration.originsMax)
    throw new AdministrationError(`an environment can list ${administration.originsMax} origins`);
  return [...new Set(values.map(parseOrigin))];
}

/** Whether messages are taken from a sender with this Origin header. */
export function isAllowedOrigin(
  origins: ReadonlySet<string> | undefined,
  origin: string | undefined,
): boolean {
  return origins === undefined || origins.has(origin ?? apps);
}

function parseOrigin(text: string): string {
  if (text === apps || text === 'null') return text;
  if (text.length > administration.originMax)
    throw new AdministrationError(`an origin must have at most ${administration.originMax} characters`);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  // Of anything but an origin (a path, a user, a wildcard) no browser sends the same text.
  if (!/^https?:$/.test(url?.protocol ?? '') || url?.href !== `${url?.origin}/` || text.includes('*'))
    throw new AdministrationError(
      'an origin must be such as https://shop.example.com, or null or apps; or any or none alone',
    );
  return url.origin;
}
