// Keys that Redis has forgotten: whatever happens in between, the first accepted record of a key is stored, and never another
// one. Redis and ClickHouse are real. The worker's steps run here one by one, and the clock is set forward.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { beforeEach } from 'node:test';
import { listFailed } from '../../src/admin/failed.js';
import type { Question } from '../../src/clickhouse/answers.js';
import {
  generationAbove,
  indexKeysOf,
  raiseGeneration,
  readKeyIndexSize,
  readMarkers,
  writeMarker,
} from '../../src/clickhouse/key-index.js';
import { lookUpKeys } from '../../src/clickhouse/key-look-up.js';
import { keyBytes } from '../../src/clickhouse/row-keys.js';
import { storedTable } from '../../src/clickhouse/tables.js';
import { tables } from '../../src/contract/records.js';
import type { CrashPointName } from '../../src/crash-point.js';
import { noIgnoredFields } from '../../src/ingest/ignored-fields.js';
import { checkMessage } from '../../src/ingest/message.js';
import type { IngestRecord } from '../../src/ingest/pack.js';
import { checkSegmentMessage } from '../../src/ingest/segment-message.js';
import { createLog } from '../../src/log.js';
import { keysLookedUp, keysUnfiltered, recordsRepeatedLate } from '../../src/metrics.js';
import type { Redis } from '../../src/packages/ioredis.js';
import { createClaimAging } from '../../src/redis/claim-window.js';
import { rebuildText } from '../../src/redis/key-rebuild.js';
import { type Segment, segmentOfMember, shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { claimSweeps, keyIndex } from '../../src/tuning.js';
import { indexKeys } from '../../workers/index-keys.js';
import { createKeyFilter } from '../../workers/key-filter.js';
import { KeyIndexIncomplete } from '../../workers/late-repeats.js';
import { storeSegment } from '../../workers/store.js';
import { withRedisClock } from '../harness/redis-clock.js';
import fc from '../support/fast-check.js';
import { commit, epoch, eventIdOf, eventRecord, group, loadShard, sealAll } from '../support/shard.js';
import { startStores } from '../support/stores.js';
import { test } from '../support/test.js';

const log = createLog('test', 'silent');
const { redis: connection, clickhouse, run, rowsOf } = await startStores();

async function empty(): Promise<void> {
  await connection.flushall();
  await loadShard(connection);
  for (const table of [...tables.map(storedTable), 'failed_events', 'stored_keys']) {
    await run(`TRUNCATE TABLE ${table}`);
  }
}

beforeEach(empty);

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
  let before: ((query: string) => Promise<void>) | undefined;
  const watched = new Proxy(clickhouse, {
    get: (target, name) => {
      if (name === 'command') {
        return async (asked: { query: string }) => {
          await before?.(asked.query);
          return target.command(asked);
        };
      }
      const value = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  const options = { redis, clickhouse: watched, epoch, crash, log };
  const age = createClaimAging({ redis, shard: 0, claimBytesMax: 1, clockMs: () => realMs });
  const seal = () => sealAll(redis);
  let keyFilter = createKeyFilter(() => clickhouse, 0, 1, log);
  const store = async (segment: Segment, fresh = false) => {
    const result = await storeSegment({ ...options, shard: 0, keyFilter }, segment, fresh);
    await keyFilter.loaded();
    return result;
  };
  const send = async (event: string, key: string) => commit(redis, [group([eventRecord(event, key)])]);
  const storeAll = async () => {
    for (const segment of await seal()) await store(segment);
  };
  /** Lets twenty minutes pass, after which everything that may be forgotten is forgotten. `indexes`: whether the index grows meanwhile. */
  const forget = async (indexes = true) => {
    for (let step = 0; step < 24; step += 1) {
      realMs += claimSweeps.clockStepMsMax;
      redisMs += claimSweeps.clockStepMsMax;
      await clock.set(redisMs);
      if ((await age())?.wantsIndex && indexes) await indexKeys(options, 0);
    }
  };
  const sendAndStore = async (event: string, key: string) => {
    await send(event, key);
    await storeAll();
  };
  return {
    redis,
    seal,
    store,
    send,
    storeAll,
    forget,
    sendAndStore,
    storeAndForget: async (event: string, key: string) => {
      await sendAndStore(event, key);
      await forget();
    },
    look: () => age(),
    index: () => indexKeys(options, 0),
    crashAt: (name: CrashPointName | undefined) => {
      crashAt = name;
    },
    /** Sets what is called before each statement from now on. */
    before: (work: typeof before) => {
      before = work;
    },
    /** Requests a rebuild as an administrator does. */
    rebuild: async () => {
      const asked = rebuildText({ id: randomUUID(), generation: '', doneTo: '0', to: '0' });
      const noted = (await redis.hget(shardKeys.state(0), 'keys_rebuild')) ?? '';
      assert.equal(
        await runScript(redis, scripts.noteRebuild, [shardKeys.state(0)], [epoch, noted, asked]),
        1,
      );
    },
    restart: () => {
      keyFilter = createKeyFilter(() => clickhouse, 0, 1, log);
    },
    /** Empties Redis and loads its state from ClickHouse again. */
    loseRedis: async () => {
      await redis.flushall();
      const [highest] = (
        await rowsOf(
          'SELECT toString(greatest((SELECT max(segment) FROM stored_events), (SELECT max(segment) FROM stored_user_properties)))',
        )
      ).flat();
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
  assert.equal(await countInLedger(worker.redis), 1);
  await worker.forget();
  assert.equal(await worker.send('fourth', 'k'), 's');
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'other']);
  assert.equal(await countInLedger(worker.redis), 2);
});

async function countInLedger(redis: Redis): Promise<number> {
  let sum = 0;
  for (const minute of await redis.smembers(shardKeys.ledgerMinutes(0)))
    for (const [field, records] of Object.entries(await redis.hgetall(shardKeys.ledger(0, minute))))
      if (field.includes(' events late_repeats ')) sum += Number(records);
  return sum;
}

test('the key of a skipped record keeps later records out for ever, and counts nowhere when it comes late itself', async () => {
  const worker = await createWorker();
  const skip = (key: string) =>
    commit(worker.redis, [{ ...group([eventRecord('hidden', key)]), marks: ['skipped' as const] }]);
  assert.equal(await skip('s'), 'k');
  assert.equal(await worker.send('first', 't'), 's');
  await worker.storeAll();
  await worker.forget();
  const repeated = await countOf(recordsRepeatedLate);
  assert.equal(await worker.send('later', 's'), 's', 'forgotten');
  assert.equal(await skip('t'), 'k', 'forgotten');
  await worker.storeAll();
  assert.deepEqual(await names(), ['first']);
  assert.equal((await countOf(recordsRepeatedLate)) - repeated, 1);
  const kept = await rowsOf(`SELECT count() FROM stored_events WHERE event_id = toUUID('${eventIdOf('t')}')`);
  assert.deepEqual(kept, [[1]]);
});

/** Frees keys as a recovery does when ClickHouse was set back. */
async function freeKeys(redis: Redis): Promise<void> {
  const state = shardKeys.state(0);
  const known = await redis.hget(state, 'keys_generation');
  const generation =
    (await raiseGeneration(clickhouse, 0, known)) ??
    generationAbove(known, (await readMarkers(clickhouse)).get(0)?.generation);
  const keys = [state, shardKeys.claims(0), shardKeys.claimCounts(0), shardKeys.claimMinutes(0)];
  assert.equal(await runScript(redis, scripts.freeKeys, keys, [epoch, generation]), 1);
}

test('a key that is freed while the segment of its record is open goes to a later segment, and is stored once', async () => {
  const worker = await createWorker();
  assert.equal(await worker.send('first', 'k'), 's');
  await freeKeys(worker.redis);
  assert.equal(await worker.send('second', 'k'), 's', 'freed');
  for (const segment of await worker.seal()) {
    await worker.index();
    await worker.store(segment);
  }
  assert.deepEqual(await names(), ['first']);
});

test('segments that wait while keys are freed do not wait for each other, and later ones wait for all of them', async () => {
  const worker = await createWorker();
  assert.equal(await worker.send('forgotten', 'k0'), 's');
  await worker.storeAll();
  await worker.forget();
  assert.equal(await worker.send('repeat', 'k0'), 's', 'forgotten');
  const [first] = (await worker.seal()) as [Segment];
  assert.equal(await worker.send('one', 'k1'), 's');
  await worker.seal();
  assert.equal(await worker.send('two', 'k2'), 's');
  await freeKeys(worker.redis);
  assert.equal(await worker.send('one again', 'k1'), 's', 'freed');
  assert.equal(await worker.send('two again', 'k2'), 's', 'freed');
  assert.equal(await worker.send('three', 'k3'), 's');
  const [, one, two, later] = (await worker.seal()) as [Segment, Segment, Segment, Segment];
  await worker.index();
  assert.equal(await worker.store(two), 'stored');
  await assert.rejects(worker.store(later), KeyIndexIncomplete);
  assert.equal(await worker.store(one), 'stored');
  await worker.index();
  await assert.rejects(worker.store(later), KeyIndexIncomplete, 'the first segment still waits');
  assert.equal(await worker.store(first), 'stored');
  await assert.rejects(worker.store(later), KeyIndexIncomplete);
  await worker.index();
  assert.equal(await worker.store(later), 'stored');
  assert.deepEqual(await names(), ['forgotten', 'one', 'three', 'two']);
});

test('keys that are freed twice while segments wait are stored once', async () => {
  const worker = await createWorker();
  assert.equal(await worker.send('first', 'k'), 's');
  await freeKeys(worker.redis);
  assert.equal(await worker.send('second', 'k'), 's', 'freed');
  await freeKeys(worker.redis);
  assert.equal(await worker.send('third', 'k'), 's', 'freed');
  const [first, second, third] = (await worker.seal()) as [Segment, Segment, Segment];
  await worker.index();
  for (const later of [second, third]) await assert.rejects(worker.store(later), KeyIndexIncomplete);
  for (const segment of [first, second, third]) {
    assert.equal(await worker.store(segment), 'stored');
    await worker.index();
  }
  assert.deepEqual(await names(), ['first']);
});

test('nothing is looked up and nothing is indexed before the first key is forgotten', async () => {
  const worker = await createWorker();
  const asked = await countOf(keysLookedUp);
  for (let i = 0; i < 5; i += 1) {
    await worker.sendAndStore(`event ${i}`, `k${i}`);
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
  await worker.storeAndForget('keyed', 'k');
  const asked = await countOf(keysLookedUp);
  await commit(worker.redis, [group([eventRecord('c')])]);
  await worker.storeAll();
  assert.equal(await countOf(keysLookedUp), asked);
  assert.deepEqual(await names(), ['a', 'b', 'c', 'keyed']);
  assert.deepEqual(await rowsOf('SELECT count() FROM stored_keys WHERE hash != 0'), [[1]]);
});

test('a claim is not forgotten before its key is in the index, however long that takes', async () => {
  const worker = await createWorker();
  await worker.sendAndStore('first', 'k');
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
  await worker.storeAndForget('old', 'k0');
  await worker.send('first', 'k');
  const segment = (await worker.seal())[0] ?? assert.fail();
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
  for (const [at, point] of points.entries()) {
    await empty();
    const worker = await createWorker();
    await worker.storeAndForget('first', 'k');
    await worker.send('second', 'k');
    await worker.send('new', 'n');
    const segment = (await worker.seal())[0] ?? assert.fail();
    worker.crashAt(point);
    const isFresh = at % 2 === 0;
    await assert.rejects(worker.store(segment, isFresh), Crashed);
    worker.crashAt(undefined);
    await worker.forget();
    await worker.storeAll();
    await worker.forget();
    await worker.send('third', 'k');
    await worker.sendAndStore('newer', 'n');
    assert.deepEqual(await names(), ['first', 'new'], point);
  }
});

test('the filter of a worker rules out new keys but none of the index, however many come', async () => {
  const worker = await createWorker();
  const keysOf = (name: string) => Array.from({ length: 500 }, (_, i) => eventRecord(name, `${name} ${i}`));
  await commit(worker.redis, [group(keysOf('a'))]);
  await worker.storeAll();
  await worker.forget();
  await worker.sendAndStore('loads the filter', 'x');
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

test('finds the keys of a repeated segment by its rows, or by the index if its rows are deleted or too many', async () => {
  const worker = await createWorker();
  const count = keyIndex.sampledFrom + 400;
  const numbers = Array.from({ length: count }, (_, i) => i);
  // Of every `step` keys the first is in the sample, the second will have no row, and the third will be missing from the index.
  const step = Math.floor(count / keyIndex.sample);
  const isGone = (i: number) => i % step === 1;
  const isLost = (i: number) => i % step === 2;
  const records = (again: string) =>
    numbers.map((i) => eventRecord(isGone(i) ? `gone${again}` : `kept${again}`, `k${i}`));
  await commit(worker.redis, [group(records(''))]);
  const segment = (await worker.seal())[0] ?? assert.fail();
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

test('two workers that store one segment skip the same rows', async () => {
  const worker = await createWorker();
  await worker.storeAndForget('first', 'k');
  await worker.send('second', 'k');
  await worker.send('new', 'n');
  const segment = (await worker.seal())[0] ?? assert.fail();
  await Promise.allSettled([worker.store(segment, true), worker.store(segment), worker.store(segment, true)]);
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'new']);
});

test('after a loss of Redis, segments with keys wait until the index is rebuilt from the stored rows', async () => {
  const worker = await createWorker();
  await worker.sendAndStore('first', 'k');
  await worker.loseRedis();
  assert.equal(await worker.send('second', 'k'), 's');
  await worker.send('new', 'n');
  await assert.rejects(worker.storeAll(), KeyIndexIncomplete);
  await worker.index();
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'new']);
});

test('an index that was lost or set back decides nothing, and is rebuilt', async () => {
  const worker = await createWorker();
  await worker.storeAndForget('first', 'k');
  await run('TRUNCATE TABLE stored_keys');
  await worker.send('second', 'k');
  await assert.rejects(worker.storeAll(), KeyIndexIncomplete);
  await worker.index();
  await worker.storeAll();
  assert.deepEqual(await names(), ['first']);
});

const keptTables = ['stored_events', 'stored_keys'];

/** Copies the tables, as a backup does; the copies can then be exchanged with those in use. */
async function copyTables(): Promise<void> {
  for (const table of keptTables) {
    await run(`CREATE OR REPLACE TABLE copy_of_${table} AS ${table}`);
    await run(`ALTER TABLE copy_of_${table} ATTACH PARTITION ALL FROM ${table}`);
  }
}
async function exchangeTables(): Promise<void> {
  for (const table of keptTables) await run(`EXCHANGE TABLES ${table} AND copy_of_${table}`);
}

test('a worker that has seen a lost index hides no key of the one that takes its place', async () => {
  const worker = await createWorker();
  await worker.storeAndForget('first', 'k');
  await copyTables();
  for (const table of keptTables) await run(`TRUNCATE TABLE ${table}`);
  worker.restart();
  await worker.index();
  for (const event of ['x1', 'x2', 'x3']) {
    await worker.storeAndForget(event, event);
  }
  await worker.sendAndStore('loads the filter', 'x4');
  const unfiltered = await countOf(keysUnfiltered);
  await worker.sendAndStore('x5', 'x5');
  assert.equal(await countOf(keysUnfiltered), unfiltered, 'the filter is in use');
  await exchangeTables();
  // A restore also raises the generation.
  const before = (await readMarkers(clickhouse)).get(0) ?? assert.fail();
  const generation = generationAbove(await worker.redis.hget(shardKeys.state(0), 'keys_generation'));
  assert.ok(await writeMarker(clickhouse, 0, { ...before, generation }, before.generation));
  await worker.index();
  await worker.sendAndStore('second', 'k');
  assert.deepEqual(await names(), ['first']);
});

test('a rebuilt index has the keys that were lost, and workers know them', async () => {
  const worker = await createWorker();
  for (const key of ['a', 'b']) {
    await worker.sendAndStore(`first ${key}`, key);
  }
  await worker.forget();
  await run('ALTER TABLE stored_keys DELETE WHERE hash != 0');
  worker.restart();
  await worker.sendAndStore('loads the filter', 'x');
  assert.equal((await readKeyIndexSize(clickhouse)).keys, 0);
  await worker.rebuild();
  worker.crashAt('keys_added');
  await assert.rejects(worker.index(), Crashed);
  worker.crashAt('keys_marked');
  await assert.rejects(worker.index(), Crashed);
  worker.crashAt(undefined);
  await worker.index();
  assert.equal(await worker.redis.hexists(shardKeys.state(0), 'keys_rebuild'), 0);
  assert.equal((await readKeyIndexSize(clickhouse)).keys, 3, 'each key counts once');
  await worker.sendAndStore('second a', 'a');
  assert.deepEqual(await names(), ['first a', 'first b', 'loads the filter']);
});

test('no marker is written into an index that has taken the place of the one that got the keys', async () => {
  const worker = await createWorker();
  await worker.storeAndForget('zero', 'k0');
  await copyTables();
  await worker.sendAndStore('first', 'k');
  await run(
    'INSERT INTO copy_of_stored_events SELECT * FROM stored_events WHERE segment NOT IN (SELECT segment FROM copy_of_stored_events)',
  );
  const marker = (await readMarkers(clickhouse)).get(0) ?? assert.fail();
  for (const ask of [async () => undefined, () => worker.rebuild()]) {
    await ask();
    worker.before(async (query) => {
      if (!query.includes('SELECT 0, ')) return;
      worker.before(undefined);
      await exchangeTables();
      const present = (await readMarkers(clickhouse)).get(0)?.generation;
      const generation = generationAbove(marker.generation, present);
      assert.ok(await writeMarker(clickhouse, 0, { ...marker, generation }, present));
    });
    await assert.rejects(worker.index(), /exchanged/);
    assert.equal((await readMarkers(clickhouse)).get(0)?.indexedTo, marker.indexedTo);
    // Exchanges the tables back for the rebuild.
    await exchangeTables();
  }
  await exchangeTables();
  await worker.forget();
  await worker.sendAndStore('second', 'k');
  assert.deepEqual(await names(), ['first', 'zero']);
});

test('a shard has one marker, however often its index grew', async () => {
  const worker = await createWorker();
  for (const key of ['a', 'b', 'c']) {
    await worker.storeAndForget(key, key);
  }
  await run('OPTIMIZE TABLE stored_keys FINAL');
  assert.deepEqual(await rowsOf('SELECT countIf(hash = 0), countIf(hash != 0) FROM stored_keys'), [[1, 3]]);
  const indexedTo = await worker.redis.hget(shardKeys.state(0), 'keys_indexed_to');
  assert.equal((await readMarkers(clickhouse)).get(0)?.indexedTo, indexedTo);
});

test('a filter reads the new keys only, and has 2 bytes for each', async () => {
  const countMax = 40_000;
  const rows = (from: number, count: number, segment: number) =>
    run(
      `INSERT INTO stored_keys SELECT bitOr(sipHash64(number), 1), number, ${segment} FROM numbers(${from}, ${count})`,
    );
  await rows(0, countMax, 64);
  const generation = generationAbove();
  assert.ok(await writeMarker(clickhouse, 0, { indexedTo: '64', generation }, undefined));
  await run('OPTIMIZE TABLE stored_keys FINAL');
  const read: number[] = [];
  const watched = new Proxy(clickhouse, {
    get: (target, name) => {
      const value = Reflect.get(target, name, target);
      if (name !== 'exec') return typeof value === 'function' ? value.bind(target) : value;
      return async (asked: Question) => {
        if (!asked.query.startsWith('SELECT reinterpret(hash')) return target.exec(asked);
        const answer = await target.exec({
          ...asked,
          clickhouse_settings: {
            ...asked.clickhouse_settings,
            // ClickHouse refuses the query before it reads anything if that would be more than the new parts have.
            ...(read.length > 0 && { max_rows_to_read: '1000', read_overflow_mode: 'throw' }),
          },
        });
        read.push(0);
        return answer;
      };
    },
  });
  const filter = createKeyFilter(() => watched, 0, 1, log);
  const none = { count: 0, rows: [], bytes: Buffer.alloc(0) };
  const isUsed = async (to: bigint) => {
    filter.candidates(none, { to, generation });
    await filter.loaded();
    const key = { count: 1, rows: [0], bytes: Buffer.alloc(keyBytes, 1) };
    return filter.candidates(key, { to, generation }).count === 0;
  };
  const before = process.memoryUsage().arrayBuffers;
  assert.ok(await isUsed(64n));
  assert.ok(process.memoryUsage().arrayBuffers - before < 2.5 * countMax + 1_000_000);
  await rows(countMax, 10, 128);
  assert.ok(await writeMarker(clickhouse, 0, { indexedTo: '128', generation }, generation));
  assert.ok(await isUsed(128n));
  assert.equal(read.length, 2);
});

test('a segment that is older than the window keeps its claims, and its keys are known afterwards', async () => {
  const worker = await createWorker();
  await worker.storeAndForget('zero', 'k0');
  await worker.send('first', 'k');
  const segment = (await worker.seal())[0] ?? assert.fail();
  await worker.forget();
  await worker.forget();
  assert.equal(await worker.send('second', 'k'), 'd', 'outstanding');
  await worker.store(segment);
  await worker.forget();
  assert.equal(await worker.send('third', 'k'), 's');
  await worker.storeAll();
  assert.deepEqual(await names(), ['first', 'zero']);
});

test('an old message of the client library that arrives late does not replace a newer one', async () => {
  const message = (table: number, id: string, rest: string): IngestRecord => ({
    table,
    row: `["1000000001","${eventIdOf(id)}",${rest},`,
    claim: eventIdOf(id),
  });
  const worker = await createWorker();
  const properties = (plan: string) => `7,"",null,{"plan":"${plan}"}`;
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

test('a repeat of a deleted record is not stored, even after the index is rebuilt', async () => {
  const worker = await createWorker();
  await worker.send('first', 'k');
  await worker.sendAndStore('kept', 'k2');
  await indexKeysOf(clickhouse, 'stored_events', `app_id = '1000000001' AND event = 'first'`);
  await run(`ALTER TABLE stored_events DELETE WHERE event = 'first'`);
  await worker.loseRedis();
  await worker.index();
  await worker.send('second', 'k');
  await worker.sendAndStore('second', 'k2');
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
  assert.equal((await listFailed(clickhouse, 10)).length, 2, 'only the row of g was added');
  assert.equal(await worker.redis.hget(shardKeys.state(0), 'rows'), '0');
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
    return 'records' in checked ? checked.records.map(({ record }) => record) : [checked.record];
  });
  assert.deepEqual(new Set(records.map(({ table }) => tables[table])), new Set(tables));
  for (const { row, claim } of records) assert.ok(claim && row.startsWith(`["1000000001","${claim}",`), row);
});

type Deed =
  | { readonly do: 'send'; readonly key: number }
  | { readonly do: 'store' | 'forget' | 'index' | 'lose redis' | 'lose index' | 'rebuild' | 'restart' }
  | { readonly do: 'delete'; readonly key: number }
  | { readonly do: 'crash'; readonly at: CrashPointName };

/** This key and those above belong to messages that set a user property, all others to events. */
const firstMessage = 3;
const key = fc.integer({ min: 0, max: firstMessage + 1 });

const deeds = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant('send'), key }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('store') }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('forget') }) },
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constantFrom('index', 'lose redis', 'lose index', 'rebuild', 'restart') }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('delete'), key }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('crash'),
      at: fc.constantFrom(
        'keys_looked_up',
        'before_insert',
        'after_insert',
        'marker_found',
        'segment_forgotten',
        'keys_added',
        'keys_marked',
        'keys_index_noted',
        'keys_kept',
      ),
    }),
  },
) as fc.Arbitrary<Deed>;

test('after random actions the first accepted record of each key is stored, and nothing else', async () => {
  const recordOf = (key: number, name: string): IngestRecord => {
    if (key < firstMessage) return eventRecord(name, `key ${key}`);
    const id = eventIdOf(`key ${key}`);
    return { table: 1, row: `["1000000001","${id}",7,"",null,{"is":"${name}"},`, claim: id };
  };
  const stored = async () =>
    (
      await rowsOf(`SELECT event FROM stored_events WHERE app_id != ''
        UNION ALL SELECT properties['is'] FROM stored_user_properties WHERE app_id != ''`)
    ).flat() as string[];
  await fc.assert(
    fc.asyncProperty(fc.array(deeds, { minLength: 6, maxLength: 25 }), async (list) => {
      await empty();
      const worker = await createWorker();
      /** The name of the record that was accepted first, by key. */
      const first = new Map<number, { readonly name: string; isDeleted: boolean }>();
      /** Keys that are lost together with the index, since their records were deleted. */
      const lost = new Set<number>();
      let sent = 0;
      let crashAt: CrashPointName | undefined;
      const crashNext = (at: CrashPointName | undefined) => {
        crashAt = at;
        worker.crashAt(at);
      };
      const settle = async () => {
        crashNext(undefined);
        await worker.index();
        await worker.storeAll();
      };
      const tolerate = (error: unknown) => {
        if (!(error instanceof Crashed || error instanceof KeyIndexIncomplete)) throw error;
      };
      const acts: Record<Exclude<Deed['do'], 'send' | 'crash' | 'delete'>, () => Promise<unknown>> = {
        restart: async () => worker.restart(),
        index: () => worker.index(),
        forget: () => worker.forget(),
        store: () => worker.storeAll(),
        rebuild: () => worker.rebuild(),
        'lose index': async () => {
          for (const [key, { isDeleted }] of first) if (isDeleted) lost.add(key);
          await run('TRUNCATE TABLE stored_keys');
        },
        'lose redis': async () => {
          const kept = new Set(await stored());
          await worker.loseRedis();
          // A record that only Redis had is lost, and so is its key.
          for (const [key, { name, isDeleted }] of first) {
            if (!kept.has(name) && !isDeleted) first.delete(key);
          }
        },
      };
      for (const deed of [...list, { do: 'forget' } as const, { do: 'send', key: 0 } as const]) {
        if (deed.do === 'crash') {
          crashNext(deed.at);
        } else if (deed.do === 'send') {
          if (lost.has(deed.key)) continue;
          const name = `key ${deed.key}, ${sent}`;
          sent += 1;
          await commit(worker.redis, [group([recordOf(deed.key, name)])]);
          if (!first.has(deed.key)) first.set(deed.key, { name, isDeleted: false });
        } else if (deed.do === 'delete') {
          const known = first.get(deed.key);
          if (known === undefined || known.isDeleted) continue;
          // A deletion waits until ClickHouse has the segments up to its fence, but not for later ones.
          const table = deed.key < firstMessage ? 'stored_events' : 'stored_user_properties';
          const name = deed.key < firstMessage ? 'event' : "properties['is']";
          const outstanding = ((await worker.redis.zrange(shardKeys.segments(0), '0', '-1')) as string[]).map(
            segmentOfMember,
          );
          const numbers = ['0', ...outstanding.map(({ number }) => number)].join(', ');
          const condition = `app_id != '' AND ${name} = '${known.name}' AND segment NOT IN (${numbers})`;
          const isFound = (await rowsOf(`SELECT 1 FROM ${table} WHERE ${condition}`)).length > 0;
          await indexKeysOf(clickhouse, table, condition);
          if (!isFound || crashAt === 'keys_kept') continue;
          await run(`ALTER TABLE ${table} DELETE WHERE ${condition}`);
          known.isDeleted = true;
        } else {
          await acts[deed.do]().catch(tolerate);
        }
      }
      await settle();
      const expected = [...first.values()].filter((known) => !known.isDeleted).map(({ name }) => name);
      assert.deepEqual((await stored()).sort(), expected.sort());
    }),
    { numRuns: 10 },
  );
});
