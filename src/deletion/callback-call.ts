// One signed POST to the address of a callback. The name is resolved once, and the connection goes to that very address. So a
// name whose resolution changes cannot lead elsewhere. Redirects are not followed, and only the status of the answer is read.

import { createHmac } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import { callbacks } from '../contract/limits.js';
import type { AddressCheck } from './callback-addresses.js';

export type CallOptions = {
  readonly isAllowed: AddressCheck;
  /** All addresses of a name. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
  readonly msMax?: number;
  readonly nowMs?: () => number;
};

export type CallError =
  | 'address_not_allowed'
  | 'name_not_resolved'
  | 'connection_refused'
  | 'connection_failed'
  | 'no_answer_in_time';

/** The status that was answered, or why there was no answer. */
export type CallResult = { readonly answer: number } | { readonly error: CallError };

/** What is known of the callback of a complete request. */
export type CallbackProgress = {
  /** `failed`: it was tried for a day, or the account no longer wants calls. */
  readonly state: 'pending' | 'delivered' | 'failed';
  /** The latest, the oldest first. */
  readonly tries: readonly CallbackTry[];
};

export type CallbackTry = { readonly at: string } & (CallResult | { readonly error: 'callback_removed' });

/** Whether the other side has taken the call. */
export function isTaken(result: CallResult): boolean {
  return 'answer' in result && result.answer >= 200 && result.answer < 300;
}

/** The header by which the receiver knows a genuine call and its age: `t` in seconds since 1970, `v1` of `t.body`. */
export function signatureOf(secret: string, body: string, nowMs: number): string {
  const seconds = Math.floor(nowMs / 1_000);
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}

/** Settles with what became of the call, by its deadline at the latest. Never rejects. */
export async function call(
  { url: text, secret }: { readonly url: string; readonly secret: string },
  body: string,
  options: CallOptions,
): Promise<CallResult> {
  const { isAllowed, resolve = resolveAll, msMax = callbacks.callMsMax, nowMs = Date.now } = options;
  const url = new URL(text);
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), msMax);
  const inTime = new Promise<CallResult>((settle) => {
    late.signal.addEventListener('abort', () => settle({ error: 'no_answer_in_time' }), { once: true });
  });
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const work = async (): Promise<CallResult> => {
    const addresses = isIP(host) === 0 ? await resolve(host).catch(() => []) : [host];
    const [address] = addresses;
    if (address === undefined) return { error: 'name_not_resolved' };
    // If one of its addresses is not allowed, the name is refused as a whole.
    if (!addresses.every((each) => isAllowed(host, each))) return { error: 'address_not_allowed' };
    return send(url, host, address, body, signatureOf(secret, body, nowMs()), late.signal);
  };
  try {
    return await Promise.race([work(), inTime]);
  } finally {
    clearTimeout(timer);
    late.abort();
  }
}

function send(
  url: URL,
  host: string,
  address: string,
  body: string,
  signature: string,
  signal: AbortSignal,
): Promise<CallResult> {
  const request = url.protocol === 'https:' ? requestHttps : requestHttp;
  return new Promise((settle) => {
    const sent = request({
      host: address,
      port: url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port),
      method: 'POST',
      path: `${url.pathname}${url.search}`,
      // The certificate is checked against the name. An address has no name that could be told.
      ...(isIP(host) === 0 ? { servername: host } : {}),
      headers: {
        Host: url.host,
        'Content-Type': 'application/json',
        'Content-Length': Buffer.byteLength(body),
        'User-Agent': 'Sluice',
        'Sluice-Signature': signature,
      },
      agent: false,
      signal,
    });
    sent.once('response', (answer) => {
      // Its body says nothing that we need, however long it is.
      answer.destroy();
      settle({ answer: answer.statusCode ?? 0 });
    });
    sent.once('error', (error: NodeJS.ErrnoException) => {
      settle({ error: error.code === 'ECONNREFUSED' ? 'connection_refused' : 'connection_failed' });
    });
    sent.end(body);
  });
}

async function resolveAll(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address);
}
