// Places of people and their addresses: how many an account and a deployment have, and who takes whose. On a real Redis.

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { until } from '../../harness/wait.js';
import { createAccessWatch } from '../../src/accounts/access-watch.js';
import { createAccount } from '../../src/accounts/accounts.js';
import type { Person } from '../../src/accounts/documents.js';
import { followEnvironments } from '../../src/accounts/environments.js';
import { accessWatch, people as bounds } from '../../src/contract/limits.js';
import { createLog } from '../../src/log.js';
import type { Redis } from '../../src/packages/ioredis.js';
import {
  acceptInvitation,
  enterByProvider,
  findInvited,
  findPerson,
  type Invitation,
  invitePerson,
  listPeople,
  removePerson,
} from '../../src/people/people.js';
import { beginSession, endSession, findSession, listSessions } from '../../src/people/sessions.js';
import { type EmptyRegistry, startEmptyRegistry } from '../support/empty-registry.js';

let registry: EmptyRegistry;
let redis: Redis;

before(async () => {
  registry = await startEmptyRegistry();
  ({ redis } = registry);
});

after(async () => {
  await registry?.remove();
});

beforeEach(() => registry.clear());

const account = async () => ({ accountId: (await createAccount(redis, 'Shop', ['Main'])).account_id });

/** A person as Redis has them: without a credential, unless one is given. */
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

/** Lets an invitation end. */
async function end(email: string): Promise<void> {
  const person = (await findPerson(redis, email)) as Person;
  await writePeople([
    { ...person, invitation: { hash: person.invitation?.hash ?? '', ends_at: ended().ends_at } },
  ]);
}

test('an account invites as many people as the bound says, and leaves room for others', async () => {
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
  await assert.rejects(enterByProvider(redis, { ...vouched, role: 'viewer' }), /can have 200 people/);
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
  // Has a password, and a link to choose another one.
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
  // The places of invitations that have ended are free, whoever has them.
  await end('last@example.com');
  await invitePerson(redis, { email: 'more@example.com', role: 'operator' });
  assert.equal(await findPerson(redis, 'last@example.com'), undefined);
});

test('an address is free for another account or role once its invitation has ended, unless it was accepted', async () => {
  const own = (await account()).accountId;
  const other = (await account()).accountId;
  const email = 'colleague@other.example';
  const former = await invitePerson(redis, { email, role: 'viewer', accountId: own });
  const invitation: Invitation = { email, role: 'privacy', accountId: other };
  await assert.rejects(invitePerson(redis, invitation), /belongs to somebody with another role or account/);
  await end(email);
  const { secret, ...shown } = await invitePerson(redis, invitation);
  assert.deepEqual([shown.role, shown.account_id, shown.state], ['privacy', other, 'invited']);
  assert.equal(await findInvited(redis, former.secret), undefined, 'the former link has ended');
  assert.ok(await acceptInvitation(redis, secret, 'a hash'));
  // With a password the address is taken, though a link to choose another one has ended.
  await invitePerson(redis, invitation);
  await end(email);
  await assert.rejects(
    invitePerson(redis, { email, role: 'viewer', accountId: own }),
    /has to be removed first/,
  );
  assert.equal((await findPerson(redis, email))?.account_id, other);
});

test('whom the provider vouches for takes the place of an invitation that nobody has accepted', async () => {
  const { accountId } = await account();
  const email = 'boss@example.com';
  const vouched = { issuer: 'https://p', subject: '1', email, role: 'operator' } as const;
  const { secret } = await invitePerson(redis, { email, role: 'viewer', accountId });
  const boss = await enterByProvider(redis, vouched);
  assert.deepEqual(boss.role, 'operator');
  assert.deepEqual([boss.account_id, boss.invitation], [undefined, undefined]);
  assert.equal(await acceptInvitation(redis, secret, 'a hash'), undefined, 'the link has ended');
  assert.deepEqual(await enterByProvider(redis, vouched), boss);
  await assert.rejects(enterByProvider(redis, { ...vouched, subject: '2' }), /another person/);

  const accepted = await invitePerson(redis, { email: 'own@example.com', role: 'viewer', accountId });
  await acceptInvitation(redis, accepted.secret, 'a hash');
  await assert.rejects(enterByProvider(redis, { ...vouched, email: 'own@example.com' }), /another person/);
});

test('an address has at most as many characters as the bound says', async () => {
  const longest = `${'a'.repeat(bounds.emailMax - '@example.com'.length)}@example.com`;
  const invite = (email: string) => invitePerson(redis, { email, role: 'operator' });
  assert.equal((await invite(longest)).email, longest);
  await assert.rejects(invite(`a${longest}`), /an e-mail address/);
});

test('one session too many ends the oldest of that person, and nobody else’s', async () => {
  const [person, other] = [personOf(1, { password }), personOf(2, { password })] as const;
  await writePeople([person, other]);
  const from = { address: '127.0.0.1', agent: 'x'.repeat(bounds.agentMax + 1) };
  const elsewhere = await beginSession(redis, other, from);
  assert.equal(elsewhere.session.agent.length, bounds.agentMax);
  const secrets: string[] = [];
  const begin = async () => {
    // Sessions of the same millisecond have no order.
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

test('what goes on under a session stops soon after its end or the removal of its person, and nothing else does', async () => {
  const environments = await followEnvironments(redis, createLog('test', 'silent'));
  const ends: (() => void)[] = [];
  try {
    const watch = createAccessWatch(environments.onChange);
    const from = { address: '127.0.0.1', agent: '' };
    const people = [1, 2, 3].map((n) => personOf(n, { password }));
    await writePeople(people);
    const stopped: string[] = [];
    const begun = await Promise.all(people.map((person) => beginSession(redis, person, from)));
    for (const { secret, session } of begun) {
      const mayGoOn = async () => (await findSession(redis, secret)) !== undefined;
      ends.push(watch(mayGoOn, () => stopped.push(session.person_id)));
    }
    // Sooner than it would be noticed by asking now and then.
    const soon = { deadlineMs: accessWatch.askedEveryMs - 500, what: 'it is stopped' };
    await endSession(redis, 'pe_1', begun[0]?.session.id ?? '');
    await until(() => stopped.length === 1, soon);
    await removePerson(redis, 'pe_2');
    await until(() => stopped.length === 2, soon);
    assert.deepEqual(stopped, ['pe_1', 'pe_2']);
  } finally {
    for (const end of ends) end();
    environments.close();
  }
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
  // A change during a look-up is looked up again.
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
