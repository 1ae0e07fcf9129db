// Mutates the bytes of a valid request: single bits and bytes, ranges, numbers, characters with a meaning in HTTP and JSON, and the
// boundary between two requests.

import type { Random } from './random.js';

const meaningfulBytes = [
  0x00, 0x09, 0x0a, 0x0d, 0x20, 0x22, 0x2c, 0x3a, 0x5b, 0x5c, 0x7b, 0x7d, 0x7f, 0x80, 0xff,
];

const fragments = [
  '\r\n',
  '\r\n\r\n',
  '\n\n',
  '\r\n ',
  'Content-Length: 0\r\n',
  'Content-Length: 1\r\n',
  'Content-Length: 18446744073709551616\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: chunked, gzip\r\n',
  'Content-Encoding: gzip\r\n',
  'Content-Type: application/json; charset=utf-16\r\n',
  'Connection: close\r\n',
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n',
  'Expect: 100-continue\r\n',
  'Host: a\r\n',
  '0\r\n\r\n',
  'ffffffff\r\n',
  '1;a\r\n',
  ' HTTP/1.0',
  '\\ud800',
  '\\u0000',
  '{"a":',
  '[[[[[[[[',
  '"__proto__":{"polluted":1},',
  '"app_id":null,',
  ',"events":[{}]',
  ',"identity":7',
  'null',
  '1e999',
  '-0',
  '\ufeff',
  'é',
  '\u2028',
];

const numbers = [
  '0',
  '-1',
  '1',
  '255',
  '256',
  '65536',
  '2147483648',
  '4294967296',
  '9007199254740993',
  '1e309',
  '0x10',
];

type Mutation = (bytes: Buffer, random: Random, other: Buffer) => Buffer;

const mutations: readonly Mutation[] = [
  function flipBit(bytes, random) {
    const changed = Buffer.from(bytes);
    const at = random.below(changed.length);
    changed[at] = (changed[at] as number) ^ (1 << random.below(8));
    return changed;
  },
  function setByte(bytes, random) {
    const changed = Buffer.from(bytes);
    changed[random.below(changed.length)] = random.oneIn(2)
      ? random.pick(meaningfulBytes)
      : random.below(256);
    return changed;
  },
  function insertBytes(bytes, random) {
    const inserted = Buffer.from(Array.from({ length: 1 + random.below(8) }, () => random.below(256)));
    return insert(bytes, random.below(bytes.length + 1), inserted);
  },
  function insertFragment(bytes, random) {
    return insert(bytes, random.below(bytes.length + 1), Buffer.from(random.pick(fragments)));
  },
  function insertHeader(bytes, random) {
    const lineEnd = bytes.indexOf('\r\n');
    const header = Buffer.from(random.pick(fragments.filter((text) => text.includes(': '))));
    return lineEnd < 0 ? bytes : insert(bytes, lineEnd + 2, header);
  },
  function removeRange(bytes, random) {
    const [from, to] = range(bytes, random);
    return Buffer.concat([bytes.subarray(0, from), bytes.subarray(to)]);
  },
  function repeatRange(bytes, random) {
    const [from, to] = range(bytes, random);
    const times = 1 + random.below(random.oneIn(20) ? 200 : 3);
    return insert(bytes, to, Buffer.concat(Array.from({ length: times }, () => bytes.subarray(from, to))));
  },
  function moveRange(bytes, random) {
    const [from, to] = range(bytes, random);
    const rest = Buffer.concat([bytes.subarray(0, from), bytes.subarray(to)]);
    return insert(rest, random.below(rest.length + 1), bytes.subarray(from, to));
  },
  function cutOff(bytes, random) {
    return bytes.subarray(0, 1 + random.below(bytes.length));
  },
  function changeNumber(bytes, random) {
    const text = bytes.toString('latin1');
    const found = [...text.matchAll(/\d+/g)];
    const { 0: digits = '', index = 0 } = found[random.below(found.length)] ?? {};
    return Buffer.from(
      text.slice(0, index) + random.pick(numbers) + text.slice(index + digits.length),
      'latin1',
    );
  },
  function spliceOther(bytes, random, other) {
    return Buffer.concat([
      bytes.subarray(0, random.below(bytes.length + 1)),
      other.subarray(random.below(other.length)),
    ]);
  },
  function changeCase(bytes, random) {
    const changed = Buffer.from(bytes);
    for (let count = 1 + random.below(6); count > 0; count -= 1) {
      const at = random.below(changed.length);
      const byte = changed[at] as number;
      if ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7a) changed[at] = byte ^ 0x20;
    }
    return changed;
  },
];

/**
 * Mutates a request one to four times; in half of the cases only its body. In three of four cases it then corrects Content-Length, so that
 * the defect gets further into the service.
 */
export function mutate(bytes: Buffer, random: Random, other: Buffer): Buffer {
  const bodyAt = bytes.indexOf('\r\n\r\n') + 4;
  const kept = bodyAt < bytes.length && random.oneIn(2) ? bodyAt : 0;
  let changed = bytes.subarray(kept);
  for (let count = 1 + random.below(4); count > 0 && changed.length > 0; count -= 1) {
    changed = random.pick(mutations)(changed, random, other);
  }
  const whole = Buffer.concat([bytes.subarray(0, kept), changed]);
  if (whole.length === 0) return Buffer.from('\r\n');
  return random.oneIn(4) ? whole : withRightLength(whole);
}

/** Corrects the Content-Length of a request, if it has one, to the bytes after the head. */
export function withRightLength(bytes: Buffer): Buffer {
  const bodyAt = bytes.indexOf('\r\n\r\n') + 4;
  if (bodyAt === 3) return bytes;
  const head = bytes.toString('latin1', 0, bodyAt);
  const changed = head.replace(/^(content-length:)[^\r\n]*/im, `$1 ${bytes.length - bodyAt}`);
  return Buffer.concat([Buffer.from(changed, 'latin1'), bytes.subarray(bodyAt)]);
}

function insert(bytes: Buffer, at: number, inserted: Buffer): Buffer {
  return Buffer.concat([bytes.subarray(0, at), inserted, bytes.subarray(at)]);
}

/** A random range, usually a short one. */
function range(bytes: Buffer, random: Random): [number, number] {
  const from = random.below(bytes.length);
  const length = 1 + random.below(random.oneIn(4) ? bytes.length - from : Math.min(16, bytes.length - from));
  return [from, from + length];
}
