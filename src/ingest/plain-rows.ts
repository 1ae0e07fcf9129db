// The rows of plain events, copied from the body that they came in to the commit that they go in.

import { tableIndex } from '../clickhouse/tables.js';
import { eventIdOfKey, uniqueEventId } from './event-id.js';
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
  const head = `["${appId}","`;
  const eventIds = Array.from({ length: count }, (_, index) => {
    const key = textOf(body, spans, index * spansEach, fields.idempotencyKey);
    return key === undefined ? undefined : eventIdOfKey(appId, key);
  });

  function write(into: Buffer, at: number, index: number, number: number): number {
    const base = index * spansEach;
    at = writeAscii(head, into, at);
    at = writeAscii(eventIds[index] ?? uniqueEventId(), into, at);
    at = writeAscii('","', into, at);
    at = copyField(base, fields.event, into, at);
    at = writeAscii('",', into, at);
    at = has(base, fields.userId) ? copyField(base, fields.userId, into, at) : writeAscii('null', into, at);
    at = writeAscii(',"', into, at);
    at = copyField(base, fields.identity, into, at);
    at = writeAscii('","', into, at);
    at = copyField(base, fields.sessionId, into, at);
    at = writeAscii('",', into, at);
    at = writeTime(base, times[index], into, at);
    at = writeAscii(',', into, at);
    at = has(base, fields.properties)
      ? copyCompact(body, startOf(base, fields.properties), endOf(base, fields.properties), into, at)
      : writeAscii('{}', into, at);
    at = writeAscii(',', into, at);
    at = writeAscii(String(number), into, at);
    return writeAscii('\n', into, at);
  }

  function writeTime(base: number, time: string | undefined, into: Buffer, at: number): number {
    if (!has(base, fields.timestamp)) return writeAscii('null', into, at);
    at = writeAscii('"', into, at);
    if (time === undefined) {
      // 2026-03-01T12:30:00.250Z, as it came but for the T and the Z.
      const start = startOf(base, fields.timestamp);
      at = copyBytes(body, start, start + 10, into, at);
      at = writeAscii(' ', into, at);
      at = copyBytes(body, start + 11, start + 23, into, at);
    } else {
      at = writeAscii(time, into, at);
    }
    return writeAscii('"', into, at);
  }

  function copyField(base: number, field: number, into: Buffer, at: number): number {
    return copyBytes(body, startOf(base, field), endOf(base, field), into, at);
  }

  function has(base: number, field: number): boolean {
    return startOf(base, field) !== 0;
  }

  function startOf(base: number, field: number): number {
    return spans[base + 2 * field] as number;
  }

  function endOf(base: number, field: number): number {
    return spans[base + 2 * field + 1] as number;
  }

  return {
    length: count,
    rowBytesMax: body.length + count * (appId.length + rowBytesMax),
    tableOf: () => tableIndex.events,
    claimOf: (index) => eventIds[index],
    write: (into, at, first, end, firstNumber) => {
      for (let i = first; i < end; i++) at = write(into, at, i, firstNumber + i - first);
      return at;
    },
  };
}

/** Who the events are of, in their order. */
export function usersOf({ body, spans, count }: PlainEvents): Checked[] {
  return Array.from({ length: count }, (_, index) => ({
    identity: textOf(body, spans, index * spansEach, fields.identity) ?? '',
    userId: textOf(body, spans, index * spansEach, fields.userId),
  }));
}

// Byte by byte, since a call that copies as few as a field has costs more.
function copyBytes(from: Uint8Array, start: number, end: number, into: Uint8Array, at: number): number {
  for (let i = start; i < end; i++) into[at++] = from[i] as number;
  return at;
}

function writeAscii(text: string, into: Uint8Array, at: number): number {
  for (let i = 0; i < text.length; i++) into[at++] = text.charCodeAt(i);
  return at;
}
