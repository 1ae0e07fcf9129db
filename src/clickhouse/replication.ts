// What statements need where a table has replicas. Owns the kinds of tables and everything that depends on them; all other files ask
// here, by their connection. CLICKHOUSE_URL may be a load balancer, so each statement may reach another replica. What follows:
//
// - A row is stored when a majority of the replicas has it, so losing one replica loses nothing. Inserts of several workers overlap
//   (`insert_quorum_parallel`), so no single replica is known to have all of them. A row that one replica lacks is therefore looked for
//   on all: any majority of them has it.
// - A mutation must read the same on each replica, whenever that replica carries it out. So it reads tables on disk that all replicas
//   have (`settingsOfAll`), never tables in the memory of one.
// - ClickHouse drops a block that equals an earlier one. Only blocks with our own token may be dropped.
//
// `rehearsed` sends the same statements to plain tables, without what ClickHouse refuses there: for tests.

import type { TableKind } from '../config.js';
import type { ClickHouseClient } from '../packages/clickhouse.js';
import { replicas } from '../tuning.js';
import { readRow } from './answers.js';

export type Replication = {
  readonly tables: TableKind;
  /** The name of the cluster of the replicas. */
  readonly cluster: string | undefined;
  readonly database: string;
};

const known = new WeakMap<ClickHouseClient, Replication>();

/** Sets the kind of tables that a connection's database has; plain by default. */
export function setReplication(client: ClickHouseClient, replication: Replication): void {
  known.set(client, replication);
}

function replicationOf(client: ClickHouseClient): Replication {
  return known.get(client) ?? { tables: 'plain', cluster: undefined, database: '' };
}

/** Whether statements must work with replicas: other servers than the one that is asked have the tables too. */
export function hasReplicas(client: ClickHouseClient): boolean {
  return replicationOf(client).tables !== 'plain';
}

type Settings = Readonly<Record<string, string | number>>;

/** Settings of every statement of a connection. */
export function settingsFor(tables: TableKind): Settings {
  if (tables === 'plain') return {};
  return {
    // From 26.2 on ClickHouse obeys `insert_deduplicate` only together with this value of `deduplicate_insert`.
    deduplicate_insert: 'backward_compatible_choice',
    insert_deduplicate: 0,
    // A replica that has lost its keeper refuses to answer instead of answering with old data. With SharedMergeTree it reads what all
    // others have written.
    select_sequential_consistency: 1,
    // Mutations look users up in tables that every replica has.
    allow_nondeterministic_mutations: 1,
    // Dropped partitions, truncated tables and new constraints are answered when all replicas have them.
    alter_sync: '2',
    replication_wait_for_inactive_replica_timeout: String(replicas.waitMsMax / 1000),
    // SharedMergeTree has no quorum: all replicas share one copy of a part.
    ...(tables === 'shared'
      ? {}
      : { insert_quorum: 'auto', insert_quorum_timeout: String(replicas.waitMsMax) }),
  };
}

/** `ON CLUSTER …` for statements that create, change or drop tables; empty where ClickHouse needs none. */
export function onCluster(client: ClickHouseClient): string {
  return clusterClause(replicationOf(client));
}

export function clusterClause({ tables, cluster }: Pick<Replication, 'tables' | 'cluster'>): string {
  return tables === 'replicated' ? `ON CLUSTER ${cluster}` : '';
}

/** The engine of a table. SharedMergeTree has the plain names: a managed ClickHouse replaces them by its own engine. */
export function engineOf(tables: TableKind, engine: string, argument?: string): string {
  if (tables !== 'replicated') return argument === undefined ? engine : `${engine}(${argument})`;
  const path = "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'";
  return `Replicated${engine}(${path}${argument === undefined ? '' : `, ${argument}`})`;
}

/** The engine of a table that is created over this connection. */
export function engineInUse(client: ClickHouseClient, engine: string): string {
  return engineOf(replicationOf(client).tables, engine);
}

/** Settings of an insert that is answered when all replicas have it. If one is unreachable, the insert is refused. */
export async function settingsOfAll(client: ClickHouseClient): Promise<Settings> {
  const { tables } = replicationOf(client);
  if (tables === 'rehearsed') return { insert_quorum: '2' };
  if (tables !== 'replicated') return {};
  const row = await readRow<{ replicas: number }>(client, {
    query: `SELECT max(total_replicas) AS replicas FROM system.replicas WHERE database = currentDatabase()`,
  });
  const count = Number(row.replicas);
  if (count === 0) throw new Error('the database has no replicated tables');
  return { insert_quorum: String(count) };
}

/** Settles when every replica has what was stored in these tables before. Rejects if one is unreachable. */
export async function syncReplicas(client: ClickHouseClient, names: readonly string[]): Promise<void> {
  const { tables, database } = replicationOf(client);
  if (tables !== 'replicated' && tables !== 'shared') return;
  const where = onCluster(client);
  // Otherwise ClickHouse would wait for merges and mutations too.
  const how = tables === 'replicated' ? 'LIGHTWEIGHT' : '';
  for (const name of names)
    await client.command({
      query: `SYSTEM SYNC REPLICA ${where} ${database}.${name} ${how}`,
      clickhouse_settings: {
        receive_timeout: String(replicas.waitMsMax / 1000) as never,
        distributed_ddl_task_timeout: String(replicas.waitMsMax / 1000) as never,
      },
    });
}

/** A table as a source of a query that reads it on every replica. */
export function onAllReplicas(client: ClickHouseClient, table: string): string {
  const { tables, cluster, database } = replicationOf(client);
  const isSystem = table.startsWith('system.');
  const isAsked = tables === 'replicated' || (tables === 'shared' && isSystem && cluster !== undefined);
  if (!isAsked) return table;
  return `clusterAllReplicas('${cluster}', ${isSystem ? table : `${database}.${table}`})`;
}

export function databaseOf(client: ClickHouseClient): string {
  const { database } = replicationOf(client);
  if (database === '') throw new Error('a connection without a database');
  return database;
}

/** The database, as an expression that means the same on each replica. */
export function databaseIn(client: ClickHouseClient): string {
  const { tables, database } = replicationOf(client);
  return tables === 'plain' ? 'currentDatabase()' : `'${database}'`;
}

/**
 * Whether a table has a row that meets a condition. If the first replica has none, all are asked. Unreachable replicas are skipped,
 * since a majority has every stored row. With `isCertain` the call rejects instead.
 */
export async function hasRow(
  client: ClickHouseClient,
  table: string,
  condition: string,
  query_params: Readonly<Record<string, unknown>>,
  isCertain = false,
): Promise<boolean> {
  const everywhere = onAllReplicas(client, table);
  for (const source of new Set([table, everywhere])) {
    const { markers } = await readRow<{ markers: string | number }>(client, {
      query: `SELECT count() AS markers FROM ${source} WHERE ${condition}`,
      query_params: { ...query_params },
      ...(source === table ? {} : { clickhouse_settings: { skip_unavailable_shards: isCertain ? 0 : 1 } }),
    });
    if (Number(markers) > 0) return true;
  }
  return false;
}
