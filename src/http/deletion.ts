// The deletion API: tokens, submissions and their status. All causes of a 401 of one endpoint have the same
// bytes, and so have the 404s for an unknown request and for another account's.

import type { HttpRequest } from 'uWebSockets.js';
import { StateNotLoaded } from '../accounts/registry.js';
import { allowStatusRequest, type Caller, callerOfToken, mintToken } from '../accounts/tokens.js';
import { bodies } from '../contract/limits.js';
import { type OutcomeCode, outcomes, rejection } from '../contract/outcomes.js';
import type { CrashPoint } from '../crash-point.js';
import { type DeletionState, readDeletion } from '../deletion/request.js';
import { type SubmitOptions, submitDeletion } from '../deletion/submit.js';
import { readTargets } from '../deletion/targets.js';
import { type Document, parseDocument } from '../ingest/document.js';
import { describeError, type Log } from '../log.js';
import { readBasic, readBearer } from './authorization.js';
import { readJsonBody } from './body.js';
import type { Exchange, Headers } from './exchange.js';
import { isOwnFault } from './fault.js';
import { type Route, withoutBody } from './server.js';

export type DeletionApiOptions = {
  /** Undefined until Redis has told the deployment. */
  readonly submission: () => SubmitOptions | undefined;
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
  ];
}

function token(options: DeletionApiOptions, exchange: Exchange): void {
  withoutBody(exchange);
  const credentials = readBasic(exchange.framing.authorization);
  if (credentials === undefined) return unauthorized(exchange, 'Basic');
  const { address } = exchange;
  answerOrFail(options, exchange, async () => {
    const minted = await mintToken(options.redis, credentials.name, credentials.password, address);
    if (minted === 'wrong') return unauthorized(exchange, 'Basic');
    if (minted === 'limited')
      return refuse(exchange, 'rate_limited', 'Too many failed requests.', [['Retry-After', '60']]);
    if ('waitMs' in minted) {
      return refuse(exchange, 'rate_limited', 'The API key has too many live tokens.', [
        ['Retry-After', String(Math.ceil(minted.waitMs / 1000))],
      ]);
    }
    options.crash('token_issued');
    // The second name is that of an earlier form of the interface.
    const body = { access_token: minted.accessToken, auth_token: minted.accessToken };
    exchange.reply(200, JSON.stringify(body), [['Cache-Control', 'no-store']]);
  });
}

function submit(options: DeletionApiOptions, exchange: Exchange): void {
  const accessToken = readBearer(exchange.framing.authorization);
  if (accessToken === undefined) return unauthorized(withoutBody(exchange), 'Bearer');
  // The token is looked up while the body comes in, so that nobody without one has theirs parsed.
  const lookup = callerOfToken(options.redis, accessToken);
  lookup.catch(() => undefined);
  readJsonBody(exchange, bodies.deletionBytesMax, (body, owned) => {
    const kept = owned ? body : Buffer.from(body);
    answerOrFail(options, exchange, async () => {
      const caller = await lookup;
      if (caller === undefined) return unauthorized(exchange, 'Bearer');
      const document = parseDocument(kept);
      if ('code' in document) return exchange.refuse(document);
      await acceptSubmission(options, exchange, caller, document);
    });
  });
}

async function acceptSubmission(
  options: DeletionApiOptions,
  exchange: Exchange,
  caller: Caller,
  document: Document,
): Promise<void> {
  const targets = readTargets(document);
  if (!Array.isArray(targets)) return exchange.refuse(targets);
  const submission = options.submission();
  if (submission === undefined) throw new StateNotLoaded();
  const request = await submitDeletion(submission, caller, targets);
  if (request === 'too_many') {
    return refuse(exchange, 'rate_limited', 'The account has too many pending deletion requests.', [
      ['Retry-After', '60'],
    ]);
  }
  const id = request.deletion_request_id;
  const body = {
    deletion_request_location: `${options.publicBaseUrl}${base}/deletion_status/${id}`,
    deletion_request_id: id,
    status: request.status,
  };
  exchange.reply(201, JSON.stringify(body));
}

function status(options: DeletionApiOptions, exchange: Exchange, req: HttpRequest): void {
  const requestId = req.getParameter(0) ?? '';
  withoutBody(exchange);
  const accessToken = readBearer(exchange.framing.authorization);
  if (accessToken === undefined) return unauthorized(exchange, 'Bearer');
  answerOrFail(options, exchange, async () => {
    const caller = await callerOfToken(options.redis, accessToken);
    if (caller === undefined) return unauthorized(exchange, 'Bearer');
    if (!(await allowStatusRequest(options.redis, accessToken))) {
      return refuse(exchange, 'rate_limited', 'Too many status requests by this token.', [
        ['Retry-After', '1'],
      ]);
    }
    const request = requestIdForm.test(requestId) ? await readDeletion(options.redis, requestId) : undefined;
    if (request?.account_id !== caller.accountId) {
      return refuse(exchange, 'not_found', outcomes.not_found.meaning);
    }
    const stuck = adviceOf[request.state];
    const more = stuck === undefined ? {} : { state: request.state, message: stuck };
    const body = { deletion_request_id: requestId, status: request.status, ...more };
    exchange.reply(200, JSON.stringify(body));
  });
}

/** What the caller of a request that is never carried out is told beside `pending`. */
const adviceOf: Partial<Record<DeletionState, string>> = {
  targets_lost:
    'The list of users was lost before it was copied, so nothing was deleted. Submit the users again; this request never completes.',
  ended:
    'The list of users was lost, and an administrator ended this request; nothing was deleted. Submit the users again.',
};

const requestIdForm = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Answers 503 when Redis fails; whether something was stored is then unknown. */
function answerOrFail(options: DeletionApiOptions, exchange: Exchange, work: () => Promise<void>): void {
  const answered = work().catch((error: unknown) => {
    if (error instanceof StateNotLoaded) {
      return refuse(exchange, 'overloaded', 'Nothing was stored: the state of the service is not loaded.');
    }
    if (isOwnFault(error)) throw error;
    options.log.warn({ error: describeError(error) }, 'a request of the deletion API failed');
    refuse(exchange, 'unknown', outcomes.unknown.meaning);
  });
  exchange.attend(answered);
}

function unauthorized(exchange: Exchange, scheme: 'Basic' | 'Bearer'): void {
  const { message } = unauthorizedReason;
  exchange.refuse(unauthorizedReason, { error: message, message }, [
    ['WWW-Authenticate', `${scheme} realm="sluice"`],
  ]);
}

const unauthorizedReason = rejection('unauthorized', 'Unauthorized: the credentials are invalid.');

function refuse(exchange: Exchange, code: OutcomeCode, message: string, headers: Headers = []): void {
  exchange.refuse(rejection(code, message), {}, headers);
}
