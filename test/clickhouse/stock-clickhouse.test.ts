// deploy/clickhouse: what a freshly installed ClickHouse server needs for Sluice.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { runMigrations } from '../../harness/administration.js';
import type { Child } from '../../harness/child.js';
import { tempDir } from '../../harness/temp-dir.js';
import { until } from '../../harness/wait.js';
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
  const query = async (sql: string): Promise<string> => {
    const reply = await fetch(server.origin, { method: 'POST', body: sql });
    const text = await reply.text();
    assert.equal(reply.status, 200, `${sql}\n${text}`);
    return text.trim();
  };
  return { query, origin: server.origin };
}

/** The tables of the server's own logs that grow without end. */
async function growing(query: (sql: string) => Promise<string>): Promise<string[]> {
  await query('SELECT sleep(1.1)');
  await query('SYSTEM FLUSH LOGS');
  const names = await query(
    "SELECT name FROM system.tables WHERE database = 'system' AND engine LIKE '%MergeTree' AND engine_full NOT LIKE '% TTL %' AND name != 'crash_log' ORDER BY name",
  );
  return names.split('\n').filter((name) => name !== '');
}

test('a freshly installed server has logs that grow without end', async () => {
  const { query } = await start({});
  // Each is made when it is first written.
  await until(
    async () => {
      const names = await growing(query);
      for (const name of ['query_log', 'metric_log', 'error_log', 'query_metric_log', 'trace_log'])
        assert.ok(names.includes(name), `${name} is among ${names.join(', ')}`);
      return true;
    },
    { deadlineMs: 60_000, what: 'it has them all' },
  );
});

test('with sluice.xml it starts, has no such logs, and makes backups only on their disk', async () => {
  const { query, origin } = await start({ 'sluice.xml': xml });
  assert.deepEqual(await growing(query), []);
  assert.equal(await query('SELECT count() > 0 FROM system.query_log'), '1');

  await runMigrations({ REDIS_URL: 'redis://127.0.0.1:1', CLICKHOUSE_URL: origin });
  assert.match(await query("BACKUP DATABASE sluice TO Disk('backups', 'one')"), /BACKUP_CREATED/);
  await assert.rejects(query("BACKUP DATABASE sluice TO Disk('default', 'one')"), /not allowed/);
});

test('it would not start if the file added to the server’s sections instead of replacing them', async () => {
  await assert.rejects(start({ 'sluice.xml': xml.replaceAll(' replace="1"', '') }), /Code: 36/);
});
