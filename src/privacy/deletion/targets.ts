// Reads a submission: the users to delete, checked and without repeats, and the caller's reference.

import { userWeight } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import {
  type DeletionInput,
  deletionSchema,
  type LookupInput,
  lookupSchema,
} from '../../contract/schemas.js';
import { Compile } from '../../contract/typebox.js';
import { isUserId, userIdOfAnonymousId } from '../../contract/user-id.js';
import type { Document } from '../../parsing/document.js';
import { explain, refuseLoneSurrogates, type Validator } from '../../parsing/explain.js';

/** `i` followed by an identity, or `u` followed by a user_id in decimal digits. */
export type Target = `i${string}` | `u${string}`;

/** The users in the order of the list. A repeated user leaves an empty place, so that the others keep their positions. */
export type TargetList = readonly (Target | '')[];

export type Submission = {
  readonly list: TargetList;
  readonly reference: string | undefined;
  /** Only asks what a deletion would find. */
  readonly dryRun: boolean;
  /** Also suppresses the users. */
  readonly suppress: boolean;
  /** Erases their rows at once. */
  readonly eraseNow: boolean;
};

type User = DeletionInput['users'][number];

const oneOfThem = 'Exactly one of identity, user_id and anonymous_id must be given.';
const validator = Compile(deletionSchema);
const lookupValidator = Compile(lookupSchema);

export function readSubmission(document: Document): Submission | Rejection {
  const targets = readUsers(validator, document);
  if ('code' in targets) return targets;
  const { reference, erase, dry_run: dryRun = false, suppress = false } = document.value as DeletionInput;
  if (document.surrogates && reference !== undefined) {
    const unreadable = refuseLoneSurrogates({ reference });
    if (unreadable !== undefined) return unreadable;
  }
  const named = new Set<Target>();
  const list = targets.map((target) => {
    if (named.has(target)) return '';
    named.add(target);
    return target;
  });
  return { list, reference, dryRun, suppress, eraseNow: erase === 'now' };
}

/** The users that a look-up's document names, in its order and with repeats, or the reason to refuse it. */
export function readLookup(document: Document): Target[] | Rejection {
  return readUsers(lookupValidator, document);
}

/** The users of a document, in its order and with repeats, or the reason why the schema refuses it. */
export function readUsers(schema: Validator, document: Document): Target[] | Rejection {
  const reason = explain(schema, document.value);
  if (reason !== undefined) return reason;
  const { users } = document.value as LookupInput;
  if (document.surrogates) {
    const unreadable = refuseLoneSurrogates({ users });
    if (unreadable !== undefined) return unreadable;
  }
  const targets: Target[] = [];
  for (const [index, user] of users.entries()) {
    const target = targetOf(user, `users.${index}`);
    if (typeof target !== 'string') return target;
    targets.push(target);
  }
  return targets;
}

function targetOf(user: User, field: string): Target | Rejection {
  const { identity, user_id: userId, anonymous_id: anonymousId } = user;
  const given = [identity, userId, anonymousId].filter((name) => name !== undefined).length;
  if (given !== 1) return rejection(given === 0 ? 'missing_user' : 'ambiguous_user', oneOfThem, field);
  if (identity !== undefined) return `i${identity}`;
  if (anonymousId !== undefined) return `u${userIdOfAnonymousId(anonymousId)}`;
  const text = Object.is(userId, -0) ? '-0' : String(userId);
  if (isUserId(text)) return `u${text}`;
  return rejection('invalid_user_id', 'user_id must be an integer from 0 to 2^53 - 1.', `${field}.user_id`);
}

/** The columns of a row that names a target; exactly one of them is set. */
export function columnsOfTarget(target: Target): {
  readonly identity: string;
  readonly user_id: string | null;
} {
  const name = target.slice(1);
  return target.startsWith('i') ? { identity: name, user_id: null } : { identity: '', user_id: name };
}

/** The target that a row names. */
export function targetOfColumns(identity: string, userId: string | null): Target {
  return userId === null ? `i${identity}` : `u${userId}`;
}

/** The weight of a list of users, which counts towards the account's limits. `text`: the list as stored in Redis. */
export function weightOfList(text: string, users: number): number {
  return Buffer.byteLength(text) + userWeight * users;
}

/** The distinct users of a list. */
export function targetsOf(list: TargetList): Target[] {
  return list.filter((target) => target !== '');
}
