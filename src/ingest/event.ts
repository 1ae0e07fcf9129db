// Checks events that are not plain: first by the schema (types, required fields, lengths), then by the rules that a schema cannot express.
// Encodes their rows.

import { counts, reservedEventPropertyKeys } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type EventInput, eventSchema, tables } from '../contract/records.js';
import { bulkEventsSchema } from '../contract/schemas.js';
import { Compile } from '../contract/typebox.js';
import { isUserId } from '../contract/user-id.js';
import { explain } from '../parsing/explain.js';
import { eventIdOfKey, uniqueEventId } from './event-id.js';
import { fieldNames } from './ignored-fields.js';
import { mendEvent } from './mend.js';
import type { IngestRecord } from './pack.js';
import { readPlainEvents } from './plain-events.js';
import { checkProperties, type Properties } from './properties.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';
import { type RowFields, rowEncoder } from './row.js';
import { readTimestamp, timestampAdvice } from './timestamp.js';

export type CheckedEvent = Checked & {
  readonly fields: RowFields;
  /** Whether some property is an array and has to be joined. */
  readonly hasArrays: boolean;
  /** UTC in ClickHouse's format; undefined: the time of acceptance. */
  readonly time: string | undefined;
  /** The event id of its idempotency key. */
  readonly claim: string | undefined;
};

const validator = Compile(eventSchema);

export const eventKind: RecordKind<CheckedEvent> = {
  name: 'track',
  fields: fieldNames(eventSchema),
  mend: mendEvent,
  check: checkEvent,
  encode: encodeEvent,
  readPlain: readPlainEvents,
  singleLimit: 'track',
  bulk: { field: 'events', recordsMax: counts.bulkEventsMax, validator: Compile(bulkEventsSchema) },
};

function checkEvent(value: unknown, { appId, surrogates, nowMs }: CheckContext): CheckedEvent | Rejection {
  const reason = explain(validator, value, surrogates);
  if (reason !== undefined) return reason;
  const input = value as EventInput;
  const { identity, user_id: userId, timestamp, idempotency_key: key } = input;
  if (identity === undefined && userId === undefined) return missingUser;
  if (identity !== undefined && userId !== undefined) return ambiguousUser;
  if (userId !== undefined && !isUserId(userId)) return invalidUserId;

  let time: string | undefined;
  if (timestamp !== undefined) {
    const result = readTimestamp(timestamp, nowMs);
    if ('refused' in result) return rejection(result.refused, timestampAdvice, 'timestamp');
    time = result.text;
  }

  const properties = input.properties as Properties | undefined;
  const hasArrays = properties !== undefined && checkProperties(properties, reservedEventPropertyKeys);
  if (typeof hasArrays !== 'boolean') return hasArrays;

  return {
    identity: identity ?? '',
    userId,
    fields: input as RowFields,
    hasArrays,
    time,
    claim: key === undefined ? undefined : eventIdOfKey(appId, key, 'shared'),
  };
}

const missingUser = rejection(
  'missing_user',
  'Exactly one of identity and user_id must be given.',
  'identity',
);
const ambiguousUser = rejection('ambiguous_user', 'identity and user_id must not both be given.', 'user_id');
export const invalidUserId = rejection(
  'invalid_user_id',
  'user_id must be the plain decimal form of an integer from 0 to 2^53 - 1.',
  'user_id',
);

const table = tables.indexOf('events');
const encodeRow = rowEncoder('events');

/** The row lacks its number in the commit and the stamps of the commit script. */
function encodeEvent(appId: string, event: CheckedEvent): IngestRecord {
  const { fields, hasArrays, time, claim } = event;
  return { table, row: encodeRow(appId, fields, hasArrays, claim ?? uniqueEventId(), time), claim };
}
