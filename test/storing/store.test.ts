// From a sealed segment to its rows in ClickHouse, exactly once: markers, tokens, crashes at every step, and failed rows.

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { beforeEach, test } from 'node:test';
import { listFailed, retryFailed } from '../../src/admin/failed.js';
import { type ClickHouseClient, codeOfFault, faultCodes, isPoison } from '../../src/clickhouse/client.js';
import { generationAbove } from '../../src/clickhouse/key-index.js';
import { migrate, readMigrations, renderSql } from '../../src/clickhouse/migrate.js';
import { refuseSegments } from '../../src/clickhouse/shard-limits.js';
import { stampRows } from '../../src/clickhouse/stamps.js';
import { insertFailedRow, insertSegment, isRefusedSegment, tokenOf } from '../../src/clickhouse/store.js';
import { markerRows, stampTypes, storedTable } from '../../src/clickhouse/tables.js';
import { readConfig } from '../../src/config.js';
import {
  type ColumnType,
  columnTypes,
  currentVersionOf,
  eventSchema,
  recordColumns,
  type TableName,
  tables,
} from '../../src/contract/records.js';
import { type CrashPoint, type CrashPointName, noCrash } from '../../src/crash-point.js';
import { noEventId } from '../../src/ingest/event-id.js';
import { createLog } from '../../src/log.js';
import { loadDeployment } from '../../src/operations/deployment.js';
import type { Queue } from '../../src/packages/bullmq.js';
import { readBacklog } from '../../src/redis/backlog.js';
import { registryKeys, type Segment, segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { commitBatches, insertTokens } from '../../src/tuning.js';
import { storeJobId } from '../../workers/queues.js';
import { maySkipMarkerCheck, storeSegment } from '../../workers/store.js';
import { tick } from '../../workers/tick.js';
import { until } from '../harness/wait.js';
import { commit, epoch, eventRecord, group, loadShard, sealAll } from '../support/shard.js';
import { database, startGatedStores } from '../support/stores.js';

const log = createLog('test', 'silent');
/** `gated`: a worker's connection to ClickHouse, behind the gate. */
const stores = await startGatedStores();
const { redis, clickhouse, gate, gated, run, rowsOf } = stores;

beforeEach(async () => {
  await redis.flushall();
  await loadShard(redis);
  for (const table of tables) await run(`TRUNCATE TABLE ${storedTable(table)}`);
  await run('TRUNCATE TABLE failed_events');
  gate.pass();
  await run('TRUNCATE TABLE shard_limits');
});

async function names(): Promise<unknown[]> {
  return (await rowsOf('SELECT event FROM events ORDER BY segment, commit_number, row_number')).flat();
}

/** Seals the open segments; settles with the one that was opened last. */
async function sealNewest(): Promise<Segment> {
  return (await sealAll(redis)).at(-1) as Segment;
}

/** Commits events of these names, seals them and returns their segment, its bytes and its rows. */
async function sealedSegment(
  ...events: string[]
): Promise<{ segment: Segment; bytes: Buffer; rows: Buffer; name: { table: TableName; number: string } }> {
  await commit(redis, [group(events.map((event) => eventRecord(event)))]);
  const segment = await sealNewest();
  const bytes = (await redis.getBuffer(shardKeys.segment(0, segment))) ?? Buffer.alloc(0);
  return { segment, bytes, rows: stampRows(bytes).bytes, name: { table: 'events', number: segment.number } };
}

/** Makes ClickHouse know the segment's first token without having its rows, as a crash can. */
async function burn(name: { table: TableName; number: string }, bytes: Buffer): Promise<void> {
  const another = BigInt(name.number) + 1n;
  const stranger = Buffer.from(`${markerRows.events},${another},0,"1795255200.123"]\n`);
  await insertSegment(clickhouse, name, stranger, tokenOf(name, bytes, 0));
}

/** Creates the deployment, or loads it again. */
const load = () => loadDeployment({ redis, clickhouse, shards: 1, claimBytesMax: 1e6, crash: noCrash });

const store = (segment: Segment, fresh = false) =>
  storeSegment({ redis, clickhouse, shard: 0, crash: noCrash, log }, segment, fresh);

test('migrations make the tables that the description of records requires', async () => {
  for (const table of tables) {
    const described = Object.entries(recordColumns[table]).map(([name, type]) => [
      name,
      columnTypes[type].clickhouse,
    ]);
    const found = await rowsOf(
      `SELECT name, type FROM system.columns WHERE database = '${database}' AND table = '${storedTable(table)}' ORDER BY position`,
    );
    assert.deepEqual([...found].sort(), [...described, ...Object.entries(stampTypes)].sort(), table);
  }
});

test('each column of an event that holds text is a field with a greatest length', () => {
  for (const [name, type] of Object.entries(recordColumns.events)) {
    if (type !== 'text' || name === 'app_id') continue;
    const field: object | undefined = eventSchema.properties[name as keyof typeof eventSchema.properties];
    assert.ok(field !== undefined && 'maxLength' in field, name);
  }
});

test('stores a segment, proves it by its marker, and forgets it', async () => {
  const { segment } = await sealedSegment('a', 'b');
  assert.equal(await store(segment), 'stored');
  assert.deepEqual(await names(), ['a', 'b']);
  const backlog = await readBacklog(redis, 0);
  assert.deepEqual([backlog.segments, backlog.rows, backlog.bytes], [0, 0, 0]);
  assert.equal(await redis.exists(shardKeys.segment(0, segment)), 0);
  assert.equal(await store(segment), 'gone');
  assert.deepEqual(await names(), ['a', 'b']);
});

test('the buffer of rows is used again once they are stored, and never if their insert failed', async (t) => {
  const segments = [];
  for (let i = 0; i < 4; i++) {
    const events = Array.from({ length: 1_600 }, (_, event) => `${i} ${event} ${'x'.repeat(1000)}`);
    segments.push((await sealedSegment(...events)).segment);
  }
  const exec = clickhouse.exec.bind(clickhouse);
  const sent: ArrayBufferLike[] = [];
  t.mock.method(clickhouse, 'exec', async (params: Parameters<typeof exec>[0]) => {
    if (!('values' in params)) return exec(params);
    const [rows] = (await params.values.toArray()) as [Buffer];
    sent.push(rows.buffer);
    if (sent.length === 2) throw new Error('socket hang up');
    return exec({ ...params, values: Readable.from([rows]) });
  });
  for (const segment of segments) await store(segment).catch(() => undefined);
  assert.equal(sent.length, 4);
  const [first, failed, next, last] = sent;
  assert.deepEqual([failed === first, next === first, last === next], [true, false, true]);
  assert.equal((await names()).length, 4_800);
});

test('marker rows are in no view and no count', async () => {
  const identity = { table: 2, row: `["1000000001","${noEventId}",7,"ada",`, claim: undefined };
  const properties = {
    table: 1,
    row: `["1000000001","${noEventId}",null,"ada",null,{"email":"ada@example.com"},`,
    claim: undefined,
  };
  const others = tables.slice(3).map((table, i) => {
    const values = Object.entries(recordColumns[table]).map(([name, type]) =>
      name === 'app_id' ? '"1000000001"' : columnTypes[type].empty,
    );
    return { table: 3 + i, row: `[${values.join(',')},`, claim: undefined };
  });
  await commit(redis, [group([eventRecord('a'), identity, properties, ...others])]);
  for (const segment of await sealAll(redis)) assert.equal(await store(segment), 'stored');
  for (const table of tables) {
    assert.deepEqual(await rowsOf(`SELECT count(), countIf(app_id = '') FROM ${table}`), [[1, 0]]);
    assert.deepEqual(await rowsOf(`SELECT count() FROM ${storedTable(table)}`), [[2]]);
  }
  assert.deepEqual(await rowsOf('SELECT identity, user_ids, email FROM users'), [
    ['ada', [7], 'ada@example.com'],
  ]);
  assert.deepEqual(await rowsOf("SELECT identity, user_properties['email'] FROM user_events"), [
    ['ada', 'ada@example.com'],
  ]);
});

test('finds a segment stored whose insert was never confirmed, and inserts nothing', async () => {
  const { segment, rows, name } = await sealedSegment('a', 'b');
  await insertSegment(clickhouse, name, rows, 'an unknown token');
  assert.equal(await store(segment), 'found');
  assert.deepEqual(await names(), ['a', 'b']);
});

test('the first attempt of a young segment, which does not look before its insert, stores nothing twice either', async () => {
  const { segment, bytes, rows, name } = await sealedSegment('a', 'b');
  await insertSegment(clickhouse, name, rows, tokenOf(name, bytes, 0));
  assert.equal(await store(segment, true), 'stored');
  assert.deepEqual(await names(), ['a', 'b']);

  const second = await sealedSegment('c');
  await burn(second.name, second.bytes);
  assert.equal(await store(second.segment, true), 'stored');
  assert.deepEqual(await names(), ['a', 'b', 'c'], 'rows whose token was burnt are stored too');
});

test('only the first attempt of a segment that is not overdue may skip the look before its insert', () => {
  const openedMs = 1_700_000_000_000;
  const segment: Segment = { table: 'events', number: String(openedMs * 1000) };
  const isFreshAt = (nowMs: number, triesStarted = 1) =>
    maySkipMarkerCheck(segment, triesStarted, nowMs, 200);
  const overdueMs = openedMs + 200 + commitBatches.overdueSegmentMsMax;
  assert.equal(isFreshAt(openedMs), true);
  assert.equal(isFreshAt(overdueMs - 1), true);
  assert.equal(isFreshAt(overdueMs), false);
  assert.equal(isFreshAt(openedMs - 1), false, 'the clock is behind');
  assert.equal(isFreshAt(openedMs, 2), false);
});

test('ClickHouse remembers enough tokens for the longest time between the marker check and the insert', () => {
  const windows = readMigrations().flatMap(({ sql }) =>
    [...sql.matchAll(/replicated_deduplication_window = (\d+)/g)].map(([, tokens]) => Number(tokens)),
  );
  assert.ok(windows.length >= 2 * tables.length);
  assert.ok(windows.every((tokens) => tokens >= insertTokens.keptMax));
});

for (const [clock, what] of [
  [performance, 'stood still'],
  [Date, 'was suspended with its machine'],
] as const) {
  test(`a worker that ${what} between its look and its insert inserts nothing, and looks again`, async (t) => {
    const { segment } = await sealedSegment('a', 'b');
    const stopAt = (point: CrashPointName): CrashPoint => {
      const nowMs = clock.now.bind(clock);
      return (name) => {
        if (name === point) t.mock.method(clock, 'now', () => nowMs() + insertTokens.markerCheckMsMax + 1);
      };
    };
    const storeAndStopAt = (point: CrashPointName, one = segment) =>
      storeSegment({ redis, clickhouse, shard: 0, crash: stopAt(point), log }, one).finally(() =>
        t.mock.restoreAll(),
      );
    for (const point of ['segment_read', 'before_insert'] as const)
      await assert.rejects(storeAndStopAt(point), /the check of what is stored is .* old/);
    assert.deepEqual(await names(), []);
    assert.equal(await store(segment), 'stored');
    assert.deepEqual(await names(), ['a', 'b']);
  });
}

test('two workers with the same segment at once store it once', async () => {
  for (let round = 0; round < 6; round++) {
    const { segment } = await sealedSegment(`a${round}`, `b${round}`);
    const fresh = round % 2 === 0;
    const results = await Promise.allSettled([
      store(segment, fresh),
      store(segment, fresh),
      store(segment, fresh),
    ]);
    assert.ok(results.some(({ status }) => status === 'fulfilled'));
    if ((await redis.zcard(shardKeys.segments(0))) > 0) await store(segment);
  }
  assert.equal((await names()).length, 12);
});

test('continues with the next token when ClickHouse knows a token but not its rows', async () => {
  const { segment, bytes, rows, name } = await sealedSegment('a', 'b');
  await burn(name, bytes);
  await insertSegment(clickhouse, name, rows, tokenOf(name, bytes, 0));
  assert.deepEqual(await names(), [], 'the burnt token silently swallows the rows');
  assert.equal(await store(segment), 'stored');
  assert.deepEqual(await names(), ['a', 'b']);
  assert.equal(await redis.hlen(shardKeys.burntTokens(0)), 0, 'it is forgotten with its segment');
});

test('a full Redis drains, whatever must be recorded before its oldest segment can be stored', async () => {
  const burnt = await sealedSegment('a');
  await burn(burnt.name, burnt.bytes);
  const bad = await segmentWithBadRow();
  await redis.config('SET', 'maxmemory', '1');
  try {
    await assert.rejects(redis.set('more', '1'), /OOM/);
    assert.equal(await store(burnt.segment), 'stored');
    assert.equal(await store(bad), 'stored');
    assert.equal(
      await runScript(
        redis,
        scripts.keysIndexed,
        [shardKeys.state(0)],
        [epoch, bad.number, generationAbove()],
      ),
      1,
    );
  } finally {
    await redis.config('SET', 'maxmemory', '0');
  }
  assert.deepEqual(await names(), ['a', 'a', 'b']);
  assert.equal(await redis.hget(shardKeys.state(0), 'keys_indexed_to'), bad.number);
});

test('does not call a token burnt while an insert of the segment is running', async () => {
  const { segment, bytes, name } = await sealedSegment('a');
  await burn(name, bytes);
  const running = clickhouse.command({
    query: "INSERT INTO FUNCTION null('x UInt8') SELECT sleepEachRow(0.25) FROM numbers(1000)",
    clickhouse_settings: { log_comment: `store events ${segment.number}`, max_block_size: '1' },
  });
  await until(
    async () =>
      (await rowsOf("SELECT 1 FROM system.processes WHERE Settings['log_comment'] LIKE 'store events%'"))
        .length > 0,
    'the insert is running',
  );
  await assert.rejects(store(segment), /another insert of this segment is running/);
  assert.deepEqual(await names(), []);
  const killed = assert.rejects(running);
  await run("KILL QUERY WHERE Settings['log_comment'] LIKE 'store events%' SYNC");
  await killed;
  assert.equal(await store(segment), 'stored');
  assert.deepEqual(await names(), ['a']);
});

class Died extends Error {}

function diesAt(point: CrashPointName): CrashPoint {
  return (name) => {
    if (name === point) throw new Died();
  };
}

test('a worker that dies in a tick leaves its segments and their jobs to the next one', async () => {
  const { segment } = await sealedSegment('a');
  const jobs = new Set<string>();
  const storeQueue = {
    addBulk: async (added: { opts: { jobId: string } }[]) =>
      added.forEach(({ opts }) => {
        jobs.add(opts.jobId);
      }),
    getFailedCount: async () => 0,
  } as unknown as Queue;
  const options = { redis, storeQueue, shard: 0, epoch, segmentAgeMsMax: 0, jobsMax: () => 10, store, log };
  const tickWith = async (crash: CrashPoint) => {
    await redis.del(shardKeys.tickTurn(0));
    return tick({ ...options, crash });
  };
  await assert.rejects(tickWith(diesAt('segments_sealed')), Died);
  assert.equal(jobs.size, 0);
  await assert.rejects(tickWith(diesAt('jobs_added')), Died);
  assert.equal(await tickWith(noCrash), true);
  assert.deepEqual([...jobs], [storeJobId(segment)]);
});

test('a worker that dies before or after it has noted a burnt token, or refused rows, leaves the rest to the next one', async () => {
  const dies = (segment: Segment, point: CrashPointName) =>
    assert.rejects(
      storeSegment({ redis, clickhouse, shard: 0, crash: diesAt(point), log }, segment),
      Died,
      point,
    );
  const burnt = await sealedSegment('z');
  await burn(burnt.name, burnt.bytes);
  for (const point of ['segment_read', 'token_burnt'] as const) await dies(burnt.segment, point);
  const bad = await segmentWithBadRow();
  for (const point of ['bad_rows_found', 'bad_rows_kept', 'bad_rows_taken_out'] as const)
    await dies(bad, point);
  for (const segment of [burnt.segment, bad]) assert.equal(await store(segment), 'stored');
  assert.deepEqual(await names(), ['z', 'a', 'b']);
  assert.deepEqual(await failedLines(), [[2]]);
  assert.equal((await readBacklog(redis, 0)).rows, 0);
});

/** The statements that remove the rows of deleted users from a table. */
const removals: Readonly<Record<string, (condition: string) => readonly string[]>> = {
  erased: (condition) => [`ALTER TABLE stored_events DELETE WHERE ${condition}`],
  'masked, then erased': (condition) => [
    `DELETE FROM stored_events WHERE ${condition}`,
    'ALTER TABLE stored_events APPLY DELETED MASK',
  ],
};

for (const [how, removalOf] of Object.entries(removals)) {
  test(`a worker that wakes up after the segment was stored and its users were ${how} brings nothing back`, async () => {
    const { segment, bytes, rows, name } = await sealedSegment('a', 'b');
    assert.equal(await store(segment), 'stored');
    for (const statement of removalOf("app_id = '1000000001' AND identity = 'ada'")) {
      await run(statement);
      assert.deepEqual(await names(), [], statement);
      // The stopped worker had decided on this insert, with this token.
      await insertSegment(clickhouse, name, rows, tokenOf(name, bytes, 0));
      assert.deepEqual(await names(), [], statement);
    }
  });

  test(`without its marker row a part that was emptied would let the same insert back in: ${how}`, async () => {
    const { segment, bytes, rows, name } = await sealedSegment('a', 'b');
    assert.equal(await store(segment), 'stored');
    for (const statement of removalOf("app_id = '1000000001' OR app_id = ''")) await run(statement);
    await until(
      async () => {
        await insertSegment(clickhouse, name, rows, tokenOf(name, bytes, 0));
        return (await names()).length > 0;
      },
      { what: 'the token of the emptied part is erased', everyMs: 200 },
    );
    assert.deepEqual(await names(), ['a', 'b'], 'this is what the marker row prevents');
  });
}

test('a token lets the same bytes in once, and other bytes have another token', async () => {
  const { bytes, rows, name } = await sealedSegment('a', 'b');
  const other = Buffer.concat([bytes, Buffer.from(bytes.subarray(bytes.lastIndexOf('\n[') + 1))]);
  assert.notEqual(tokenOf(name, other, 0), tokenOf(name, bytes, 0));
  for (let i = 0; i < 3; i++) await insertSegment(clickhouse, name, rows, tokenOf(name, bytes, 0));
  assert.deepEqual(await names(), ['a', 'b']);
});

test('puts rows that ClickHouse refuses into failed_events and stores the others', async () => {
  const records = Array.from({ length: 500 }, (_, i) => eventRecord(`e${i}`));
  const poison = (at: number, row: string) => records.splice(at, 1, { table: 0, row, claim: undefined });
  poison(123, '["1000000001","00000000000000000000000000000001","bad",-1,"","",null,{},');
  poison(377, '["1000000001","00000000000000000000000000000002","bad",null,"eve","","no time",{},');
  await commit(redis, [group(records)]);
  const [segment] = await sealAll(redis);
  assert.equal(await store(segment as Segment), 'stored');
  const stored = await names();
  assert.equal(stored.length, 498);
  assert.ok(!stored.includes('bad'));
  const failed = await rowsOf(
    "SELECT line, app_id, identity, row != '', error_code > 0, length(error) > 0 FROM failed_events WHERE table_name != '' ORDER BY line",
  );
  assert.deepEqual(failed, [
    [124, '1000000001', '', 0, 1, 1],
    [378, '1000000001', 'eve', 1, 1, 1],
  ]);
  const backlog = await readBacklog(redis, 0);
  assert.deepEqual([backlog.segments, backlog.rows, backlog.bytes], [0, 0, 0]);
});

/** A row of the table events that ClickHouse refuses for its content. */
const badRecord = {
  table: 0,
  row: '["1000000001","00000000000000000000000000000001","bad",null,"eve","","no time",{},',
  claim: undefined,
};

test('the rows that stay when others are taken out keep the stamps of their commits', async () => {
  await commit(redis, [group([eventRecord('a'), badRecord]), group([eventRecord('b')])]);
  await commit(redis, [group([badRecord])]);
  await commit(redis, [group([badRecord, eventRecord('c')])]);
  const { segment } = await sealedSegment('d');
  assert.equal(await store(segment), 'stored');
  assert.deepEqual(await rowsOf('SELECT event, commit_number, row_number FROM events ORDER BY event'), [
    ['a', 1, 0],
    ['b', 1, 2],
    ['c', 3, 1],
    ['d', 4, 0],
  ]);
  assert.deepEqual(await rowsOf("SELECT line FROM failed_events WHERE table_name != '' ORDER BY line"), [
    [2],
    [4],
    [5],
  ]);
  const failed = await rowsOf("SELECT row FROM failed_events WHERE table_name != '' AND line = 4");
  assert.match(String(failed), new RegExp(`,0,${segment.number},2,"[0-9.]+"\\]\n$`), 'it has its stamps');
});

test('retries failed rows once: mended rows are stored with their stamps, and the list is empty', async () => {
  await load();
  const stamps = '0,1795255200123456,7,"1795255200.123"]\n';
  const mended = `["1000000001","00000000000000000000000000000009","mended",null,"ada","",null,{},${stamps}`;
  const bad = mended.replace('"mended",null', '"bad",-1').replace(',7,"', ',8,"');
  const failed = [mended, bad].map((row, line) => failedRow(row, line));
  await insertFailed(failed);
  const context = retryContext();
  assert.deepEqual(await retryFailed(context), { retried: 1, left: 1 });
  assert.deepEqual(await retryFailed(context), { retried: 0, left: 1 }, 'a row that is still bad stays');
  assert.deepEqual(await rowsOf('SELECT event, segment, commit_number FROM events'), [
    ['mended', 1795255200123456, 7],
  ]);
  // The state that a retry leaves which was interrupted before it removed the row.
  await insertFailed(failed.slice(0, 1));
  assert.deepEqual(await retryFailed(context), { retried: 1, left: 1 });
  assert.deepEqual(await names(), ['mended']);
});

test('forgets a segment of which ClickHouse refuses every row, and leaves nothing of it in Redis', async () => {
  await commit(redis, [group([badRecord])]);
  const [member = ''] = await redis.zrange(shardKeys.segments(0), '0', '-1');
  const segment = segmentOfMember(member);
  assert.equal(await store(segment), 'stored');
  assert.deepEqual(await rowsOf("SELECT line FROM failed_events WHERE table_name != ''"), [[1]]);
  const backlog = await readBacklog(redis, 0);
  assert.deepEqual([backlog.segments, backlog.rows, backlog.bytes], [0, 0, 0]);
  const left = [shardKeys.segment(0, segment), shardKeys.segmentRows(0)];
  assert.equal(await redis.exists(...left), 0);
});

/** Commits an event together with one that ClickHouse refuses, and returns their segment. */
async function segmentWithBadRow(): Promise<Segment> {
  await commit(redis, [group([eventRecord('a'), badRecord])]);
  return (await sealedSegment('b')).segment;
}

const failedLines = () => rowsOf("SELECT line FROM failed_events WHERE table_name != '' ORDER BY line");

/** Lets a worker behind the gate store the segment, and holds the statement; settles with the worker's outcome. */
async function storeHeldAt(segment: Segment, statement: RegExp): Promise<{ result: Promise<string> }> {
  gate.hold(({ sql }) => statement.test(sql));
  const result = storeSegment({ redis, clickhouse: gated, shard: 0, crash: noCrash, log }, segment);
  await until(() => gate.held.length > 0, `the worker wants to ${statement}`);
  return { result };
}

/** A row of a table up to its number, with some values replaced. ClickHouse refuses it for its event_id. */
function refusedRow(table: TableName, changed: Readonly<Record<string, string>>): string {
  const texts: Readonly<Record<string, string>> = { app_id: '"1000000001"', event_id: '"no id"', ...changed };
  const values = Object.entries(recordColumns[table]).map(
    ([name, type]) => texts[name] ?? columnTypes[type].empty,
  );
  return `[${values.join(',')},`;
}

async function storeRows(table: TableName, rows: readonly string[]): Promise<Segment> {
  const records = rows.map((row) => ({ table: tables.indexOf(table), row, claim: undefined }));
  await commit(redis, [group(records)]);
  const segment = await sealNewest();
  assert.equal(await store(segment), 'stored', table);
  return segment;
}

test('keeps a failed row of every table whole under its user, so that a deletion finds it', async () => {
  for (const table of tables) {
    const users = [
      { user_id: '4503599627370496', identity: '"eve@example.com"' },
      { user_id: '0', identity: '""' },
      { user_id: '-1', identity: `"${'🧀'.repeat(255)}"` },
    ];
    const rows = users.map((user) => refusedRow(table, user));
    await storeRows(table, rows);
    const columns = 'app_id, toString(user_id), identity, row, text_bytes, text_hash, failed_events.event_id';
    const failed = await rowsOf(
      `SELECT ${columns} FROM failed_events WHERE table_name = '${currentVersionOf(table)}' ORDER BY line`,
    );
    const named = [
      ['4503599627370496', 'eve@example.com'],
      ['0', ''],
      [null, '🧀'.repeat(255)],
    ];
    for (const [index, [userId, identity]] of named.entries()) {
      const [appId, ...rest] = failed[index] as [string, string | null, string, string, ...unknown[]];
      assert.deepEqual([appId, rest[0], rest[1]], ['1000000001', userId, identity], table);
      assert.ok(rest[2].startsWith(rows[index] as string), table);
      assert.deepEqual(rest.slice(3), [0, '', '']);
    }
  }
});

/** Texts of rows that contain a user's data but no name by which a deletion could find them. */
function namelessRows(table: TableName): string[] {
  const somebody = { user_id: '7', identity: '"secret"' };
  const users = [
    { user_id: '-1', identity: '""' },
    { user_id: '"secret"', identity: '""' },
    { user_id: '"secret"', identity: 'null' },
    { user_id: '9007199254740992', identity: '"secret\\ud800"' },
    { user_id: '1.5', identity: '{"a":"secret"}' },
    { user_id: '-1', identity: `"${'secret'.repeat(43)}"` },
    { app_id: '"secret"', ...somebody },
    { app_id: '7', ...somebody },
  ];
  const whole = refusedRow(table, somebody);
  return [
    ...users.map((user) => refusedRow(table, user)),
    `${whole}"a value too many",`,
    whole.replace('["1000000001",', '['),
    whole.replace('"secret"', '"secret'),
    `{"secret":"no list"},`,
  ];
}

test('keeps only the place, reason, length and hash of a failed row that names no user', async () => {
  await load();
  await loadShard(redis);
  for (const table of tables) {
    const rows = namelessRows(table);
    const segment = await storeRows(table, rows);
    const version = currentVersionOf(table);
    const failed = await rowsOf(
      `SELECT line, user_id, identity, row, text_bytes, length(text_hash), app_id IN ('', '1000000001'), error_code > 0
      FROM failed_events WHERE table_name = '${version}' ORDER BY line`,
    );
    const bytesOf = (row: string, index: number) =>
      Buffer.byteLength(`${row}${index},${segment.number},1,"1795255200.123"]\n`);
    assert.deepEqual(
      failed,
      rows.map((row, index) => [index + 1, null, '', '', bytesOf(row, index), 64, 1, 1]),
    );
  }
  const all = await rowsOf("SELECT toString(tuple(*)) AS row FROM failed_events WHERE table_name != ''");
  assert.equal(all.length, tables.length * namelessRows('events').length);
  assert.doesNotMatch(JSON.stringify(all), /secret/);
  const listed = (await listFailed(clickhouse, 100)) as { bytes: number; text_hash: string }[];
  assert.equal(new Set(listed.map(({ text_hash }) => text_hash)).size, all.length);
  assert.ok(listed.every(({ bytes, text_hash }) => bytes > 20 && /^[0-9a-f]{64}$/.test(text_hash)));
  assert.deepEqual(await retryFailed(retryContext()), { retried: 0, left: 0 }, 'there is nothing to send');
  assert.equal((await listFailed(clickhouse, 100)).length, all.length);
});

/** Deletes every user's failed rows, as a deletion does; settles when the parts that became empty are gone. */
async function deleteFailedRows(): Promise<void> {
  await run("ALTER TABLE failed_events DELETE WHERE app_id IN ('1000000001')");
  const emptied = `SELECT 1 FROM system.parts WHERE database = '${database}' AND table = 'failed_events' AND active AND rows = 0`;
  await until(async () => (await rowsOf(emptied)).length === 0, 'parts that got empty are gone');
}

test('a worker that was paused before it looked for failed rows brings none back after a deletion', async () => {
  const segment = await segmentWithBadRow();
  const { result } = await storeHeldAt(segment, /FROM failed_events/);
  assert.equal(await store(segment), 'stored');
  assert.deepEqual(await failedLines(), [[2]]);
  await deleteFailedRows();
  gate.release();
  assert.equal(await result, 'gone');
  assert.deepEqual(await failedLines(), []);
});

test('a worker that was paused after it looked for failed rows keeps none on the strength of that look', async (t) => {
  const segment = await segmentWithBadRow();
  const { result } = await storeHeldAt(segment, /FROM failed_events/);
  const nowMs = Date.now.bind(Date);
  t.mock.method(Date, 'now', () => nowMs() + insertTokens.markerCheckMsMax + 1);
  gate.release();
  await assert.rejects(result, /the check of what is stored is .* old/);
  t.mock.restoreAll();
  assert.deepEqual(await failedLines(), []);
  assert.equal(await store(segment), 'stored');
  assert.deepEqual(await failedLines(), [[2]]);
});

test('an insert of failed rows that arrives after a deletion brings none back, and names its segment', async () => {
  const segment = await segmentWithBadRow();
  const { result } = await storeHeldAt(segment, /^INSERT INTO failed_events/);
  assert.equal(gate.held[0]?.parameters.get('log_comment'), `store events ${segment.number}`);
  assert.equal(await store(segment), 'stored');
  assert.deepEqual(await failedLines(), [[2]]);
  await deleteFailedRows();
  gate.release();
  assert.equal(await result, 'gone');
  assert.deepEqual(await failedLines(), []);
});

test('keeps no failed rows of a segment that Redis no longer has, even if ClickHouse has forgotten all of them', async () => {
  const segment = await segmentWithBadRow();
  const { result } = await storeHeldAt(segment, /FROM failed_events/);
  assert.equal(await store(segment), 'stored');
  await run('TRUNCATE TABLE failed_events');
  gate.release();
  assert.equal(await result, 'gone');
  assert.deepEqual(await rowsOf('SELECT count() FROM failed_events'), [[0]]);
});

test('keeps failed rows under the next token when ClickHouse knows their token but not the rows', async () => {
  const segment = await segmentWithBadRow();
  gate.pretend(
    ({ sql, parameters }) =>
      sql.startsWith('INSERT INTO failed_events') &&
      (parameters.get('insert_deduplication_token') ?? '').endsWith(' 0'),
  );
  const result = await storeSegment({ redis, clickhouse: gated, shard: 0, crash: noCrash, log }, segment);
  assert.equal(result, 'stored');
  assert.equal(gate.faked.length, 1);
  assert.deepEqual(await failedLines(), [[2]]);
});

test('two workers at once keep a failed row once, and its marker is neither shown nor sent again', async () => {
  await load();
  await loadShard(redis);
  const segment = await segmentWithBadRow();
  await Promise.allSettled([store(segment), store(segment), store(segment)]);
  if ((await redis.zcard(shardKeys.segments(0))) > 0) await store(segment);
  assert.deepEqual(await rowsOf('SELECT count() FROM failed_events'), [[2]]);
  assert.deepEqual(
    (await listFailed(clickhouse, 10)).map((row) => (row as { line: number }).line),
    [2],
  );
  assert.deepEqual(await failedLines(), [[2]]);
});

/** Values as JSON for columns of each type; the first is a usual one, and the first few are tried in every column. */
const oddValues: Readonly<Record<ColumnType, readonly string[]>> = {
  text: [
    '"ada"',
    'null',
    '"\\u0000"',
    '""',
    '"\u00fc\u{1f600}"',
    '"\\ud83d\\ude00"',
    '"\\ud800"',
    'true',
    'false',
    '1',
    '12.50',
    '1e400',
    '"null"',
    '"\'\\\\\\"\\n\\t"',
    '"{a:String} ? \\\\N"',
    '[1]',
    '{"a":1}',
  ],
  event_id: [
    '"00000000000000000000000000000009"',
    '"00000000-0000-0000-0000-000000000009"',
    'null',
    '""',
    '"x"',
    '9',
  ],
  user_id: ['7', '0', 'null', '"7"', '18446744073709551615', '-1', '""', '7.0'],
  optional_user_id: [
    'null',
    '7',
    '"7"',
    '-1',
    '0',
    '18446744073709551615',
    '18446744073709551616',
    '""',
    '1.5',
    'true',
    '"null"',
  ],
  time: [
    'null',
    '"1795255200.123"',
    '"1795255200"',
    '1795255200.123',
    '1795255200',
    '0',
    '-1',
    '""',
    '"2026-11-21 10:00:00.123"',
    '"2026-11-21T10:00:00.123Z"',
    '"no time"',
    '"1.123456789"',
  ],
  properties: [
    '{}',
    '{"a":null,"b":[1]}',
    '{"a":1.10}',
    'null',
    '{"a":1}',
    '{"a":"1","a":"2"}',
    '{"a":null}',
    '{"a":true,"b":1.50,"c":-0}',
    '{"a":123456789012345678901234567890}',
    '{"a":{"b":[1,"x",null]}}',
    '{"a":[]}',
    '{"":""}',
    '{"\'":"\\u0000\\\\"}',
    '[]',
    '"{}"',
  ],
};
const triedEverywhere = 4;

/** The first column of each type, in which all odd values of the type are tried. */
const firstOfType = new Map<ColumnType, string>();
for (const table of tables) {
  for (const [column, type] of Object.entries(recordColumns[table])) {
    if (column !== 'app_id' && !firstOfType.has(type)) firstOfType.set(type, `${table} ${column}`);
  }
}

/** Rows of a table, each with at most one odd value, in their order. */
function oddRows(table: TableName): string[] {
  const described = Object.entries(recordColumns[table]);
  const usual = described.map(([, type]) => oddValues[type][0] as string);
  const rows = described.flatMap(([column, type], i) => {
    const isFirst = firstOfType.get(type) === `${table} ${column}`;
    const values = isFirst ? oddValues[type] : oddValues[type].slice(0, triedEverywhere);
    return values.map((value) => usual.with(i, value));
  });
  return rows.map((row, i) => `[${row.join(',')},${i},1795255200123456,${i},"1795255200.${100 + i}"]\n`);
}

const everything = async () =>
  Promise.all(tables.map((table) => rowsOf(`SELECT * FROM ${storedTable(table)} ORDER BY commit_number`)));

test('a retry stores exactly what the bytes of a row would store, whatever they are', async (context) => {
  await load();
  let refused = 0;
  for (const table of tables) {
    for (const [i, row] of oddRows(table).entries()) {
      const name = { table, number: `${i}` };
      await insertSegment(clickhouse, name, Buffer.from(row), `sent ${table} ${i}`, true).catch(
        (error: unknown) => {
          assert.equal(isPoison(error), true, row);
          refused += 1;
        },
      );
    }
  }
  const sent = await everything();
  for (const table of tables) await run(`TRUNCATE TABLE ${storedTable(table)}`);
  const values = tables.flatMap((table) => oddRows(table).map((row, line) => failedRow(row, line, table)));
  await insertFailed(values);
  for (const value of values) {
    await insertFailedRow(clickhouse, value, 0).catch((error: unknown) => {
      assert.equal(isPoison(error), true, value.row);
      refused -= 1;
    });
  }
  assert.deepEqual(await everything(), sent);
  assert.equal(refused, 0);
  context.diagnostic(`${values.length} rows, ${sent.flat().length} of them stored either way`);
});

function failedRow(row: string, line: number, table_name: TableName = 'events') {
  return {
    table_name,
    segment: '1795255200123456',
    line,
    app_id: '1000000001',
    identity: 'ada',
    row,
  };
}

// These rows are from before the load: loading the deployment again is a restore, after which ClickHouse refuses older rows.
const insertFailed = (values: readonly object[]) =>
  clickhouse.insert({
    table: 'failed_events',
    values,
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0, log_comment: 'store asked test' },
  });

function retryContext(through: ClickHouseClient = clickhouse) {
  const config = readConfig({
    REDIS_URL: stores.redisServer.url,
    CLICKHOUSE_URL: stores.clickhouseServer.testerUrl,
  });
  return { redis, clickhouse: through, config, log };
}

/** Puts two failed rows into the table that ClickHouse would now accept. */
async function failedRowsToRetry(): Promise<void> {
  await load();
  const rowOf = (line: number) =>
    `["1000000001","0000000000000000000000000000000${line}","mended",null,"ada","",null,{},0,1795255200123456,${line},"1795255200.123"]\n`;
  await insertFailed([1, 2].map((line) => failedRow(rowOf(line), line)));
}

test('a retry whose insert arrives when the row is deleted stores nothing', async () => {
  await failedRowsToRetry();
  gate.hold(({ sql }) => sql.startsWith('INSERT INTO stored_events'));
  const retried = retryFailed(retryContext(gated));
  await until(() => gate.held.length > 0, 'the retry sends a row');
  await deleteFailedRows();
  gate.release();
  assert.deepEqual(await retried, { retried: 0, left: 2 });
  assert.deepEqual(await names(), []);
});

test('a retry that has lost its lock sends no further row, and leaves the lock to its new owner', async () => {
  await failedRowsToRetry();
  gate.hold(({ sql }) => sql.includes('AS markers FROM stored_events'));
  const retried = retryFailed(retryContext(gated));
  await until(() => gate.held.length > 0, 'the retry looks for its first row');
  await redis.set(registryKeys.maintenanceLock, 'round another', 'PX', 40_000);
  gate.release();
  await assert.rejects(retried, /has taken over the failed rows/);
  assert.deepEqual((await names()).length, 1);
  assert.equal(await redis.get(registryKeys.maintenanceLock), 'round another');
  const leftMs = await redis.pttl(registryKeys.maintenanceLock);
  assert.ok(leftMs <= 40_000, `the lock of another lasts ${leftMs} ms`);
});

/** What happens to Redis between a worker's read of a segment and its statement, and the expected result. */
const restores = [
  { what: 'Redis no longer has it', isOutstanding: false, result: 'gone' },
  { what: 'Redis still has it outstanding', isOutstanding: true, result: 'stored' },
] as const;

/** Stores a segment while a restore happens just before its worker's statement. */
async function storeOverRestore(segment: Segment, statement: string, isOutstanding: boolean) {
  gate.hold(({ sql }) => sql.startsWith(statement));
  const stored = storeSegment({ redis, clickhouse: gated, shard: 0, crash: noCrash, log }, segment);
  await until(() => gate.held.length > 0, `the worker wants to ${statement}`);
  if (!isOutstanding) await redis.flushall();
  await refuseSegments(clickhouse, 0, segment.number);
  gate.release();
  return stored;
}

for (const { what, isOutstanding, result } of restores) {
  test(`a segment that was read before a restore is ${result} when ${what}`, async () => {
    const { segment } = await sealedSegment('a', 'b');
    const insert = 'INSERT INTO stored_events';
    assert.equal(await storeOverRestore(segment, insert, isOutstanding), result);
    assert.deepEqual(await names(), isOutstanding ? ['a', 'b'] : []);
    assert.equal(await redis.zcard(shardKeys.segments(0)), 0);
  });

  test(`rows that ClickHouse refuses, of a segment read before a restore, are ${result} when ${what}`, async () => {
    await commit(redis, [group([eventRecord('a'), badRecord])]);
    const { segment } = await sealedSegment('b');
    const insert = 'INSERT INTO failed_events';
    assert.equal(await storeOverRestore(segment, insert, isOutstanding), result);
    assert.deepEqual(await names(), isOutstanding ? ['a', 'b'] : []);
    assert.deepEqual(
      await rowsOf("SELECT line FROM failed_events WHERE table_name != ''"),
      isOutstanding ? [[2]] : [],
    );
  });
}

/** Inserts a segment with only its marker row, like a worker that does not ask Redis again. */
async function insertMarker(number: bigint): Promise<void> {
  const rows = Buffer.from(`${markerRows.events},${number},0,"1795255200.123"]\n`);
  await insertSegment(clickhouse, { table: 'events', number: String(number) }, rows, `token of ${number}`);
}

test('a restore refuses segments of its own shard up to its number, and a later restore with a lower number does not lift that', async () => {
  const number = 1_795_255_200_000_000n - (1_795_255_200_000_000n % 64n);
  const definitions = await rowsOf(
    'SELECT create_table_query FROM system.tables WHERE database = currentDatabase()',
  );
  await refuseSegments(clickhouse, 0, String(number));
  await assert.rejects(insertMarker(number), isRefusedSegment);
  await assert.rejects(insertMarker(number - 64n), isRefusedSegment);
  await insertMarker(number + 64n);
  await insertMarker(number - 1n);
  await insertMarker(number - 64n + 1n);

  await refuseSegments(clickhouse, 0, String(number + 128n));
  await assert.rejects(insertMarker(number + 128n), isRefusedSegment);
  await insertMarker(number + 192n);
  await refuseSegments(clickhouse, 0, String(number - 64n));
  await assert.rejects(insertMarker(number + 128n), isRefusedSegment);
  await insertMarker(number + 256n);
  assert.deepEqual(
    await rowsOf('SELECT create_table_query FROM system.tables WHERE database = currentDatabase()'),
    definitions,
    'limits are no part of a definition',
  );
});

test('an insert that does not name its segment, or names a later one than its rows have, is refused', async () => {
  const number = 1_795_255_200_000_000n - (1_795_255_200_000_000n % 64n);
  await refuseSegments(clickhouse, 0, String(number));
  const insert = (segment: bigint, name: string) =>
    run(`INSERT INTO stored_events (segment) SETTINGS log_comment = '${name}' VALUES (${segment})`);
  await assert.rejects(insert(number + 64n, ''), isRefusedSegment);
  await assert.rejects(insert(number, `store events ${number + 64n}`), isRefusedSegment);
  await insert(number + 64n, `store events ${number + 64n}`);
});

test('nothing is stored while ClickHouse cannot read its limits', async () => {
  const { segment } = await sealedSegment('a');
  await run('RENAME TABLE shard_limits TO shard_limits_kept');
  try {
    await assert.rejects(store(segment), (error) => codeOfFault(error) === faultCodes.unknownTable);
    assert.deepEqual(await names(), []);
    assert.equal(await redis.exists(shardKeys.segment(0, segment)), 1);
  } finally {
    await run('RENAME TABLE shard_limits_kept TO shard_limits');
  }
  assert.equal(await store(segment), 'stored');
});

test('a row that failed before a restore can still be retried after it', async () => {
  const { deployment } = await load();
  await commit(redis, [group([badRecord])], { epoch: deployment.epoch });
  const [member = ''] = await redis.zrange(shardKeys.segments(0), '0', '-1');
  const segment = segmentOfMember(member);
  assert.equal(await store(segment), 'stored');
  await refuseSegments(clickhouse, 0, segment.number);
  const mended = `replaceOne(row, '"no time"', 'null')`;
  await run(`ALTER TABLE failed_events UPDATE row = ${mended} WHERE line = 1`);
  assert.deepEqual(await retryFailed(retryContext()), { retried: 1, left: 0 });
  assert.deepEqual(await rowsOf('SELECT event, identity FROM events'), [['bad', 'eve']]);
});

test('takes nothing out of a segment whose marker row is refused too, since the schema is at fault', async () => {
  const { segment } = await sealedSegment('a', 'b');
  await run('RENAME TABLE stored_events TO stored_events_kept');
  await run('CREATE TABLE stored_events AS stored_events_kept ENGINE = Null');
  await run('ALTER TABLE stored_events MODIFY COLUMN app_id UInt64');
  try {
    await assert.rejects(store(segment));
    assert.deepEqual(await rowsOf('SELECT count() FROM failed_events'), [[0]]);
    assert.equal(await redis.exists(shardKeys.segment(0, segment)), 1);
  } finally {
    await run('DROP TABLE stored_events SYNC');
    await run('RENAME TABLE stored_events_kept TO stored_events');
  }
  assert.equal(await store(segment), 'stored');
});

test('migrations can be run again, and refuse edited and newer ones', async () => {
  const options = { url: stores.clickhouseServer.testerUrl, database };
  assert.deepEqual(await migrate(options), []);
  const migrations = readMigrations();
  const edited = migrations.map((migration, i) =>
    i === 2 ? { ...migration, checksum: 'other' } : migration,
  );
  await assert.rejects(migrate(options, edited), /0003_create_stored_user_properties was edited/);
  await assert.rejects(migrate(options, migrations.slice(0, -1)), /of a newer version/);
});

test('a database of a version before 1.0.0 is refused with the way to migrate its data, and nothing in it changes', async () => {
  const made = 'before_first_release_test';
  await run(`CREATE DATABASE ${made}`);
  await run(`CREATE TABLE ${made}.migrations AS migrations ENGINE = MergeTree ORDER BY name`);
  await run(`CREATE TABLE ${made}.stored_events AS stored_events ENGINE = MergeTree ORDER BY app_id`);
  await run(
    `INSERT INTO ${made}.migrations (name) VALUES ('0001_create_stored_events'), ('0005_create_registry')`,
  );
  const read = () =>
    rowsOf(
      `SELECT name, create_table_query, total_rows FROM system.tables WHERE database = '${made}' ORDER BY name`,
    );
  const before = await read();
  assert.equal(before.length, 2);
  const migration = migrate({ url: stores.clickhouseServer.testerUrl, database: made });
  await assert.rejects(
    migration,
    /from a version before 1\.0\.0 and is left as it is: .* import these into a new deployment/,
  );
  assert.deepEqual(await read(), before);
  await run(`DROP DATABASE ${made} SYNC`);
});

test('with a cluster every migration is replicated and the engine parses it', async () => {
  for (const { name, sql } of readMigrations()) {
    const rendered = renderSql(sql, { tables: 'replicated', cluster: 'main' });
    assert.match(rendered, /ON CLUSTER main/, name);
    assert.doesNotMatch(rendered, /\{\{/, name);
    if (/CREATE TABLE/.test(rendered)) assert.match(rendered, /ENGINE = Replicated\w*MergeTree\('/, name);
    const statement = rendered.replace(/^(?:--.*\n)+/, '');
    const parsed = await clickhouse.query({ query: `EXPLAIN AST ${statement}`, format: 'TabSeparated' });
    assert.match(await parsed.text(), /Create|Alter|Drop/, name);
  }
});
