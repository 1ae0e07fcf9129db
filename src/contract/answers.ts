// The TypeBox schemas of the answers; those about users' rights are in privacy-answers.ts, those of the administration in
// administration-answers.ts. Nothing checks answers on their way out; the OpenAPI document shows
// these schemas, and the tests compare real answers with them. Answers may get more fields later.

import { type OutcomeCode, outcomes } from './outcomes.js';
import { type Static, Type } from './typebox.js';

const codes = Object.keys(outcomes) as OutcomeCode[];

const code = Type.String({ enum: codes, description: 'What is wrong: one of a fixed set of codes.' });
const message = Type.String({ description: 'The same in words, for people; the wording may change.' });
const field = Type.Optional(
  Type.String({
    description: 'Path of the wrong field, such as properties.color; absent if it is the whole request.',
  }),
);

/** Everything was accepted, or was accepted before under the same key. */
export const emptySchema = Type.Object(
  {},
  { additionalProperties: false, description: 'Empty: everything was stored, or had been stored before.' },
);

/** Every request that is refused. */
export const errorSchema = Type.Object({ err: Type.Object({ message, code, field }) });

const elementErrors = Type.Array(
  Type.Object({
    index: Type.Integer({ minimum: 0, description: 'Position in the request, from 0.' }),
    code,
    field,
    message,
  }),
  { description: 'One entry for each element that was refused, in the order of the request.' },
);

/** A bulk request of which only some elements were stored. */
export const bulkResultSchema = Type.Object({
  accepted: Type.Integer({ minimum: 0, description: 'Elements stored, or stored before.' }),
  rejected: Type.Integer({ minimum: 1, description: 'Elements refused; nothing of them was stored.' }),
  errors: elementErrors,
});

/** A bulk request of which no element was stored: besides `err`, what is wrong with each element. */
export const bulkErrorSchema = Type.Object({
  err: Type.Object({ message, code, field }),
  accepted: Type.Optional(Type.Integer({ minimum: 0, maximum: 0 })),
  rejected: Type.Optional(Type.Integer({ minimum: 1 })),
  errors: Type.Optional(elementErrors),
});

const messageId = Type.Optional(
  Type.String({ description: 'The id of the message; absent when it was not a string.' }),
);

/** The result of one message of the client library. */
const messageAnswerSchema = Type.Union([
  Type.Object(
    { id: messageId, status: Type.Union([Type.Literal('stored'), Type.Literal('repeat')]) },
    { description: 'Stored, now or earlier with the same id.' },
  ),
  Type.Object(
    {
      id: messageId,
      status: Type.Literal('limited'),
      code: Type.Literal('rate_limited'),
      retry_after: Type.Integer({ minimum: 1, description: 'Seconds until its rate limit has room for it.' }),
    },
    { description: 'Not stored: its rate limit has no room now. Send it again later with the same id.' },
  ),
  Type.Object(
    { id: messageId, status: Type.Literal('rejected'), code, field, message },
    { description: 'Not stored, and never will be.' },
  ),
]);
export type MessageAnswer = Static<typeof messageAnswerSchema>;

/** The answer to a request of the client library that is well formed as a whole. */
export const collectResultSchema = Type.Object({
  messages: Type.Array(messageAnswerSchema, {
    description: 'One answer per message, in the order of the request.',
  }),
  pairing: Type.Optional(
    Type.Literal('ended', { description: 'The pairing that the request named has ended.' }),
  ),
});

export const liveSchema = Type.Object({ live: Type.Boolean() });

export const readySchema = Type.Object({
  ready: Type.Boolean(),
  missing: Type.Array(Type.String(), {
    description:
      'What is missing. A process is ready all the same if one of several shards lacks its state, or if ClickHouse does not answer, since records then wait in Redis.',
  }),
});

export const tokenSchema = Type.Object({
  access_token: Type.String({
    description: 'Send it as Authorization: Bearer. Valid for at most 60 minutes.',
  }),
  auth_token: Type.String({ description: 'The same token, under the name that older clients read.' }),
});

/** A refusal for lack of credentials: the same text under each of the names that callers look for. */
export const unauthorizedSchema = Type.Object({
  err: Type.Object({ message, code, field }),
  error: Type.String(),
  message: Type.String(),
});

/** A pairing with the Event Visualizer that has begun. */
export const pairingSchema = Type.Object({
  pairing: Type.String({ description: 'The secret that the device sends with every batch.' }),
  code: Type.String({ description: 'What the device shows, for an administrator to enter.' }),
  expires_in: Type.Integer({ minimum: 1, description: 'Seconds until the code expires.' }),
});

/** What has become of the records with some idempotency keys, in the order asked. */
export const receiptsAnswerSchema = Type.Object({
  receipts: Type.Array(
    Type.Object({
      idempotency_key: Type.String(),
      status: Type.Union(
        [Type.Literal('stored'), Type.Literal('waiting'), Type.Literal('deleted'), Type.Literal('unknown')],
        {
          description:
            'stored: it is in ClickHouse. waiting: it is kept and will be stored. deleted: it was stored, and deleted since, with its user or because it expired. unknown: no record with this key is known. Nothing is kept of a refused record, so its key is unknown too, and can be used again.',
        },
      ),
      event_id: Type.Optional(Type.String({ description: 'If it is stored: its event_id.' })),
      segment: Type.Optional(Type.String({ description: 'If it is stored: the segment that stored it.' })),
      accepted_at: Type.Optional(
        Type.String({
          description:
            'If it is stored: when its segment was opened, at most a second before it was accepted.',
        }),
      ),
    }),
  ),
});
export type Receipt = Static<typeof receiptsAnswerSchema>['receipts'][number];
