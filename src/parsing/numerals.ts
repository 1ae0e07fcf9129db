// Numbers of a JSON text that a double would change: they have more digits than it holds, or too large an exponent.
// Properties are stored as text, so there the digits are kept as text. Anywhere else no field accepts such a number:
// `1.00000000000000000001` is not the user 1. Pure.

import { randomBytes } from 'node:crypto';
import { lengths } from '../contract/limits.js';
import { beginsNumeral, endOfNumeral, endOfText } from './json-text.js';

export type Read = {
  readonly value: unknown;
  /** The digits of numbers that are too long for some property. They are not cut: a part would be another number. */
  readonly longNumerals: ReadonlySet<string>;
  /** How many long numbers there are. */
  readonly longCount: number;
};

/** No other text begins with it, since only this process knows it. */
const marker = randomBytes(15).toString('base64url');

/** A field may accept a number below this as an id or a time. Larger ones are refused anyway. */
const nameable = 2 ** 53;
/** Stands for such a number: no field accepts it, neither as an integer nor as a time. */
const acceptedNowhere = 0.5;

const none: ReadonlySet<string> = new Set();
/** The fields below which every value is a property; `all`: every value of the document is one. */
export type PropertyFields = ReadonlySet<string> | 'all';
/** The fields with properties, unless an endpoint names others. */
export const propertyFields: PropertyFields = new Set(['properties']);
const quote = 0x22;

/**
 * Reads a JSON text, whose parsed value is `parsed`, without changing a number of its properties, which are below the
 * fields `fields`. Numbers that a double prints as the same decimal value stay as parsed: 1.50 becomes 1.5. Undefined if
 * it has more than `longMax` long numbers.
 */
export function keepNumerals(
  json: string,
  parsed: unknown,
  longMax: number,
  fields: PropertyFields,
): Read | undefined {
  const found = markNumerals(json, longMax);
  if (found === undefined) return undefined;
  const { marked, longCount } = found;
  if (marked === json) return { value: parsed, longNumerals: none, longCount };
  const longNumerals = new Set<string>();
  const value = unmark(JSON.parse(marked), { fields, longNumerals }, fields === 'all');
  return { value, longNumerals, longCount };
}

/** The same JSON with a marked text for each number that a double cannot hold; undefined if there are too many. */
function markNumerals(json: string, longMax: number): { marked: string; longCount: number } | undefined {
  let longCount = 0;
  let marked = '';
  let copied = 0;
  for (let at = 0; at < json.length; at++) {
    const unit = json.charCodeAt(at);
    if (unit === quote) {
      at = endOfText(json, at);
    } else if (beginsNumeral(unit)) {
      const start = at;
      const end = endOfNumeral(json, start);
      at = end - 1;
      if (!mayChange(json, start, end)) continue;
      const numeral = json.slice(start, end);
      const decimal = decimalOf(numeral);
      if (isShort(decimal)) continue;
      longCount++;
      if (longCount > longMax) return undefined;
      if (!isHeld(numeral, decimal)) {
        marked += `${json.slice(copied, start)}"${marker}${numeral}"`;
        copied = end;
      }
    }
  }
  return { marked: copied === 0 ? json : marked + json.slice(copied), longCount };
}

type Unmarking = { readonly fields: PropertyFields; readonly longNumerals: Set<string> };

/** Replaces marked texts by their digits. Changes objects in place, whatever their keys. */
function unmark(value: unknown, unmarking: Unmarking, isProperty: boolean): unknown {
  if (typeof value === 'string' && value.startsWith(marker)) {
    const numeral = value.slice(marker.length);
    if (!isProperty) return Math.abs(Number(numeral)) < nameable ? acceptedNowhere : Number(numeral);
    if (numeral.length > lengths.userPropertyValueMax) unmarking.longNumerals.add(numeral);
    return numeral;
  }
  if (typeof value === 'object' && value !== null) {
    if (Array.isArray(value)) return unmarkArray(value, unmarking, isProperty);
    const object = value as Record<string, unknown>;
    const { fields } = unmarking;
    for (const key of Object.keys(object)) {
      const inner = object[key];
      const changed = unmark(inner, unmarking, isProperty || (fields !== 'all' && fields.has(key)));
      if (changed !== inner) object[key] = changed;
    }
  }
  return value;
}

/** Goes through the array by index: the keys of 8 million elements would be 8 million texts. */
function unmarkArray(array: unknown[], unmarking: Unmarking, isProperty: boolean): unknown {
  for (let index = 0; index < array.length; index++) {
    const inner = array[index];
    if (typeof inner !== 'string' && typeof inner !== 'object') continue;
    const changed = unmark(inner, unmarking, isProperty);
    if (changed !== inner) array[index] = changed;
  }
  // An array is joined and cut. If one number in it is too long, that number replaces the array and is refused.
  return isProperty ? (array.find((element) => isTooLong(element, unmarking.longNumerals)) ?? array) : array;
}

function isTooLong(element: unknown, longNumerals: ReadonlySet<string>): boolean {
  return (
    typeof element === 'string' && element.length > lengths.propertyValueMax && longNumerals.has(element)
  );
}

/** A double holds every decimal number with this many digits, between these powers of ten. */
const digitsHeld = 15;
const [powerHeldMin, powerHeldMax] = [-307, 308];

/** Whether a double may be unable to hold a numeral: it has an exponent, or too many characters. */
export function mayChange(json: string, start: number, end: number): boolean {
  if (end - start > digitsHeld) return true;
  for (let at = start; at < end; at++) if (json.charCodeAt(at) > 0x39) return true;
  return false;
}

type Decimal = { readonly digits: string; readonly exponent: number };

/** Whether a double holds a decimal value simply because it has few digits. */
function isShort({ digits, exponent }: Decimal): boolean {
  const power = exponent + digits.length;
  return digits.length <= digitsHeld && ((power > powerHeldMin && power <= powerHeldMax) || digits === '');
}

/**
 * Whether a double holds the decimal value of a numeral, as it is printed. The sign is always held. Numbers beyond all
 * doubles are left to JSON.parse and refused as infinite: as text they would make a sum infinite.
 */
function isHeld(numeral: string, { digits, exponent }: Decimal): boolean {
  const double = Number(numeral);
  if (!Number.isFinite(double)) return true;
  const printed = decimalOf(String(double));
  return digits === printed.digits && exponent === printed.exponent;
}

/**
 * The decimal value of a numeral without its sign: digits without zeros at either end, and a power of ten. Zero has no
 * digits.
 */
function decimalOf(numeral: string): Decimal {
  let first = -1;
  let last = -1;
  /** The zeros at the end, and the digits after the point. */
  let zeros = 0;
  let fraction = 0;
  let point = -1;
  let power = 0;
  for (let at = 0; at < numeral.length; at++) {
    const unit = numeral.charCodeAt(at);
    if (unit >= 0x30 && unit <= 0x39) {
      if (point >= 0) fraction++;
      zeros++;
      if (unit === 0x30) continue;
      if (first < 0) first = at;
      last = at;
      zeros = 0;
    } else if (unit === 0x2e) {
      point = at;
    } else if (unit === 0x65 || unit === 0x45) {
      power = Number(numeral.slice(at + 1));
      break;
    }
  }
  if (first < 0) return { digits: '', exponent: 0 };
  const digits = numeral.slice(first, last + 1);
  const exponent = power - fraction + zeros;
  return { digits: point > first && point < last ? digits.replace('.', '') : digits, exponent };
}
