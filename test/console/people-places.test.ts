// How many people an account and a deployment may have, and who may take whose address. On a real Redis.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { createAccessWatch } from '../../src/accounts/access-watch.js';
import { createAccount } from '../../src/accounts/accounts.js';
import {
  acceptInvitation,
  enterByProvider,
  findInvited,
  findPerson,
  type Invitation,
  invitePerson,
  listPeople,
  removePerson,
} from '../../src/accounts/people/people.js';
import { beginSession, endSession, findSession, listSessions } from '../../src/accounts/people/sessions.js';
import { createProgramKey, revokeProgramKey } from '../../src/accounts/program-keys.js';
import { people as bounds } from '../../src/contract/limits.js';
import { createLog } from '../../src/log.js';
import type { Person } from '../../src/registry/documents.js';
import { followEnvironments } from '../../src/registry/environments.js';
import { readRegistry } from '../../src/registry/registry.js';
import { until } from '../harness/wait.js';
import { startEmptyRegistry } from '../support/empty-registry.js';

const registry = await startEmptyRegistry();
const { redis } = registry;
beforeEach(() => registry.clear());

const account = async () => ({ accountId: (await createAccount(redis, 'Shop', ['Main'])).account_id });

/** A person as Redis stores them, without a credential unless `more` has one. */
const personOf = (n: number, more: Partial<Person>): Person => ({
  person_id: `pe_${n}`,
  email: `p${n}@example.com`,
  role: more.account_id === undefined ? 'operator' : 'viewer',
  created_at: '2026-01-01T00:00:00.000Z',
  ...more,
});
const writePeople = (people: readonly Person[]) =>
  registry.write(Object.fromEntries(people.map((person) => [`person:${person.person_id}`, person])));
const password = { id: 'x', hash: 'x', set_at: '' };
const endedMs = Date.now() - 60_000;
const ended = (agoMs = 0) => ({ hash: 'x', ends_at: new Date(endedMs - agoMs).toISOString() });
const pending = { hash: 'x', ends_at: new Date(Date.now() + 3_600_000).toISOString() };

/** Makes the invitations of an address expire. */
async function end(email: string): Promise<void> {
  const { people } = await readRegistry(redis);
  const invited = [...people.values()].filter((person) => person.email === email);
  await writePeople(
    invited.map((person) => ({ ...person, invitation: { hash: 'x', ends_at: ended().ends_at } })),
  );
}

const idsOf = async (email: string) =>
  (await listPeople(redis)).filter((person) => person.email === email).map(({ person_id }) => person_id);

test('an account can invite people up to the bound, which leaves room for other accounts', async () => {
  const { accountId } = await account();
  const invite = (email: string, more: Partial<Invitation> = {}) =>
    invitePerson(redis, { email, role: 'viewer', accountId, ...more });
  await writePeople(
    Array.from({ length: bounds.perAccountMax - 1 }, (_, n) =>
      personOf(n, { account_id: accountId, ...(n % 2 === 0 ? { password } : { invitation: pending }) }),
    ),
  );
  await invite('last@example.com');
  await invite('last@example.com');
  await assert.rejects(invite('more@example.com'), /an account can have 200 people: remove somebody first/);
  const vouched = { issuer: 'https://p', subject: '1', email: 'more@example.com', accountId };
  assert.deepEqual(await enterByProvider(redis, { ...vouched, role: 'viewer' }), { refused: 'no_place' });
  await invite('more@example.com', { accountId: (await account()).accountId });
  await invite('operator@example.com', { role: 'operator', accountId: undefined });
});

test('people whose invitations have ended make room, the one that ended first before the others, and nobody else does', async () => {
  const { accountId } = await account();
  const people = Array.from({ length: bounds.perAccountMax }, (_, n) =>
    personOf(n, { account_id: accountId, password }),
  );
  const lapsed = [
    personOf(0, { account_id: accountId, invitation: ended(1_000) }),
    personOf(1, { account_id: accountId, invitation: ended(3_000) }),
    personOf(2, { account_id: accountId, invitation: ended(2_000) }),
  ];
  // This person has a password, and a link to choose another one.
  const returning = personOf(3, { account_id: accountId, password, invitation: ended(9_000) });
  const elsewhere = personOf(1_000, { account_id: (await account()).accountId, invitation: ended(9_000) });
  await writePeople([...people, ...lapsed, returning, elsewhere]);
  const left = async () => {
    const there = new Set((await listPeople(redis)).map(({ person_id }) => person_id));
    return [...lapsed, returning, elsewhere].map(({ person_id }) => person_id).filter((id) => there.has(id));
  };
  const invite = (email: string) => invitePerson(redis, { email, role: 'viewer', accountId });
  await invite('new1@example.com');
  assert.deepEqual(await left(), ['pe_0', 'pe_2', 'pe_3', 'pe_1000']);
  await invite('new2@example.com');
  assert.deepEqual(await left(), ['pe_0', 'pe_3', 'pe_1000']);
  await invite('new3@example.com');
  await assert.rejects(invite('new4@example.com'), /remove somebody first/);
  assert.deepEqual(await left(), ['pe_3', 'pe_1000']);
});

test('the last places of a deployment are for operators', async () => {
  const accounts: string[] = [];
  const ofAccounts = bounds.countMax - bounds.operatorPlaces;
  for (let n = 0; n <= ofAccounts; n += bounds.perAccountMax - 1) accounts.push((await account()).accountId);
  const accountOf = (n: number) => String(accounts[n % accounts.length]);
  await writePeople(
    Array.from({ length: ofAccounts - 1 }, (_, n) => personOf(n, { account_id: accountOf(n), password })),
  );
  const accountId = accountOf(-1 + accounts.length);
  await invitePerson(redis, { email: 'last@example.com', role: 'viewer', accountId });
  await assert.rejects(
    invitePerson(redis, { email: 'more@example.com', role: 'viewer', accountId }),
    /all accounts together can have 1900 people/,
  );
  await invitePerson(redis, { email: 'operator@example.com', role: 'operator' });
  await writePeople(
    Array.from({ length: bounds.operatorPlaces - 1 }, (_, n) => personOf(10_000 + n, { password })),
  );
  await assert.rejects(
    invitePerson(redis, { email: 'more@example.com', role: 'operator' }),
    /a deployment can have 2000 people/,
  );
  // The places of expired invitations are free, whoever has them.
  await end('last@example.com');
  await invitePerson(redis, { email: 'more@example.com', role: 'operator' });
  assert.deepEqual(await idsOf('last@example.com'), []);
});

test('accounts invite an address beside each other, and whoever accepts first has it', async () => {
  const own = (await account()).accountId;
  const other = (await account()).accountId;
  const email = 'colleague@other.example';
  const first = await invitePerson(redis, { email, role: 'viewer', accountId: own }, 'administrator');
  const { secret, ...shown } = await invitePerson(redis, { email, role: 'privacy', accountId: other });
  assert.deepEqual([shown.role, shown.account_id, shown.state], ['privacy', other, 'invited']);
  assert.ok(await findInvited(redis, first.secret), 'the other invitation stays');
  const accepted = await acceptInvitation(redis, secret, 'a hash');
  assert.equal(accepted?.account_id, other);
  assert.equal((await findPerson(redis, email))?.person_id, accepted?.person_id);
  assert.equal(await acceptInvitation(redis, first.secret, 'a hash'), undefined, 'the address is taken');
  assert.equal((await findPerson(redis, email))?.account_id, other);
  assert.deepEqual((await listPeople(redis, other)).length, 1, 'the invitation has become the person');
  // The operator gets the reason, since operators may know.
  await assert.rejects(
    invitePerson(redis, { email, role: 'viewer', accountId: own }),
    /has to be removed first/,
  );
  // A page that was loaded earlier names the person by the id of the invitation.
  await removePerson(redis, shown.person_id);
  assert.equal((await acceptInvitation(redis, first.secret, 'a hash'))?.account_id, own);
});

test('an administrator’s invitation is answered alike, whatever access the address has elsewhere', async () => {
  const own = (await account()).accountId;
  const elsewhere = (await account()).accountId;
  const addresses = ['free', 'active', 'operator', 'invited', 'vouched'].map((name) => `${name}@example.com`);
  const join = async (invitation: Invitation) =>
    acceptInvitation(redis, (await invitePerson(redis, invitation)).secret, 'a hash');
  await join({ email: 'active@example.com', role: 'privacy', accountId: elsewhere });
  await join({ email: 'operator@example.com', role: 'operator' });
  await invitePerson(redis, { email: 'invited@example.com', role: 'viewer', accountId: elsewhere });
  const vouched = {
    issuer: 'https://p',
    subject: '1',
    email: 'vouched@example.com',
    role: 'operator',
  } as const;
  await enterByProvider(redis, vouched);
  const answers: string[] = [];
  for (const email of addresses) {
    const invite = () => invitePerson(redis, { email, role: 'viewer', accountId: own }, 'administrator');
    await invite();
    const { secret, ...answer } = await invite();
    const listed = (await listPeople(redis, own)).filter((person) => person.email === email);
    const invited = await findInvited(redis, secret);
    const texts = JSON.stringify([answer, listed, invited?.email, invited?.role, secret.length]);
    const ids = new RegExp(`${answer.person_id}|${email}`, 'g');
    answers.push(texts.replaceAll(ids, '').replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'then'));
  }
  assert.equal(new Set(answers).size, 1, answers.join('\n'));
});

test('nobody gets an address that looks like somebody else’s', async () => {
  const { accountId } = await account();
  const officer = { email: 'look.alike@example.com', role: 'privacy', accountId } as const;
  await acceptInvitation(redis, (await invitePerson(redis, officer)).secret, 'a hash');
  const alike = ['\u200b', '\u00ad', '\u2060', '\ufe0f'].map((unseen) => `${officer.email}${unseen}`);
  for (const email of [
    ...alike,
    officer.email.replace('a', '\u0430'),
    officer.email.replace('o', '\uff4f'),
    officer.email.replace('k', '\u212a'),
  ]) {
    const invitation = { ...officer, email };
    await assert.rejects(invitePerson(redis, invitation, 'administrator'), /in ASCII characters/, email);
    const vouched = { issuer: 'https://p', subject: 'alike', email, role: 'privacy', accountId } as const;
    assert.deepEqual(await enterByProvider(redis, vouched), { refused: 'no_email' });
  }
  assert.deepEqual(
    (await listPeople(redis, accountId)).map(({ email }) => email),
    [officer.email],
  );
});

test('only an operator makes a link for somebody who has access, or had it', async () => {
  const { accountId } = await account();
  const invitation: Invitation = { email: 'officer@example.com', role: 'privacy', accountId };
  const byAdministrator = () => invitePerson(redis, invitation, 'administrator');
  // The invitation is not accepted yet, so an administrator may send another link.
  await byAdministrator();
  const first = await byAdministrator();
  const officer = await acceptInvitation(redis, first.secret, 'a hash');
  assert.ok(officer);
  await assert.rejects(byAdministrator(), /has access: only an operator/);
  assert.deepEqual(await findPerson(redis, invitation.email), officer, 'nothing is changed');
  const link = await invitePerson(redis, invitation);
  assert.equal((await acceptInvitation(redis, link.secret, 'another hash'))?.person_id, officer.person_id);
  // Otherwise an administrator could remove somebody and invite them again.
  await removePerson(redis, officer.person_id);
  await assert.rejects(byAdministrator(), /had access: only an operator can invite them again/);
  await assert.rejects(invitePerson(redis, { ...invitation, role: 'viewer' }, 'administrator'), /had access/);
  await invitePerson(redis, invitation);
  await assert.rejects(byAdministrator(), /had access/, 'the operator’s invitation changes nothing');
});

test('remembers only of the latest people, in a limited number, that they had access', async () => {
  const { accountId } = await account();
  const ids = Array.from({ length: bounds.formerMax }, (_, n) => `pe_${n}`);
  await registry.write({ [`former_people:${accountId}`]: { account_id: accountId, person_ids: ids } });
  await writePeople([personOf(5_000, { account_id: accountId, password })]);
  await removePerson(redis, 'pe_5000');
  const { formerPeople } = await readRegistry(redis);
  assert.deepEqual(formerPeople.get(accountId)?.person_ids, [...ids.slice(1), 'pe_5000']);
});

test('a person whom the provider vouches for takes the place of an invitation that nobody has accepted', async () => {
  const { accountId } = await account();
  const email = 'boss@example.com';
  const vouched = { issuer: 'https://p', subject: '1', email, role: 'operator' } as const;
  const { secret } = await invitePerson(redis, { email, role: 'viewer', accountId });
  const boss = (await enterByProvider(redis, vouched)) as Person;
  assert.deepEqual(boss.role, 'operator');
  assert.deepEqual([boss.account_id, boss.invitation], [undefined, undefined]);
  assert.equal(await acceptInvitation(redis, secret, 'a hash'), undefined, 'the link has ended');
  assert.deepEqual(await enterByProvider(redis, vouched), boss);
  assert.deepEqual(await enterByProvider(redis, { ...vouched, subject: '2' }), { refused: 'address_taken' });
  assert.deepEqual(await findPerson(redis, email), boss);

  const accepted = await invitePerson(redis, { email: 'own@example.com', role: 'viewer', accountId });
  const own = await acceptInvitation(redis, accepted.secret, 'a hash');
  const taken = { ...vouched, subject: '3', email: 'own@example.com' };
  assert.deepEqual(await enterByProvider(redis, taken), { refused: 'address_taken' });
  assert.deepEqual(await findPerson(redis, 'own@example.com'), own);
});

test('one user of a provider is one person: their entries under other addresses end', async () => {
  const { accountId } = await account();
  const provider = { issuer: 'https://p', subject: '1', id: 'x' };
  await writePeople([
    personOf(1, { provider }),
    personOf(2, { provider, account_id: accountId }),
    personOf(3, { provider: { ...provider, subject: '2' } }),
    personOf(4, { provider: { ...provider, issuer: 'https://q' } }),
  ]);
  const vouched = { issuer: 'https://p', subject: '1', email: 'now@example.com', role: 'viewer' } as const;
  const now = (await enterByProvider(redis, { ...vouched, accountId })) as Person;
  const ids = async () => (await listPeople(redis)).map(({ person_id }) => person_id).toSorted();
  assert.deepEqual(await ids(), ['pe_3', 'pe_4', now.person_id].toSorted());
  const refused = await enterByProvider(redis, { issuer: 'https://p', subject: '1', refused: 'no_role' });
  assert.deepEqual(refused, { refused: 'no_role', account_id: accountId });
  assert.deepEqual(await ids(), ['pe_3', 'pe_4']);
});

test('the length of an address is bounded', async () => {
  const longest = `${'a'.repeat(bounds.emailMax - '@example.com'.length)}@example.com`;
  const invite = (email: string) => invitePerson(redis, { email, role: 'operator' });
  assert.equal((await invite(longest)).email, longest);
  await assert.rejects(invite(`a${longest}`), /must look like ada@example.com/);
});

test('one session too many ends the oldest of that person, and nobody else’s', async () => {
  const [person, other] = [personOf(1, { password }), personOf(2, { password })] as const;
  await writePeople([person, other]);
  const from = { address: '127.0.0.1', agent: 'x'.repeat(bounds.agentMax + 1) };
  const elsewhere = await beginSession(redis, other, from);
  assert.equal(elsewhere.session.agent.length, bounds.agentMax);
  const secrets: string[] = [];
  const begin = async () => {
    // Sessions of the same millisecond have no order, so each begins in its own.
    const nowMs = Date.now();
    while (Date.now() === nowMs) await new Promise((resolve) => setTimeout(resolve, 1));
    secrets.push((await beginSession(redis, person, from)).secret);
  };
  for (let n = 0; n < bounds.sessionsMax; n += 1) await begin();
  const isGood = async (at: number) => (await findSession(redis, secrets[at] ?? '')) !== undefined;
  assert.ok(await isGood(0));
  await begin();
  assert.deepEqual([await isGood(0), await isGood(1)], [false, true]);
  assert.equal((await listSessions(redis, person)).length, bounds.sessionsMax);
  assert.equal((await redis.keys('{registry}:session:*')).length, bounds.sessionsMax + 1);
  assert.ok(await findSession(redis, elsewhere.secret));
});

test('streams under a session or a key stop soon after its end or the removal of its person, and nothing else stops', async (context) => {
  const { id, program_key } = await createProgramKey(redis, {
    name: '',
    role: 'operator',
    accountId: undefined,
  });
  const environments = await followEnvironments(redis, createLog('test', 'silent'));
  const ends: (() => void)[] = [];
  context.after(() => {
    for (const end of ends) end();
    environments.close();
  });
  // The watch gets the changes, and does not look by itself before the test is over.
  const watch = createAccessWatch(environments.onChange, 3_600_000);
  const from = { address: '127.0.0.1', agent: '' };
  const people = [1, 2, 3].map((n) => personOf(n, { password }));
  await writePeople(people);
  const stopped: string[] = [];
  const begun = await Promise.all(people.map((person) => beginSession(redis, person, from)));
  for (const { secret, session } of begun) {
    const mayGoOn = async () => (await findSession(redis, secret)) !== undefined;
    ends.push(watch(mayGoOn, () => stopped.push(session.person_id)));
  }
  const soon = { deadlineMs: 60_000, what: 'it is stopped' };
  await endSession(redis, 'pe_1', begun[0]?.session.id ?? '');
  await until(() => stopped.length === 1, soon);
  await removePerson(redis, 'pe_2');
  await until(() => stopped.length === 2, soon);
  const mayKey = async () => environments.ofProgramKey(program_key) !== undefined;
  ends.push(watch(mayKey, () => stopped.push(id)));
  await revokeProgramKey(redis, id);
  await until(() => stopped.length === 3, soon);
  assert.deepEqual(stopped, ['pe_1', 'pe_2', id]);
});

test('an access that has ended before it is watched is noticed at once, and a failing look-up ends nothing', async () => {
  const listeners = new Set<() => void>();
  const watch = createAccessWatch((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  });
  let stops = 0;
  const stopped = new Promise<void>((resolve) => {
    watch(
      async () => false,
      () => {
        stops += 1;
        resolve();
      },
    );
  });
  await stopped;
  assert.equal(listeners.size, 0);
  // A change during a look-up causes another look-up.
  let asked = 0;
  const answers: ((may: boolean) => void)[] = [];
  const ended = new Promise<void>((resolve) => {
    watch(() => {
      asked += 1;
      if (asked === 1) return Promise.reject(new Error('Redis is away'));
      return new Promise((settle) => answers.push(settle));
    }, resolve);
  });
  const tell = () => {
    for (const listener of [...listeners]) listener();
  };
  const nextTurn = () => new Promise((resolve) => setImmediate(resolve));
  await nextTurn();
  tell();
  await nextTurn();
  tell();
  answers[0]?.(true);
  await nextTurn();
  answers[1]?.(false);
  await ended;
  assert.deepEqual([asked, stops, listeners.size], [3, 1, 0]);
});
