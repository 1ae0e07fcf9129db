// Keys of programs that call the administration: the rights of a role, in one account or in all, until they are revoked.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Role, roles } from '../../src/contract/roles.js';
import { registryKeys } from '../../src/redis/keys.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { ask } from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

type Key = { readonly id: string; readonly role: string; readonly program_key: string };

const keys = new Map<Role, Key>();

const sluice = await sharedSluice();
const own = await createTestAccount(sluice, 'Own');
const other = await createTestAccount(sluice, 'Other');
for (const role of roles) {
  const account = role === 'operator' ? [] : ['--account', own.accountId];
  const made = await sluice.admin('program-keys', 'create', `the ${role}`, '--role', role, ...account);
  keys.set(role, made as Key);
}
await until(async () => (await call('viewer', 'GET', '/accounts')).status === 200, 'the API knows the keys');

async function call(by: Role | string, method: string, path: string, body?: object) {
  const secret = keys.get(by as Role)?.program_key ?? by;
  const { status, text } = await ask(sluice.adminUrl, {
    method,
    path: `/admin/v1${path}`,
    headers: [
      ['Authorization', `Bearer ${secret}`],
      ['Content-Type', 'application/json'],
    ],
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status, body: JSON.parse(text) as Record<string, unknown> & { err?: { code: string } } };
}

test('a program may do what its role may, in its own account only', async () => {
  const said = async (by: Role, method: string, path: string, body?: object) => {
    const { status, body: answer } = await call(by, method, path, body);
    return answer.err?.code ?? status;
  };
  const statuses = async (method: string, path: (of: TestAccount) => string, body?: object) => {
    const of = async (account: TestAccount) =>
      Promise.all(roles.map((role) => said(role, method, path(account), body)));
    return [await of(own), await of(other)];
  };
  const [none, not] = ['not_possible', 'forbidden'];
  assert.deepEqual(await statuses('GET', ({ appIds }) => `/environments/${appIds[1]}`), [
    [200, 200, 200, 200],
    [200, none, none, none],
  ]);
  assert.deepEqual(
    await statuses('PATCH', ({ appIds }) => `/environments/${appIds[1]}`, { validation: 'lenient' }),
    [
      [200, 200, not, not],
      [200, none, not, not],
    ],
  );
  const users = { users: [{ identity: 'nobody' }] };
  assert.deepEqual(await statuses('POST', ({ accountId }) => `/accounts/${accountId}/user_deletion`, users), [
    [201, not, 201, not],
    [201, not, none, not],
  ]);
  assert.deepEqual(await statuses('GET', () => '/shards'), [
    [200, not, not, not],
    [200, not, not, not],
  ]);
  const listed = (await call('viewer', 'GET', '/accounts')).body as unknown as { account_id: string }[];
  assert.deepEqual(
    listed.map(({ account_id: id }) => id),
    [own.accountId],
  );
});

test('an account gives its programs no more than roles of its own, and neither sees nor ends keys of others', async () => {
  const create = (fields: object) => call('administrator', 'POST', '/program-keys', { name: 'n', ...fields });
  assert.equal((await create({ role: 'operator' })).body.err?.code, 'not_possible');
  assert.equal(
    (await create({ role: 'viewer', account_id: other.accountId })).body.err?.code,
    'not_possible',
  );
  assert.equal((await create({ role: 'root' })).status, 400);
  const { body: made } = await create({ role: 'viewer' });
  assert.equal(made.account_id, own.accountId);
  const listed = (await call('administrator', 'GET', '/program-keys')).body as unknown as Key[];
  assert.deepEqual(listed.map(({ role }) => role).sort(), ['administrator', 'privacy', 'viewer', 'viewer']);
  const operator = keys.get('operator') as Key;
  const ended = await call('administrator', 'DELETE', `/program-keys/${operator.id}`);
  assert.equal(ended.body.err?.code, 'not_possible');
  assert.equal((await call('operator', 'GET', '/shards')).status, 200);
});

test('a key is shown once and stored as a hash; the audit log names it by its id', async () => {
  const key = keys.get('operator') as Key;
  const documents = await withRedis(sluice, (redis) => redis.hgetall(registryKeys.documents));
  const listed = JSON.stringify(await sluice.admin('program-keys', 'list'));
  assert.ok(listed.includes(key.id));
  for (const text of [listed, ...Object.values(documents)]) assert.ok(!text.includes(key.program_key));
  await call('operator', 'POST', '/accounts', { name: 'By a program', environments: ['Main Production'] });
  const lines = (await sluice.admin('audit', 'list', '--limit', '1000')) as {
    actor: string;
    actor_name: string;
    action: string;
  }[];
  const line = lines.find((each) => each.action === 'create_account' && each.actor_name === key.id);
  assert.equal(line?.actor, 'program_key');
  assert.ok(lines.some(({ action }) => action === 'create_program_key'));
  assert.ok(!JSON.stringify(lines).includes(key.program_key));
});

test('a revoked key ends within a second, a wrong one is refused like a wrong ADMIN_TOKEN', async () => {
  const tookMs: number[] = [];
  // A machine that pauses delays some ends, but rarely all, so the quickest one counts.
  for (const role of ['viewer', 'administrator', 'operator'] as const) {
    const { id, program_key } = keys.get(role) as Key;
    await sluice.admin('program-keys', 'revoke', id);
    const revokedMs = performance.now();
    // A refusal is late, so the time until its request counts.
    const refusedMs = await until(async () => {
      const askedMs = performance.now();
      return (await call(program_key, 'GET', '/accounts')).status === 401 && askedMs;
    }, 'the key is refused');
    tookMs.push(refusedMs - revokedMs);
    await assert.rejects(sluice.admin('program-keys', 'revoke', id), /there is no program key/);
  }
  assert.ok(Math.min(...tookMs) <= 1_000, String(tookMs));
  for (const wrong of [`${keys.get('privacy')?.program_key}x`, 'slp_', keys.get('privacy')?.id ?? ''])
    assert.equal((await call(wrong, 'GET', '/accounts')).status, 401);
  assert.equal((await call('privacy', 'GET', '/accounts')).status, 200);
});
