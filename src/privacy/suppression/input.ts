// What callers send about suppressions: a list of users with a wish, or the name of one user in a query.

import { type Rejection, rejection } from '../../contract/outcomes.js';
import { suppressionSchema } from '../../contract/schemas.js';
import { Compile } from '../../contract/typebox.js';
import { type Document, parseDocument } from '../../parsing/document.js';
import { readLookup, readUsers, type Target } from '../deletion/targets.js';
import type { User } from './names.js';
import { userOf } from './submit.js';

export type SuppressionWish = { readonly targets: readonly Target[]; readonly suppress: boolean };

const validator = Compile(suppressionSchema);

/** The distinct users of a submission's document, and whether they are to be suppressed; or the reason to refuse it. */
export function readWish(document: Document): SuppressionWish | Rejection {
  const targets = readUsers(validator, document);
  if ('code' in targets) return targets;
  return {
    targets: [...new Set(targets)],
    suppress: (document.value as { suppress: boolean }).suppress,
  };
}

const names = ['identity', 'user_id', 'anonymous_id'] as const;

/** The user that a query names; `none` if it names none, or the reason to refuse it. */
export function readUser(parameters: URLSearchParams): User | 'none' | Rejection {
  const given = names.filter((name) => parameters.has(name));
  const [name] = given;
  if (name === undefined) return 'none';
  if (given.length > 1 || parameters.getAll(name).length > 1)
    return rejection(
      'ambiguous_user',
      'At most one of identity, user_id and anonymous_id may be given.',
      name,
    );
  const value = parameters.get(name) ?? '';
  // The same schema as for a list of users checks it.
  const document = parseDocument(Buffer.from(JSON.stringify({ users: [{ [name]: value }] })));
  const targets = 'code' in document ? document : readLookup(document);
  if (!('code' in targets)) return userOf(targets[0] as Target);
  return rejection(targets.code, targets.message.replace('users.0.', ''), name);
}
