// The audit log: every action by any caller writes its line, and no action happens without one.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { hostname, userInfo } from 'node:os';
import { after, test } from 'node:test';
import { audit } from '../../src/contract/limits.js';
import { registryKeys } from '../../src/redis/keys.js';
import type { AuditEntry } from '../../src/registry/audit/read.js';
import { kindsOfCopies } from '../../src/registry/outbox.js';
import { createTestAccount } from '../harness/accounts.js';
import { runAdmin } from '../harness/administration.js';
import { administer, getToken, submit, submitAccepted } from '../harness/deletion.js';
import { freePort } from '../harness/free-port.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { runProgram } from '../harness/sluice.js';
import { startTcpProxy } from '../harness/tcp-proxy.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

const sluice = await ownSluice();
const redis = connectTestRedis(sluice.redisUrl);
const account = await createTestAccount(sluice, 'Audited');

after(() => redis.disconnect());

const entries = async () => (await sluice.admin('audit', 'list')) as AuditEntry[];

/** The entries that were added by some work, the oldest first. */
async function during(work: () => Promise<unknown>): Promise<AuditEntry[]> {
  const before = new Set((await entries()).map(({ id }) => id));
  await work();
  return (await entries()).filter(({ id }) => !before.has(id)).reverse();
}

function untilNoLineWaits(): Promise<true> {
  return until(async () => (await redis.hlen(registryKeys.audit)) === 0, 'no line waits');
}

const byHand = { actor: 'command_line', actor_name: userInfo().username, address: hostname() };
const nothing = { account_id: '', app_id: '', key_id: '', deletion_request_id: '' };

/** The entry without what differs from run to run. */
function fixed({ at, id, ...entry }: AuditEntry): object {
  assert.match(at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.ok(Math.abs(Date.parse(at) - Date.now()) < 60_000, at);
  assert.match(id, /^[0-9a-f-]{36}$/);
  return entry;
}

test('names who did what to which account, environment and key, and holds no secret and no identity', async () => {
  let accountId = '';
  let appId = '';
  let added = '';
  const keyIds: string[] = [];
  const secrets: string[] = ['secret@example.com', sluice.adminToken];
  const lines = await during(async () => {
    const created = (await sluice.admin('accounts', 'create', 'Shop', '--environment', 'Main')) as {
      account_id: string;
      environments: { app_id: string }[];
    };
    accountId = created.account_id;
    appId = created.environments[0]?.app_id ?? '';
    added = ((await sluice.admin('environments', 'add', accountId, 'Staging')) as { app_id: string }).app_id;
    const settings = [
      '--limit',
      'track=none',
      '--validation',
      'lenient',
      '--allow-identity',
      'secret@example.com',
      '--retain-days',
      '90',
    ];
    await sluice.admin('environments', 'set', added, ...settings);
    for (const verb of ['create', 'rotate', 'revoke']) {
      const { id, api_key } = (await sluice.admin('keys', verb, appId)) as { id?: string; api_key?: string };
      if (api_key !== undefined) secrets.push(api_key);
      keyIds.push(id ?? '');
    }
    // These commands change nothing.
    await sluice.admin('accounts', 'list');
    await sluice.admin('keys', 'show', appId);
    await sluice.admin('deletions', 'list');
  });
  const done = { ...byHand, ...nothing, outcome: 'done' };
  const key = { ...done, app_id: appId, details: {} };
  assert.deepEqual(lines.map(fixed), [
    {
      ...done,
      action: 'create_account',
      account_id: accountId,
      details: { name: 'Shop', environments: ['Main'] },
    },
    {
      ...done,
      action: 'add_environment',
      account_id: accountId,
      app_id: added,
      details: { name: 'Staging' },
    },
    {
      ...done,
      action: 'set_environment',
      account_id: accountId,
      app_id: added,
      details: { limits: { track: 'none' }, validation: 'lenient', retainDays: 90, allowed_identities: 1 },
    },
    { ...key, action: 'create_key', key_id: keyIds[0] },
    { ...key, action: 'rotate_key', key_id: keyIds[1] },
    { ...key, action: 'revoke_key', key_id: keyIds[2] },
  ]);
  const everything = JSON.stringify([
    await sluice.rows('SELECT * FROM audit_log'),
    await redis.hgetall(registryKeys.audit),
  ]);
  for (const secret of secrets) assert.ok(!everything.includes(secret), secret);
});

test('names the token and the address of an administrator over HTTP, and is read there too', async () => {
  const lines = await during(() =>
    administer(sluice, 'POST', '/accounts', { name: 'Web', environments: ['Main'] }),
  );
  const fingerprint = createHash('sha256').update(sluice.adminToken).digest('hex').slice(0, 8);
  const [entry] = lines as [AuditEntry];
  assert.deepEqual(
    [entry.actor, entry.actor_name, entry.address, entry.action, entry.outcome],
    ['admin_token', fingerprint, '127.0.0.1', 'create_account', 'done'],
  );
  assert.deepEqual((await administer<AuditEntry[]>(sluice, 'GET', '/audit'))[0], entry);
  assert.equal(((await sluice.admin('audit', 'list', '--limit', '1')) as unknown[]).length, 1);
  // Read page by page, each action is there once, in the same order.
  const all = (await sluice.admin('audit', 'list')) as AuditEntry[];
  assert.ok(all.length > 3);
  const pageAfter = ({ at, id }: AuditEntry) =>
    administer<AuditEntry[]>(sluice, 'GET', `/audit?before=${at}&before_id=${encodeURIComponent(id)}`);
  for (const place of [0, 2, all.length - 1])
    assert.deepEqual(await pageAfter(all[place] as AuditEntry), all.slice(place + 1));
  assert.deepEqual(await pageAfter({ ...entry, at: '2020-01-01T00:00:00.000Z' }), []);
});

test('names the key and the address of the caller who deletes users, and how many, but no user', async () => {
  const token = await getToken(sluice, account);
  let requestId = '';
  const lines = await during(async () => {
    requestId = await submitAccepted(sluice, token, [{ identity: 'gone@example.com' }, { user_id: 7 }]);
  });
  const [key] = (await sluice.admin('keys', 'list', account.appIds[0] ?? '')) as { id: string }[];
  assert.deepEqual(lines.map(fixed), [
    {
      ...nothing,
      actor: 'api_key',
      actor_name: key?.id,
      address: '127.0.0.1',
      action: 'submit_deletion',
      account_id: account.accountId,
      app_id: account.appIds[0],
      deletion_request_id: requestId,
      details: { users: 2 },
      outcome: 'done',
    },
  ]);
  const rows = JSON.stringify(await sluice.rows('SELECT * FROM audit_log'));
  assert.ok(!rows.includes('gone@example.com'));
});

test('records refused and failed actions', async () => {
  const lines = await during(async () => {
    await assert.rejects(Promise.resolve(sluice.admin('keys', 'rotate', '1')), /there is no environment/);
    await assert.rejects(Promise.resolve(sluice.admin('deletions', 'end', 'x')), /no such deletion request/);
  });
  assert.deepEqual(
    lines.map(({ action, app_id, deletion_request_id, outcome }) => [
      action,
      app_id,
      deletion_request_id,
      outcome,
    ]),
    [
      ['rotate_key', '1', '', 'refused'],
      ['end_deletion', '', 'x', 'refused'],
    ],
  );
});

test('keeps the lines while ClickHouse is away, and a worker moves them', async () => {
  await untilNoLineWaits();
  for (const worker of sluice.workers) worker.sigstop();
  const away = { ...sluice.env, CLICKHOUSE_URL: `http://sluice:x@127.0.0.1:${await freePort()}` };
  await runAdmin(['accounts', 'create', 'While it was away', '--environment', 'Main'], away);
  assert.equal(await redis.hlen(registryKeys.audit), 2);
  const count = async () => {
    // A worker that is stopped while it moves lines may store them twice; readers of the log see them once.
    const rows = await sluice.rows(
      "SELECT DISTINCT stage FROM audit_log WHERE details LIKE '%While it was away%'",
    );
    return rows.length;
  };
  assert.equal(await count(), 0);
  for (const worker of sluice.workers) worker.sigcont();
  await until(async () => (await count()) === 2, 'the lines are in ClickHouse');
  await untilNoLineWaits();
});

test('a text that is not Unicode is refused, and a line that contains one does not hold up the others', async () => {
  const body = '{"email": "\\ud800x@example.com", "role": "operator"}';
  const reply = await fetch(`${sluice.adminUrl}/admin/v1/people`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${sluice.adminToken}`, 'Content-Type': 'application/json' },
    body,
  });
  assert.equal(reply.status, 400);
  assert.match(await reply.text(), /invalid_text/);
  const line = {
    ...{ at: '2026-01-31 12:00:00.000', id: 'odd', stage: 1, actor: 'person', address: '127.0.0.1' },
    ...{ ...nothing, actor_name: 'a\ud800', action: 'odd', details: '{}', outcome: 'done' },
  };
  await redis.hset(registryKeys.audit, 'odd 1 ', JSON.stringify(line));
  await redis.zadd(registryKeys.uncopied, kindsOfCopies.auditLine, 'odd 1 ');
  await untilNoLineWaits();
  const [odd] = (await entries()).filter(({ action }) => action === 'odd');
  assert.equal(odd?.actor_name, 'a\ufffd');
});

test('does nothing when its line cannot be kept', async () => {
  const token = await getToken(sluice, account);
  await until(
    async () => (await redis.scard(registryKeys.deletionsAwaitingTargetCopy)) === 0,
    'the targets of earlier deletions are kept',
  );
  for (const worker of sluice.workers) worker.sigstop();
  const accounts = JSON.stringify(await sluice.admin('accounts', 'list'));
  await redis.eval(
    "for n = 1, tonumber(ARGV[1]) do redis.call('HSET', KEYS[1], 'filler ' .. n, '') end",
    1,
    registryKeys.audit,
    audit.waitingLinesMax,
  );
  await assert.rejects(
    Promise.resolve(sluice.admin('accounts', 'create', 'Unseen', '--environment', 'Main')),
    /the audit log waits for ClickHouse and is full/,
  );
  const reply = await submit(sluice, token, [{ identity: 'unseen@example.com' }]);
  assert.equal(reply.status, 503, reply.text);
  assert.equal(JSON.parse(reply.text).err.code, 'overloaded');
  assert.equal(JSON.stringify(await sluice.admin('accounts', 'list')), accounts);
  assert.equal(await redis.scard(registryKeys.deletionsAwaitingTargetCopy), 0);
  await redis.del(registryKeys.audit);
  for (const worker of sluice.workers) worker.sigcont();
});

test('the lines of one account never keep out those of others', async () => {
  const token = await getToken(sluice, account);
  await untilNoLineWaits();
  for (const worker of sluice.workers) worker.sigstop();
  await redis.eval(
    "for n = 1, tonumber(ARGV[1]) do redis.call('HSET', KEYS[1], 'filler ' .. n, '') end",
    1,
    registryKeys.audit,
    audit.waitingLinesMax - 20,
  );
  const statuses: number[] = [];
  for (let n = 0; n < 8; n += 1)
    statuses.push((await submit(sluice, token, [{ identity: `of-one-${n}@example.com` }])).status);
  // Each deletion leaves two lines, and the account's lines take no more room than is left for them.
  assert.deepEqual(statuses, [201, 201, 201, 201, 201, 503, 503, 503]);
  await sluice.admin('accounts', 'create', 'Of others', '--environment', 'Main');
  await redis.eval(
    "for n = 1, tonumber(ARGV[1]) do redis.call('HDEL', KEYS[1], 'filler ' .. n) end",
    1,
    registryKeys.audit,
    audit.waitingLinesMax,
  );
  for (const worker of sluice.workers) worker.sigcont();
  await untilNoLineWaits();
  assert.equal(await redis.exists(registryKeys.auditByAccount), 0, 'copied lines no longer count');
});

test("the service's own user can neither change nor remove a line", async () => {
  const { name, password } = sluice.clickhouse.service;
  for (const statement of [
    "ALTER TABLE audit_log UPDATE outcome = '' WHERE 1",
    'ALTER TABLE audit_log DELETE WHERE 1',
    'DELETE FROM audit_log WHERE 1',
    'ALTER TABLE audit_log DROP PARTITION tuple()',
    'TRUNCATE TABLE audit_log',
  ]) {
    const reply = await fetch(`${sluice.clickhouse.origin}/?database=${sluice.database}`, {
      method: 'POST',
      headers: { 'X-ClickHouse-User': name, 'X-ClickHouse-Key': password },
      body: statement,
    });
    assert.match(await reply.text(), /ACCESS_DENIED/, statement);
  }
});

test('no change survives a lost Redis without its line, and the restore has its own line', async () => {
  // The workers are stopped, so only the command itself moves the lines.
  for (const worker of sluice.workers) worker.sigstop();
  await sluice.admin('accounts', 'create', 'Before the loss', '--environment', 'Main');
  await redis.flushall();
  const restored = await during(() => Promise.resolve(sluice.admin('state', 'reload')));
  for (const worker of sluice.workers) worker.sigcont();
  const accounts = (await sluice.admin('accounts', 'list')) as { name: string }[];
  assert.ok(accounts.some(({ name }) => name === 'Before the loss'));
  const all = await entries();
  const entry = all.find(({ details }) => (details as { name?: string }).name === 'Before the loss');
  assert.equal(entry?.action, 'create_account');
  assert.deepEqual(
    restored.map(({ action, outcome }) => [action, outcome]),
    [['restore', 'done']],
  );
});

test('a command whose Redis goes away meanwhile says so in one sentence', async () => {
  const url = new URL(sluice.redisUrl);
  const proxy = await startTcpProxy({ port: Number(url.port) });
  url.port = String(proxy.port);
  const env = { ...sluice.env, REDIS_URL: url.href };
  try {
    for (const [program, begun, ...words] of [
      ['admin/main', registryKeys.audit, 'accounts', 'create', 'Away', '--environment', 'Main'],
      ['admin/redis', 'set', 'set', 'away', '1'],
    ] as const) {
      const hasBegun = proxy.lookFor(begun);
      await redis.client('PAUSE', 60_000, 'WRITE');
      const ended = runProgram(`src/${program}.js`, words, env).catch((error: Error) => error.message);
      await until(hasBegun, 'the command waits for Redis');
      proxy.reset();
      await redis.client('UNPAUSE');
      const [, line] = (await ended).split(' ended with 1:\n');
      assert.equal(line, 'REDIS_URL: Redis no longer answers; what the command began may be done\n');
    }
  } finally {
    await redis.client('UNPAUSE');
    await proxy.close();
  }
});
