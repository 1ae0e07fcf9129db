// What a lenient environment forgives: turns what real producers send into the contract's form, which is then checked as in strict
// environments. Every mending has a reason from a closed set, so that it can be counted. Pure: it never changes the value that it gets,
// nor the text of an identity.

import {
  counts,
  lengths,
  reservedAutocapturedPropertyKeys,
  reservedEventPropertyKeys,
  reservedUserPropertyKeys,
} from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { eventSchema } from '../contract/records.js';
import { cutToCodePoints, isLongerThan } from '../parsing/code-points.js';
import { joinArray } from './properties.js';
import { completeTimestamp, hasCommonForm, isInSeconds, timestampOfEpochMs } from './timestamp.js';

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

/** The state of one request, shared by its records. */
export type MendContext = {
  readonly note: Note;
  /** The document's long numbers, which are refused rather than cut. */
  readonly longNumerals: ReadonlySet<string>;
  /** The bytes that flattening may still add to the request; negative once they were not enough. */
  flattenedBytesLeft: number;
};

/** Makes the state of a request, and what counts its mendings. */
export function createMending(
  { longNumerals }: Pick<MendContext, 'longNumerals'>,
  flattenedBytesMax: number,
): MendContext & { readonly mendings: Map<Mending, number> } {
  const mendings = new Map<Mending, number>();
  const note = (mending: Mending) => mendings.set(mending, (mendings.get(mending) ?? 0) + 1);
  return { note, longNumerals, flattenedBytesLeft: flattenedBytesMax, mendings };
}

/**
 * Mends a value of a document. Refuses it if flattening takes more bytes than are left, and then every later value of the request that
 * has to be flattened, so the work for a request is limited too.
 */
export type Mend = (value: unknown, context: MendContext) => { readonly value: unknown } | Rejection;

type PropertyRules = {
  readonly reserved: ReadonlySet<string>;
  readonly valueMax: number;
  readonly keepsArrays: boolean;
};

type RecordRules = PropertyRules & {
  readonly timeField: 'timestamp' | 'time';
  /** Fields that may be null. */
  readonly nullable: ReadonlySet<string>;
};

const eventRules: RecordRules = {
  reserved: reservedEventPropertyKeys,
  valueMax: lengths.propertyValueMax,
  keepsArrays: true,
  timeField: 'timestamp',
  nullable: new Set(
    Object.keys(eventSchema.properties).filter((name) => !(eventSchema.required as string[]).includes(name)),
  ),
};
const userRules: RecordRules = {
  ...eventRules,
  reserved: reservedUserPropertyKeys,
  valueMax: lengths.userPropertyValueMax,
  keepsArrays: false,
};

/** Messages of the client library have another name for their time, and always have an id. */
const ofMessages = {
  timeField: 'time',
  nullable: new Set(['identity', 'user_id', 'session_id', 'properties', 'time', 'autocaptured']),
} as const;
const eventMessageRules: RecordRules = { ...eventRules, ...ofMessages };
const autocapturedRules: RecordRules = { ...eventMessageRules, reserved: reservedAutocapturedPropertyKeys };
const userMessageRules: RecordRules = { ...userRules, ...ofMessages };

/** An event in the contract's form, as far as mending can achieve that. Everything else stays as it was. */
export const mendEvent: Mend = (value, context) => mendRecord(value, eventRules, context);

/** Mends a call that sets user properties in the same way. Its arrays are joined here. */
export const mendUserProperties: Mend = (value, context) => mendRecord(value, userRules, context);

/** An event of the client library. An autocaptured event may name its screen. */
export const mendEventMessage: Mend = (value, context) => {
  const autocaptured = isObject(value) && value.autocaptured === true;
  return mendRecord(value, autocaptured ? autocapturedRules : eventMessageRules, context);
};

/** A message of the client library that sets user properties. */
export const mendUserPropertiesMessage: Mend = (value, context) =>
  mendRecord(value, userMessageRules, context);

function mendRecord(value: unknown, rules: RecordRules, context: MendContext): ReturnType<Mend> {
  if (!isObject(value)) return { value };
  const { note } = context;
  const { timeField } = rules;
  const record: Record<string, unknown> = { ...value };
  for (const key of rules.nullable) {
    if (record[key] !== null) continue;
    note('null_field');
    delete record[key];
  }
  if (Number.isSafeInteger(record.identity)) {
    record.identity = String(record.identity);
    note('numeric_identity');
  }
  if (Number.isSafeInteger(record.user_id)) {
    record.user_id = String(record.user_id);
    note('numeric_user_id');
  }
  const seconds = refuseSeconds(record[timeField], timeField);
  if (seconds !== undefined) return seconds;
  if (record[timeField] !== undefined) record[timeField] = mendTimestamp(record[timeField], note);
  if (isObject(record.properties)) {
    const properties = mendProperties(record.properties, rules, context);
    if (properties === undefined) return tooMuchFlattened;
    record.properties = properties;
  }
  return { value: record };
}

/**
 * Mends the properties of an event as `mendEvent` does, with `described` as one more, named context, unless it is among them. Undefined if
 * flattening takes more bytes than are left.
 */
export function mendEventProperties(
  properties: object,
  described: object | undefined,
  context: MendContext,
): Record<string, unknown> | undefined {
  return mendProperties(properties, eventRules, context, described);
}

export const tooMuchFlattened = rejection(
  'too_long',
  "The keys of this request's nested properties have too many bytes when flattened; shorten them, or send fewer records in one request.",
  'properties',
);

/** Refuses a time in seconds: read as milliseconds it would be a day in 1970. */
export function refuseSeconds(value: unknown, field: string): Rejection | undefined {
  if (!isInSeconds(value)) return undefined;
  return rejection(
    'invalid_timestamp',
    `${field} is a number in seconds; it must be milliseconds since 1970.`,
    field,
  );
}

/** A time in the form that strict environments accept. */
export function mendTimestamp(value: unknown, note: Note): unknown {
  if (typeof value === 'number') {
    const timestamp = timestampOfEpochMs(value);
    if (timestamp === undefined) return value;
    note('numeric_timestamp');
    return timestamp;
  }
  if (typeof value !== 'string' || hasCommonForm(value)) return value;
  const complete = completeTimestamp(value);
  if (complete === undefined || complete.length === value.length) return value;
  note('short_timestamp');
  return complete;
}

/** The descriptor of a property `__proto__`: an assignment would set the prototype instead. */
const plainProperty = { configurable: true, enumerable: true, writable: true } as const;

/** Mends the properties of a record. Returns undefined if flattening takes more bytes than are left. */
function mendProperties(
  properties: object,
  rules: PropertyRules,
  context: MendContext,
  described?: object,
): Record<string, unknown> | undefined {
  const { note, longNumerals } = context;
  const mended: Record<string, unknown> = {};
  let count = 0;
  /**
   * Whether the record will be refused for the number of its properties or for a key that is too long. Then flattening
   * stops.
   */
  let refused = false;
  /** Whether the remaining bytes were not enough. */
  let exceeded = false;
  const keep = (key: string, keyBytes: number, value: unknown): void => {
    if (keyBytes > 0) {
      context.flattenedBytesLeft -= keyBytes;
      exceeded = context.flattenedBytesLeft < 0;
      if (exceeded) return;
    }
    if (!Object.hasOwn(mended, key)) count += 1;
    if (key === '__proto__') Object.defineProperty(mended, key, { ...plainProperty, value });
    else mended[key] = value;
    refused = count > counts.propertiesMax || isLongerThan(key, lengths.propertyKeyMax);
  };
  /** `keyBytes`: the size, as JSON, of a key that flattening made; 0 for a key of the document. */
  const put = (key: string, keyBytes: number, value: unknown): void => {
    if (refused || exceeded) return;
    if (value === null) {
      note('null_property');
    } else if (typeof value === 'boolean') {
      note('boolean_property');
      keep(key, keyBytes, String(value));
    } else if (typeof value === 'string' && isLongerThan(value, rules.valueMax) && !longNumerals.has(value)) {
      note('long_property');
      keep(key, keyBytes, cutToCodePoints(value, rules.valueMax));
    } else if (Array.isArray(value)) {
      putArray(key, keyBytes, value);
    } else if (isObject(value)) {
      note('nested_property');
      const prefixBytes = keyBytes || jsonBytes(key);
      const inner = value as Record<string, unknown>;
      for (const name in inner) {
        if (refused || exceeded) return;
        put(`${key}.${name}`, prefixBytes + 1 + jsonBytes(name), inner[name]);
      }
    } else {
      keep(key, keyBytes, value);
    }
  };
  /** Keeps an array of scalars as one value. An array that holds objects or arrays is flattened by index. */
  const putArray = (key: string, keyBytes: number, array: unknown[]): void => {
    if (array.some((element) => typeof element === 'object' && element !== null)) {
      note('nested_property');
      const prefixBytes = keyBytes || jsonBytes(key);
      for (let index = 0; index < array.length && !refused && !exceeded; index++)
        put(`${key}.${index}`, prefixBytes + 1 + String(index).length, array[index]);
      return;
    }
    const scalars = mendElements(array, note);
    if (rules.keepsArrays) {
      keep(key, keyBytes, scalars);
      return;
    }
    // As text it would no longer be infinite or, once cut, no longer the number that was sent. So it is left as it is and refused.
    const unfit = scalars.find((element) =>
      typeof element === 'number'
        ? !Number.isFinite(element)
        : element.length > rules.valueMax && longNumerals.has(element),
    );
    if (unfit !== undefined) {
      keep(key, keyBytes, unfit);
      return;
    }
    note('joined_array');
    keep(key, keyBytes, cutToCodePoints(joinArray(scalars), rules.valueMax));
  };
  for (const key in properties) {
    if (rules.reserved.has(key)) note('reserved_property');
    else put(key, 0, (properties as Readonly<Record<string, unknown>>)[key]);
  }
  if (described !== undefined && !Object.hasOwn(properties, 'context')) put('context', 0, described);
  return exceeded ? undefined : mended;
}

const isWrittenAsIs = /^[ !#-[\]-~]*$/;

/** The bytes of a key as JSON without its quotes. A control character takes six. */
function jsonBytes(key: string): number {
  if (isWrittenAsIs.test(key)) return key.length;
  return Buffer.byteLength(JSON.stringify(key)) - 2;
}

/** Written as a loop: making an array for each of 8 million elements would take more than a second. */
function mendElements(array: readonly unknown[], note: Note): (string | number)[] {
  const scalars: (string | number)[] = [];
  for (const element of array) {
    if (element === null) {
      note('null_property');
    } else if (typeof element === 'boolean') {
      note('boolean_property');
      scalars.push(String(element));
    } else {
      scalars.push(element as string | number);
    }
  }
  return scalars;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
