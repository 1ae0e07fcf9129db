// Plain events, as nearly all producers send them, read straight from the bytes of a body: known fields, each at most once, texts
// without escapes, properties that are texts or plain numbers. All other events, and all invalid ones, are left to `document.ts` and
// `event.ts`, which know all rules and report what is wrong. This is a faster way to the same rows, not a second set of rules. On the
// path of every event.

import { isUtf8 } from 'node:buffer';
import { bodies, counts, lengths, reservedEventPropertyKeys } from '../contract/limits.js';
import { type EventInput, eventSchema } from '../contract/records.js';
import { isUserId } from '../contract/user-id.js';
import {
  endOfNumber,
  endOfText,
  haveSameBytes,
  matchesAt,
  nowhere,
  skipBlanks,
  skipped,
} from '../parsing/plain-json.js';
import { bodyBuffers } from '../spare-buffers.js';
import { isCommonTimestamp, readTimestamp } from './timestamp.js';

type FieldName = keyof EventInput | 'app_id';
const fieldNames = [...Object.keys(eventSchema.properties), 'app_id'] as readonly FieldName[];

/** The index in `spans` of each field of an event, and last of the request's app_id. */
export const fields = Object.fromEntries(fieldNames.map((name, i) => [name, i])) as Readonly<
  Record<FieldName, number>
>;
/** Stands for the list of a bulk request, which has no span. */
const listOfEvents = fieldNames.length;

/** How many numbers an object takes in `spans`: where each field begins and ends, both 0 if it is absent. */
export const spansEach = 2 * fieldNames.length;

/** The events of a request. Each meets the contract, so lenient environments have nothing to mend. */
export type PlainEvents = {
  readonly appId: string;
  readonly isBulk: boolean;
  readonly count: number;
  readonly body: Buffer;
  /** Whether the body has no white space between its tokens. */
  readonly isCompact: boolean;
  /** The spans of the events, one after another: texts without their quotes, properties with their braces. */
  readonly spans: Int32Array;
  /** UTC in ClickHouse's format, for timestamps that do not have the common form; undefined if all have it. */
  readonly times: readonly (string | undefined)[] | undefined;
};

/**
 * Reads a body with one event or many; undefined unless all of it is plain. A body that is not `owned` is copied, since its memory may be
 * freed when the caller returns. `nowMs` limits timestamps in the future.
 */
export function readPlainEvents(body: Buffer, owned: boolean, nowMs: number): PlainEvents | undefined {
  listed = nowhere;
  skipped.blanks = 0;
  const end = isUtf8(body) ? readObject(body, skipBlanks(body, 0), 0, true) : nowhere;
  if (end === nowhere || skipBlanks(body, end) !== body.length) return undefined;
  const appId = textOf(body, spans, 0, fields.app_id);
  const isBulk = listed !== nowhere;
  if (appId === undefined || (!isBulk && body.length > bodies.singleBytesMax)) return undefined;
  // Beside a list, a request must not have fields of an event.
  for (let field = 0; isBulk && field < fields.app_id; field++) if (has(0, field)) return undefined;

  const count = isBulk ? listed : 1;
  const first = isBulk ? spansEach : 0;
  let times: (string | undefined)[] | undefined;
  for (let index = 0; index < count; index++) {
    const base = first + index * spansEach;
    if (!isValid(body, base)) return undefined;
    const start = spans[base + 2 * fields.timestamp] as number;
    const end = spans[base + 2 * fields.timestamp + 1] as number;
    if (start === 0 || isCommonTimestamp(body, start, end, nowMs)) continue;
    const time = readTimestamp(body.toString('utf8', start, end), nowMs);
    if ('refused' in time) return undefined;
    times ??= new Array(count);
    times[index] = time.text;
  }
  const kept = copyOfSpans(first, first + count * spansEach);
  const isCompact = skipped.blanks === 0;
  return { appId, isBulk, count, body: owned ? body : copyOf(body), isCompact, spans: kept, times };
}

/** To be called when nobody will read the events again. */
export function forgetPlainEvents({ body, spans }: PlainEvents): void {
  bodyBuffers.give(body);
  bodyBuffers.give(spans);
}

function copyOf(body: Buffer): Buffer {
  if (bodyBuffers.sizeFor(body.length) === body.length) return Buffer.from(body);
  const copy = bodyBuffers.take(body.length).subarray(0, body.length);
  copy.set(body);
  return copy;
}

function copyOfSpans(start: number, end: number): Int32Array {
  const bytes = (end - start) * spans.BYTES_PER_ELEMENT;
  if (bodyBuffers.sizeFor(bytes) === bytes) return spans.slice(start, end);
  const copy = new Int32Array(bodyBuffers.take(bytes).buffer, 0, end - start);
  copy.set(spans.subarray(start, end));
  return copy;
}

/** The text of a field; undefined if it is absent. */
export function textOf(body: Buffer, spans: Int32Array, base: number, field: number): string | undefined {
  const start = spans[base + 2 * field] as number;
  return start === 0 ? undefined : body.toString('utf8', start, spans[base + 2 * field + 1]);
}

/** The spans of the request, then those of each event in its list. Valid only until the next call. */
const spans = new Int32Array((1 + counts.bulkEventsMax) * spansEach);
/** The number of events in the list of the request, or `nowhere`. */
let listed: number = nowhere;

const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** Reads the object that begins here into the spans from `base` on. Returns where it ended. */
function readObject(body: Buffer, at: number, base: number, isRequest: boolean): number {
  if (body[at] !== openBrace) return nowhere;
  for (let i = base; i < base + spansEach; i++) spans[i] = 0;
  for (;;) {
    const name = skipBlanks(body, at + 1);
    const nameEnd = endOfText(body, name);
    const field = nameEnd === nowhere ? nowhere : fieldOf(body, name + 1, nameEnd);
    if (field === nowhere) return nowhere;
    at = skipBlanks(body, nameEnd + 1);
    if (body[at] !== colon) return nowhere;
    at = skipBlanks(body, at + 1);
    if (field >= fields.app_id && !isRequest) return nowhere;
    if (field === listOfEvents) {
      at = listed === nowhere ? readList(body, at) : nowhere;
      if (at === nowhere) return nowhere;
    } else {
      if (has(base, field)) return nowhere;
      const isText = field !== fields.properties;
      const end = isText ? endOfText(body, at) : endOfProperties(body, at);
      if (end === nowhere) return nowhere;
      spans[base + 2 * field] = isText ? at + 1 : at;
      spans[base + 2 * field + 1] = end;
      at = isText ? end + 1 : end;
    }
    at = skipBlanks(body, at);
    if (body[at] === closeBrace) return at + 1;
    if (body[at] !== comma) return nowhere;
  }
}

function readList(body: Buffer, at: number): number {
  if (body[at] !== openBracket) return nowhere;
  listed = 0;
  do {
    listed += 1;
    if (listed > counts.bulkEventsMax) return nowhere;
    at = readObject(body, skipBlanks(body, at + 1), listed * spansEach, false);
    if (at === nowhere) return nowhere;
    at = skipBlanks(body, at);
  } while (body[at] === comma);
  return body[at] === closeBracket ? at + 1 : nowhere;
}

function fieldOf(body: Buffer, start: number, end: number): number {
  const candidates = fieldsByLength[end - start];
  if (candidates === undefined) return nowhere;
  for (const { name, field } of candidates) if (matchesAt(body, start, name)) return field;
  return nowhere;
}

const fieldsByLength: { readonly name: Uint8Array; readonly field: number }[][] = [];
for (const [field, text] of [...fieldNames, 'events'].entries()) {
  fieldsByLength[text.length] ??= [];
  fieldsByLength[text.length]?.push({ name: Buffer.from(text), field });
}

/** The fields with a maximal length, which are all texts. */
const boundedFields = Object.values(eventSchema.properties).flatMap((schema, field) =>
  'maxLength' in schema ? [{ field, lengthMax: Number(schema.maxLength) }] : [],
);

/**
 * Each key is compared with all earlier ones, so an object with more keys, or longer ones, is not read here: 32 keys of 500
 * bytes that differ only at their ends, in each of 1,000 events, took 0.4 s.
 */
const keysMax = 32;
const keyBytesMax = 64;
const keyStarts = new Int32Array(keysMax);
const keyEnds = new Int32Array(keysMax);
const reservedKeys = Array.from(reservedEventPropertyKeys, (key) => Buffer.from(key));

/** Where the properties that begin here end; `nowhere` unless each value is a short text or a plain number. */
function endOfProperties(body: Buffer, at: number): number {
  if (body[at] !== openBrace) return nowhere;
  const empty = skipBlanks(body, at + 1);
  if (body[empty] === closeBrace) return empty + 1;
  for (let keys = 0; keys < keysMax; keys++) {
    const key = skipBlanks(body, at + 1);
    const keyEnd = endOfText(body, key);
    if (keyEnd === nowhere || !isUsable(body, key + 1, keyEnd, keys)) return nowhere;
    keyStarts[keys] = key + 1;
    keyEnds[keys] = keyEnd;
    at = skipBlanks(body, keyEnd + 1);
    if (body[at] !== colon) return nowhere;
    at = skipBlanks(body, at + 1);
    const end = body[at] === quote ? endOfValue(body, at) : endOfNumber(body, at);
    if (end === nowhere) return nowhere;
    at = skipBlanks(body, end);
    if (body[at] === closeBrace) return at + 1;
    if (body[at] !== comma) return nowhere;
  }
  return nowhere;
}

/** Whether a key is new in its object, allowed and short enough, and begins with no digit: JavaScript would sort keys that are numbers. */
function isUsable(body: Buffer, start: number, end: number, keysBefore: number): boolean {
  const length = end - start;
  if (length > keyBytesMax || isDigit(body[start])) return false;
  for (let i = 0; i < keysBefore; i++) {
    const other = keyStarts[i] as number;
    if ((keyEnds[i] as number) - other === length && haveSameBytes(body, start, other, length)) return false;
  }
  for (const key of reservedKeys) if (key.length === length && matchesAt(body, start, key)) return false;
  return true;
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

function endOfValue(body: Buffer, at: number): number {
  const end = endOfText(body, at);
  return end === nowhere || end - at - 1 > lengths.propertyValueMax ? nowhere : end + 1;
}

/**
 * Whether the fields of an event, except its time, are valid. Lengths are compared in bytes: no text has fewer bytes than
 * characters.
 */
function isValid(body: Buffer, base: number): boolean {
  if (!has(base, fields.event) || has(base, fields.identity) === has(base, fields.user_id)) return false;
  for (let i = 0; i < boundedFields.length; i++) {
    const { field, lengthMax } = boundedFields[i] as (typeof boundedFields)[number];
    if (!isShort(base, field, lengthMax)) return false;
  }
  return !has(base, fields.user_id) || isUserId(textOf(body, spans, base, fields.user_id) as string);
}

function has(base: number, field: number): boolean {
  return spans[base + 2 * field] !== 0;
}

/** Whether a field is absent, or neither empty nor too long. */
function isShort(base: number, field: number, lengthMax: number): boolean {
  const start = spans[base + 2 * field] as number;
  const length = (spans[base + 2 * field + 1] as number) - start;
  return start === 0 || (length > 0 && length <= lengthMax);
}
