// Segments that wait for ClickHouse are compressed, which changes nothing but their size.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { tokenOf } from '../../src/clickhouse/store.js';
import { storedTable } from '../../src/clickhouse/tables.js';
import { tables } from '../../src/contract/records.js';
import { noCrash } from '../../src/crash-point.js';
import type { IngestRecord } from '../../src/ingest/pack.js';
import { createLog } from '../../src/log.js';
import { readBacklog } from '../../src/redis/backlog.js';
import { keysOfSegment, memberOf, type Segment, segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { waitingSegments } from '../../src/tuning.js';
import { createCompressor } from '../../workers/compress-waiting.js';
import { compressRows, isCompressed, rowsOfStored } from '../../workers/segment-bytes.js';
import { storeSegment } from '../../workers/store.js';
import { commit, eventRecord, group, loadShard, sealAll } from '../support/shard.js';
import { startStores } from '../support/stores.js';

const { redis, clickhouse } = await startStores();

beforeEach(async () => {
  await redis.flushall();
  await loadShard(redis);
  for (const table of [...tables.map(storedTable), 'failed_events']) {
    await clickhouse.command({ query: `TRUNCATE TABLE ${table}` });
  }
});

/** A compressor that does not wait for its previous turn; the argument of each call sets its clock forward. */
function createTurned() {
  let ms = 0;
  const compress = createCompressor({ redis, shard: 0, crash: noCrash, clockMs: () => ms });
  return async (passedMs: number): Promise<number> => {
    ms += passedMs;
    await redis.del(shardKeys.compressing(0));
    return compress();
  };
}

const seal = (ageMs = 0) => sealAll(redis, ageMs);

/** Rows as a shop would send them. */
function orders(count: number, from = 0): IngestRecord[] {
  return Array.from({ length: count }, (_, n) => {
    const order = from + n;
    const properties = {
      order: `order-${order * 7919}`,
      amount: (order % 997) / 4,
      currency: 'EUR',
      items: order % 9,
    };
    const { row } = eventRecord('Order Completed');
    return {
      table: 0,
      row: row.replace('{}', JSON.stringify(properties)).replace('"ada"', `"user-${order * 31}@example.com"`),
      claim: undefined,
    };
  });
}

async function sealedOrders(count: number, from = 0): Promise<Segment> {
  await commit(redis, [group(orders(count, from))]);
  return (await seal()).at(-1) as Segment;
}

async function storedBytes(segment: Segment): Promise<Buffer> {
  return (await redis.getBuffer(shardKeys.segment(0, segment))) ?? Buffer.alloc(0);
}

const store = (segment: Segment) =>
  storeSegment({ redis, clickhouse, shard: 0, crash: noCrash, log: createLog('test', 'silent') }, segment);

async function firstValueOf(query: string): Promise<unknown> {
  const rows = await (await clickhouse.query({ query, format: 'JSONCompactEachRow' })).json<unknown[]>();
  return rows[0]?.[0];
}

test('a waiting segment takes less than a quarter of its memory, and is stored with the same rows under the same token', async () => {
  const segment = await sealedOrders(1000);
  const rows = await storedBytes(segment);
  const before = await readBacklog(redis, 0);
  const turn = createTurned();
  assert.equal(await turn(0), 0);
  assert.equal(await turn(waitingSegments.waitMs - 1), 0, 'the segment has not waited long enough');
  assert.equal(await turn(1), 1);
  const compressed = await storedBytes(segment);
  assert.ok(
    isCompressed(compressed) && compressed.length < rows.length / 4,
    `${rows.length} ${compressed.length}`,
  );
  const during = await readBacklog(redis, 0);
  assert.deepEqual([during.segments, during.rows, during.bytes], [1, before.rows, compressed.length]);

  assert.deepEqual(await rowsOfStored(compressed), rows);
  assert.equal(
    tokenOf({ table: 'events', number: segment.number }, await rowsOfStored(compressed), 0),
    tokenOf({ table: 'events', number: segment.number }, rows, 0),
  );
  assert.equal(await store(segment), 'stored');
  assert.equal(String(await firstValueOf('SELECT count(DISTINCT identity) FROM events')), '1000');
  const after = await readBacklog(redis, 0);
  assert.deepEqual([after.segments, after.rows, after.bytes], [0, 0, 0]);
});

test('younger and open segments are left alone, and compressed later', async () => {
  const turn = createTurned();
  const old = await sealedOrders(200);
  await turn(0);
  const young = await sealedOrders(200, 200);
  assert.equal(await turn(waitingSegments.waitMs), 1);
  assert.deepEqual(
    [isCompressed(await storedBytes(old)), isCompressed(await storedBytes(young))],
    [true, false],
  );
  await commit(redis, [group(orders(200, 400))]);
  const [open] = (await redis.zrange(shardKeys.segments(0), '-1', '-1')).map(segmentOfMember);
  assert.equal(await turn(waitingSegments.waitMs), 1);
  assert.equal(isCompressed(await storedBytes(young)), true);
  assert.equal(await turn(waitingSegments.waitMs), 0);
  assert.equal(isCompressed(await storedBytes(open as Segment)), false, 'commits append to an open segment');
  await seal();
  assert.equal(await turn(0), 1);
  assert.equal(isCompressed(await storedBytes(open as Segment)), true);
});

test('a segment that a dying worker has compressed is stored like any other', async () => {
  const segment = await sealedOrders(1000);
  let ms = 0;
  const crash = () => assert.fail('died');
  const compress = createCompressor({ redis, shard: 0, crash, clockMs: () => ms });
  await compress();
  ms = waitingSegments.waitMs;
  await assert.rejects(compress(), /died/);
  assert.ok(isCompressed(await storedBytes(segment)));
  assert.equal(await store(segment), 'stored');
  assert.equal(await firstValueOf('SELECT count() FROM events'), 1000);
  assert.equal((await readBacklog(redis, 0)).bytes, 0);
});

test('several workers take turns, and each sees what the others compressed', async () => {
  const [one, other] = [createTurned(), createTurned()];
  await sealedOrders(100);
  await Promise.all([one(0), other(0)]);
  assert.equal((await one(waitingSegments.waitMs)) + (await other(waitingSegments.waitMs)), 1);
  let ms = 0;
  const third = createCompressor({ redis, shard: 0, crash: noCrash, clockMs: () => ms });
  await sealedOrders(100, 100);
  await third();
  ms += waitingSegments.waitMs;
  await redis.set(shardKeys.compressing(0), '1', 'PX', 60_000);
  assert.equal(await third(), 0, 'it is the turn of another worker');
});

test('rows that ClickHouse refuses are taken out of a compressed segment', async () => {
  const bad = '["1000000001","00000000000000000000000000000001","bad",-1,"","",null,{},';
  await commit(redis, [group([...orders(300), { table: 0, row: bad, claim: undefined }])]);
  const segment = (await seal()).at(-1) as Segment;
  const turn = createTurned();
  await turn(0);
  assert.equal(await turn(waitingSegments.waitMs), 1);
  assert.equal(await store(segment), 'stored');
  assert.equal(String(await firstValueOf('SELECT count() FROM events')), '300');
  assert.equal(String(await firstValueOf("SELECT count() FROM failed_events WHERE table_name != ''")), '1');
  const after = await readBacklog(redis, 0);
  assert.deepEqual([after.segments, after.rows, after.bytes], [0, 0, 0]);
});

test('a worker that read a segment before another one changed it changes nothing', async () => {
  const segment = await sealedOrders(300);
  const rows = await storedBytes(segment);
  const member = memberOf(segment);
  const keys = keysOfSegment(0, segment);
  const take = (from: Buffer, left: Buffer) =>
    runScript(redis, scripts.replaceSegment, keys, [member, from.length, left, 1]);
  const compressed = await compressRows(rows);
  const compress = (length: number, bytes: Buffer) =>
    runScript(redis, scripts.replaceSegment, keys, [member, length, bytes, 0]);
  const fewer = rows.subarray(0, rows.lastIndexOf('\n', rows.length - 2) + 1);

  assert.equal(await take(rows, fewer), 1);
  assert.equal(await compress(rows.length, compressed), 0, 'rows were taken out');
  assert.deepEqual(await storedBytes(segment), fewer);

  const smaller = await compressRows(fewer);
  assert.equal(await compress(fewer.length, smaller), 1);
  assert.equal(await compress(fewer.length, smaller), 0, 'the segment is compressed already');
  assert.equal(await take(rows, fewer), 0, 'the rows were taken out already');
  const least = fewer.subarray(0, fewer.lastIndexOf('\n', fewer.length - 2) + 1);
  assert.equal(await take(fewer, least), 1);
  const backlog = await readBacklog(redis, 0);
  assert.deepEqual([backlog.rows, backlog.bytes], [298, least.length]);

  await store(segment);
  assert.equal(await compress(least.length, await compressRows(least)), 0, 'the segment is stored');
  assert.equal(await redis.exists(shardKeys.segment(0, segment)), 0);
});

test('compression makes room in a full Redis', async () => {
  const segment = await sealedOrders(1000);
  const turn = createTurned();
  await turn(0);
  await redis.config('SET', 'maxmemory', '1');
  try {
    await assert.rejects(redis.set('more', '1'), /OOM/);
    assert.equal(await turn(waitingSegments.waitMs), 1);
  } finally {
    await redis.config('SET', 'maxmemory', '0');
  }
  assert.equal(isCompressed(await storedBytes(segment)), true);
});

test('a compressed segment that is damaged is not stored', async () => {
  const segment = await sealedOrders(100);
  const form = await compressRows(await storedBytes(segment));
  const [length] = form.toString('latin1').slice(1).split(':');
  const shorter = Buffer.concat([
    Buffer.from(`z${Number(length) - 1}:`),
    form.subarray(form.indexOf(':') + 1),
  ]);
  const longer = Buffer.concat([
    Buffer.from(`z${Number(length) + 1}:`),
    form.subarray(form.indexOf(':') + 1),
  ]);
  for (const damaged of [shorter, longer, form.subarray(0, form.length - 9)]) {
    await redis.set(shardKeys.segment(0, segment), damaged);
    await assert.rejects(store(segment));
  }
  assert.equal(String(await firstValueOf('SELECT count() FROM events')), '0');
});
