// The TypeBox schemas of the requests: types, required fields and lengths (in code points). What a schema
// cannot say (exactly one of two fields, calendar dates, reserved keys) is checked in `ingest/check.ts`.

import Type, { type Static } from 'typebox';
import { counts, lengths } from './limits.js';

/** A property's value. Arrays are joined into one string; numbers must be finite. */
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
    description: `At most ${counts.propertiesMax} key-value pairs. An array is stored as one string, its elements joined with ||.`,
    examples: [{ amount: 12.5, currency: 'EUR', tags: ['gift', 'express'] }],
  },
);

const appId = Type.String({
  minLength: 1,
  description: 'The environment that the record belongs to.',
  examples: ['1000000001'],
});

const eventFields = {
  event: Type.String({
    minLength: 1,
    maxLength: lengths.eventMax,
    description:
      'Name of the event. Use broad names and tell variants apart by properties: one event Error with a property message, not one event per message.',
    examples: ['Order Completed'],
  }),
  identity: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: lengths.identityMax,
      description:
        'Case-sensitive identity of the user; send e-mail addresses in lower case. Exactly one of identity and user_id.',
      examples: ['ada@example.com'],
    }),
  ),
  user_id: Type.Optional(
    Type.String({
      description: 'Decimal form of an integer from 0 to 2^53 - 1, from the client library.',
      examples: ['4503599627370496'],
    }),
  ),
  session_id: Type.Optional(Type.String({ minLength: 1, maxLength: lengths.sessionIdMax })),
  properties: Type.Optional(eventProperties),
  timestamp: Type.Optional(
    Type.String({
      description: 'RFC 3339 with offset and seconds. Default: the time of acceptance.',
      examples: ['2026-03-01T12:30:00.250+01:00'],
    }),
  ),
  idempotency_key: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: lengths.idempotencyKeyMax,
      description: 'A later event with the same key changes nothing.',
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
  description:
    'Case-sensitive identity of the user; send e-mail addresses in lower case. Never a generic word.',
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
        description:
          'Key-value pairs of the user, for all past and future activity; of each key the latest value stands. The lower-case key email fills the built-in e-mail property.',
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
    description: 'The anonymous user: decimal form of an integer from 0 to 2^53 - 1.',
    examples: ['4503599627370496'],
  }),
  identity,
  timestamp: Type.Optional(Type.String({ description: 'RFC 3339 with offset and seconds.' })),
});
export type IdentifyInput = Static<typeof identifySchema>;
