// Retention: exactly the expired rows are deleted, and nothing comes back. The clock is passed in;
// rows of the past are stored as workers store them.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, type TestContext, test } from 'node:test';
import type { Redis } from 'ioredis';
import { pino } from 'pino';
import { setEnvironment } from '../../src/accounts/accounts.js';
import { type ClickHouseClient, connectClickHouse } from '../../src/clickhouse/client.js';
import { setReplication } from '../../src/clickhouse/replication.js';
import { insertSegment, isRefusedSegment } from '../../src/clickhouse/store.js';
import { storedTable } from '../../src/clickhouse/tables.js';
import { readConfig } from '../../src/config.js';
import { retention } from '../../src/contract/limits.js';
import { tables } from '../../src/contract/records.js';
import { type CrashPoint, crashPoints, noCrash } from '../../src/crash-point.js';
import { withMaintenanceLock } from '../../src/privacy/deletion/maintenance-lock.js';
import { secondsOverdue } from '../../src/privacy/retention/due.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { shardServersKey } from '../../src/registry/documents.js';
import { readRegistry } from '../../src/registry/registry.js';
import { retentionRuns } from '../../src/tuning.js';
import { earliestClock, expireRows, expireRowsIfDue } from '../../workers/retention.js';
import { createEnvironment, createTestAccount } from '../harness/accounts.js';
import { administer, deleteNow, getToken } from '../harness/deletion.js';
import { plainEnvironment } from '../harness/environment.js';
import { isAccepted, paths, postInTime, untilStored } from '../harness/ingestion.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { until } from '../harness/wait.js';
import fc from '../support/fast-check.js';
import { addPending, removePending } from '../support/pending.js';
import { ownSluice } from '../support/sluice.js';

const dayMs = 24 * 60 * 60 * 1000;

const daysOf = [30, 100, Number.POSITIVE_INFINITY] as const;
const lines: string[] = [];

const sluice = await ownSluice();
const redis = connectTestRedis(sluice.redisUrl);
// The worker begins no run by itself; only the tests do.
await redis.set(registryKeys.retentionRun, 'a test', 'PX', retentionRuns.everyMs);
/** Environments that retain 30 days, 100 days, and for ever. */
const appIds: readonly [string, string, string] = [
  await createEnvironment(sluice, '--retain-days', '30'),
  await createEnvironment(sluice, '--retain-days', '100'),
  await createEnvironment(sluice),
];
const clickhouse = connectClickHouse({ url: sluice.clickhouse.testerUrl, database: sluice.database });
const epoch = (await redis.get(registryKeys.epoch)) ?? '';
const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });
const config = readConfig({ ...plainEnvironment(), CLICKHOUSE_DATABASE: sluice.database });
const context = { redis, clickhouse, config, shards: 1, epoch, crash: noCrash, log };
after(async () => {
  redis.disconnect();
  await clickhouse.close();
});

/** The values of a row without the stamps. */
type Row = {
  readonly app_id: string;
  readonly identity: string;
  readonly user_id: number | null;
  readonly name: string;
};
type Table = 'stored_events' | 'stored_user_properties' | 'stored_user_identities';

const columnsOf = {
  stored_events: ({ name }: Row) => ({ event: name, properties: {} }),
  stored_user_properties: ({ name }: Row) => ({ properties: { name } }),
  stored_user_identities: () => ({}),
};

function segmentAt(ms: number): string {
  return (BigInt(Math.floor(ms)) * 1000n - ((BigInt(Math.floor(ms)) * 1000n) % 64n)).toString();
}

/** Stores rows as one segment that was accepted at a time, under its marker. */
async function storeAt(ms: number, table: Table, rows: readonly Row[]): Promise<void> {
  const segment = segmentAt(ms);
  const received_at = (ms / 1000).toFixed(3);
  const marker = {
    app_id: '',
    identity: '',
    user_id: table === 'stored_user_identities' ? 0 : null,
    name: '',
  };
  await clickhouse.insert({
    table,
    values: [marker, ...rows].map((row, index) => ({
      app_id: row.app_id,
      identity: row.identity,
      user_id: row.user_id,
      event_id: row.app_id === '' ? '00000000-0000-0000-0000-000000000000' : randomUUID(),
      ...columnsOf[table](row),
      segment,
      commit_number: index === 0 ? 0 : 1,
      row_number: index,
      received_at,
    })),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0, log_comment: 'store asked by a test' },
  });
}

/** Freezes the worker until the test ends, at a moment when no round of it holds the lock. */
async function freezeWorker(t: TestContext) {
  const [worker] = sluice.workers;
  t.after(() => worker?.sigcont());
  await until(async () => {
    worker?.sigstop();
    const isFree = (await redis.exists(registryKeys.maintenanceLock)) === 0;
    if (!isFree) worker?.sigcont();
    return isFree;
  }, 'the worker is frozen between two rounds');
  return worker;
}

async function storedRows(): Promise<string[]> {
  const rows = await sluice.rows<{ row: string }>(`
    SELECT concat('e ', app_id, ' ', event) AS row FROM stored_events WHERE app_id != ''
    UNION ALL SELECT concat('p ', app_id, ' ', properties['name']) FROM stored_user_properties WHERE app_id != ''
    UNION ALL SELECT concat('i ', app_id, ' ', toString(user_id), ' ', identity) FROM stored_user_identities WHERE app_id != ''
    UNION ALL SELECT concat('f ', app_id, ' ', row) FROM failed_events WHERE app_id != ''`);
  return rows.map(({ row }) => row).sort();
}

async function emptyTables(): Promise<void> {
  for (const table of ['stored_events', 'stored_user_properties', 'stored_user_identities', 'failed_events'])
    await clickhouse.command({ query: `TRUNCATE TABLE ${table}` });
}

/** Runs retention until no round of deletions takes over, which may happen as long as there are masked rows to erase. */
async function expire(nowMs: number, own = context): Promise<void> {
  const run = await until(async () => {
    const [settled] = await Promise.allSettled([expireRows(own, nowMs)]);
    return settled.status === 'fulfilled' && settled.value === 'busy' ? undefined : settled;
  }, 'no round takes over');
  if (run.status === 'rejected') throw run.reason;
}

test('deletes expired events and users without later events, and nothing younger or of others', async () => {
  const ages = [0, 5, 29, 31, 60, 99, 101, 400];
  const user = fc.constantFrom('i0', 'i1', 'i2', 'u0', 'u1', 'u2', 'u3');
  const record = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({ kind: fc.constant('e' as const), age: fc.nat(7), env: fc.nat(2), user }),
    },
    {
      weight: 4,
      arbitrary: fc.record({ kind: fc.constant('p' as const), age: fc.nat(7), env: fc.nat(2), user }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant('i' as const),
        age: fc.nat(7),
        env: fc.nat(2),
        userId: fc.nat(3),
        identity: fc.nat(2),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant('f' as const), age: fc.nat(7), env: fc.nat(2), user }),
    },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(record, { minLength: 60, maxLength: 140 }), async (records) => {
      await emptyTables();
      const nowMs = Date.now();
      const dayOf = (age: number) => ages[age] as number;
      const rows = records.map((each, index) => {
        const app_id = appIds[each.env] as string;
        const name = `n${index}`;
        if (each.kind === 'i')
          return { ...each, app_id, user_id: each.userId, identity: `i${each.identity}`, name, index };
        const isIdentity = each.user.startsWith('i');
        const identity = isIdentity ? each.user : '';
        return {
          ...each,
          app_id,
          user_id: isIdentity ? null : Number(each.user.slice(1)),
          identity,
          name,
          index,
        };
      });

      // The expected rows, by a model.
      const isOver = (row: (typeof rows)[number]) => dayOf(row.age) > (daysOf[row.env] as number);
      const identifications = rows.filter(({ kind }) => kind === 'i');
      const inOrder = identifications.toSorted((a, b) => dayOf(b.age) - dayOf(a.age) || a.index - b.index);
      const userOf = (env: number, identity: string, userId: number | null) => {
        if (identity !== '') return identity;
        return inOrder.find((row) => row.env === env && row.user_id === userId)?.identity ?? `u${userId}`;
      };
      const active = new Set(
        rows
          .filter((row) => row.kind === 'e' && !isOver(row))
          .map((row) => `${row.env} ${userOf(row.env, row.identity, row.user_id)}`),
      );
      const present = new Set(
        rows
          .filter((row) => !isOver(row))
          .map((row) => `${row.env} ${userOf(row.env, row.kind === 'i' ? '' : row.identity, row.user_id)}`),
      );
      const goes = (row: (typeof rows)[number]) => {
        if (!isOver(row)) return false;
        if (row.kind === 'e' || row.kind === 'f') return true;
        if (row.kind === 'p') return !active.has(`${row.env} ${userOf(row.env, row.identity, row.user_id)}`);
        return !present.has(`${row.env} ${userOf(row.env, '', row.user_id)}`);
      };
      const textOf = (row: (typeof rows)[number]) =>
        row.kind === 'i'
          ? `i ${row.app_id} ${row.user_id} ${row.identity}`
          : `${row.kind} ${row.app_id} ${row.name}`;

      for (const [age, days] of ages.entries()) {
        const ms = nowMs - days * dayMs;
        const of = (kind: string) => rows.filter((row) => row.age === age && row.kind === kind);
        await storeAt(ms, 'stored_events', of('e'));
        await storeAt(ms, 'stored_user_properties', of('p'));
        await storeAt(ms, 'stored_user_identities', of('i'));
        const failed = of('f').map(({ app_id, identity, user_id, name, index }) => ({
          table_name: 'events',
          segment: segmentAt(ms),
          line: index,
          app_id,
          identity,
          user_id,
          row: name,
          error_code: 1,
          error: '',
          failed_at: (ms / 1000).toFixed(3),
        }));
        await clickhouse.insert({
          table: 'failed_events',
          values: failed,
          format: 'JSONEachRow',
          clickhouse_settings: { async_insert: 0, log_comment: 'store asked by a test' },
        });
      }
      assert.deepEqual(await storedRows(), rows.map(textOf).sort());
      const expected = rows
        .filter((row) => !goes(row))
        .map(textOf)
        .sort();
      // By an earlier clock nothing has expired, and nothing is deleted.
      await expire(nowMs - 400 * dayMs);
      assert.deepEqual(await storedRows(), rows.map(textOf).sort());
      await expire(nowMs);
      assert.deepEqual(await storedRows(), expected);
      await expire(nowMs);
      assert.deepEqual(await storedRows(), expected);
    }),
    { numRuns: 2, endOnFailure: true },
  );
  const tables = await sluice.rows(
    `SELECT name FROM system.tables WHERE startsWith(database, currentDatabase()) AND name LIKE 'retention%'`,
  );
  assert.deepEqual(tables, [], 'no names of users are left');
});

test('drops whole months but no markers and no rows of others, and no worker brings a dropped segment back', async () => {
  await emptyTables();
  lines.length = 0;
  const [retained, , forEver] = appIds;
  const nowMs = Date.now();
  const [shared, own] = [nowMs - 400 * dayMs, nowMs - 200 * dayMs];
  const row = (app_id: string, name: string): Row => ({ app_id, identity: 'ada', user_id: null, name });
  await storeAt(shared, 'stored_events', [row(retained, 'old'), row(forEver, 'old')]);
  await storeAt(own, 'stored_events', [row(retained, 'middle'), row(retained, 'middle 2')]);
  await storeAt(nowMs, 'stored_events', [row(retained, 'new')]);
  const [kept] = await sluice.rows<{ keys: string }>(
    'SELECT toString(uniqExact(hash)) AS keys FROM stored_keys',
  );
  await expire(nowMs);
  assert.deepEqual(await storedRows(), [`e ${forEver} old`, `e ${retained} new`].sort());
  const markers = await sluice.rows<{ segment: string }>(
    `SELECT toString(segment) AS segment FROM stored_events WHERE app_id = '' ORDER BY segment`,
  );
  assert.deepEqual(
    markers.map(({ segment }) => segment),
    [segmentAt(shared), segmentAt(nowMs)],
  );
  const [after] = await sluice.rows<{ keys: string }>(
    'SELECT toString(uniqExact(hash)) AS keys FROM stored_keys',
  );
  assert.equal(Number(after?.keys) - Number(kept?.keys), 3, 'their keys stay');
  const bytes = Buffer.from(
    `["${retained}","${randomUUID()}","zombie",null,"ada","",null,{},1,"${segmentAt(own)}",1,"${(own / 1000).toFixed(3)}"]\n`,
  );
  const late = insertSegment(clickhouse, { table: 'events', number: segmentAt(own) }, bytes, 'token');
  await assert.rejects(late, isRefusedSegment);
  const said = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  const line = said.find(({ environment }) => environment === retained);
  assert.deepEqual([line?.table, line?.rows, line?.retainDays], ['stored_events', 3, 30]);
  assert.ok(said.some(({ partition }) => partition !== undefined));
  assert.ok(!lines.join().includes('ada'));
  // Records that are accepted now are stored as usual.
  const answer = await postInTime(sluice.baseUrl, paths.track, {
    app_id: retained,
    event: 'next',
    identity: 'ada',
  });
  assert.ok(isAccepted(answer), answer.text);
  await untilStored(sluice);
  assert.ok((await storedRows()).includes(`e ${retained} next`));
});

test('a run that is killed at any step, again and again, is retried, deletes the same rows and keeps the keys of their records', async () => {
  await emptyTables();
  await clickhouse.command({ query: 'TRUNCATE TABLE stored_keys' });
  const [retained, , forEver] = appIds;
  const nowMs = Date.now();
  const ada = { app_id: retained, identity: 'ada', user_id: null };
  const seven = { app_id: retained, identity: '', user_id: 7 };
  await storeAt(nowMs - 200 * dayMs, 'stored_events', [{ ...ada, name: 'month' }]);
  await storeAt(nowMs - 50 * dayMs, 'stored_events', [
    { ...seven, name: 'old' },
    { ...ada, app_id: forEver, name: 'old' },
  ]);
  await storeAt(nowMs - 50 * dayMs, 'stored_user_properties', [
    { ...seven, name: 'plan' },
    { ...ada, identity: 'bob', name: 'plan' },
  ]);
  await storeAt(nowMs - 50 * dayMs, 'stored_user_identities', [{ ...seven, identity: 'ada', name: '' }]);
  await storeAt(nowMs, 'stored_events', [{ ...ada, identity: 'bob', name: 'new' }]);
  const deaths = new Map<string, number>();
  const crash: CrashPoint = (name) => {
    const before = deaths.get(name) ?? 0;
    deaths.set(name, before + 1);
    if (before < 2) throw new Error(`died at ${name}`);
  };
  let isDone = false;
  for (let runs = 0; runs < 3 * crashPoints.retention.length && !isDone; runs++) {
    isDone = await expire(nowMs, { ...context, crash }).then(
      () => true,
      (error: Error) => {
        assert.match(error.message, /^died at /);
        return false;
      },
    );
  }
  assert.ok(isDone);
  assert.deepEqual([...deaths.keys()].sort(), [...crashPoints.retention].sort(), 'a run died at each point');
  assert.deepEqual(
    await storedRows(),
    [`e ${forEver} old`, `e ${retained} new`, `p ${retained} plan`].sort(),
  );
  const [kept] = await sluice.rows<{ keys: string }>(
    'SELECT toString(uniqExact(hash)) AS keys FROM stored_keys WHERE hash != 0',
  );
  assert.equal(kept?.keys, '4', 'the keys of two events, a property and an identification');
});

test('retention waits for records that are accepted but not stored, since their user may have come back', async (t) => {
  await emptyTables();
  const [retained] = appIds;
  const nowMs = Date.now();
  const old = { app_id: retained, identity: 'ada', user_id: null, name: 'plan' };
  await storeAt(nowMs - 50 * dayMs, 'stored_user_properties', [old]);
  const worker = await freezeWorker(t);
  const sent = await postInTime(sluice.baseUrl, paths.track, {
    app_id: retained,
    event: 'back',
    identity: 'ada',
  });
  assert.ok(isAccepted(sent), sent.text);
  const done = expireRows(context, nowMs);
  const first = await Promise.race([done, new Promise((settle) => setTimeout(settle, 1_500, 'waits'))]);
  assert.equal(first, 'waits');
  assert.deepEqual(await storedRows(), [`p ${retained} plan`]);
  worker?.sigcont();
  assert.equal(await done, 'done');
  await untilStored(sluice);
  assert.deepEqual(await storedRows(), [`e ${retained} back`, `p ${retained} plan`].sort());
  assert.equal(await redis.zcard(shardKeys.segments(0)), 0);
});

/** A connection that calls `act` each time before it sends a statement that begins like this. */
function clientBefore(starts: readonly string[], act: () => Promise<unknown>): ClickHouseClient {
  const send = clickhouse.command.bind(clickhouse);
  const own = new Map<string | symbol, unknown>();
  own.set('command', async (params: Parameters<ClickHouseClient['command']>[0]) => {
    if (starts.some((start) => params.query.trimStart().startsWith(start))) await act();
    return send(params);
  });
  const before = new Proxy(clickhouse, {
    get(target, name) {
      if (own.has(name)) return own.get(name);
      const value = Reflect.get(target, name) as unknown;
      return typeof value === 'function' ? value.bind(target) : value;
    },
    // The guard of statements replaces the methods of this object, not of the connection, which others use.
    set(_, name, value) {
      own.set(name, value);
      return true;
    },
  });
  setReplication(before, { tables: 'plain', cluster: undefined, database: sluice.database });
  return before;
}

const removal = ['DELETE FROM stored_user_identities'];

/** Stores identifications that have expired: user_ids 7 and 8 are ada, 9 is bob. */
async function storeIdentified(nowMs: number, app_id: string): Promise<void> {
  const row = (user_id: number, identity: string) => ({ app_id, identity, user_id, name: '' });
  await storeAt(nowMs - 50 * dayMs, 'stored_user_identities', [row(7, 'ada'), row(9, 'bob')]);
  await storeAt(nowMs - 90 * dayMs, 'stored_user_identities', [row(8, 'ada')]);
}

async function sendBack(app_id: string): Promise<void> {
  const sent = await postInTime(sluice.baseUrl, paths.track, { app_id, event: 'back', user_id: '7' });
  assert.ok(isAccepted(sent), sent.text);
}

async function scratchTables(): Promise<readonly unknown[]> {
  return sluice.rows(
    `SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 'retention%'`,
  );
}

test('an environment whose retention is changed during a run loses nothing by the former one', async () => {
  await emptyTables();
  const [changed, other] = appIds;
  const nowMs = Date.now();
  const rows = [changed, other].map((app_id) => ({ app_id, identity: 'ada', user_id: null, name: 'old' }));
  await storeAt(nowMs - 150 * dayMs, 'stored_events', rows);
  await storeAt(nowMs - 150 * dayMs, 'stored_user_properties', rows);
  const retain = (retainDays: number | 'none') => setEnvironment(redis, changed, { retainDays });
  const client = clientBefore(['CREATE'], () => retain('none'));
  lines.length = 0;
  // Several runs, since a round of deletions may take over.
  await until(async () => {
    await expireRows({ ...context, clickhouse: client }, nowMs);
    await retain(30);
    return !(await storedRows()).some((row) => row.includes(other));
  }, 'the rows of the other environment have expired');
  assert.deepEqual(await storedRows(), [`e ${changed} old`, `p ${changed} old`]);
  assert.ok(lines.some((line) => line.includes('the retention of environments was changed')));
  await expire(nowMs);
  assert.deepEqual(await storedRows(), []);
});

test(`records of users who come back while identifications are removed are kept, and belong to them as if they came later`, async () => {
  await emptyTables();
  const [retained] = appIds;
  const nowMs = Date.now();
  await storeIdentified(nowMs, retained);
  const client = clientBefore(removal, async () => {
    await sendBack(retained);
    const again = { app_id: retained, user_id: '9', identity: 'eve' };
    const sent = await postInTime(sluice.baseUrl, paths.identify, again);
    assert.ok(isAccepted(sent), sent.text);
    await untilStored(sluice);
  });
  await expire(nowMs, { ...context, clickhouse: client });
  const kept = [`e ${retained} back`, `i ${retained} 9 eve`];
  assert.deepEqual(await storedRows(), kept);
  assert.deepEqual(await scratchTables(), []);
  await expire(nowMs);
  assert.deepEqual(await storedRows(), kept, 'the next run changes nothing');
});

test(`a deletion that takes over from a run finds users who came back, and the run then removes nothing`, async () => {
  const account = await createTestAccount(sluice, 'Back', ['Main Production']);
  const retained = account.appIds[0] as string;
  await sluice.admin('environments', 'set', retained, '--retain-days', '30');
  const token = await getToken(sluice, account);
  for (const how of ['was killed', 'stood still'] as const) {
    await emptyTables();
    const nowMs = Date.now();
    await storeIdentified(nowMs, retained);
    const deleteAda = async () => {
      await sendBack(retained);
      await deleteNow(sluice, token, [{ identity: 'ada' }]);
    };
    const crash: CrashPoint = (name) => {
      if (how === 'was killed' && name === 'expired_keys_kept') throw new Error('died');
    };
    const client = clientBefore(removal, deleteAda);
    const run = expireRows({ ...context, crash, clickhouse: client }, nowMs);
    if (how === 'stood still') assert.equal(await run, 'busy');
    else {
      await assert.rejects(run, /died/);
      await deleteAda();
    }
    assert.deepEqual(await storedRows(), [`i ${retained} 9 bob`], how);
    assert.deepEqual(await scratchTables(), [], how);
    await expire(nowMs);
    assert.deepEqual(await storedRows(), [], how);
  }
});

test('an account with pending deletions keeps the rows by which their users are found, and other accounts do not wait', async (t) => {
  await emptyTables();
  lines.length = 0;
  const account = await createTestAccount(sluice, 'Deleting', ['Main Production']);
  const its = account.appIds[0] as string;
  await sluice.admin('environments', 'set', its, '--retain-days', '30');
  const [other] = appIds;
  const nowMs = Date.now();
  const bob = { identity: 'bob', name: 'old', user_id: null };
  const ofBoth = (row: Omit<Row, 'app_id'>) => [its, other].map((app_id) => ({ ...row, app_id }));
  await storeAt(nowMs - 50 * dayMs, 'stored_user_identities', ofBoth({ ...bob, user_id: 7 }));
  await storeAt(nowMs - 50 * dayMs, 'stored_user_properties', ofBoth(bob));
  await storeAt(nowMs - 50 * dayMs, 'stored_events', ofBoth(bob));
  const kept = [`i ${its} 7 bob`, `p ${its} old`];
  // No round takes this request.
  await freezeWorker(t);
  const member = `${account.accountId} none`;
  await addPending(redis, [member]);
  // A certificate must not claim rows for the request that retention has deleted.
  const document = (more: object) =>
    redis.hset(registryKeys.deletions, 'none', JSON.stringify({ account_id: account.accountId, ...more }));
  await document({ found: [] });
  assert.equal(await expireRows(context, nowMs), 'busy');
  assert.deepEqual(await storedRows(), [`e ${its} old`, ...kept], 'its rows are counted');
  await document({});
  assert.equal(await expireRows(context, nowMs), 'busy');
  assert.deepEqual(await storedRows(), kept);
  const said = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  const waits = said.find(({ reason }) => reason === 'deletion requests are pending');
  assert.deepEqual(waits?.accounts, [account.accountId]);
  await removePending(redis, member);
  await redis.hdel(registryKeys.deletions, 'none');
  await expire(nowMs);
  assert.deepEqual(await storedRows(), []);
});

test('expired rows of every table that holds users are deleted, and newer rows keep their user', async () => {
  const [retained] = appIds;
  const nowMs = Date.now();
  const ofTable = async (table: Table, ms: number, identity: string) =>
    storeAt(ms, table, [
      { app_id: retained, identity, name: table, user_id: table === 'stored_user_identities' ? 7 : null },
    ]);
  const old = nowMs - 50 * dayMs;
  for (const table of tables.map(storedTable)) {
    await emptyTables();
    await ofTable(table, old, 'ada');
    await expire(nowMs);
    assert.deepEqual(await storedRows(), [], table);
    await storeAt(old, 'stored_user_identities', [
      { app_id: retained, identity: 'ada', name: '', user_id: 7 },
    ]);
    await ofTable(table, nowMs, 'ada');
    await expire(nowMs);
    assert.equal((await storedRows()).length, 2, `${table}: the user is there`);
  }
});

test('logs what it has deleted table by table, even if a later table fails', async () => {
  await emptyTables();
  lines.length = 0;
  const [retained] = appIds;
  const nowMs = Date.now();
  const ada = { app_id: retained, identity: 'ada', user_id: null, name: 'old' };
  await storeAt(nowMs - 50 * dayMs, 'stored_events', [ada, ada]);
  await storeAt(nowMs - 50 * dayMs, 'stored_user_properties', [ada]);
  const client = clientBefore(['ALTER TABLE stored_user_properties DROP PARTITION'], async () => {
    throw new Error('ClickHouse has gone');
  });
  await assert.rejects(expire(nowMs, { ...context, clickhouse: client }), /has gone/);
  const said = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  const counts = said.filter(({ rows }) => rows !== undefined).map(({ table, rows }) => [table, rows]);
  assert.deepEqual(counts, [['stored_events', 2]]);
});

test('does not begin beside a round of deletions, and gives way to one that begins', async (t) => {
  await freezeWorker(t);
  await emptyTables();
  const [retained] = appIds;
  const nowMs = Date.now();
  const old = { app_id: retained, identity: 'ada', user_id: null, name: 'old' };
  await storeAt(nowMs - 50 * dayMs, 'stored_events', [old]);
  const lock = registryKeys.maintenanceLock;
  const hold = (owner: string) => redis.set(lock, owner, 'PX', 60_000);
  for (const owner of ['round another', 'retry another', 'restore another', 'move another']) {
    await hold(owner);
    assert.equal(await expireRows(context, nowMs), 'busy', owner);
  }
  await redis.del(lock);
  const crash: CrashPoint = (name) => {
    // Redis gets this before the run's next command.
    if (name === 'expired_keys_kept') void hold('round another');
  };
  assert.equal(await expireRows({ ...context, crash }, nowMs), 'busy');
  assert.equal(await redis.get(lock), 'round another');
  assert.deepEqual(await storedRows(), [`e ${retained} old`]);

  // A round of deletions or the next run takes over the lock of a killed run; nothing else does.
  for (const [kind, expected] of [
    ['restore', 'locked'],
    ['retry', 'locked'],
    ['round', 'taken'],
  ] as const) {
    await hold('retention another');
    assert.equal(await withMaintenanceLock(redis, kind, async () => 'taken'), expected, kind);
  }
  await hold('retention another');
  await expire(nowMs);
  assert.deepEqual(await storedRows(), []);
});

test('a worker checks a few times a day, by the slower of two clocks', async (t) => {
  // Once a minute the deployment's own worker looks too, and would take the turn.
  await freezeWorker(t);
  await emptyTables();
  const [retained] = appIds;
  const old = () =>
    storeAt(Date.now() - 50 * dayMs, 'stored_events', [
      { app_id: retained, identity: 'ada', user_id: null, name: 'old' },
    ]);
  await old();
  await redis.del(registryKeys.retentionRun);
  await expireRowsIfDue(context);
  assert.deepEqual(await storedRows(), []);
  await old();
  await expireRowsIfDue(context);
  assert.deepEqual(await storedRows(), [`e ${retained} old`], 'not yet again');
  const leftMs = await redis.pttl(registryKeys.retentionRun);
  assert.ok(leftMs > 0 && leftMs <= retentionRuns.everyMs);
  assert.equal(await secondsOverdue(redis), 0);

  // A run that fails or has to wait is tried again soon, and stays due since its first attempt.
  const earlier = Math.floor(Date.now() / 1000) - 90_000;
  for (const fails of [true, false]) {
    await redis.del(registryKeys.retentionRun);
    if (!fails) await redis.set(registryKeys.maintenanceLock, 'round another', 'PX', 60_000);
    const crash = (name: string) => {
      if (fails && name === 'expired_users_found') throw new Error('died');
    };
    const run = expireRowsIfDue({ ...context, crash });
    if (fails) await assert.rejects(run, /died/);
    else await run;
    assert.ok((await redis.pttl(registryKeys.retentionRun)) <= retentionRuns.retryMs);
    if (fails) await redis.set(registryKeys.retentionDue, String(earlier), 'XX');
    else assert.ok((await secondsOverdue(redis)) >= 90_000);
  }
  const [accountId] = [...(await readRegistry(redis)).accounts.keys()];
  const overview = await administer<{ problems: string[] }>(sluice, 'GET', `/accounts/${accountId}/overview`);
  assert.ok(overview.problems.includes('expired events should have been deleted 25 hours ago'));
  const metrics = await (await fetch(`${sluice.adminUrl}/metrics`)).text();
  assert.match(metrics, /^sluice_retention_unfinished_seconds 9\d{4}$/m);
  await redis.del(registryKeys.retentionRun, registryKeys.maintenanceLock);
  await expireRowsIfDue(context);
  assert.deepEqual([await storedRows(), await secondsOverdue(redis)], [[], 0]);

  const withClock = (ms: number) => ({
    clickhouse,
    redis: { evalsha: async () => [ms / 1000, 0] } as unknown as Redis,
  });
  const nowMs = Math.floor(Date.now() / 1000) * 1000;
  const [ahead, behind] = [nowMs + 400 * dayMs, nowMs - 400 * dayMs];
  assert.ok((await earliestClock(withClock(ahead))) <= Date.now());
  assert.equal(await earliestClock(withClock(behind)), behind);
});

test('retain-days is a number of days or none, on the command line and over HTTP', async () => {
  const appId = await createEnvironment(sluice);
  const set = async (value: string) =>
    (await sluice.admin('environments', 'set', appId, '--retain-days', value)) as { retain_days?: number };
  assert.equal((await set('1')).retain_days, 1);
  assert.equal((await set(String(retention.daysMax))).retain_days, retention.daysMax);
  for (const bad of ['0', '-1', '1.5', 'x', '', String(retention.daysMax + 1)])
    await assert.rejects(set(bad), /retain_days must be none/);
  const changed = await administer<{ retain_days?: number }>(sluice, 'PATCH', `/environments/${appId}`, {
    retain_days: 7,
  });
  assert.equal(changed.retain_days, 7);
  const other = (await sluice.admin('environments', 'set', appId, '--validation', 'lenient')) as {
    retain_days?: number;
  };
  assert.equal(other.retain_days, 7, 'other settings leave it');
  assert.equal((await set('none')).retain_days, undefined);
});

// The last one, since processes never forget that a shard is elsewhere.
test('a process that does not know the server of a shard leaves the run to others', async () => {
  await redis.hset(registryKeys.documents, shardServersKey, JSON.stringify({ servers: [1] }));
  assert.equal(await expireRows(context, Date.now()), 'busy');
});
