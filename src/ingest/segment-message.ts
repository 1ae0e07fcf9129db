// One message of Segment's protocol as records of ours: what its libraries send is mended as in a lenient environment, then
// the records pass the checks of their kinds. Its messageId is their idempotency key. A user is the userId, as identity, or
// else the user_id that the anonymousId maps to. Pure, except for the unique ids of events without a messageId.
// @see https://segment.com/docs/connections/spec/

import { wouldMergeStrangers } from '../contract/identities.js';
import { lengths } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type EventInput, type FieldsOf, userPropertiesSchema } from '../contract/records.js';
import type { SegmentType } from '../contract/segment.js';
import { Compile, Type } from '../contract/typebox.js';
import { userIdOfAnonymousId } from '../contract/user-id.js';
import { cutToCodePoints, isLongerThan } from '../parsing/code-points.js';
import { explain, refuseLoneSurrogates, wrongType } from '../parsing/explain.js';
import { type CheckedEvent, eventKind } from './event.js';
import { eventIdOfKey } from './event-id.js';
import { identifyKind } from './identify.js';
import { type MendContext, mendEventProperties, mendUserProperties, tooMuchFlattened } from './mend.js';
import type { NamedRecord } from './prepare.js';
import { checkProperties, type Properties } from './properties.js';
import type { CheckContext, Checked } from './record-kind.js';
import { completeTimestamp, isInSeconds, ofEpochMs, readInstant, timestampAdvice } from './timestamp.js';
import { userPropertiesKind } from './user-properties.js';

export type SegmentContext = CheckContext & {
  /** When the request was sent, by its sender's clock; undefined if it does not say. */
  readonly sentMs: number | undefined;
};

/** The records of a checked message: one, or for some identifications two. */
export type CheckedSegmentMessage = {
  /** The user whose limits count the message. */
  readonly user: Checked;
  readonly records: readonly NamedRecord[];
};

/** Checks a message of a type and encodes it. `mending` belongs to the request. */
export function checkSegmentMessage(
  type: SegmentType,
  value: object,
  context: SegmentContext,
  mending: MendContext,
): CheckedSegmentMessage | Rejection {
  const message = value as Message;
  if (context.surrogates) {
    const reason = refuseLoneSurrogates(message);
    if (reason !== undefined) return reason;
  }
  const found = usersOf(message);
  if ('code' in found) return found;
  const result = makers[type]({ message, context, mending, ...found });
  return 'code' in result ? renamed(result, type) : result;
}

/** Milliseconds since 1970 of a time in any form that the libraries send; undefined if it is not one. */
export function readSegmentTime(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isInteger(value) && !isInSeconds(value) ? value : undefined;
  if (typeof value !== 'string') return undefined;
  return readInstant(value) ?? readInstant(completeTimestamp(value) ?? '');
}

type Message = Readonly<Record<string, unknown>>;
type Input = {
  readonly message: Message;
  readonly context: SegmentContext;
  readonly mending: MendContext;
  readonly user: Checked;
  /** The user_id of the anonymousId, if the message has both ids and the anonymousId is not one that strangers share. */
  readonly merged: string | undefined;
};
type Maker = (input: Input) => CheckedSegmentMessage | Rejection;

const makers: Readonly<Record<SegmentType, Maker>> = {
  track: (input) => eventOf(input, input.message.event),
  // The names that the client library gives page views and screen views.
  page: (input) => eventOf(input, 'Page View', pick(input.message, 'name', 'category')),
  screen: (input) => eventOf(input, 'Screen View', pick(input.message, 'category'), input.message.name),
  identify,
  alias,
  group,
};

function eventOf(
  { message, context, mending, user }: Input,
  event: unknown,
  more?: Message,
  screenName?: unknown,
): CheckedSegmentMessage | Rejection {
  const read = timeOf(message, context);
  if ('code' in read) return read;
  const properties = eventPropertiesOf(message, mending, more);
  if (properties === undefined) return tooMuchFlattened;
  const { identity, userId } = user;
  const fields = {
    event: event ?? undefined,
    ...(userId === undefined ? { identity } : { user_id: userId }),
    session_id: sessionOf(message),
    properties,
    idempotency_key: message.messageId ?? undefined,
  } satisfies Omit<FieldsOf<EventInput>, 'identity' | 'user_id' | 'timestamp'>;
  const checked = eventKind.check(withoutUndefined(fields), context);
  if ('code' in checked) return checked;
  const timed = { ...(checked as CheckedEvent), time: read.text };
  const record = eventKind.encode(context.appId, withScreen(timed, screenName));
  return { user, records: [{ record, named: user }] };
}

/** For a schema, an undefined field is present. */
function withoutUndefined(fields: Message): Message {
  const given: Record<string, unknown> = {};
  for (const name in fields) if (fields[name] !== undefined) given[name] = fields[name];
  return given;
}

/** The mended properties of an event; undefined if flattening takes more bytes than are left. */
function eventPropertiesOf(message: Message, mending: MendContext, more?: Message): unknown {
  const given = objectOf(message.properties);
  if (given === undefined) return message.properties;
  const properties = more === undefined ? given : { ...given, ...more };
  return mendEventProperties(properties, describeContext(message.context), mending);
}

/** The name of a screen is reserved in properties, as it is for the client library, which sets it itself. */
function withScreen(event: CheckedEvent, name: unknown): CheckedEvent {
  if (typeof name !== 'string' || name === '') return event;
  const screen_name = isLongerThan(name, lengths.propertyValueMax)
    ? cutToCodePoints(name, lengths.propertyValueMax)
    : name;
  const properties = { ...event.fields.properties, screen_name };
  return { ...event, fields: { ...event.fields, properties } };
}

function identify(input: Input): CheckedSegmentMessage | Rejection {
  const { message, user, merged } = input;
  const traits = objectOf(message.traits);
  if (traits === undefined) return wrongType('traits', ['object'], message.traits);
  if (merged === undefined) return propertiesOf(input, traits, '');
  const identification = identificationOf(input, merged, user.identity);
  if ('code' in identification || Object.keys(traits).length === 0) return identification;
  // Two records cannot have one key.
  const properties = propertiesOf(input, traits, '\0traits');
  if ('code' in properties) return properties;
  return { user, records: [...identification.records, ...properties.records] };
}

function alias(input: Input): CheckedSegmentMessage | Rejection {
  const previous = idOf(input.message, 'previousId');
  if (typeof previous === 'object') return previous;
  if (previous === undefined) return rejection('missing_field', 'previousId is required.', 'previousId');
  if (input.user.identity === '') return rejection('missing_field', 'userId is required.', 'userId');
  if (wouldMergeStrangers(previous)) return mergesStrangers;
  return identificationOf(input, userIdOfAnonymousId(previous), input.user.identity);
}

const mergesStrangers = rejection(
  'merges_strangers',
  'This previousId is a word that many users would share; identifying by it would merge them forever.',
  'previousId',
);

function group(input: Input): CheckedSegmentMessage | Rejection {
  const groupId = idOf(input.message, 'groupId');
  if (typeof groupId === 'object') return groupId;
  if (groupId === undefined) return rejection('missing_field', 'groupId is required.', 'groupId');
  const traits = objectOf(input.message.traits);
  if (traits === undefined) return wrongType('traits', ['object'], input.message.traits);
  const properties = Object.fromEntries(
    Object.entries(traits).map(([name, value]) => [`group_${name}`, value]),
  );
  return propertiesOf(input, { ...properties, group_id: groupId }, '');
}

function identificationOf(
  { message, context }: Input,
  userId: string,
  identity: string,
): CheckedSegmentMessage | Rejection {
  const checked = identifyKind.check({ user_id: userId, identity }, context);
  if ('code' in checked) return checked;
  const key = claimOf(message.messageId, context, '');
  if ('code' in key) return key;
  const record = identifyKind.encode(context.appId, { ...checked, ...key });
  return { user: checked, records: [{ record, named: checked }] };
}

const { identity, properties } = userPropertiesSchema.properties;
const validator = Compile(Type.Object({ identity: Type.Optional(identity), properties }));

function propertiesOf(
  { message, context, mending, user }: Input,
  traits: Message,
  keyEnd: string,
): CheckedSegmentMessage | Rejection {
  const named = user.identity === '' ? {} : { identity: user.identity };
  const mended = mendUserProperties({ ...named, properties: traits }, mending);
  if ('code' in mended) return mended;
  const reason = explain(validator, mended.value);
  if (reason !== undefined) return reason;
  const { properties } = mended.value as { properties: Properties };
  const checked = checkProperties(properties, new Set());
  if (typeof checked === 'object') return checked;
  const read = timeOf(message, context);
  if ('code' in read) return read;
  const key = claimOf(message.messageId, context, keyEnd);
  if ('code' in key) return key;
  const record = userPropertiesKind.encode(context.appId, { ...user, properties, time: read.text, ...key });
  return { user, records: [{ record, named: user }] };
}

const keyValidator = Compile(
  Type.Object({ messageId: Type.String({ minLength: 1, maxLength: lengths.idempotencyKeyMax }) }),
);

/** The event id that a record of the message claims. Without a messageId it claims nothing and is never taken for a repeat. */
function claimOf(
  messageId: unknown,
  { appId }: SegmentContext,
  keyEnd: string,
): { readonly claim?: string } | Rejection {
  if (messageId === undefined || messageId === null) return {};
  const reason = explain(keyValidator, { messageId });
  if (reason !== undefined) return reason;
  return { claim: eventIdOfKey(appId, `${messageId}${keyEnd}`, 'shared') };
}

/**
 * In a message with both ids the anonymousId says whom to merge. Programs without one send a word such as null, or the zero UUID of a
 * switched-off advertising id, which merges nobody.
 */
function usersOf(message: Message): { user: Checked; merged: string | undefined } | Rejection {
  const identity = idOf(message, 'userId');
  if (typeof identity === 'object') return identity;
  const anonymousId = idOf(message, 'anonymousId');
  if (typeof anonymousId === 'object') return anonymousId;
  const userId = anonymousId === undefined ? undefined : userIdOfAnonymousId(anonymousId);
  if (identity !== undefined) {
    const isShared = anonymousId !== undefined && wouldMergeStrangers(anonymousId);
    return { user: { identity, userId: undefined }, merged: isShared ? undefined : userId };
  }
  if (userId !== undefined) return { user: { identity: '', userId }, merged: undefined };
  return rejection('missing_user', 'One of userId and anonymousId must be given.', 'userId');
}

/** An id as text. Libraries for typed languages send an empty text for no id, and some callers send a number. */
function idOf(message: Message, name: string): string | undefined | Rejection {
  const id = message[name];
  if (id === undefined || id === null || id === '') return undefined;
  if (typeof id === 'string') return id;
  return Number.isSafeInteger(id) ? String(id) : wrongType(name, ['string'], id);
}

/** RudderStack's libraries send the session in the context. */
function sessionOf(message: Message): string | undefined {
  const session = objectOf(message.context)?.sessionId;
  if (typeof session === 'string' && session !== '') return session;
  return Number.isSafeInteger(session) ? String(session) : undefined;
}

/**
 * The time of the call. With sentAt only the difference between the sender's two times counts, so its clock may be wrong; a time after the
 * sending counts as the time of the sending. Without sentAt the sender's clock is trusted.
 */
function timeOf(message: Message, context: SegmentContext): { readonly text?: string } | Rejection {
  const time = message.timestamp ?? message.originalTimestamp ?? undefined;
  if (time === undefined) return {};
  const calledMs = readSegmentTime(time);
  if (calledMs === undefined) return rejection('invalid_timestamp', timeAdvice, 'timestamp');
  const { nowMs } = context;
  const sentMs = readSegmentTime(message.sentAt) ?? context.sentMs;
  const ms = sentMs === undefined ? calledMs : Math.max(0, nowMs - Math.max(0, sentMs - calledMs));
  const read = ofEpochMs(ms, nowMs);
  return 'refused' in read ? rejection(read.refused, timestampAdvice, 'timestamp') : read;
}

const timeAdvice =
  'timestamp must be RFC 3339 with offset, and a real date, or milliseconds (not seconds) since 1970.';

/** The context as properties, without what is stored elsewhere or locates a person. */
function describeContext(context: unknown): Message | undefined {
  const given = objectOf(context);
  if (given === undefined) return undefined;
  const { traits, ip, sessionId } = given;
  // Taking something out copies the context, and most messages have nothing to take out.
  const hasOthers = traits !== undefined || ip !== undefined || sessionId !== undefined;
  const described = hasOthers ? withoutOthers(given) : given;
  return Object.keys(described).length === 0 ? undefined : described;
}

function withoutOthers({ traits: _, ip: __, sessionId: ___, ...described }: Message): Message {
  return described;
}

/** The value if it is an object; an empty object if it is absent or an empty array, as PHP sends it; undefined for anything else. */
function objectOf(value: unknown): Record<string, unknown> | undefined {
  if (value === undefined || value === null) return {};
  if (Array.isArray(value)) return value.length === 0 ? {} : undefined;
  return typeof value === 'object' ? (value as Record<string, unknown>) : undefined;
}

function pick(message: Message, ...names: readonly string[]): Message {
  return Object.fromEntries(
    names.flatMap((name) =>
      typeof message[name] === 'string' && message[name] !== '' ? [[name, message[name]]] : [],
    ),
  );
}

/** The reason with the names of fields that the message has. */
function renamed(reason: Rejection, type: SegmentType): Rejection {
  if (reason.field === undefined) return reason;
  const [first = '', ...rest] = reason.field.split('.');
  const names: Readonly<Record<string, string>> = {
    identity: 'userId',
    user_id: 'anonymousId',
    idempotency_key: 'messageId',
    session_id: 'context.sessionId',
    ...(type === 'identify' || type === 'group' ? { properties: 'traits' } : {}),
  };
  const name = names[first];
  if (name === undefined) return reason;
  const message = reason.message.replace(reason.field, [name, ...rest].join('.'));
  return { ...reason, message, field: [name, ...rest].join('.') };
}
