// Which ClickHouse server each shard stores to: a document of the registry, created when CLICKHOUSE_URL first names several servers. The
// shards of a new deployment are spread evenly. If the deployment had a single server, its shards stay on it until they are moved.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { checkAll, notNamed, type Servers, type ShardTable, serversOf } from '../clickhouse/servers.js';
import { AdministrationError } from '../contract/errors.js';
import type { Log } from '../log.js';
import type { Redis } from '../redis/client.js';
import { registryKeys, shardOf } from '../redis/keys.js';
import { type Deployment, deploymentKey, type ShardServers, shardServersKey } from './documents.js';
import { changeRegistry } from './registry.js';

/** The table of a new deployment. Throws AdministrationError if a server would have no shard: the number of shards never changes. */
export function spreadEvenly(shards: number, servers: number): ShardServers {
  if (shards < servers)
    throw new AdministrationError(
      `SHARDS is ${shards}, but CLICKHOUSE_URL names ${servers} servers, each of which needs a shard: set SHARDS to a few times as many`,
    );
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

/**
 * Uses a table. Throws AdministrationError if a shard is on a server that CLICKHOUSE_URL does not name, or if the number of shards differs.
 */
export function useShardServers(servers: Servers, document: ShardServers, shards: number): void {
  const { servers: numbers } = document;
  const lacking = numbers.findIndex((number) => number >= servers.all.length);
  if (lacking !== -1)
    throw new AdministrationError(notNamed(servers.all.length, lacking, numbers[lacking] as number));
  if (numbers.length !== shards)
    throw new AdministrationError(
      `the servers of ${numbers.length} shards are known, but there are ${shards}`,
    );
  servers.setTable(tableOf(document));
}

/** Uses the table that Redis has. If there is none and there are several servers, creates it first. */
export async function settleShardServers(
  redis: Redis,
  clickhouse: ClickHouseClient,
  shards: number,
): Promise<void> {
  const servers = serversOf(clickhouse);
  const noted = await readNoted(redis, servers);
  if (noted !== undefined) return useShardServers(servers, noted, shards);
  if (servers.isOne) return;
  const created = await changeRegistry(redis, ({ shardServers }) => {
    const document = shardServers ?? { servers: Array.from({ length: shards }, () => 0) };
    const changes = shardServers === undefined ? [{ key: shardServersKey, document }] : [];
    return { changes, result: document };
  });
  useShardServers(servers, created, shards);
}

/** Reads the document, and notes which deployment Redis has. */
async function readNoted(redis: Redis, servers: Servers): Promise<ShardServers | undefined> {
  const { documents } = registryKeys;
  const [noted, deployment] = await redis.hmget(documents, shardServersKey, deploymentKey);
  if (deployment != null) servers.setEpoch((JSON.parse(deployment) as Deployment).epoch);
  return noted == null ? undefined : (JSON.parse(noted) as ShardServers);
}

/** Uses the table that Redis has, if it has one. The table may name servers that CLICKHOUSE_URL lacks. */
export async function refreshShardTable(redis: Redis, servers: Servers): Promise<void> {
  const noted = await readNoted(redis, servers);
  if (noted !== undefined) servers.setTable(tableOf(noted));
}

/**
 * Rejects with AdministrationError unless CLICKHOUSE_URL names all servers that have shards, and those that answer are in the order of the
 * table.
 */
export async function checkServers(servers: Servers): Promise<void> {
  if (!servers.isOne || servers.table() !== undefined) await checkAll(servers);
  const [misconfiguration] = servers.misconfigurations();
  if (misconfiguration !== undefined) throw new AdministrationError(misconfiguration);
}

const pollEveryMs = 500;

/**
 * Follows the table, since shards may be moved. A process with one server follows it too: others may have been added since it was
 * started. Settles after the first read, with a function that stops it. Rejects with AdministrationError if CLICKHOUSE_URL does not
 * match the table.
 */
export async function followShardTable(
  redis: Redis,
  clickhouse: ClickHouseClient,
  log: Log,
): Promise<() => void> {
  const servers = serversOf(clickhouse);
  const refresh = () =>
    refreshShardTable(redis, servers).catch((error: unknown) =>
      log.warn({ error }, 'the servers of the shards cannot be read'),
    );
  await refresh();
  await checkServers(servers);
  const timer = setInterval(() => void refresh(), pollEveryMs);
  return () => clearInterval(timer);
}

/** The server that has an environment's rows. */
export function clickhouseOf(clickhouse: ClickHouseClient, appId: string): ClickHouseClient {
  const servers = serversOf(clickhouse);
  const count = servers.table()?.servers.length;
  return count === undefined ? clickhouse : servers.ofShard(shardOf(appId, count));
}

/** Environments by the server that has their rows, in the order of the servers. Throws ServerNotNamed. */
export function byServer(
  clickhouse: ClickHouseClient,
  appIds: readonly string[],
): readonly (readonly [ClickHouseClient, readonly string[]])[] {
  const { all } = serversOf(clickhouse);
  const divided = new Map(all.map((client) => [client, [] as string[]]));
  for (const appId of appIds) divided.get(clickhouseOf(clickhouse, appId))?.push(appId);
  return [...divided].filter(([, here]) => here.length > 0);
}

/**
 * Reads rows of some shards, on the servers that have them now. Settles with `moved` if one of the shards is or was being moved, so that
 * rows may have been missed.
 */
export async function readUnmoved<T>(
  redis: Redis,
  clickhouse: ClickHouseClient,
  shards: Iterable<number>,
  read: () => Promise<T>,
): Promise<T | 'moved'> {
  const servers = serversOf(clickhouse);
  const asked = [...shards];
  const places = () => JSON.stringify(asked.map(servers.numberOf));
  await refreshShardTable(redis, servers);
  if (asked.some(servers.isMoving)) return 'moved';
  const before = places();
  const result = await read();
  await refreshShardTable(redis, servers);
  return asked.some(servers.isMoving) || places() !== before ? 'moved' : result;
}

/** Reads rows on the servers that have them, and reads them again if a shard was moved meanwhile: rows may have been missed. */
export async function readWhereStored<T>(
  redis: Redis,
  clickhouse: ClickHouseClient,
  read: () => Promise<T>,
): Promise<T> {
  const servers = serversOf(clickhouse);
  const places = async () => {
    await refreshShardTable(redis, servers);
    return JSON.stringify(servers.table()?.servers);
  };
  for (let before = await places(); ; ) {
    const result = await read();
    const now = await places();
    if (now === before) return result;
    before = now;
  }
}
