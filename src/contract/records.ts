// Every kind of record, field by field: what a request may say in it, and the columns in which that is stored. These follow from it:
// how plain events are read, the rows, their markers and their columns (`clickhouse/tables.ts`), which user a row belongs to,
// and the lines of an export. These do not: migrations and views (a test compares the tables that they make
// with these columns), and the messages of the client library (`ingest/message.ts`).

import { counts, lengths } from './limits.js';
import {
  anyFields,
  anyOf,
  listOf,
  number,
  object,
  optional,
  type Static,
  text,
  textUpTo,
} from './typebox.js';

/** A property's value. Arrays are joined into one string. A number that a double cannot hold arrives as a string of its digits. */
const eventPropertyValue = anyOf([
  number(),
  text({ maxLength: lengths.propertyValueMax }),
  listOf(anyOf([number(), text()])),
]);

const eventProperties = anyFields(
  eventPropertyValue,
  `At most ${counts.propertiesMax} key-value pairs; keys of at most ${lengths.propertyKeyMax} characters, values numbers or strings of at most ${lengths.propertyValueMax} characters. An array of these is stored as one string: its elements joined with ||, cut after ${lengths.joinedArrayMax} characters. The keys user_id, session_id and screen_name are reserved.`,
  { examples: [{ amount: 12.5, currency: 'EUR', tags: ['gift', 'express'] }] },
);

const identityAdvice = `Identity of the user, case-sensitive, at most ${lengths.identityMax} characters. Send e-mail addresses in lower case: the service never changes the case, so that Ada@example.com and ada@example.com are two users. Never send a generic word such as null, undefined, user or anonymous: all who share it become one user, which cannot be undone.`;

/** One event. Its app_id is given once per request, so it is not here, nor in the two schemas below. These lengths check plain events, too. */
export const eventSchema = object({
  event: textUpTo(
    lengths.eventMax,
    `Name of the event, at most ${lengths.eventMax} characters. Use broad names and tell variants apart by properties: one event Error with a property message, not one event per message.`,
    'Order Completed',
  ),
  identity: optional(
    textUpTo(
      lengths.identityMax,
      `${identityAdvice} A user is created for an identity that is new. Give exactly one of identity and user_id.`,
      'ada@example.com',
    ),
  ),
  user_id: optional(
    text(
      'An anonymous user: the number that the client library made for a device, from 0 to 2^53 - 1, in plain decimal form as a string. The id of a user in your own database belongs in identity. Give exactly one of identity and user_id.',
      '4503599627370496',
    ),
  ),
  session_id: optional(textUpTo(lengths.sessionIdMax, "The user's session.", '5629499534213120')),
  properties: optional(eventProperties),
  timestamp: optional(
    text(
      'When it happened: RFC 3339 with offset and seconds, up to 9 fraction digits (stored to the millisecond), from 1970 to one day ahead. Default: the time of acceptance.',
      '2026-03-01T12:30:00.250+01:00',
    ),
  ),
  idempotency_key: optional(
    textUpTo(
      lengths.idempotencyKeyMax,
      'Unique within the environment. A later event with the same key is answered like the first and changes nothing, whatever is in it; so a request without an answer can be repeated.',
      'order-1001-completed',
    ),
  ),
});
export type EventInput = Static<typeof eventSchema>;

export const identity = textUpTo(lengths.identityMax, identityAdvice, 'ada@example.com');

export const userPropertiesSchema = object({
  identity,
  properties: optional(
    anyFields(
      anyOf([number(), text({ maxLength: lengths.userPropertyValueMax })]),
      `Key-value pairs of the user, for all past and future activity; the latest value of each key counts. At most ${counts.propertiesMax}; values are numbers or strings of at most ${lengths.userPropertyValueMax} characters. The key email, in lower case, fills the built-in e-mail property; in any other case it is a property of its own. The key user_id is reserved.`,
      { examples: [{ email: 'ada@example.com', plan: 'pro', seats: 3 }] },
    ),
  ),
});
export type UserPropertiesInput = Static<typeof userPropertiesSchema>;

export const identifySchema = object({
  user_id: text(
    'The anonymous user: the number that the client library made for a device, from 0 to 2^53 - 1, in plain decimal form as a string.',
    '4503599627370496',
  ),
  identity,
  timestamp: optional(
    text(
      'When it happened: RFC 3339 with offset and seconds. Checked only: the order of acceptance counts.',
      '2026-03-01T12:30:00Z',
    ),
  ),
});
export type IdentifyInput = Static<typeof identifySchema>;

/** All fields of a record. What builds records field by field has this type, so that the compiler finds each place that lacks a new field. */
export type FieldsOf<Input> = Readonly<Record<keyof Input, unknown>>;

/** What a column holds: its type in ClickHouse, and its value in a marker row as JSON. */
export const columnTypes = {
  text: { clickhouse: 'String', empty: '""' },
  event_id: { clickhouse: 'UUID', empty: `"${'0'.repeat(32)}"` },
  user_id: { clickhouse: 'UInt64', empty: '0' },
  optional_user_id: { clickhouse: 'Nullable(UInt64)', empty: 'null' },
  /** Null is the time of acceptance. */
  time: { clickhouse: "DateTime64(3, 'UTC')", empty: 'null' },
  properties: { clickhouse: 'Map(String, String)', empty: '{}' },
} as const;

export type ColumnType = keyof typeof columnTypes;

/**
 * The columns of each table in the order of a row, before the stamps of its acceptance. A column has the value of the field with
 * its name, except that `app_id` comes from the request, `event_id` from the idempotency_key or a message's id, and `time` from
 * the timestamp. Only messages of Segment's protocol give user properties a time. The order of the tables gives them their numbers in
 * a packed commit.
 */
export const recordColumns = {
  events: {
    app_id: 'text',
    event_id: 'event_id',
    event: 'text',
    user_id: 'optional_user_id',
    identity: 'text',
    session_id: 'text',
    time: 'time',
    properties: 'properties',
  },
  user_properties: {
    app_id: 'text',
    event_id: 'event_id',
    user_id: 'optional_user_id',
    identity: 'text',
    time: 'time',
    properties: 'properties',
  },
  user_identities: {
    app_id: 'text',
    event_id: 'event_id',
    user_id: 'user_id',
    identity: 'text',
  },
} as const satisfies Readonly<Record<string, UserColumns & Readonly<Record<string, ColumnType>>>>;

/**
 * Every row has the id that its repeats have too (`ingest/event-id.ts`), and the columns of its user, by which a deletion finds it.
 * In a row without a user these are null and an empty string.
 */
type UserColumns = {
  readonly app_id: 'text';
  readonly event_id: 'event_id';
  readonly user_id: 'user_id' | 'optional_user_id';
  readonly identity: 'text';
};

export type TableName = keyof typeof recordColumns;

/** What callers send for the records of each table. */
export const recordSchemas = {
  events: eventSchema,
  user_properties: userPropertiesSchema,
  user_identities: identifySchema,
} as const satisfies Readonly<Record<TableName, object>>;

/** The `kind` that a record of each table has in an export. */
export const exportedKinds = {
  events: { kind: 'event', description: 'An event.' },
  user_properties: { kind: 'user_properties', description: 'A call that set properties of a user.' },
  user_identities: {
    kind: 'user_identity',
    description: 'A call that identified a user. For each user_id the first one counts.',
  },
} as const satisfies Readonly<Record<TableName, { kind: string; description: string }>>;

/**
 * The columns that the rows of a table had in earlier versions, oldest first. Rows that were accepted with them may still wait in
 * Redis or among the failed rows; they are stored with these columns, and all others get their defaults. So when you change the
 * columns of a table, append its previous columns to its list here. A table never loses a column.
 */
export const earlierColumns: Readonly<Partial<Record<TableName, readonly (readonly string[])[]>>> = {};

/**
 * A table, with the version of its columns from the second on: `events`, `events.2`. Under this name rows wait in Redis and
 * among the failed rows, so rows of two versions are never in one segment.
 */
export type TableVersion = TableName | `${TableName}.${number}`;

/** The version of a table that has the columns of `recordColumns`. */
export function currentVersionOf(table: TableName): TableVersion {
  const earlier = earlierColumns[table]?.length ?? 0;
  return earlier === 0 ? table : `${table}.${earlier + 1}`;
}

/** The table of a version, without the number of the version. */
export function tableOf(version: TableVersion): TableName {
  return version.split('.', 1)[0] as TableName;
}

/** Index in this list is the table's number in a packed commit. */
export const tables = Object.keys(recordColumns) as readonly TableName[];

/** Every row begins with these: its key is found in its text (`clickhouse/tables.ts`), and plain events are written in this order. */
const firstColumns = ['app_id', 'event_id'] as const;

for (const table of tables) {
  const first = Object.keys(recordColumns[table]).slice(0, firstColumns.length);
  if (first.join() !== firstColumns.join())
    throw new Error(`the columns of ${table} do not begin with ${firstColumns.join()}`);
}
