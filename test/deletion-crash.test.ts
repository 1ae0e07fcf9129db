// Deletions through crashes: of a worker at every step of a round, of ClickHouse and of Redis. They complete
// afterwards, exactly, with the evidence of what was there, and leave nothing behind.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { registryKeys } from '../src/redis/keys.js';
import { type ClickHouseGate, startClickHouseGate } from './support/clickhouse-gate.js';
import {
  assertExact,
  createTestAccount,
  type Dump,
  dumpPlaces,
  getToken,
  type History,
  readFound,
  readStatus,
  showDeletion,
  submitAccepted,
  type TestAccount,
  untilComplete,
  untilKnown,
  untilStored,
  writeHistory,
} from './support/deletion.js';
import { withRedis } from './support/redis-client.js';
import {
  type Child,
  type ClickHouseHandle,
  type SluiceHandle,
  startClickHouse,
  startSluice,
} from './support/services.js';
import { filesWith, keysWith } from './support/traces.js';
import { until } from './support/wait.js';

let clickhouse: ClickHouseHandle;
/** Between the workers and ClickHouse, to stop them at a statement. */
let gate: ClickHouseGate;
let sluice: SluiceHandle;
let account: TestAccount;
let stranger: TestAccount;
let token: string;
let survivor: Child;
/** Of completed deletions. */
const markers: string[] = [];

before(async () => {
  clickhouse = await startClickHouse();
  gate = await startClickHouseGate(clickhouse.url);
  sluice = await startSluice({
    clickhouse,
    env: { JOB_LOCK_MS: '1000' },
    workerEnv: { CLICKHOUSE_URL: gate.url },
  });
  account = await createTestAccount(sluice, 'Crashes');
  stranger = await createTestAccount(sluice, 'Strangers');
  token = await getToken(sluice, account);
  [survivor] = sluice.workers as [Child];
});

// What a failed test leaves pending must not stand in the way of the next one.
afterEach(async () => {
  gate.pass();
  survivor.sigcont();
  await withRedis(sluice, (redis) => redis.del(registryKeys.pendingDeletions));
});

after(async () => {
  await sluice?.stop();
  await gate?.close();
  await clickhouse?.remove();
});

type Prepared = { readonly history: History; readonly earlier: Dump; readonly before: Dump };

let histories = 0;

async function prepare(): Promise<Prepared> {
  histories += 1;
  const earlier = await dumpPlaces(sluice);
  const history = await writeHistory(sluice, account, stranger, `user-${histories}@example.com`);
  await untilStored(sluice);
  return { history, earlier, before: await dumpPlaces(sluice, earlier) };
}

/** The next round need not wait until enough requests have gathered. */
async function hurryRounds(): Promise<void> {
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionRound));
}

async function assertDeleted(
  { history, earlier, before }: Prepared,
  requestId: string,
  accepted: Readonly<Record<string, number>>,
): Promise<void> {
  markers.push(history.marker);
  await untilStored(sluice);
  assertExact(before, await dumpPlaces(sluice, earlier), history.identificationsToGo, accepted);
  const [left] = await sluice.rows<{ rows: number }>(
    `SELECT count() AS rows FROM deletion_targets WHERE request_id = '${requestId}'`,
  );
  assert.equal(Number(left?.rows), 0, 'no target is kept');
  assert.deepEqual(await sluice.rows(`SELECT name FROM system.tables WHERE name LIKE 'deletion_round%'`), []);
  assert.deepEqual(await keysWith(sluice, history.marker), [], 'Redis holds the identity');
  assert.deepEqual(await readFound(sluice, requestId), history.found, 'the evidence says what was there');
  const { mutations } = await showDeletion(sluice, requestId);
  const emptied = new Set(Object.keys(history.found).map((key) => key.split(' ')[1]));
  assert.deepEqual(new Set(mutations.map(({ table }) => table)), emptied, 'the evidence names the mutations');
}

const points = [
  'targets_kept',
  'resolved',
  'found_recorded',
  'before_mutation',
  'after_mutation',
  'places_emptied',
  'verified',
  'targets_purged',
];

/** Has a worker killed at a point of the round that deletes the users of a history; another one goes on. */
async function crashAt(point: string, prepared: Prepared, killed: Child): Promise<void> {
  survivor.sigstop();
  await hurryRounds();
  const requestId = await submitAccepted(sluice, token, prepared.history.users);
  const accepted = await prepared.history.returnToService();
  await until(() => !killed.running, { deadlineMs: 60_000, what: `the worker passes ${point}` });
  assert.equal((await killed.exited).signal, 'SIGKILL');
  await hurryRounds();
  survivor.sigcont();
  await untilComplete(sluice, token, requestId, 60_000);
  await assertDeleted(prepared, requestId, accepted);
}

for (const point of points) {
  test(`completes a deletion exactly when the worker is killed at ${point}`, async () => {
    const [prepared, killed] = await Promise.all([prepare(), sluice.addWorker({ CRASH_AT: `${point}:1` })]);
    await crashAt(point, prepared, killed);
  });
}

/** Submits, and settles when the worker waits with a statement of the round. */
async function submitUntil(users: History['users'], statement: string): Promise<string> {
  await hurryRounds();
  gate.hold(({ sql }) => sql.trimStart().startsWith(statement));
  const requestId = await submitAccepted(sluice, token, users);
  await until(() => gate.held.length > 0, { deadlineMs: 60_000, what: `a worker wants to ${statement}` });
  return requestId;
}

const statements = [
  'ALTER TABLE stored_user_properties DELETE',
  'ALTER TABLE stored_user_identities DELETE',
  'ALTER TABLE deletion_targets DELETE',
];

for (const statement of statements) {
  test(`completes a deletion exactly when ClickHouse is killed before ${statement}`, async () => {
    const prepared = await prepare();
    const requestId = await submitUntil(prepared.history.users, statement);
    const accepted = await prepared.history.returnToService();
    await clickhouse.kill9();
    gate.forget();
    gate.pass();
    await until(async () => (await showDeletion(sluice, requestId)).state === 'clickhouse_unavailable', {
      deadlineMs: 60_000,
      what: 'the request says what it waits for',
    });
    await clickhouse.restart();
    await untilComplete(sluice, token, requestId, 60_000);
    await assertDeleted(prepared, requestId, accepted);
  });
}

test('completes a deletion exactly when Redis is killed during it', async () => {
  const prepared = await prepare();
  const requestId = await submitUntil(prepared.history.users, 'ALTER TABLE stored_user_properties DELETE');
  const accepted = await prepared.history.returnToService();
  await sluice.redis.kill9();
  gate.pass();
  await sluice.redis.restart();
  await untilComplete(sluice, token, requestId, 60_000);
  await assertDeleted(prepared, requestId, accepted);
});

test('accepts a deletion while ClickHouse is down, says what it waits for, and completes it afterwards', async () => {
  const prepared = await prepare();
  await clickhouse.kill9();
  const requestId = await submitAccepted(sluice, token, prepared.history.users);
  const accepted = await prepared.history.returnToService();
  await until(async () => (await showDeletion(sluice, requestId)).state === 'clickhouse_unavailable', {
    deadlineMs: 60_000,
    what: 'the request says what it waits for',
  });
  assert.equal((await readStatus(sluice, token, requestId)).text.includes('"pending"'), true);
  await clickhouse.restart();
  await untilComplete(sluice, token, requestId, 60_000);
  await assertDeleted(prepared, requestId, accepted);
});

test('completes other deletions when the targets of one are lost', async () => {
  const prepared = await prepare();
  survivor.sigstop();
  const lost = await submitAccepted(sluice, token, [{ identity: 'whose targets are lost' }]);
  await withRedis(sluice, (redis) => redis.del(registryKeys.deletionTargets(lost)));
  const requestId = await submitAccepted(sluice, token, prepared.history.users);
  survivor.sigcont();
  await untilComplete(sluice, token, requestId, 60_000);
  await assertDeleted(prepared, requestId, {});
  assert.equal((await readStatus(sluice, token, lost)).text.includes('"pending"'), true);
});

test('completes a deletion after Redis was emptied, and still finds the completed ones', async () => {
  const prepared = await prepare();
  const earlier = await submitAccepted(sluice, token, [{ identity: 'nobody' }]);
  await untilComplete(sluice, token, earlier);
  const requestId = await submitUntil(prepared.history.users, 'ALTER TABLE stored_user_properties DELETE');
  const mirrored = `SELECT argMax(document, version) AS document FROM deletion_requests GROUP BY request_id`;
  await until(
    async () => {
      const documents = (await sluice.rows<{ document: string }>(mirrored)).map(
        ({ document }) => JSON.parse(document) as { deletion_request_id: string; status: string },
      );
      const statusOf = (id: string) => documents.find((it) => it.deletion_request_id === id)?.status;
      return statusOf(earlier) === 'complete' && statusOf(requestId) === 'pending';
    },
    { deadlineMs: 60_000, what: 'ClickHouse has the second copies' },
  );
  survivor.sigstop();
  await withRedis(sluice, (redis) => redis.flushall());
  gate.pass();
  await sluice.admin('restore');
  survivor.sigcont();
  await untilKnown(sluice, account.appIds[0] ?? '');
  // Tokens are not kept twice.
  token = await getToken(sluice, account);
  await untilComplete(sluice, token, requestId, 60_000);
  const status = JSON.parse((await readStatus(sluice, token, earlier)).text) as { status: string };
  assert.equal(status.status, 'complete');
  await untilStored(sluice);
  assertExact(
    prepared.before,
    await dumpPlaces(sluice, prepared.earlier),
    prepared.history.identificationsToGo,
  );
});

test('rewrites the append-only file even when the worker is killed right after it completed a request', async () => {
  const [prepared, killed] = await Promise.all([prepare(), sluice.addWorker({ CRASH_AT: 'completed:1' })]);
  // No earlier deletion asks for it any more.
  await withRedis(sluice, (redis) => redis.del(registryKeys.rewriteWanted));
  await crashAt('completed', prepared, killed);
  await until(
    () => filesWith(join(sluice.redis.dir, 'appendonlydir'), [prepared.history.marker]).length === 0,
    {
      deadlineMs: 120_000,
      what: 'the append-only file does not hold the identity',
      everyMs: 500,
    },
  );
});

test('leaves nothing of any of these users in the files of Redis and ClickHouse within a minute', async () => {
  const dirs = [join(sluice.redis.dir, 'appendonlydir'), clickhouse.dir];
  await until(() => dirs.flatMap((dir) => filesWith(dir, markers)).length === 0, {
    deadlineMs: 60_000,
    what: 'no file holds an identity that was deleted',
    everyMs: 500,
  }).catch((error: unknown) => {
    throw new Error(`left: ${dirs.flatMap((dir) => filesWith(dir, markers)).join('\n')}`, { cause: error });
  });
  for (const child of [...sluice.api, ...sluice.workers, sluice.redis, clickhouse]) {
    for (const marker of markers) {
      assert.ok(!child.output().includes(marker), `${child.name} logs an identity`);
    }
  }
});
