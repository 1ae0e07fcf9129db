// Reads a request's body whole, within a cap, inflated when it came compressed. A body that arrives in one
// piece is handed on without a copy.

import { constants, gunzip } from 'node:zlib';
import { type Rejection, rejection } from '../contract/outcomes.js';
import type { Exchange } from './exchange.js';

/** Bytes of bodies that one process holds at a time before their requests are checked. */
const heldBytesMax = 256 * 1024 * 1024;
let heldBytes = 0;

/**
 * Reads the body of a JSON endpoint and calls `take` once with it, in the turn of the event loop in which it
 * is complete: the buffer may be a view that dies when `take` returns. Answers by itself when the request is
 * refused for its framing, type, encoding or size.
 */
export function readJsonBody(exchange: Exchange, bytesMax: number, take: (body: Buffer) => void): void {
  const { framing } = exchange;
  const fault = faultOf(exchange, bytesMax);
  if (fault !== undefined) {
    // The data handler must be there all the same, or the process ends.
    exchange.onData(ignore);
    exchange.refuseAndClose(fault);
    return;
  }
  collect(exchange, bytesMax, (body) => {
    if (!framing.json) {
      exchange.refuse(rejection('invalid_content_type', 'Content-Type must be application/json, in UTF-8.'));
    } else if (framing.unsupportedEncoding) {
      exchange.refuse(rejection('unsupported_encoding', 'Content-Encoding must be gzip, or none.'));
    } else if (framing.encoding === 'gzip') {
      inflate(exchange, body, bytesMax, take);
    } else {
      take(body);
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

function collect(exchange: Exchange, bytesMax: number, take: (body: Buffer) => void): void {
  let parts: Buffer[] = [];
  let bytes = 0;
  exchange.onGone(() => {
    heldBytes -= bytes;
    bytes = 0;
    parts = [];
  });
  exchange.onData((chunk, last) => {
    if (last && parts.length === 0 && chunk.length <= bytesMax) return take(chunk);
    bytes += chunk.length;
    heldBytes += chunk.length;
    if (bytes > bytesMax) return exchange.refuseAndClose(tooLarge(bytesMax));
    // The chunk's memory is taken back when this returns.
    parts.push(Buffer.from(chunk));
    if (last) take(parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts, bytes));
  });
}

function inflate(exchange: Exchange, body: Buffer, bytesMax: number, take: (body: Buffer) => void): void {
  gunzip(
    Buffer.from(body),
    { maxOutputLength: bytesMax, finishFlush: constants.Z_FINISH },
    (error, inflated) => {
      if (exchange.ended) return;
      if (error === null) return take(inflated);
      if ((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') {
        return exchange.refuseAndClose(tooLarge(bytesMax));
      }
      exchange.refuse(rejection('invalid_encoding', 'The body is not valid gzip.'));
    },
  );
}

export function tooLarge(bytesMax: number): Rejection {
  return rejection('body_too_large', `The body must have at most ${bytesMax} bytes after inflating.`);
}

function ignore(): void {
  // The rest of a refused body is not read.
}
