// RFC 3339 timestamps: the only forms taken, and the text ClickHouse reads fastest. `Date.parse` is not
// asked, since it takes dates without offset and rolls 30 February over to March.
// @see https://www.rfc-editor.org/rfc/rfc3339#section-5.6

import { timestampAheadMsMax } from '../contract/limits.js';

/** `YYYY-MM-DD hh:mm:ss.mmm` in UTC, or why the timestamp is refused. */
export type TimestampResult =
  | { readonly text: string }
  | { readonly refused: 'invalid_timestamp' | 'timestamp_out_of_range' };

const strictForm =
  /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))$/;
/** Also without seconds, and with offsets such as +0530 and +05. */
const lenientForm =
  /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:[Zz]|([+-])(\d\d):?(\d\d)?)$/;

const invalid: TimestampResult = { refused: 'invalid_timestamp' };
const outOfRange: TimestampResult = { refused: 'timestamp_out_of_range' };

/** Reads a timestamp as strict environments take it. `nowMs` bounds the future. */
export function readTimestamp(value: string, nowMs: number): TimestampResult {
  return read(strictForm.exec(value), nowMs);
}

export const timestampAdvice =
  'timestamp must be RFC 3339 with offset and seconds, a real date from 1970 to one day ahead.';

/** The strict form of a timestamp that only lenient environments take, or undefined when it is none. */
export function completeTimestamp(value: string): string | undefined {
  const match = lenientForm.exec(value);
  if (match === null) return undefined;
  const [, year, month, day, hour, minute, second, fraction, sign, offsetHour, offsetMinute] = match;
  const offset = sign === undefined ? 'Z' : `${sign}${offsetHour}:${offsetMinute ?? '00'}`;
  const subsecond = fraction === undefined ? '' : `.${fraction}`;
  return `${year}-${month}-${day}T${hour}:${minute}:${second ?? '00'}${subsecond}${offset}`;
}

/**
 * The RFC 3339 form of milliseconds since 1970, or undefined when they are not whole. A year that cannot be
 * written becomes the nearest one that can, which is as much out of range.
 */
export function timestampOfEpochMs(epochMs: number): string | undefined {
  if (!Number.isInteger(epochMs)) return undefined;
  return new Date(Math.min(Math.max(epochMs, writableMsMin), writableMsMax)).toISOString();
}

const writableMsMin = Date.parse('0001-01-01T00:00:00Z');
const writableMsMax = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

function read(match: RegExpExecArray | null, nowMs: number): TimestampResult {
  const epochMs = match === null ? undefined : instantOf(match);
  if (epochMs === undefined) return invalid;
  if (epochMs < 0 || epochMs > nowMs + timestampAheadMsMax) return outOfRange;
  return { text: textOfEpochMs(epochMs) };
}

/** Milliseconds since 1970 of a strict timestamp, however far from now; undefined when it is none. */
export function readInstant(value: string): number | undefined {
  const match = strictForm.exec(value);
  return match === null ? undefined : instantOf(match);
}

/** `YYYY-MM-DD hh:mm:ss.mmm` in UTC, of milliseconds from 1970 to the year 9999. */
export function textOfEpochMs(epochMs: number): string {
  const iso = new Date(epochMs).toISOString();
  return `${iso.slice(0, 10)} ${iso.slice(11, 23)}`;
}

/** The calendar repeats after so many milliseconds, 400 years. */
const calendarMs = 146_097 * 24 * 60 * 60 * 1000;

function instantOf(match: RegExpExecArray): number | undefined {
  const year = Number(match[1]);
  const month = Number(match[2]);
  const day = Number(match[3]);
  const hour = Number(match[4]);
  const minute = Number(match[5]);
  const second = Number(match[6]);
  if (month < 1 || month > 12 || day < 1 || day > daysIn(year, month)) return undefined;
  if (hour > 23 || minute > 59 || second > 59) return undefined;

  const millisecond = Number((match[7] ?? '').slice(0, 3).padEnd(3, '0'));
  // Date.UTC takes the years 0 to 99 for 1900 to 1999.
  let epochMs = Date.UTC(year + 400, month - 1, day, hour, minute, second, millisecond) - calendarMs;
  if (match[8] !== undefined) {
    const offsetHour = Number(match[9]);
    const offsetMinute = Number(match[10]);
    if (offsetHour > 23 || offsetMinute > 59) return undefined;
    const offsetMs = (offsetHour * 60 + offsetMinute) * 60_000;
    epochMs += match[8] === '+' ? -offsetMs : offsetMs;
  }
  return epochMs;
}

function daysIn(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return month === 4 || month === 6 || month === 9 || month === 11 ? 30 : 31;
}
