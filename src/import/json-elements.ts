// Splits a stream of JSON into its elements without parsing them: lines, the elements of one array, or objects one after another.

import { counts, imports } from '../contract/limits.js';

/** The content is not one of these lists. */
class Malformed extends Error {}

/** An element: its number, counted from 1, and its bytes. */
export type Element = { readonly place: number; readonly bytes: Buffer };

const lineFeed = 0x0a;

/** Splits content into the lines that are not blank. An element's place is the line's number. */
export async function* splitLines(content: AsyncIterable<Buffer>): AsyncGenerator<Element> {
  let rest: Buffer[] = [];
  let restBytes = 0;
  let place = 0;
  let isFirst = true;
  for await (const chunk of content) {
    let from = isFirst && chunk.subarray(0, 3).equals(byteOrderMark) ? 3 : 0;
    isFirst = false;
    for (let at = chunk.indexOf(lineFeed, from); at >= 0; at = chunk.indexOf(lineFeed, from)) {
      const end = chunk.subarray(from, at);
      const bytes = rest.length === 0 ? end : Buffer.concat([...rest, end]);
      rest = [];
      restBytes = 0;
      from = at + 1;
      place += 1;
      if (!isBlank(bytes)) yield { place, bytes };
    }
    if (from === chunk.length) continue;
    rest.push(chunk.subarray(from));
    restBytes += chunk.length - from;
    if (restBytes > imports.elementBytesMax) throw new Malformed(`line ${place + 1} has more than 64 MiB`);
  }
  const bytes = Buffer.concat(rest);
  if (!isBlank(bytes)) yield { place: place + 1, bytes };
}

const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);

const oneArray = 'the file must be one JSON array';

/**
 * Splits one array, which only white space may surround, into its elements; or splits content into objects with only white space between
 * them, over any number of lines, as tools print them.
 */
export async function* splitValues(content: AsyncIterable<Buffer>): AsyncGenerator<Element> {
  /** Decided by the first byte that is not blank. */
  let isArray: boolean | undefined;
  const noun = () => (isArray ? 'element' : 'object');
  let depth = 0;
  let inText = false;
  let escaped = false;
  let place = 0;
  let element: Buffer[] = [];
  let elementBytes = 0;
  let isOpen = false;
  let isFirst = true;
  for await (const chunk of content) {
    let from = isFirst && chunk.subarray(0, 3).equals(byteOrderMark) ? 3 : 0;
    isFirst = false;
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (inText) {
        if (escaped) escaped = false;
        else if (byte === 0x5c) escaped = true;
        else if (byte === 0x22) inText = false;
        continue;
      }
      if (depth === 0) {
        if (isBlankByte(byte)) continue;
        isArray ??= byte !== 0x7b;
        if (isArray ? isOpen || byte !== 0x5b : byte !== 0x7b)
          throw new Malformed(isArray ? oneArray : `after object ${place} is something other than an object`);
        isOpen = true;
        from = isArray ? at + 1 : at;
      }
      const isComma = byte === 0x2c;
      if (byte === 0x22) inText = true;
      else if (byte === 0x5b || byte === 0x7b) {
        depth += 1;
        if (depth > counts.documentDepthMax + 1)
          throw new Malformed(`${noun()} ${place + 1} is nested too deeply`);
      } else if (byte === 0x5d || byte === 0x7d || (isComma && isArray)) {
        if (!isComma) depth -= 1;
        if (depth !== (isComma ? 1 : 0)) continue;
        const bytes = Buffer.concat([...element, chunk.subarray(from, isArray ? at : at + 1)]);
        element = [];
        elementBytes = 0;
        from = at + 1;
        if (isArray && byte === 0x7d) throw new Malformed(oneArray);
        if (isArray && !isComma && isBlank(bytes) && place === 0) continue;
        place += 1;
        yield { place, bytes };
      }
    }
    if (depth === 0) continue;
    element.push(chunk.subarray(from));
    elementBytes += chunk.length - from;
    if (elementBytes > imports.elementBytesMax)
      throw new Malformed(`${noun()} ${place + 1} has more than 64 MiB`);
  }
  if (depth === 0 && isOpen) return;
  throw new Malformed(
    isArray === false ? `the file ends within object ${place + 1}` : `${oneArray}, and it ends within it`,
  );
}

function isBlank(bytes: Buffer): boolean {
  for (const byte of bytes) if (!isBlankByte(byte)) return false;
  return true;
}

function isBlankByte(byte: number): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d || byte === lineFeed;
}
