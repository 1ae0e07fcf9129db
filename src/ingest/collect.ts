// A request of the client library: its messages to groups for one commit, in their order, and what became of
// the groups back to an answer a message. Messages without a limit share groups; each that counts against one
// has its own, so that it can be limited alone. Pure.

import { Compile } from 'typebox/compile';
import type { LiveEnvironment } from '../accounts/environments.js';
import type { MessageAnswer } from '../contract/answers.js';
import { flattened } from '../contract/limits.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type CollectInput, collectSchema } from '../contract/schemas.js';
import type { CommitResult } from './commit.js';
import type { Document } from './document.js';
import { explain } from './explain.js';
import type { LimitKeys } from './limit-key.js';
import { type Mending, mendTimestamp } from './mend.js';
import { type CheckedMessage, checkMessage } from './message.js';
import { encodedRecords, type Group, type IngestRecord, packedBytesMax } from './pack.js';
import type { ElementError } from './prepare.js';
import { readInstant } from './timestamp.js';

/** What the Event Visualizer is told of a request that carried a pairing. */
export type Collected = {
  readonly appId: string;
  /** As the request has it; nobody has looked whether it exists. */
  readonly pairing: string;
  /** As they were sent. Each may be anything that JSON can say. */
  readonly messages: readonly unknown[];
  /** One a message, in their order. */
  readonly answers: readonly MessageAnswer[];
};

/**
 * Called once with each request that carries a pairing and is answered 200, before the answer is sent. Answers
 * whether the pairing lives. The request waits for a promise; one that fails counts as a living pairing.
 */
export type OnCollected = (collected: Collected) => boolean | Promise<boolean>;

export type CollectContext = {
  readonly environment: LiveEnvironment;
  readonly limitKeys: LimitKeys;
  /** When the request was received, by this process's clock. */
  readonly receivedMs: number;
};

export type PreparedMessages = {
  /** To be submitted together; empty when every message is rejected. */
  readonly groups: readonly Group[];
  readonly messages: readonly unknown[];
  /** The rejected messages, by their index, ascending. */
  readonly errors: readonly ElementError[];
  readonly mendings: ReadonlyMap<Mending, number>;
};

const validator = Compile(collectSchema);
/** Of the limit: every endpoint has its own counters. */
const counter = 'collect user_properties';

/** Prepares a request, whose document is an object with the app_id of the environment. */
export function prepareMessages(document: Document, context: CollectContext): PreparedMessages | Rejection {
  const { environment, receivedMs } = context;
  const mendings = new Map<Mending, number>();
  const note = (mending: Mending) => mendings.set(mending, (mendings.get(mending) ?? 0) + 1);
  const value = environment.lenient ? mendRequest(document.value as object, note) : document.value;
  const reason = explain(validator, value);
  if (reason !== undefined) return reason;
  const { sent_at: sentAt, messages } = value as CollectInput;
  const sentMs = readInstant(sentAt);
  if (sentMs === undefined) return badSentAt;

  const checks = {
    appId: environment.appId,
    lenient: environment.lenient,
    surrogates: document.surrogates,
    allowedIdentities: environment.allowedIdentities,
    sentMs,
    receivedMs,
  };
  const { longNumerals } = document;
  const mending = { note, longNumerals, flattenedBytesLeft: flattened.collectBytesMax };
  const accepted: CheckedMessage[] = [];
  const errors: ElementError[] = [];
  for (let index = 0; index < messages.length; index++) {
    const checked = checkMessage(messages[index], checks, mending);
    if ('code' in checked) errors.push({ index, ...checked });
    else accepted.push(checked);
  }
  return { groups: groupMessages(accepted, context), messages, errors, mendings };
}

function mendRequest(value: object, note: (mending: Mending) => void): object {
  const request = value as { app_id: unknown; sent_at?: unknown };
  if (typeof request.app_id === 'number') note('numeric_app_id');
  return { ...request, sent_at: mendTimestamp(request.sent_at, note) };
}

const badSentAt = rejection(
  'invalid_timestamp',
  'sent_at must be RFC 3339 with offset and seconds, and a real date.',
  'sent_at',
);

function groupMessages(
  accepted: readonly CheckedMessage[],
  { environment, limitKeys }: CollectContext,
): Group[] {
  const limit = environment.limits.user_properties;
  const groups: Group[] = [];
  let run: IngestRecord[] = [];
  const endRun = () => {
    const records = encodedRecords(run);
    if (run.length > 0) groups.push({ limits: [], records, bytes: packedBytesMax([], records) });
    run = [];
  };
  for (const { record, user, setsUserProperties } of accepted) {
    if (!setsUserProperties || limit === undefined) {
      run.push(record);
      continue;
    }
    endRun();
    const limits = [{ digest: limitKeys.ofUser(counter, environment.appId, user), cost: 1, limit }];
    const records = encodedRecords([record]);
    groups.push({ limits, limitsPassRepeats: true, records, bytes: packedBytesMax(limits, records) });
  }
  endRun();
  return groups;
}

/** The answers of a request whose groups were all committed or limited, and how many there are of each. */
export function answerMessages(
  { groups, messages, errors }: PreparedMessages,
  results: readonly CommitResult[],
): { answers: MessageAnswer[]; stored: number; repeated: number; limited: number } {
  const answers = new Array<MessageAnswer | undefined>(messages.length);
  for (const { index, ...reason } of errors) {
    answers[index] = { ...idOf(messages[index]), status: 'rejected', ...reason };
  }

  let [repeated, limited, index] = [0, 0, 0];
  for (let i = 0; i < groups.length; i++) {
    const { length } = (groups[i] as Group).records;
    const result = results[i] as CommitResult;
    for (let j = 0; j < length; j++) {
      while (answers[index] !== undefined) index++;
      // Only a message with an id comes so far.
      const { id } = messages[index] as { id: string };
      if (result.kind === 'limited') {
        limited += 1;
        answers[index] = { id, status: 'limited', code: 'rate_limited', retry_after: seconds(result.waitMs) };
      } else {
        const repeat = result.kind === 'committed' && result.letters[j] === 'r';
        if (repeat) repeated += 1;
        answers[index] = { id, status: repeat ? 'repeat' : 'stored' };
      }
    }
  }
  const stored = messages.length - errors.length - limited - repeated;
  return { answers: answers as MessageAnswer[], stored, repeated, limited };
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
