// Numbers of a JSON text that a double would store as other numbers: more digits than it keeps, or an exponent beyond
// its own. As properties they are stored as text, so their digits are kept as text. Anywhere else they name nothing:
// `1.00000000000000000001` is not the user 1. Pure.

import { randomBytes } from 'node:crypto';
import { counts, lengths } from '../contract/limits.js';
import { beginsNumeral, endOfNumeral, endOfText } from './json-text.js';

export type Read = {
  readonly value: unknown;
  /** Digits of numbers that are longer than some property's value may be: a part of them would be another number. */
  readonly longNumerals: ReadonlySet<string>;
};

/** No other text begins with it: nobody outside this process knows it. */
const marker = randomBytes(15).toString('base64url');

/** Numbers below this are taken as ids or times somewhere; beyond it all are refused as they are. */
const nameable = 2 ** 53;
/** A number that no field takes, neither as an integer nor as a time. */
const takenNowhere = 0.5;

const none: ReadonlySet<string> = new Set();
const quote = 0x22;

/**
 * Reads a JSON text whose parsed value is `parsed`, so that no number of its properties is another one. Numbers that a
 * double prints as the same decimal value stay as they are parsed, such as 1.50, which becomes 1.5. Undefined when it
 * has more long numbers than a document may have.
 */
export function keepNumerals(json: string, parsed: unknown): Read | undefined {
  const marked = markNumerals(json);
  if (marked === undefined) return undefined;
  if (marked === json) return { value: parsed, longNumerals: none };
  const longNumerals = new Set<string>();
  return { value: unmark(JSON.parse(marked), false, longNumerals), longNumerals };
}

/** The same JSON with a marked text in the place of each number that a double does not hold; undefined when it has too many. */
function markNumerals(json: string): string | undefined {
  let long = 0;
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
      long++;
      if (long > counts.documentLongNumeralsMax) return undefined;
      if (!isHeld(numeral, decimal)) {
        marked += `${json.slice(copied, start)}"${marker}${numeral}"`;
        copied = end;
      }
    }
  }
  return copied === 0 ? json : marked + json.slice(copied);
}

/** Puts digits in the place of marked texts. Objects are changed as they are, whatever keys they have. */
function unmark(value: unknown, isProperty: boolean, longNumerals: Set<string>): unknown {
  if (typeof value === 'string' && value.startsWith(marker)) {
    const numeral = value.slice(marker.length);
    if (!isProperty) return Math.abs(Number(numeral)) < nameable ? takenNowhere : Number(numeral);
    if (numeral.length > lengths.userPropertyValueMax) longNumerals.add(numeral);
    return numeral;
  }
  if (typeof value === 'object' && value !== null) {
    if (Array.isArray(value)) return unmarkArray(value, isProperty, longNumerals);
    const object = value as Record<string, unknown>;
    for (const key of Object.keys(object)) {
      const inner = object[key];
      const changed = unmark(inner, isProperty || key === 'properties', longNumerals);
      if (changed !== inner) object[key] = changed;
    }
  }
  return value;
}

/** By index: the keys of an array of 8 million elements would be as many texts. */
function unmarkArray(array: unknown[], isProperty: boolean, longNumerals: Set<string>): unknown {
  for (let index = 0; index < array.length; index++) {
    const inner = array[index];
    if (typeof inner !== 'string' && typeof inner !== 'object') continue;
    const changed = unmark(inner, isProperty, longNumerals);
    if (changed !== inner) array[index] = changed;
  }
  // An array is joined and cut. A number that does not fit by itself stands for it, and is refused.
  return isProperty ? (array.find((element) => isTooLong(element, longNumerals)) ?? array) : array;
}

function isTooLong(element: unknown, longNumerals: ReadonlySet<string>): boolean {
  return (
    typeof element === 'string' && element.length > lengths.propertyValueMax && longNumerals.has(element)
  );
}

/** A double holds every decimal number of so many digits, between such powers of ten. */
const digitsHeld = 15;
const [powerHeldMin, powerHeldMax] = [-307, 308];

/** Whether a numeral may be one that a double does not hold: it has an exponent, or more digits, signs and points. */
export function mayChange(json: string, start: number, end: number): boolean {
  if (end - start > digitsHeld) return true;
  for (let at = start; at < end; at++) if (json.charCodeAt(at) > 0x39) return true;
  return false;
}

type Decimal = { readonly digits: string; readonly exponent: number };

/** Whether a double holds a decimal value for its few digits alone. */
function isShort({ digits, exponent }: Decimal): boolean {
  const power = exponent + digits.length;
  return digits.length <= digitsHeld && ((power > powerHeldMin && power <= powerHeldMax) || digits === '');
}

/**
 * Whether a double holds the decimal value of a numeral, as it is printed. Its sign it always holds. What is beyond all
 * doubles is left to JSON.parse, and refused as infinite: as text it would make a sum infinite.
 */
function isHeld(numeral: string, { digits, exponent }: Decimal): boolean {
  const double = Number(numeral);
  if (!Number.isFinite(double)) return true;
  const printed = decimalOf(String(double));
  return digits === printed.digits && exponent === printed.exponent;
}

/**
 * The decimal value of a numeral without its sign: digits without zeros at either end, times a power of ten; zero has
 * no digits.
 */
function decimalOf(numeral: string): Decimal {
  let first = -1;
  let last = -1;
  /** Digits behind the last one that is not zero, and behind the point. */
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
