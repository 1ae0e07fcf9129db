// Who may delete: tokens, what a submission must look like, and who may see which status.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { deletionStates } from '../../src/contract/deletion-states.js';
import { deletions } from '../../src/contract/limits.js';
import type { Target } from '../../src/privacy/deletion/targets.js';
import { registryKeys } from '../../src/redis/keys.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import {
  type Ask,
  administer,
  ask,
  basic,
  deletionPaths,
  getToken,
  parse,
  type Reply,
  readStatus,
  submit,
  submitAccepted,
} from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startSluice } from '../harness/services.js';
import { lookUp } from '../harness/suppression.js';
import { submitExport } from '../harness/user-export.js';
import { until } from '../harness/wait.js';
import { addPending, removePending } from '../support/pending.js';
import { filesWith, keysWith } from '../support/traces.js';
import * as badInput from './bad-input.js';

/** Runs no workers, so submitted requests stay pending. */
let sluice: SluiceHandle;
let account: TestAccount;
let stranger: TestAccount;
let token: string;
let strangerToken: string;

/** Requests from this address come from a proxy. */
const proxy = '127.0.0.9';

before(async () => {
  sluice = await startSluice({
    workers: 0,
    apiEnv: { PUBLIC_BASE_URL: 'https://events.example.com/', TRUSTED_PROXIES: `${proxy}, 10.0.0.0/8` },
  });
  account = await createTestAccount(sluice, 'Access', ['Main Production', 'Staging']);
  stranger = await createTestAccount(sluice, 'Stranger');
  token = await getToken(sluice, account);
  strangerToken = await getToken(sluice, stranger);
});

after(async () => {
  await sluice?.stop();
});

type Sent = readonly (readonly [string, string])[];

function askToken(
  headers: Sent,
  more: { body?: string; path?: string; localAddress?: string } = {},
): Promise<Reply> {
  return ask(sluice.baseUrl, { method: 'POST', path: deletionPaths.token, headers, ...more });
}

function base64(text: string | Buffer): string {
  return Buffer.from(text).toString('base64');
}

/** A new account for each test that changes a key. */
async function freshAccount(): Promise<{
  account: TestAccount;
  token: string;
  main: string;
  staging: string;
}> {
  const fresh = await createTestAccount(sluice, `Fresh ${randomBytes(4).toString('hex')}`);
  const [main = '', staging = ''] = fresh.appIds;
  return { account: fresh, token: await getToken(sluice, fresh), main, staging };
}

/** Replaces the environment's key, or makes its first one; settles with it. */
async function newKey(appId: string, method: 'PUT' | 'POST'): Promise<string> {
  return (await administer<{ api_key: string }>(sluice, method, `/environments/${appId}/key`)).api_key;
}

test('answers a token for the key of Main Production, under both names, and never to be cached', async () => {
  const [appId = ''] = account.appIds;
  const reply = await askToken([['Authorization', basic(appId, account.apiKey)]]);
  assert.equal(reply.status, 200);
  const { access_token: accessToken, auth_token: authToken } = parse(reply);
  assert.equal(typeof accessToken, 'string');
  assert.equal(authToken, accessToken);
  assert.match(String(accessToken), /[A-Za-z0-9_-]{43}/, '256 bits');
  assert.equal(reply.headers['cache-control'], 'no-store');
  assert.match(String(reply.headers['content-type']), /^application\/json/);
  assert.equal(reply.headers['access-control-allow-origin'], undefined);
});

test('accepts the scheme in any case, several spaces, and an empty body', async () => {
  const credentials = base64(`${account.appIds[0]}:${account.apiKey}`);
  const sent: { headers: Sent; body?: string }[] = [
    { headers: [['authorization', `basic ${credentials}`]] },
    { headers: [['AUTHORIZATION', `BASIC ${credentials}`]] },
    { headers: [['Authorization', `bAsIc  ${credentials}`]] },
    { headers: [['Authorization', `Basic ${credentials} `]] },
    { headers: [['Authorization', `Basic ${credentials.replace(/=+$/, '')}`]] },
    {
      headers: [
        ['Authorization', `Basic ${credentials}`],
        ['Content-Type', 'application/json'],
      ],
    },
    { headers: [['Authorization', `Basic ${credentials}`]], body: '{"anything": true}' },
    { headers: [['Authorization', `Basic ${credentials}`]], body: 'not JSON' },
  ];
  for (const { headers, body } of sent) {
    const reply = await askToken(headers, body === undefined ? {} : { body });
    assert.equal(reply.status, 200, `${JSON.stringify(headers)} ${reply.text}`);
  }
});

test('answers every wrong token request with the same bytes', async () => {
  const { account: keyless, main: keylessId } = await freshAccount();
  await administer(sluice, 'DELETE', `/environments/${keylessId}/key`);
  const [appId = '', staging = ''] = account.appIds;
  const key = account.apiKey;
  const tooLong = 'x'.repeat(2_000);
  const wrong: Readonly<Record<string, Sent>> = {
    'a wrong key': [['Authorization', basic(appId, `${key}x`)]],
    'a key cut short': [['Authorization', basic(appId, key.slice(0, -1))]],
    'a key in other case': [['Authorization', basic(appId, key.toUpperCase())]],
    'another account': [['Authorization', basic(stranger.appIds[0] ?? '', key)]],
    'an unknown app_id': [['Authorization', basic('1', key)]],
    'an app_id that is a name of every object': [['Authorization', basic('__proto__', key)]],
    'another such name': [['Authorization', basic('constructor', key)]],
    'an environment that is not main': [['Authorization', basic(staging, key)]],
    'an environment without a key': [['Authorization', basic(keylessId, keyless.apiKey)]],
    'no header': [],
    'an empty header': [['Authorization', '']],
    'the scheme alone': [['Authorization', 'Basic']],
    'another scheme': [['Authorization', `Bearer ${token}`]],
    'no scheme': [['Authorization', base64(`${appId}:${key}`)]],
    'no base64': [['Authorization', 'Basic ***']],
    'base64 of another alphabet': [['Authorization', 'Basic _-_-']],
    'no colon': [['Authorization', `Basic ${base64(`${appId}${key}`)}`]],
    'an empty name': [['Authorization', `Basic ${base64(`:${key}`)}`]],
    'an empty password': [['Authorization', `Basic ${base64(`${appId}:`)}`]],
    'no UTF-8': [['Authorization', `Basic ${base64(Buffer.from([0x31, 0x3a, 0xff, 0xfe]))}`]],
    'a NUL': [['Authorization', basic(`${appId}\0`, key)]],
    'a long key': [['Authorization', basic(appId, tooLong)]],
    'two headers': [
      ['Authorization', basic(appId, key)],
      ['Authorization', basic(appId, key)],
    ],
  };
  const answers = new Map<string, string[]>();
  for (const [cause, headers] of Object.entries(wrong)) {
    const reply = await askToken(headers);
    answers.set(reply.bytes, [...(answers.get(reply.bytes) ?? []), cause]);
    assert.equal(reply.status, 401, cause);
    const body = parse(reply);
    assert.equal(typeof (body.err as { message?: unknown }).message, 'string', cause);
    assert.equal(typeof body.error, 'string', cause);
    assert.equal(typeof body.message, 'string', cause);
    assert.match(String(reply.headers['www-authenticate']), /^Basic /, cause);
  }
  assert.equal(answers.size, 1, JSON.stringify([...answers.values()]));
  const query = await askToken([], { path: `${deletionPaths.token}?app_id=${appId}&api_key=${key}` });
  assert.ok(answers.has(query.bytes), 'credentials in the query');
});

test('answers a submission and its status exactly as documented', async () => {
  const reply = await submit(sluice, token, '{"users":[{"user_id":7},{"identity":"bob"}]}');
  assert.equal(reply.status, 201);
  const { deletion_request_id: requestId, ...rest } = parse(reply);
  assert.deepEqual(rest, {
    deletion_request_location: `https://events.example.com/api/public/v0/deletion_status/${requestId}`,
    status: 'pending',
  });
  const status = await readStatus(sluice, token, String(requestId));
  assert.equal(status.status, 200);
  const { submitted_at: submittedAt, ...shown } = parse(status);
  assert.match(String(submittedAt), /^\d{4}-\d\d-\d\dT/);
  assert.deepEqual(shown, {
    deletion_request_id: requestId,
    status: 'pending',
    state: 'submitted',
    message: deletionStates.submitted,
    users: 2,
  });
});

test('never takes the location from the Host header', async () => {
  const reply = await ask(sluice.baseUrl, {
    method: 'POST',
    path: deletionPaths.submit,
    headers: [
      ['Host', 'evil.example'],
      ['X-Forwarded-Host', 'evil.example'],
      ['Authorization', `Bearer ${token}`],
      ['Content-Type', 'application/json'],
    ],
    body: '{"users":[{"identity":"host"}]}',
  });
  assert.equal(reply.status, 201);
  assert.ok(!reply.text.includes('evil'), reply.text);
});

/** A request and an export of the caller, and one of each of a stranger. Their state never changes, since no worker runs. */
type Named = Readonly<Record<'own' | 'foreign', { readonly ID: string; readonly EXPORT: string }>>;
let named: Promise<Named> | undefined;
function namedRequests(): Promise<Named> {
  const of = async (its: string) => ({
    ID: await submitAccepted(sluice, its, [{ identity: 'bob' }]),
    EXPORT: await submitExport(sluice, its, [{ identity: 'bob' }]),
  });
  named ??= Promise.all([of(token), of(strangerToken)]).then(([own, foreign]) => ({ own, foreign }));
  return named;
}

function pathTo(path: string, { ID, EXPORT }: Named['own']): string {
  return `${badInput.api}${path.replace('ID', ID).replace('EXPORT', EXPORT)}`;
}

const bearer = (its: string) => ['Authorization', `Bearer ${its}`] as const;
const json = ['Content-Type', 'application/json'] as const;
/** A body that is right for every endpoint that takes one. */
const goodBody = JSON.stringify({ users: [{ identity: 'bob' }], suppress: true });
/** A body for the endpoints that know every field of it. */
const listBody = JSON.stringify({ users: [{ identity: 'bob' }] });

/** What a row of the table sends, and how it has to be answered. */
type Row = Partial<Ask> & { readonly path: string; readonly what: string; readonly answer: string };

/** Sends the rows one after another, none of which counts towards a limit, and compares all the answers at once. */
async function assertAnswers(rows: readonly Row[]): Promise<void> {
  const digest = createHash('sha256').update(token).digest('hex');
  const limits = [registryKeys.statusRequests(digest), registryKeys.suppressionRequests(digest)];
  const answered: string[] = [];
  await withRedis(sluice, async (redis) => {
    for (const { what, answer: _, ...sent } of rows) {
      await redis.del(...limits);
      const reply = await ask(sluice.baseUrl, { method: 'POST', headers: [bearer(token), json], ...sent });
      const { code = '', field = '' } = (parse(reply) as { err?: Record<string, string> }).err ?? {};
      answered.push(`${what}: ${`${reply.status} ${code} ${field}`.trimEnd()}`);
      assert.equal(reply.headers['access-control-allow-origin'], undefined, what);
    }
  });
  assert.deepEqual(
    answered,
    rows.map(({ what, answer }) => `${what}: ${answer}`),
  );
}

/** What requests have left: deletions, exports and suppressed users. */
async function countKept(): Promise<object> {
  const [deletions, exports] = await withRedis(sluice, async (redis) => [
    await redis.hlen(registryKeys.deletions),
    await redis.zcard(registryKeys.exports),
  ]);
  return { deletions, exports, suppressed: parse(await lookUp(sluice.baseUrl, token)) };
}

for (const endpoint of badInput.listEndpoints) {
  test(`POST ${endpoint.path} refuses every list that is wrong as a whole, and says where`, async () => {
    const { own } = await namedRequests();
    const path = pathTo(endpoint.path, own);
    const row = (what: string, body: string | Buffer, answer: string): Row => ({ path, what, body, answer });
    const beside = JSON.stringify(endpoint.beside).slice(1, -1);
    const withList = (users: string) => `{${[`"users":${users}`, beside].filter(Boolean).join()}}`;
    const { tooMany, most, tooLarge, inflatedTooLarge } = badInput.oversized(endpoint);
    const { accepted } = endpoint;
    await assertAnswers([
      ...(accepted === undefined ? [] : badInput.goodUsers).map(([what, users]) =>
        row(what, withList(users), String(accepted)),
      ),
      ...(accepted === undefined ? [] : [row('as many as it takes', most, accepted)]),
      ...endpoint.own.filter(([, , answer]) => !answer.startsWith('4')).map((each) => row(...each)),
    ]);
    const before = await countKept();
    await assertAnswers([
      ...badInput.badUsers.map(([what, users, answer]) => row(what, withList(users), answer)),
      ...badInput.badBodies.map((each) => row(...each)),
      ...endpoint.own.filter(([, , answer]) => answer.startsWith('4')).map((each) => row(...each)),
      row('too many users', tooMany, '400 too_many_records users'),
      ...tooLarge.map((body) => row('a body that is too large', body, '413 body_too_large')),
      {
        ...row('one that is too large once it is inflated', inflatedTooLarge, '413 body_too_large'),
        headers: [bearer(token), json, ['Content-Encoding', 'gzip']],
      },
      ...badInput.badHeaders.map(([headers, answer]) => ({
        ...row(JSON.stringify(headers), goodBody, answer),
        headers: [bearer(token), ...Object.entries(headers)],
      })),
    ]);
    assert.deepEqual(await countKept(), before, 'a refused request leaves nothing');
  });
}

test('a field that an endpoint does not know changes nothing, and the answer names it', async () => {
  const { own } = await namedRequests();
  for (const { path, ignored } of badInput.listEndpoints) {
    const [body, answer, fields] = ignored;
    const headers = [bearer(token), json];
    const reply = await ask(sluice.baseUrl, { method: 'POST', path: pathTo(path, own), headers, body });
    const { code = '' } = (parse(reply) as { err?: Record<string, string> }).err ?? {};
    assert.deepEqual(
      [`${reply.status} ${code}`.trimEnd(), reply.headers['sluice-ignored']],
      [answer, fields],
      path,
    );
  }
  const known = await submit(sluice, token, '{"users":[{"identity":"bob"}],"suppress":false}');
  assert.equal(known.headers['sluice-ignored'], undefined);
});

test('refuses every query that is wrong, and says where', async () => {
  const { own } = await namedRequests();
  const rows = Object.entries(badInput.badQueries).flatMap(([path, queries]) =>
    queries.map(
      ([query, answer]): Row => ({
        method: 'GET',
        path: `${pathTo(path, own)}${query}`,
        what: `${path}${query}`,
        answer,
      }),
    ),
  );
  await assertAnswers(rows);
});

test('answers 405 to every other method and names the methods of the path, and 404 to every other path', async () => {
  const { own } = await namedRequests();
  const headers = [bearer(token)];
  for (const [path, its] of Object.entries(badInput.methods)) {
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
      if (its.includes(method)) continue;
      const reply = await ask(sluice.baseUrl, { method, path: pathTo(path, own), headers });
      assert.deepEqual([reply.status, reply.headers.allow], [405, its.join(', ')], `${method} ${path}`);
      assert.equal(reply.headers['access-control-allow-origin'], undefined);
    }
  }
  const unknown = [
    '',
    '/',
    '/nothing',
    '/user_deletion/',
    '/user_deletions/x',
    '/deletion_status',
    '/deletion_status/',
  ];
  for (const path of [
    ...unknown,
    '/deletion_status/ID/nothing',
    '/user_export/EXPORT/data/x',
    '/signing_key/x',
  ])
    for (const method of ['GET', 'POST'])
      assert.equal((await ask(sluice.baseUrl, { method, path: pathTo(path, own) })).status, 404, path);
});

/** Tokens that were good once, each under the event that has ended it. */
async function deadTokens(): Promise<Record<string, string>> {
  const [expired, rotated, revoked, moved] = await Promise.all([1, 2, 3, 4].map(() => freshAccount()));
  await withRedis(sluice, (redis) =>
    redis.del(registryKeys.token(createHash('sha256').update(String(expired?.token)).digest('hex'))),
  );
  await administer(sluice, 'PUT', `/environments/${rotated?.main}/key`);
  await administer(sluice, 'DELETE', `/environments/${revoked?.main}/key`);
  await administer(sluice, 'PATCH', `/environments/${moved?.staging}`, { main: true });
  return {
    'an expired token': String(expired?.token),
    'a token of a rotated key': String(rotated?.token),
    'a token of a revoked key': String(revoked?.token),
    'a token of an environment that is main no more': String(moved?.token),
    'an API key': account.apiKey,
    'the administration’s token': sluice.adminToken,
  };
}

test('answers every call without a good token with the same bytes, whatever it asks for', async () => {
  const { own, foreign } = await namedRequests();
  const dead = Object.entries(await deadTokens()).map(([what, its]) => [what, [bearer(its)]] as const);
  const answers = new Map<string, string>();
  const check = async (what: string, sent: Ask) => {
    const reply = await ask(sluice.baseUrl, sent);
    assert.equal(reply.status, 401, what);
    answers.set(reply.bytes, what);
  };
  const endpoints = badInput.tokenEndpoints.map(({ method, path }) => ({
    method,
    path,
    body: method === 'POST' ? goodBody : '',
  }));
  for (const [cause, headers] of [...Object.entries(badInput.noToken(token)), ...dead]) {
    for (const { method, path, body } of endpoints) {
      const sent = { method, path: pathTo(path, own), headers: [...headers, json], body };
      await check(`${method} ${path}: ${cause}`, sent);
    }
  }
  const headers = [bearer(`slt_${'A'.repeat(43)}`), json];
  for (const { method, path } of endpoints) {
    if (method === 'POST')
      for (const body of ['{"users":[]}', 'no JSON', '', JSON.stringify({ access_token: token })])
        await check(`${path}: ${body}`, { method, path: pathTo(path, own), headers, body });
    for (const ids of [foreign, { ID: '0', EXPORT: '0' }])
      for (const query of ['', `?access_token=${token}`, '?cursor=x&state=x&user_id=x'])
        await check(`${path} of others${query}`, { method, path: `${pathTo(path, ids)}${query}`, headers });
  }
  assert.equal(answers.size, 1, [...answers].join('\n'));
});

test('answers 404 with the same bytes for every request and export that is not the caller’s', async () => {
  const { own, foreign } = await namedRequests();
  const answers = new Map<string, string>();
  const check = async (method: string, path: string, its: string) => {
    const reply = await ask(sluice.baseUrl, {
      method,
      path,
      headers: [bearer(its), json],
      body: method === 'POST' ? listBody : '',
    });
    assert.equal(reply.status, 404, path);
    answers.set(reply.bytes, path);
  };
  for (const { method, path } of badInput.namingEndpoints) {
    // Each endpoint gets its own token: all of them together send more requests in a second than a token may.
    const caller = await getToken(sluice, account);
    const its = path.includes('ID') ? own.ID : own.EXPORT;
    for (const id of badInput.oddIds(its)) await check(method, pathTo(path, { ID: id, EXPORT: id }), caller);
    await check(method, pathTo(path, { ID: own.EXPORT, EXPORT: own.ID }), caller);
    await check(method, pathTo(path, foreign), caller);
    await check(method, pathTo(path, own), strangerToken);
    assert.notEqual(
      (
        await ask(sluice.baseUrl, {
          method,
          path: pathTo(path, own),
          headers: [bearer(caller), json],
          body: method === 'POST' ? goodBody : '',
        })
      ).status,
      404,
    );
  }
  assert.equal(answers.size, 1, [...answers].join('\n'));
});

async function keptTargets(requestId: string): Promise<Target[]> {
  const text = await withRedis(sluice, (redis) => redis.get(registryKeys.deletionTargets(requestId)));
  return JSON.parse(text ?? 'null') as Target[];
}

test('keeps user_ids and identities apart, and each in one form', async () => {
  const body =
    '{"users":[{"user_id":7},{"user_id":"7"},{"identity":"7"},{"user_id":1e3},{"user_id":7.0},{"identity":"e\\u0301"},{"identity":"\\u00e9"}]}';
  const reply = await submit(sluice, token, body);
  assert.equal(reply.status, 201);
  assert.deepEqual(await keptTargets(String(parse(reply).deletion_request_id)), [
    'u7',
    '',
    'i7',
    'u1000',
    '',
    'ie\u0301',
    'i\u00e9',
  ]);
});

test('accepts 10,000 users of 255 escaped characters each within bounded memory', async () => {
  const api = sluice.api[0] ?? assert.fail();
  const memoryKiB = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${api.pid}/status`, 'utf8'))?.[1]);
  const escaped = '\\ud83d\\ude00'.repeat(250);
  const identity = (at: number) =>
    `${[...String(at).padStart(5, '0')].map((digit) => `\\u003${digit}`).join('')}${escaped}`;
  const users = (count: number) => Array.from({ length: count }, (_, at) => `{"identity":"${identity(at)}"}`);
  const body = `{"users":[${users(10_000).join(',')}]}`;
  assert.ok(body.length > 30_000_000, `${body.length} bytes`);

  const before = memoryKiB();
  let highest = before;
  const watch = setInterval(() => {
    highest = Math.max(highest, memoryKiB());
  }, 20);
  const replies = await Promise.all([submit(sluice, token, body), submit(sluice, token, body)]);
  clearInterval(watch);
  for (const reply of replies) assert.equal(reply.status, 201, reply.text.slice(0, 300));
  assert.ok(highest - before < 600 * 1024, `memory grew by ${highest - before} KiB`);
  const targets = await keptTargets(String(parse(replies[0] as Reply).deletion_request_id));
  assert.equal(targets.length, 10_000);
  assert.equal(targets[1_234], `i01234${'\u{1f600}'.repeat(250)}`);
});

test('accepts the scheme of a token in any case', async () => {
  const requestId = await submitAccepted(sluice, token, [{ identity: 'bob' }]);
  for (const value of [`bearer ${token}`, `BEARER  ${token}`, `Bearer ${token} `]) {
    const headers = [['Authorization', value]] as const;
    const reply = await ask(sluice.baseUrl, {
      method: 'GET',
      path: deletionPaths.status(requestId),
      headers,
    });
    assert.equal(reply.status, 200, value);
  }
});

test('a token opens nothing but the deletion API', async () => {
  for (const path of ['/admin/v1/accounts', '/admin/v1/deletions']) {
    const reply = await ask(sluice.adminUrl, {
      method: 'GET',
      path,
      headers: [['Authorization', `Bearer ${token}`]],
    });
    assert.equal(reply.status, 401);
  }
});

/** Asserts that a token opens nothing any more, as soon as the change that ends it is answered. */
async function assertDead(ownToken: string): Promise<void> {
  assert.equal((await submit(sluice, ownToken, [{ identity: 'late' }])).status, 401);
  assert.equal((await readStatus(sluice, ownToken, '3d6f0a52-8f6e-4c9e-9a57-0123456789ab')).status, 401);
}

test('ends a token when its lifetime is over, an hour after it was issued', async () => {
  const { token: ownToken } = await freshAccount();
  const key = registryKeys.token(createHash('sha256').update(ownToken).digest('hex'));
  await withRedis(sluice, async (redis) => {
    const leftMs = await redis.pttl(key);
    assert.ok(leftMs > 3_500_000 && leftMs <= 3_600_000, `${leftMs} ms`);
    await redis.pexpire(key, 1);
    await until(async () => (await redis.exists(key)) === 0, 'the lifetime is over');
  });
  await assertDead(ownToken);
});

test('refuses to issue one live token too many, says correctly for how long, and ends none of the others', async () => {
  const { account: own, token: first, main } = await freshAccount();
  const live = registryKeys.liveTokens(createHash('sha256').update(own.apiKey).digest('hex'));
  const request = (apiKey = own.apiKey) => askToken([['Authorization', basic(main, apiKey)]]);
  const works = async (ownToken: unknown) => (await readStatus(sluice, String(ownToken), 'x')).status === 404;
  await withRedis(sluice, async (redis) => {
    const leftMs = await redis.pttl(live);
    assert.ok(leftMs > 3_500_000 && leftMs <= 3_600_000, `${leftMs} ms`);
    // The entries of as many issued tokens as are still allowed but one. The oldest ends in a thousand seconds.
    const endsMs = Date.now() + 1_000_000;
    const missing = deletions.liveTokensPerKeyMax - 2;
    for (let at = 0; at < missing; at += 1_000) {
      const count = Math.min(1_000, missing - at);
      await redis.zadd(live, ...Array.from({ length: count }, (_, i) => [endsMs + at + i, at + i]).flat());
    }
    assert.equal(await redis.zcard(live), deletions.liveTokensPerKeyMax - 1);

    const last = await request();
    assert.equal(last.status, 200, 'the highest number of tokens');
    const refused = await request();
    assert.equal(refused.status, 429);
    const retrySeconds = Number(refused.headers['retry-after']);
    assert.ok(retrySeconds > 900 && retrySeconds <= 1_000, String(retrySeconds));
    assert.equal((parse(refused).err as { code?: unknown }).code, 'rate_limited');
    assert.equal(await redis.zcard(live), deletions.liveTokensPerKeyMax);
    assert.ok((await works(first)) && (await works(parse(last).access_token)), 'no token was ended');

    await redis.zadd(live, Date.now() + 30_000, '0');
    const again = await request();
    assert.deepEqual([again.status, Number(again.headers['retry-after']) <= 30], [429, true]);
    await redis.zadd(live, Date.now() - 1, '0');
    assert.equal((await request()).status, 200, 'the oldest has ended');
    assert.equal((await request()).status, 429, 'full again');

    const apiKey = await newKey(main, 'PUT');
    await assertDead(first);
    await assertDead(String(parse(last).access_token));
    assert.equal((await request(apiKey)).status, 200, 'tokens of the former key do not count');
  });
});

test('an account has no more tokens than the bound, over all its keys, until those of a minute have ended', async () => {
  const { account: own, token: first, main } = await freshAccount();
  const request = (apiKey: string) => askToken([['Authorization', basic(main, apiKey)]]);
  const issued = registryKeys.issuedTokens(own.accountId);
  await withRedis(sluice, async (redis) => {
    const leftMs = await redis.pttl(issued);
    assert.ok(leftMs > 3_600_000 && leftMs <= 3_660_000, `${leftMs} ms`);
    assert.deepEqual(await redis.hvals(issued), ['1']);
    // The counts of others: issued in a minute whose tokens end between 60 and 120 seconds from now, and some long ago.
    const minute = Math.floor(Date.now() / 60_000) - 59;
    await redis.hset(issued, minute, deletions.tokensPerAccountMax - 2, minute - 10, 1_000_000);
    assert.equal((await request(own.apiKey)).status, 200, 'the highest number of tokens');
    assert.equal(await redis.hget(issued, String(minute - 10)), null, 'tokens that have ended do not count');
    const apiKey = await newKey(main, 'PUT');
    const refused = await request(apiKey);
    assert.equal(refused.status, 429);
    const retrySeconds = Number(refused.headers['retry-after']);
    assert.ok(retrySeconds > 0 && retrySeconds <= 120, String(retrySeconds));
    assert.equal(
      (await askToken([['Authorization', basic(account.appIds[0] ?? '', account.apiKey)]])).status,
      200,
    );
    await redis.hdel(issued, String(minute));
    assert.equal((await request(apiKey)).status, 200);
    await assertDead(first);
  });
});

test('the counts of requests from before the clock was set back do not last longer', async () => {
  const { token: ownToken, main } = await freshAccount();
  const address = '127.0.0.1';
  const digest = (text: string) => createHash('sha256').update(text).digest('hex');
  const failures = registryKeys.tokenFailures(digest(`${main}\0${address}`));
  const statuses = registryKeys.statusRequests(digest(ownToken));
  const dayMs = 24 * 3_600_000;
  await withRedis(sluice, async (redis) => {
    for (const key of [failures, statuses]) await redis.set(key, 1_000, 'PX', dayMs);
    assert.equal((await readStatus(sluice, ownToken, 'x')).status, 429);
    assert.equal((await askToken([['Authorization', basic(main, 'wrong')]])).status, 429);
    assert.ok((await redis.pttl(statuses)) <= 1_000);
    assert.ok((await redis.pttl(failures)) <= 60_000);
  });
});

test('ends the tokens of an environment that stops being main for good, and gives the new one its own', async () => {
  const { account: own, token: ownToken, main, staging } = await freshAccount();
  const requestId = await submitAccepted(sluice, ownToken, [{ identity: 'bob' }]);
  await administer(sluice, 'PATCH', `/environments/${staging}`, { main: true });
  await assertDead(ownToken);
  assert.equal((await askToken([['Authorization', basic(main, own.apiKey)]])).status, 401);
  const apiKey = await newKey(staging, 'POST');
  const fresh = await getToken(sluice, { ...own, appIds: [staging], apiKey });
  assert.equal((await readStatus(sluice, fresh, requestId)).status, 200, 'the account is the same');
  await administer(sluice, 'PATCH', `/environments/${main}`, { main: true });
  await assertDead(ownToken);
  await assertDead(fresh);
  const again = await getToken(sluice, own);
  assert.equal((await readStatus(sluice, again, requestId)).status, 200);
  // A change that sets what is already set ends no token.
  await administer(sluice, 'PATCH', `/environments/${main}`, { main: true, validation: 'lenient' });
  assert.equal((await readStatus(sluice, again, requestId)).status, 200);
});

test('stores keys and tokens as hashes only, and logs none', async () => {
  const secrets = [account.apiKey, token, stranger.apiKey, strangerToken];
  for (const dir of [join(sluice.redis.dir, 'appendonlydir'), sluice.clickhouse.dir])
    assert.deepEqual(filesWith(dir, secrets), []);
  for (const secret of secrets) {
    assert.deepEqual(await keysWith(sluice, secret), []);
    for (const child of [...sluice.api, sluice.redis, sluice.clickhouse]) {
      assert.ok(!child.output().includes(secret), child.name);
    }
  }
});

test('answers a wrong key 429 after 20 failed token requests, and always answers a right key with a token', async () => {
  const { account: own, main } = await freshAccount();
  const wrong = [['Authorization', basic(main, 'wrong')]] as const;
  const right = [['Authorization', basic(main, own.apiKey)]] as const;
  for (let attempt = 1; attempt <= 20; attempt += 1)
    assert.equal((await askToken(wrong)).status, 401, `${attempt}`);
  const limited = await askToken(wrong);
  assert.equal(limited.status, 429);
  assert.equal(typeof (parse(limited).err as { message?: unknown }).message, 'string');
  const retrySeconds = Number(limited.headers['retry-after']);
  assert.ok(retrySeconds >= 1 && retrySeconds <= 60, `Retry-After ${retrySeconds}`);
  for (let attempt = 1; attempt <= 3; attempt += 1) assert.equal((await askToken(right)).status, 200);
  assert.equal((await askToken(wrong)).status, 429, 'a token does not reset the count');
  assert.equal((await askToken(wrong, { localAddress: '127.0.0.2' })).status, 401);
  const other = await freshAccount();
  assert.equal((await askToken([['Authorization', basic(other.main, 'wrong')]])).status, 401);
});

test('counts failures by the address that a trusted proxy forwards, not by the proxy’s own', async () => {
  const { account: own, main } = await freshAccount();
  const ask = (key: string, caller: string, localAddress = proxy) =>
    askToken(
      [
        ['Authorization', basic(main, key)],
        ['X-Forwarded-For', caller],
      ],
      { localAddress },
    );
  const attacker = '203.0.113.7';
  for (let attempt = 1; attempt <= 20; attempt += 1) {
    // The addresses that the attacker makes up are further left in the header.
    assert.equal((await ask('wrong', `10.0.0.${attempt}, ${attacker}`)).status, 401);
  }
  assert.equal((await ask('wrong', attacker)).status, 429);
  assert.equal((await ask('wrong', '203.0.113.8')).status, 401, 'somebody else behind the same proxy');
  assert.equal((await ask('wrong', attacker, '127.0.0.2')).status, 401, 'only a proxy is believed');
  assert.equal((await ask(own.apiKey, attacker)).status, 200);
});

test('counts all app_ids without an API key together, so that made-up app_ids take no memory in Redis', async () => {
  const localAddress = '127.0.0.7';
  const counts = () => withRedis(sluice, (redis) => redis.keys(registryKeys.tokenFailures('*')));
  const before = (await counts()).length;
  const statuses: number[] = [];
  for (let n = 0; n < 30; n += 1) {
    const reply = await askToken([['Authorization', basic(`${9_000_000_000 + n}`, 'x')]], { localAddress });
    statuses.push(reply.status);
  }
  assert.deepEqual(statuses, [...Array(20).fill(401), ...Array(10).fill(429)]);
  assert.ok((await counts()).length <= before + 1);
});

test('counts failed token requests that come at once', async () => {
  const { main } = await freshAccount();
  const wrong = [['Authorization', basic(main, 'wrong')]] as const;
  const replies = await Promise.all(Array.from({ length: 60 }, () => askToken(wrong)));
  const refused = replies.filter(({ status }) => status === 401).length;
  assert.equal(refused, 20, `${refused} of 60 guesses were checked`);
  assert.equal(replies.filter(({ status }) => status === 429).length, 40);
});

test('answers 100 status requests a second of one token', async () => {
  const { token: ownToken } = await freshAccount();
  const requestId = await submitAccepted(sluice, ownToken, [{ identity: 'bob' }]);
  const started = performance.now();
  const replies = await Promise.all(
    Array.from({ length: 250 }, () => readStatus(sluice, ownToken, requestId)),
  );
  const windows = Math.floor((performance.now() - started) / 1_000) + 1;
  const taken = replies.filter(({ status }) => status === 200).length;
  const limited = replies.filter(({ status }) => status === 429);
  assert.equal(taken + limited.length, 250);
  assert.ok(taken >= 100 && taken <= 100 * windows, `${taken} in ${windows} windows`);
  for (const reply of limited) assert.equal(reply.headers['retry-after'], '1');
  // Another token of the same account is not held up.
  assert.equal((await readStatus(sluice, token, requestId)).status, 404);
});

test('accepts 2,000 pending requests of one account', async () => {
  const { account: own, token: ownToken } = await freshAccount();
  const { accountId } = own;
  await withRedis(sluice, async (redis) => {
    await addPending(
      redis,
      Array.from({ length: 1_999 }, (_, at) => `${accountId} pending-${at}`),
    );
    const last = await submitAccepted(sluice, ownToken, [{ identity: 'bob' }]);
    const over = await submit(sluice, ownToken, [{ identity: 'bob' }]);
    assert.equal(over.status, 429, over.text);
    assert.ok(Number(over.headers['retry-after']) >= 1);
    assert.equal((await readStatus(sluice, ownToken, last)).status, 200);
    await submitAccepted(sluice, strangerToken, [{ identity: 'bob' }]);
    await removePending(redis, `${accountId} pending-0`);
    await submitAccepted(sluice, ownToken, [{ identity: 'bob' }]);
  });
});
