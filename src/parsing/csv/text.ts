// From the bytes of a file to its text, for lists in the console and for imports. Nothing is guessed, since in a wrong encoding two names
// could become one: a byte order mark says that a file is UTF-16, Windows-1252 is read only when somebody asks for it, and everything else
// must be UTF-8.

export type Encoding = 'utf-8' | 'utf-16le' | 'utf-16be' | 'windows-1252';

/** The bytes are not text in the encoding. `line` is counted from 1. */
export class WrongEncoding extends Error {
  readonly line: number;

  constructor(encoding: Encoding, line: number) {
    super(`line ${line} is not ${encodingNames[encoding]}`);
    this.line = line;
  }
}

/** For people. */
export const encodingNames: Readonly<Record<Encoding, string>> = {
  'utf-8': 'UTF-8',
  'utf-16le': 'UTF-16',
  'utf-16be': 'UTF-16',
  'windows-1252': 'Windows-1252',
};

/** The encoding that a byte order mark names; undefined without one. */
export function markedEncoding(head: Uint8Array): Encoding | undefined {
  if (head[0] === 0xff && head[1] === 0xfe) return 'utf-16le';
  if (head[0] === 0xfe && head[1] === 0xff) return 'utf-16be';
  return head[0] === 0xef && head[1] === 0xbb && head[2] === 0xbf ? 'utf-8' : undefined;
}

/**
 * Returns a function that takes a file piece by piece, the last one with `isLast`, and returns the text of the piece, without the byte
 * order mark. It throws WrongEncoding.
 */
export function createDecoder(encoding: Encoding): (bytes: Uint8Array, isLast: boolean) => string {
  let rest: Uint8Array = new Uint8Array();
  let isFirst = true;
  let lineFeeds = 0;
  let returns = 0;
  const count = (text: string) => {
    lineFeeds += occurrences(text, '\n');
    if (lineFeeds === 0) returns += occurrences(text, '\r');
  };
  return (bytes, isLast) => {
    const all = rest.length === 0 ? bytes : joined(rest, bytes);
    const end = isLast ? all.length : wholeCharacters(all, encoding);
    rest = all.slice(end);
    const piece = all.subarray(0, end);
    const text = decoded(piece, encoding);
    if (text === undefined) {
      count(longestText(piece, encoding));
      throw new WrongEncoding(encoding, 1 + (lineFeeds || returns));
    }
    count(text);
    const isMarked = isFirst && text.startsWith('\ufeff');
    isFirst &&= text === '';
    return isMarked ? text.slice(1) : text;
  };
}

function occurrences(text: string, unit: string): number {
  let found = 0;
  for (let at = text.indexOf(unit); at >= 0; at = text.indexOf(unit, at + 1)) found += 1;
  return found;
}

/** Undefined if the bytes are not in the encoding. `isPart`: they may end within a character. */
function decoded(bytes: Uint8Array, encoding: Encoding, isPart = false): string | undefined {
  // By this label the web's standard means Windows-1252, but some versions of Node mean Latin-1, as its name says.
  const label = encoding === 'windows-1252' ? 'iso-8859-1' : encoding;
  try {
    const text = new TextDecoder(label, { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isPart });
    if (encoding !== 'windows-1252') return text;
    const all = text.replace(/[\x80-\x9f]/g, (control) => windows[control.charCodeAt(0) - 0x80] ?? '');
    return all.includes('\ufffd') ? undefined : all;
  } catch {
    return undefined;
  }
}

/** The characters for the bytes from 0x80 to 0x9f; five of them have none. */
const windows = '€\ufffd‚ƒ„…†‡ˆ‰Š‹Œ\ufffdŽ\ufffd\ufffd‘’“”•–—˜™š›œ\ufffdžŸ';

/** The text before the first byte that is wrong. */
function longestText(bytes: Uint8Array, encoding: Encoding): string {
  let good = 0;
  let bad = bytes.length + 1;
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    if (decoded(bytes.subarray(0, middle), encoding, true) === undefined) bad = middle;
    else good = middle;
  }
  return decoded(bytes.subarray(0, good), encoding, true) ?? '';
}

/** How many of the bytes make whole characters. */
function wholeCharacters(bytes: Uint8Array, encoding: Encoding): number {
  const { length } = bytes;
  if (encoding === 'windows-1252') return length;
  if (encoding !== 'utf-8') {
    const even = length - (length % 2);
    const high = bytes[encoding === 'utf-16le' ? even - 1 : even - 2] ?? 0;
    return high >= 0xd8 && high <= 0xdb ? even - 2 : even;
  }
  for (let back = 1; back <= 3 && back <= length; back += 1) {
    const byte = bytes[length - back] ?? 0;
    if (byte < 0x80) return length;
    if (byte < 0xc0) continue;
    const wanted = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return wanted > back ? length - back : length;
  }
  return length;
}

function joined(one: Uint8Array, other: Uint8Array): Uint8Array {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}
