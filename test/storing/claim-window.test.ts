// How long claims are remembered: as long as their segment is outstanding, and at least as long as the window, whatever
// Redis's clock does and whether or not workers run. But no longer than needed, so that they cannot fill Redis.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { generationAbove } from '../../src/clickhouse/key-index.js';
import { claims } from '../../src/contract/limits.js';
import { readBacklog, readOutstanding } from '../../src/redis/backlog.js';
import { createClaimAging } from '../../src/redis/claim-window.js';
import { shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { claimSweeps } from '../../src/tuning.js';
import { withRedisClock } from '../harness/redis-clock.js';
import fc from '../support/fast-check.js';
import {
  commit,
  epoch,
  eventIdOf,
  eventRecord,
  forget,
  group,
  loadShard,
  sealMembers,
} from '../support/shard.js';
import { startStore } from '../support/stores.js';

const { redis: connection } = await startStore();

beforeEach(async () => {
  await connection.flushall();
  await loadShard(connection);
});

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

/** A budget too small for any claim, so that the window is the shortest: 15 minutes. */
const noBytes = 1;

/** A shard whose Redis has a clock that the test sets, beside a real time. Workers look only when the test calls them. */
async function createWorld(claimBytesMax = noBytes) {
  const clock = await withRedisClock(connection);
  const { redis } = clock;
  let redisMs = Date.now();
  let realMs = 0;
  const startWorker = () => createClaimAging({ redis, shard: 0, claimBytesMax, clockMs: () => realMs });
  let age = startWorker();
  /** Indexes stored segments at once, as far as their keys may be forgotten. */
  const look = async () => {
    const aged = await age();
    if (!aged?.wantsIndex) return aged?.keptMinutes;
    const { storedTo = '' } = (await readOutstanding(redis, 0, epoch)) ?? {};
    await runScript(redis, scripts.keysIndexed, [shardKeys.state(0)], [epoch, storedTo, generationAbove()]);
    return (await age())?.keptMinutes;
  };
  const step = async (ms: number) => {
    redisMs += ms;
    await clock.set(redisMs);
  };
  /** Lets time pass without workers. */
  const pass = async (ms: number) => {
    realMs += ms;
    await step(ms);
  };
  return {
    redis,
    step,
    pass,
    realMs: () => realMs,
    look,
    restartWorker: () => {
      age = startWorker();
    },
    /** Lets time pass while a worker looks, every so often. */
    work: async (ms: number, everyMs = 30 * secondMs) => {
      for (let left = ms; left > 0; left -= everyMs) {
        await pass(Math.min(left, everyMs));
        await look();
      }
    },
    /** Lets time pass as if a worker had looked all the time and found nothing to do. */
    idle: (ms: number) => redis.hincrby(shardKeys.state(0), 'claim_clock_us', ms * 1_000),
    /** Claims a key; whether that was new. */
    claim: async (key: string) => (await commit(redis, [group([eventRecord('a', key)])])) === 's',
    /** Seals and forgets the oldest outstanding segments, as if they were stored. */
    store: async (count = 1_000) => {
      const members = await sealMembers(redis, 0, count);
      for (const member of members) await forget(redis, member);
      return members;
    },
    newestSegment: async () => (await redis.zrange(shardKeys.segments(0), '-1', '-1'))[0] ?? '',
    clockMs: async () => Number(await redis.hget(shardKeys.state(0), 'claim_clock_us')) / 1000,
    claimsHeld: () => redis.exists(shardKeys.claims(0)),
  };
}

test('remembers claims for their window and drops what is older', async () => {
  const nowMinute = Math.floor(Date.now() / minuteMs);
  const noPrint = Buffer.alloc(1);
  const entry = (minutesAgo: number, claim: string) => {
    const id = Buffer.from(eventIdOf(claim), 'hex').subarray(0, 13);
    const minute = Buffer.alloc(2);
    minute.writeUInt16BE((nowMinute - minutesAgo) % 65_536);
    return Buffer.concat([minute, id, noPrint]);
  };
  await connection.flushall();
  await loadShard(connection, 0, '0', 1);
  await connection.hset(shardKeys.state(0), {
    claim_clock_us: nowMinute * minuteMs * 1000,
    claims_kept_from: nowMinute - 20,
  });
  const bucket = Buffer.alloc(3);
  await connection.hset(
    shardKeys.claims(0),
    bucket,
    Buffer.concat([entry(40, 'older'), entry(30, 'old'), entry(10, 'young'), entry(1, 'fresh')]),
  );
  const again = group([eventRecord('a', 'young'), eventRecord('b', 'new')]);
  assert.equal(await commit(connection, [again]), 'ds');
  const entries = await connection.hgetBuffer(shardKeys.claims(0), bucket);
  assert.equal(entries?.length, 3 * 16, 'the two oldest are gone');
  const later = group([eventRecord('c', 'fresh'), eventRecord('d', 'old')]);
  assert.equal(await commit(connection, [later]), 'ds');
});

test('takes expired claims out of buckets that no commit writes, and not before their window', async () => {
  const world = await createWorld();
  const keys = Array.from({ length: 200 }, (_, i) => `${i}`.padStart(14, '0').split('').reverse().join(''));
  const claimAll = () => commit(world.redis, [group(keys.map((key) => eventRecord('a', key)))]);
  assert.equal(await claimAll(), 's'.repeat(200));
  await world.store();
  await world.work(15 * minuteMs);
  assert.equal(await claimAll(), 'r'.repeat(200));
  await world.work(3 * minuteMs);
  assert.equal(await world.claimsHeld(), 0);
  assert.equal(await claimAll(), 's'.repeat(200));
});

test('claims expire in a full Redis too, which makes room', async () => {
  const world = await createWorld();
  await world.claim('a');
  await world.store();
  await world.work(15 * minuteMs);
  assert.equal(await world.claimsHeld(), 1);
  for (let second = 0; second < 180; second += 1) {
    await world.pass(secondMs);
    await connection.config('SET', 'maxmemory', '1');
    await world.look().finally(() => connection.config('SET', 'maxmemory', '0'));
  }
  assert.equal(await world.claimsHeld(), 0);
});

test('remembers claims that have no room in their bucket as long as others, and no longer', async () => {
  await connection.flushall();
  await loadShard(connection, 0, '0', 1);
  const world = await createWorld();
  const claimAll = (name: string, count: number) =>
    commit(world.redis, [group(Array.from({ length: count }, (_, i) => eventRecord('a', `${name} ${i}`)))]);
  assert.equal(await claimAll('early', 200), 's'.repeat(200));
  await world.store();
  await world.work(10 * minuteMs);
  assert.equal(await claimAll('late', 100), 's'.repeat(100));
  await world.store();
  await world.work(5 * minuteMs);
  assert.equal(await claimAll('early', 200), 'r'.repeat(200));
  await world.work(3 * minuteMs);
  assert.equal(await claimAll('early', 200), 's'.repeat(200), 'the window of the early ones has passed');
  assert.equal(await claimAll('late', 100), 'r'.repeat(100), 'although the bucket has room again');
  await world.store();
  await world.work(18 * minuteMs);
  assert.equal(await world.redis.exists(shardKeys.claims(0), shardKeys.claimsApart(0)), 0);
  assert.equal(await claimAll('late', 100), 's'.repeat(100));
});

test('remembers a claim for the whole window though its minute was taken from a clock that lags', async () => {
  for (const phaseMs of [0, 20 * secondMs, 40 * secondMs]) {
    await connection.flushall();
    await loadShard(connection);
    const world = await createWorld();
    await world.claim('starts the clock');
    await world.work(minuteMs + phaseMs, 10 * secondMs);
    await world.pass(claimSweeps.clockStepMsMax);
    await world.claim('late');
    await world.store();
    await world.work(claims.windowMsMin - secondMs, 10 * secondMs);
    assert.equal(await world.claim('late'), false, `${phaseMs} ms after the start`);
  }
});

test('takes expired claims out of an idle shard, in which nothing is committed any more', async () => {
  const world = await createWorld(2 ** 30);
  await world.claim('a');
  await world.store();
  await world.work(dayMs - minuteMs);
  assert.equal(await world.claimsHeld(), 1);
  await world.work(4 * minuteMs);
  assert.equal(await world.claimsHeld(), 0);
});

test('remembers every claim while no worker runs, however long', async () => {
  const world = await createWorld();
  await world.claim('first');
  await world.work(minuteMs);
  await world.claim('second');
  for (let hour = 0; hour < 50; hour += 1) {
    await world.pass(hourMs);
    assert.deepEqual([await world.claim('first'), await world.claim('second')], [false, false], `${hour} h`);
    assert.equal(await world.claim(`in between ${hour}`), true);
  }
  await world.look();
  assert.equal(await world.claim('first'), false, 'a worker runs again');
  await world.store();
  await world.work(14 * minuteMs);
  assert.equal(await world.claim('in between 49'), false);
  await world.work(4 * minuteMs);
  assert.equal(await world.claimsHeld(), 0);
});

test('keeps the claims of a segment that stays outstanding, and of all later ones, beyond the budget', async () => {
  const world = await createWorld();
  await world.claim('before');
  await world.store();
  await world.work(5 * minuteMs);
  await world.claim('first');
  await world.work(2 * minuteMs);
  await world.claim('second');
  await world.work(2 * hourMs);
  assert.ok((await world.redis.zcard(shardKeys.claimMinutes(0))) <= 4, 'idle minutes are not recorded');
  await world.claim('third');
  assert.equal(await world.claim('before'), true, 'the segment of this claim is stored');
  assert.deepEqual([await world.claim('first'), await world.claim('second')], [false, false]);
  assert.ok(Number(await world.look()) > 120, 'the look returns the whole window');

  assert.equal((await world.store()).length, 1, 'everything is one segment');
  await world.look();
  assert.deepEqual([await world.claim('first'), await world.claim('third')], [true, false]);
});

test('forgets the claims of a stored segment while younger ones are outstanding', async () => {
  const world = await createWorld();
  for (let minute = 0; minute < 60; minute += 1) {
    await world.claim(`minute ${minute}`);
    await world.work(minuteMs);
    // The fence seals the segment, so each minute has its own.
    await runScript(world.redis, scripts.fence, [shardKeys.state(0)], [epoch]);
  }
  assert.equal(await world.redis.zcard(shardKeys.segments(0)), 60);
  assert.equal(await world.claim('minute 0'), false);
  await world.store(30);
  await world.look();
  assert.ok((await world.redis.zcard(shardKeys.claimMinutes(0))) <= 32, 'minutes that nobody needs are gone');
  const known = await Promise.all([28, 30, 31].map((minute) => world.claim(`minute ${minute}`)));
  assert.deepEqual(known, [true, false, false]);
  await world.store();
  await world.look();
  assert.equal(await world.redis.zcard(shardKeys.claimMinutes(0)), 1);
});

test("a day's step of Redis's clock, ahead and back or for good, ages no claim", async () => {
  for (const stored of [false, true]) {
    await connection.flushall();
    await loadShard(connection);
    const world = await createWorld();
    await world.claim('a');
    if (stored) await world.store();
    await world.work(10 * minuteMs);
    await world.step(dayMs);
    assert.equal(await world.claim('a'), false, 'no worker has looked yet');
    await world.work(secondMs);
    assert.equal(await world.claim('a'), false, 'a worker has looked');
    await world.step(-dayMs);
    await world.work(secondMs);
    assert.equal(await world.claim('a'), false, 'the clock is back');
    await world.step(dayMs);
    await world.work(4 * minuteMs);
    assert.equal(await world.claim('a'), false, 'the clock stays ahead');
    await world.store();
    await world.work(4 * minuteMs);
    assert.equal(await world.claimsHeld(), 0, 'the claim ends with its window');
  }
});

test('a clock of Redis that jumps all the time does not age claims faster than time passes', async () => {
  const world = await createWorld();
  await world.claim('a');
  await world.store();
  for (let second = 0; second < 14 * 60; second += 20) {
    await world.step(dayMs);
    await world.work(10 * secondMs);
    await world.step(-dayMs);
    await world.work(10 * secondMs);
  }
  assert.equal(await world.claim('a'), false);
});

test('claims are not kept for ever by a clock of Redis that was set back', async () => {
  const world = await createWorld();
  await world.step(dayMs);
  await world.claim('a');
  await world.store();
  await world.work(minuteMs);
  await world.step(-2 * dayMs);
  await world.work(18 * minuteMs);
  assert.equal(await world.claimsHeld(), 0);
});

test('a worker that was stopped, or is new, moves the clock by no more than a step', async () => {
  const world = await createWorld();
  await world.claim('a');
  await world.work(minuteMs);
  const before = await world.clockMs();
  await world.pass(10 * hourMs);
  await world.look();
  assert.equal((await world.clockMs()) - before, claimSweeps.clockStepMsMax);
  await world.pass(10 * hourMs);
  world.restartWorker();
  await world.look();
  assert.equal((await world.clockMs()) - before, claimSweeps.clockStepMsMax);
});

test('two workers move the clock as fast as one', async () => {
  const world = await createWorld();
  const other = createClaimAging({ redis: world.redis, shard: 0, claimBytesMax: 1, clockMs: world.realMs });
  await world.claim('a');
  await world.look();
  const before = await world.clockMs();
  for (let i = 0; i < 100; i += 1) {
    await world.pass(300);
    await (i % 2 === 0 ? other() : world.look());
  }
  const moved = (await world.clockMs()) - before;
  assert.ok(moved >= 29_700 && moved <= 30_000, String(moved));
});

test('the window shrinks by the budget, and never below an outstanding segment', async () => {
  const world = await createWorld(100 * claims.bytesPerClaim);
  await world.claim('old');
  await world.store();
  await world.work(3 * minuteMs);
  await world.claim('outstanding');
  await world.work(27 * minuteMs);
  assert.equal(await world.claim('old'), false, 'the budget suffices');
  const many = Array.from({ length: 200 }, (_, i) => eventRecord('b', `${i}`.padStart(14, '0')));
  await commit(world.redis, [group(many)]);
  await world.look();
  assert.deepEqual([await world.claim('old'), await world.claim('outstanding')], [true, false]);
  await world.store();
  await world.look();
  assert.equal(await world.claim('outstanding'), true);
});

test('the progress of the index never goes back', async () => {
  const { redis } = await createWorld();
  const note = async (to: string) => {
    await runScript(redis, scripts.keysIndexed, [shardKeys.state(0)], [epoch, to, generationAbove()]);
    return redis.hget(shardKeys.state(0), 'keys_indexed_to');
  };
  assert.equal(await note('7'), '7');
  assert.equal(await note('5'), '7', 'another worker had indexed more');
});

test('a commit repeated after a lost reply counts once though the clock jumped by days in between', async () => {
  const world = await createWorld();
  const send = () => commit(world.redis, [group([eventRecord('a')])], { process: 'p', sequence: 7 });
  assert.equal(await send(), 's');
  await world.step(30 * dayMs);
  assert.equal(await world.redis.ttl(shardKeys.answers(0)), -1, 'no clock of Redis can end the answer');
  await world.work(minuteMs);
  assert.equal(await send(), 's');
  assert.equal((await readBacklog(world.redis, 0)).rows, 1);
});

test('the answer of a process that is gone is dropped after a day', async () => {
  const world = await createWorld();
  for (let i = 0; i < 40; i += 1) {
    await commit(world.redis, [group([eventRecord('a')])], { process: `p${i}`, sequence: 1 });
  }
  await world.store();
  await world.idle(dayMs - 5 * minuteMs);
  await world.work(4 * minuteMs, 40 * secondMs);
  assert.equal(await world.redis.hlen(shardKeys.answers(0)), 40);
  await world.work(3 * minuteMs, 40 * secondMs);
  assert.equal(await world.redis.hlen(shardKeys.answers(0)), 0);
});

test('the age of the backlog rises after the clock was set back', async () => {
  const world = await createWorld();
  await world.step(dayMs);
  await world.claim('a');
  await world.look();
  assert.equal((await readBacklog(world.redis, 0)).oldestMs, 0);
  await world.step(-dayMs);
  await world.work(10 * minuteMs);
  const { oldestMs } = await readBacklog(world.redis, 0);
  assert.ok(oldestMs > 8 * minuteMs && oldestMs <= 10 * minuteMs, String(oldestMs));
});

type Deed =
  | { readonly do: 'claim'; readonly key: number }
  | { readonly do: 'step' | 'work' | 'pause'; readonly ms: number }
  | { readonly do: 'store'; readonly count: number }
  | { readonly do: 'restart' };

const deeds: fc.Arbitrary<Deed> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('claim'), key: fc.integer({ min: 0, max: 5 }) }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('step'), ms: fc.integer({ min: -2 * dayMs, max: 2 * dayMs }) }),
  },
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('work'), ms: fc.integer({ min: 1, max: 12 * minuteMs }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('pause'), ms: fc.integer({ min: 1, max: 3 * hourMs }) }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('store'), count: fc.integer({ min: 1, max: 3 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart') }) },
) as fc.Arbitrary<Deed>;

test('after random actions a claim is kept while outstanding or younger than the window, and dropped later', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(deeds, { minLength: 5, maxLength: 60 }), async (list) => {
      await connection.flushall();
      await loadShard(connection);
      const world = await createWorld();
      const taken = new Map<number, { readonly atMs: number; readonly segment: string }>();
      const outstanding = new Set<string>();
      const claimAndCheck = async (key: number) => {
        const before = taken.get(key);
        const isNew = await world.claim(`key ${key}`);
        if (before !== undefined && isNew) {
          assert.ok(!outstanding.has(before.segment), `key ${key} was forgotten while outstanding`);
          const ageMs = world.realMs() - before.atMs;
          assert.ok(ageMs >= claims.windowMsMin, `key ${key} was forgotten after ${ageMs} ms`);
        }
        assert.ok(before !== undefined || isNew, `key ${key} was never claimed`);
        if (!isNew) return;
        const segment = await world.newestSegment();
        outstanding.add(segment);
        taken.set(key, { atMs: world.realMs(), segment });
      };
      for (const deed of list) {
        if (deed.do === 'claim') await claimAndCheck(deed.key);
        if (deed.do === 'step') await world.step(deed.ms);
        if (deed.do === 'work') await world.work(deed.ms, 47 * secondMs);
        if (deed.do === 'pause') await world.pass(deed.ms);
        if (deed.do === 'restart') world.restartWorker();
        if (deed.do === 'store')
          for (const member of await world.store(deed.count)) outstanding.delete(member);
      }
      for (const key of taken.keys()) await claimAndCheck(key);
      await world.store();
      await world.work(19 * minuteMs, 47 * secondMs);
      assert.equal(await world.claimsHeld(), 0, 'claims that nobody needs are gone');
    }),
    { numRuns: 150 },
  );
});
