// The TypeBox schemas of the requests: types, required fields and lengths (in code points). What a schema
// cannot say (exactly one of two fields, calendar dates, reserved keys) is checked in `ingest/event.ts` and its neighbours.

import Type, { type Static } from 'typebox';
import { counts, lengths } from './limits.js';

/** A property's value. Arrays are joined into one string. A number that a double does not hold comes as its digits. */
const eventPropertyValue = Type.Union([
  Type.Number(),
  Type.String({ maxLength: lengths.propertyValueMax }),
  Type.Array(Type.Union([Type.Number(), Type.String()])),
]);

// An object with additionalProperties, not a Record: a Record lets the value of a key that contains a line
// break pass unchecked.
const eventProperties = Type.Object(
  {},
  {
    additionalProperties: eventPropertyValue,
    description: `At most ${counts.propertiesMax} key-value pairs; keys of at most ${lengths.propertyKeyMax} characters, values numbers or strings of at most ${lengths.propertyValueMax} characters. An array of these is stored as one string: its elements joined with ||, cut after ${lengths.joinedArrayMax} characters. The keys user_id, session_id and screen_name are reserved.`,
    examples: [{ amount: 12.5, currency: 'EUR', tags: ['gift', 'express'] }],
  },
);

const appId = Type.String({
  minLength: 1,
  description: 'ID of the environment that the records belong to.',
  examples: ['1000000001'],
});

const identityAdvice = `Identity of the user, case-sensitive, at most ${lengths.identityMax} characters. Send e-mail addresses in lower case: the service never changes the case, so that Ada@example.com and ada@example.com are two users. Never send a generic word such as null, undefined, user or anonymous: all who share it become one user, which cannot be undone.`;

const eventFields = {
  event: Type.String({
    minLength: 1,
    maxLength: lengths.eventMax,
    description: `Name of the event, at most ${lengths.eventMax} characters. Use broad names and tell variants apart by properties: one event Error with a property message, not one event per message.`,
    examples: ['Order Completed'],
  }),
  identity: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: lengths.identityMax,
      description: `${identityAdvice} A user is created for an identity that is new. Give exactly one of identity and user_id.`,
      examples: ['ada@example.com'],
    }),
  ),
  user_id: Type.Optional(
    Type.String({
      description:
        'An anonymous user: the plain decimal form, as a string, of an integer from 0 to 2^53 - 1, which the client library made. Give exactly one of identity and user_id.',
      examples: ['4503599627370496'],
    }),
  ),
  session_id: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: lengths.sessionIdMax,
      description: "The user's session.",
      examples: ['5629499534213120'],
    }),
  ),
  properties: Type.Optional(eventProperties),
  timestamp: Type.Optional(
    Type.String({
      description:
        'When it happened: RFC 3339 with offset and seconds, up to 9 fraction digits (stored to the millisecond), from 1970 to one day ahead. Default: the time of acceptance.',
      examples: ['2026-03-01T12:30:00.250+01:00'],
    }),
  ),
  idempotency_key: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: lengths.idempotencyKeyMax,
      description:
        'Unique within the environment. A later event with the same key is answered like the first and changes nothing, whatever is in it; so a request without an answer can be repeated.',
      examples: ['order-1001-completed'],
    }),
  ),
};

/** One event, without the app_id that a bulk request gives once. */
export const eventSchema = Type.Object(eventFields);
export type EventInput = Static<typeof eventSchema>;

/** What every ingestion request has beside its records. */
export const envelopeSchema = Type.Object({ app_id: appId });

/** `POST /api/track` with many events; each element is then checked by itself against `eventSchema`. */
export const bulkEventsSchema = Type.Object({
  events: Type.Array(Type.Unknown(), { minItems: 1, maxItems: counts.bulkEventsMax }),
});

const identity = Type.String({
  minLength: 1,
  maxLength: lengths.identityMax,
  description: identityAdvice,
  examples: ['ada@example.com'],
});

/** One call that sets user properties, without the app_id. */
export const userPropertiesSchema = Type.Object({
  identity,
  properties: Type.Optional(
    Type.Object(
      {},
      {
        additionalProperties: Type.Union([
          Type.Number(),
          Type.String({ maxLength: lengths.userPropertyValueMax }),
        ]),
        description: `Key-value pairs of the user, for all past and future activity; of each key the latest value stands. At most ${counts.propertiesMax}; values are numbers or strings of at most ${lengths.userPropertyValueMax} characters. The key email, in lower case, fills the built-in e-mail property; in any other case it is a property of its own. The key user_id is reserved.`,
        examples: [{ email: 'ada@example.com', plan: 'pro', seats: 3 }],
      },
    ),
  ),
});
export type UserPropertiesInput = Static<typeof userPropertiesSchema>;

/** `POST /api/add_user_properties` for many users; each element is then checked by itself. */
export const bulkUsersSchema = Type.Object({
  users: Type.Array(Type.Unknown(), { minItems: 1, maxItems: counts.bulkUsersMax }),
});

/** One identification, without the app_id. */
export const identifySchema = Type.Object({
  user_id: Type.String({
    description:
      'The anonymous user: the plain decimal form, as a string, of an integer from 0 to 2^53 - 1, which the client library made.',
    examples: ['4503599627370496'],
  }),
  identity,
  timestamp: Type.Optional(
    Type.String({
      description:
        'When it happened: RFC 3339 with offset and seconds. Checked only: the order of acceptance counts.',
      examples: ['2026-03-01T12:30:00Z'],
    }),
  ),
});
export type IdentifyInput = Static<typeof identifySchema>;

const messageUserId = Type.String({
  description:
    'The user on the device: the plain decimal form, as a string, of an integer from 0 to 2^53 - 1, which the client library made.',
  examples: ['4503599627370496'],
});

function messageIdentity(advice: string) {
  return Type.String({
    minLength: 1,
    maxLength: lengths.clientIdentityMax,
    description: `Identity of the user, case-sensitive, fewer than ${lengths.clientIdentityMax + 1} characters. ${advice}`,
    examples: ['ada@example.com'],
  });
}

/** What every message of the client library has. */
const messageFields = {
  id: Type.String({
    minLength: 1,
    maxLength: lengths.idempotencyKeyMax,
    description:
      'Unique within the environment. A later message with the same id changes nothing and is answered repeat, so a request without an answer can be sent again.',
    examples: ['0b8f6a52c1d94e7f8a3b5c6d7e8f9012'],
  }),
  user_id: messageUserId,
  identity: Type.Optional(
    messageIdentity(
      'Given when the user was identified at the call; what the message says belongs to the identity then.',
    ),
  ),
  session_id: eventFields.session_id,
  time: Type.Optional(
    Type.String({
      description:
        "When the call was made: RFC 3339 with offset and seconds, by the client's clock. Corrected by the difference between sent_at and the service's clock. Default: the time of acceptance.",
      examples: ['2026-03-01T12:30:00.250Z'],
    }),
  ),
};

export const eventMessageSchema = Type.Object({
  type: Type.Literal('event'),
  ...messageFields,
  event: Type.String({
    minLength: 1,
    maxLength: lengths.clientEventMax,
    description: `Name of the event, at most ${lengths.clientEventMax} characters.`,
    examples: ['Page View'],
  }),
  properties: eventFields.properties,
  autocaptured: Type.Optional(
    Type.Boolean({
      description:
        'Whether the library captured the event by itself. Only such an event may have the property screen_name.',
    }),
  ),
});
export type EventMessage = Static<typeof eventMessageSchema>;

export const identifyMessageSchema = Type.Object({
  type: Type.Literal('identify'),
  ...messageFields,
  identity: messageIdentity('It becomes the identity of the user_id, unless that has one.'),
});
export type IdentifyMessage = Static<typeof identifyMessageSchema>;

export const userPropertiesMessageSchema = Type.Object({
  type: Type.Literal('user_properties'),
  ...messageFields,
  properties: userPropertiesSchema.properties.properties,
});
export type UserPropertiesMessage = Static<typeof userPropertiesMessageSchema>;

/** `POST /api/collect`, without the app_id; each message is then checked by itself. */
export const collectSchema = Type.Object({
  sent_at: Type.String({
    description:
      "When the request was sent: RFC 3339 with offset and seconds, by the client's clock, by which the messages' times are corrected.",
    examples: ['2026-03-01T12:30:05.000Z'],
  }),
  messages: Type.Array(Type.Unknown(), { minItems: 1, maxItems: counts.collectMessagesMax }),
});
export type CollectInput = Static<typeof collectSchema>;

/** `POST /api/public/v0/user_deletion`. */
export const deletionSchema = Type.Object({
  users: Type.Array(
    Type.Object({
      identity: Type.Optional(identity),
      user_id: Type.Optional(
        Type.Union([Type.Number(), Type.String()], {
          description: 'An integer from 0 to 2^53 - 1, or its plain decimal form as a string.',
          examples: [4503599627370496],
        }),
      ),
    }),
    {
      minItems: 1,
      maxItems: counts.deletionTargetsMax,
      description: 'The users to delete, each by exactly one of identity and user_id.',
    },
  ),
});
export type DeletionInput = Static<typeof deletionSchema>;

const pairedAppId = Type.String({ description: 'Environment ID of one of your environments.' });

/** `POST /api/visualizer/pairings`. */
export const pairingRequestSchema = Type.Object({
  app_id: pairedAppId,
  pairing: Type.Optional(
    Type.String({
      description:
        'The secret of a pairing that began before: while it waits or lives it is answered again, and no other begins.',
    }),
  ),
});

/** `POST /api/visualizer/pairings/stop`. */
export const pairingStopSchema = Type.Object({
  app_id: pairedAppId,
  pairing: Type.String({ description: 'The secret that the device got when the pairing began.' }),
});
