// Turns rows into the records to send. Columns become the fields of an event, or a preset decides what a row is. The record is then
// mended as a lenient environment does, and checked as the service does, so that a dry run reports what the service would.

import { createHash } from 'node:crypto';
import { wouldMergeStrangers } from '../contract/identities.js';
import { counts, lengths, reservedEventPropertyKeys, timestampAheadMsMax } from '../contract/limits.js';
import type { Rejection } from '../contract/outcomes.js';
import type { EventInput, FieldsOf } from '../contract/records.js';
import { userIdOfAnonymousId } from '../contract/user-id.js';
import { eventKind } from '../ingest/event.js';
import { type Mending, mendEvent } from '../ingest/mend.js';
import { checkSegmentMessage } from '../ingest/segment-message.js';
import { isoOf } from '../ingest/timestamp.js';
import type { ImportOptions, Mapping } from './options.js';
import type { Made } from './preset.js';
import { createPreset } from './presets.js';
import type { Row } from './row.js';
import type { Outgoing } from './sender.js';
import { instantIn } from './times.js';
import {
  given,
  hasDecimalComma,
  isGiven,
  isPresent,
  nameIn,
  RowFault,
  setField,
  valueAt,
  withPoint,
} from './values.js';

type Checked = Pick<Outgoing, 'lane' | 'json'>;
type Mapped = readonly Outgoing[] | { readonly fault: string };

export type Mapper = ReturnType<typeof createMapper>;

type Fields = Readonly<Record<string, unknown>>;

/** Columns of the rejects file that are not properties. `key`: the key that the row had when it was refused. */
export const rejectColumns = {
  key: '_sluice_key',
  reason: '_sluice_reason',
  place: '_sluice_row',
  text: '_sluice_text',
} as const;
const ownColumns: ReadonlySet<string> = new Set(Object.values(rejectColumns));

/** The key of a row that has none: the same whenever the same content is imported as the same event. */
export function placeKey(
  contentHash: string,
  { event, eventColumn, preset }: Mapping,
): (place: number) => string {
  const hash = createHash('sha256').update(JSON.stringify([contentHash, event, eventColumn, preset]));
  const prefix = hash.digest('base64url').slice(0, 22);
  return (place) => `import:${prefix}:${place}`;
}

/** Makes the mapper of one file. `isQuick`: plain events are not checked; only a test does without. */
export function createMapper(
  { mapping, strict, allowedIdentities }: Pick<ImportOptions, 'mapping' | 'strict' | 'allowedIdentities'>,
  contentHash: string,
  isQuick = true,
) {
  const keyOf = placeKey(contentHash, mapping);
  /** How many values were mended so far, by reason. */
  const mendings = new Map<Mending, number>();
  const note = (mending: Mending) => void mendings.set(mending, (mendings.get(mending) ?? 0) + 1);
  const allowed: ReadonlySet<string> = new Set(allowedIdentities);
  /** How many rows would merge a device into a word that strangers share, by word. Those devices stay separate. */
  const sharedWords = new Map<string, number>();
  const preset =
    mapping.preset === undefined
      ? undefined
      : createPreset(mapping.preset, mapping.timeFormat.zone, (user) => {
          if (!wouldMergeStrangers(user) || allowed.has(user)) return false;
          sharedWords.set(user, (sharedWords.get(user) ?? 0) + 1);
          return true;
        });
  /** The columns that the mapping names. */
  const columns = columnsOf(mapping);
  const used = new Set([...columnsOf({ ...mapping, decimalComma: [] }), ...ownColumns]);
  /** How many numbers with a decimal comma each column has. They stay text. */
  const commas = new Map<string, number>();
  const ofComma = new Set(mapping.decimalComma);
  /** An import may last until later times are valid. Those are checked. */
  const latest = isoOf(Date.now() + timestampAheadMsMax);

  function map(row: Row): Mapped {
    if (row.value === undefined) return { fault: `The row ${row.fault}.` };
    try {
      return mapWhole(row, row.value);
    } catch (error) {
      if (!(error instanceof RowFault)) throw error;
      return { fault: `The row ${error.message}.` };
    }
  }

  function mapWhole(row: Row, value: Fields): Mapped {
    const key = nameIn(rejectColumns.key, value[rejectColumns.key]) ?? keyOf(row.place);
    const records = preset === undefined ? [makeEvent(value, key)] : preset(withoutOwn(value), key);
    const sent: Outgoing[] = [];
    for (const one of records) {
      const result = one.kind === 'event' ? checkEvent(one.event, row) : checkMessage(one, row);
      if ('code' in result) return { fault: result.message };
      const used = one.kind === 'event' ? one.event.idempotency_key : one.message.messageId;
      const isOwnKey = typeof used === 'string' && used !== key;
      const { lane, json } = result;
      sent.push({ lane, json, key: isOwnKey ? used : key, isOwnKey });
    }
    return sent;
  }

  function makeEvent(row: Fields, key: string): Made {
    const { timestamp: time, timeFormat } = mapping;
    const timestamp = time === undefined ? undefined : isoOf(instantIn(time, valueAt(row, time), timeFormat));
    const named = (column: string | undefined) =>
      column === undefined ? undefined : nameIn(column, valueAt(row, column));
    const own = named(mapping.key);
    const session = named(mapping.sessionId);
    const user = userOf(row);
    if (mapping.key !== undefined && own === undefined)
      throw new RowFault(`has nothing in the column ${mapping.key}, which holds the keys`);
    return {
      kind: 'event',
      event: {
        event: mapping.event ?? given(valueAt(row, mapping.eventColumn as string)),
        ...user,
        session_id: session,
        timestamp,
        idempotency_key: own ?? key,
        properties: propertiesOf(row),
      } satisfies Omit<FieldsOf<EventInput>, 'identity' | 'user_id'>,
    };
  }

  /** The user of a row. A number that is not a safe integer may stand for several users: it stays a number, and is therefore refused. */
  function userOf(row: Fields): Fields {
    for (const [field, column] of userColumns) {
      const name = mapping[column];
      const value = name === undefined ? undefined : valueAt(row, name);
      if (!isGiven(value)) continue;
      if (field === 'anonymousId') return { anonymousId: nameIn(name as string, value) };
      return { [field]: Number.isSafeInteger(value) ? String(value) : value };
    }
    return {};
  }

  function propertiesOf(row: Fields): Fields {
    const properties: Record<string, unknown> = {};
    const add = (column: string, name: string, value: unknown) => {
      if (!isPresent(value)) return;
      let kept = value;
      if (typeof value === 'string')
        if (ofComma.has(column)) {
          kept = withPoint(value);
          if (kept === undefined)
            throw new RowFault(`has no number with a decimal comma in the column ${column}`);
        } else if (hasDecimalComma(value)) commas.set(column, (commas.get(column) ?? 0) + 1);
      setField(properties, name, kept);
    };
    if (mapping.properties === undefined) {
      for (const column in row) if (!used.has(column)) add(column, column, row[column]);
    } else for (const [column, name] of mapping.properties) add(column, name, valueAt(row, column));
    return properties;
  }

  function checkEvent(fields: Fields, row: Row): Checked | Rejection {
    const event: Record<string, unknown> = {};
    for (const name in fields) {
      const field = fields[name];
      if (field === undefined) continue;
      if (name !== 'anonymousId') event[name] = field;
      else event.user_id = userIdOfAnonymousId(field as string);
    }
    if (event.properties !== undefined) event.properties = simplified(event.properties as Fields);
    let value: unknown = event;
    if (isQuick && preset === undefined && !row.surrogates && isPlain(event, latest))
      return { lane: 'events', json: JSON.stringify(event) };
    if (!strict) {
      const mended = mendEvent(event, { note, longNumerals: row.longNumerals, flattenedBytesLeft: 1e6 });
      if ('code' in mended) return mended;
      value = mended.value;
    }
    const checked = eventKind.check(value, contextOf(row));
    return 'code' in checked ? checked : { lane: 'events', json: JSON.stringify(value) };
  }

  function checkMessage(
    { type, message }: Extract<Made, { kind: 'message' }>,
    row: Row,
  ): Checked | Rejection {
    const mending = { note, longNumerals: row.longNumerals, flattenedBytesLeft: 1e6 };
    const context = { ...contextOf(row), sentMs: undefined };
    const checked = checkSegmentMessage(type, message, context, mending);
    return 'code' in checked ? checked : { lane: 'messages', json: JSON.stringify({ ...message, type }) };
  }

  function contextOf({ surrogates }: Row) {
    return { appId: '0', surrogates, nowMs: Date.now(), allowedIdentities: allowed };
  }

  /** Whether all other columns are used as well. */
  const takesRest = mapping.properties === undefined;
  return { map, mendings, commas, sharedWords, columns, takesRest };
}

const userColumns = [
  ['identity', 'identity'],
  ['user_id', 'userId'],
  ['anonymousId', 'anonymousId'],
] as const;

function columnsOf(mapping: Mapping): string[] {
  const { eventColumn, identity, userId, anonymousId, timestamp, sessionId, key, properties } = mapping;
  const named = [eventColumn, identity, userId, anonymousId, timestamp, sessionId, key];
  const others = [...(properties?.keys() ?? []), ...(mapping.decimalComma ?? [])];
  return [...named.filter((name) => name !== undefined), ...others];
}

function withoutOwn(row: Fields): Fields {
  return rejectColumns.place in row
    ? Object.fromEntries(Object.entries(row).filter(([name]) => !ownColumns.has(name)))
    : row;
}

/** Properties without empty values, and with dates as text. */
function simplified(properties: Fields): Fields {
  let copy: Record<string, unknown> | undefined;
  for (const name in properties) {
    const value = properties[name];
    if (isPresent(value) && !(value instanceof Date)) continue;
    copy ??= { ...properties };
    if (value instanceof Date) copy[name] = textOfTime(value);
    else delete copy[name];
  }
  return copy ?? properties;
}

function textOfTime(date: Date): string {
  return Number.isNaN(date.getTime()) ? String(date) : isoOf(date.getTime());
}

/**
 * Whether an event surely needs no mending and is accepted, as most are: mending and checking it would take 1 µs. `latest`: no timestamp may
 * be later; they have the form of `isoOf`.
 */
function isPlain(event: Fields, latest: string): boolean {
  const { timestamp = latest, session_id = 'none', idempotency_key: key, properties } = event;
  const isInTime = typeof timestamp === 'string' && timestamp >= '1970' && timestamp <= latest;
  return (
    isInTime &&
    event.user_id === undefined &&
    isPlainText(event.event, lengths.eventMax) &&
    isPlainText(event.identity, lengths.identityMax) &&
    isPlainText(session_id, lengths.sessionIdMax) &&
    isPlainText(key, lengths.idempotencyKeyMax) &&
    arePlain(properties as Fields)
  );
}

function isPlainText(value: unknown, lengthMax: number): boolean {
  return typeof value === 'string' && value.length > 0 && value.length <= lengthMax;
}

function arePlain(properties: Fields): boolean {
  let count = 0;
  for (const name in properties) {
    const value = properties[name];
    const isValue = isPlainText(value, lengths.propertyValueMax) || Number.isFinite(value);
    if (!isValue || !isPlainText(name, lengths.propertyKeyMax) || reservedEventPropertyKeys.has(name))
      return false;
    if (++count > counts.propertiesMax) return false;
  }
  return true;
}
