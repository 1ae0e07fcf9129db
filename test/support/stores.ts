// A Redis and a migrated ClickHouse without the service, or a Redis alone, for tests of single parts. Call these while the test's file is
// loaded; the stores end after its tests.

import { after } from 'node:test';
import { type ClickHouseClient, connectClickHouse } from '../../src/clickhouse/client.js';
import { Redis } from '../../src/packages/ioredis.js';
import { type ClickHouseGate, startClickHouseGate } from '../harness/clickhouse-gate.js';
import { tablesUnderTest } from '../harness/environment.js';
import { startMigratedClickHouse } from '../harness/migrated-database.js';
import type { RedisOptions } from '../harness/redis.js';
import { type ClickHouseHandle, type RedisHandle, startRedis } from '../harness/services.js';

export const database = 'sluice';

export type Stores = {
  readonly redisServer: RedisHandle;
  readonly clickhouseServer: ClickHouseHandle;
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  /** Runs a statement; settles when its mutations have ended. */
  run(query: string): Promise<void>;
  rowsOf(query: string): Promise<unknown[]>;
};

export type GatedStores = Stores & {
  /** Is before the same ClickHouse; holds statements of the client `gated`. */
  readonly gate: ClickHouseGate;
  readonly gated: ClickHouseClient;
};

/** Starts a Redis. By default it does not wait for the disk, whose pauses must not decide about locks and turns. */
export async function startStore(options: RedisOptions = {}) {
  const server = await startRedis({ appendfsync: 'no', ...options });
  const redis = new Redis(server.url, { maxRetriesPerRequest: null });
  after(async () => {
    redis.disconnect();
    await server.remove();
  });
  return { server, redis };
}

export async function startStores(): Promise<Stores> {
  const [{ server: redisServer, redis }, clickhouseServer] = await Promise.all([
    startStore(),
    startMigratedClickHouse(),
  ]);
  const clickhouse = connectTo(clickhouseServer.testerUrl);
  after(async () => {
    await clickhouse.close();
    await clickhouseServer.remove();
  });
  return {
    redisServer,
    clickhouseServer,
    redis,
    clickhouse,
    run: async (query) => {
      await clickhouse.command({ query, clickhouse_settings: { mutations_sync: '2' } });
    },
    rowsOf: async (query) => (await clickhouse.query({ query, format: 'JSONCompactEachRow' })).json(),
  };
}

/** Starts both, and a gate before ClickHouse. */
export async function startGatedStores(): Promise<GatedStores> {
  const stores = await startStores();
  const gate = await startClickHouseGate(stores.clickhouseServer.testerUrl);
  const gated = connectTo(gate.url);
  after(async () => {
    await gated.close();
    await gate.close();
  });
  return { ...stores, gate, gated };
}

function connectTo(url: string): ClickHouseClient {
  return connectClickHouse({ url, database, tables: tablesUnderTest });
}
