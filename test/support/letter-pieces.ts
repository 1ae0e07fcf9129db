// The pieces of a long text that sender and reader both know: each repeats one letter, and their lengths differ.

const letters = Array.from({ length: 26 }, (_, letter) => Buffer.alloc(66_000, 0x61 + letter));

export function pieceOf(number: number): Buffer {
  return letters[number % letters.length]?.subarray(0, 65_300 + ((number * 7) % 600)) as Buffer;
}
