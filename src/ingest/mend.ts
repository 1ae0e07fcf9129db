// What a lenient environment forgives: turns what real producers send into what the contract says, before
// the same check that strict environments use. Every mending has a reason from a closed set, so that it can
// be counted. Pure; never changes the value it was given, and never touches an identity's text.

import { lengths, reservedEventPropertyKeys } from '../contract/limits.js';
import { codePoints } from './check.js';
import { cutToCodePoints } from './encode.js';
import { completeTimestamp, timestampOfEpochMs } from './timestamp.js';

export const mendings = [
  'numeric_app_id',
  'numeric_identity',
  'numeric_user_id',
  'numeric_timestamp',
  'short_timestamp',
  'null_field',
  'null_property',
  'boolean_property',
  'nested_property',
  'long_property',
  'reserved_property',
] as const;

export type Mending = (typeof mendings)[number];

/** Counts one mending. */
export type Note = (mending: Mending) => void;

/** The event as the contract would have it, as far as mending goes; what is beyond it stays as it was. */
export function mendEvent(value: unknown, note: Note): unknown {
  if (!isObject(value)) return value;
  const event: Record<string, unknown> = Object.create(null);
  for (const [key, field] of Object.entries(value)) {
    if (field === null && mendableFields.has(key)) note('null_field');
    else event[key] = field;
  }
  if (Number.isSafeInteger(event.identity)) {
    event.identity = String(event.identity);
    note('numeric_identity');
  }
  if (Number.isSafeInteger(event.user_id)) {
    event.user_id = String(event.user_id);
    note('numeric_user_id');
  }
  if (event.timestamp !== undefined) event.timestamp = mendTimestamp(event.timestamp, note);
  if (isObject(event.properties)) event.properties = mendProperties(event.properties, note);
  return event;
}

const mendableFields = new Set([
  'identity',
  'user_id',
  'session_id',
  'properties',
  'timestamp',
  'idempotency_key',
]);

function mendTimestamp(value: unknown, note: Note): unknown {
  if (typeof value === 'number') {
    const timestamp = timestampOfEpochMs(value);
    if (timestamp === undefined) return value;
    note('numeric_timestamp');
    return timestamp;
  }
  if (typeof value !== 'string') return value;
  const complete = completeTimestamp(value);
  if (complete === undefined || complete.length === value.length) return value;
  note('short_timestamp');
  return complete;
}

function mendProperties(properties: object, note: Note): Record<string, unknown> {
  const mended: Record<string, unknown> = Object.create(null);
  for (const [key, value] of Object.entries(properties)) {
    if (reservedEventPropertyKeys.has(key)) note('reserved_property');
    else mendProperty(mended, key, value, note);
  }
  return mended;
}

/** Writes one property, and of a nested object each of its leaves under keys joined with dots. */
function mendProperty(into: Record<string, unknown>, key: string, value: unknown, note: Note): void {
  if (value === null) {
    note('null_property');
  } else if (typeof value === 'boolean') {
    note('boolean_property');
    into[key] = String(value);
  } else if (typeof value === 'string' && codePoints(value) > lengths.propertyValueMax) {
    note('long_property');
    into[key] = cutToCodePoints(value, lengths.propertyValueMax);
  } else if (Array.isArray(value)) {
    mendArray(into, key, value, note);
  } else if (isObject(value)) {
    note('nested_property');
    for (const [inner, element] of Object.entries(value)) {
      mendProperty(into, `${key}.${inner}`, element, note);
    }
  } else {
    into[key] = value;
  }
}

/** Keeps an array of scalars an array; one that holds objects or arrays is flattened by index. */
function mendArray(into: Record<string, unknown>, key: string, array: unknown[], note: Note): void {
  if (array.some((element) => typeof element === 'object' && element !== null)) {
    note('nested_property');
    for (const [index, element] of array.entries()) mendProperty(into, `${key}.${index}`, element, note);
    return;
  }
  into[key] = array.flatMap((element) => {
    if (element === null) {
      note('null_property');
      return [];
    }
    if (typeof element !== 'boolean') return [element];
    note('boolean_property');
    return [String(element)];
  });
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
