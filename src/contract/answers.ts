// The TypeBox schemas of the answers. Nothing checks answers on their way out; the OpenAPI document shows
// these schemas, and the tests hold real answers against them. Answers may get more fields later.

import Type, { type Static } from 'typebox';
import { type OutcomeCode, outcomes } from './outcomes.js';

const codes = Object.keys(outcomes) as OutcomeCode[];

const code = Type.String({ enum: codes, description: 'What is wrong, from a closed table.' });
const message = Type.String({ description: 'The same in words, for people; the wording may change.' });
const field = Type.Optional(
  Type.String({
    description: 'Path of the field at fault, such as properties.color; absent when it is the whole request.',
  }),
);

/** Everything was taken, or was taken before under the same key. */
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

/** A bulk request that was refused for its elements: beside `err`, what is wrong with each. */
export const bulkErrorSchema = Type.Object({
  err: Type.Object({ message, code, field }),
  accepted: Type.Optional(Type.Integer({ minimum: 0, maximum: 0 })),
  rejected: Type.Optional(Type.Integer({ minimum: 1 })),
  errors: Type.Optional(elementErrors),
});

const messageId = Type.Optional(
  Type.String({ description: 'The id of the message; absent when it was no string.' }),
);

/** What became of one message of the client library. */
export const messageAnswerSchema = Type.Union([
  Type.Object(
    { id: messageId, status: Type.Union([Type.Literal('stored'), Type.Literal('repeat')]) },
    { description: 'Kept, now or before under the same id.' },
  ),
  Type.Object(
    {
      id: messageId,
      status: Type.Literal('limited'),
      code: Type.Literal('rate_limited'),
      retry_after: Type.Integer({ minimum: 1, description: 'Seconds after which it fits its limit.' }),
    },
    { description: 'Not stored: its limit has no room now. Send it again later, under the same id.' },
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
    description: 'One answer a message, in the order of the request.',
  }),
  pairing: Type.Optional(
    Type.Literal('ended', { description: 'The pairing that the request named lives no more.' }),
  ),
});

export const liveSchema = Type.Object({ live: Type.Boolean() });

export const readySchema = Type.Object({
  ready: Type.Boolean(),
  missing: Type.Array(Type.String(), {
    description:
      'What is not there. A process is ready with something missing when one of several shards lacks its state.',
  }),
});

/** The answer of the token endpoint. */
export const tokenSchema = Type.Object({
  access_token: Type.String({
    description: 'Send it as Authorization: Bearer. Good for 60 minutes at most.',
  }),
  auth_token: Type.String({ description: 'The same, under the name of an earlier form of the interface.' }),
});

const deletionStatus = {
  deletion_request_id: Type.String({ description: 'Names the request.' }),
  status: Type.Union([Type.Literal('pending'), Type.Literal('complete')], {
    description: 'complete: every place was counted and holds nothing of the users. Never goes back.',
  }),
};

/** The answer to a submitted deletion. */
export const deletionSubmittedSchema = Type.Object({
  deletion_request_location: Type.String({ description: 'Where the status is asked.' }),
  ...deletionStatus,
});

/** The status of a deletion. */
export const deletionStatusSchema = Type.Object({
  ...deletionStatus,
  state: Type.Optional(
    Type.Union([Type.Literal('targets_lost'), Type.Literal('ended')], {
      description:
        'Only on a request that stays pending for ever: the list of its users was lost with Redis before it was copied. ended: an administrator has noted that.',
    }),
  ),
  message: Type.Optional(
    Type.String({ description: 'Beside state: what to do about it, for people; the wording may change.' }),
  ),
});

/** A refusal for want of credentials; the text stands under every name that callers look for. */
export const unauthorizedSchema = Type.Object({
  err: Type.Object({ message, code, field }),
  error: Type.String(),
  message: Type.String(),
});

/** A pairing with the Event Visualizer that has begun. */
export const pairingSchema = Type.Object({
  pairing: Type.String({ description: 'The secret that the device sends with every batch.' }),
  code: Type.String({ description: 'What the device shows, for an administrator to enter.' }),
  expires_in: Type.Integer({ minimum: 1, description: 'Seconds for which the code waits.' }),
});
