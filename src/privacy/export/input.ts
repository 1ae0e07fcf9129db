// The users that a request for an export names, checked and without repeats.

import type { Rejection } from '../../contract/outcomes.js';
import { exportSchema } from '../../contract/schemas.js';
import { Compile } from '../../contract/typebox.js';
import type { Document } from '../../parsing/document.js';
import { readUsers, type Target } from '../deletion/targets.js';

const validator = Compile(exportSchema);

/** The distinct users of a request's document, or the reason to refuse it. */
export function readExportTargets(document: Document): readonly Target[] | Rejection {
  const targets = readUsers(validator, document);
  return 'code' in targets ? targets : [...new Set(targets)];
}
