// Events: the schema first (types, required fields, lengths), then what a schema cannot say; and the event's
// row, in the order of columns of `clickhouse/tables.ts`. On the path of every event.

import { Compile } from 'typebox/compile';
import { tableIndex } from '../clickhouse/tables.js';
import { reservedEventPropertyKeys } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { bulkEventsSchema, type EventInput, eventSchema } from '../contract/schemas.js';
import { eventIdOfKey, uniqueEventId } from './event-id.js';
import { explain, refuseLoneSurrogates } from './explain.js';
import { mendEvent } from './mend.js';
import type { IngestRecord } from './pack.js';
import { readPlainEvents } from './plain-events.js';
import { checkProperties, encodeProperties, type Properties } from './properties.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';
import { readTimestamp, timestampAdvice } from './timestamp.js';
import { isUserId } from './user-id.js';

export type CheckedEvent = Checked & {
  readonly event: string;
  readonly sessionId: string;
  readonly properties: Properties | undefined;
  /** Whether some property is an array and has to be joined. */
  readonly arrays: boolean;
  /** UTC, as ClickHouse reads it; undefined: the time of acceptance. */
  readonly time: string | undefined;
  readonly idempotencyKey: string | undefined;
};

const validator = Compile(eventSchema);

export const eventKind: RecordKind<CheckedEvent> = {
  name: 'track',
  mend: mendEvent,
  check: checkEvent,
  encode: encodeEvent,
  readPlain: readPlainEvents,
  singleLimit: 'track',
  bulk: { field: 'events', validator: Compile(bulkEventsSchema) },
};

function checkEvent(value: unknown, { surrogates, nowMs }: CheckContext): CheckedEvent | Rejection {
  if (!validator.Check(value)) return explain(validator, value) ?? notAsDescribed;
  const input = value as EventInput;
  if (surrogates) {
    const reason = refuseLoneSurrogates(input);
    if (reason !== undefined) return reason;
  }

  const { identity, user_id: userId, timestamp } = input;
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
  const arrays = properties !== undefined && checkProperties(properties, reservedEventPropertyKeys);
  if (typeof arrays !== 'boolean') return arrays;

  return {
    event: input.event,
    identity: identity ?? '',
    userId,
    sessionId: input.session_id ?? '',
    properties,
    arrays,
    time,
    idempotencyKey: input.idempotency_key,
  };
}

const notAsDescribed = rejection('invalid_type', 'The event is not as described.');
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

/** The row lacks its number in the commit and the stamps of the commit script. */
function encodeEvent(appId: string, event: CheckedEvent): IngestRecord {
  const { idempotencyKey } = event;
  const eventId = idempotencyKey === undefined ? uniqueEventId() : eventIdOfKey(appId, idempotencyKey);
  const time = event.time === undefined ? 'null' : `"${event.time}"`;
  const user = `${event.userId ?? 'null'},${JSON.stringify(event.identity)},${JSON.stringify(event.sessionId)}`;
  const properties = encodeProperties(event.properties, event.arrays);
  return {
    table: tableIndex.events,
    row: `["${appId}","${eventId}",${JSON.stringify(event.event)},${user},${time},${properties},`,
    claim: idempotencyKey === undefined ? undefined : eventId,
  };
}
