// The state of a deployment: its first start, what an emptied Redis gets back from ClickHouse, restores that are killed or
// overtaken, the second copy, and the registry of accounts and environments.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { addEnvironment, createAccount, listAccounts, setEnvironment } from '../../src/accounts/accounts.js';
import { createApiKey, revokeApiKey, rotateApiKey, showApiKey } from '../../src/accounts/api-keys.js';
import { readCallback } from '../../src/accounts/callbacks.js';
import { findPerson } from '../../src/accounts/people/people.js';
import { createAdministration } from '../../src/admin/administration.js';
import { commandLineActor } from '../../src/admin/command-line-actor.js';
import { AnswerCutOff } from '../../src/clickhouse/answers.js';
import { type ClickHouseClient, connectClickHouse } from '../../src/clickhouse/client.js';
import { NoRoom } from '../../src/clickhouse/definitions.js';
import { insertSegment, isInsertRunning, isRefusedSegment } from '../../src/clickhouse/store.js';
import { markerRows } from '../../src/clickhouse/tables.js';
import { readConfig } from '../../src/config.js';
import { AdministrationError, Busy, StateNotLoaded } from '../../src/contract/errors.js';
import { loads } from '../../src/contract/limits.js';
import { tables } from '../../src/contract/records.js';
import { noCrash } from '../../src/crash-point.js';
import { createLog } from '../../src/log.js';
import { createDemoAccount, findDemoAccount, loadDeployment } from '../../src/operations/deployment.js';
import { showState } from '../../src/operations/recover.js';
import { Redis } from '../../src/packages/ioredis.js';
import { takeFences } from '../../src/privacy/deletion/fences.js';
import {
  type DeletionRequest,
  endDeletion,
  markTargetsLost,
  readDeletion,
} from '../../src/privacy/deletion/request.js';
import { restoreDeletions } from '../../src/privacy/deletion/second-copy.js';
import { readExport } from '../../src/privacy/export/request.js';
import { suppressNames } from '../../src/privacy/suppression/change.js';
import { lookUpSuppression } from '../../src/privacy/suppression/look-up.js';
import { createNameHasher } from '../../src/privacy/suppression/names.js';
import { followSuppressions } from '../../src/privacy/suppression/suppressions.js';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { runScript, scripts } from '../../src/redis/scripts.js';
import { audited } from '../../src/registry/audit/audit.js';
import { readBackups } from '../../src/registry/backups.js';
import { deploymentKey } from '../../src/registry/documents.js';
import { followEnvironments, type LiveEnvironment } from '../../src/registry/environments.js';
import { LoadInterrupted, type Loading } from '../../src/registry/loading.js';
import { copyChanges, kindsOfCopies, listEarlier, listUncopied } from '../../src/registry/outbox.js';
import { changeRegistry, readRegistry } from '../../src/registry/registry.js';
import { readSecondCopy } from '../../src/registry/second-copy.js';
import { hashSecret } from '../../src/registry/secrets.js';
import { spreadEvenly } from '../../src/registry/shard-servers.js';
import { compareOnce } from '../../src/registry/witness.js';
import { stateLoads } from '../../src/tuning.js';
import { atPort } from '../harness/clickhouse.js';
import { tablesUnderTest } from '../harness/environment.js';
import { startTcpProxy } from '../harness/tcp-proxy.js';
import { until } from '../harness/wait.js';
import { addPending, removePending } from '../support/pending.js';
import { commit, eventRecord, group } from '../support/shard.js';
import { database, startGatedStores } from '../support/stores.js';

const log = createLog('test', 'silent');
/** `gated`: a connection to ClickHouse through the gate, which can hold a load at a statement. */
const stores = await startGatedStores();
const { redis, clickhouse, gate, gated } = stores;

beforeEach(async () => {
  gate.pass();
  await redis.flushall();
  await clickhouse.command({ query: 'TRUNCATE TABLE registry' });
  await clickhouse.command({ query: 'TRUNCATE TABLE stored_events' });
  await clickhouse.command({ query: 'TRUNCATE TABLE deletion_requests' });
  await clickhouse.command({ query: 'TRUNCATE TABLE deletion_targets' });
  await clickhouse.command({ query: 'TRUNCATE TABLE suppressed_names' });
  await clickhouse.command({ query: 'TRUNCATE TABLE shard_limits' });
});

const load = (shards = 1, areShardsGiven = true) =>
  loadDeployment({
    ...{ redis, clickhouse, shards, areShardsGiven },
    ...{ claimBytesMax: 1e6, waitMsMax: 30_000, crash: noCrash },
  });

/** Loads deletion requests too, as the commands do; by another connection to ClickHouse or Redis if they are given. */
const loadAll = (waitMsMax: number, over: { redis?: Redis; clickhouse?: ClickHouseClient } = {}) => {
  const connections = { redis, clickhouse, ...over };
  const restoreMore = (loading: Loading) => restoreDeletions(connections.clickhouse, loading);
  return loadDeployment({
    ...connections,
    shards: 1,
    claimBytesMax: 1e6,
    waitMsMax,
    restoreMore,
    crash: noCrash,
  });
};

test('a first start creates the deployment once, later ones find it', async () => {
  const first = await load(2);
  assert.equal(first.how, 'created');
  const again = await load(2);
  assert.deepEqual([again.how, again.deployment], ['found', first.deployment]);
  for (const shard of [0, 1]) {
    assert.equal(await redis.hget(shardKeys.state(shard), 'epoch'), first.deployment.epoch);
  }
});

test('a process that reads the suppressions while they are loaded knows all of them afterwards', async (context) => {
  const { deployment } = await load();
  const options = { redis, epoch: deployment.epoch, shards: 1 };
  const name = createNameHasher(deployment.secret, '7').textOf({ identity: 'ada' });
  await suppressNames(options, '7', [[name, '-']]);
  await takeFences(options);
  await copyChanges(redis, clickhouse);
  // Redis is emptied after the reader has seen its epoch, and is half loaded when the reader continues.
  let held: Awaited<ReturnType<typeof loadHeldAt>> | undefined;
  const stalled = new Proxy(redis, {
    get: (target, property) =>
      property === 'hgetall' && held === undefined
        ? async (key: string) => {
            await redis.flushall();
            held = await loadHeldAt('groupArray(root) AS roots');
            return redis.hgetall(key);
          }
        : Reflect.get(target, property, target),
  });
  const known = await followSuppressions(stalled, () => deployment, log);
  context.after(() => known.close());
  gate.pass();
  await held?.ended;
  await known.reach(Number(await redis.hget(shardKeys.state(0), 'suppression_version')));
  const environment = { accountId: '7', appId: '70' } as LiveEnvironment;
  assert.equal(known.of(environment)?.hasIdentity('ada'), true);
});

test('several first starts at once create one deployment', async () => {
  const loaded = await Promise.all(Array.from({ length: 5 }, () => load()));
  assert.equal(new Set(loaded.map(({ deployment }) => deployment.epoch)).size, 1);
  assert.equal(loaded.filter(({ how }) => how === 'created').length, 1);
});

test('refuses another number of shards than the first start had, naming the variable', async () => {
  await load(2);
  await assert.rejects(load(3), /SHARDS is 3, but this deployment was first started with 2/);
});

test('refuses fewer shards than servers, since each server needs one', () => {
  assert.throws(() => spreadEvenly(2, 3), /SHARDS is 2, but CLICKHOUSE_URL names 3 servers/);
});

test('a start without SHARDS uses the deployment’s number of shards', async () => {
  await load(2);
  // More servers raise the number that a new deployment would have.
  const { shards, areShardsGiven } = readConfig({ CLICKHOUSE_SERVERS: '3' });
  assert.deepEqual([shards, areShardsGiven], [3, false]);
  const { how, deployment } = await load(shards, areShardsGiven);
  assert.deepEqual([how, deployment.shards], ['found', 2]);
});

test('an emptied Redis gets everything back from ClickHouse: accounts, settings, keys, numbers', async () => {
  const { deployment } = await load();
  const { account, apiKey } = await createDemoAccount(redis);
  const appId = account.environments[1]?.app_id ?? '';
  await setEnvironment(redis, appId, { validation: 'lenient', limits: { track: 'none', bulk_app: 7 } });
  await copyChanges(redis, clickhouse);
  const kept = await readRegistry(redis);
  const highest = String((Date.now() + 3_600_000) * 1000);
  await clickhouse.command({ query: `INSERT INTO stored_events (segment) VALUES (${highest})` });

  await redis.flushall();
  await assert.rejects(createAccount(redis, 'while it is away', ['Main']), StateNotLoaded);
  const restored = await load();

  assert.deepEqual([restored.how, restored.deployment], ['restored', deployment]);
  const found = await readRegistry(redis);
  assert.deepEqual(found.accounts, kept.accounts);
  assert.deepEqual(found.environments, kept.environments);
  assert.equal(found.apiKeys.get(account.environments[0]?.app_id ?? '')?.keys[0]?.hash, hashSecret(apiKey));
  assert.notEqual(found.version, kept.version, 'a process that read before must see a change');
  assert.equal(await redis.hget(shardKeys.state(0), 'last_number'), highest);
});

test('a restore waits for inserts that run, so that the next fence lies above what they store', async () => {
  await load();
  const number = '1900000000000000';
  const row = `SELECT '', generateUUIDv4(), '', NULL, '', '', now64(3), map(), 0, ${number}, 0, now64(3)`;
  // If the machine pauses for as long as the insert takes, the insert has ended.
  let hasEnded = false;
  const insert = clickhouse
    .command({
      query: `INSERT INTO stored_events ${row} FROM (SELECT sum(sleepEachRow(0.3)) FROM numbers(15))`,
      clickhouse_settings: { log_comment: `store events ${number}`, max_block_size: '1', max_threads: 1 },
    })
    .finally(() => {
      hasEnded = true;
    });
  await until(
    async () => hasEnded || (await isInsertRunning(clickhouse, { table: 'events', number })),
    'the insert is running',
  );
  await redis.flushall();
  assert.equal((await load()).how, 'restored');
  assert.equal(await redis.hget(shardKeys.state(0), 'last_number'), number);
  await insert;
});

test('a restore waits for no inserts into other databases', async () => {
  let hasEnded = false;
  const running = clickhouse
    .command({
      query: `INSERT INTO FUNCTION null('n UInt8') SELECT sum(sleepEachRow(0.3)) FROM numbers(15)`,
      clickhouse_settings: {
        log_comment: 'store events 1900000000000001',
        max_block_size: '1',
        database: 'default',
      },
    })
    .finally(() => {
      hasEnded = true;
    });
  await until(
    async () => hasEnded || (await countStatements('store events 1900000000000001')) > 0,
    'the insert is running',
  );
  assert.equal(await isInsertRunning(clickhouse), false);
  assert.equal(await isInsertRunning(clickhouse, { table: 'events', number: '1900000000000001' }), false);
  await running;
});

/** How many statements run with a comment, in whatever database. */
async function countStatements(comment: string): Promise<number> {
  const result = await clickhouse.query({
    query: `SELECT count() AS running FROM system.processes WHERE Settings['log_comment'] = {comment:String}`,
    query_params: { comment },
    format: 'JSONEachRow',
  });
  const [row] = await result.json<{ running: string | number }>();
  return Number(row?.running);
}

test('copies and removes nothing if Redis is emptied but still lists documents to be copied', async () => {
  await load();
  await createDemoAccount(redis);
  await copyChanges(redis, clickhouse);
  const copy = await readSecondCopy(clickhouse);
  const keys = Object.keys(copy.documents);
  assert.ok(keys.length > 1);

  await redis.flushall();
  await listUncopied(redis, kindsOfCopies.document, keys);
  await assert.rejects(copyChanges(redis, clickhouse), StateNotLoaded);
  assert.deepEqual(await readSecondCopy(clickhouse), copy);
  assert.equal(await redis.zcard(registryKeys.uncopied), keys.length);
});

/** Leaves a deletion request in ClickHouse, as a worker copies it. */
async function keepRequest(id: string, changes: Partial<DeletionRequest>, version = 1): Promise<void> {
  const document = requestOf(id, changes);
  await clickhouse.insert({
    table: 'deletion_requests',
    values: [{ request_id: id, document: JSON.stringify(document), version }],
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
}

function requestOf(id: string, changes: Partial<DeletionRequest>): DeletionRequest {
  return {
    deletion_request_id: id,
    account_id: 'an account',
    app_id: '1000000001',
    key_created_at: '2026-01-01T12:00:00.000Z',
    submitted_at: '2026-01-01T12:00:00.000Z',
    targets: 1,
    weight: 1,
    fences: { '0': '1000' },
    status: 'pending',
    state: 'submitted',
    resolved: false,
    mutations: [],
    ...changes,
  };
}

/** Leaves the targets of requests in ClickHouse, as a round copies them. */
async function keepTargets(...targets: { request_id: string; identity: string }[]): Promise<void> {
  await clickhouse.insert({
    table: 'deletion_targets',
    values: targets.map((target) => ({ ...target, app_id: '', user_id: null })),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
}

test('after a restore new records lie above the fences of deletion requests, each shard with its own numbers, also with a clock that is behind', async () => {
  const { deployment } = await load(2);
  const ahead = BigInt(Date.now() + 3_600_000) * 1000n;
  const fences = { '0': String(ahead), '1': String(ahead + 640n) };
  await keepRequest('ahead', { fences, submitted_at: new Date().toISOString() });

  await redis.flushall();
  assert.equal((await load(2)).how, 'restored');
  const numbers = [];
  for (const [shard, fence] of Object.entries(fences)) {
    await commit(redis, [group([eventRecord('after')])], { epoch: deployment.epoch, shard: Number(shard) });
    const [segment = ''] = await redis.zrange(shardKeys.segments(Number(shard)), '0', '-1');
    const number = BigInt(segment.replace('events:', ''));
    assert.ok(number > BigInt(fence), `${number} is not above the fence ${fence}`);
    numbers.push(number % 64n);
  }
  assert.deepEqual(numbers, [0n, 1n], 'shards share no number, although both began with the same clock');
});

test('pending deletion requests come back in the order of their fences, despite wrong clocks of their callers', async () => {
  const submittedAt = (minute: number) => new Date(Date.UTC(2026, 0, 1, 12, minute)).toISOString();
  await load();
  await keepRequest('third', { fences: { '0': '1000' }, submitted_at: submittedAt(1) });
  await keepRequest('first', { fences: { '0': '998' }, submitted_at: submittedAt(3) });
  await keepRequest('second', { fences: { '0': '999' }, submitted_at: submittedAt(2) });
  await redis.flushall();
  assert.equal((await loadAll(0)).how, 'restored');
  assert.deepEqual(
    await redis.zrange(registryKeys.pendingDeletions, '0', '-1'),
    ['first', 'second', 'third'].map((id) => `an account ${id}`),
  );
});

test('a first start that was interrupted before the epoch is finished by the next one', async () => {
  const { deployment } = await load();
  const document = (await redis.hget(registryKeys.documents, deploymentKey)) ?? '';
  await redis.flushall();
  await clickhouse.command({ query: 'TRUNCATE TABLE registry' });
  await redis.hset(registryKeys.documents, deploymentKey, document);
  assert.deepEqual(await load(), { how: 'created', deployment });
  assert.equal((await readSecondCopy(clickhouse)).documents[deploymentKey], document);
  assert.equal((await load()).how, 'found');
});

test('no new deployment is created while the second copy cannot be read whole, and the old one comes back once it can', async () => {
  const { deployment } = await load();
  await redis.flushall();
  for (const share of [0, 0.5, 0.9]) {
    gate.change(
      ({ sql }) => sql.includes('FROM registry'),
      ({ body }) => body.subarray(0, share * body.length),
    );
    await assert.rejects(loadAll(0, { clickhouse: gated }), AnswerCutOff);
    assert.equal(await redis.exists(registryKeys.epoch, registryKeys.documents), 0);
  }
  gate.pass();
  assert.deepEqual(await loadAll(0, { clickhouse: gated }), { how: 'restored', deployment });
});

/** Decisions for which something must be missing in Redis. */
const absences: Readonly<Record<string, () => Promise<unknown>>> = {
  'a deletion request': () => readDeletion(redis, 'none'),
  'an export': () => readExport(redis, 'none'),
  'a person': () => findPerson(redis, 'ada@example.com'),
  'a callback': () => readCallback(redis, '7'),
  backups: () => readBackups(redis),
  'a suppressed user': () => lookUpSuppression(redis, 'secret', '7', [], { identity: 'ada' }),
};

for (const [what, read] of Object.entries(absences))
  test(`an emptied or failing Redis is not taken to say that something does not exist: ${what}`, async () => {
    await load();
    await read();
    await redis.del(registryKeys.epoch);
    await assert.rejects(read(), StateNotLoaded);
    await redis.flushall();
    await redis.set(registryKeys.epoch, 'e');
    for (const key of [registryKeys.documents, registryKeys.deletions, registryKeys.suppressedNames('7')])
      await redis.set(key, 'of another type');
    await redis.hset(registryKeys.export('none'), 'of another', 'type');
    await assert.rejects(read(), /WRONGTYPE/);
  });

test('no new deployment is created where rows of another one are stored, and the message names the tables', async () => {
  await clickhouse.command({ query: 'INSERT INTO stored_events (segment) VALUES (64)' });
  await keepRequest('a request', { fences: { '0': '1' } });
  await assert.rejects(load(), (error) => {
    assert.ok(error instanceof AdministrationError);
    assert.match(error.message, /rows in deletion_requests, stored_events: no new deployment is created/);
    return true;
  });
  assert.equal(await redis.exists(registryKeys.epoch, registryKeys.documents), 0);
});

/** Two pending requests and their targets in ClickHouse, one that is lost, and a Redis that is empty. */
async function emptyWithRequests(): Promise<void> {
  await load();
  await createDemoAccount(redis);
  await copyChanges(redis, clickhouse);
  await keepRequest('first', { fences: { '0': '1' }, targets: 2, targets_kept: true });
  await keepRequest('second', { fences: { '0': '2' }, targets_kept: true });
  await keepRequest('lost', { fences: { '0': '3' }, state: 'targets_lost' });
  await keepTargets(
    { request_id: 'first', identity: 'a' },
    { request_id: 'first', identity: 'b' },
    { request_id: 'second', identity: 'c' },
  );
  await redis.flushall();
}

/** Begins a load that is held at the first statement that has this text. */
async function loadHeldAt(text: string): Promise<{ readonly ended: Promise<unknown> }> {
  gate.hold(({ sql }) => sql.includes(text));
  const ended = loadAll(0, { clickhouse: gated });
  ended.catch(() => 'is asserted where it is awaited');
  await until(() => gate.held.length > 0, `the load asks ${text}`);
  return { ended };
}

async function assertRestored(): Promise<void> {
  assert.deepEqual(await redis.zrange(registryKeys.pendingDeletions, '0', '-1'), [
    'an account first',
    'an account second',
  ]);
  const targets = await redis.mget(['first', 'second', 'lost'].map(registryKeys.deletionTargets));
  assert.deepEqual(
    targets.map((text) => text && (JSON.parse(text) as string[]).toSorted()),
    [['ia', 'ib'], ['ic'], null],
  );
  assert.deepEqual(await redis.zrange(registryKeys.lostDeletions, '0', '-1'), ['an account lost']);
  assert.deepEqual((await redis.smembers(registryKeys.deletionsAwaitingTargetCopy)).toSorted(), [
    'first',
    'second',
  ]);
}

test('does not report a state as loaded if Redis is emptied while the state is checked', async () => {
  await load();
  const { ended } = await loadHeldAt('max(segment)');
  await redis.flushall();
  gate.pass();
  await assert.rejects(ended, LoadInterrupted);
  assert.deepEqual(await redis.keys('*'), [], 'nothing was written');
  assert.equal((await load()).how, 'restored');
});

test('a load does not end if Redis has lost documents meanwhile, as after a power cut that its right survived', async () => {
  await emptyWithRequests();
  const { ended } = await loadHeldAt('FROM deletion_targets');
  await redis.del(registryKeys.documents);
  gate.pass();
  await assert.rejects(ended, LoadInterrupted);
  assert.equal(await redis.exists(registryKeys.epoch), 0);
  assert.equal((await loadAll(0)).how, 'restored');
  await assertRestored();
});

test('a shard that is emptied again while it is loaded takes none of the earlier numbers', async () => {
  await load();
  await redis.del(shardKeys.state(0));
  const { ended } = await loadHeldAt('INSERT INTO shard_limits');
  await redis.del(shardKeys.state(0));
  gate.pass();
  await assert.rejects(ended, LoadInterrupted);
  assert.equal(await redis.exists(shardKeys.state(0)), 0);
  assert.equal((await load()).how, 'found');
  assert.equal(await redis.hexists(shardKeys.state(0), 'loading'), 0);
});

/** The queries of a restore to ClickHouse, in their order. */
const asked = ['FROM registry', 'max(segment)', 'FROM deletion_requests GROUP BY', 'FROM deletion_targets'];

for (const text of asked) {
  test(`a Redis that is emptied again while a restore asks ${text} stays empty until the next restore`, async () => {
    await emptyWithRequests();
    const { ended } = await loadHeldAt(text);
    await redis.flushall();
    gate.pass();
    await assert.rejects(ended, LoadInterrupted);
    assert.deepEqual(await redis.keys('*'), [], 'nothing was written');
    assert.equal((await loadAll(0)).how, 'restored');
    await assertRestored();
  });

  test(`a restore that stalled while it asked ${text} changes nothing that another restore has loaded since`, async () => {
    await emptyWithRequests();
    const { ended } = await loadHeldAt(text);
    // The lock of a paused process expires.
    await redis.del(registryKeys.loading);
    assert.equal((await loadAll(0)).how, 'restored');
    const account = await findDemoAccount(redis);
    await revokeApiKey(redis, account?.environments[0]?.app_id ?? '');
    const complete = requestOf('first', { status: 'complete', state: 'complete' });
    await redis.hset(registryKeys.deletions, 'first', JSON.stringify(complete));
    await removePending(redis, 'an account first');
    await redis.incrby(registryKeys.copyVersion, 10);
    const keys = [registryKeys.version, registryKeys.copyVersion, registryKeys.epoch];
    const readAll = async () => [
      await redis.hgetall(registryKeys.documents),
      await redis.hgetall(registryKeys.deletions),
      await redis.zrange(registryKeys.pendingDeletions, '0', '-1'),
      await redis.mget(keys),
      await redis.hgetall(shardKeys.state(0)),
    ];
    const stands = await readAll();
    gate.pass();
    await assert.rejects(ended, LoadInterrupted);
    assert.deepEqual(await readAll(), stands);
  });
}

test('a restore is refused while another one runs, and a start waits for it', async () => {
  await emptyWithRequests();
  const { ended } = await loadHeldAt('FROM deletion_targets');
  await assert.rejects(loadAll(stateLoads.holdMs + 1_000), /another restore is running/);
  const start = loadAll(loads.startWaitMsMax);
  gate.pass();
  assert.equal(((await ended) as { how: string }).how, 'restored');
  assert.equal((await start).how, 'found');
  await assertRestored();
});

test('a restore that was killed holds up the next one for its lifetime at most, also with a clock set back', async () => {
  await emptyWithRequests();
  await redis.set(registryKeys.loading, 'of a killed process', 'PX', 3_600_000);
  assert.equal((await loadAll(loads.restoreWaitMsMax)).how, 'restored');
  await assertRestored();
});

test('data that a killed restore loaded is removed if ClickHouse no longer has it', async () => {
  await emptyWithRequests();
  await addPending(redis, ['an account complete']);
  await redis.hset(registryKeys.documents, 'api_key:revoked', '{}');
  await loadAll(0);
  await assertRestored();
  assert.equal(await redis.hget(registryKeys.documents, 'api_key:revoked'), null);
});

test('an epoch without its deployment does not count as a loaded state', async () => {
  await emptyWithRequests();
  await redis.set(registryKeys.epoch, 'left alone');
  assert.equal((await loadAll(0)).how, 'restored');
});

test('a restore queries ClickHouse and Redis no more often for thousands of requests than for a few', async (context) => {
  await load();
  const counted = new Redis(stores.redisServer.url);
  let sent = 0;
  const send = counted.sendCommand.bind(counted);
  counted.sendCommand = (...args) => {
    sent += 1;
    return send(...args);
  };
  const restore = async (requests: number, targets: number) => {
    await clickhouse.command({
      query: `INSERT INTO deletion_requests (request_id, document, version)
        SELECT toString(number), replaceAll(replaceAll({document:String}, 'ID', toString(number)), 'STATUS', number % 4 = 0 ? 'pending' : 'complete'), 1
        FROM numbers({requests:UInt32})`,
      query_params: { document: JSON.stringify({ ...requestOf('ID', {}), status: 'STATUS' }), requests },
    });
    await clickhouse.command({
      query: `INSERT INTO deletion_targets (request_id, app_id, identity)
        SELECT toString(number), '', 'user' FROM numbers({requests:UInt32})`,
      query_params: { requests },
    });
    await redis.flushall();
    let statements = 0;
    sent = 0;
    gate.hold(() => {
      statements += 1;
      return false;
    });
    await loadAll(0, { redis: counted, clickhouse: gated });
    assert.equal(await redis.zcard(registryKeys.pendingDeletions), targets);
    assert.equal(await redis.get(registryKeys.deletionTargets(String(requests - 4))), '["iuser"]');
    return { statements, sent };
  };
  context.after(() => counted.disconnect());
  const few = await restore(8, 2);
  const startedMs = performance.now();
  const many = await restore(12_000, 3_000);
  const ms = performance.now() - startedMs;
  console.log(few, many, `${Math.round(ms)} ms`);
  // Replacing a shard's existing constraint takes its own statement.
  assert.ok(many.statements <= few.statements + tables.length + 1, JSON.stringify({ few, many }));
  // On a slow machine a load renews its lock more often.
  const renewals = Math.ceil(ms / stateLoads.renewEveryMs);
  assert.ok(many.sent <= few.sent + 60 + renewals, JSON.stringify({ few, many, renewals }));
});

test('a restore writes requests while it reads them, so that it needs neither time nor memory for all at once', async (context) => {
  await load();
  const [requests, bytesEach] = [4_000, 10_000];
  await clickhouse.command({
    query: `INSERT INTO deletion_requests (request_id, document, version)
      SELECT toString(number), replaceOne(replaceOne({document:String}, 'ID', toString(number)), 'KEY', repeat('k', {bytesEach:UInt32})), 1
      FROM numbers({requests:UInt32})`,
    query_params: {
      document: JSON.stringify(
        requestOf('ID', { status: 'complete', state: 'complete', key_created_at: 'KEY' }),
      ),
      requests,
      bytesEach,
    },
  });
  await redis.flushall();
  const proxy = await startTcpProxy({ port: stores.clickhouseServer.port });
  const proxied = connectClickHouse({
    url: atPort(stores.clickhouseServer.testerUrl, proxy.port),
    database,
    tables: tablesUnderTest,
  });
  let bytesAtFirstWrite = 0;
  const restoreMore = (loading: Loading) => {
    const write: Loading['write'] = (...call) => {
      bytesAtFirstWrite ||= proxy.bytesReceived;
      return loading.write(...call);
    };
    return restoreDeletions(proxied, { ...loading, write });
  };
  context.after(async () => {
    await proxied.close();
    await proxy.close();
  });
  const options = { redis, clickhouse, shards: 1, claimBytesMax: 1e6, restoreMore, crash: noCrash };
  assert.equal((await loadDeployment(options)).how, 'restored');
  context.diagnostic(`${bytesAtFirstWrite} of ${proxy.bytesReceived} bytes were read at the first write`);
  assert.ok(bytesAtFirstWrite < proxy.bytesReceived / 2);
  assert.equal(await redis.hlen(registryKeys.deletions), requests);
});

test('targets of a request that is lost or ended leave Redis', async () => {
  await load();
  const request = requestOf('incomplete', { targets: 2 });
  const targets = registryKeys.deletionTargets('incomplete');
  await redis.hset(registryKeys.deletions, 'incomplete', JSON.stringify(request));
  await addPending(redis, ['an account incomplete']);
  await redis.set(targets, '["ia"]');
  await markTargetsLost(redis, request, '["ia"]');
  assert.equal(await redis.zcard(registryKeys.lostDeletions), 1);
  assert.equal(await redis.exists(targets), 0);
  await redis.set(targets, '["ia"]');
  assert.equal((await endDeletion(redis, request))?.state, 'ended');
  assert.equal(await redis.exists(targets), 0);
});

/** A segment number of a shard, at most this many microseconds after the present time. */
function numberOf(shard: number, aheadUs = 0): string {
  const us = BigInt(Date.now()) * 1000n + BigInt(aheadUs);
  return String(us - (us % 64n) + BigInt(shard));
}

/** An insert as a worker sends it, of a segment that has only its marker row. */
function insertOf(number: string): Promise<void> {
  const rows = Buffer.from(`${markerRows.events},${number},0,"1795255200.123"]\n`);
  return insertSegment(clickhouse, { table: 'events', number }, rows, `token of ${number}`);
}

test('a single shard that was emptied is loaded again, and only its earlier segments are refused', async () => {
  const { deployment } = await load(2);
  const old = [numberOf(0), numberOf(1)] as const;
  const lastOfOther = await redis.hget(shardKeys.state(0), 'last_number');
  await redis.del(shardKeys.state(1));

  assert.equal((await load(2)).how, 'found');
  assert.equal(await redis.hget(shardKeys.state(1), 'epoch'), deployment.epoch);
  await insertOf(old[0]);
  await assert.rejects(insertOf(old[1]), isRefusedSegment);
  await insertOf(numberOf(1, 60_000_000));
  const last = BigInt((await redis.hget(shardKeys.state(1), 'last_number')) ?? '0');
  assert.ok(last >= BigInt(old[1]), 'it gives no number that is refused');
  assert.equal(await redis.hget(shardKeys.state(0), 'last_number'), lastOfOther);

  assert.equal((await load(2)).how, 'found');
  await insertOf(numberOf(0));
});

test('a single shard that was set back accepts nothing until it is loaded again; the others continue', async (context) => {
  const { deployment } = await load(2);
  const compare = () => compareOnce({ redis, clickhouse, deployment: () => deployment, log });
  const states = [shardKeys.state(0), shardKeys.state(1)] as const;
  await clickhouse.command({
    query: "INSERT INTO witness (part, number) VALUES ('registry', 9000), ('0', 9000), ('1', 9000)",
  });
  context.after(() => clickhouse.command({ query: 'TRUNCATE TABLE witness' }));
  await compare();
  assert.equal(await redis.hget(states[1], 'epoch'), deployment.epoch, 'it has a higher number');
  await redis.hset(states[1], 'witness', '8000');
  await compare();
  const epochs = await Promise.all(states.map((state) => redis.hget(state, 'epoch')));
  assert.deepEqual(epochs, [deployment.epoch, null]);
  assert.equal((await load(2)).how, 'found');
  await compare();
  assert.equal(await redis.hget(states[1], 'epoch'), deployment.epoch);
});

test('a full Redis is still compared with ClickHouse, and its numbers rise', async (context) => {
  const { deployment } = await load();
  const { epoch, witness, version, restoringBackup } = registryKeys;
  await redis.config('SET', 'maxmemory', '1');
  context.after(() => redis.config('SET', 'maxmemory', '0'));
  const raise = () =>
    runScript(redis, scripts.witnessRegistry, [epoch, witness, version, restoringBackup], [0, 1]);
  const raised = Number(await raise());
  assert.equal(Number(await raise()), raised + 1);
  await runScript(redis, scripts.witnessShard, [shardKeys.state(0)], [deployment.epoch, 0, raised + 1]);
  assert.equal(await redis.hget(shardKeys.state(0), 'witness'), `${raised + 1}`);
});

test('a loaded shard continues its count of stored records, which shows what a server lacks', async (t) => {
  const { deployment } = await load();
  const state = shardKeys.state(0);
  const context = { redis, clickhouse, log, config: readConfig({}) };
  const seenBy = (number: number, storedTo: number, records: number) =>
    clickhouse.command({
      query: `INSERT INTO witness (part, number, stored_to, stored_records)
        VALUES ('registry', ${number}, 0, 0), ('0', ${number}, ${storedTo}, ${records})`,
    });
  const missing = async () => (await showState(context)).missing.map(({ records }) => records);
  // Without merges the older row stays beside the newer one.
  await clickhouse.command({ query: 'SYSTEM STOP MERGES witness' });
  t.after(async () => {
    await clickhouse.command({ query: 'TRUNCATE TABLE witness' });
    await clickhouse.command({ query: 'SYSTEM START MERGES witness' });
  });
  await seenBy(9000, 6400, 100);
  await seenBy(9001, 3200, 30);
  await redis.flushall();
  await load();
  assert.deepEqual(await redis.hmget(state, 'stored_to', 'stored_records'), ['3200', '30']);
  await redis.hincrby(state, 'stored_records', 12);
  await redis.hset(registryKeys.witness, 'kept:0', '9002');
  assert.deepEqual(await missing(), [12]);
  await redis.hset(state, 'stored_records', '29');
  assert.deepEqual(await missing(), [null]);
  assert.equal(await redis.get(registryKeys.epoch), deployment.epoch);
});

test('a restore reports until when all changes had been copied before it, whatever workers record later', async () => {
  await load();
  await redis.flushall();
  let loaded: Promise<number> | undefined;
  gate.hold(({ sql }) => {
    if (sql.includes("part = 'copies'")) loaded ??= redis.exists(registryKeys.epoch);
    return false;
  });
  const context = { redis, clickhouse: gated, log, config: readConfig({}) };
  const administration = createAdministration(context, commandLineActor());
  assert.deepEqual(await administration.run('reloadState'), { state: 'restored', changes_kept_until: null });
  assert.equal(await loaded, 0);
});

test('a removed document stays removed after a restore', async () => {
  await load();
  const { account } = await createDemoAccount(redis);
  await copyChanges(redis, clickhouse);
  const appId = account.environments[0]?.app_id ?? '';
  await revokeApiKey(redis, appId);
  await copyChanges(redis, clickhouse);
  await redis.flushall();
  await load();
  assert.equal((await showApiKey(redis, appId)).created_at, null);
});

test('every change reaches ClickHouse, also one made while another is copied', async () => {
  await load();
  const copying = copyChanges(redis, clickhouse);
  const accounts = await Promise.all(
    Array.from({ length: 5 }, (_, i) => createAccount(redis, `account ${i}`, ['Main'])),
  );
  await copying;
  await copyChanges(redis, clickhouse);
  const { documents } = await readSecondCopy(clickhouse);
  for (const { account_id } of accounts) assert.ok(documents[`account:${account_id}`] !== undefined);
  assert.equal(await redis.zcard(registryKeys.uncopied), 0);
});

test('what a dying worker has copied is copied again', async () => {
  await load();
  const { account_id } = await createAccount(redis, 'copied twice', ['Main']);
  const crash = () => assert.fail('died');
  await assert.rejects(copyChanges(redis, clickhouse, { crash }), /died/);
  assert.ok((await redis.zcard(registryKeys.uncopied)) > 0);
  await copyChanges(redis, clickhouse);
  assert.equal(await redis.zcard(registryKeys.uncopied), 0);
  assert.ok((await readSecondCopy(clickhouse)).documents[`account:${account_id}`] !== undefined);
});

test('a document that changes while it is copied, without a version of the registry, is copied again', async () => {
  await load();
  await copyChanges(redis, clickhouse);
  const use = async (at: string) => {
    await redis.hset(registryKeys.documents, 'key_use:a', at);
    await redis.zadd(registryKeys.uncopied, kindsOfCopies.document, 'key_use:a');
  };
  await use('{"used_at":"1"}');
  gate.hold(({ sql }) => sql.includes('INSERT INTO registry'));
  const copying = copyChanges(redis, gated);
  await until(() => gate.held.length > 0, 'the copy is held');
  await use('{"used_at":"2"}');
  gate.pass();
  await copying;
  assert.equal(await redis.zcard(registryKeys.uncopied), 1);
  await copyChanges(redis, clickhouse);
  assert.equal((await readSecondCopy(clickhouse)).documents['key_use:a'], '{"used_at":"2"}');
  assert.equal(await redis.zcard(registryKeys.uncopied), 0);
});

test('a document that was changed back while it was copied is copied again, since another process may have copied the change', async () => {
  await load();
  const name = (text: string) =>
    changeRegistry(redis, () => ({
      changes: [{ key: 'account:1', document: { account_id: '1', name: text } }],
      result: undefined,
    }));
  await name('first');
  gate.hold(({ sql }) => sql.includes('INSERT INTO registry'));
  const copying = copyChanges(redis, gated);
  await until(() => gate.held.length > 0, 'the copy is held');
  await name('second');
  await copyChanges(redis, clickhouse);
  await name('first');
  gate.pass();
  await copying;
  await copyChanges(redis, clickhouse);
  assert.equal(
    (await readSecondCopy(clickhouse)).documents['account:1'],
    await redis.hget(registryKeys.documents, 'account:1'),
  );
});

test('a change is copied after all lines of the audit log that waited, and the registry as a whole, however many wait', async () => {
  await load();
  await copyChanges(redis, clickhouse);
  const [lines, documents] = [2 * stateLoads.documentsPerCallMax + 1, stateLoads.documentsPerCallMax + 1];
  const keep = (hash: string, kind: number, count: number, text: string) =>
    redis.eval(
      `for n = 1, tonumber(ARGV[2]) do
        redis.call('HSET', KEYS[1], 'name ' .. ARGV[1] .. n, ARGV[3])
        redis.call('ZADD', KEYS[2], ARGV[1], 'name ' .. ARGV[1] .. n)
      end`,
      2,
      ...[hash, registryKeys.uncopied, kind, count, text],
    );
  await keep(registryKeys.deletions, kindsOfCopies.deletion, documents, JSON.stringify(requestOf('x', {})));
  await keep(registryKeys.documents, kindsOfCopies.document, documents, '{}');
  await keep(registryKeys.audit, kindsOfCopies.auditLine, lines, '{"id":"line","account_id":""}');
  const inserts: [table: string, rows: number][] = [];
  gate.hold(({ sql, body }) => {
    const table = /INSERT INTO (\w+)/.exec(sql)?.[1];
    if (table !== undefined) inserts.push([table, body.toString().trim().split('\n').length]);
    return false;
  });
  await copyChanges(redis, gated);
  const tablesOf = inserts.map(([table]) => table);
  assert.ok(tablesOf.lastIndexOf('audit_log') < tablesOf.indexOf('registry'), String(inserts));
  assert.ok(tablesOf.indexOf('registry') < tablesOf.indexOf('deletion_requests'), String(inserts));
  assert.deepEqual(
    inserts.filter(([table]) => table === 'registry'),
    [['registry', documents]],
  );
  assert.equal(await redis.zcard(registryKeys.uncopied), 0);
  assert.equal(await redis.hlen(registryKeys.audit), 0);
});

test('what an earlier build has left uncopied reaches ClickHouse', async () => {
  const { deployment } = await load();
  const { account_id } = await createAccount(redis, 'shop', ['Main']);
  await redis.hset(registryKeys.deletions, 'waiting', JSON.stringify(requestOf('waiting', {})));
  const by = { redis, epoch: deployment.epoch, shards: 1 };
  const name = createNameHasher(deployment.secret, account_id).textOf({ identity: 'ada' });
  await suppressNames(by, account_id, [[name, '-']]);
  const actor = { kind: 'command_line', name: 'ada', address: 'here' } as const;
  const action = { action: 'sign_in', details: {} } as const;
  const judge = { endingOf: () => ({ outcome: 'done' as const }), outcomeOfError: () => 'unknown' as const };
  await audited({ redis, clickhouse, log }, actor, action, async () => undefined, judge);
  await redis.del(registryKeys.uncopied, registryKeys.uncopiedSuppressions);
  await redis.sadd('{registry}:unmirrored', `account:${account_id}`);
  await redis.sadd('{registry}:deletions_unmirrored', 'waiting');
  await redis.hset(registryKeys.suppressions, 'mirrored', '0');

  await listEarlier(redis);
  await copyChanges(redis, clickhouse);
  assert.ok((await readSecondCopy(clickhouse)).documents[`account:${account_id}`] !== undefined);
  const counts = await clickhouse.query({
    query: `SELECT (SELECT count() FROM deletion_requests WHERE request_id = 'waiting') AS requests,
      (SELECT count() FROM suppressed_names WHERE account_id = '${account_id}') AS names,
      (SELECT count() FROM audit_log WHERE address = 'here') AS lines`,
    format: 'JSONEachRow',
  });
  const [row] = await counts.json<Record<string, string>>();
  assert.deepEqual([row?.requests, row?.names, row?.lines].map(Number), [1, 1, 2]);
  assert.deepEqual(await redis.keys('{registry}:*mirrored'), []);
});

test('the audit log calls an action refused only if it has not begun', async () => {
  await load();
  const action = { action: 'sign_in', details: {} } as const;
  const outcomeOf = async (address: string, error: Error) => {
    const actor = { kind: 'command_line', name: 'ada', address } as const;
    const failing = audited({ redis, clickhouse, log }, actor, action, () => Promise.reject(error));
    await assert.rejects(failing, error);
    await copyChanges(redis, clickhouse);
    const rows = await clickhouse.query({
      query: `SELECT outcome FROM audit_log WHERE address = '${address}' AND stage = 1`,
      format: 'JSONEachRow',
    });
    return (await rows.json<{ outcome: string }>()).map(({ outcome }) => outcome);
  };
  assert.deepEqual(await outcomeOf('without a slot', new Busy('try again')), ['refused']);
  assert.deepEqual(await outcomeOf('in a later step', new NoRoom('a move', 'default', 1, 2)), ['unknown']);
});

test('a table that ClickHouse does not write into holds up no other kind of second copy', async () => {
  await load();
  const { account_id } = await createAccount(redis, 'beside', ['Main']);
  // More than is read at once.
  const changes = Array.from({ length: stateLoads.documentsPerCallMax + 1 }, (_, at) => String(at));
  await redis.hset(
    registryKeys.uncopiedSuppressions,
    Object.fromEntries(changes.map((version) => [version, `${version} ${account_id}\nname|-\n`])),
  );
  await listUncopied(redis, kindsOfCopies.suppressions, changes);
  await redis.hset(registryKeys.deletions, 'beside', JSON.stringify(requestOf('beside', {})));
  await listUncopied(redis, kindsOfCopies.deletion, ['beside']);
  await clickhouse.command({ query: 'RENAME TABLE suppressed_names TO suppressed_names_away' });
  try {
    await copyChanges(redis, clickhouse, { kind: kindsOfCopies.deletion });
    await assert.rejects(copyChanges(redis, clickhouse), /suppressed_names/);
    assert.ok((await readSecondCopy(clickhouse)).documents[`account:${account_id}`] !== undefined);
    assert.deepEqual(await redis.zrange(registryKeys.uncopied, '0', '-1'), changes.toSorted());
  } finally {
    await clickhouse.command({ query: 'RENAME TABLE suppressed_names_away TO suppressed_names' });
  }
  await copyChanges(redis, clickhouse);
  assert.equal(await redis.exists(registryKeys.uncopied), 0);
  await redis.hdel(registryKeys.deletions, 'beside');
});

test('a loaded registry has a higher version than the lost one, also if the clock of the loading process is slow', async (t) => {
  await load();
  await copyChanges(redis, clickhouse);
  // The change is made later after the copy than the span of versions that a load skips.
  const skippedMs = Number(stateLoads.lostVersionsMax) / 1_000;
  await pause(skippedMs + 200);
  await createAccount(redis, 'lost', ['Main Production']);
  const lost = BigInt((await redis.get(registryKeys.version)) ?? 0);
  await redis.flushall();
  const slowMs = Date.now() - 3_600_000;
  t.mock.method(Date, 'now', () => slowMs);
  await load();
  assert.ok(BigInt((await redis.get(registryKeys.version)) ?? 0) > lost);
});

test('deletion requests are copied some at a time, however many wait, and all that waited before the call', async () => {
  await load();
  const found = Array.from({ length: 1_000 }, (_, at) => ({
    app_id: String(at),
    table: 'stored_events',
    rows: at,
  }));
  const ids = Array.from({ length: 2_000 }, (_, at) => `request ${at}`);
  for (const [at, id] of ids.entries()) {
    const request = requestOf(id, at % 10 === 0 ? { found } : {});
    await redis.hset(registryKeys.deletions, id, JSON.stringify(request));
    await redis.zadd(registryKeys.uncopied, kindsOfCopies.deletion, id);
  }
  const copies: number[] = [];
  gate.hold(({ sql, body }) => {
    if (sql.includes('INSERT INTO deletion_requests')) copies.push(body.length);
    return false;
  });
  await copyChanges(redis, gated);
  assert.equal(await redis.zcard(registryKeys.uncopied), 0);
  const [copied] = await (
    await clickhouse.query({
      query: 'SELECT uniqExact(request_id) AS ids FROM deletion_requests',
      format: 'JSONEachRow',
    })
  ).json<{ ids: string }>();
  assert.equal(Number(copied?.ids), ids.length);
  assert.ok(copies.length >= 4 && Math.max(...copies) < 3 * stateLoads.bytesPerCallMax, String(copies));
});

test('an account has exactly one main environment, the one that was set last', async () => {
  await load();
  const account = await createAccount(redis, 'shop', ['Main Production', 'Staging']);
  const other = await createAccount(redis, 'other', ['Main Production']);
  const added = await addEnvironment(redis, account.account_id, 'Test');
  await setEnvironment(redis, added.app_id, { main: true });
  const accounts = await listAccounts(redis);
  const shop = accounts.find(({ name }) => name === 'shop');
  const second = accounts.find(({ name }) => name === 'other');
  assert.deepEqual(
    shop?.environments.map(({ name, main }) => [name, main]),
    [
      ['Test', true],
      ['Main Production', false],
      ['Staging', false],
    ],
  );
  assert.deepEqual(second, other, 'another account is untouched');
});

test('an API key is shown at its creation only, and stored as a hash', async () => {
  await load();
  const account = await createAccount(redis, 'shop', ['Main']);
  const appId = account.environments[0]?.app_id ?? '';
  await assert.rejects(rotateApiKey(redis, appId), /has no such API key/);
  const { api_key: first } = await createApiKey(redis, appId);
  await assert.rejects(createApiKey(redis, appId), /has an API key/);
  const { api_key: second } = await rotateApiKey(redis, appId);
  assert.notEqual(first, second);
  const documents = JSON.stringify(await redis.hgetall(registryKeys.documents));
  assert.ok(!documents.includes(first) && !documents.includes(second));
  assert.ok(documents.includes(hashSecret(second)));
  assert.deepEqual(Object.keys(await showApiKey(redis, appId)), ['app_id', 'created_at']);
});

test('an API process sees a new environment at once and a changed one within a second', async (context) => {
  await load();
  const environments = await followEnvironments(redis, log);
  context.after(() => environments.close());
  assert.equal(await environments.find('1234567890'), undefined);
  let appId = '';
  for (let made = 0; made < 3; made += 1) {
    const account = await createAccount(redis, `late ${made}`, ['Main']);
    appId = account.environments[0]?.app_id ?? '';
    assert.notEqual(await environments.find(appId), undefined, 'the new one is found');
  }
  const seenMs: number[] = [];
  for (const max of [1, 2, 3, 4]) {
    await setEnvironment(redis, appId, { limits: { track: max } });
    const startedMs = performance.now();
    await until(() => environments.get(appId)?.limits.track?.max === max, 'the change is seen');
    seenMs.push(performance.now() - startedMs);
  }
  // A machine that pauses delays some changes, but rarely all, so the quickest one counts.
  assert.ok(Math.min(...seenMs) <= 1_000, String(seenMs));
  assert.equal(environments.isLoaded(), true);
  await redis.flushall();
  await until(() => !environments.isLoaded(), 'the emptied Redis is noticed');
  assert.ok(environments.get(appId) !== undefined, 'the copy stays');
});

test('unknown app_ids cost Redis a bounded number of reads', async (context) => {
  await load();
  const environments = await followEnvironments(redis, log);
  context.after(() => environments.close());
  const before = Number(/total_commands_processed:(\d+)/.exec(await redis.info('stats'))?.[1]);
  for (let wave = 0; wave < 20; wave += 1)
    await Promise.all(Array.from({ length: 100 }, (_, i) => environments.find(`9${wave}${i}`)));
  const after = Number(/total_commands_processed:(\d+)/.exec(await redis.info('stats'))?.[1]);
  assert.ok(after - before < 200, `${after - before} commands for 2000 unknown app_ids`);
});
