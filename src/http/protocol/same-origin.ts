// Whether a request comes from a page of this server. Requests that need no secret are refused if they come from pages of other sites, or
// from pages that reach this address under a host name of their own.

import type { HttpRequest } from 'uWebSockets.js';
import { isIP } from 'node:net';

/**
 * Whether the calling page, if there is one, was served from the address that it calls, with the same scheme: an attacker in the network
 * can serve an http page beside our https page. `baseUrl`: the address that is served with TLS, if there is one; browsers may use other
 * names without TLS.
 */
export function isSameOrigin(req: HttpRequest, baseUrl: string): boolean {
  const site = req.getHeader('sec-fetch-site');
  if (site !== '' && site !== 'same-origin' && site !== 'none') return false;
  const origin = req.getHeader('origin');
  if (origin === '') return true;
  const base = new URL(baseUrl);
  const called = (protocol: string) => originOf(`${protocol}//${req.getHeader('host')}`);
  const expected = called(base.protocol) === base.origin ? base.origin : called('http:');
  return expected !== undefined && originOf(origin) === expected;
}

function originOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).origin : undefined;
}

/**
 * Whether the request names this server by an address, `localhost`, or one of `names`. If a page had its own name pointed at this address
 * after it had loaded (DNS rebinding), its requests carry that name.
 */
export function isOwnHost(req: HttpRequest, names: readonly string[]): boolean {
  const host = req.getHeader('host');
  if (!URL.canParse(`http://${host}`)) return false;
  const name = new URL(`http://${host}`).hostname.toLowerCase();
  const bare = name.replace(/^\[|\]$/g, '');
  return isIP(bare) !== 0 || name === 'localhost' || name.endsWith('.localhost') || names.includes(name);
}
