// Rows that were accepted by a version of the service with other columns than ours.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { retryFailed } from '../../src/admin/failed.js';
import { migrate, readMigrations } from '../../src/clickhouse/migrate.js';
import { storedTable, UnknownColumns } from '../../src/clickhouse/tables.js';
import { readConfig } from '../../src/config.js';
import {
  type ColumnType,
  columnTypes,
  currentVersionOf,
  earlierColumns,
  recordColumns,
  type TableName,
  type TableVersion,
  tables,
} from '../../src/contract/records.js';
import { noCrash } from '../../src/crash-point.js';
import { createLog } from '../../src/log.js';
import { loadDeployment } from '../../src/operations/deployment.js';
import { memberOf, type Segment, segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { storeSegment } from '../../workers/store.js';
import { commit, epoch, eventRecord, group, loadShard, sealMembers } from '../support/shard.js';
import { startStores } from '../support/stores.js';

const log = createLog('test', 'silent');
const shippedVersions = structuredClone(earlierColumns);
const known = earlierColumns as Partial<Record<TableName, readonly (readonly string[])[]>>;
const stores = await startStores();
const { redis, clickhouse, rowsOf } = stores;
const config = readConfig({
  REDIS_URL: stores.redisServer.url,
  CLICKHOUSE_URL: stores.clickhouseServer.testerUrl,
});
const retrying = { redis, clickhouse, config, log };
const load = () => loadDeployment({ redis, clickhouse, shards: 1, claimBytesMax: 1e6, crash: noCrash });

beforeEach(async () => {
  await redis.flushall();
  await loadShard(redis);
});

afterEach(() => {
  for (const table of tables) delete known[table];
  Object.assign(known, shippedVersions);
});

function store(segment: Segment): Promise<string> {
  return storeSegment({ redis, clickhouse, shard: 0, crash: noCrash, log }, segment);
}

const seal = (ageMs?: number) => sealMembers(redis, ageMs);

const user: Readonly<Record<string, string>> = {
  app_id: '"1000000001"',
  user_id: '4503599627370496',
  identity: '"eve@example.com"',
};

/** The values of a user's row, or of a marker, in this order of columns. */
function valuesOf(table: TableName, order: readonly string[], values = user): string {
  const types: Readonly<Record<string, ColumnType>> = recordColumns[table];
  return order.map((name) => values[name] ?? columnTypes[types[name] as ColumnType].empty).join(',');
}

/** The columns of a table in another order, so that only their names show which is which. */
function reversed(table: TableName): string[] {
  return Object.keys(recordColumns[table]).reverse();
}

/** The last number given to a segment here. It belongs to shard 0 and is below the numbers that commits give. */
let lastNumber = 1_795_255_200_000_000n - (1_795_255_200_000_000n % 64n);

/** Puts a sealed segment with one row into Redis, as a version with these columns would leave it. */
async function putSegment(
  version: TableVersion,
  table: TableName,
  order: readonly string[],
): Promise<Segment> {
  lastNumber += 64n;
  const number = String(lastNumber);
  const segment = { table: version, number };
  const stamps = (commitNumber: number) => `,${number},${commitNumber},"1795255200.123"]\n`;
  const bytes = `${stamps(0)}[${valuesOf(table, order, {})},0\n${stamps(1)}[${valuesOf(table, order)},1\n`;
  await redis.set(shardKeys.segment(0, segment), bytes);
  await redis.zadd(shardKeys.segments(0), number, memberOf(segment));
  return segment;
}

test('rows that waited for a newer version are stored under the columns that they were accepted with', async () => {
  for (const table of tables) {
    const before = currentVersionOf(table);
    const waiting = await putSegment(before, table, reversed(table));
    known[table] = [...(known[table] ?? []), reversed(table)];
    assert.notEqual(currentVersionOf(table), before);

    const row = `[${valuesOf(table, Object.keys(recordColumns[table]))},`;
    await commit(redis, [group([{ table: tables.indexOf(table), row, claim: undefined }])]);
    const members = await seal();
    assert.deepEqual(members.length, 2, 'rows of two versions are never in one segment');
    for (const member of members) assert.equal(await store(segmentOfMember(member)), 'stored', member);

    assert.equal(await redis.exists(shardKeys.segment(0, waiting)), 0);
    const users = `SELECT app_id, toString(user_id), identity FROM ${storedTable(table)} WHERE app_id != ''`;
    const stored = ['1000000001', '4503599627370496', 'eve@example.com'];
    assert.deepEqual(await rowsOf(users), [stored, stored], table);
  }
});

test('a failed row of an earlier version is kept under its user and retried with its own columns', async () => {
  // A deployment is created only where nothing is stored.
  for (const table of tables) await clickhouse.command({ query: `TRUNCATE TABLE ${storedTable(table)}` });
  await load();
  const before = currentVersionOf('events');
  const order = reversed('events');
  known.events = [...(known.events ?? []), order];
  const segment = await putSegment(before, 'events', order);
  const key = shardKeys.segment(0, segment);
  await redis.set(key, String(await redis.get(key)).replace('4503599627370496', '"bad"'));
  assert.equal(await store(segment), 'stored');
  const failed = "SELECT table_name, app_id, identity FROM failed_events WHERE table_name != ''";
  assert.deepEqual(await rowsOf(failed), [[before, '1000000001', 'eve@example.com']]);

  await clickhouse.command({
    query: `ALTER TABLE failed_events UPDATE row = replaceOne(row, '"bad"', '7') WHERE table_name != ''`,
    clickhouse_settings: { mutations_sync: '2' },
  });
  assert.deepEqual(await retryFailed(retrying), { retried: 1, left: 0 });
  assert.deepEqual(await rowsOf('SELECT identity FROM events WHERE user_id = 7'), [['eve@example.com']]);
});

test('rows of a newer version wait for a worker of that version', async () => {
  const newer = `events.${(known.events?.length ?? 0) + 2}` as const;
  const order = reversed('events');
  const segment = await putSegment(newer, 'events', order);
  await assert.rejects(store(segment), UnknownColumns);
  const ofNewTable = await putSegment('groups' as TableVersion, 'events', order);
  await assert.rejects(store(ofNewTable), /groups/);
  assert.equal(await redis.exists(shardKeys.segment(0, segment), shardKeys.segment(0, ofNewTable)), 2);
  assert.deepEqual(await rowsOf(`SELECT count() FROM failed_events WHERE segment = ${segment.number}`), [
    [0],
  ]);

  known.events = [...(known.events ?? []), Object.keys(recordColumns.events), order];
  assert.equal(await store(segment), 'stored');
});

test('a retry leaves failed rows of a newer version where they are', async () => {
  await load();
  const row = `[${valuesOf('events', reversed('events'))},1,1795255200123456,1,"1795255200.123"]\n`;
  await clickhouse.insert({
    table: 'failed_events',
    values: [{ table_name: 'events.99', segment: '1795255200123456', line: 1, app_id: '1000000001', row }],
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0, log_comment: 'store asked test' },
  });
  assert.deepEqual(await retryFailed(retrying), { retried: 0, left: 1 });
});

test('a segment of a newer version is not listed while it is open, and ends at a fence', async () => {
  const record = eventRecord('a');
  const newer = Array.from({ length: 99 }, () => Object.keys(recordColumns.events));
  const commitAsNewer = async () => {
    known.events = newer;
    await commit(redis, [group([record])]);
    delete known.events;
    Object.assign(known, shippedVersions);
  };
  await commitAsNewer();
  assert.deepEqual(await seal(60_000), []);
  const fence = String(await runScript(redis, scripts.fence, [shardKeys.state(0)], [epoch]));
  await commitAsNewer();
  const members = await seal();
  assert.equal(members.length, 2);
  const [before, later] = members.map((member) => BigInt(segmentOfMember(member).number));
  assert.deepEqual([String(before), (later as bigint) > BigInt(fence)], [fence, true]);
});

test('the columns of a table change only together with its version, one migration each', async () => {
  const url = stores.clickhouseServer.testerUrl;
  const migrated = 'column_versions_migrations_test';
  const versions = new Map<TableName, string[][]>(tables.map((table) => [table, []]));
  const migrations = readMigrations();
  const stampCount = 4;
  for (let count = 1; count <= migrations.length; count++) {
    await migrate({ url, database: migrated }, migrations.slice(0, count));
    const read = `SELECT table, groupArray(name) FROM (SELECT table, name FROM system.columns
      WHERE database = '${migrated}' AND startsWith(table, 'stored_') ORDER BY table, position) GROUP BY table`;
    const found = new Map((await rowsOf(read)) as [string, string[]][]);
    for (const table of tables) {
      const columns = found.get(storedTable(table))?.slice(0, -stampCount);
      const of = versions.get(table) ?? [];
      if (columns !== undefined && String(columns) !== String(of.at(-1))) of.push(columns);
    }
  }
  for (const table of tables) {
    const described = [...(earlierColumns[table] ?? []), Object.keys(recordColumns[table])];
    assert.deepEqual(versions.get(table), described, `${table}: add the columns of before to earlierColumns`);
  }
});
