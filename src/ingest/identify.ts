// Identification: an anonymous user_id gets its identity. Cannot be undone, so identities under which strangers
// would be merged are refused, unless the environment allows them.

import { Compile } from 'typebox/compile';
import { tableIndex } from '../clickhouse/tables.js';
import { wouldMergeStrangers } from '../contract/identities.js';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type IdentifyInput, identifySchema } from '../contract/schemas.js';
import { invalidUserId } from './event.js';
import { explain, refuseLoneSurrogates } from './explain.js';
import { mendEvent } from './mend.js';
import type { CheckContext, Checked, RecordKind } from './record-kind.js';
import { readTimestamp, timestampAdvice } from './timestamp.js';
import { isUserId } from './user-id.js';

type CheckedIdentify = Checked & { readonly userId: string };

const validator = Compile(identifySchema);

export const identifyKind: RecordKind<CheckedIdentify> = {
  name: 'identify',
  mend: mendEvent,
  check: checkIdentify,
  encode: (appId, { identity, userId }) => ({
    table: tableIndex.user_identities,
    row: `["${appId}",${userId},${JSON.stringify(identity)},`,
    claim: undefined,
  }),
  singleLimit: undefined,
  bulk: undefined,
};

function checkIdentify(value: unknown, context: CheckContext): CheckedIdentify | Rejection {
  if (!validator.Check(value)) return explain(validator, value) ?? notAsDescribed;
  const input = value as IdentifyInput;
  if (context.surrogates) {
    const reason = refuseLoneSurrogates(input);
    if (reason !== undefined) return reason;
  }
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

const notAsDescribed = rejection('invalid_type', 'The identification is not as described.');
const mergesStrangers = rejection(
  'merges_strangers',
  'This identity is a word that many users would share; identifying by it would merge them for ever.',
  'identity',
);
