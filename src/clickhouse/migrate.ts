// Migrates the database to the schema of this version: forward only, one statement per file, each repeatable, since
// ClickHouse has no transactions. Refuses a migration that was edited after it was applied, and a database that a
// newer version has migrated.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import type { TableKind } from '../config.js';
import { readRows } from './answers.js';
import {
  type ClickHouseClient,
  type ClickHouseOptions,
  codeOfFault,
  connectClickHouse,
  faultCodes,
  insertRows,
} from './client.js';
import { changeDefinition, createUnlessThere, MigrationError } from './definitions.js';
import { clusterClause, databaseOf, engineOf, type Replication } from './replication.js';
import { createScratchDatabase } from './scratch.js';
import { numberServers } from './server-numbers.js';
import { makeLocalViews, readCopiedPlaces, spanServers } from './spanning-views.js';
import { scratchDatabase } from './tables.js';

export type Migration = { readonly name: string; readonly sql: string; readonly checksum: string };

const folder = new URL('./migrations/', import.meta.url);

export function readMigrations(): Migration[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith('.sql'))
    .sort()
    .map((file) => {
      const sql = readFileSync(new URL(file, folder), 'utf8');
      return {
        name: file.replace(/\.sql$/, ''),
        sql,
        checksum: createHash('sha256').update(sql).digest('hex'),
      };
    });
}

/** The tables that migrations create, and the table of migrations. Other tables in the database are not the service's. */
export function tablesOfSchema(): ReadonlySet<string> {
  const made = readMigrations().flatMap(({ sql }) => [...sql.matchAll(/CREATE TABLE IF NOT EXISTS (\w+)/g)]);
  return new Set(['migrations', ...made.map(([, table]) => table as string)]);
}

/**
 * Applies the missing migrations and settles with their names. May be called again, even after a crash. A `cluster` without a kind of
 * tables means tables that are replicated over it.
 */
export async function migrate(
  options: ClickHouseOptions,
  migrations: readonly Migration[] = readMigrations(),
): Promise<string[]> {
  const { database, cluster, tables = cluster === undefined ? 'plain' : 'replicated' } = options;
  const kind: TablesOf = { tables, cluster };
  const server = connectClickHouse({ ...options, ...kind, database: 'default' });
  const client = connectClickHouse({ ...options, ...kind });
  try {
    const creation = renderSql(`CREATE DATABASE IF NOT EXISTS ${database} {{on_cluster}}`, kind);
    await createUnlessThere(server, database, creation);
    await createScratchDatabase(client).catch((error: unknown) => {
      if (codeOfFault(error) !== faultCodes.accessDenied) throw error;
      throw new MigrationError(
        `the user may not create the database ${scratchDatabase(database)}: run the grants of deploy/clickhouse/users.sql again`,
      );
    });
    return await applyMissing(client, kind, migrations);
  } finally {
    await server.close();
    await client.close();
  }
}

/**
 * Migrates all servers, one after another; settles with what it applied to the first one. With several servers each gets its own tables,
 * and views that span all of them.
 */
export async function migrateServers({
  urls,
  database,
  cluster,
  tables,
}: MigrateServersOptions): Promise<string[]> {
  const [url = ''] = urls;
  if (urls.length === 1)
    return migrate({ url, database, cluster, ...(tables === undefined ? {} : { tables }) });
  if (cluster === undefined) throw new MigrationError('several servers need the name of their cluster');
  const migrations = readMigrations();
  const applied: string[][] = [];
  for (const each of urls) applied.push(await migrate({ url: each, database }, migrations));
  const clients = urls.map((each) => connectClickHouse({ url: each, database }));
  try {
    await numberServers(clients);
    const [primary] = clients as [ClickHouseClient, ...ClickHouseClient[]];
    // A move may create views at the same time. It copies each of its steps to the primary server before that.
    for (const [index, client] of clients.entries())
      await makeLocalViews(client, index, migrations, () => readCopiedPlaces(primary));
    for (const client of clients) await spanServers(client, cluster, urls.length);
  } finally {
    await Promise.all(clients.map((client) => client.close()));
  }
  return applied[0] ?? [];
}

export type MigrateServersOptions = {
  readonly urls: readonly string[];
  readonly database: string;
  readonly cluster: string | undefined;
  readonly tables?: TableKind;
};

async function applyMissing(
  client: ClickHouseClient,
  kind: TablesOf,
  migrations: readonly Migration[],
): Promise<string[]> {
  const run = (sql: string) => changeDefinition(client, definedBy(sql), renderSql(sql, kind));
  const creation = `CREATE TABLE IF NOT EXISTS migrations {{on_cluster}}
    (name String, checksum String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3))
    ENGINE = {{engine MergeTree}} ORDER BY name SETTINGS fsync_after_insert = 1`;
  await createUnlessThere(client, `${databaseOf(client)}.migrations`, renderSql(creation, kind));

  const applied = await readApplied(client);
  const known = new Map(migrations.map((migration) => [migration.name, migration.checksum]));
  if (applied.size > 0 && !applied.has(migrations[0]?.name ?? '')) throw new MigrationError(madeBefore);
  for (const [name, checksum] of applied) {
    if (!known.has(name))
      throw new MigrationError(`the database has the migration ${name} of a newer version`);
    if (known.get(name) !== checksum)
      throw new MigrationError(`the migration ${name} was edited after it was applied`);
  }

  const missing = migrations.filter(({ name }) => !applied.has(name));
  for (const { name, sql, checksum } of missing) {
    await run(sql);
    await insertRows(client, 'migrations', [{ name, checksum }]);
  }
  return missing.map(({ name }) => name);
}

/** All versions from 1.0.0 on have the first migration of this one; earlier versions did not. */
const madeBefore =
  'this database is from a version before 1.0.0 and is left as it is: to keep its events and users, write them to files by SQL as CHANGELOG.md says, and import these into a new deployment (an empty DATA_DIR, or an empty Redis and database)';

/** The table or view whose definition a migration writes; an INSERT writes none. */
function definedBy(sql: string): string[] {
  const [, name] =
    /^(?:CREATE (?:OR REPLACE )?|ALTER )(?:TABLE|VIEW) (?:IF NOT EXISTS )?(\w+)/m.exec(sql) ?? [];
  return name === undefined ? [] : [name];
}

type TablesOf = Pick<Replication, 'tables' | 'cluster'>;

export function renderSql(sql: string, kind: TablesOf): string {
  return sql
    .replaceAll('{{on_cluster}}', clusterClause(kind))
    .replaceAll(
      /\{\{engine (\w+?)MergeTree(?:\(([^)]*)\))?\}\}|\{\{engine MergeTree\}\}/g,
      (_, variant, argument) => engineOf(kind.tables, `${variant ?? ''}MergeTree`, argument),
    );
}

async function readApplied(client: ClickHouseClient): Promise<Map<string, string>> {
  const rows = await readRows<{ name: string; checksum: string }>(client, {
    query: 'SELECT name, checksum FROM migrations',
  });
  return new Map(rows.map(({ name, checksum }) => [name, checksum]));
}
