// A Redis that lost everything: nothing is accepted until the deployment's state is loaded from ClickHouse again, and then the service
// continues as the same deployment.

import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { addEnvironment } from '../../src/accounts/accounts.js';
import { StateNotLoaded } from '../../src/contract/errors.js';
import { readDeletion } from '../../src/privacy/deletion/request.js';
import { registryKeys } from '../../src/redis/keys.js';
import { createTestAccount } from '../harness/accounts.js';
import { ask, basic, deletionPaths, getToken, readStatus, submit } from '../harness/deletion.js';
import { findViolations, type StoredEvent, storedEventsQuery } from '../harness/exactly-once.js';
import { assertKept, newProducer, unknownMax, untilDrained } from '../harness/fault-checks.js';
import { paths, post } from '../harness/ingestion.js';
import { countOutcomes, type Producer, startLoad, whileRunning } from '../harness/load.js';
import { connectTestRedis } from '../harness/redis-client.js';
import type { Bootstrap } from '../harness/services.js';
import { until } from '../harness/wait.js';
import { ownSluice } from '../support/sluice.js';

const sluice = await ownSluice({ env: { JOB_LOCK_MS: '1000' } });
const redis = connectTestRedis(sluice.redisUrl);

after(() => redis.disconnect());

async function storeSome(producer: Producer): Promise<void> {
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, () => load.more(100));
  await untilDrained(sluice, redis);
  await assertKept(sluice, producer);
}

/** Creates an account whose settings are not the defaults; settles with a function that reads everything that must not change. */
async function makeState(): Promise<() => Promise<object>> {
  const { account_id, environments } = (await sluice.admin(
    'accounts',
    'create',
    'ACME',
    '--environment',
    'Main',
    '--environment',
    'Staging',
  )) as Bootstrap;
  const [main, staging] = environments.map(({ app_id }) => app_id);
  assert.ok(main && staging);
  await sluice.admin('environments', 'set', main, '--validation', 'lenient', '--limit', 'track=7');
  await sluice.admin('environments', 'set', staging, '--main');
  await sluice.admin('keys', 'create', main);
  assert.ok(account_id);
  return async () => ({
    documents: await redis.hgetall(registryKeys.documents),
    accounts: await sluice.admin('accounts', 'list'),
    key: await sluice.admin('keys', 'show', main),
  });
}

/** Puts a number above the present time into ClickHouse, as a worker stores it after its clock was ahead for a while. */
async function raiseNumbers(): Promise<bigint> {
  const ahead = BigInt(Date.now() + 3_600_000) * 1000n;
  await sluice.rows(
    `INSERT INTO stored_events (app_id, segment) SETTINGS log_comment = 'store asked ${ahead}' VALUES ('', ${ahead})`,
  );
  return ahead;
}

async function assertNumbersAbove(floor: bigint, producer: Producer): Promise<void> {
  const [numbers] = await sluice.rows<{ lowest: string }>(
    `SELECT toString(min(segment)) AS lowest FROM events WHERE app_id = '${producer.appId}'`,
  );
  assert.ok(BigInt(numbers?.lowest ?? 0) > floor, `number ${numbers?.lowest} is not above ${floor}`);
  const repeated = await sluice.rows(
    `SELECT segment FROM stored_events WHERE app_id = '' GROUP BY segment HAVING count() > 1`,
  );
  assert.deepEqual(repeated, [], 'no number is given twice');
}

test('refuses everything after Redis was emptied until it is restored, then continues as before', async () => {
  const readState = await makeState();
  await storeSome(await newProducer(sluice));
  const producer = await newProducer(sluice);
  const stateBefore = await readState();
  const floor = await raiseNumbers();
  const children = [...sluice.api, ...sluice.workers];
  const pids = children.map(({ pid }) => pid);

  await redis.flushall();
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, async () => {
    await load.more(100, { outcomes: ['overloaded'] });
    // A slow Redis may leave an outcome unknown, which is no acceptance: in the end such an event is absent or there once.
    const accepted = producer.settled.filter(({ outcome, code }) => {
      const refused = outcome === 'refused' && code !== 'unknown_app_id';
      return outcome !== 'overloaded' && outcome !== 'unknown' && !refused;
    });
    assert.deepEqual(accepted, []);
    const { unknown } = countOutcomes(producer.settled);
    assert.ok(unknown <= unknownMax, `${unknown} requests are unknown`);
    await until(
      async () => (await fetch(`${sluice.baseUrl}/health/ready`)).status === 503,
      'the API process says that it is not ready',
    );
    assert.equal(((await sluice.admin('state', 'reload')) as { state: string }).state, 'restored');
    await load.more(200);
  });
  assert.deepEqual(await readState(), stateBefore);
  await untilDrained(sluice, redis);
  await assertKept(sluice, producer);
  await assertNumbersAbove(floor, producer);
  producer.close();
  assert.deepEqual(
    children.map(({ pid, running }) => running && pid),
    pids,
  );
});

test('a start with a new, empty Redis is the same deployment', async () => {
  const readState = await makeState();
  const before = await newProducer(sluice);
  const after = await newProducer(sluice);
  await storeSome(before);
  const stateBefore = await readState();
  const floor = await raiseNumbers();

  for (const child of [...sluice.api, ...sluice.workers, sluice.redis]) await child.stop();
  rmSync(join(sluice.redis.dir, 'appendonlydir'), { recursive: true });
  await sluice.redis.restart();
  assert.equal(await redis.dbsize(), 0);
  // Workers wait for the deployment.
  const workers = Promise.all(sluice.workers.map((worker) => worker.restart()));
  const areWaiting = () =>
    sluice.workers.every((worker) => worker.output().includes('waiting for the state'));
  await until(areWaiting, 'the workers wait');
  const bootstrap = (await sluice.admin('bootstrap')) as Bootstrap;
  await workers;
  for (const child of sluice.api) await child.restart();

  const { created, restored, account_id, api_key } = bootstrap;
  assert.deepEqual(
    { created, restored, account_id, api_key },
    { created: false, restored: true, account_id: sluice.bootstrap.account_id, api_key: undefined },
  );
  assert.deepEqual(await readState(), stateBefore);
  await storeSome(after);
  await assertKept(sluice, before);
  await assertNumbersAbove(floor, after);
});

test('answers nobody that a key or a token is wrong while it knows none, and keeps when a key was used', async () => {
  const account = await createTestAccount(sluice, 'Keys');
  const token = await getToken(sluice, account);
  const listed = await sluice.admin('keys', 'list', account.appIds[0] ?? '');
  const [{ last_used_at } = { last_used_at: null }] = listed as { last_used_at: string | null }[];
  assert.ok(last_used_at);
  await untilCopied();
  await redis.flushall();
  const authorization = basic(account.appIds[0] ?? '', account.apiKey);
  const answers = [
    await ask(sluice.baseUrl, {
      method: 'POST',
      path: deletionPaths.token,
      headers: [['Authorization', authorization]],
    }),
    await submit(sluice, token, [{ identity: 'somebody' }]),
    await readStatus(sluice, token, '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11'),
  ];
  assert.deepEqual(
    answers.map(({ status, text }) => [status, (JSON.parse(text) as { err: { code: string } }).err.code]),
    answers.map(() => [503, 'overloaded']),
  );
  await assert.rejects(readDeletion(redis, '5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11'), StateNotLoaded);
  assert.equal(((await sluice.admin('state', 'reload')) as { state: string }).state, 'restored');
  assert.deepEqual(await sluice.admin('keys', 'list', account.appIds[0] ?? ''), listed);
  assert.ok(await getToken(sluice, account));
});

test('a process that kept the lost registry accepts nothing for an environment that no longer exists', async () => {
  const api = sluice.api[0] ?? assert.fail();
  await untilCopied();
  const statuses: number[] = [];
  let appId = '';
  const send = async () => {
    const { status } = await post(sluice.baseUrl, paths.track, {
      app_id: appId,
      identity: 'ada',
      event: 'x',
    });
    statuses.push(status);
    return status;
  };
  for (const worker of sluice.workers) worker.sigstop();
  try {
    // No worker copies this environment, so it is lost with Redis.
    appId = (await addEnvironment(redis, sluice.bootstrap.account_id, 'Lost')).app_id;
    assert.equal(await send(), 200);
    api.sigstop();
    await redis.flushall();
    assert.equal(((await sluice.admin('state', 'reload')) as { state: string }).state, 'restored');
  } finally {
    api.sigcont();
    for (const worker of sluice.workers) worker.sigcont();
  }
  await until(async () => (await send()) === 400, 'the environment is unknown');
  assert.deepEqual(
    statuses.filter((status) => status === 200),
    [200],
    'only before the loss',
  );
});

/** Settles when ClickHouse has every document of the registry. */
async function untilCopied(): Promise<void> {
  await until(async () => (await redis.zcard(registryKeys.uncopied)) === 0, 'ClickHouse has all documents');
}

/**
 * Records that were acknowledged but not in ClickHouse yet are lost with Redis. Nothing may be there twice, except under keys that were
 * under way when Redis forgot them.
 */
async function assertDoubledNothing(producer: Producer, fromMs: number, toMs: number): Promise<void> {
  const rows = await sluice.rows<StoredEvent>(storedEventsQuery(producer.appId));
  const violations = findViolations(producer.readHistory(), rows, { emptiedMs: [[fromMs, toMs]] });
  assert.deepEqual(
    violations.filter(({ kind }) => kind !== 'lost'),
    [],
  );
}

test('stores a segment once that a worker had read when Redis was emptied', async () => {
  const producer = await newProducer(sluice);
  await storeSome(producer);
  let emptiedMs = 0;
  let restoredMs = 0;
  const load = startLoad(producer, { targets: [sluice.baseUrl] });
  await whileRunning(load, async () => {
    await load.more(50);
    emptiedMs = performance.now();
    await redis.flushall();
    await load.more(50, { outcomes: ['overloaded'] });
    await sluice.admin('state', 'reload');
    restoredMs = performance.now();
    await load.more(100);
  });
  await untilDrained(sluice, redis);
  await assertDoubledNothing(producer, emptiedMs, restoredMs);
  await storeSome(await newProducer(sluice));
});
