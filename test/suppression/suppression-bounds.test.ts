// What strangers and large accounts can make of the suppressions: on a Redis of its own, without a deployment.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { stampRows } from '../../src/clickhouse/stamps.js';
import { suppressions as bounds } from '../../src/contract/limits.js';
import { noCrash } from '../../src/crash-point.js';
import { createSubmission } from '../../src/ingest/submission.js';
import type { Redis } from '../../src/packages/ioredis.js';
import {
  areFree,
  areSuppressed,
  type ChangeOptions,
  freeNames,
  joinNames,
  type Suppressed,
  suppressNames,
  TooManyNames,
} from '../../src/privacy/suppression/change.js';
import { joinTo, moveJoins } from '../../src/privacy/suppression/joins.js';
import { createNameHasher, inEnvironment } from '../../src/privacy/suppression/names.js';
import { freeUsers } from '../../src/privacy/suppression/submit.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { suppressionChanges } from '../../src/tuning.js';
import { inTime } from '../../src/wait.js';
import { rowsOfStored } from '../../workers/segment-bytes.js';
import { commit, epoch, eventIdOf, eventRecord, group, loadShard, noSuppressions } from '../support/shard.js';
import { startStore } from '../support/stores.js';
import { withMethod } from '../support/with-method.js';

const accountId = '7';
const appId = '1000000001';
const hasher = createNameHasher('secret', accountId);
const suppressed = hasher.textOf({ identity: 'ada@example.com' });

const { redis } = await startStore();
const options: ChangeOptions = { redis, epoch, shards: 1 };
// Nothing is copied, so ClickHouse is not asked.
const forUsers = { ...options, clickhouse: undefined as never, secret: 'secret', crash: noCrash };

beforeEach(async () => {
  await redis.flushall();
  await redis.set(registryKeys.epoch, epoch);
  await loadShard(redis);
  await suppressNames(options, accountId, [[suppressed, '-']]);
});

const anonymous = (number: number) => inEnvironment(hasher.textOf({ userId: String(number) }), appId);

function merged(count: number): Suppressed[] {
  return Array.from({ length: count }, (_, number): Suppressed => [anonymous(number), suppressed]);
}

/** How many names each change suppressed or freed, whichever is more. */
async function sizesOfChanges(): Promise<number[]> {
  const changes = await redis.zrange(registryKeys.suppressionChanges, '0', '-1');
  return changes.map((change) => {
    const [, added = '', removed = ''] = change.split('\n');
    return Math.max(added.split(' ').length, removed.split(' ').length);
  });
}

test('suppresses and frees any number of merged names, a few at a time', async () => {
  const names = merged(30_000);
  await redis.config('RESETSTAT');
  await suppressNames(options, accountId, names);
  assert.equal(await areSuppressed(options, accountId, names), true);
  await freeNames(options, accountId, [suppressed]);
  assert.equal(await areFree(options, accountId, [suppressed, ...names.map(([name]) => name)]), true);
  assert.ok(Math.max(...(await sizesOfChanges())) <= suppressionChanges.workMax);
  // The bound is 20 ms for each, on a machine that does nothing else.
  const usPerCall = Number(
    /cmdstat_evalsha:.*usec_per_call=([\d.]+)/.exec(await redis.info('commandstats'))?.[1],
  );
  assert.ok(usPerCall < 20_000, `a script took ${usPerCall} µs`);
  assert.deepEqual(await redis.keys('{registry}:suppressed_*'), []);
  assert.equal(await redis.hget(registryKeys.suppressions, `users:${accountId}`), '0');
});

/** The same Redis, over a connection that is lost after this many calls of scripts. */
function cutOffAfter(calls: number): Redis {
  let left = calls;
  return withScriptCalls((call) => {
    left -= 1;
    return left < 0 ? Promise.reject(new Error('cut off')) : call();
  });
}

/** The same Redis; `through` makes each call of a script. */
function withScriptCalls(
  through: (call: () => Promise<unknown>, args: unknown[]) => Promise<unknown>,
): Redis {
  const evalsha = (...args: Parameters<Redis['evalsha']>) => through(() => redis.evalsha(...args), args);
  return withMethod(redis, 'evalsha', evalsha);
}

test('an interrupted change is complete once it is asked for again, and the root is the last to go', async () => {
  const names = merged(3 * suppressionChanges.workMax);
  await suppressNames(options, accountId, names);
  for (let calls = 1; calls < 4; calls++) {
    const cutOff = cutOffAfter(calls);
    await assert.rejects(freeNames({ ...options, redis: cutOff }, accountId, [suppressed]), /cut off/);
    assert.equal(await areSuppressed(options, accountId, [[suppressed, '-']]), true);
  }
  const others = names.map(([name]) => name);
  assert.equal(await areFree(options, accountId, others), false);
  await freeNames(options, accountId, [suppressed]);
  assert.equal(await areFree(options, accountId, [suppressed, ...others]), true);
});

test('a user who is suppressed again after an interrupted freeing stays when another user is freed', async () => {
  await suppressNames(options, accountId, merged(3 * suppressionChanges.workMax));
  const cutOff = { ...options, redis: cutOffAfter(2) };
  await assert.rejects(freeNames(cutOff, accountId, [suppressed]), /cut off/);
  assert.equal(await redis.scard(registryKeys.freedRoots(accountId)), 1, 'the user was being freed');
  const another = hasher.textOf({ identity: 'grace@example.com' });
  await suppressNames(options, accountId, [
    [suppressed, '-'],
    [another, '-'],
  ]);
  await freeNames(options, accountId, [another]);
  assert.equal(await areFree(options, accountId, [another]), true);
  assert.equal(await areSuppressed(options, accountId, [[suppressed, '-']]), true);
});

test('an account changes a few suppressions at once and lets a few more wait, and others need not wait for it', async () => {
  await redis.del(registryKeys.uncopied);
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const slow = withScriptCalls(async (call) => {
    await released;
    return call();
  });
  const freeing = (of: Redis, account: string) =>
    freeUsers({ ...forUsers, redis: of }, account, ['igrace@example.com']);
  const { ofAccountMax, waitingOfAccountMax } = bounds.changes;
  const begun = Array.from({ length: ofAccountMax + waitingOfAccountMax }, () => freeing(slow, accountId));
  await assert.rejects(inTime(freeing(slow, accountId), 5_000, 'it waits'), /too many changes/);
  await freeing(redis, '8');
  release();
  await Promise.all(begun);
});

test('users that strangers have joined have their own limits, and do not count towards the account’s', async () => {
  const devices = Array.from({ length: bounds.joinedPerIdentityMax + 5 }, (_, at) => anonymous(at));
  const another = hasher.textOf({ identity: 'grace@example.com' });
  await suppressNames(options, accountId, [[another, '-']]);
  const join = (names: readonly string[], to: string) =>
    joinNames(
      options,
      accountId,
      names.map((name) => [name, to]),
    );
  assert.equal(await join(devices, suppressed), 5);
  assert.equal(await join(devices.slice(0, 10), suppressed), 0, 'again');
  assert.equal(await join(devices.slice(-5), another), 0, 'another identity has its own limit');
  assert.equal(
    await join(['x@1', 'y@1'], hasher.textOf({ identity: 'free@example.com' })),
    0,
    'nobody is joined to a free user',
  );
  assert.equal(await areFree(options, accountId, ['x@1', 'y@1']), true);
  const small = { ...options, namesPerAccountMax: 3 };
  const third: Suppressed = [hasher.textOf({ identity: 'hedy@example.com' }), '-'];
  const fourth: Suppressed = [hasher.textOf({ identity: 'rosa@example.com' }), '-'];
  await suppressNames(small, accountId, [third]);
  await assert.rejects(suppressNames(small, accountId, [fourth]), TooManyNames);
  // A name that the account suppresses itself counts towards its limit, even if a stranger has joined it.
  await assert.rejects(suppressNames(small, accountId, [[devices[0] as string, '-']]), TooManyNames);
  await freeNames(options, accountId, [suppressed]);
  assert.equal(await areFree(options, accountId, devices.slice(0, -5)), true);
  assert.equal(await areFree(options, accountId, devices.slice(-1)), false);
  assert.equal(await redis.hget(registryKeys.suppressions, `joined:${accountId}`), '5');
});

test('a commit joins an anonymous user, and the next ones skip this user until the list has it', async () => {
  const name = anonymous(1);
  const joinLimit = { digest: 'a'.repeat(24), limit: { max: 2, windowMs: 60_000, granularityMs: 1000 } };
  const joins = `${accountId} ${suppressed}`;
  const joining = (...of: string[]) => ({
    ...group(of.map((each) => eventRecord(`joins ${each}`))),
    marks: of.map((each) => ({ name: each, joins })),
    joinLimit,
  });
  const about = (...of: string[]) => ({
    ...group(of.map((each, at) => eventRecord(`about ${each}`, at === 1 ? `key of ${each}` : undefined))),
    marks: of.map((each) => ({ name: each })),
  });
  assert.equal(await commit(redis, [about(name, name)]), 'ss');
  const version = 5;
  assert.equal(
    await commit(redis, [about(name), joining(name), about(name, anonymous(2), name)], {
      suppressionVersion: version,
    }),
    's,k,ksk',
  );
  assert.equal(await commit(redis, [about(name, anonymous(2))]), `v${version}`);
  const later = { suppressionVersion: version };
  assert.equal(await commit(redis, [about(name, name, anonymous(2))], later), 'krs');
  // Above the limit a user is not joined, and not refused either.
  assert.equal(
    await commit(redis, [joining(name, anonymous(3), anonymous(4)), about(anonymous(4))], later),
    'kku,s',
  );
  assert.equal(await moveJoins(options, [0]), 0);
  assert.equal(await areSuppressed(options, accountId, [[name, `+${suppressed}`]]), true);
  assert.deepEqual(await redis.hgetall(shardKeys.joined(0)), {});
  assert.match(await commit(redis, [about(name)], later), /^v/, 'nobody stores without having read the list');
  const latest = { suppressionVersion: Number(await redis.hget(registryKeys.suppressions, 'version')) };
  assert.equal(await commit(redis, [about(name)], latest), 's');
  const full = { ...latest, joinsWaitingMax: 0 };
  assert.equal(
    await commit(
      redis,
      [{ ...joining(anonymous(5)), joinLimit: { ...joinLimit, digest: 'b'.repeat(24) } }],
      full,
    ),
    'u',
  );
});

test('an environment may have so many joins in a minute', () => {
  const groups = [group([eventRecord('joins')])];
  const suppressions = { ...noSuppressions, of: () => ({}) as never };
  const limitKeys = { ofApp: (limit: string, app: string) => `${limit} ${app}` };
  const context = { environment: { accountId, appId } as never, suppressions, limitKeys };
  createSubmission(context, groups, () => [{ name: anonymous(1), joins: suppressed }]);
  assert.deepEqual(groups[0]?.joinLimit, { digest: `joins ${appId}`, limit: bounds.joins });
});

test('joining ever more users keeps no move of joined users from ending', async () => {
  const joins = (names: readonly string[]) =>
    redis.hset(
      shardKeys.joined(0),
      names.flatMap((name) => [name, joinTo(accountId, suppressed)]),
    );
  const isJoined = (names: readonly string[]) =>
    areSuppressed(
      options,
      accountId,
      names.map((name): Suppressed => [name, `+${suppressed}`]),
    );
  const [early, late] = [[anonymous(1), anonymous(2)], anonymous(3)];
  await joins(early);
  let more = 0;
  const flooded = withScriptCalls(async (call, args) => {
    if (args.includes(shardKeys.joined(0))) {
      more += 1;
      if (more === 5) throw new Error('it goes on with whoever is joined meanwhile');
      await joins([more === 1 ? late : anonymous(3 + more)]);
    }
    return call();
  });
  await moveJoins({ ...options, redis: flooded }, [0]);
  assert.deepEqual([await isJoined(early), await isJoined([late])], [true, false]);
  assert.equal(await moveJoins(options, [0], 1), 0);
  assert.deepEqual([await isJoined([late]), await redis.hlen(shardKeys.joined(0))], [true, 0]);
  // A worker moves only some at a time, since it has other work too. A submission moves all.
  const many = Array.from({ length: 2 * suppressionChanges.joinsPerRoundMax }, (_, at) =>
    anonymous(100 + at),
  );
  await joins(many);
  await moveJoins(options, [0], 1);
  const left = await redis.hlen(shardKeys.joined(0));
  assert.ok(left > 0 && left < many.length, String(left));
  await moveJoins(options, [0]);
  assert.deepEqual([await isJoined(many), await redis.hlen(shardKeys.joined(0))], [true, 0]);
});

test('a skipped record takes its key, counts towards its limits and leaves nothing else but the id of its key', async () => {
  const limit = { digest: 'c'.repeat(24), cost: 1, limit: { max: 2, windowMs: 60_000, granularityMs: 1 } };
  const keyed = (claim: string) => ({
    ...group([eventRecord('skipped', claim)], [limit]),
    marks: ['skipped' as const],
  });
  assert.equal(await commit(redis, [keyed('a')]), 'k');
  assert.equal(await commit(redis, [keyed('a')]), 'r');
  assert.match(await commit(redis, [keyed('b')]), /^l0:/);
  assert.equal(await commit(redis, [group([eventRecord('other row', 'a')])]), 'd');
  const [only, ...others] = await redis.zrange(shardKeys.segments(0), '0', '-1');
  assert.deepEqual(others, []);
  assert.deepEqual(Object.values(await redis.hgetall(shardKeys.segmentRows(0))), ['0']);
  const lines = stampRows(await rowsOfStored((await redis.getBuffer(`{s0}:segment:${only}`)) as Buffer));
  const [marker = [], kept = []] = lines.bytes
    .toString()
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown[]);
  assert.equal(lines.rows, 1);
  assert.equal(kept[1], eventIdOf('a'));
  assert.deepEqual(kept.toSpliced(1, 1).slice(0, 7), marker.toSpliced(1, 1).slice(0, 7));
  const mixed = {
    ...group([eventRecord('one'), eventRecord('two'), eventRecord('three')]),
    marks: [undefined, 'skipped' as const, undefined],
  };
  assert.equal(await commit(redis, [mixed]), 'sks');
  const [member] = await redis.zrange(shardKeys.segments(0), '-1', '-1');
  const rows = (await redis.get(`{s0}:segment:${member}`)) ?? '';
  assert.deepEqual(rows.match(/"(one|two|three|skipped)"/g), ['"one"', '"three"']);
});
