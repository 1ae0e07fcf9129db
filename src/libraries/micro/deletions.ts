// Deletions as a compliance caller sees them. Any key gets a token; a submission is checked as in the service, and is complete at once: the
// records of its users are forgotten.

import { randomBytes, randomUUID } from 'node:crypto';
import type { Caller } from '../../accounts/tokens.js';
import { micro } from '../../contract/limits.js';
import { rejection } from '../../contract/outcomes.js';
import { submissions } from '../../http/endpoints/deletion-submission.js';
import { publicApi, readDocument, unauthorized, wrongApiKey } from '../../http/endpoints/token-caller.js';
import { readBasic, readBearer } from '../../http/protocol/authorization.js';
import type { Exchange } from '../../http/protocol/exchange.js';
import { notFound, type Route } from '../../http/protocol/server.js';
import type { Log } from '../../log.js';
import type { Document } from '../../parsing/document.js';
import { readSubmission, targetsOf } from '../../privacy/deletion/targets.js';
import type { Fields, List } from './memory.js';

export type DeletionOptions = { readonly publicBaseUrl: string; readonly events: List; readonly log: Log };

type Request = {
  readonly deletion_request_id: string;
  readonly submitted_at: string;
  readonly reference: string | undefined;
  readonly users: readonly string[];
};

export function deletionRoutes({ publicBaseUrl, events, log }: DeletionOptions): Route[] {
  const appIds = new Map<string, string>();
  const requests = new Map<string, Request & { readonly appId: string }>();

  function token(exchange: Exchange): void {
    exchange.dropBody();
    const { name, password } = readBasic(exchange.framing.authorization) ?? { name: '', password: '' };
    if (!/^\d{1,20}$/.test(name) || password === '') return wrongApiKey(exchange);
    const accessToken = randomBytes(32).toString('base64url');
    remember(appIds, accessToken, name);
    const body = { access_token: accessToken, auth_token: accessToken };
    exchange.reply(200, JSON.stringify(body), [['Cache-Control', 'no-store']]);
  }

  const appIdOf = ({ framing }: Exchange) => appIds.get(readBearer(framing.authorization) ?? '');

  function submit(exchange: Exchange): void {
    const appId = appIdOf(exchange);
    if (appId === undefined) return unauthorized(exchange.dropBody());
    const caller: Caller = { accountId: appId, appId, keyId: '', keyCreatedAt: '' };
    readDocument(exchange, { log }, submissions, Promise.resolve(caller), async (_, document) =>
      accept(exchange, appId, document),
    );
  }

  function accept(exchange: Exchange, appId: string, document: Document): void {
    const wanted = readSubmission(document);
    if ('code' in wanted) return exchange.refuse(wanted);
    // In any order, they are the same request.
    const users = targetsOf(wanted.list).toSorted();
    const isTheirs = ofUsers(appId, users, events.all());
    if (wanted.dryRun) return exchange.reply(200, JSON.stringify(preview(appId, users, events.all())));
    const { reference } = wanted;
    const former = [...requests.values()].find((one) => one.appId === appId && one.reference === reference);
    if (reference !== undefined && former !== undefined) {
      if (JSON.stringify(former.users) === JSON.stringify(users))
        return answer(exchange, 200, former, 'complete');
      return exchange.refuse(rejection('reference_taken', undefined, 'reference'));
    }
    const id = randomUUID();
    const request = {
      deletion_request_id: id,
      submitted_at: new Date().toISOString(),
      reference,
      users,
      appId,
    };
    remember(requests, id, request);
    events.remove(isTheirs);
    answer(exchange, 201, request, 'pending');
  }

  function answer(
    exchange: Exchange,
    status: 200 | 201,
    { deletion_request_id }: Request,
    state: string,
  ): void {
    const location = `${publicBaseUrl}${publicApi}/deletion_status/${deletion_request_id}`;
    const body = { deletion_request_location: location, deletion_request_id, status: state };
    exchange.reply(status, JSON.stringify(body));
  }

  function status(exchange: Exchange, id: string): void {
    const appId = appIdOf(exchange);
    if (appId === undefined) return unauthorized(exchange.dropBody());
    const request = requests.get(id);
    if (request?.appId !== appId) return notFound(exchange);
    const { deletion_request_id, submitted_at, reference, users } = request;
    const body = { deletion_request_id, status: 'complete', submitted_at, reference, users: users.length };
    exchange.dropBody().reply(200, JSON.stringify({ ...body, completed_at: submitted_at }));
  }

  return [
    { method: 'post', path: `${publicApi}/auth_token`, handle: token },
    { method: 'post', path: `${publicApi}/user_deletion`, handle: submit },
    {
      method: 'get',
      path: `${publicApi}/deletion_status/:id`,
      handle: (exchange, req) => status(exchange, req.getParameter(0) ?? ''),
    },
  ];
}

/** Returns a function that says whether an entry is about one of these users, or about a user merged with one of them. */
function ofUsers(appId: string, users: readonly string[], entries: readonly Fields[]) {
  const names = new Set(users);
  const namesOf = ({ identity, user_id }: Fields) => [`i${identity}`, `u${user_id}`];
  const isNamed = (entry: Fields) => entry.app_id === appId && namesOf(entry).some((name) => names.has(name));
  const merges = entries.filter(({ table, app_id }) => table === 'user_identities' && app_id === appId);
  for (let size = -1; size < names.size; ) {
    size = names.size;
    for (const entry of merges) if (isNamed(entry)) for (const name of namesOf(entry)) names.add(name);
  }
  return isNamed;
}

function preview(appId: string, users: readonly string[], entries: readonly Fields[]) {
  const theirs = entries.filter(ofUsers(appId, users, entries));
  const tables = [...new Set(theirs.map(({ table }) => table))];
  const rowsOf = (table: unknown) => theirs.filter((entry) => entry.table === table).length;
  return {
    dry_run: true,
    users: users.length,
    users_found: users.filter((user) => entries.some(ofUsers(appId, [user], entries))).length,
    rows: theirs.length,
    found: tables.map((table) => ({ app_id: appId, table, rows: rowsOf(table) })),
    unclear: [],
  };
}

/** Adds an entry. If there are too many, forgets the oldest one. */
function remember<T>(map: Map<string, T>, key: string, value: T): void {
  map.set(key, value);
  if (map.size > micro.requestsMax) map.delete(map.keys().next().value as string);
}
