// What is left of one user in memory and on disk after a complete deletion. The user's records take every way into the
// service, and Redis logs every command as slow.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import type { Redis } from 'ioredis';
import { createLog } from '../../src/log.js';
import { emptySlowLogs } from '../../src/redis/deleted-data.js';
import { shardKeys } from '../../src/redis/keys.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { collect, event, identify, request, userProperties } from '../harness/collect.js';
import { getToken, send, submitAccepted, untilComplete, untilStored } from '../harness/deletion.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { type RedisHandle, type SluiceHandle, startRedis, startSluice } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { filesWith, keysWith } from '../support/traces.js';

const mark = `mark${randomBytes(16).toString('hex')}`;
const identity = `${mark}@example.com`;

let server: RedisHandle;
let sluice: SluiceHandle;
let redis: Redis;
let account: TestAccount;
let token: string;
let appId: string;

before(async () => {
  server = await startRedis({
    appendfsync: 'no',
    more: ['slowlog-log-slower-than 0', 'slowlog-max-len 100000', 'latency-monitor-threshold 1'],
  });
  sluice = await startSluice({ redis: server, env: { JOB_LOCK_MS: '1000', LOG_LEVEL: 'debug' } });
  redis = connectTestRedis(sluice.redisUrl);
  account = await createTestAccount(sluice, 'Traces');
  token = await getToken(sluice, account);
  appId = account.appIds[0] ?? '';
});

after(async () => {
  redis?.disconnect();
  await sluice?.stop();
  await server?.remove();
});

/** Sends a request that the service may refuse; settles with its status. */
async function attempt(path: string, body: unknown, headers: Record<string, string> = {}): Promise<number> {
  const reply = await fetch(`${sluice.baseUrl}${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  await reply.arrayBuffer();
  return reply.status;
}

/** Sends the user through every endpoint, accepted, repeated, limited and refused. */
async function sendEverywhere(): Promise<void> {
  const properties = { [`${mark} key`]: mark, email: identity };
  const track = { app_id: appId, event: mark, identity, properties, session_id: mark, idempotency_key: mark };
  await send(sluice, '/api/track', track);
  await send(sluice, '/api/track', track);
  await send(sluice, '/api/track', { app_id: appId, events: [{ event: mark, identity, properties }] });
  await send(sluice, '/api/add_user_properties', { app_id: appId, identity, properties });
  await send(sluice, '/api/v1/identify', { app_id: appId, user_id: '4711', identity });
  const messages = [
    event({ event: mark, user_id: '4711', identity, properties }),
    userProperties(properties, { user_id: '4711', identity }),
    identify('4712', identity),
  ];
  const collected = await collect(sluice.baseUrl, request(appId, messages));
  assert.equal(collected.status, 200);
  const refused = [
    await attempt('/api/track', { app_id: appId, event: mark, identity, user_id: mark }),
    await attempt('/api/track', { app_id: appId, event: mark, identity, timestamp: mark }),
    await attempt('/api/track', { app_id: mark, event: mark, identity }),
    await attempt('/api/track', `{"app_id":"${appId}","identity":"${identity}`),
    await attempt('/api/v1/identify', { app_id: appId, user_id: mark, identity }),
    await attempt(`/api/${mark}`, { identity }),
    await attempt('/api/public/v0/auth_token', '', { Authorization: `Basic ${btoa(`${mark}:${identity}`)}` }),
    await attempt('/api/public/v0/user_deletion', { users: [{ identity, user_id: 1 }] }, bearer()),
    await attempt('/api/public/v0/user_deletion', { users: [{ identity }] }, { Authorization: mark }),
  ];
  assert.deepEqual(refused, [400, 400, 400, 400, 400, 404, 401, 400, 401]);
  const limited = await Promise.all(
    Array.from({ length: 40 }, () => attempt('/api/track', { app_id: appId, event: mark, identity })),
  );
  assert.ok(limited.includes(429));
}

const bearer = () => ({ Authorization: `Bearer ${token}` });

/** Adds rows that ClickHouse refuses to the waiting segment. No request can cause such rows, but a defect of ours could. */
async function sendRefusedRows(): Promise<void> {
  await untilStored(sluice);
  const [worker] = sluice.workers;
  worker?.sigstop();
  await send(sluice, '/api/track', { app_id: appId, event: mark, identity: `${mark} too` });
  const [member] = await redis.zrange(shardKeys.segments(0), '0', '0');
  assert.ok(member);
  const [table, number] = member.split(':');
  const id = '00000000000000000000000000000001';
  const rows = [
    `["${appId}","${id}","Secret","${mark}","${identity}","",null,{},9\n`,
    `["${appId}","${id}","Secret",null,"${identity}","","${mark}",{},9\n`,
    `["${appId}","${id}","Secret",null,"${identity}","",null,"${mark}",9\n`,
    `["${appId}","${mark}","Secret",null,"${identity}","",null,{},9\n`,
    // These rows name nobody, so no deletion finds them.
    `["${appId}","${id}","${mark}",-1,"","",null,{},9\n`,
    `["${appId}","${id}","Secret",null,"${identity}","","",null,{},9\n`,
    `["${appId}","${id}","Secret",null,"${identity},9\n`,
  ];
  await redis.append(`{s0}:segment:${table}:${number}`, rows.join(''));
  await redis.hincrby(shardKeys.segmentRows(0), member, rows.length);
  await redis.hincrby(shardKeys.state(0), 'rows', rows.length);
  await redis.hincrby(shardKeys.state(0), 'bytes', rows.join('').length);
  // What waits is in Redis only as the rows of segments.
  const keys = await keysWith(sluice, mark);
  assert.ok(keys.length > 0);
  for (const key of keys) assert.match(key, /^\{s0\}:segment:/);
  worker?.sigcont();
}

/** What Redis's commands say about the user, apart from its keys. */
async function wordsOfRedis(): Promise<string[]> {
  const commands = [
    'SLOWLOG GET -1',
    'CLIENT LIST',
    'LATENCY LATEST',
    'LATENCY HISTORY command',
    'INFO everything',
    'ACL LOG',
    'CONFIG GET *',
    'PUBSUB CHANNELS *',
    'MODULE LIST',
  ];
  const found: string[] = [];
  for (const command of commands) {
    const [name = '', ...args] = command.split(' ');
    if (JSON.stringify(await redis.call(name, ...args)).includes(mark)) found.push(command);
  }
  return found;
}

/** These tables never end, or describe the program itself. */
const unread = [
  'numbers',
  'numbers_mt',
  'zeros',
  'zeros_mt',
  'primes',
  'documentation',
  'licenses',
  'models',
].concat(['symbols', 'unicode', 'certificates', 'stack_trace', 'jemalloc_profile_text']);
/** The errors of tables that describe something which this server lacks. */
const absences = /\((?:NOT_IMPLEMENTED|NO_ELEMENTS_IN_CONFIG)\)/;

/** The tables that hold the user, in every database of ClickHouse, including its system tables. */
async function tablesWithUser(): Promise<string[]> {
  const half = mark.length / 2;
  // The text is sent in two parts, since the statement itself is in some of these tables.
  const text = `concat('${mark.slice(0, half)}', '${mark.slice(half)}')`;
  const tables = await sluice.rows<{ database: string; name: string }>(
    `SELECT database, name FROM system.tables
      WHERE lower(database) != 'information_schema' AND NOT (database = 'system' AND name IN ('${unread.join("', '")}'))`,
  );
  assert.ok(tables.some(({ name }) => name === 'errors'));
  const found: string[] = [];
  for (const { database, name } of tables) {
    const [counted] = await sluice
      .rows<{ rows: string }>(
        `SELECT count() AS rows FROM \`${database}\`.\`${name}\` WHERE position(toString(tuple(*)), ${text}) > 0`,
      )
      .catch((error: unknown) => {
        if (!absences.test(String(error))) throw new Error(`${database}.${name}`, { cause: error });
        return [];
      });
    if (Number(counted?.rows) > 0) found.push(`${database}.${name}`);
  }
  return found;
}

const children = () => [...sluice.api, ...sluice.workers, sluice.redis, sluice.clickhouse];
const logsWithUser = () => children().flatMap(({ name, output }) => (output().includes(mark) ? [name] : []));
const folders = () => [sluice.redis.dir, sluice.clickhouse.dir, String(sluice.env.DATA_DIR)];
const filesWithUser = () => folders().flatMap((dir) => filesWith(dir, [mark]));

test('a user is in Redis, its slow log, ClickHouse and files before the deletion, and in no log', async () => {
  await sendEverywhere();
  await sendRefusedRows();
  await untilStored(sluice);
  assert.deepEqual(await wordsOfRedis(), ['SLOWLOG GET -1']);
  const tables = await tablesWithUser();
  const expected = ['failed_events', 'stored_events', 'stored_user_identities', 'stored_user_properties'];
  for (const table of expected) assert.ok(tables.includes(`${sluice.database}.${table}`), table);
  assert.notDeepEqual(filesWithUser(), []);
  assert.deepEqual(logsWithUser(), []);
});

test('the reason for which ClickHouse refused a row is kept without its values, and in no table of ClickHouse itself', async () => {
  const failed = await sluice.rows<{ error: string; whole: number }>(
    "SELECT error, row != '' AS whole FROM failed_events WHERE table_name != '' ORDER BY line",
  );
  assert.deepEqual(
    failed.map(({ whole }) => whole),
    [1, 1, 1, 1, 0, 0, 0],
  );
  assert.deepEqual(
    failed.map(({ error }) => error),
    [
      'CANNOT_PARSE_INPUT_ASSERTION_FAILED in the column user_id',
      'CANNOT_PARSE_DATETIME in the column time',
      'CANNOT_PARSE_INPUT_ASSERTION_FAILED in the column properties',
      'CANNOT_PARSE_UUID in the column event_id',
      'CANNOT_PARSE_NUMBER in the column user_id',
      'CANNOT_PARSE_DATETIME in the column time',
      'CANNOT_PARSE_INPUT_ASSERTION_FAILED',
    ],
  );
  assert.deepEqual(
    (await tablesWithUser()).filter((table) => table.startsWith('system.')),
    [],
  );
  assert.ok(!JSON.stringify(await sluice.admin('failed', 'list')).includes(mark));
  await sluice.admin('failed', 'retry');
  assert.deepEqual(
    (await tablesWithUser()).filter((table) => table.startsWith('system.')),
    [],
    'after the rows were sent again',
  );
});

test('a complete deletion leaves nothing of the user in any memory or log', async () => {
  const users = [{ identity }, { identity: `${mark} too` }];
  const requestId = await submitAccepted(sluice, token, users);
  await untilComplete(sluice, token, requestId);
  assert.deepEqual(await keysWith(sluice, mark), []);
  assert.deepEqual(await wordsOfRedis(), []);
  assert.deepEqual(await tablesWithUser(), []);
  assert.deepEqual(logsWithUser(), []);
});

test('a slow log that cannot be emptied at the moment is not taken for one that its operator keeps', async () => {
  const log = createLog('test', 'silent');
  const busy = connectTestRedis(server.url);
  await redis.config('SET', 'busy-reply-threshold', '1');
  const script = busy.eval('while true do end', 0).catch(() => undefined);
  try {
    await until(async () => (await redis.ping().catch(String)) !== 'PONG', 'the script holds Redis up');
    await assert.rejects(emptySlowLogs([redis], log), /^ReplyError: BUSY/);
  } finally {
    await redis.script('KILL');
    await script;
    busy.disconnect();
  }
  await redis.config('SET', 'busy-reply-threshold', '5000');
  await emptySlowLogs([redis], log);
  // The embedded Redis keeps no slow log at all, and an operator's Redis may forbid the command.
  await redis.call('ACL', 'SETUSER', 'plain', 'on', 'nopass', '~*', '+@all', '-slowlog');
  const plain = connectTestRedis(server.url.replace('://', '://plain:any@'));
  await emptySlowLogs([plain], log);
  plain.disconnect();
});

test('a complete deletion leaves nothing of the user in any file a minute later', async () => {
  // A minute, plus the time by which a busy machine is late.
  await until(() => filesWithUser().length === 0, { what: 'no file holds the user', everyMs: 1_500 });
  assert.deepEqual(await wordsOfRedis(), []);
});
