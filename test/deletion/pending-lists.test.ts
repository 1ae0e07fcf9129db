// What a submission costs Redis while other accounts have many requests: on a Redis of its own, without a deployment.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { noCrash } from '../../src/crash-point.js';
import { deletionsPending } from '../../src/metrics.js';
import { observeDeletions } from '../../src/privacy/deletion/observe.js';
import {
  ConcurrentUpdate,
  completeDeletion,
  markTargetsLost,
  readDeletion,
  readDeletions,
  readDeletionTargets,
  readPendingIds,
  readPendingMembers,
  updateDeletion,
  updateDeletions,
  updateUnfinished,
} from '../../src/privacy/deletion/request.js';
import { type SubmitOptions, submitDeletion } from '../../src/privacy/deletion/submit.js';
import { exportIdsOf, isComplete, listExports, readExport } from '../../src/privacy/export/request.js';
import { submitExport } from '../../src/privacy/export/submit.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { exportEnds } from '../../src/tuning.js';
import { commit, epoch, eventRecord, group, loadShard } from '../support/shard.js';
import { startStore } from '../support/stores.js';

const accountId = '7';
const caller = { accountId, appId: '1000000001', keyId: 'k', keyCreatedAt: '2026-01-01T00:00:00.000Z' };
const others = 300_000;

const { redis } = await startStore();
const options: SubmitOptions = { redis, epoch, shards: 1, secret: 'secret', crash: noCrash };

before(async () => {
  await redis.set(registryKeys.epoch, epoch);
  await loadShard(redis);
  // Fills both sets of deletions and both of exports with as many requests of other accounts, which sort before and after this one.
  const fill = `for at = 1, ${others} do for _, key in ipairs(KEYS) do
      redis.call('ZADD', key, string.find(key, 'by_account') and 0 or 9999999999999 + at, (at % 10) .. at % 150 .. ' ' .. at)
    end end`;
  const { pendingDeletions, pendingDeletionsByAccount, exports, exportsByAccount } = registryKeys;
  await redis.eval(fill, 4, pendingDeletions, pendingDeletionsByAccount, exports, exportsByAccount);
});

async function submit(identity: string): Promise<string> {
  const submission = {
    list: [`i${identity}`] as const,
    reference: undefined,
    dryRun: false,
    suppress: false,
    eraseNow: false,
  };
  return (await submitDeletion(options, caller, submission)).requestId ?? '';
}

async function complete(requestId: string): Promise<void> {
  const request = await readDeletion(redis, requestId);
  assert.ok(request !== undefined);
  await completeDeletion(redis, { ...request, status: 'complete', state: 'complete' });
}

test('submitting requests and ending them takes no longer however many requests other accounts have', async () => {
  await redis.config('RESETSTAT');
  for (let n = 0; n < 10; n += 1) {
    const id = await submit(`user ${n}`);
    const request = await submitExport(options, accountId, [`iuser ${n}`]);
    assert.ok(typeof request === 'object');
    const { exports, export: keyOf, exportWeights, exportsByAccount } = registryKeys;
    const keys = [exports, keyOf(request.user_export_id), exportWeights, exportsByAccount];
    await runScript(redis, scripts.endExport, keys, [`${accountId} ${request.user_export_id}`]);
    await complete(id);
  }
  const statistics = await redis.info('commandstats');
  const usPerCall = Number(/cmdstat_evalsha:.*usec_per_call=([\d.]+)/.exec(statistics)?.[1]);
  assert.ok(usPerCall < 20_000, `a script took ${usPerCall} µs`);
});

test('an export knows which deletions of its account come before it', async () => {
  const earlierOf = async (): Promise<readonly string[] | undefined> => {
    const request = await submitExport(options, accountId, ['iada']);
    return typeof request === 'string'
      ? undefined
      : (await readExport(redis, request.user_export_id))?.earlierDeletions;
  };
  const [first, second] = [await submit('first'), await submit('second')].sort();
  assert.deepEqual((await earlierOf())?.toSorted(), [first, second]);
  await complete(first ?? '');
  assert.deepEqual(await earlierOf(), [second]);
});

test('no command of Redis reads all pending requests', async () => {
  const [id, request] = [await submit('alone'), await submitExport(options, accountId, ['ialone'])];
  assert.ok(typeof request === 'object');
  const slowCommands = async () => {
    await redis.config('RESETSTAT');
    const [newest] = await listExports(redis, accountId, 1);
    assert.ok(Date.parse(newest?.endsAt ?? '') > Date.now());
    assert.ok((await exportIdsOf(redis, accountId)).includes(request.user_export_id));
    assert.ok((await readPendingIds(redis, epoch, accountId)).includes(id));
    const pending = await readPendingMembers(redis, epoch);
    assert.equal(pending.length, others + 2);
    assert.deepEqual(pending.at(-1), { accountId, requestId: id });
    assert.deepEqual(pending[0], { accountId: '11', requestId: '1' });
    const statistics = await redis.info('commandstats');
    return [...statistics.matchAll(/cmdstat_(.*?):.*usec_per_call=([\d.]+)/g)].flatMap(
      ([, name = '', usPerCall]) => (Number(usPerCall) > 20_000 ? [name] : []),
    );
  };
  // A pause of the machine slows down some commands, but not the same one each time.
  let slow = await slowCommands();
  for (let looks = 1; looks < 5 && slow.length > 0; looks += 1) {
    const again = new Set(await slowCommands());
    slow = slow.filter((name) => again.has(name));
  }
  assert.deepEqual(slow, []);
});

test('the metrics count all requests, and read a bounded number', async () => {
  await submit('observed');
  await redis.config('RESETSTAT');
  await observeDeletions(redis);
  const calls = [...(await redis.info('commandstats')).matchAll(/cmdstat_\w+:calls=(\d+)/g)];
  assert.ok(calls.reduce((sum, [, count]) => sum + Number(count), 0) <= 10);
  const { values } = await deletionsPending.get();
  const sum = values.reduce((total, { value }) => total + value, 0);
  assert.equal(sum, await redis.zcard(registryKeys.pendingDeletions));
});

test('a round writes its progress by a few scripts, of which each writes all of its requests or none', async () => {
  const ids = await Promise.all(Array.from({ length: 200 }, (_, n) => submit(`of a round ${n}`)));
  const scriptsRun = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1]);
  const read = () => readDeletions(redis, ids);
  const before = await scriptsRun();
  const changes = (await read()).map((request) => [request, { state: 'deleting' }] as const);
  const written = await updateDeletions(redis, changes);
  assert.ok((await scriptsRun()) - before <= 4);
  assert.deepEqual(await read(), written);
  assert.deepEqual(
    new Set(written.map(({ state, revision }) => `${state} ${revision}`)),
    new Set(['deleting 1']),
  );
  // Another worker has continued with one of the requests.
  const [, second] = written;
  assert.ok(second !== undefined);
  const ahead = await updateDeletion(redis, second, { state: 'verifying' });
  const late = written.slice(0, 10).map((request) => [request, { state: 'failed' }] as const);
  await assert.rejects(updateDeletions(redis, late), ConcurrentUpdate);
  assert.deepEqual((await read()).slice(0, 3), [written[0], ahead, written[2]]);
});

test('a request is changed although another process changes it meanwhile, unless it is over', async (t) => {
  const requestId = await submit('changed by two');
  const read = async () => {
    const request = await readDeletion(redis, requestId);
    assert.ok(request !== undefined);
    return request;
  };
  const { evalsha } = redis;
  const disturbed = async (...words: unknown[]) => {
    await updateDeletion(redis, await read(), { state: 'waiting_for_backlog' });
    return evalsha.apply(redis, words as never);
  };
  t.mock.method(redis, 'evalsha').mock.mockImplementationOnce(disturbed as never);
  assert.equal(await updateUnfinished(redis, requestId, { state: 'submitted', resolved: false }), true);
  const { state, revision } = await read();
  assert.deepEqual([state, revision], ['submitted', 2]);
  await markTargetsLost(redis, await read(), await readDeletionTargets(redis, requestId));
  const lost = await read();
  assert.equal(await updateUnfinished(redis, requestId, { state: 'submitted' }), false);
  assert.deepEqual(await read(), lost);
});

test('checking an export reads few of the deletions before it while they are pending, and none once they are over', async () => {
  await Promise.all(Array.from({ length: 250 }, (_, n) => submit(`before an export ${n}`)));
  const request = await submitExport(options, accountId, ['ieve']);
  assert.ok(typeof request === 'object');
  const id = request.user_export_id;
  const lookAt = async () => {
    await redis.config('RESETSTAT');
    const found = await readExport(redis, id);
    assert.ok(found !== undefined);
    const isOver = await isComplete(redis, epoch, found);
    const asked = [...(await redis.info('commandstats')).matchAll(/cmdstat_zm?score:calls=(\d+)/g)];
    return { isOver, asked: asked.reduce((sum, [, calls]) => sum + Number(calls), 0) };
  };
  assert.deepEqual(await lookAt(), { isOver: false, asked: 1 });
  const pending = await readPendingIds(redis, epoch, accountId);
  for (const each of pending) await complete(each);
  const asked = Math.ceil(pending.length / exportEnds.deletionsPerRead);
  assert.deepEqual(await lookAt(), { isOver: true, asked });
  assert.deepEqual(await lookAt(), { isOver: true, asked: 0 });
  const { earlierDeletions: _, ...left } = (await readExport(redis, id)) ?? { earlierDeletions: [] };
  assert.deepEqual(left, request);
  assert.ok((await redis.pttl(registryKeys.export(id))) > 0);
});

test('requests that come at once end the open segments of all accounts only a few times, and reach every earlier record', async () => {
  const state = shardKeys.state(0);
  const lastNumber = async () => BigInt((await redis.hget(state, 'last_number')) ?? 0);
  const before = await redis.zcard(shardKeys.segments(0));
  const asked: Promise<void>[] = [];
  for (let n = 0; n < 50; n += 1) {
    await commit(redis, [group([eventRecord('of anybody')])]);
    const earlier = await lastNumber();
    const reaches = async () => {
      const request = await readDeletion(redis, await submit(`at once ${n}`));
      assert.ok(BigInt(request?.fences[0] ?? 0) >= earlier);
    };
    asked.push(reaches());
  }
  await Promise.all(asked);
  const segments = (await redis.zcard(shardKeys.segments(0))) - before;
  assert.ok(segments <= 10, `${segments} segments`);
});
