// The process of the embedded ClickHouse: how it starts, stops, is killed, and what it says when it cannot start.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { threadPoolSize } from '../deploy/local/clickhouse/limits.js';
import { launch } from '../deploy/local/launch.js';
import { type ClickHouseHandle, startClickHouse } from './support/clickhouse.js';
import { enginePidOf, longStatement, processesOf } from './support/embedded-clickhouse.js';
import { plainEnvironment } from './support/environment.js';
import { freePort } from './support/free-port.js';
import { tempDir } from './support/temp-dir.js';
import { until } from './support/wait.js';

const main = fileURLToPath(new URL('../deploy/local/clickhouse/main.js', import.meta.url));

let server: ClickHouseHandle;

before(async () => {
  server = await startClickHouse();
});

after(() => server?.remove());

describe('the process', { concurrency: true }, () => {
  test('lets running statements end when it is stopped, and ends with code 0', async () => {
    const own = await startClickHouse();
    try {
      // Long enough to be seen on a busy machine, and shorter than what a stop waits for.
      const body =
        'SELECT sum(sleepEachRow(0.5)) FROM numbers(11) SETTINGS max_block_size = 1, max_threads = 1';
      const running = fetch(own.url, { method: 'POST', body });
      await until(async () => (await processesOf(own.url)) > 1, {
        deadlineMs: 30_000,
        what: 'the query runs',
      });
      const exit = own.sigterm();
      const reply = await running;
      assert.equal(reply.status, 200);
      assert.equal(await reply.text(), '0\n');
      assert.deepEqual(await exit, { code: 0, signal: null });
    } finally {
      await own.remove();
    }
  });

  test('kills statements that do not end in time when it is stopped', async () => {
    const own = await startClickHouse();
    try {
      const reply = fetch(own.url, { method: 'POST', body: longStatement });
      await until(async () => (await processesOf(own.url)) > 1, {
        deadlineMs: 30_000,
        what: 'the query runs',
      });
      const exit = own.sigterm();
      assert.equal((await reply).headers.get('x-clickhouse-exception-code'), '394');
      assert.deepEqual(await exit, { code: 0, signal: null });
    } finally {
      await own.remove();
    }
  });

  test('is one process where it is started with enough threads', async () => {
    const own = await startClickHouse({ env: { UV_THREADPOOL_SIZE: String(threadPoolSize) } });
    assert.equal(enginePidOf(own), own.pid);
    await own.remove();
  });

  test('comes up again with all its data after kill -9, and keeps deduplicating', async () => {
    const own = await startClickHouse();
    try {
      await own.query(
        'CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 10',
      );
      const insert = async () => {
        const query = 'INSERT INTO t FORMAT TSV';
        const parameters = new URLSearchParams({ query, insert_deduplication_token: 'once' });
        const reply = await fetch(`${own.url}/?${parameters}`, { method: 'POST', body: '1\n2\n' });
        assert.equal(reply.status, 200);
      };
      await insert();
      void own.query(longStatement).catch(() => undefined);
      await until(async () => (await processesOf(own.url)) > 1, {
        deadlineMs: 30_000,
        what: 'the query runs',
      });
      writeFileSync(join(own.dir, 'clickhouse-exchange', 'insert-1000'), 'of a process that was killed');
      const pid = enginePidOf(own);
      await own.kill9();
      await until(() => !isAlive(pid), { deadlineMs: 30_000, what: 'the engine is gone' });
      await own.restart();
      assert.equal(await own.query('SELECT count() FROM t'), '2\n');
      await insert();
      assert.equal(await own.query('SELECT count() FROM t'), '2\n');
      assert.throws(() => readFileSync(join(own.dir, 'clickhouse-exchange', 'insert-1000')), {
        code: 'ENOENT',
      });
    } finally {
      await own.remove();
    }
  });

  test('says in one line what is wrong with its port or its data directory', async () => {
    const dir = tempDir('clickhouse-start');
    const file = join(dir, 'file');
    writeFileSync(file, '');
    const port = String(await freePort());
    const starts: [NodeJS.ProcessEnv, RegExp][] = [
      [{ DATA_DIR: dir, CLICKHOUSE_PORT: String(server.port) }, /^sluice: CLICKHOUSE_PORT: .*in use.*\n$/],
      [{ DATA_DIR: server.dir, CLICKHOUSE_PORT: port }, /^sluice: DATA_DIR: .* in use by process \d+\n$/],
      [{ DATA_DIR: file, CLICKHOUSE_PORT: port }, /^sluice: DATA_DIR: .*\n$/],
      [{ DATA_DIR: dir, CLICKHOUSE_PORT: 'x' }, /^sluice: CLICKHOUSE_PORT .*\n$/],
    ];
    for (const [env, line] of starts) {
      const program = { command: process.execPath, args: [main], env: { ...plainEnvironment(), ...env } };
      const child = launch(program, ['ignore', 'ignore', 'pipe'], 'KILL');
      const late = setTimeout(() => child.kill('SIGKILL'), 30_000);
      assert.ok(child.stderr);
      const [output, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
      clearTimeout(late);
      assert.match(output, line);
      assert.equal(code, 1);
    }
    assert.equal(await server.query('SELECT 1'), '1\n');
  });
});

/** False also for a process that has ended and that nobody has asked about yet. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s*[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
