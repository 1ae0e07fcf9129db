// Write keys: on server endpoints, an environment that requires one refuses every request without it.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { administration } from '../../src/contract/limits.js';
import { createEnvironments } from '../harness/accounts.js';
import { answersOf, event, identify } from '../harness/collect.js';
import { administer, ask, basic, type Reply } from '../harness/deletion.js';
import { paths, readUsers, untilStored } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';
import { filesWith, keysWith } from '../support/traces.js';

type Created = {
  readonly id: string;
  readonly app_id: string;
  readonly name: string;
  readonly write_key: string;
};
type Sent = readonly (readonly [string, string])[];

const sluice = await ownSluice({ apiProcesses: 2 });
/** An environment that requires a write key, and has two. */
const [closed = '', open = ''] = await createEnvironments(sluice, [['--limit', 'track=3'], []]);
const [elsewhere = ''] = await createEnvironments(sluice, [[]]);
const key = await createKey(closed, '--name', 'shop');
const other = await createKey(closed);
/** A key of another environment, which requires one too. */
const strange = await createKey(elsewhere);
for (const id of [closed, elsewhere])
  await sluice.admin('environments', 'set', id, '--write-key', 'required');
await untilClosed(closed);

async function createKey(appId: string, ...options: string[]): Promise<Created> {
  return (await sluice.admin('write-keys', 'create', appId, ...options)) as Created;
}

async function write(path: string, body: object | string, headers: Sent = [], at = 0): Promise<Reply> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const type = ['Content-Type', 'application/json'] as const;
  return ask(sluice.api[at]?.baseUrl ?? '', {
    method: 'POST',
    path,
    headers: [type, ...headers],
    body: text,
  });
}

const bearer = (secret: string): Sent => [['Authorization', `Bearer ${secret}`]];
const withBasic = (name: string, secret: string): Sent => [['Authorization', basic(name, secret)]];

/** Settles when no API process takes a record of the environment without a key. */
async function untilClosed(appId: string, headers: Sent = []): Promise<void> {
  await until(async () => {
    const bodies = sluice.api.map((_, at) => write(paths.track, { app_id: appId }, headers, at));
    return (await Promise.all(bodies)).every(({ status }) => status === 401);
  }, 'the API asks for a write key');
}

const order = (fields: object = {}) => ({
  app_id: closed,
  event: 'Order Completed',
  identity: 'ada',
  idempotency_key: 'order-5001',
  ...fields,
});

/** One request for each way into the service: plain or not, single or bulk, at every server endpoint. */
const ways = (): readonly (readonly [what: string, path: string, body: object | string])[] => [
  ['a plain event', paths.track, order()],
  ['an event with an escape', paths.track, JSON.stringify(order()).replace('ada', '\\u0061da')],
  ['plain events', paths.track, { app_id: closed, events: [{ event: 'x', identity: 'ada' }] }],
  [
    'some bad events among good ones',
    paths.track,
    { app_id: closed, events: [{ event: 'x', identity: 'a' }, {}] },
  ],
  ['a bad event', paths.track, order({ event: 7 })],
  ['properties', paths.userProperties, { app_id: closed, identity: 'ada', properties: { email: 'x@y' } }],
  ['an identification', paths.identify, { app_id: closed, user_id: '77', identity: 'mallory' }],
];

test('a request without a write key always gets the same 401, and stores, claims, uses up and reveals nothing', async () => {
  const wrong: Readonly<Record<string, Sent>> = {
    'no header': [],
    'a wrong key': bearer(`${key.write_key}x`),
    'a key cut short': bearer(key.write_key.slice(0, -1)),
    'a key of another environment': bearer(strange.write_key),
    'the hash of a key': bearer('0'.repeat(64)),
    'the id of a key': bearer(key.id),
    'the key of another environment under its name': withBasic(strange.app_id, strange.write_key),
    'the key of another environment under this name': withBasic(closed, strange.write_key),
    'the right key under another name': withBasic(open, key.write_key),
    'the key as the name': withBasic(key.write_key, 'x'),
    'the scheme alone': [['Authorization', 'Bearer']],
    'the key without a scheme': [['Authorization', key.write_key]],
    'no base64': [['Authorization', 'Basic ***']],
    'a name that every object has': withBasic('__proto__', 'constructor'),
    'the right key twice': [...bearer(key.write_key), ...bearer(key.write_key)],
  };
  const answers = new Set<string>();
  for (const headers of Object.values(wrong)) {
    for (const [, path, body] of ways()) {
      const reply = await write(path, body, headers);
      assert.equal(reply.status, 401, reply.text);
      answers.add(reply.bytes);
    }
  }
  assert.equal(answers.size, 1, [...answers].join('\n'));
  const [bytes = ''] = answers;
  assert.match(bytes, /Basic realm/);
  assert.match(bytes, /"unauthorized/i);

  // The real order is stored although a stranger sent its key first, and the limit still has room for three.
  assert.deepEqual((await write(paths.track, order(), bearer(key.write_key))).text, '{}');
  const named = { app_id: closed, user_id: '77', identity: 'ada' };
  assert.equal((await write(paths.identify, named, bearer(key.write_key))).status, 200);
  const again = order({ idempotency_key: 'order-5002' });
  assert.equal((await write(paths.track, again, withBasic(closed, key.write_key))).status, 200);
  await untilStored(sluice);
  const events = await sluice.rows<{ n: string }>(
    `SELECT toString(count()) AS n FROM events WHERE app_id = '${closed}'`,
  );
  assert.deepEqual(events, [{ n: '2' }]);
  const users = (await readUsers(sluice, closed)).map(({ identity, user_ids, email }) => ({
    identity,
    user_ids,
    email,
  }));
  assert.deepEqual(users, [{ identity: 'ada', user_ids: ['77'], email: '' }]);
});

test('counts requests without a key for the environment, and does not list them among its rejected records', async () => {
  const stats = async () => (await sluice.admin('environments', 'stats', closed)) as { unauthorized: number };
  await until(async () => (await stats()).unauthorized >= 100, 'the refused requests are counted');
  const listed = (await sluice.admin('rejected', 'list', closed)) as { code: string }[];
  // The refusals with this code are from before the environment required a key.
  assert.deepEqual(
    listed.filter(({ code }) => code !== 'missing_field'),
    [],
  );
});

test('the client library sends without a key, and cannot claim an idempotency key of a server', async () => {
  const claim = (id: string) => event({ id, user_id: '5', event: 'Taken' });
  const sent = [claim('order-6001'), identify('78', 'mallory', { id: 'order-6002' })];
  const stored = sent.map(({ id }) => ({ id, status: 'stored' }));
  assert.deepEqual(await answersOf(sluice.baseUrl, closed, sent), stored);
  const repeats = sent.map(({ id }) => ({ id, status: 'repeat' }));
  assert.deepEqual(await answersOf(sluice.baseUrl, closed, sent), repeats);
  const events = ['order-6001', 'order-6002'].map((idempotency_key) => ({
    event: 'Real',
    identity: 'bob',
    idempotency_key,
  }));
  const reply = await write(paths.track, { app_id: closed, events }, bearer(key.write_key));
  assert.equal(reply.text, '{}');
  await untilStored(sluice);
  const real = await sluice.rows(`SELECT event FROM events WHERE app_id = '${closed}' AND event = 'Real'`);
  assert.equal(real.length, 2);
});

test('what the client library sends without a key uses up no limit of those who have one', async () => {
  const [appId = ''] = await createEnvironments(sluice, [['--limit', 'app_records=2000']]);
  const { write_key: secret } = await createKey(appId);
  await sluice.admin('environments', 'set', appId, '--write-key', 'required');
  await untilClosed(appId);
  const flood = async () => {
    const messages = Array.from({ length: 1_000 }, (_, i) => event({ user_id: String(i) }));
    return new Set((await answersOf(sluice.baseUrl, appId, messages)).map(({ status }) => status));
  };
  for (let sent = 0; sent < 2; sent++) assert.deepEqual([...(await flood())], ['stored']);
  assert.deepEqual([...(await flood())], ['limited'], 'the client library has its own limit');
  const events = Array.from({ length: 1_000 }, (_, i) => ({ event: 'Bought', identity: `ada-${i}` }));
  const bulk = () => write(paths.track, { app_id: appId, events }, bearer(secret));
  assert.deepEqual([(await bulk()).status, (await bulk()).status, (await bulk()).status], [200, 200, 429]);
});

test('an environment that does not require a key ignores credentials, right or wrong', async () => {
  const plain = { app_id: open, event: 'x', identity: 'ada' };
  for (const headers of [[], bearer('wrong'), withBasic(open, 'wrong'), bearer(key.write_key)]) {
    assert.equal((await write(paths.track, plain, headers)).text, '{}');
  }
});

test('refuses requests without a key at once while Redis does not answer', async (context) => {
  sluice.redis.sigstop();
  context.after(() => sluice.redis.sigcont());
  assert.equal((await write(paths.track, order())).status, 401);
});

test('keys can be replaced without an interruption', async () => {
  const both = [key, other].map(({ write_key }) => write_key);
  const properties = { app_id: closed, identity: 'ada', properties: { a: 1 } };
  const set = async (secret: string, at: number) =>
    (await write(paths.userProperties, properties, bearer(secret), at)).status;
  for (const secret of both) assert.equal(await set(secret, 0), 200);
  const next = await createKey(closed, '--name', 'next');
  await until(
    async () => (await set(next.write_key, 0)) + (await set(next.write_key, 1)) === 400,
    'every process knows the new key',
  );
  await sluice.admin('write-keys', 'revoke', closed, other.id);
  await untilClosed(closed, bearer(other.write_key));
  for (const secret of [key.write_key, next.write_key]) assert.equal(await set(secret, 1), 200);
  const listed = (await sluice.admin('write-keys', 'list', closed)) as { id: string; name: string }[];
  assert.deepEqual(
    listed.map(({ id, name }) => [id, name]),
    [
      [key.id, 'shop'],
      [next.id, 'next'],
    ],
  );
  await assert.rejects(sluice.admin('write-keys', 'revoke', closed, other.id), /has no write key/);
  await assert.rejects(sluice.admin('write-keys', 'revoke', open, key.id), /has no write key/);
});

test('no environment requires a key that it does not have, and the answer says that the last one is gone', async () => {
  const [appId = ''] = await createEnvironments(sluice, [[]]);
  await assert.rejects(
    sluice.admin('environments', 'set', appId, '--write-key', 'required'),
    /has no write key, so all servers would be refused: create one first/,
  );
  const { write_key } = (await sluice.admin('environments', 'show', appId)) as { write_key?: string };
  assert.equal(write_key, undefined);
  const [first, second] = [await createKey(appId), await createKey(appId)];
  await sluice.admin('environments', 'set', appId, '--write-key', 'required');
  const revoke = ({ id }: Created) => sluice.admin('write-keys', 'revoke', appId, id) as Promise<object>;
  assert.deepEqual(await revoke(first), { app_id: appId, id: first.id, revoked: true, keys_left: 1 });
  const { note, ...last } = (await revoke(second)) as { note?: string };
  assert.deepEqual(last, { app_id: appId, id: second.id, revoked: true, keys_left: 0 });
  assert.match(String(note), /no write key is left.*all servers are refused/);
  // An environment that already requires a key may keep doing so without one, whatever else is set.
  await sluice.admin('environments', 'set', appId, '--write-key', 'required', '--validation', 'lenient');
  await sluice.admin('environments', 'set', appId, '--write-key', 'optional');
  await assert.rejects(
    sluice.admin('environments', 'set', appId, '--write-key', 'required'),
    /create one first/,
  );
});

test('write keys work the same over /admin/v1, with a limit on the keys of an environment', async () => {
  const path = `/environments/${open}/write-keys`;
  const made = await administer<Created>(sluice, 'POST', path, { name: 'one' });
  assert.match(made.write_key, /^slw_[\w-]{43}$/);
  assert.deepEqual([made.app_id, made.name], [open, 'one']);
  for (let n = 1; n < administration.keysMax; n += 1) await administer<Created>(sluice, 'POST', path);
  await assert.rejects(createKey(open), /revoke one first/);
  const listed = await administer<object[]>(sluice, 'GET', path);
  assert.equal(listed.length, administration.keysMax);
  const { created_at, ...first } = listed[0] as { created_at: string };
  assert.deepEqual(first, { id: made.id, app_id: open, name: 'one' });
  assert.ok(Date.now() - Date.parse(created_at) < 60_000);
  await administer(sluice, 'DELETE', `${path}/${made.id}`);
  assert.equal((await administer<object[]>(sluice, 'GET', path)).length, administration.keysMax - 1);
  const set = await administer<{ write_key: string }>(sluice, 'PATCH', `/environments/${open}`, {
    write_key: 'optional',
  });
  assert.equal(set.write_key, 'optional');
  for (const args of [
    ['environments', 'set', open, '--write-key', 'yes'],
    ['write-keys', 'create', '9'],
    ['write-keys', 'list', '9'],
    ['write-keys', 'create', open, '--name', 'x'.repeat(administration.nameMax + 1)],
  ]) {
    await assert.rejects(sluice.admin(...args), /must be|no environment|at most/, args.join(' '));
  }
});

test('a key is shown once: neither Redis nor ClickHouse nor a log has it', async () => {
  for (const { write_key } of [key, strange]) {
    assert.deepEqual(await keysWith(sluice, write_key), []);
    assert.deepEqual(filesWith(join(sluice.redis.dir, 'appendonlydir'), [write_key]), []);
    assert.deepEqual(filesWith(sluice.clickhouse.dir, [write_key]), []);
    for (const child of [...sluice.api, ...sluice.workers]) assert.ok(!child.output().includes(write_key));
  }
});

test('an emptied Redis opens no environment, and a restore brings the keys back', async () => {
  const documents = () => withRedis(sluice, (redis) => redis.hgetall('{registry}:documents'));
  const before = await documents();
  const event = order({ identity: 'eve', idempotency_key: 'after' });
  await withRedis(sluice, (redis) => redis.flushall());
  await until(
    async () => (await write(paths.track, event, bearer(key.write_key))).status === 503,
    'nothing is accepted',
  );
  assert.equal((await write(paths.track, event)).status, 401);
  await sluice.admin('state', 'reload');
  assert.deepEqual(await documents(), before);
  await until(
    async () => (await write(paths.track, event, bearer(key.write_key))).status === 200,
    'the key is good again',
  );
  assert.equal((await write(paths.track, event)).status, 401);
  assert.equal((await write(paths.track, event, bearer(other.write_key))).status, 401, 'it was revoked');
});
