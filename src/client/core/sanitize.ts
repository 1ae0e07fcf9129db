// What of a call's arguments may be sent. Whatever is not as the contract says is left out with a warning that
// says why; nothing a page hands over makes these functions throw. The results share nothing with the arguments.

import { wouldMergeStrangers } from '../../contract/identities.js';
import {
  counts,
  lengths,
  reservedAutocapturedPropertyKeys,
  reservedEventPropertyKeys,
  reservedUserPropertyKeys,
} from '../../contract/lengths.js';
import { clientLimits } from './limits.js';
import type { Properties, PropertyValue } from './messages.js';
import { cutToCodePoints, isBroken, isLongerThan, utf8Bytes } from './text.js';

export type Warn = (line: string) => void;

export type PropertyRules = {
  readonly reserved: ReadonlySet<string>;
  /** Of a value, in code points. */
  readonly valueMax: number;
  /** Whether longer values are cut instead of left out. */
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
/** For what the library records by itself. */
export const autocaptureRules: PropertyRules = {
  reserved: reservedAutocapturedPropertyKeys,
  valueMax: lengths.propertyValueMax,
  cuts: true,
};

/** The name of an event, or undefined when no event can have it. */
export function checkEventName(name: unknown, warn: Warn): string | undefined {
  const reason = faultOfText(name, lengths.clientEventMax);
  if (reason === undefined) return name as string;
  warn(`an event is dropped: its name ${reason}.`);
  return undefined;
}

/** An identity, or undefined when nobody can be identified by it. */
export function checkIdentity(identity: unknown, allowed: readonly string[], warn: Warn): string | undefined {
  let reason = faultOfText(identity, lengths.clientIdentityMax);
  if (reason === undefined) {
    if (!wouldMergeStrangers(identity as string) || allowed.indexOf(identity as string) >= 0)
      return identity as string;
    reason = 'is a word that many users would share, who would become one for ever';
  }
  warn(`identify is ignored: the identity ${reason}.`);
  return undefined;
}

/** Why a text cannot be a name or an identity; undefined when it can. */
export function faultOfText(text: unknown, max: number): string | undefined {
  if (typeof text !== 'string') return 'is no string';
  if (text === '') return 'is empty';
  if (isLongerThan(text, max)) return `has more than ${max} characters`;
  return isBroken(text) ? 'holds half a character' : undefined;
}

/** The properties that may be sent; null and undefined have none. */
export function checkProperties(input: unknown, rules: PropertyRules, warn: Warn): Properties {
  if (input === undefined || input === null) return {};
  let keys: string[];
  try {
    keys = keysOfProperties(input);
  } catch {
    warn('the properties are dropped: they are no object whose keys can be read.');
    return {};
  }
  const collected = collectProperties(warn);
  for (const key of keys) {
    const value = readValue(input as object, key, rules);
    const reason = faultOfKey(key, rules) ?? faultOfValue(value, rules);
    if (reason === undefined) collected.put(key, value as PropertyValue);
    else warn(dropped(key, reason));
  }
  return collected.properties;
}

/** Throws where there are none to read: at an array or a text, and at a map or a date, which hold theirs elsewhere. */
function keysOfProperties(input: unknown): string[] {
  if (typeof input !== 'object' || Array.isArray(input)) throw input;
  const keys = Object.keys(input as object);
  if (keys.length === 0 && Object.prototype.toString.call(input) !== '[object Object]') throw input;
  return keys;
}

/** The event's own properties with the global ones that it does not override, as many as fit. */
export function mergeProperties(global: Properties, own: Properties, warn: Warn): Properties {
  const collected = collectProperties(warn, 2 * clientLimits.propertiesBytesMax);
  for (const key of Object.keys(own)) collected.put(key, own[key] as PropertyValue);
  for (const key of Object.keys(global)) {
    if (!hasOwn(own, key)) collected.put(key, global[key] as PropertyValue);
  }
  return collected.properties;
}

/** Properties under construction, bounded by number and bytes: what does not fit is dropped with a warning. */
function collectProperties(warn: Warn, bytesMax: number = clientLimits.propertiesBytesMax) {
  const properties: Record<string, PropertyValue> = {};
  let count = 0;
  let bytes = 0;
  return {
    properties,
    put(key: string, value: PropertyValue): void {
      const size = utf8Bytes(JSON.stringify(key)) + utf8Bytes(JSON.stringify(value)) + 2;
      if (count === counts.propertiesMax || bytes + size > bytesMax) {
        warn(dropped(key, 'there are too many'));
        return;
      }
      count++;
      bytes += size;
      // Defined, not assigned, so that `__proto__` is a key like any other.
      Object.defineProperty(properties, key, { value, enumerable: true, configurable: true, writable: true });
    },
  };
}

/** Bytes of properties as JSON. */
export function propertiesBytes(properties: Properties): number {
  return utf8Bytes(JSON.stringify(properties));
}

export function hasOwn(object: object, key: string): boolean {
  return Object.prototype.propertyIsEnumerable.call(object, key);
}

const unreadable = Symbol();

function readValue(input: object, key: string, rules: PropertyRules): unknown {
  try {
    const value = (input as Record<string, unknown>)[key];
    return rules.cuts && typeof value === 'string' ? cutToCodePoints(value, rules.valueMax) : value;
  } catch {
    return unreadable;
  }
}

function faultOfKey(key: string, rules: PropertyRules): string | undefined {
  if (isLongerThan(key, lengths.propertyKeyMax))
    return `its key has more than ${lengths.propertyKeyMax} characters`;
  if (isBroken(key)) return 'its key holds half a character';
  return rules.reserved.has(key) ? 'its key is reserved' : undefined;
}

function faultOfValue(value: unknown, rules: PropertyRules): string | undefined {
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : 'it is no finite number';
  if (value === unreadable) return 'it cannot be read';
  if (typeof value !== 'string') return 'it is neither a number nor a string';
  if (isLongerThan(value, rules.valueMax)) return `it has more than ${rules.valueMax} characters`;
  return isBroken(value) ? 'it holds half a character' : undefined;
}

function dropped(key: string, reason: string): string {
  return `the property ${JSON.stringify(cutToCodePoints(key, 40))} is dropped: ${reason}.`;
}
