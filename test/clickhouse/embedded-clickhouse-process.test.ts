// The process of the embedded ClickHouse: how it starts, stops, is killed, and what it says when it cannot start.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { appendFileSync, mkdirSync, readFileSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { getPriority } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createControl } from '../../deploy/local/clickhouse/control.js';
import { exitCodeOfFailedWrite } from '../../deploy/local/clickhouse/failed-writes.js';
import { keptFree } from '../../deploy/local/clickhouse/room.js';
import { launch } from '../../deploy/local/launch.js';
import { canMount, createSmallDisk } from '../chaos/small-disk.js';
import { type ClickHouseHandle, startClickHouse } from '../harness/clickhouse.js';
import { plainEnvironment } from '../harness/environment.js';
import { freePort } from '../harness/free-port.js';
import { tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { withoutEngine } from '../harness/without-engine.js';
import { ask, longStatement, running } from '../support/clickhouse-requests.js';

const main = fileURLToPath(new URL('../../deploy/local/clickhouse/main.js', import.meta.url));

let server: ClickHouseHandle;

before(async () => {
  server = await startClickHouse();
});

after(() => server?.remove());

const untilRunning = (own: ClickHouseHandle, queryId: string) =>
  until(async () => (await running(own, queryId)) === 1, `${queryId} runs`);

describe('the process', { concurrency: true }, () => {
  test('runs statements with a lower priority than the process that started it has', async () => {
    const reply = ask(server, { parameters: { query_id: 'nice' }, body: longStatement });
    await untilRunning(server, 'nice');
    // A thread that has merged parts may have been raised since the last look.
    await until(async () => {
      const threads = await server.query(
        "SELECT arrayJoin(thread_ids) FROM system.processes WHERE query_id = 'nice'",
      );
      return threads
        .trim()
        .split('\n')
        .every((thread) => getPriority(Number(thread)) === getPriority() + 5);
    }, 'each thread has the lower priority');
    await server.query("KILL QUERY WHERE query_id = 'nice' SYNC");
    await reply;
  });

  test('lets running statements end when it is stopped, and ends with code 0', async () => {
    const own = await startClickHouse();
    try {
      // This is long enough to be seen on a busy machine, and shorter than a stop waits.
      const body =
        'SELECT sum(sleepEachRow(0.5)) FROM numbers(11) SETTINGS max_block_size = 1, max_threads = 1';
      let isAnswered = false;
      const reply = ask(own, { parameters: { query_id: 'ends' }, body }).finally(() => {
        isAnswered = true;
      });
      // If the machine pauses for longer, the statement has ended, and the stop need not wait.
      await until(async () => isAnswered || (await running(own, 'ends')) === 1, 'the statement runs');
      const [{ status, body: answer }, exit] = await Promise.all([reply, own.sigterm(120_000)]);
      assert.deepEqual([status, answer], [200, '0\n']);
      assert.deepEqual(exit, { code: 0, signal: null });
    } finally {
      await own.remove();
    }
  });

  test('does not take an empty answer for the answer that no statement runs', async () => {
    let answer = '';
    const engine = createServer((_, reply) => reply.end(answer)).listen(0, '127.0.0.1');
    try {
      await once(engine, 'listening');
      const control = createControl((engine.address() as AddressInfo).port, 'secret');
      assert.equal(await control.idleWithin(200), false);
      answer = '0\n';
      assert.equal(await control.idleWithin(10_000), true);
    } finally {
      engine.closeAllConnections();
      engine.close();
    }
  });

  test('kills statements that do not end in time when it is stopped', async () => {
    const own = await startClickHouse();
    try {
      const reply = ask(own, { parameters: { query_id: 'long' }, body: longStatement });
      await untilRunning(own, 'long');
      const [{ body }, exit] = await Promise.all([reply, own.sigterm(120_000)]);
      assert.match(body, /QUERY_WAS_CANCELLED/);
      assert.deepEqual(exit, { code: 0, signal: null });
    } finally {
      await own.remove();
    }
  });

  test('stops within its time while an insert waits for its client, and has stored all that it answered', async () => {
    const own = await startClickHouse();
    try {
      await own.query('CREATE TABLE default.t (a UInt64) ENGINE = MergeTree ORDER BY a');
      await own.query('INSERT INTO default.t SELECT number FROM numbers(1000)');
      await own.query('ALTER TABLE default.t DELETE WHERE a % 2 = 0 AND sleepEachRow(0.002) = 0');
      const query = new URLSearchParams({ query: 'INSERT INTO default.t FORMAT TSV', query_id: 'open' });
      const socket = connect({ host: '127.0.0.1', port: own.port }).on('error', () => undefined);
      const { name, password } = own.tester;
      const head = `POST /?${query} HTTP/1.1\r\nHost: x\r\nX-ClickHouse-User: ${name}\r\nX-ClickHouse-Key: ${password}\r\n`;
      socket.write(`${head}Content-Length: 10000000\r\n\r\n${'1\n'.repeat(300_000)}`);
      await untilRunning(own, 'open');
      assert.deepEqual(await own.sigterm(120_000), { code: 0, signal: null });
      await own.restart();
      await until(
        async () => (await own.query('SELECT count() FROM default.t')) === '500\n',
        'the mutation goes on',
      );
    } finally {
      await own.remove();
    }
  });

  test('comes up again with all its data after kill -9, and keeps deduplicating', async () => {
    const own = await startClickHouse();
    try {
      await own.query(
        'CREATE TABLE default.t (a UInt64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 10',
      );
      const insert = async () => {
        const parameters = { query: 'INSERT INTO default.t FORMAT TSV', insert_deduplication_token: 'once' };
        assert.equal((await ask(own, { parameters, body: '1\n2\n' })).status, 200);
      };
      await insert();
      const passwords = [own.service, own.reader];
      void ask(own, { parameters: { query_id: 'long' }, body: longStatement }).catch(() => undefined);
      await untilRunning(own, 'long');
      await own.kill9();
      await own.restart();
      assert.equal(await own.query('SELECT count() FROM default.t'), '2\n');
      await insert();
      assert.equal(await own.query('SELECT count() FROM default.t'), '2\n');
      for (const as of passwords) assert.equal((await ask(own, { as, body: 'SELECT 1' })).body, '1\n');
    } finally {
      await own.remove();
    }
  });

  test('ends when it cannot write, so that a full disk costs no stored row and no definition', {
    skip: canMount() ? false : 'this machine mounts nothing',
  }, async () => {
    const disk = createSmallDisk();
    const own = await startClickHouse({ dir: disk.dir });
    try {
      const untilEnded = () => until(() => !own.running, 'the engine ends');
      const again = async () => {
        disk.free();
        await own.restart();
        assert.equal(await own.query('SELECT count(), sum(length(s)) FROM default.t'), '200000\t20000000\n');
      };
      await own.query('CREATE TABLE default.t (a UInt64, s String) ENGINE = MergeTree ORDER BY a');
      const insert = 'INSERT INTO default.t SELECT number, randomPrintableASCII(100) FROM numbers(100000)';
      for (let parts = 0; parts < 2; parts += 1) await own.query(insert);
      // From here on a merge of them takes seconds.
      await own.query('ALTER TABLE default.t MODIFY COLUMN s String CODEC(ZSTD(19))');
      const merge = own.query('OPTIMIZE TABLE default.t FINAL').catch((error: Error) => error);
      const progress = () => own.query('SELECT sum(progress) FROM system.merges');
      await until(async () => Number(await progress()) > 0, 'the merge runs');
      disk.fill();
      assert.ok((await merge) instanceof Error, 'a merge without room is not confirmed');
      await untilEnded();
      assert.equal(own.ended?.code, exitCodeOfFailedWrite);
      await again();

      disk.fill();
      await assert.rejects(own.query('ALTER TABLE default.t ADD CONSTRAINT c CHECK a >= 0'));
      await untilEnded();
      await again();
      assert.equal(await own.query('SELECT count() FROM system.detached_parts'), '0\n');

      await own.kill9();
      disk.fill();
      const restarted = own.restart();
      await until(() => own.output().includes('waiting for room'), 'it waits');
      disk.free();
      await restarted;
    } finally {
      await own.kill9();
      disk.remove();
    }
  });

  test('leaves room on the disk: inserts stop first, then merges', {
    skip: canMount() ? false : 'this machine mounts nothing',
  }, async () => {
    const disk = createSmallDisk();
    const own = await startClickHouse({ dir: disk.dir });
    try {
      const freeBytes = () => {
        const { bavail, bsize } = statfsSync(disk.dir);
        return bavail * bsize;
      };
      const kept = keptFree(disk.dir);
      const refused = /Code: 243/;
      for (const table of ['a', 'b']) {
        await own.query(`CREATE TABLE default.${table} (n UInt64, s String) ENGINE = MergeTree ORDER BY n`);
        for (let parts = 0; parts < 2; parts += 1)
          await own.query(`INSERT INTO default.${table} VALUES (1, '')`);
      }
      const fill = async () => {
        // The number is bounded, so that the test also ends on a disk without these settings.
        for (let inserts = 0; inserts < 100; inserts += 1)
          await own.query('INSERT INTO default.a SELECT number, randomString(100) FROM numbers(50000)');
      };
      await assert.rejects(fill(), refused);
      const blockBytes = 6_000_000;
      assert.ok(freeBytes() > 2 * kept - blockBytes, `${freeBytes()} bytes are free`);
      const merge = (table: string) =>
        own.query(`OPTIMIZE TABLE default.${table} FINAL SETTINGS optimize_throw_if_noop = 1`);
      await merge('b');

      await own.query('SYSTEM STOP MERGES default.a');
      const others = join(disk.dir, 'others');
      const takeRoom = () => appendFileSync(others, Buffer.alloc(Math.max(0, freeBytes() - kept / 2)));
      // ClickHouse still removes parts that it has replaced, which gives room.
      let rows = 2;
      const isInsertRefused = async () => {
        takeRoom();
        const answer = await own.query("INSERT INTO default.b VALUES (1, '')").catch(String);
        if (!refused.test(answer)) rows += 1;
        return refused.test(answer);
      };
      await until(isInsertRefused, 'an insert is refused');
      const isMergeRefused = async () => {
        takeRoom();
        return /space/.test(await merge('b').then(() => '', String));
      };
      await until(isMergeRefused, 'a merge is refused');
      assert.equal(await own.query('SELECT count() FROM default.b'), `${rows}\n`);
    } finally {
      await own.kill9();
      disk.remove();
    }
  });

  test('starts however often it is killed while it starts', async () => {
    const own = await startClickHouse();
    try {
      await own.query('CREATE TABLE default.t (a UInt64) ENGINE = MergeTree ORDER BY a');
      await own.query('INSERT INTO default.t VALUES (1)');
      for (const afterMs of [50, 150, 250, 350, 450]) {
        await own.kill9();
        const env = { ...plainEnvironment(), DATA_DIR: own.dir };
        const ports = { CLICKHOUSE_PORT: String(own.port), CLICKHOUSE_TCP_PORT: String(own.tcpPort) };
        const child = launch(
          { command: process.execPath, args: [main], env: { ...env, ...ports } },
          'ignore',
          'KILL',
        );
        // The kills come at moments of the start that nothing outside can see.
        setTimeout(() => child.kill('SIGKILL'), afterMs);
        await once(child, 'exit');
      }
      await own.restart();
      assert.equal(await own.query('SELECT count() FROM default.t'), '1\n');
      assert.equal((await ask(own, { as: own.service, body: 'SELECT 1' })).body, '1\n');
    } finally {
      await own.remove();
    }
  });

  test('makes passwords that only their owner can read, once', () => {
    for (const name of ['clickhouse-password', 'clickhouse-reader-password', 'clickhouse-users.xml']) {
      assert.equal(statSync(join(server.dir, name)).mode & 0o777, 0o600, name);
    }
    for (const { password } of [server.service, server.reader]) {
      assert.match(password, /^[\w-]{32}$/);
      assert.equal(readFileSync(join(server.dir, 'clickhouse-users.xml'), 'utf8').includes(password), false);
      assert.equal(readFileSync(`/proc/${server.pid}/cmdline`, 'utf8').includes(password), false);
    }
  });

  test('makes a password again if a first start was killed before it was written', async () => {
    const dir = tempDir('clickhouse-cut');
    writeFileSync(join(dir, 'clickhouse-password'), '');
    const own = await startClickHouse({ dir });
    assert.equal((await ask(own, { as: own.service, body: 'SELECT 1' })).body, '1\n');
    await own.remove();
  });

  test('takes settings from files of the administrator', async () => {
    const dir = tempDir('clickhouse settings & more');
    mkdirSync(join(dir, 'clickhouse.d'));
    const setting = '<clickhouse><mark_cache_size>12345678</mark_cache_size></clickhouse>';
    writeFileSync(join(dir, 'clickhouse.d', 'own.xml'), setting);
    const own = await startClickHouse({ dir });
    const sql = "SELECT value FROM system.server_settings WHERE name = 'mark_cache_size'";
    assert.equal(await own.query(sql), '12345678\n');
    await own.remove();
  });

  test('says in one line what is wrong with its ports or its data directory', async () => {
    const dir = tempDir('clickhouse-start');
    const file = join(dir, 'file');
    writeFileSync(file, '');
    const broken = tempDir('clickhouse-broken');
    mkdirSync(join(broken, 'clickhouse/metadata'), { recursive: true });
    writeFileSync(join(broken, 'clickhouse/metadata/sluice.sql'), 'nonsense');
    const [port, tcpPort] = [String(await freePort()), String(await freePort())];
    const starts: [NodeJS.ProcessEnv, RegExp][] = [
      [{ CLICKHOUSE_PORT: String(server.port) }, /^sluice: CLICKHOUSE_PORT: .*in use.*\n$/],
      [{ CLICKHOUSE_TCP_PORT: String(server.tcpPort) }, /^sluice: CLICKHOUSE_TCP_PORT: .*in use.*\n$/],
      [{ DATA_DIR: server.dir }, /^sluice: DATA_DIR: .* in use by process \d+\n$/],
      [{ DATA_DIR: file }, /^sluice: DATA_DIR: .*\n$/],
      [{ CLICKHOUSE_PORT: 'x' }, /^sluice: CLICKHOUSE_PORT .*\n$/],
      [{ DATA_DIR: broken }, /Syntax error.*\nsluice: DATA_DIR: .* cannot be used: .+\n$/],
    ];
    for (const [env, line] of starts) {
      const { output, code } = await startFailing({
        DATA_DIR: dir,
        CLICKHOUSE_PORT: port,
        CLICKHOUSE_TCP_PORT: tcpPort,
        ...env,
      });
      assert.match(output, line);
      assert.equal(code, 1);
    }
    assert.equal(await server.query('SELECT 1'), '1\n');
  });

  test('says in one line that the engine of this platform is missing, and what to set', async () => {
    const env = { DATA_DIR: tempDir('clickhouse-missing'), NODE_OPTIONS: withoutEngine };
    const { output, code } = await startFailing(env);
    assert.match(
      output,
      /^sluice: the embedded ClickHouse is not there .*@chdb\/lib-\S+: set CLICKHOUSE_URL .*\n$/,
    );
    assert.equal(code, 1);
  });
});

async function startFailing(env: NodeJS.ProcessEnv): Promise<{ output: string; code: number | null }> {
  const program = { command: process.execPath, args: [main], env: { ...plainEnvironment(), ...env } };
  const child = launch(program, ['ignore', 'ignore', 'pipe'], 'KILL');
  const late = setTimeout(() => child.kill('SIGKILL'), 120_000);
  assert.ok(child.stderr);
  const [output, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  clearTimeout(late);
  return { output, code };
}
