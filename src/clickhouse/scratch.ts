// Tables that live as long as one round of deletions, one preview, one export or one run of retention. On a single server they are in a
// database of their own in its memory (`ENGINE = Memory`), which has neither rows nor definitions on disk: no copy of a user is left
// there, a full disk damages nothing, and after a restart they are gone, so a statement that names one fails. Where there are
// replicas, the memory of one is of no use: statements reach any of them, and each carries out mutations by itself, after a restart
// too. There these tables are on disk, in the database of the data, and equal on every replica before they are read; dropping them
// removes their parts.

import { readRows } from './answers.js';
import { anySize } from './any-size.js';
import { type ClickHouseClient, codeOfFault, faultCodes } from './client.js';
import { changeDefinition, DefinitionLost } from './definitions.js';
import { commandLong } from './long-statement.js';
import { databaseOf, engineInUse, hasReplicas, onCluster, settingsOfAll } from './replication.js';
import { scratchDatabase } from './tables.js';

/**
 * `Set`: asked only whether it has a value. `lookUp`: one row is looked up by the value of a column.
 */
export type ScratchKind = 'rows' | 'Set' | { readonly lookUp: string };

/** The database in which a connection makes such tables. */
function placeOf(client: ClickHouseClient): string {
  const database = databaseOf(client);
  return hasReplicas(client) ? database : scratchDatabase(database);
}

/** How statements name such a table. */
export function scratchName(client: ClickHouseClient, table: string): string {
  return `${placeOf(client)}.${table}`;
}

/** Makes the database of such tables, where they are in memory. */
export async function createScratchDatabase(client: ClickHouseClient): Promise<void> {
  if (hasReplicas(client)) return;
  await changeDefinition(client, [], `CREATE DATABASE IF NOT EXISTS ${placeOf(client)} ENGINE = Memory`);
}

/** Such tables whose names begin like this, as statements name them, which are at least so old. */
export async function listScratch(
  client: ClickHouseClient,
  prefix: string,
  ageSecondsMin = 0,
): Promise<string[]> {
  const rows = await readRows<{ scratch: string }>(client, {
    query: `SELECT concat(database, '.', name) AS scratch FROM system.tables
      WHERE database = {database:String} AND startsWith(name, {prefix:String})
        AND ({ageSecondsMin:UInt32} = 0 OR
          if(comment = '', toUnixTimestamp(metadata_modification_time), toUInt64OrZero(comment)) <= {madeBefore:UInt64})`,
    query_params: {
      database: placeOf(client),
      prefix,
      ageSecondsMin,
      madeBefore: Math.floor(Date.now() / 1_000) - ageSecondsMin,
    },
  });
  return rows.map(({ scratch }) => scratch);
}

/** Makes an empty table, by the name that `scratchName` gives. Its structure is the list of its columns. */
export async function createScratch(
  client: ClickHouseClient,
  name: string,
  structure: string,
  kind: ScratchKind = 'rows',
): Promise<void> {
  // When it was made: a database in memory notes no time.
  const made = Math.floor(Date.now() / 1_000);
  const query = `CREATE TABLE ${name} ${onCluster(client)} (${structure}) ENGINE = ${engineFor(client, kind)} COMMENT '${made}'`;
  if (hasReplicas(client)) {
    // Dropping the table removes the file too.
    return changeDefinition(client, [name], query).catch(async (error: unknown) => {
      if (error instanceof DefinitionLost) await dropScratch(client, name);
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
  // Not persistent: nothing of it ever reaches the disk, and a table that a crash emptied matches nothing.
  const engine = kind === 'Set' ? 'Set' : `Join(ANY, LEFT, ${kind.lookUp})`;
  return `${engine} SETTINGS persistent = 0`;
}

/** Adds rows; settles when every replica finds them. */
export async function insertScratch(
  client: ClickHouseClient,
  table: string,
  values: readonly object[],
): Promise<void> {
  await client.insert({
    table,
    values,
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0, ...(await settingsOfAll(client)) },
  });
}

/** Adds what a query finds, which may read whole tables; settles as `insertScratch` does. */
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

/** Drops a table, if it is there; settles when nothing of it is left, on no replica. */
export async function dropScratch(client: ClickHouseClient, table: string): Promise<void> {
  await client.command({
    query: `DROP TABLE IF EXISTS ${table} ${onCluster(client)} SYNC`,
    clickhouse_settings: anySize,
  });
}
