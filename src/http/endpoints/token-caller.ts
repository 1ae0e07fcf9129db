// What all endpoints that take the deletion API's tokens share: who calls, how often a token may ask, how a body is read, and how an error
// is answered. An endpoint answers 401 with the same bytes for every cause.

import type { WatchAccess } from '../../accounts/access-watch.js';
import {
  allowStatusRequest,
  allowSuppressionRequest,
  type Caller,
  callerOfToken,
} from '../../accounts/tokens.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { Places } from '../../concurrency.js';
import { limitedRetrySeconds } from '../../contract/limits.js';
import { type OutcomeCode, rejection } from '../../contract/outcomes.js';
import { deletionSchema } from '../../contract/schemas.js';
import type { CrashPoint } from '../../crash-point.js';
import { addIgnored, fieldNames, noIgnoredFields, textOfIgnored } from '../../ingest/ignored-fields.js';
import type { Log } from '../../log.js';
import type { Document } from '../../parsing/document.js';
import type { RecordList } from '../../parsing/large-document.js';
import type { Previews } from '../../privacy/deletion/preview.js';
import type { Downloads } from '../../privacy/export/downloads.js';
import type { SuppressOptions } from '../../privacy/suppression/submit.js';
import type { Redis } from '../../redis/client.js';
import type { Actor, AuditOptions } from '../../registry/audit/audit.js';
import { asUnauthorized, readBearer, refuseUnauthorized } from '../protocol/authorization.js';
import { bodyGuard, readJsonBody } from '../protocol/body.js';
import { ignoredFieldsHeader } from '../protocol/cors.js';
import type { Exchange } from '../protocol/exchange.js';
import { attendOrRefuse } from '../protocol/failed.js';
import type { Guard } from '../protocol/guard.js';
import { parseBody } from '../protocol/parse-body.js';
import type { Refuse } from './admin-caller.js';
import { retryAfter } from './rate-limit-headers.js';

export const publicApi = '/api/public/v0';

/** What requests about users need: deletions, exports and suppressions. */
export type UserRequestOptions = {
  /** Throws StateNotLoaded until the deployment was read from Redis. */
  readonly deployment: () => SuppressOptions;
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  /** Where queries take turns. */
  readonly queries: Places;
  readonly previews: Previews;
  readonly downloads: Downloads;
  readonly watchAccess: WatchAccess;
  readonly audit: AuditOptions;
  readonly publicBaseUrl: string;
  readonly crash: CrashPoint;
  readonly log: Log;
};

/** A caller, with the name that the audit log has for its requests. */
export type AuditedCaller = Caller & { readonly actor: Actor };

export type FailingCalls = {
  readonly log: Log;
  /** What to answer when Redis or ClickHouse fails; `unknown` if something may have been stored. */
  readonly code?: 'overloaded' | 'unknown';
};

/** How often a token may ask in a second, and the answer if it asks more often. */
export type RequestLimit = {
  readonly allows: (redis: Redis, accessToken: string) => Promise<boolean>;
  readonly message: string;
  readonly retrySeconds: number;
};

/** A request with a token. `limit` is undefined if something else limits the requests. */
export type Asked = FailingCalls & { readonly redis: Redis; readonly limit?: RequestLimit };

/** A body of at most `bytesMax` bytes whose field `list` names users. The answer names the fields that `schema` does not know. */
export type WithUsers = {
  readonly bytesMax: number;
  readonly list: RecordList;
  readonly schema: { readonly properties: object };
};

export const statusRequests: RequestLimit = {
  allows: allowStatusRequest,
  message: 'Too many status requests with this token.',
  retrySeconds: limitedRetrySeconds.statusRequests,
};
export const exportRequests: RequestLimit = {
  ...statusRequests,
  message: 'Too many requests about exports with this token.',
};
export const suppressionRequests: RequestLimit = {
  allows: allowSuppressionRequest,
  message: 'Too many suppressions with this token.',
  retrySeconds: limitedRetrySeconds.suppressionRequests,
};

/** Needs credentials of the deletion API. Includes the refusals when Redis or ClickHouse fails (`answerOrFail`). */
export const credentialsGuard: Guard = {
  ...asUnauthorized,
  refuses: ['unauthorized', 'rate_limited', 'overloaded'],
};

/** Needs an access token, whose requests are limited: `answerForCaller` and `readFromCaller`. */
export const tokenGuard: Guard = { ...credentialsGuard, security: [{ accessToken: [] }] };

/** The codes for what can be wrong with a user that a request names. */
export const userRefusals = [
  'empty',
  'too_long',
  'invalid_type',
  'ambiguous_user',
  'invalid_user_id',
] as const satisfies OutcomeCode[];

export const userListGuard: Guard = {
  parameters: bodyGuard.parameters ?? [],
  refuses: [
    ...bodyGuard.refuses,
    'missing_field',
    ...userRefusals,
    'invalid_text',
    'missing_user',
    'too_many_records',
  ],
};

/** The parameter of lists that are answered in pages. */
export const cursorParameter = {
  name: 'cursor',
  in: 'query',
  description: 'The cursor of an earlier answer, to get the page after it.',
  schema: { type: 'string' },
};

/** Continues with a caller whose token is valid. The request has no body. */
export function answerForCaller(
  exchange: Exchange,
  asked: Asked,
  answer: (caller: AuditedCaller) => Promise<void>,
): void {
  exchange.dropBody();
  answerOrFail(exchange, asked, async () => {
    const caller = await findCaller(exchange, asked);
    if (typeof caller === 'function') caller(exchange);
    else await answer(caller);
  });
}

/** Continues with the document of a caller whose token is valid. */
export function readFromCaller(
  exchange: Exchange,
  asked: Asked,
  what: WithUsers,
  take: (caller: AuditedCaller, document: Document) => Promise<void>,
): void {
  if (readBearer(exchange.framing.authorization) === undefined) return unauthorized(exchange.dropBody());
  // The token is looked up while the body arrives, so the body of a caller without a valid token is never parsed.
  readDocument(exchange, asked, what, findCaller(exchange, asked), take);
}

async function findCaller(exchange: Exchange, { redis, limit }: Asked): Promise<AuditedCaller | Refuse> {
  const accessToken = readBearer(exchange.framing.authorization);
  if (accessToken === undefined) return unauthorized;
  // Read now: if the client leaves, the exchange can no longer be read.
  const { address } = exchange;
  const caller = await callerOfToken(redis, accessToken);
  if (caller === undefined) return unauthorized;
  if (limit === undefined || (await limit.allows(redis, accessToken)))
    return { ...caller, actor: { kind: 'api_key', name: caller.keyId, address } };
  return (exchange) => refuse(exchange, 'rate_limited', limit.message, limit.retrySeconds);
}

/** Continues with the document once `lookup` has settled with the caller, or refuses as `lookup` says. */
export function readDocument<Who extends Caller>(
  exchange: Exchange,
  failing: FailingCalls,
  { bytesMax, list, schema }: WithUsers,
  lookup: Promise<Who | Refuse>,
  take: (caller: Who, document: Document) => Promise<void>,
): void {
  lookup.catch(() => undefined);
  readJsonBody(exchange, bytesMax, (_, body, owned) => {
    const kept = owned ? body : Buffer.from(body);
    answerOrFail(exchange, failing, async () => {
      const caller = await lookup;
      if (typeof caller === 'function') return caller(exchange);
      parseBody(exchange, kept, true, { list }, (document) => {
        if ('code' in document) return exchange.refuse(document);
        nameIgnored(exchange, fieldNames(schema), document.value);
        answerOrFail(exchange, failing, () => take(caller, document));
      });
    });
  });
}

/** Names the fields that were ignored: otherwise a misspelt `supress` or `dryrun` would go unnoticed. */
function nameIgnored(exchange: Exchange, known: ReadonlySet<string>, value: unknown): void {
  const ignored = noIgnoredFields();
  addIgnored(value, known, ignored);
  const { users } = (value ?? {}) as { users?: unknown };
  for (const user of Array.isArray(users) ? users : []) addIgnored(user, userFields, ignored);
  if (ignored.count > 0) exchange.addHeader(ignoredFieldsHeader, textOfIgnored(ignored));
}

const userFields = fieldNames(deletionSchema.properties.users.items);

/** Answers 503 when Redis or ClickHouse fails. */
export function answerOrFail(
  exchange: Exchange,
  { log, code = 'unknown' }: FailingCalls,
  work: () => Promise<void>,
): void {
  const what = 'a request of the deletion API failed';
  const otherwise = rejection(code);
  attendOrRefuse(exchange, { log, what, otherwise, isForCallers: true }, work());
}

/** Refuses a request. `retrySeconds`: when the client may ask again. */
export function refuse(exchange: Exchange, code: OutcomeCode, message?: string, retrySeconds?: number): void {
  const headers = retrySeconds === undefined ? [] : retryAfter(retrySeconds);
  exchange.refuse(rejection(code, message), {}, headers);
}

export function unauthorized(exchange: Exchange): void {
  refuseUnauthorized(exchange, unauthorizedReason, 'Bearer realm="sluice"');
}

/** For a request for a token, which must carry an API key. */
export function wrongApiKey(exchange: Exchange): void {
  refuseUnauthorized(exchange, unauthorizedReason, 'Basic realm="sluice"');
}

const unauthorizedReason = rejection('unauthorized', 'Unauthorized: the credentials are invalid.');

export const tooManyQueries = 'Too many look-ups of this account at once.';

const requestIdForm = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Whether this text has the form of a deletion's or an export's id. */
export function isRequestId(text: string): boolean {
  return requestIdForm.test(text);
}
