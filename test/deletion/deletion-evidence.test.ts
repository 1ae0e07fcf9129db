// What a compliance caller learns about single users, before and after a deletion. The service keeps no user's name for it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { keyIdOf } from '../../src/accounts/signing-key.js';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { createScratch, scratchName } from '../../src/clickhouse/scratch.js';
import { administration, evidence, previews } from '../../src/contract/limits.js';
import { userIdOfAnonymousId } from '../../src/contract/user-id.js';
import { canonicalJson, verifyCertificate } from '../../src/privacy/deletion/certificate.js';
import { createPreviews } from '../../src/privacy/deletion/preview.js';
import type { FoundRows } from '../../src/privacy/deletion/request.js';
import { dropTables, previewPrefix } from '../../src/privacy/deletion/round-tables.js';
import { userTables } from '../../src/privacy/deletion/user-tables.js';
import { registryKeys } from '../../src/redis/keys.js';
import { signingKeyKey } from '../../src/registry/documents.js';
import { readRegistry } from '../../src/registry/registry.js';
import { createTestAccount } from '../harness/accounts.js';
import {
  administer,
  callWithToken,
  deleteNow,
  deletionPaths,
  dumpTables,
  getToken,
  hurryRounds,
  listDeletions,
  parse,
  type Reply,
  readStatus,
  sendEvents,
  sendIdentify,
  sendProperties,
  showDeletion,
  submitAccepted,
  submitDryRun,
  submitWith,
  type User,
  untilComplete,
  untilStored,
  writeHistory,
} from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import { lookUpAll } from '../harness/suppression.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { deletionWorld } from '../support/deletion-world.js';
import { test } from '../support/test.js';
import { keysWith } from '../support/traces.js';

const { sluice, worker, account, stranger, token, strangerToken, main, staging, elsewhere } =
  await deletionWorld();

type Answer = Readonly<Record<string, unknown>>;

async function usersOf(requestId: string, query = ''): Promise<Answer> {
  const reply = await callWithToken(sluice, token, `${deletionPaths.status(requestId)}/users${query}`);
  assert.equal(reply.status, 200, reply.text);
  return parse(reply);
}

function lookUp(requestId: string, users: readonly object[], ownToken = token): Promise<Reply> {
  return callWithToken(sluice, ownToken, `${deletionPaths.status(requestId)}/lookup`, { users });
}

test('shows found and similar users, for each position of the list and for each user who is looked up', async () => {
  const alike = [
    'Bob@Example.com',
    'bob@example.com ',
    '\tBOB@EXAMPLE.COM\n',
    'STRASSE',
    'Ünsal',
    'bob @example.com',
    'carol@example.com',
    '\t',
  ];
  await sendEvents(
    sluice,
    main,
    'stay',
    alike.map((identity) => ({ identity })),
  );
  await sendProperties(sluice, staging, 'stay', ['Bob@Example.com', 'bOb@example.com']);
  await sendIdentify(sluice, main, '201', 'ada@alike');
  await sendIdentify(sluice, staging, '201', 'Ada@alike');
  const anonymousId = '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11';
  const userId = String(userIdOfAnonymousId(anonymousId));
  await sendEvents(sluice, main, 'go', [{ user_id: '201' }, { identity: 'ada@alike' }, { user_id: userId }]);
  await sendEvents(sluice, elsewhere, 'stay', [{ identity: 'bob@example.COM' }]);
  const users = [
    { identity: 'bob@example.com' },
    { identity: 'ada@alike' },
    { identity: 'ada@alike' },
    { user_id: 201 },
    { anonymous_id: anonymousId },
    { identity: 'stra\u00dfe' },
    { identity: '\u00fcnsal' },
    { identity: 'Carol@Example.com ' },
    { identity: ' ' },
  ];
  await hurryRounds(sluice);
  const submitted = parse(await submitWith(sluice, token, { users }));
  const requestId = String(submitted.deletion_request_id);
  // This event comes too late to be counted.
  await sendEvents(sluice, main, 'stay', [{ identity: 'BOB@example.com' }]);
  await untilComplete(sluice, token, requestId);
  // The counts of each user, in the order of the list. In one environment the user_id belongs to another user.
  const counts = [
    { found: false, rows: 0, similar: 4 },
    { found: true, rows: 3, similar: 1 },
    { found: true, rows: 4, similar: 0 },
    { found: true, rows: 1, similar: 0 },
    { found: false, rows: 0, similar: 0 },
    { found: false, rows: 0, similar: 1 },
    { found: false, rows: 0, similar: 1 },
    { found: false, rows: 0, similar: 1 },
  ];
  const places = [0, 1, 3, 4, 5, 6, 7, 8];
  assert.deepEqual(await usersOf(requestId), {
    users: counts.map((each, at) => ({ place: places[at], ...each })),
  });
  assert.deepEqual(parse(await readStatus(sluice, token, requestId)).users_found, 3);
  const order = [6, 0, 2, 8, 1, 7, 4, 3];
  const again = await lookUp(requestId, [
    ...order.map((at) => users[at] ?? {}),
    { identity: 'never named' },
    { user_id: userId },
  ]);
  const countsAt = (place: number) => counts[places.indexOf(place === 2 ? 1 : place)];
  assert.deepEqual(parse(again), {
    users: [...order.map(countsAt), { found: false, rows: 0, similar: 0, named: false }, countsAt(4)],
  });
});

test('pages the users of a long list, whose similar users are found too', async () => {
  await sendEvents(sluice, main, 'stay', [{ identity: 'Long 1' }, { identity: ' long 1' }]);
  const users = Array.from({ length: evidence.usersPerPage + 2 }, (_, n) => ({ identity: `long ${n}` }));
  const requestId = await deleteNow(sluice, token, [...users, { identity: 'long 0' }]);
  const { users: first, cursor } = (await usersOf(requestId)) as {
    users: { place: number; similar: number }[];
    cursor: string;
  };
  const second = (await usersOf(requestId, `?cursor=${cursor}`)) as {
    users: { place: number; similar: number }[];
    cursor?: string;
  };
  assert.deepEqual([first.length, second.users.length, second.cursor], [evidence.usersPerPage, 2, undefined]);
  assert.deepEqual(
    [...first, ...second.users].map(({ place }) => place),
    users.map((_, n) => n),
  );
  assert.deepEqual(
    [...first, ...second.users]
      .filter(({ similar }) => similar > 0)
      .map(({ place, similar }) => [place, similar]),
    [[1, 2]],
  );
  assert.equal((await lookUp(requestId, users.slice(0, 1000))).status, 200);
});

test('reveals nothing about single users before a deletion is complete, after 30 days, or to strangers', async () => {
  worker.sigstop();
  const pending = await submitAccepted(sluice, token, [{ identity: 'single' }]);
  const codes = async (requestId: string, ownToken = token) => {
    const replies = [
      await callWithToken(sluice, ownToken, `${deletionPaths.status(requestId)}/users`),
      await lookUp(requestId, [{ identity: 'single' }], ownToken),
    ];
    return replies.map((reply) => [reply.status, (parse(reply).err as Answer | undefined)?.code]);
  };
  const both = (status: number, code?: string) => [
    [status, code],
    [status, code],
  ];
  assert.deepEqual(await codes(pending), both(409, 'still_pending'));
  worker.sigcont();
  await untilComplete(sluice, token, pending);
  assert.deepEqual(await codes(pending), both(200));
  assert.deepEqual(await codes(pending, strangerToken), both(404, 'not_found'));
  const request = await showDeletion(sluice, pending);
  const untilMs = Date.parse(request.evidence_until ?? '');
  const keptMs = untilMs - Date.parse(request.submitted_at);
  assert.ok(Math.abs(keptMs - evidence.keptMs) < 600_000, `${keptMs} ms`);
  const rows = await sluice.rows(`SELECT * FROM deletion_evidence WHERE request_id = '${pending}'`);
  assert.equal(rows.length, 1);
  assert.ok(!JSON.stringify(rows).includes('single'));
  const [row] = rows as [{ hash: string; expires_at: string }];
  assert.match(row.hash, /^[0-9a-f]{32}$/);
  const expiresMs = Date.parse(`${row.expires_at.replace(' ', 'T')}Z`);
  assert.equal(expiresMs, untilMs, 'it ends when the request says that it does');
  // Evidence that has expired is not shown even before a merge removes it.
  await sluice.rows('SYSTEM STOP MERGES deletion_evidence');
  await sluice.rows(
    `INSERT INTO deletion_evidence SELECT * REPLACE (now64(3) - 1 AS expires_at) FROM deletion_evidence WHERE request_id = '${pending}'`,
  );
  assert.deepEqual(await codes(pending), both(410, 'no_longer_kept'));
  await sluice.rows('SYSTEM START MERGES deletion_evidence');
  // The rows disappear by themselves: their table has a time to live, and a merge removes expired rows.
  await sluice.rows(
    `ALTER TABLE deletion_evidence UPDATE expires_at = now() - 1 WHERE request_id = '${pending}' SETTINGS mutations_sync = 2`,
  );
  assert.deepEqual(await codes(pending), both(410, 'no_longer_kept'));
  await sluice.rows('OPTIMIZE TABLE deletion_evidence FINAL');
  assert.deepEqual(await sluice.rows(`SELECT * FROM deletion_evidence WHERE request_id = '${pending}'`), []);
});

test('hundreds of requests of one account about its users hold up no other account', async (context) => {
  const [own, theirs] = await Promise.all(
    [token, strangerToken].map((ofToken) => submitAccepted(sluice, ofToken, [{ identity: 'asked for' }])),
  );
  assert.ok(own !== undefined && theirs !== undefined);
  await untilComplete(sluice, token, own);
  await untilComplete(sluice, strangerToken, theirs);
  const ways = [
    (id: string, ofToken: string) => callWithToken(sluice, ofToken, `${deletionPaths.status(id)}/users`),
    (id: string, ofToken: string) => lookUp(id, [{ identity: 'asked for' }], ofToken),
  ];
  const tokens = [token, await getToken(sluice, account)];
  const refused = new Set<number>();
  sluice.clickhouse.sigstop();
  context.after(() => sluice.clickhouse.sigcont());
  const flood = Array.from({ length: 180 }, async (_, n) => {
    const { status } = (await ways[n % 2]?.(own, tokens[n % 2] ?? '')) ?? {};
    if (status === 503) refused.add(n % 2);
  });
  await until(() => refused.size === 2, 'the line of the account is full');
  const beside = ways.map(async (ask) => (await ask(theirs, strangerToken)).status);
  await Promise.race([...beside, pause(1_000)]);
  sluice.clickhouse.sigcont();
  assert.deepEqual(await Promise.all(beside), [200, 200]);
  await Promise.all(flood);
});

/** What a dry run finds, in the form of a deletion's evidence. */
async function dryRun(users: readonly User[]): Promise<Answer & { readonly found: readonly FoundRows[] }> {
  const reply = await submitDryRun(sluice, token, { users, reference: 'not kept' });
  assert.equal(reply.status, 200, reply.text);
  return parse(reply) as Answer & { found: readonly FoundRows[] };
}

async function previewTables(): Promise<object[]> {
  return sluice.rows("SELECT name FROM system.tables WHERE name LIKE 'deletion_preview%'");
}

test('a dry run finds what a deletion then deletes, even records that are not stored yet, and stores nothing', async () => {
  const history = await writeHistory(sluice, account, stranger, 'dry@example.com');
  const stored = await dumpTables(sluice);
  const documents = () => withRedis(sluice, (redis) => redis.hlen(registryKeys.deletions));
  const before = await documents();
  const preview = await dryRun(history.users);
  assert.deepEqual(
    Object.fromEntries(preview.found.map(({ app_id, table, rows }) => [`${app_id} ${table}`, rows])),
    history.found,
  );
  assert.equal(await documents(), before);
  assert.deepEqual((await listDeletions(sluice, token, '?reference=not%20kept')).ids, []);
  assert.deepEqual(await previewTables(), []);
  assert.deepEqual(await keysWith(sluice, history.marker), [], 'Redis holds the identity');
  const [targets] = await sluice.rows<{ rows: number }>('SELECT count() AS rows FROM deletion_targets');
  assert.equal(Number(targets?.rows), 0);
  const isStillThere = (await dumpTables(sluice)).get('stored_events')?.length;
  assert.ok(Number(isStillThere) >= Number(stored.get('stored_events')?.length), 'nothing was deleted');
  const requestId = await deleteNow(sluice, token, history.users);
  const status = parse(await readStatus(sluice, token, requestId));
  assert.deepEqual(
    [preview.dry_run, preview.users, preview.users_found, preview.rows],
    [true, status.users, status.users_found, status.rows_deleted],
  );
  assert.deepEqual(preview.found, (await showDeletion(sluice, requestId)).found);
  assert.deepEqual(preview.unclear, [], 'all three were found');
  const nothing = { dry_run: true, users: 3, users_found: 0, rows: 0, found: [] };
  const unclear = [0, 1, 2].map((place) => ({ place, found: false, rows: 0, similar: 0 }));
  assert.deepEqual(await dryRun(history.users), { ...nothing, unclear });
});

test('a dry run suppresses nobody, and is in the audit log without a name', async () => {
  const identity = 'dry and suppressed@example.com';
  await sendEvents(sluice, main, 'stay', [{ identity }]);
  const users = [{ identity }, { identity: 'nobody' }];
  const reply = await submitDryRun(sluice, token, { users, suppress: true });
  const preview = parse(reply);
  assert.deepEqual([reply.status, preview.dry_run, preview.users_found], [200, true, 1], reply.text);
  assert.deepEqual(await lookUpAll(sluice.baseUrl, token, [{ identity }]), [false]);
  const lines = (await sluice.admin('audit', 'list', '--limit', '20')) as Record<string, unknown>[];
  const line = lines.find(({ action }) => action === 'preview_deletion');
  assert.deepEqual([line?.outcome, line?.account_id], ['done', account.accountId]);
  assert.match(JSON.stringify(line?.details), /users_found\D+1/);
  assert.ok(!JSON.stringify(lines).includes(identity));
});

test('a dry run lists the users of whom nothing is found, and those that other users are similar to', async () => {
  await sendEvents(sluice, main, 'stay', [
    { identity: 'Eve@Example.com' },
    { identity: 'mallory@example.com' },
  ]);
  const listed = ['mallory@example.com', 'eve@example.com', 'eve@example.com', 'Eve@Example.com', 'nobody'];
  const users = ['eve@example.com', 'Eve@Example.com', ' eve@example.com'];
  for (const identity of users) await sendEvents(sluice, staging, 'stay', [{ identity: `${identity} 2` }]);
  const preview = await dryRun([...listed, 'eve@example.com 2'].map((identity) => ({ identity })));
  assert.deepEqual(preview.unclear, [
    { place: 1, found: false, rows: 0, similar: 1 },
    { place: 4, found: false, rows: 0, similar: 0 },
    { place: 5, found: true, rows: 1, similar: 2 },
  ]);
  assert.deepEqual([preview.users, preview.users_found], [5, 3]);
});

test('a dry run is answered in time, and only a bounded number run at once', async (context) => {
  worker.sigstop();
  await sendEvents(sluice, main, 'go', [{ identity: 'not stored' }]);
  const clickhouse = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
  context.after(async () => {
    worker.sigcont();
    await clickhouse.close();
  });
  await withRedis(sluice, async (redis) => {
    const { deployment } = await readRegistry(redis);
    assert.ok(deployment);
    const { epoch, shards } = deployment;
    const { preview } = createPreviews(clickhouse, 300);
    const { ofAccountMax, waitingOfAccountMax } = previews.places;
    const taken = ofAccountMax + waitingOfAccountMax;
    const of = (accountId: string) => preview({ redis, epoch, shards }, accountId, ['inot stored']);
    const previewed = Array.from({ length: taken + 1 }, () => of(account.accountId));
    assert.equal(await previewed.at(-1), 'busy');
    assert.equal(await of(stranger.accountId), 'too_long', 'a dry run of another account may run');
    assert.deepEqual(await Promise.all(previewed.slice(0, taken)), Array<string>(taken).fill('too_long'));
    assert.deepEqual(await previewTables(), []);
    await createScratch(clickhouse, scratchName(clickhouse, 'deletion_preview_left'), 'a String');
    await dropTables(clickhouse, [previewPrefix], 600);
    assert.equal((await previewTables()).length, 1, 'the tables of the dry run that is running');
    await dropTables(clickhouse, [previewPrefix], 0);
    assert.deepEqual(await previewTables(), []);
  });
});

test('a dry run is answered however many large ones two other accounts ask for', async () => {
  const others = [await createTestAccount(sluice, 'Dry one'), await createTestAccount(sluice, 'Dry two')];
  const users = Array.from({ length: 10_000 }, (_, n) => ({ identity: `dry-${n}@example.com` }));
  const small = { users: [{ identity: 'ada@alike' }], dry_run: true };
  const abuse = [];
  for (const other of others) {
    const itsToken = await getToken(sluice, other);
    for (let n = 0; n < 8; n += 1) abuse.push(submitWith(sluice, itsToken, { users, dry_run: true }));
  }
  let isFull = false;
  for (const asked of abuse)
    void asked.then(({ status }) => {
      isFull ||= status === 503;
    });
  await until(() => isFull, { what: 'the line of one of them is full', everyMs: 1 });
  const beside = [];
  for (let n = 0; n < 4; n += 1) beside.push((await submitWith(sluice, strangerToken, small)).status);
  assert.deepEqual(beside, [200, 200, 200, 200]);
  const statuses = (await Promise.all(abuse)).map(({ status }) => status);
  const { ofAccountMax, waitingOfAccountMax } = previews.places;
  assert.ok(
    statuses.filter((status) => status === 503).length >= 2 * (8 - ofAccountMax - waitingOfAccountMax),
  );
});

/** Runs the program of the administration without any service; settles with its exit code and what it printed. */
async function runOffline(...args: readonly string[]): Promise<{ code: number | null; printed: Answer }> {
  const program = fileURLToPath(new URL('../../src/admin/main.js', import.meta.url));
  const child = spawn(process.execPath, [program, ...args], {
    env: { ...process.env, REDIS_URL: 'redis://127.0.0.1:1' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [printed, [code]] = await Promise.all([json(child.stdout), once(child, 'close')]);
  return { code: code as number | null, printed: printed as Answer };
}

test('a complete deletion has a certificate that states the counts, is always the same and names nobody', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'certified user' }]);
  await untilStored(sluice);
  worker.sigstop();
  const users = [{ identity: 'certified user' }, { identity: 'not there' }];
  const submitted = parse(await submitWith(sluice, token, { users, reference: 'case 7' }));
  const id = String(submitted.deletion_request_id);
  const path = `${deletionPaths.status(id)}/certificate`;
  const early = await callWithToken(sluice, token, path);
  assert.deepEqual([early.status, (parse(early).err as Answer).code], [409, 'still_pending']);
  assert.equal((await callWithToken(sluice, strangerToken, path)).status, 404);
  worker.sigcont();
  await untilComplete(sluice, token, id);
  const reply = await callWithToken(sluice, token, path);
  assert.equal(reply.status, 200, reply.text);
  const { certificate } = parse(reply) as { certificate: Answer };
  const request = await showDeletion(sluice, id);
  assert.deepEqual(certificate, {
    type: 'sluice-deletion-1',
    deletion_request_id: id,
    account_id: account.accountId,
    app_id: main,
    key_created_at: request.key_created_at,
    reference: 'case 7',
    submitted_at: request.submitted_at,
    hidden_at: request.hidden_at,
    verified_at: request.verified_at,
    completed_at: request.completed_at,
    users: 2,
    users_found: 1,
    rows_deleted: 1,
    found: [{ app_id: main, table: 'stored_events', rows: 1 }],
    tables_counted: userTables,
    statement: certificate.statement,
  });
  assert.ok(!reply.text.includes('certified user'));
  assert.equal((await callWithToken(sluice, token, path)).text, reply.text);
  assert.equal((await callWithToken(sluice, strangerToken, path)).status, 404);
  certified = reply.text;
});

/** Set by the test above. */
let certified: string;

async function verifyOverHttp(text: string): Promise<Answer> {
  const reply = await fetch(`${sluice.adminUrl}/admin/v1/certificates/verify`, {
    method: 'POST',
    headers: { authorization: `Bearer ${sluice.adminToken}`, 'content-type': 'application/json' },
    body: text,
  });
  assert.equal(reply.status, 200);
  return (await reply.json()) as Answer;
}

async function readKey(): Promise<Answer & { readonly public_key: string }> {
  const reply = await fetch(`${sluice.baseUrl}/api/public/v0/signing_key`);
  assert.equal(reply.status, 200);
  return (await reply.json()) as Answer & { public_key: string };
}

test('a certificate is checked with the service and without, and nothing in it can be changed', async () => {
  const folder = tempDir('certificates');
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const genuine = file('certificate.json', certified);
  const key = await readKey();
  const keyFile = file('key.json', JSON.stringify(key));
  const verdict = (await sluice.admin('certificate', 'verify', genuine)) as Answer;
  assert.deepEqual([verdict.genuine, verdict.key_id], [true, key.key_id]);
  assert.deepEqual(await administer(sluice, 'POST', '/certificates/verify', JSON.parse(certified)), verdict);
  const offline = await runOffline('certificate', 'verify', genuine, '--key', keyFile);
  assert.deepEqual(offline, { code: 0, printed: verdict });
  const forged = file('forged.json', certified.replace('"rows_deleted":1', '"rows_deleted":2'));
  const refuted = await runOffline('certificate', 'verify', forged, '--key', file('key.pem', key.public_key));
  assert.deepEqual([refuted.code, refuted.printed.genuine], [1, false]);

  const publicKey = createPublicKey(key.public_key);
  const isGenuine = (document: unknown) => verifyCertificate(JSON.stringify(document), publicKey).genuine;
  const document = JSON.parse(certified) as { certificate: Answer; signature: Answer };
  const { certificate, signature } = document;
  const reordered = Object.fromEntries(Object.entries(certificate).reverse());
  assert.ok(isGenuine({ signature, certificate: reordered }), 'the order of fields does not count');
  for (const beside of [
    { certificate, signature, note: 'All users were deleted.' },
    { certificate, signature: { ...signature, users: 5000 } },
  ])
    assert.deepEqual(verifyCertificate(JSON.stringify(beside), publicKey), {
      genuine: false,
      reason: 'something that was not signed stands beside the certificate',
    });
  assert.ok(!isGenuine({ certificate, signature: { ...signature, value: `${signature.value}!` } }));
  for (const name of Object.keys(certificate)) {
    const { [name]: _, ...without } = certificate;
    assert.ok(!isGenuine({ certificate: without, signature }), `without ${name}`);
    assert.ok(!isGenuine({ certificate: { ...certificate, [name]: 'x' }, signature }), `another ${name}`);
  }
  assert.ok(!isGenuine({ certificate: { ...certificate, more: 1 }, signature }), 'with more');
  const other = generateKeyPairSync('ed25519').publicKey;
  assert.equal(verifyCertificate(certified, other).genuine, false, 'it is of another deployment');
  for (const bad of [
    null,
    7,
    [],
    {},
    { certificate },
    { certificate, signature: {} },
    { certificate: 1, signature },
  ]) {
    assert.equal(isGenuine(bad), false, JSON.stringify(bad));
  }
  const twice = certified.replace('"rows_deleted":1', '"rows_deleted":9,"rows_deleted":1');
  const deep = `{"certificate":${'['.repeat(100_000)}${']'.repeat(100_000)},"signature":${JSON.stringify(signature)}}`;
  for (const text of ['no JSON', '', twice, deep, '['.repeat(100_000)])
    assert.equal(verifyCertificate(text, publicKey).genuine, false, text.slice(0, 80));
  assert.ok(!(await verifyOverHttp(certified.replace('"rows_deleted":1', '"rows_deleted":1.0'))).genuine);
  assert.deepEqual(await verifyOverHttp(twice), { genuine: false, reason: 'it has a name twice' });
  assert.deepEqual(await verifyOverHttp(JSON.stringify(document, null, 2)), verdict, 'blanks do not count');
});

test('a number of a certificate counts only in the form in which it was signed', () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const certificate = { rows_deleted: 0, users: 1000, text: '-0 "1e3" 007' };
  const signature = {
    algorithm: 'Ed25519',
    key_id: keyIdOf(publicKey),
    value: sign(null, Buffer.from(canonicalJson(certificate)), privateKey).toString('base64'),
  };
  const text = JSON.stringify({ certificate, signature });
  assert.equal(verifyCertificate(text, publicKey).genuine, true);
  for (const [plain, other] of [
    [':0', ':-0'],
    [':0', ':0e999'],
    [':0', ':1e-400'],
    [':0', ':0.0'],
    [':1000', ':1e3'],
    [':1000', ':1000.0000000000000000001'],
  ] as const) {
    assert.deepEqual(
      verifyCertificate(text.replace(plain, other), publicKey),
      { genuine: false, reason: 'it has a number in another form than was signed' },
      other,
    );
  }
});

test('a certificate of as many environments as may be is read, and no text costs more', () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const signedText = (certificate: object) => {
    const value = sign(null, Buffer.from(canonicalJson(certificate)), privateKey).toString('base64');
    return JSON.stringify({
      certificate,
      signature: { algorithm: 'Ed25519', key_id: keyIdOf(publicKey), value },
    });
  };
  const found = Array.from({ length: 4 * administration.environmentsPerAccountMax }, (_, rows) => ({
    app_id: '4294967295',
    table: 'stored_user_identities',
    rows,
  }));
  assert.equal(verifyCertificate(signedText({ found }), publicKey).genuine, true);
  // These are refused for their size alone, although they are signed.
  for (const wide of [{ found: Array(40_000).fill([]) }, { found: Array(20_000).fill({ '': 1 }) }])
    assert.deepEqual(verifyCertificate(signedText(wide), publicKey), {
      genuine: false,
      reason: 'this is not a certificate',
    });
});

test('the private half of the key is in no answer, no log and no output of the administration', async () => {
  const text = await withRedis(sluice, (redis) => redis.hget(registryKeys.documents, signingKeyKey));
  const pem = (JSON.parse(text ?? '{}') as { private_key: string }).private_key;
  const secret = pem.split('\n')[1] ?? '';
  assert.ok(secret.length > 40);
  const shown = [
    certified,
    JSON.stringify(await readKey()),
    JSON.stringify(await sluice.admin('accounts', 'list')),
    JSON.stringify(await sluice.admin('audit', 'list')),
    ...[...sluice.api, ...sluice.workers].map((child) => child.output()),
  ];
  for (const each of shown) assert.ok(!each.includes(secret) && !each.includes('PRIVATE KEY'));
});
