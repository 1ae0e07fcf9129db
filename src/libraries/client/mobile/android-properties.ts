// Android's property maps: a Map or an object. All values of an event's properties become text.

import type { Properties } from '../core/messages.js';
import { define } from '../core/sanitize.js';

/** The values that an event's properties may have on Android. Null values are dropped; all others are sent as text. */
export type AndroidValue = string | number | boolean | bigint | null | undefined;

/** Properties of events on Android. */
export type AndroidEventProperties =
  | ReadonlyMap<string | number | boolean | bigint, AndroidValue>
  | { readonly [key: string]: AndroidValue };

type Warn = (line: string) => void;
type Entry = readonly [key: unknown, value: unknown];

/**
 * The map with its keys and values as text, without nulls. Anything that has no text form (objects, numbers that are not finite, unreadable
 * values) is refused with a warning, as on every surface: keys here, values later.
 */
export function toTextProperties(map: unknown, warn: Warn): Properties {
  const entries = entriesOf(map);
  if (entries === undefined) return map as Properties;
  const present = entries.filter(([key, value]) => isPresent(key) && isPresent(value));
  return toObject(
    present.map(([key, value]) => [key, toText(value)]),
    warn,
  );
}

/** A map as an object, its values as they are. */
export function toPlainProperties(map: unknown, warn: Warn): Properties {
  const entries = entriesOf(map);
  return entries === undefined ? (map as Properties) : toObject(entries, warn);
}

function toObject(entries: readonly Entry[], warn: Warn): Properties {
  const object = {};
  let dropped = 0;
  for (const [key, value] of entries) {
    const text = toText(key);
    if (typeof text === 'string') define(object, text, value);
    else dropped++;
  }
  if (dropped > 0) warn(`properties are dropped: ${dropped} of their keys are neither numbers nor strings.`);
  return object;
}

/** The entries of a map; undefined for a value that has none or cannot be read, about which the core then warns. */
function entriesOf(map: unknown): readonly Entry[] | undefined {
  try {
    if (map instanceof Map) return Array.from(map);
    if (typeof map !== 'object' || map === null || Array.isArray(map)) return undefined;
    const keys = Object.keys(map);
    return keys.length === 0
      ? undefined
      : keys.map((key) => [key, readValue(map as Record<string, unknown>, key)]);
  } catch {
    return undefined;
  }
}

function readValue(object: Record<string, unknown>, key: string): unknown {
  try {
    return object[key];
  } catch {
    return unreadable;
  }
}

const unreadable = Symbol('unreadable');

function isPresent(value: unknown): boolean {
  return value !== null && value !== undefined;
}

/** A value as text if it has a text form; any other value unchanged. */
export function toText(value: unknown): unknown {
  if (typeof value === 'boolean' || typeof value === 'bigint') return String(value);
  return Number.isFinite(value) ? String(value) : value;
}
