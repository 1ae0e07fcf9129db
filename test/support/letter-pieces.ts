// The pieces of a long text that sender and reader both know: each repeats the alphabet from another letter on, and their lengths differ.

const alphabet = 'abcdefghijklmnopqrstuvwxyz';
const letters = Array.from(alphabet, (_, at) =>
  Buffer.alloc(66_000, alphabet.slice(at) + alphabet.slice(0, at)),
);

export function pieceOf(number: number): Buffer {
  return letters[number % letters.length]?.subarray(0, 65_300 + ((number * 7) % 600)) as Buffer;
}
