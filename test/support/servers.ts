// A deployment with several ClickHouse servers, as administrators and analysts see it.

import assert from 'node:assert/strict';
import type { AdministrationAnswers } from '../../src/contract/administration-answers.js';
import { registryKeys, shardOf } from '../../src/redis/keys.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { type ClickHouseHandle, query } from '../harness/clickhouse.js';
import { withRedis } from '../harness/redis-client.js';
import type { SluiceHandle } from '../harness/services.js';
import { runProgram } from '../harness/sluice.js';

/** A shard as `shards list` shows it. */
export type ShardView = AdministrationAnswers['listShards'][number];

export type Administered = Pick<SluiceHandle, 'admin' | 'api' | 'env' | 'redisUrl'>;

export async function listShards({ admin }: Administered): Promise<ShardView[]> {
  return (await admin('shards', 'list')) as ShardView[];
}

/** The shard of an environment, for ever. */
export function shardIn({ env }: Administered, appId: string): number {
  return shardOf(appId, Number(env.SHARDS));
}

/** Makes an account with environments in all shards, since app_ids are random. `appIds` has one of each, in the order of the shards. */
export async function accountInEachShard(
  sluice: Administered,
): Promise<{ readonly account: TestAccount; readonly appIds: readonly string[] }> {
  const shards = Array.from({ length: Number(sluice.env.SHARDS) }, (_, shard) => shard);
  const names = Array.from({ length: 4 * shards.length }, (_, index) => `Environment ${index}`);
  for (;;) {
    const account = await createTestAccount(sluice, 'Wide', names);
    const appIds = shards.flatMap(
      (shard) => account.appIds.find((id) => shardIn(sluice, id) === shard) ?? [],
    );
    if (appIds.length === shards.length) return { account, appIds };
  }
}

/** Runs a statement on one server, by default as a user who may do everything. Settles when its mutations have ended too. */
export async function ask(server: ClickHouseHandle, sql: string, user = server.tester): Promise<string> {
  // Others may not set anything.
  const settings = user === server.tester ? '&mutations_sync=2' : '';
  return (await query(`${server.origin}/?database=sluice${settings}`, user, sql)).trim();
}

/** Runs a command that is killed at a crash point. Removes its locks, so that the next one need not wait until they expire. */
export async function killAt(sluice: Administered, point: string, ...args: readonly string[]): Promise<void> {
  const killed = runProgram('src/admin/main.js', args, { ...sluice.env, CRASH_AT: point });
  await assert.rejects(killed, /ended with SIGKILL/, point);
  await withRedis(sluice, (redis) =>
    redis.del(registryKeys.restoreLock, registryKeys.maintenanceLock, registryKeys.backupLock),
  );
}
