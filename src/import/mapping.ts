// Turns rows into the records to send. Columns become the fields of an event, or a preset decides what a row is. The record is then
// mended as a lenient environment does, and checked as the service does, so that a dry run reports what the service would.

import { createHash } from 'node:crypto';
import { userIdOfAnonymousId } from '../contract/anonymous-id.js';
import { wouldMergeStrangers } from '../contract/identities.js';
import { lengths, reservedEventPropertyKeys } from '../contract/limits.js';
import type { Rejection } from '../contract/outcomes.js';
import { eventKind } from '../ingest/event.js';
import { type Mending, mendEvent } from '../ingest/mend.js';
import { checkSegmentMessage } from '../ingest/segment-message.js';
import { isoOf } from '../ingest/timestamp.js';
import { setField } from './fields.js';
import type { ImportOptions, Mapping } from './options.js';
import { createPlainWriter } from './plain-rows.js';
import type { Made } from './preset.js';
import { createPreset } from './presets.js';
import type { Row } from './row.js';
import { readTime } from './times.js';
import {
  faultIn,
  given,
  hasDecimalComma,
  isGiven,
  isPresent,
  nameAt,
  nameIn,
  valueAt,
  withPoint,
} from './values.js';

/** The endpoint that a record is sent to. */
export type Lane = 'events' | 'messages';

/** A record as JSON. `isOwnKey`: its key comes from the row or from the export, not from the row's place. */
export type Outgoing = {
  readonly lane: Lane;
  readonly json: string;
  readonly key: string;
  readonly isOwnKey: boolean;
};

type Checked = Pick<Outgoing, 'lane' | 'json'>;
export type Mapped = readonly Outgoing[] | { readonly fault: string };

export type Mapper = {
  map(row: Row): Mapped;
  /** How many values were mended so far, by reason. */
  readonly mendings: ReadonlyMap<Mending, number>;
  /** How many numbers with a decimal comma each column has. They stay text. */
  readonly commas: ReadonlyMap<string, number>;
  /** How many rows would merge a device into a word that strangers share, by word. Those devices stay separate. */
  readonly sharedWords: ReadonlyMap<string, number>;
  /** The columns that the mapping names. */
  readonly columns: readonly string[];
  /** Whether all other columns are used as well. */
  readonly takesRest: boolean;
};

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

/** Makes the mapper of one file. `isQuick`: plain rows are written at once; only a test does without. */
export function createMapper(
  { mapping, strict, allowedIdentities }: Pick<ImportOptions, 'mapping' | 'strict' | 'allowedIdentities'>,
  contentHash: string,
  isQuick = true,
): Mapper {
  const keyOf = placeKey(contentHash, mapping);
  const mendings = new Map<Mending, number>();
  const note = (mending: Mending) => void mendings.set(mending, (mendings.get(mending) ?? 0) + 1);
  const allowed: ReadonlySet<string> = new Set(allowedIdentities);
  const sharedWords = new Map<string, number>();
  const preset =
    mapping.preset === undefined
      ? undefined
      : createPreset(mapping.preset, {
          zone: mapping.timeFormat.zone,
          isShared(user) {
            if (!wouldMergeStrangers(user) || allowed.has(user)) return false;
            sharedWords.set(user, (sharedWords.get(user) ?? 0) + 1);
            return true;
          },
        });
  const columns = columnsOf(mapping);
  const used = new Set([...columnsOf({ ...mapping, decimalComma: [] }), ...ownColumns]);
  const commas = new Map<string, number>();
  const ofComma = new Set(mapping.decimalComma);
  const writePlain = createPlainWriter(mapping, used, [rejectColumns.key]);

  function map(row: Row): Mapped {
    if (row.value === undefined) return { fault: `The row ${row.fault}.` };
    const plain = isQuick ? writePlain(row.value, keyOf(row.place)) : undefined;
    if (plain !== undefined) return [plain];
    const key = nameIn(rejectColumns.key, row.value[rejectColumns.key]) ?? keyOf(row.place);
    if (typeof key === 'object') return { fault: `The row ${key.fault}.` };
    const records = preset === undefined ? makeEvent(row.value, key) : preset(withoutOwn(row.value), key);
    if (typeof records === 'string') return { fault: `The row ${records}.` };
    const sent: Outgoing[] = [];
    for (const one of records) {
      const result = one.kind === 'event' ? checkEvent(one.event, row) : checkMessage(one, row);
      if ('code' in result) return { fault: result.message };
      const used = one.kind === 'event' ? one.event.idempotency_key : one.message.messageId;
      const isOwnKey = typeof used === 'string' && used !== key;
      sent.push({ ...result, key: isOwnKey ? used : key, isOwnKey });
    }
    return sent;
  }

  function makeEvent(row: Fields, key: string): readonly Made[] | string {
    let timestamp: string | undefined;
    const time = mapping.timestamp === undefined ? undefined : valueAt(row, mapping.timestamp);
    // Otherwise the event would get the time of the import.
    if (mapping.timestamp !== undefined && !isGiven(time))
      return `has no time in the column ${mapping.timestamp}`;
    if (isGiven(time)) {
      const instant = readTime(time, mapping.timeFormat);
      if (typeof instant === 'string') return `has a time in the column ${mapping.timestamp} that ${instant}`;
      timestamp = isoOf(instant);
    }
    const own = nameAt(row, mapping.key);
    const session = nameAt(row, mapping.sessionId);
    const user = userOf(row);
    const fault = faultIn(own) ?? faultIn(session) ?? faultIn(user.anonymousId);
    if (fault !== undefined) return fault;
    if (mapping.key !== undefined && own === undefined)
      return `has nothing in the column ${mapping.key}, which holds the keys`;
    const properties = propertiesOf(row);
    if (typeof properties === 'string') return properties;
    return [
      {
        kind: 'event',
        event: {
          event: mapping.event ?? given(valueAt(row, mapping.eventColumn as string)),
          ...user,
          session_id: session,
          timestamp,
          idempotency_key: own ?? key,
          properties,
        },
      },
    ];
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

  function propertiesOf(row: Fields): Fields | string {
    const properties: Record<string, unknown> = {};
    const add = (column: string, name: string, value: unknown): string | undefined => {
      if (!isPresent(value)) return undefined;
      let kept = value;
      if (typeof value === 'string')
        if (ofComma.has(column)) {
          kept = withPoint(value);
          if (kept === undefined) return `has no number with a decimal comma in the column ${column}`;
        } else if (hasDecimalComma(value)) commas.set(column, (commas.get(column) ?? 0) + 1);
      setField(properties, name, kept);
      return undefined;
    };
    if (mapping.properties !== undefined) {
      for (const [column, name] of mapping.properties) {
        const fault = add(column, name, valueAt(row, column));
        if (fault !== undefined) return fault;
      }
      return properties;
    }
    for (const column in row) {
      const fault = used.has(column) ? undefined : add(column, column, row[column]);
      if (fault !== undefined) return fault;
    }
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
    if (!strict && !isPlain(event)) {
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
    const context = { ...contextOf(row), appId: '0', sentMs: undefined };
    const checked = checkSegmentMessage(type, message, context, mending);
    return 'code' in checked ? checked : { lane: 'messages', json: JSON.stringify({ ...message, type }) };
  }

  function contextOf({ surrogates }: Row) {
    return { surrogates, nowMs: Date.now(), allowedIdentities: allowed };
  }

  return { map, mendings, commas, sharedWords, columns, takesRest: mapping.properties === undefined };
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

/** Whether mending would change nothing, which is the usual case. */
function isPlain({ identity, user_id, timestamp, properties }: Fields): boolean {
  if (typeof identity === 'number' || typeof user_id === 'number' || typeof timestamp === 'number')
    return false;
  if (typeof properties !== 'object' || properties === null) return false;
  for (const name in properties) {
    const value = (properties as Fields)[name];
    const isText = typeof value === 'string' && value.length <= lengths.propertyValueMax;
    if ((!isText && typeof value !== 'number') || reservedEventPropertyKeys.has(name)) return false;
  }
  return true;
}
