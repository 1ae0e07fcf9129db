// Exchanges the restored tables, and their indexes of keys, with those in use. No key is forgotten, and no segment is stored if its keys
// were looked up in the other index.

import { unkeptTables } from '../../clickhouse/backups.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import {
  addIndexOf,
  addKeysAbove,
  generationAbove,
  raiseGeneration,
  readMarkers,
  writeMarker,
} from '../../clickhouse/key-index.js';
import { serversOf } from '../../clickhouse/servers.js';
import { limitRestored, limitsTable, refuseSegments } from '../../clickhouse/shard-limits.js';
import { addRowsOf, BackupFailed, exchangeTable, readTableIds } from '../../clickhouse/staging.js';
import { takeFences } from '../../privacy/deletion/fences.js';
import { readOutstanding } from '../../redis/backlog.js';
import { shardKeys } from '../../redis/keys.js';
import { readLoadedRegistry, readRegistry } from '../../registry/registry.js';
import { renewIndex } from '../renew-index.js';
import { addedTables, type Begun, confirmPlan, type Planned, type Restore } from './plan.js';

/**
 * Adds the keys of the index in use to the restored one, since a key is never forgotten, whatever happens to its row. Settles with the
 * segment number up to which the restored index has all keys, for each shard. The restored index gets a new generation, so that a process
 * that is adding keys to the index in use writes no marker into the restored one.
 */
export async function joinIndexes(
  { context, staging }: Restore,
  client: ClickHouseClient,
  restored: ClickHouseClient,
): Promise<Readonly<Record<string, string>>> {
  const { redis, config } = context;
  const [inUse, ofBackup, { deployment }] = await Promise.all([
    readMarkers(client),
    readMarkers(restored),
    readRegistry(redis),
  ]);
  const shards = new Set([...inUse.keys(), ...ofBackup.keys(), ...Array(deployment?.shards ?? 0).keys()]);
  const storedTo: Record<string, string> = {};
  for (const shard of shards) {
    const found = await readOutstanding(redis, shard, deployment?.epoch ?? '');
    storedTo[shard] = found?.storedTo ?? inUse.get(shard)?.indexedTo ?? '0';
  }
  await addIndexOf(client, config.clickhouseDatabase, staging);
  for (const shard of shards) {
    const known = await redis.hget(shardKeys.state(shard), 'keys_generation');
    const before = ofBackup.get(shard);
    const generation = generationAbove(known, before?.generation, inUse.get(shard)?.generation);
    const joined = { indexedTo: before?.indexedTo ?? '0', generation };
    if (!(await writeMarker(restored, shard, joined, before?.generation)))
      throw new BackupFailed('the marker of the index of keys is missing');
  }
  return storedTo;
}

/**
 * Exchanges the tables that are not exchanged yet. The index of keys comes first: once it is exchanged, the restored tables refuse segments
 * whose keys were looked up in the other index. The registry comes last, since an emptied Redis is loaded from it.
 */
export async function exchangeTables(restore: Planned): Promise<void> {
  const { context, plan } = restore;
  const { redis } = context;
  const servers = [...restore.servers.entries()].toReversed();
  for (const [server, client] of servers) {
    await exchangeOn(restore, server, client, (table) => table === keysTable);
    await renewIndexes(restore, server, client);
  }
  // The number of the last segment of each shard.
  const refused =
    restore.epoch === '' ? [] : await takeFences({ ...(await readLoadedRegistry(redis)).deployment, redis });
  // First only in the tables of this restore, whose constraints name it; at the end in all tables in use.
  await refuseUpTo(restore, refused, plan.id);
  for (const [server, client] of servers) {
    await exchangeOn(restore, server, client, (table) => table !== keysTable);
    restore.crash('rows_exchanged');
    // Rows that were stored after the indexes were joined are now in the tables that will be dropped; their keys must stay.
    await addKeysAbove(client, restore.staging, context.config.clickhouseDatabase, plan.keysTo[server] ?? {});
    await renewIndexes(restore, server, client);
  }
  await refuseUpTo(restore, refused);
}

/** Makes workers load their filters of keys from the index that is now in use, including the keys that were added to it. */
async function renewIndexes(
  { context, epoch }: Begun,
  server: number,
  client: ClickHouseClient,
): Promise<void> {
  for (const shard of (await readMarkers(client)).keys()) {
    // Every restored server has a marker for every shard, also for shards of other servers.
    const isOwn = epoch !== '' && serversOf(context.clickhouse).numberOf(shard) === server;
    await (isOwn ? renewIndex(context, client, shard) : raiseGeneration(client, shard));
  }
}

/**
 * Makes the restored tables refuse segments up to the last ones, since they lack the tokens of these. A worker may have read a segment that
 * another worker has stored since, and whose users were then deleted; or it may have looked up its keys in the previous index. If Redis
 * still has the segment, the worker reads it and looks up its keys again.
 */
async function refuseUpTo(
  { servers }: Restore,
  lastSegments: readonly string[],
  ofRestore = '',
): Promise<void> {
  for (const client of servers)
    for (const [shard, last] of lastSegments.entries()) await refuseSegments(client, shard, last, ofRestore);
}

async function exchangeOn(
  restore: Planned,
  server: number,
  client: ClickHouseClient,
  isWanted: (table: string) => boolean,
): Promise<void> {
  const { context, staging, lock, crash, exchanging, plan } = restore;
  const tables = plan.tables[server] ?? {};
  const { clickhouseDatabase: database } = context.config;
  const inUse = await readTableIds(client, database);
  const names = Object.keys(tables)
    .filter(isWanted)
    .sort((a, b) => Number(a === 'registry') - Number(b === 'registry'));
  for (const table of names) {
    const id = tables[table] as string;
    if (inUse.get(table) === id) continue;
    await confirmPlan(restore);
    if (addedTables.includes(table)) {
      await addRowsOf(client, table, staging, database);
      continue;
    }
    await limitRestored(client, staging, table, plan.id);
    const exchange = { table, id, staging, database, owner: lock.owner };
    await exchangeTable(client, exchange, { exchanging, exchanged: () => crash('table_exchanged') });
  }
}

const keysTable = 'stored_keys';

/** Tables that a restore leaves as they are. */
export const ofServer: readonly string[] = [...unkeptTables, limitsTable];
