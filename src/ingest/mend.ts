// What a lenient environment forgives: turns what real producers send into what the contract says, before
// the same check that strict environments use. Every mending has a reason from a closed set, so that it can
// be counted. Pure; never changes the value it was given, and never touches an identity's text.

import {
  counts,
  lengths,
  reservedAutocapturedPropertyKeys,
  reservedEventPropertyKeys,
  reservedUserPropertyKeys,
} from '../contract/limits.js';
import { cutToCodePoints, isLongerThan } from './code-points.js';
import { joinArray } from './properties.js';
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
  'joined_array',
  'long_property',
  'reserved_property',
] as const;

export type Mending = (typeof mendings)[number];

/** Counts one mending. */
export type Note = (mending: Mending) => void;

/** Mends a value of a document. `longNumerals`: the document's, which are refused and not cut. */
export type Mend = (value: unknown, note: Note, longNumerals: ReadonlySet<string>) => unknown;

type PropertyRules = {
  readonly reserved: ReadonlySet<string>;
  readonly valueMax: number;
  readonly arrays: boolean;
};

type RecordRules = PropertyRules & {
  readonly timeField: 'timestamp' | 'time';
  /** Fields that may be null. */
  readonly nullable: ReadonlySet<string>;
};

const eventRules: RecordRules = {
  reserved: reservedEventPropertyKeys,
  valueMax: lengths.propertyValueMax,
  arrays: true,
  timeField: 'timestamp',
  nullable: new Set(['identity', 'user_id', 'session_id', 'properties', 'timestamp', 'idempotency_key']),
};
const userRules: RecordRules = {
  ...eventRules,
  reserved: reservedUserPropertyKeys,
  valueMax: lengths.userPropertyValueMax,
  arrays: false,
};

/** Messages of the client library name their time in another way, and always have an id. */
const ofMessages = {
  timeField: 'time',
  nullable: new Set(['identity', 'user_id', 'session_id', 'properties', 'time', 'autocaptured']),
} as const;
const eventMessageRules: RecordRules = { ...eventRules, ...ofMessages };
const autocapturedRules: RecordRules = { ...eventMessageRules, reserved: reservedAutocapturedPropertyKeys };
const userMessageRules: RecordRules = { ...userRules, ...ofMessages };

/** The event as the contract would have it, as far as mending goes; what is beyond it stays as it was. */
export function mendEvent(...[value, note, longNumerals]: Parameters<Mend>): unknown {
  return mendRecord(value, eventRules, note, longNumerals);
}

/** The same for a call that sets user properties, where arrays are joined here. */
export function mendUserProperties(...[value, note, longNumerals]: Parameters<Mend>): unknown {
  return mendRecord(value, userRules, note, longNumerals);
}

/** An event of the client library; one that it captured by itself may name its screen. */
export function mendEventMessage(...[value, note, longNumerals]: Parameters<Mend>): unknown {
  const autocaptured = isObject(value) && (value as { autocaptured?: unknown }).autocaptured === true;
  return mendRecord(value, autocaptured ? autocapturedRules : eventMessageRules, note, longNumerals);
}

/** A message of the client library that sets user properties. */
export function mendUserPropertiesMessage(...[value, note, longNumerals]: Parameters<Mend>): unknown {
  return mendRecord(value, userMessageRules, note, longNumerals);
}

function mendRecord(
  value: unknown,
  rules: RecordRules,
  note: Note,
  longNumerals: ReadonlySet<string>,
): unknown {
  if (!isObject(value)) return value;
  const { timeField } = rules;
  const record: Record<string, unknown> = Object.create(null);
  for (const [key, field] of Object.entries(value)) {
    if (field === null && rules.nullable.has(key)) note('null_field');
    else record[key] = field;
  }
  if (Number.isSafeInteger(record.identity)) {
    record.identity = String(record.identity);
    note('numeric_identity');
  }
  if (Number.isSafeInteger(record.user_id)) {
    record.user_id = String(record.user_id);
    note('numeric_user_id');
  }
  if (record[timeField] !== undefined) record[timeField] = mendTimestamp(record[timeField], note);
  if (isObject(record.properties))
    record.properties = mendProperties(record.properties, rules, note, longNumerals);
  return record;
}

/** A time in the form that strict environments take. */
export function mendTimestamp(value: unknown, note: Note): unknown {
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

function mendProperties(
  properties: object,
  rules: PropertyRules,
  note: Note,
  longNumerals: ReadonlySet<string>,
): Record<string, unknown> {
  const mended: Record<string, unknown> = Object.create(null);
  let count = 0;
  /** What is kept already is refused for its number or a key: keys of a flattened object repeat what is above them. */
  let refused = false;
  const keep = (key: string, value: unknown): void => {
    if (!(key in mended)) count += 1;
    mended[key] = value;
    refused = count > counts.propertiesMax || isLongerThan(key, lengths.propertyKeyMax);
  };
  const put = (key: string, value: unknown): void => {
    if (refused) return;
    if (value === null) {
      note('null_property');
    } else if (typeof value === 'boolean') {
      note('boolean_property');
      keep(key, String(value));
    } else if (typeof value === 'string' && isLongerThan(value, rules.valueMax) && !longNumerals.has(value)) {
      note('long_property');
      keep(key, cutToCodePoints(value, rules.valueMax));
    } else if (Array.isArray(value)) {
      putArray(key, value);
    } else if (isObject(value)) {
      note('nested_property');
      for (const [inner, element] of Object.entries(value)) put(`${key}.${inner}`, element);
    } else {
      keep(key, value);
    }
  };
  /** Keeps an array of scalars one value; one that holds objects or arrays is flattened by index. */
  const putArray = (key: string, array: unknown[]): void => {
    if (array.some((element) => typeof element === 'object' && element !== null)) {
      note('nested_property');
      for (const [index, element] of array.entries()) put(`${key}.${index}`, element);
      return;
    }
    const scalars = array.flatMap((element) => mendElement(element, note));
    if (rules.arrays) {
      keep(key, scalars);
    } else {
      note('joined_array');
      keep(key, cutToCodePoints(joinArray(scalars), rules.valueMax));
    }
  };
  for (const [key, value] of Object.entries(properties)) {
    if (rules.reserved.has(key)) note('reserved_property');
    else put(key, value);
  }
  return mended;
}

function mendElement(element: unknown, note: Note): (string | number)[] {
  if (element === null) {
    note('null_property');
    return [];
  }
  if (typeof element !== 'boolean') return [element as string | number];
  note('boolean_property');
  return [String(element)];
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
