// Tables that live as long as one deletion round, preview, export or retention run. On a single server they are in their own database
// in memory (`ENGINE = Memory`), with neither rows nor definitions on disk: no copy of a user is left there, a full disk damages nothing,
// and after a restart they are gone, so a statement that names one fails. With replicas, memory does not work: statements reach any
// replica, and each carries out mutations by itself, even after a restart. So there these tables are on disk, in the database of the
// data, and equal on every replica before they are read; dropping them removes their parts.

import { readRows } from './answers.js';
import { anySize, type ClickHouseClient, codeOfFault, faultCodes, insertRows } from './client.js';
import { changeDefinition, createUnlessThere, DefinitionLost } from './definitions.js';
import { commandLong } from './long-statement.js';
import { databaseOf, engineInUse, hasReplicas, onCluster, settingsOfAll } from './replication.js';
import { scratchDatabase } from './tables.js';

/** `Set`: only queried for whether it has a value. `lookUp`: one row is looked up by the value of this column. */
export type ScratchKind = 'rows' | 'Set' | { readonly lookUp: string };

/** The database in which a connection creates such tables. */
function scratchDatabaseOf(client: ClickHouseClient): string {
  const database = databaseOf(client);
  return hasReplicas(client) ? database : scratchDatabase(database);
}

/** How statements name such a table. */
export function scratchName(client: ClickHouseClient, table: string): string {
  return `${scratchDatabaseOf(client)}.${table}`;
}

/** Creates the database of such tables where they are in memory. */
export async function createScratchDatabase(client: ClickHouseClient): Promise<void> {
  if (hasReplicas(client)) return;
  const database = scratchDatabaseOf(client);
  await createUnlessThere(client, database, `CREATE DATABASE IF NOT EXISTS ${database} ENGINE = Memory`);
}

/** The names, as `scratchName` gives them, of such tables with one of these prefixes that are at least this old. */
export async function listScratch(
  client: ClickHouseClient,
  prefixes: readonly string[],
  ageSecondsMin = 0,
): Promise<string[]> {
  const rows = await readRows<{ scratch: string }>(client, {
    query: `SELECT concat(database, '.', name) AS scratch FROM system.tables
      WHERE database = {database:String} AND arrayExists(prefix -> startsWith(name, prefix), {prefixes:Array(String)})
        AND ({ageSecondsMin:UInt32} = 0 OR
          if(comment = '', toUnixTimestamp(metadata_modification_time), toUInt64OrZero(comment)) <= {madeBefore:UInt64})`,
    query_params: {
      database: scratchDatabaseOf(client),
      prefixes,
      ageSecondsMin,
      madeBefore: Math.floor(Date.now() / 1_000) - ageSecondsMin,
    },
  });
  return rows.map(({ scratch }) => scratch);
}

/** Creates an empty table, by the name that `scratchName` gives. `structure`: its list of columns. */
export async function createScratch(
  client: ClickHouseClient,
  name: string,
  structure: string,
  kind: ScratchKind = 'rows',
): Promise<void> {
  // The time of creation, which a database in memory does not record.
  const made = Math.floor(Date.now() / 1_000);
  const query = `CREATE TABLE ${name} ${onCluster(client)} (${structure}) ENGINE = ${engineFor(client, kind)} COMMENT '${made}'`;
  if (hasReplicas(client)) {
    // Dropping the table removes the file too.
    return changeDefinition(client, [name], query).catch(async (error: unknown) => {
      if (error instanceof DefinitionLost) await dropScratch(client, [name]);
      throw error;
    });
  }
  try {
    await client.command({ query });
  } catch (error) {
    // The start of an embedded ClickHouse drops the database if a full disk has damaged its definition.
    if (codeOfFault(error) !== faultCodes.unknownDatabase) throw error;
    await createScratchDatabase(client);
    await client.command({ query });
  }
}

function engineFor(client: ClickHouseClient, kind: ScratchKind): string {
  if (hasReplicas(client)) {
    const soon =
      'old_parts_lifetime = 10, cleanup_delay_period = 1, cleanup_delay_period_random_add = 0, max_cleanup_delay_period = 1';
    return `${engineInUse(client, 'MergeTree')} ORDER BY tuple() SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, ${soon}`;
  }
  if (kind === 'rows') return 'Memory';
  // Not persistent: nothing of it reaches the disk, and a table that a crash emptied matches no rows.
  const engine = kind === 'Set' ? 'Set' : `Join(ANY, LEFT, ${kind.lookUp})`;
  return `${engine} SETTINGS persistent = 0`;
}

/** Adds rows; settles when every replica has them. */
export async function insertScratch(
  client: ClickHouseClient,
  table: string,
  values: readonly object[],
): Promise<void> {
  await insertRows(client, table, values, { clickhouse_settings: await settingsOfAll(client) });
}

/** Adds the result of a query, which may read whole tables; settles as `insertScratch` does. */
export async function fillScratch(client: ClickHouseClient, table: string, select: string): Promise<void> {
  await commandLong(client, {
    query: `INSERT INTO ${table} ${select}`,
    clickhouse_settings: await settingsOfAll(client),
  });
}

/** Removes all rows. */
export async function emptyScratch(client: ClickHouseClient, tables: readonly string[]): Promise<void> {
  for (const table of tables)
    await client.command({ query: `TRUNCATE TABLE ${table}`, clickhouse_settings: anySize });
}

/** Drops the tables that exist; settles when no replica has anything of them left. */
export async function dropScratch(client: ClickHouseClient, tables: readonly string[]): Promise<void> {
  if (tables.length === 0) return;
  await client.command({
    query: `DROP TABLE IF EXISTS ${tables.join(', ')} ${onCluster(client)} SYNC`,
    clickhouse_settings: anySize,
  });
}
