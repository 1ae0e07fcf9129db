// The origins of pages from which an environment takes the client library's messages. Browsers set the header Origin and pages cannot
// change it, so this keeps out the pages of other sites. Other programs can send any header.

import { AdministrationError } from '../contract/errors.js';
import { administration } from '../contract/limits.js';

/** Stands for requests without the header: from phones, and from other programs. */
const apps = 'apps';

/**
 * Reads a list: `any` alone, `none` alone, or origins such as `https://shop.example.com`, `null` (pages without an origin,
 * such as local files) and `apps`. Returns `any` or the list; an empty list takes nothing.
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
  // Browsers never send anything but an origin: no path, no user, no wildcard.
  if (!/^https?:$/.test(url?.protocol ?? '') || url?.href !== `${url?.origin}/` || text.includes('*'))
    throw new AdministrationError(
      'an origin must look like https://shop.example.com, or be null or apps; any and none must stand alone',
    );
  return url.origin;
}
