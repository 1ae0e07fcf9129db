// The statements of the migrations when CLICKHOUSE_CLUSTER is set. There is no cluster here: the engine parses every statement, and checks
// every table as far as it can without a keeper.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { runMigrations } from '../harness/administration.js';
import { type ClickHouseHandle, startClickHouse } from '../harness/services.js';
import { root } from '../support/deploy-file.js';

const migrations = readdirSync(join(root, 'src/clickhouse/migrations')).length;

let clickhouse: ClickHouseHandle;
let server: Server;
let sent: string[] = [];
/** What is misspelt in each statement. */
let misspelt: readonly [right: string, wrong: string] = ['', ''];

before(async () => {
  clickhouse = await startClickHouse();
  server = createServer((request, reply) => {
    answer(request).then(
      (text) => reply.end(text),
      (error: Error) => reply.writeHead(500, { 'x-clickhouse-exception-code': '62' }).end(error.message),
    );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
});

after(async () => {
  server?.close();
  server?.closeAllConnections();
  await clickhouse?.remove();
});

/** Keeps a statement; the engine only parses it, so no migration ever counts as applied. */
async function answer(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const piece of request.setEncoding('utf8')) body += piece;
  const query = new URL(request.url ?? '', 'http://localhost').searchParams.get('query');
  const statement = (query ?? body).replace(...misspelt);
  sent.push(statement);
  if (statement.startsWith('SELECT')) {
    const isAboutRoom = statement.includes('system.disks');
    const isReadBack = statement.includes("create_table_query = ''");
    const isAboutNames = statement.includes('AS isThere');
    if (isAboutRoom) return '[\n{"free":"1000000000000","disks":"1"}\n]\n';
    if (isReadBack) return '[\n{"lost":[]}\n]\n';
    return isAboutNames ? '[\n{"isThere":0}\n]\n' : '[\n]\n';
  }
  // The rows of an INSERT are not part of the statement.
  await clickhouse.query(`EXPLAIN AST ${statement}${statement.startsWith('INSERT') ? '\n{}' : ''}`);
  return '';
}

/** Runs the migrations and settles with the statements that create or change something. */
async function statementsOf(cluster?: string): Promise<string[]> {
  sent = [];
  const { port } = server.address() as AddressInfo;
  await runMigrations({ CLICKHOUSE_URL: `http://127.0.0.1:${port}`, CLICKHOUSE_CLUSTER: cluster });
  return sent
    .map((statement) => statement.replaceAll(/^--.*\n/gm, '').trim())
    .filter((statement) => /^(CREATE|ALTER|DROP) /.test(statement));
}

const isTable = (statement: string) => statement.startsWith('CREATE TABLE');

test('every statement is parsed, is for the whole cluster, and makes replicated tables', async () => {
  const created = await statementsOf('main_cluster');
  // The database, the table of migrations, and one statement per migration.
  assert.equal(created.length, 2 + migrations);
  assert.ok(created.filter(isTable).length >= 8);
  for (const statement of created) {
    assert.match(
      statement,
      /^(CREATE (DATABASE|TABLE|VIEW) IF NOT EXISTS|CREATE OR REPLACE VIEW|ALTER TABLE|DROP TABLE IF EXISTS) \w+ ON CLUSTER main_cluster\b/,
      statement,
    );
    assert.doesNotMatch(statement, /\{\{|\}\}/);
    if (!isTable(statement)) continue;
    assert.match(
      statement,
      /\bENGINE = Replicated(Replacing)?MergeTree\('\/clickhouse\/tables\/\{shard\}\/\{database\}\/\{table\}', '\{replica\}'(, (version|expires_at|value|number|records))?\)/,
    );
  }
});

test('a table that distinguishes versions of a row does so on a cluster too', async () => {
  const created = await statementsOf('main_cluster');
  const replacing = created.filter(
    (statement) =>
      statement.includes('ReplicatedReplacingMergeTree') &&
      /^ +version /m.test(statement) &&
      // A version in the sorting key would keep all versions.
      !/^ORDER BY .*\bversion\b/m.test(statement),
  );
  assert.ok(replacing.length >= 2);
  for (const statement of replacing) assert.match(statement, /'\{replica\}', version\)/);
});

test('a replicated table remembers as many tokens as another one', async () => {
  for (const statement of (await statementsOf('main_cluster')).filter(isTable)) {
    const windows = [...statement.matchAll(/(?:non_)?replicated_deduplication_window = (\d+)/g)].map(
      ([, rows]) => rows,
    );
    assert.ok(windows.length === 0 || (windows.length === 2 && windows[0] === windows[1]), statement);
  }
});

test('a keeper keeps tokens for a week', async () => {
  const tables = ['stored_events', 'stored_user_properties', 'stored_user_identities', 'failed_events'];
  const kept = (await statementsOf('main_cluster')).flatMap(
    (statement) =>
      /^CREATE TABLE IF NOT EXISTS (\w+) [\s\S]* replicated_deduplication_window_seconds = 604800,$/m.exec(
        statement,
      )?.[1] ?? [],
  );
  assert.deepEqual(kept, tables);
});

test('the engine accepts columns, engine and settings of every table, and lacks only the keeper', async () => {
  await clickhouse.query('CREATE DATABASE IF NOT EXISTS cluster_tables');
  for (const statement of (await statementsOf('main_cluster')).filter(isTable)) {
    const here = statement
      .replace(' ON CLUSTER main_cluster', '')
      .replace(/IF NOT EXISTS (\w+)/, 'cluster_tables.$1')
      .replace('{shard}', '1')
      .replace('{replica}', '1');
    const error = await clickhouse.query(here).then(
      () => '',
      (reason: Error) => reason.message,
    );
    assert.match(error, /\(NO_ZOOKEEPER\)/, here);
    const misspelt = here.replace(/(fsync_after_insert) = 1/, '$1s = 1');
    await assert.rejects(clickhouse.query(misspelt), /UNKNOWN_SETTING/);
  }
});

test('a statement that ClickHouse cannot parse ends the migration', async () => {
  misspelt = ['CREATE TABLE', 'CREATE TABEL'];
  await assert.rejects(statementsOf('main_cluster'), /Syntax error/);
  misspelt = ['', ''];
});

test('without a cluster nothing is replicated', async () => {
  const created = await statementsOf();
  assert.ok(created.length > migrations);
  for (const statement of created) assert.doesNotMatch(statement, /ON CLUSTER|ENGINE = Replicated|\{\{/);
});
