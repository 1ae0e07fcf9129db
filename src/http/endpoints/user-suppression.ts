// Suppressed users: suppressing or freeing a list, looking up whether users are suppressed, and counting those that are. Access tokens and
// 401 are those of the deletion API.

import { bodies, counts, suppressions } from '../../contract/limits.js';
import {
  suppressedSchema,
  suppressionLookupSchema,
  suppressionSchemas,
} from '../../contract/privacy-answers.js';
import { suppressionSchema, suppressionUsersSchema } from '../../contract/schemas.js';
import { readLookup } from '../../privacy/deletion/targets.js';
import {
  countSuppressed,
  lookUpSuppression,
  type SuppressionOfUser,
} from '../../privacy/suppression/look-up.js';
import { freeUsers, readUser, readWish, suppressUsers, userOf } from '../../privacy/suppression/submit.js';
import { registryKeys } from '../../redis/keys.js';
import { readOnReplicas } from '../../redis/replicas.js';
import { audited } from '../../registry/audit/audit.js';
import { appIdsOf, readRegistry } from '../../registry/registry.js';
import { answered, documents, ignoredHeader, json, type OpenApiPart, ref } from '../openapi/document.js';
import type { Exchange } from '../protocol/exchange.js';
import { readParameters } from '../protocol/query.js';
import type { Route } from '../protocol/server.js';
import {
  answerForCaller,
  publicApi,
  readFromCaller,
  refuse,
  statusRequests,
  suppressionRequests,
  tokenGuard,
  tooManyQueries,
  type UserRequestOptions,
  userListGuard,
  userRefusals,
  type WithUsers,
} from './token-caller.js';

const path = `${publicApi}/user_suppression`;
const wishes: WithUsers = {
  bytesMax: bodies.deletionBytesMax,
  list: { field: 'users', recordsMax: counts.deletionTargetsMax },
  schema: suppressionSchema,
};

const lookups: WithUsers = {
  bytesMax: bodies.lookupBytesMax,
  list: { field: 'users', recordsMax: counts.lookupUsersMax },
  schema: suppressionUsersSchema,
};

export function suppressionRoutes(options: UserRequestOptions): Route[] {
  const { redis } = options;

  function submit(exchange: Exchange): void {
    const asked = { ...options, limit: suppressionRequests };
    readFromCaller(exchange, asked, wishes, async ({ actor, accountId, appId }, document) => {
      const wish = readWish(document);
      if ('code' in wish) return exchange.refuse(wish);
      const { targets, suppress } = wish;
      const known = options.deployment();
      const [action, work] = suppress
        ? (['suppress_users', suppressUsers] as const)
        : (['free_users', freeUsers] as const);
      const users = targets.length;
      // The line in the audit log counts the users and names none.
      await audited(
        options.audit,
        actor,
        { action, account_id: accountId, app_id: appId, details: { users } },
        () => work(known, accountId, targets),
      );
      exchange.reply(200, JSON.stringify({ users, suppress }));
    });
  }

  function onlyWhatLasts<Found>(read: () => Promise<Found>): Promise<Found> {
    return readOnReplicas(redis, registryKeys.suppressions, read);
  }

  function show(exchange: Exchange): void {
    const parameters = readParameters(exchange.query);
    answerForCaller(exchange, { ...options, limit: statusRequests }, async ({ accountId }) => {
      if ('code' in parameters) return exchange.refuse(parameters);
      const user = readUser(parameters);
      if (typeof user === 'object' && 'code' in user) return exchange.refuse(user);
      const known = options.deployment();
      const appIds = appIdsOf(await readRegistry(known.redis), accountId);
      const shown = await onlyWhatLasts(async () =>
        user === 'none'
          ? countSuppressed(redis, accountId, appIds)
          : lookUpSuppression(redis, known.secret, accountId, appIds, user),
      );
      exchange.reply(200, JSON.stringify(shown));
    });
  }

  function lookUp(exchange: Exchange): void {
    readFromCaller(exchange, { ...options, limit: statusRequests }, lookups, async (caller, document) => {
      const targets = readLookup(document);
      if ('code' in targets) return exchange.refuse(targets);
      const known = options.deployment();
      const appIds = appIdsOf(await readRegistry(known.redis), caller.accountId);
      const find = async () => {
        const found: SuppressionOfUser[] = [];
        for (const target of targets)
          found.push(await lookUpSuppression(redis, known.secret, caller.accountId, appIds, userOf(target)));
        return found;
      };
      const users = await options.queries.within({ account: caller.accountId }, () => onlyWhatLasts(find));
      if (users === 'busy') return refuse(exchange, 'overloaded', tooManyQueries);
      exchange.reply(200, JSON.stringify({ users }));
    });
  }

  return [
    { method: 'post', path, handle: submit, doc: submitDoc },
    { method: 'post', path: `${path}/lookup`, handle: lookUp, doc: lookUpDoc },
    { method: 'get', path, handle: show, doc: showDoc },
  ];
}

const tag = 'Suppressed users';
const underToken = documents(tag, tokenGuard);
const withUsers = documents(tag, tokenGuard, userListGuard);

export const suppressionPart: OpenApiPart = {
  tag: {
    name: tag,
    description:
      'Keeps users out: every endpoint answers what is sent about them as if it were stored, and does not store it, in every environment of the account. With the access tokens of user deletion.',
  },
  schemas: {
    Suppression: suppressionSchema,
    Suppressed: suppressedSchema,
    SuppressionOfUser: suppressionSchemas.ofUser,
    SuppressionCounts: suppressionSchemas.counts,
    SuppressionLookup: suppressionUsersSchema,
    SuppressionLookedUp: suppressionLookupSchema,
  },
};

const submitDoc = withUsers({
  id: 'suppressUsers',
  summary: 'Suppress users, or free them',
  description: `It holds from the answer on: records that are sent later about these users, or about the users with whom they are merged at that time, are not stored. An anonymous user who is identified as one of them later is suppressed too. What is already stored stays: submit a deletion as well. Freeing a user undoes every suppression that affects this user, and so frees others who were suppressed for the same reason. May be repeated. ${suppressions.requestsPerSecondMax} requests a second per token.`,
  body: json(ref('Suppression')),
  answers: { 200: answered('It holds.', 'Suppressed', ignoredHeader) },
  refuses: ['not_possible', 'unknown'],
});

const lookUpDoc = withUsers({
  id: 'lookUpSuppressions',
  summary: 'Whether users are suppressed',
  description:
    'The users are in the body, so that no proxy logs them as part of an address. Counts as a status request.',
  body: json(ref('SuppressionLookup')),
  answers: {
    200: answered('In the order asked.', 'SuppressionLookedUp', ignoredHeader),
  },
  refuses: ['unknown'],
});

const showDoc = underToken({
  id: 'lookUpSuppression',
  summary: 'Whether a user is suppressed, or how many are',
  description:
    'With identity, user_id or anonymous_id: whether records of this user are left out. Without: how many users are suppressed, and how many records were left out. A name in a query appears in the logs of proxies; the look-up by POST avoids that.',
  parameters: ['identity', 'user_id', 'anonymous_id'].map((name) => ({
    name,
    in: 'query',
    required: false,
    schema: { type: 'string' },
  })),
  answers: {
    200: answered('What is known.', { anyOf: [ref('SuppressionOfUser'), ref('SuppressionCounts')] }),
  },
  refuses: [...userRefusals, 'invalid_parameter', 'unknown'],
});
