// Submissions of deletions: with a token, or on ADMIN_PORT by a person who may delete users of the account. A dry run only says what a
// deletion would find.

import type { Caller } from '../../accounts/tokens.js';
import { mayPersonDo, refusalOf, rightsElsewhere } from '../../admin/access.js';
import { checkOpenCase } from '../../admin/cases.js';
import { deletionProposedSchema, deletionSubmittedSchema } from '../../contract/answers.js';
import { AdministrationError, StateNotLoaded } from '../../contract/errors.js';
import { bodies, counts, limitedRetrySeconds } from '../../contract/limits.js';
import { outcomes, rejection } from '../../contract/outcomes.js';
import { deletionSchema } from '../../contract/schemas.js';
import { describeError, type Log } from '../../log.js';
import type { Document } from '../../parsing/document.js';
import type { Previews } from '../../privacy/deletion/preview.js';
import { type Proposed, propose, takeProposal } from '../../privacy/deletion/proposals.js';
import { readDeletion } from '../../privacy/deletion/request.js';
import { type SubmitOptions, submitDeletion } from '../../privacy/deletion/submit.js';
import {
  readSubmission,
  type Submission,
  type TargetList,
  targetsOf,
} from '../../privacy/deletion/targets.js';
import { rowsOf } from '../../privacy/deletion/view.js';
import { NotStoredYet, type SuppressOptions, suppressUsers } from '../../privacy/suppression/submit.js';
import { type Actor, type AuditOptions, audited } from '../../registry/audit/audit.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import { deletionTag } from '../openapi/deletion.js';
import { ignoredHeader, inPath, json, operation, ref } from '../openapi/document.js';
import { bodyGuard } from '../protocol/body.js';
import type { Exchange } from '../protocol/exchange.js';
import { isOwnFault } from '../protocol/fault.js';
import type { Route } from '../protocol/server.js';
import {
  type AdminCaller,
  type AdminCallers,
  adminGuard,
  adminTag,
  type Refuse,
  refuseUnread,
  rolesText,
} from './admin-caller.js';
import {
  publicApi,
  readDocument,
  readFromCaller,
  refuse,
  tokenGuard,
  userListGuard,
  type WithUsers,
} from './token-caller.js';

export type SubmissionOptions = {
  /** Undefined until the deployment was read from Redis. */
  readonly submission: () => SubmitOptions | undefined;
  /** The same, for submissions that suppress too. */
  readonly suppression: () => SuppressOptions | undefined;
  readonly previews: Previews;
  readonly audit: AuditOptions;
  readonly redis: SubmitOptions['redis'];
  readonly publicBaseUrl: string;
  readonly log: Log;
};

export const submissions: WithUsers = {
  bytesMax: bodies.deletionBytesMax,
  list: { field: 'users', recordsMax: counts.deletionTargetsMax },
  schema: deletionSchema,
};

/** For callers with a token. */
export function deletionSubmissionRoute(options: SubmissionOptions): Route {
  return {
    method: 'post',
    path: `${publicApi}/user_deletion`,
    handle: (exchange) => submit(options, exchange),
    doc: operation(
      {
        id: 'submitDeletion',
        tag: deletionTag,
        summary: 'Delete users',
        description:
          'Unknown and repeated users are allowed. A deleted user who sends data again is a new user. With a reference, a request whose answer was lost can be sent again without being carried out twice. With `suppress` the users are suppressed first, so they may be suppressed although the deletion is refused (409, 429 or 503). It is refused with 503 while records that were accepted before are not stored yet, since those may merge the users with others. With `dry_run` nobody is suppressed.',
        body: json(ref('Deletion')),
        answers: {
          201: {
            description: 'Accepted; ask for its status.',
            headers: ignoredHeader,
            content: json(ref('DeletionSubmitted')),
          },
          200: {
            description:
              'If you submitted these users with this reference before: that request, with its current status. With dry_run: what would be found.',
            headers: ignoredHeader,
            content: json({ anyOf: [ref('DeletionSubmitted'), ref('DeletionPreview')] }),
          },
        },
        refuses: refusalsOfSubmissions,
      },
      tokenGuard,
      userListGuard,
    ),
  };
}

const refusalsOfSubmissions = ['not_possible', 'reference_taken', 'unknown'] as const;

function submit(options: SubmissionOptions, exchange: Exchange): void {
  // If the caller has gone meanwhile, the request can no longer be read.
  const { address } = exchange;
  readFromCaller(exchange, options, submissions, (caller, document) =>
    acceptSubmission(options, exchange, { ...caller, actor: actorOf(caller, address) }, document),
  );
}

/** A caller, with the name that the audit log gives the submission. */
type Submitter = Caller & {
  readonly actor: Actor;
  /** The case to which it belongs. */
  readonly caseId?: string;
  /** For a person: the number of users from which a second person has to confirm it. */
  readonly confirmFrom?: number;
};

function actorOf({ keyId }: Caller, address: string): Actor {
  return { kind: 'api_key', name: keyId, address };
}

const deletionOfAccount = {
  ...deletionSchema,
  properties: {
    ...deletionSchema.properties,
    case_id: { type: 'string', description: 'The open case to which it belongs.' },
  },
};

/** The same submission on ADMIN_PORT, for callers who may delete users of the account in the path. */
export function accountDeletionRoute(options: SubmissionOptions, callers: AdminCallers): Route {
  return {
    method: 'post',
    path: '/admin/v1/accounts/:account_id/user_deletion',
    doc: operation(
      {
        id: 'submitDeletionOfAccount',
        tag: adminTag,
        summary: 'Submit a deletion',
        description: `As in the deletion API, without an API key. ${rolesText(rightsElsewhere.submitDeletion)}`,
        parameters: [inPath('account_id')],
        body: json(deletionOfAccount),
        answers: {
          201: { description: 'It is stored.', content: json(deletionSubmittedSchema) },
          202: {
            description: 'The account requires a second person, who has to submit the same list.',
            content: json(deletionProposedSchema),
          },
        },
        refuses: ['rate_limited', ...refusalsOfSubmissions],
      },
      adminGuard,
      bodyGuard,
    ),
    handle: (exchange, req) => {
      const accountId = req.getParameter(0) ?? '';
      const found = callers.find(exchange, req);
      if ('refused' in found) return refuseUnread(exchange, found.refused);
      const lookup = submitterFor(options, accountId, found.caller);
      const asked: WithUsers = { ...submissions, schema: deletionOfAccount };
      readDocument(exchange, options, asked, lookup, async (submitter, document) => {
        const inCase = await caseOf(options, accountId, document.value);
        if ('refused' in inCase) return refuse(exchange, 'not_possible', inCase.refused);
        return acceptSubmission(options, exchange, { ...submitter, ...inCase }, document);
      });
    },
  };
}

/** The open case that a document names, if it names one, or why nothing may be done in it. */
async function caseOf(
  { redis, audit }: SubmissionOptions,
  accountId: string,
  value: unknown,
): Promise<Pick<Submitter, 'caseId'> | { readonly refused: string }> {
  const { case_id: id } = (value ?? {}) as { readonly case_id?: unknown };
  if (id === undefined) return {};
  if (typeof id !== 'string') return { refused: 'case_id must be a string' };
  return checkOpenCase({ redis, clickhouse: audit.clickhouse }, accountId, id).then(
    () => ({ caseId: id }),
    (error: unknown) => {
      if (error instanceof AdministrationError) return { refused: error.message };
      throw error;
    },
  );
}

async function submitterFor(
  { redis }: SubmissionOptions,
  accountId: string,
  lookup: Promise<AdminCaller | Refuse>,
): Promise<Submitter | Refuse> {
  const caller = await lookup;
  if (typeof caller === 'function') return caller;
  const refusal = refusalOf(caller.principal, rightsElsewhere.submitDeletion, accountId);
  if (refusal === 'forbidden') return (exchange) => refuse(exchange, 'forbidden', outcomes.forbidden.meaning);
  const { accounts, environments } = await readLoadedRegistry(redis);
  const main = [...environments.values()].find((each) => each.main && each.account_id === accountId);
  if (refusal !== undefined || main === undefined)
    return (exchange) => refuse(exchange, 'not_possible', `there is no account ${accountId}`);
  // No key is involved; the audit log says who it was.
  const submittedBy = caller.actor.kind as Submitter['submittedBy'];
  const { confirm_from: confirmFrom } = accounts.get(accountId) ?? {};
  return {
    ...{ accountId, appId: main.app_id, keyId: '', keyCreatedAt: '', submittedBy, actor: caller.actor },
    ...(submittedBy === 'person' && confirmFrom !== undefined ? { confirmFrom } : {}),
  };
}

async function acceptSubmission(
  options: SubmissionOptions,
  exchange: Exchange,
  submitter: Submitter,
  document: Document,
): Promise<void> {
  const wanted = readSubmission(document);
  if ('code' in wanted) return exchange.refuse(wanted);
  const submission = options.submission();
  const suppression = options.suppression();
  if (submission === undefined || suppression === undefined) throw new StateNotLoaded();
  if (wanted.dryRun) return answerPreview(options, exchange, submission, submitter, wanted.list);
  const second = await secondPersonFor(options, submission, submitter, wanted);
  if (second.how === 'too_many') return refuse(exchange, 'not_possible', tooManyProposals);
  if (second.how === 'proposed') {
    const { proposal_id, users, ends_at } = second.proposal;
    const waits = { status: 'awaits_confirmation', proposal_id, users, ends_at };
    return void exchange.reply(202, JSON.stringify(waits));
  }
  const work = submitAudited(options, { submission, suppression }, submitter, wanted, second);
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
    return exchange.refuse(rejection('reference_taken', outcomes.reference_taken.meaning, 'reference'));
  }
  if (id === undefined) {
    return refuse(exchange, 'rate_limited', whyTooMany[how], [
      ['Retry-After', String(limitedRetrySeconds[how === 'erased_lately' ? 'eraseNow' : 'pendingDeletions'])],
    ]);
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

/** Whether a second person has to confirm a deletion, or is confirming it now. A proposal leaves a line in the audit log. */
async function secondPersonFor(
  { audit, redis }: SubmissionOptions,
  { secret }: SubmitOptions,
  { accountId, appId, actor, caseId, confirmFrom }: Submitter,
  wanted: Submission,
): Promise<Proposed | { readonly how: 'needs_nobody' }> {
  const users = targetsOf(wanted.list).length;
  if (confirmFrom === undefined || users < confirmFrom) return { how: 'needs_nobody' };
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
      details: { users, ...inDetails(caseId) },
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
    'The pending deletion requests of the account already name the maximum number of users: submit it again when some are complete.',
  erased_lately: 'The account has asked for rows to be erased at once within the last hour.',
  full: 'The pending deletion requests of all accounts already name the maximum number of users: submit it again when some are complete.',
};

const notSuppressed =
  'No deletion was stored. The named users are suppressed, but perhaps not those merged with them: records that were accepted before are not stored yet. Send the request again, or send it without suppress.';

/** Answers with what a deletion would find. It reveals which users have rows, so it leaves a line in the audit log. */
async function answerPreview(
  { audit, previews, log }: SubmissionOptions,
  exchange: Exchange,
  submission: SubmitOptions,
  { accountId, appId, actor, caseId }: Submitter,
  list: TargetList,
): Promise<void> {
  const targets = targetsOf(list);
  const find = () =>
    previews.preview(submission, accountId, targets).catch((error: unknown) => {
      if (error instanceof StateNotLoaded || isOwnFault(error)) throw error;
      log.warn({ error: describeError(error) }, 'the preview of a deletion failed');
      return 'failed' as const;
    });
  const preview = await audited(
    audit,
    actor,
    {
      action: 'preview_deletion',
      account_id: accountId,
      app_id: appId,
      details: { users: targets.length, ...inDetails(caseId) },
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

function inDetails(caseId: string | undefined) {
  return caseId === undefined ? {} : { case_id: caseId };
}

const whyNoPreview = {
  busy: 'Nothing was stored: too many dry runs at once.',
  too_long: 'Nothing was stored: the look-up took too long. Name fewer users, or submit the deletion.',
  failed: 'Nothing was stored: the users could not be looked up.',
};

/** Stores a request, with a line in the audit log that counts the users and names none. */
function submitAudited(
  { audit }: SubmissionOptions,
  { submission, suppression }: { readonly submission: SubmitOptions; readonly suppression: SuppressOptions },
  { actor, caseId: ownCase, confirmFrom: _, ...caller }: Submitter,
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
        ...inDetails(caseId),
        ...(proposal === undefined ? {} : { proposed_by: proposal.proposed_by }),
      },
    },
    async () => {
      // First, so that nothing is accepted between the deletion's fence and the suppression.
      if (wanted.suppress) await suppressUsers(suppression, account_id, targets);
      return submitDeletion(submission, caller, wanted);
    },
    {
      endingOf: (submitted) =>
        submitted.requestId !== undefined
          ? { outcome: 'done', deletion_request_id: submitted.requestId }
          : { outcome: 'refused' },
      outcomeOfError: (error) => (error instanceof StateNotLoaded ? 'refused' : 'unknown'),
    },
  );
}
