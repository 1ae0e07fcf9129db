// The files in which ClickHouse keeps definitions: nothing changes them while the disk is full, a damaged one is noticed, and the embedded
// ClickHouse makes it anew.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { changeDefinition, createUnlessThere, DefinitionLost } from '../../src/clickhouse/definitions.js';
import { notePlan } from '../../src/clickhouse/staging.js';
import type { ClickHouseHandle } from '../harness/clickhouse.js';
import { startMigratedClickHouse } from '../harness/migrated-database.js';

let server: ClickHouseHandle;

before(async () => {
  server = await startMigratedClickHouse();
});

after(() => server?.remove());

const lines = async (sql: string) => (await server.query(sql)).split('\n').filter((line) => line !== '');

const definitions = () =>
  server.query("SELECT name, create_table_query FROM system.tables WHERE database = 'sluice' ORDER BY name");

/** The file of a table's definition; without a name, that of the database. */
const fileOf = (table?: string) =>
  join(server.dir, 'clickhouse', 'metadata', table === undefined ? 'sluice.sql' : `sluice/${table}.sql`);

/** Leaves what a restore that was killed in an exchange leaves; settles with the folder of its definitions. */
async function leaveRestore(): Promise<string> {
  const client = connectClickHouse({ url: server.testerUrl, database: 'sluice' });
  await server.query('CREATE DATABASE sluice_restore');
  await notePlan(client, 'sluice_restore', 'the plan').finally(() => client.close());
  for (const table of ['audit_log_taken_by_1f', 'end_mark', 'later_stored_keys', 'registry_of_backup'])
    await server.query(`CREATE TABLE sluice_restore.${table} AS sluice.audit_log`);
  await server.query('INSERT INTO sluice_restore.audit_log_taken_by_1f FORMAT JSONEachRow {}');
  return join(server.dir, 'clickhouse', 'metadata', 'sluice_restore');
}

const leftOfRestore = () =>
  server.query(`SELECT (SELECT plan FROM sluice_restore.restore_plan),
    (SELECT count() FROM sluice_restore.audit_log_taken_by_1f),
    (SELECT arraySort(groupArray(name)) FROM system.tables WHERE database = 'sluice_restore')`);

test('starts with all rows after every definition of the service was emptied, cut off or filled with zeros', async () => {
  const tables = await lines(
    "SELECT name FROM system.tables WHERE database = 'sluice' AND engine LIKE '%MergeTree' ORDER BY name",
  );
  for (const table of tables.filter((name) => name !== 'shard_limits'))
    await server.query(`INSERT INTO sluice.${table} FORMAT JSONEachRow {}`);
  await server.query("INSERT INTO sluice.shard_limits SELECT 3, 'refused', '', 67, ''");
  await server.query('CREATE TABLE sluice.next_keys (key String) ENGINE = Memory');
  const staging = await leaveRestore();
  const counts = () =>
    server.query(
      tables.map((table) => `SELECT '${table}', count() FROM sluice.${table}`).join(' UNION ALL '),
    );
  const [rows, whole] = [(await counts()).split('\n').sort(), await definitions()];

  await server.stop();
  const names = readdirSync(join(server.dir, 'clickhouse', 'metadata', 'sluice')).map((file) =>
    file.slice(0, -4),
  );
  const scratch = join(server.dir, 'clickhouse', 'metadata', 'sluice_scratch.sql');
  truncateSync(scratch, 0);
  for (const table of [undefined, ...names]) truncateSync(fileOf(table), 0);
  for (const file of readdirSync(staging)) truncateSync(join(staging, file), 0);
  writeFileSync(
    fileOf('stored_events'),
    "ATTACH TABLE _ UUID '1be0729f-9355-452d-9d62-834bc6e1bdd6'\n(\n    `app_id` Str",
  );
  writeFileSync(fileOf('users'), Buffer.alloc(300));
  await server.restart();

  assert.deepEqual((await counts()).split('\n').sort(), rows);
  assert.equal(
    await definitions(),
    whole
      .split('\n')
      .filter((line) => !line.startsWith('next_keys\t'))
      .join('\n'),
  );
  assert.equal(existsSync(scratch), false);
  assert.equal(await leftOfRestore(), "the plan\t1\t['audit_log_taken_by_1f','restore_plan']\n");
  const late =
    "INSERT INTO sluice.stored_events (segment) SETTINGS log_comment = 'store events 67' VALUES (67)";
  await assert.rejects(server.query(late), /Constraint `shard_limits`/);
  await server.restart();
  assert.deepEqual((await counts()).split('\n').sort(), rows);
});

test('a table of which an earlier try has left an empty definition is not taken for there', async (context) => {
  const client = connectClickHouse({ url: server.url, database: 'sluice' });
  context.after(() => client.close());
  const create = () =>
    createUnlessThere(client, 'sluice.tried', 'CREATE TABLE IF NOT EXISTS tried (n Int8) ENGINE = Memory');
  await create();
  await create();
  truncateSync(fileOf('tried'), 0);
  await assert.rejects(create(), DefinitionLost);
});

test('a definition that is changed is lost if its file cannot be read, and no other one is', async (context) => {
  const client = connectClickHouse({ url: server.testerUrl, database: 'sluice', tables: 'plain' });
  context.after(() => client.close());
  const probe = 'CREATE TABLE IF NOT EXISTS probe (a UInt8) ENGINE = Memory';
  await changeDefinition(client, ['probe', 'sluice.users'], probe);
  truncateSync(fileOf('probe'), 0);
  await changeDefinition(client, ['users', 'sluice.stored_events'], probe);
  for (const changed of ['probe', 'sluice.probe'])
    await assert.rejects(changeDefinition(client, ['users', changed], probe), DefinitionLost);
});
