// What callers send about suppressions: a list of users with a wish, or the name of one user in a query.

import { type Rejection, rejection } from '../contract/outcomes.js';
import { suppressionSchema } from '../contract/schemas.js';
import { Compile, Type } from '../contract/typebox.js';
import { readSubmission, type Target, targetsOf } from '../deletion/targets.js';
import { type Document, parseDocument } from '../ingest/document.js';
import { explain } from '../ingest/explain.js';
import type { User } from './names.js';
import { userOf } from './submit.js';

export type SuppressionWish = { readonly targets: readonly Target[]; readonly suppress: boolean };

const validator = Compile(Type.Object({ suppress: suppressionSchema.properties.suppress }));

/** The distinct users of a submission's document, and whether they are to be suppressed; or the reason to refuse it. */
export function readWish(document: Document): SuppressionWish | Rejection {
  const submission = readSubmission(document);
  if ('code' in submission) return submission;
  const reason = explain(validator, document.value);
  if (reason !== undefined) return reason;
  return {
    targets: targetsOf(submission.list),
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
  // As in a list of users.
  const document = parseDocument(Buffer.from(JSON.stringify({ users: [{ [name]: value }] })));
  const submission = 'code' in document ? document : readSubmission(document);
  return 'code' in submission
    ? { ...submission, field: name }
    : userOf(targetsOf(submission.list)[0] as Target);
}
