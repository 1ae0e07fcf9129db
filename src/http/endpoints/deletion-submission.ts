// The routes for submitting deletions: with a token, or on ADMIN_PORT by a person who may delete users of the account.

import { refusalOf, rightsElsewhere } from '../../admin/access.js';
import { checkOpenCase } from '../../admin/cases.js';
import { AdministrationError } from '../../contract/errors.js';
import { bodies, counts } from '../../contract/limits.js';
import { deletionProposedSchema, deletionSubmittedSchema } from '../../contract/privacy-answers.js';
import { deletionSchema } from '../../contract/schemas.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import { deletionTag } from '../openapi/deletion.js';
import { answered, ignoredHeader, inPath, json, operation, ref } from '../openapi/document.js';
import { bodyGuard } from '../protocol/body.js';
import type { Route } from '../protocol/server.js';
import { acceptSubmission, type Submitter } from './accept-deletion.js';
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
  type UserRequestOptions,
  userListGuard,
  type WithUsers,
} from './token-caller.js';

export const submissions: WithUsers = {
  bytesMax: bodies.deletionBytesMax,
  list: { field: 'users', recordsMax: counts.deletionTargetsMax },
  schema: deletionSchema,
};

/** For callers with a token. */
export function deletionSubmissionRoute(options: UserRequestOptions): Route {
  return {
    method: 'post',
    path: `${publicApi}/user_deletion`,
    handle: (exchange) =>
      readFromCaller(exchange, options, submissions, (caller, document) =>
        acceptSubmission(options, exchange, caller, document),
      ),
    doc: operation(
      {
        id: 'submitDeletion',
        tag: deletionTag,
        summary: 'Delete users',
        description:
          'Unknown and repeated users are allowed. A deleted user who sends data again is a new user. With a reference, a request whose answer was lost can be sent again without being carried out twice. With `suppress` the users are suppressed first, so they may be suppressed although the deletion is refused (409, 429 or 503). It is refused with 503 while records that were accepted before are not stored yet, since those may merge the users with others. With `dry_run` nobody is suppressed.',
        body: json(ref('Deletion')),
        answers: {
          201: answered('Accepted; ask for its status.', 'DeletionSubmitted', ignoredHeader),
          200: answered(
            'If you submitted these users with this reference before: that request, with its current status. With dry_run: what would be found.',
            { anyOf: [ref('DeletionSubmitted'), ref('DeletionPreview')] },
            ignoredHeader,
          ),
        },
        refuses: refusalsOfSubmissions,
      },
      tokenGuard,
      userListGuard,
    ),
  };
}

const refusalsOfSubmissions = ['not_possible', 'reference_taken', 'unknown'] as const;

const deletionOfAccount = {
  ...deletionSchema,
  properties: {
    ...deletionSchema.properties,
    case_id: { type: 'string', description: 'The open case to which it belongs.' },
    of_users: {
      type: 'integer',
      minimum: 1,
      description:
        'The number of users of the whole list, if it is sent in several requests: whether a second person has to confirm them depends on it.',
    },
  },
};

/** The same submission on ADMIN_PORT, for callers who may delete users of the account in the path. */
export function accountDeletionRoute(options: UserRequestOptions, callers: AdminCallers): Route {
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
          201: answered('It is stored.', deletionSubmittedSchema),
          202: answered(
            'The account requires a second person, who has to submit the same list.',
            deletionProposedSchema,
          ),
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
        const whole = wholeListOf(document.value);
        if ('refused' in whole) return refuse(exchange, 'not_possible', whole.refused);
        return acceptSubmission(options, exchange, { ...submitter, ...inCase, ...whole }, document);
      });
    },
  };
}

/** The open case that a document names, if any, or the reason to refuse it. */
async function caseOf(
  options: UserRequestOptions,
  accountId: string,
  value: unknown,
): Promise<Pick<Submitter, 'caseId'> | { readonly refused: string }> {
  const { case_id: id } = (value ?? {}) as { readonly case_id?: unknown };
  if (id === undefined) return {};
  if (typeof id !== 'string') return { refused: 'case_id must be a string' };
  return checkOpenCase(options, accountId, id).then(
    () => ({ caseId: id }),
    (error: unknown) => {
      if (error instanceof AdministrationError) return { refused: error.message };
      throw error;
    },
  );
}

/** The number of users of the list of which a document is a part, if it says so, or the reason to refuse it. */
function wholeListOf(value: unknown): Pick<Submitter, 'ofUsers'> | { readonly refused: string } {
  const { of_users: users } = (value ?? {}) as { readonly of_users?: unknown };
  if (users === undefined) return {};
  const isCount = typeof users === 'number' && Number.isSafeInteger(users) && users > 0;
  return isCount ? { ofUsers: users } : { refused: 'of_users must be an integer of at least 1' };
}

async function submitterFor(
  { redis }: UserRequestOptions,
  accountId: string,
  lookup: Promise<AdminCaller | Refuse>,
): Promise<Submitter | Refuse> {
  const caller = await lookup;
  if (typeof caller === 'function') return caller;
  const refusal = refusalOf(caller.principal, rightsElsewhere.submitDeletion, accountId);
  if (refusal === 'forbidden') return (exchange) => refuse(exchange, 'forbidden');
  const { accounts, environments } = await readLoadedRegistry(redis);
  const main = [...environments.values()].find((each) => each.main && each.account_id === accountId);
  if (refusal !== undefined || main === undefined)
    return (exchange) => refuse(exchange, 'not_possible', `there is no account ${accountId}`);
  // No API key is involved; the audit log says who it was.
  const submittedBy = caller.actor.kind as Submitter['submittedBy'];
  const { confirm_from: confirmFrom } = accounts.get(accountId) ?? {};
  return {
    ...{ accountId, appId: main.app_id, keyId: '', keyCreatedAt: '', submittedBy, actor: caller.actor },
    confirmFrom: submittedBy === 'person' ? confirmFrom : undefined,
  };
}
