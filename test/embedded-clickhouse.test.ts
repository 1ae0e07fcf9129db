import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, before, beforeEach, describe, test } from 'node:test';
import { gunzipSync, gzipSync } from 'node:zlib';
import { type ClickHouseClient, ClickHouseError, ClickHouseLogLevel, createClient } from '@clickhouse/client';
import fc from 'fast-check';
import { DataFile } from '../deploy/local/clickhouse/data-file.js';
import { readSessionsMax } from '../deploy/local/clickhouse/limits.js';
import { type ClickHouseHandle, startClickHouse } from './support/clickhouse.js';
import { enginePidOf, longStatement } from './support/embedded-clickhouse.js';
import { tempDir } from './support/temp-dir.js';
import { until } from './support/wait.js';

let server: ClickHouseHandle;
let client: ClickHouseClient;

before(async () => {
  server = await startClickHouse({ env: { TZ: 'America/New_York' } });
  client = clientOf(server);
});

after(async () => {
  await client?.close();
  await server?.remove();
});

describe('a query', () => {
  test('is answered through the official client, in its default format', async () => {
    assert.deepEqual(await client.ping(), { success: true });
    assert.deepEqual(await client.ping({ select: true }), { success: true });
    const result = await client.query({ query: 'SELECT number, toString(number) AS text FROM numbers(2)' });
    const { data, rows } = await result.json<unknown>();
    assert.deepEqual(data, [
      { number: 0, text: '0' },
      { number: 1, text: '1' },
    ]);
    assert.equal(rows, 2);
  });

  test('is taken from the URL, from the body, and from both together', async () => {
    assert.equal((await ask('GET', { query: 'SELECT 1' })).body, '1\n');
    assert.equal((await ask('POST', {}, 'SELECT 2')).body, '2\n');
    assert.equal((await ask('POST', { query: 'SELECT 3,' }, '4')).body, '3\t4\n');
    assert.equal((await ask('GET', {})).body, 'Ok.\n');
    assert.equal((await ask('GET', {}, undefined, {}, '/ping')).body, 'Ok.\n');
    assert.equal((await ask('GET', {}, undefined, {}, '/nothing')).status, 404);
  });

  test('has the format of its FORMAT clause, else of default_format, else TabSeparated', async () => {
    const format = async (sql: string, parameters = {}, headers = {}) =>
      (await ask('POST', parameters, sql, headers)).headers['x-clickhouse-format'];
    assert.equal(await format('SELECT 1'), 'TabSeparated');
    assert.equal(await format('SELECT 1', { default_format: 'CSV' }), 'CSV');
    assert.equal(await format('SELECT 1', {}, { 'X-ClickHouse-Format': 'JSONEachRow' }), 'JSONEachRow');
    assert.equal(
      await format('SELECT 1 FORMAT JSONCompact -- FORMAT CSV', { default_format: 'CSV' }),
      'JSONCompact',
    );
    const reply = await ask(
      'POST',
      { default_format: 'CSV' },
      "SELECT 'FORMAT JSON' AS format SETTINGS max_threads = 1",
    );
    assert.equal(reply.body, '"FORMAT JSON"\n');
    assert.match(String(reply.headers['content-type']), /^text\/csv/);
  });

  test('runs in the database of the request, and the next one does not', async () => {
    await run('CREATE DATABASE IF NOT EXISTS other');
    assert.equal((await ask('POST', { database: 'other' }, 'SELECT currentDatabase()')).body, 'other\n');
    assert.equal((await ask('POST', {}, 'SELECT currentDatabase()')).body, 'default\n');
    await run('DROP DATABASE other SYNC');
    assert.equal((await ask('POST', { database: 'other' }, 'SELECT 1')).exceptionCode, '81');
    await run('CREATE DATABASE other');
    assert.equal((await ask('POST', { database: 'other' }, 'SELECT currentDatabase()')).body, 'other\n');
  });

  test('answers with its id, in UTC, and shows the id in system.processes while it runs', async () => {
    const sql = "SELECT Settings['log_comment'], timezone() FROM system.processes";
    const reply = await ask('POST', { query_id: 'my id' }, sql);
    assert.equal(reply.headers['x-clickhouse-query-id'], 'my id');
    assert.equal(reply.body, 'my id\tUTC\n');
    assert.match(
      String((await ask('POST', {}, 'SELECT 1')).headers['x-clickhouse-query-id']),
      /^[0-9a-f-]{36}$/,
    );
  });

  test('has a summary of its rows', async () => {
    const summary = JSON.parse(
      String((await ask('POST', {}, 'SELECT * FROM numbers(7)')).headers['x-clickhouse-summary']),
    );
    assert.equal(summary.read_rows, '7');
    assert.equal(summary.written_rows, '0');
  });

  test('of any kind of statement is understood', async () => {
    await run('CREATE TABLE IF NOT EXISTS kinds (a UInt8) ENGINE = MergeTree ORDER BY a');
    assert.match((await ask('POST', {}, 'SHOW TABLES')).body, /^kinds$/m);
    assert.match(
      (await ask('POST', { default_format: 'JSONEachRow' }, 'DESCRIBE TABLE kinds')).body,
      /"name":"a"/,
    );
    assert.equal((await ask('POST', {}, 'EXISTS TABLE kinds;')).body, '1\n');
    assert.equal(
      (await ask('POST', {}, '(SELECT 1) UNION ALL (SELECT 1) FORMAT CSV;\n-- end')).body,
      '1\n1\n',
    );
    assert.equal((await ask('POST', {}, "WITH 'é' AS x SELECT x, length(x)")).body, 'é\t2\n');
    assert.equal((await ask('POST', {}, 'DROP TABLE kinds SYNC')).status, 200);
  });

  test('is compressed when client and request ask for it', async () => {
    const parameters = { enable_http_compression: '1' };
    const sql = 'SELECT * FROM numbers(1000)';
    const reply = await ask('POST', parameters, sql, { 'Accept-Encoding': 'deflate, gzip' });
    assert.equal(reply.headers['content-encoding'], 'gzip');
    assert.equal(gunzipSync(reply.bytes).toString().split('\n').length, 1001);
    assert.equal(
      (await ask('POST', {}, sql, { 'Accept-Encoding': 'gzip' })).headers['content-encoding'],
      undefined,
    );
    assert.equal((await ask('POST', parameters, sql)).headers['content-encoding'], undefined);
    const compressing = clientOf(server, { compression: { request: true, response: true } });
    const rows = await (await compressing.query({ query: sql, format: 'JSONEachRow' })).json();
    assert.equal(rows.length, 1000);
    const failed = compressing.query({ query: 'SELECT nosuch' });
    await assert.rejects(failed, (error) => error instanceof ClickHouseError && error.code === '47');
    await compressing.close();
  });
});

describe('a setting', () => {
  test('of a request applies to its statement only', async () => {
    const sql = "SELECT getSetting('max_threads') = 3, getSetting('log_comment')";
    const parameters = { max_threads: '3', log_comment: "it's \\ me" };
    assert.equal((await ask('POST', parameters, sql)).body, "1\tit\\'s \\\\ me\n");
    for (let times = 0; times < 20; times += 1)
      assert.match((await ask('POST', {}, sql)).body, /^0\t[0-9a-f-]+\n$/);
  });

  test('of a SET or USE statement ends with it', async () => {
    await run("SET max_threads = 5, log_comment = 'stuck'");
    await run('USE system');
    for (let times = 0; times < 20; times += 1) {
      const sql = "SELECT getSetting('max_threads') = 5, currentDatabase()";
      assert.equal((await ask('POST', {}, sql)).body, '0\tdefault\n');
    }
  });

  test('that is unknown is refused with the code of ClickHouse, and nothing of it stays', async () => {
    const reply = await ask('POST', { max_threads: '3', no_such_setting: '1' }, 'SELECT 1');
    assert.equal(reply.status, 404);
    assert.equal(reply.exceptionCode, '115');
    assert.equal((await ask('POST', {}, "SELECT getSetting('max_threads') = 3")).body, '0\n');
    assert.equal((await ask('POST', { "x'y": '1' }, 'SELECT 1')).exceptionCode, '115');
  });

  test('that only concerns HTTP is accepted', async () => {
    const parameters = {
      wait_end_of_query: '1',
      buffer_size: '100',
      session_id: 'a',
      compress: '0',
      stacktrace: '1',
    };
    assert.equal((await ask('POST', parameters, 'SELECT 1')).body, '1\n');
  });
});

describe('a bound parameter', () => {
  const roundTrip = async (type: string, value: unknown) => {
    const result = await client.query({
      query: `SELECT {value:${type}} AS value`,
      query_params: { value },
      format: 'JSONEachRow',
    });
    return (await result.json<{ value: unknown }>())[0]?.value;
  };

  test('arrives as it was sent, whatever characters it has', async () => {
    const strings = [
      '',
      "'",
      '\\',
      "\\'",
      '\0',
      '\n\r\t\b\f',
      '\\N',
      'NULL',
      '{x:String}',
      '-- ',
      ';',
      '💥é',
      "'; DROP TABLE t; --",
    ];
    for (const value of strings) assert.equal(await roundTrip('String', value), value);
    const anyString = fc
      .string({ unit: 'binary', maxLength: 50 })
      .filter((value) => !/[\ud800-\udfff]/.test(value));
    await fc.assert(
      fc.asyncProperty(anyString, async (value) => {
        assert.equal(await roundTrip('String', value), value);
      }),
      { numRuns: 60 },
    );
  });

  test('may be of any type', async () => {
    const list = ["it's", 'a\\b', 'line\nbreak', 'é', ''];
    assert.deepEqual(await roundTrip('Array(String)', list), list);
    assert.equal(await roundTrip('Nullable(String)', null), null);
    assert.equal(await roundTrip('Nullable(String)', 'NULL'), 'NULL');
    assert.equal(await roundTrip('Int64', -9_007_199_254_740_991), -9_007_199_254_740_991);
    assert.deepEqual(await roundTrip('Map(String, UInt8)', { 'a:b': 1 }), { 'a:b': 1 });
    assert.equal(await roundTrip('Bool', true), true);
    const table = await client.query({
      query: 'SELECT count() AS count FROM {database:Identifier}.{table:Identifier} LIMIT {n:UInt8}',
      query_params: { database: 'system', table: 'one', n: 5 },
      format: 'JSONEachRow',
    });
    assert.deepEqual(await table.json(), [{ count: 1 }]);
  });

  test('does not reach another statement', async () => {
    for (let times = 0; times < 20; times += 1) {
      assert.equal((await ask('POST', { param_mine: 'secret' }, 'SELECT {mine:String}')).body, 'secret\n');
      assert.equal((await ask('POST', {}, 'SELECT { mine : String}')).exceptionCode, '456');
      const insert = "INSERT INTO FUNCTION null('s String') VALUES ({mine:String})";
      assert.equal((await ask('POST', { param_mine: 'secret' }, insert)).status, 200);
      assert.notEqual((await ask('POST', {}, insert)).status, 200);
    }
  });

  test('too long for a URL comes in a form', async () => {
    const value = 'long é '.repeat(20_000);
    const result = await client.query({
      query: 'SELECT length({value:String}) AS bytes, {value:String} = {same:String} AS same',
      query_params: { value, same: value },
      format: 'JSONEachRow',
      use_multipart_params: true,
    });
    assert.deepEqual(await result.json(), [{ bytes: Buffer.byteLength(value), same: 1 }]);
  });

  test('is bound in statements of all kinds', async () => {
    await run('CREATE TABLE IF NOT EXISTS bound (a UInt8, b String) ENGINE = MergeTree ORDER BY a');
    await ask('POST', { param_b: "it's" }, 'INSERT INTO bound SELECT 1, {b:String}');
    await ask('POST', { param_b: 'other' }, 'INSERT INTO bound VALUES (2, {b:String})');
    assert.equal(
      (await ask('POST', {}, 'SELECT * FROM bound ORDER BY a FORMAT CSV')).body,
      '1,"it\'s"\n2,"other"\n',
    );
    await ask(
      'POST',
      { param_b: "it's", mutations_sync: '1' },
      'ALTER TABLE bound DELETE WHERE b = {b:String}',
    );
    assert.equal((await ask('POST', {}, 'SELECT a FROM bound')).body, '2\n');
    await run('DROP TABLE bound SYNC');
  });
});

describe('an INSERT', () => {
  beforeEach(async () => {
    await run('DROP TABLE IF EXISTS t SYNC');
    await run(`CREATE TABLE t (a UInt64, b String, c String DEFAULT 'none') ENGINE = MergeTree ORDER BY a
      SETTINGS non_replicated_deduplication_window = 1000`);
  });

  const rowsOf = async (columns = 'a, b') =>
    (await ask('POST', {}, `SELECT ${columns} FROM t ORDER BY ALL FORMAT CSV`)).body;

  const insert = (format: string, data: string | Buffer, parameters = {}, headers = {}) =>
    ask('POST', { query: `INSERT INTO t (a, b) FORMAT ${format}`, ...parameters }, data, headers);

  test('takes data of every format behind the URL', async () => {
    const rowBinary = Buffer.from('0100000000000000' + '0478300d0a', 'hex');
    const bodies: [string, string | Buffer, string][] = [
      ['JSONEachRow', '{"a":1,"b":"it\'s"}\n{"b":"2","a":2}', '1,"it\'s"\n2,"2"\n'],
      ['JSONCompactEachRow', '[1,"é"]\n[2,"\\u0000x"]\n', '1,"é"\n2,"\0x"\n'],
      ['TabSeparated', '1\tx\\ty\n2\t\n', '1,"x\ty"\n2,""\n'],
      ['TSVWithNames', 'b\ta\nx\t1\n', '1,"x"\n'],
      ['CSV', '1,"two\nlines"\n2,"""q"""\n', '1,"two\nlines"\n2,"""q"""\n'],
      ['Values', "(1, 'x'), (1 + 1, concat('y', 'z'));", '1,"x"\n2,"yz"\n'],
      ['RowBinary', rowBinary, '1,"x0\r\n"\n'],
    ];
    for (const [format, data, stored] of bodies) {
      await run('TRUNCATE TABLE t');
      const reply = await insert(format, data);
      assert.equal(reply.status, 200, `${format}: ${reply.body}`);
      assert.equal(await rowsOf(), stored, format);
      const summary = JSON.parse(String(reply.headers['x-clickhouse-summary']));
      assert.equal(summary.written_rows, String(stored.match(/^\d,/gm)?.length), format);
    }
  });

  test('takes what the engine wrote, in binary formats', async () => {
    for (const format of ['Native', 'Parquet', 'RowBinaryWithNamesAndTypes']) {
      await run('TRUNCATE TABLE t');
      const data = await ask('POST', {}, `SELECT number AS a, 'x' AS b FROM numbers(3) FORMAT ${format}`);
      const reply = await insert(format, data.bytes);
      assert.equal(reply.status, 200, `${format}: ${reply.body}`);
      assert.equal(await rowsOf(), '0,"x"\n1,"x"\n2,"x"\n', format);
    }
  });

  test('takes data out of its own text, too', async () => {
    await run("INSERT INTO t (a, b) VALUES (1, 'é;'), (2, 'x')");
    await run('INSERT INTO t (a, b) FORMAT JSONEachRow {"a":3,"b":"é"}\n\n{"a":4,"b":"y"}');
    await ask('POST', { query: 'INSERT INTO t (a, b)' }, 'FORMAT TSV\n5\tz\n');
    await ask('POST', { query: 'INSERT INTO t (a, b) FORMAT CSV\n6,"s"' }, '7,"t"\n');
    assert.equal(await rowsOf(), '1,"é;"\n2,"x"\n3,"é"\n4,"y"\n5,"z"\n6,"s"\n7,"t"\n');
  });

  test('never takes data for SQL', async () => {
    const lines = ['{"a":1,"b":"x"}', '', '', '{"a":2,"b":"-- { serverError 60 }"}', ';DROP TABLE t;', ''];
    const reply = await insert('JSONEachRow', lines.join('\n'));
    assert.equal(reply.status, 400);
    assert.equal(await rowsOf(), '');
    assert.equal((await insert('JSONEachRow', lines.slice(0, 4).join('\n'))).status, 200);
    assert.equal(await rowsOf('a'), '1\n2\n');
  });

  test('through the official client stores arrays and streams', async () => {
    const array = await client.insert({ table: 't', values: [{ a: 1, b: 'x' }], format: 'JSONEachRow' });
    assert.equal(array.summary?.written_rows, '1');
    async function* rows() {
      for (let row = 2; row < 1002; row += 1) yield [row, 'y', 'z'];
    }
    const stream = await client.insert({
      table: 't',
      values: Readable.from(rows()),
      format: 'JSONCompactEachRow',
    });
    assert.equal(stream.summary?.written_rows, '1000');
    const { stream: reply } = await client.exec({
      query: 'INSERT INTO t (a, b) FORMAT JSONCompactEachRow',
      values: Readable.from([Buffer.from('[5000,"x"]\n')]),
    });
    await text(reply);
    assert.equal(await rowsOf('count(), sum(a)'), `1002,${1 + (1000 * 1003) / 2 + 5000}\n`);
    assert.equal((await client.insert({ table: 't', values: [] })).executed, false);
  });

  test('of 200,000 rows is one block and one part', async () => {
    const lines = Array.from({ length: 200_000 }, (_, index) => `[${index},"row ${index}"]\n`);
    const reply = await insert('JSONCompactEachRow', lines.join(''));
    assert.equal(JSON.parse(String(reply.headers['x-clickhouse-summary'])).written_rows, '200000');
    const parts = await ask(
      'POST',
      {},
      "SELECT rows FROM system.parts WHERE table = 't' AND level = 0 AND rows > 0",
    );
    assert.equal(parts.body, '200000\n');
  });

  test('may be compressed', async () => {
    const reply = await insert('TSV', gzipSync('1\tx\n2\ty\n'), {}, { 'Content-Encoding': 'gzip' });
    assert.equal(reply.status, 200);
    assert.equal(await rowsOf(), '1,"x"\n2,"y"\n');
    const whole = gzipSync('3\tx\n'.repeat(100_000));
    for (const bad of [
      whole.subarray(0, 100),
      Buffer.from('3\tx\n'),
      Buffer.concat([whole.subarray(0, 50), whole]),
    ]) {
      assert.equal((await insert('TSV', bad, {}, { 'Content-Encoding': 'gzip' })).exceptionCode, '354');
    }
    assert.equal((await insert('TSV', '1\tx', {}, { 'Content-Encoding': 'zstd' })).status, 415);
    assert.equal(await rowsOf('count()'), '2\n');
  });

  test('is stored once for each deduplication token, and every time without one', async () => {
    const data = '{"a":1,"b":"x"}\n{"a":2,"b":"y"}\n';
    const withToken = (token: string) =>
      insert('JSONEachRow', data, {
        insert_deduplication_token: token,
        insert_deduplicate: '1',
        async_insert: '0',
      });
    const count = async () => Number(await rowsOf('count()'));
    await withToken('first');
    await withToken('first');
    assert.equal(await count(), 2);
    await withToken("it's \\ second");
    assert.equal(await count(), 4);
    await withToken('first');
    assert.equal(await count(), 4);
    for (let times = 1; times <= 20; times += 1) {
      assert.equal((await insert('JSONEachRow', `{"a":${times},"b":"z"}`)).status, 200);
      assert.equal(await count(), 4 + times);
    }
    await insert('JSONEachRow', '{"a":1,"b":"other bytes"}', { insert_deduplication_token: 'first' });
    assert.equal(await count(), 24, 'a known token drops the rows, whatever they are');
  });

  test('obeys its settings, its own before those of the request', async () => {
    const unknown = '{"a":1,"b":"x","d":1}\n';
    const alsoUnknown = '{"a":2,"b":"x","d":1}\n';
    const strict = { input_format_skip_unknown_fields: '0' };
    assert.equal((await insert('JSONEachRow', unknown, strict)).exceptionCode, '117');
    assert.equal(
      (await insert('JSONEachRow', unknown, { input_format_skip_unknown_fields: '1' })).status,
      200,
    );
    const query = 'INSERT INTO t (a, b) SETTINGS input_format_skip_unknown_fields = 1 FORMAT JSONEachRow';
    assert.equal((await ask('POST', { query, ...strict }, alsoUnknown)).status, 200);
    assert.equal((await insert('JSONEachRow', unknown, strict)).exceptionCode, '117');
    assert.equal((await insert('JSONEachRow', '{"a":9}', { no_such_setting: '1' })).exceptionCode, '115');
    assert.equal(await rowsOf(), '1,"x"\n2,"x"\n');
  });

  test('into a function checks rows without storing them', async () => {
    const query = "INSERT INTO FUNCTION null('a UInt8, b String') FORMAT JSONCompactEachRow";
    assert.equal((await ask('POST', { query }, '[1,"x"]\n')).status, 200);
    assert.equal((await ask('POST', { query }, '[1,"x"]\n["no","x"]\n')).status, 400);
  });

  test('takes a SELECT, also over the data of the request', async () => {
    await ask('POST', { max_threads: '1' }, "INSERT INTO t (a, b) SELECT number, 'x' FROM numbers(2)");
    const sql =
      "INSERT INTO t (a, b) SELECT a * 10, upper(b) FROM input('a UInt8, b String') WHERE a > 1 FORMAT CSV";
    assert.equal((await ask('POST', { query: sql }, '1,é\n2,é\n3,z\n')).status, 200);
    assert.equal((await ask('POST', {}, `${sql}\n4,w\n`)).status, 200);
    assert.equal(await rowsOf(), '0,"x"\n1,"x"\n20,"é"\n30,"Z"\n40,"W"\n');
  });

  test('stores all of its rows or none', async () => {
    assert.equal((await insert('JSONEachRow', '{"a":1,"b":"x"}\n{"a":"x"}\n')).exceptionCode, '27');
    assert.equal((await insert('JSONEachRow', '')).status, 200);
    const formatless = await ask('POST', {}, "INSERT INTO t (a) SELECT a FROM input('a UInt8')");
    assert.notEqual(formatless.status, 200);
    assert.equal(await rowsOf(), '');
    const missing = await ask('POST', { query: 'INSERT INTO nosuch FORMAT JSONEachRow' }, '{"a":1}');
    assert.equal(missing.status, 404);
    assert.equal(missing.exceptionCode, '60');
  });

  test('whose client goes away in the middle stores nothing', async () => {
    const path = `/?${new URLSearchParams({ query: 'INSERT INTO t (a, b) FORMAT TSV' })}`;
    const socket = connect({ host: '127.0.0.1', port: server.port });
    socket.write(`POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n1\tx\n2\ty\n`);
    await until(() => openFiles('insert-') > 0, { deadlineMs: 10_000, what: 'the data has a file' });
    socket.destroy();
    await until(() => openFiles('insert-') === 0, { deadlineMs: 10_000, what: 'the file is gone' });
    assert.equal(await rowsOf(), '');
  });

  test('is in system.processes under its id as long as it runs', async () => {
    await run('CREATE TABLE slow (a UInt64, b UInt8 DEFAULT sleepEachRow(0.05)) ENGINE = Null');
    const parameters = {
      query: 'INSERT INTO slow (a) FORMAT TSV',
      query_id: 'slow insert',
      function_sleep_max_microseconds_per_block: '10000000',
    };
    const reply = ask('POST', parameters, '1\n'.repeat(100));
    await until(async () => (await running('slow insert')) === 1, {
      deadlineMs: 10_000,
      what: 'the INSERT runs',
    });
    assert.equal((await reply).status, 200);
    assert.equal(await running('slow insert'), 0);
    await run('DROP TABLE slow SYNC');
  });

  test('may have so many bytes and no more', async () => {
    const dir = tempDir('clickhouse-data');
    for (const bytes of [99, 100, 101]) {
      const file = await DataFile.create(join(dir, String(bytes)), 100);
      await file.append(Buffer.alloc(50));
      const last = file.append(Buffer.alloc(bytes - 50));
      if (bytes > 100) {
        await assert.rejects(last, { code: 229 });
      } else {
        await last;
        await file.finish();
        assert.equal(readFileSync(file.path).length, bytes);
      }
      await file.remove();
    }
    assert.deepEqual(readdirSync(dir), []);
  });

  test('leaves no file behind', async () => {
    await insert('TSV', '1\tx\n');
    await insert('TSV', 'nonsense\n');
    assert.equal(openFiles('insert-'), 0);
  });
});

describe('an error', () => {
  test('has the status and the code that a ClickHouse server gives it', async () => {
    const cases: [string, number, number][] = [
      ['SELEC 1', 400, 62],
      ['', 400, 62],
      ['SELECT 1; SELECT 2', 400, 62],
      ['SELECT 1 +', 400, 62],
      ['exit', 400, 62],
      ['\\i /etc/passwd', 400, 62],
      ['SELECT * FROM nosuch', 404, 60],
      ['SELECT nosuch', 404, 47],
      ['SELECT nosuch()', 404, 46],
      ['SELECT 1 FORMAT NoSuch', 404, 73],
      ['DROP TABLE nosuch.nosuch', 404, 81],
      ["SELECT toUInt8('x')", 400, 6],
      ['SELECT {x:String}', 500, 456],
      ["SELECT 1 INTO OUTFILE '/tmp/x'", 500, 358],
      ['SELECT throwIf(1)', 500, 395],
    ];
    for (const [sql, status, code] of cases) {
      const reply = await ask('POST', {}, sql);
      assert.equal(reply.exceptionCode, String(code), `${sql}: ${reply.body}`);
      assert.equal(reply.status, status, sql);
      assert.match(
        reply.body,
        new RegExp(`^Code: ${code}\\. DB::Exception: .*\\([A-Z_]+\\) \\(version 26[0-9.]*\\)\n$`, 's'),
      );
    }
  });

  test('has a code and a type in the official client', async () => {
    const failed = client.query({ query: 'SELECT * FROM nosuch' });
    await assert.rejects(failed, (error) => {
      assert.ok(error instanceof ClickHouseError);
      assert.equal(error.code, '60');
      assert.equal(error.type, 'UNKNOWN_TABLE');
      return true;
    });
  });

  test('does not tell the files that data and results pass through', async () => {
    const bad = await ask('POST', { query: "INSERT INTO FUNCTION null('a UInt8') FORMAT CSV" }, 'x\n');
    const broken = await ask('POST', {}, "SELECT throwIf(number = 5, 'five') FROM numbers(10)");
    for (const { body } of [bad, broken]) assert.doesNotMatch(body, /clickhouse-exchange|OUTFILE|INFILE/);
  });

  test('in the middle of a result is never taken for its end', async () => {
    const sql = 'SELECT throwIf(number = 3000000) AS x FROM numbers(3000100)';
    const result = await client.query({ query: sql, format: 'JSONEachRow' });
    const read = async () => {
      for await (const rows of result.stream()) assert.ok(rows.length > 0);
    };
    await assert.rejects(read, (error) => error instanceof ClickHouseError && error.code === '395');

    const reply = await ask('POST', { query: sql });
    assert.equal(reply.status, 200);
    assert.equal(reply.isComplete, false);
    const tag = reply.headers['x-clickhouse-exception-tag'];
    const end = new RegExp(
      `\r\n__exception__\r\n${tag}\r\n(Code: 395\\. .*\n)(\\d+) ${tag}\r\n__exception__\r\n$`,
      's',
    );
    const [, message = '', length] = end.exec(reply.body) ?? [];
    assert.equal(length, String(Buffer.byteLength(message)));

    const packed = await ask('POST', { query: sql, enable_http_compression: '1' }, '', {
      'Accept-Encoding': 'gzip',
    });
    assert.equal(packed.isComplete, false);
    const buffered = await ask('POST', { query: sql, wait_end_of_query: '1' });
    assert.equal(buffered.status, 500);
    assert.equal(buffered.exceptionCode, '395');
  });

  test('leaves nothing of its statement in system.processes', async () => {
    await ask('POST', { query_id: 'failed' }, 'SELECT throwIf(1)');
    await ask(
      'POST',
      { query_id: 'failed', query: "INSERT INTO FUNCTION null('a UInt8') FORMAT CSV" },
      'x\n',
    );
    await ask('POST', { query_id: 'failed' }, "INSERT INTO FUNCTION null('a UInt8') SELECT throwIf(1)");
    assert.deepEqual(await running('failed'), 0);
  });
});

describe('several clients at once', () => {
  test('are answered while another one has a long query, which KILL QUERY ends', async () => {
    const slow = ask('POST', { query_id: 'slow' }, longStatement);
    await until(async () => (await running('slow')) === 1, { deadlineMs: 10_000, what: 'the query runs' });
    assert.equal((await ask('POST', { param_x: '1' }, 'SELECT {x:UInt8}')).body, '1\n');
    const insert = await ask('POST', { query: "INSERT INTO FUNCTION null('a UInt8') FORMAT TSV" }, '1\n');
    assert.equal(insert.status, 200);
    assert.equal(await running('slow'), 1);
    const killed = await ask('POST', {}, "KILL QUERY WHERE Settings['log_comment'] = 'slow' SYNC");
    assert.match(killed.body, /^finished/);
    assert.equal((await slow).exceptionCode, '394');
    assert.equal(await running('slow'), 0);
  });

  test('are answered while a mutation runs, and see it in system.mutations', async () => {
    await run('CREATE TABLE IF NOT EXISTS mutated (a UInt8) ENGINE = MergeTree ORDER BY a');
    await run('INSERT INTO mutated SELECT number FROM numbers(3)');
    const slow = 'ALTER TABLE mutated DELETE WHERE a + sleepEachRow(1) > 200';
    await ask('POST', { allow_nondeterministic_mutations: '1' }, slow);
    const pending = async () => {
      const sql = "SELECT count() FROM system.mutations WHERE table = 'mutated' AND NOT is_done";
      return Number((await ask('POST', {}, sql)).body);
    };
    assert.equal(await pending(), 1);
    assert.equal((await ask('POST', { query: 'INSERT INTO mutated FORMAT TSV' }, '9\n')).status, 200);
    assert.equal((await ask('POST', {}, 'SELECT count() FROM mutated')).body, '4\n');
    assert.equal(await pending(), 1);
    await run("KILL MUTATION WHERE table = 'mutated'");
    assert.equal(await pending(), 0);
    await run('DROP TABLE mutated SYNC');
  });

  test('wait for a session when all are taken, but INSERTs and KILL do not', async () => {
    const blockers = Array.from({ length: readSessionsMax }, () =>
      ask('POST', { query_id: 'blocker' }, longStatement),
    );
    await until(() => engineHas(readSessionsMax), { deadlineMs: 20_000, what: 'all sessions are taken' });
    const waiting = [1, 2, 3, 4].map((number) => ask('POST', {}, `SELECT ${number}`));
    const insert = await ask('POST', { query: "INSERT INTO FUNCTION null('a UInt8') FORMAT TSV" }, '1\n');
    assert.equal(insert.status, 200);
    const killed = await ask('POST', {}, "KILL QUERY WHERE Settings['log_comment'] = 'blocker' SYNC");
    assert.equal(killed.body.split('\n').length - 1, readSessionsMax);
    for (const blocker of blockers) assert.equal((await blocker).exceptionCode, '394');
    const replies = await Promise.all(waiting);
    assert.deepEqual(
      replies.map(({ body }) => body),
      ['1\n', '2\n', '3\n', '4\n'],
    );
  });

  test('each get their own answer', async () => {
    const numbers = Array.from({ length: 100 }, (_, index) => index);
    const answers = numbers.map((number) =>
      ask(
        'POST',
        { param_n: String(number), max_block_size: String(number + 1) },
        `SELECT {n:UInt8}, getSetting('max_block_size')`,
      ),
    );
    assert.deepEqual(
      (await Promise.all(answers)).map(({ body }) => body),
      numbers.map((number) => `${number}\t${number + 1}\n`),
    );
  });
});

describe('a large result', () => {
  const rowCount = 5_000_000;
  const sql = `SELECT number, 'some text' AS text FROM numbers(${rowCount})`;

  test('waits in the engine while its reader does not read, and arrives whole', async () => {
    const { response } = await open('POST', { query_id: 'large' }, `${sql} FORMAT TSV`);
    await until(() => response.readableLength > 0, { deadlineMs: 20_000, what: 'the result begins' });
    const memoryBefore = memoryKiB();
    // Other statements go on, and the large one cannot: nobody takes what it writes.
    for (let times = 0; times < 20; times += 1) assert.equal(await running('large'), 1);
    let bytes = 0;
    let last = '';
    for await (const chunk of response) {
      bytes += chunk.length;
      last = chunk.toString('latin1', chunk.length - 50);
    }
    assert.ok(response.complete);
    assert.ok(last.endsWith(`${rowCount - 1}\tsome text\n`));
    assert.ok(bytes > 80_000_000);
    assert.ok(memoryKiB() - memoryBefore < 150_000, `${memoryKiB() - memoryBefore} KiB more`);
    assert.equal(await running('large'), 0);
  });

  test('in a format with head and tail is streamed as well', async () => {
    const { response } = await open('POST', {}, 'SELECT number FROM numbers(300000) FORMAT JSON');
    const { rows, data } = JSON.parse(await text(response));
    assert.equal(rows, 300_000);
    assert.equal(data.length, 300_000);
    assert.equal(response.headers['x-clickhouse-format'], 'JSON');
  });

  test('that nobody waits for any more ends, and its session serves others', async () => {
    for (let times = 0; times < readSessionsMax + 4; times += 1) {
      const { response } = await open('POST', { query_id: 'left' }, `${sql} FORMAT TSV`);
      response.destroy();
    }
    await until(async () => (await running('left')) === 0, {
      deadlineMs: 30_000,
      what: 'all left queries ended',
    });
    const replies = await Promise.all(
      Array.from({ length: readSessionsMax }, () => ask('POST', {}, 'SELECT 1')),
    );
    assert.ok(replies.every(({ body }) => body === '1\n'));
  });

  test('whose client leaves before its first byte does not hold its session for ever', async () => {
    const { outgoing } = begin('POST', { query_id: 'early' }, 'SELECT sleep(3), number FROM numbers(10)');
    await until(async () => (await running('early')) === 1, { deadlineMs: 10_000, what: 'the query runs' });
    outgoing.destroy();
    await until(async () => (await running('early')) === 0, {
      deadlineMs: 30_000,
      what: 'the query has ended',
    });
  });
});

describe('access', () => {
  test('is for programs of this host only', async () => {
    const status = async (headers: Record<string, string>) =>
      (await ask('POST', {}, 'SELECT 1', headers)).status;
    for (const host of ['localhost', 'LOCALHOST:1', '127.0.0.1:8123', '[::1]:1'])
      assert.equal(await status({ Host: host }), 200);
    for (const host of ['evil.example', '127.0.0.1.evil.example', '10.0.0.1', 'localhost.evil.example:80']) {
      assert.equal(await status({ Host: host }), 403, host);
    }
    assert.equal(await status({ Origin: 'http://evil.example' }), 403);
    assert.equal(await status({ Origin: 'null' }), 403);
    assert.equal(await status({ Origin: 'http://localhost:3000' }), 200);
    assert.equal(await status({ 'Sec-Fetch-Site': 'cross-site' }), 403);
  });

  test('is not possible from other addresses', async () => {
    const addresses = Object.values(networkInterfaces())
      .flat()
      .filter((address) => address && !address.internal);
    for (const address of addresses) {
      const socket = connect({ host: address?.address, port: server.port });
      const [error] = await once(socket, 'error');
      assert.match(String(error.code), /ECONNREFUSED|EHOSTUNREACH|EINVAL|ENETUNREACH/);
    }
  });

  test('is for the user default without a password', async () => {
    assert.equal((await ask('POST', { user: 'default' }, 'SELECT currentUser()')).body, 'default\n');
    const basic = `Basic ${Buffer.from('default:wrong').toString('base64')}`;
    for (const reply of [
      await ask('POST', { user: 'somebody' }, 'SELECT 1'),
      await ask('POST', { password: 'x' }, 'SELECT 1'),
      await ask('POST', {}, 'SELECT 1', { 'X-ClickHouse-User': 'somebody' }),
      await ask('POST', {}, 'SELECT 1', { Authorization: basic }),
    ]) {
      assert.equal(reply.status, 403);
      assert.equal(reply.exceptionCode, '516');
    }
  });

  test('to anything but GET and POST is refused', async () => {
    assert.equal((await ask('DELETE', {}, 'SELECT 1')).status, 405);
    assert.equal((await ask('OPTIONS', {})).status, 405);
  });
});

describe('the engine', () => {
  test('has the defaults of a server', async () => {
    const sql = `SELECT getSetting('implicit_select'), getSetting('mutations_sync'),
      (SELECT value FROM system.merge_tree_settings WHERE name = 'old_parts_lifetime')`;
    assert.equal((await ask('POST', {}, sql)).body, 'false\t0\t480\n');
  });

  test('keeps no log tables, and little memory for caches', async () => {
    const logs = "SELECT count() FROM system.tables WHERE database = 'system' AND name LIKE '%\\_log'";
    assert.equal((await ask('POST', {}, logs)).body, '0\n');
    const changed =
      "SELECT name, value FROM system.server_settings WHERE changed AND name LIKE '%\\_cache\\_size' ORDER BY name";
    const sizes =
      'index_mark_cache_size\t67108864\nmark_cache_size\t268435456\nprimary_index_cache_size\t268435456\n';
    assert.equal((await ask('POST', {}, changed)).body, sizes);
  });
});

type Reply = {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly bytes: Buffer;
  readonly body: string;
  readonly exceptionCode: string | undefined;
  /** False: the connection broke before the end. */
  readonly isComplete: boolean;
};

async function ask(
  method: string,
  parameters: Record<string, string>,
  body?: string | Buffer,
  headers: Record<string, string> = {},
  path = '/',
): Promise<Reply> {
  const { response } = await open(method, parameters, body, headers, path);
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of response) chunks.push(chunk as Buffer);
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ECONNRESET');
  }
  const bytes = Buffer.concat(chunks);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    bytes,
    body: bytes.toString(),
    exceptionCode: response.headers['x-clickhouse-exception-code'] as string | undefined,
    isComplete: response.complete,
  };
}

/** Settles with the head of the reply; the body is not read yet. */
async function open(
  ...[method, parameters, body, headers, path]: Parameters<typeof begin>
): Promise<{ response: IncomingMessage }> {
  const { response } = begin(method, parameters, body, headers, path);
  return { response: await response };
}

function begin(
  method: string,
  parameters: Record<string, string>,
  body?: string | Buffer,
  headers: Record<string, string> = {},
  path = '/',
) {
  const url = `${server.url}${path}?${new URLSearchParams(parameters)}`;
  const outgoing = request(url, { method, headers: { Connection: 'close', ...headers } });
  const response = new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once('response', resolve);
    outgoing.once('error', reject);
  });
  response.catch(() => undefined); // who destroys the request does not wait for it
  outgoing.end(body);
  return { outgoing, response };
}

async function run(sql: string): Promise<void> {
  await client.command({ query: sql });
}

/** How many statements with that id run. */
async function running(id: string): Promise<number> {
  const sql = "SELECT count() FROM system.processes WHERE Settings['log_comment'] = {id:String}";
  return Number((await ask('POST', { param_id: id }, sql)).body);
}

/** Whether so many statements run; asked by an INSERT, which needs none of the queries' sessions. */
async function engineHas(count: number): Promise<boolean> {
  const sql = `INSERT INTO FUNCTION null('x UInt8') SELECT throwIf(count() >= ${count + 1}) FROM system.processes`;
  return (await ask('POST', {}, sql)).exceptionCode === '395';
}

/** Files that the server has in use for data on its way. */
function openFiles(prefix: string): number {
  return readdirSync(join(server.dir, 'clickhouse-exchange')).filter((file) => file.startsWith(prefix))
    .length;
}

/** Resident memory of the engine's process. */
function memoryKiB(): number {
  const status = readFileSync(`/proc/${enginePidOf(server)}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]);
}

function clientOf(of: ClickHouseHandle, options: Parameters<typeof createClient>[0] = {}): ClickHouseClient {
  return createClient({ url: of.url, log: { level: ClickHouseLogLevel.OFF }, ...options });
}
