// The targets of a deletion request: who is to be deleted, checked and without repeats.

import { Compile } from 'typebox/compile';
import { type Rejection, rejection } from '../contract/outcomes.js';
import { type DeletionInput, deletionSchema } from '../contract/schemas.js';
import type { Document } from '../ingest/document.js';
import { explain, refuseLoneSurrogates } from '../ingest/explain.js';
import { isUserId } from '../ingest/user-id.js';

/** `i` and an identity, or `u` and a user_id in decimal digits. */
export type Target = `i${string}` | `u${string}`;

const validator = Compile(deletionSchema);

/** The distinct targets of a submission's document, or why it is refused. */
export function readTargets(document: Document): Target[] | Rejection {
  const reason = explain(validator, document.value);
  if (reason !== undefined) return reason;
  const { users } = document.value as DeletionInput;
  if (document.surrogates) {
    const unreadable = refuseLoneSurrogates({ users });
    if (unreadable !== undefined) return unreadable;
  }
  const targets = new Set<Target>();
  for (let index = 0; index < users.length; index++) {
    const { identity, user_id: userId } = users[index] as DeletionInput['users'][number];
    const field = `users.${index}`;
    if (identity === undefined && userId === undefined) {
      return rejection('missing_user', 'Exactly one of identity and user_id must be given.', field);
    }
    if (identity !== undefined && userId !== undefined) {
      return rejection('ambiguous_user', 'identity and user_id must not both be given.', field);
    }
    if (identity !== undefined) {
      targets.add(`i${identity}`);
      continue;
    }
    const text = Object.is(userId, -0) ? '-0' : String(userId);
    if (!isUserId(text)) {
      return rejection(
        'invalid_user_id',
        'user_id must be an integer from 0 to 2^53 - 1.',
        `${field}.user_id`,
      );
    }
    targets.add(`u${text}`);
  }
  return [...targets];
}
