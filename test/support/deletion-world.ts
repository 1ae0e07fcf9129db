// The set-up of deletion tests: a deployment with two accounts and their tokens. Call it while the test's file is loaded; it ends after
// the tests.

import assert from 'node:assert/strict';
import { after } from 'node:test';
import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { readConfig } from '../../src/config.js';
import { noCrash } from '../../src/crash-point.js';
import { createLog } from '../../src/log.js';
import type { Redis } from '../../src/redis/client.js';
import { readRegistry } from '../../src/registry/registry.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { startClickHouseGate } from '../harness/clickhouse-gate.js';
import {
  type Dump,
  dumpTables,
  getToken,
  type History,
  untilStored,
  writeHistory,
} from '../harness/deletion.js';
import { startMigratedClickHouse } from '../harness/migrated-database.js';
import type { Child, SluiceHandle } from '../harness/services.js';
import type { SluiceOptions } from '../harness/sluice.js';
import { ownSluice } from './sluice.js';

/** `main` and `staging` are environments of the account, `elsewhere` is one of the stranger. */
export type DeletionWorld = {
  readonly sluice: SluiceHandle;
  readonly worker: Child;
  readonly account: TestAccount;
  readonly stranger: TestAccount;
  readonly token: string;
  readonly strangerToken: string;
  readonly main: string;
  readonly staging: string;
  readonly elsewhere: string;
};

const lockingBriefly = { JOB_LOCK_MS: '1000' };

export async function deletionWorld(options: SluiceOptions = {}): Promise<DeletionWorld> {
  const sluice = await ownSluice({ env: lockingBriefly, ...options });
  const [worker] = sluice.workers as [Child];
  const account = await createTestAccount(sluice, 'Deletions');
  const stranger = await createTestAccount(sluice, 'Strangers');
  const [main = '', staging = ''] = account.appIds;
  const [elsewhere = ''] = stranger.appIds;
  const token = await getToken(sluice, account);
  const strangerToken = await getToken(sluice, stranger);
  return { sluice, worker, account, stranger, token, strangerToken, main, staging, elsewhere };
}

export type Prepared = { readonly history: History; readonly earlier: Dump; readonly before: Dump };

let histories = 0;

/** Writes the history of a new user; settles with it, what was stored before, and what is stored of it. */
export async function prepareHistory({ sluice, account, stranger }: DeletionWorld): Promise<Prepared> {
  histories += 1;
  const earlier = await dumpTables(sluice);
  const history = await writeHistory(sluice, account, stranger, `user-${histories}@example.com`);
  await untilStored(sluice);
  return { history, earlier, before: await dumpTables(sluice, earlier) };
}

/** The same with a gate between the workers and ClickHouse, to stop them at a statement. */
export async function gatedDeletionWorld(options: SluiceOptions = {}) {
  const clickhouse = await startMigratedClickHouse();
  const gate = await startClickHouseGate(clickhouse.testerUrl);
  const env = { ...(options.env ?? lockingBriefly), CLICKHOUSE_DATABASE: 'sluice' };
  const world = await deletionWorld({ clickhouse, workerEnv: { CLICKHOUSE_URL: gate.url }, ...options, env });
  after(async () => {
    await gate.close();
    await clickhouse.remove();
  });
  return { ...world, clickhouse, gate };
}

/** What a round in the test's own process needs. */
export async function roundOptions(redis: Redis, clickhouse: ClickHouseClient) {
  const { deployment } = await readRegistry(redis);
  assert.ok(deployment);
  const { erasure } = readConfig({});
  return { ...deployment, redis, clickhouse, erasure, crash: noCrash, log: createLog('test', 'silent') };
}
