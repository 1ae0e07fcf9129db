// A Redis and a migrated ClickHouse without the service, for tests of its parts.

import { type ClickHouseClient, connectClickHouse } from '../../src/clickhouse/client.js';
import { migrate } from '../../src/clickhouse/migrate.js';
import { Redis } from '../../src/packages/ioredis.js';
import { type ClickHouseGate, startClickHouseGate } from '../harness/clickhouse-gate.js';
import { tablesUnderTest } from '../harness/environment.js';
import type { RedisOptions } from '../harness/redis.js';
import { type ClickHouseHandle, type RedisHandle, startClickHouse, startRedis } from '../harness/services.js';

export type Stores = {
  readonly redisServer: RedisHandle;
  readonly clickhouseServer: ClickHouseHandle;
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  /** Closes the connections, ends the servers and removes their data. */
  remove(): Promise<void>;
};

export type GatedStores = Stores & {
  /** Before the same ClickHouse, to hold statements of `gated`. */
  readonly gate: ClickHouseGate;
  readonly gated: ClickHouseClient;
};

/** Starts both with the schema in this database. */
export async function startStores(database: string, options: RedisOptions = {}): Promise<Stores> {
  const [redisServer, clickhouseServer] = await Promise.all([startRedis(options), startClickHouse()]);
  await migrate({ url: clickhouseServer.testerUrl, database });
  const redis = new Redis(redisServer.url);
  const clickhouse = connectTo(clickhouseServer.testerUrl, database);
  const remove = async () => {
    await clickhouse.close();
    redis.disconnect();
    await redisServer.remove();
    await clickhouseServer.remove();
  };
  return { redisServer, clickhouseServer, redis, clickhouse, remove };
}

/** The same with a gate. */
export async function startGatedStores(database: string): Promise<GatedStores> {
  const stores = await startStores(database);
  const gate = await startClickHouseGate(stores.clickhouseServer.testerUrl);
  const gated = connectTo(gate.url, database);
  const remove = async () => {
    await gated.close();
    await gate.close();
    await stores.remove();
  };
  return { ...stores, gate, gated, remove };
}

function connectTo(url: string, database: string): ClickHouseClient {
  return connectClickHouse({ url, database, tables: tablesUnderTest });
}
