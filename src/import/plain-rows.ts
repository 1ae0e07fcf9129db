// Most rows need nothing of what mapping.ts does for all: their values are short ASCII text without quotes, and numbers. They are
// written as JSON at once, without the objects in between, their checks and their garbage: a third of what a row costs an import. Every
// other row is left to mapping.ts, which gives the same record for these (a test compares).

import { counts, lengths, reservedEventPropertyKeys, timestampAheadMsMax } from '../contract/limits.js';
import { isoOf } from '../ingest/timestamp.js';
import type { Mapping } from './options.js';
import type { Outgoing } from './sender.js';
import { readTime } from './times.js';
import { given, isGiven, isPresent, textOf, valueAt } from './values.js';

type Fields = Readonly<Record<string, unknown>>;

/** Writes the record of a row whose key is `key` unless it has its own; undefined if it is not plain. */
export type WritePlain = (row: Fields, key: string) => Outgoing | undefined;

/** `used`: the columns that are no properties; `special`: those that no plain row has. */
export function createPlainWriter(
  mapping: Mapping,
  used: ReadonlySet<string>,
  special: readonly string[],
): WritePlain {
  const { event, eventColumn, identity, timestamp, timeFormat, sessionId, properties } = mapping;
  if (identity === undefined || mapping.preset !== undefined) return () => undefined;
  if (properties !== undefined && properties.size > counts.propertiesMax) return () => undefined;
  const ofComma = new Set(mapping.decimalComma);

  /** The beginning of a property of this name, or false if a row with it is not plain. */
  function prefixOf(column: string, name: string): string | false {
    // Names that look like numbers come first in objects.
    const isPlain = /^[^\d]/.test(name) && isPlainText(name, lengths.propertyKeyMax);
    return isPlain && !reservedEventPropertyKeys.has(name) && !ofComma.has(column) && `"${name}":`;
  }

  /** By column, what its property begins with; true if it is none. */
  const prefixes = new Map<string, string | boolean>([...used].map((column) => [column, true]));
  const chosen =
    properties && Array.from(properties, ([column, name]) => [column, prefixOf(column, name)] as const);

  /** A property with a comma before it, nothing if there is no value, or undefined if it is not plain. */
  function property(prefix: string | false, value: unknown): string | undefined {
    if (!isPresent(value)) return '';
    if (prefix === false) return undefined;
    if (typeof value === 'number') return Number.isFinite(value) ? `,${prefix}${value}` : undefined;
    // A text with a comma may be a number.
    if (!isPlainText(value, lengths.propertyValueMax) || value.includes(',')) return undefined;
    return `,${prefix}"${value}"`;
  }

  function propertiesOf(row: Fields): string | undefined {
    let text = '';
    if (chosen !== undefined) {
      for (const [column, prefix] of chosen) {
        const one = property(prefix, valueAt(row, column));
        if (one === undefined) return undefined;
        text += one;
      }
      return text.slice(1);
    }
    let count = 0;
    for (const column in row) {
      let prefix = prefixes.get(column);
      if (prefix === true) continue;
      if (prefix === undefined) {
        prefix = prefixOf(column, column);
        if (prefixes.size < counts.propertiesMax) prefixes.set(column, prefix);
      }
      const one = property(prefix, row[column]);
      if (one === undefined || ++count > counts.propertiesMax) return undefined;
      text += one;
    }
    return text.slice(1);
  }

  /** The field of a row's time, with a comma before it; undefined if it is not plain. */
  function timeOf(row: Fields): string | undefined {
    if (timestamp === undefined) return '';
    const value = valueAt(row, timestamp);
    const instant = isGiven(value) ? readTime(value, timeFormat) : undefined;
    const isPlain =
      Number.isInteger(instant) &&
      (instant as number) >= 0 &&
      (instant as number) <= Date.now() + timestampAheadMsMax;
    return isPlain ? `,"timestamp":"${isoOf(instant as number)}"` : undefined;
  }

  return (row, key) => {
    for (const column of special) if (row[column] !== undefined) return undefined;
    const name = event ?? valueAt(row, eventColumn as string);
    const user = valueAt(row, identity);
    const userText = Number.isSafeInteger(user) ? String(user) : user;
    const own = mapping.key === undefined ? undefined : textOf(valueAt(row, mapping.key));
    const named = sessionId === undefined ? undefined : given(valueAt(row, sessionId));
    const session = textOf(named);
    const isPlain =
      isPlainName(name, lengths.eventMax) &&
      isPlainName(userText, lengths.identityMax) &&
      (mapping.key === undefined || isPlainName(own, lengths.idempotencyKeyMax)) &&
      (named === undefined || isPlainName(session, lengths.sessionIdMax));
    const time = isPlain ? timeOf(row) : undefined;
    const properties = time === undefined ? undefined : propertiesOf(row);
    if (properties === undefined) return undefined;
    const used = own ?? key;
    const sessionText = session === undefined ? '' : `,"session_id":"${session}"`;
    return {
      lane: 'events',
      json: `{"event":"${name}","identity":"${userText}"${sessionText}${time},"idempotency_key":"${used}","properties":{${properties}}}`,
      key: used,
      isOwnKey: used !== key,
    };
  };
}

/** Whether a value is text that JSON writes as it is, in one byte a character. */
function isPlainText(value: unknown, lengthMax: number): value is string {
  return typeof value === 'string' && value.length <= lengthMax && /^[ !#-[\]-~]*$/.test(value);
}

function isPlainName(value: unknown, lengthMax: number): value is string {
  return isPlainText(value, lengthMax) && isGiven(value);
}
