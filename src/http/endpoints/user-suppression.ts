// Suppressed users: a list to suppress or to free, whether one user is suppressed, and how many are. Under the access tokens
// of the deletion API, with its 401.

import { StateNotLoaded } from '../../accounts/registry.js';
import {
  allowStatusRequest,
  allowSuppressionRequest,
  type Caller,
  callerOfToken,
} from '../../accounts/tokens.js';
import { type AuditOptions, audited } from '../../audit/audit.js';
import { bodies, counts, limitedRetrySeconds, receiving } from '../../contract/limits.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import { type Document, parseDocument } from '../../ingest/document.js';
import { readLargeDocument } from '../../ingest/large-document.js';
import type { Steps } from '../../ingest/steps.js';
import type { Log } from '../../log.js';
import { readUser, readWish, type SuppressionWish } from '../../suppression/input.js';
import { countSuppressed, lookUpUser } from '../../suppression/look-up.js';
import { appIdsOf, freeUsers, type SuppressOptions, suppressUsers } from '../../suppression/submit.js';
import { readBearer } from '../protocol/authorization.js';
import { readJsonBody } from '../protocol/body.js';
import type { Exchange } from '../protocol/exchange.js';
import { readParameters } from '../protocol/query.js';
import { type Route, withoutBody } from '../protocol/server.js';
import { takeTurns } from '../protocol/turns.js';
import { answerOrFail, unauthorized } from './token-caller.js';

export type SuppressionApiOptions = {
  /** Undefined until the deployment was read from Redis. */
  readonly suppression: () => SuppressOptions | undefined;
  readonly audit: AuditOptions;
  readonly redis: SuppressOptions['redis'];
  readonly log: Log;
};

/** A caller, and where the request came from. */
type Submitter = Caller & { readonly address: string };

const path = '/api/public/v0/user_suppression';

export function suppressionRoutes(options: SuppressionApiOptions): Route[] {
  const { redis } = options;

  function submit(exchange: Exchange): void {
    const accessToken = readBearer(exchange.framing.authorization);
    if (accessToken === undefined) return unauthorized(withoutBody(exchange));
    const { address } = exchange;
    // The token is looked up while the body arrives, so the body of a caller without a token is never parsed.
    const lookup = callerOfToken(redis, accessToken);
    lookup.catch(() => undefined);
    readJsonBody(exchange, bodies.deletionBytesMax, (body, owned) => {
      const kept = owned ? body : Buffer.from(body);
      answerOrFail(exchange, options, async () => {
        const caller = await lookup;
        if (caller === undefined) return unauthorized(exchange);
        if (!(await allowSuppressionRequest(redis, accessToken))) return limited(exchange, 'suppressions');
        const submitter = { ...caller, address };
        if (kept.length > receiving.largeBytesMin) takeTurns(exchange, readLarge(exchange, submitter, kept));
        else await accept(exchange, submitter, parseDocument(kept));
      });
    });
  }

  function* readLarge(exchange: Exchange, caller: Submitter, body: Buffer): Steps<void> {
    const list = { field: 'users', recordsMax: counts.deletionTargetsMax };
    const document = yield* readLargeDocument(body, list);
    answerOrFail(exchange, options, () => accept(exchange, caller, document));
  }

  async function accept(
    exchange: Exchange,
    caller: Submitter,
    document: Document | Rejection,
  ): Promise<void> {
    if ('code' in document) return exchange.refuse(document);
    const wish = readWish(document);
    if ('code' in wish) return exchange.refuse(wish);
    await carryOut(caller, wish);
    exchange.reply(200, JSON.stringify({ users: wish.targets.length, suppress: wish.suppress }));
  }

  /** Under the audit log. Its line counts the users and names none. */
  function carryOut(
    { address, accountId, appId, keyId }: Submitter,
    { targets, suppress }: SuppressionWish,
  ): Promise<void> {
    const known = options.suppression();
    if (known === undefined) throw new StateNotLoaded();
    const work = suppress ? suppressUsers : freeUsers;
    return audited(
      options.audit,
      { kind: 'api_key', name: keyId, address },
      {
        action: suppress ? 'suppress_users' : 'free_users',
        account_id: accountId,
        app_id: appId,
        details: { users: targets.length },
      },
      () => work(known, accountId, targets),
      {
        endingOf: () => ({ outcome: 'done' }),
        outcomeOfError: (error) => (error instanceof StateNotLoaded ? 'refused' : 'unknown'),
      },
    );
  }

  function show(exchange: Exchange): void {
    const parameters = readParameters(exchange.query);
    withoutBody(exchange);
    const accessToken = readBearer(exchange.framing.authorization);
    if (accessToken === undefined) return unauthorized(exchange);
    answerOrFail(exchange, options, async () => {
      const caller = await callerOfToken(redis, accessToken);
      if (caller === undefined) return unauthorized(exchange);
      if (!(await allowStatusRequest(redis, accessToken))) return limited(exchange, 'status requests');
      if ('code' in parameters) return exchange.refuse(parameters);
      const user = readUser(parameters);
      if (typeof user === 'object' && 'code' in user) return exchange.refuse(user);
      const known = options.suppression();
      if (known === undefined) throw new StateNotLoaded();
      const { accountId } = caller;
      const appIds = await appIdsOf(known, accountId);
      const shown =
        user === 'none'
          ? await countSuppressed(redis, accountId, appIds)
          : await lookUpUser(redis, known.secret, accountId, appIds, user);
      exchange.reply(200, JSON.stringify(shown));
    });
  }

  return [
    { method: 'post', path, handle: submit },
    { method: 'get', path, handle: show },
  ];
}

function limited(exchange: Exchange, what: 'suppressions' | 'status requests'): void {
  const seconds =
    what === 'suppressions' ? limitedRetrySeconds.suppressionRequests : limitedRetrySeconds.statusRequests;
  const reason = rejection('rate_limited', `Too many ${what} by this token.`);
  exchange.refuse(reason, {}, [['Retry-After', String(seconds)]]);
}
