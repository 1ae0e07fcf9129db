// Whether a parsed value is an event of the contract: the schema first (types, required fields, lengths),
// then what a schema cannot say. Answers with the event, or with the first reason against it. Pure.

import { Compile } from 'typebox/compile';
import { counts, lengths, reservedEventPropertyKeys, userIdMax } from '../contract/limits.js';
import { type OutcomeCode, type Rejection, rejection } from '../contract/outcomes.js';
import { bulkEventsSchema, type EventInput, envelopeSchema, eventSchema } from '../contract/schemas.js';
import { readTimestamp } from './timestamp.js';

export type Validator = { Check(value: unknown): boolean; Errors(value: unknown): SchemaError[] };
type SchemaError = { keyword: string; instancePath: string; params: object };
/** Values are numbers, strings, or arrays of these. */
export type Properties = Record<string, unknown>;

/** An event that holds to the contract. */
export type CheckedEvent = {
  readonly event: string;
  /** Empty when the event came with a user_id. */
  readonly identity: string;
  /** Decimal digits; undefined when the event came with an identity. */
  readonly userId: string | undefined;
  readonly sessionId: string;
  readonly properties: Properties | undefined;
  /** Whether some property is an array and has to be joined. */
  readonly arrays: boolean;
  /** UTC, as ClickHouse reads it; undefined: the time of acceptance. */
  readonly time: string | undefined;
  readonly idempotencyKey: string | undefined;
};

const eventValidator = Compile(eventSchema);
const envelopeValidator = Compile(envelopeSchema);
const bulkEventsValidator = Compile(bulkEventsSchema);

/** Checks what all ingestion requests share. */
export function checkEnvelope(value: unknown): Rejection | undefined {
  return explain(envelopeValidator, value);
}

/** Checks the list of a bulk request, not its elements. */
export function checkBulkEvents(value: unknown): Rejection | undefined {
  return explain(bulkEventsValidator, value);
}

/** Checks one event. `surrogates` says that the document may hold lone ones; `nowMs` bounds the future. */
export function checkEvent(value: unknown, surrogates: boolean, nowMs: number): CheckedEvent | Rejection {
  if (!eventValidator.Check(value)) {
    return explain(eventValidator, value) ?? rejection('invalid_type', 'The event is not as described.');
  }
  const input = value as EventInput;
  if (surrogates) {
    const field = fieldWithLoneSurrogate(input, '');
    if (field !== undefined) {
      return rejection('invalid_text', 'A string holds a lone surrogate, which is no Unicode text.', field);
    }
  }

  const { identity, user_id: userId, timestamp, properties } = input;
  if (identity === undefined && userId === undefined) {
    return rejection('missing_user', 'Exactly one of identity and user_id must be given.', 'identity');
  }
  if (identity !== undefined && userId !== undefined) {
    return rejection('ambiguous_user', 'identity and user_id must not both be given.', 'user_id');
  }
  if (userId !== undefined && !isUserId(userId)) {
    return rejection(
      'invalid_user_id',
      'user_id must be the plain decimal form of an integer from 0 to 2^53 - 1.',
      'user_id',
    );
  }

  let time: string | undefined;
  if (timestamp !== undefined) {
    const result = readTimestamp(timestamp, nowMs);
    if ('refused' in result) return rejection(result.refused, timestampAdvice, 'timestamp');
    time = result.text;
  }

  let arrays = false;
  if (properties !== undefined) {
    const result = checkPropertyKeys(properties as Properties);
    if (typeof result !== 'boolean') return result;
    arrays = result;
  }

  return {
    event: input.event,
    identity: identity ?? '',
    userId,
    sessionId: input.session_id ?? '',
    properties: properties as Properties | undefined,
    arrays,
    time,
    idempotencyKey: input.idempotency_key,
  };
}

/** Whether `text` is the canonical decimal form of an integer from 0 to 2^53 - 1. */
export function isUserId(text: string): boolean {
  return userIdForm.test(text) && (text.length < 16 || Number(text) <= userIdMax);
}
const userIdForm = /^(?:0|[1-9][0-9]{0,15})$/;

const timestampAdvice =
  'timestamp must be RFC 3339 with offset and seconds, a real date from 1970 to one day ahead.';

/** Checks keys and number of properties; answers whether one of the values is an array. */
function checkPropertyKeys(properties: Record<string, unknown>): boolean | Rejection {
  let count = 0;
  let arrays = false;
  for (const key in properties) {
    count++;
    if (key.length > lengths.propertyKeyMax && codePoints(key) > lengths.propertyKeyMax) {
      return rejection(
        'too_long',
        `A property's key must have at most ${lengths.propertyKeyMax} characters.`,
        'properties',
      );
    }
    if (reservedEventPropertyKeys.has(key)) {
      return rejection(
        'reserved_property',
        `The key ${key} must not be used in properties.`,
        `properties.${key}`,
      );
    }
    if (typeof properties[key] === 'object') arrays = true;
  }
  if (count > counts.propertiesMax) {
    return rejection(
      'too_many_properties',
      `An event takes at most ${counts.propertiesMax} properties.`,
      'properties',
    );
  }
  return arrays;
}

/** Unicode code points of a string. */
export function codePoints(text: string): number {
  let count = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit >= 0xd800 && unit <= 0xdbff) i++;
    count++;
  }
  return count;
}

const codeOfKeyword: Readonly<Record<string, OutcomeCode>> = {
  required: 'missing_field',
  type: 'invalid_type',
  maxLength: 'too_long',
  minLength: 'empty',
  minItems: 'empty',
  maxItems: 'too_many_records',
};

const messageOfCode: Partial<Record<OutcomeCode, (field: string) => string>> = {
  missing_field: (field) => `${field} is required.`,
  invalid_type: (field) => `${field} has the wrong type.`,
  too_long: (field) => `${field} is too long.`,
  empty: (field) => `${field} must not be empty.`,
  too_many_records: (field) => `${field} has too many elements.`,
};

/** The first reason why a schema refuses a value, in the contract's words; undefined when it does not. */
export function explain(validator: Validator, value: unknown): Rejection | undefined {
  if (validator.Check(value)) return undefined;
  const errors = validator.Errors(value);
  const first = errors[0];
  if (first === undefined) return rejection('invalid_type', 'The value is not as described.');
  let path = first.instancePath;
  let code = codeOfKeyword[first.keyword] ?? 'invalid_type';
  // The branches of a union all complain at the same place: of a string, its length is the reason.
  if (errors.some((error) => error.instancePath === path && error.keyword === 'maxLength')) code = 'too_long';
  if (first.keyword === 'required') {
    const { requiredProperties } = first.params as { requiredProperties?: string[] };
    path += `/${requiredProperties?.[0] ?? ''}`;
  }
  const field = fieldOfPointer(path);
  const message =
    (messageOfCode[code] ?? messageOfCode.invalid_type)?.(field === '' ? 'The value' : field) ?? '';
  return field === '' ? rejection(code, message) : rejection(code, message, field);
}

const fieldLengthMax = 100;

/** `/properties/a~1b` → `properties.a/b`, cut to a length fit for an answer. */
function fieldOfPointer(pointer: string): string {
  const path = pointer.slice(1).replaceAll('/', '.').replaceAll('~1', '/').replaceAll('~0', '~');
  return (path.length > fieldLengthMax ? `${path.slice(0, fieldLengthMax)}…` : path).toWellFormed();
}

/** The first field, depth first, whose key or text is not well-formed Unicode. */
function fieldWithLoneSurrogate(value: unknown, path: string): string | undefined {
  if (typeof value === 'string') return value.isWellFormed() ? undefined : path;
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, element] of Object.entries(value)) {
    if (!key.isWellFormed()) return path === '' ? 'properties' : path;
    const field = fieldWithLoneSurrogate(
      element,
      path === '' ? key : `${path}.${key}`.slice(0, fieldLengthMax),
    );
    if (field !== undefined) return field.toWellFormed();
  }
  return undefined;
}
