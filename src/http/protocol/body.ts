// Reads a request's whole body, up to a limit and a deadline. A small uncompressed body that arrives in one piece is passed on without a
// copy, and needs no room. Any other body may have to wait, so it needs room (body-room.ts).

import { receiving } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import { bodyBuffers } from '../../spare-buffers.js';
import { createRoom, overloaded, tooLarge } from './body-room.js';
import type { Exchange } from './exchange.js';
import type { MediaType } from './framing.js';
import type { Guard } from './guard.js';
import { compressions, inflate } from './inflate.js';

/** For bodies up to 64 KiB, which take room as they arrive; above that, a body takes room for all of it at once. */
const smallRoom = createRoom(receiving.small);
const largeRoom = createRoom(receiving.large);

/**
 * Takes a body. If it is not `owned`, it is a view of memory that is freed when this returns, or of a much larger buffer. Whoever has read
 * an owned one may give it to `bodyBuffers`.
 */
export type TakeBody = (exchange: Exchange, body: Buffer, owned: boolean) => void;
type Take = (body: Buffer, owned: boolean) => void;

/** The media types that an endpoint accepts for a JSON body, and the message for all others. */
export type BodyTypes = { readonly taken: readonly MediaType[]; readonly advice: string };

const jsonOnly: BodyTypes = {
  taken: ['json'],
  advice: 'Content-Type must be application/json, in UTF-8.',
};

/**
 * The types that browsers send. A page may post `text/plain` without a preflight, and a beacon of bytes has no type. Form types are
 * refused, since their bodies are not meant to be JSON.
 */
export const typesOfBrowsers: BodyTypes = {
  taken: ['json', 'text', 'none'],
  advice: 'Content-Type must be application/json or text/plain, in UTF-8, or absent.',
};

/** The refusals while a JSON body is read, before its fields are checked. */
export const bodyGuard: Guard = {
  parameters: [
    {
      name: 'Content-Encoding',
      in: 'header',
      description: 'How the body is compressed. Bounds on its size count the bytes after inflating.',
      schema: { type: 'string', enum: ['identity', ...compressions.keys()], default: 'identity' },
    },
  ],
  refuses: [
    'invalid_framing',
    'invalid_content_type',
    'invalid_encoding',
    'invalid_json',
    'too_deep',
    'too_many_values',
    'too_many_properties',
    'too_long',
    'body_too_large',
    'unsupported_encoding',
    'body_too_slow',
  ],
};

/** Any type, since RudderStack's library for Node declares its JSON as a form. */
export const anyType: BodyTypes = { taken: ['json', 'text', 'none', 'other'], advice: '' };

/**
 * Reads the body of a JSON endpoint. Calls `take` once with it, in the turn of the event loop in which it is complete. Answers the request
 * itself if it has to be refused for its framing, type, encoding, size or slowness.
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
    exchange.dropBody(bytesMax + receiving.overshootBytesMax);
    exchange.refuse(fault);
    return;
  }
  collect(exchange, bytesMax, (body, owned) => {
    if (!types.taken.includes(framing.mediaType)) {
      exchange.refuse(rejection('invalid_content_type', types.advice));
    } else if (framing.encoding === 'identity') {
      take(exchange, body, owned);
    } else {
      inflate(exchange, owned ? body : Buffer.from(body), bytesMax, take);
    }
  });
}

function faultOf({ framing }: Exchange, bytesMax: number): Rejection | undefined {
  if (framing.fault !== undefined) return framing.fault;
  return framing.length !== undefined && framing.length > bytesMax ? tooLarge(bytesMax) : undefined;
}

function collect(exchange: Exchange, bytesMax: number, takeAtOnce: Take): void {
  const { length, chunked, encoding } = exchange.framing;
  const wholeBytesMax = encoding === 'identity' ? Math.min(bytesMax, receiving.smallBytesMax) : 0;
  const take = chunked ? inNextTurn(exchange, takeAtOnce) : takeAtOnce;
  // If the head came in pieces, the parser does not report the end of an empty body.
  if (length === 0) return take(Buffer.alloc(0), true);
  let takePiece: ((piece: Buffer, last: boolean) => void) | undefined;
  exchange.onData((chunk, last) => {
    if (last && takePiece === undefined && chunk.length <= wholeBytesMax) return take(chunk, false);
    takePiece ??= collectPieces(exchange, length, bytesMax, take);
    takePiece(chunk, last);
  });
}

/**
 * The parser closes the connection if a chunked body is followed by something other than a request, such as trailers. For the client the
 * request has then failed, so nothing of it may be stored. So the body is taken one turn later, when the parser has decided.
 */
function inNextTurn(exchange: Exchange, take: Take): Take {
  return (body, owned) => {
    const own = owned ? body : Buffer.from(body);
    setImmediate(
      exchange.guard(() => {
        if (!exchange.ended) take(own, true);
      }),
    );
  };
}

/** Returns the function that takes the pieces of a body. */
function collectPieces(
  exchange: Exchange,
  length: number | undefined,
  bytesMax: number,
  take: Take,
): (piece: Buffer, last: boolean) => void {
  const { address } = exchange;
  const endBytes = length ?? bytesMax;
  let held: Buffer = Buffer.alloc(0);
  let bytes = 0;
  let pieces = 0;
  let isLarge = false;
  let [smallTaken, largeTaken] = [0, 0];
  let deadline: NodeJS.Timeout | undefined;
  let endWaiting = (): void => undefined;

  const release = () => {
    clearTimeout(deadline);
    endWaiting();
    smallRoom.give(address, smallTaken);
    largeRoom.give(address, largeTaken);
    [smallTaken, largeTaken] = [0, 0];
    held = Buffer.alloc(0);
  };

  const refuseFor = (reason: Rejection) => {
    release();
    exchange.refuseAfterBody(reason);
  };

  const beginDeadline = () => {
    clearTimeout(deadline);
    const ms = receiving.bodyMsMin + Math.ceil(endBytes / receiving.bodyBytesPerMs);
    deadline = setTimeout(() => exchange.refuseAndClose(tooSlow), ms);
  };

  const grow = (larger: Buffer) => {
    held.copy(larger, 0, 0, Math.min(bytes, held.length));
    held = larger;
  };

  /** Keeps a piece. Returns false if there is no room. Doubles the buffer, so that many small pieces cost no more than one large one. */
  const keep = (piece: Buffer): boolean => {
    const needed = bytes + piece.length;
    if (needed > held.length) {
      const capacity = Math.min(endBytes, Math.max(needed, 2 * held.length));
      if (largeTaken === 0 && !smallRoom.take(address, capacity - held.length)) return false;
      if (largeTaken === 0) smallTaken += capacity - held.length;
      grow(Buffer.allocUnsafeSlow(capacity));
    }
    piece.copy(held, bytes);
    bytes = needed;
    return true;
  };

  /** Stops reading until there is room for the whole body. */
  const askForRoom = () => {
    clearTimeout(deadline);
    isLarge = true;
    let isPaused = false;
    const settle = (isTaken: boolean) => {
      if (isPaused) exchange.resume();
      if (!isTaken) return refuseFor(overloaded);
      largeTaken = bodyBuffers.sizeFor(endBytes);
      if (length !== undefined) grow(bodyBuffers.take(length));
      smallRoom.give(address, smallTaken);
      smallTaken = 0;
      beginDeadline();
    };
    endWaiting = largeRoom.ask(address, bodyBuffers.sizeFor(endBytes), exchange.guard(settle));
    if (largeTaken > 0 || exchange.ended) return;
    isPaused = true;
    exchange.pause();
  };

  exchange.onGone(release);
  beginDeadline();
  return (piece, last) => {
    pieces += 1;
    if (pieces > receiving.piecesMax + bytes / receiving.pieceBytesMin) return exchange.cutOff();
    if (bytes + piece.length > endBytes) return exchange.refuseAndClose(tooLarge(bytesMax));
    // A large body takes its whole buffer at once if there is room. If all of it is here already, it cannot wait. The head may have come
    // alone, as an empty piece.
    const known = last ? bytes + piece.length : length;
    if (!isLarge && bytes === 0 && known !== undefined && known > receiving.smallBytesMax) {
      const size = bodyBuffers.sizeFor(known);
      if (largeRoom.take(address, size)) {
        largeTaken = size;
        isLarge = true;
        grow(bodyBuffers.take(known));
      }
    }
    if (!keep(piece)) return refuseFor(overloaded);
    if (last) {
      clearTimeout(deadline);
      endWaiting();
      return take(held.subarray(0, bytes), true);
    }
    if (!isLarge && (length ?? bytes) > receiving.smallBytesMax) askForRoom();
  };
}

const tooSlow = rejection('body_too_slow');
