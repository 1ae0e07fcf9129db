// A store that is started with an older copy of its own files, as after a virtual machine was set back, is noticed, and nothing acts on its
// data.

import assert from 'node:assert/strict';
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before } from 'node:test';
import type { Redis } from 'ioredis';
import { registryKeys, shardKeys } from '../../src/redis/keys.js';
import { createTestAccount, type TestAccount, unlimited } from '../harness/accounts.js';
import {
  askForToken,
  deleteNow,
  getToken,
  readStatus,
  submitAccepted,
  submitWith,
  untilComplete,
} from '../harness/deletion.js';
import { paths, post, untilStored } from '../harness/ingestion.js';
import { connectTestRedis } from '../harness/redis-client.js';
import { type SluiceHandle, startRedis, startSluice } from '../harness/services.js';
import { runProgram } from '../harness/sluice.js';
import { setSuppressed } from '../harness/suppression.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { readExportData, readRecords, submitExport, untilExportComplete } from '../harness/user-export.js';
import { until } from '../harness/wait.js';
import { test } from '../support/test.js';

let sluice: SluiceHandle;
let redis: Redis;
/** The folder for copies of a store's files. */
let aside: string;
/** A deletion request whose users are unknown since Redis was loaded. */
let unknownRequest: string;

before(async () => {
  aside = tempDir('aside');
  // This Redis syncs every write, so it lacks after a start only what was taken from it.
  sluice = await startSluice({ redis: await startRedis(), env: { JOB_LOCK_MS: '1000' } });
  redis = connectTestRedis(sluice.redisUrl);
});

after(async () => {
  redis?.disconnect();
  await sluice?.stop();
  await sluice?.redis.remove();
  removeTempDir(aside);
});

type Event = { readonly identity: string; readonly idempotency_key: string };

const eventsOf = (name: string, count: number, identity = name): Event[] =>
  Array.from({ length: count }, (_, number) => ({ identity, idempotency_key: `${name}-${number}` }));

async function send(appId: string, events: readonly Event[]): Promise<Record<number, number>> {
  const statuses: Record<number, number> = {};
  for (const event of events) {
    const { status } = await post(sluice.baseUrl, paths.track, { app_id: appId, event: 'x', ...event });
    statuses[status] = (statuses[status] ?? 0) + 1;
  }
  return statuses;
}

async function countRows(appId: string, identity: string): Promise<number> {
  const [row] = await sluice.rows<{ rows: string }>(
    `SELECT toString(count()) AS rows FROM events WHERE app_id = '${appId}' AND identity = '${identity}'`,
  );
  return Number(row?.rows);
}

/** The account of the current test, and its environment. */
let current: [TestAccount, string];

async function newAccount(): Promise<[TestAccount, string]> {
  const account = await createTestAccount(sluice, 'Set back');
  const appId = account.appIds[0] as string;
  await sluice.admin('environments', 'set', appId, ...unlimited);
  current = [account, appId];
  return current;
}

const isReady = async () => (await fetch(`${sluice.baseUrl}/health/ready`)).status === 200;

const readReady = async () => (await fetch(`${sluice.baseUrl}/health/ready`)).text();

/** Readiness covers only the connection for records; other connections, and what the process has read, may follow a moment later. */
async function untilReady(): Promise<void> {
  const [account, appId] = current;
  const serves = async () =>
    (await isReady()) &&
    (await askForToken(sluice, account)).status !== 503 &&
    (await send(appId, eventsOf('probe', 1)))[200] === 1;
  await until(serves, 'the API process is ready and serves');
}

const readNumber = async () => Number(await redis.hget(registryKeys.witness, 'number'));

/** Settles when both stores have counted further; from then on an older copy of what they had before is noticed. */
async function untilCountedOn(): Promise<void> {
  const from = await readNumber();
  await until(
    async () => Number(await redis.hget(registryKeys.witness, 'kept:0')) > from,
    'ClickHouse has a later number of the witness',
  );
}

/** Stops a store, does something with its folder, and starts it again. */
async function whileStopped(store: 'redis' | 'clickhouse', work: (folder: string) => void): Promise<void> {
  const child = sluice[store];
  await child.stop();
  work(join(child.dir, store === 'redis' ? 'appendonlydir' : 'clickhouse'));
  await child.restart();
}

function putAside(store: 'redis' | 'clickhouse'): Promise<void> {
  return whileStopped(store, (folder) => {
    rmSync(join(aside, store), { recursive: true, force: true });
    cpSync(folder, join(aside, store), { recursive: true, verbatimSymlinks: true });
  });
}

function putBack(store: 'redis' | 'clickhouse'): Promise<void> {
  return whileStopped(store, (folder) => {
    rmSync(folder, { recursive: true });
    cpSync(join(aside, store), folder, { recursive: true, verbatimSymlinks: true });
  });
}

test('a Redis that was set back accepts and decides nothing, and is loaded like an emptied one', async () => {
  const [account, appId] = await newAccount();
  await send(appId, [...eventsOf('before', 5), ...eventsOf('gone', 5), ...eventsOf('shy', 5)]);
  await untilStored(sluice);
  await putAside('redis');
  await untilReady();

  const token = await getToken(sluice, account);
  assert.deepEqual(await send(appId, eventsOf('since', 20)), { 200: 20 });
  const requestId = await deleteNow(sluice, token, [{ identity: 'gone' }]);
  unknownRequest = requestId;
  await setSuppressed(sluice.baseUrl, token, [{ identity: 'shy' }], true);
  await sluice.admin('keys', 'rotate', appId);
  await untilStored(sluice);
  await untilCountedOn();

  await putBack('redis');
  // The first process that reaches Redis again notices that it is old.
  const statuses = new Set<number>();
  await until(async () => {
    for (const status of Object.keys(await send(appId, eventsOf('since', 5)))) statuses.add(Number(status));
    statuses.add((await askForToken(sluice, account)).status);
    return (await redis.exists(registryKeys.epoch)) === 0;
  }, 'Redis is known to be old');
  assert.deepEqual([...statuses], [503]);
  await until(async () => !(await isReady()), 'the API says that it is not ready');
  assert.equal(((await sluice.admin('state', 'reload')) as { state: string }).state, 'restored');
  await untilReady();

  await send(appId, [...eventsOf('since', 20), ...eventsOf('gone', 5), ...eventsOf('shy', 7)]);
  await untilStored(sluice);
  assert.deepEqual(
    [await countRows(appId, 'since'), await countRows(appId, 'gone'), await countRows(appId, 'shy')],
    [20, 0, 5],
  );
  assert.equal((await askForToken(sluice, account)).status, 401);
  const { api_key: apiKey } = (await sluice.admin('keys', 'rotate', appId)) as { api_key: string };
  const status = await readStatus(sluice, await getToken(sluice, { ...account, apiKey }), requestId);
  assert.equal((JSON.parse(status.text) as { status: string }).status, 'complete');
});

type Compared = {
  readonly clickhouse: readonly { readonly state: string }[];
  readonly missing: readonly { readonly shard: number; readonly records: number }[];
};
type Recovered = {
  readonly recovered: readonly number[];
  readonly deleted_again: { readonly requests: number; readonly rows: number };
  readonly submit_again: readonly { readonly deletion_request_id: string }[];
};

async function untilSetBack(): Promise<void> {
  await until(
    async () => (await readReady()).includes('set back'),
    'the API says that ClickHouse was set back',
  );
}

test('a ClickHouse that was set back stores and completes nothing until it is recovered; then no deleted user is there, and lost records may be sent again', async () => {
  const [account, appId] = await newAccount();
  await send(appId, [...eventsOf('kept', 5), ...eventsOf('erased', 5)]);
  await untilStored(sluice);
  await untilCountedOn();
  await putAside('clickhouse');

  const token = await getToken(sluice, account);
  assert.deepEqual(await send(appId, eventsOf('lost', 60)), { 200: 60 });
  await setSuppressed(sluice.baseUrl, token, [{ identity: 'silent' }], true);
  const { app_id: younger } = (await sluice.admin('environments', 'add', account.accountId, 'Younger')) as {
    app_id: string;
  };
  await untilStored(sluice);
  const ticket = { users: [{ identity: 'erased' }], reference: 'a ticket' };
  const submitTicket = async (withToken: string) => {
    const { text } = await submitWith(sluice, withToken, ticket);
    return (JSON.parse(text) as { deletion_request_id: string }).deletion_request_id;
  };
  const requestId = await submitTicket(token);
  await untilComplete(sluice, token, requestId);
  await untilCountedOn();

  await putBack('clickhouse');
  await untilSetBack();
  assert.ok(await isReady(), 'records are accepted and wait');
  assert.deepEqual(await send(appId, eventsOf('waits', 3)), { 200: 3 });
  const pending = await submitAccepted(sluice, token, [{ identity: 'kept' }]);
  const compared = (await sluice.admin('state', 'compare')) as Compared;
  assert.deepEqual(
    compared.clickhouse.map(({ state }) => state),
    ['set_back'],
  );
  assert.deepEqual(
    compared.missing.map(({ records }) => records),
    [60],
  );
  assert.deepEqual([await countRows(appId, 'waits'), await countRows(appId, 'lost')], [0, 0]);

  const {
    recovered,
    deleted_again: again,
    submit_again: unknown,
  } = (await sluice.admin('state', 'recover')) as Recovered;
  assert.deepEqual([recovered, again.rows], [[0], 5]);
  // This request was completed so shortly before the copy was made that the clocks cannot decide which came first.
  assert.deepEqual(
    unknown.map(({ deletion_request_id: id }) => id),
    [unknownRequest],
  );
  await untilComplete(sluice, token, pending);
  // The API compares every few seconds.
  await until(async () => !(await readReady()).includes('set back'), 'the API knows of the recovery');
  await send(appId, [...eventsOf('lost', 60), ...eventsOf('waits', 3), ...eventsOf('silent', 2)]);
  await untilStored(sluice);
  const counts = ['lost', 'waits', 'erased', 'kept', 'silent'].map((identity) => countRows(appId, identity));
  assert.deepEqual(await Promise.all(counts), [60, 3, 0, 0, 0]);

  // ClickHouse again has the newest state, from which Redis is loaded.
  await redis.flushall();
  assert.equal(((await sluice.admin('state', 'reload')) as { state: string }).state, 'restored');
  await untilReady();
  assert.ok(await sluice.admin('environments', 'show', younger));
  const lastToken = await getToken(sluice, account);
  const status = await readStatus(sluice, lastToken, requestId);
  assert.equal((JSON.parse(status.text) as { status: string }).status, 'complete');
  assert.equal(await submitTicket(lastToken), requestId, 'a reference still names its request');
  await send(appId, eventsOf('silent', 4));
  await untilStored(sluice);
  assert.equal(await countRows(appId, 'silent'), 0);
});

test('before a ClickHouse that was set back is recovered, no backup is made and no export is read; a recovery that is repeated after a kill names the requests with unknown users again', async () => {
  const [account, appId] = await newAccount();
  await send(appId, [...eventsOf('unknown', 3), ...eventsOf('told', 2)]);
  await untilStored(sluice);
  await untilCountedOn();
  await putAside('clickhouse');
  const token = await getToken(sluice, account);
  await send(appId, eventsOf('told', 5));
  const id = await submitExport(sluice, token, [{ identity: 'told' }]);
  await untilExportComplete(sluice, token, id);
  assert.equal((await readRecords(sluice, token, id)).length, 5);
  const requestId = await deleteNow(sluice, token, [{ identity: 'unknown' }]);
  await untilCountedOn();
  // The hashes of a request's users are also missing after a month, or after a loss of Redis.
  await redis.del(registryKeys.deletedUsers(requestId));
  await putBack('clickhouse');
  await untilSetBack();
  await assert.rejects(sluice.admin('backup', 'create', 'older'), /was set back to older data/);
  assert.deepEqual(await sluice.admin('backup', 'list'), []);
  assert.equal((await readExportData(sluice, token, id)).status, 503);
  const env = { ...sluice.env, CRASH_AT: 'copies_rewritten' };
  await assert.rejects(runProgram('src/admin/main.js', ['state', 'recover'], env), /ended with SIGKILL/);
  await redis.del(registryKeys.restoreLock, registryKeys.maintenanceLock);
  const { recovered, submit_again: again } = (await sluice.admin('state', 'recover')) as Recovered;
  assert.deepEqual(recovered, [0]);
  assert.ok(again.some(({ deletion_request_id }) => deletion_request_id === requestId));
  assert.deepEqual(
    [await countRows(appId, 'unknown'), (await readRecords(sluice, token, id)).length],
    [3, 2],
  );
});

test('a ClickHouse that was set back lacks records from the oldest that waited when its data was copied', async () => {
  const [, appId] = await newAccount();
  const [worker] = sluice.workers;
  await untilStored(sluice);
  await worker?.stop();
  await send(appId, eventsOf('waited', 1));
  const acceptedMs = Date.now();
  // As if another worker had stored a later segment first.
  await redis.hset(shardKeys.state(0), 'stored_to', String((acceptedMs + 1_000) * 1_000));
  await untilCountedOn();
  await putAside('clickhouse');
  await worker?.restart();
  await untilStored(sluice);
  await untilCountedOn();
  await putBack('clickhouse');
  await untilSetBack();
  const { missing } = (await sluice.admin('state', 'recover')) as { missing: { after: string }[] };
  const [{ after = '' } = {}] = missing;
  assert.ok(Date.parse(after) <= acceptedMs, `${after} is after ${acceptedMs}`);
  await until(async () => !(await readReady()).includes('set back'), 'the API knows of the recovery');
  await send(appId, eventsOf('waited', 1));
  await untilStored(sluice);
  assert.equal(await countRows(appId, 'waited'), 1);
});

test('while ClickHouse stands still changes are answered soon, no change that revokes or protects is reported as safe, and no key is lost', async () => {
  const [account, appId] = await newAccount();
  const { id } = (await sluice.admin('write-keys', 'create', appId)) as { id: string };
  const change = async (method: string, path: string, body?: object) => {
    const reply = await fetch(`${sluice.adminUrl}/admin/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${sluice.adminToken}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      // Five seconds, plus the time by which a busy machine is late; ClickHouse's own deadline is a minute.
      signal: AbortSignal.timeout(20_000),
    });
    const answer = (await reply.json()) as { err?: { code: string }; copied?: boolean };
    return [reply.status, answer.err?.code ?? answer.copied] as const;
  };
  const environment = `/environments/${appId}`;
  sluice.clickhouse.sigstop();
  try {
    assert.deepEqual(await change('PUT', `${environment}/key`), [503, 'overloaded']);
    assert.equal((await askForToken(sluice, account)).status, 200, 'the former key is good');
    assert.deepEqual(await change('DELETE', `${environment}/write-keys/${id}`), [503, 'unknown']);
    assert.deepEqual(await change('PATCH', environment, { retain_days: 'none' }), [503, 'unknown']);
    const added = await change('POST', `/accounts/${account.accountId}/environments`, { name: 'New' });
    assert.deepEqual(added, [200, false]);
  } finally {
    sluice.clickhouse.sigcont();
  }
  assert.deepEqual(await change('PATCH', environment, { retain_days: 'none' }), [200, undefined]);
  const { api_key: apiKey } = (await sluice.admin('keys', 'rotate', appId)) as { api_key: string };
  await untilCountedOn();
  await redis.flushall();
  const restored = (await sluice.admin('state', 'reload')) as { state: string; changes_kept_until: string };
  assert.equal(restored.state, 'restored');
  assert.ok(!Number.isNaN(Date.parse(restored.changes_kept_until)));
  await untilReady();
  assert.ok(await getToken(sluice, { ...account, apiKey }));
});

test('segments that waited in a Redis that was set back are stored once', async () => {
  const [, appId] = await newAccount();
  await untilStored(sluice);
  // The workers store nothing before Redis is set back.
  for (const worker of sluice.workers) worker.sigstop();
  try {
    assert.deepEqual(await send(appId, eventsOf('waiting', 5)), { 200: 5 });
    await putAside('redis');
    await untilReady();
    await untilCountedOn();
    await putBack('redis');
    await until(async () => (await redis.exists(registryKeys.epoch)) === 0, 'Redis is known to be old');
    await sluice.admin('state', 'reload');
    await untilReady();
  } finally {
    for (const worker of sluice.workers) worker.sigcont();
  }
  assert.deepEqual(await send(appId, eventsOf('waiting', 7)), { 200: 7 });
  await untilStored(sluice);
  assert.equal(await countRows(appId, 'waiting'), 7);
});
