// The library for servers with a whole service: what it sends is stored once, whatever is refused, limited, cut off or
// killed.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  createSluice,
  type Problem,
  type Receipt,
  type Refusal,
  SluiceError,
} from '../../src/libraries/producer/index.js';
import { createEnvironments, createTestAccount, unlimited } from '../harness/accounts.js';
import { readUsers, untilStored } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { startTcpProxy } from '../harness/tcp-proxy.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { sharedSluice } from '../support/sluice.js';

const sluice = await sharedSluice();
/** A strict environment without limits. */
const [appId = ''] = await createEnvironments(sluice, [unlimited]);
const proxy = await startTcpProxy({ port: Number(new URL(sluice.baseUrl).port) });
const baseUrl = `http://127.0.0.1:${proxy.port}`;
after(() => proxy.close());

/** How many rows an event name has, and how many different values of a property. */
async function countNumbers(event: string): Promise<{ rows: number; numbers: number; max: number }> {
  await untilStored(sluice);
  const [found] = await sluice.rows<{ rows: number; numbers: number; max: number }>(
    `SELECT toUInt32(count()) AS rows, toUInt32(uniqExact(properties['n'])) AS numbers,
      toUInt32(max(toUInt32(properties['n']))) AS max
     FROM events WHERE app_id = '${appId}' AND event = '${event}'`,
  );
  return found as { rows: number; numbers: number; max: number };
}

test('events, identifications and user properties are stored as they were given', async () => {
  const [app = ''] = await createEnvironments(sluice, [[]]);
  const client = createSluice({ appId: app, baseUrl: `${baseUrl}/` });
  interface Order {
    amount: number;
    currency: string;
    tags: string[];
  }
  const properties: Order = { amount: 12.5, currency: 'EUR', tags: ['a', 'b'] };
  const timestamp = new Date('2026-03-01T10:00:00.250Z');
  void client.track<Order>({
    event: 'Order',
    identity: 'ada',
    sessionId: 's',
    properties,
    timestamp,
    idempotencyKey: 'k',
  });
  void client.track({ event: 'Order', identity: 'ada', idempotencyKey: 'k' });
  void client.track({ event: 'Login', identity: 4711 });
  void client.track({
    event: 'Visit',
    userId: '77',
    properties: { large: 12345678901234567890n, at: timestamp },
  });
  void client.identify({ userId: '77', identity: 'ada' });
  void client.addUserProperties({ identity: 'ada', properties: { plan: 'free', seats: 3 } });
  void client.addUserProperties({ identity: 'ada', properties: { plan: 'pro' } });
  assert.equal(await client.close(), true);
  await untilStored(sluice);
  const events =
    await sluice.rows(`SELECT event, identity, toString(user_id) AS user_id, session_id, properties,
    time > now() - 60 AS is_new FROM events WHERE app_id = '${app}' ORDER BY event`);
  assert.deepEqual(events, [
    { event: 'Login', identity: '4711', user_id: null, session_id: '', properties: {}, is_new: 1 },
    {
      event: 'Order',
      identity: 'ada',
      user_id: null,
      session_id: 's',
      properties: { amount: '12.5', currency: 'EUR', tags: 'a||b' },
      is_new: 0,
    },
    {
      event: 'Visit',
      identity: '',
      user_id: '77',
      session_id: '',
      properties: { large: '12345678901234567890', at: '2026-03-01T10:00:00.250Z' },
      is_new: 1,
    },
  ]);
  const users = (await readUsers(sluice, app)).filter(({ identity }) => identity === 'ada');
  assert.deepEqual(
    users.map(({ user_ids, properties: values }) => ({ user_ids, values })),
    [{ user_ids: ['77'], values: { plan: 'pro', seats: '3' } }],
  );
});

test('refused records are reported one by one, and the rest of their batch is stored', async () => {
  const refused: Refusal[] = [];
  const heard: Refusal[] = [];
  const client = createSluice({ appId, baseUrl, onRefused: (refusal) => refused.push(refusal) });
  client.on('refused', (refusal) => heard.push(refusal));
  let deep = {};
  for (let level = 0; level < 70; level++) deep = { deep };
  const circle: { self?: object } = {};
  circle.self = circle;
  const send = (n: number, more: object) =>
    void client.track({ event: 'Mixed', identity: 'bob', properties: { n }, ...more });
  for (let n = 0; n < 20; n++) send(n, {});
  send(20, { timestamp: 'yesterday' });
  // The service refuses the whole request because of this one.
  send(21, { properties: { deep } });
  send(22, { identity: undefined });
  send(23, { properties: { circle } });
  send(24, { timestamp: 1_772_000_000 });
  assert.equal(await client.close(), true);
  assert.deepEqual(await countNumbers('Mixed'), { rows: 20, numbers: 20, max: 19 });
  assert.deepEqual(refused.map(({ code }) => code).sort(), [
    'invalid_timestamp',
    'invalid_timestamp',
    'invalid_type',
    'missing_user',
    'too_deep',
  ]);
  assert.deepEqual(heard, refused);
  const named = refused.find(({ record }) => record.timestamp === 'yesterday');
  assert.deepEqual([named?.operation, named?.field, named?.record.event], ['track', 'timestamp', 'Mixed']);
});

test('a user above a limit delays nobody else, and keeps the order', async () => {
  const [app = ''] = await createEnvironments(sluice, [['--limit', 'bulk_identity=10']]);
  const refused: Refusal[] = [];
  const problems: Problem[] = [];
  const client = createSluice({
    appId: app,
    baseUrl,
    onRefused: (refusal) => refused.push(refusal),
    onProblem: (problem) => problems.push(problem),
  });
  for (let n = 0; n < 40; n++) {
    void client.track({ event: 'Limited', identity: n % 2 === 0 ? 'hot' : `cold-${n}`, properties: { n } });
  }
  const stored = () =>
    sluice.rows<{ identity: string; n: string }>(
      `SELECT identity, properties['n'] AS n FROM events WHERE app_id = '${app}' ORDER BY received_at, commit_number, row_number`,
    );
  await until(async () => (await stored()).length === 30, {
    // Shorter than the window of the limit.
    deadlineMs: 45_000,
    what: 'the others are stored',
  });
  const hot = (await stored()).filter(({ identity }) => identity === 'hot').map(({ n }) => Number(n));
  assert.deepEqual(hot, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
  assert.equal(client.waitingRecords, 10);
  assert.deepEqual(
    problems.map(({ code, limit }) => [code, limit]),
    [['rate_limited', 'bulk_identity']],
  );
  assert.match(problems[0]?.message ?? '', /bulk_identity \(10 in 60 s\)/);
  assert.equal(await client.close(0), false);
  assert.deepEqual(refused, []);
});

test('a batch that is sent again because its answer was lost is stored once', async () => {
  const problems: Problem[] = [];
  const client = createSluice({
    appId,
    baseUrl,
    // Longer than a busy machine takes to answer.
    requestMs: 2_000,
    intervalMs: 5,
    onProblem: (problem) => problems.push(problem),
  });
  proxy.dropReplies();
  for (let n = 0; n < 200; n++)
    void client.track({ event: 'Repeated', identity: `u${n}`, properties: { n } });
  await until(() => problems.length > 0, 'no answer came');
  proxy.pass();
  await client.flush();
  proxy.cut();
  for (let n = 200; n < 400; n++)
    void client.track({ event: 'Repeated', identity: `u${n}`, properties: { n } });
  await until(() => problems.length > 4, 'the service cannot be reached');
  proxy.pass();
  assert.equal(await client.close(60_000), true);
  assert.deepEqual(await countNumbers('Repeated'), { rows: 400, numbers: 400, max: 399 });
});

function startProducer(spool: string, kept: string, more: readonly string[]): ChildProcess {
  const program = fileURLToPath(new URL('../support/producer-process.js', import.meta.url));
  const args = ['--url', baseUrl, '--app-id', appId, '--spool', spool, '--kept', kept, ...more];
  return spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'inherit', 'inherit'] });
}

function lastKept(file: string): number {
  if (!existsSync(file)) return -1;
  return Number(readFileSync(file, 'utf8').split('\n').at(-2) ?? -1);
}

test('a spool loses nothing and doubles nothing when its process is killed again and again', async () => {
  const spool = tempDir('spool');
  const kept = join(tempDir('kept'), 'kept');
  const groups = 40;
  for (let life = 0; life < 6; life++) {
    const first = life * 100_000;
    // Some lives begin, continue or end without a service.
    if (life % 3 === 1) proxy.cut();
    else proxy.pass();
    const process = startProducer(spool, kept, ['--first', String(first)]);
    const enough = first + groups * (5 + 7 * life);
    await until(() => lastKept(kept) >= enough, { what: 'some are kept', everyMs: 5 });
    if (life % 3 === 2) proxy.cut();
    process.kill('SIGKILL');
    await once(process, 'exit');
  }
  proxy.pass();
  assert.ok(
    readdirSync(spool).some((name) => name.endsWith('.records')),
    'something is left to send',
  );
  const process = startProducer(spool, kept, ['--drain']);
  const [code] = await once(process, 'exit');
  assert.equal(code, 0);
  assert.deepEqual(readdirSync(spool), []);

  await untilStored(sluice);
  const numbers = await sluice.rows<{ n: number; rows: number }>(
    `SELECT toUInt32(properties['n']) AS n, toUInt32(count()) AS rows
     FROM events WHERE app_id = '${appId}' AND event = 'Numbered' GROUP BY n`,
  );
  assert.deepEqual(
    numbers.filter(({ rows }) => rows !== 1),
    [],
    'none is doubled',
  );
  const stored = new Set(numbers.map(({ n }) => n));
  const firsts = readFileSync(kept, 'utf8').trim().split('\n').map(Number);
  const lost = firsts.flatMap((first) =>
    Array.from({ length: groups }, (_, index) => first + index).filter((n) => !stored.has(n)),
  );
  assert.deepEqual(lost, [], 'none is lost');
  const users = await readUsers(sluice, appId);
  const last = Number(users.find(({ identity }) => identity === 'user-0')?.properties.last);
  assert.ok(last >= lastKept(kept), `the last properties count: ${last}`);
  removeTempDir(spool);
});

test('a spool that is in use is refused', async () => {
  const spoolFolder = tempDir('spool');
  const options = { appId, baseUrl, spoolFolder };
  const client = createSluice(options);
  assert.throws(() => createSluice(options), /in use by this process/);
  await client.close();
});

test('waiting records are sent before SIGTERM ends a process', async () => {
  const program = `
    import { createSluice } from ${JSON.stringify(new URL('../../src/libraries/producer/index.js', import.meta.url).href)};
    const client = createSluice({ appId: '${appId}', baseUrl: '${baseUrl}', intervalMs: 60000 });
    client.closeOnSignals();
    for (let n = 0; n < 300; n++) client.track({ event: 'Ended', identity: 'u' + n, properties: { n } });
    setInterval(() => {}, 1000);
    console.log('ready');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  child.kill('SIGTERM');
  const [, signal] = await once(child, 'exit');
  assert.equal(signal, 'SIGTERM');
  assert.deepEqual(await countNumbers('Ended'), { rows: 300, numbers: 300, max: 299 });
});

test('a program in JavaScript learns how many records of each kind were refused, however it ends', async () => {
  for (const end of ['', "process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 1000);"]) {
    const program = `
      import { createSluice } from ${JSON.stringify(new URL('../../src/libraries/producer/index.js', import.meta.url).href)};
      const client = createSluice({ appId: '${appId}', baseUrl: '${baseUrl}' });
      client.closeOnSignals();
      const identity = 'u';
      for (let n = 0; n < 1000; n++) client.track({ event: 'Told', identity, properties: { vip: true } });
      for (let n = 0; n < 7; n++) client.track({ event: 'Told', identity, properties: { address: { city: 'x' } } });
      for (let n = 0; n < 3; n++) client.track({ event: 'Told', identity, properties: { n }, propertys: {} });
      client.addUserProperties({ identity, properties: { tags: ['a'] } });
      client.track({ event: 'Told' });
      ${end}`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'inherit', 'pipe'],
    });
    const printed = await text(child.stderr);
    const counts = new Map<string, number>();
    const words =
      /Warning: (\d+) records? of (\w+ (?:refused: \w+(?: [\w.]+)?(?=:)|sent without unknown fields: \w+))/g;
    for (const [, count, kind = ''] of printed.matchAll(words))
      counts.set(kind, (counts.get(kind) ?? 0) + Number(count));
    assert.deepEqual(
      [...counts].sort(),
      [
        ['addUserProperties refused: invalid_type properties.tags', 1],
        ['track refused: invalid_type properties.address', 7],
        ['track refused: invalid_type properties.vip', 1000],
        ['track refused: missing_user', 1],
        ['track sent without unknown fields: propertys', 3],
      ],
      printed,
    );
    assert.ok(printed.split('\n').filter((line) => line.includes('SluiceWarning')).length <= 10, printed);
  }
  assert.deepEqual(await countNumbers('Told'), { rows: 6, numbers: 3, max: 2 });
});

test('a program that ends by itself sends waiting records first', async () => {
  const program = `
    import { createSluice } from ${JSON.stringify(new URL('../../src/libraries/producer/index.js', import.meta.url).href)};
    const client = createSluice({ appId: '${appId}', baseUrl: '${baseUrl}' });
    for (let n = 0; n < 30; n++) client.track({ event: 'Finished', identity: 'u' + n, properties: { n } });`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' });
  assert.deepEqual(await once(child, 'exit'), [0, null]);
  assert.deepEqual(await countNumbers('Finished'), { rows: 30, numbers: 30, max: 29 });
});

test('tells a holder of a write key what happened to any number of records, by their keys', async () => {
  const { write_key: writeKey } = (await sluice.admin('write-keys', 'create', appId)) as {
    write_key: string;
  };
  const client = createSluice({ appId, baseUrl, writeKey });
  for (let n = 0; n < 1_500; n++)
    void client.track({ event: 'Receipted', identity: `r${n}`, idempotencyKey: `receipt ${n}` });
  await client.flush();
  await untilStored(sluice);
  await until(
    async () => (await client.receipts(['none']).next()).done === false,
    'the API knows the write key',
  );
  const keys = Array.from({ length: 1_501 }, (_, n) => `receipt ${n}`);
  const found: Receipt[] = [];
  for await (const receipt of client.receipts(keys)) found.push(receipt);
  assert.deepEqual(
    found.map(({ idempotencyKey, status }) => `${idempotencyKey} ${status}`),
    keys.map((key, n) => `${key} ${n < 1_500 ? 'stored' : 'unknown'}`),
  );
  const [row] = await sluice.rows<{ id: string; segment: string }>(
    `SELECT toString(event_id) AS id, toString(segment) AS segment FROM events WHERE app_id = '${appId}' AND identity = 'r7'`,
  );
  assert.deepEqual([found[7]?.eventId, found[7]?.segment], [row?.id, row?.segment]);
  assert.ok(Math.abs(Date.now() - Number(found[7]?.acceptedAt)) < 120_000);

  const ended = new AbortController();
  const stopped = client.receipts(keys, { signal: ended.signal });
  ended.abort(new Error('enough'));
  await assert.rejects(stopped.next(), /enough/);
  const wrong = createSluice({ appId, baseUrl, writeKey: 'wrong' });
  await assert.rejects(
    wrong.receipts(['k']).next(),
    (error) => error instanceof SluiceError && error.code === 'unauthorized',
  );
  await assert.rejects(createSluice({ appId, baseUrl }).receipts(['k']).next(), /needs the option writeKey/);
  await Promise.all([client, wrong].map((one) => one.close()));
});

test('users are deleted in requests of 10,000, and an interrupted call can be continued', async () => {
  const account = await createTestAccount(sluice, 'Deleting');
  const [app = ''] = account.appIds;
  const client = createSluice({ appId: app, baseUrl, apiKey: account.apiKey });
  for (const identity of ['goes-0', 'goes-20001', 'stays']) void client.track({ event: 'E', identity });
  await client.flush();
  const users = Array.from({ length: 20_002 }, (_, n) => ({ identity: `goes-${n}` }));

  let last: { requests: readonly object[]; submittedUsers: number } | undefined;
  for await (const progress of client.deleteUsers(users)) {
    last = JSON.parse(JSON.stringify(progress));
    if (progress.submittedUsers === 10_000) break;
  }
  assert.equal(last?.requests.length, 1);

  const seen: string[] = [];
  const another = createSluice({ appId: app, baseUrl, apiKey: account.apiKey });
  const resume = last as never;
  for await (const { requests, submittedUsers, isComplete } of another.deleteUsers(users, { resume })) {
    seen.push(`${submittedUsers} ${requests.length} ${isComplete}`);
  }
  assert.deepEqual(seen.slice(0, 2), ['20000 2 false', '20002 3 false']);
  assert.equal(seen.at(-1), '20002 3 true');
  const left = await sluice.rows(`SELECT DISTINCT identity FROM events WHERE app_id = '${app}'`);
  assert.deepEqual(left, [{ identity: 'stays' }]);

  const wrong = createSluice({ appId: app, baseUrl, apiKey: 'wrong' });
  await assert.rejects(wrong.deleteUsers(users).done(), (error) => {
    assert.ok(error instanceof SluiceError);
    assert.deepEqual([error.code, error.status, error.progress.submittedUsers], ['unauthorized', 401, 0]);
    return true;
  });
  await Promise.all([client, another, wrong].map((one) => one.close()));
});

test('a deletion gets a new token when its token has ended', async () => {
  const account = await createTestAccount(sluice, 'Renewing');
  const client = createSluice({ appId: account.appIds[0] ?? '', baseUrl, apiKey: account.apiKey });
  const users = (async function* () {
    for (let n = 0; n < 10_000; n++) yield { userId: n };
    await withRedis(sluice, async (redis) => {
      for (const key of await redis.keys('{registry}:token:*'))
        if ((await redis.get(key))?.includes(account.appIds[0] ?? '')) await redis.del(key);
    });
    yield { userId: 10_000 };
  })();
  const { requests, isComplete } = await client.deleteUsers(users).done();
  assert.deepEqual([requests.length, isComplete], [2, true]);
  await client.close();
});
