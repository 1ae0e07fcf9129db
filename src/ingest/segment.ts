// A request in Segment's protocol, one message or a batch, as one group for the commit. Every message counts once towards the limits of
// bulk requests, since the libraries send many calls together. Pure, like what it calls.

import { flattened } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type SegmentType, segmentBatchSchema, segmentTypes } from '../contract/segment.js';
import { Compile } from '../contract/typebox.js';
import type { Document } from '../parsing/document.js';
import { explain } from '../parsing/explain.js';
import type { Steps } from '../parsing/steps.js';
import type { CollectContext } from './collect.js';
import { createMending, isObject, type Mending } from './mend.js';
import { missingType, notAnObject } from './message.js';
import {
  checkEach,
  type ElementError,
  type LimitedGroup,
  type Refused,
  refuseElements,
  submitBulk,
} from './prepare.js';
import { checkSegmentMessage, readSegmentTime } from './segment-message.js';
import type { Submission } from './submission.js';

export type PreparedSegment =
  | Refused
  | {
      readonly kind: 'ready';
      readonly submission: Submission<LimitedGroup>;
      /** The number of records of each accepted message; the submission has them one after another. */
      readonly recordsOf: readonly number[];
      /** The bad messages, which are left out. */
      readonly errors: readonly ElementError[];
      readonly mendings: ReadonlyMap<Mending, number>;
    };

/** The mendings that the protocol's messages commonly need. Only the others, which lose something, are counted. */
const usual: ReadonlySet<Mending> = new Set([
  'boolean_property',
  'nested_property',
  'null_field',
  'null_property',
]);
const counter = { name: 'segment' };
const validator = Compile(segmentBatchSchema);

/** Prepares a request, one message a step; without a type it is a batch. Its document is an object. */
export function* prepareSegment(
  document: Document,
  type: SegmentType | undefined,
  context: CollectContext,
): Steps<PreparedSegment> {
  const { environment, receivedMs } = context;
  const request = document.value as {
    readonly batch?: unknown;
    readonly sentAt?: unknown;
    readonly context?: unknown;
  };
  if (type === undefined) {
    const reason = explain(validator, { batch: request.batch });
    if (reason !== undefined) return { kind: 'refused', reason };
  }
  const messages = type === undefined ? (request.batch as readonly unknown[]) : [request];
  const mending = createMending(document, flattened.segmentBytesMax);
  const checks = {
    appId: environment.appId,
    surrogates: document.surrogates,
    allowedIdentities: environment.allowedIdentities,
    nowMs: receivedMs,
    sentMs: readSegmentTime(request.sentAt),
  };
  const { accepted, errors } = yield* checkEach(messages, document.isLarge, (sent) => {
    const message = type === undefined ? withContext(sent, request.context) : sent;
    const typed = type ?? typeOf(message);
    if (typeof typed !== 'string') return typed;
    return checkSegmentMessage(typed, message as object, checks, mending);
  });
  // The endpoint answers with each of them.
  if (errors.length > 0 && accepted.length === 0) return refuseElements('batch', errors);
  const users = accepted.map(({ user }) => user);
  const encoded = accepted.flatMap(({ records }) => records);
  const submission = yield* submitBulk(counter, 'batch', users, encoded, document.isLarge, context);
  if ('code' in submission) return { kind: 'refused', reason: submission };
  const recordsOf = accepted.map(({ records }) => records.length);
  for (const each of usual) mending.mendings.delete(each);
  return { kind: 'ready', submission, recordsOf, errors, mendings: mending.mendings };
}

/** The libraries for Go and Java send a context once for a batch: it holds for each message that does not say otherwise. */
function withContext(message: unknown, shared: unknown): unknown {
  if (!isObject(message) || !isObject(shared)) return message;
  const { context = {} } = message;
  return isObject(context) ? { ...message, context: { ...shared, ...context } } : message;
}

function typeOf(message: unknown): SegmentType | Rejection {
  if (!isObject(message)) return notAnObject;
  const { type } = message;
  return segmentTypes.find((known) => known === type) ?? (type === undefined ? missingType : unknownType);
}

const unknownType = rejection(
  'unknown_message_type',
  `type must be one of ${segmentTypes.join(', ')}.`,
  'type',
);
