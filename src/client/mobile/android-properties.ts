// Property maps of Android: a map or an object, and for events everything in it becomes text.

import type { Properties } from '../core/messages.js';

/** What an event's properties may hold on Android. Null values are dropped, all others are sent as text. */
export type AndroidValue = string | number | boolean | bigint | null | undefined;

/** Properties of events on Android. */
export type AndroidEventProperties =
  | ReadonlyMap<string | number | boolean | bigint, AndroidValue>
  | { readonly [key: string]: AndroidValue };

/**
 * The map with its keys and values as text. What has no text of its own (objects, numbers that are not finite,
 * what cannot be read) stays none, so that it is refused with a warning like on every surface.
 */
export function toTextProperties(map: unknown): Properties {
  if (typeof map !== 'object' || map === null || Array.isArray(map)) return map as Properties;
  return toObject(
    entriesOf(map)
      .filter(([key, value]) => isPresent(key) && isPresent(value))
      .map(([key, value]) => [String(key), toText(value)]),
  );
}

/** A map as an object; anything else unchanged. */
export function toPlainProperties(map: unknown): Properties {
  return map instanceof Map ? toObject(Array.from(map)) : (map as Properties);
}

function toObject(entries: readonly (readonly [key: unknown, value: unknown])[]): Properties {
  const object = {};
  for (const [key, value] of entries) {
    // Defined, not assigned, so that `__proto__` is a key like any other.
    Object.defineProperty(object, String(key), {
      value,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }
  return object;
}

function entriesOf(map: object): [key: unknown, value: unknown][] {
  if (map instanceof Map) return Array.from(map);
  return Object.keys(map).map((key) => [key, readValue(map as Record<string, unknown>, key)]);
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

function toText(value: unknown): unknown {
  if (typeof value === 'boolean' || typeof value === 'bigint') return String(value);
  return Number.isFinite(value) ? String(value) : value;
}
