// The users that a request for an export names, checked and without repeats.

import type { Rejection } from '../contract/outcomes.js';
import { type ExportInput, exportSchema } from '../contract/schemas.js';
import { Compile } from '../contract/typebox.js';
import { type Target, targetOf } from '../deletion/targets.js';
import type { Document } from '../ingest/document.js';
import { explain, refuseLoneSurrogates } from '../ingest/explain.js';

const validator = Compile(exportSchema);

/** The different users of a request's document, or the reason to refuse it. */
export function readExportTargets(document: Document): readonly Target[] | Rejection {
  const reason = explain(validator, document.value);
  if (reason !== undefined) return reason;
  const { users } = document.value as ExportInput;
  if (document.surrogates) {
    const unreadable = refuseLoneSurrogates({ users });
    if (unreadable !== undefined) return unreadable;
  }
  const targets = new Set<Target>();
  for (const [index, user] of users.entries()) {
    const target = targetOf(user, `users.${index}`);
    if (typeof target !== 'string') return target;
    targets.add(target);
  }
  return [...targets];
}
