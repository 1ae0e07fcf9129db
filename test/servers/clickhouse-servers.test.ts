// A deployment that begins with one ClickHouse server and gets two more, each with one of its shards: which server has which rows, and
// that everything that reads, deletes or exports finds all of them.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
// Names every step at which a move may be killed, so that none is forgotten.
import { crashPoints } from '../../src/crash-point.js';
// Only here it is written how Redis calls what a test changes or compares there.
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { createTestAccount, type TestAccount, untilRegistryIsRead } from '../harness/accounts.js';
import { runAdmin, runMigrations } from '../harness/administration.js';
import { atPort, type ClickHouseHandle } from '../harness/clickhouse.js';
import {
  callWithToken,
  deleteNow,
  deletionPaths,
  getToken,
  sendEvents,
  sendIdentify,
  sendProperties,
  showDeletion,
  submitAccepted,
  submitDryRun,
  submitWith,
  untilComplete,
  untilStored,
} from '../harness/deletion.js';
import { freePort } from '../harness/free-port.js';
import { paths, post } from '../harness/ingestion.js';
import { startMigratedServers } from '../harness/migrated-database.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startSluice, startTcpProxy, type TcpProxy } from '../harness/services.js';
import { runProgram, startApiOf } from '../harness/sluice.js';
import { readExportData, readRecords, submitExport, untilExportComplete } from '../harness/user-export.js';
import { until, within } from '../harness/wait.js';
import { accountInEachShard, ask, killAt, listShards, shardIn } from '../support/servers.js';
import { test } from '../support/test.js';

/** Well below the 120 s after which a statement to a server that hangs fails. */
const hangMsMax = 90_000;

let servers: readonly [ClickHouseHandle, ClickHouseHandle, ClickHouseHandle];
/** Before the second server, in the last tests. */
let proxy: TcpProxy | undefined;
/** The deployment by its first processes, which know only the first server, and by those that know all. */
let former: SluiceHandle;
let sluice: SluiceHandle;
/** An account with an environment on each server, in the order of the servers. */
let wide: TestAccount;
let token: string;
/** By shard: the server that gets it when the deployment has grown. */
let places: readonly number[];

before(async () => {
  servers = (await startMigratedServers(3)) as never;
  const [{ url }] = servers;
  const env = { SHARDS: '3', JOB_LOCK_MS: '1000', CLICKHOUSE_URL: url, CLICKHOUSE_DATABASE: 'sluice' };
  former = await startSluice({ clickhouse: servers[0], env });
  const all = {
    ...former.env,
    CLICKHOUSE_URL: servers.map(({ url }) => url).join(),
    CLICKHOUSE_CLUSTER: 'sluice',
    DEMO: '1',
  };
  sluice = { ...former, env: all, clickhouses: servers, admin: (...args) => runAdmin(args, all) };
  const { account, appIds } = await accountInEachShard(former);
  token = await getToken(former, account);
  wide = { ...account, appIds };
});

after(async () => {
  for (const { stop } of sluice?.api ?? []) await stop();
  await former?.stop();
  await proxy?.close();
  for (const server of servers?.toReversed() ?? []) await server.remove();
});

/** The server that first has an environment's rows. */
const serverOf = (appId: string) => places[shardIn(sluice, appId)] as number;

/** The server that has them now. */
async function serverNow(appId: string): Promise<ClickHouseHandle> {
  const { server } = (await listShards(sluice))[shardIn(sluice, appId)] ?? {};
  return servers[server ?? -1] as ClickHouseHandle;
}

/** Makes accounts until one has its single environment on this server. */
async function accountOn(server: number): Promise<TestAccount> {
  for (;;) {
    const account = await createTestAccount(sluice, 'Narrow', ['Main Production']);
    if (serverOf(account.appIds[0] ?? '') === server) return account;
  }
}

/** What each server answers. */
const askAll = (sql: string, as: 'tester' | 'reader' = 'tester') =>
  Promise.all(servers.map((server) => ask(server, sql, server[as])));

/** How many rows of a table or view each server sees. */
const counts = async (from: string) => (await askAll(`SELECT count() FROM ${from}`)).map(Number);

/** Sends records of one user under two names, and of somebody else, to each of the environments. */
async function writeUsers({ appIds }: TestAccount, identity: string, userId: string): Promise<void> {
  for (const appId of appIds) {
    await sendEvents(sluice, appId, 'go', [{ identity }, { user_id: userId }]);
    await sendIdentify(sluice, appId, userId, identity);
    await sendProperties(sluice, appId, 'go', [identity]);
    await sendEvents(sluice, appId, 'stay', [{ identity: `${identity}x` }]);
  }
}

/** Asks for a deletion. The next round begins at once, as after a while without rounds. */
async function submitNow(identity: string, itsToken = token): Promise<string> {
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionRound));
  return submitAccepted(sluice, itsToken, [{ identity }]);
}

async function untilItWaits(requestId: string): Promise<void> {
  const isWaiting = async () => (await showDeletion(sluice, requestId)).state === 'clickhouse_unavailable';
  // Rounds begin every few seconds.
  await until(isWaiting, { deadlineMs: 60_000, what: 'the deletion says that it waits for a server' });
}

/** The status of a dry run, and of a suppression. Both need all rows of the account. */
async function statusesThatNeedAllRows(deployment: SluiceHandle): Promise<number[]> {
  const users = [{ identity: 'nobody' }];
  const dryRun = await submitWith(deployment, token, { users, dry_run: true });
  const path = '/api/public/v0/user_suppression';
  const suppressed = await callWithToken(deployment, token, path, { users, suppress: true });
  return [dryRun.status, suppressed.status];
}

/** What readiness says is missing. */
async function missingOf({ baseUrl }: SluiceHandle): Promise<string> {
  const reply = await fetch(`${baseUrl}/health/ready`);
  const { ready, missing } = (await reply.json()) as { ready: boolean; missing: string[] };
  assert.equal(ready, true);
  return missing.join('\n');
}

/** Stores a row of a shard in a segment that no process knows; by default an old one. */
const storeLate = (
  server: ClickHouseHandle,
  shard: number,
  segment = String(64 * 26_562_500_000_000 + shard),
) => ask(server, `INSERT INTO stored_events (app_id, event, segment) VALUES ('1', 'Late', ${segment})`);

const identificationsOf = (identity: string) =>
  counts(`stored_user_identities WHERE identity = '${identity}'`);

test('a deployment with one server gets more, and every server shows all rows', async () => {
  const [home, , third] = servers;
  for (const appId of wide.appIds) await sendEvents(former, appId, 'go', [{ identity: 'old' }]);
  await untilStored(former);
  const views = ['events', 'user_properties', 'user_identities', 'users', 'user_events'];
  const names = views.map((view) => `'${view}'`).join();
  const isThere = `system.tables WHERE database = 'sluice' AND name IN (${names})`;
  let isMigrated = false;
  const migrating = runMigrations(sluice.env).finally(() => {
    isMigrated = true;
  });
  // Each view must exist at every moment.
  while (!isMigrated) assert.equal((await counts(isThere))[0], views.length);
  await migrating;
  const ids = `SELECT groupArray((name, uuid)) FROM (
    SELECT * FROM ${isThere} AND name != 'users' AND engine = 'Distributed' ORDER BY name)`;
  const spanning = await askAll(ids);
  assert.equal(spanning[0]?.split('),').length, views.length - 1);
  // Leaves the tables of a later version that changes the columns and was killed before it had replaced a view.
  await ask(home, 'ALTER TABLE users DROP COLUMN email');
  await ask(home, 'CREATE TABLE next_users AS users');
  await runMigrations(sluice.env);
  assert.equal(await ask(home, "SELECT count() FROM users WHERE email = ''"), '3');
  assert.deepEqual(await counts("system.tables WHERE startsWith(name, 'next_')"), [0, 0, 0]);
  // Nothing is replaced that is as it should be.
  assert.deepEqual(await askAll(ids), spanning);
  assert.equal(await ask(third, 'SELECT count() FROM events'), '3');
  assert.deepEqual(await counts("stored_events WHERE app_id != ''"), [3, 0, 0]);

  await sluice.admin('bootstrap');
  const api = await startApiOf(sluice, sluice.env);
  sluice = { ...sluice, api: [api], baseUrl: api.baseUrl, adminUrl: api.adminUrl };
  const { moved } = (await sluice.admin('shards', 'balance')) as { moved: object[] };
  assert.equal(moved.length, 2);
  places = (await listShards(sluice)).map(({ server }) => server);
  assert.deepEqual(places.toSorted(), [0, 1, 2]);
  wide = { ...wide, appIds: wide.appIds.toSorted((a, b) => serverOf(a) - serverOf(b)) };
  assert.deepEqual(await counts("stored_events WHERE app_id != ''"), [1, 1, 1]);
  assert.deepEqual(await counts('events'), [3, 3, 3]);
});

test('a process whose CLICKHOUSE_URL is out of date stores, answers and deletes nothing on one server alone', async () => {
  assert.match(
    await missingOf(former),
    /CLICKHOUSE_URL names 1 server, but shard \d is stored on server \d \(from 0\): name all servers, in their order/,
  );
  assert.deepEqual(await statusesThatNeedAllRows(former), [503, 503]);
  // Until another one is started, the only worker is the former one.
  const waiting = await submitNow('old');
  await untilItWaits(waiting);
  await writeUsers(wide, 'ada', '41');
  await until(
    async () => (await counts("stored_events WHERE identity = 'adax'"))[0] === 1,
    'the former worker stores the records of the first server',
  );
  await former.addWorker(sluice.env);
  await untilComplete(sluice, token, waiting);
  await untilStored(sluice);
  assert.deepEqual(await counts("stored_events WHERE app_id != ''"), [3, 3, 3]);
  assert.equal((await showDeletion(sluice, waiting)).found?.length, 3);

  const exported = await submitExport(former, token, [{ identity: 'nobody' }]);
  await untilExportComplete(sluice, token, exported);
  assert.equal((await readExportData(former, token, exported)).status, 503);
  assert.deepEqual(await readRecords(sluice, token, exported), []);
  for (const process of [...former.api, ...former.workers.slice(0, 1)]) await process.stop();
});

test('each shard is stored by one server, and every server answers for all', async () => {
  for (const [server, appId] of wide.appIds.entries())
    assert.deepEqual(
      await counts(`stored_events WHERE app_id = '${appId}'`),
      servers.map((_, number) => (number === server ? 3 : 0)),
    );
  assert.deepEqual(await counts('events'), [9, 9, 9]);
  assert.deepEqual(await counts('user_properties'), [3, 3, 3]);
  assert.deepEqual(await counts('user_identities'), [3, 3, 3]);
  assert.deepEqual(await counts('users'), [6, 6, 6]);
  const merged = `SELECT app_id, identity, user_properties['plan'] FROM user_events WHERE identity = 'ada' ORDER BY app_id`;
  const expected = wide.appIds.toSorted().flatMap((appId) => Array(2).fill(`${appId}\tada\tpro`));
  for (const answer of await askAll(merged, 'reader')) assert.deepEqual(answer.split('\n'), expected);
});

test('a dry run, an export and a deletion reach the rows on all servers, and nothing else', async () => {
  const users = [{ identity: 'ada' }, { identity: 'nobody' }];
  // Each server has two events, an identification and properties of the user.
  const looked = await submitDryRun(sluice, token, { users });
  assert.equal(looked.status, 200, looked.text);
  const found = JSON.parse(looked.text) as { users_found: number };
  assert.equal(found.users_found, 1, looked.text);

  const exported = await submitExport(sluice, token, [{ identity: 'ada' }]);
  await untilExportComplete(sluice, token, exported);
  const records = await readRecords(sluice, token, exported);
  assert.equal(records.length, 12);
  for (const appId of wide.appIds) assert.equal(records.filter(({ app_id }) => app_id === appId).length, 4);

  const requestId = await deleteNow(sluice, token, users);
  const shown = await showDeletion(sluice, requestId);
  assert.equal(
    (shown.found ?? []).reduce((sum, { rows }) => sum + rows, 0),
    12,
  );
  assert.equal(shown.mutations.length, 9);
  assert.ok(shown.mutations.every(({ mutation_id: id }) => id !== undefined));
  const its = await callWithToken(sluice, token, `${deletionPaths.status(requestId)}/users`);
  const { users: counted } = JSON.parse(its.text) as { users: { found: boolean; rows: number }[] };
  assert.deepEqual(
    counted.map(({ found: isFound, rows }) => [isFound, rows]),
    [
      [true, 12],
      [false, 0],
    ],
  );
  for (const place of [
    'stored_events',
    'stored_user_properties',
    'stored_user_identities',
    'failed_events',
  ]) {
    const left = place === 'stored_events' ? [1, 1, 1] : [0, 0, 0];
    assert.deepEqual(await counts(`${place} WHERE app_id != ''`), left, place);
  }
  // No server has tables of the round left in its memory.
  assert.deepEqual(
    await counts(
      `system.tables WHERE startsWith(database, 'sluice') AND startsWith(name, 'deletion_round_')`,
    ),
    [0, 0, 0],
  );
});

test('while a server is away its records are accepted and wait, and all others are stored', async () => {
  const narrow = await accountOn(0);
  const itsToken = await getToken(sluice, narrow);
  const demo = sluice.appId;
  const gone = serverOf(demo) === 1 ? 2 : 1;
  await servers[gone].kill9();
  const appIds = [...wide.appIds, ...narrow.appIds, demo];
  for (const appId of appIds) await sendEvents(sluice, appId, 'go', [{ identity: 'eve' }]);
  const stored = (server: number) =>
    ask(servers[server] as ClickHouseHandle, "SELECT count() FROM stored_events WHERE identity = 'eve'");
  for (const server of [0, 1, 2].filter((number) => number !== gone)) {
    const own = appIds.filter((appId) => serverOf(appId) === server).length;
    await until(async () => (await stored(server)) === String(own), {
      deadlineMs: 60_000,
      what: `server ${server} stores its records`,
    });
  }

  await until(
    async () => (await missingOf(sluice)).includes(`clickhouse server ${gone}:`),
    'readiness names the server',
  );
  await until(async () => {
    const metrics = await (await fetch(`${sluice.adminUrl}/metrics`)).text();
    return ['server="0"} 1', `server="${gone}"} 0`].every((line) =>
      metrics.includes(`\nsluice_clickhouse_up{${line}\n`),
    );
  }, 'the metrics name the server');

  await assert.rejects(
    sluice.admin('backup', 'create'),
    new RegExp(`ClickHouse server ${gone} \\(from 0\\) does not answer`),
  );
  const [home] = servers;
  const all = "SELECT count() FROM events WHERE identity = 'eve'";
  await assert.rejects(ask(home, all, home.reader));
  assert.equal(await ask(home, `${all} SETTINGS skip_unavailable_shards = 1`), '4');

  const waiting = await submitNow('eve');
  const first = Number(await stored(0));
  await deleteNow(sluice, itsToken, [{ identity: 'eve' }]);
  assert.equal(Number(await stored(0)), first - 1);
  const exported = await submitExport(sluice, itsToken, [{ identity: 'nobody' }]);
  await untilExportComplete(sluice, itsToken, exported);
  assert.deepEqual(await readRecords(sluice, itsToken, exported), []);
  await untilItWaits(waiting);
  // What shows the whole deployment, or one of the other environments, goes on.
  const index = (await sluice.admin('keys-index', 'status')) as { shards: { complete: boolean | null }[] };
  assert.deepEqual(
    index.shards.map(({ complete }) => complete),
    places.map((server) => (server === gone ? null : true)),
  );
  assert.deepEqual(await sluice.admin('failed', 'list'), []);
  assert.deepEqual(await sluice.admin('failed', 'retry'), { retried: 0, left: 0, servers_away: [gone] });
  const url = `${sluice.adminUrl}/demo/arrived?app_id=${demo}&identity=eve`;
  // Busy servers may answer it too late.
  const arrived = async () => ((await (await fetch(url)).json()) as { events?: object[] }).events;
  assert.equal((await until(arrived, 'the demo shows what has arrived')).length, 1);

  await servers[gone].restart();
  await untilComplete(sluice, token, waiting);
  for (const answer of await askAll(all)) assert.equal(answer, '1');
  assert.deepEqual((await showDeletion(sluice, waiting)).found?.length, 3);
});

test('while the first server is away records are accepted, all others are stored, and deletions wait', async () => {
  const [home, second] = servers;
  const narrow = await accountOn(1);
  const itsToken = await getToken(sluice, narrow);
  await home.kill9();
  for (const appId of [...wide.appIds, ...narrow.appIds])
    await sendEvents(sluice, appId, 'go', [{ identity: 'joe' }]);
  const all = "SELECT count() FROM events WHERE identity = 'joe'";
  const stored = () => ask(second, `${all} SETTINGS skip_unavailable_shards = 1`);
  await until(async () => (await stored()) === '3', 'the records of the others are stored');
  // The user's rows are on another server, but the tables that make the deletion certain are on the primary one.
  const requestId = await submitNow('joe', itsToken);
  await untilItWaits(requestId);
  assert.equal(await stored(), '3');
  // A move between the other servers needs the primary one too, and would close its shard.
  const movable = places.indexOf(1);
  await assert.rejects(
    sluice.admin('shards', 'move', String(movable), '--to', '2'),
    /ClickHouse server 0 \(from 0\) does not answer$/,
  );
  assert.deepEqual((await listShards(sluice))[movable]?.moving_to, null);
  await home.restart();
  await untilComplete(sluice, itsToken, requestId);
  await untilStored(sluice);
  assert.equal(await ask(second, all), '3');
});

test('a server that hangs holds up neither the deletions of others nor a look at the shards', async () => {
  const [, second] = servers;
  const narrow = await accountOn(0);
  const itsToken = await getToken(sluice, narrow);
  await sendEvents(sluice, narrow.appIds[0] ?? '', 'go', [{ identity: 'eve' }]);
  second.sigstop();
  try {
    await deleteNow(sluice, itsToken, [{ identity: 'eve' }]);
    const listed = await within(listShards(sluice), hangMsMax);
    assert.deepEqual(
      listed.map(({ rows }) => rows === null),
      places.map((server) => server === 1),
    );
  } finally {
    second.sigcont();
  }
});

test('a move that is copying can be reverted, even after a kill; two moves at once lose and duplicate nothing; then the shards are balanced', async () => {
  const [appId = '', , other = ''] = wide.appIds;
  const shard = shardIn(sluice, appId);
  const [, next] = servers;
  const its = `app_id = '${appId}' AND identity = 'back'`;
  const send = () => sendEvents(sluice, appId, 'stay', [{ identity: 'back' }]);
  const moveTo = (server: number) => ['shards', 'move', String(shard), '--to', String(server)];
  const seen = async () => (await askAll(`SELECT count() FROM events WHERE ${its}`)).map(Number);
  await send();
  await untilStored(sluice);
  const listed = async () => (await listShards(sluice))[shard];
  assert.equal((await listed())?.moved_rows, null);
  await killAt(sluice, 'partition_copied', ...moveTo(1));
  const half = await listed();
  const arrived = `SELECT count() FROM stored_events WHERE app_id != '' AND segment % 64 = ${shard}`;
  assert.deepEqual(
    [half?.server, half?.moving_to, String(half?.moved_rows)],
    [0, 1, await ask(next, arrived)],
  );
  assert.ok(Number(half?.moved_rows) > 0 && Number(half?.moved_rows) <= Number(half?.rows));
  assert.equal(await ask(next, `SELECT count() FROM stored_events WHERE ${its}`), '1');
  await send();
  await killAt(sluice, 'rows_removed', ...moveTo(0));
  assert.deepEqual(await seen(), [1, 1, 1]);
  await assert.rejects(sluice.admin(...moveTo(1)), /already moving to server 0/);
  const moving = await listed();
  assert.deepEqual([moving?.server, moving?.moving_to], [0, 0]);
  assert.deepEqual(await sluice.admin(...moveTo(0)), { server: 0, moved: [shard] });
  await untilStored(sluice);
  assert.deepEqual(await seen(), [2, 2, 2]);
  assert.deepEqual(await counts(`stored_events WHERE ${its}`), [2, 0, 0]);
  await assert.rejects(storeLate(next, shard), /VIOLATED_CONSTRAINT/);
  await assert.rejects(sluice.admin(...moveTo(9)), /there is no server 9/);

  // The move that began first ends when the other one continues it, or the other one finds nothing to do.
  await sendEvents(sluice, other, 'stay', [{ identity: 'two' }]);
  await untilStored(sluice);
  const moveOther = () => sluice.admin('shards', 'move', String(shardIn(sluice, other)), '--to', '1');
  for (const ended of await Promise.allSettled([moveOther(), moveOther()]))
    if (ended.status === 'rejected')
      assert.match(String(ended.reason), /another process has continued the move|an insert is still running/);
  await moveOther();
  assert.deepEqual(await counts(`stored_events WHERE app_id = '${other}' AND identity = 'two'`), [0, 1, 0]);

  const { moved } = (await sluice.admin('shards', 'balance')) as { moved: object[] };
  assert.equal(moved.length, 1);
  const balanced = (await listShards(sluice)).map(({ server }) => server);
  assert.deepEqual(balanced.toSorted(), [0, 1, 2]);
});

/** The users, among some, whose events each server sees. */
const seenBy = () =>
  askAll(
    `SELECT arrayStringConcat(arraySort(groupArray(concat(identity, ' ', toString(rows)))), ', ') FROM (
      SELECT identity, count() AS rows FROM events WHERE identity IN ('fay', 'gus', 'hal', 'ida') GROUP BY identity)`,
    'reader',
  );

const sendToAll = async (identity: string) => {
  for (const appId of wide.appIds) await sendEvents(sluice, appId, 'stay', [{ identity }]);
  await untilStored(sluice);
};

type Backup = { readonly name: string; readonly status: string; readonly bytes: number | null };
const createBackup = async (...args: readonly string[]) =>
  (await sluice.admin('backup', 'create', ...args)) as Backup;
const listBackups = async () => (await sluice.admin('backup', 'list')) as Backup[];

test('a backup covers all servers, the primary one first, even after an interruption', async () => {
  for (const identity of ['fay', 'gus', 'ida']) await sendToAll(identity);
  // The next test tries to continue this backup.
  await killAt(sluice, 'primary_backed_up', 'backup', 'create', 'cut');
  assert.equal((await listBackups())[0]?.status, 'unknown');
  // Only the primary server has made its part by then.
  await assert.rejects(sluice.admin('backup', 'restore', 'cut', '--yes'), /the backup cut has no end mark/);

  await killAt(sluice, 'primary_backed_up', 'backup', 'create', 'all');
  // The parts of the other servers are of a later time than that of the primary one.
  await deleteNow(sluice, token, [{ identity: 'gus' }]);
  const [, , appId = ''] = wide.appIds;
  await sendIdentify(sluice, appId, '62', 'fay');
  await untilStored(sluice);
  const made = await createBackup('all');
  assert.equal(made.status, 'complete');
  // Only the primary server has its part of the base, as if the others had been added since.
  const based = await createBackup('based', '--base', 'cut');
  assert.equal(based.status, 'complete');
  assert.ok((based.bytes ?? 0) < (made.bytes ?? 0), 'the backup has only what has changed since its base');
  await assert.rejects(createBackup('wrong', '--base', 'none'), /there is no backup none/);
  assert.deepEqual((await listBackups()).map(({ name }) => name).sort(), ['all', 'based', 'cut']);
  await deleteNow(sluice, token, [{ identity: 'ida' }]);
});

test('a move of a shard that is killed at each step and continued loses and duplicates nothing', async () => {
  const [appId = ''] = wide.appIds;
  const shard = shardIn(sluice, appId);
  const [former, next] = servers;
  const its = `app_id = '${appId}' AND identity = 'mo'`;
  const send = () => sendEvents(sluice, appId, 'go', [{ identity: 'mo' }]);
  for (let event = 0; event < 3; event += 1) await send();
  await sendProperties(sluice, appId, 'go', ['mo']);
  await sendIdentify(sluice, appId, '63', 'kept');
  // The shard also gets a failed row, and keys in the index.
  await ask(
    former,
    `INSERT INTO failed_events (table_name, segment, line, app_id, identity) VALUES ('events', ${64 + shard}, 1, '${appId}', 'mo')`,
  );
  const keyed = { app_id: appId, event: 'Keyed', identity: 'key', idempotency_key: 'moved-1' };
  await post(sluice.baseUrl, paths.track, keyed);
  await untilStored(sluice);
  await sluice.admin('keys-index', 'rebuild');
  const keys = `stored_keys FINAL WHERE hash != 0 AND segment % 64 = ${shard}`;
  assert.deepEqual(await counts(keys), [1, 0, 0]);
  // After a merge the rows come in the same order in every copy.
  await ask(former, 'OPTIMIZE TABLE stored_events FINAL');

  const changed = `stored_events WHERE ${its} AND session_id = 'changed'`;
  const changedFailed = `failed_events WHERE identity = 'mo' AND error = 'changed'`;
  const move = ['shards', 'move', String(shard), '--to', '1'];
  const before = await listShards(sluice);
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionRound));
  // Each run is killed at the next crash point. Records that are accepted meanwhile wait until the shard is open again.
  let seen = 3;
  let requestId = '';
  let revision = 0;
  for (const point of crashPoints.move) {
    await killAt(sluice, point, ...move);
    if (point === 'shard_closed') {
      await assert.rejects(createBackup('cut'), new RegExp(`shard ${shard} is being moved`));
      // Rows of the account may be missing where a query looks for them, so requests that need them are refused.
      assert.deepEqual(await statusesThatNeedAllRows(sluice), [503, 503]);
      await send();
      requestId = await submitAccepted(sluice, token, [{ identity: 'mo' }]);
      await untilItWaits(requestId);
      revision = (await showDeletion(sluice, requestId)).revision ?? 0;
      // A worker that has been paused since before the move stores nothing on either server.
      await assert.rejects(storeLate(former, shard), /VIOLATED_CONSTRAINT/);
      await assert.rejects(storeLate(next, shard), /VIOLATED_CONSTRAINT/);
    }
    if (point === 'index_renewed') {
      // A round that chose the request earlier is overtaken.
      assert.ok(((await showDeletion(sluice, requestId)).revision ?? 0) > revision);
      // The continued move compares the copy again, value by value, and copies it again although ClickHouse has had the same rows before.
      await ask(next, `ALTER TABLE stored_events UPDATE session_id = 'changed' WHERE ${its}`);
      assert.deepEqual(await counts(changed), [0, 3, 0]);
      await ask(next, `ALTER TABLE failed_events UPDATE error = 'changed' WHERE identity = 'mo'`);
      assert.deepEqual(await counts(changedFailed), [0, 1, 0]);
      await ask(next, `ALTER TABLE stored_keys DELETE WHERE hash != 0 AND segment % 64 = ${shard}`);
      assert.deepEqual(await counts(keys), [1, 0, 0]);
    }
    if (point === 'shard_switched') {
      assert.deepEqual(await counts(changed), [0, 0, 0]);
      assert.deepEqual(await counts(changedFailed), [0, 0, 0]);
      assert.deepEqual(await counts(keys), [1, 1, 0]);
    }
    if (point === 'shard_opened') {
      await untilStored(sluice);
      seen = 4;
      // A worker that has been paused since before the move has no token that this server knows.
      await assert.rejects(storeLate(next, shard), /Constraint `shard_limits`/);
    }
    const shown = await askAll(`SELECT count() FROM events WHERE ${its}`);
    assert.deepEqual(shown.map(Number), [seen, seen, seen], point);
    if (requestId !== '' && point !== 'move_ended')
      assert.notEqual((await showDeletion(sluice, requestId)).status, 'complete', point);
  }
  assert.deepEqual(await sluice.admin(...move), { server: 1, moved: [] });
  await assert.rejects(storeLate(former, shard), /VIOLATED_CONSTRAINT/);
  await untilComplete(sluice, token, requestId);
  const found = (await showDeletion(sluice, requestId)).found ?? [];
  assert.deepEqual(
    found.map(({ app_id, table, rows }) => [app_id, table, rows]),
    [
      [appId, 'stored_events', 4],
      [appId, 'stored_user_properties', 1],
      [appId, 'failed_events', 1],
    ],
  );
  assert.deepEqual(await counts(keys), [0, 1, 0]);
  assert.deepEqual(await identificationsOf('kept'), [0, 1, 0]);
  for (const table of ['stored_events', 'stored_user_properties', 'stored_user_identities', 'failed_events'])
    assert.equal((await counts(`${table} WHERE segment % 64 = ${shard}`))[0], 0, table);

  // From now on records go to the other server, which knows the keys that moved.
  await send();
  await untilStored(sluice);
  assert.deepEqual(await counts(`stored_events WHERE ${its}`), [0, 1, 0]);
  assert.deepEqual(
    (await listShards(sluice)).map(({ server, moving_to }) => [server, moving_to]),
    before.map(({ shard: number, server }) => [number === shard ? 1 : server, null]),
  );
  await assert.rejects(createBackup('cut'), /a shard was moved meanwhile/);
});

test('a restore over all servers continues after a kill, and no deleted user comes back', async () => {
  const restore = ['backup', 'restore', 'all', '--yes'] as const;
  const [moved = '', ...others] = wide.appIds;
  const back = ['shards', 'move', String(shardIn(sluice, moved)), '--to', '0'];
  await assert.rejects(
    sluice.admin(...restore),
    new RegExp(`shard ${shardIn(sluice, moved)} was on server 0 .*"${back.join(' ')}"`),
  );
  await sluice.admin(...back);
  await sendToAll('hal');
  for (const seen of await seenBy()) assert.equal(seen, 'fay 3, hal 3');
  // Segments that were stored after the backup.
  const late: [ClickHouseHandle, number, string][] = [];
  for (const appId of [moved, ...others]) {
    const server = await serverNow(appId);
    const latest = `SELECT max(segment) FROM stored_events WHERE app_id = '${appId}'`;
    late.push([server, shardIn(sluice, appId), await ask(server, latest)]);
  }
  const [tables = 0] = await counts(`system.tables WHERE database = 'sluice' AND engine LIKE '%MergeTree'`);
  // By then all tables of the last server are exchanged, and none of the primary one.
  await killAt(sluice, `table_exchanged:${Math.floor(1.2 * tables)}`, ...restore);
  for (const seen of await seenBy()) assert.doesNotMatch(seen, /gus|ida/);
  const [first] = await listShards(sluice);
  await assert.rejects(
    sluice.admin('shards', 'move', '0', '--to', first?.server === 0 ? '1' : '0'),
    /a backup is being restored, or its restore was interrupted/,
  );
  const restored = (await sluice.admin(...restore)) as { state: string; submit_again: string[] };
  assert.deepEqual([restored.state, restored.submit_again], ['kept', []]);
  assert.deepEqual(await seenBy(), ['fay 3', 'fay 3', 'fay 3']);
  assert.deepEqual((await identificationsOf('fay')).sort(), [0, 0, 1]);
  for (const [server, shard, segment] of late)
    await assert.rejects(storeLate(server, shard, segment), /Constraint `shard_limits`/);
  // The generation of each index that was restored is known, and workers load their filters of keys by it.
  for (const [server, shard] of late) {
    const generation = `SELECT max(segment) FROM stored_keys WHERE hash = 0 AND rest = ${shard}`;
    const known = await withRedis(sluice, (redis) => redis.hget(shardKeys.state(shard), 'keys_generation'));
    assert.equal(known, await ask(server, generation), `shard ${shard}`);
  }
  await sendToAll('hal');
  await deleteNow(sluice, token, [{ identity: 'fay' }]);
  assert.deepEqual(await seenBy(), ['hal 3', 'hal 3', 'hal 3']);
});

const inOrder = (...urls: readonly string[]) => ({ ...sluice.env, CLICKHOUSE_URL: urls.join() });

test('refuses servers in another order, a server named twice, and one server too few', async () => {
  const [first = '', second = '', third = ''] = servers.map(({ url }) => url);
  const isSecond = /server 1 of CLICKHOUSE_URL \(from 0\) is server 2/;
  await assert.rejects(runMigrations(inOrder(first, third, second)), isSecond);
  await assert.rejects(runAdmin(['shards', 'list'], inOrder(first, third, second)), isSecond);
  await assert.rejects(
    runMigrations(inOrder(first, second, `${second}/`)),
    /server 2 of CLICKHOUSE_URL \(from 0\) is server 1/,
  );
  await assert.rejects(
    runMigrations(inOrder(first, second)),
    /has 3 shards .* but CLICKHOUSE_URL names 2 servers/,
  );
  // No process starts without the URL of each server that has shards.
  await assert.rejects(
    runProgram('workers/main.js', [], inOrder(first)),
    /CLICKHOUSE_URL names 1 server, but shard \d is stored on server \d \(from 0\): name all servers, in their order/,
  );
});

let workerUrl = '';

/** Asserts that nothing of these servers is stored or read while the processes know that their URLs lead elsewhere; then `heal`. */
async function assertUnused(identity: string, wrong: readonly number[], what: string, heal: () => unknown) {
  const faults = wrong.map((number) => `server ${number} of CLICKHOUSE_URL (from 0) ${what}`);
  const namesAll = (text: string) => faults.every((fault) => text.includes(fault));
  await until(async () => namesAll(await missingOf(sluice)), 'readiness names the servers');
  const ofWorker = () => fetch(`${workerUrl}/health/ready`).then((reply) => reply.text());
  await until(async () => namesAll(await ofWorker()), 'so does that of the worker');
  assert.deepEqual(await statusesThatNeedAllRows(sluice), [503, 503]);
  for (const appId of wide.appIds) await sendEvents(sluice, appId, 'stay', [{ identity }]);
  const stored = async () => (await counts(`stored_events WHERE identity = '${identity}'`)).join();
  const others = servers.map((_, number) => (wrong.includes(number) ? 0 : 1)).join();
  await until(async () => (await stored()) === others, 'the records of the other servers are stored');
  // Meanwhile the running worker has its time to store them all.
  await assert.rejects(runProgram('workers/main.js', [], sluice.env), ({ message }) =>
    faults.some((fault) => message.includes(fault)),
  );
  assert.equal(await stored(), others);
  await heal();
  await untilStored(sluice);
  assert.equal(await stored(), '1,1,1');
}

test('while an address leads to another server, nothing is stored, read or counted there', async () => {
  const [first, second, third] = servers;
  const target = { port: second.port };
  proxy = await startTcpProxy(target);
  const env = inOrder(first.url, atPort(second.url, proxy.port), third.url);
  for (const process of [...sluice.api, ...former.workers]) await process.stop();
  const api = await startApiOf(sluice, env);
  const workerPort = await freePort();
  const worker = await former.addWorker({ ...env, WORKER_ADMIN_PORT: String(workerPort) });
  workerUrl = `http://127.0.0.1:${workerPort}`;
  // At its start it would refuse the wrong server.
  await until(() => worker.output().includes('"working"'), 'the worker works');
  sluice = { ...sluice, env, api: [api], baseUrl: api.baseUrl, adminUrl: api.adminUrl };
  const lead = (port: number) => {
    proxy?.cut();
    target.port = port;
    proxy?.pass();
  };
  lead(third.port);
  await assertUnused('lea', [1], 'is server 2', () => lead(second.port));
});

test('a process sends nothing to another deployment that all of its URLs lead to, at its start and later', async () => {
  const [home] = servers;
  const deployment = await ask(home, 'SELECT deployment FROM server_number');
  const become = async (name: string, registry: string) => {
    await askAll(`ALTER TABLE server_number UPDATE deployment = '${name}' WHERE 1`);
    await ask(home, registry);
    proxy?.reset();
  };
  const version = 2n ** 64n - 1n;
  await become(
    'other',
    `INSERT INTO registry (document_key, document, version) VALUES ('deployment:', '{"epoch":"other"}', ${version})`,
  );
  await assertUnused('fox', [0, 1, 2], 'belongs to another deployment than Redis', () =>
    become(deployment, `ALTER TABLE registry DELETE WHERE version = ${version}`),
  );
  // A new first server that replaces a lost one learns to which deployment the others belong.
  await ask(home, 'TRUNCATE TABLE server_number');
  await runMigrations(sluice.env);
  const numbers = await askAll('SELECT number, deployment FROM server_number');
  assert.deepEqual(
    numbers,
    [0, 1, 2].map((number) => `${number}\t${deployment}`),
  );
});

test('restores servers that are empty, and a Redis that is empty too', async () => {
  await askAll('DROP DATABASE sluice SYNC');
  await withRedis(sluice, (redis) => redis.flushall());
  const restored = (await sluice.admin('backup', 'restore', 'all', '--yes')) as { state: string };
  assert.equal(restored.state, 'restored');
  await untilRegistryIsRead(sluice);
  // The primary server's backup lacks the later requests. The parts of the other servers are from when Gus had no events any more.
  for (const seen of await seenBy()) assert.match(seen, /^fay 3(, gus \d)?, ida 3$/);
  await sendToAll('hal');
  for (const seen of await seenBy()) assert.match(seen, /^fay 3(, gus \d)?, hal 3, ida 3$/);
});
