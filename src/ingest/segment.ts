// A request in Segment's protocol, one message or a batch, as one group for the commit. Every message counts once towards the limits of
// bulk requests, since the libraries send many calls together. Pure, like what it calls.

import { commits, flattened } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type SegmentType, segmentBatchSchema, segmentTypes } from '../contract/segment.js';
import { Compile } from '../contract/typebox.js';
import type { Document } from '../parsing/document.js';
import { explain } from '../parsing/explain.js';
import type { Steps } from '../parsing/steps.js';
import type { CollectContext } from './collect.js';
import { isObject, type Mending } from './mend.js';
import { missingType, notAnObject } from './message.js';
import { encodedRecords, packedBytesMax, recordsBytesMax } from './pack.js';
import { type ElementError, type LimitedGroup, type Refused, tooManyBytes } from './prepare.js';
import type { Checked } from './record-kind.js';
import { addEnvironmentLimits, bulkLimits, refuseTooLarge } from './request-limits.js';
import { checkSegmentMessage, readSegmentTime, type SegmentRecord } from './segment-message.js';
import { createSubmission, markUsers, type Submission } from './submission.js';

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
  const mendings = new Map<Mending, number>();
  const mending = {
    note: (found: Mending) => {
      if (!usual.has(found)) mendings.set(found, (mendings.get(found) ?? 0) + 1);
    },
    longNumerals: document.longNumerals,
    flattenedBytesLeft: flattened.segmentBytesMax,
  };
  const checks = {
    appId: environment.appId,
    surrogates: document.surrogates,
    allowedIdentities: environment.allowedIdentities,
    nowMs: receivedMs,
    sentMs: readSegmentTime(request.sentAt),
  };
  const users: Checked[] = [];
  const recordsOf: number[] = [];
  const records: SegmentRecord[] = [];
  const errors: ElementError[] = [];
  for (let index = 0; index < messages.length; index++) {
    if (document.isLarge) yield;
    const message = type === undefined ? withContext(messages[index], request.context) : messages[index];
    const typed = type ?? typeOf(message);
    const checked =
      typeof typed === 'string' ? checkSegmentMessage(typed, message as object, checks, mending) : typed;
    if ('code' in checked) {
      errors.push({ index, ...checked });
      continue;
    }
    for (const each of checked.records) records.push(each);
    users.push(checked.user);
    recordsOf.push(checked.records.length);
  }
  const [first] = errors;
  if (first !== undefined && users.length === 0) {
    const { index, ...reason } = first;
    if (type !== undefined) return { kind: 'refused', reason, errors };
    const path = reason.field === undefined ? `batch.${index}` : `batch.${index}.${reason.field}`;
    return { kind: 'refused', reason: rejection(reason.code, reason.message, path), errors };
  }
  const encoded = encodedRecords(records.map(({ record }) => record));
  if (recordsBytesMax(encoded) > commits.groupBytesMax)
    return { kind: 'refused', reason: tooManyBytes('batch') };
  const limits = bulkLimits(counter, users.length, () => users, context);
  const tooLarge = refuseTooLarge(limits, 'batch');
  if (tooLarge !== undefined) return { kind: 'refused', reason: tooLarge };
  addEnvironmentLimits(limits, encoded.length, encoded.rowBytesMax, context);
  const { appId } = environment;
  const groups = [{ appId, limits, records: encoded, bytes: packedBytesMax(limits, encoded) }];
  const named = records.map((each) => each.named);
  const submission = createSubmission(context, groups, (suppressed) => markUsers(named, suppressed));
  return { kind: 'ready', submission, recordsOf, errors, mendings };
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
