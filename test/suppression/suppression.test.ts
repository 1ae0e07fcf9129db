// Keeping users out. From the answer to the submission on, records of a suppressed user are answered 200 and are in no table,
// in every API process and environment, and for merged users too.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach } from 'node:test';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { queries, suppressions } from '../../src/contract/limits.js';
import { userIdOfAnonymousId } from '../../src/contract/user-id.js';
import { crashPoints, noCrash } from '../../src/crash-point.js';
import { userTables } from '../../src/privacy/deletion/user-tables.js';
import { suppressNames } from '../../src/privacy/suppression/change.js';
import { copySuppressions } from '../../src/privacy/suppression/second-copy.js';
import { freeUsers, suppressUsers } from '../../src/privacy/suppression/submit.js';
import type { Redis } from '../../src/redis/client.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { scripts } from '../../src/redis/scripts.js';
import { copyChanges } from '../../src/registry/outbox.js';
import { readRegistry } from '../../src/registry/registry.js';
import { suppressionChanges } from '../../src/tuning.js';
import { createTestAccount } from '../harness/accounts.js';
import { collect, event, identify, request, userProperties } from '../harness/collect.js';
import { getToken, listDeletions, submit, untilComplete } from '../harness/deletion.js';
import { plainEnvironment } from '../harness/environment.js';
import { isAccepted, paths, post, postInTime, untilStored } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { runProgram } from '../harness/sluice.js';
import { askAll, lookUp, lookUpAll, setSuppressed, submitSuppression } from '../harness/suppression.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';
import { test } from '../support/test.js';
import { withMethod } from '../support/with-method.js';

let token: string;
let main: string;
/** A lenient environment. */
let staging: string;

const sluice = await ownSluice({ apiProcesses: 2 });
const account = await createTestAccount(sluice, 'Suppressing');
[main = '', staging = ''] = account.appIds;
// A test sends one user's lists as fast as they are answered. The API processes know it before the second account.
const unlimited = ['bulk_identity', 'bulk_app'].flatMap((limit) => ['--limit', `${limit}=none`]);
const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
const imports = ['--import-until', tomorrow];
const set = await sluice.admin('environments', 'set', main, ...unlimited, ...imports);
const importToken = String((set as { import_token: string }).import_token);
await sluice.admin('environments', 'set', staging, '--validation', 'lenient');
const other = await createTestAccount(sluice, 'Another');
token = await getToken(sluice, account);
const urls: readonly string[] = sluice.api.map(({ baseUrl }) => baseUrl);

/** Gives the token room for another submission in this second. */
async function forgetSubmissions(): Promise<void> {
  await withRedis(sluice, async (redis) => {
    for (const key of await redis.keys('{registry}:suppression_requests:*')) await redis.del(key);
  });
}

beforeEach(forgetSubmissions);

let users = 0;
/** Names of a new user. A lenient environment takes the number as an identity too. */
function newUser(): { identity: string; userId: string; number: number; device: string } {
  users += 1;
  const identity = `user-${users}@example.com`;
  return {
    identity,
    userId: String(9_000_000 + users),
    number: 70_000 + users,
    device: `device of ${identity}`,
  };
}

async function send(url: string, path: string, body: object): Promise<void> {
  const answer = await postInTime(url, path, body);
  assert.ok(isAccepted(answer), answer.text);
}

/** Sends a record of a user by every endpoint that takes one; each is answered as if it was stored. */
async function sendAllKinds(url: string, appId: string, user: ReturnType<typeof newUser>) {
  const { identity, userId, number, device } = user;
  const app_id = appId;
  await send(url, paths.track, { app_id, event: 'Single', identity });
  await send(url, paths.track, { app_id, event: 'Single', user_id: userId });
  await send(url, paths.track, { app_id, event: 'Full', identity, properties: { list: ['a', 'b'] } });
  await send(url, paths.track, {
    app_id,
    events: [
      { event: 'Bulk', identity },
      { event: 'Bulk', user_id: userId },
    ],
  });
  await send(url, paths.track, { app_id, events: [{ event: 'Bulk', identity, properties: { list: [1] } }] });
  await send(url, paths.userProperties, { app_id, identity, properties: { plan: 'pro' } });
  await send(url, paths.userProperties, { app_id, users: [{ identity, properties: { plan: 'pro' } }] });
  const messages = [
    event({ user_id: userId }),
    event({ user_id: userId, identity }),
    userProperties({ plan: 'free' }, { user_id: userId }),
    identify(userId, identity),
  ];
  const collected = await collect(url, request(appId, messages));
  assert.deepEqual(
    collected.json.messages?.map(({ status }) => status),
    ['stored', 'stored', 'stored', 'stored'],
    collected.text,
  );
  await send(url, paths.identify, { app_id, user_id: userId, identity });
  const batch = [
    { type: 'track', event: 'Segment', userId: identity, messageId: `${identity} 1` },
    { type: 'identify', userId: identity, traits: { plan: 'x' }, messageId: `${identity} 2` },
    { type: 'track', event: 'Segment', anonymousId: device, messageId: `${identity} 3` },
  ];
  const single: Readonly<Record<string, object>> = {
    track: { event: 'Single', userId: identity, anonymousId: device },
    identify: { userId: identity, traits: { plan: 'y' } },
    page: { name: 'Start', anonymousId: device },
    screen: { name: 'Start', userId: identity },
    group: { userId: identity, groupId: 'g' },
    // The device is the user, and so must not become the friend; the other one becomes the user.
    alias: { previousId: device, userId: `friend of ${identity}` },
    'alias ': { previousId: `other ${device}`, userId: identity },
  };
  const requests: [path: string, body: object][] = [
    ['/v1/batch', { batch }],
    ...Object.entries(single).map(([type, message]): [string, object] => [
      `/v1/${type.trim()}`,
      { ...message, messageId: `${identity} ${type}` },
    ]),
  ];
  for (const [path, body] of requests) {
    const answer = await post(url, path, { ...body, writeKey: appId });
    assert.deepEqual([answer.status, answer.text], [200, '{"success":true}'], path);
  }
  if (appId === main) {
    const headers = { 'content-type': 'application/json', 'sluice-import': importToken };
    const body = JSON.stringify({ app_id, events: [{ event: 'History', identity }] });
    const answer = await fetch(`${url}${paths.track}`, { method: 'POST', headers, body });
    assert.deepEqual([answer.status, await answer.text()], [200, '{}']);
  } else {
    await send(url, paths.track, { app_id, event: 'Number', identity: number });
    await send(url, paths.track, { app_id, events: [{ event: 'Number', identity: number }] });
    await send(url, paths.userProperties, { app_id, identity: number, properties: { plan: 1 } });
    await send(url, paths.identify, { app_id, identity: number, user_id: Number(userId) });
  }
}

/** Every name under which `sendAllKinds` may have stored a record of a user. */
function namesOf({ identity, userId, number, device }: ReturnType<typeof newUser>): Names {
  const devices = [device, `other ${device}`].map(userIdOfAnonymousId).map(String);
  return { identities: [identity, String(number), `friend of ${identity}`], userIds: [userId, ...devices] };
}

/** Imports a file with a record of the user under each name, as `npm run import` does. */
async function importAll(
  url: string,
  { identity, userId, device }: ReturnType<typeof newUser>,
): Promise<object> {
  const folder = tempDir('suppressed');
  const file = join(folder, 'history.csv');
  writeFileSync(file, `identity,user,device\n${identity},,\n,${userId},\n,,${device}\n`);
  const columns = ['--identity', 'identity', '--user-id', 'user', '--anonymous-id', 'device'];
  const where = ['--app-id', main, '--url', url, '--state', `${file}.state`, '--rejects', `${file}.rejects`];
  const args = [file, '--event', 'Imported', ...columns, ...where];
  return JSON.parse(
    (await runProgram('src/import/main.js', args, plainEnvironment())).trim().split('\n').at(-1) ?? '',
  );
}

/** Rows of a user in all tables, by identity or user_id. */
function rowsOf(identity: string, ...userIds: readonly string[]): Promise<number> {
  return rowsNamed({ identities: [identity], userIds });
}

type Names = { readonly identities: readonly string[]; readonly userIds: readonly string[] };

async function rowsNamed({ identities, userIds }: Names): Promise<number> {
  await untilStored(sluice);
  const ids = ['-1', ...userIds].join(', ');
  const names = identities.map((identity) => `'${identity}'`).join(', ');
  const counts = userTables.map(
    (place) =>
      `SELECT count() AS rows FROM ${place} WHERE identity IN (${names}) OR toInt64(user_id) IN (${ids})`,
  );
  const rows = await sluice.rows<{ rows: string }>(
    `SELECT toString(sum(rows)) AS rows FROM (${counts.join(' UNION ALL ')})`,
  );
  return Number(rows[0]?.rows);
}

test('stores nothing of a suppressed user from any endpoint, import, process and environment, and everything of others', async () => {
  const [user, neighbour] = [newUser(), newUser()];
  const named = [
    { identity: user.identity },
    { user_id: Number(user.userId) },
    { anonymous_id: user.device },
    { identity: String(user.number) },
  ];
  await setSuppressed(urls[0] as string, token, named, true);
  for (const url of urls) {
    for (const appId of [main, staging]) await sendAllKinds(url, appId, user);
    // The second import has the keys of the first one, so its rows count as repeats like anybody else's.
    const fresh = url === urls[0];
    const counted = { stored: fresh ? 3 : 0, repeats: fresh ? 0 : 3 };
    assert.deepEqual(await importAll(url, user), { read: 3, ...counted, refused: 0 });
  }
  for (const appId of [main, staging]) await sendAllKinds(urls[1] as string, appId, neighbour);
  await importAll(urls[1] as string, neighbour);
  for (const appId of other.appIds)
    await send(urls[1] as string, paths.track, {
      app_id: appId,
      event: 'Other account',
      identity: user.identity,
    });
  assert.equal(await rowsNamed(namesOf(user)), 2, 'the rows of the other account');
  // 23 rows in each of the two environments, one more in Main Production, four in the lenient one, three of the import.
  assert.equal(await rowsNamed(namesOf(neighbour)), 2 * 23 + 1 + 4 + 3);
});

test('begins and ends with the next request, even to another process that has not looked meanwhile', async () => {
  // Each process looks for changes twice a second, but a commit makes it look earlier.
  for (let round = 0; round < 4; round++) {
    const { identity } = newUser();
    const [one, two] = round % 2 === 0 ? urls : [...urls].reverse();
    await send(two as string, paths.track, { app_id: main, event: 'Before', identity });
    await setSuppressed(one as string, token, [{ identity }], true);
    await send(two as string, paths.track, { app_id: main, event: 'Suppressed', identity });
    await setSuppressed(one as string, token, [{ identity }], false);
    await send(two as string, paths.track, { app_id: main, event: 'After', identity });
    await untilStored(sluice);
    const events = await sluice.rows<{ event: string }>(
      `SELECT event FROM stored_events WHERE identity = '${identity}' ORDER BY received_at, segment`,
    );
    assert.deepEqual(
      events.map(({ event }) => event),
      ['Before', 'After'],
    );
  }
});

/** The answers about a user by every endpoint that takes records, each request sent twice, and far above the limits. */
async function answersAbout(url: string, appId: string, user: ReturnType<typeof newUser>): Promise<string[]> {
  const { identity, userId, device } = user;
  const authorization = `Basic ${Buffer.from(`${appId}:`).toString('base64')}`;
  const key = (name: string) => `${name} of ${identity}`;
  const single = { app_id: appId, event: 'Told', identity };
  const full = { ...single, properties: { list: ['a'] } };
  const of = { user_id: userId, id: key('message') };
  const segment = { userId: identity, anonymousId: device };
  const requests: [path: string, body: object][] = [
    [paths.track, { ...single, idempotency_key: key('single') }],
    [paths.track, { ...full, idempotency_key: key('full') }],
    [paths.track, { ...single, event: 'Other', idempotency_key: key('single') }],
    [paths.track, { app_id: appId, user_id: userId, event: 'Told', idempotency_key: key('anonymous') }],
    [
      paths.track,
      {
        app_id: appId,
        events: [0, 1, 2].map((at) => ({ event: 'Bulk', identity, idempotency_key: key(`bulk ${at % 2}`) })),
      },
    ],
    [
      paths.track,
      {
        app_id: appId,
        events: [{ event: 'Bulk', identity, idempotency_key: key('bulk') }, { event: 'Bad' }],
      },
    ],
    [paths.userProperties, { app_id: appId, identity, properties: { plan: 'pro' } }],
    [paths.userProperties, { app_id: appId, users: [{ identity, properties: { plan: 'pro' } }] }],
    [paths.identify, { app_id: appId, identity, user_id: userId }],
    [
      '/api/collect',
      request(appId, [
        event({ ...of, identity }),
        { ...identify(userId, identity), id: key('identify') },
        { ...userProperties({ plan: 'x' }, of), id: key('properties') },
      ]),
    ],
    ['/v1/track', { ...segment, event: 'Told', messageId: key('track') }],
    ['/v1/identify', { ...segment, traits: { plan: 'x' }, messageId: key('traits') }],
    [
      '/v1/batch',
      {
        batch: [
          { type: 'alias', previousId: device, userId: identity, messageId: key('alias') },
          { type: 'page', ...segment, name: 'Start', messageId: key('page') },
        ],
      },
    ],
    ...Array.from({ length: 31 }, (): [string, object] => [paths.track, single]),
    ...Array.from({ length: 31 }, (): [string, object] => [
      paths.userProperties,
      { app_id: appId, identity, properties: { plan: 'x' } },
    ]),
    ...Array.from({ length: 2 }, (): [string, object] => [
      paths.track,
      { app_id: appId, events: Array.from({ length: 600 }, () => ({ event: 'Bulk', identity })) },
    ]),
  ];
  const answers: string[] = [];
  await withRedis(sluice, async (redis) => {
    // The clock of limits stands still, so that they have no room again however long this takes.
    const clock = { limit_clock_us: (Date.now() + 600_000) * 1000, limit_clock_ahead_us: 0 };
    for (const [path, body] of requests.flatMap((each) => [each, each])) {
      const headers = {
        'content-type': 'application/json',
        ...(path.startsWith('/v1/') ? { authorization } : {}),
      };
      const { answer, text } = await until(async () => {
        await redis.hset(shardKeys.state(0), clock);
        const answer = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
        const text = await answer.text();
        return !text.includes('"overloaded"') && { answer, text };
      }, 'the service has time');
      // How long a limit has no room depends on when it was used up.
      const timed = /^(date|retry-after|ratelimit.*)$/;
      const others = [...answer.headers].filter(([name]) => !timed.test(name)).join('; ');
      const same = text.replaceAll(identity, 'IDENTITY').replace(/"retry_after":\d+/g, '');
      answers.push(`${path} ${answer.status} ${others} ${same}`);
    }
  });
  return answers;
}

test('nobody can tell from answers who is suppressed: repeats, limits, headers and bodies are the same on every endpoint', async () => {
  const [one, two] = urls as [string, string];
  const [user, ...others] = [newUser(), newUser(), newUser()];
  const appId = other.appIds[0] as string;
  const otherToken = await getToken(sluice, other);
  await setSuppressed(one, otherToken, [{ identity: user.identity }], true);
  const seen = await answersAbout(two, appId, user);
  for (const another of others) assert.deepEqual(seen, await answersAbout(two, appId, another));
  assert.ok(seen.some((line) => line.includes(' 429 ')) && seen.some((line) => line.includes('"repeat"')));
  assert.ok(
    seen.some((line) => line.includes('sluice-repeats,2')),
    seen.join('\n'),
  );
  assert.equal(await rowsOf(user.identity, user.userId), 1, 'the anonymous event before the identification');
  // A key that a skipped record has taken stays taken when its user is free.
  await setSuppressed(one, otherToken, [{ identity: user.identity }], false);
  const again = {
    app_id: appId,
    events: [{ event: 'Bulk', identity: user.identity, idempotency_key: `bulk 0 of ${user.identity}` }],
  };
  assert.equal((await post(two, paths.track, again)).headers.get('sluice-repeats'), '1');
  assert.equal(await rowsOf(user.identity, user.userId), 1);
});

test('leaves out some records of a request and accepts the others, with their keys, answers and limits', async () => {
  const [user, neighbour] = [newUser(), newUser()];
  await setSuppressed(urls[0] as string, token, [{ identity: user.identity }], true);
  const events = [user, neighbour, user, neighbour].map(({ identity }, i) => ({
    event: 'Mixed',
    identity,
    idempotency_key: `${user.identity} ${i}`,
    ...(i > 1 ? { properties: { list: [i] } } : {}),
  }));
  for (const some of [events.slice(0, 2), events])
    await send(urls[1] as string, paths.track, { app_id: main, events: some });
  const reply = await post(urls[1] as string, paths.track, {
    app_id: main,
    events: [...events, { event: 'Bad' }],
  });
  const { accepted, rejected } = JSON.parse(reply.text) as { accepted: number; rejected: number };
  assert.deepEqual([reply.status, accepted, rejected], [200, 4, 1]);
  assert.equal(reply.headers.get('sluice-repeats'), '4');
  const messages = [
    event({ user_id: '77', identity: user.identity }),
    event({ user_id: '78', identity: neighbour.identity }),
    { type: 'event' },
    event({ user_id: '77', identity: user.identity }),
  ];
  const collected = await collect(urls[1] as string, request(main, messages));
  assert.deepEqual(
    collected.json.messages?.map(({ id, status }) => [id, status]),
    messages.map((message) => [
      'id' in message ? message.id : undefined,
      'id' in message ? 'stored' : 'rejected',
    ]),
  );
  assert.equal(await rowsOf(user.identity), 0);
  assert.equal(await rowsOf(neighbour.identity), 3);
});

test('suppresses the whole merged user: the identity of a user_id and its other user_ids, in the environments that merge them', async () => {
  const { identity, userId } = newUser();
  const second = newUser().userId;
  const [one, two] = urls as [string, string];
  for (const id of [userId, second]) await send(two, paths.identify, { app_id: main, user_id: id, identity });
  // The records of a moment ago are not in ClickHouse yet.
  await setSuppressed(one, token, [{ user_id: userId }], true);
  const before = await rowsOf(identity, userId, second);
  assert.equal(before, 2);
  for (const id of [userId, second]) await send(two, paths.track, { app_id: main, event: 'No', user_id: id });
  await send(two, paths.track, { app_id: main, event: 'No', identity });
  await send(two, paths.track, { app_id: staging, event: 'No', user_id: userId });
  assert.equal(await rowsOf(identity, userId, second), before);
  await send(two, paths.track, { app_id: staging, event: 'Yes', identity });
  await send(two, paths.track, { app_id: staging, event: 'Yes', user_id: second });
  assert.equal(
    await rowsOf(identity, userId, second),
    before + 2,
    'in Staging nobody is merged with that user_id',
  );
  assert.deepEqual(JSON.parse((await lookUp(one, token, `?identity=${identity}`)).text).app_ids, [main]);
  // Any name of the user can free all of them.
  await setSuppressed(one, token, [{ identity }], false);
  for (const id of [userId, second])
    await send(two, paths.track, { app_id: main, event: 'Again', user_id: id });
  assert.equal(await rowsOf(identity, userId, second), before + 4);
});

test('suppresses an anonymous user who is identified as a suppressed one, from the answer on', async () => {
  const [one, two] = urls as [string, string];
  const { identity } = newUser();
  await setSuppressed(one, token, [{ identity }], true);
  const devices = ['collect', 'identify', 'segment'].map((by) => ({ by, device: `${by} ${identity}` }));
  for (const { by, device } of devices) {
    const userId = userIdOfAnonymousId(device);
    await send(one, paths.track, { app_id: main, event: 'Anonymous', user_id: userId });
    if (by === 'identify') await send(two, paths.identify, { app_id: main, user_id: userId, identity });
    if (by === 'collect') await collect(two, request(main, [identify(userId, identity)]));
    if (by === 'segment')
      await post(two, '/v1/identify', {
        writeKey: main,
        anonymousId: device,
        userId: identity,
        traits: { a: 'b' },
        messageId: device,
      });
    for (const url of urls)
      await send(url, paths.track, { app_id: main, event: 'Identified', user_id: userId });
    await send(one, paths.track, { app_id: staging, event: 'Elsewhere', user_id: userId });
    assert.equal(await rowsOf(identity, userId), 2, `${by}: one row from before, one in another environment`);
  }
  await setSuppressed(two, token, [{ identity }], false);
  for (const { device } of devices) {
    const userId = userIdOfAnonymousId(device);
    await send(one, paths.track, { app_id: main, event: 'Freed', user_id: userId });
    assert.equal(await rowsOf(identity, userId), 3);
  }
});

test('keeps what a suppressed device says about somebody else, and leaves out that they are merged', async () => {
  const { identity } = newUser();
  const device = `device of ${identity}`;
  const userId = userIdOfAnonymousId(device);
  const said = { anonymousId: device, userId: identity, traits: { plan: 'pro' }, messageId: device };
  const batch = [
    { type: 'track', event: 'Anonymous', anonymousId: device },
    { type: 'identify', ...said },
    { type: 'track', event: 'Named', anonymousId: device, userId: identity, messageId: `${device} named` },
  ];
  await setSuppressed(urls[0] as string, token, [{ user_id: userId }], true);
  /** How many of the messages are repeats. */
  const sendBatch = async (): Promise<string | null> => {
    const answer = await post(urls[1] as string, '/v1/batch', { batch, writeKey: main });
    assert.deepEqual([answer.status, answer.text], [200, '{"success":true}']);
    return answer.headers.get('sluice-repeats');
  };
  assert.deepEqual([await sendBatch(), await sendBatch()], [null, '2']);
  assert.equal(await rowsOf(identity, userId), 2, 'the properties and the named event');
  const properties = await sluice.rows<{ plan: string }>(
    `SELECT properties['plan'] AS plan FROM stored_user_properties WHERE identity = '${identity}'`,
  );
  assert.deepEqual(properties, [{ plan: 'pro' }]);
  await setSuppressed(urls[0] as string, token, [{ user_id: userId }], false);
  assert.equal(await sendBatch(), '2', 'skipped records have taken their keys');
  assert.equal(await rowsOf(identity, userId), 3, 'the first event has no key');
});

test('a deletion that suppresses leaves nothing, and nothing comes after it', async () => {
  const { identity, userId } = newUser();
  const [one, two] = urls as [string, string];
  await send(one, paths.identify, { app_id: main, user_id: userId, identity });
  await send(one, paths.track, { app_id: main, event: 'Before', user_id: userId });
  let stopped = false;
  const crowd = urls.map(async (url) => {
    while (!stopped) {
      const answer = await post(url, paths.track, { app_id: main, events: [{ event: 'Crowd', identity }] });
      assert.ok(isAccepted(answer) || answer.status === 503, answer.text);
    }
  });
  // On a busy machine the submission may be answered 503, and is sent again.
  const reply = await until(
    async () => {
      const answer = await submit(sluice, token, JSON.stringify({ users: [{ identity }], suppress: true }));
      assert.equal(answer.status, 201, answer.text);
      return answer;
    },
    { what: 'the deletion is submitted', everyMs: 200 },
  );
  const { deletion_request_id: id } = JSON.parse(reply.text) as { deletion_request_id: string };
  await send(two, paths.track, { app_id: main, event: 'After', user_id: userId });
  stopped = true;
  await Promise.all(crowd);
  await untilComplete(sluice, token, id);
  assert.equal(await rowsOf(identity, userId), 0);
  assert.equal(JSON.parse((await lookUp(two, token, `?user_id=${userId}`)).text).suppressed, true);
});

test('a deletion that suppresses is refused, and says so, while what was accepted before is not stored', async (t) => {
  const { identity, userId } = newUser();
  const [worker] = sluice.workers;
  t.after(() => worker?.sigcont());
  worker?.sigstop();
  await send(urls[0] as string, paths.identify, { app_id: main, user_id: userId, identity });
  const wanted = JSON.stringify({ users: [{ identity }], suppress: true, reference: identity });
  const reply = await submit(sluice, token, wanted);
  const { err } = JSON.parse(reply.text) as { err: { code: string; message: string } };
  assert.deepEqual([reply.status, err.code], [503, 'unknown']);
  assert.match(err.message, /^No deletion was stored. The named users are suppressed/);
  assert.deepEqual((await listDeletions(sluice, token, `?reference=${identity}`)).ids, []);
  assert.deepEqual(await lookUpAll(urls[1] as string, token, [{ identity }, { user_id: userId }]), [
    true,
    false,
  ]);
  worker?.sigcont();
  await untilStored(sluice);
  const again = await submit(sluice, token, wanted);
  assert.equal(again.status, 201, again.text);
  assert.deepEqual(await lookUpAll(urls[1] as string, token, [{ identity }, { user_id: userId }]), [
    true,
    true,
  ]);
});

test('tells whether a user is suppressed and since when, how many are, and how many records were left out', async () => {
  const { identity, userId } = newUser();
  const [one, two] = urls as [string, string];
  // Has its own account, since records of other tests that were left out are counted once a second, and perhaps only now.
  const counted = await createTestAccount(sluice, 'Counting');
  const [, staging = ''] = counted.appIds;
  const token = await getToken(sluice, counted);
  const read = async (url: string, query?: string) => {
    const reply = await lookUp(url, token, query);
    assert.equal(reply.status, 200, reply.text);
    return JSON.parse(reply.text);
  };
  assert.deepEqual(await read(one, `?identity=${encodeURIComponent(identity)}`), { suppressed: false });
  const before = await read(one);
  await setSuppressed(one, token, [{ identity }, { user_id: userId }, { identity }], true);
  const sinceOf = async (query: string) => Date.parse((await read(two, query)).since);
  const since = await sinceOf(`?identity=${encodeURIComponent(identity)}`);
  assert.ok(Math.abs(since - Date.now()) < 60_000);
  await setSuppressed(two, token, [{ identity }], true);
  assert.equal(await sinceOf(`?identity=${encodeURIComponent(identity)}`), since, 'again changes nothing');
  assert.deepEqual((await read(two, `?user_id=${userId}`)).suppressed, true);
  assert.deepEqual(await read(two, `?anonymous_id=${userId}`), { suppressed: false });
  for (const name of ['identity', 'anonymous_id'])
    assert.deepEqual(JSON.parse((await lookUp(two, token, `?${name}=`)).text), {
      err: { message: `${name} must not be empty.`, code: 'empty', field: name },
    });
  const between = await read(two);
  assert.deepEqual([between.users - before.users, between.names - before.names], [2, 2]);
  await send(two, paths.track, { app_id: staging, event: 'No', identity });
  await until(async () => (await read(one)).records === before.records + 1, 'the record is counted');
  const stats = (await sluice.admin('environments', 'stats', staging)) as { suppressed: number };
  assert.ok(stats.suppressed > 0);
  const lines = (await sluice.admin('audit', 'list', '--limit', '20')) as {
    action: string;
    details: string;
  }[];
  const line = lines.find(({ action }) => action === 'suppress_users');
  assert.ok(line !== undefined && !JSON.stringify(lines).includes(identity), JSON.stringify(lines[0]));
});

test('an account with as many suppressed users as it may have gets 400, and keeps the ones that it has', async () => {
  const full = await createTestAccount(sluice, 'Full');
  const token = await getToken(sluice, full);
  const [first, second] = [newUser(), newUser()];
  await setSuppressed(sluice.baseUrl, token, [{ identity: first.identity }], true);
  // Sets the count as if the account had so many names itself; those that strangers joined do not count.
  await withRedis(sluice, (redis) =>
    redis.hset(registryKeys.suppressions, `joined:${full.accountId}`, 1 - suppressions.namesPerAccountMax),
  );
  const users = [{ identity: second.identity }];
  const refused = [
    await submitSuppression(sluice.baseUrl, token, { users, suppress: true }),
    await submit(sluice, token, JSON.stringify({ users, suppress: true })),
  ];
  for (const reply of refused) {
    const { err } = JSON.parse(reply.text) as { err: { code: string; message: string } };
    assert.deepEqual([reply.status, err.code], [400, 'not_possible'], reply.text);
    assert.match(err.message, /^The account has as many suppressed users as it may have/);
  }
  assert.deepEqual((await listDeletions(sluice, token)).ids, [], 'no deletion was stored');
  const both = [{ identity: first.identity }, { identity: second.identity }];
  assert.deepEqual(await lookUpAll(sluice.baseUrl, token, both), [true, false]);
  await setSuppressed(sluice.baseUrl, token, [{ identity: first.identity }], true);
  await setSuppressed(sluice.baseUrl, token, [{ identity: first.identity }], false);
  await setSuppressed(sluice.baseUrl, token, users, true);
});

test('takes more look-ups in a second than submissions, and submissions only up to their limit', async () => {
  const more = Array.from({ length: suppressions.requestsPerSecondMax + 1 }, () =>
    lookUp(sluice.baseUrl, token),
  );
  for (const reply of await Promise.all(more)) assert.equal(reply.status, 200);
  const flood = Array.from({ length: 3 * suppressions.requestsPerSecondMax }, () =>
    submitSuppression(sluice.baseUrl, token, { users: [{ user_id: 1 }], suppress: false }),
  );
  const statuses = (await Promise.all(flood)).map(({ status }) => status);
  assert.ok(statuses.includes(429) && statuses.includes(200), statuses.join());
});

test('look-ups of many users take turns by account', async () => {
  const itsToken = await getToken(sluice, other);
  const many = Array.from({ length: 20 }, (_, id) => ({ user_id: id }));
  const refused = await until(async () => {
    // While Redis pauses, none of them is answered, so all of them meet, unless the machine pauses too.
    await withRedis(sluice, (redis) => redis.client('PAUSE', 300, 'ALL'));
    const flood = Array.from({ length: queries.ofPersonMax + queries.waitingOfPersonMax + 10 }, () =>
      askAll(urls[0] as string, token, many),
    );
    const elsewhere = await lookUpAll(urls[0] as string, itsToken, many);
    assert.equal(elsewhere.length, many.length);
    const replies = await Promise.all(flood);
    const texts = replies.filter(({ status }) => status !== 200).map(({ text }) => text);
    return texts.length > 0 && texts;
  }, 'a look-up is refused');
  assert.ok(refused.length <= 10, String(refused.length));
  for (const text of refused) assert.match(text, /Too many look-ups of this account at once/);
});

test('loses no suppression when an API process dies in it and Redis is emptied later, and keeps no name in Redis or ClickHouse', async () => {
  const { identity, userId } = newUser();
  const freed = newUser();
  const [one, two] = urls as [string, string];
  // Only a second submission suppresses each of these users, since the process dies in the first one.
  const again = crashPoints.suppression.map((point) => ({ point, ...newUser() }));
  const [, dying] = sluice.api;
  for (const { point, ...user } of again) {
    await send(one, paths.identify, { app_id: main, user_id: user.userId, identity: user.identity });
    await dying?.restart({ CRASH_AT: `${point}:1` });
    await forgetSubmissions();
    const body = { users: [{ identity: user.identity }], suppress: true };
    await assert.rejects(submitSuppression(two, token, body), point);
    assert.equal((await dying?.exited)?.signal, 'SIGKILL', point);
    await setSuppressed(one, token, body.users, true);
  }
  await dying?.restart();
  await forgetSubmissions();
  await send(one, paths.identify, { app_id: main, user_id: userId, identity });
  await setSuppressed(one, token, [{ identity }, { identity: freed.identity }], true);
  await setSuppressed(one, token, [{ identity: freed.identity }], false);
  const places = await withRedis(sluice, async (redis) => {
    const names = await redis.hgetall(`{registry}:suppressed_names:${account.accountId}`);
    const changes = await redis.zrange('{registry}:suppression_changes', '0', '-1');
    return JSON.stringify([names, changes]);
  });
  const copy = JSON.stringify(await sluice.rows('SELECT * FROM suppressed_names'));
  for (const text of [places, copy]) assert.ok(text.length > 100 && !text.includes('example.com'));
  await withRedis(sluice, (redis) => redis.flushall());
  await sluice.admin('state', 'reload');
  for (const url of urls) {
    await until(
      async () => isAccepted(await post(url, paths.track, { app_id: main, event: 'No', identity })),
      'records are taken again',
    );
    await send(url, paths.track, { app_id: main, event: 'No', user_id: userId });
    await send(url, paths.track, { app_id: main, event: 'Yes', identity: freed.identity });
  }
  for (const user of again) {
    for (const url of urls) {
      await send(url, paths.track, { app_id: main, event: 'No', identity: user.identity });
      await send(url, paths.track, { app_id: main, event: 'No', user_id: user.userId });
    }
    assert.equal(await rowsOf(user.identity, user.userId), 1, user.point);
  }
  assert.equal(await rowsOf(identity, userId), 1, 'the earlier identification');
  assert.equal(await rowsOf(freed.identity), 2);
  token = await getToken(sluice, account);
  await setSuppressed(two, token, [{ identity }], false);
  for (const url of urls) await send(url, paths.track, { app_id: main, event: 'Yes', user_id: userId });
  assert.equal(await rowsOf(identity, userId), 3);
});

test('takes users who are identified with a merged identity while the request runs', async () => {
  const { identity, userId } = newUser();
  const late = newUser().userId;
  const name = { app_id: main, identity };
  await send(sluice.baseUrl, paths.identify, { ...name, user_id: userId });
  const clickhouse = connectClickHouse({ url: sluice.clickhouse.testerUrl, database: sluice.database });
  await withRedis(sluice, async (redis) => {
    const { epoch, secret = '' } = (await readRegistry(redis)).deployment ?? { epoch: '' };
    let changes = 0;
    /** Before the second change, which suppresses the user's merged names, another user is identified with the identity. */
    const identifiedBefore = withMethod(redis, 'evalsha', async (...args: Parameters<Redis['evalsha']>) => {
      if (args.includes(registryKeys.suppressionChanges)) changes += 1;
      if (changes === 2) await send(sluice.baseUrl, paths.identify, { ...name, user_id: late });
      return redis.evalsha(...args);
    });
    const options = { clickhouse, epoch, secret, shards: 1, crash: noCrash };
    await suppressUsers({ ...options, redis: identifiedBefore }, account.accountId, [`u${userId}`]);
    assert.ok(changes >= 3, String(changes));
  });
  await clickhouse.close();
  for (const user of [{ user_id: userId }, { user_id: late }, { identity }])
    await send(sluice.baseUrl, paths.track, { app_id: main, event: 'Kept out', ...user });
  await untilStored(sluice);
  assert.deepEqual(await sluice.rows(`SELECT identity FROM events WHERE event = 'Kept out'`), []);
});

test('a change is not answered if Redis was emptied before the change was copied, and was restored without it', async () => {
  const { identity } = newUser();
  const deployment = async (redis: Redis) => (await readRegistry(redis)).deployment;
  await withRedis(sluice, async (redis) => {
    const { epoch, secret = '' } = (await deployment(redis)) ?? { epoch: '' };
    const clickhouse = connectClickHouse({ url: sluice.clickhouse.testerUrl, database: sluice.database });
    let isDue = true;
    /** Empties and loads Redis just before the first read of the changes that are not copied. */
    const emptiedOnce = withMethod(redis, 'evalsha', async (...args: Parameters<Redis['evalsha']>) => {
      if (args[0] === scripts.readUncopied.sha && isDue) {
        isDue = false;
        await redis.flushall();
        await sluice.admin('state', 'reload');
      }
      return redis.evalsha(...args);
    });
    const options = { clickhouse, epoch, secret, shards: 1, crash: noCrash };
    await untilStored(sluice);
    // Running workers would copy the changes, perhaps before Redis is emptied.
    for (const worker of sluice.workers) worker.sigstop();
    try {
      for (const work of [suppressUsers, freeUsers]) {
        isDue = true;
        const lost = work({ ...options, redis: emptiedOnce }, account.accountId, [`i${identity}`]);
        await assert.rejects(lost, /no longer in Redis/);
        await work({ ...options, redis }, account.accountId, [`i${identity}`]);
      }
    } finally {
      for (const worker of sluice.workers) worker.sigcont();
      await clickhouse.close();
    }
  });
  token = await getToken(sluice, account);
});

test('continues when Redis has lost the latest version of the suppressions and a shard has not', async () => {
  const [lost, another] = [newUser(), newUser()];
  await setSuppressed(sluice.baseUrl, token, [{ identity: lost.identity }], true);
  await withRedis(sluice, async (redis) => {
    const version = Number(await redis.hget(registryKeys.suppressions, 'version'));
    await redis.hset(registryKeys.suppressions, 'version', version - 1);
  });
  for (const url of urls) {
    await sluice.api[urls.indexOf(url)]?.restart();
    await send(url, paths.track, { app_id: main, event: 'Lost version', identity: another.identity });
    await send(url, paths.track, { app_id: main, event: 'Lost version', identity: lost.identity });
  }
  await untilStored(sluice);
  const rows = await sluice.rows(`SELECT identity FROM events WHERE event = 'Lost version'`);
  assert.deepEqual(rows, [{ identity: another.identity }, { identity: another.identity }]);
});

test('writes the copy of an account with many names again, some at a time', async (t) => {
  const clickhouse = connectClickHouse({ url: sluice.clickhouse.testerUrl, database: sluice.database });
  t.after(() => clickhouse.close());
  const accountId = 'many';
  const names = Array.from({ length: suppressionChanges.rowsPerInsertMax + 500 }, (_, at) => `name${at}`);
  await withRedis(sluice, async (redis) => {
    const { epoch = '' } = (await readRegistry(redis)).deployment ?? {};
    const pairs = names.map((name) => [name, '-'] as const);
    await suppressNames({ redis, epoch, shards: 1 }, accountId, pairs);
    await copyChanges(redis, clickhouse);
    // Changes the copy as if ClickHouse had been set back and had other changes of its own.
    await clickhouse.command({
      query: `ALTER TABLE suppressed_names DELETE WHERE account_id = '${accountId}' AND name != 'name0' SETTINGS mutations_sync = 2`,
    });
    const version = String(Number(await redis.hget(registryKeys.suppressions, 'version')) - 1);
    const wrong = { account_id: accountId, root: '-', version };
    await clickhouse.insert({
      table: 'suppressed_names',
      values: [
        { ...wrong, name: 'name0', suppressed: 0 },
        { ...wrong, name: 'stray', suppressed: 1 },
      ],
      format: 'JSONEachRow',
    });
    const sizes: number[] = [];
    const counted = withMethod(clickhouse, 'insert', (params: Parameters<typeof clickhouse.insert>[0]) => {
      sizes.push((params.values as readonly unknown[]).length);
      return clickhouse.insert(params);
    });
    await copySuppressions(redis, counted);
    assert.ok(Math.max(...sizes) <= suppressionChanges.rowsPerInsertMax, sizes.join());
  });
  const copied = await sluice.rows<{ name: string }>(
    `SELECT name FROM suppressed_names WHERE account_id = '${accountId}'
      GROUP BY name HAVING argMax(suppressed, version) ORDER BY name`,
  );
  assert.deepEqual(
    copied.map(({ name }) => name),
    names.toSorted(),
  );
});
