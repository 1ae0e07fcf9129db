// From a body's bytes to a JSON document, or to the reason why it is none. Pure; bounded in time by checking
// the nesting of large documents before they are parsed (10 MB of brackets cost JSON.parse 2.3 s).

import { isAscii, isUtf8 } from 'node:buffer';
import { bodies, counts } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';

export type Document = {
  readonly value: unknown;
  /** Whether an escape in it may have made a lone surrogate; then every string needs a look. */
  readonly surrogates: boolean;
};

/** Parses a whole body. The bytes may be a view that dies when the caller returns: nothing keeps it. */
export function parseDocument(body: Buffer): Document | Rejection {
  const ascii = isAscii(body);
  if (!ascii && !isUtf8(body)) return rejection('invalid_json', 'The body is not valid UTF-8.');
  if (body.length > bodies.depthCheckedBytesMin && depthOf(body) > counts.documentDepthMax) {
    return rejection('too_deep', `The document is nested more than ${counts.documentDepthMax} levels deep.`);
  }
  const text = ascii ? body.toString('latin1') : body.toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return rejection('invalid_json', 'The body is not a JSON document.');
  }
  return { value, surrogates: text.includes('\\ud') || text.includes('\\uD') };
}

const quote = 0x22;
const backslash = 0x5c;

/** Deepest nesting of arrays and objects in a JSON text; counts up to just past the bound. */
function depthOf(json: Buffer): number {
  const length = json.length;
  let depth = 0;
  let deepest = 0;
  for (let i = 0; i < length; i++) {
    const byte = json[i];
    if (byte === quote) {
      for (i++; i < length && json[i] !== quote; i++) if (json[i] === backslash) i++;
    } else if (byte === 0x7b || byte === 0x5b) {
      depth++;
      if (depth > deepest) deepest = depth;
      if (deepest > counts.documentDepthMax) return deepest;
    } else if (byte === 0x7d || byte === 0x5d) {
      depth--;
    }
  }
  return deepest;
}
