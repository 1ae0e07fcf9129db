// Who submits a deletion, and what a submission needs.

import type { Caller } from '../../accounts/tokens.js';
import type { Log } from '../../log.js';
import type { Previews } from '../../privacy/deletion/preview.js';
import type { SubmitOptions } from '../../privacy/deletion/submit.js';
import type { SuppressOptions } from '../../privacy/suppression/submit.js';
import type { Actor, AuditOptions } from '../../registry/audit/audit.js';

export type SubmissionOptions = {
  /** Undefined until the deployment was read from Redis. */
  readonly submission: () => SubmitOptions | undefined;
  /** Like `submission`, for submissions that also suppress. */
  readonly suppression: () => SuppressOptions | undefined;
  readonly previews: Previews;
  readonly audit: AuditOptions;
  readonly redis: SubmitOptions['redis'];
  readonly publicBaseUrl: string;
  readonly log: Log;
};

/** A caller, with the name that the audit log gives the submission. */
export type Submitter = Caller & {
  readonly actor: Actor;
  readonly caseId?: string;
  /** For a person: from how many users on a second person has to confirm. */
  readonly confirmFrom?: number;
  /** How many users the list has of which the submission is a part. */
  readonly ofUsers?: number;
};

/** The case in the form that details of an audit line have. */
export function inDetails(caseId: string | undefined) {
  return caseId === undefined ? {} : { case_id: caseId };
}
