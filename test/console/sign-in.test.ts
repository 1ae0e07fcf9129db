// Invitations, passwords, sessions and the second factor, over HTTP.

import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { request } from 'node:http';
import { after, test } from 'node:test';
import { Secret, TOTP } from 'otpauth';
import { forgiveAttempt } from '../../src/accounts/people/attempts.js';
import { createPasswords } from '../../src/accounts/people/passwords.js';
import { readAttempt, signAttempt, vouchedOf } from '../../src/accounts/people/provider.js';
import { useCode } from '../../src/accounts/people/second-factor.js';
import { readConfig } from '../../src/config.js';
import { bodies, people, signIns, signOn } from '../../src/contract/limits.js';
import { registryKeys } from '../../src/redis/keys.js';
import type { AuditEntry } from '../../src/registry/audit/read.js';
import { freePort } from '../harness/free-port.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { startTcpProxy } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { ConsolePage, cookieAt, invite, password, signedIn } from '../support/console.js';
import { client, SignOnBrowser, signedAnew, startProvider, type TestProvider } from '../support/provider.js';
import { ownSluice } from '../support/sluice.js';

const providerPort = await freePort();
const sluice = await ownSluice({
  env: {
    OIDC_ISSUER: `http://127.0.0.1:${providerPort}`,
    OIDC_CLIENT_ID: client.id,
    OIDC_CLIENT_SECRET: client.secret,
  },
});
const redis = connectTestRedis(sluice.redisUrl);
const sessionCookie = cookieAt(sluice.adminUrl, 'session');
const attemptCookie = cookieAt(sluice.adminUrl, 'sign_on');

after(() => redis.disconnect());

const newPage = () => new ConsolePage(sluice.adminUrl);

test('a password is refused when its network has no room to hash it, and nobody elsewhere is refused', async () => {
  const passwords = createPasswords();
  const by = (person: string, account = '192.0.2.1') => ({ account, person });
  const { atOnceMax, waitingOfAccountMax, waitingOfPersonMax } = people.hashes;
  const hash = (person: string) => passwords.hash(by(person), password);
  const hashes = Array.from({ length: atOnceMax + waitingOfPersonMax }, () => hash('a@b'));
  await assert.rejects(hash('a@b'), /too many people/);
  for (let n = waitingOfPersonMax; n < waitingOfAccountMax; n += 1) hashes.push(hash('c@d'));
  const full = [hash('e@f'), passwords.verify(by('e@f'), undefined, password)];
  await Promise.all(full.map((refused) => assert.rejects(refused, /too many people/)));
  let isDone = false;
  const all = Promise.all(hashes).finally(() => {
    isDone = true;
  });
  assert.equal(await passwords.verify(by('g@h', '192.0.2.2'), undefined, password), false);
  assert.equal(isDone, false, 'people elsewhere do not wait for those who wait already');
  const [kept] = await all;
  assert.equal(await passwords.verify(by('a@b'), undefined, password), false);
  assert.equal(await passwords.verify(by('a@b'), kept, password), true);
});

test('an invitation is valid once, for a week, and until a later one', async () => {
  const first = await invite(sluice, 'Ada@Example.com', 'operator');
  const second = await invite(sluice, 'ada@example.com', 'operator');
  const page = newPage();
  assert.equal((await page.ask('POST', '/invitation', { invitation: first })).status, 400);
  const shown = await page.ask('POST', '/invitation', { invitation: second });
  assert.deepEqual([shown.body.email, shown.body.role], ['ada@example.com', 'operator']);
  for (const short of [
    '',
    'x'.repeat(people.passwordLengthMin - 1),
    'x'.repeat(people.passwordLengthMax + 1),
  ]) {
    const body = { invitation: second, password: short };
    assert.equal((await page.ask('POST', '/invitation/accept', body)).status, 400, short);
  }
  const accepted = await page.ask('POST', '/invitation/accept', { invitation: second, password });
  assert.equal(accepted.status, 200);
  for (const cookie of accepted.headers.getSetCookie()) {
    assert.match(cookie, /; HttpOnly; SameSite=Strict$/, 'over plain HTTP without Secure');
  }
  assert.equal((await page.ask('POST', '/invitation/accept', { invitation: second, password })).status, 400);
  assert.equal((await page.ask('GET', '/accounts')).status, 200);
  const ending = await invite(sluice, 'late@example.com', 'operator');
  const key = await redis.hkeys(registryKeys.documents);
  const late = key.find((name) => name.startsWith('person:') && name.endsWith(ending.slice(3, 19))) as string;
  const document = JSON.parse((await redis.hget(registryKeys.documents, late)) ?? '');
  const weekMs = Date.parse(document.invitation.ends_at) - Date.now();
  assert.ok(Math.abs(weekMs - people.invitationMs) < 60_000);
  document.invitation.ends_at = new Date(Date.now() - 1_000).toISOString();
  await redis.hset(registryKeys.documents, late, JSON.stringify(document));
  await redis.incr(registryKeys.version);
  assert.equal(
    (await newPage().ask('POST', '/invitation/accept', { invitation: ending, password })).status,
    400,
  );
});

test('people are in Redis and ClickHouse, passwords as Argon2id, and no secret of a link or session is kept', async () => {
  const invitation = await invite(sluice, 'kept@example.com', 'operator');
  const page = newPage();
  await page.ask('POST', '/invitation/accept', { invitation, password });
  const [stored] = await sluice.rows<{ document: string }>(
    "SELECT document FROM registry FINAL WHERE document LIKE '%kept@example.com%'",
  );
  assert.ok(stored, 'the invitation is in ClickHouse');
  const texts = [stored.document, ...Object.values(await redis.hgetall(registryKeys.documents))];
  for (const name of await redis.keys('{registry}:session:*'))
    texts.push(name, (await redis.get(name)) ?? '');
  const all = texts.join('\n');
  assert.match(all, /\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  for (const secret of [invitation.split('.')[1], page.cookies.get(sessionCookie), password])
    assert.ok(secret !== undefined && !all.includes(secret));
});

test('a session lasts twelve hours, is listed, and is ended by its owner only', async () => {
  const page = await signedIn(sluice, 'owner@example.com', 'operator');
  const second = newPage();
  assert.equal((await second.signIn('owner@example.com')).status, 200);
  const stranger = await signedIn(sluice, 'stranger@example.com', 'operator');
  const sessions = (await page.ask('GET', '/sessions')).body as unknown as {
    id: string;
    this_one: boolean;
    ends_at: string;
    address: string;
  }[];
  assert.deepEqual(sessions.map(({ this_one }) => this_one).toSorted(), [false, true]);
  for (const { ends_at } of sessions)
    assert.ok(Math.abs(Date.parse(ends_at) - Date.now() - people.sessionMs) < 60_000);
  for (const name of await redis.keys('{registry}:session:*'))
    assert.ok((await redis.pttl(name)) <= people.sessionMs && (await redis.pttl(name)) > 0);
  const other = sessions.find(({ this_one }) => !this_one)?.id as string;
  assert.equal((await stranger.ask('DELETE', `/sessions/${other}`)).status, 400);
  assert.equal((await second.ask('GET', '/accounts')).status, 200);
  assert.equal((await page.ask('DELETE', `/sessions/${other}`)).status, 200);
  assert.equal((await second.ask('GET', '/accounts')).status, 401);
  assert.equal((await page.ask('DELETE', '/session')).status, 200);
  assert.equal(page.cookies.has(sessionCookie), false);
});

test('a new password ends all sessions but the one that chose it', async () => {
  const page = await signedIn(sluice, 'changes@example.com', 'operator');
  const elsewhere = newPage();
  await elsewhere.signIn('changes@example.com');
  const next = 'another long password';
  const refused = await page.ask('PUT', '/password', { password: 'wrong', new_password: next });
  assert.equal(refused.status, 400);
  assert.equal((await page.ask('PUT', '/password', { password, new_password: next })).status, 200);
  assert.equal((await elsewhere.ask('GET', '/accounts')).status, 401);
  assert.equal((await page.ask('GET', '/accounts')).status, 200);
  assert.equal((await newPage().signIn('changes@example.com')).status, 401);
  assert.equal((await newPage().signIn('changes@example.com', { password: next })).status, 200);
});

test('requests from other pages, with other host names, or without the console’s header change nothing', async () => {
  const page = await signedIn(sluice, 'victim@example.com', 'operator');
  const before = JSON.stringify((await page.ask('GET', '/accounts')).body);
  const account = { name: 'made by a stranger', environments: ['Main'] };
  for (const headers of [
    { origin: 'http://evil.example' },
    { origin: sluice.adminUrl.replace('http:', 'https:') },
    { origin: 'null' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sluice-console': '' },
  ] as Record<string, string>[]) {
    const { status } = await page.ask('POST', '/accounts', account, headers);
    assert.equal(status, 403, JSON.stringify(headers));
    const signIn = { email: 'victim@example.com', password };
    assert.equal((await newPage().ask('POST', '/session', signIn, headers)).status, 403);
  }
  assert.equal(
    (await page.ask('GET', '/accounts', undefined, { 'sec-fetch-site': 'cross-site' })).status,
    403,
  );
  // Sends a host name that is not ours, as after DNS rebinding; `fetch` does not let a caller choose it.
  const { port } = new URL(sluice.adminUrl);
  const cookie = `${sessionCookie}=${page.cookies.get(sessionCookie)}`;
  for (const path of ['/accounts', '/sign_on', '/sign_on/return?code=1&state=1']) {
    const status = await new Promise((resolve, reject) => {
      const headers = { host: `rebound.example:${port}`, cookie, 'sec-fetch-site': 'same-origin' };
      const sent = request({ host: '127.0.0.1', port, path: `/admin/v1${path}`, headers });
      sent
        .on('error', reject)
        .on('response', (reply) => resolve(reply.resume().statusCode))
        .end();
    });
    assert.equal(status, 403, path);
  }
  assert.equal(JSON.stringify((await page.ask('GET', '/accounts')).body), before);
});

test('two consoles on one host sign nobody out of the other one, since the names of their cookies contain the port', async () => {
  const tunnel = await startTcpProxy({ port: Number(new URL(sluice.adminUrl).port) });
  try {
    const one = await signedIn(sluice, 'one@example.com', 'operator');
    const other = new ConsolePage(`http://127.0.0.1:${tunnel.port}`);
    await signedIn(sluice, 'other@example.com', 'operator');
    // A browser keeps the cookies of all ports of a host together.
    for (const [name, value] of one.cookies) other.cookies.set(name, value);
    assert.equal((await other.ask('GET', '/session')).body.person, null);
    assert.equal((await other.signIn('other@example.com')).status, 200);
    for (const [name, value] of other.cookies) one.cookies.set(name, value);
    const emailIn = async (page: ConsolePage) =>
      ((await page.ask('GET', '/session')).body.person as { email: string } | null)?.email;
    assert.deepEqual([await emailIn(one), await emailIn(other)], ['one@example.com', 'other@example.com']);
    assert.equal((await other.ask('DELETE', '/session')).status, 200);
    assert.equal(await emailIn(one), 'one@example.com');
  } finally {
    await tunnel.close();
  }
});

test('wrong passwords slow down sign-ins of that person for everybody, except in a browser they have used', async () => {
  const known = await signedIn(sluice, 'slow@example.com', 'operator');
  await signedIn(sluice, 'quick@example.com', 'operator');
  const guess = () => newPage().signIn('slow@example.com', { password: 'a wrong password' });
  const answers = await Promise.all(Array.from({ length: 20 }, guess));
  const looked = answers.filter(({ status }) => status === 401).length;
  assert.ok(looked >= signIns.person.freeMax && looked < 12, `${looked} were looked at`);
  for (const { status, headers } of answers.filter(({ status }) => status !== 401)) {
    assert.equal(status, 429);
    const waitS = Number(headers.get('retry-after'));
    assert.ok(waitS > signIns.waitMsMax / 1000 && waitS <= signIns.person.spacingMsMax / 1000, `${waitS} s`);
  }
  // Sets the times as if wrong passwords kept coming: a browser that is slowed down by them would be refused.
  const slowed: { readonly name: string; readonly next: string }[] = [];
  for (const name of await redis.keys('{registry}:sign_ins:*')) {
    const { count, next = '' } = await redis.hgetall(name);
    if (Number(count) >= signIns.person.freeMax) slowed.push({ name, next });
  }
  assert.equal(slowed.length, 2, 'the person and the address');
  for (const { name } of slowed) await redis.hset(name, 'next', Date.now() + signIns.person.spacingMsMax);
  assert.equal((await known.signIn('slow@example.com')).status, 200, 'the person signs in meanwhile');
  for (const { name, next } of slowed) await redis.hset(name, 'next', next);
  // Other people at the same address wait only a little.
  assert.equal((await newPage().signIn('quick@example.com')).status, 200);
  for (const name of await redis.keys('{registry}:sign_ins:*')) {
    assert.ok((await redis.pttl(name)) > 0, 'the count expires');
    await redis.del(name);
  }
});

test('a browser that a person has used is slowed down by its own wrong passwords, however it writes its cookie', async () => {
  const known = await signedIn(sluice, 'forms@example.com', 'operator');
  const name = cookieAt(sluice.adminUrl, 'browser');
  const cookie = known.cookies.get(name) ?? '';
  const guess = (written: string) => {
    const page = newPage();
    page.cookies.set(name, written);
    return page.signIn('forms@example.com', { password: 'a wrong password' });
  };
  for (const written of [() => cookie, (n: number) => `${cookie}.${n}`]) {
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => guess(written(n))));
    const looked = answers.filter(({ status }) => status === 401).length;
    assert.ok(looked < 12, `${looked} were looked at`);
  }
  await redis.del(await redis.keys('{registry}:sign_ins:*'));
});

test('taking back an attempt whose count has expired leaves nothing in Redis for ever', async () => {
  const attempt = { lane: registryKeys.signIns('lane'), address: registryKeys.signIns('address') };
  await forgiveAttempt(redis, attempt);
  assert.ok((await redis.pttl(attempt.address)) > 0);
  assert.equal(await redis.exists(attempt.lane), 0);
  await redis.del(attempt.address);
});

test('an unknown address gets the same answer as a wrong password', async () => {
  await signedIn(sluice, 'there@example.com', 'operator');
  const said = async (email: string) => {
    const { status, body } = await newPage().signIn(email, { password: 'a wrong password' });
    return JSON.stringify([status, body]);
  };
  assert.equal(await said('there@example.com'), await said('nobody@example.com'));
  await redis.del(await redis.keys('{registry}:sign_ins:*'));
});

test('a body that is sent without a session is not read', async () => {
  const page = newPage();
  page.cookies.set(sessionCookie, 'nobody');
  assert.equal((await page.ask('POST', '/certificates/verify', [])).status, 401);
});

test('a sign-in accepts a body of only a few kilobytes', async () => {
  const sized = (bytes: number) => {
    const body = { email: 'nobody@example.com', password: 'x', more: '' };
    return { ...body, more: 'x'.repeat(bytes - JSON.stringify(body).length) };
  };
  const { accessBytesMax } = bodies;
  assert.equal((await newPage().ask('POST', '/session', sized(accessBytesMax))).status, 401);
  assert.equal((await newPage().ask('POST', '/session', sized(accessBytesMax + 1))).status, 413);
  assert.equal((await newPage().ask('POST', '/invitation', sized(accessBytesMax + 1))).status, 413);
});

test('the second factor is asked for once it is set, and a code is valid once', async () => {
  const page = await signedIn(sluice, 'two@example.com', 'operator');
  const offered = (await page.ask('POST', '/second_factor', {})).body as { secret: string; uri: string };
  assert.match(offered.uri, /^otpauth:\/\/totp\/Sluice:two%40example.com\?/);
  const codeAt = (ms: number) =>
    new TOTP({ secret: Secret.fromBase32(offered.secret), digits: 6, period: 30 }).generate({
      timestamp: ms,
    });
  const wrong = { password, secret: offered.secret, code: '000000' };
  assert.equal((await page.ask('PUT', '/second_factor', wrong)).status, 400);
  const { secret } = offered;
  // Leaves the next code, which is already valid, for the sign-in. Both are valid for at least 30 s from now on.
  const spaced = codeAt(Date.now()).replace(/^.../, '$& ');
  const set = await page.ask('PUT', '/second_factor', { password, secret, code: spaced });
  assert.deepEqual([set.status, set.body], [200, { second_factor: true }]);
  const needed = await newPage().signIn('two@example.com');
  assert.deepEqual([needed.status, needed.body.second_factor], [401, 'needed']);
  const code = codeAt(Date.now() + 30_000);
  const both = await Promise.all([1, 2].map(() => newPage().signIn('two@example.com', { code })));
  assert.deepEqual(
    both.map(({ status }) => status).toSorted(),
    [200, 401],
    'only one of two at once is let in',
  );
  assert.equal((await newPage().signIn('two@example.com', { code })).status, 401, 'a code is valid once');
  assert.equal((await page.ask('DELETE', '/second_factor', { password: 'wrong' })).status, 400);
  assert.equal((await page.ask('DELETE', '/second_factor', { password })).status, 200);
  assert.equal((await newPage().signIn('two@example.com')).status, 200);
  await redis.del(await redis.keys('{registry}:sign_ins:*'));
});

test('codes of the previous, the present and the next step are accepted, in this order only, and no others', () => {
  const secret = new Secret({ size: 20 });
  const totp = new TOTP({ secret, digits: 6, period: people.codeSeconds });
  const nowMs = 1_900_000_000_000;
  const at = (steps: number) => totp.generate({ timestamp: nowMs + steps * people.codeSeconds * 1000 });
  const fresh = { secret: secret.base32, last_code: 0 };
  for (const steps of [-2, 2, 5]) assert.equal(useCode(fresh, at(steps), nowMs), undefined, `${steps}`);
  for (const steps of [-1, 0, 1]) assert.ok(useCode(fresh, at(steps), nowMs), `${steps}`);
  const after = useCode(fresh, at(0), nowMs);
  assert.ok(after);
  for (const steps of [-1, 0]) assert.equal(useCode(after, at(steps), nowMs), undefined);
  assert.ok(useCode(after, at(1), nowMs));
});

test('the audit log has successful and failed sign-ins, but no passwords and no unknown addresses', async () => {
  await signedIn(sluice, 'logged@example.com', 'operator');
  await newPage().signIn('logged@example.com', { password: 'a wrong password' });
  await newPage().signIn('missing@example.com');
  const entries = (await sluice.admin('audit', 'list')) as AuditEntry[];
  const own = entries.filter(({ actor_name }) => actor_name === 'logged@example.com').reverse();
  assert.deepEqual(
    own.map(({ actor, action, outcome }) => [actor, action, outcome]),
    [
      ['person', 'accept_invitation', 'done'],
      ['person', 'sign_in', 'refused'],
    ],
  );
  assert.doesNotMatch(JSON.stringify(entries), /a wrong password|missing@example/);
  await redis.del(await redis.keys('{registry}:sign_ins:*'));
});

test('a role of the provider is an operator, or one account and one role', () => {
  const roleOf = (role: unknown) => {
    const { iss, sub, email } = { iss: 'https://p', sub: '1', email: 'a@b' };
    const vouched = vouchedOf({ idToken: { iss, sub, email, role }, userInfo: {} }, 'role');
    return 'refused' in vouched ? vouched.refused : [vouched.role, vouched.accountId];
  };
  assert.deepEqual(roleOf('operator'), ['operator', undefined]);
  assert.deepEqual(roleOf('privacy:12'), ['privacy', '12']);
  assert.deepEqual(roleOf([5, 'privacy:12:viewer', 'staff', 'viewer:13']), ['viewer', '13']);
  for (const bad of [
    'privacy:12:viewer',
    'administrator:12:',
    'viewer:',
    'viewer',
    ':12',
    'operator:12',
    '',
    {},
    null,
  ])
    assert.equal(roleOf(bad), 'no_role', JSON.stringify(bad));
});

test('the provider vouches for an address unless it calls it anything but verified, in the token or elsewhere', () => {
  const of = (idToken: object, userInfo: object) => {
    const claims = { iss: 'https://p', sub: '1', role: 'operator' };
    const vouched = vouchedOf({ idToken: { ...claims, ...idToken }, userInfo: { ...userInfo } }, 'role');
    return 'refused' in vouched ? vouched.refused : vouched.email;
  };
  const email = 'a@b';
  for (const good of [{}, { email_verified: true }, { email_verified: 'true' }]) {
    assert.equal(of({ email, ...good }, {}), email);
    assert.equal(of({}, { email, ...good }), email);
    assert.equal(of({ email, ...good }, { email: 'c@d', ...good }), email, 'the ID token counts');
  }
  for (const bad of [null, false, 'false', 'False', 'no', '', 0, 1, 'TRUE', [true]]) {
    const said = JSON.stringify(bad);
    assert.equal(of({ email, email_verified: bad }, {}), 'email_not_verified', said);
    assert.equal(of({ email_verified: true }, { email, email_verified: bad }), 'email_not_verified', said);
    assert.equal(of({ email, email_verified: true }, { email_verified: bad }), 'email_not_verified', said);
    assert.equal(of({ email, email_verified: bad }, { email, email_verified: true }), 'email_not_verified');
  }
  // A statement about one address does not count for another one.
  assert.equal(of({ email_verified: true }, { email }), 'email_not_verified');
  assert.equal(of({ email }, { email: 'c@d', email_verified: true }), 'email_not_verified');
  for (const none of [{}, { email: '' }, { email: 7 }]) assert.equal(of(none, none), 'no_email');
});

test('a sign-in by the provider has to be complete in time, and what a browser keeps of it is signed', () => {
  const attempt = { state: 'state', nonce: 'nonce', verifier: 'verifier' };
  const signed = signAttempt('secret', attempt, 0);
  const endMs = signOn.attemptMsMax;
  assert.deepEqual(readAttempt('secret', signed, endMs - 1), attempt);
  assert.equal(readAttempt('secret', signed, endMs), undefined);
  assert.equal(readAttempt('another secret', signed, 0), undefined);
  assert.equal(readAttempt('secret', signed.replace(String(endMs), String(2 * endMs)), 0), undefined);
});

test('a provider without TLS has to be on this machine', () => {
  const issuerOf = (OIDC_ISSUER: string) =>
    readConfig({ OIDC_ISSUER, OIDC_CLIENT_ID: 'a', OIDC_CLIENT_SECRET: 'b' }).provider?.issuer;
  for (const good of ['https://p.example', 'http://127.0.0.1:5', 'http://[::1]:5', 'http://localhost/a'])
    assert.equal(issuerOf(good), good);
  for (const bad of [
    'http://p.example',
    'http://10.0.0.1',
    'http://localhost.example',
    'http://127.0.0.1.nip.io',
  ])
    assert.throws(() => issuerOf(bad), /OIDC_ISSUER must begin with https:/, bad);
});

test('people sign in through the provider with the role that it gives, and nobody else does', async () => {
  const returnTo = `${sluice.adminUrl}/admin/v1/sign_on/return`;
  const browser = new SignOnBrowser(sluice.adminUrl);
  assert.equal(
    (await browser.go(`${sluice.adminUrl}/admin/v1/sign_on`, 'same-origin')).to,
    `${sluice.adminUrl}/?sign_on=provider`,
    'the provider is away',
  );
  const provider = await startProvider(providerPort, returnTo);
  try {
    const as = (subject: string, claims: object) => {
      provider.subject = subject;
      provider.people.set(subject, { email_verified: true, ...claims });
    };
    const asked = async (of: SignOnBrowser, path: string) => {
      const page = newPage();
      for (const [name, value] of of.cookies()) page.cookies.set(name, value);
      return page.ask('GET', path);
    };
    as('1', { email: 'Sue@Example.com', sluice_role: ['staff', 'operator'] });
    assert.equal(await browser.signOn(), '/');
    const { person } = (await asked(browser, '/session')).body as { person: Record<string, unknown> };
    assert.deepEqual([person.email, person.role, person.signs_on], ['sue@example.com', 'operator', true]);
    assert.equal(browser.cookies().has(attemptCookie), false, 'the attempt is over');
    // A different role at the next sign-in ends the sessions of the former role.
    const accountId = sluice.bootstrap.account_id;
    as('1', { email: 'sue@example.com', sluice_role: `viewer:${accountId}` });
    const later = new SignOnBrowser(sluice.adminUrl);
    assert.equal(await later.signOn(), '/');
    assert.equal((await asked(browser, '/accounts')).status, 401);
    assert.equal((await asked(later, '/accounts')).status, 200);
    // These people have no password in the service that they could change or give.
    const ofProvider = newPage();
    for (const [name, value] of later.cookies()) ofProvider.cookies.set(name, value);
    for (const [method, path, body] of [
      ['PUT', '/password', { password, new_password: password }],
      ['POST', '/second_factor', undefined],
      ['PUT', '/second_factor', { password, secret: 'A'.repeat(32), code: '000000' }],
      ['DELETE', '/second_factor', { password }],
    ] as const) {
      const refused = await ofProvider.ask(method, path, body);
      assert.equal(refused.status, 400, `${method} ${path}`);
      assert.match(
        JSON.stringify(refused.body),
        path === '/second_factor' && method === 'PUT' ? /secret|provider/ : /provider/,
      );
    }
    assert.equal((await asked(later, '/people')).status, 403);

    // Anybody can invite an address, so it still belongs to the person for whom the provider vouches.
    await invite(sluice, 'boss@example.com', 'viewer', accountId);
    as('8', { email: 'boss@example.com', sluice_role: 'operator' });
    const boss = new SignOnBrowser(sluice.adminUrl);
    assert.equal(await boss.signOn(), '/');
    assert.equal((await asked(boss, '/people')).status, 200);

    await signedIn(sluice, 'own@example.com', 'operator');
    for (const [subject, claims] of [
      ['2', { email: 'none@example.com' }],
      ['3', { email: 'none@example.com', sluice_role: 'viewer' }],
      ['4', { email: 'none@example.com', sluice_role: 'viewer:9' }],
      ['5', { email: 'none@example.com', sluice_role: 'operator', email_verified: false }],
      ['6', { email: 'own@example.com', sluice_role: 'operator' }],
      ['7', { email: 'sue@example.com', sluice_role: 'operator' }],
    ] as const) {
      as(subject, claims);
      const refused = new SignOnBrowser(sluice.adminUrl);
      assert.equal(await refused.signOn(), '/?sign_on=not_in', subject);
      assert.equal(refused.cookies().has(sessionCookie), false);
    }
    assert.equal((await newPage().signIn('own@example.com')).status, 200, 'a password stays');
    assert.equal((await newPage().signIn('sue@example.com')).status, 401, 'there is no password to guess');
    await assert.rejects(invite(sluice, 'sue@example.com', 'viewer', accountId), /signs in by the provider/);

    // A sign-in that began in another browser, or never, is refused, so nobody can be led into another person's session.
    as('1', { email: 'sue@example.com', sluice_role: 'operator' });
    const victim = new SignOnBrowser(sluice.adminUrl);
    const back = await new SignOnBrowser(sluice.adminUrl).goThere();
    assert.match((await victim.go(back, 'cross-site')).to, /\?sign_on=again$/);
    await victim.goThere();
    assert.match((await victim.go(back, 'cross-site')).to, /\?sign_on=provider$/);
    victim.cookies().set(attemptCookie, 'a.b.c.9999999999999.forged');
    assert.match((await victim.go(back, 'cross-site')).to, /\?sign_on=again$/);
    assert.equal(victim.cookies().has(sessionCookie), false);
    assert.equal((await victim.go(`${sluice.adminUrl}/admin/v1/sign_on`, 'cross-site')).status, 403);
    const entries = (await sluice.admin('audit', 'list')) as AuditEntry[];
    const own = entries.filter(({ action }) => action === 'sign_on').reverse();
    const reasonOf = (details: object) => (details as { reason?: string }).reason ?? '';
    assert.deepEqual(
      own.map(({ actor_name, outcome, details }) => `${actor_name} ${outcome} ${reasonOf(details)}`.trim()),
      [
        'sue@example.com done',
        'sue@example.com done',
        'boss@example.com done',
        'subject 2 refused no_role',
        'subject 3 refused no_role',
        'none@example.com refused no_account',
        'subject 5 refused email_not_verified',
        'own@example.com refused address_taken',
        'sue@example.com refused address_taken',
      ],
    );
  } finally {
    await provider.close();
  }
});

/** Runs a test with a provider; `as` sets the person who signs in there next. */
async function withProvider(
  work: (
    provider: TestProvider,
    as: (subject: string, claims: Readonly<Record<string, unknown>>) => void,
  ) => Promise<void>,
): Promise<void> {
  const provider = await startProvider(providerPort, `${sluice.adminUrl}/admin/v1/sign_on/return`);
  try {
    await work(provider, (subject, claims) => {
      provider.subject = subject;
      provider.people.set(subject, { email_verified: true, ...claims });
    });
  } finally {
    await provider.close();
  }
}

/** The status that the session of a browser gets from the service. */
async function statusOf(browser: SignOnBrowser): Promise<number> {
  const page = newPage();
  for (const [name, value] of browser.cookies()) page.cookies.set(name, value);
  return (await page.ask('GET', '/accounts')).status;
}

test('an ID token counts only if one of the provider’s keys has signed it', () =>
  withProvider(async (provider, as) => {
    as('21', { email: 'signed@example.com', sluice_role: 'operator' });
    const foreign = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;
    for (const [what, forge] of [
      ['none', (token) => signedAnew(token, {}, 'none')],
      ['by the secret', (token) => signedAnew(token, {}, 'HS256', client.secret)],
      ['by another key', (token) => signedAnew(token, {}, 'RS256', foreign)],
      ['of other claims', (token) => `${signedAnew(token, { a: 1 }, 'none')}${token.split('.')[2]}`],
      ['cut off', (token) => token.split('.').slice(0, 2).join('.').concat('.')],
    ] as readonly [string, (token: string) => string][]) {
      provider.forge = forge;
      const browser = new SignOnBrowser(sluice.adminUrl);
      assert.equal(await browser.signOn(), '/?sign_on=provider', what);
      assert.equal(browser.cookies().has(sessionCookie), false, what);
    }
    provider.forge = (token) => signedAnew(token, {});
    const browser = new SignOnBrowser(sluice.adminUrl);
    assert.equal(await browser.signOn(), '/');
    // The token's statement does not count for the address of the userinfo endpoint.
    as('22', { email: 'unverified@example.com', sluice_role: 'operator', email_verified: false });
    provider.forge = (token) => signedAnew(token, { email_verified: true });
    assert.equal(await new SignOnBrowser(sluice.adminUrl).signOn(), '/?sign_on=not_in');
  }));

test('a later sign-in of the same person ends what they had before: with another role, by another address, or refused', () =>
  withProvider(async (provider, as) => {
    const accountId = sluice.bootstrap.account_id;
    const listed = async () =>
      ((await sluice.admin('people', 'list')) as { email: string; role: string }[])
        .filter(({ email }) => /^m\w+@example/.test(email))
        .map(({ email, role }) => `${email} ${role}`);
    const signOn = async (claims: Readonly<Record<string, unknown>>) => {
      as('31', claims);
      const browser = new SignOnBrowser(sluice.adminUrl);
      return { browser, at: await browser.signOn() };
    };
    const operator = await signOn({ email: 'maria@example.com', sluice_role: 'operator' });
    assert.deepEqual([operator.at, await statusOf(operator.browser)], ['/', 200]);
    // The same sign-in again lets both sessions continue.
    const again = await signOn({ email: 'maria@example.com', sluice_role: 'operator' });
    assert.deepEqual([await statusOf(again.browser), await statusOf(operator.browser)], [200, 200]);
    const viewer = await signOn({ email: 'mary@example.com', sluice_role: `viewer:${accountId}` });
    assert.deepEqual([viewer.at, await statusOf(viewer.browser)], ['/', 200]);
    assert.deepEqual([await statusOf(operator.browser), await statusOf(again.browser)], [401, 401]);
    assert.deepEqual(await listed(), ['mary@example.com viewer']);
    await signedIn(sluice, 'taken@example.com', 'operator');
    for (const claims of [
      { email: 'mary@example.com' },
      { email: 'taken@example.com', sluice_role: 'operator' },
    ]) {
      const former = await signOn({ email: 'mary@example.com', sluice_role: 'operator' });
      assert.equal(await statusOf(former.browser), 200);
      const refused = await signOn(claims);
      assert.equal(refused.at, '/?sign_on=not_in', 'the page does not say why');
      assert.equal(await statusOf(former.browser), 401, JSON.stringify(claims));
      assert.deepEqual(await listed(), []);
    }
    const said = sluice.api.map((each) => each.output()).join('');
    assert.match(said, /"reason":"address_taken"/);
    assert.doesNotMatch(said, /mary@example/);
    provider.subject = '';
  }));

test('a sign-in by the provider is valid once, even if the provider gives its tokens again', () =>
  withProvider(async (provider, as) => {
    as('41', { email: 'once@example.com', sluice_role: 'operator' });
    const browser = new SignOnBrowser(sluice.adminUrl);
    const back = await browser.goThere();
    const copy = browser.cookies().get(attemptCookie) ?? '';
    provider.repeats = true;
    assert.equal((await browser.go(back, 'cross-site')).to, `${sluice.adminUrl}/`);
    const thief = new SignOnBrowser(sluice.adminUrl);
    thief.cookies().set(attemptCookie, copy);
    assert.match((await thief.go(back, 'cross-site')).to, /\?sign_on=again$/);
    assert.equal(thief.cookies().has(sessionCookie), false);
  }));

test('an emptied Redis knows no session and answers 503, and a restore brings the people back', async () => {
  const page = await signedIn(sluice, 'survivor@example.com', 'operator');
  const copies = "SELECT 1 FROM registry FINAL WHERE document LIKE '%survivor%argon2id%'";
  await until(async () => (await sluice.rows(copies)).length > 0, 'the second copy');
  await redis.flushall();
  assert.equal((await page.ask('GET', '/accounts')).status, 503);
  await sluice.admin('state', 'reload');
  await until(async () => (await page.ask('GET', '/accounts')).status === 401, 'sessions are gone');
  assert.equal((await newPage().signIn('survivor@example.com')).status, 200);
});
