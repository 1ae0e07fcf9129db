// A database beside the one in use, in which a backup is restored: creating it, exchanging its tables with those in use, dropping it.

import { readRows } from './answers.js';
import { anySize, type ClickHouseClient, insertRows } from './client.js';
import { changeDefinition } from './definitions.js';
import { commandLong } from './long-statement.js';
import { planTable, scratchDatabase, takenBy } from './tables.js';

/** ClickHouse could not make or restore a backup, in its own words. */
export class BackupFailed extends Error {}

/** There is no backup of this name: the one to restore, or the base of a new one. */
export class BackupMissing extends BackupFailed {}

/** The disk already has a backup of this name. */
export class BackupExists extends BackupFailed {}

/** The tables of a database that hold rows, with their ids: views and tables in memory do not count. */
export async function readTableIds(
  client: ClickHouseClient,
  database: string,
): Promise<ReadonlyMap<string, string>> {
  const rows = await readRows<{ name: string; uuid: string }>(client, {
    query: `SELECT name, toString(uuid) AS uuid FROM system.tables
      WHERE database = {database:String} AND engine LIKE '%MergeTree' ORDER BY name`,
    query_params: { database },
  });
  return new Map(rows.map(({ name, uuid }) => [name, uuid]));
}

/** Creates the database in which a backup is restored. Rejects if it exists: another process is restoring too. */
export async function createStaging(client: ClickHouseClient, staging: string, id: string): Promise<void> {
  await changeDefinition(client, [], `CREATE DATABASE ${staging} UUID '${id}'`);
}

export async function readDatabaseId(
  client: ClickHouseClient,
  database: string,
): Promise<string | undefined> {
  const [row] = await readRows<{ id: string }>(client, {
    query: 'SELECT toString(uuid) AS id FROM system.databases WHERE name = {database:String}',
    query_params: { database },
  });
  return row?.id;
}

export type Exchange = {
  readonly table: string;
  /** The id of the restored table. */
  readonly id: string;
  readonly staging: string;
  readonly database: string;
  /** Letters and digits. */
  readonly owner: string;
};

/**
 * Exchanges a restored table with the one in use. Only one process at a time may call it. A late statement of an earlier process would
 * exchange them back. So each process first renames the restored table to a name of its own, and a statement with another name finds
 * no table. `exchanging` is called before the tables may be exchanged, `exchanged` as soon as they are.
 */
export async function exchangeTable(
  client: ClickHouseClient,
  { table, id, staging, database, owner }: Exchange,
  { exchanging, exchanged }: { readonly exchanging: () => void; readonly exchanged: () => void },
): Promise<void> {
  const [plain, own] = [`${staging}.${table}`, `${table}${takenBy}${owner}`];
  await changeDefinition(client, [`${staging}.${own}`], `RENAME TABLE ${plain} TO ${staging}.${own}`);
  const isRestored = (await readTableIds(client, staging)).get(own) === id;
  if (isRestored) {
    exchanging();
    const tables = [`${staging}.${own}`, `${database}.${table}`];
    await changeDefinition(client, tables, `EXCHANGE TABLES ${tables.join(' AND ')}`);
    exchanged();
  }
  await changeDefinition(client, [plain], `RENAME TABLE ${staging}.${own} TO ${plain}`);
  // A statement of an earlier process may have been first.
  if ((await readTableIds(client, database)).get(table) !== id)
    throw new BackupFailed('another restore has started');
}

/** Takes over the tables of a process that was killed while it exchanged them. */
export async function takeTablesOver(client: ClickHouseClient, staging: string): Promise<void> {
  for (const name of (await readTableIds(client, staging)).keys()) {
    const [table, owner] = name.split(takenBy);
    if (owner !== undefined)
      await changeDefinition(
        client,
        [`${staging}.${table}`],
        `RENAME TABLE ${staging}.${name} TO ${staging}.${table}`,
      );
  }
}

/**
 * Records the plan of a restore beside the restored tables, since Redis may be emptied before the restore has ended. Earlier plans stay: a
 * crash while one is replaced could leave none.
 */
export async function notePlan(client: ClickHouseClient, staging: string, plan: string): Promise<void> {
  await changeDefinition(
    client,
    [`${staging}.${planTable}`],
    `CREATE TABLE IF NOT EXISTS ${staging}.${planTable} (plan String)
      ENGINE = MergeTree ORDER BY tuple() SETTINGS fsync_after_insert = 1, fsync_part_directory = 1`,
  );
  await insertRows(client, `${staging}.${planTable}`, [{ plan }]);
}

/** The recorded plans, in no particular order. */
export async function readNotedPlans(client: ClickHouseClient, staging: string): Promise<readonly string[]> {
  if (!(await readTableIds(client, staging)).has(planTable)) return [];
  const found = await readRows<{ plan: string }>(client, {
    query: `SELECT plan FROM ${staging}.${planTable}`,
  });
  return found.map(({ plan }) => plan);
}

/** Drops all tables but the plan, however large. `confirm` is called before each table, and rejects if the table must stay. */
export async function dropAllButPlan(
  client: ClickHouseClient,
  staging: string,
  confirm: () => Promise<void>,
): Promise<void> {
  for (const table of (await readTableIds(client, staging)).keys()) {
    if (table === planTable) continue;
    await confirm();
    await client.command({
      query: `DROP TABLE IF EXISTS ${staging}.${table} SYNC`,
      clickhouse_settings: anySize,
    });
  }
}

/** Adds the rows of a table to the one of the same name in another database. */
export async function addRowsOf(
  client: ClickHouseClient,
  table: string,
  from: string,
  into: string,
): Promise<void> {
  await commandLong(client, { query: `INSERT INTO ${into}.${table} SELECT * FROM ${from}.${table}` });
}

/** Drops a database of any size and its tables in memory, if they are there. */
export async function dropDatabase(client: ClickHouseClient, database: string): Promise<void> {
  for (const each of [database, scratchDatabase(database)])
    await client.command({
      query: `DROP DATABASE IF EXISTS ${each} SYNC`,
      clickhouse_settings: anySize,
    });
}
