// The TypeBox schemas of the answers; those about users' rights are in privacy-answers.ts, those of the administration in
// administration-answers.ts. Nothing checks answers on their way out; the OpenAPI document shows
// these schemas, and the tests compare real answers with them. Answers may get more fields later.

import { type OutcomeCode, outcomes } from './outcomes.js';
import {
  anyOf,
  count,
  either,
  flag,
  integer,
  listOf,
  literal,
  object,
  objects,
  optional,
  type Static,
  Type,
  text,
} from './typebox.js';

const codes = Object.keys(outcomes) as OutcomeCode[];

const code = text('What is wrong: one of a fixed set of codes.', { enum: codes });
const message = text('The same in words, for people; the wording may change.');
const field = optional(
  text('Path of the wrong field, such as properties.color; absent if it is the whole request.'),
);

/** Everything was accepted, or was accepted before under the same key. */
export const emptySchema = Type.Object(
  {},
  { additionalProperties: false, description: 'Empty: everything was stored, or had been stored before.' },
);

/** Every request that is refused. */
export const errorSchema = object({ err: object({ message, code, field }) });

const elementErrors = objects('One entry for each element that was refused, in the order of the request.', {
  index: count('Position in the request, from 0.'),
  code,
  field,
  message,
});

/** A bulk request of which only some elements were stored. */
export const bulkResultSchema = object({
  accepted: count('Elements stored, or stored before.'),
  rejected: integer('Elements refused; nothing of them was stored.', { minimum: 1 }),
  errors: elementErrors,
});

/** A bulk request of which no element was stored: besides `err`, what is wrong with each element. */
export const bulkErrorSchema = object({
  err: object({ message, code, field }),
  accepted: optional(integer({ minimum: 0, maximum: 0 })),
  rejected: optional(integer({ minimum: 1 })),
  errors: optional(elementErrors),
});

const messageId = optional(text('The id of the message; absent when it was not a string.'));

/** The result of one message of the client library. */
const messageAnswerSchema = anyOf([
  object('Stored, now or earlier with the same id.', { id: messageId, status: either(['stored', 'repeat']) }),
  object('Not stored: its rate limit has no room now. Send it again later with the same id.', {
    id: messageId,
    status: literal('limited'),
    code: literal('rate_limited'),
    retry_after: integer('Seconds until its rate limit has room for it.', { minimum: 1 }),
  }),
  object('Not stored, and never will be.', {
    id: messageId,
    status: literal('rejected'),
    code,
    field,
    message,
  }),
]);
export type MessageAnswer = Static<typeof messageAnswerSchema>;

/** The answer to a request of the client library that is well formed as a whole. */
export const collectResultSchema = object({
  messages: listOf(messageAnswerSchema, 'One answer per message, in the order of the request.'),
  pairing: optional(literal('ended', 'The pairing that the request named has ended.')),
});

export const liveSchema = object({ live: flag() });

export const readySchema = object({
  ready: flag(),
  missing: listOf(
    text(),
    'What is missing. A process is ready all the same if one of several shards lacks its state, or if ClickHouse does not answer, since records then wait in Redis.',
  ),
});

export const tokenSchema = object({
  access_token: text('Send it as Authorization: Bearer. Valid for at most 60 minutes.'),
  auth_token: text('The same token, under the name that older clients read.'),
});

/** A refusal for lack of credentials: the same text under each of the names that callers look for. */
export const unauthorizedSchema = object({
  err: object({ message, code, field }),
  error: text(),
  message: text(),
});

/** A pairing with the Event Visualizer that has begun. */
export const pairingSchema = object({
  pairing: text('The secret that the device sends with every batch.'),
  code: text('What the device shows, for an administrator to enter.'),
  expires_in: integer('Seconds until the code expires.', { minimum: 1 }),
});

/** What has become of the records with some idempotency keys, in the order asked. */
export const receiptsAnswerSchema = object({
  receipts: objects({
    idempotency_key: text(),
    status: either(
      ['stored', 'waiting', 'deleted', 'unknown'],
      'stored: it is in ClickHouse. waiting: it is kept and will be stored. deleted: it was stored, and deleted since, with its user or because it expired. unknown: no record with this key is known. Nothing is kept of a refused record, so its key is unknown too, and can be used again.',
    ),
    event_id: optional(text('If it is stored: its event_id.')),
    segment: optional(text('If it is stored: the segment that stored it.')),
    accepted_at: optional(
      text('If it is stored: when its segment was opened, at most a second before it was accepted.'),
    ),
  }),
});
export type Receipt = Static<typeof receiptsAnswerSchema>['receipts'][number];
