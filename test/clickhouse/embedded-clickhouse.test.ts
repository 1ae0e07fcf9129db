// The embedded ClickHouse as programs see it: its own servers over HTTP and the native protocol, who may do what, and
// what clients that misbehave do to it.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { functions } from '../../deploy/local/clickhouse/functions.js';
import {
  readerGrants,
  serviceClusterGrants,
  serviceGrants,
  serviceRevokes,
} from '../../deploy/local/clickhouse/users.js';
import { type ClickHouseHandle, startClickHouse } from '../harness/clickhouse.js';
import { inShell } from '../harness/shell.js';
import { runProgram } from '../harness/sluice.js';
import { until } from '../harness/wait.js';
import { ask, type Question } from '../support/clickhouse-requests.js';
import { filesWith } from '../support/traces.js';

let server: ClickHouseHandle;

before(async () => {
  server = await startClickHouse({ env: { TZ: 'America/New_York' } });
  await runProgram('src/migrate.js', [], { ...process.env, CLICKHOUSE_URL: server.url });
  await server.query('CREATE DATABASE work');
});

after(() => server?.remove());

test('a program can use curl, and gets times in UTC', async () => {
  const password = `$(cat ${join(server.dir, 'clickhouse-reader-password')})`;
  const curl = `curl -sS --fail-with-body -u "reader:${password}" '${server.origin}/?database=sluice'`;
  const sql = 'SELECT currentUser(), timezone(), count() FROM events';
  assert.equal(await inShell(`${curl} -d '${sql}'`), 'reader\tUTC\t0\n');
});

describe('the process', () => {
  test('outlives clients that send nonsense or reset their connections', async () => {
    const { pid } = server;
    const post = (text: string) => `POST / HTTP/1.1\r\nHost: x\r\n${authorization()}${text}`;
    const http = [
      '',
      'POST / HT',
      post(''),
      post('Content-Length: 100\r\n\r\nSELECT 1'),
      post('Content-Length: abc\r\n\r\nSELECT 1'),
      post('Transfer-Encoding: chunked\r\n\r\nzz\r\nSELECT 1'),
      post('Content-Length: 36\r\n\r\nSELECT number FROM system.numbers    '),
      'GET /ping HTTP/1.1\r\nHost: x\r\n\r\n',
      'GET /ping HTTP/1.1\r\nHost: x\r\n\r\nGET /pi',
      'GET / HTTP/9.9\r\nHost: x\r\n\r\n',
      `GET /${'a'.repeat(100_000)} HTTP/1.1\r\n\r\n`,
      '\0\x16\x03\x01\x02\0'.repeat(100),
    ];
    const native = [
      '',
      'GET / HTTP/1.1\r\n\r\n',
      '\0'.repeat(5000),
      '\0\x06client\x01',
      '\0\xff\xff\xff\xff\x7fxx',
    ];
    const all = [
      ...http.map((text) => ({ text, port: server.port })),
      ...native.map((text) => ({ text, port: server.tcpPort })),
    ];
    const send = async ({ text, port }: (typeof all)[number], end: 'reset' | 'reset later' | 'close') => {
      const socket = connect({ host: '127.0.0.1', port }).on('error', () => undefined);
      await once(socket, 'connect');
      socket.write(Buffer.from(text, 'latin1'));
      // On a connection that was kept alive after an answer, the engine waits for the next request.
      if (end === 'reset later' && text.startsWith('GET /ping')) await once(socket, 'data');
      if (end === 'close') socket.destroy();
      else socket.resetAndDestroy();
    };
    for (let times = 0; times < 20; times += 1) {
      await Promise.all(
        all.flatMap((one) => (['reset', 'reset later', 'close'] as const).map((end) => send(one, end))),
      );
    }
    await until(async () => (await connections()) <= 5, 'the connections have ended');
    assert.equal(await server.query('SELECT 1'), '1\n');
    assert.deepEqual([server.pid, server.running], [pid, true]);
  });

  test('serves 1,000 connections at once', async () => {
    const sockets = await Promise.all(
      Array.from({ length: 1000 }, async () => {
        const socket = connect({ host: '127.0.0.1', port: server.port });
        await once(socket, 'connect');
        return socket;
      }),
    );
    const answers = sockets.map(async (socket) => {
      socket.write(`GET /?query=SELECT+1 HTTP/1.1\r\nHost: localhost\r\n${authorization()}\r\n`);
      const [head] = (await once(socket, 'data')) as [Buffer];
      return head.toString('latin1', 0, 15);
    });
    assert.deepEqual(new Set(await Promise.all(answers)), new Set(['HTTP/1.1 200 OK']));
    for (const socket of sockets) socket.destroy();
  });

  test('refuses a query that wants too much memory, and continues', async () => {
    const body = 'SELECT groupArray(number) FROM numbers(2000000000)';
    const { exceptionCode } = await ask(server, { as: server.reader, body });
    assert.equal(exceptionCode, '241');
    assert.equal(await server.query('SELECT 1'), '1\n');
  });

  test('has the defaults of a server, and little memory for caches', async () => {
    const settings = "SELECT getSetting('implicit_select'), getSetting('mutations_sync')";
    assert.equal(await server.query(settings), 'false\t0\n');
    const lifetime = "SELECT value FROM system.merge_tree_settings WHERE name = 'old_parts_lifetime'";
    assert.equal(await server.query(lifetime), '480\n');
    const changed =
      "SELECT name, value FROM system.server_settings WHERE changed AND name LIKE '%\\_cache\\_size' ORDER BY name";
    assert.equal(
      await server.query(changed),
      'index_mark_cache_size\t67108864\nmark_cache_size\t268435456\nprimary_index_cache_size\t268435456\n',
    );
  });

  test('carries out a mutation of many parts at once, though it has few slots', async () => {
    await server.query(
      'CREATE TABLE work.parts (a UInt64, p UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY a',
    );
    await server.query('INSERT INTO work.parts SELECT 1, number FROM numbers(84)');
    const times: number[] = [];
    // Each mutation would take 12 s if the next part only began at the next check. A busy machine delays some, but not all.
    while (times.length < 3 && !times.some((ms) => ms < 6_000)) {
      const startedAt = performance.now();
      const which = 5 + times.length;
      await server.query(`ALTER TABLE work.parts DELETE WHERE a = ${which} SETTINGS mutations_sync = 1`);
      times.push(performance.now() - startedAt);
    }
    assert.ok(Math.min(...times) < 6_000, `${times.map(Math.round)} ms`);
  });

  test('keeps no log tables, and writes no statement anywhere', async () => {
    const logs = "SELECT count() FROM system.tables WHERE database = 'system' AND name LIKE '%\\_log'";
    assert.equal(await server.query(logs), '0\n');
    const secret = 'ada.lovelace@example.com';
    await ask(server, { body: `SELECT '${secret}', nosuch` });
    await ask(server, { parameters: { query: 'INSERT INTO nosuch FORMAT TSV' }, body: secret });
    assert.equal(server.output().includes(secret), false);
    assert.deepEqual(filesWith(server.dir, [secret]), []);
  });
});

describe('access', () => {
  const denied = async (question: Question) => (await ask(server, question)).exceptionCode;

  test('needs a user and a password', async () => {
    const body = 'SELECT 1';
    assert.equal(await denied({ as: { name: 'sluice', password: 'wrong' }, body }), '516');
    assert.equal(await denied({ as: { name: 'sluice', password: '' }, body }), '516');
    assert.equal(await denied({ as: { name: 'nobody', password: '' }, body }), '516');
    assert.equal((await ask(server, { as: server.service, body })).body, '1\n');
  });

  test('is denied to the user of the start, who has no password', async () => {
    // A session may be locked until just after its request was answered, so each request names its own.
    const ways: (() => Record<string, string>)[] = [
      () => ({}),
      () => ({ max_sessions_for_user: '100' }),
      () => ({ session_id: randomUUID() }),
      () => ({ user: 'default' }),
    ];
    for (const parameters of ways) {
      for (const as of [null, { name: 'default', password: '' }]) {
        for (const body of ['SELECT 1', 'SYSTEM STOP LISTEN HTTP']) {
          assert.match(String(await denied({ as, parameters: parameters(), body })), /^(700|516)$/);
        }
      }
    }
    const native = `SELECT * FROM remote('127.0.0.1:${server.tcpPort}', system.one, 'default', '')`;
    await assert.rejects(server.query(native), /USER_SESSION_LIMIT_EXCEEDED/);
  });

  test('to files, to other servers and to users is denied to the service and to the reader', async () => {
    await server.query('CREATE TABLE work.private (a UInt8) ENGINE = MergeTree ORDER BY a');
    for (const as of [server.service, server.reader]) {
      for (const body of [
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        'SELECT * FROM default.`/etc/passwd`',
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        `SELECT * FROM remote('127.0.0.1:${server.tcpPort}', system.one)`,
        "SELECT * FROM mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')",
        'CREATE TABLE sluice.file (a UInt8) ENGINE = File(CSV)',
        "CREATE TABLE sluice.remote (a UInt8) ENGINE = Distributed('default', 'system', 'one')",
        'CREATE USER somebody',
        'CREATE DATABASE other',
        'CREATE TABLE work.other (a UInt8) ENGINE = Memory',
        'CREATE FUNCTION f AS x -> x',
        'SELECT * FROM work.private',
        'SELECT * FROM system.users',
        'SYSTEM STOP LISTEN HTTP',
        'SYSTEM SHUTDOWN',
        'DROP TABLE work.private',
      ]) {
        assert.equal(await denied({ as, body }), '497', `${as.name}: ${body}`);
      }
    }
  });

  test('of the reader is to read the tables of the page for analysts with what these are made of, and nothing else', async () => {
    const as = server.reader;
    const shown = (await ask(server, { as, body: 'SHOW TABLES FROM sluice' })).body.trim().split('\n');
    for (const table of shown)
      assert.equal(
        (await ask(server, { as, body: `SELECT count() FROM sluice.${table}` })).body,
        '0\n',
        table,
      );
    const described = shown.filter((table) => !/^(?:stored|merged)_/.test(table));
    const page = readFileSync(new URL('../../../src/clickhouse/README.md', import.meta.url), 'utf8');
    const [tables = ''] = page.split('\n## ');
    const rows = [...tables.matchAll(/^\| (`\w+`(?:, `\w+`)*) \|/gm)].map(([, names]) => names ?? '');
    const onPage = rows.flatMap((names) => names.split(', ')).map((name) => name.slice(1, -1));
    assert.deepEqual(described, onPage.sort());
    const bare = `SELECT table FROM system.tables WHERE database = 'sluice' AND comment = ''
      UNION ALL SELECT table || '.' || name FROM system.columns WHERE database = 'sluice' AND comment = ''`;
    const { body: undescribed } = await ask(server, { as, body: bare });
    assert.deepEqual(
      undescribed.split('\n').filter((name) => described.includes(name.split('.')[0] ?? '')),
      [],
    );
    for (const body of [
      'SELECT count() FROM sluice.stored_keys',
      'SELECT count() FROM sluice.deletion_targets',
      'SELECT count() FROM sluice.suppressed_names',
      "INSERT INTO sluice.failed_events (row) VALUES ('')",
      'ALTER TABLE sluice.stored_events DELETE WHERE 1',
      'CREATE TABLE sluice.other (a UInt8) ENGINE = Memory',
      'TRUNCATE TABLE sluice.stored_events',
      'DROP DATABASE sluice',
      'SELECT document FROM sluice.registry',
      'KILL QUERY WHERE 1',
      "BACKUP DATABASE sluice TO Disk('backups', 'of the reader')",
    ]) {
      assert.equal(await denied({ as, body }), '497', body);
    }
    const settings = (max_memory_usage: string) => ({
      as,
      parameters: { max_memory_usage },
      body: 'SELECT 1',
    });
    assert.equal(await denied(settings('1000000000')), undefined);
    for (const bytes of ['0', '1000000000000']) assert.equal(await denied(settings(bytes)), '452');
  });

  test('of the reader to one user’s rows reads a few granules of the tables, not all of them', async () => {
    const users = 100_000;
    const rows = (values: string) => `SELECT '1', ${values}, number, 1764000000000000 FROM numbers(${users})`;
    const into = (table: string, columns: string, values: string) =>
      server.query(`INSERT INTO sluice.${table} (app_id, ${columns}, row_number, segment) ${rows(values)}`);
    try {
      const someone = "'u' || toString(number)";
      await into('stored_events', 'event, identity', `'e', ${someone}`);
      await into('stored_events', 'event, user_id', `'e', number`);
      await into('stored_user_properties', 'identity, properties', `${someone}, map('plan', 'pro')`);
      await server.query(`INSERT INTO sluice.stored_user_identities (app_id, user_id, identity, row_number, segment)
        SELECT '1', 7000, 'u77', 1, 1764000000000000`);
      const read = async (columns: string, from: string) => {
        const parameters = { database: 'sluice', wait_end_of_query: '1' };
        const body = `SELECT ${columns} FROM ${from}`;
        const answer = await ask(server, { as: server.reader, parameters, body });
        const summary = JSON.parse(String(answer.headers.get('x-clickhouse-summary'))) as {
          read_rows: string;
        };
        return { body: answer.body, read: Number(summary.read_rows) };
      };
      const one = "WHERE app_id = '1' AND identity = 'u77'";
      const user = await read("person, user_ids, properties['plan']", `users ${one}`);
      assert.equal(user.body, 'u77\t[7000]\tpro\n');
      const events = await read(
        "person, user_properties['plan'], count()",
        `user_events ${one} GROUP BY ALL`,
      );
      assert.equal(events.body, 'u77\tpro\t2\n');
      const all = await read('uniqExact(person), uniqExact(identity)', "user_events WHERE app_id = '1'");
      assert.equal(all.body, `${2 * users - 1}\t${users + 1}\n`);
      assert.ok(all.read >= 2 * users, `${all.read} rows`);
      for (const { read } of [user, events]) assert.ok(read < users / 2, `${read} rows`);
    } finally {
      for (const table of ['stored_events', 'stored_user_properties', 'stored_user_identities'])
        await server.query(`TRUNCATE TABLE sluice.${table}`);
    }
  });

  test('of the service includes a backup to the disk of backups, and a restore', async () => {
    const as = server.service;
    const run = async (body: string) => assert.equal((await ask(server, { as, body })).status, 200, body);
    await run("INSERT INTO sluice.failed_events (row) VALUES ('kept')");
    await run("BACKUP DATABASE sluice TO Disk('backups', 'one')");
    await run('DROP DATABASE sluice SYNC');
    await run("RESTORE DATABASE sluice FROM Disk('backups', 'one')");
    assert.equal(await server.query("SELECT count() FROM sluice.failed_events WHERE row = 'kept'"), '1\n');
    const elsewhere = await ask(server, { as, body: `BACKUP DATABASE sluice TO File('${server.dir}/x')` });
    assert.equal(elsewhere.status, 500);
  });

  test('is not possible from other addresses', async () => {
    const addresses = Object.values(networkInterfaces())
      .flat()
      .filter((address) => address && !address.internal);
    for (const address of addresses) {
      for (const port of [server.port, server.tcpPort]) {
        const socket = connect({ host: address?.address, port });
        const [error] = await once(socket, 'error');
        assert.match(String(error.code), /ECONNREFUSED|EHOSTUNREACH|EINVAL|ENETUNREACH/);
      }
    }
  });

  test("on a server of one's own is given by the same grants, and functions are the same", async () => {
    const file = fileURLToPath(new URL('../../../deploy/clickhouse/users.sql', import.meta.url));
    const text = readFileSync(file, 'utf8');
    const ofSeveral = [...text.matchAll(/^-- GRANT (.*) TO sluice;$/gm)].map(([, grant]) => grant);
    assert.deepEqual(ofSeveral, serviceClusterGrants);
    const statements = text
      .replaceAll(/^--.*\n/gm, '')
      .split(';')
      .map((statement) => statement.trim())
      .filter((statement) => statement !== '');
    for (const statement of statements) await server.query(`EXPLAIN AST ${statement}`);
    const granted = (name: string) =>
      statements.flatMap((statement) => new RegExp(`^GRANT (.*) TO ${name}$`).exec(statement)?.[1] ?? []);
    assert.deepEqual(granted('sluice'), serviceGrants('sluice'));
    const revoked = (user: string) =>
      statements.flatMap((statement) => new RegExp(`^REVOKE (.*) FROM ${user}$`).exec(statement)?.[1] ?? []);
    assert.deepEqual(revoked('sluice'), serviceRevokes('sluice'));
    assert.deepEqual(granted('reader'), readerGrants('sluice'));
    const made = statements.filter((statement) => statement.startsWith('CREATE FUNCTION'));
    assert.deepEqual(
      made.map((statement) => statement.replace(' IF NOT EXISTS', '')),
      Object.values(functions),
    );
  });
});

/** How many connections the engine has, this one included. */
async function connections(): Promise<number> {
  const sql = "SELECT sum(value) FROM system.metrics WHERE metric IN ('HTTPConnection', 'TCPConnection')";
  return Number(await server.query(sql));
}

/** The tester's credentials, as a header of a raw request. */
function authorization(): string {
  return `X-ClickHouse-User: ${server.tester.name}\r\nX-ClickHouse-Key: ${server.tester.password}\r\n`;
}
