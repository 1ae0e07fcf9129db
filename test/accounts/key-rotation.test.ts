// API keys that are replaced, with and without an overlap: which keys get tokens, and which tokens are good.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { administration } from '../../src/contract/limits.js';
import { createTestAccount } from '../harness/accounts.js';
import { administer, ask, basic, deletionPaths, readStatus } from '../harness/deletion.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

type Created = {
  readonly app_id: string;
  readonly id: string;
  readonly name: string;
  readonly api_key: string;
};
type Listed = {
  readonly id: string;
  readonly name: string;
  readonly created_at: string;
  readonly last_used_at: string | null;
  readonly expires_at: string | null;
};

let accounts = 0;

const sluice = await sharedSluice();

async function freshKey(): Promise<{ readonly appId: string; readonly apiKey: string }> {
  accounts += 1;
  const { appIds, apiKey } = await createTestAccount(sluice, `Keys ${accounts}`);
  return { appId: appIds[0] ?? '', apiKey };
}

async function tokenOf(appId: string, apiKey: string): Promise<string | undefined> {
  const headers = [['Authorization', basic(appId, apiKey)]] as const;
  const reply = await ask(sluice.baseUrl, { method: 'POST', path: deletionPaths.token, headers });
  assert.ok([200, 401].includes(reply.status), reply.text);
  return (JSON.parse(reply.text) as { access_token?: string }).access_token;
}

const isGood = async (token: string | undefined) =>
  token !== undefined && (await readStatus(sluice, token, 'x')).status === 404;
const keys = (...args: string[]) => sluice.admin('keys', ...args) as Promise<Created>;
const list = (appId: string) => sluice.admin('keys', 'list', appId) as Promise<Listed[]>;

test('a key that is rotated with an overlap stays good until the overlap ends, and so do its tokens', async () => {
  const { appId, apiKey: first } = await freshKey();
  const early = await tokenOf(appId, first);
  const second = (await keys('rotate', appId, '--overlap', '24h')).api_key;
  const [old, latest, ...more] = await list(appId);
  assert.deepEqual([latest?.expires_at, more.length], [null, 0]);
  const leftMs = Date.parse(old?.expires_at ?? '') - Date.now();
  assert.ok(Math.abs(leftMs - 24 * 3_600_000) < 60_000, `${leftMs} ms`);
  for (const key of [first, second]) assert.ok(await isGood(await tokenOf(appId, key)));
  assert.ok(await isGood(early));

  const late = await tokenOf(appId, first);
  const third = (await keys('rotate', appId, '--overlap', '1s')).api_key;
  // On a slow machine the overlap may be over already.
  const ends = (await list(appId)).flatMap(({ expires_at }) => expires_at ?? []);
  assert.ok(
    ends.every((end) => Date.parse(end) < Date.now() + 10_000),
    'a shorter overlap ends the older key earlier too',
  );
  await until(
    async () => !(await isGood(late)) && (await tokenOf(appId, second)) === undefined,
    'the overlap is over',
  );
  for (const token of [early, late]) assert.equal(await isGood(token), false);
  assert.equal(await tokenOf(appId, first), undefined);
  assert.ok(await isGood(await tokenOf(appId, third)));
  assert.equal((await list(appId)).length, 1, 'only good keys are listed');
});

test('without an overlap all keys of the environment and their tokens end at once', async () => {
  const { appId, apiKey } = await freshKey();
  const named = await keys('create', appId, '--name', 'second');
  const tokens = [await tokenOf(appId, apiKey), await tokenOf(appId, named.api_key)];
  for (const token of tokens) assert.ok(await isGood(token));
  const fresh = await keys('rotate', appId);
  for (const token of tokens) assert.equal(await isGood(token), false);
  for (const old of [apiKey, named.api_key]) assert.equal(await tokenOf(appId, old), undefined);
  assert.ok(await isGood(await tokenOf(appId, fresh.api_key)));
});

test('several keys with names are replaced and revoked one by one', async () => {
  const { appId, apiKey } = await freshKey();
  const created = await keys('create', appId, '--name', 'compliance');
  assert.match(created.api_key, /^slk_[\w-]{43}$/);
  await assert.rejects(keys('create', appId, '--name', 'compliance'), /use keys rotate/);
  await assert.rejects(keys('create', appId), /use keys rotate/);
  const token = await tokenOf(appId, created.api_key);
  const rotated = await keys('rotate', appId, '--name', 'compliance');
  assert.equal(rotated.name, 'compliance');
  assert.equal(await isGood(token), false);
  assert.ok(await isGood(await tokenOf(appId, apiKey)), 'the other key stays');
  await assert.rejects(keys('rotate', appId, '--name', 'nobody'), /no such API key/);
  await sluice.admin('keys', 'revoke', appId, rotated.id);
  assert.equal(await tokenOf(appId, rotated.api_key), undefined);
  await assert.rejects(sluice.admin('keys', 'revoke', appId, rotated.id), /has no API key/);
  assert.deepEqual(
    (await list(appId)).map(({ name }) => name),
    [''],
  );
  assert.deepEqual(await sluice.admin('keys', 'revoke', appId), { app_id: appId, revoked: true });
  assert.deepEqual(await list(appId), []);
  assert.equal(await tokenOf(appId, apiKey), undefined);
});

test('does the same over /admin/v1, and refuses an overlap that is not a duration', async () => {
  const { appId, apiKey } = await freshKey();
  const path = `/environments/${appId}`;
  const named = await administer<Created>(sluice, 'POST', `${path}/key`, { name: 'two' });
  await administer<Created>(sluice, 'PUT', `${path}/key`, { name: 'two', overlap: '1h' });
  const listed = await administer<Listed[]>(sluice, 'GET', `${path}/keys`);
  assert.deepEqual(
    listed.map(({ name, expires_at }) => [name, expires_at !== null]),
    [
      ['', false],
      ['two', true],
      ['two', false],
    ],
  );
  assert.ok(!JSON.stringify(listed).includes('slk_'));
  await administer(sluice, 'DELETE', `${path}/keys/${named.id}`);
  assert.equal(await tokenOf(appId, named.api_key), undefined);
  assert.ok(await isGood(await tokenOf(appId, apiKey)));
  for (const overlap of ['', '24', 'h', '0h', '-1h', '1.5h', '91d', '24 h', '1w', '1e3s']) {
    await assert.rejects(keys('rotate', appId, '--overlap', overlap), /overlap must be/, overlap);
  }
  for (let n = 3; n <= administration.keysMax; n += 1) await keys('create', appId, '--name', `${n}`);
  await assert.rejects(keys('create', appId, '--name', 'one too many'), /revoke one first/);
});

test('says when a key was last used', async () => {
  const { appId, apiKey } = await freshKey();
  const used = async () => (await list(appId))[0]?.last_used_at ?? null;
  assert.equal(await used(), null);
  assert.equal(await tokenOf(appId, `${apiKey}x`), undefined);
  assert.equal(await used(), null, 'a wrong key does not count as a use');
  await tokenOf(appId, apiKey);
  const at = await used();
  const agoMs = Date.now() - Date.parse(at ?? '');
  assert.ok(agoMs >= 0 && agoMs < 120_000, `${at}`);
});
