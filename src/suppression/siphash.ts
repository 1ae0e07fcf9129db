// SipHash-1-3 with 128 bits, of which the caller takes 96: a keyed hash that costs 0.05 µs for an identity. All keys share one
// function and its memory (siphash-code.ts), since V8 sets 10 GiB of addresses aside for each memory.
// @see https://github.com/veorq/SipHash

import { createSipHashCode, messageBytesMax } from './siphash-code.js';

/** Hashes parts of buffers under one key. The words hold the last hash under any key. */
export type SipHash = {
  hash(bytes: Uint8Array, start: number, end: number): void;
  first(): number;
  second(): number;
  /** The third word takes three more rounds, so it is made only when it is asked for. */
  third(): number;
};

const { initial, message, state, hash: hashMessage, third } = createSipHashCode();
/** Whose initial state is in the memory. */
let prepared: object | undefined;

/** `key`: 16 bytes. */
export function createSipHash(key: Buffer): SipHash {
  const [k0l, k0h, k1l, k1h] = [0, 4, 8, 12].map((at) => key.readInt32LE(at)) as [
    number,
    number,
    number,
    number,
  ];
  const own = Int32Array.of(
    k0l ^ 0x70736575,
    k0h ^ 0x736f6d65,
    k1l ^ 0x6e646f6d ^ 0xee,
    k1h ^ 0x646f7261,
    k0l ^ 0x6e657261,
    k0h ^ 0x6c796765,
    k1l ^ 0x79746573,
    k1h ^ 0x74656462,
  );
  let first = 0;

  function hash(bytes: Uint8Array, start: number, end: number): void {
    const length = end - start;
    if (length > messageBytesMax) throw new RangeError('a text is too long to be hashed');
    if (prepared !== own) {
      initial.set(own);
      prepared = own;
    }
    // Byte by byte: a call that copies so few costs more.
    for (let at = 0; at < length; at++) message[at] = bytes[start + at] as number;
    first = hashMessage(length);
  }

  return { hash, first: () => first, second: secondWord, third };
}

function secondWord(): number {
  return (state[1] as number) ^ (state[3] as number) ^ (state[5] as number) ^ (state[7] as number);
}
