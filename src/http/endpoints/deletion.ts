// The deletion API: tokens, submissions and their status. A 401 of one endpoint has the same bytes whatever its cause, and
// a 404 has the same bytes for an unknown request and for another account's request.

import type { HttpRequest } from 'uWebSockets.js';
import { readRegistry, StateNotLoaded } from '../../accounts/registry.js';
import { publicPartOf, readSigningKey } from '../../accounts/signing-key.js';
import { allowStatusRequest, type Caller, callerOfToken, mintToken } from '../../accounts/tokens.js';
import { refusalOf } from '../../admin/access.js';
import { type Actor, type AuditOptions, audited } from '../../audit/audit.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { deletionStates } from '../../contract/deletion-states.js';
import {
  bodies,
  counts,
  limitedRetrySeconds,
  previews as previewLimits,
  receiving,
} from '../../contract/limits.js';
import { type OutcomeCode, outcomes, type Rejection, rejection } from '../../contract/outcomes.js';
import type { CrashPoint } from '../../crash-point.js';
import { certify } from '../../deletion/certificate.js';
import { evidenceHasher, listEvidence, lookUpEvidence } from '../../deletion/evidence.js';
import { isListCursor, listOfAccount } from '../../deletion/listed.js';
import type { Previews } from '../../deletion/preview.js';
import { type DeletionRequest, readDeletion } from '../../deletion/request.js';
import { type SubmitOptions, submitDeletion } from '../../deletion/submit.js';
import {
  readLookup,
  readSubmission,
  type Submission,
  type TargetList,
  targetsOf,
} from '../../deletion/targets.js';
import { rowsOf, statusOf } from '../../deletion/view.js';
import { type Document, parseDocument } from '../../ingest/document.js';
import { readLargeDocument } from '../../ingest/large-document.js';
import type { Steps } from '../../ingest/steps.js';
import { describeError, type Log } from '../../log.js';
import { type SuppressOptions, suppressUsers } from '../../suppression/submit.js';
import { readBasic, readBearer } from '../protocol/authorization.js';
import { readJsonBody } from '../protocol/body.js';
import { networkOf } from '../protocol/caller-address.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { isOwnFault } from '../protocol/fault.js';
import { readParameters } from '../protocol/query.js';
import { type Route, withoutBody } from '../protocol/server.js';
import { takeTurns } from '../protocol/turns.js';
import type { AdminCaller, AdminCallers, Refuse } from './admin-caller.js';
import { answerOrFail, unauthorized } from './token-caller.js';

export type DeletionApiOptions = {
  /** Undefined until the deployment was read from Redis. */
  readonly submission: () => SubmitOptions | undefined;
  /** The same, for submissions that suppress too. */
  readonly suppression: () => SuppressOptions | undefined;
  /** Has the evidence of single users. */
  readonly clickhouse: ClickHouseClient;
  readonly previews: Previews;
  readonly audit: AuditOptions;
  readonly redis: SubmitOptions['redis'];
  readonly publicBaseUrl: string;
  readonly crash: CrashPoint;
  readonly log: Log;
};

const base = '/api/public/v0';

export function deletionRoutes(options: DeletionApiOptions): Route[] {
  return [
    { method: 'post', path: `${base}/auth_token`, handle: (exchange) => token(options, exchange) },
    { method: 'post', path: `${base}/user_deletion`, handle: (exchange) => submit(options, exchange) },
    {
      method: 'get',
      path: `${base}/deletion_status/:id`,
      handle: (exchange, req) => status(options, exchange, req),
    },
    {
      method: 'get',
      path: `${base}/deletion_status/:id/users`,
      handle: (exchange, req) => users(options, exchange, req),
    },
    {
      method: 'post',
      path: `${base}/deletion_status/:id/lookup`,
      handle: (exchange, req) => lookup(options, exchange, req),
    },
    {
      method: 'get',
      path: `${base}/deletion_status/:id/certificate`,
      handle: (exchange, req) => certificate(options, exchange, req),
    },
    { method: 'get', path: `${base}/signing_key`, handle: (exchange) => signingKey(options, exchange) },
    { method: 'get', path: `${base}/user_deletions`, handle: (exchange) => list(options, exchange) },
  ];
}

function token(options: DeletionApiOptions, exchange: Exchange): void {
  withoutBody(exchange);
  const credentials = readBasic(exchange.framing.authorization);
  if (credentials === undefined) return unauthorized(exchange, 'Basic');
  const network = networkOf(exchange.address);
  answerOrFail(exchange, options, async () => {
    const minted = await mintToken(options.redis, credentials.name, credentials.password, network);
    if (minted === 'wrong') return unauthorized(exchange, 'Basic');
    if (minted === 'limited')
      return refuse(exchange, 'rate_limited', 'Too many failed requests.', [
        ['Retry-After', String(limitedRetrySeconds.tokenFailures)],
      ]);
    if ('waitMs' in minted) {
      return refuse(exchange, 'rate_limited', 'The API key has too many live tokens.', [
        ['Retry-After', String(Math.ceil(minted.waitMs / 1000))],
      ]);
    }
    options.crash('token_issued');
    // An earlier form of the interface had the second name.
    const body = { access_token: minted.accessToken, auth_token: minted.accessToken };
    exchange.reply(200, JSON.stringify(body), [['Cache-Control', 'no-store']]);
  });
}

function submit(options: DeletionApiOptions, exchange: Exchange): void {
  // If the caller has gone meanwhile, nothing of the request can be read any more.
  const { address } = exchange;
  readFromCaller(options, exchange, submissions, (caller, document) =>
    acceptSubmission(options, exchange, { ...caller, actor: actorOf(caller, address) }, document),
  );
}

const submissions: WithUsers = { bytesMax: bodies.deletionBytesMax, usersMax: counts.deletionTargetsMax };

type WithUsers = { readonly bytesMax: number; readonly usersMax: number };

/** Goes on with the document of a caller whose token is good. */
function readFromCaller(
  options: DeletionApiOptions,
  exchange: Exchange,
  what: WithUsers,
  take: (caller: Caller, document: Document) => Promise<void>,
): void {
  const accessToken = readBearer(exchange.framing.authorization);
  if (accessToken === undefined) return unauthorized(withoutBody(exchange), 'Bearer');
  // The token is looked up while the body arrives, so the body of a caller without a token is never parsed.
  const lookup = callerOfToken(options.redis, accessToken).then(
    (caller): Caller | Refuse => caller ?? ((refused) => unauthorized(refused, 'Bearer')),
  );
  readDocument(options, exchange, what, lookup, take);
}

/** Goes on with the document once `lookup` has settled with who calls; it may also settle with how to refuse them. */
function readDocument<Who extends Caller>(
  options: DeletionApiOptions,
  exchange: Exchange,
  { bytesMax, usersMax }: WithUsers,
  lookup: Promise<Who | Refuse>,
  take: (caller: Who, document: Document) => Promise<void>,
): void {
  lookup.catch(() => undefined);
  readJsonBody(exchange, bytesMax, (body, owned) => {
    const kept = owned ? body : Buffer.from(body);
    answerOrFail(exchange, options, async () => {
      const caller = await lookup;
      if (typeof caller === 'function') return caller(exchange);
      const goOn = async (document: Document | Rejection) => {
        if ('code' in document) exchange.refuse(document);
        else await take(caller, document);
      };
      if (kept.length <= receiving.largeBytesMin) return goOn(parseDocument(kept));
      takeTurns(exchange, readLarge(options, exchange, kept, usersMax, goOn));
    });
  });
}

function* readLarge(
  options: DeletionApiOptions,
  exchange: Exchange,
  body: Buffer,
  usersMax: number,
  goOn: (document: Document | Rejection) => Promise<void>,
): Steps<void> {
  const document = yield* readLargeDocument(body, { field: 'users', recordsMax: usersMax });
  answerOrFail(exchange, options, () => goOn(document));
}

/** A caller, and the name under which the audit log has the submission. */
type Submitter = Caller & { readonly actor: Actor };

function actorOf({ keyId }: Caller, address: string): Actor {
  return { kind: 'api_key', name: keyId, address };
}

/** The same submission on ADMIN_PORT, for whoever may delete users of the account in the path. */
export function accountDeletionRoute(options: DeletionApiOptions, callers: AdminCallers): Route {
  return {
    method: 'post',
    path: '/admin/v1/accounts/:account_id/user_deletion',
    handle: (exchange, req) => {
      const accountId = req.getParameter(0) ?? '';
      const found = callers.find(exchange, req);
      if ('refused' in found) {
        withoutBody(exchange);
        return exchange.attend(found.refused.then((refuseCaller) => refuseCaller(exchange)));
      }
      const lookup = submitterFor(options, accountId, found.caller);
      readDocument(options, exchange, submissions, lookup, (submitter, document) =>
        acceptSubmission(options, exchange, submitter, document),
      );
    },
  };
}

async function submitterFor(
  { redis }: DeletionApiOptions,
  accountId: string,
  lookup: Promise<AdminCaller | Refuse>,
): Promise<Submitter | Refuse> {
  const caller = await lookup;
  if (typeof caller === 'function') return caller;
  const refusal = refusalOf(caller.principal, 'submitDeletion', accountId);
  if (refusal === 'forbidden') return (exchange) => refuse(exchange, 'forbidden', outcomes.forbidden.meaning);
  const { deployment, environments } = await readRegistry(redis);
  if (deployment === undefined) throw new StateNotLoaded();
  const main = [...environments.values()].find((each) => each.main && each.account_id === accountId);
  if (refusal !== undefined || main === undefined)
    return (exchange) => refuse(exchange, 'not_possible', `there is no account ${accountId}`);
  // No key is involved; who it was is in the audit log.
  return { accountId, appId: main.app_id, keyId: '', keyCreatedAt: '', actor: caller.actor };
}

async function acceptSubmission(
  options: DeletionApiOptions,
  exchange: Exchange,
  { actor, ...caller }: Submitter,
  document: Document,
): Promise<void> {
  const wanted = readSubmission(document);
  if ('code' in wanted) return exchange.refuse(wanted);
  const submission = options.submission();
  const suppression = options.suppression();
  if (submission === undefined || suppression === undefined) throw new StateNotLoaded();
  if (wanted.dryRun) return answerPreview(options, exchange, submission, caller, wanted.list);
  const submitted = await submitAudited(options, { submission, suppression }, caller, actor, wanted);
  const { how, requestId: id } = submitted;
  if (how === 'reference_taken') {
    return exchange.refuse(rejection('reference_taken', outcomes.reference_taken.meaning, 'reference'));
  }
  if (how === 'too_many') {
    return refuse(exchange, 'rate_limited', 'The account has too many pending deletion requests.', [
      ['Retry-After', String(limitedRetrySeconds.pendingDeletions)],
    ]);
  }
  // The same for a repeat, whatever has become of the request since.
  const body = {
    deletion_request_location: `${options.publicBaseUrl}${base}/deletion_status/${id}`,
    deletion_request_id: id,
    status: 'pending',
  };
  exchange.reply(how === 'stored' ? 201 : 200, JSON.stringify(body));
}

/** Answers what a deletion would find. */
async function answerPreview(
  { previews, log }: DeletionApiOptions,
  exchange: Exchange,
  submission: SubmitOptions,
  { accountId }: Caller,
  list: TargetList,
): Promise<void> {
  const targets = targetsOf(list);
  const preview = await previews.look(submission, accountId, targets).catch((error: unknown) => {
    if (error instanceof StateNotLoaded || isOwnFault(error)) throw error;
    log.warn({ error: describeError(error) }, 'the preview of a deletion failed');
    return 'failed' as const;
  });
  if (typeof preview === 'string') return refuse(exchange, 'overloaded', whyNoPreview[preview]);
  const { found, usersFound, unclear } = preview;
  const places = new Map(list.map((target, place) => [target, place]));
  const listed = unclear.map(({ target, rows, similar }) => ({
    place: places.get(target) ?? 0,
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
    unclear: listed.sort((a, b) => a.place - b.place).slice(0, previewLimits.unclearMax),
  };
  exchange.reply(200, JSON.stringify(body));
}

const whyNoPreview = {
  busy: 'Nothing was stored: too many dry runs at once.',
  too_long: 'Nothing was stored: the look-up took too long. Name fewer users, or submit the deletion.',
  failed: 'Nothing was stored: the users could not be looked up.',
};

/** Stores a request under the audit log. Its line counts the users and names none. */
function submitAudited(
  { audit }: DeletionApiOptions,
  { submission, suppression }: { readonly submission: SubmitOptions; readonly suppression: SuppressOptions },
  caller: Caller,
  actor: Actor,
  wanted: Submission,
): ReturnType<typeof submitDeletion> {
  const { accountId: account_id, appId: app_id } = caller;
  const targets = targetsOf(wanted.list);
  return audited(
    audit,
    actor,
    {
      action: 'submit_deletion',
      account_id,
      app_id,
      details: { users: targets.length, ...(wanted.suppress ? { suppress: true } : {}) },
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

function status(options: DeletionApiOptions, exchange: Exchange, req: HttpRequest): void {
  answerForRequest(options, exchange, req, (request) => {
    exchange.reply(200, JSON.stringify(statusOf(request)));
  });
}

function list(options: DeletionApiOptions, exchange: Exchange): void {
  const parameters = readParameters(exchange.query);
  answerForCaller(options, withoutBody(exchange), async ({ accountId }) => {
    if ('code' in parameters) return exchange.refuse(parameters);
    const state = parameters.get('state') ?? undefined;
    if (state !== undefined && state !== 'pending' && !Object.hasOwn(deletionStates, state)) {
      return refuseParameter(
        exchange,
        'state',
        'must be pending, complete, or the state of a pending request',
      );
    }
    const cursor = parameters.get('cursor') ?? undefined;
    const after = cursor === undefined ? undefined : Buffer.from(cursor, 'base64url').toString('latin1');
    if (after !== undefined && !isListCursor(after)) {
      return refuseParameter(exchange, 'cursor', 'must be the cursor of an earlier answer');
    }
    const reference = parameters.get('reference') ?? undefined;
    if (reference === '') return refuseParameter(exchange, 'reference', 'must not be empty');
    const { requests, next } = await listOfAccount(options.redis, accountId, { state, reference, after });
    const page = {
      deletions: requests.map(statusOf),
      ...(next === undefined ? {} : { cursor: Buffer.from(next, 'latin1').toString('base64url') }),
    };
    exchange.reply(200, JSON.stringify(page));
  });
}

function users(options: DeletionApiOptions, exchange: Exchange, req: HttpRequest): void {
  const parameters = readParameters(exchange.query);
  answerForRequest(options, exchange, req, async (request) => {
    if ('code' in parameters) return exchange.refuse(parameters);
    const cursor = parameters.get('cursor') ?? '0';
    if (!/^\d{1,9}$/.test(cursor)) {
      return refuseParameter(exchange, 'cursor', 'must be the cursor of an earlier answer');
    }
    if (refuseWithoutEvidence(exchange, request)) return;
    const page = await listEvidence(options.clickhouse, request.deletion_request_id, Number(cursor));
    // ClickHouse may have been replaced by one that never had it.
    if (page.users.length === 0 && cursor === '0') return refuseOver(exchange);
    const { users: listed, next } = page;
    exchange.reply(
      200,
      JSON.stringify({ users: listed, ...(next === undefined ? {} : { cursor: String(next) }) }),
    );
  });
}

function lookup(options: DeletionApiOptions, exchange: Exchange, req: HttpRequest): void {
  const requestId = req.getParameter(0) ?? '';
  const what = { bytesMax: bodies.lookupBytesMax, usersMax: counts.lookupUsersMax };
  const accessToken = readBearer(exchange.framing.authorization) ?? '';
  readFromCaller(options, exchange, what, async (caller, document) => {
    if (!(await mayAsk(options, exchange, accessToken))) return;
    const request = await readOwn(options, caller, requestId);
    if (request === undefined) return refuse(exchange, 'not_found', outcomes.not_found.meaning);
    const targets = readLookup(document);
    if ('code' in targets) return exchange.refuse(targets);
    if (refuseWithoutEvidence(exchange, request)) return;
    const secret = options.submission()?.secret;
    if (secret === undefined) throw new StateNotLoaded();
    const hashes = targets.map(evidenceHasher(secret, requestId));
    const counted = await lookUpEvidence(options.clickhouse, requestId, [...new Set(hashes)]);
    if (counted.size === 0 && (await listEvidence(options.clickhouse, requestId, 0)).users.length === 0) {
      return refuseOver(exchange);
    }
    const answers = hashes.map((hash) => counted.get(hash) ?? notNamed);
    exchange.reply(200, JSON.stringify({ users: answers }));
  });
}

const notNamed = { found: false, rows: 0, similar: 0, named: false };

/** Refuses to say what was counted for single users while a request is pending, and when that is over. */
function refuseWithoutEvidence(
  exchange: Exchange,
  { status: its, evidence_until }: DeletionRequest,
): boolean {
  if (its === 'complete' && Date.parse(evidence_until ?? '') > Date.now()) return false;
  if (its === 'complete') refuseOver(exchange);
  else refuse(exchange, 'still_pending', outcomes.still_pending.meaning);
  return true;
}

function refuseOver(exchange: Exchange): void {
  refuse(exchange, 'no_longer_kept', outcomes.no_longer_kept.meaning);
}

function certificate(options: DeletionApiOptions, exchange: Exchange, req: HttpRequest): void {
  answerForRequest(options, exchange, req, async (request) => {
    const signed = certify(request, await readSigningKey(options.redis, options.clickhouse));
    if (signed === undefined) return refuse(exchange, 'still_pending', outcomes.still_pending.meaning);
    exchange.reply(200, JSON.stringify(signed));
  });
}

/** For everybody: whoever is shown a certificate can check it. */
function signingKey(options: DeletionApiOptions, exchange: Exchange): void {
  withoutBody(exchange);
  answerOrFail(exchange, options, async () => {
    const key = await readSigningKey(options.redis, options.clickhouse);
    exchange.reply(200, JSON.stringify(publicPartOf(key)));
  });
}

function refuseParameter(exchange: Exchange, name: string, must: string): void {
  exchange.refuse(rejection('invalid_parameter', `${name} ${must}.`, name));
}

/** Goes on with the request that the path names, if it is the caller's. */
function answerForRequest(
  options: DeletionApiOptions,
  exchange: Exchange,
  req: HttpRequest,
  answer: (request: DeletionRequest) => unknown,
): void {
  const requestId = req.getParameter(0) ?? '';
  answerForCaller(options, withoutBody(exchange), async (caller) => {
    const request = await readOwn(options, caller, requestId);
    if (request === undefined) return refuse(exchange, 'not_found', outcomes.not_found.meaning);
    await answer(request);
  });
}

/** A request by its id; undefined unless it is the caller's. */
async function readOwn(
  { redis }: DeletionApiOptions,
  { accountId }: Caller,
  requestId: string,
): Promise<DeletionRequest | undefined> {
  const request = requestIdForm.test(requestId) ? await readDeletion(redis, requestId) : undefined;
  return request?.account_id === accountId ? request : undefined;
}

/** Goes on if the token is good and has not asked too often in this second. */
function answerForCaller(
  options: DeletionApiOptions,
  exchange: Exchange,
  answer: (caller: Caller) => Promise<void>,
): void {
  const accessToken = readBearer(exchange.framing.authorization);
  if (accessToken === undefined) return unauthorized(exchange, 'Bearer');
  answerOrFail(exchange, options, async () => {
    const caller = await callerOfToken(options.redis, accessToken);
    if (caller === undefined) return unauthorized(exchange, 'Bearer');
    if (await mayAsk(options, exchange, accessToken)) await answer(caller);
  });
}

/** Whether the token may ask for another status in this second; else the request is refused. */
async function mayAsk(
  { redis }: DeletionApiOptions,
  exchange: Exchange,
  accessToken: string,
): Promise<boolean> {
  if (await allowStatusRequest(redis, accessToken)) return true;
  refuse(exchange, 'rate_limited', 'Too many status requests by this token.', [
    ['Retry-After', String(limitedRetrySeconds.statusRequests)],
  ]);
  return false;
}

const requestIdForm = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

function refuse(exchange: Exchange, code: OutcomeCode, message: string, headers: Headers = []): void {
  exchange.refuse(rejection(code, message), {}, headers);
}
