// One signed POST to an address of a callback. The name is resolved once, and connections go to exactly the addresses that were checked,
// one after another until one connects. So a name whose addresses change cannot lead elsewhere. Redirects are not followed, and only
// the status of the answer is read.

import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import { callbacks } from '../../contract/limits.js';
import { type AddressCheck, createAddressCheck } from './callback-addresses.js';
import { createResolve, type Resolve } from './callback-names.js';

export type CallOptions = {
  readonly isAllowed: AddressCheck;
  readonly resolve?: Resolve;
  readonly msMax?: number;
  readonly nowMs?: () => number;
};

export function callOptionsOf(allowed: readonly string[]): CallOptions {
  return { isAllowed: createAddressCheck(allowed), resolve: createResolve(allowed) };
}

export type CallError =
  | 'address_not_allowed'
  | 'name_not_resolved'
  | 'connection_refused'
  | 'connection_failed'
  | 'no_answer_in_time';

export type CallResult = { readonly answer: number } | { readonly error: CallError };

export type CallbackProgress = {
  /** `failed`: it was tried for a day, or the account no longer wants calls. */
  readonly state: 'pending' | 'delivered' | 'failed';
  /** The latest tries, the oldest first. */
  readonly tries: readonly CallbackTry[];
};

export type CallbackTry = { readonly at: string } & (CallResult | { readonly error: 'callback_removed' });

export function isAccepted(result: CallResult): boolean {
  return 'answer' in result && result.answer >= 200 && result.answer < 300;
}

/** The header by which the receiver recognises a genuine call and its age: `t` in seconds since 1970, `v1` over `t.body`. */
export function signatureOf(secret: string, body: string, nowMs: number): string {
  const seconds = Math.floor(nowMs / 1_000);
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}

/**
 * Whether calls to a URL are refused because of its host's current addresses. A name without addresses may get one later, and every call
 * resolves it again. Settles by the deadline of a call.
 */
export async function isForbidden(text: string, options: CallOptions): Promise<boolean> {
  const host = hostOf(new URL(text));
  const addresses = await addressesOf(host, options);
  return !addresses.every((each) => options.isAllowed(host, each));
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1');
}

/** The addresses of a host; empty if it has none or they are not resolved in time. Half of the time is left for the call itself. */
async function addressesOf(
  host: string,
  { resolve = createResolve([]), msMax = callbacks.callMsMax }: CallOptions,
): Promise<readonly string[]> {
  return isIP(host) === 0 ? resolve(host, msMax / 2).catch(() => []) : [host];
}

/** Settles with the result of the call, by its deadline at the latest. Never rejects. */
export async function call(
  { url: text, secret }: { readonly url: string; readonly secret: string },
  body: string,
  options: CallOptions,
): Promise<CallResult> {
  const { isAllowed, msMax = callbacks.callMsMax, nowMs = Date.now } = options;
  const url = new URL(text);
  const late = AbortSignal.timeout(msMax);
  const inTime = once(late, 'abort').then((): CallResult => ({ error: 'no_answer_in_time' }));
  const endsAt = performance.now() + msMax;
  const host = hostOf(url);
  const work = async (): Promise<CallResult> => {
    const addresses = await addressesOf(host, options);
    if (addresses.length === 0) return { error: 'name_not_resolved' };
    // If one of its addresses is not allowed, the whole name is refused.
    if (!addresses.every((each) => isAllowed(host, each))) return { error: 'address_not_allowed' };
    const signature = signatureOf(secret, body, nowMs());
    return sendToOneOf(addresses, { url, host, body, signature, signal: late }, endsAt);
  };
  return Promise.race([work(), inTime]);
}

type Message = {
  readonly url: URL;
  readonly host: string;
  readonly body: string;
  readonly signature: string;
  readonly signal: AbortSignal;
};

/** Sends to the first address that connects. If none does, settles with why the first one did not. */
async function sendToOneOf(
  addresses: readonly string[],
  message: Message,
  endsAt: number,
): Promise<CallResult> {
  let first: CallResult | undefined;
  const tried = addresses.slice(0, callbacks.addressesTriedMax);
  for (const [at, address] of tried.entries()) {
    // An address that does not answer leaves time for the others.
    const connectMsMax = (endsAt - performance.now()) / (tried.length - at);
    const { result, isConnected } = await send(message, address, connectMsMax);
    if (isConnected || message.signal.aborted) return result;
    first ??= result;
  }
  return first ?? { error: 'name_not_resolved' };
}

type Sent = { readonly result: CallResult; readonly isConnected: boolean };

function send(
  { url, host, body, signature, signal }: Message,
  address: string,
  connectMsMax: number,
): Promise<Sent> {
  const isHttps = url.protocol === 'https:';
  const request = isHttps ? requestHttps : requestHttp;
  return new Promise((settle) => {
    let isConnected = false;
    const end = (result: CallResult) => {
      clearTimeout(timer);
      settle({ result, isConnected });
    };
    const sent = request({
      host: address,
      port: url.port === '' ? (isHttps ? 443 : 80) : Number(url.port),
      method: 'POST',
      path: `${url.pathname}${url.search}`,
      // The certificate is checked against the name. An address has no name to send.
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
    const timer = setTimeout(() => {
      end({ error: 'no_answer_in_time' });
      sent.destroy();
    }, connectMsMax);
    sent.once('socket', (socket) => {
      socket.once(isHttps ? 'secureConnect' : 'connect', () => {
        isConnected = true;
        clearTimeout(timer);
      });
    });
    sent.once('response', (answer) => {
      // The body is not needed, however long it is.
      answer.destroy();
      end({ answer: answer.statusCode ?? 0 });
    });
    sent.on('error', (error: NodeJS.ErrnoException) => {
      end({ error: error.code === 'ECONNREFUSED' ? 'connection_refused' : 'connection_failed' });
    });
    sent.end(body);
  });
}
