// The rows of plain events, copied from the body that they came in to the commit that they go in.

import { tableIndex } from '../clickhouse/tables.js';
import { eventIdOfKey, writeUniqueEventId } from './event-id.js';
import type { Records } from './pack.js';
import { fields, type PlainEvents, spansEach, textOf } from './plain-events.js';
import { copyCompact } from './plain-json.js';
import type { Checked } from './record-kind.js';

/**
 * What a row has beside its app_id and the bytes of its event: an id (32), a time (23), at most `null` for
 * a user_id and `{}` for properties, its number, and what stands between.
 */
const rowBytesMax = 32 + 23 + 'null'.length + '{}'.length + 4 + '["","","",,"","","",,\n'.length;

/** The records of plain events: the same rows and claims as `encodeEvent` gives for them. */
export function recordsOf({ appId, body, spans, times, count }: PlainEvents): Records {
  const head = Buffer.from(`["${appId}","`);
  const eventIds = new Array<string | undefined>(count);
  for (let i = 0; i < count; i++) {
    const key = textOf(body, spans, i * spansEach, fields.idempotencyKey);
    if (key !== undefined) eventIds[i] = eventIdOfKey(appId, key);
  }
  return {
    length: count,
    rowBytesMax: body.length + count * (head.length + rowBytesMax),
    tableOf: () => tableIndex.events,
    claimOf: (index) => eventIds[index],
    write: (into, at, first, end, firstNumber) => {
      for (let i = first; i < end; i++) {
        at = copyBytes(head, 0, head.length, into, at);
        const id = eventIds[i];
        at = id === undefined ? writeUniqueEventId(into, at) : at + into.write(id, at, 'latin1');
        at = writeFields(body, spans, i * spansEach, times[i], into, at);
        at = writeNumber(firstNumber + i - first, into, at);
        into[at++] = lineFeed;
      }
      return at;
    },
  };
}

/** From the end of the event's id to the comma before its number. */
function writeFields(
  body: Buffer,
  spans: Int32Array,
  base: number,
  time: string | undefined,
  into: Buffer,
  at: number,
): number {
  into[at++] = quote;
  into[at++] = comma;
  at = copyText(body, spans, base + 2 * fields.event, into, at);
  into[at++] = comma;
  if (spans[base + 2 * fields.userId] === 0) at = copyBytes(nullBytes, 0, 4, into, at);
  else at = copySpan(body, spans, base + 2 * fields.userId, into, at);
  into[at++] = comma;
  at = copyText(body, spans, base + 2 * fields.identity, into, at);
  into[at++] = comma;
  at = copyText(body, spans, base + 2 * fields.sessionId, into, at);
  into[at++] = comma;
  at = writeTime(body, spans[base + 2 * fields.timestamp] as number, time, into, at);
  into[at++] = comma;
  const properties = base + 2 * fields.properties;
  if (spans[properties] === 0) {
    into[at++] = 0x7b;
    into[at++] = 0x7d;
  } else {
    at = copyCompact(body, spans[properties] as number, spans[properties + 1] as number, into, at);
  }
  into[at++] = comma;
  return at;
}

/** Writes a time, that which begins at `start` unless it is given; 0 and none: there is none. */
function writeTime(body: Buffer, start: number, time: string | undefined, into: Buffer, at: number): number {
  if (start === 0) return copyBytes(nullBytes, 0, 4, into, at);
  into[at++] = quote;
  if (time === undefined) {
    // 2026-03-01T12:30:00.250Z, as it came but for the T and the Z.
    at = copyBytes(body, start, start + 10, into, at);
    into[at++] = 0x20;
    at = copyBytes(body, start + 11, start + 23, into, at);
  } else {
    at += into.write(time, at, 'latin1');
  }
  into[at++] = quote;
  return at;
}

/** Copies a field with quotes around it; without the field they stand alone. */
function copyText(body: Buffer, spans: Int32Array, span: number, into: Buffer, at: number): number {
  into[at++] = quote;
  at = copySpan(body, spans, span, into, at);
  into[at++] = quote;
  return at;
}

function copySpan(body: Buffer, spans: Int32Array, span: number, into: Buffer, at: number): number {
  return copyBytes(body, spans[span] as number, spans[span + 1] as number, into, at);
}

// Byte by byte, since a call that copies as few as a field has costs more.
function copyBytes(from: Uint8Array, start: number, end: number, into: Uint8Array, at: number): number {
  for (let i = start; i < end; i++) into[at++] = from[i] as number;
  return at;
}

/** Writes the decimal digits of a whole number. */
function writeNumber(number: number, into: Uint8Array, at: number): number {
  if (number >= 10) at = writeNumber(Math.floor(number / 10), into, at);
  into[at++] = zero + (number % 10);
  return at;
}

const nullBytes = Buffer.from('null');
const quote = 0x22;
const comma = 0x2c;
const lineFeed = 0x0a;
const zero = 0x30;

/** Who the events are of, in their order. */
export function usersOf({ body, spans, count }: PlainEvents): Checked[] {
  const users: Checked[] = [];
  for (let i = 0; i < count; i++) {
    const identity = textOf(body, spans, i * spansEach, fields.identity) ?? '';
    users.push({ identity, userId: textOf(body, spans, i * spansEach, fields.userId) });
  }
  return users;
}
