// Which ClickHouse server each shard stores to: a document of the registry, made when CLICKHOUSE_URL first names several
// servers. The shards of a new deployment are spread evenly. Those of one that had a single server stay where their rows are,
// until they are moved.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { type Servers, type ShardTable, ShardTableUnknown, serversOf } from '../clickhouse/servers.js';
import { describeError, type Log } from '../log.js';
import type { Redis } from '../redis/client.js';
import { registryKeys, shardOf } from '../redis/keys.js';
import { AdministrationError } from './accounts.js';
import { type ShardServers, shardServersKey } from './documents.js';
import { changeRegistry } from './registry.js';

/** The table of a new deployment. */
export function spreadEvenly(shards: number, servers: number): ShardServers {
  return { servers: Array.from({ length: shards }, (_, shard) => shard % servers) };
}

export function tableOf({ servers, moves = [] }: ShardServers): ShardTable {
  const closed = moves.filter(({ stage }) => stage !== 'remove');
  return {
    servers,
    moving: closed.map(({ shard }) => shard),
    unsettled: moves.map(({ shard }) => shard),
  };
}

/** Throws AdministrationError if a shard is on a server that CLICKHOUSE_URL does not name, or if the shards are others. */
export function checkShardServers({ servers }: ShardServers, shards: number, serverCount: number): void {
  const lacking = servers.findIndex((number) => number >= serverCount);
  if (lacking !== -1) {
    throw new AdministrationError(
      `CLICKHOUSE_URL names ${serverCount} server${serverCount === 1 ? '' : 's'}, but shard ${lacking} is stored on server ${servers[lacking]} (from 0): name all servers, in their order`,
    );
  }
  if (servers.length !== shards)
    throw new AdministrationError(
      `the servers of ${servers.length} shards are known, but there are ${shards}`,
    );
}

/** Makes the table if there are several servers and none is noted, checks it otherwise, and takes it over. */
export async function settleShardServers(
  redis: Redis,
  clickhouse: ClickHouseClient,
  shards: number,
): Promise<void> {
  const servers = serversOf(clickhouse);
  const text = await redis.hget(registryKeys.documents, shardServersKey);
  if (text === null && servers.isOne) return;
  const noted =
    text === null
      ? await changeRegistry(redis, ({ shardServers }) => {
          const document = shardServers ?? { servers: Array.from({ length: shards }, () => 0) };
          const changes = shardServers === undefined ? [{ key: shardServersKey, document }] : [];
          return { changes, result: document };
        })
      : (JSON.parse(text) as ShardServers);
  checkShardServers(noted, shards, servers.all.length);
  servers.setTable(tableOf(noted));
}

/**
 * Takes over the table that Redis has; does nothing while Redis has none. Throws AdministrationError if CLICKHOUSE_URL lacks
 * servers of it.
 */
export async function refreshShardTable(redis: Redis, servers: Servers): Promise<void> {
  const text = await redis.hget(registryKeys.documents, shardServersKey);
  if (text === null) return;
  const document = JSON.parse(text) as ShardServers;
  checkShardServers(document, document.servers.length, servers.all.length);
  servers.setTable(tableOf(document));
}

const pollEveryMs = 500;

/**
 * Follows the table. Settles after the first look, with a function that ends it. Rejects with AdministrationError if
 * CLICKHOUSE_URL lacks servers of it.
 */
export async function followShardTable(
  redis: Redis,
  clickhouse: ClickHouseClient,
  log: Log,
): Promise<() => void> {
  const servers = serversOf(clickhouse);
  const noteFault = (error: unknown) =>
    log.warn({ error: describeError(error) }, 'the servers of the shards cannot be read');
  await refreshShardTable(redis, servers).catch((error: unknown) => {
    if (error instanceof AdministrationError) throw error;
    noteFault(error);
  });
  if (servers.isOne) return () => undefined;
  const refresh = () => refreshShardTable(redis, servers).catch(noteFault);
  const timer = setInterval(() => void refresh(), pollEveryMs);
  return () => clearInterval(timer);
}

/** The server that has an environment's rows. */
export function clickhouseOf(clickhouse: ClickHouseClient, appId: string): ClickHouseClient {
  const servers = serversOf(clickhouse);
  return servers.isOne ? clickhouse : servers.ofShard(shardOf(appId, shardCount(servers)));
}

/** Environments by the server that has their rows, in the order of the servers. */
export function byServer(
  clickhouse: ClickHouseClient,
  appIds: readonly string[],
): readonly (readonly [ClickHouseClient, readonly string[]])[] {
  const servers = serversOf(clickhouse);
  if (servers.isOne) return [[clickhouse, appIds]];
  const count = shardCount(servers);
  const numberOf = (appId: string) => servers.numberOf(shardOf(appId, count));
  return servers.all.flatMap((client, number) => {
    const here = appIds.filter((appId) => numberOf(appId) === number);
    return here.length === 0 ? [] : [[client, here] as const];
  });
}

function shardCount(servers: Servers): number {
  const table = servers.table();
  if (table === undefined) throw new ShardTableUnknown();
  return table.servers.length;
}

/**
 * Reads rows of some shards, on the servers that have them now. Settles with `moved` if one of the shards is or was on its way
 * to another server, where rows may have been missing.
 */
export async function readUnmoved<T>(
  redis: Redis,
  clickhouse: ClickHouseClient,
  shards: Iterable<number>,
  read: () => Promise<T>,
): Promise<T | 'moved'> {
  const servers = serversOf(clickhouse);
  if (servers.isOne) return read();
  const asked = [...shards];
  const places = () => JSON.stringify(asked.map(servers.numberOf));
  await refreshShardTable(redis, servers);
  if (asked.some(servers.isMoving)) return 'moved';
  const before = places();
  const result = await read();
  await refreshShardTable(redis, servers);
  return asked.some(servers.isMoving) || places() !== before ? 'moved' : result;
}

/** For the start of a process: says in one line that CLICKHOUSE_URL does not fit, and ends the process. */
export function exitAfter(error: unknown): never {
  if (!(error instanceof AdministrationError)) throw error;
  process.stderr.write(`sluice: ${error.message}\n`);
  process.exit(1);
}
