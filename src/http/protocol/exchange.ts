// One request and its answer. Keeps the rules of uWebSockets.js in one place: the handlers of data and of an abort are attached at once,
// the request is read before its handler returns, an aborted response is never touched, and every answer is written inside one cork. A bug
// of ours fails only its own request: all later work on a request goes through `guard` or `attend`, and if the work throws, the request is
// answered 500.

import type { HttpRequest, HttpResponse } from 'uWebSockets.js';
import { STATUS_CODES } from 'node:http';
import { overloadedRetrySeconds, receiving } from '../../contract/limits.js';
import { outcomes, type Rejection, rejection } from '../../contract/outcomes.js';
import { exportPieceBytesMax } from '../../tuning.js';
import { AnswerStream } from './answer-stream.js';
import type { CallerAddress } from './caller-address.js';
import { type Framing, readFraming } from './framing.js';

export type Headers = readonly (readonly [name: string, value: string])[];

export class Exchange {
  /** Whether an answer was sent, or can no longer be sent. */
  ended = false;
  /** Whether refusals also have code and message at the top level of the body, where Segment's libraries read them. */
  saysWhyAtTop = false;
  readonly framing: Framing;
  readonly query: string;
  readonly head: boolean;
  #res: HttpResponse;
  #headers: Headers;
  #closeAfter: boolean;
  /** Whether the client is gone. The response must not be touched then. */
  #gone = false;
  #finished = false;
  #sent = false;
  #stream: AnswerStream | undefined;
  #bodyPending = false;
  #heldAnswer: (() => void) | undefined;
  #releases: (() => void)[] | undefined;
  readonly #onFault: (error: unknown) => void;
  readonly #callerAddress: CallerAddress;
  readonly #onAnswer: (status: number, ms: number) => void;
  readonly #beganMs = performance.now();
  readonly #beganTurn = currentTurn();

  /**
   * `headers` are sent with every answer to the request. `onFault` is called with each error of ours during the request, `onAnswer` with
   * the status of the answer and the ms until it was given. Neither may throw.
   */
  constructor(
    res: HttpResponse,
    req: HttpRequest,
    headers: Headers,
    onFault: (error: unknown) => void,
    callerAddress: CallerAddress,
    onAnswer: (status: number, ms: number) => void,
  ) {
    this.#res = res;
    this.#callerAddress = callerAddress;
    this.#headers = headers;
    this.#onFault = onFault;
    this.#onAnswer = onAnswer;
    this.framing = readFraming(req);
    this.query = req.getQuery() ?? '';
    this.head = req.getMethod() === 'head';
    // Malformed chunks are not visible here. If the connection is closed, neither they nor a length that a proxy reads differently can
    // desynchronise it.
    this.#closeAfter = this.framing.chunked || this.framing.fault !== undefined;
    openExchanges.count += 1;
    // The end of this line ends the interim answer's head; `#sendHead` begins the next one.
    if (this.framing.awaitsContinue) res.writeStatus('100 Continue\r\n');
    res.onAborted(() => {
      this.ended = true;
      this.#gone = true;
      // First, since the functions below may cut the stream off.
      this.#stream?.clientIsGone();
      this.#finish();
    });
  }

  /** Passes the chunks of the body to `take`. Each is a view that is freed when `take` returns. */
  onData(take: (chunk: Buffer, last: boolean) => void): void {
    this.#res.onData((chunk: ArrayBuffer, last: boolean) => {
      if (!this.ended) this.run(take, Buffer.from(chunk), last);
      // After `take`, which may have answered already.
      this.#noteChunk(last);
    });
  }

  /** Reads no more of the body until `resume`. The connection has no time limit until then. */
  pause(): void {
    if (!this.ended) this.#res.pause();
  }

  resume(): void {
    if (!this.ended) this.#res.resume();
  }

  /** Begins or continues this request. If the work throws, or its promise rejects, the request fails. */
  run<Args extends unknown[]>(work: (...args: Args) => unknown, ...args: Args): void {
    try {
      const working = work(...args);
      if (working instanceof Promise) this.attend(working);
    } catch (error) {
      this.fail(error);
    }
  }

  /** Wraps a callback that continues this request, so that it is run by `run`. */
  guard<Args extends unknown[]>(work: (...args: Args) => unknown): (...args: Args) => void {
    return (...args) => this.run(work, ...args);
  }

  /** Watches work that continues this request: if it rejects, the request fails. */
  attend(work: Promise<unknown>): void {
    work.catch((error: unknown) => this.fail(error));
  }

  /** Answers 500 for an error of ours, unless an answer was already given, and closes the connection. */
  fail(error: unknown): void {
    this.#onFault(error);
    try {
      // An answer that has begun cannot be replaced.
      if (this.#finished && !this.#sent && !this.#gone) this.#res.close();
      else if (!this.ended) this.refuseAndClose(internalError);
    } catch (fault) {
      this.#onFault(fault);
    }
  }

  /**
   * Drops the body. The answer waits until the body has passed. An earlier answer would leave a connection that nothing closes, since the
   * parser ends its timer when a body ends; and a client that is still sending when the connection closes never sees the answer. A body
   * above `bytesMax` is cut off nevertheless.
   */
  dropBody(bytesMax: number = receiving.droppedBytesMax): this {
    const { length } = this.framing;
    if (length === 0) return this;
    if (length === undefined || length > bytesMax) this.#closeAfter = true;
    this.#bodyPending = !this.#closeAfter;
    this.#res.onData((_, last) => this.#noteChunk(last));
    return this;
  }

  #noteChunk(last: boolean): void {
    if (!last) {
      if (!this.#finished) arriving.add(this);
      return;
    }
    arriving.delete(this);
    this.#bodyHasPassed();
  }

  /** Answers without the rest of the body, and closes the connection. */
  giveUpBody(): void {
    this.#closeAfter = true;
    if (this.#bodyPending) this.#bodyHasPassed();
    else this.refuse(stopping);
  }

  #bodyHasPassed(): void {
    if (!this.#bodyPending) return;
    this.#bodyPending = false;
    if (this.#heldAnswer !== undefined) this.#sendInTurn(this.#heldAnswer);
  }

  /** The caller's address. Not to be read once the request has ended. */
  get address(): string {
    return this.#callerAddress(this.#res.getRemoteAddressAsText(), this.framing);
  }

  /** Calls `release` when the request is answered or aborted. */
  onGone(release: () => void): void {
    this.#releases ??= [];
    this.#releases.push(release);
  }

  /** Sends an answer, unless one was sent or the client is gone. */
  reply(
    status: number,
    body: string | Buffer,
    headers: Headers = noHeaders,
    type = 'application/json',
  ): void {
    if (this.ended || this.#mustWait()) return this.#answer(() => this.#send(status, body, headers, type));
    // The case of nearly all answers, without a closure.
    this.ended = true;
    try {
      this.#send(status, body, headers, type);
    } catch (error) {
      this.fail(error);
    }
  }

  /** Like `reply`, for the statuses that never have a body. */
  replyEmpty(status: 204 | 304, headers: Headers): void {
    this.#answer(() => this.#send(status, undefined, headers, ''));
  }

  /**
   * Begins a 200 whose body is sent piece by piece; undefined if an answer was sent or the client is gone. The caller must end it or cut it
   * off.
   */
  stream(headers: Headers, type: string): AnswerStream | undefined {
    if (this.ended) return undefined;
    this.ended = true;
    // A body that nobody will read is still to come.
    this.#closeAfter ||= this.#bodyPending;
    this.#bodyPending = false;
    return this.#begin(200, headers, type);
  }

  #begin(status: number, headers: Headers, type: string): AnswerStream {
    this.#res.cork(() => this.#sendHead(status, [['Content-Type', type], ...this.#headers, ...headers]));
    this.#onAnswer(status, performance.now() - this.#beganMs);
    this.#stream = new AnswerStream(this.#res, this.#closeAfter, () => {
      this.#sent = true;
      this.#finish();
    });
    return this.#stream;
  }

  #answer(send: () => void): void {
    if (this.ended) return;
    this.ended = true;
    if (this.#bodyPending) {
      this.#heldAnswer = send;
      return;
    }
    this.#sendInTurn(send);
  }

  /**
   * Sends the answer in a later turn of the event loop than the one in which the request began and, if the connection is to close, later
   * than the current one. After an answer, the parser goes on reading the bytes that have arrived; while an answer is pending, it closes
   * the connection instead. So bytes behind an ambiguous request are not read as a request, and a packet of ten thousand requests does not
   * block the process.
   */
  #sendInTurn(send: () => void): void {
    if (this.#mustWait()) setImmediate(() => this.run(send));
    else this.run(send);
  }

  #mustWait(): boolean {
    return this.#bodyPending || this.#closeAfter || this.#beganTurn === currentTurn();
  }

  #send(status: number, body: string | Buffer | undefined, headers: Headers, type: string): void {
    this.#finish();
    if (this.#gone) return;
    if (this.#closeAfter && !this.head && Buffer.byteLength(body ?? '') > exportPieceBytesMax)
      return this.#sendInPieces(status, Buffer.from(body ?? ''), headers, type);
    const res = this.#res;
    res.cork(() => {
      if (this.framing.awaitsContinue) {
        this.#sendHead(status, [['Content-Type', type], ...this.#headers, ...headers]);
      } else {
        if (status !== 200) res.writeStatus(statusLine(status));
        if (body !== undefined) res.writeHeader('Content-Type', type);
        for (const [name, value] of this.#headers) res.writeHeader(name, value);
        for (const [name, value] of headers) res.writeHeader(name, value);
      }
      // Given a length, endWithoutBody leaves the response pending, and the parser closes the connection at the next request. `end` writes
      // a length, which statuses without a body must not have, but no other call can close.
      if (body === undefined) this.#closeAfter ? res.end('', true) : res.endWithoutBody();
      else if (!this.head) this.#closeAfter ? res.end(body, true) : this.#end(body);
      else if (this.#closeAfter) res.endWithoutBody(Buffer.byteLength(body), true);
      else res.writeHeader('Content-Length', String(Buffer.byteLength(body))).endWithoutBody();
      this.#sent = true;
    });
    this.#onAnswer(status, performance.now() - this.#beganMs);
  }

  /**
   * Sends a long body after which the connection closes. `end` would copy what the socket does not take at once; and until the client has
   * read that, bytes that arrive would be taken for a request. A body sent in pieces keeps the answer pending until its last bytes.
   */
  #sendInPieces(status: number, body: Buffer, headers: Headers, type: string): void {
    const stream = this.#begin(status, headers, type);
    this.attend(stream.write(body).then(() => stream.end()));
  }

  /** Writes status and headers. After a `100 Continue` uWebSockets.js takes only headers, so the status goes before the first one. */
  #sendHead(status: number, headers: Headers): void {
    const line = statusLine(status);
    let prefix = '';
    if (this.framing.awaitsContinue) prefix = `HTTP/1.1 ${line}\r\n`;
    else if (status !== 200) this.#res.writeStatus(line);
    for (const [name, value] of headers) {
      this.#res.writeHeader(prefix + name, value);
      prefix = '';
    }
  }

  /**
   * Ends the answer with its body. What the client has not read stays here, uncopied, and keeps the answer pending. `end` would copy it,
   * and every further answer, for as long as the client sends requests and reads nothing.
   */
  #end(body: string | Buffer): void {
    const res = this.#res;
    const [, isWhole] = res.tryEnd(body, Buffer.byteLength(body));
    if (isWhole) return;
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    res.onWritable((offset) => {
      let isTaken = true;
      res.cork(() => {
        [isTaken] = res.tryEnd(bytes.subarray(offset), bytes.length);
      });
      return isTaken;
    });
  }

  /** Adds a header to the answer, whatever the answer will be. */
  addHeader(name: string, value: string): void {
    this.#headers = [...this.#headers, [name, value]];
  }

  ok(): void {
    // Libraries recognise the service by this answer: `isAcknowledgement`.
    this.reply(200, '{}');
  }

  /** Refuses the request; `more` is added to the body beside `err`. */
  refuse(reason: Rejection, more: object = {}, headers: Headers = []): void {
    const { code, message, field } = reason;
    const { status } = outcomes[code];
    const body = JSON.stringify({
      err: { message, code, field },
      ...(this.saysWhyAtTop && { code, message }),
      ...more,
    });
    this.reply(status, body, status >= 500 ? [...headers, retryLater] : headers);
  }

  /** Refuses a request whose body is no longer wanted, and closes the connection. */
  refuseAndClose(reason: Rejection): void {
    this.#closeAfter = true;
    this.refuse(reason);
  }

  /** Closes the connection at once, without an answer. Bytes that arrived behind the request are not read. */
  cutOff(): void {
    if (!this.#gone) this.#res.close();
  }

  /** Refuses a request whose body is still arriving: the rest is dropped, then the answer is sent. */
  refuseAfterBody(reason: Rejection): void {
    this.#bodyPending = !this.#closeAfter;
    this.refuse(reason);
  }

  #finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    arriving.delete(this);
    if (this.#releases !== undefined) for (const release of this.#releases) release();
    openExchanges.count -= 1;
    if (openExchanges.count === 0) for (const resolve of openExchanges.waiting.splice(0)) resolve();
  }
}

function statusLine(status: number): string {
  return `${status} ${STATUS_CODES[status]}`;
}

const noHeaders: Headers = [];
const internalError = rejection('internal_error');
const stopping = rejection('overloaded', 'Nothing was stored: the service is stopping.');
const retryLater = ['Retry-After', String(overloadedRetrySeconds)] as const;

/** Counts the turns of the event loop in which requests begin or are answered. */
const turns = { count: 0, isCounted: false };

function currentTurn(): number {
  if (!turns.isCounted) {
    turns.isCounted = true;
    setImmediate(endTurn);
  }
  return turns.count;
}

function endTurn(): void {
  turns.isCounted = false;
  turns.count += 1;
}

const openExchanges = { count: 0, waiting: [] as (() => void)[] };

/** Requests of whose bodies only a part is here. */
const arriving = new Set<Exchange>();

/** Settles when every request that had begun is answered or aborted. */
export async function allAnswered(): Promise<void> {
  if (openExchanges.count === 0) return;
  const timer = setInterval(() => {
    for (const exchange of [...arriving]) exchange.giveUpBody();
  }, receiving.stoppingMsMax);
  await new Promise<void>((resolve) => openExchanges.waiting.push(resolve));
  clearInterval(timer);
}
