// The address of the sender of a request: that of the connection or, behind the proxies of TRUSTED_PROXIES, the one that they forward.
// Counts of failures and limits by address use it.
//
// Each proxy appends the address that called it to X-Forwarded-For or Forwarded; the caller may have made up whatever is left of that. So
// the addresses are read from the right, up to the first that does not belong to a trusted proxy.
// @see https://www.rfc-editor.org/rfc/rfc7239

import { BlockList, isIP } from 'node:net';
import type { Framing } from './framing.js';

export type ForwardingHeaders = Pick<Framing, 'forwardedFor' | 'forwarded'>;

/** The caller's address in its shortest form. `connection`: the address of the connection, as uWebSockets.js gives it. */
export type CallerAddress = (connection: ArrayBuffer, headers: ForwardingHeaders) => string;

/** Whether an address belongs to a trusted proxy. `trustedProxies`: as `config.ts` has checked them. */
export function createProxyCheck(trustedProxies: readonly string[]): (address: string) => boolean {
  const trusted = new BlockList();
  for (const proxy of trustedProxies) {
    const [address = '', bits] = proxy.split('/');
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) trusted.addAddress(address, family);
    else trusted.addSubnet(address, Number(bits), family);
  }
  return (address) =>
    trustedProxies.length > 0 && trusted.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

/** The address of a connection in its shortest form, from the bytes that uWebSockets.js gives. */
export function addressOf(connection: ArrayBuffer): string {
  const text = Buffer.from(connection).toString('latin1');
  return shortest(text) ?? text;
}

/** `trustedProxies`: addresses and networks, as `config.ts` has checked them. */
export function createCallerAddress(trustedProxies: readonly string[]): CallerAddress {
  const isTrusted = createProxyCheck(trustedProxies);

  /** The leftmost address that a trusted proxy has added. `forwarded`: addresses in the order of the header. */
  function follow(proxy: string, forwarded: readonly string[]): string {
    let caller = proxy;
    for (let at = forwarded.length - 1; at >= 0 && isTrusted(caller); at--) {
      const address = shortest(withoutPort(forwarded[at] as string));
      // A value that is no address, such as `unknown`, hides who is behind it.
      if (address === undefined) break;
      caller = address;
    }
    return caller;
  }

  return (connection, { forwardedFor, forwarded }) => {
    const peer = addressOf(connection);
    if (!isTrusted(peer)) return peer;
    const callers = new Set<string>();
    if (forwardedFor !== undefined) callers.add(follow(peer, forwardedFor.split(',')));
    if (forwarded !== undefined) callers.add(follow(peer, readForwarded(forwarded)));
    // A proxy that sets one of the two headers passes the other on, which the caller may have made up. If they disagree, neither counts.
    const [caller] = callers;
    return callers.size === 1 ? (caller as string) : peer;
  };
}

/**
 * The unit of limits by address: an IPv4 address, or the 64-bit network of an IPv6 address, since whoever owns one such address has its
 * whole network.
 */
export function networkOf(address: string): string {
  if (isIP(address) !== 6) return address;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  if (tail !== undefined) {
    const last = tail === '' ? [] : tail.split(':');
    groups.push(...Array<string>(8 - groups.length - last.length).fill('0'), ...last);
  }
  return `${groups.slice(0, 4).join(':')}::/64`;
}

/** An address in its shortest form; undefined if the text is no address. An IPv4 address within IPv6 becomes IPv4. */
function shortest(text: string): string | undefined {
  const family = isIP(text);
  if (family === 4) return text;
  // A percent sign is followed by a zone, which has a meaning only on this machine.
  if (family === 0 || text.includes('%')) return undefined;
  const short = new URL(`http://[${text}]`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]+):([0-9a-f]+)$/.exec(short);
  if (mapped === null) return short;
  const [high, low] = [Number.parseInt(mapped[1] as string, 16), Number.parseInt(mapped[2] as string, 16)];
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

/** The address in `192.0.2.7:4711` or `[2001:db8::7]:4711`, without port and brackets. */
function withoutPort(text: string): string {
  const node = text.trim();
  const bracketed = /^\[([^\]]*)\](?::\d+)?$/.exec(node)?.[1];
  if (bracketed !== undefined) return bracketed;
  return /^([\d.]+):\d+$/.exec(node)?.[1] ?? node;
}

/**
 * The nodes of a Forwarded header; an empty text for an element whose node cannot be read. Splits at every comma, even within quotes: no
 * address has a comma, and so a caller's unclosed quote cannot swallow what the proxy has added.
 */
function readForwarded(header: string): string[] {
  return header.split(',').map((element) => {
    const pair = element.split(';').find((part) => part.trimStart().toLowerCase().startsWith('for='));
    const node = pair?.slice(pair.indexOf('=') + 1).trim() ?? '';
    return /^"([^"]*)"$/.exec(node)?.[1] ?? node;
  });
}
