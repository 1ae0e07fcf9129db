// Deletes users in tests: calls the deletion API, writes records of which each carries whether the deletion must remove it, and compares
// what is left in ClickHouse.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { type ClientRequest, request } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import type { DeletionRequest } from '../../src/privacy/deletion/request.js';
import { userTables } from '../../src/privacy/deletion/user-tables.js';
import { registryKeys } from '../../src/redis/keys.js';
import type { TestAccount } from './accounts.js';
import { assertDocumented } from './documented-answers.js';
import { postInTime } from './ingestion.js';
import { withRedis } from './redis-client.js';
import type { Deployment, SluiceHandle } from './services.js';
import { until } from './wait.js';

export { untilStored } from './ingestion.js';

export const deletionPaths = {
  token: '/api/public/v0/auth_token',
  submit: '/api/public/v0/user_deletion',
  status: (requestId: string) => `/api/public/v0/deletion_status/${requestId}`,
  list: '/api/public/v0/user_deletions',
} as const;

export type Ask = {
  readonly method: string;
  readonly path: string;
  /** The headers, which are sent in this order and spelling; a name may occur twice. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  readonly body?: string | Buffer;
  /** The address that the connection comes from. */
  readonly localAddress?: string;
};

export type Reply = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  /** Status, headers without the date, and body as they came, to compare answers byte by byte. */
  readonly bytes: string;
};

/**
 * Sends one request with exactly these headers, plus Host and Content-Length. Rejects if the deletion API answers otherwise than
 * its OpenAPI document says.
 */
export async function ask(baseUrl: string, what: Ask): Promise<Reply> {
  const { hostname, port, host } = new URL(baseUrl);
  const { method, path, headers = [], body = '', localAddress } = what;
  const own = headers.some(([name]) => name.toLowerCase() === 'host') ? [] : [['Host', host]];
  const length = method === 'GET' ? [] : [['Content-Length', String(Buffer.byteLength(body))]];
  return new Promise<Reply>((settle, reject) => {
    const sent: ClientRequest = request(
      {
        hostname,
        port,
        method,
        path,
        agent: false,
        ...(localAddress === undefined ? {} : { localAddress }),
        headers: [...own, ...headers, ...length, ['Connection', 'close']].flat() as never,
      },
      (reply) => {
        const documented = async () => {
          const text = await textOf(reply);
          const raw = reply.rawHeaders.map((part, at, all) =>
            all[at - 1]?.toLowerCase() === 'date' && at % 2 === 1 ? '' : part,
          );
          const bytes = JSON.stringify([reply.statusCode, reply.statusMessage, raw, text]);
          const answer = { status: reply.statusCode ?? 0, headers: reply.headers, text, bytes };
          assertDocumented(method, path, answer);
          return answer;
        };
        documented().then(settle, reject);
      },
    );
    sent.setTimeout(30_000, () => sent.destroy(new Error('no answer within 30 s')));
    sent.once('error', reject);
    sent.end(body);
  });
}

export function parse(reply: Reply): Readonly<Record<string, unknown>> {
  return JSON.parse(reply.text) as Readonly<Record<string, unknown>>;
}

/** Sends one request to the administration's HTTP API. */
export async function administer<Result>(
  sluice: Deployment,
  method: string,
  path: string,
  body?: object,
): Promise<Result> {
  const reply = await fetch(`${sluice.adminUrl}/admin/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${sluice.adminToken}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(60_000),
  });
  const text = await reply.text();
  assert.equal(reply.status, 200, text);
  return JSON.parse(text) as Result;
}

export function basic(appId: string, apiKey: string): string {
  return `Basic ${Buffer.from(`${appId}:${apiKey}`).toString('base64')}`;
}

/** Requests an access token with the account's key; settles with any answer. */
export function askForToken(
  sluice: { readonly baseUrl: string },
  { appIds, apiKey }: TestAccount,
): Promise<Reply> {
  const headers = [['Authorization', basic(appIds[0] ?? '', apiKey)]] as const;
  return ask(sluice.baseUrl, { method: 'POST', path: deletionPaths.token, headers });
}

export async function getToken(sluice: { readonly baseUrl: string }, account: TestAccount): Promise<string> {
  const reply = await askForToken(sluice, account);
  assert.equal(reply.status, 200, reply.text);
  return (JSON.parse(reply.text) as { access_token: string }).access_token;
}

export type User = { readonly identity: string } | { readonly user_id: number | string };
/** A user as every list of the deletion API accepts it. */
export type NamedUser = User | { readonly anonymous_id: string };

/** Submits a deletion; settles with any answer. A `body` that is text is sent as it is. */
export async function submit(
  sluice: { readonly baseUrl: string },
  token: string,
  body: string | Buffer | readonly NamedUser[],
): Promise<Reply> {
  return ask(sluice.baseUrl, {
    method: 'POST',
    path: deletionPaths.submit,
    headers: [
      ['Authorization', `Bearer ${token}`],
      ['Content-type', 'Application/json'],
    ],
    body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify({ users: body }),
  });
}

/** Submits a deletion that must be accepted; settles with its id. */
export async function submitAccepted(
  sluice: { readonly baseUrl: string },
  token: string,
  users: readonly NamedUser[],
): Promise<string> {
  const reply = await submit(sluice, token, users);
  assert.equal(reply.status, 201, reply.text);
  return (JSON.parse(reply.text) as { deletion_request_id: string }).deletion_request_id;
}

export function readStatus(
  sluice: { readonly baseUrl: string },
  token: string,
  requestId: string,
): Promise<Reply> {
  return callWithToken(sluice, token, deletionPaths.status(requestId));
}

/** Calls an endpoint with a token, and with a JSON body if there is one; text is sent as it is. */
export function callWithToken(
  { baseUrl }: { readonly baseUrl: string },
  token: string,
  path: string,
  body?: object | string,
): Promise<Reply> {
  const authorization = ['Authorization', `Bearer ${token}`] as const;
  if (body === undefined) return ask(baseUrl, { method: 'GET', path, headers: [authorization] });
  return ask(baseUrl, {
    method: 'POST',
    path,
    headers: [authorization, ['Content-Type', 'application/json']],
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

export async function untilComplete(
  sluice: Deployment | SluiceHandle,
  token: string,
  requestId: string,
  deadlineMs = 180_000,
): Promise<void> {
  let last = '';
  try {
    await until(
      async () => {
        const reply = await readStatus(sluice, token, requestId);
        last = reply.text;
        assert.equal(reply.status, 200, reply.text);
        return (JSON.parse(reply.text) as { status: string }).status === 'complete';
      },
      { deadlineMs, what: 'the deletion is complete' },
    );
  } catch (error) {
    const shown = await showDeletion(sluice, requestId).catch((fault: unknown) => ({ fault }));
    const workers = 'workers' in sluice ? sluice.workers : [];
    const output = workers.map((worker) => worker.output().slice(-1_500)).join('\n');
    throw new Error(`pending: ${last} ${JSON.stringify(shown)}\n${output}`, { cause: error });
  }
}

/** Posts a submission with any fields; settles with any answer. */
export function submitWith(sluice: Deployment, token: string, body: object): Promise<Reply> {
  return callWithToken(sluice, token, deletionPaths.submit, body);
}

/** Asks for a dry run, again if a busy machine is too slow for its look-up. */
export function submitDryRun(sluice: Deployment, token: string, body: object): Promise<Reply> {
  return until(async () => {
    const reply = await submitWith(sluice, token, { ...body, dry_run: true });
    return reply.status !== 503 && reply;
  }, 'the look-up has time');
}

/** Lets the next round begin at once, as after a while without rounds. */
export async function hurryRounds(sluice: { readonly redisUrl: string }): Promise<void> {
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionRound));
}

/** Submits so that the next round begins at once. */
export async function submitNow(sluice: Deployment, token: string, users: readonly User[]): Promise<string> {
  await hurryRounds(sluice);
  return submitAccepted(sluice, token, users);
}

/** Deletes users at once; settles when they are gone. */
export async function deleteNow(sluice: Deployment, token: string, users: readonly User[]): Promise<string> {
  const requestId = await submitNow(sluice, token, users);
  await untilComplete(sluice, token, requestId);
  return requestId;
}

/**
 * Lets no round of deletions begin before `work` has settled, by the key that says that a backup is being restored. (The key
 * `deletionRound` would not do: it holds up the next round for four seconds, whatever its time to live is.)
 */
export async function withoutRounds(sluice: Deployment, work: () => Promise<void>): Promise<void> {
  await withRedis(sluice, async (redis) => {
    await redis.set(registryKeys.restoringBackup, '1');
    await work().finally(() => redis.del(registryKeys.restoringBackup));
  });
}

export async function listDeletions(
  sluice: Deployment,
  token: string,
  query = '',
): Promise<{ ids: string[]; cursor: string | undefined }> {
  const reply = await callWithToken(sluice, token, `${deletionPaths.list}${query}`);
  assert.equal(reply.status, 200, reply.text);
  const { deletions: page, cursor } = JSON.parse(reply.text) as {
    deletions: { deletion_request_id: string }[];
    cursor?: string;
  };
  return { ids: page.map(({ deletion_request_id: id }) => id), cursor };
}

export function showDeletion(sluice: Deployment, requestId: string): Promise<DeletionRequest> {
  return administer<DeletionRequest>(sluice, 'GET', `/deletions/${requestId}`);
}

/** Posts a body to an ingestion endpoint and asserts that all of it was accepted. */
export async function send(sluice: Deployment, path: string, body: object): Promise<void> {
  const { status, text } = await postInTime(sluice.baseUrl, path, body);
  assert.deepEqual([status, text], [200, '{}'], path);
}

/** Whether the deletion must remove a record. The record itself carries this word. */
export type Fate = 'go' | 'stay';

type EventUser = { readonly identity: string } | { readonly user_id: string };

/** Sends one event per user, with its fate as a property. */
export async function sendEvents(
  sluice: Deployment,
  appId: string,
  fate: Fate,
  users: readonly EventUser[],
  more: object = {},
): Promise<void> {
  const events = users.map((user) => ({ event: 'Seen', ...user, properties: { fate }, ...more }));
  await send(sluice, '/api/track', { app_id: appId, events });
}

export async function sendProperties(
  sluice: Deployment,
  appId: string,
  fate: Fate,
  identities: readonly string[],
): Promise<void> {
  const users = identities.map((identity) => ({ identity, properties: { fate, plan: 'pro' } }));
  await send(sluice, '/api/add_user_properties', { app_id: appId, users });
}

export async function sendIdentify(
  sluice: Deployment,
  appId: string,
  userId: string,
  identity: string,
): Promise<void> {
  await send(sluice, '/api/v1/identify', { app_id: appId, user_id: userId, identity });
}

/** Stores a failed row that appears to be from the oldest segment. */
export async function storeFailedRow(
  sluice: Deployment,
  appId: string,
  fate: Fate,
  { identity, userId, row = '[]' }: { identity?: string; userId?: string; row?: string },
): Promise<void> {
  failedLines += 1;
  const values = {
    table_name: 'events',
    segment: 1,
    line: failedLines,
    app_id: appId,
    identity: identity ?? '',
    user_id: userId ?? null,
    row,
    error: fate,
  };
  await sluice.rows(`INSERT INTO failed_events FORMAT JSONEachRow ${JSON.stringify(values)}`);
}

let failedLines = 0;

/** The rows of each table that holds users, without markers, as sorted JSON. */
export type Dump = ReadonlyMap<string, readonly string[]>;

/** Reads all tables that hold users, without the rows of `except`. */
export async function dumpTables(sluice: Deployment, except?: Dump): Promise<Dump> {
  const dump = new Map<string, string[]>();
  for (const table of userTables) {
    const excepted = new Set(except?.get(table));
    const rows = await sluice.rows(`SELECT * FROM ${table} WHERE app_id != ''`);
    const texts = rows.map((row) => JSON.stringify(row)).filter((text) => !excepted.has(text));
    dump.set(table, texts.sort());
  }
  return dump;
}

/** The fate of a row. An identification carries none; it goes if it is in the set. */
export function fateOf(table: string, text: string, identificationsToGo: ReadonlySet<string>): Fate {
  const row = JSON.parse(text) as Record<string, unknown> & { properties?: { fate?: Fate } };
  if (table === 'stored_user_identities') {
    return identificationsToGo.has(`${row.app_id} ${row.user_id} ${row.identity}`) ? 'go' : 'stay';
  }
  const fate = table === 'failed_events' ? (row.error as Fate) : row.properties?.fate;
  assert.ok(fate === 'go' || fate === 'stay', `a row carries no fate: ${text}`);
  return fate;
}

/**
 * Asserts that every row of `before` that must stay is still there, byte for byte, and that nothing else is there except rows that were
 * accepted meanwhile; `accepted` has their number by table.
 */
export function assertExact(
  before: Dump,
  after: Dump,
  identificationsToGo: ReadonlySet<string>,
  accepted: Readonly<Record<string, number>> = {},
): void {
  for (const table of userTables) {
    const stays = (before.get(table) ?? []).filter(
      (row) => fateOf(table, row, identificationsToGo) === 'stay',
    );
    const left = after.get(table) ?? [];
    const leftSet = new Set(left);
    assert.deepEqual(
      stays.filter((row) => !leftSet.has(row)),
      [],
      `${table} lost rows of others`,
    );
    assert.deepEqual(
      left.filter((row) => fateOf(table, row, identificationsToGo) === 'go'),
      [],
      `${table} kept rows of a target`,
    );
    assert.equal(left.length, stays.length + (accepted[table] ?? 0), `rows of ${table}`);
  }
}

/** Settles with how many rows a request found before it deleted any, by environment and table. */
export async function readFound(sluice: Deployment, requestId: string): Promise<Record<string, number>> {
  const { found = [] } = await showDeletion(sluice, requestId);
  return Object.fromEntries(found.map(({ app_id, table, rows }) => [`${app_id} ${table}`, rows]));
}

export type History = {
  /** An identity of a target that occurs nowhere else, so that a test can search for it afterwards. */
  readonly marker: string;
  /** Whom to delete: the identity, the marker and an anonymous user. */
  readonly users: readonly User[];
  readonly identificationsToGo: ReadonlySet<string>;
  /** How many rows the evidence must say were found, by environment and table. */
  readonly found: Readonly<Record<string, number>>;
  /** Sends further records of the same users, after the submission was answered; settles with their number by table. */
  readonly returnToService: () => Promise<Readonly<Record<string, number>>>;
};

/** Every marker of this process begins with it. */
export const markerPrefix = randomBytes(12).toString('base64url');

let userIds = 1_000_000;

/**
 * Writes records of a user with a merged user_id and of an anonymous user into two environments of an account. Also
 * writes records of other users with similar names, into the same environments and into another account.
 */
export async function writeHistory(
  sluice: Deployment,
  account: TestAccount,
  stranger: TestAccount,
  identity: string,
): Promise<History> {
  const [main = '', staging = ''] = account.appIds;
  const elsewhere = stranger.appIds[0] ?? '';
  userIds += 100;
  const [merged, anonymous, other] = [`${userIds}`, `${userIds + 1}`, `${userIds + 2}`] as const;
  const neighbour = `${identity}x`;
  const marker = `${markerPrefix}${randomBytes(12).toString('base64url')}`;
  const near = [{ identity: neighbour }, { identity: merged }, { user_id: `${merged}0` }, { user_id: other }];

  await sendEvents(sluice, main, 'go', [{ identity }, { identity: marker }, { user_id: merged }]);
  await sendEvents(sluice, main, 'go', [{ user_id: anonymous }]);
  await sendEvents(sluice, main, 'stay', near);
  await sendIdentify(sluice, main, merged, identity);
  await sendIdentify(sluice, main, other, neighbour);
  // The first identity of a user_id counts.
  await sendIdentify(sluice, main, other, identity);
  await sendEvents(sluice, main, 'go', [{ identity }, { user_id: merged }]);
  await sendProperties(sluice, main, 'go', [identity, marker]);
  await sendProperties(sluice, main, 'stay', [neighbour]);
  await sendEvents(sluice, staging, 'go', [{ identity }, { user_id: anonymous }]);
  await sendEvents(sluice, staging, 'stay', [{ user_id: merged }, ...near]);
  await sendEvents(sluice, elsewhere, 'stay', [{ identity }, { user_id: merged }, { user_id: anonymous }]);
  await sendIdentify(sluice, elsewhere, merged, identity);
  await storeFailedRow(sluice, main, 'go', { identity });
  await storeFailedRow(sluice, main, 'go', { userId: merged });
  await storeFailedRow(sluice, main, 'stay', { identity: neighbour });
  await storeFailedRow(sluice, elsewhere, 'stay', { identity });

  return {
    marker,
    users: [{ identity }, { identity: marker }, { user_id: Number(anonymous) }],
    identificationsToGo: new Set([`${main} ${merged} ${identity}`, `${main} ${other} ${identity}`]),
    found: {
      [`${main} stored_events`]: 6,
      [`${main} stored_user_properties`]: 2,
      [`${main} failed_events`]: 2,
      [`${main} stored_user_identities`]: 2,
      [`${staging} stored_events`]: 2,
    },
    returnToService: async () => {
      await sendEvents(sluice, main, 'stay', [{ identity }, { user_id: merged }, { user_id: anonymous }]);
      await sendEvents(sluice, staging, 'stay', [{ identity }]);
      await sendProperties(sluice, main, 'stay', [identity]);
      return { stored_events: 4, stored_user_properties: 1 };
    },
  };
}
