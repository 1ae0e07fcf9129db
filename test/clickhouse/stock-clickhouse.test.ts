// deploy/clickhouse: what a freshly installed ClickHouse server needs for Sluice.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { keptFreeBytesMax } from '../../deploy/local/clickhouse/limits.js';
import { runMigrations } from '../harness/administration.js';
import type { Child } from '../harness/child.js';
import { tempDir } from '../harness/temp-dir.js';
import { readDeployFile } from '../support/deploy-file.js';
import { startStockClickHouse } from '../support/stock-clickhouse.js';

const started: Child[] = [];
after(() => Promise.all(started.map((child) => child.stop())));

const xml = readDeployFile('clickhouse', 'sluice.xml').replace(
  '<path>/backups/</path>',
  `<path>${tempDir('stock-backups')}/</path>`,
);

async function start(files: Readonly<Record<string, string>>) {
  const server = await startStockClickHouse(files);
  started.push(server);
  const ask = async (sql: string, parameters: Record<string, string> = {}): Promise<string> => {
    const reply = await fetch(`${server.origin}/?${new URLSearchParams(parameters)}`, {
      method: 'POST',
      body: sql,
    });
    return reply.text();
  };
  const query = async (sql: string): Promise<string> => {
    const reply = await fetch(server.origin, { method: 'POST', body: sql });
    const text = await reply.text();
    assert.equal(reply.status, 200, `${sql}\n${text}`);
    return text.trim();
  };
  return { server, ask, query };
}

/** The tables of the server's own logs that grow without end. */
async function growing(query: (sql: string) => Promise<string>): Promise<string[]> {
  await query('SELECT sleep(1.1)');
  await query('SYSTEM FLUSH LOGS');
  const names = await query(
    "SELECT name FROM system.tables WHERE database = 'system' AND engine LIKE '%MergeTree' AND engine_full NOT LIKE '% TTL %' ORDER BY name",
  );
  return names.split('\n').filter((name) => name !== '');
}

test('a server with sluice.xml starts, has no such logs, and makes backups only on their disk', async () => {
  const { query, server } = await start({ 'sluice.xml': xml });
  assert.deepEqual(await growing(query), []);

  await runMigrations({ REDIS_URL: 'redis://127.0.0.1:1', CLICKHOUSE_URL: server.origin });
  assert.match(await query("BACKUP DATABASE sluice TO Disk('backups', 'one')"), /BACKUP_CREATED/);
  await assert.rejects(query("BACKUP DATABASE sluice TO Disk('default', 'one')"), /not allowed/);
  await query('SYSTEM FLUSH LOGS');
  for (const log of ['part_log', 'backup_log'])
    assert.equal(await query(`SELECT count() > 0 FROM system.${log}`), '1', log);
});

/** Runs statements that fail for their data, or contain data. */
async function failFor(name: string, { ask, query, server }: Awaited<ReturnType<typeof start>>) {
  await query('CREATE TABLE seen (identity String, time DateTime) ENGINE = MergeTree ORDER BY identity');
  await query(`INSERT INTO seen VALUES ('${name}', now())`);
  const notTime = await ask(`INSERT INTO seen FORMAT JSONCompactEachRow\n["${name}", "yesterday"]`);
  const notNumber = await ask('SELECT sum(toUInt8(identity)) FROM seen');
  const elsewhere = await ask(
    `SELECT sum(toUInt8(identity)) FROM remote('127.0.0.1:${server.nativePort}', default.seen) SETTINGS prefer_localhost_replica = 0`,
  );
  for (const said of [notTime, notNumber, elsewhere])
    assert.match(said, new RegExp(`Exception.*${name}`, 's'));
  assert.equal((await ask('SELECT {identity:String}', { param_identity: name })).trim(), name);
  await query('SYSTEM FLUSH LOGS');
}

/** The server's logs, in the file and in tables, that contain a text. The text needs more than hexadecimal digits, since ids have those. */
async function logsWith(text: string, file: string, query: (sql: string) => Promise<string>) {
  const tables = await query(
    "SELECT name FROM system.tables WHERE database = 'system' AND name LIKE '%\\_log'",
  );
  const found = readFileSync(file, 'utf8').includes(text) ? ['file'] : [];
  for (const table of tables.split('\n').filter((name) => name !== '')) {
    const rows = `SELECT toString(tuple(*)) AS row FROM system.${table}`;
    // This query itself is logged too.
    const held = `row LIKE '%${text}%' AND row NOT LIKE '%row LIKE%'`;
    if ((await query(`SELECT count() > 0 FROM (${rows}) WHERE ${held}`)) === '1') found.push(table);
  }
  return found;
}

test('a server with sluice.xml leaves as much room on its disk as the embedded one', async () => {
  const { query } = await start({ 'sluice.xml': xml });
  assert.equal(
    await query("SELECT keep_free_space FROM system.disks WHERE name = 'default'"),
    String(keptFreeBytesMax),
  );
  const ofInserts =
    "SELECT value FROM system.merge_tree_settings WHERE name = 'min_free_disk_bytes_to_perform_insert'";
  assert.equal(await query(ofInserts), String(keptFreeBytesMax));
});

test('a freshly installed server writes users into logs that grow without end, and one with sluice.xml does not', async () => {
  const asInstalled = await start({});
  await failFor('zoltan', asInstalled);
  const found = await logsWith('zoltan', asInstalled.server.errorLog, asInstalled.query);
  for (const log of ['file', 'query_log', 'text_log', 'error_log'])
    assert.ok(found.includes(log), `${log} of ${found}`);
  assert.ok((await growing(asInstalled.query)).includes('query_log'));

  // A file gets what would go to the console.
  const file = join(tempDir('stock-log'), 'warnings.log');
  const console = '<console>1</console>';
  const toFile = xml.replace(console, `<errorlog>${file}</errorlog><errorlog_level>warning</errorlog_level>`);
  assert.notEqual(toFile, xml);
  const configured = await start({ 'sluice.xml': toFile });
  await failFor('zoltan', configured);
  assert.deepEqual(await logsWith('zoltan', file, configured.query), []);
  assert.match(readFileSync(file, 'utf8'), /<(Warning|Error)>/, 'the file has other faults');
  assert.equal(existsSync(configured.server.errorLog), false);
});
