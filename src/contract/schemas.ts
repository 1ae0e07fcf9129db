// The TypeBox schemas of the requests, around the schemas of the records (`records.ts`): types, required fields and lengths (in
// code points). What a schema cannot say (exactly one of two fields, calendar dates, reserved keys) is checked in
// `ingest/event.ts` and its neighbours.

import { counts, deletions, lengths } from './limits.js';
import { eventSchema, identity, userPropertiesSchema } from './records.js';
import {
  anyOf,
  flag,
  listOf,
  literal,
  number,
  object,
  optional,
  type Static,
  Type,
  text,
  textUpTo,
} from './typebox.js';

const appId = text('ID of the environment that the records belong to.', {
  minLength: 1,
  examples: ['1000000001'],
});

/** What every ingestion request has besides its records. */
export const envelopeSchema = object({ app_id: appId });

/** `POST /api/track` with many events; each element is then checked by itself against its schema. */
export const bulkEventsSchema = object({
  events: listOf(Type.Unknown(), { minItems: 1, maxItems: counts.bulkEventsMax }),
});

/** `POST /api/add_user_properties` for many users; each element is then checked by itself. */
export const bulkUsersSchema = object({
  users: listOf(Type.Unknown(), { minItems: 1, maxItems: counts.bulkUsersMax }),
});

const messageUserId = text(
  'The user on the device: an integer from 0 to 2^53 - 1 that the client library made, in plain decimal form as a string.',
  '4503599627370496',
);

function messageIdentity(advice: string) {
  return textUpTo(
    lengths.clientIdentityMax,
    `Identity of the user, case-sensitive, fewer than ${lengths.clientIdentityMax + 1} characters. ${advice}`,
    'ada@example.com',
  );
}

/** What every message of the client library has. */
const messageFields = {
  id: textUpTo(
    lengths.idempotencyKeyMax,
    'Unique within the environment. A later message with the same id changes nothing and is answered repeat, so a request without an answer can be sent again.',
    '0b8f6a52c1d94e7f8a3b5c6d7e8f9012',
  ),
  user_id: messageUserId,
  identity: optional(
    messageIdentity(
      'Given if the user was identified when the call was made; the message then belongs to this identity.',
    ),
  ),
  session_id: eventSchema.properties.session_id,
  time: optional(
    text(
      "When the call was made: RFC 3339 with offset and seconds, by the client's clock. Corrected by the difference between sent_at and the service's clock. Default: the time of acceptance.",
      '2026-03-01T12:30:00.250Z',
    ),
  ),
};

export const eventMessageSchema = object({
  type: literal('event'),
  ...messageFields,
  event: textUpTo(
    lengths.clientEventMax,
    `Name of the event, at most ${lengths.clientEventMax} characters.`,
    'Page View',
  ),
  properties: eventSchema.properties.properties,
  autocaptured: optional(
    flag(
      'Whether the library recorded the event by itself. Only such an event may have the property screen_name.',
    ),
  ),
});
export type EventMessage = Static<typeof eventMessageSchema>;

export const identifyMessageSchema = object({
  type: literal('identify'),
  ...messageFields,
  identity: messageIdentity('It becomes the identity of the user_id, unless that already has one.'),
});
export type IdentifyMessage = Static<typeof identifyMessageSchema>;

export const userPropertiesMessageSchema = object({
  type: literal('user_properties'),
  ...messageFields,
  properties: userPropertiesSchema.properties.properties,
});
export type UserPropertiesMessage = Static<typeof userPropertiesMessageSchema>;

/** `POST /api/collect`, without the app_id; each message is then checked by itself. */
export const collectSchema = object({
  sent_at: text(
    "When the request was sent, by the client's clock: RFC 3339 with offset and seconds. The messages' times are corrected by it.",
    '2026-03-01T12:30:05.000Z',
  ),
  messages: listOf(Type.Unknown(), { minItems: 1, maxItems: counts.collectMessagesMax }),
});
export type CollectInput = Static<typeof collectSchema>;

/** A user of a list, named by exactly one of the three. */
const namedUser = object({
  identity: optional(identity),
  user_id: optional(
    anyOf([number(), text()], {
      description: 'An integer from 0 to 2^53 - 1, or its plain decimal form as a string.',
      examples: [4503599627370496],
    }),
  ),
  anonymous_id: optional(
    text(
      "The anonymousId of Segment's libraries or of an import. It stands for the user_id that it maps to.",
      { minLength: 1, examples: ['5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11'] },
    ),
  ),
});

function namedUsers(countMax: number, description: string) {
  return listOf(namedUser, description, { minItems: 1, maxItems: countMax });
}

/** `POST /api/public/v0/user_deletion`. */
export const deletionSchema = object({
  users: namedUsers(
    counts.deletionTargetsMax,
    'The users to delete, each by exactly one of identity, user_id and anonymous_id.',
  ),
  erase: optional(
    literal(
      'now',
      'For large tables: now erases the rows at once, not together with those of later requests. Possible once an hour.',
    ),
  ),
  dry_run: optional(
    flag(
      'true: nothing is stored and nothing deleted; the answer is 200 with what would be found. The reference is ignored.',
    ),
  ),
  reference: optional(
    textUpTo(
      deletions.referenceMax,
      'Your own name for the request, at most 255 characters. If you send it again within 30 days with the same users, in any order, the answer is the same request and nothing is stored; with other users it is refused. It stays with the request, so it must not name a user.',
      'ticket-4711',
    ),
  ),
  suppress: optional(
    flag(
      'true: the users are also suppressed, as by user_suppression, before they are deleted: nothing that is sent about them later is stored.',
    ),
  ),
});

export type DeletionInput = Static<typeof deletionSchema>;

/** `POST /api/public/v0/user_suppression`. */
export const suppressionSchema = object({
  users: namedUsers(
    counts.deletionTargetsMax,
    'The users, each by exactly one of identity, user_id and anonymous_id.',
  ),
  suppress: flag(
    'true: from the answer on no record of them is stored. false: their records are stored again.',
  ),
});

/** `POST /api/public/v0/deletion_status/ID/lookup`. */
export const lookupSchema = object({
  users: namedUsers(counts.lookupUsersMax, 'The users to look up, each as the deletion named it.'),
});
export type LookupInput = Static<typeof lookupSchema>;

/** `POST /api/public/v0/user_suppression/lookup`. */
export const suppressionUsersSchema = object({
  users: namedUsers(
    counts.lookupUsersMax,
    'The users to look up, each by exactly one of identity, user_id and anonymous_id.',
  ),
});

/** `POST /api/public/v0/user_export`. */
export const exportSchema = object({
  users: namedUsers(
    counts.exportUsersMax,
    'Whose records to export, each user by exactly one of identity, user_id and anonymous_id.',
  ),
});

/** `POST /api/v1/receipts`. */
export const receiptsSchema = object({
  app_id: appId,
  idempotency_keys: listOf(
    text({ minLength: 1, maxLength: lengths.idempotencyKeyMax }),
    'Idempotency keys of records that servers sent, and ids of messages of Segment’s libraries.',
    { minItems: 1, maxItems: counts.receiptKeysMax },
  ),
});
export type ReceiptsInput = Static<typeof receiptsSchema>;

const pairedAppId = text('ID of one of your environments.');

/** `POST /api/visualizer/pairings`. */
export const pairingRequestSchema = object({
  app_id: pairedAppId,
  pairing: optional(
    text(
      'The secret of an earlier pairing. While that waits or is live, the answer is that pairing again, and no new one begins.',
    ),
  ),
});

/** `POST /api/visualizer/pairings/stop`. */
export const pairingStopSchema = object({
  app_id: pairedAppId,
  pairing: text('The secret that the device got when the pairing began.'),
});
