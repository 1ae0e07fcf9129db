// Whether a request comes from a page of this very server. Pages of other sites, and those that reach this
// address under a name of theirs, get nothing that has no secret of its own.

import type { HttpRequest } from 'uWebSockets.js';
import { isIP } from 'node:net';

/** Whether the page that asks, if one does, was served under the address that it asks. */
export function isSameOrigin(req: HttpRequest): boolean {
  const site = req.getHeader('sec-fetch-site');
  if (site !== '' && site !== 'same-origin' && site !== 'none') return false;
  const origin = req.getHeader('origin');
  if (origin === '') return true;
  return URL.canParse(origin) && new URL(origin).host === req.getHeader('host').toLowerCase();
}

/**
 * Whether the request names this server by an address, `localhost`, or one of `names`. A page whose own name
 * was pointed at this address after it had loaded (DNS rebinding) names that instead.
 */
export function isOwnHost(req: HttpRequest, names: readonly string[]): boolean {
  const host = req.getHeader('host');
  if (!URL.canParse(`http://${host}`)) return false;
  const name = new URL(`http://${host}`).hostname.toLowerCase();
  const bare = name.replace(/^\[|\]$/g, '');
  return isIP(bare) !== 0 || name === 'localhost' || name.endsWith('.localhost') || names.includes(name);
}
