// redis/commit-3.lua on a real Redis: stamps, limits, claims, segments, repeats and refusals; and the kinds of faults.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { stampRows } from '../../src/clickhouse/stamps.js';
import { columns } from '../../src/clickhouse/tables.js';
import { claims, limitEntriesMax, rateLimitOf } from '../../src/contract/limits.js';
import { currentVersionOf, type TableName, tables } from '../../src/contract/records.js';
import { noEventId } from '../../src/ingest/event-id.js';
import type { Group, IngestRecord, LimitCheck } from '../../src/ingest/pack.js';
import { Redis } from '../../src/packages/ioredis.js';
import { readBacklog } from '../../src/redis/backlog.js';
import { claimBucketCount, claimWindowMinutes } from '../../src/redis/claim-window.js';
import { classifyRedisFault } from '../../src/redis/faults.js';
import { shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { withRedisClock } from '../harness/redis-clock.js';
import { until } from '../harness/wait.js';
import fc from '../support/fast-check.js';
import {
  commit,
  dumpAll,
  epoch,
  eventIdOf,
  eventRecord,
  forget,
  group,
  loadShard,
  sealMembers,
} from '../support/shard.js';
import { startStore } from '../support/stores.js';

const { server, redis } = await startStore();

beforeEach(async () => {
  await redis.flushall();
  await loadShard(redis);
});

async function outstanding(): Promise<string[]> {
  return redis.zrange(shardKeys.segments(0), '0', '-1');
}

async function bytesOf(member: string | undefined): Promise<string> {
  return (await redis.get(`{s0}:segment:${member}`)) ?? '';
}

const sealAll = (ageMs?: number, listMax?: number) => sealMembers(redis, ageMs, listMax);

/** Sets the clock of limits to a time ahead, where it stands still until the next call. */
async function standLimitClock(ms: number): Promise<void> {
  await redis.hset(shardKeys.state(0), 'limit_clock_us', String(ms * 1000), 'limit_clock_ahead_us', '0');
}

function limit(name: string, max: number, windowMs: number, cost = 1, granularityMs = 1): LimitCheck {
  return {
    digest: Buffer.from(name.padEnd(12, '.')).toString('hex'),
    cost,
    limit: { max, windowMs, granularityMs },
  };
}

test('opens a segment with a marker row and stamps every row with segment, commit and time', async () => {
  assert.equal(
    await commit(redis, [group([eventRecord('a')]), group([eventRecord('b'), eventRecord('c')])]),
    's,ss',
  );
  assert.equal(await commit(redis, [group([eventRecord('d')])]), 's');
  const [member] = await outstanding();
  const number = member?.split(':')[1];
  const rows = stampRows(Buffer.from(await bytesOf(member)))
    .bytes.toString()
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as unknown[]);
  assert.deepEqual(
    rows.map((row) => [row[0], row[2], row[8], String(row[9]), row[10]]),
    [
      ['', '', 0, number, 0],
      ['1000000001', 'a', 0, number, 1],
      ['1000000001', 'b', 1, number, 1],
      ['1000000001', 'c', 2, number, 1],
      ['1000000001', 'd', 0, number, 2],
    ],
  );
  const receivedMs = Number(rows[1]?.[11]) * 1000;
  assert.ok(
    Math.abs(receivedMs - Date.now()) < 60_000,
    'the time of acceptance is in seconds with three decimals',
  );
});

test('counts the backlog in segments, rows and bytes, and forgets a segment once', async () => {
  await commit(redis, [group([eventRecord('a'), eventRecord('b')])]);
  const [member] = await sealAll();
  const bytes = (await bytesOf(member)).length;
  const before = await readBacklog(redis, 0);
  assert.deepEqual([before.segments, before.rows, before.bytes], [1, 2, bytes]);
  await commit(redis, [group([eventRecord('c')])]);
  assert.equal(await forget(redis, String(member)), 1);
  assert.equal(await forget(redis, String(member)), 0);
  const left = await readBacklog(redis, 0);
  assert.deepEqual([left.segments, left.rows], [1, 1]);
  assert.equal(left.bytes, (await bytesOf((await outstanding())[0])).length);
});

test('writes the log of a large limit with entries for a thousandth of its window', async () => {
  const large = rateLimitOf('track', 1_000_000);
  const { windowMs, granularityMs } = large;
  assert.deepEqual([granularityMs, rateLimitOf('track', limitEntriesMax).granularityMs], [30, 1]);
  assert.ok(windowMs / granularityMs <= limitEntriesMax);
  const check = { digest: 'a'.repeat(24), cost: 1, limit: large };
  for (let ms = 0; ms < 60; ms++) {
    await standLimitClock(1_800_000_000_000 + ms);
    assert.equal(await commit(redis, [group([eventRecord('a')], [check])]), 's');
  }
  const logs = await redis.keys('{s0}:limit_sums:*');
  const bytes = await Promise.all(logs.map((key) => redis.hgetBuffer(key, Buffer.alloc(12, 0xaa))));
  const entries = bytes.map((log) => ((log?.length ?? 0) - 4) / 8);
  assert.deepEqual(entries, [2]);
});

test('answers a repeated commit as the first time and appends nothing', async () => {
  const groups = [group([eventRecord('a', 'key')])];
  assert.equal(await commit(redis, groups, { sequence: 1_000_001 }), 's');
  const state = await dumpAll(redis);
  assert.equal(
    await commit(redis, groups, { sequence: 1_000_001 }),
    's',
    'not r: the commit recognises its own claim',
  );
  assert.deepEqual(await dumpAll(redis), state);
});

test('refuses a late copy of a commit that is older than the last one', async () => {
  await commit(redis, [group([eventRecord('a')])], { sequence: 2_000_001 });
  await commit(redis, [group([eventRecord('b')])], { sequence: 2_000_002 });
  const state = await dumpAll(redis);
  assert.equal(await commit(redis, [group([eventRecord('a')])], { sequence: 2_000_001 }), 'x');
  assert.deepEqual(await dumpAll(redis), state);
  assert.equal(await commit(redis, [group([eventRecord('c')])], { sequence: 1, process: 'another' }), 's');
});

test('stores nothing for a caller whose environments are from an older registry than the loaded one', async () => {
  const state = shardKeys.state(0);
  await redis.hset(state, 'registry_version', '1764000000000000');
  const before = await dumpAll(redis);
  const groups = [group([eventRecord('a', 'key')])];
  assert.equal(await commit(redis, groups, { registryVersion: 1_763_999_999_999_999 }), 'e');
  assert.deepEqual(await dumpAll(redis), before);
  assert.equal(await commit(redis, groups, { registryVersion: 1_764_000_000_000_000 }), 's');
});

test('stores nothing for a caller with an older version of the suppressions than the shard, and names the version', async () => {
  const state = shardKeys.state(0);
  await runScript(redis, scripts.fence, [state], [epoch, '1764000000000000']);
  const before = await dumpAll(redis);
  const groups = [group([eventRecord('a', 'key')])];
  assert.equal(
    await commit(redis, groups, { suppressionVersion: 1_763_999_999_999_999 }),
    'v1764000000000000',
  );
  assert.deepEqual(await dumpAll(redis), before);
  await runScript(redis, scripts.fence, [state], [epoch, '5']);
  assert.equal(await commit(redis, groups, { suppressionVersion: 6 }), 'v1764000000000000', 'no lower one');
  const sequence = 3_000_001;
  assert.equal(await commit(redis, groups, { suppressionVersion: 1_764_000_000_000_000, sequence }), 's');
  // A repeat of a commit from before the suppressions changed gets the earlier answer.
  await runScript(redis, scripts.fence, [state], [epoch, '1764000000000001']);
  assert.equal(await commit(redis, groups, { suppressionVersion: 1_764_000_000_000_000, sequence }), 's');
});

test('commits a group without records', async () => {
  assert.equal(await commit(redis, [group([])]), '');
  assert.equal(await commit(redis, [group([]), group([eventRecord('a')]), group([])]), ',s,');
  assert.equal((await outstanding()).length, 1);
});

test('refuses every commit while Redis does not hold the deployment', async () => {
  await redis.flushall();
  assert.equal(await commit(redis, [group([eventRecord('a')])]), 'e');
  assert.equal(await redis.dbsize(), 0, 'nothing was written');
  await loadShard(redis);
  assert.equal(await commit(redis, [group([eventRecord('a')])], { epoch: 'f'.repeat(32) }), 'e');
  assert.equal(await commit(redis, [group([eventRecord('a')])]), 's');
});

test('refuses a commit that the backlog has no room for, and writes nothing', async () => {
  await commit(redis, [group([eventRecord('a')])]);
  const { bytes } = await readBacklog(redis, 0);
  const next = group([eventRecord('b', 'key')], [limit('l', 10, 60_000)]);
  const state = await dumpAll(redis);
  assert.equal(await commit(redis, [next], { backlogBytesMax: bytes + 20 }), 'o');
  assert.deepEqual(await dumpAll(redis), state);
  assert.equal(await commit(redis, [next], { backlogBytesMax: bytes + next.bytes }), 's');
});

test('accepts a key once, in one commit and in later ones, and reports which repeats have other rows', async () => {
  const first = [
    group([eventRecord('first', 'k1'), eventRecord('second', 'k1'), eventRecord('other', 'k2')]),
  ];
  assert.equal(await commit(redis, first), 'sds');
  assert.equal(await commit(redis, first), 'rdr');
  assert.equal(
    await commit(redis, [group([eventRecord('third', 'k1')]), group([eventRecord('new', 'k3')])]),
    'd,s',
  );
  const names = (await bytesOf((await outstanding())[0])).match(/"(first|second|third|other|new)"/g);
  assert.deepEqual(names, ['"first"', '"other"', '"new"']);
});

test('stores exactly the rows that are neither limited nor repeats, in every table', async () => {
  const property = (name: string): IngestRecord => ({
    table: 1,
    row: `["1000000001","${noEventId}",null,"${name}",null,{},`,
    claim: undefined,
  });
  const full = limit('full', 1, 60_000);
  await commit(redis, [group([eventRecord('z', 'kz')], [full])]);
  const groups = [
    group([eventRecord('a'), property('A'), eventRecord('b', 'kb'), eventRecord('c')]),
    group([eventRecord('d'), property('D'), eventRecord('e', 'ke')], [full]),
    group([
      eventRecord('z', 'kz'),
      property('F'),
      property('G'),
      eventRecord('ü🧀', 'kb'),
      eventRecord('g', 'ke'),
    ]),
    group([eventRecord('h'), eventRecord('i')]),
  ];
  assert.match(await commit(redis, groups), /^ssss,l0:\d+,rssds,ss$/);
  const rows = async (table: string) => {
    const member = (await outstanding()).find((each) =>
      each.startsWith(`${currentVersionOf(table as TableName)}:`),
    );
    const lines = stampRows(Buffer.from(await bytesOf(member)))
      .bytes.toString()
      .split('\n')
      .slice(1, -1)
      .map((line) => JSON.parse(line) as unknown[]);
    const name = columns[table as TableName].indexOf(table === 'events' ? 'event' : 'identity');
    return lines.map((row) => [row[name], row.at(-4)]);
  };
  assert.deepEqual(await rows('events'), [
    ['z', 0],
    ['a', 0],
    ['b', 2],
    ['c', 3],
    ['g', 11],
    ['h', 12],
    ['i', 13],
  ]);
  assert.deepEqual(await rows('user_properties'), [
    ['A', 1],
    ['F', 8],
    ['G', 9],
  ]);
  const { rows: counted, bytes } = await readBacklog(redis, 0);
  assert.equal(counted, 10);
  const lengths = await Promise.all(
    (await outstanding()).map((member) => redis.strlen(`{s0}:segment:${member}`)),
  );
  assert.equal(
    bytes,
    lengths.reduce((sum, length) => sum + length, 0),
  );
});

test('a limited group consumes nothing: neither its limits nor its keys', async () => {
  const full = limit('full', 1, 60_000);
  const roomy = limit('roomy', 2, 60_000);
  assert.equal(await commit(redis, [group([eventRecord('a')], [full])]), 's');
  for (let i = 0; i < 5; i++) {
    assert.match(await commit(redis, [group([eventRecord('b', 'key')], [roomy, full])]), /^l1:\d+$/);
  }
  assert.equal(
    await commit(redis, [group([eventRecord('c', 'key')], [roomy])]),
    's',
    'the key was not claimed',
  );
  assert.equal(
    await commit(redis, [group([eventRecord('d')], [roomy])]),
    's',
    'the other limit was not charged',
  );
  assert.match(await commit(redis, [group([eventRecord('e')], [roomy])]), /^l0:/);
});

test('a limit counts what a list of all acceptances within its window would, and names the exact wait, however its log grew', async () => {
  // The windows take seconds, since Redis drops old logs by its own clock, which runs on while the clock of limits stands still.
  const secondMs = 1_000;
  const step = fc.record({
    after: fc.oneof(
      fc.integer({ min: 0, max: 40 }),
      fc.integer({ min: 0, max: 300 }),
      fc.constantFrom(101, 110, 150),
    ),
    cost: fc.integer({ min: 1, max: 12 }),
  });
  const cases = fc.record({
    max: fc.integer({ min: 5, max: 40 }),
    granularity: fc.constantFrom(1, 10, 50),
    // The log has times and sums modulo 2^32.
    startMs: fc.constantFrom(1_800_000_000_000, 420 * 2 ** 32 - 150_000),
    steps: fc.array(step, { minLength: 1, maxLength: 25 }),
  });
  let refused = 0;
  await fc.assert(
    fc.asyncProperty(cases, async ({ max, granularity, startMs, steps }) => {
      await redis.flushall();
      await loadShard(redis);
      const [windowMs, granularityMs] = [100 * secondMs, granularity * secondMs];
      const keepsMs = windowMs + granularityMs;
      let accepted: { readonly slotMs: number; readonly cost: number }[] = [];
      let nowMs = startMs;
      for (const { after, cost } of steps) {
        nowMs += after * secondMs;
        await standLimitClock(nowMs);
        accepted = accepted.filter(({ slotMs }) => slotMs > nowMs - keepsMs);
        const used = accepted.reduce((sum, each) => sum + each.cost, 0);
        const [answer = '', wait] = (
          await commit(redis, [
            {
              ...group([eventRecord('a')], [limit('one', max, windowMs, cost, granularityMs)]),
              limitsPassRepeats: true,
            },
          ])
        ).split(':');
        if (used + cost <= max) {
          assert.equal(answer, 's');
          accepted.push({ slotMs: nowMs - (nowMs % granularityMs), cost });
          continue;
        }
        refused += 1;
        assert.equal(answer, 'l0');
        let left = used;
        const last = accepted.find((each) => {
          left -= each.cost;
          return left + cost <= max;
        });
        assert.equal(Number(wait), last === undefined ? keepsMs : last.slotMs + keepsMs - nowMs);
      }
    }),
    { numRuns: 150 },
  );
  assert.ok(refused > 0);
});

test('groups of one commit see each other: exactly as many pass as the limit allows', async () => {
  const groups = Array.from({ length: 50 }, (_, i) =>
    group([eventRecord(`e${i}`)], [limit('one', 30, 30_000)]),
  );
  const answers = (await commit(redis, groups)).split(',');
  assert.equal(answers.filter((answer) => answer === 's').length, 30);
  assert.ok(answers.slice(30).every((answer) => answer.startsWith('l0:')));
});

/** What the ledger has counted, by kind, outcome and environment. */
async function ledger(): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  let head = '';
  for (const key of await redis.keys('{s0}:ledger_log:*')) {
    for (const line of ((await redis.get(key)) ?? '').trimEnd().split('\n')) {
      const [name = '', count = ''] = line.split(' ');
      if (/^\d+$/.test(count)) counts[`${head} ${name}`] = (counts[`${head} ${name}`] ?? 0) + Number(count);
      else head = line;
    }
  }
  return counts;
}

test('where the limits have room for all groups, deciding them at once gives the same result as one after another', async () => {
  const record = fc.record({ key: fc.option(fc.integer({ min: 0, max: 5 }), { nil: undefined }) });
  const made = fc.record({
    records: fc.array(record, { minLength: 1, maxLength: 3 }),
    limits: fc.uniqueArray(fc.integer({ min: 0, max: 2 }), { maxLength: 3 }),
    cost: fc.integer({ min: 1, max: 3 }),
  });
  const commits = fc.array(fc.array(made, { minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 4 });
  let together = 0;
  await fc.assert(
    fc.asyncProperty(commits, fc.integer({ min: 4, max: 30 }), async (steps, max) => {
      const results: unknown[] = [];
      for (const oneByOne of [false, true]) {
        await redis.flushall();
        await loadShard(redis);
        const answers: string[] = [];
        for (const step of steps) {
          await standLimitClock(1_800_000_000_000);
          const groups = step.map(({ records, limits, cost }, i) =>
            group(
              records.map(({ key }, j) =>
                eventRecord(`e${i} ${j}`, key === undefined ? undefined : `key ${key}`),
              ),
              limits.map((name) => limit(`l${name}`, max, 60_000, cost)),
            ),
          );
          // One such group makes the script decide the groups one by one.
          const last = { ...group([]), limitsPassRepeats: oneByOne };
          answers.push(await commit(redis, [...groups, last]));
        }
        const logs = (await redis.keys('{s0}:limit_sums:*')).sort();
        const entries = await Promise.all(logs.map((key) => redis.hgetallBuffer(key)));
        const rows = (await Promise.all((await outstanding()).map(bytesOf))).join('').match(/"e\d \d"/g);
        results.push([
          answers,
          logs,
          entries,
          rows,
          await ledger(),
          await redis.hgetall('{s0}:claim_counts'),
        ]);
        together += oneByOne || answers.some((answer) => answer.includes('l')) ? 0 : 1;
      }
      assert.deepEqual(results[0], results[1]);
    }),
    { numRuns: 60 },
  );
  assert.ok(together > 5 && together < 55, `in ${together} runs of 60 no group was refused`);
});

test('a group whose limits let repeats pass is neither limited nor counted if all of it is repeated', async () => {
  const two = limit('repeats', 2, 60_000);
  const passing = (...records: IngestRecord[]): Group => ({
    ...group(records, [two]),
    limitsPassRepeats: true,
  });
  const counting = (...records: IngestRecord[]): Group => group(records, [two]);
  const a = () => eventRecord('a', 'ka');
  assert.equal(await commit(redis, [passing(a())]), 's');
  assert.equal(await commit(redis, [passing(a()), passing(a(), a())]), 'r,rr');
  // In one commit, the second group of two with the same key is a repeat already, and a third group has no room.
  const b = () => eventRecord('b', 'kb');
  const answers = (await commit(redis, [passing(b()), passing(b()), passing(eventRecord('c', 'kc'))])).split(
    ',',
  );
  assert.deepEqual(answers.slice(0, 2), ['s', 'r']);
  assert.match(answers[2] ?? '', /^l0:\d+$/);
  // The limit is full now. Repeats still pass, unless their group has something new, they have no claim, or the limit counts repeats.
  assert.equal(await commit(redis, [passing(a(), b())]), 'rr');
  for (const full of [passing(a(), eventRecord('d', 'kd')), passing(eventRecord('e')), counting(a())]) {
    assert.match(await commit(redis, [full]), /^l0:\d+$/);
  }
  const names = (await bytesOf((await outstanding())[0])).match(/"(a|b|c|d|e)"/g);
  assert.deepEqual(names, ['"a"', '"b"']);
});

test('numbers rise even after the clock was set back, and above what ClickHouse has seen', async () => {
  const future = String((Date.now() + 3_600_000) * 1000);
  await loadShard(redis, 0, future);
  await commit(redis, [group([eventRecord('a')])]);
  await sealAll();
  await commit(redis, [group([eventRecord('b')])]);
  const [first = 0n, second = 0n] = (await outstanding()).map((member) => BigInt(member.split(':')[1] ?? 0));
  assert.ok(first > BigInt(future) && first <= BigInt(future) + 64n);
  assert.equal(second, first + 64n, 'shards share no number: shard 0 gives multiples of 64');
  assert.equal(first % 64n, 0n);
  await loadShard(redis, 0, '5');
  assert.equal(await redis.hget(shardKeys.state(0), 'last_number'), String(second), 'never lowered');
});

test('a segment over its size takes no further commit', async () => {
  await commit(redis, [group([eventRecord('a')])], { segmentBytesMax: 10 });
  await commit(redis, [group([eventRecord('b')])], { segmentBytesMax: 10 });
  assert.equal((await outstanding()).length, 2);
});

test('an overdue segment takes no further commit', async () => {
  await commit(redis, [group([eventRecord('a')])]);
  await commit(redis, [group([eventRecord('b')])], { segmentAgeMsMax: 60_000 });
  assert.equal((await outstanding()).length, 1);
  await commit(redis, [group([eventRecord('c')])], { segmentAgeMsMax: 0 });
  assert.equal((await outstanding()).length, 2);
});

test('keeps one open segment per table, and one sequence of numbers over all tables', async () => {
  const identity = { table: 2, row: `["1000000001","${noEventId}",7,"ada",`, claim: undefined };
  const properties = { table: 1, row: `["1000000001","${noEventId}",null,"ada",null,{},`, claim: undefined };
  assert.equal(
    await commit(redis, [group([eventRecord('a'), identity, properties, eventRecord('b')])]),
    'ssss',
  );
  const members = await outstanding();
  assert.deepEqual(members.map((member) => member.split(':')[0]).sort(), tables.map(currentVersionOf).sort());
  assert.equal(new Set(members.map((member) => member.split(':')[1])).size, 3);
  for (const member of members) {
    assert.match(await bytesOf(member), /^,\d+,0,"[\d.]+"\]\n\["",/, 'each segment begins with a marker row');
  }
});

test('seals only what is old enough, and never lists an open segment', async () => {
  await commit(redis, [group([eventRecord('a')])]);
  assert.deepEqual(await sealAll(60_000), []);
  const [member] = await outstanding();
  assert.deepEqual(await sealAll(0), [member]);
  const sealedBytes = await bytesOf(member);
  await commit(redis, [group([eventRecord('b')])]);
  assert.equal(await bytesOf(member), sealedBytes, 'a sealed segment never changes');
  assert.deepEqual(await sealAll(60_000), [member], 'the new segment is open');
  assert.equal((await sealAll(0)).length, 2);
  assert.equal((await sealAll(0, 1)).length, 1, 'no more than asked for');
});

test('a sealed segment takes at most a third more memory than its bytes, in each way of sealing', async () => {
  const rows = Array.from({ length: 50 }, (_, i) => eventRecord(`${'x'.repeat(100)}${i}`));
  const overdue = { segmentBytesMax: 1_000_000, segmentAgeMsMax: 0 };
  for (const commits of [12, 14, 17, 21, 40, 130]) {
    await redis.flushall();
    await loadShard(redis);
    const written: string[] = [];
    for (let i = 0; i < commits; i += 1) {
      await commit(redis, [group(rows)], { segmentBytesMax: 1_000_000 });
      const open = (await outstanding()).at(-1);
      written[(await outstanding()).length - 1] = await bytesOf(open);
    }
    // Either a commit seals the last segment, when it is overdue, or a tick does.
    if (commits === 17) await commit(redis, [group([eventRecord('a')])], overdue);
    const sealed = (await sealAll()).slice(0, written.length);
    for (const [index, member] of sealed.entries()) {
      const key = `{s0}:segment:${member}`;
      const bytes = await redis.strlen(key);
      assert.ok(bytes > 100_000, String(bytes));
      assert.equal(await bytesOf(member), written[index], 'sealing does not change the bytes');
      const memory = await redis.call('MEMORY', 'USAGE', key);
      assert.ok(Number(memory) <= bytes * 1.35, `${memory} for ${bytes}`);
    }
    assert.deepEqual(await redis.keys('*:copy'), []);
  }
});

test('seals a segment that was opened before the clock was set back', async () => {
  const clock = await withRedisClock(redis);
  await clock.set(Date.now() + 3_600_000);
  await commit(clock.redis, [group([eventRecord('a')])]);
  assert.equal((await sealAll(60_000)).length, 1);
});

test('a segment takes commits until it is overdue, also while the time of acceptance stands still', async () => {
  const clock = await withRedisClock(redis);
  const startMs = Date.now();
  await clock.set(startMs + 86_400_000);
  await commit(clock.redis, [group([eventRecord('a')])]);
  const commitAt = async (ms: number) => {
    await clock.set(startMs + ms);
    await commit(clock.redis, [group([eventRecord('b')])], { segmentAgeMsMax: 1_200 });
    return (await outstanding()).length;
  };
  assert.equal(await commitAt(0), 2, 'the first segment was opened a day ahead');
  assert.equal(await commitAt(1_199), 2);
  assert.equal(await commitAt(1_200), 3, 'ClickHouse may have the second segment');
});

test('commits under way while segments are sealed all end up in exactly one listed segment', async () => {
  const writers = Array.from({ length: 4 }, () => new Redis(server.url));
  let writing = true;
  let committed = 0;
  const work = writers.map(async (writer, process) => {
    for (let i = 1; writing; i++) {
      await commit(writer, [group([eventRecord(`p${process}-${i}`)])], {
        process: `w${process}`,
        sequence: i,
      });
      committed += 1;
    }
  });
  // A listed segment is read at once and must be final, so it is compared with its content at the end.
  const listed = new Map<string, string>();
  while (committed < 2_000) {
    for (const member of await sealAll(0)) if (!listed.has(member)) listed.set(member, await bytesOf(member));
  }
  writing = false;
  await Promise.all(work);
  for (const member of await sealAll(0, 1e6))
    if (!listed.has(member)) listed.set(member, await bytesOf(member));
  let rows = 0;
  for (const [member, bytes] of listed) {
    assert.equal(await bytesOf(member), bytes);
    rows += (bytes.match(/^\[/gm)?.length ?? 0) - 1;
  }
  for (const writer of writers) writer.disconnect();
  assert.equal(rows, committed);
});

test('the log of a limit is still found in the generation before, and is gone after two generations', async () => {
  const keepsMs = 60_000;
  const one = (name: string) => group([eventRecord(name)], [limit('one', 1, keepsMs - 1)]);
  // The clock of limits never goes back, so it can be set ahead.
  const setClock = (ms: number) => redis.hset(shardKeys.state(0), 'limit_clock_us', String(ms * 1000));
  const waitOf = (answer: string) => Number(/^l0:(\d+)$/.exec(answer)?.[1]);
  const startMs = (Math.floor(Date.now() / keepsMs) + 2) * keepsMs;
  await setClock(startMs + 10_000);
  assert.equal(await commit(redis, [one('a')]), 's');
  await setClock(startMs + keepsMs - 5_000);
  const before = waitOf(await commit(redis, [one('b')]));
  assert.ok(before <= 15_000 && before > 5_000, String(before));
  await setClock(startMs + keepsMs + 5_000);
  const next = waitOf(await commit(redis, [one('c')]));
  assert.ok(next <= 5_000 && next > 0, String(next));
  await setClock(startMs + keepsMs + 10_100);
  assert.equal(await commit(redis, [one('d')]), 's');
  const logs = await redis.keys('{s0}:limit_sums:*');
  assert.equal(logs.length, 2);
  for (const key of logs) {
    const ttlMs = await redis.pttl(key);
    assert.ok(ttlMs > keepsMs && ttlMs <= 2 * keepsMs, String(ttlMs));
  }
});

test('a limit still has room again after the clock was set back, but not before its window has passed', async () => {
  const one = () => group([eventRecord('a')], [limit('back', 1, 400)]);
  const hourUs = 3600 * 1e6;
  for (const field of ['clock_us', 'limit_clock_us']) {
    await redis.hset(shardKeys.state(0), field, String(Date.now() * 1000 + hourUs));
  }
  // The time is read before the commit, whose answer may come late.
  const startMs = performance.now();
  assert.equal(await commit(redis, [one()]), 's');
  await until(
    async () => {
      // Another limit's entries keep the hash of the logs alive.
      await commit(redis, [group([eventRecord('b')], [limit('other', 1000, 400)])]);
      return (await commit(redis, [one()])) === 's';
    },
    { deadlineMs: 30_000, what: 'the limit has room' },
  );
  assert.ok(performance.now() - startMs >= 390);
});

test('a commit of two thousand claims and limits is decided in one step', async () => {
  const many = (name: string) =>
    Array.from({ length: 2000 }, (_, i) =>
      group(
        [eventRecord(name, `${i}`.padStart(14, '0').split('').reverse().join(''))],
        [limit(`l${i}`, 2, 60_000)],
      ),
    );
  assert.equal(await commit(redis, many('a')), Array(2000).fill('s').join());
  const repeats = await commit(redis, many('b'));
  assert.match(repeats, /^[rd](,[rd]){1999}$/);
  const unnoticed = repeats.split('r').length - 1;
  assert.ok(
    unnoticed < 30,
    `${unnoticed} of 2,000 rows have the fingerprint of another one, about one in 255`,
  );
  assert.match(await commit(redis, many('c')), /^l0:\d+(,l0:\d+){1999}$/);
});

test('a claim takes less than 40 bytes of memory', async () => {
  await redis.flushall();
  await loadShard(redis, 0, '0', 4096);
  const count = 40_000;
  for (let i = 0; i < count; i += 1000) {
    const records = Array.from({ length: 1000 }, (_, j) =>
      eventRecord(
        'a',
        `${Math.imul(i + j, 2_654_435_761) >>> 0}`.padStart(14, 'x').split('').reverse().join(''),
      ),
    );
    await commit(redis, [group(records)]);
    for (const member of await sealAll()) await forget(redis, member);
  }
  // Measures only this key, since the memory of the whole server also changes with its clients' buffers.
  const bytesPerClaim = Number(await redis.memory('USAGE', shardKeys.claims(0), 'SAMPLES', 0)) / count;
  assert.ok(bytesPerClaim > 16 && bytesPerClaim < 40, `${bytesPerClaim.toFixed(1)} bytes per claim`);
});

test('keys whose ids share a bucket are distinguished like others, and the bucket does not grow with them', async () => {
  await redis.flushall();
  await loadShard(redis, 0, '0', 1);
  const keys = Array.from({ length: 3000 }, (_, i) => `key ${i}`);
  const claimAll = async (event: string) => {
    let letters = '';
    for (let i = 0; i < keys.length; i += 1000)
      letters += await commit(redis, [group(keys.slice(i, i + 1000).map((key) => eventRecord(event, key)))]);
    return letters;
  };
  assert.equal(await claimAll('a'), 's'.repeat(3000));
  assert.equal(await claimAll('a'), 'r'.repeat(3000));
  const differing = await claimAll('b');
  assert.ok(/^[rd]*$/.test(differing) && differing.split('d').length > 2900);
  const one = () => eventRecord('c', 'one more');
  assert.equal(await commit(redis, [group([one(), one()]), group([one()])]), 'sr,r');
  const [bucket] = await redis.hvalsBuffer(shardKeys.claims(0));
  assert.ok(Number(bucket?.length) < 2100, `${bucket?.length} bytes in a bucket`);

  const ids = Buffer.concat(
    ['key 0', 'key 2999', 'none'].map((key) => Buffer.from(eventIdOf(key), 'hex').subarray(0, 13)),
  );
  const asked = [
    shardKeys.state(0),
    shardKeys.segments(0),
    shardKeys.claims(0),
    shardKeys.claimMinutes(0),
    shardKeys.receipts(0, '1000000001'),
  ];
  const [ages] = (await runScript(redis, scripts.findClaims, asked, [epoch, ids, 10])) as string[];
  assert.equal(ages, '000100010000', 'two were claimed in this minute, the third never');

  const freed = [
    shardKeys.state(0),
    shardKeys.claims(0),
    shardKeys.claimCounts(0),
    shardKeys.claimMinutes(0),
  ];
  await runScript(redis, scripts.freeKeys, freed, [epoch, '1']);
  assert.equal(await claimAll('a'), 's'.repeat(3000));
});

test('the second in which keys were asked about ends in time, although Redis’s clock was set back by a day', async () => {
  const [dayMs, asked] = [86_400_000, shardKeys.receipts(0, '1000000001')];
  const keys = [
    shardKeys.state(0),
    shardKeys.segments(0),
    shardKeys.claims(0),
    shardKeys.claimMinutes(0),
    asked,
  ];
  const ask = () => runScript(redis, scripts.findClaims, keys, [epoch, Buffer.alloc(13), 1]);
  await redis.set(asked, '1', 'PX', dayMs);
  const waitMs = Number(await ask());
  assert.ok(waitMs > 0 && waitMs <= 1_000, `${waitMs} ms`);
  assert.equal(await redis.get(asked), '1', 'what is refused does not count');
});

test('buckets hold six to twelve claims when the byte budget is used up, and few at a small one', () => {
  for (const budget of [2 ** 24, 2 ** 27.3, 2 ** 30, 5 * 2 ** 30]) {
    const held = budget / claims.bytesPerClaim / claimBucketCount(budget);
    assert.ok(held >= 6 && held <= 12, `${held} of ${budget}`);
  }
  assert.equal(claimBucketCount(1), 65_536);
  assert.equal(claimBucketCount(2 ** 50), 2 ** 24);
});

test('the window of claims follows the byte budget between a quarter of an hour and a day', () => {
  const now = 30_000_000;
  const budget = 1000 * claims.bytesPerClaim;
  const perMinute = (count: number) => new Map(Array.from({ length: 2000 }, (_, i) => [now - i, count]));
  assert.equal(claimWindowMinutes(new Map(), now, budget), 24 * 60, 'idle: a day');
  const whole = claimWindowMinutes(perMinute(10), now, budget);
  assert.equal(whole, 98, 'a thousand claims last 100 minutes: 98, the present one, and one for the lag');
  assert.equal(claimWindowMinutes(perMinute(1000), now, budget), 15, 'never shorter than 15 minutes');
});

test('a commit that Redis has no memory for writes nothing at all', async () => {
  const limits = [limit('m', 100, 60_000)];
  await redis.config('SET', 'maxmemory', '1');
  try {
    const state = await dumpAll(redis);
    await assert.rejects(commit(redis, [group([eventRecord('a', 'oom')], limits)]), /OOM/);
    assert.deepEqual(await dumpAll(redis), state);
    // Redis refuses even reads in a MULTI now, and this is what an operator looks at.
    await readBacklog(redis, 0);
  } finally {
    await redis.config('SET', 'maxmemory', '0');
  }
  assert.equal(
    await commit(redis, [group([eventRecord('a', 'oom')], limits)]),
    's',
    'the key was not claimed',
  );
});

test('distinguishes the faults of a real Redis', async (context) => {
  const kindOf = (run: Promise<unknown>) => run.then(() => 'none', classifyRedisFault);
  assert.equal(await kindOf(redis.evalsha('0'.repeat(40), 0)), 'unknown_script');
  assert.equal(await kindOf(redis.eval("return redis.call('incr', 'x', 'y')", 0)), 'broken');
  await redis.set('text', '1');
  assert.equal(await kindOf(redis.hget('text', 'x')), 'broken', 'WRONGTYPE is an answer');
  await redis.config('SET', 'maxmemory', '1');
  try {
    assert.equal(await kindOf(redis.set('more', '1')), 'full');
  } finally {
    await redis.config('SET', 'maxmemory', '0');
  }
  await redis.call('ACL', 'SETUSER', 'nobody', 'on', 'nopass', '+ping');
  const [nobody, gone] = [new Redis(server.url), new Redis(server.url, { maxRetriesPerRequest: 0 })];
  context.after(async () => {
    nobody.disconnect();
    await redis.call('ACL', 'DELUSER', 'nobody');
  });
  await nobody.call('AUTH', 'nobody', 'any').catch(assert.fail);
  assert.equal(await kindOf(nobody.get('x')), 'refused');
  await gone.ping();
  gone.disconnect();
  assert.equal(await kindOf(gone.get('x')), 'no_answer');
});
