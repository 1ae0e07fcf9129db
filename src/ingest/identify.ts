// Identification: an anonymous user_id gets its identity. It cannot be undone, so an identity that would merge strangers is refused
// unless the environment allows it.

import { wouldMergeStrangers } from '../contract/identities.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type IdentifyInput, identifySchema, tables } from '../contract/records.js';
import { Compile } from '../contract/typebox.js';
import { isUserId } from '../contract/user-id.js';
import { explain } from '../parsing/explain.js';
import { invalidUserId } from './event.js';
import { noEventId } from './event-id.js';
import { fieldNames } from './ignored-fields.js';
import { mendEvent } from './mend.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';
import { rowEncoder } from './row.js';
import { readTimestamp, timestampAdvice } from './timestamp.js';

type CheckedIdentify = Checked & {
  readonly userId: string;
  /** For a message of the client library or of Segment's protocol: the event id of its idempotency key. */
  readonly claim?: string | undefined;
};

const validator = Compile(identifySchema);
const table = tables.indexOf('user_identities');
const encodeRow = rowEncoder('user_identities');

export const identifyKind: RecordKind<CheckedIdentify> = {
  name: 'identify',
  fields: fieldNames(identifySchema),
  mend: mendEvent,
  check: checkIdentify,
  encode: (appId, { identity, userId, claim }) => ({
    table,
    row: encodeRow(appId, { user_id: userId, identity }, false, claim ?? noEventId),
    claim,
  }),
  singleLimit: undefined,
  bulk: undefined,
};

function checkIdentify(value: unknown, context: CheckContext): CheckedIdentify | Rejection {
  const reason = explain(validator, value, context.surrogates);
  if (reason !== undefined) return reason;
  const input = value as IdentifyInput;
  if (!isUserId(input.user_id)) return invalidUserId;
  const stranger = refuseStrangers(input.identity, context.allowedIdentities);
  if (stranger !== undefined) return stranger;
  if (input.timestamp !== undefined) {
    const result = readTimestamp(input.timestamp, context.nowMs);
    if ('refused' in result) return rejection(result.refused, timestampAdvice, 'timestamp');
  }
  return { identity: input.identity, userId: input.user_id };
}

/** Refuses an identity that many users would share, unless the environment allows it. */
export function refuseStrangers(identity: string, allowed: ReadonlySet<string>): Rejection | undefined {
  return wouldMergeStrangers(identity) && !allowed.has(identity) ? mergesStrangers : undefined;
}

const mergesStrangers = rejection(
  'merges_strangers',
  'This identity is a word that many users would share; identifying by it would merge them forever.',
  'identity',
);
