// Properties: what a schema cannot check, and their form in a row. Pure. On the path of every record.

import { arrayDelimiter, counts, lengths } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { cutToCodePoints, isLongerThan } from '../parsing/code-points.js';

/** Values are numbers, strings, or arrays of these. */
export type Properties = Readonly<Record<string, unknown>>;

/** Checks the number and the keys of properties. Returns whether one of the values is an array, or a rejection. */
export function checkProperties(properties: Properties, reserved: ReadonlySet<string>): boolean | Rejection {
  let count = 0;
  let hasArrays = false;
  for (const key in properties) {
    count++;
    if (isLongerThan(key, lengths.propertyKeyMax)) return keyTooLong;
    if (reserved.has(key)) {
      return rejection(
        'reserved_property',
        `The key ${key} must not be used in properties.`,
        `properties.${key}`,
      );
    }
    if (typeof properties[key] === 'object') hasArrays = true;
  }
  return count > counts.propertiesMax ? tooMany : hasArrays;
}

const keyTooLong = rejection(
  'too_long',
  `A property's key must have at most ${lengths.propertyKeyMax} characters.`,
  'properties',
);
const tooMany = rejection(
  'too_many_properties',
  `An object may have at most ${counts.propertiesMax} properties.`,
  'properties',
);

/** Properties as JSON, their arrays joined. */
export function encodeProperties(properties: Properties | undefined, hasArrays: boolean): string {
  if (properties === undefined) return '{}';
  return hasArrays ? encodeJoined(properties) : JSON.stringify(properties);
}

/** Like JSON.stringify, with arrays joined. Written key by key, so that `__proto__` stays a plain key. */
function encodeJoined(properties: Properties): string {
  let encoded = '';
  for (const key in properties) {
    const value = properties[key];
    const text = Array.isArray(value) ? joinArray(value) : value;
    encoded += `${encoded === '' ? '{' : ','}${JSON.stringify(key)}:${JSON.stringify(text)}`;
  }
  return `${encoded}}`;
}

/**
 * Joins an array's elements with `||`, cut after 1024 code points. It stops reading at the cut, so an array of a million
 * elements costs no more than one of a thousand.
 */
export function joinArray(elements: readonly (string | number)[]): string {
  let joined = '';
  for (let i = 0; i < elements.length; i++) {
    if (i > 0) joined += arrayDelimiter;
    joined += elements[i];
    if (joined.length > 2 * lengths.joinedArrayMax) break;
  }
  return cutToCodePoints(joined, lengths.joinedArrayMax);
}
