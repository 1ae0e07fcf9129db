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

const roundsAtEnd = 3;
const { initial, message, state, hash: hashMessage } = createSipHashCode();
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

  return { hash, first: () => first, second: secondWord, third: thirdWord };
}

function secondWord(): number {
  return (state[1] as number) ^ (state[3] as number) ^ (state[5] as number) ^ (state[7] as number);
}

/** The low half of the second 64 bits. Only for names whose first two words were found, so it need not be fast. */
function thirdWord(): number {
  const word = (at: number) =>
    (BigInt((state[at + 1] as number) >>> 0) << 32n) | BigInt((state[at] as number) >>> 0);
  return Number(BigInt.asIntN(32, lastRounds(word(0), word(2) ^ 0xddn, word(4), word(6))));
}

function lastRounds(a: bigint, b: bigint, c: bigint, d: bigint): bigint {
  const word = (value: bigint) => BigInt.asUintN(64, value);
  const turned = (value: bigint, bits: bigint) => word(value << bits) | (value >> (64n - bits));
  for (let round = 0; round < roundsAtEnd; round++) {
    a = word(a + b);
    b = turned(b, 13n) ^ a;
    a = turned(a, 32n);
    c = word(c + d);
    d = turned(d, 16n) ^ c;
    a = word(a + d);
    d = turned(d, 21n) ^ a;
    c = word(c + b);
    b = turned(b, 17n) ^ c;
    c = turned(c, 32n);
  }
  return a ^ b ^ c ^ d;
}
