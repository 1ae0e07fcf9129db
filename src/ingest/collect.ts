// A request of the client library. Turns its messages into groups for one commit, in their order, and the groups' results into one answer
// per message. Messages under the same limits share groups: some events of one user, or everything where nothing is limited. Pure.

import type { MessageAnswer } from '../contract/answers.js';
import { collectEventsTogetherMax, flattened, type LimitName } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type CollectInput, collectSchema } from '../contract/schemas.js';
import { Compile } from '../contract/typebox.js';
import type { Document } from '../parsing/document.js';
import { explain } from '../parsing/explain.js';
import type { Steps } from '../parsing/steps.js';
import type { Suppressions } from '../privacy/suppression/suppressions.js';
import type { CommitResult } from './attempts.js';
import { addIgnored, fieldNames, type IgnoredFields, noIgnoredFields } from './ignored-fields.js';
import { createMending, type Mending, mendTimestamp, type Note, refuseSeconds } from './mend.js';
import { type CheckedMessage, checkMessage } from './message.js';
import { encodedRecords, packedBytesMax, recordBytesMax } from './pack.js';
import { checkEach, type ElementError, type LimitedGroup } from './prepare.js';
import { addEnvironmentLimits, type LimitContext, type NamedLimit } from './request-limits.js';
import { createSubmission, markUsers, type Submission } from './submission.js';
import { readInstant } from './timestamp.js';

/** What the Event Visualizer gets from a request that carried a pairing. */
export type Collected = {
  readonly appId: string;
  /** The token as the request has it; not checked. */
  readonly pairing: string;
  /** As they were sent. Each may be any JSON value. */
  readonly messages: readonly unknown[];
  /** One per message, in their order. */
  readonly answers: readonly MessageAnswer[];
};

/**
 * Called once for each request that carries a pairing and is answered 200, before the answer is sent. Returns whether the pairing is
 * live. The request waits for a returned promise; if that rejects, the pairing counts as live.
 */
export type OnCollected = (collected: Collected) => boolean | Promise<boolean>;

export type CollectContext = LimitContext & {
  readonly suppressions: Suppressions;
  /** When the request was received, by this process's clock. */
  readonly receivedMs: number;
};

export type PreparedMessages = {
  readonly submission: Submission<LimitedGroup>;
  readonly messages: readonly unknown[];
  /** The rejected messages, by ascending index. */
  readonly errors: readonly ElementError[];
  readonly mendings: ReadonlyMap<Mending, number>;
  readonly ignored: IgnoredFields;
};

const validator = Compile(collectSchema);
const fields = fieldNames(collectSchema, 'app_id', 'pairing');

/** Prepares a request, one message a step. Its document is an object with the app_id of the environment. */
export function* prepareMessages(
  document: Document,
  context: CollectContext,
): Steps<PreparedMessages | Rejection> {
  const { environment, receivedMs } = context;
  const mending = createMending(document, flattened.collectBytesMax);
  const { sent_at: given } = document.value as { sent_at?: unknown };
  const seconds = environment.lenient ? refuseSeconds(given, 'sent_at') : undefined;
  if (seconds !== undefined) return seconds;
  const value = environment.lenient ? mendRequest(document.value as object, mending.note) : document.value;
  const reason = explain(validator, value);
  if (reason !== undefined) return reason;
  const { sent_at: sentAt, messages } = value as CollectInput;
  const sentMs = readInstant(sentAt);
  if (sentMs === undefined) return badSentAt;

  const ignored = noIgnoredFields();
  addIgnored(value, fields, ignored);
  const checks = {
    appId: environment.appId,
    lenient: environment.lenient,
    keyspace: environment.needsWriteKey ? ('messages' as const) : ('shared' as const),
    surrogates: document.surrogates,
    allowedIdentities: environment.allowedIdentities,
    sentMs,
    receivedMs,
    ignored,
  };
  const { accepted, errors } = yield* checkEach(messages, document.isLarge, (message) =>
    checkMessage(message, checks, mending),
  );
  const groups = yield* groupMessages(accepted, document.isLarge, context);
  const users = accepted.map(({ named }) => named);
  const submission = createSubmission(context, groups, (suppressed) => markUsers(users, suppressed));
  return { submission, messages, errors, mendings: mending.mendings, ignored };
}

function mendRequest(value: object, note: Note): object {
  const request = value as { app_id: unknown; sent_at?: unknown };
  if (typeof request.app_id === 'number') note('numeric_app_id');
  return { ...request, sent_at: mendTimestamp(request.sent_at, note) };
}

const badSentAt = rejection(
  'invalid_timestamp',
  'sent_at must be RFC 3339 with offset and seconds, and a real date.',
  'sent_at',
);

/**
 * Divides the messages into groups that are limited separately. Within a commit the room of a limit only shrinks, and only groups of events
 * cost more than 1. So once an identification or a call that sets properties is limited, all later ones of its user are limited too. For
 * the same reason every message counts towards `app_bytes` with the average size of the request's messages.
 */
function* groupMessages(
  accepted: readonly CheckedMessage[],
  isLarge: boolean,
  context: CollectContext,
): Steps<LimitedGroup[]> {
  const { environment, limitKeys } = context;
  const { appId, limits } = environment;
  const { collect_app: ofApp, collect_user: ofUser, user_properties: ofProperties } = limits;
  const appDigest = ofApp === undefined ? '' : limitKeys.ofApp('collect', appId);
  const isLimited = ofApp !== undefined || ofUser !== undefined;
  // No group may cost more than a limit allows at all.
  const eventsMax = isLimited
    ? Math.min(collectEventsTogetherMax, ofApp?.max ?? Infinity, ofUser?.max ?? Infinity)
    : Infinity;
  const bytes = accepted.reduce((sum, { record }) => sum + recordBytesMax(record), 0);
  const bytesOfMessage = Math.ceil(bytes / accepted.length);
  const groups: LimitedGroup[] = [];
  let run: CheckedMessage[] = [];

  function limitsOf({ user, type }: CheckedMessage, cost: number): NamedLimit[] {
    const found: NamedLimit[] = [];
    if (type === 'user_properties' && ofProperties !== undefined) {
      const digest = limitKeys.ofUser('collect user_properties', appId, user);
      found.push({ name: 'user_properties', digest, cost, limit: ofProperties });
    }
    if (ofUser !== undefined) {
      const digest = limitKeys.ofUser('collect', appId, user);
      found.push({ name: 'collect_user', digest, cost, limit: ofUser });
    }
    if (ofApp !== undefined) found.push({ name: 'collect_app', digest: appDigest, cost, limit: ofApp });
    return found;
  }

  function endRun(): void {
    const [first] = run;
    if (first === undefined) return;
    // Messages come without a write key.
    const callers = environment.needsWriteKey ? 'keyless' : 'all';
    const limits = limitsOf(first, run.length);
    addEnvironmentLimits(limits, run.length, run.length * bytesOfMessage, context, callers);
    const records = encodedRecords(run.map(({ record }) => record));
    groups.push({ appId, limits, limitsPassRepeats: true, records, bytes: packedBytesMax(limits, records) });
    run = [];
  }

  for (const message of accepted) {
    if (isLarge) yield;
    const last = run.at(-1);
    if (last !== undefined && !(run.length < eventsMax && areLimitedAlike(last, message))) endRun();
    run.push(message);
  }
  endRun();
  return groups;

  function areLimitedAlike(a: CheckedMessage, b: CheckedMessage): boolean {
    const areProperties = a.type === 'user_properties' || b.type === 'user_properties';
    if (areProperties && ofProperties !== undefined) return false;
    if (!isLimited) return true;
    if (a.type !== 'event' || b.type !== 'event') return false;
    return ofUser === undefined || (a.user.identity === b.user.identity && a.user.userId === b.user.userId);
  }
}

/** The answers to a request whose groups were all committed or limited, and how many there are of each status. */
export function answerMessages(
  { submission, messages, errors }: PreparedMessages,
  results: readonly CommitResult[],
): {
  answers: MessageAnswer[];
  stored: number;
  repeated: number;
  /** Messages of suppressed users, which are answered as stored. */
  suppressed: number;
  /** Suppressed messages whose anonymous user could not be joined. */
  unjoined: number;
  /** Limited messages, by the limit that had no room. */
  limited: ReadonlyMap<LimitName, number>;
} {
  const answers = new Array<MessageAnswer | undefined>(messages.length);
  for (const { index, ...reason } of errors) {
    answers[index] = { ...idOf(messages[index]), status: 'rejected', ...reason };
  }
  const { groups } = submission;
  let [stored, repeated, suppressed, unjoined, next] = [0, 0, 0, 0, 0];
  const limited = new Map<LimitName, number>();
  for (let i = 0; i < groups.length; i++) {
    const { limits, records } = groups[i] as LimitedGroup;
    const { length } = records;
    const result = results[i] as CommitResult;
    for (let j = 0; j < length; j++) {
      while (answers[next] !== undefined) next += 1;
      const index = next;
      // Only a message with an id gets this far.
      const { id } = messages[index] as { id: string };
      if (result.kind === 'limited') {
        const { name } = limits[result.limitIndex] as NamedLimit;
        limited.set(name, (limited.get(name) ?? 0) + 1);
        answers[index] = { id, status: 'limited', code: 'rate_limited', retry_after: seconds(result.waitMs) };
      } else {
        const letter = result.kind === 'committed' ? result.letters[j] : undefined;
        if (letter === 'r') repeated += 1;
        else if (letter === 's') stored += 1;
        else suppressed += 1;
        if (letter === 'u') unjoined += 1;
        answers[index] = { id, status: letter === 'r' ? 'repeat' : 'stored' };
      }
    }
  }
  return { answers: answers as MessageAnswer[], stored, repeated, suppressed, unjoined, limited };
}

/** The id of a message, if it is a text, so that its sender knows which message is meant. */
function idOf(message: unknown): { id?: string } {
  if (typeof message !== 'object' || message === null) return {};
  const { id } = message as { id?: unknown };
  return typeof id === 'string' ? { id } : {};
}

function seconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}
