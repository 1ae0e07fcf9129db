// Plain JSON: texts without escapes, and numbers as `JSON.stringify` writes them, read from bytes that are known to be
// UTF-8. Each function gets where to begin and returns where it ended, or `nowhere` if something else is there, which may
// still be JSON. Bytes past the end are undefined, which equals no byte.

export const nowhere = -1;

const blank = 0x20;
const quote = 0x22;
const minus = 0x2d;
const point = 0x2e;
const zero = 0x30;
const nine = 0x39;

/** For each byte, whether it stands for itself in a text: quotes, backslashes and control characters do not. */
const standsForItself = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte >= blank && byte !== quote && byte !== 0x5c ? 1 : 0,
);

/** How much white space was skipped since this was set to 0. */
export const skipped = { blanks: 0 };

/** The first byte from here on that is not white space. */
export function skipBlanks(bytes: Uint8Array, at: number): number {
  let byte = bytes[at] as number;
  // Usually there is none, and one comparison says so.
  while (byte <= blank && isBlank(byte)) {
    skipped.blanks += 1;
    byte = bytes[++at] as number;
  }
  return at;
}

function isBlank(byte: number): boolean {
  return byte === blank || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/** The closing quote of the text that begins here. */
export function endOfText(bytes: Uint8Array, at: number): number {
  if (bytes[at] !== quote) return nowhere;
  do at++;
  while (standsForItself[bytes[at] as number] === 1);
  return bytes[at] === quote ? at : nowhere;
}

/**
 * The byte after the number that begins here. Its digits are the ones that `JSON.stringify` would write for its value: at most 15,
 * which a double keeps, with no superfluous zero, no exponent, and not so small that it would need one.
 */
export function endOfNumber(bytes: Uint8Array, at: number): number {
  const start = bytes[at] === minus ? at + 1 : at;
  let end = skipDigits(bytes, start);
  const whole = end - start;
  const isZero = bytes[start] === zero;
  if (whole === 0 || (isZero && whole > 1)) return nowhere;
  let fraction = 0;
  if (bytes[end] === point) {
    const from = end + 1;
    end = skipDigits(bytes, from);
    fraction = end - from;
    if (fraction === 0 || bytes[end - 1] === zero || (isZero && fraction > 6)) return nowhere;
  } else if (isZero && start > at) {
    return nowhere;
  }
  return whole + fraction > 15 ? nowhere : end;
}

function skipDigits(bytes: Uint8Array, at: number): number {
  while ((bytes[at] as number) >= zero && (bytes[at] as number) <= nine) at++;
  return at;
}

/** Whether these bytes are here. */
export function matchesAt(bytes: Uint8Array, at: number, expected: Uint8Array): boolean {
  for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
  return true;
}

/** Whether the same bytes stand at two places. */
export function haveSameBytes(bytes: Uint8Array, one: number, other: number, length: number): boolean {
  for (let i = 0; i < length; i++) if (bytes[one + i] !== bytes[other + i]) return false;
  return true;
}

/** Copies JSON without escapes, without the white space between its tokens. Returns where the copy ends. */
export function copyCompact(
  from: Uint8Array,
  start: number,
  end: number,
  into: Uint8Array,
  at: number,
): number {
  let inText = false;
  for (let i = start; i < end; i++) {
    const byte = from[i] as number;
    if (byte === quote) inText = !inText;
    if (byte > blank || inText) into[at++] = byte;
  }
  return at;
}
