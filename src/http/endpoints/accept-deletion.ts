// What happens with a submitted list of users: a dry run, a proposal that a second person has to confirm, or a stored deletion. Each leaves
// a line in the audit log that counts the users and names none.

import { mayPersonDo, rightsElsewhere } from '../../admin/access.js';
import { StateNotLoaded } from '../../contract/errors.js';
import { limitedRetrySeconds } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import type { Document } from '../../parsing/document.js';
import { type Proposed, propose, takeProposal } from '../../privacy/deletion/proposals.js';
import { readDeletion } from '../../privacy/deletion/request.js';
import { submitDeletion } from '../../privacy/deletion/submit.js';
import {
  readSubmission,
  type Submission,
  type TargetList,
  targetsOf,
} from '../../privacy/deletion/targets.js';
import { rowsOf } from '../../privacy/deletion/view.js';
import { NotStoredYet, type SuppressOptions, suppressUsers } from '../../privacy/suppression/submit.js';
import { audited } from '../../registry/audit/audit.js';
import type { Exchange } from '../protocol/exchange.js';
import { isOwnFault } from '../protocol/failed.js';
import { type AuditedCaller, publicApi, refuse, type UserRequestOptions } from './token-caller.js';

export async function acceptSubmission(
  options: UserRequestOptions,
  exchange: Exchange,
  submitter: Submitter,
  document: Document,
): Promise<void> {
  const wanted = readSubmission(document);
  if ('code' in wanted) return exchange.refuse(wanted);
  const deployment = options.deployment();
  if (wanted.dryRun) return answerPreview(options, exchange, deployment, submitter, wanted.list);
  const second = await secondPersonFor(options, deployment, submitter, wanted);
  if (second.how === 'too_many') return refuse(exchange, 'not_possible', tooManyProposals);
  if (second.how === 'proposed') {
    const { proposal_id, users, ends_at } = second.proposal;
    const waits = { status: 'awaits_confirmation', proposal_id, users, ends_at };
    return void exchange.reply(202, JSON.stringify(waits));
  }
  const work = submitAudited(options, deployment, submitter, wanted, second);
  const undo = async () => {
    if (second.how === 'confirms') await second.putBack();
  };
  const submitted = await work.catch(async (error: unknown) => {
    await undo();
    if (error instanceof NotStoredYet) return 'not_suppressed' as const;
    throw error;
  });
  if (submitted === 'not_suppressed') return refuse(exchange, 'unknown', notSuppressed);
  const { how, requestId: id } = submitted;
  if (id === undefined) await undo();
  if (how === 'reference_taken') {
    return exchange.refuse(rejection('reference_taken', undefined, 'reference'));
  }
  if (id === undefined) {
    return refuse(
      exchange,
      'rate_limited',
      whyTooMany[how],
      limitedRetrySeconds[how === 'erased_lately' ? 'eraseNow' : 'pendingDeletions'],
    );
  }
  const known = how === 'known' ? await readDeletion(options.redis, id) : undefined;
  const body = {
    deletion_request_location: `${options.publicBaseUrl}${publicApi}/deletion_status/${id}`,
    deletion_request_id: id,
    status: known?.status ?? 'pending',
  };
  exchange.reply(how === 'stored' ? 201 : 200, JSON.stringify(body));
}

const tooManyProposals =
  'too many deletions of this account are waiting for a second person: withdraw one first';

/** Finds out whether a second person has to confirm a deletion, or is confirming it now. A new proposal leaves a line in the audit log. */
async function secondPersonFor(
  { audit, redis }: UserRequestOptions,
  { secret }: SuppressOptions,
  { accountId, appId, actor, caseId, confirmFrom, ofUsers = 0 }: Submitter,
  wanted: Submission,
): Promise<Proposed | { readonly how: 'needs_nobody' }> {
  const users = targetsOf(wanted.list).length;
  if (confirmFrom === undefined || Math.max(users, ofUsers) < confirmFrom) return { how: 'needs_nobody' };
  const mayStill = (email: string) => mayPersonDo(redis, email, rightsElsewhere.submitDeletion, accountId);
  const by = { redis, secret, accountId, by: actor.name, caseId, mayStill };
  const ofOther = await takeProposal(by, wanted);
  if (ofOther !== undefined) return ofOther;
  return audited(
    audit,
    actor,
    {
      action: 'propose_deletion',
      account_id: accountId,
      app_id: appId,
      details: { users, case_id: caseId },
    },
    () => propose(by, wanted),
    {
      endingOf: ({ how }) => ({ outcome: how === 'too_many' ? 'refused' : 'done' }),
      outcomeOfError: () => 'refused',
    },
  );
}

const whyTooMany = {
  too_many: 'The account has too many pending deletion requests.',
  too_heavy:
    'The pending deletion requests of the account already name the maximum number of users: submit this one when some are complete.',
  erased_lately: 'The account has asked for rows to be erased at once within the last hour.',
  full: 'The pending deletion requests of all accounts already name the maximum number of users: submit this one when some are complete.',
};

const notSuppressed =
  'No deletion was stored. The named users are suppressed, but perhaps not those merged with them: records that were accepted before are not stored yet. Send the request again, or send it without suppress.';

/** Stores a request, with a line in the audit log that counts the users and names none. */
function submitAudited(
  { audit }: UserRequestOptions,
  deployment: SuppressOptions,
  { actor, caseId: ownCase, confirmFrom: _, ofUsers: __, ...caller }: Submitter,
  asked: Submission,
  second: Awaited<ReturnType<typeof secondPersonFor>>,
): ReturnType<typeof submitDeletion> {
  const proposal = second.how === 'confirms' ? second.proposal : undefined;
  const wanted = { ...asked, reference: asked.reference ?? proposal?.reference };
  const caseId = ownCase ?? proposal?.case_id;
  const { accountId: account_id, appId: app_id } = caller;
  const targets = targetsOf(wanted.list);
  return audited(
    audit,
    actor,
    {
      action: 'submit_deletion',
      account_id,
      app_id,
      details: {
        users: targets.length,
        ...(wanted.suppress ? { suppress: true } : {}),
        ...(wanted.eraseNow ? { erase: 'now' } : {}),
        case_id: caseId,
        proposed_by: proposal?.proposed_by,
      },
    },
    async () => {
      // First, so that no record of the users is accepted between the deletion's fence and the suppression.
      if (wanted.suppress) await suppressUsers(deployment, account_id, targets);
      return submitDeletion(deployment, caller, wanted);
    },
    {
      endingOf: (submitted) =>
        submitted.requestId !== undefined
          ? { outcome: 'done', deletion_request_id: submitted.requestId }
          : { outcome: 'refused' },
    },
  );
}

/** Answers with what a deletion would find. It reveals which users have rows, so it leaves a line in the audit log. */
async function answerPreview(
  { audit, previews, log }: UserRequestOptions,
  exchange: Exchange,
  deployment: SuppressOptions,
  { accountId, appId, actor, caseId }: Submitter,
  list: TargetList,
): Promise<void> {
  const targets = targetsOf(list);
  const find = () =>
    previews.preview(deployment, accountId, targets).catch((error: unknown) => {
      if (error instanceof StateNotLoaded || isOwnFault(error)) throw error;
      log.warn({ error }, 'the preview of a deletion failed');
      return 'failed' as const;
    });
  const preview = await audited(
    audit,
    actor,
    {
      action: 'preview_deletion',
      account_id: accountId,
      app_id: appId,
      details: { users: targets.length, case_id: caseId },
    },
    find,
    {
      endingOf: (found) =>
        typeof found === 'string'
          ? { outcome: 'refused' }
          : { outcome: 'done', details: { users_found: found.usersFound } },
      outcomeOfError: () => 'refused',
    },
  );
  if (typeof preview === 'string') return refuse(exchange, 'overloaded', whyNoPreview[preview]);
  const { found, usersFound, unclear } = preview;
  const positions = new Map(list.map((target, position) => [target, position]));
  const listed = unclear.map(({ target, rows, similar }) => ({
    place: positions.get(target) ?? 0,
    found: rows !== '0',
    rows: Number(rows),
    similar,
  }));
  const body = {
    dry_run: true,
    users: targets.length,
    users_found: usersFound,
    rows: rowsOf(found),
    found,
    unclear: listed.sort((a, b) => a.place - b.place),
  };
  exchange.reply(200, JSON.stringify(body));
}

const whyNoPreview = {
  busy: 'Nothing was stored: too many dry runs at once.',
  too_long: 'Nothing was stored: the look-up took too long. Name fewer users, or submit the deletion.',
  failed: 'Nothing was stored: the users could not be looked up.',
};

export type Submitter = AuditedCaller & {
  readonly caseId?: string;
  /** For a person: from how many users on a second person has to confirm. */
  readonly confirmFrom?: number;
  /** How many users the list has of which the submission is a part. */
  readonly ofUsers?: number;
};
