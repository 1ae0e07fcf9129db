// Deletions from tables that are too large to be rewritten at once: first no query shows the users any more, then their rows are erased
// together with those of others, and only then is a request complete.

import assert from 'node:assert/strict';
import { beforeEach } from 'node:test';
import { crashPoints } from '../../src/crash-point.js';
import { readDeletion, updateDeletion } from '../../src/privacy/deletion/request.js';
import { userTables } from '../../src/privacy/deletion/user-tables.js';
import { registryKeys } from '../../src/redis/keys.js';
import { restoreState } from '../harness/accounts.js';
import type { ClickHouseUser } from '../harness/clickhouse.js';
import {
  assertExact,
  callWithToken,
  deletionPaths,
  dumpTables,
  getToken,
  hurryRounds,
  markerPrefix,
  readStatus,
  send,
  sendEvents,
  showDeletion,
  storeFailedRow,
  submitAccepted,
  submitWith,
  untilComplete,
  untilStored,
} from '../harness/deletion.js';
import { maskingEnvironment } from '../harness/environment.js';
import { withRedis } from '../harness/redis-client.js';
import { readExportStatus, readRecords, submitExport, untilExportComplete } from '../harness/user-export.js';
import { until } from '../harness/wait.js';
import { deletionWorld, type Prepared, prepareHistory } from '../support/deletion-world.js';
import { test } from '../support/test.js';
import { filesWith } from '../support/traces.js';

const world = await deletionWorld({ env: { JOB_LOCK_MS: '1000', ...maskingEnvironment } });
const { sluice, worker, account, main } = world;
let { token } = world;

/** No pass begins before `eraseNow`. */
beforeEach(async () => {
  await withRedis(sluice, (redis) => redis.set(registryKeys.erasureRest, '1', 'PX', 3_600_000));
});

async function eraseNow(): Promise<void> {
  await withRedis(sluice, (redis) => redis.del(registryKeys.erasureRest, registryKeys.deletionRound));
}

type Status = { readonly status: string; readonly state?: string; readonly hidden_at?: string };

async function statusOf(requestId: string): Promise<Status> {
  return JSON.parse((await readStatus(sluice, token, requestId)).text) as Status;
}

async function untilHidden(requestId: string): Promise<void> {
  await hurryRounds(sluice);
  await until(async () => (await statusOf(requestId)).state === 'hidden', 'the request is hidden');
}

const prepare = () => prepareHistory(world);
const filesWithUsers = () => filesWith(sluice.clickhouse.dir, [markerPrefix]);

async function assertGone({ history, earlier, before }: Prepared, accepted = {}): Promise<void> {
  assertExact(before, await dumpTables(sluice, earlier), history.identificationsToGo, accepted);
}

/** How many masked rows, which no query shows, are still on the disk. */
async function maskedRows(): Promise<number> {
  const counts = userTables.map(
    (table) => `SELECT countIf(_row_exists = 0) AS masked FROM ${sluice.database}.${table}`,
  );
  const text = await sluice.clickhouse.query(
    `SELECT sum(masked) FROM (${counts.join(' UNION ALL ')}) SETTINGS apply_deleted_mask = 0`,
  );
  return Number(text);
}

/** The markers of all segments, each by its table and number. */
async function markersOf(): Promise<ReadonlySet<string>> {
  const queries = userTables
    .filter((table) => table !== 'failed_events')
    .map(
      (table) => `SELECT concat('${table} ', toString(segment)) AS marker FROM ${table} WHERE app_id = ''`,
    );
  const found = await sluice.rows<{ marker: string }>(queries.join(' UNION ALL '));
  return new Set(found.map(({ marker }) => marker));
}

async function askAs({ name, password }: ClickHouseUser, sql: string): Promise<string> {
  const reply = await fetch(`${sluice.clickhouse.origin}/?database=${sluice.database}`, {
    method: 'POST',
    body: sql,
    headers: { 'X-ClickHouse-User': name, 'X-ClickHouse-Key': password },
  });
  return (await reply.text()).trim();
}

test('users are hidden exactly, whatever happens to the tables, and complete when nothing is on the disk', async () => {
  const key = { identity: 'user-1@example.com', event: 'Once', idempotency_key: 'hidden-key' };
  await send(sluice, '/api/track', { app_id: main, ...key, properties: { fate: 'go' } });
  const prepared = await prepare();
  const { history } = prepared;
  const markers = await markersOf();
  const requestId = await submitAccepted(sluice, token, history.users);
  const accepted = await history.returnToService();
  await untilStored(sluice);
  await untilHidden(requestId);
  await assertGone(prepared, accepted);
  const hidden = await statusOf(requestId);
  assert.equal(hidden.status, 'pending');
  assert.ok(hidden.hidden_at);
  assert.ok((await maskedRows()) > 0);
  const isKept = async () => {
    const now = await markersOf();
    return [...markers].every((marker) => now.has(marker));
  };
  assert.ok(await isKept());
  assert.notDeepEqual(filesWithUsers(), []);

  // ClickHouse takes the first count from the descriptions of parts, and the second one row by row.
  for (const table of userTables) {
    const [counted] = await sluice.rows<{ short: string; long: string }>(
      `SELECT toString(count()) AS short, (SELECT toString(sum(length(identity) >= 0)) FROM ${table}) AS long FROM ${table}`,
    );
    assert.equal(counted?.short, counted?.long, table);
  }
  const counts = 'SELECT count(), min(segment), max(segment), uniqExact(identity) FROM stored_events';
  const shown = await askAs(sluice.clickhouse.reader, counts);
  const name = history.marker;
  for (const setting of ['apply_deleted_mask = 0', "profile = 'default'"]) {
    const query = `SELECT count() FROM stored_events WHERE identity = '${name}' SETTINGS ${setting}`;
    assert.match(
      await askAs(sluice.clickhouse.reader, query),
      /SETTING_CONSTRAINT_VIOLATION|ACCESS_DENIED|READONLY|^0$/,
    );
  }
  for (const table of userTables) {
    const partitions = await sluice.rows<{ id: string }>(
      `SELECT DISTINCT partition_id AS id FROM system.parts WHERE active AND database = '${sluice.database}' AND table = '${table}'`,
    );
    for (const { id } of partitions)
      for (const verb of ['DETACH', 'ATTACH'])
        await sluice.clickhouse.query(`ALTER TABLE ${sluice.database}.${table} ${verb} PARTITION ID '${id}'`);
  }
  await sluice.clickhouse.kill9();
  await sluice.clickhouse.restart();
  assert.equal(await askAs(sluice.clickhouse.reader, counts), shown);
  assert.ok((await maskedRows()) > 0);
  await assertGone(prepared, accepted);
  await sluice.clickhouse.query(`OPTIMIZE TABLE ${sluice.database}.failed_events FINAL`);
  await send(sluice, '/api/track', { app_id: main, ...key, properties: { fate: 'go' } });
  await untilStored(sluice);
  await assertGone(prepared, accepted);

  await eraseNow();
  await untilComplete(sluice, token, requestId);
  assert.equal(await maskedRows(), 0);
  assert.ok(await isKept(), 'a segment without its marker would be stored again');
  await assertGone(prepared, accepted);
  const { hidden_at = '', verified_at = '', completed_at = '' } = await showDeletion(sluice, requestId);
  assert.equal(hidden_at, hidden.hidden_at);
  assert.ok(hidden_at < verified_at && verified_at <= completed_at);
  assert.equal((await statusOf(requestId)).hidden_at, hidden_at);
  const certificate = await callWithToken(sluice, token, `${deletionPaths.status(requestId)}/certificate`);
  assert.equal(
    (JSON.parse(certificate.text) as { certificate: { hidden_at: string } }).certificate.hidden_at,
    hidden_at,
  );
});

/** Stores one row of each user, all at the same position. The service itself gives each row its own position. */
async function storeAt(segment: string, identities: readonly string[]): Promise<void> {
  const names = identities.map((identity) => `'${identity}'`).join(', ');
  await sluice.rows(`INSERT INTO stored_events (app_id, identity, event, segment, commit_number, row_number, received_at)
    SELECT '${main}', arrayJoin([${names}]), 'placed', ${segment}, 1, 1, now64(3) SETTINGS log_comment = 'store asked by a test'`);
}

test('users are hidden by the positions of their rows, unless somebody else has a row at one of them', async () => {
  await storeAt('1700000000000000', ['alone']);
  await storeAt('1700000000000064', ['beside', 'neighbour']);
  for (const [identity, byPosition] of [
    ['alone', 1],
    ['beside', 0],
  ] as const) {
    await untilHidden(await submitAccepted(sluice, token, [{ identity }]));
    const [last] = await sluice.rows<{ byPosition: number }>(
      `SELECT position(command, 'row_number') > 0 AS byPosition FROM system.mutations
        WHERE table = 'stored_events' AND position(command, '_row_exists = 0') > 0
        ORDER BY create_time DESC, length(mutation_id) DESC, mutation_id DESC LIMIT 1`,
    );
    assert.equal(Number(last?.byPosition), byPosition, identity);
  }
  const left = await sluice.rows("SELECT identity FROM stored_events WHERE event = 'placed'");
  assert.deepEqual(left, [{ identity: 'neighbour' }]);
});

test('a request for users who are hidden already is not complete while their rows are on the disk', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'twice' }]);
  await untilStored(sluice);
  const first = await submitAccepted(sluice, token, [{ identity: 'twice' }]);
  await untilHidden(first);
  const second = await submitAccepted(sluice, token, [{ identity: 'twice' }]);
  await untilHidden(second);
  const nobody = await submitAccepted(sluice, token, [{ identity: 'nobody at all' }]);
  await untilComplete(sluice, token, nobody);
  assert.equal((await statusOf(second)).state, 'hidden');
  await eraseNow();
  await untilComplete(sluice, token, first);
  await untilComplete(sluice, token, second);
  const found = await Promise.all([first, second].map((id) => showDeletion(sluice, id)));
  assert.deepEqual(
    found.map(({ users_found }) => users_found),
    [1, 0],
  );
});

test('rows that ClickHouse shows again are hidden again, and only then erased', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'again' }, { identity: 'still' }]);
  await untilStored(sluice);
  const requestId = await submitAccepted(sluice, token, [{ identity: 'again' }]);
  const other = await submitAccepted(sluice, token, [{ identity: 'still' }]);
  await untilHidden(requestId);
  await untilHidden(other);
  const { hidden_at } = await statusOf(other);
  // A power cut that took a mask would leave the row like this.
  await storeFailedRow(sluice, main, 'go', { identity: 'again' });
  await eraseNow();
  await untilComplete(sluice, token, requestId);
  await untilComplete(sluice, token, other);
  assert.equal((await statusOf(other)).hidden_at, hidden_at, 'it was hidden all the time');
  assert.equal(await maskedRows(), 0);
  assert.deepEqual(await sluice.rows("SELECT 1 FROM failed_events WHERE identity = 'again'"), []);
});

test('exports go on while a hidden request becomes complete, also of a user who came back', async () => {
  const user = [{ identity: 'back' }];
  await sendEvents(sluice, main, 'go', user);
  await untilStored(sluice);
  worker.sigstop();
  const requestId = await submitAccepted(sluice, token, user);
  const during = await submitExport(sluice, token, user);
  worker.sigcont();
  await untilHidden(requestId);
  await untilExportComplete(sluice, token, during);
  await sendEvents(sluice, main, 'stay', user);
  await untilStored(sluice);
  const later = await submitExport(sluice, token, user);
  await untilExportComplete(sluice, token, later);

  const killed = await sluice.addWorker({ CRASH_AT: 'verified:1' });
  worker.sigstop();
  await eraseNow();
  await killed.exited;
  for (const id of [during, later])
    assert.match((await readExportStatus(sluice, token, id)).text, /"status":"complete"/);
  worker.sigcont();
  await untilComplete(sluice, token, requestId);
  const found = await Promise.all([during, later].map((id) => readRecords(sluice, token, id)));
  assert.deepEqual(
    found.map((records) => records.length),
    [0, 1],
  );
});

test('hidden requests survive a loss of Redis, and their users are kept meanwhile', async () => {
  const prepared = await prepare();
  const requestId = await submitAccepted(sluice, token, prepared.history.users);
  await untilHidden(requestId);
  const { hidden_at } = await statusOf(requestId);
  await until(
    async () => (await withRedis(sluice, (redis) => redis.zcard(registryKeys.uncopied))) === 0,
    'the second copy is there',
  );
  worker.sigstop();
  await withRedis(sluice, (redis) => redis.flushall());
  await restoreState(sluice);
  // A move of a shard changes the request like this, before a worker has looked at it.
  await withRedis(sluice, async (redis) => {
    const request = await readDeletion(redis, requestId);
    assert.ok(request);
    await updateDeletion(redis, request, {});
  });
  worker.sigcont();
  token = await getToken(sluice, account);
  await untilComplete(sluice, token, requestId);
  assert.equal((await statusOf(requestId)).hidden_at, hidden_at);
  assert.equal(await maskedRows(), 0);
  await assertGone(prepared);
});

test('a worker may be killed when it has hidden the users, and another one when it has erased their rows', async () => {
  const prepared = await prepare();
  const [hidden, ...later] = crashPoints.erasure;
  const killed = await sluice.addWorker({ CRASH_AT: `${hidden}:1` });
  worker.sigstop();
  const requestId = await submitAccepted(sluice, token, prepared.history.users);
  const untilKilled = async () => {
    await eraseNow();
    assert.equal((await killed.exited).signal, 'SIGKILL');
    const lists = await sluice.rows("SELECT name FROM system.tables WHERE name LIKE 'deletion_round%'");
    assert.deepEqual(lists, [], 'no names of users are left');
  };
  await untilKilled();
  for (const point of later) {
    await killed.restart({ CRASH_AT: `${point}:1` });
    await untilKilled();
  }
  await eraseNow();
  worker.sigcont();
  await untilComplete(sluice, token, requestId);
  assert.equal(await maskedRows(), 0);
  await assertGone(prepared);
});

test('a pass runs once a request has waited for a given time, however much passes cost', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'patient' }]);
  await untilStored(sluice);
  const requestId = await submitAccepted(sluice, token, [{ identity: 'patient' }]);
  await untilHidden(requestId);
  // Now the request seems to have been submitted two days ago.
  await withRedis(sluice, async (redis) => {
    const member = `${account.accountId} ${requestId}`;
    await redis.zincrby(registryKeys.hiddenDeletions, -2 * 86_400_000, member);
  });
  await untilComplete(sluice, token, requestId);
  assert.equal(await maskedRows(), 0);
});

test('a request may ask to be erased at once, and its account once an hour', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'urgent' }, { identity: 'urgent too' }]);
  await untilStored(sluice);
  const body = { users: [{ identity: 'urgent' }], erase: 'now', reference: 'urgent' };
  const reply = await submitWith(sluice, token, body);
  assert.equal(reply.status, 201, reply.text);
  const { deletion_request_id: requestId } = JSON.parse(reply.text) as { deletion_request_id: string };
  await untilComplete(sluice, token, requestId);
  assert.equal(await maskedRows(), 0);
  assert.equal((await submitWith(sluice, token, body)).status, 200, 'the same request again');
  const users = [{ identity: 'urgent too' }];
  const soon = await submitWith(sluice, token, { users, erase: 'now' });
  assert.deepEqual([soon.status, soon.headers['retry-after']], [429, '3600']);
  await untilHidden(await submitAccepted(sluice, token, users));
});

test('no file of ClickHouse holds any of these users a minute later', async () => {
  // A minute, plus the time by which a busy machine is late.
  await until(() => filesWithUsers().length === 0, { what: 'no file holds a user', everyMs: 1_500 });
});

test('a backup that was made between hiding and erasing brings no row back', async () => {
  const prepared = await prepare();
  const requestId = await submitAccepted(sluice, token, prepared.history.users);
  await untilHidden(requestId);
  await sluice.admin('backup', 'create', 'masked');
  await eraseNow();
  await untilComplete(sluice, token, requestId);
  const { backups_end_at = '' } = await showDeletion(sluice, requestId);
  assert.ok(Date.parse(backups_end_at) > Date.now());
  await sluice.admin('backup', 'restore', 'masked', '--yes');
  assert.equal(await maskedRows(), 0);
  await assertGone(prepared);
});
