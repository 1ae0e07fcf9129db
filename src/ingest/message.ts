// One message of the client library: mended in a lenient environment, checked, its time corrected, and encoded as a row.
// Its id is its idempotency key, whatever its type. A message of an identified user is stored under the identity, any
// other under the device's user_id. Pure.

import {
  reservedAutocapturedPropertyKeys,
  reservedEventPropertyKeys,
  reservedUserPropertyKeys,
} from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import type { EventInput, FieldsOf } from '../contract/records.js';
import {
  type EventMessage,
  eventMessageSchema,
  type IdentifyMessage,
  identifyMessageSchema,
  type UserPropertiesMessage,
  userPropertiesMessageSchema,
} from '../contract/schemas.js';
import { Compile, type Schema } from '../contract/typebox.js';
import { isUserId } from '../contract/user-id.js';
import { explain, type Validator } from '../parsing/explain.js';
import { eventKind, invalidUserId } from './event.js';
import { eventIdOfKey, type Keyspace } from './event-id.js';
import { identifyKind, refuseStrangers } from './identify.js';
import { addIgnored, fieldNames, type IgnoredFields } from './ignored-fields.js';
import {
  isObject,
  type Mend,
  type MendContext,
  mendEventMessage,
  mendUserPropertiesMessage,
} from './mend.js';
import type { IngestRecord } from './pack.js';
import { checkProperties, type Properties } from './properties.js';
import type { CheckContext, Checked } from './record-kind.js';
import { readInstant, textOfEpochMs } from './timestamp.js';
import { userPropertiesKind } from './user-properties.js';

export type MessageContext = Omit<CheckContext, 'nowMs'> & {
  readonly lenient: boolean;
  readonly keyspace: Keyspace;
  /** When the request was sent, by the client's clock, and when it was received, by this process's. */
  readonly sentMs: number;
  readonly receivedMs: number;
  /** The unknown fields of the request; its messages add theirs. */
  readonly ignored: IgnoredFields;
};

export type CheckedMessage = {
  readonly record: IngestRecord;
  readonly user: Checked;
  /** The user; for an identification with both identity and user_id. */
  readonly named: Checked;
  readonly type: Message['type'];
};

type Message = EventMessage | IdentifyMessage | UserPropertiesMessage;

type MessageKind = {
  readonly validator: Validator;
  readonly fields: ReadonlySet<string>;
  readonly mend: Mend;
};

function kindOf(schema: Schema & { readonly properties: object }, mend: Mend): MessageKind {
  return { validator: Compile(schema), fields: fieldNames(schema), mend };
}

const kinds = new Map<unknown, MessageKind>([
  ['event', kindOf(eventMessageSchema, mendEventMessage)],
  ['identify', kindOf(identifyMessageSchema, mendEventMessage)],
  ['user_properties', kindOf(userPropertiesMessageSchema, mendUserPropertiesMessage)],
]);

/** Checks and encodes a message. `mending` is shared by the messages of a request. */
export function checkMessage(
  value: unknown,
  context: MessageContext,
  mending: MendContext,
): CheckedMessage | Rejection {
  if (!isObject(value)) return notAnObject;
  const { type } = value;
  const kind = kinds.get(type);
  if (kind === undefined) return type === undefined ? missingType : unknownType;

  addIgnored(value, kind.fields, context.ignored);
  const mended = context.lenient ? kind.mend(value, mending) : { value };
  if ('code' in mended) return mended;
  const reason = explain(kind.validator, mended.value, context.surrogates);
  if (reason !== undefined) return reason;
  const message = mended.value as Message;
  if (!isUserId(message.user_id)) return invalidUserId;
  const time = correctTime(message.time, context);
  if (typeof time === 'object') return time;

  const { identity, user_id: userId } = message;
  const user = identity === undefined ? { identity: '', userId } : { identity, userId: undefined };
  const record = encode(message, user, time, context);
  if ('code' in record) return record;
  const named = message.type === 'identify' ? { identity: user.identity, userId } : user;
  return { record, user, named, type: message.type };
}

export const notAnObject = rejection('invalid_type', 'A message must be an object.');
export const missingType = rejection('missing_field', 'type is required.', 'type');
const unknownType = rejection(
  'unknown_message_type',
  `type must be one of ${[...kinds.keys()].join(', ')}.`,
  'type',
);
const invalidTime = rejection(
  'invalid_timestamp',
  'time must be RFC 3339 with offset and seconds, and a real date.',
  'time',
);

/**
 * The time of a call by the service's clock: as long before the request was received as the call was made before the request was sent.
 * Only a difference between two times of the client's clock counts, so that clock may be years off. A call after the sending counts as
 * made at the sending, and a time before 1970 becomes 1970.
 */
function correctTime(
  time: string | undefined,
  { sentMs, receivedMs }: MessageContext,
): string | undefined | Rejection {
  if (time === undefined) return undefined;
  const calledMs = readInstant(time);
  if (calledMs === undefined) return invalidTime;
  return textOfEpochMs(Math.max(0, receivedMs - Math.max(0, sentMs - calledMs)));
}

/** The record of a message whose fields match the schema. */
function encode(
  message: Message,
  { identity, userId }: Checked,
  time: string | undefined,
  { appId, allowedIdentities, keyspace }: MessageContext,
): IngestRecord | Rejection {
  const claim = eventIdOfKey(appId, message.id, keyspace);
  if (message.type === 'identify') {
    const stranger = refuseStrangers(identity, allowedIdentities);
    return stranger ?? identifyKind.encode(appId, { identity, userId: message.user_id, claim });
  }
  const properties = message.properties as Properties | undefined;
  const hasArrays = properties !== undefined && checkProperties(properties, reservedIn(message));
  if (typeof hasArrays !== 'boolean') return hasArrays;
  if (message.type === 'user_properties')
    return userPropertiesKind.encode(appId, { identity, userId, properties, claim });
  const { event, session_id } = message;
  // Field by field: spreading the message here takes ten microseconds, more than everything else.
  const fields = { event, user_id: userId, identity, session_id, properties } satisfies Omit<
    FieldsOf<EventInput>,
    'timestamp' | 'idempotency_key'
  >;
  return eventKind.encode(appId, { identity, userId, fields, hasArrays, time, claim });
}

function reservedIn(message: EventMessage | UserPropertiesMessage): ReadonlySet<string> {
  if (message.type === 'user_properties') return reservedUserPropertyKeys;
  return message.autocaptured === true ? reservedAutocapturedPropertyKeys : reservedEventPropertyKeys;
}
