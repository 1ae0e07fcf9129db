// Deletions through crashes: of a worker at every step of a round, of ClickHouse and of Redis. They complete
// afterwards, exactly, with the evidence of what was there, and leave nothing behind.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { afterEach } from 'node:test';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { StateNotLoaded } from '../../src/contract/errors.js';
import { deletions } from '../../src/contract/limits.js';
import { readStored } from '../../src/privacy/deletion/fences.js';
import { type DeletionRequest, readPendingMembers } from '../../src/privacy/deletion/request.js';
import { registryKeys } from '../../src/redis/keys.js';
import { readRegistry } from '../../src/registry/registry.js';
import { deletionRounds } from '../../src/tuning.js';
import { runDeletionRound } from '../../workers/delete.js';
import { deletionSteps } from '../chaos/faults-crashes.js';
import { restoreState } from '../harness/accounts.js';
import {
  administer,
  assertExact,
  dumpTables,
  getToken,
  type History,
  hurryRounds,
  readFound,
  readStatus,
  showDeletion,
  submit,
  submitAccepted,
  untilComplete,
  untilStored,
  withoutRounds,
  writeHistory,
} from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import type { Child } from '../harness/services.js';
import { until } from '../harness/wait.js';
import {
  gatedDeletionWorld,
  type Prepared,
  prepareHistory,
  roundOptions,
} from '../support/deletion-world.js';
import { addPending, removePending } from '../support/pending.js';
import { test } from '../support/test.js';
import { filesWith, keysWith } from '../support/traces.js';

const world = await gatedDeletionWorld();
const { sluice, clickhouse, gate, worker: survivor, account, stranger } = world;
let { token, strangerToken } = world;
/** The requests that completed. */
const markers: string[] = [];

// A request that a failed test leaves pending must not hold up the next test.
afterEach(async () => {
  gate.pass();
  survivor.sigcont();
  await withRedis(sluice, async (redis) => {
    await removePending(redis);
    await redis.del(registryKeys.lostDeletions);
  });
});

const prepare = () => prepareHistory(world);

/** Settles when the second copy of a request, in ClickHouse, is as it should be. */
async function untilCopied(
  requestId: string,
  what: string,
  isCopied: (copy: DeletionRequest) => boolean,
): Promise<void> {
  await until(
    async () => {
      const [copy] = await sluice.rows<{ document: string }>(
        `SELECT argMax(document, version) AS document FROM deletion_requests
          WHERE request_id = '${requestId}' GROUP BY request_id`,
      );
      return copy !== undefined && isCopied(JSON.parse(copy.document) as DeletionRequest);
    },
    { deadlineMs: 180_000, what },
  );
}

async function emptyRedis(): Promise<void> {
  await withRedis(sluice, (redis) => redis.flushall());
}

/** Loads the state into an emptied Redis. Tokens have no second copy, so the accounts get new ones. */
async function restore(): Promise<void> {
  await restoreState(sluice);
  [token, strangerToken] = [await getToken(sluice, account), await getToken(sluice, stranger)];
}

/** Settles when a worker has written a log entry this many more times. */
async function untilLogged(worker: Child, entry: string, times: number): Promise<void> {
  const count = () => worker.output().split(entry).length;
  const enough = count() + times;
  await until(() => count() >= enough, {
    deadlineMs: 180_000,
    what: `the worker logs "${entry}" ${times} times`,
  });
}

async function assertDeleted(
  { history, earlier, before }: Prepared,
  requestId: string,
  accepted: Readonly<Record<string, number>>,
): Promise<void> {
  await untilStored(sluice);
  assertExact(before, await dumpTables(sluice, earlier), history.identificationsToGo, accepted);
  await assertOver(history, requestId);
}

async function assertOver(history: History, requestId: string): Promise<void> {
  markers.push(history.marker);
  const [left] = await sluice.rows<{ rows: number }>(
    `SELECT count() AS rows FROM deletion_targets WHERE request_id = '${requestId}'`,
  );
  assert.equal(Number(left?.rows), 0, 'no target is kept');
  assert.deepEqual(await sluice.rows(`SELECT name FROM system.tables WHERE name LIKE 'deletion_round%'`), []);
  assert.deepEqual(await keysWith(sluice, history.marker), [], 'Redis holds the identity');
  assert.deepEqual(await readFound(sluice, requestId), history.found, 'the evidence says what was there');
  const found = Object.values(history.found).reduce((sum, rows) => sum + rows, 0);
  const [counted] = await sluice.rows<{ users: number; rows: number }>(
    `SELECT count() AS users, sum(rows) AS rows FROM deletion_evidence FINAL WHERE request_id = '${requestId}'`,
  );
  assert.deepEqual([Number(counted?.users), Number(counted?.rows)], [history.users.length, found]);
  const { mutations } = await showDeletion(sluice, requestId);
  const emptied = new Set(Object.keys(history.found).map((key) => key.split(' ')[1]));
  assert.deepEqual(new Set(mutations.map(({ table }) => table)), emptied, 'the evidence names the mutations');
}

/** Has a worker killed at a point of the round that deletes the users of a history; then another worker continues the round. */
async function crashAt(point: string, prepared: Prepared, killed: Child): Promise<void> {
  survivor.sigstop();
  await hurryRounds(sluice);
  const requestId = await submitAccepted(sluice, token, prepared.history.users);
  const accepted = await prepared.history.returnToService();
  await until(() => !killed.running, { deadlineMs: 180_000, what: `the worker passes ${point}` });
  assert.equal((await killed.exited).signal, 'SIGKILL');
  await hurryRounds(sluice);
  survivor.sigcont();
  await untilComplete(sluice, token, requestId);
  await assertDeleted(prepared, requestId, accepted);
}

// Another test kills the worker at the last step, since requests end there.
const steps = deletionSteps.filter((point) => point !== 'completed');

for (const point of steps) {
  test(`completes a deletion exactly when the worker is killed at ${point}`, async () => {
    const [prepared, killed] = await Promise.all([prepare(), sluice.addWorker({ CRASH_AT: `${point}:1` })]);
    await crashAt(point, prepared, killed);
  });
}

test('completes deletions exactly although rounds end at every step of them, one after another', async () => {
  const earlier = await dumpTables(sluice);
  const histories = new Map<string, History>();
  for (const point of steps)
    histories.set(point, await writeHistory(sluice, account, stranger, `${point}@example.com`));
  await untilStored(sluice);
  const before = await dumpTables(sluice, earlier);
  survivor.sigstop();
  const requests: [requestId: string, History][] = [];
  const client = connectClickHouse({ url: sluice.clickhouseUrl, database: sluice.database });
  await withRedis(sluice, async (redis) => {
    const options = await roundOptions(redis, client);
    for (const [point, history] of histories) {
      const crash = (name: string) => {
        if (name === point) throw new Error('ended');
      };
      // The round ends for requests whose rounds ended earlier, and for one that begins.
      requests.push([await submitAccepted(sluice, token, history.users), history]);
      await redis.del(registryKeys.deletionRound, registryKeys.maintenanceLock);
      await assert.rejects(runDeletionRound({ ...options, crash }), /ended/, point);
    }
  });
  await client.close();
  const accepted = { stored_events: 0, stored_user_properties: 0 };
  for (const [, { returnToService }] of requests) {
    const { stored_events = 0, stored_user_properties = 0 } = await returnToService();
    accepted.stored_events += stored_events;
    accepted.stored_user_properties += stored_user_properties;
  }
  await hurryRounds(sluice);
  survivor.sigcont();
  for (const [requestId] of requests) await untilComplete(sluice, token, requestId);
  await untilStored(sluice);
  const gone = new Set(requests.flatMap(([, { identificationsToGo }]) => [...identificationsToGo]));
  assertExact(before, await dumpTables(sluice, earlier), gone, accepted);
  for (const [requestId, history] of requests) await assertOver(history, requestId);
});

/** Submits a request; settles when the worker is about to send the statement that erases or masks its rows in a table. */
async function submitUntil(users: History['users'], table: string): Promise<string> {
  const takes = new RegExp(`^\\s*(ALTER TABLE ${table} DELETE|DELETE FROM ${table}) `);
  let requestId = '';
  await withoutRounds(sluice, async () => {
    requestId = await submitAccepted(sluice, token, users);
    // A worker may also purge the targets of earlier tests.
    gate.hold(({ sql }) => takes.test(sql) && (table !== 'deletion_targets' || sql.includes(requestId)));
    await hurryRounds(sluice);
  });
  await until(() => gate.held.length > 0, `a worker takes rows out of ${table}`);
  return requestId;
}

for (const table of ['stored_user_properties', 'stored_user_identities', 'deletion_targets']) {
  test(`completes a deletion exactly when ClickHouse is killed before rows are taken out of ${table}`, async () => {
    const prepared = await prepare();
    const requestId = await submitUntil(prepared.history.users, table);
    const accepted = await prepared.history.returnToService();
    await clickhouse.kill9();
    gate.forget();
    gate.pass();
    await until(async () => (await showDeletion(sluice, requestId)).state === 'clickhouse_unavailable', {
      deadlineMs: 180_000,
      what: 'the request says what it waits for',
    });
    await clickhouse.restart();
    await untilComplete(sluice, token, requestId);
    await assertDeleted(prepared, requestId, accepted);
  });
}

test('completes a deletion exactly when Redis is killed during it', async () => {
  const prepared = await prepare();
  const requestId = await submitUntil(prepared.history.users, 'stored_user_properties');
  const accepted = await prepared.history.returnToService();
  await sluice.redis.kill9();
  gate.pass();
  await sluice.redis.restart();
  await untilComplete(sluice, token, requestId);
  await assertDeleted(prepared, requestId, accepted);
});

test('accepts a deletion while ClickHouse is away, says what it waits for, and completes it afterwards', async () => {
  const prepared = await prepare();
  await clickhouse.kill9();
  const requestId = await submitAccepted(sluice, token, prepared.history.users);
  const accepted = await prepared.history.returnToService();
  await until(async () => (await showDeletion(sluice, requestId)).state === 'clickhouse_unavailable', {
    deadlineMs: 180_000,
    what: 'the request says what it waits for',
  });
  assert.equal((await readStatus(sluice, token, requestId)).text.includes('"pending"'), true);
  await clickhouse.restart();
  await untilComplete(sluice, token, requestId);
  await assertDeleted(prepared, requestId, accepted);
});

type Status = { readonly status: string; readonly state?: string; readonly message?: string };

async function statusOf(requestId: string): Promise<Status> {
  const reply = await readStatus(sluice, token, requestId);
  assert.equal(reply.status, 200, reply.text);
  return JSON.parse(reply.text) as Status;
}

async function untilLost(requestId: string): Promise<void> {
  await until(async () => (await statusOf(requestId)).state === 'targets_lost', {
    deadlineMs: 180_000,
    what: 'the status says that the targets are lost',
  });
}

/** Submits a request whose targets are lost before a worker sees them. No worker may run meanwhile. */
async function submitLost(users: History['users']): Promise<string> {
  const requestId = await submitAccepted(sluice, token, users);
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionTargets(requestId)));
  return requestId;
}

/** The value of a metric of deletions; undefined when there is no such series. */
async function readMetric(series: string): Promise<number | undefined> {
  const reply = await fetch(`${sluice.adminUrl}/metrics`);
  const line = (await reply.text()).split('\n').find((text) => text.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length));
}

/** Has the administration end a request over HTTP; settles with the answer. */
async function endOverHttp(requestId: string): Promise<{ readonly status: number; readonly text: string }> {
  const reply = await fetch(`${sluice.adminUrl}/admin/v1/deletions/${requestId}/end`, {
    method: 'POST',
    headers: { authorization: `Bearer ${sluice.adminToken}` },
  });
  return { status: reply.status, text: await reply.text() };
}

test('deletions whose targets are lost hold up no others, report the loss, and end when an administrator ends them', async () => {
  const prepared = await prepare();
  survivor.sigstop();
  const listMax = 10_000;
  const lost: string[] = [];
  while (lost.length * listMax <= deletionRounds.targetsMax) {
    const users = Array.from({ length: listMax }, (_, at) => ({ identity: `lost ${lost.length} ${at}` }));
    lost.push(await submitLost(users));
  }
  const [first = '', second = '', third = '', ...rest] = lost;
  const own = await submitAccepted(sluice, token, prepared.history.users);
  const others = await submitAccepted(sluice, strangerToken, [{ identity: 'of another account' }]);
  await hurryRounds(sluice);
  survivor.sigcont();
  await untilComplete(sluice, strangerToken, others);
  await untilComplete(sluice, token, own);
  await assertDeleted(prepared, own, {});
  for (const requestId of lost) {
    const { status, state, message = '' } = await statusOf(requestId);
    assert.deepEqual([status, state], ['pending', 'targets_lost']);
    assert.match(message, /nothing was deleted\. Submit the users again/);
  }
  assert.equal(await readMetric('sluice_deletions_pending{state="targets_lost"}'), lost.length);
  assert.equal(await readMetric('sluice_deletions_oldest_seconds'), 0, 'nobody waits for lost ones');

  await withRedis(sluice, async (redis) => {
    survivor.sigstop();
    const fill = Array.from(
      { length: deletions.pendingPerAccountMax - 1 },
      (_, at) => `${account.accountId} ${at}`,
    );
    await addPending(redis, fill);
    await submitAccepted(sluice, token, [{ identity: 'the last one that is taken' }]);
    assert.equal((await submit(sluice, token, [{ identity: 'one too many' }])).status, 429);
    await removePending(redis);
    survivor.sigcont();
  });

  const ended = (await sluice.admin('deletions', 'end', first)) as DeletionRequest;
  assert.deepEqual([ended.status, ended.state], ['pending', 'ended']);
  await assert.rejects(sluice.admin('deletions', 'end', first), /this one is ended/);
  await assert.rejects(sluice.admin('deletions', 'end', own), /this one is complete/);
  await assert.rejects(sluice.admin('deletions', 'end', 'unknown'), /there is no such deletion request/);
  assert.equal((JSON.parse((await endOverHttp(second)).text) as DeletionRequest).state, 'ended');
  for (const requestId of [second, own, 'unknown']) {
    const { status, text } = await endOverHttp(requestId);
    assert.equal(status, 400, text);
  }
  assert.equal((await showDeletion(sluice, own)).state, 'complete', 'a refusal changes nothing');
  const answered = await statusOf(first);
  assert.deepEqual([answered.status, answered.state], ['pending', 'ended']);
  assert.match(answered.message ?? '', /an administrator ended this request; nothing was deleted/);
  assert.equal(await readMetric('sluice_deletions_pending{state="targets_lost"}'), lost.length - 2);

  for (const requestId of [first, second]) {
    await untilCopied(requestId, 'ClickHouse knows that it was ended', ({ state }) => state === 'ended');
  }
  for (const requestId of [third, ...rest]) {
    await untilCopied(requestId, 'ClickHouse knows that it is lost', ({ state }) => state === 'targets_lost');
  }
  survivor.sigstop();
  await emptyRedis();
  await restore();
  await withRedis(sluice, async (redis) => {
    const pending = await redis.zrange(registryKeys.pendingDeletions, '0', '-1');
    assert.ok(
      !pending.some((member) => lost.some((id) => member.endsWith(id))),
      'they no longer count as waiting',
    );
    assert.deepEqual(
      await redis.zrange(registryKeys.lostDeletions, '0', '-1'),
      [third, ...rest].map((id) => `${account.accountId} ${id}`),
    );
  });
  assert.equal((await statusOf(first)).state, 'ended');
  survivor.sigcont();
  await until(
    async () => (await readMetric('sluice_deletions_pending{state="targets_lost"}')) === lost.length - 2,
    {
      deadlineMs: 180_000,
      what: 'the requests that were not ended still count as lost',
    },
  );
});

test('copies targets again that ClickHouse has lost, and reports them as lost only if Redis has none either', async () => {
  const prepared = await prepare();
  let [own, lost] = ['', ''];
  await withoutRounds(sluice, async () => {
    own = await submitAccepted(sluice, token, prepared.history.users);
    lost = await submitAccepted(sluice, token, [{ identity: 'kept once' }, { identity: 'kept twice' }]);
    for (const requestId of [lost, own]) {
      await untilCopied(requestId, 'the targets are kept', ({ targets_kept }) => targets_kept === true);
    }
    const gone = `request_id = '${own}' OR identity = 'kept twice'`;
    await sluice.rows(`ALTER TABLE deletion_targets DELETE WHERE ${gone} SETTINGS mutations_sync = 2`);
    await withRedis(sluice, (redis) => redis.del(registryKeys.deletionTargets(lost)));
    await hurryRounds(sluice);
  });
  await untilComplete(sluice, token, own);
  await assertDeleted(prepared, own, {});
  await untilLost(lost);
  await administer(sluice, 'POST', `/deletions/${lost}/end`);
});

test('completes a deletion after Redis was emptied, and still finds the completed ones', async () => {
  const prepared = await prepare();
  const earlier = await submitAccepted(sluice, token, [{ identity: 'nobody' }]);
  await untilComplete(sluice, token, earlier);
  const requestId = await submitUntil(prepared.history.users, 'stored_user_properties');
  await untilCopied(earlier, 'ClickHouse has the completed request', ({ status }) => status === 'complete');
  await untilCopied(requestId, 'ClickHouse has the pending request', ({ status }) => status === 'pending');
  survivor.sigstop();
  await emptyRedis();
  gate.pass();
  await restore();
  survivor.sigcont();
  await untilComplete(sluice, token, requestId);
  const status = JSON.parse((await readStatus(sluice, token, earlier)).text) as { status: string };
  assert.equal(status.status, 'complete');
  await untilStored(sluice);
  assertExact(
    prepared.before,
    await dumpTables(sluice, prepared.earlier),
    prepared.history.identificationsToGo,
  );
});

test('nothing is decided by an emptied Redis: a pending deletion is carried out once it is restored', async () => {
  const prepared = await prepare();
  const { deployment } = await withRedis(sluice, readRegistry);
  assert.ok(deployment);
  let requestId = '';
  await withoutRounds(sluice, async () => {
    requestId = await submitAccepted(sluice, token, prepared.history.users);
    await untilCopied(requestId, 'the targets are kept', ({ targets_kept }) => targets_kept === true);
    await emptyRedis();
    await untilLogged(survivor, 'the copying to ClickHouse failed', 2);
  });
  await withRedis(sluice, async (redis) => {
    await assert.rejects(readPendingMembers(redis, deployment.epoch), StateNotLoaded);
    const isStored = await readStored({ redis, epoch: deployment.epoch, shards: 1 });
    assert.equal(isStored(0, '0'), false);
  });
  assert.deepEqual(await dumpTables(sluice, prepared.earlier), prepared.before, 'nothing was deleted');
  await restore();
  const accepted = await prepared.history.returnToService();
  await untilComplete(sluice, token, requestId);
  await assertDeleted(prepared, requestId, accepted);
});

const looksForTargets = [
  { isLate: false, when: 'its targets are gone' },
  {
    isLate: true,
    when: 'its targets are gone and a worker that was paused makes a round look for them again',
  },
];

for (const { isLate, when } of looksForTargets) {
  test(`completes a verified deletion after Redis is emptied, even if ${when}`, async () => {
    const prepared = await prepare();
    const purge = 'ALTER TABLE deletion_targets DELETE';
    let isPurging = false;
    let requestId = '';
    await withoutRounds(sluice, async () => {
      requestId = await submitAccepted(sluice, token, prepared.history.users);
      // Copies of the request that the worker makes once it wants to purge the targets never arrive. It may also purge what earlier tests left.
      gate.hold(({ sql }) => {
        const wantsPurge = sql.trimStart().startsWith(purge) && sql.includes(requestId);
        isPurging ||= wantsPurge;
        return wantsPurge || (isPurging && sql.startsWith('INSERT INTO deletion_requests'));
      });
      await hurryRounds(sluice);
    });
    await until(() => isPurging, { deadlineMs: 180_000, what: 'the worker wants to purge the targets' });
    survivor.sigstop();
    await emptyRedis();
    gate.forget();
    gate.pass();
    // The statement itself may have arrived before the worker was stopped, so it is carried out.
    await sluice.rows(`${purge} WHERE request_id = '${requestId}' SETTINGS mutations_sync = 2`);
    await restore();
    if (isLate)
      await withRedis(sluice, (redis) => redis.sadd(registryKeys.deletionsAwaitingTargetCopy, requestId));
    survivor.sigcont();
    await untilComplete(sluice, token, requestId);
    await assertDeleted(prepared, requestId, {});
  });
}

test('rewrites the append-only file even when the worker is killed right after it completed a request', async () => {
  const [prepared, killed] = await Promise.all([prepare(), sluice.addWorker({ CRASH_AT: 'completed:1' })]);
  // No earlier deletion still wants a rewrite, and this rewrite need not wait until half a minute has passed since the last one.
  await withRedis(sluice, (redis) => redis.del(registryKeys.rewriteWanted, registryKeys.rewriteSpacing));
  await crashAt('completed', prepared, killed);
  await until(
    () => filesWith(join(sluice.redis.dir, 'appendonlydir'), [prepared.history.marker]).length === 0,
    { what: 'the append-only file does not hold the identity', everyMs: 500 },
  );
});

test('leaves nothing of any of these users in the files of Redis and ClickHouse within a minute', async () => {
  const dirs = [join(sluice.redis.dir, 'appendonlydir'), clickhouse.dir];
  // A minute, plus the time by which a busy machine is late.
  await until(() => dirs.flatMap((dir) => filesWith(dir, markers)).length === 0, {
    what: 'no file holds an identity that was deleted',
    everyMs: 1_500,
  }).catch((error: unknown) => {
    throw new Error(`left: ${dirs.flatMap((dir) => filesWith(dir, markers)).join('\n')}`, { cause: error });
  });
  for (const child of [...sluice.api, ...sluice.workers, sluice.redis, clickhouse]) {
    for (const marker of markers) {
      assert.ok(!child.output().includes(marker), `${child.name} logs an identity`);
    }
  }
});
