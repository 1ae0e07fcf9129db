// One message of the client library: mended in a lenient environment, checked, its time corrected, and encoded
// as a row. Its id is its idempotency key, whatever its type. What was said by an identified user is stored
// under the identity, else under the device's user_id. Pure.

import { Compile } from 'typebox/compile';
import {
  reservedAutocapturedPropertyKeys,
  reservedEventPropertyKeys,
  reservedUserPropertyKeys,
} from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import {
  type EventMessage,
  eventMessageSchema,
  type IdentifyMessage,
  identifyMessageSchema,
  type UserPropertiesMessage,
  userPropertiesMessageSchema,
} from '../contract/schemas.js';
import { eventKind, invalidUserId } from './event.js';
import { eventIdOfKey } from './event-id.js';
import { explain, refuseLoneSurrogates, type Validator } from './explain.js';
import { identifyKind, refuseStrangers } from './identify.js';
import { type Mend, type MendContext, mendEventMessage, mendUserPropertiesMessage } from './mend.js';
import type { IngestRecord } from './pack.js';
import { checkProperties, type Properties } from './properties.js';
import type { Checked } from './record-kind.js';
import { readInstant, textOfEpochMs } from './timestamp.js';
import { isUserId } from './user-id.js';
import { userPropertiesKind } from './user-properties.js';

export type MessageContext = {
  readonly appId: string;
  readonly lenient: boolean;
  /** Whether the document may hold lone surrogates. */
  readonly surrogates: boolean;
  readonly allowedIdentities: ReadonlySet<string>;
  /** When the request was sent, by the client's clock, and when it was received, by this process's. */
  readonly sentMs: number;
  readonly receivedMs: number;
};

export type CheckedMessage = {
  readonly record: IngestRecord;
  readonly user: Checked;
  /** Whether it counts against the limit of calls that set user properties. */
  readonly setsUserProperties: boolean;
};

type Message = EventMessage | IdentifyMessage | UserPropertiesMessage;

type MessageKind = {
  readonly validator: Validator;
  readonly mend: Mend;
  /** The record of a message whose fields are as described. `time` is corrected. */
  readonly encode: (
    message: Message,
    user: Checked,
    time: string | undefined,
    context: MessageContext,
  ) => IngestRecord | Rejection;
};

const kinds = new Map<unknown, MessageKind>([
  ['event', { validator: Compile(eventMessageSchema), mend: mendEventMessage, encode: encodeEvent }],
  ['identify', { validator: Compile(identifyMessageSchema), mend: mendEventMessage, encode: encodeIdentify }],
  [
    'user_properties',
    {
      validator: Compile(userPropertiesMessageSchema),
      mend: mendUserPropertiesMessage,
      encode: encodeUserProperties,
    },
  ],
]);

/** Checks and encodes a message. `mending` is of the request. */
export function checkMessage(
  value: unknown,
  context: MessageContext,
  mending: MendContext,
): CheckedMessage | Rejection {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return notAnObject;
  const { type } = value as { type?: unknown };
  const kind = kinds.get(type);
  if (kind === undefined) return type === undefined ? missingType : unknownType;

  const mended = context.lenient ? kind.mend(value, mending) : { value };
  if ('code' in mended) return mended;
  const message = mended.value as Message;
  if (!kind.validator.Check(message)) return explain(kind.validator, message) ?? notAnObject;
  if (context.surrogates) {
    const reason = refuseLoneSurrogates(message);
    if (reason !== undefined) return reason;
  }
  if (!isUserId(message.user_id)) return invalidUserId;
  const time = correctTime(message.time, context);
  if (typeof time === 'object') return time;

  const { identity, user_id: userId } = message;
  const user = identity === undefined ? { identity: '', userId } : { identity, userId: undefined };
  const record = kind.encode(message, user, time, context);
  if ('code' in record) return record;
  return { record, user, setsUserProperties: type === 'user_properties' };
}

const notAnObject = rejection('invalid_type', 'A message is an object.');
const missingType = rejection('missing_field', 'type is required.', 'type');
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
 * The time of a call as it would have been by the service's clock: as long before the request was received as
 * it was before the request was sent. Only a difference of the client's clock counts, so that it may be years
 * off. What was called after it was sent was called then; what comes to lie before 1970, in 1970.
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

function encodeEvent(
  message: Message,
  user: Checked,
  time: string | undefined,
  { appId }: MessageContext,
): IngestRecord | Rejection {
  const { id, event, session_id: sessionId, autocaptured, properties } = message as EventMessage;
  const reserved = autocaptured === true ? reservedAutocapturedPropertyKeys : reservedEventPropertyKeys;
  const arrays = properties !== undefined && checkProperties(properties as Properties, reserved);
  if (typeof arrays !== 'boolean') return arrays;
  // Field by field: to spread the user here takes ten microseconds, more than all the rest.
  return eventKind.encode(appId, {
    identity: user.identity,
    userId: user.userId,
    event,
    sessionId: sessionId ?? '',
    properties: properties as Properties | undefined,
    arrays,
    time,
    idempotencyKey: id,
  });
}

function encodeIdentify(
  message: Message,
  _user: Checked,
  _time: string | undefined,
  { appId, allowedIdentities }: MessageContext,
): IngestRecord | Rejection {
  const { id, user_id: userId, identity } = message as IdentifyMessage;
  const stranger = refuseStrangers(identity, allowedIdentities);
  if (stranger !== undefined) return stranger;
  return claimed(identifyKind.encode(appId, { identity, userId }), appId, id);
}

function encodeUserProperties(
  message: Message,
  user: Checked,
  _time: string | undefined,
  { appId }: MessageContext,
): IngestRecord | Rejection {
  const { id, properties } = message as UserPropertiesMessage;
  const given = properties as Properties | undefined;
  const checked = given === undefined ? false : checkProperties(given, reservedUserPropertyKeys);
  if (typeof checked === 'object') return checked;
  const { identity, userId } = user;
  return claimed(userPropertiesKind.encode(appId, { identity, userId, properties: given }), appId, id);
}

function claimed({ table, row }: IngestRecord, appId: string, id: string): IngestRecord {
  return { table, row, claim: eventIdOfKey(appId, id) };
}
