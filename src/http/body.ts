// Reads a request's body whole, within a cap, inflated when it came compressed. A body that arrives in one
// piece is handed on without a copy.

import { constants, gunzip } from 'node:zlib';
import { type Rejection, rejection } from '../contract/outcomes.js';
import type { Exchange } from './exchange.js';
import type { MediaType } from './framing.js';

/** Bytes of bodies that one process holds at a time before their requests are checked. */
const heldBytesMax = 256 * 1024 * 1024;
let heldBytes = 0;

/** A body that is too large by no more than this is received, dropped and then answered. */
const overshootBytesMax = 16 * 1024 * 1024;

/** Takes a body. Unless it is `owned`, it is a view: of memory that dies when this returns, or of much more memory. */
export type TakeBody = (body: Buffer, owned: boolean) => void;

/** What an endpoint takes as the type of a JSON body, and what it says to other types. */
export type BodyTypes = { readonly taken: readonly MediaType[]; readonly advice: string };

const jsonOnly: BodyTypes = {
  taken: ['json'],
  advice: 'Content-Type must be application/json, in UTF-8.',
};

/**
 * What browsers send. A page may post `text/plain` without asking first by a preflight, and a beacon of bytes
 * has no type. Form types are refused: their senders mean another body.
 */
export const typesOfBrowsers: BodyTypes = {
  taken: ['json', 'text', 'none'],
  advice: 'Content-Type must be application/json or text/plain, in UTF-8, or absent.',
};

/**
 * Reads the body of a JSON endpoint and calls `take` once with it, in the turn of the event loop in which it
 * is complete. Answers by itself when the request is refused for its framing, type, encoding or size.
 */
export function readJsonBody(
  exchange: Exchange,
  bytesMax: number,
  take: TakeBody,
  types: BodyTypes = jsonOnly,
): void {
  const { framing } = exchange;
  const fault = faultOf(exchange, bytesMax);
  if (fault !== undefined) {
    exchange.dropBody(bytesMax + overshootBytesMax);
    exchange.refuse(fault);
    return;
  }
  collect(exchange, bytesMax, (body, owned) => {
    if (!types.taken.includes(framing.mediaType)) {
      exchange.refuse(rejection('invalid_content_type', types.advice));
    } else if (framing.unsupportedEncoding) {
      exchange.refuse(rejection('unsupported_encoding', 'Content-Encoding must be gzip, or none.'));
    } else if (framing.encoding === 'gzip') {
      inflate(exchange, body, bytesMax, take);
    } else {
      take(body, owned);
    }
  });
}

function faultOf({ framing }: Exchange, bytesMax: number): Rejection | undefined {
  if (framing.fault !== undefined) return framing.fault;
  if (framing.length !== undefined && framing.length > bytesMax) return tooLarge(bytesMax);
  if (heldBytes + (framing.length ?? 0) > heldBytesMax) {
    return rejection('overloaded', 'Too many bodies are being received; nothing was stored.');
  }
  return undefined;
}

function collect(exchange: Exchange, bytesMax: number, take: TakeBody): void {
  const { length } = exchange.framing;
  // The parser tells nobody of the end of an empty body whose head came in pieces.
  if (length === 0) return take(Buffer.alloc(0), true);
  /** The whole body in one buffer when its length is known, so that a large one is held once. */
  let whole: Buffer | undefined;
  let parts: Buffer[] = [];
  let bytes = 0;
  exchange.onGone(() => {
    heldBytes -= bytes;
    bytes = 0;
    parts = [];
    whole = undefined;
  });
  exchange.onData((chunk, last) => {
    if (last && bytes === 0 && chunk.length <= bytesMax) return take(chunk, false);
    const at = bytes;
    bytes += chunk.length;
    heldBytes += chunk.length;
    if (bytes > (length ?? bytesMax)) return exchange.refuseAndClose(tooLarge(bytesMax));
    // The chunk's memory is taken back when this returns.
    if (length === undefined) {
      parts.push(Buffer.from(chunk));
    } else {
      whole ??= Buffer.allocUnsafe(length);
      chunk.copy(whole, at);
    }
    if (last) take(whole ?? Buffer.concat(parts, bytes), true);
  });
}

function inflate(exchange: Exchange, body: Buffer, bytesMax: number, take: TakeBody): void {
  gunzip(
    Buffer.from(body),
    { maxOutputLength: bytesMax, finishFlush: constants.Z_FINISH },
    exchange.guard((error: Error | null, inflated: Buffer) => {
      if (exchange.ended) return;
      // A short one is a view of 16 KiB, which whoever kept it would hold as long.
      if (error === null) return take(inflated, false);
      if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') {
        return exchange.refuseAndClose(tooLarge(bytesMax));
      }
      exchange.refuse(rejection('invalid_encoding', 'The body is not valid gzip.'));
    }),
  );
}

export function tooLarge(bytesMax: number): Rejection {
  return rejection('body_too_large', `The body must have at most ${bytesMax} bytes after inflating.`);
}
