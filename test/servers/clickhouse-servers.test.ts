// A deployment with three ClickHouse servers, each with some of the shards: which server has which rows, and that everything that reads,
// deletes or exports finds all of them.

import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import type { ShardView } from '../../src/admin/shards.js';
import { readArrived } from '../../src/clickhouse/arrived.js';
import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { migrateServers } from '../../src/clickhouse/migrate.js';
import { movedTables } from '../../src/clickhouse/move-rows.js';
import { WrongServer } from '../../src/clickhouse/right-servers.js';
import { connectServers, reachableServers, serversOf } from '../../src/clickhouse/servers.js';
import { spanningViews } from '../../src/clickhouse/spanning-views.js';
import { readConfig } from '../../src/config.js';
import { crashPoints, noCrash } from '../../src/crash-point.js';
import { createLog } from '../../src/log.js';
import type { BackupView } from '../../src/operations/backups.js';
import { moveShard } from '../../src/operations/move/move-shard.js';
import type { RestoredBackup } from '../../src/operations/restore/plan.js';
import { chooseRequests } from '../../src/privacy/deletion/choose-requests.js';
import { createPreviews } from '../../src/privacy/deletion/preview.js';
import { userTables } from '../../src/privacy/deletion/user-tables.js';
import { readUsersRecords } from '../../src/privacy/export/read.js';
import { readExport } from '../../src/privacy/export/request.js';
import { suppressUsers } from '../../src/privacy/suppression/submit.js';
import { connect, untilReady } from '../../src/redis/client.js';
import { registryKeys, shardKeys, shardOf } from '../../src/redis/keys.js';
import { readRegistry } from '../../src/registry/registry.js';
import {
  clickhouseOf,
  followShardTable,
  refreshShardTable,
  spreadEvenly,
} from '../../src/registry/shard-servers.js';
import { expireRows, type RetentionContext } from '../../workers/retention.js';
import { createTestAccount, type TestAccount, untilRegistryIsRead } from '../harness/accounts.js';
import { atPort, type ClickHouseHandle, credentials } from '../harness/clickhouse.js';
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
  submitWith,
  untilComplete,
} from '../harness/deletion.js';
import { paths, post } from '../harness/ingestion.js';
import { withRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startSluice, startTcpProxy } from '../harness/services.js';
import { runProgram } from '../harness/sluice.js';
import { readRecords, submitExport, untilExportComplete } from '../harness/user-export.js';
import { until, within } from '../harness/wait.js';
import { test } from '../support/test.js';

const serverCount = 3;
const shards = 6;
/** Well below the 120 s after which a statement to a server that hangs fails. */
const hangMsMax = 90_000;

let sluice: SluiceHandle;
/** An account with environments on all servers. `appIds` has one of each, in the order of the servers. */
let wide: TestAccount;
let token: string;

before(async () => {
  sluice = await startSluice({
    clickhouseServers: serverCount,
    env: { SHARDS: String(shards), JOB_LOCK_MS: '1000' },
  });
  const account = await accountOnAll();
  token = await getToken(sluice, account);
  wide = { ...account, appIds: oneOnEach(account) };
});

after(async () => {
  await sluice?.stop();
});

/** The server that a first start gives a shard. */
const serverOf = (appId: string) => shardOf(appId, shards) % serverCount;

/** Makes accounts until one has environments on all servers, since app_ids are random. */
async function accountOnAll(): Promise<TestAccount> {
  for (;;) {
    const names = Array.from({ length: 16 }, (_, index) => `Environment ${index}`);
    const account = await createTestAccount(sluice, 'Wide', names);
    if (oneOnEach(account).length === serverCount) return account;
  }
}

/** Makes accounts until one has its single environment on this server. */
async function accountOn(server: number): Promise<TestAccount> {
  for (;;) {
    const account = await createTestAccount(sluice, 'Narrow', ['Main Production']);
    if (serverOf(account.appIds[0] ?? '') === server) return account;
  }
}

function oneOnEach({ appIds }: TestAccount): string[] {
  return sluice.clickhouses.flatMap((_, server) => appIds.find((id) => serverOf(id) === server) ?? []);
}

async function untilAllStored(): Promise<void> {
  await withRedis(sluice, (redis) =>
    until(async () => {
      const waiting = Array.from({ length: shards }, (_, shard) => redis.zcard(shardKeys.segments(shard)));
      return (await Promise.all(waiting)).every((count) => count === 0);
    }, 'no segment is outstanding'),
  );
}

async function ask(server: ClickHouseHandle, sql: string, user = server.reader): Promise<string> {
  const reply = await fetch(`${server.origin}/?database=sluice`, {
    method: 'POST',
    headers: credentials(user),
    body: sql,
  });
  const text = await reply.text();
  assert.equal(reply.status, 200, text);
  return text.trim();
}

/** How many rows of a table or view each server sees. */
const counts = (from: string) =>
  Promise.all(
    sluice.clickhouses.map(async (server) =>
      Number(await ask(server, `SELECT count() FROM ${from}`, server.tester)),
    ),
  );

/** Sends records of one user under two names, and of somebody else, to each of the environments. */
async function writeUsers(account: TestAccount, identity: string, userId: string): Promise<void> {
  for (const appId of account.appIds) {
    await sendEvents(sluice, appId, 'go', [{ identity }, { user_id: userId }]);
    await sendIdentify(sluice, appId, userId, identity);
    await sendProperties(sluice, appId, 'go', [identity]);
    await sendEvents(sluice, appId, 'stay', [{ identity: `${identity}x` }]);
  }
  await untilAllStored();
}

/** Stores a row of a shard in a segment that no process knows; by default an old one. */
const storeLate = (
  server: ClickHouseHandle,
  shard: number,
  segment = String(64 * 26_562_500_000_000 + shard),
) =>
  ask(
    server,
    `INSERT INTO stored_events (app_id, event, segment) VALUES ('1', 'Late', ${segment})`,
    server.tester,
  );

/** The server that has an environment's rows now. */
async function serverNow(appId: string): Promise<ClickHouseHandle> {
  const listed = (await sluice.admin('shards', 'list')) as ShardView[];
  return sluice.clickhouses[listed[shardOf(appId, shards)]?.server ?? -1] as ClickHouseHandle;
}

/** Runs `work` like a process that has these URLs and was started before it knew which server has which shard. */
async function asProcessWith<T>(
  urls: readonly string[],
  work: (context: RetentionContext) => Promise<T>,
  database = 'sluice',
): Promise<T> {
  const config = readConfig({
    ...sluice.env,
    CLICKHOUSE_URL: urls.join(','),
    CLICKHOUSE_DATABASE: database,
  });
  const log = createLog('test', 'silent');
  const redis = connect(config, log);
  const clickhouse = connectServers(urls, config.clickhouseDatabase);
  try {
    await untilReady(redis, 20_000);
    const epoch = (await redis.get(registryKeys.epoch)) ?? '';
    return await work({ redis, clickhouse, config, shards, epoch, crash: noCrash, log });
  } finally {
    redis.disconnect();
    await clickhouse.close();
  }
}

const identificationsOf = (identity: string) =>
  counts(`stored_user_identities WHERE identity = '${identity}'`);

test('each shard is stored by one server, and every server answers for all', async () => {
  await writeUsers(wide, 'ada', '41');
  assert.deepEqual(await counts("stored_events WHERE app_id != ''"), [3, 3, 3]);
  for (const [server, appId] of wide.appIds.entries())
    assert.deepEqual(
      await counts(`stored_events WHERE app_id = '${appId}'`),
      sluice.clickhouses.map((_, number) => (number === server ? 3 : 0)),
    );
  assert.deepEqual(await counts('events'), [9, 9, 9]);
  assert.deepEqual(await counts('user_properties'), [3, 3, 3]);
  assert.deepEqual(await counts('user_identities'), [3, 3, 3]);
  assert.deepEqual(await counts('users'), [6, 6, 6]);
  const merged = `SELECT app_id, identity, user_properties['plan'] FROM user_events WHERE identity = 'ada' ORDER BY app_id`;
  const expected = wide.appIds.toSorted().flatMap((appId) => Array(2).fill(`${appId}\tada\tpro`));
  for (const server of sluice.clickhouses)
    assert.deepEqual((await ask(server, merged)).split('\n'), expected);
});

test('a dry run, an export and a deletion reach the rows on all servers, and nothing else', async () => {
  const users = [{ identity: 'ada' }, { identity: 'nobody' }];
  // Each server has two events, an identification and properties of the user.
  const preview = await submitWith(sluice, token, { users, dry_run: true });
  assert.equal(preview.status, 200, preview.text);
  const found = JSON.parse(preview.text) as { users_found: number; found?: { rows: number }[] };
  assert.equal(found.users_found, 1, preview.text);

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
  for (const place of userTables) {
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
  const [first, second, third] = sluice.clickhouses as [ClickHouseHandle, ClickHouseHandle, ClickHouseHandle];
  const narrow = await accountOn(0);
  const itsToken = await getToken(sluice, narrow);
  await second.kill9();
  for (const appId of [...wide.appIds, ...narrow.appIds])
    await sendEvents(sluice, appId, 'go', [{ identity: 'eve' }]);
  const stored = `SELECT count() FROM stored_events WHERE identity = 'eve'`;
  const isStoredOn = async (server: ClickHouseHandle, rows: number) =>
    (await ask(server, stored, server.tester)) === String(rows);
  const deadline = { deadlineMs: 60_000, what: 'the servers that are there store their records' };
  await until(async () => (await isStoredOn(first, 2)) && (await isStoredOn(third, 1)), deadline);

  await until(async () => {
    const reply = await fetch(`${sluice.baseUrl}/health/ready`);
    const { ready, missing } = (await reply.json()) as { ready: boolean; missing: string[] };
    return ready && missing.some((text) => text.startsWith('clickhouse server 1:'));
  }, 'readiness names the server');
  await until(async () => {
    const metrics = await (await fetch(`${sluice.adminUrl}/metrics`)).text();
    return ['server="0"} 1', 'server="1"} 0'].every((line) =>
      metrics.includes(`\nsluice_clickhouse_up{${line}\n`),
    );
  }, 'the metrics name the server');

  await assert.rejects(sluice.admin('backup', 'create'), /ClickHouse server 1 \(from 0\) does not answer/);
  const all = "SELECT count() FROM events WHERE identity = 'eve'";
  await assert.rejects(ask(first, all));
  assert.equal(await ask(first, `${all} SETTINGS skip_unavailable_shards = 1`), '3');

  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionRound));
  const waiting = await submitAccepted(sluice, token, [{ identity: 'eve' }]);
  await deleteNow(sluice, itsToken, [{ identity: 'eve' }]);
  assert.equal(await isStoredOn(first, 1), true);
  const exported = await submitExport(sluice, itsToken, [{ identity: 'nobody' }]);
  await untilExportComplete(sluice, itsToken, exported);
  assert.deepEqual(await readRecords(sluice, itsToken, exported), []);
  await until(
    async () => (await showDeletion(sluice, waiting)).state === 'clickhouse_unavailable',
    'the deletion says what it waits for',
  );
  // A worker that was started when there was one server does not take the deletion either.
  const chosen = await asProcessWith([first.url], chooseRequests);
  assert.deepEqual([chosen.requests, chosen.waitsForServers], [[], true]);
  // Commands that show the whole deployment show what the other servers have.
  const index = (await sluice.admin('keys-index', 'status')) as { shards: { complete: boolean | null }[] };
  assert.deepEqual(
    index.shards.map(({ complete }) => complete),
    Array.from({ length: shards }, (_, shard) => (shard % serverCount === 1 ? null : true)),
  );
  assert.deepEqual(await sluice.admin('failed', 'list'), []);
  assert.deepEqual(await sluice.admin('failed', 'retry'), { retried: 0, left: 0, servers_away: [1] });
  const arrived = await asProcessWith([first.url], ({ clickhouse }) =>
    readArrived(clickhouse, { appId: wide.appIds[0] ?? '', userIds: [], identities: ['eve'] }, true),
  );
  assert.equal(arrived.events.length, 1);

  await second.restart();
  await untilComplete(sluice, token, waiting);
  for (const server of sluice.clickhouses) assert.equal(await ask(server, all), '0');
  assert.deepEqual((await showDeletion(sluice, waiting)).found?.length, 3);
});

test('while the first server is away records are accepted, all others are stored, and deletions wait', async () => {
  const [home, second] = sluice.clickhouses as [ClickHouseHandle, ClickHouseHandle, ClickHouseHandle];
  const narrow = await accountOn(1);
  const itsToken = await getToken(sluice, narrow);
  await home.kill9();
  for (const appId of [...wide.appIds, ...narrow.appIds])
    await sendEvents(sluice, appId, 'go', [{ identity: 'joe' }]);
  const all = `SELECT count() FROM events WHERE identity = 'joe'`;
  await until(
    async () => (await ask(second, `${all} SETTINGS skip_unavailable_shards = 1`)) === '3',
    'the records of the others are stored',
  );
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionRound));
  // The user's rows are on another server, but the tables that make the deletion certain are on the primary one.
  const requestId = await submitAccepted(sluice, itsToken, [{ identity: 'joe' }]);
  await until(
    async () => (await showDeletion(sluice, requestId)).state === 'clickhouse_unavailable',
    'the deletion waits',
  );
  assert.equal(await ask(second, `${all} SETTINGS skip_unavailable_shards = 1`), '3');
  // A move between the other servers needs the primary one too, and would close its shard.
  const placeOf = async (shard: number) => ((await sluice.admin('shards', 'list')) as ShardView[])[shard];
  const movable = 1;
  assert.equal((await placeOf(movable))?.server, 1);
  await assert.rejects(
    sluice.admin('shards', 'move', String(movable), '--to', '2'),
    /ClickHouse server 0 \(from 0\) does not answer$/,
  );
  assert.deepEqual((await placeOf(movable))?.moving_to, null);
  await home.restart();
  await untilComplete(sluice, itsToken, requestId);
  await untilAllStored();
  assert.equal(await ask(second, all), '3');
});

test('a server that hangs holds up neither the deletions of others nor a look at the shards', async () => {
  const [, second] = sluice.clickhouses as [ClickHouseHandle, ClickHouseHandle, ClickHouseHandle];
  const narrow = await accountOn(0);
  const itsToken = await getToken(sluice, narrow);
  await sendEvents(sluice, narrow.appIds[0] ?? '', 'go', [{ identity: 'eve' }]);
  second.sigstop();
  try {
    await withRedis(sluice, (redis) => redis.del(registryKeys.deletionRound));
    await deleteNow(sluice, itsToken, [{ identity: 'eve' }]);
    const listed = await within(sluice.admin('shards', 'list') as Promise<ShardView[]>, hangMsMax);
    assert.deepEqual(
      listed.map(({ rows }) => rows === null),
      Array.from({ length: shards }, (_, shard) => shard % serverCount === 1),
    );
  } finally {
    second.sigcont();
  }
});

test('a move that is copying can be reverted, even after a kill; two moves at once lose and duplicate nothing; then the shards are balanced', async () => {
  const [appId = ''] = wide.appIds;
  const shard = shardOf(appId, shards);
  const next = sluice.clickhouses[1] as ClickHouseHandle;
  const its = `app_id = '${appId}' AND identity = 'back'`;
  const send = () => sendEvents(sluice, appId, 'stay', [{ identity: 'back' }]);
  const moveTo = (server: number) => ['shards', 'move', String(shard), '--to', String(server)];
  const killed = (server: number, point: string) =>
    assert.rejects(
      runProgram('src/admin/main.js', moveTo(server), { ...sluice.env, CRASH_AT: point }),
      /SIGKILL/,
      point,
    );
  const seen = async (rows: number) => {
    for (const server of sluice.clickhouses)
      assert.equal(await ask(server, `SELECT count() FROM events WHERE ${its}`), String(rows));
  };
  await send();
  await untilAllStored();
  const listed = async () =>
    ((await sluice.admin('shards', 'list')) as ShardView[]).find((each) => each.shard === shard);
  assert.equal((await listed())?.moved_rows, null);
  await killed(1, 'partition_copied');
  const half = await listed();
  const arrived = `SELECT count() FROM stored_events WHERE app_id != '' AND segment % 64 = ${shard}`;
  assert.deepEqual(
    [half?.server, half?.moving_to, String(half?.moved_rows)],
    [0, 1, await ask(next, arrived, next.tester)],
  );
  assert.ok(Number(half?.moved_rows) > 0 && Number(half?.moved_rows) <= Number(half?.rows));
  assert.equal(await ask(next, `SELECT count() FROM stored_events WHERE ${its}`, next.tester), '1');
  await send();
  await killed(0, 'rows_removed');
  await seen(1);
  await assert.rejects(sluice.admin(...moveTo(1)), /already moving to server 0/);
  const moving = await listed();
  assert.deepEqual([moving?.server, moving?.moving_to], [0, 0]);
  assert.deepEqual(await sluice.admin(...moveTo(0)), { server: 0, moved: [shard] });
  await untilAllStored();
  await seen(2);
  assert.deepEqual(await counts(`stored_events WHERE ${its}`), [2, 0, 0]);
  await assert.rejects(storeLate(next, shard), /VIOLATED_CONSTRAINT/);
  await assert.rejects(sluice.admin(...moveTo(9)), /there is no server 9/);

  // The move that began first ends when the other one continues it, or the other one finds nothing to do.
  const other = wide.appIds[2] ?? '';
  await sendEvents(sluice, other, 'stay', [{ identity: 'two' }]);
  await untilAllStored();
  const moveOther = () => sluice.admin('shards', 'move', String(shardOf(other, shards)), '--to', '1');
  for (const ended of await Promise.allSettled([moveOther(), moveOther()]))
    if (ended.status === 'rejected')
      assert.match(String(ended.reason), /another process has continued the move|an insert is still running/);
  await moveOther();
  assert.deepEqual(await counts(`stored_events WHERE app_id = '${other}' AND identity = 'two'`), [0, 1, 0]);

  const { moved } = (await sluice.admin('shards', 'balance')) as { moved: { shard: number }[] };
  assert.equal(moved.length, 1);
  const balanced = (await sluice.admin('shards', 'list')) as ShardView[];
  for (const server of [0, 1, 2]) assert.equal(balanced.filter((each) => each.server === server).length, 2);
});

test('a process that was paused while its move was taken back copies nothing', async () => {
  const [appId = ''] = wide.appIds;
  const shard = shardOf(appId, shards);
  const its = `stored_events WHERE app_id = '${appId}' AND identity = 'back'`;
  const config = readConfig(sluice.env);
  const log = createLog('test', 'silent');
  const redis = connect(config, log);
  const clickhouse = connectServers(config.clickhouseUrls, config.clickhouseDatabase);
  // The process stops before it closes the shard on the server that has it, after it has checked that the move is its own.
  let isTakenBack = false;
  const command = clickhouse.command.bind(clickhouse);
  clickhouse.command = async (parameters) => {
    if (!isTakenBack && parameters.query.includes(`SELECT ${shard}, 'door'`)) {
      isTakenBack = true;
      await sluice.admin('shards', 'move', String(shard), '--to', '0');
    }
    return command(parameters);
  };
  try {
    await untilReady(redis, 20_000);
    await refreshShardTable(redis, serversOf(clickhouse));
    const moved = moveShard({ redis, clickhouse, config, log }, shard, 1, () => undefined);
    await assert.rejects(moved, /another process has continued the move/);
  } finally {
    redis.disconnect();
    await clickhouse.close();
  }
  assert.deepEqual([isTakenBack, await counts(its)], [true, [2, 0, 0]]);
  // The process has closed the shard where it is stored. The command that names this server opens it again.
  await sendEvents(sluice, appId, 'stay', [{ identity: 'back' }]);
  assert.deepEqual(await sluice.admin('shards', 'move', String(shard), '--to', '0'), {
    server: 0,
    moved: [],
  });
  await untilAllStored();
  assert.deepEqual(await counts(its), [3, 0, 0]);
});

/** The users, among some, whose events each server sees. */
const seenBy = () =>
  Promise.all(
    sluice.clickhouses.map((server) =>
      ask(
        server,
        `SELECT arrayStringConcat(arraySort(groupArray(concat(identity, ' ', toString(rows)))), ', ') FROM (
          SELECT identity, count() AS rows FROM events WHERE identity IN ('fay', 'gus', 'hal', 'ida') GROUP BY identity)`,
      ),
    ),
  );

async function killedAdmin(point: string, ...args: readonly string[]): Promise<void> {
  const killed = runProgram('src/admin/main.js', args, { ...sluice.env, CRASH_AT: point });
  await assert.rejects(killed, /ended with SIGKILL/, point);
  // Removes the locks of the killed process, so that the next one need not wait until they expire.
  await withRedis(sluice, (redis) =>
    redis.del(registryKeys.restoreLock, registryKeys.maintenanceLock, registryKeys.backupLock),
  );
}

const sendToAll = async (identity: string) => {
  for (const appId of wide.appIds) await sendEvents(sluice, appId, 'stay', [{ identity }]);
  await untilAllStored();
};

test('a backup covers all servers, the primary one first, even after an interruption', async () => {
  for (const identity of ['fay', 'gus', 'ida']) await sendToAll(identity);
  // The next test tries to continue this backup.
  await killedAdmin('home_backed_up', 'backup', 'create', 'cut');
  const [listed] = (await sluice.admin('backup', 'list')) as BackupView[];
  assert.equal(listed?.status, 'unknown');
  // Only the primary server has made its part by then.
  await assert.rejects(sluice.admin('backup', 'restore', 'cut', '--yes'), /the backup cut has no end mark/);

  await killedAdmin('home_backed_up', 'backup', 'create', 'all');
  // The parts of the other servers are of a later time than that of the primary one.
  await deleteNow(sluice, token, [{ identity: 'gus' }]);
  const [, , appId = ''] = wide.appIds;
  await sendIdentify(sluice, appId, '62', 'fay');
  await untilAllStored();
  const made = (await sluice.admin('backup', 'create', 'all')) as BackupView;
  assert.equal(made.status, 'complete');
  // Only the primary server has its part of the base, as if the others had been added since.
  const based = (await sluice.admin('backup', 'create', 'based', '--base', 'cut')) as BackupView;
  assert.equal(based.status, 'complete');
  assert.ok((based.bytes ?? 0) < (made.bytes ?? 0), 'the backup has only what has changed since its base');
  await assert.rejects(
    sluice.admin('backup', 'create', 'wrong', '--base', 'none'),
    /there is no backup none/,
  );
  const names = ((await sluice.admin('backup', 'list')) as BackupView[]).map(({ name }) => name);
  assert.deepEqual(names.sort(), ['all', 'based', 'cut']);
  await deleteNow(sluice, token, [{ identity: 'ida' }]);
});

test('a move of a shard that is killed at each step and continued loses and duplicates nothing', async () => {
  const [appId = ''] = wide.appIds;
  const shard = shardOf(appId, shards);
  const its = `app_id = '${appId}' AND identity = 'mo'`;
  const send = () => sendEvents(sluice, appId, 'go', [{ identity: 'mo' }]);
  for (let event = 0; event < 3; event += 1) await send();
  await sendProperties(sluice, appId, 'go', ['mo']);
  await untilAllStored();
  // The shard also gets a failed row, and keys in the index.
  await ask(
    sluice.clickhouse,
    `INSERT INTO failed_events (table_name, segment, line, app_id, identity) VALUES ('events', ${64 + shard}, 1, '${appId}', 'mo')`,
    sluice.clickhouse.tester,
  );
  await post(sluice.baseUrl, paths.track, {
    app_id: appId,
    event: 'Keyed',
    identity: 'key',
    idempotency_key: 'moved-1',
  });
  await untilAllStored();
  await sluice.admin('keys-index', 'rebuild');
  const keys = `stored_keys FINAL WHERE hash != 0 AND segment % 64 = ${shard}`;
  const keyCounts = await counts(keys);
  assert.deepEqual(keyCounts, [1, 0, 0]);

  const changed = `stored_events WHERE ${its} AND session_id = 'changed'`;
  const changedFailed = `failed_events WHERE identity = 'mo' AND error = 'changed'`;
  await sendIdentify(sluice, appId, '63', 'kept');
  await untilAllStored();
  // After a merge the rows come in the same order in every copy.
  await ask(sluice.clickhouse, 'OPTIMIZE TABLE stored_events FINAL', sluice.clickhouse.tester);
  // Each run is killed at the next crash point. Records that are accepted meanwhile wait until the shard is open again.
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionRound));
  let seen = 3;
  let requestId = '';
  let revision = 0;
  const [former, next] = sluice.clickhouses as [ClickHouseHandle, ClickHouseHandle];
  const move = ['shards', 'move', String(shard), '--to', '1'];
  const before = (await sluice.admin('shards', 'list')) as ShardView[];
  const ofShard = (table: string) =>
    `FROM ${table} WHERE segment % 64 = ${shard}${table === 'stored_keys' ? ` AND hash != 0 OR hash = 0 AND rest = ${shard}` : ''}`;
  const partitions = await ask(
    former,
    `SELECT sum(n) FROM (${movedTables.map((table) => `SELECT uniqExact(_partition_id) AS n ${ofShard(table)}`).join(' UNION ALL ')})`,
    former.tester,
  );
  for (const point of crashPoints.move) {
    // The kill comes right after the last partition was copied.
    await killedAdmin(point === 'partition_copied' ? `${point}:${partitions}` : point, ...move);
    if (point === 'shard_closed') {
      await assert.rejects(
        sluice.admin('backup', 'create', 'cut'),
        new RegExp(`shard ${shard} is being moved`),
      );
      // Rows of the account may be missing where a query looks for them, so requests that need them are refused.
      for (const [path, body] of [
        ['user_deletion', { users: [{ identity: 'mo' }], dry_run: true }],
        ['user_suppression', { users: [{ identity: 'nobody' }], suppress: true }],
      ] as const) {
        const { status } = await fetch(`${sluice.baseUrl}/api/public/v0/${path}`, {
          method: 'POST',
          headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
          body: JSON.stringify(body),
        });
        assert.equal(status, 503, path);
      }
      await send();
      requestId = await submitAccepted(sluice, token, [{ identity: 'mo' }]);
      await until(
        async () => (await showDeletion(sluice, requestId)).state === 'clickhouse_unavailable',
        'the deletion waits for the move',
      );
      revision = (await showDeletion(sluice, requestId)).revision ?? 0;
      // A worker that has been paused since before the move stores nothing on either server.
      await assert.rejects(storeLate(former, shard), /VIOLATED_CONSTRAINT/);
      await assert.rejects(storeLate(next, shard), /VIOLATED_CONSTRAINT/);
    }
    if (point === 'partition_copied') {
      // A round that chose the request earlier is overtaken.
      assert.ok(((await showDeletion(sluice, requestId)).revision ?? 0) > revision);
      // The continued move compares the copy again, value by value, and copies it again although ClickHouse has had the same rows before.
      await ask(
        next,
        `ALTER TABLE stored_events UPDATE session_id = 'changed' WHERE ${its} SETTINGS mutations_sync = 2`,
        next.tester,
      );
      assert.deepEqual(await counts(changed), [0, 3, 0]);
      await ask(
        next,
        `ALTER TABLE failed_events UPDATE error = 'changed' WHERE identity = 'mo' SETTINGS mutations_sync = 2`,
        next.tester,
      );
      await ask(
        next,
        `ALTER TABLE stored_keys DELETE WHERE hash != 0 AND segment % 64 = ${shard} SETTINGS mutations_sync = 2`,
        next.tester,
      );
      assert.deepEqual(await counts(changedFailed), [0, 1, 0]);
      assert.deepEqual(await counts(keys), [1, 0, 0]);
    }
    if (point === 'shard_opened') {
      await untilAllStored();
      seen = 4;
      // A worker that has been paused since before the move has no token that this server knows.
      await assert.rejects(storeLate(next, shard), /Constraint `shard_limits`/);
    }
    if (point === 'shard_switched') {
      assert.deepEqual(await counts(changed), [0, 0, 0]);
      assert.deepEqual(await counts(changedFailed), [0, 0, 0]);
      assert.deepEqual(await counts(keys), [1, 1, 0]);
    }
    for (const server of sluice.clickhouses)
      assert.equal(await ask(server, `SELECT count() FROM events WHERE ${its}`), String(seen), point);
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
  await untilAllStored();
  assert.deepEqual(await counts(`stored_events WHERE ${its}`), [0, 1, 0]);
  const listed = (await sluice.admin('shards', 'list')) as ShardView[];
  assert.deepEqual(
    listed.map(({ shard: number, server, moving_to }) => [number, server, moving_to]),
    before.map(({ shard: number, server }) => [number, number === shard ? 1 : server, null]),
  );
  await assert.rejects(sluice.admin('backup', 'create', 'cut'), /a shard was moved meanwhile/);
});

test('a restore over all servers continues after a kill, and no deleted user comes back', async () => {
  const restore = ['backup', 'restore', 'all', '--yes'] as const;
  const [moved = '', ...others] = wide.appIds;
  const back = ['shards', 'move', String(shardOf(moved, shards)), '--to', '0'];
  await assert.rejects(
    sluice.admin(...restore),
    new RegExp(`shard ${shardOf(moved, shards)} was on server 0 .*"${back.join(' ')}"`),
  );
  await sluice.admin(...back);
  await sendToAll('hal');
  for (const seen of await seenBy()) assert.equal(seen, 'fay 3, hal 3');
  // Segments that were stored after the backup.
  const late: [ClickHouseHandle, number, string][] = [];
  for (const appId of [moved, ...others]) {
    const server = await serverNow(appId);
    const latest = `SELECT max(segment) FROM stored_events WHERE app_id = '${appId}'`;
    late.push([server, shardOf(appId, shards), await ask(server, latest, server.tester)]);
  }
  const tables = await ask(
    sluice.clickhouse,
    `SELECT count() FROM system.tables WHERE database = 'sluice' AND engine LIKE '%MergeTree'`,
    sluice.clickhouse.tester,
  );
  // By then all tables of the last server are exchanged, and none of the primary one.
  const between = `table_exchanged:${Math.floor(1.2 * Number(tables))}`;
  await killedAdmin(between, ...restore);
  for (const seen of await seenBy()) assert.doesNotMatch(seen, /gus|ida/);
  const listed = (await sluice.admin('shards', 'list')) as ShardView[];
  await assert.rejects(
    sluice.admin('shards', 'move', '0', '--to', listed[0]?.server === 0 ? '1' : '0'),
    /a backup is being restored, or its restore was interrupted/,
  );
  const restored = (await sluice.admin(...restore)) as RestoredBackup;
  assert.deepEqual([restored.state, restored.submit_again], ['kept', []]);
  assert.deepEqual(await seenBy(), ['fay 3', 'fay 3', 'fay 3']);
  assert.deepEqual((await identificationsOf('fay')).sort(), [0, 0, 1]);
  for (const [server, shard, segment] of late)
    await assert.rejects(storeLate(server, shard, segment), /Constraint `shard_limits`/);
  // The generation of each index that was restored is known, and workers load their filters of keys by it.
  for (const appId of wide.appIds) {
    const shard = shardOf(appId, shards);
    const server = await serverNow(appId);
    const generation = `SELECT max(segment) FROM stored_keys WHERE hash = 0 AND rest = ${shard}`;
    const known = await withRedis(sluice, (redis) => redis.hget(shardKeys.state(shard), 'keys_generation'));
    assert.equal(known, await ask(server, generation, server.tester), `shard ${shard}`);
  }
  await sendToAll('hal');
  await deleteNow(sluice, token, [{ identity: 'fay' }]);
  assert.deepEqual(await seenBy(), ['hal 3', 'hal 3', 'hal 3']);
});

test('refuses servers in another order, a server named twice, and one server too few', async () => {
  const urls = sluice.clickhouses.map(({ url }) => url);
  const [first = '', second = '', third = ''] = urls;
  const migrated = (these: readonly string[]) =>
    migrateServers({ urls: these, database: 'sluice', cluster: 'sluice' });
  await assert.rejects(migrated([first, third, second]), /server 1 of CLICKHOUSE_URL \(from 0\) is server 2/);
  await assert.rejects(
    migrated([first, second, `${second}/`]),
    /server 2 of CLICKHOUSE_URL \(from 0\) is server 1/,
  );
  await assert.rejects(migrated([first, second]), /has 3 shards .* but CLICKHOUSE_URL names 2 servers/);
  assert.throws(() => spreadEvenly(2, serverCount), /SHARDS is 2, but CLICKHOUSE_URL names 3 servers/);
  const idsOfViews = () =>
    ask(sluice.clickhouse, `${spanning('sluice')} FORMAT TSV`, sluice.clickhouse.tester);
  const ids = await idsOfViews();
  assert.deepEqual(await migrated(urls), []);
  assert.equal(await idsOfViews(), ids);
  // No process starts without the URL of each server that has shards.
  await assert.rejects(
    runProgram('workers/main.js', [], { ...sluice.env, CLICKHOUSE_URL: first }),
    /CLICKHOUSE_URL names 1 server, but shard \d is stored on server \d \(from 0\): name all servers, in their order/,
  );
});

test('a process with another order of servers, or with an address that now leads to another server, reads nothing there', async () => {
  const [first, second, third] = sluice.clickhouses as [ClickHouseHandle, ClickHouseHandle, ClickHouseHandle];
  const isWrong = (error: Error) => {
    assert.ok(error instanceof WrongServer);
    assert.match(error.message, /server 1 of CLICKHOUSE_URL \(from 0\) is server 2/);
    return true;
  };
  const readOn = async (client: ClickHouseClient | undefined) =>
    (await client?.query({ query: 'SELECT 1', format: 'TabSeparated' }))?.text();
  await asProcessWith([first.url, third.url, second.url], async ({ redis, clickhouse, log }) => {
    const servers = serversOf(clickhouse);
    await assert.rejects(readOn(servers.all[1]), isWrong);
    await assert.rejects(
      followShardTable(redis, clickhouse, log),
      /server 1 of CLICKHOUSE_URL \(from 0\) is server 2/,
    );
    assert.deepEqual([...(await reachableServers(servers))], [0]);
  });
  const target = { port: second.port };
  const proxy = await startTcpProxy(target);
  await asProcessWith([first.url, atPort(second.url, proxy.port), third.url], async ({ clickhouse }) => {
    const servers = serversOf(clickhouse);
    assert.equal(await readOn(servers.all[1]), '1\n');
    proxy.cut();
    await assert.rejects(readOn(servers.all[1]));
    target.port = third.port;
    proxy.pass();
    await assert.rejects(readOn(servers.all[1]), isWrong);
    assert.deepEqual(
      [[...(await reachableServers(servers))], servers.misconfigurations().length],
      [[0, 2], 1],
    );
    target.port = second.port;
    proxy.reset();
    // The next statement may still use the connection before its end is noticed.
    const readAfterReset = await readOn(servers.all[1]).catch((error: NodeJS.ErrnoException) => error);
    if (readAfterReset instanceof Error) assert.equal(readAfterReset.code, 'ECONNRESET');
    assert.equal(await readOn(servers.all[1]), '1\n');
  });
  await proxy.close();
});

test('a process whose CLICKHOUSE_URL is out of date answers nothing from one server alone', async () => {
  const [first] = sluice.clickhouses as [ClickHouseHandle];
  const asBefore = <T>(work: Parameters<typeof asProcessWith<T>>[1]) => asProcessWith([first.url], work);
  const notNamed = /CLICKHOUSE_URL names 1 server, but shard \d is stored on server \d/;
  const targets = ['inobody'] as const;
  await assert.rejects(
    asBefore(({ clickhouse, ...context }) =>
      createPreviews(clickhouse).preview(context, wide.accountId, targets),
    ),
    notNamed,
  );
  await assert.rejects(
    asBefore(async (context) => {
      const { deployment } = await readRegistry(context.redis);
      return suppressUsers({ ...context, secret: deployment?.secret ?? '' }, wide.accountId, targets);
    }),
    notNamed,
  );
  const exported = await submitExport(sluice, token, [{ identity: 'nobody' }]);
  await untilExportComplete(sluice, token, exported);
  await assert.rejects(
    asBefore(async ({ redis, clickhouse }) => {
      const request = await readExport(redis, exported);
      assert.ok(request !== undefined);
      const reading = { redis, clickhouse, database: 'sluice' };
      for await (const _ of readUsersRecords(reading, request, new AbortController().signal));
    }),
    notNamed,
  );
  // No row is that old.
  for (const appId of wide.appIds) await sluice.admin('environments', 'set', appId, '--retain-days', '3650');
  assert.equal(await asBefore((context) => expireRows(context, Date.now())), 'busy');
  await asBefore(async ({ redis, clickhouse, log }) => {
    await assert.rejects(followShardTable(redis, clickhouse, log), notNamed);
    const [, appId = ''] = wide.appIds;
    assert.throws(() => clickhouseOf(clickhouse, appId), notNamed);
  });
});

/** The ids of the views that span servers. */
const spanning = (database: string) =>
  `SELECT name, uuid FROM system.tables WHERE database = '${database}' AND engine = 'Distributed' ORDER BY name`;

test('a deployment with one server gets more, and every server shows all rows', async () => {
  const [first, ...others] = sluice.clickhouses.map(({ testerUrl }) => testerUrl) as [string, ...string[]];
  const database = 'grown';
  await migrateServers({ urls: [first], database, cluster: undefined });
  const [server, , third] = sluice.clickhouses as [ClickHouseHandle, ClickHouseHandle, ClickHouseHandle];
  await server.query(
    `INSERT INTO ${database}.stored_events (app_id, event, identity, segment) VALUES ('1', 'Old', 'ada', 64)`,
  );
  const names = spanningViews.map((view) => `'${view}'`).join(', ');
  const isThere = `SELECT count() FROM system.tables WHERE database = '${database}' AND name IN (${names})`;
  let isMigrated = false;
  const migrating = migrateServers({ urls: [first, ...others], database, cluster: 'sluice' }).finally(() => {
    isMigrated = true;
  });
  // Each view must exist at every moment.
  while (!isMigrated) assert.equal(await server.query(isThere), `${spanningViews.length}\n`);
  await migrating;
  assert.equal((await server.query(spanning(database))).trim().split('\n').length, spanningViews.length);
  // Leaves the tables of a later version that changes the columns and was killed before it had replaced a view.
  await server.query(`ALTER TABLE ${database}.users DROP COLUMN email`);
  await server.query(`CREATE TABLE ${database}.next_users AS ${database}.users`);
  await migrateServers({ urls: [first, ...others], database, cluster: 'sluice' });
  assert.equal(await server.query(`SELECT count() FROM ${database}.users WHERE email = ''`), '1\n');
  assert.equal(
    await server.query(
      `SELECT count() FROM system.tables WHERE database = '${database}' AND startsWith(name, 'next_')`,
    ),
    '0\n',
  );
  assert.equal(await third.query(`SELECT event FROM ${database}.events`), 'Old\n');
  assert.equal(await third.query(`SELECT count() FROM ${database}.stored_events`), '0\n');
});

test('a process sends nothing to another deployment that all of its URLs lead to, at its start and later', async () => {
  const urls = sluice.clickhouses.map(({ testerUrl }) => testerUrl);
  const database = 'foreign';
  await migrateServers({ urls, database, cluster: 'sluice' });
  const onAll = (sql: string) =>
    Promise.all(sluice.clickhouses.map((server) => ask(server, sql, server.tester)));
  const [home] = sluice.clickhouses as [ClickHouseHandle];
  const isWrong = (error: Error) =>
    error instanceof WrongServer &&
    /server \d of CLICKHOUSE_URL \(from 0\) belongs to another deployment than Redis/.test(error.message);
  await asProcessWith(
    urls,
    async ({ redis, clickhouse, log }) => {
      const stop = await followShardTable(redis, clickhouse, log);
      try {
        const { all } = serversOf(clickhouse);
        const read = (client: ClickHouseClient) =>
          client.query({ query: 'SELECT 1', format: 'TabSeparated' });
        for (const client of all) await (await read(client)).text();
        // From here on the addresses lead to another deployment.
        await onAll(
          `ALTER TABLE ${database}.server_number UPDATE deployment = 'other' WHERE 1 SETTINGS mutations_sync = 2`,
        );
        await ask(
          home,
          `INSERT INTO ${database}.registry (document_key, document, version) VALUES ('deployment:', '{"epoch":"other"}', 1)`,
          home.tester,
        );
        for (const client of all.toReversed()) {
          await assert.rejects(
            client.query({
              query: 'SELECT sleep(3)',
              format: 'TabSeparated',
              abort_signal: AbortSignal.timeout(1),
            }),
          );
          await assert.rejects(read(client), isWrong);
        }
      } finally {
        stop();
      }
    },
    database,
  );
  await asProcessWith(
    urls,
    async ({ redis, clickhouse, log }) => {
      await assert.rejects(
        followShardTable(redis, clickhouse, log),
        /belongs to another deployment than Redis/,
      );
      for (const client of serversOf(clickhouse).all)
        await assert.rejects(client.command({ query: 'SELECT 1' }), isWrong);
    },
    database,
  );
  // A new first server that replaces a lost one learns to which deployment the others belong.
  await ask(home, `TRUNCATE TABLE ${database}.server_number`, home.tester);
  await migrateServers({ urls, database, cluster: 'sluice' });
  const numbers = await onAll(`SELECT number, deployment FROM ${database}.server_number`);
  assert.deepEqual(numbers, ['0\tother', '1\tother', '2\tother']);
});

test('restores servers that are empty, and a Redis that is empty too', async () => {
  for (const server of sluice.clickhouses) await server.query('DROP DATABASE sluice SYNC');
  await withRedis(sluice, (redis) => redis.flushall());
  const restored = (await sluice.admin('backup', 'restore', 'all', '--yes')) as RestoredBackup;
  assert.equal(restored.state, 'restored');
  await untilRegistryIsRead(sluice);
  // The primary server's backup lacks the later requests. The parts of the other servers are from when Gus had no events any more.
  for (const seen of await seenBy()) assert.match(seen, /^fay 3(, gus \d)?, ida 3$/);
  await sendToAll('hal');
  for (const seen of await seenBy()) assert.match(seen, /^fay 3(, gus \d)?, hal 3, ida 3$/);
});
