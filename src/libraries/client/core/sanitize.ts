// Decides which arguments of a call may be sent. What does not meet the contract is left out, with a warning that says why. These functions
// never throw, whatever a page passes, and their results share no objects with the arguments.

import { wouldMergeStrangers } from '../../../contract/identities.js';
import {
  arrayDelimiter,
  counts,
  lengths,
  reservedAutocapturedPropertyKeys,
  reservedEventPropertyKeys,
  reservedUserPropertyKeys,
} from '../../../contract/lengths.js';
import { clientLimits } from './limits.js';
import type { Properties, PropertyValue } from './messages.js';
import { cutToCodePoints, hasLoneSurrogate, isLongerThan, utf8Bytes } from './text.js';

export type Warn = (line: string) => void;

export type PropertyRules = {
  readonly reserved: ReadonlySet<string>;
  /** The maximum length of a value, in code points. */
  readonly valueMax: number;
  /** Whether longer values are cut rather than left out. */
  readonly cuts?: boolean;
};

export const eventRules: PropertyRules = {
  reserved: reservedEventPropertyKeys,
  valueMax: lengths.propertyValueMax,
};
export const userRules: PropertyRules = {
  reserved: reservedUserPropertyKeys,
  valueMax: lengths.userPropertyValueMax,
};
/** For events that the library itself records. */
export const autocaptureRules: PropertyRules = {
  reserved: reservedAutocapturedPropertyKeys,
  valueMax: lengths.propertyValueMax,
  cuts: true,
};

/** The name of an event; undefined if it is not a valid name. */
export function checkEventName(name: unknown, warn: Warn): string | undefined {
  const reason = faultOfText(name, lengths.clientEventMax);
  if (reason === undefined) return name as string;
  warn(`an event is dropped: its name ${reason}.`);
  return undefined;
}

/** An identity; undefined if it is not a valid one. */
export function checkIdentity(identity: unknown, allowed: readonly string[], warn: Warn): string | undefined {
  let reason = faultOfText(identity, lengths.clientIdentityMax);
  if (reason === undefined) {
    if (!wouldMergeStrangers(identity as string) || allowed.indexOf(identity as string) >= 0)
      return identity as string;
    reason = 'is a word that many users would share';
  }
  warn(`identify is ignored: the identity ${reason}.`);
  return undefined;
}

/** Why a text cannot be a name or an identity; undefined if it can. */
export function faultOfText(text: unknown, max: number): string | undefined {
  if (typeof text !== 'string') return 'is not a string';
  return text === '' ? 'is empty' : faultOfCharacters(text, max);
}

function faultOfCharacters(text: string, max: number): string | undefined {
  if (isLongerThan(text, max)) return `has more than ${max} characters`;
  return hasLoneSurrogate(text) ? 'holds half a character' : undefined;
}

/** The properties that may be sent; none for null and undefined. */
export function checkProperties(input: unknown, rules: PropertyRules, warn: Warn): Properties {
  if (input === undefined || input === null) return {};
  let keys: string[];
  try {
    keys = keysOfProperties(input);
  } catch {
    warn('the properties are dropped: they are not a readable object.');
    return {};
  }
  const collected = collectProperties(clientLimits.propertiesBytesMax);
  let taken = 0;
  for (let at = 0; at < keys.length; at++) {
    // So that a large number of properties neither blocks the page nor floods the developer with warnings.
    if (taken === counts.propertiesMax || at - taken === clientLimits.propertiesDroppedMax) {
      warnOfMany(keys.length - at, warn);
      break;
    }
    const key = keys[at] as string;
    const value = readValue(input as object, key, rules);
    const reason = faultOfProperty(key, value, rules);
    // Counts as a property, as absent optional ones do.
    if (value === undefined || value === null) taken++;
    else if (reason !== undefined) warn(dropped(key, reason));
    else if (collected.put(key, value as PropertyValue)) taken++;
    else warn(dropped(key, 'there are too many'));
  }
  return collected.properties;
}

/** Throws for arrays and strings, whose keys are positions, and for maps and dates, whose contents are not properties. */
function keysOfProperties(input: unknown): string[] {
  if (typeof input !== 'object' || Array.isArray(input)) throw input;
  const keys = Object.keys(input as object);
  if (keys.length === 0 && Object.prototype.toString.call(input) !== '[object Object]') throw input;
  return keys;
}

/** The event's own properties with the global ones that it does not override, as many as fit. */
export function mergeProperties(global: Properties, own: Properties, warn: Warn): Properties {
  const collected = collectProperties(2 * clientLimits.propertiesBytesMax);
  let left = 0;
  for (const key of Object.keys(own)) collected.put(key, own[key] as PropertyValue);
  for (const key of Object.keys(global)) {
    if (!hasOwn(own, key) && !collected.put(key, global[key] as PropertyValue)) left++;
  }
  if (left > 0) warnOfMany(left, warn);
  return collected.properties;
}

function warnOfMany(count: number, warn: Warn): void {
  warn(`${count} properties are dropped: there are too many.`);
}

/** Properties being collected, limited in number and bytes. */
function collectProperties(bytesMax: number) {
  const properties: Record<string, PropertyValue> = {};
  let count = 0;
  let bytes = 0;
  return {
    properties,
    /** Returns false if it does not fit. */
    put(key: string, value: PropertyValue): boolean {
      const size = utf8Bytes(JSON.stringify(key)) + utf8Bytes(JSON.stringify(value)) + 2;
      if (count === counts.propertiesMax || bytes + size > bytesMax) return false;
      count++;
      bytes += size;
      define(properties, key, value);
      return true;
    },
  };
}

/**
 * Gives an object a property. It is defined, not assigned, so that `__proto__` is a key like any other. The descriptor inherits nothing,
 * since a page may have added a getter to every object.
 */
export function define(object: object, key: string, value: unknown): void {
  const descriptor: PropertyDescriptor = Object.create(null);
  descriptor.value = value;
  descriptor.enumerable = descriptor.configurable = descriptor.writable = true;
  Object.defineProperty(object, key, descriptor);
}

export function hasOwn(object: object, key: string): boolean {
  return Object.prototype.propertyIsEnumerable.call(object, key);
}

const unreadable = Symbol();

function readValue(input: object, key: string, rules: PropertyRules): unknown {
  try {
    const value = (input as Record<string, unknown>)[key];
    // The form in which lenient environments store them.
    if (typeof value === 'boolean') return String(value);
    if (Array.isArray(value)) return joined(value, rules);
    return rules.cuts && typeof value === 'string' ? cutToCodePoints(value, rules.valueMax) : value;
  } catch {
    return unreadable;
  }
}

/** A list joined into one string, cut to the limit; the list itself if it contains anything that is no property value. */
function joined(list: readonly unknown[], rules: PropertyRules): unknown {
  const isRight = list.every((value) => typeof value === 'boolean' || !faultOfValue(value, rules));
  return isRight && list.length > 0 ? cutToCodePoints(list.join(arrayDelimiter), rules.valueMax) : list;
}

function faultOfProperty(key: string, value: unknown, rules: PropertyRules): string | undefined {
  const ofKey = rules.reserved.has(key) ? 'is reserved' : faultOfCharacters(key, lengths.propertyKeyMax);
  if (ofKey !== undefined) return `its key ${ofKey}`;
  const ofValue = faultOfValue(value, rules);
  return ofValue && `it ${ofValue}`;
}

function faultOfValue(value: unknown, rules: PropertyRules): string | undefined {
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : 'is not a finite number';
  if (value === unreadable) return 'cannot be read';
  if (typeof value !== 'string') return 'is neither a number nor a string';
  return faultOfCharacters(value, rules.valueMax);
}

function dropped(key: string, reason: string): string {
  return `the property ${JSON.stringify(cutToCodePoints(key, 40))} is dropped: ${reason}.`;
}
