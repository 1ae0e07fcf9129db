// SipHash-1-3 with 128 bits, of which the caller uses 96: a keyed hash that costs 0.1 µs for an identity. JavaScript lacks the 64-bit words
// of its state, so each is two halves of 32 bits, low and high.
// @see https://github.com/veorq/SipHash

/** Hashes parts of buffers with one key. `first` to `third` are the words of the last hash with any key. */
export type SipHash = {
  hash(bytes: Uint8Array, start: number, end: number): void;
  first(): number;
  second(): number;
  /** The third word takes three more rounds, so it is computed only on demand. */
  third(): number;
};

const roundsAtEnd = 3;
/** The message as half words: its bytes, padded with zeros, its length in the last byte; then a zero for each round at the end. */
const halves = new Int32Array(16_384);
let wordCount = 0;

/** `key`: 16 bytes. */
export function createSipHash(key: Buffer): SipHash {
  const k0l = key.readInt32LE(0);
  const k0h = key.readInt32LE(4);
  const k1l = key.readInt32LE(8);
  const k1h = key.readInt32LE(12);
  let first = 0;
  let second = 0;
  let upper = 0;

  /**
   * Mixes the message into the key, one round per word. Returns the low half of the hash's first or second 64 bits, and leaves the other
   * half in `upper`. Everything is in local variables, since a round with shared ones takes twice as long.
   */
  function mix(word: 1 | 2): number {
    let al = k0l ^ 0x70736575;
    let ah = k0h ^ 0x736f6d65;
    let bl = k1l ^ 0x6e646f6d ^ 0xee;
    let bh = k1h ^ 0x646f7261;
    let cl = k0l ^ 0x6e657261;
    let ch = k0h ^ 0x6c796765;
    let dl = k1l ^ 0x79746573;
    let dh = k1h ^ 0x74656462;
    const end = wordCount + word * roundsAtEnd;
    for (let at = 0; at < end; at++) {
      if (at === wordCount) cl ^= 0xee;
      if (at === wordCount + roundsAtEnd) bl ^= 0xdd;
      const low = halves[2 * at] as number;
      const high = halves[2 * at + 1] as number;
      dl ^= low;
      dh ^= high;

      let sum = (al + bl) | 0;
      ah = (ah + bh + carry(al, bl, sum)) | 0;
      al = sum;
      let kept = bl;
      bl = ((bl << 13) | (bh >>> 19)) ^ al;
      bh = ((bh << 13) | (kept >>> 19)) ^ ah;
      kept = al;
      al = ah;
      ah = kept;

      sum = (cl + dl) | 0;
      ch = (ch + dh + carry(cl, dl, sum)) | 0;
      cl = sum;
      kept = dl;
      dl = ((dl << 16) | (dh >>> 16)) ^ cl;
      dh = ((dh << 16) | (kept >>> 16)) ^ ch;

      sum = (al + dl) | 0;
      ah = (ah + dh + carry(al, dl, sum)) | 0;
      al = sum;
      kept = dl;
      dl = ((dl << 21) | (dh >>> 11)) ^ al;
      dh = ((dh << 21) | (kept >>> 11)) ^ ah;

      sum = (cl + bl) | 0;
      ch = (ch + bh + carry(cl, bl, sum)) | 0;
      kept = bl;
      bl = ((bl << 17) | (bh >>> 15)) ^ sum;
      bh = ((bh << 17) | (kept >>> 15)) ^ ch;
      cl = ch;
      ch = sum;

      al ^= low;
      ah ^= high;
    }
    upper = ah ^ bh ^ ch ^ dh;
    return al ^ bl ^ cl ^ dl;
  }

  return {
    hash: (bytes, start, end) => {
      setMessage(bytes, start, end);
      first = mix(1);
      second = upper;
    },
    first: () => first,
    second: () => second,
    third: () => mix(2),
  };
}

/** The carry of a sum of two halves. Computed from bits, since a comparison would be a branch that is often mispredicted. */
function carry(one: number, other: number, sum: number): number {
  return ((one & other) | ((one ^ other) & ~sum)) >>> 31;
}

function setMessage(bytes: Uint8Array, start: number, end: number): void {
  const length = end - start;
  wordCount = (length >> 3) + 1;
  const used = 2 * (wordCount + 2 * roundsAtEnd);
  if (used > halves.length) throw new RangeError('a text is too long to be hashed');
  let half = 0;
  let at = start;
  for (; at + 4 <= end; at += 4) {
    halves[half++] =
      (bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24);
  }
  let rest = 0;
  for (let last = end - 1; last >= at; last--) rest = (rest << 8) | (bytes[last] as number);
  halves[half++] = rest;
  while (half < used) halves[half++] = 0;
  halves[2 * wordCount - 1] = (halves[2 * wordCount - 1] as number) | (length << 24);
}
