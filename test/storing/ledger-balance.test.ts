// The terms of the ledger and their comparison, with rows of a past hour that are missing, too many, taken, expired, masked or void.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import {
  extendVoid,
  readVoids,
  voidSince,
  writeLedger,
  writeVoid,
} from '../../src/clickhouse/ledger-table.js';
import { recordTaken } from '../../src/clickhouse/taken-records.js';
import { noCrash } from '../../src/crash-point.js';
import type { IngestRecord } from '../../src/ingest/pack.js';
import { findDifferences, type Side, without } from '../../src/insights/ledger/balance.js';
import { findUnwritten } from '../../src/insights/ledger/check.js';
import { keepTermCounts } from '../../src/insights/ledger/count.js';
import { checkIfDue, readDifferences } from '../../src/insights/ledger/schedule.js';
import { readMinute, writeMinutes } from '../../src/insights/ledger/write.js';
import { createLog } from '../../src/log.js';
import { registryKeys, shardKeys, shardOf } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import type { Deployment } from '../../src/registry/documents.js';
import { readTotals } from '../../src/registry/ledger-totals.js';
import { withRedisClock } from '../harness/redis-clock.js';
import { commit, epoch, eventRecord, group, loadShard } from '../support/shard.js';
import { startStores } from '../support/stores.js';

const { redis, clickhouse, run } = await startStores();
const log = createLog('test', 'silent');
const side: Side = { primary: clickhouse, server: clickhouse, shards: [0], shardOf: () => 0 };

const app = '1000000001';
/** A minute of an hour ago, and the first segment number of shard 0 in it. */
const minute = Math.floor(Date.now() / 60_000) - 60;
const segment = BigInt(minute) * 60_000_000n + 64n - ((BigInt(minute) * 60_000_000n) % 64n);
const hour = { from: minute - 30, to: minute + 29 };

beforeEach(async () => {
  await redis.flushall();
  await loadShard(redis);
  for (const table of ['stored_events', 'failed_events', 'taken_records', 'ledger'])
    await run(`TRUNCATE TABLE ${table}`);
});

/** Stores a marker and this many rows, as accepted in that minute. */
async function store(rows: number, more = ''): Promise<void> {
  await run(`INSERT INTO stored_events (app_id, event, identity, segment, commit_number, row_number, received_at)
    SELECT if(number = 0, '', '${app}'), 'e', 'u', ${segment}, number > 0, number, fromUnixTimestamp64Micro(${segment}, 'UTC')
    FROM numbers(${rows + 1}) ${more}
    SETTINGS insert_deduplication_token = '${Math.random()}', log_comment = 'store events ${segment}'`);
}
const book = (term: string, records: number, detail = '', at = minute) =>
  writeLedger(clickhouse, [{ app_id: app, minute: at, kind: 'events', term, detail, records }]);
const lacking = async () =>
  (await findDifferences(side, hour)).map(({ minute: at, records }) => [at, records]);

test('a minute is balanced when each record is stored, a late repeat, a failed row, or taken', async () => {
  await book('accepted', 10);
  await book('late_repeats', 2, '1');
  await store(7);
  await run(`INSERT INTO failed_events (table_name, segment, line, app_id, identity)
    VALUES ('events', ${segment}, 9, '${app}', 'u'), ('', ${segment}, 0, '', '')`);
  assert.deepEqual(await lacking(), []);
  await recordTaken(clickhouse, 'stored_events', 'row_number <= 3', 'deleted');
  assert.deepEqual(await lacking(), [], 'rows that a deletion has recorded and not removed yet count once');
  await run(`ALTER TABLE stored_events DELETE WHERE row_number <= 2 AND app_id != ''`);
  assert.deepEqual(await lacking(), [], 'a deletion is under way');
  await recordTaken(clickhouse, 'stored_events', 'row_number <= 3', 'deleted');
  await recordTaken(clickhouse, 'failed_events', `identity = 'u'`, 'deleted');
  await run(`ALTER TABLE stored_events DELETE WHERE row_number <= 3 AND app_id != ''`);
  await run(`ALTER TABLE failed_events DELETE WHERE identity = 'u'`);
  assert.deepEqual(await lacking(), [], 'a deletion was interrupted and repeated');
});

test('a record that is missing, doubled, or in another environment or minute is a difference', async () => {
  await book('accepted', 3);
  await store(2);
  assert.deepEqual(await lacking(), [[minute, 1]]);
  await store(2);
  assert.deepEqual(await lacking(), [[minute, -1]]);
  await run(`ALTER TABLE stored_events UPDATE identity = 'v' WHERE 1`);
  await run(`ALTER TABLE stored_events DELETE WHERE app_id != ''`);
  await store(3, `WHERE number != 2`);
  await run(`INSERT INTO stored_events (app_id, event, segment, commit_number, row_number)
    SETTINGS log_comment = 'store events ${segment}' VALUES ('2', 'e', ${segment}, 1, 2)`);
  const found = await findDifferences(side, hour);
  assert.deepEqual(
    new Set(found.map(({ app_id, records }) => `${app_id} ${records}`)),
    new Set([`${app} 1`, '2 -1']),
  );
});

test('masked rows count as taken only once a deletion has recorded them', async () => {
  await book('accepted', 4);
  await store(4);
  await run(`DELETE FROM stored_events WHERE row_number = 4`);
  assert.deepEqual(await lacking(), [[minute, 1]]);
  await run(`INSERT INTO taken_records (segment, commit_number, row_number, app_id, kind, term)
    VALUES (${segment}, 1, 4, '${app}', 'events', 'deleted')`);
  assert.deepEqual(await lacking(), []);
});

test('events that were accepted before the time of retention may be gone, and younger ones may not', async () => {
  await book('accepted', 4);
  await store(1);
  assert.deepEqual(await lacking(), [[minute, 3]]);
  await book('expired_to', 1, '', minute - 1);
  assert.deepEqual(await lacking(), [[minute, 3]]);
  await book('expired_to', 1, '', minute);
  assert.deepEqual(await lacking(), []);
});

test('a difference is found beside any number of environments whose events expire in that time', async () => {
  const apps = Array.from({ length: 150 }, (_, n) => String(2_000_000_000 + n));
  const row = { minute, kind: 'events', detail: '', records: 1 };
  await writeLedger(clickhouse, [
    ...apps.map((app_id) => ({ ...row, app_id, term: 'accepted' })),
    ...apps.map((app_id) => ({ ...row, app_id, term: 'expired_to', minute: minute - 1 })),
  ]);
  const stored = apps.slice(0, -1).map((app_id, n) => `('${app_id}', 'e', ${segment}, 1, ${n + 1})`);
  await run(`INSERT INTO stored_events (app_id, event, segment, commit_number, row_number)
    SETTINGS log_comment = 'store events ${segment}' VALUES ${stored.join(', ')}`);
  for (const span of [hour, { from: minute - 3_000, to: minute + 29 }]) {
    const found = await findDifferences(side, span);
    assert.deepEqual(
      found.map(({ app_id, records }) => [app_id, records]),
      [[apps.at(-1), 1]],
    );
  }
});

test('minutes that cannot be balanced are left out, and all others are checked', async () => {
  await book('accepted', 1);
  await book('accepted', 1, '', minute + 5);
  await writeVoid(clickhouse, { from: minute - 2, to: minute + 2, reason: 'a test' });
  assert.deepEqual(await lacking(), [[minute + 5, 1]]);
  await extendVoid(clickhouse, 'a test', minute + 5);
  assert.deepEqual(await lacking(), []);
  assert.deepEqual(without({ from: 1, to: 9 }, [{ from: 3, to: 4, reason: '' }]), [
    { from: 1, to: 2 },
    { from: 5, to: 9 },
  ]);
});

test('where nothing was ever written, no later minute is left out than asked for', async () => {
  await voidSince(clickhouse, { to: minute, reason: 'a test' });
  assert.deepEqual(await readVoids(clickhouse), [{ from: 0, to: minute, reason: 'a test' }]);
});

test('a commit counts what it decides, a worker writes the minute once, and the permanent sums stay', async () => {
  // Redis's clock stands still, so that both commits are in one minute.
  const { redis: still } = await withRedisClock(redis);
  await commit(still, [group([eventRecord('a', 'key'), eventRecord('b'), eventRecord('a', 'key')])]);
  await commit(still, [group([eventRecord('c', 'key')])]);
  const [now] = await redis.smembers(shardKeys.ledgerMinutes(0));
  const counted = (await readMinute(redis, 0, Number(now))).map(({ term, records }) => `${term} ${records}`);
  assert.deepEqual(counted.sort(), ['accepted 2', 'differing 1', 'repeated 1']);
  const options = { redis, clickhouse, shards: 1, epoch, crash: noCrash };
  await redis.hset(shardKeys.state(0), 'ledger_since', 1);
  await writeMinutes(options);
  assert.equal(await redis.scard(shardKeys.ledgerMinutes(0)), 1, 'the minute is not over');

  // Changes Redis as if these commits had been made an hour ago.
  for (const field of Object.keys(await redis.hgetall(shardKeys.state(0))))
    if (field.startsWith('open.')) await redis.hdel(shardKeys.state(0), field);
  await redis.rename(shardKeys.ledger(0, now ?? ''), shardKeys.ledger(0, minute));
  await redis.rename(shardKeys.ledgerLog(0, now ?? ''), shardKeys.ledgerLog(0, minute));
  await redis.del(shardKeys.ledgerMinutes(0));
  await redis.sadd(shardKeys.ledgerMinutes(0), minute);
  await assert.rejects(
    writeMinutes({
      ...options,
      crash: (point) => {
        if (point === 'ledger_written') throw new Error(point);
      },
    }),
  );
  await writeMinutes(options);
  assert.equal(await redis.scard(shardKeys.ledgerMinutes(0)), 0);
  const totals = await readTotals(redis, 1, [app], ['differing', 'suppressed']);
  assert.deepEqual(Object.fromEntries(totals), { differing: 1, suppressed: 0 });
  await store(2);
  assert.deepEqual(await lacking(), []);
  assert.deepEqual(await findUnwritten({ redis, clickhouse, shards: 1, epoch }, hour), []);
  await run('TRUNCATE TABLE ledger');
  assert.deepEqual(await findUnwritten({ redis, clickhouse, shards: 1, epoch }, hour), [
    { app_id: '', kind: 'unwritten', minute, records: 2 },
  ]);
});

test('a commit of several environments and kinds counts each record for its own environment and kind', async () => {
  const properties = (claim?: string): IngestRecord => ({ ...eventRecord('p', claim), table: 1 });
  const groups = ['1', '2', '3'].flatMap((appId, n) => [
    { ...group([eventRecord('e', `e${n}`), properties(`p${n}`), eventRecord('f', `f${n}`)]), appId },
    { ...group(Array.from({ length: n + 1 }, () => eventRecord('plain'))), appId },
    { ...group([properties()]), appId },
  ]);
  await commit(redis, groups);
  await commit(redis, groups);
  const counted = new Map<string, number>();
  for (const minute of await redis.smembers(shardKeys.ledgerMinutes(0)))
    for (const { app_id, kind, term, records } of await readMinute(redis, 0, Number(minute))) {
      const name = `${app_id} ${kind} ${term}`;
      counted.set(name, (counted.get(name) ?? 0) + records);
    }
  const expected = ['1', '2', '3'].flatMap((appId, n) => [
    [`${appId} events accepted`, 2 + 2 * (n + 1)],
    [`${appId} user_properties accepted`, 1 + 2],
    [`${appId} events repeated`, 2],
    [`${appId} user_properties repeated`, 1],
  ]);
  assert.deepEqual(new Map(counted), new Map(expected as [string, number][]));
});

test('leaves out records for which a full minute has no room, and records that another deployment counts', async () => {
  const keys = [shardKeys.state(0), shardKeys.ledgerMinutes(0)];
  const count = (of: string, max: number, field: string) =>
    runScript(redis, scripts.countTerms, keys, [of, max, field, 2]);
  await count('another', 9, `${app} - limited`);
  assert.equal(await redis.exists(keys[1] as string), 0);
  await count(epoch, 9, `${app} - limited`);
  await count(epoch, 0, `${app} - unauthorized`);
  const totals = await readTotals(redis, 1, [app], ['limited', 'unauthorized']);
  assert.deepEqual(Object.fromEntries(totals), { limited: 2, unauthorized: 0 });
});

test('a shard that fails alone, as on a cluster, holds up neither the minutes nor the counts of others', async () => {
  await redis.set(shardKeys.state(0), 'no hash, so that each command fails');
  await loadShard(redis, 1);
  await redis.hset(shardKeys.state(1), 'ledger_since', 1);
  await redis.sadd(shardKeys.ledgerMinutes(1), minute);
  await redis.hset(shardKeys.ledger(1, minute), `${app} events repeated`, 3);
  const options = { redis, clickhouse, shards: 2, epoch, crash: noCrash };
  await assert.rejects(writeMinutes(options), /WRONGTYPE/);
  assert.equal(await redis.exists(shardKeys.ledgerMinutes(1)), 0);

  const counts = keepTermCounts(redis, () => ({ epoch, shards: 2 }) as Deployment, log);
  for (const shard of [0, 1])
    counts.add(['1', '2', '3', '4', '5'].find((id) => shardOf(id, 2) === shard) ?? '', 'limited', 1);
  await counts.close();
  assert.equal(await redis.scard(shardKeys.ledgerMinutes(1)), 1);
});

test('minutes of a shard that were not checked where it was before are checked where it is now', async () => {
  await loadShard(redis, 1);
  const now = Math.floor(Date.now() / 60_000);
  // The other check rests.
  await redis.hset(registryKeys.ledgerChecked, {
    'new 0': now,
    'new 1': now - 30,
    rests_older: Date.now() + 3_600_000,
  });
  await book('accepted', 1, '', now - 10);
  await checkIfDue({ redis, clickhouse, shards: 2, epoch, log });
  assert.deepEqual(
    (await readDifferences(redis)).map(({ app_id, records }) => [app_id, records]),
    [[app, 1]],
  );
  const checked = await redis.hmget(registryKeys.ledgerChecked, 'new 0', 'new 1');
  assert.ok(Number(checked[1]) > now - 30 && checked[0] === checked[1], String(checked));
});
