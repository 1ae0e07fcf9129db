// Exports that a round of many deletions overtakes, without the service.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { noCrash } from '../../src/crash-point.js';
import { loadDeployment } from '../../src/operations/deployment.js';
import { keepDeletedUsers } from '../../src/privacy/deletion/deleted-users.js';
import { keepTargets } from '../../src/privacy/deletion/kept-targets.js';
import { type DeletionRequest, readDeletions } from '../../src/privacy/deletion/request.js';
import { submitDeletion } from '../../src/privacy/deletion/submit.js';
import { endExportsOf } from '../../src/privacy/export/end.js';
import { readExport } from '../../src/privacy/export/request.js';
import { submitExport } from '../../src/privacy/export/submit.js';
import { registryKeys } from '../../src/redis/keys.js';
import { startGatedStores } from '../support/stores.js';
import { withMethod } from '../support/with-method.js';

const { redis, clickhouse, gate, gated } = await startGatedStores();
const loaded = await loadDeployment({ redis, clickhouse, shards: 1, claimBytesMax: 1e6, crash: noCrash });
const { epoch, secret } = loaded.deployment;

async function submit(accountId: string, identity: string): Promise<string> {
  const submitted = await submitDeletion(
    { redis, epoch, shards: 1, secret, crash: noCrash },
    { accountId, appId: '1000000001', keyId: 'k', keyCreatedAt: '2026-01-01T00:00:00.000Z' },
    { list: [`i${identity}`], reference: undefined, dryRun: false, suppress: false, eraseNow: false },
  );
  return submitted.requestId ?? '';
}

async function askFor(accountId: string, identity: string): Promise<string> {
  const request = await submitExport({ redis, epoch, shards: 1 }, accountId, [`i${identity}`]);
  assert.ok(typeof request === 'object');
  return request.user_export_id;
}

async function kept(ids: readonly string[]): Promise<DeletionRequest[]> {
  await keepTargets(redis, clickhouse);
  return readDeletions(redis, ids);
}

/** How many statements ClickHouse gets during some work. */
async function statementsOf(work: () => Promise<void>): Promise<number> {
  let statements = 0;
  gate.hold(() => {
    statements += 1;
    return false;
  });
  await work().finally(() => gate.pass());
  return statements;
}

test('a round ends the exports of its accounts that name its users, and no others', async () => {
  const before = await submit('7', 'before@example.com');
  const ended = await Promise.all(['7', '8'].map((account) => askFor(account, 'ada@example.com')));
  const stay = [
    await askFor('9', 'ada@example.com'),
    await askFor('7', 'other@example.com'),
    // This export lacks the users of the deletion before it, so it stays.
    await askFor('7', 'before@example.com'),
  ];
  const later = await Promise.all(
    ['7', '8', '9'].map((account, at) => submit(account, `${['ada', 'ada', 'bob'][at]}@example.com`)),
  );
  await endExportsOf(redis, gated, await kept([before, ...later]));
  for (const id of ended) assert.equal(await readExport(redis, id), undefined);
  for (const id of stay) assert.notEqual(await readExport(redis, id), undefined);
  assert.equal(await redis.zcard(registryKeys.exportsByAccount), stay.length);
});

test('a round queries ClickHouse no more often for hundreds of deletions and exports than for a few', async () => {
  const end = async (accounts: readonly string[], count: number) => {
    const users = Array.from({ length: count }, (_, at) => `${accounts[0]}-${at}@example.com`);
    const asked = users.map((user, at) => [accounts[at % accounts.length] ?? '', user] as const);
    const exports = await Promise.all(asked.map(([account, user]) => askFor(account, user)));
    const deletions = await kept(await Promise.all(asked.map(([account, user]) => submit(account, user))));
    const statements = await statementsOf(() => endExportsOf(redis, gated, deletions));
    for (const id of exports) assert.equal(await readExport(redis, id), undefined);
    return statements;
  };
  const few = await end(['20'], 2);
  const many = await end(['21', '22', '23', '24'], 400);
  // The further statements are for the exports that end, in batches of 50.
  assert.ok(many <= few + 8 * 4, `${many} for many, ${few} for few`);
});

test('the writes that keep the hashes of a round’s users are sent side by side', async () => {
  const ids = await Promise.all(
    Array.from({ length: 300 }, (_, at) => submit('30', `hash-${at}@example.com`)),
  );
  await kept(ids);
  let [now, most] = [0, 0];
  const counted = withMethod(redis, 'set', async (...args: Parameters<typeof redis.set>) => {
    now += 1;
    most = Math.max(most, now);
    return redis.set(...args).finally(() => {
      now -= 1;
    });
  });
  await keepDeletedUsers(counted, clickhouse, ids);
  for (const id of ids) assert.equal(await redis.strlen(registryKeys.deletedUsers(id)), 16);
  assert.ok(most > 10, `${most} at once`);
});
