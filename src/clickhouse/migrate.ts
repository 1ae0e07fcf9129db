// Migrates the database to the schema of this version: forward only, one statement per file, each repeatable, since
// ClickHouse has no transactions. Refuses a migration that was edited after it was applied, and a database that a
// newer version has migrated.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { type ClickHouseClient, type ClickHouseOptions, connectClickHouse } from './client.js';
import { MigrationError } from './migration-error.js';
import { numberServers } from './server-numbers.js';
import { makeLocalViews, spanServers } from './spanning-views.js';

export type Migration = { readonly name: string; readonly sql: string; readonly checksum: string };

const folder = new URL('./migrations/', import.meta.url);

/** All migrations in their order. */
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

/**
 * Applies what is missing and settles with the names of what it applied. A `cluster` makes the tables
 * replicated over it. May be called again, after a crash too.
 */
export async function migrate(
  options: ClickHouseOptions & { readonly cluster?: string | undefined },
  migrations: readonly Migration[] = readMigrations(),
): Promise<string[]> {
  const { database, cluster } = options;
  const server = connectClickHouse({ ...options, database: 'default' });
  const client = connectClickHouse(options);
  try {
    await server.command({
      query: renderSql(`CREATE DATABASE IF NOT EXISTS ${database} {{on_cluster}}`, cluster),
    });
    return await applyMissing(client, cluster, migrations);
  } finally {
    await server.close();
    await client.close();
  }
}

/**
 * Migrates all servers, one after another; settles with what it applied to the first one. Several servers get tables of
 * their own, and views that span them.
 */
export async function migrateServers({ urls, database, cluster }: MigrateServersOptions): Promise<string[]> {
  const [url = ''] = urls;
  if (urls.length === 1) return migrate({ url, database, cluster });
  if (cluster === undefined) throw new MigrationError('several servers need the name of their cluster');
  const migrations = readMigrations();
  const applied: string[][] = [];
  for (const each of urls) applied.push(await migrate({ url: each, database }, migrations));
  const clients = urls.map((each) => connectClickHouse({ url: each, database }));
  try {
    await numberServers(clients);
    for (const client of clients) await makeLocalViews(client, migrations);
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
};

async function applyMissing(
  client: ClickHouseClient,
  cluster: string | undefined,
  migrations: readonly Migration[],
): Promise<string[]> {
  const run = (sql: string) => client.command({ query: renderSql(sql, cluster) });
  await run(`CREATE TABLE IF NOT EXISTS migrations {{on_cluster}}
    (name String, checksum String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3))
    ENGINE = {{engine MergeTree}} ORDER BY name SETTINGS fsync_after_insert = 1`);

  const applied = await readApplied(client);
  const known = new Map(migrations.map((migration) => [migration.name, migration.checksum]));
  for (const [name, checksum] of applied) {
    if (!known.has(name))
      throw new MigrationError(`the database has the migration ${name} of a newer version`);
    if (known.get(name) !== checksum)
      throw new MigrationError(`the migration ${name} was edited after it was applied`);
  }

  const missing = migrations.filter(({ name }) => !applied.has(name));
  for (const { name, sql, checksum } of missing) {
    await run(sql);
    await client.insert({
      table: 'migrations',
      values: [{ name, checksum }],
      format: 'JSONEachRow',
      clickhouse_settings: { async_insert: 0 },
    });
  }
  return missing.map(({ name }) => name);
}

/** Fills in what depends on whether there is a cluster. Nothing else decides that. */
export function renderSql(sql: string, cluster: string | undefined): string {
  return sql
    .replaceAll('{{on_cluster}}', cluster === undefined ? '' : `ON CLUSTER ${cluster}`)
    .replaceAll(
      /\{\{engine (\w+?)MergeTree(?:\(([^)]*)\))?\}\}|\{\{engine MergeTree\}\}/g,
      (_, kind, argument) => {
        const engine = `${kind ?? ''}MergeTree`;
        if (cluster === undefined) return argument === undefined ? engine : `${engine}(${argument})`;
        const path = "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'";
        return `Replicated${engine}(${path}${argument === undefined ? '' : `, ${argument}`})`;
      },
    );
}

async function readApplied(client: ClickHouseClient): Promise<Map<string, string>> {
  const result = await client.query({
    query: 'SELECT name, checksum FROM migrations',
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ name: string; checksum: string }>();
  return new Map(rows.map(({ name, checksum }) => [name, checksum]));
}
