// Keys that Redis has forgotten: whatever happens in between, the first accepted record of a key is stored, and never another
// one. Redis and ClickHouse are real. The worker's steps run here one by one, and the clock is set forward.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, beforeEach, test } from 'node:test';
import { tablesUnderTest } from '../../harness/environment.js';
import { withRedisClock } from '../../harness/redis-clock.js';
import {
  type ClickHouseHandle,
  type RedisHandle,
  startClickHouse,
  startRedis,
} from '../../harness/services.js';
import { listFailed } from '../../src/admin/failed.js';
import { type ClickHouseClient, connectClickHouse } from '../../src/clickhouse/client.js';
import { keepKeysOf, readKeyIndexSize } from '../../src/clickhouse/key-index.js';
import { lookUpKeys } from '../../src/clickhouse/key-look-up.js';
import { migrate } from '../../src/clickhouse/migrate.js';
import { keyBytes } from '../../src/clickhouse/row-keys.js';
import { storedTable } from '../../src/clickhouse/tables.js';
import { tables } from '../../src/contract/records.js';
import type { CrashPointName } from '../../src/crash-point.js';
import { noIgnoredFields } from '../../src/ingest/ignored-fields.js';
import { checkMessage } from '../../src/ingest/message.js';
import type { IngestRecord } from '../../src/ingest/pack.js';
import { checkSegmentMessage } from '../../src/ingest/segment-message.js';
import { createLog } from '../../src/log.js';
import { keysLookedUp, recordsRepeatedLate } from '../../src/metrics.js';
import { Redis } from '../../src/packages/ioredis.js';
import { createClaimAging } from '../../src/redis/claim-window.js';
import { memberOf, type Segment, segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { claimSweeps, keyIndex } from '../../src/tuning.js';
import { indexKeys } from '../../workers/index-keys.js';
import { createKeyFilter } from '../../workers/key-filter.js';
import { KeyIndexIncomplete } from '../../workers/late-repeats.js';
import { storeSegment } from '../../workers/store.js';
import fc from '../support/fast-check.js';
import { commit, epoch, eventIdOf, eventRecord, group, loadShard } from '../support/shard.js';

const database = 'test_key_index';
const log = createLog('test', 'silent');
let redisServer: RedisHandle;
let clickhouseServer: ClickHouseHandle;
let connection: Redis;
let clickhouse: ClickHouseClient;

before(async () => {
  [redisServer, clickhouseServer] = await Promise.all([startRedis({ appendfsync: 'no' }), startClickHouse()]);
  connection = new Redis(redisServer.url);
  await migrate({ url: clickhouseServer.testerUrl, database });
  clickhouse = connectClickHouse({ url: clickhouseServer.testerUrl, database, tables: tablesUnderTest });
});

after(async () => {
  await clickhouse?.close();
  connection?.disconnect();
  await redisServer?.remove();
  await clickhouseServer?.remove();
});

async function empty(): Promise<void> {
  await connection.flushall();
  await loadShard(connection);
  for (const table of [...tables.map(storedTable), 'failed_events', 'stored_keys']) {
    await run(`TRUNCATE TABLE ${table}`);
  }
}

beforeEach(empty);

async function run(query: string): Promise<void> {
  await clickhouse.command({ query, clickhouse_settings: { mutations_sync: '2' } });
}

async function rowsOf(query: string): Promise<unknown[]> {
  const result = await clickhouse.query({ query, format: 'JSONCompactEachRow' });
  return result.json();
}

const names = async () => (await rowsOf('SELECT event FROM events ORDER BY event')).flat();
const countOf = async (counter: { get(): Promise<{ values: { value: number }[] }> }) =>
  (await counter.get()).values.reduce((sum, { value }) => sum + value, 0);

class Crashed extends Error {}

/** A worker with a budget for claims so small that it forgets everything it may. */
async function createWorker() {
  const clock = await withRedisClock(connection);
  const { redis } = clock;
  let redisMs = Date.now();
  let realMs = 0;
  let crashAt: CrashPointName | undefined;
  const crash = (name: CrashPointName) => {
    if (name === crashAt) throw new Crashed(name);
  };
  const options = { redis, clickhouse, epoch, crash, log };
  const age = createClaimAging({ redis, shard: 0, claimBytesMax: 1, clockMs: () => realMs });
  const seal = async () => {
    const args = [epoch, 0, 1000, ...tables];
    const keys = [shardKeys.state(0), shardKeys.segments(0)];
    return ((await runScript(redis, scripts.seal, keys, args)) as string[]).map(segmentOfMember);
  };
  let keyFilter = createKeyFilter(() => clickhouse, 0, 1, log);
  const store = async (segment: Segment, fresh = false) => {
    const result = await storeSegment({ ...options, shard: 0, keyFilter }, segment, fresh);
    await keyFilter.loaded();
    return result;
  };
  return {
    redis,
    seal,
    store,
    look: () => age(),
    index: () => indexKeys(options, 0),
    crashAt: (name: CrashPointName | undefined) => {
      crashAt = name;
    },
    send: async (event: string, key: string) => commit(redis, [group([eventRecord(event, key)])]),
    storeAll: async () => {
      for (const segment of await seal()) await store(segment);
    },
    /** Lets twenty minutes pass, after which everything that may be forgotten is. */
    forget: async () => {
      for (let step = 0; step < 24; step += 1) {
        realMs += claimSweeps.clockStepMsMax;
        redisMs += claimSweeps.clockStepMsMax;
        await clock.set(redisMs);
        if ((await age())?.wantsIndex) await indexKeys(options, 0);
      }
    },
    restart: () => {
      keyFilter = createKeyFilter(() => clickhouse, 0, 1, log);
    },
    /** Empties Redis and loads it again from ClickHouse. */
    loseRedis: async () => {
      await redis.flushall();
      const [highest] = (await rowsOf('SELECT toString(max(segment)) FROM stored_events')).flat();
      await loadShard(redis, 0, String(highest));
      redisMs += 1000;
      await clock.set(redisMs);
    },
  };
}

test('a key that Redis has forgotten is answered like a new one, and not stored again', async () => {
  const worker = await createWorker();
  assert.equal(await worker.send('first', 'k'), 's');
  await worker.storeAll();
  await worker.forget();
  const repeated = await countOf(recordsRepeatedLate);
  assert.equal(await worker.send('second', 'k'), 's', 'forgotten');
  assert.equal(await worker.send('third', 'k'), 'd', 'known again');
  assert.equal(await worker.send('other', 'new'), 's');
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'other']);
  assert.equal((await countOf(recordsRepeatedLate)) - repeated, 1);
  await worker.forget();
  assert.equal(await worker.send('fourth', 'k'), 's');
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'other']);
});

test('nothing is looked up and nothing is indexed before the first key is forgotten', async () => {
  const worker = await createWorker();
  const asked = await countOf(keysLookedUp);
  for (let i = 0; i < 5; i += 1) {
    await worker.send(`event ${i}`, `k${i}`);
    await worker.storeAll();
  }
  assert.equal(await countOf(keysLookedUp), asked);
  assert.equal((await readKeyIndexSize(clickhouse)).keys, 0);
  assert.equal(await worker.redis.hget(shardKeys.state(0), 'keys_forgotten_to'), '0');
});

test('events without keys are neither looked up nor indexed, and never make the index needed', async () => {
  const worker = await createWorker();
  await commit(worker.redis, [group([eventRecord('a'), eventRecord('b')])]);
  await worker.storeAll();
  await worker.forget();
  assert.equal(await worker.redis.hget(shardKeys.state(0), 'keys_forgotten_to'), '0');
  await worker.send('keyed', 'k');
  await worker.storeAll();
  await worker.forget();
  const asked = await countOf(keysLookedUp);
  await commit(worker.redis, [group([eventRecord('c')])]);
  await worker.storeAll();
  assert.equal(await countOf(keysLookedUp), asked);
  assert.deepEqual(await names(), ['a', 'b', 'c', 'keyed']);
  assert.deepEqual(await rowsOf('SELECT count() FROM stored_keys WHERE hash != 0'), [[1]]);
});

test('a claim is not forgotten before its key is in the index, however long that takes', async () => {
  const worker = await createWorker();
  await worker.send('first', 'k');
  await worker.storeAll();
  worker.crashAt('keys_added');
  await assert.rejects(worker.forget(), Crashed);
  assert.equal(await worker.send('second', 'k'), 'd');
  worker.crashAt('keys_marked');
  await assert.rejects(worker.forget(), Crashed);
  assert.equal(await worker.send('second', 'k'), 'd');
  worker.crashAt(undefined);
  await worker.forget();
  assert.equal(await worker.send('second', 'k'), 's');
  await worker.storeAll();
  assert.deepEqual(await names(), ['first']);
});

test('a segment that is stored again keeps the keys that it owns, also if they are in the index', async () => {
  const worker = await createWorker();
  await worker.send('old', 'k0');
  await worker.storeAll();
  await worker.forget();
  await worker.send('first', 'k');
  const [segment] = await worker.seal();
  assert.ok(segment);
  await run(`INSERT INTO stored_keys SELECT reinterpretAsUInt64(substring(unhex('${eventIdOf('k')}'), 1, 8)),
    reinterpretAsUInt64(substring(unhex('${eventIdOf('k')}'), 9, 6)), ${segment.number}`);
  assert.equal(await worker.store(segment), 'stored');
  assert.deepEqual(await names(), ['first', 'old']);
});

test('a crash anywhere between look-up, insert, adding and forgetting leaves the first record and no other', async () => {
  const points = [
    'keys_looked_up',
    'before_insert',
    'after_insert',
    'marker_found',
    'segment_forgotten',
  ] as const;
  for (const fresh of [true, false]) {
    for (const point of points) {
      await empty();
      const worker = await createWorker();
      await worker.send('first', 'k');
      await worker.storeAll();
      await worker.forget();
      await worker.send('second', 'k');
      await worker.send('new', 'n');
      const [segment] = await worker.seal();
      assert.ok(segment);
      worker.crashAt(point);
      await assert.rejects(worker.store(segment, fresh), Crashed);
      worker.crashAt(undefined);
      await worker.forget();
      await worker.storeAll();
      await worker.forget();
      await worker.send('third', 'k');
      await worker.send('newer', 'n');
      await worker.storeAll();
      assert.deepEqual(await names(), ['first', 'new'], point);
    }
  }
});

test('the filter of a worker rules out new keys but none of the index, however many come', async () => {
  const worker = await createWorker();
  const keysOf = (name: string) => Array.from({ length: 500 }, (_, i) => eventRecord(name, `${name} ${i}`));
  await commit(worker.redis, [group(keysOf('a'))]);
  await worker.storeAll();
  await worker.forget();
  await worker.send('loads the filter', 'x');
  await worker.storeAll();
  const asked = await countOf(keysLookedUp);
  await commit(worker.redis, [group(keysOf('b'))]);
  await worker.storeAll();
  assert.ok((await countOf(keysLookedUp)) - asked < 50, 'new keys');
  await worker.forget();
  await commit(worker.redis, [group([...keysOf('a'), ...keysOf('b'), ...keysOf('c')])]);
  await worker.storeAll();
  await worker.forget();
  await commit(worker.redis, [group([...keysOf('c'), ...keysOf('b'), ...keysOf('a')])]);
  await worker.storeAll();
  assert.deepEqual(
    await rowsOf("SELECT count(), uniqExact(event_id) FROM events WHERE event IN ('a', 'b', 'c')"),
    [[1500, 1500]],
  );
});

test('keys of a segment whose keys come again are found by its rows, and by the index where these are gone or among too many', async () => {
  const worker = await createWorker();
  const count = keyIndex.sampledFrom + 400;
  const numbers = Array.from({ length: count }, (_, i) => i);
  // Of each `step` keys the first is in the sample, the second will have no row, and the third will not be in the index.
  const step = Math.floor(count / keyIndex.sample);
  const isGone = (i: number) => i % step === 1;
  const isLost = (i: number) => i % step === 2;
  const records = (again: string) =>
    numbers.map((i) => eventRecord(isGone(i) ? `gone${again}` : `kept${again}`, `k${i}`));
  await commit(worker.redis, [group(records(''))]);
  const [segment] = await worker.seal();
  assert.ok(segment);
  await worker.store(segment);
  await worker.forget();
  await run("ALTER TABLE stored_events DELETE WHERE event = 'gone'");
  const lost = numbers.filter(isLost).map((i) => `unhex('${eventIdOf(`k${i}`).slice(0, 16)}')`);
  await run(
    `ALTER TABLE stored_keys DELETE WHERE reinterpret(hash, 'FixedString(8)') IN (${lost.join(', ')})`,
  );

  const ids = numbers.map((i) => Buffer.from(eventIdOf(`k${i}`), 'hex').subarray(0, keyBytes));
  const keys = { count, bytes: Buffer.concat(ids), rows: numbers };
  const ownersOf = async () => {
    const { ownerOf } = await lookUpKeys(clickhouse, 0, 'events', keys);
    return numbers.filter((i) => ownerOf(i) !== BigInt(segment.number));
  };
  assert.deepEqual(await ownersOf(), []);
  await commit(worker.redis, [group([...records(' again'), eventRecord('new', 'n')])]);
  await worker.storeAll();
  assert.deepEqual(await rowsOf('SELECT event, count() FROM events GROUP BY event ORDER BY event'), [
    ['kept', count - numbers.filter(isGone).length],
    ['new', 1],
  ]);

  const more = 2 * keyIndex.rowsReadPerKey * count;
  await run(
    `INSERT INTO stored_events (app_id, event, segment) SELECT '1', 'many', ${segment.number} FROM numbers(${more})`,
  );
  assert.deepEqual(await ownersOf(), numbers.filter(isLost));
});

test('keys that share bits are distinguished, and the first of two segments with a key owns it', async () => {
  const base = 0x0123456789abcdefn;
  const keyOf = (hash: bigint, rest: number) => {
    const bytes = Buffer.alloc(14);
    bytes.writeBigUInt64LE(hash);
    bytes.writeUIntLE(rest, 8, 6);
    return bytes;
  };
  const rows = [
    [base, 1, 900],
    [base, 1, 256],
    [base, 0xffffffffffff, 30],
    [base + (1n << 40n), 1, 40],
    [0n, 3, 500],
    [0n, 3, 70_000],
    [0n, 4, 90_000],
  ];
  await run(`INSERT INTO stored_keys VALUES ${rows.map((row) => `(${row.join(', ')})`).join(', ')}`);
  const asked = [keyOf(base, 1), keyOf(base, 0xffffffffffff), keyOf(base + (1n << 40n), 1), keyOf(base, 2)];
  const keys = { count: asked.length, bytes: Buffer.concat(asked), rows: [1, 2, 3, 4] };
  const { indexedTo, ownerOf } = await lookUpKeys(clickhouse, 3, 'events', keys);
  assert.deepEqual(
    asked.map((_, i) => ownerOf(i)),
    [256n, 30n, 40n, undefined],
  );
  assert.equal(indexedTo, 70_000n);
});

test('keys that were added before the index had owners are found', async () => {
  const worker = await createWorker();
  await run('ALTER TABLE stored_keys DROP COLUMN owner');
  await worker.send('first', 'k');
  await worker.storeAll();
  await worker.forget();
  const name = '0044_add_owner_to_stored_keys.sql';
  const path = new URL(`../../src/clickhouse/migrations/${name}`, import.meta.url);
  await run(readFileSync(path, 'utf8').replace('{{on_cluster}}', ''));
  await worker.send('second', 'k');
  await worker.send('new', 'n');
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'new']);
});

test('two workers on one segment leave out the same rows', async () => {
  const worker = await createWorker();
  await worker.send('first', 'k');
  await worker.storeAll();
  await worker.forget();
  await worker.send('second', 'k');
  await worker.send('new', 'n');
  const [segment] = await worker.seal();
  assert.ok(segment);
  await Promise.allSettled([worker.store(segment, true), worker.store(segment), worker.store(segment, true)]);
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'new']);
});

test('after a loss of Redis, segments with keys wait until the index is rebuilt from the stored rows', async () => {
  const worker = await createWorker();
  await worker.send('first', 'k');
  await worker.storeAll();
  await worker.loseRedis();
  assert.equal(await worker.send('second', 'k'), 's');
  await worker.send('new', 'n');
  await assert.rejects(worker.storeAll(), KeyIndexIncomplete);
  await worker.index();
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'new']);
});

test('a Redis of a version without an index may have forgotten any key, so the index is made first', async () => {
  const worker = await createWorker();
  await worker.send('first', 'k');
  await worker.storeAll();
  await worker.redis.hdel(shardKeys.state(0), 'keys_forgotten_to');
  await worker.redis.del(shardKeys.claims(0));
  await worker.send('second', 'k');
  await assert.rejects(worker.storeAll(), /not known yet/);
  await worker.look();
  await assert.rejects(worker.storeAll(), KeyIndexIncomplete);
  await worker.index();
  await worker.storeAll();
  assert.deepEqual(await names(), ['first']);
});

test('an index that was lost or set back decides nothing, and is rebuilt', async () => {
  const worker = await createWorker();
  await worker.send('first', 'k');
  await worker.storeAll();
  await worker.forget();
  await run('TRUNCATE TABLE stored_keys');
  await worker.send('second', 'k');
  await assert.rejects(worker.storeAll(), KeyIndexIncomplete);
  await worker.index();
  await worker.storeAll();
  assert.deepEqual(await names(), ['first']);
});

test('a segment that is older than the window keeps its claims, and its keys are known afterwards', async () => {
  const worker = await createWorker();
  await worker.send('zero', 'k0');
  await worker.storeAll();
  await worker.forget();
  await worker.send('first', 'k');
  const [segment] = await worker.seal();
  assert.ok(segment);
  await worker.forget();
  await worker.forget();
  assert.equal(await worker.send('second', 'k'), 'd', 'outstanding');
  await worker.store(segment);
  await worker.forget();
  assert.equal(await worker.send('third', 'k'), 's');
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'zero']);
});

test('an old message of the client library that comes late does not win over a newer one', async () => {
  const message = (table: number, id: string, rest: string): IngestRecord => ({
    table,
    row: `["1000000001","${eventIdOf(id)}",${rest},`,
    claim: eventIdOf(id),
  });
  const worker = await createWorker();
  const properties = (plan: string) => `7,"",{"plan":"${plan}"}`;
  const first = [message(1, 'm1', properties('old')), message(2, 'm2', '7,"ada"')];
  await commit(worker.redis, [group(first)]);
  await worker.storeAll();
  await commit(worker.redis, [group([message(1, 'm3', properties('new'))])]);
  await worker.storeAll();
  await worker.forget();
  assert.equal(await commit(worker.redis, [group(first)]), 'ss');
  await worker.storeAll();
  assert.deepEqual(await rowsOf(`SELECT properties['plan'] FROM users`), [['new']]);
  assert.deepEqual(await rowsOf('SELECT count() FROM user_identities'), [[1]]);
});

test('a repeat of a deleted record stays out, also when the index is rebuilt', async () => {
  const worker = await createWorker();
  await worker.send('first', 'k');
  await worker.send('kept', 'k2');
  await worker.storeAll();
  await keepKeysOf(clickhouse, 'stored_events', `app_id = '1000000001' AND event = 'first'`);
  await run(`ALTER TABLE stored_events DELETE WHERE event = 'first'`);
  await worker.loseRedis();
  await worker.index();
  await worker.send('second', 'k');
  await worker.send('second', 'k2');
  await worker.storeAll();
  assert.deepEqual(await names(), ['kept']);
});

test('a late repeat that ClickHouse would refuse is not kept as a failed row, and a failed row has its key', async () => {
  const bad = (key: string): IngestRecord => ({
    table: 0,
    row: `["1000000001","${eventIdOf(key)}","bad",-1,"","",null,{},`,
    claim: eventIdOf(key),
  });
  const worker = await createWorker();
  await worker.send('first', 'k');
  await commit(worker.redis, [group([bad('f')])]);
  await worker.storeAll();
  assert.equal((await listFailed(clickhouse, 10)).length, 1);
  await worker.forget();
  assert.equal(
    await commit(worker.redis, [group([bad('k'), bad('f'), bad('g'), eventRecord('good', 'h')])]),
    'ssss',
  );
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'good']);
  assert.equal((await listFailed(clickhouse, 10)).length, 2, 'the one of g is new');
  assert.equal(await worker.redis.hget(shardKeys.state(0), 'rows'), '0');
});

test('rows of a version whose messages had no ids are stored, also beside newer ones', async () => {
  const worker = await createWorker();
  await worker.send('zero', 'k0');
  await worker.storeAll();
  await worker.forget();
  const rows = [
    { version: 'user_properties', id: '', user: 7, plan: 'old' },
    { version: 'user_properties.2', id: `"${eventIdOf('m')}",`, user: 8, plan: 'new' },
  ] as const;
  for (const [i, { version, id, user, plan }] of rows.entries()) {
    const segment = { table: version, number: String(1795255200000000 + 64 * i) };
    const stamps = (commitNumber: number) => `,${segment.number},${commitNumber},"1795255200.123"]\n`;
    const marker = `["",${id === '' ? '' : `"${'0'.repeat(32)}",`}null,"",{},0\n`;
    const row = `["1000000001",${id}${user},"",{"plan":"${plan}"},0\n`;
    await worker.redis.zadd(shardKeys.segments(0), segment.number, memberOf(segment));
    await worker.redis.set(shardKeys.segment(0, segment), stamps(0) + marker + stamps(1) + row);
    assert.equal(await worker.store(segment), 'stored');
  }
  assert.deepEqual(
    await rowsOf(
      `SELECT user_id, properties['plan'], event_id FROM stored_user_properties WHERE app_id != '' ORDER BY segment`,
    ),
    [
      [7, 'old', '00000000-0000-0000-0000-000000000000'],
      [8, 'new', eventIdOf('m').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')],
    ],
  );
});

test('every row that claims a key has its id, so that the index can be rebuilt from the rows', () => {
  const mending = { note: () => undefined, longNumerals: new Set<string>(), flattenedBytesLeft: 1e6 };
  const common = {
    appId: '1000000001',
    surrogates: false,
    lenient: false,
    allowedIdentities: new Set<string>(),
  };
  const now = {
    nowMs: Date.now(),
    sentMs: Date.now(),
    receivedMs: Date.now(),
    keyspace: 'shared' as const,
    ignored: noIgnoredFields(),
  };
  const context = { ...common, ...now };
  const user = { user_id: '7', identity: 'ada@example.com' };
  const messages = [
    { type: 'event', id: 'm1', event: 'e', ...user },
    { type: 'identify', id: 'm2', ...user },
    { type: 'user_properties', id: 'm3', properties: { plan: 'pro' }, ...user },
  ].map((message) =>
    checkMessage({ session_id: '1', time: '2026-03-01T12:30:00Z', ...message }, context, mending),
  );
  const ofSegment = (['track', 'identify', 'group', 'page'] as const).map((type) => {
    const ids = {
      messageId: type,
      anonymousId: '8d5e0f2a-8f0e-4a55-9d3f-0d5c1e6f7a8b',
      userId: 'ada@example.com',
    };
    const said = { event: 'e', traits: { plan: 'pro' }, groupId: 'g' };
    return checkSegmentMessage(type, { ...ids, ...said }, context, mending);
  });
  const records = [...messages, ...ofSegment].flatMap((checked) => {
    assert.ok(!('code' in checked), JSON.stringify(checked));
    return 'records' in checked ? checked.records : [checked.record];
  });
  assert.equal(records.length, 8);
  for (const { row, claim } of records) assert.ok(claim && row.startsWith(`["1000000001","${claim}",`), row);
});

type Deed =
  | { readonly do: 'send'; readonly key: number }
  | { readonly do: 'store' | 'forget' | 'index' | 'lose redis' | 'restart' }
  | { readonly do: 'delete'; readonly key: number }
  | { readonly do: 'crash'; readonly at: CrashPointName };

const deeds = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant('send'), key: fc.integer({ min: 0, max: 3 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('store') }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('forget') }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('index') }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('lose redis') }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart') }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('delete'), key: fc.integer({ min: 0, max: 3 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('crash'),
      at: fc.constantFrom(
        'keys_looked_up',
        'after_insert',
        'marker_found',
        'keys_added',
        'keys_marked',
        'keys_index_noted',
      ),
    }),
  },
) as fc.Arbitrary<Deed>;

test('after random actions the first accepted record of each key is stored, and nothing else', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(deeds, { minLength: 6, maxLength: 25 }), async (list) => {
      await empty();
      const worker = await createWorker();
      /** By key: what was accepted first, and whether ClickHouse has it or had it. */
      const first = new Map<number, { readonly event: string; isStored: boolean; isDeleted: boolean }>();
      let sent = 0;
      const settle = async () => {
        worker.crashAt(undefined);
        await worker.index();
        await worker.storeAll();
        for (const known of first.values()) known.isStored = true;
      };
      const tolerate = (error: unknown) => {
        if (!(error instanceof Crashed || error instanceof KeyIndexIncomplete)) throw error;
      };
      for (const deed of [...list, { do: 'forget' } as const, { do: 'send', key: 0 } as const]) {
        if (deed.do === 'send') {
          const event = `key ${deed.key}, ${sent}`;
          sent += 1;
          await worker.send(event, `key ${deed.key}`);
          if (!first.has(deed.key)) first.set(deed.key, { event, isStored: false, isDeleted: false });
        }
        if (deed.do === 'crash') worker.crashAt(deed.at);
        if (deed.do === 'restart') worker.restart();
        if (deed.do === 'index') await worker.index().catch(tolerate);
        if (deed.do === 'forget') await worker.forget().catch(tolerate);
        if (deed.do === 'store') await worker.storeAll().catch(tolerate);
        if (deed.do === 'lose redis') {
          const stored = new Set(await names());
          await worker.loseRedis();
          // What only Redis had is lost, with its key.
          for (const [key, known] of first) {
            if (!stored.has(known.event) && !known.isDeleted) first.delete(key);
          }
        }
        if (deed.do === 'delete') {
          await settle();
          const known = first.get(deed.key);
          if (known === undefined) continue;
          await keepKeysOf(clickhouse, 'stored_events', `app_id != '' AND event = '${known.event}'`);
          await run(`ALTER TABLE stored_events DELETE WHERE event = '${known.event}'`);
          known.isDeleted = true;
        }
      }
      await settle();
      const expected = [...first.values()].filter((known) => !known.isDeleted).map(({ event }) => event);
      assert.deepEqual(await names(), expected.sort());
    }),
    { numRuns: 10 },
  );
});
