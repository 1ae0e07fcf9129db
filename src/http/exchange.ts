// One request and its answer. Keeps the rules of uWebSockets.js in one place: handlers for data and abortion
// are attached at once, the request is read before its handler returns, an aborted response is never
// touched, and every answer is written inside one cork. An error of ours concerns its request alone: whatever
// goes on with a request later goes through `guard` or `attend`, and is answered 500 when it throws.

import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { overloadedRetrySeconds } from '../contract/limits.js';
import { type OutcomeCode, outcomes, type Rejection, rejection } from '../contract/outcomes.js';
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
  500: '500 Internal Server Error',
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
  #sent = false;
  #bodyPending = false;
  #heldAnswer: (() => void) | undefined;
  #release: (() => void) | undefined;
  readonly #noteFault: (error: unknown) => void;

  /**
   * `headers` are sent with whatever answer the request gets. `noteFault` is told of every error of ours that the
   * request meets, and must not throw.
   */
  constructor(res: HttpResponse, req: HttpRequest, headers: Headers, noteFault: (error: unknown) => void) {
    this.#res = res;
    this.#headers = headers;
    this.#noteFault = noteFault;
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
    const data = this.guard((chunk: ArrayBuffer, last: boolean) => {
      if (!this.ended) take(Buffer.from(chunk), last);
    });
    this.#res.onData(data);
  }

  /** A callback that goes on with this request. What it throws, or its promise rejects with, fails the request. */
  guard<Args extends unknown[]>(work: (...args: Args) => unknown): (...args: Args) => void {
    return (...args) => {
      try {
        const working = work(...args);
        if (working instanceof Promise) this.attend(working);
      } catch (error) {
        this.fail(error);
      }
    };
  }

  /** Work that goes on with this request: the request fails when it rejects. */
  attend(work: Promise<unknown>): void {
    work.catch((error: unknown) => this.fail(error));
  }

  /** Answers 500 for an error of ours, unless an answer was given, and closes the connection. */
  fail(error: unknown): void {
    this.#noteFault(error);
    try {
      // An answer that was begun cannot become another one.
      if (this.#finished && !this.#sent && !this.#gone) this.#res.close();
      else if (!this.ended) this.refuseAndClose(internalError);
    } catch (fault) {
      this.#noteFault(fault);
    }
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
      if (this.#heldAnswer !== undefined) this.guard(this.#heldAnswer)();
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
    setImmediate(this.guard(send));
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
      // Given a length, endWithoutBody leaves the response pending, and the parser closes the connection at the next
      // request. `end` writes a length, which statuses without a body must not have, but only these two can close.
      if (body === undefined) this.#closeAfter ? res.end('', true) : res.endWithoutBody();
      else if (!this.head) res.end(body, this.#closeAfter);
      else if (this.#closeAfter) res.endWithoutBody(Buffer.byteLength(body), true);
      else res.writeHeader('Content-Length', String(Buffer.byteLength(body))).endWithoutBody();
      this.#sent = true;
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
    this.reply(status, body, status >= 500 ? [...headers, retryLater] : headers);
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

const internalError = rejection('internal_error', outcomes.internal_error.meaning);
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
