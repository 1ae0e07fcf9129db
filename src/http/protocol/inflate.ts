// Inflates compressed bodies on Node's threads: a few at a time, each once there is room for its result, up to the bound of its endpoint
// and a multiple of its own size.

import * as zlib from 'node:zlib';
import { receiving } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import { bodyBuffers } from '../../spare-buffers.js';
import { largeBodies } from '../../tuning.js';
import { createRoom, overloaded, tooLarge } from './body-room.js';
import type { Exchange } from './exchange.js';

type Options = { readonly maxOutputLength: number; readonly chunkSize: number; readonly info: true };
type Inflated = { readonly buffer: Buffer; readonly engine: { readonly bytesWritten: number } };
type Done = (error: Error | null, inflated: Inflated) => void;
type Take = (exchange: Exchange, inflated: Buffer, owned: boolean) => void;
type Inflate = (body: Buffer, options: object, done: Done) => void;

const strictly = { finishFlush: zlib.constants.Z_FINISH };
/** From Node 22.15 on. */
const { zstdDecompress } = zlib as unknown as { readonly zstdDecompress?: Inflate };
const { ZSTD_d_windowLogMax = 0 } = zlib.constants as { readonly ZSTD_d_windowLogMax?: number };
/** RFC 9659: a receiver of this coding need not accept windows above 8 MiB. */
const zstdOptions = { params: { [ZSTD_d_windowLogMax]: 23 } };

/** The functions that inflate, by `Content-Encoding`. */
export const compressions: ReadonlyMap<string, (body: Buffer, options: Options, done: Done) => void> =
  new Map([
    ['gzip', inflating(zlib.gunzip, strictly)],
    [
      'deflate',
      // The coding means zlib's format (RFC 9110, 8.4.1.2), but many send only raw deflate data. That cannot begin like zlib's format: it
      // would be a block of type 0 whose padding is not 0.
      (body, options, done) => {
        const isWrapped = body.length > 1 && ((body[0] ?? 0) & 0x0f) === 8 && body.readUInt16BE() % 31 === 0;
        inflating(isWrapped ? zlib.inflate : zlib.inflateRaw, strictly)(body, options, done);
      },
    ],
    ...(zstdDecompress === undefined ? [] : [['zstd', inflating(zstdDecompress, zstdOptions)] as const]),
  ]);

function inflating(inflate: unknown, own: object) {
  return (body: Buffer, options: Options, done: Done) =>
    (inflate as Inflate)(body, { ...options, ...own }, done);
}

const inflatedRoom = createRoom(receiving.inflated);
const inflations = { running: 0, waiting: [] as (() => void)[] };

/** Inflates a body that the exchange owns, whose memory is then used again, and passes it to `take`; or answers the request. */
export function inflate(exchange: Exchange, body: Buffer, bytesMax: number, take: Take): void {
  const { address, framing } = exchange;
  const compression = compressions.get(framing.encoding);
  if (compression === undefined) return exchange.refuse(unsupported, {}, acceptedHere);
  const allowed = Math.max(body.length * receiving.inflatedTimesMax, receiving.inflatedBytesAlways);
  const maxOutputLength = Math.min(bytesMax, allowed);
  const chunkSize = body.length > 8 * 1024 ? 256 * 1024 : 16 * 1024;
  let taken = 0;
  let endWaiting = (): void => undefined;
  const free = (bytes: number) => {
    inflatedRoom.give(address, bytes);
    taken -= bytes;
  };
  exchange.onGone(() => {
    endWaiting();
    if (!isRunning) free(taken);
  });
  let isRunning = false;

  const end = exchange.guard((error: Error | null, inflated: Inflated) => {
    if (exchange.ended) return free(taken);
    if ((error as NodeJS.ErrnoException | null)?.code === 'ERR_BUFFER_TOO_LARGE')
      return exchange.refuse(maxOutputLength < bytesMax ? inflatesTooFar : tooLarge(bytesMax));
    // Not every decoder looks at bytes after the end, and zstd accepts an empty body.
    if (error !== null || body.length === 0 || inflated.engine.bytesWritten !== body.length)
      return exchange.refuse(rejection('invalid_encoding', `The body is not valid ${framing.encoding}.`));
    free(taken - inflated.buffer.length);
    // A result that fits into one chunk is a view of that chunk.
    take(exchange, inflated.buffer, inflated.buffer.length > chunkSize);
  });
  const run = () => {
    if (exchange.ended) return runNextInflation();
    isRunning = true;
    inflations.running += 1;
    compression(body, { maxOutputLength, chunkSize, info: true }, (error, inflated) => {
      isRunning = false;
      bodyBuffers.give(body);
      inflations.running -= 1;
      runNextInflation();
      end(error, inflated);
    });
  };
  const settle = (isTaken: boolean) => {
    if (!isTaken) return exchange.refuse(overloaded);
    taken = maxOutputLength;
    if (inflations.running < largeBodies.inflationsAtOnce) run();
    else inflations.waiting.push(run);
  };
  endWaiting = inflatedRoom.ask(address, maxOutputLength, exchange.guard(settle));
}

function runNextInflation(): void {
  if (inflations.running < largeBodies.inflationsAtOnce) inflations.waiting.shift()?.();
}

const names = [...compressions.keys()];
const unsupported = rejection(
  'unsupported_encoding',
  `Content-Encoding must be absent or one of: identity, ${names.join(', ')}.`,
);
const acceptedHere = [['Accept-Encoding', names.join(', ')]] as const;
const inflatesTooFar = rejection(
  'body_too_large',
  `A compressed body may inflate to at most ${receiving.inflatedTimesMax} times its size.`,
);
