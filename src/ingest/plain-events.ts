// Events as nearly all producers send them, read straight from the bytes of a body: known fields, each once, texts
// without escapes, properties that are texts or plain numbers. Whatever is not so, and everything that is wrong, is
// left to `document.ts` and `event.ts`, which know all rules and say what is at fault: this is no second opinion,
// only a shorter way to the same rows. On the path of every event.

import { isUtf8 } from 'node:buffer';
import { bodies, counts, lengths, reservedEventPropertyKeys } from '../contract/limits.js';
import { endOfNumber, endOfText, haveSameBytes, nowhere, skipBlanks, standsAt } from './plain-json.js';
import { isCommonTimestamp, readTimestamp } from './timestamp.js';
import { isUserId } from './user-id.js';

/** The fields of an event and of its request, by their place in `spans`. */
export const fields = {
  event: 0,
  identity: 1,
  userId: 2,
  sessionId: 3,
  timestamp: 4,
  idempotencyKey: 5,
  properties: 6,
  appId: 7,
} as const;
/** Beside them, in a bulk request: its list. */
const listOfEvents = 8;

/** Numbers that an object takes in `spans`: where each field begins and where it ends, 0 and 0 without it. */
export const spansEach = 16;

/** The events of a request; each holds to the contract, so that lenient environments have nothing to mend. */
export type PlainEvents = {
  readonly appId: string;
  readonly isBulk: boolean;
  readonly count: number;
  readonly body: Buffer;
  /** Of the events one after another. Of texts without their quotes, of properties with their braces. */
  readonly spans: Int32Array;
  /** UTC, as ClickHouse reads it, of timestamps that have not the common form. */
  readonly times: readonly (string | undefined)[];
};

/**
 * Reads a body, single event or bulk; undefined unless all of it is plain. A body that is not `owned` is copied, since
 * its memory may die when the caller returns. `nowMs` bounds timestamps in the future.
 */
export function readPlainEvents(body: Buffer, owned: boolean, nowMs: number): PlainEvents | undefined {
  listed = nowhere;
  const end = isUtf8(body) ? readObject(body, skipBlanks(body, 0), 0, true) : nowhere;
  if (end === nowhere || skipBlanks(body, end) !== body.length) return undefined;
  const appId = textOf(body, spans, 0, fields.appId);
  const isBulk = listed !== nowhere;
  if (appId === undefined || (!isBulk && body.length > bodies.singleBytesMax)) return undefined;
  // A request with a list has no fields of an event beside it.
  for (let field = 0; isBulk && field < fields.appId; field++) if (has(0, field)) return undefined;

  const count = isBulk ? listed : 1;
  const first = isBulk ? spansEach : 0;
  const times = new Array<string | undefined>(count);
  for (let index = 0; index < count; index++) {
    const base = first + index * spansEach;
    if (!isValid(body, base)) return undefined;
    const start = spans[base + 2 * fields.timestamp] as number;
    const end = spans[base + 2 * fields.timestamp + 1] as number;
    if (start === 0 || isCommonTimestamp(body, start, end, nowMs)) continue;
    const time = readTimestamp(body.toString('utf8', start, end), nowMs);
    if ('refused' in time) return undefined;
    times[index] = time.text;
  }
  const kept = spans.slice(first, first + count * spansEach);
  return { appId, isBulk, count, body: owned ? body : Buffer.from(body), spans: kept, times };
}

/** The text of a field; undefined when it is not there. */
export function textOf(body: Buffer, spans: Int32Array, base: number, field: number): string | undefined {
  const start = spans[base + 2 * field] as number;
  return start === 0 ? undefined : body.toString('utf8', start, spans[base + 2 * field + 1]);
}

/** Of the request, and behind it of the events of its list. Read by the turn that wrote it. */
const spans = new Int32Array((1 + counts.bulkEventsMax) * spansEach);
/** Events in the list of the request, or `nowhere`. */
let listed: number = nowhere;

const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** Reads the object that opens here into the spans from `base` on; answers where it ended. */
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
    if (field >= fields.appId && !isRequest) return nowhere;
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
  for (const { name, field } of candidates) if (standsAt(body, start, name)) return field;
  return nowhere;
}

const fieldsByLength: { readonly name: Uint8Array; readonly field: number }[][] = [];
for (const [text, field] of [
  ['event', fields.event],
  ['app_id', fields.appId],
  ['events', listOfEvents],
  ['user_id', fields.userId],
  ['identity', fields.identity],
  ['timestamp', fields.timestamp],
  ['session_id', fields.sessionId],
  ['properties', fields.properties],
  ['idempotency_key', fields.idempotencyKey],
] as const) {
  fieldsByLength[text.length] ??= [];
  fieldsByLength[text.length]?.push({ name: Buffer.from(text), field });
}

/**
 * A key is compared with all before it, so an object with more of them, or longer ones, is not read here: 32 keys of
 * 500 bytes, alike but for their ends, in each of 1,000 events took 0.4 s.
 */
const keysMax = 32;
const keyBytesMax = 64;
const keyStarts = new Int32Array(keysMax);
const keyEnds = new Int32Array(keysMax);
const reservedKeys = Array.from(reservedEventPropertyKeys, (key) => Buffer.from(key));

/** The byte after the properties that open here. */
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

/** Whether a key is new in its object, allowed and short enough. JavaScript would sort those that are numbers. */
function isUsable(body: Buffer, start: number, end: number, keysBefore: number): boolean {
  const length = end - start;
  if (length > keyBytesMax || isDigit(body[start])) return false;
  for (let i = 0; i < keysBefore; i++) {
    const other = keyStarts[i] as number;
    if ((keyEnds[i] as number) - other === length && haveSameBytes(body, start, other, length)) return false;
  }
  for (const key of reservedKeys) if (key.length === length && standsAt(body, start, key)) return false;
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
 * Whether the fields of an event, but for its time, are as they must be. Their lengths are compared in bytes, of
 * which no text has fewer than characters.
 */
function isValid(body: Buffer, base: number): boolean {
  if (!has(base, fields.event) || has(base, fields.identity) === has(base, fields.userId)) return false;
  return (
    isShort(base, fields.event, lengths.eventMax) &&
    isShort(base, fields.identity, lengths.identityMax) &&
    isShort(base, fields.sessionId, lengths.sessionIdMax) &&
    isShort(base, fields.idempotencyKey, lengths.idempotencyKeyMax) &&
    (!has(base, fields.userId) || isUserId(textOf(body, spans, base, fields.userId) as string))
  );
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
