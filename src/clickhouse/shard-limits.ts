// Which inserts ClickHouse itself refuses, however late they arrive: segments up to a number, and shards that are on another server.
// A limit is a row of `shard_limits`, which the constraints `shard_limits` of the stored tables read at each insert (see
// 0002_create_stored_events.sql), so no definition changes while the service runs. A limit applies to every insert that is not yet in
// system.processes when the limit is stored; inserts that are already running continue.

import { readRow } from './answers.js';
import type { ClickHouseClient } from './client.js';
import { changeDefinition } from './definitions.js';
import { readMigrations } from './migrate.js';
import { databaseOf, settingsOfAll } from './replication.js';
import { numberedTables } from './tables.js';

/** The table of limits. Its rows belong to this server, so no restore replaces them. */
export const limitsTable = 'shard_limits';
const constraint = 'shard_limits';

const limitedTables: readonly string[] = [...numberedTables, 'stored_keys'];

/**
 * Makes ClickHouse refuse a shard's segments up to a number, with the code of `isRefusedSegment`: their Redis was emptied, so only a
 * restored Redis knows whether they still have to be stored. A worker that has such a segment asks Redis again. A later call with a
 * lower number changes nothing. `ofRestore`: only tables that `limitRestored` has marked with it refuse the segments.
 */
export async function refuseSegments(
  client: ClickHouseClient,
  shard: number,
  number: string,
  ofRestore = '',
): Promise<void> {
  if (!/^\d+$/.test(number)) throw new Error('a segment number is not decimal');
  await add(client, `SELECT ${shard}, 'refused', '${ofRestore}', ${number}, ''`);
}

/**
 * Sets what a server takes of a shard: 'open' all but copies, else only the copy of this name. ClickHouse refuses the rest, rows and keys of
 * workers, with the code of `isRefusedSegment`. Settles with false if another process has set the door since its state was read as `state`:
 * so a statement that arrives late changes nothing.
 */
export async function setDoor(
  client: ClickHouseClient,
  shard: number,
  door: string,
  state: string,
): Promise<boolean> {
  await add(
    client,
    `SELECT ${shard}, 'door', '', ${state} + 1, '${door}' WHERE ${lastDoor(client, shard, 'value')} = ${state}`,
  );
  return (await readDoor(client, shard)).door === door;
}

/** What a server takes of a shard, and a number that grows each time it is set. */
export async function readDoor(client: ClickHouseClient, shard: number) {
  return readRow<{ door: string; state: string }>(client, {
    query: `SELECT ${lastDoor(client, shard)} AS door, toString(${lastDoor(client, shard, 'value')}) AS state`,
  });
}

/** SQL: a column of the row that stands. */
export function lastDoor(client: ClickHouseClient, shard: number, column: 'door' | 'value' = 'door'): string {
  return `(SELECT argMax(${column}, value) FROM ${databaseOf(client)}.${limitsTable} FINAL WHERE shard = ${shard} AND kind = 'door')`;
}

async function add(client: ClickHouseClient, limit: string): Promise<void> {
  await client.command({
    query: `INSERT INTO ${limitsTable} (shard, kind, of_restore, value, door) ${limit}`,
    clickhouse_settings: await settingsOfAll(client),
  });
}

/**
 * Makes a restored table, in a database beside the connection's, obey the limits of the connection's database and those of the
 * restore `id`. A constraint reads the limits of its table's own database unless it names another.
 */
export async function limitRestored(
  client: ClickHouseClient,
  database: string,
  table: string,
  id: string,
): Promise<void> {
  if (!limitedTables.includes(table)) return;
  const creation = new RegExp(
    `^CREATE TABLE IF NOT EXISTS ${table} [^]* ${constraint} CHECK\\s([^]*?)\n\\)\n`,
    'm',
  );
  const check = readMigrations()
    .map(({ sql }) => creation.exec(sql)?.[1])
    .find((text) => text !== undefined);
  if (check === undefined) throw new Error(`no migration limits ${table}`);
  const adapted = check
    .replace(`FROM ${limitsTable} `, `FROM ${databaseOf(client)}.${limitsTable} `)
    .replace("IN ('')", `IN ('', '${id}')`);
  await changeDefinition(
    client,
    [`${database}.${table}`],
    `ALTER TABLE ${database}.${table} DROP CONSTRAINT IF EXISTS ${constraint}, ADD CONSTRAINT ${constraint} CHECK ${adapted}`,
  );
}
