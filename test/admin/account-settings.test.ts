// What an account may require: that a second person confirms deletions, and that everybody has a second factor.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TOTP } from 'otpauth';
import { proposals } from '../../src/contract/limits.js';
import type { Proposal } from '../../src/privacy/deletion/proposals.js';
import { registryKeys } from '../../src/redis/keys.js';
import type { AuditEntry } from '../../src/registry/audit/read.js';
import { createTestAccount } from '../harness/accounts.js';
import { getToken, submitAccepted } from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import { type ConsolePage, password, signedIn } from '../support/console.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
const own = await createTestAccount(sluice, 'Own');
const other = await createTestAccount(sluice, 'Other');
const first = await signedIn(sluice, 'first@example.com', 'privacy', own.accountId);
const second = await signedIn(sluice, 'second@example.com', 'privacy', own.accountId);
const stranger = await signedIn(sluice, 'stranger@example.com', 'privacy', other.accountId);
for (const { accountId } of [own, other])
  await sluice.admin('accounts', 'set', accountId, '--confirm-from', '2');
const ada = { identity: 'ada-of-a-proposal@example.com' };
const bob = { identity: 'bob-of-a-proposal@example.com' };

const submit = (page: ConsolePage, users: object[], more: object = {}, of = own) =>
  page.ask('POST', `/accounts/${of.accountId}/user_deletion`, { users, ...more });
const list = async (page = first, of = own) =>
  (await page.ask('GET', `/accounts/${of.accountId}/deletion_proposals`)).body as unknown as Proposal[];
const auditOf = async (id: string) =>
  (await first.ask('GET', `/audit?deletion_request_id=${id}`)).body as unknown as AuditEntry[];

test('a deletion begins once another person has submitted the same list, in any order, and not before', async () => {
  const proposed = await submit(first, [ada, bob], { reference: 'ticket 7' });
  assert.deepEqual(
    [proposed.status, proposed.body.status, proposed.body.users],
    [202, 'awaits_confirmation', 2],
  );
  // The person who proposed it cannot confirm it.
  assert.equal((await submit(first, [bob, ada])).status, 202);
  const waiting = await list(second);
  assert.deepEqual(
    waiting.map(({ proposed_by, users, suppress }) => [proposed_by, users, suppress]),
    [['first@example.com', 2, false]],
  );
  // Another list, or the same one with suppression, confirms nothing.
  for (const [users, more] of [
    [[ada, { identity: 'carl' }], {}],
    [[ada, bob], { suppress: true }],
  ] as const)
    assert.equal((await submit(second, [...users], more)).status, 202);
  assert.equal((await list()).length, 3);
  const confirmed = await submit(second, [bob, ada, bob]);
  assert.equal(confirmed.status, 201, JSON.stringify(confirmed.body));
  const id = String(confirmed.body.deletion_request_id);
  const { body: request } = await first.ask('GET', `/deletions/${id}`);
  assert.equal(request.targets, 2);
  const [line] = await auditOf(id);
  assert.deepEqual(
    [line?.actor_name, (line?.details as { proposed_by?: string } | undefined)?.proposed_by],
    ['second@example.com', 'first@example.com'],
  );
  assert.equal((await list()).length, 2);
  // After the confirmation the list has to be proposed anew.
  assert.equal((await submit(second, [ada, bob])).status, 202);
});

test('no second person is needed below the number of users, for a preview, or for programs', async () => {
  assert.equal((await submit(first, [{ identity: 'one' }])).status, 201);
  assert.equal((await submit(first, [{ identity: 'a' }, { identity: 'b' }], { dry_run: true })).status, 200);
  await submitAccepted(sluice, await getToken(sluice, own), [{ identity: 'a' }, { identity: 'b' }]);
});

test('a part of a list that a second person has to confirm needs that person, too', async () => {
  const part = [{ identity: 'the last of a list' }];
  const pair = [{ identity: 'a short list' }, bob];
  for (const of_users of [0, 1.5, '2']) assert.equal((await submit(first, part, { of_users })).status, 400);
  assert.equal((await submit(first, part, { of_users: 1 })).status, 201);
  assert.equal((await submit(first, part, { of_users: 2 })).status, 202);
  assert.equal((await submit(first, pair, { of_users: 1 })).status, 202);
  assert.equal((await submit(second, part, { of_users: 2 })).status, 201);
  assert.equal((await submit(second, pair, { of_users: 1 })).status, 201);
});

test('a proposal keeps no name, ends by itself, and is withdrawn by anybody who may delete', async () => {
  const users = [ada, { identity: 'dora' }];
  const { body } = await submit(first, users);
  const key = registryKeys.deletionProposals(own.accountId);
  await withRedis(sluice, async (redis) => {
    const kept = JSON.stringify(await redis.hgetall(key));
    assert.doesNotMatch(kept, /of-a-proposal|dora/);
    const leftMs = await redis.pttl(key);
    assert.ok(leftMs > 0 && leftMs <= proposals.keptMs, String(leftMs));
    const [field = '', text = ''] =
      Object.entries(await redis.hgetall(key)).find(([, each]) => each.includes(String(body.proposal_id))) ??
      [];
    await redis.hset(key, field, JSON.stringify({ ...JSON.parse(text), ends_at: new Date(0).toISOString() }));
  });
  assert.equal((await submit(second, users)).status, 202, 'an expired proposal is not confirmed');
  const url = `/accounts/${own.accountId}/deletion_proposals`;
  const [mine] = (await list()).filter(({ proposed_by }) => proposed_by === 'second@example.com');
  assert.equal((await first.ask('DELETE', `${url}/${mine?.proposal_id}`)).status, 200);
  assert.equal((await first.ask('DELETE', `${url}/${mine?.proposal_id}`)).status, 400);
  assert.equal((await submit(first, users)).status, 202, 'it is proposed again, not confirmed');
});

test('another account neither confirms a proposal nor sees it', async () => {
  const users = [ada, { identity: 'emil' }];
  await submit(first, users);
  assert.equal((await submit(stranger, users, {}, other)).status, 202);
  assert.equal((await list(stranger, other)).length, 1);
  const foreign = await stranger.ask('GET', `/accounts/${own.accountId}/deletion_proposals`);
  assert.equal(foreign.status, 400);
  const { body } = await submit(first, users);
  const gone = await stranger.ask(
    'DELETE',
    `/accounts/${other.accountId}/deletion_proposals/${body.proposal_id}`,
  );
  assert.equal(gone.status, 400);
});

test('two people who propose the same at once: one of them confirms it', async () => {
  const users = [{ identity: 'both' }, { identity: 'at once' }];
  const answers = await Promise.all([submit(first, users), submit(second, users)]);
  assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 202]);
});

test('when two people confirm the same proposal at once, only one of them succeeds', async () => {
  const third = await signedIn(sluice, 'third@example.com', 'privacy', own.accountId);
  for (let round = 0; round < 5; round += 1) {
    const users = [{ identity: `once ${round}` }, { identity: 'only' }];
    await submit(first, users);
    const answers = await Promise.all([submit(second, users), submit(third, users)]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 202]);
  }
});

test('a proposal whose confirmation failed waits again; the proposal of a removed person no longer counts', async () => {
  const users = [{ identity: 'in vain' }, { identity: 'again' }];
  await submit(first, users);
  assert.equal((await submit(second, [{ identity: 'alone' }], { reference: 'taken' })).status, 201);
  assert.equal((await submit(second, users, { reference: 'taken' })).status, 409);
  assert.equal((await submit(second, users)).status, 201);

  const leaving = await signedIn(sluice, 'leaving@example.com', 'privacy', own.accountId);
  const { person_id } = (await leaving.ask('GET', '/session')).body.person as { person_id: string };
  await submit(leaving, users);
  await sluice.admin('people', 'remove', person_id);
  // With the same right in another account.
  await signedIn(sluice, 'leaving@example.com', 'privacy', other.accountId);
  assert.equal((await submit(second, users)).status, 202, 'it is proposed anew');
  assert.equal((await submit(first, users)).status, 201);
});

test('a person whose account requires a second factor sees nothing until they have one, and then everything', async () => {
  const administrator = await signedIn(sluice, 'admin@example.com', 'administrator', other.accountId);
  const url = `/accounts/${other.accountId}`;
  const session = async () =>
    (await administrator.ask('GET', '/session')).body.person as Record<string, unknown>;
  assert.equal((await session()).needs_second_factor, undefined);
  assert.equal((await administrator.ask('PATCH', url, { second_factor: 'required' })).status, 200);
  assert.equal((await session()).needs_second_factor, true);
  for (const [method, path, body] of [
    ['GET', '/accounts', undefined],
    ['GET', `${url}/overview`, undefined],
    ['GET', `/user_exports/none/data`, undefined],
    ['POST', `${url}/user_deletion`, { users: [ada] }],
    ['PATCH', url, { second_factor: 'optional' }],
    ['GET', '/people', undefined],
    ['GET', '/audit', undefined],
  ] as const) {
    const { status, body: said } = await administrator.ask(method, path, body);
    assert.deepEqual([status, said.second_factor], [403, 'required'], `${method} ${path}`);
  }
  // The same holds for people who had signed in before, but not for those of other accounts.
  assert.equal((await stranger.ask('GET', `${url}/cases`)).status, 403);
  assert.equal((await first.ask('GET', `/accounts/${own.accountId}/cases`)).status, 200);
  const { secret } = (await administrator.ask('POST', '/second_factor')).body;
  const code = new TOTP({ secret: String(secret) }).generate();
  const set = await administrator.ask('PUT', '/second_factor', { password, secret, code });
  assert.equal(set.status, 200, JSON.stringify(set.body));
  assert.equal((await session()).needs_second_factor, undefined);
  assert.equal((await administrator.ask('GET', '/people')).status, 200);
});
