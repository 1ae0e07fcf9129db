// Plants JSON that programs often fail on into the document of a valid request: nesting of every kind and depth, and lone surrogates as a
// value or a key anywhere.

import { gzipSync } from 'node:zlib';
import { readDocument, readRequest } from './framing.js';
import { withRightLength } from './mutate.js';
import type { Random } from './random.js';

/** Nested this deep, arrays exceed 64 KiB, and objects 256 KiB. */
const depthMax = 65_536;
/** Depths around the service's bound, and around those at which recursive programs begin to fail. */
const tellingDepths = [1, 2, 62, 63, 64, 65, 66, 1_000, 5_000, 30_000, depthMax];
const innermost = ['', 'null', '1', '"x"', '"\\ud800"', '[]', '{}', '1,2'];
const loneSurrogates = ['\\ud800', '\\uDFFF', 'a\\udbff', '\\ude00\\ud83d', '\\ud83d\\\\ude00'];
const placeholder = '@planted@';

type Container = Record<string, unknown> | unknown[];

/** Plants something in the document of a request; undefined if it has no document. */
export function plant(bytes: Buffer, random: Random): Buffer | undefined {
  const request = readRequest(bytes, 0);
  const document = readDocument(request?.body);
  if (document === undefined) return undefined;
  const planted = random.oneIn(4) ? `"${random.pick(loneSurrogates)}"` : nesting(random);
  const text =
    planted.startsWith('"') && random.oneIn(2) ? asKey(document, random) : asValue(document, random);
  const body = Buffer.from(text.replace(`"${placeholder}"`, () => planted));
  const head = bytes
    .toString('latin1', 0, bytes.indexOf('\r\n\r\n') + 4)
    .replace(/^transfer-encoding:[^\r\n]*/im, 'Content-Length: 0');
  const encoded = /^content-encoding: gzip/im.test(head) ? gzipSync(body) : body;
  return withRightLength(Buffer.concat([Buffer.from(head, 'latin1'), encoded]));
}

/** The document with the placeholder as one of its values, as a further element or field, or as the whole document. */
function asValue(document: Container, random: Random): string {
  const containers = containersIn(document);
  const at = random.below(containers.length + 1);
  const container = containers[at];
  if (container === undefined) return JSON.stringify(placeholder);
  const keys = Object.keys(container);
  const key = random.pick([...keys, Array.isArray(container) ? String(keys.length) : 'more']);
  (container as Record<string, unknown>)[key] = placeholder;
  return JSON.stringify(document);
}

function asKey(document: Container, random: Random): string {
  const objects = containersIn(document).filter((container) => !Array.isArray(container));
  (random.pick(objects) as Record<string, unknown>)[placeholder] = 1;
  return JSON.stringify(document);
}

/** The objects and arrays of a valid document, outer ones before inner ones. There may be thousands, but never deep ones. */
function containersIn(value: unknown, found: Container[] = []): Container[] {
  if (typeof value !== 'object' || value === null) return found;
  found.push(value as Container);
  for (const inner of Object.values(value)) containersIn(inner, found);
  return found;
}

/** Nested arrays, objects or both. In one of eight cases closing brackets are missing or come first. */
function nesting(random: Random): string {
  const depth = random.oneIn(2)
    ? random.pick(tellingDepths)
    : Math.floor(depthMax ** (random.below(1_000) / 1_000));
  const [opening, closing] = random.pick([
    ['[', ']'],
    ['{"a":', '}'],
    ['[{"a":', '}]'],
    ['[0,{"":[', ']}]'],
  ] as const);
  const times = Math.max(1, Math.round(depth / (opening.match(/[[{]/g) as string[]).length));
  const inner = opening.endsWith(':') ? random.pick(innermost.slice(1, -1)) : random.pick(innermost);
  const opened = opening.repeat(times);
  const closed = closing.repeat(times);
  if (!random.oneIn(8)) return opened + inner + closed;
  return random.pick([opened + inner, closed + opened + inner, `"${opened}`, opened + closed.slice(1)]);
}
