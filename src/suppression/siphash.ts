// SipHash-1-3 with 128 bits, of which the caller takes 96: a keyed hash that costs 0.1 µs for an identity. The 64-bit words
// of its state are pairs of 32-bit integers, since BigInt takes a hundred times as long.
// @see https://github.com/veorq/SipHash

/** Hashes parts of buffers under one key. The words are those of the last hash. */
export type SipHash = {
  hash(bytes: Uint8Array, start: number, end: number): void;
  first(): number;
  second(): number;
  /** The third word takes three more rounds, so it is made only when it is asked for. */
  third(): number;
};

const roundsAtEnd = 3;

/** `key`: 16 bytes. */
export function createSipHash(key: Buffer): SipHash {
  const k0l = key.readInt32LE(0);
  const k0h = key.readInt32LE(4);
  const k1l = key.readInt32LE(8);
  const k1h = key.readInt32LE(12);
  /** v0, v1, v2, v3 after the first two words were made; the low half of each first. */
  const state = new Int32Array(8);
  let first = 0;
  let second = 0;

  // The rounds stand in the loop, with local variables only: as a function of its own over shared ones they took twice as long.
  // A sum below one of its parts carries; sums that do not fit 32 bits would be floating-point numbers, a fifth slower.
  function hash(bytes: Uint8Array, start: number, end: number): void {
    let al = k0l ^ 0x70736575;
    let ah = k0h ^ 0x736f6d65;
    let bl = k1l ^ 0x6e646f6d ^ 0xee;
    let bh = k1h ^ 0x646f7261;
    let cl = k0l ^ 0x6e657261;
    let ch = k0h ^ 0x6c796765;
    let dl = k1l ^ 0x79746573;
    let dh = k1h ^ 0x74656462;
    const whole = (end - start) >> 3;
    for (let block = 0; block <= whole; block++) {
      const at = start + 8 * block;
      const isLast = block === whole;
      const low = isLast ? lastLow(bytes, at, end) : wordAt(bytes, at);
      const high = isLast ? lastHigh(bytes, at, end) | ((end - start) << 24) : wordAt(bytes, at + 4);
      dl ^= low;
      dh ^= high;
      const rounds = isLast ? 1 + roundsAtEnd : 1;
      for (let round = 0; round < rounds; round++) {
        al = (al + bl) | 0;
        ah = (ah + bh + (al >>> 0 < bl >>> 0 ? 1 : 0)) | 0;
        let kept = bl;
        bl = ((bl << 13) | (bh >>> 19)) ^ al;
        bh = ((bh << 13) | (kept >>> 19)) ^ ah;
        kept = al;
        al = ah;
        ah = kept;
        cl = (cl + dl) | 0;
        ch = (ch + dh + (cl >>> 0 < dl >>> 0 ? 1 : 0)) | 0;
        kept = dl;
        dl = ((dl << 16) | (dh >>> 16)) ^ cl;
        dh = ((dh << 16) | (kept >>> 16)) ^ ch;
        al = (al + dl) | 0;
        ah = (ah + dh + (al >>> 0 < dl >>> 0 ? 1 : 0)) | 0;
        kept = dl;
        dl = ((dl << 21) | (dh >>> 11)) ^ al;
        dh = ((dh << 21) | (kept >>> 11)) ^ ah;
        cl = (cl + bl) | 0;
        ch = (ch + bh + (cl >>> 0 < bl >>> 0 ? 1 : 0)) | 0;
        kept = bl;
        bl = ((bl << 17) | (bh >>> 15)) ^ cl;
        bh = ((bh << 17) | (kept >>> 15)) ^ ch;
        kept = cl;
        cl = ch;
        ch = kept;
        if (round > 0) continue;
        al ^= low;
        ah ^= high;
        if (isLast) cl ^= 0xee;
      }
    }
    first = al ^ bl ^ cl ^ dl;
    second = ah ^ bh ^ ch ^ dh;
    state[0] = al;
    state[1] = ah;
    state[2] = bl ^ 0xdd;
    state[3] = bh;
    state[4] = cl;
    state[5] = ch;
    state[6] = dl;
    state[7] = dh;
  }

  return { hash, first: () => first, second: () => second, third: () => thirdWord(state) };
}

/** The low half of the second 64 bits. Only for names whose first two words were found, so it need not be fast. */
function thirdWord(state: Int32Array): number {
  const word = (at: number) =>
    (BigInt((state[at + 1] as number) >>> 0) << 32n) | BigInt((state[at] as number) >>> 0);
  return Number(BigInt.asIntN(32, lastRounds(word(0), word(2), word(4), word(6))));
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

function wordAt(bytes: Uint8Array, at: number): number {
  return (
    (bytes[at] as number) |
    ((bytes[at + 1] as number) << 8) |
    ((bytes[at + 2] as number) << 16) |
    ((bytes[at + 3] as number) << 24)
  );
}

/** Of the up to 7 bytes that are left, the first four. */
function lastLow(bytes: Uint8Array, at: number, end: number): number {
  let word = 0;
  for (let i = Math.min(end - at, 4) - 1; i >= 0; i--) word = (word << 8) | (bytes[at + i] as number);
  return word;
}

function lastHigh(bytes: Uint8Array, at: number, end: number): number {
  let word = 0;
  for (let i = end - at - 1; i >= 4; i--) word = (word << 8) | (bytes[at + i] as number);
  return word;
}
