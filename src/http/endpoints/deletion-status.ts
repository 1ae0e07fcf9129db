// What a token may ask about deletions of its account: their states, what was counted for single users, and the certificate. An unknown
// request and another account's request get the same 404, byte for byte.

import type { HttpRequest } from 'uWebSockets.js';
import { readSigningKey } from '../../accounts/signing-key.js';
import type { Caller } from '../../accounts/tokens.js';
import { deletionStates } from '../../contract/deletion-states.js';
import { bodies, counts, deletions, evidence } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import { lookupSchema } from '../../contract/schemas.js';
import { certify } from '../../privacy/deletion/certificate.js';
import { evidenceHasher, listEvidence, lookUpEvidence } from '../../privacy/deletion/evidence.js';
import { isListCursor, listOfAccounts } from '../../privacy/deletion/listed.js';
import { type DeletionRequest, readDeletion } from '../../privacy/deletion/request.js';
import { readLookup } from '../../privacy/deletion/targets.js';
import { statusOf } from '../../privacy/deletion/view.js';
import { registryKeys } from '../../redis/keys.js';
import { readOnReplicas } from '../../redis/replicas.js';
import { deletionTag } from '../openapi/deletion.js';
import { answered, documents, ignoredHeader, inPath, json, ref } from '../openapi/document.js';
import type { Exchange } from '../protocol/exchange.js';
import { readParameters } from '../protocol/query.js';
import type { Route } from '../protocol/server.js';
import {
  answerForCaller,
  cursorParameter,
  isRequestId,
  publicApi,
  readFromCaller,
  refuse,
  statusRequests,
  tokenGuard,
  tooManyQueries,
  type UserRequestOptions,
  userListGuard,
  type WithUsers,
} from './token-caller.js';

export function deletionStatusRoutes(options: UserRequestOptions): Route[] {
  const { redis, clickhouse, queries } = options;
  const asked = { ...options, limit: statusRequests };

  function status(exchange: Exchange, req: HttpRequest): void {
    answerForRequest(exchange, req, (request) => {
      exchange.reply(200, JSON.stringify(statusOf(request)));
    });
  }

  function list(exchange: Exchange): void {
    const parameters = readParameters(exchange.query);
    answerForCaller(exchange, asked, async ({ accountId }) => {
      if ('code' in parameters) return exchange.refuse(parameters);
      const state = given(parameters, 'state');
      if (state !== undefined && state !== 'pending' && !Object.hasOwn(deletionStates, state)) {
        return refuseParameter(
          exchange,
          'state',
          'must be pending, complete, or the state of a pending request',
        );
      }
      const cursor = given(parameters, 'cursor');
      const after = cursor === undefined ? undefined : Buffer.from(cursor, 'base64url').toString('latin1');
      if (after !== undefined && !isListCursor(after)) {
        return refuseParameter(exchange, 'cursor', 'must be the cursor of an earlier answer');
      }
      const reference = given(parameters, 'reference');
      // With a filter, a page may read thousands of requests; others are served in between.
      const found = await queries.within({ account: accountId }, () =>
        readOnReplicas(redis, registryKeys.deletions, () =>
          listOfAccounts(redis, [accountId], { state, reference, after }),
        ),
      );
      if (found === 'busy') return refuse(exchange, 'overloaded', tooManyQueries);
      const { requests, next } = found;
      const following = next === undefined ? undefined : Buffer.from(next, 'latin1').toString('base64url');
      exchange.reply(200, JSON.stringify({ deletions: requests.map(statusOf), cursor: following }));
    });
  }

  function users(exchange: Exchange, req: HttpRequest): void {
    const parameters = readParameters(exchange.query);
    answerForRequest(exchange, req, async (request) => {
      if ('code' in parameters) return exchange.refuse(parameters);
      const cursor = given(parameters, 'cursor') ?? '0';
      if (!/^\d{1,9}$/.test(cursor)) {
        return refuseParameter(exchange, 'cursor', 'must be the cursor of an earlier answer');
      }
      if (refuseWithoutEvidence(exchange, request)) return;
      const page = await queries.within({ account: request.account_id }, () =>
        listEvidence(clickhouse, request.deletion_request_id, Number(cursor)),
      );
      if (page === 'busy') return refuse(exchange, 'overloaded', tooManyQueries);
      // ClickHouse may have been replaced by a new one that never had the evidence.
      if (page.users.length === 0 && cursor === '0') return refuseOver(exchange);
      exchange.reply(200, JSON.stringify({ users: page.users, cursor: page.next?.toString() }));
    });
  }

  function lookup(exchange: Exchange, req: HttpRequest): void {
    const requestId = req.getParameter(0) ?? '';
    readFromCaller(exchange, asked, lookups, async (caller, document) => {
      const request = await readOwn(caller, requestId);
      if (request === undefined) return refuse(exchange, 'not_found');
      const targets = readLookup(document);
      if ('code' in targets) return exchange.refuse(targets);
      if (refuseWithoutEvidence(exchange, request)) return;
      const { secret } = options.deployment();
      const hashes = targets.map(evidenceHasher(secret, requestId));
      const counted = await queries.within({ account: caller.accountId }, async () => {
        const found = await lookUpEvidence(clickhouse, requestId, [...new Set(hashes)]);
        const isOver = found.size === 0 && (await listEvidence(clickhouse, requestId, 0)).users.length === 0;
        return isOver ? undefined : found;
      });
      if (counted === 'busy') return refuse(exchange, 'overloaded', tooManyQueries);
      if (counted === undefined) return refuseOver(exchange);
      const answers = hashes.map((hash) => counted.get(hash) ?? notNamed);
      exchange.reply(200, JSON.stringify({ users: answers }));
    });
  }

  function certificate(exchange: Exchange, req: HttpRequest): void {
    answerForRequest(exchange, req, async (request) => {
      const signed = certify(request, await readSigningKey(redis, clickhouse));
      if (signed === undefined) return refuse(exchange, 'still_pending');
      exchange.reply(200, JSON.stringify(signed));
    });
  }

  /** Continues with the request that the path names, if it belongs to the caller. */
  function answerForRequest(
    exchange: Exchange,
    req: HttpRequest,
    answer: (request: DeletionRequest) => unknown,
  ): void {
    const requestId = req.getParameter(0) ?? '';
    answerForCaller(exchange, asked, async (caller) => {
      const request = await readOwn(caller, requestId);
      if (request === undefined) return refuse(exchange, 'not_found');
      await answer(request);
    });
  }

  /** A request by its id; undefined if it does not belong to the caller. */
  async function readOwn({ accountId }: Caller, requestId: string): Promise<DeletionRequest | undefined> {
    const read = () => readDeletion(redis, requestId);
    const request = isRequestId(requestId)
      ? await readOnReplicas(redis, registryKeys.deletions, read)
      : undefined;
    return request?.account_id === accountId ? request : undefined;
  }

  const path = `${publicApi}/deletion_status/:deletion_request_id`;
  return [
    { method: 'get', path, handle: status, doc: statusDoc },
    { method: 'get', path: `${path}/users`, handle: users, doc: usersDoc },
    { method: 'post', path: `${path}/lookup`, handle: lookup, doc: lookupDoc },
    { method: 'get', path: `${path}/certificate`, handle: certificate, doc: certificateDoc },
    { method: 'get', path: `${publicApi}/user_deletions`, handle: list, doc: listDoc },
  ];
}

const underToken = documents(deletionTag, tokenGuard);
const withUsers = documents(deletionTag, tokenGuard, userListGuard);
const idParameter = inPath('deletion_request_id', '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11');

const listDoc = underToken({
  id: 'listDeletions',
  summary: "The account's deletions, the newest first",
  description: `At most ${deletions.listedMax} a page. A page may be empty although others follow, since it looks at no more than ${deletions.listLookedAtMax} requests. An empty parameter counts as absent. Counts as a status request.`,
  parameters: [
    {
      name: 'state',
      in: 'query',
      description: 'Only those with this status, or in this state.',
      schema: { type: 'string', enum: ['', 'pending', ...Object.keys(deletionStates)] },
    },
    {
      name: 'reference',
      in: 'query',
      description: 'Only those with this reference.',
      schema: { type: 'string' },
    },
    cursorParameter,
  ],
  answers: { 200: answered('A page.', 'DeletionList') },
  refuses: ['invalid_parameter', 'unknown'],
});

const statusDoc = underToken({
  id: 'readDeletionStatus',
  summary: 'The progress of a deletion',
  parameters: [idParameter],
  answers: { 200: answered('Its status.', 'DeletionStatus') },
  refuses: ['not_found', 'unknown'],
});

const usersDoc = underToken({
  id: 'listDeletedUsers',
  summary: 'What was found of each user, by position in the submitted list',
  description: `For 30 days after the count, once the deletion is complete. It names no user. At most ${evidence.usersPerPage} a page. Counts as a status request.`,
  parameters: [idParameter, cursorParameter],
  answers: { 200: answered('A page.', 'DeletionUsers') },
  refuses: ['invalid_parameter', 'not_found', 'still_pending', 'no_longer_kept', 'unknown'],
});

const lookupDoc = withUsers({
  id: 'lookUpDeletedUsers',
  summary: 'What was found of users whom you name',
  description: `For 30 days after the count, once the deletion is complete. Identities are similar if they are the same in lower case, mapped letter by letter as in Unicode, and without surrounding blanks (spaces, tabs, line breaks). Counts as a status request.`,
  parameters: [idParameter],
  body: json(ref('DeletionLookup')),
  answers: {
    200: answered('In the order asked.', 'DeletionLookedUp', ignoredHeader),
  },
  refuses: ['not_found', 'still_pending', 'no_longer_kept', 'unknown'],
});

const certificateDoc = underToken({
  id: 'readDeletionCertificate',
  summary: 'The signed certificate of a complete deletion',
  description: 'The same whenever it is asked for, so it can be fetched later. Counts as a status request.',
  parameters: [idParameter],
  answers: { 200: answered('The certificate.', 'DeletionCertificate') },
  refuses: ['not_found', 'still_pending', 'unknown'],
});

const lookups: WithUsers = {
  bytesMax: bodies.lookupBytesMax,
  list: { field: 'users', recordsMax: counts.lookupUsersMax },
  schema: lookupSchema,
};

const notNamed = { found: false, rows: 0, similar: 0, named: false };

/** Refuses while a request is pending and has no evidence yet, and after the evidence has expired. Returns whether it refused. */
function refuseWithoutEvidence(exchange: Exchange, { status, evidence_until }: DeletionRequest): boolean {
  if (status === 'complete' && Date.parse(evidence_until ?? '') > Date.now()) return false;
  if (status === 'complete') refuseOver(exchange);
  else refuse(exchange, 'still_pending');
  return true;
}

function refuseOver(exchange: Exchange): void {
  refuse(exchange, 'no_longer_kept');
}

/** The value of a parameter; an empty one counts as absent. */
function given(parameters: URLSearchParams, name: string): string | undefined {
  return parameters.get(name) || undefined;
}

function refuseParameter(exchange: Exchange, name: string, must: string): void {
  exchange.refuse(rejection('invalid_parameter', `${name} ${must}.`, name));
}
