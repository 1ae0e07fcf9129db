// One request and its answer. Keeps the rules of uWebSockets.js in one place: handlers for data and abortion
// are attached at once, the request is read before its handler returns, an aborted response is never
// touched, and every answer is written inside one cork.

import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { overloadedRetrySeconds } from '../contract/limits.js';
import { type OutcomeCode, outcomes, type Rejection } from '../contract/outcomes.js';
import { type Framing, readFraming } from './framing.js';

const statusLines: Readonly<Record<number, string>> = {
  200: '200 OK',
  201: '201 Created',
  204: '204 No Content',
  304: '304 Not Modified',
  400: '400 Bad Request',
  401: '401 Unauthorized',
  404: '404 Not Found',
  405: '405 Method Not Allowed',
  413: '413 Payload Too Large',
  415: '415 Unsupported Media Type',
  429: '429 Too Many Requests',
  503: '503 Service Unavailable',
};

/** A body that nobody reads is waited for up to this size. */
const droppedBytesMax = 1024 * 1024;

export type Headers = readonly (readonly [name: string, value: string])[];

export class Exchange {
  /** Whether an answer was sent or can no longer be. */
  ended = false;
  readonly framing: Framing;
  readonly query: string;
  readonly head: boolean;
  #res: HttpResponse;
  #headers: Headers;
  #closeAfter: boolean;
  /** Whether the client is gone; the response must not be touched then. */
  #gone = false;
  #finished = false;
  #bodyPending = false;
  #heldAnswer: (() => void) | undefined;
  #release: (() => void) | undefined;

  /** `headers` are sent with whatever answer the request gets. */
  constructor(res: HttpResponse, req: HttpRequest, headers: Headers = []) {
    this.#res = res;
    this.#headers = headers;
    this.framing = readFraming(req);
    this.query = req.getQuery() ?? '';
    this.head = req.getMethod() === 'head';
    // Malformed chunks cannot be seen from here; a closed connection cannot be desynchronised by them, nor by
    // a length that a proxy may have read in another way.
    this.#closeAfter = this.framing.chunked || this.framing.fault !== undefined;
    openExchanges.count += 1;
    res.onAborted(() => {
      this.ended = true;
      this.#gone = true;
      this.#finish();
    });
  }

  /** Hands the chunks of the body to `take`, each a view that dies when `take` returns. */
  onData(take: (chunk: Buffer, last: boolean) => void): void {
    this.#res.onData((chunk, last) => {
      if (!this.ended) take(Buffer.from(chunk), last);
    });
  }

  /**
   * Drops the body. The answer waits until it has passed: the parser ends its timer when a body ends, so an
   * answer before that would leave a connection that nothing closes; and a client that is still sending when
   * the connection closes never sees its answer. A body above `bytesMax` is cut off all the same.
   */
  dropBody(bytesMax = droppedBytesMax): void {
    const { length } = this.framing;
    if (length === 0) return;
    if (length === undefined || length > bytesMax) this.#closeAfter = true;
    this.#bodyPending = !this.#closeAfter;
    this.#res.onData((_, last) => {
      if (!last || !this.#bodyPending) return;
      this.#bodyPending = false;
      this.#heldAnswer?.();
    });
  }

  /** The address that the request came from. */
  get address(): string {
    return Buffer.from(this.#res.getRemoteAddressAsText()).toString('latin1');
  }

  /** Calls `release` when the request is answered or aborted. */
  onGone(release: () => void): void {
    this.#release = release;
  }

  /** Sends an answer, unless one was sent or the client is gone. */
  reply(status: number, body: string | Buffer, headers: Headers = [], type = 'application/json'): void {
    this.#answer(() => this.#send(status, body, headers, type));
  }

  /** The same without a body, for the statuses that never have one: 204 and 304. */
  replyEmpty(status: 204 | 304, headers: Headers): void {
    this.#answer(() => this.#send(status, undefined, headers, ''));
  }

  #answer(send: () => void): void {
    if (this.ended) return;
    this.ended = true;
    if (this.#bodyPending) {
      this.#heldAnswer = send;
      return;
    }
    if (!this.#closeAfter) return send();
    // Not in this turn: bytes behind an ambiguous request would be parsed as another one before the connection
    // closes. While an answer is pending, the parser closes the connection instead.
    setImmediate(send);
  }

  #send(status: number, body: string | Buffer | undefined, headers: Headers, type: string): void {
    this.#finish();
    if (this.#gone) return;
    const res = this.#res;
    res.cork(() => {
      if (status !== 200) res.writeStatus(statusLines[status] ?? String(status));
      if (body !== undefined) res.writeHeader('Content-Type', type);
      for (const [name, value] of this.#headers) res.writeHeader(name, value);
      for (const [name, value] of headers) res.writeHeader(name, value);
      // With any argument it writes a length, which these statuses must not have; but only `end` can close.
      if (body === undefined) this.#closeAfter ? res.end('', true) : res.endWithoutBody();
      else if (this.head) res.endWithoutBody(Buffer.byteLength(body), this.#closeAfter);
      else res.end(body, this.#closeAfter);
    });
  }

  /** Answers 200 `{}`. */
  ok(): void {
    this.reply(200, '{}');
  }

  /** Refuses the request for a reason of the table; `more` stands beside `err` in the body. */
  refuse(reason: Rejection, more: object = {}, headers: Headers = []): void {
    const { status } = outcomes[reason.code];
    const body = JSON.stringify({ err: errorBody(reason), ...more });
    this.reply(status, body, status === 503 ? [...headers, retryLater] : headers);
  }

  /** Refuses a request whose body is not wanted any more, and closes the connection. */
  refuseAndClose(reason: Rejection): void {
    this.#closeAfter = true;
    this.refuse(reason);
  }

  #finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#release?.();
    openExchanges.count -= 1;
    if (openExchanges.count === 0) for (const resolve of openExchanges.waiting.splice(0)) resolve();
  }
}

const retryLater = ['Retry-After', String(overloadedRetrySeconds)] as const;

const openExchanges = { count: 0, waiting: [] as (() => void)[] };

/** Settles when every request that was begun is answered or aborted. */
export async function allAnswered(): Promise<void> {
  if (openExchanges.count > 0) await new Promise<void>((resolve) => openExchanges.waiting.push(resolve));
}

function errorBody(reason: Rejection): { message: string; code: OutcomeCode; field?: string } {
  const { message, code, field } = reason;
  return field === undefined ? { message, code } : { message, code, field };
}
