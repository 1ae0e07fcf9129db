// `npm run import`: files of every format, rows that are refused, imports that are killed, and wrong input.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, describe } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { userIdOfAnonymousId } from '../../src/contract/user-id.js';
import { importCommand } from '../../src/import/command.js';
import { type Input, openInputs } from '../../src/import/inputs.js';
import { ImportError, readOptions } from '../../src/import/options.js';
import type { Row } from '../../src/import/row.js';
import { readRows } from '../../src/import/rows.js';
import { utc } from '../../src/import/zones.js';
import {
  createEnvironment,
  createEnvironments,
  unlimited,
  untilRegistryIsRead,
} from '../harness/accounts.js';
import { credentials } from '../harness/clickhouse.js';
import { plainEnvironment } from '../harness/environment.js';
import { untilStored } from '../harness/ingestion.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { until } from '../harness/wait.js';
import { startAnsweringServer } from '../support/answering-server.js';
import { ownApi } from '../support/sluice.js';
import { test } from '../support/test.js';

const newAppId = () => appIds.pop() as string;

const folder = tempDir('import');
const sluice = await ownApi();
const appIds: string[] = await createEnvironments(
  sluice,
  Array.from({ length: 32 }, () => unlimited),
);
const earlierFolder = process.cwd();
process.chdir(folder);
after(() => {
  process.chdir(earlierFolder);
  removeTempDir(folder);
});

const main = fileURLToPath(new URL('../../src/import/main.js', import.meta.url));

/** Starts the importer. `under`: a program that starts it, with its options. */
function start(args: readonly string[], under: readonly string[] = []) {
  const [program = '', ...rest] = [...under, process.execPath, main, ...args];
  return spawn(program, rest, { cwd: folder, env: plainEnvironment() });
}

type Ran = {
  readonly code: number | null;
  readonly out: string;
  readonly words: string;
  readonly counts: Counts;
};
type Counts = { read: number; stored: number; repeats: number; refused: number };

/** Counts repeats as stored: on a busy machine the outcome of a request may be unknown, and its rows are repeats when sent again. */
function keptOf({ read, stored, repeats, refused }: Counts) {
  return { read, kept: stored + repeats, refused };
}

async function runProgram(args: readonly string[], input = '', under: readonly string[] = []): Promise<Ran> {
  const child = start(args, under);
  child.stdin.end(input);
  const closed = once(child, 'close');
  const [out, words, [code]] = await Promise.all([text(child.stdout), text(child.stderr), closed]);
  return resultOf(code, out, words);
}

/** Runs the command inside this process, since the program would spend most of its time loading. */
async function run(args: readonly string[]): Promise<Ran> {
  let [out, words] = ['', ''];
  const code = await importCommand(args, {}, new AbortController().signal, {
    stdout: { write: (some) => (out += some) },
    stderr: { write: (some) => (words += some) },
  });
  return resultOf(code, out, words);
}

function resultOf(code: number | null, out: string, words: string): Ran {
  const last = out.trim().split('\n').at(-1) ?? '';
  return { code, out, words, counts: last.startsWith('{"read"') ? JSON.parse(last) : undefined };
}

let imports = 0;
/** An import into the environment, with a state and rejects of its own. */
function into(appId: string, ...args: readonly string[]): Promise<Ran> {
  imports += 1;
  return run([...args, ...to(appId), '--state', `s${imports}`, '--rejects', `r${imports}`]);
}

const to = (appId: string) => ['--app-id', appId, '--url', sluice.baseUrl];
/** Files that several runs of an import share. */
const files = (name: string) => ['--state', name, '--rejects', `${name}-r`];

function put(name: string, content: string | Uint8Array): string {
  writeFileSync(join(folder, name), content);
  return name;
}

type Stored = {
  readonly event: string;
  readonly identity: string;
  readonly user_id: string | null;
  readonly time: string;
  readonly properties: Record<string, string>;
};

async function stored(appId: string): Promise<Stored[]> {
  await untilStored(sluice);
  return sluice.rows<Stored>(
    `SELECT event, identity, toString(user_id) AS user_id, toString(time) AS time, properties FROM events
     WHERE app_id = '${appId}' ORDER BY time, event`,
  );
}

/** Rows in one of ClickHouse's formats, plain or compressed. */
async function written(sql: string, format: string, encoding?: string): Promise<Uint8Array> {
  const parameters = new URLSearchParams({
    query: `${sql} FORMAT ${format}`,
    ...(encoding === undefined ? {} : { enable_http_compression: '1' }),
  });
  // `fetch` would inflate the answer.
  const { request } = await import('node:http');
  return new Promise((resolve, reject) => {
    const headers = {
      ...credentials(sluice.clickhouse.tester),
      ...(encoding && { 'accept-encoding': encoding }),
    };
    request(`${sluice.clickhouse.origin}/?${parameters}`, { headers }, (reply) => {
      const parts: Buffer[] = [];
      reply.on('data', (part: Buffer) => parts.push(part));
      reply.on('end', () =>
        reply.statusCode === 200
          ? resolve(Buffer.concat(parts))
          : reject(new Error(Buffer.concat(parts).toString('utf8'))),
      );
    })
      .on('error', reject)
      .end();
  });
}

const flights = (count: number) =>
  `SELECT number AS id, 'LAX' AS origin, number % 7 AS delay, toDateTime64(1700000000 + number, 3, 'UTC') AS date
   FROM numbers(${count})`;
const asText = (count: number) =>
  `SELECT id, origin, delay, formatDateTime(date, '%Y-%m-%d %H:%i:%S', 'UTC') AS date FROM (${flights(count)})`;
const mapping = ['--event', 'Flight', '--identity', 'origin', '--timestamp', 'date', '--time-zone', 'UTC'];

describe('a file', () => {
  const count = 1_234;
  const formats: Readonly<Record<string, () => Promise<Uint8Array>>> = {
    'a.csv': () => written(asText(count), 'CSVWithNames'),
    'a.ndjson': () => written(asText(count), 'JSONEachRow'),
    'a.json': async () => {
      const lines = Buffer.from(await written(asText(count), 'JSONEachRow')).toString('utf8');
      return Buffer.from(`\ufeff [ ${lines.trim().replaceAll('\n', ' ,\n')}\n] `);
    },
    'a.parquet': () => written(flights(count), 'Parquet'),
    'b.csv.gz': async () => gzipSync(await written(asText(count), 'CSVWithNames')),
    'b.ndjson.zst': () => written(asText(count), 'JSONEachRow', 'zstd'),
  };
  for (const [name, content] of Object.entries(formats)) {
    test(`of the form ${name} is stored row by row`, async () => {
      const appId = newAppId();
      put(name, await content());
      const { code, counts, words } = await into(appId, name, ...mapping);
      assert.equal(code, 0, words);
      assert.deepEqual(keptOf(counts), { read: count, kept: count, refused: 0 });
      const rows = await stored(appId);
      assert.equal(rows.length, count);
      assert.deepEqual(rows[8], {
        event: 'Flight',
        identity: 'LAX',
        user_id: null,
        time: '2023-11-14 22:13:28.000',
        properties: { id: '8', delay: '1' },
      });
      rmSync(join(folder, name));
    });
  }

  test('of the form Parquet has the same rows at the same places, wherever an import continues', async () => {
    const sql = `SELECT toInt64(id + 9007199254740000) AS big, toString(id % 3) AS text, [id] AS list,
      CAST((id, 'x'), 'Tuple(n Int64, t String)') AS pair,
      if(id % 4 = 0, NULL, id / 8) AS part, date FROM (${flights(2_500)})
      SETTINGS output_format_parquet_row_group_size = 700`;
    put('parts.parquet', await written(sql, 'Parquet'));
    const [input] = await openInputs([join(folder, 'parts.parquet')], undefined);
    const readAfter = async (place: number) => {
      const rows: Row[] = [];
      const options = {
        columns: [],
        takesRest: true,
        timeColumn: 'date',
        zone: utc,
        onShare: () => undefined,
      };
      for await (const some of readRows(input as Input, { ...options, after: place })) rows.push(...some);
      return rows;
    };
    const all = await readAfter(0);
    assert.deepEqual(
      all.map(({ place }) => place),
      Array.from({ length: 2_500 }, (_, at) => at + 1),
    );
    assert.deepEqual(all[997]?.value, {
      big: '9007199254740997',
      text: '1',
      list: ['997'],
      pair: { n: '997', t: 'x' },
      part: 997 / 8,
      date: new Date((1_700_000_000 + 997) * 1000),
    });
    assert.deepEqual([all[3]?.value?.big, all[4]?.value?.part], [9_007_199_254_740_003, null]);
    for (const place of [1, 699, 700, 701, 1_234, 2_499, 2_500])
      assert.deepEqual(await readAfter(place), all.slice(place), `after ${place}`);
  });

  test('of the form Parquet has the values that CSV and JSON of the same rows have', async () => {
    const columns = [
      `'u1' AS user`,
      `toDecimal32('1.15', 2) AS d32`,
      `toDecimal64('123456789012.123456', 6) AS d64`,
      `toDecimal128('-99999999999999.99', 2) AS d128`,
      `toDecimal256('-1234567890123456789012345678901234567890.5', 5) AS d256`,
      `toDecimal32('1.10', 2) AS zero`,
      `toDate('2024-05-05') AS day`,
      `toDate32('1950-01-02') AS early`,
      `toUInt64('18446744073709551615') AS u64`,
      `toNullable(toUInt64('18446744073709551615')) AS n64`,
      `toInt64('-9223372036854775807') AS i64`,
      `toNullable(toUInt32(4294967295)) AS u32`,
      `toInt8(-5) AS i8`,
      `toFloat32(0.1) AS f32`,
      `toFloat32(16777216.5) AS whole`,
      `0.1 AS f64`,
      `toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0') AS id`,
      `CAST('b', 'Enum8(\\'a\\' = 1, \\'b\\' = 2)') AS sort`,
      `toFixedString('EUR', 3) AS currency`,
      `toLowCardinality('lc') AS low`,
      `'Grüße, "x"' AS text`,
      `CAST(NULL, 'Nullable(String)') AS none`,
      `CAST(NULL, 'Nullable(Decimal(9, 2))') AS nothing`,
      `true AS yes`,
    ];
    const nested = [
      `[toDecimal32('1.10', 2), toDecimal32('2.25', 2)] AS list`,
      `[toDate('2024-05-05')] AS days`,
      `map('k', toUInt64('18446744073709551615')) AS by_text`,
      `map(toInt64(7), toDecimal32('1.15', 2)) AS by_number`,
      `map(toDate('2024-05-05'), 'x') AS by_day`,
      `CAST(('x', toDate('2024-05-05'), toDecimal64('0.15', 2)), 'Tuple(a String, b Date, c Decimal64(2))') AS pair`,
      `CAST('{"a": {"b": 12345678901234567890}}', 'JSON') AS doc`,
    ];
    const args = ['--event', 'E', '--identity', 'user', '--dry-run'];
    const properties = async (
      some: readonly string[],
      format: string,
      file: string,
      ...more: readonly string[]
    ) => {
      put(file, await written(`SELECT ${some.join(', ')}`, format));
      const { out, words, code } = await into('1', file, ...args, ...more);
      assert.equal(code, 0, words);
      // The properties as they are stored.
      const found = Object.entries((JSON.parse(out) as { properties: object }).properties);
      return found.map(([name, value]) => `${name} ${value}`).toSorted();
    };
    const ofParquet = await properties(columns, 'Parquet', 'types.parquet');
    assert.deepEqual(ofParquet, await properties(columns, 'CSVWithNames', 'types.csv', '--null', '\\N'));
    assert.deepEqual(ofParquet, await properties(columns, 'JSONEachRow', 'types.ndjson'));
    const deep = [...nested, `'u1' AS user`];
    assert.deepEqual(
      await properties(deep, 'Parquet', 'nested.parquet'),
      await properties(deep, 'JSONEachRow', 'nested.ndjson'),
    );
    const times = [3, 6, 9].map(
      (digits) => `toDateTime64('1960-05-05 10:00:00.123456789', ${digits}, 'UTC') AS t${digits}`,
    );
    assert.deepEqual(await properties([`'u1' AS user`, ...times], 'Parquet', 'instants.parquet'), [
      't3 1960-05-05T10:00:00.123Z',
      't6 1960-05-05T10:00:00.123456Z',
      't9 1960-05-05T10:00:00.123456789Z',
    ]);
  });

  test('of the form Parquet gives no date without a zone, no text that is not UTF-8, and no number whose value is unknown', async () => {
    const day = `SELECT 'u1' AS user, toDate('2024-05-05') AS day, toInt128(7) AS big, unhex('4a6f73e9') AS name`;
    put('day.parquet', await written(day, 'Parquet'));
    const args = ['day.parquet', '--event', 'E', '--identity', 'user', '--timestamp', 'day', '--dry-run'];
    const unsaid = await into('1', ...args);
    assert.match(
      unsaid.words,
      /day\.parquet: the times of the column day name no zone; --time-zone must say/,
    );
    const berlin = [...args, '--time-zone', 'Europe/Berlin'];
    const { out } = await into('1', ...berlin, '--properties', 'user');
    assert.match(out, /"timestamp":"2024-05-04T22:00:00\.000Z"/);
    const faulty = await into('1', ...berlin);
    assert.match(
      faulty.words,
      /The row has 16 bytes without a type in the column big, which may be anything/,
    );
    const named = await into('1', ...berlin, '--properties', 'name');
    assert.match(named.words, /The row has bytes in the column name that are not UTF-8/);
  });

  test('may have columns named like properties of every object', async () => {
    const sql = `SELECT 'LAX' AS origin, 'p' AS \`__proto__\`, 'c' AS \`constructor\`, 7 AS \`toString\``;
    put('names.parquet', await written(sql, 'Parquet'));
    put('names.csv', await written(sql, 'CSVWithNames'));
    put('names.ndjson', await written(sql, 'JSONEachRow'));
    for (const name of ['names.parquet', 'names.csv', 'names.ndjson']) {
      const { out, words } = await into('1', name, '--event', 'E', '--identity', 'origin', '--dry-run');
      const { properties } = JSON.parse(out) as { properties: object };
      assert.deepEqual(
        Object.entries(properties).map(([key, value]) => `${key} ${value}`),
        ['__proto__ p', 'constructor c', 'toString 7'],
        words,
      );
    }
    const renamed = ['--properties', '__proto__=a,constructor=__proto__', '--dry-run'];
    const { out } = await into('1', 'names.parquet', '--event', 'E', '--identity', 'origin', ...renamed);
    assert.match(out, /"properties":\{"a":"p","__proto__":"c"\}/);
  });

  test('of the form Parquet with a name twice ends the import', async () => {
    const bytes = Buffer.from(await written(`SELECT 'ada' AS u, 1 AS col_1, 2 AS col_2`, 'Parquet'));
    for (let at = bytes.indexOf('col_2'); at >= 0; at = bytes.indexOf('col_2')) bytes.write('col_1', at);
    put('twice.parquet', bytes);
    const { code, words } = await into('1', 'twice.parquet', '--event', 'x', '--identity', 'u', '--dry-run');
    assert.equal(code, 1);
    assert.match(words, /^import: twice\.parquet: the column col_1 is there twice; rename one of them/);
  });

  test('that is imported again under another name, or through stdin, is stored once', async () => {
    const appId = newAppId();
    const content = Buffer.from(await written(asText(count), 'CSVWithNames'));
    put('first.csv', content);
    assert.equal((await into(appId, 'first.csv', ...mapping)).code, 0);
    renameSync(join(folder, 'first.csv'), join(folder, 'second.csv'));
    const again = await into(appId, 'sec?nd.c*', ...mapping);
    assert.deepEqual(again.counts, { read: count, stored: 0, repeats: count, refused: 0 });
    assert.equal(again.code, 0);
    const args = ['-', ...mapping, ...to(appId), ...files('stdin')];
    assert.deepEqual((await runProgram(args, content.toString('utf8'))).counts.repeats, count);
    const asAnother = await into(appId, 'second.csv', ...mapping, '--event', 'Landing');
    assert.equal(keptOf(asAnother.counts).kept, count);
    assert.equal((await stored(appId)).length, 2 * count, 'the same rows as another event are no repeats');
  });

  test('at an address is read like a file; errors name the address without its secrets, and a stop ends the import', async () => {
    const content = gzipSync('u,n\nada,1\ngrace,2\n');
    const site = createServer((asked, answer) => {
      const { pathname } = new URL(asked.url ?? '', 'http://x');
      if (pathname === '/moved.csv.gz') answer.writeHead(302, { location: '/rows.csv.gz' }).end();
      else if (pathname === '/cut.csv') {
        answer.writeHead(200, { 'content-length': '1000' }).write('u,n\n');
        setTimeout(() => answer.destroy(), 50);
      } else if (pathname === '/endless.csv') {
        answer.write('u,n\n');
      } else if (pathname === '/own.csv' && asked.headers.authorization !== `Basic ${btoa('me:pass word')}`)
        answer.writeHead(401).end();
      else if (['/rows.csv.gz', '/own.csv'].includes(pathname)) answer.end(content);
      else answer.writeHead(404).end();
    });
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
    try {
      const host = `127.0.0.1:${(site.address() as AddressInfo).port}`;
      const appId = newAppId();
      const own = ['--event', 'x', '--identity', 'u'];
      const first = await into(appId, `http://${host}/rows.csv.gz?signature=secret*`, ...own);
      assert.deepEqual([first.code, first.counts], [0, { read: 2, stored: 2, repeats: 0, refused: 0 }]);
      for (const again of [`http://${host}/moved.csv.gz`, `http://me:pass%20word@${host}/own.csv`])
        assert.deepEqual((await into(appId, again, ...own)).counts, {
          read: 2,
          stored: 0,
          repeats: 2,
          refused: 0,
        });
      for (const [address, expected] of [
        [`http://${host}/none.csv?signature=secret`, `http://${host}/none.csv: the server answers 404`],
        [`http://me:secret@${host}/own.csv`, `http://${host}/own.csv: the server answers 401`],
        [`http://${host}/cut.csv?signature=secret`, `http://${host}/cut.csv: it cannot be read: `],
        [`http://127.0.0.1:1/a.csv?signature=secret`, `http://127.0.0.1:1/a.csv: it cannot be read: `],
        ['https://?signature=secret', 'https://: it is not a URL'],
        ['https://me:secret@x:99999/a.csv#secret', 'https://x:99999/a.csv: it is not a URL'],
        [`http://me:secret%zz@${host}/own.csv`, `http://${host}/own.csv: it is not a URL`],
      ] as const) {
        const { code, words } = await into(appId, address, ...own);
        assert.equal(code, 1, words);
        assert.ok(words.includes(`import: ${expected}`), words);
        assert.doesNotMatch(words, /secret/);
      }
      const endless = openInputs([`http://${host}/endless.csv`], {}, AbortSignal.timeout(300));
      await assert.rejects(endless, new ImportError('stopped'));
    } finally {
      site.close();
    }
  });

  test('may name users, keys, sessions and properties by columns and paths', async () => {
    const appId = newAppId();
    const lines = [
      {
        type: 'Opened',
        user: { id: 7 },
        at: 1700000000,
        k: 'one',
        tags: ['a', 1],
        deep: { x: true },
        no: null,
      },
      { type: 'Closed', device: 'tv', at: 1700000001, k: 'two', tags: [], deep: {} },
      { type: 'Again', device: 'tv', at: 1700000002, k: 'two' },
    ];
    put('paths.ndjson', lines.map((line) => JSON.stringify(line)).join('\n'));
    put(
      'mapping.json',
      JSON.stringify({
        'event-column': 'type',
        identity: 'user.id',
        'anonymous-id': 'device',
        timestamp: 'at',
      }),
    );
    const { code, counts, words } = await into(
      appId,
      ...['paths.ndjson', '--mapping', 'mapping.json', '--timestamp-format', 's', '--key', 'k'],
      ...['--properties', 'tags,deep.x=x'],
    );
    assert.equal(code, 0, words);
    assert.deepEqual(counts, { read: 3, stored: 2, repeats: 1, refused: 0 });
    assert.deepEqual(await stored(appId), [
      {
        event: 'Opened',
        identity: '7',
        user_id: null,
        time: '2023-11-14 22:13:20.000',
        properties: { tags: 'a||1', x: 'true' },
      },
      {
        event: 'Closed',
        identity: '',
        user_id: userIdOfAnonymousId('tv'),
        time: '2023-11-14 22:13:21.000',
        properties: { tags: '' },
      },
    ]);
  });
});

describe('an import that is killed', () => {
  test('twice on its way stores every row once, and its counts and rejects are exact', async () => {
    const appId = newAppId();
    const count = 30_000;
    const rows = Buffer.from(await written(asText(count), 'JSONEachRow'))
      .toString('utf8')
      .trim()
      .split('\n');
    for (let at = 0; at < count; at += 1_000) rows[at] = `{"broken": ${at}`;
    put('large.ndjson', rows.join('\n'));
    const args = ['large.ndjson', ...mapping, ...to(appId), ...files('killed')];
    const place = () => {
      if (!existsSync(join(folder, 'killed'))) return 0;
      const state = JSON.parse(readFileSync(join(folder, 'killed'), 'utf8')) as {
        files: Record<string, { place: number }>;
      };
      return Object.values(state.files)[0]?.place ?? 0;
    };
    for (let kill = 0; kill < 2; kill++) {
      const before = place();
      // The rate is low enough for a kill on the way.
      const child = start([...args, '--rate', '2000']);
      await until(() => place() > before, { everyMs: 5, what: 'the state has moved' });
      child.kill('SIGKILL');
      await once(child, 'close');
    }
    // Adds rejects that were written after the last state. The service accepts some of the refused rows now.
    appendFileSync(join(folder, 'killed-r'), `${'x'.repeat(100_000)}\n`);
    const reached = place();
    assert.ok(reached > 0 && reached < count, `killed at row ${reached} of ${count}`);
    const { code, counts, words } = await runProgram(args);
    assert.equal(code, 1, words);
    assert.deepEqual(keptOf(counts), { read: count, kept: count - 30, refused: 30 });
    const rejected = readFileSync(join(folder, 'killed-r'), 'utf8').trim().split('\n');
    assert.deepEqual(
      rejected.map((line) => (JSON.parse(line) as { _sluice_row: string })._sluice_row),
      Array.from({ length: 30 }, (_, i) => `large.ndjson:${i * 1_000 + 1}`),
    );
    await untilStored(sluice);
    const [found] = await sluice.rows<{ rows: string; ids: string }>(
      `SELECT toString(count()) AS rows, toString(uniqExact(properties['id'])) AS ids FROM events WHERE app_id = '${appId}'`,
    );
    assert.deepEqual(found, { rows: String(count - 30), ids: String(count - 30) });
    const [again, others] = [await run(args), await run([...args, '--event', 'Other'])];
    assert.deepEqual(again.counts, counts, 'there is nothing left to do');
    assert.match(others.words, /--state killed: it belongs to an import .* with other options/);
  });

  test('by a signal ends at a row from which it can continue', async () => {
    const appId = newAppId();
    put('signal.csv', await written(asText(10_000), 'CSVWithNames'));
    const args = ['signal.csv', ...mapping, ...to(appId), ...files('sig')];
    // Without the signal this would take ten seconds.
    const child = start([...args, '--rate', '1000']);
    await until(() => existsSync(join(folder, 'sig')), { everyMs: 5, what: 'a state is written' });
    child.kill('SIGTERM');
    assert.deepEqual(await once(child, 'close'), [130, null]);
    const { counts } = await run(args);
    assert.deepEqual(counts, { read: 10_000, stored: 10_000, repeats: 0, refused: 0 });
  });
});

describe('rows that are refused', () => {
  const lines = [
    'name,user,when,seats',
    'Opened,ada,2024-01-01T00:00:00Z,1',
    ',ada,2024-01-01T00:00:01Z,2',
    'Opened,,2024-01-01T00:00:02Z,3',
    'Opened,ada,2024-01-01 00:00:03,4',
    'Opened,ada,2024-02-30T00:00:04Z,5',
    'Opened,ada,1704067205,6',
    'Opened,ada,2024-01-01T00:00:06Z',
    `Opened,${'x'.repeat(256)},2024-01-01T00:00:07Z,8`,
    '"Op""ened",ada,2024-01-01T00:00:08Z,"9\n9"',
  ];
  const columns = ['--event-column', 'name', '--identity', 'user', '--timestamp', 'when'];
  const reasons = [
    /event is required/,
    /Exactly one of identity and user_id must be given/,
    /column when that names no time zone; --time-zone must say which/,
    /column when that is not RFC 3339, or not a real date/,
    /as milliseconds; if these are seconds, add --timestamp-format s/,
    /has 3 fields, but the header has 4/,
    /identity is too long/,
  ];

  test('are written to a file with their reasons, and stored under the same keys once they are mended', async () => {
    const appId = newAppId();
    put('bad.csv', lines.join('\n'));
    const { code, counts, words } = await into(appId, 'bad.csv', ...columns);
    assert.equal(code, 1);
    assert.deepEqual(counts, { read: 9, stored: 2, repeats: 0, refused: 7 });
    const file = /refused rows are in (\S+),/.exec(words)?.[1] as string;
    const rejected = readFileSync(join(folder, file), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, string>);
    for (const [index, reason] of reasons.entries())
      assert.match(rejected[index]?._sluice_reason ?? '', reason);
    assert.equal(rejected[1]?._sluice_row, 'bad.csv:4');
    const mended = rejected
      .filter(({ _sluice_text }) => _sluice_text === undefined)
      .map((row) => ({ ...row, name: 'Mended', user: 'grace', when: '2024-01-02T00:00:00Z' }));
    put('mended.ndjson', mended.map((row) => JSON.stringify(row)).join('\n'));
    assert.deepEqual((await into(appId, 'mended.ndjson', ...columns)).counts.stored, 6);
    assert.deepEqual((await into(appId, 'mended.ndjson', ...columns)).counts.repeats, 6);
    const rows = await stored(appId);
    assert.deepEqual(
      rows.map(({ event, properties }) => [event, properties]),
      [
        ['Opened', { seats: '1' }],
        ['Op"ened', { seats: '9\n9' }],
        ...['2', '3', '4', '5', '6', '8'].map((seats) => ['Mended', { seats }]),
      ],
    );
  });

  test('are named by a dry run, by kind and row, which shows the first records and sends nothing', async () => {
    const appId = newAppId();
    put('dry.csv', lines.join('\n'));
    const { code, out, words } = await into(appId, 'dry.csv', ...columns, '--dry-run');
    assert.equal(code, 1);
    for (const reason of reasons) assert.match(words, reason);
    assert.match(words, /1 × event is required\. \(dry\.csv:3\)/);
    assert.match(words, /dry run: 9 rows read, 7 would be refused; nothing was sent/);
    const records = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string; identity: string; idempotency_key: string });
    assert.deepEqual(
      records.map(({ event, identity }) => [event, identity]),
      [
        ['Opened', 'ada'],
        ['Op"ened', 'ada'],
      ],
    );
    assert.deepEqual(await stored(appId), []);
  });

  test('include rows whose time is farther away than any date', async () => {
    const appId = newAppId();
    put('far.ndjson', '{"event": "x", "a": "ada", "t": 1e300, "properties": {"time": 1e300}}\n');
    const seconds = ['--event', 'x', '--identity', 'a', '--timestamp', 't', '--timestamp-format', 's'];
    for (const args of [seconds, ['--preset', 'mixpanel']]) {
      const { code, words } = await into(appId, 'far.ndjson', ...args);
      assert.equal(code, 1);
      assert.match(words, /1 rows read, 0 stored, 1 refused/);
    }
    assert.match(readFileSync(join(folder, `r${imports}`), 'utf8'), /is farther away than any date/);
    assert.deepEqual(await stored(appId), []);
  });

  test('include rows whose time in a Parquet file is not a date', async () => {
    // The second time is replaced by a number of microseconds that ClickHouse would not write.
    const sql = `SELECT number AS id, 'LAX' AS origin, toDateTime64(1234567890 + number, 6, 'UTC') AS date FROM numbers(3)
      SETTINGS output_format_parquet_compression_method = 'none'`;
    const bytes = Buffer.from(await written(sql, 'Parquet'));
    const second = Buffer.alloc(8);
    second.writeBigInt64LE(1_234_567_891_000_000n);
    const far = Buffer.from('ffffffffffffff7f', 'hex');
    for (let at = bytes.indexOf(second); at >= 0; at = bytes.indexOf(second)) far.copy(bytes, at);
    // And the times have no zone any more: isAdjustedToUTC of TIMESTAMP(isAdjustedToUTC, MICROS) becomes false.
    const type = bytes.indexOf(Buffer.from('8c111c2c', 'hex'));
    assert.ok(type > 0);
    bytes[type + 1] = 0x12;
    put('no-date.parquet', bytes);
    for (const zone of ['UTC', 'Europe/Berlin']) {
      const args = ['--event', 'x', '--identity', 'origin', '--timestamp', 'date', '--time-zone', zone];
      const { code, words } = await into('1', 'no-date.parquet', ...args, '--dry-run');
      assert.equal(code, 1);
      assert.match(
        words,
        /1 × The row has a time in the column date that is not a date\. \(no-date\.parquet:2\)/,
      );
      assert.match(words, /3 rows read, 1 would be refused/);
    }
  });

  test('do not include a batch that is too large for a request, since it is sent in parts', async () => {
    const appId = newAppId();
    const wide = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`p${i}`, 'x'.repeat(1_000)]));
    put('wide.ndjson', `${JSON.stringify({ ...wide, user: 'ada' })}\n`.repeat(1_000));
    const { code, counts } = await into(appId, 'wide.ndjson', '--event', 'x', '--identity', 'user');
    assert.deepEqual([code, keptOf(counts)], [0, { read: 1_000, kept: 1_000, refused: 0 }]);
  });
});

describe('an import that is verified', () => {
  test('ends well only if every row has a receipt, whether it was refused or is a repeat', async () => {
    const appId = newAppId();
    const { write_key: key } = (await sluice.admin('write-keys', 'create', appId)) as { write_key: string };
    await untilRegistryIsRead(sluice);
    const rows = Array.from({ length: 2_500 }, (_, n) => JSON.stringify({ user: `u${n}`, n }));
    const file = put('verified.ndjson', `${rows.join('\n')}\n{"user": "u0", "n": 0}\n{"n": 1}\n`);
    const how = ['--event', 'Verified', '--identity', 'user', '--verify'];
    assert.match((await into(appId, file, ...how)).words, /--verify needs --write-key/);
    const first = await into(appId, file, ...how, '--write-key', key);
    assert.equal(first.code, 1, first.words);
    assert.deepEqual(first.counts, {
      read: 2_502,
      stored: 2_501,
      repeats: 0,
      refused: 1,
      verified: { stored: 2_501, waiting: 0, deleted: 0, unknown: 0 },
    });
    const messages = put(
      'verified-messages.ndjson',
      '{"type": "track", "event": "Paid", "userId": "u1", "messageId": "m1", "timestamp": "2026-03-01T10:00:00Z"}\n{"type": "identify", "userId": "u1", "anonymousId": "a1", "traits": {"plan": "pro"}, "messageId": "m2", "timestamp": "2026-03-01T10:00:00Z"}\n',
    );
    const second = await into(appId, messages, '--preset', 'segment', '--verify', '--write-key', key);
    assert.equal(second.code, 0, second.words);
    assert.match(second.words, /verified: stored 2/);
    // Removes two rows, and their keys from the index.
    const theirs = `app_id = '${appId}' AND identity IN ('u5', 'u6')`;
    const lost = await sluice.rows<{ hash: string }>(
      `SELECT toString(reinterpretAsUInt64(substring(UUIDToNum(event_id), 1, 8))) AS hash FROM stored_events WHERE ${theirs}`,
    );
    const hashes = lost.map(({ hash }) => hash).join();
    for (const from of [
      `stored_events DELETE WHERE ${theirs}`,
      `stored_keys DELETE WHERE hash IN (${hashes})`,
    ])
      await sluice.rows(`ALTER TABLE ${from} SETTINGS mutations_sync = 2`);
    const third = await into(appId, file, ...how, '--write-key', key);
    assert.equal(third.code, 1);
    assert.match(
      third.words,
      /verified: stored 2,499, waiting 0, deleted 0, unknown 2; the unknown ones are not stored/,
    );
    assert.match((await into(appId, file, ...how, '--write-key', 'wrong')).words, /--verify: Unauthorized/);
  });
});

test('large rows are not all under way at once', async () => {
  const service = await startAnsweringServer();
  const underWay = { now: 0, most: 0 };
  let third: () => void = () => undefined;
  const thirdCame = new Promise<void>((settle) => {
    third = settle;
  });
  service.answer = async ({ body }) => {
    if (body.events?.length === 0) return { status: 400, body: { err: { code: 'empty' } } };
    underWay.now += 1;
    underWay.most = Math.max(underWay.most, underWay.now);
    if (underWay.now === 3) third();
    // Leaves enough time for a third request to come.
    await Promise.race([thirdCame, wait(1_000)]);
    underWay.now -= 1;
    return { status: 200 };
  };
  // 1,000 rows have 9 million characters, and the importer waits once 16 million are under way.
  const heavyRow = Object.fromEntries(Array.from({ length: 9 }, (_, n) => [`p${n}`, 'x'.repeat(1_000)]));
  put('heavy.ndjson', `${JSON.stringify({ ...heavyRow, user: 'ada' })}\n`.repeat(4_000));
  const args = ['--event', 'x', '--identity', 'user'];
  const command = ['heavy.ndjson', ...args, '--app-id', '1', '--url', service.baseUrl];
  const { counts, words } = await run([...command, '--state', 'heavy', '--rejects', 'heavy-r']);
  service.close();
  assert.deepEqual(counts, { read: 4_000, stored: 4_000, repeats: 0, refused: 0 }, words);
  assert.equal(underWay.most, 2);
});

test('a file of rejects is never emptied by another import, nor left behind without rows', async () => {
  const appId = newAppId();
  const rejects = put('kept.ndjson', '{"user":"ada","_sluice_key":"k"}\n');
  const args = ['--event', 'x', '--identity', 'user', ...to(appId), '--state', 'kept-s'];
  const refused = await run([rejects, ...args, '--rejects', put('others.ndjson', '{}\n')]);
  assert.match(
    refused.words,
    /--rejects others\.ndjson: it holds the rows of another import; name another file/,
  );
  assert.equal(readFileSync(join(folder, 'others.ndjson'), 'utf8'), '{}\n');
  const itself = await run([rejects, ...args, '--rejects', rejects]);
  assert.match(itself.words, /--rejects kept\.ndjson: it is a file to import; name another file/);
  assert.equal((await run([rejects, ...args, '--rejects', 'kept-r'])).counts.stored, 1);
  assert.equal(existsSync(join(folder, 'kept-r')), false);
});

test('a folder stands for its files, not for those that imports keep in it', async () => {
  mkdirSync(join(folder, 'own'));
  put('own/rows.ndjson', '{"user":"ada"}\n{"user":7.5}\n');
  put('own/sluice-import.state', '{}\n');
  put('own/sluice-import.rejects.ndjson', '{"user":"refused by another import"}\n');
  put('own/sluice-import.ndjson', '{"user":"eve"}\n');
  const args = ['--event', 'x', '--identity', 'user', ...to(newAppId())];
  const command = [...args, '--state', 'own/s', '--rejects', 'own/r'];
  for (const word of ['own', 'own/*', 'own']) {
    const { counts, words } = await run([word, ...command]);
    assert.deepEqual(counts, { read: 3, stored: 2, repeats: 0, refused: 1 }, words);
  }
  assert.match((await run(['own', ...command, '--dry-run'])).words, /dry run: 3 rows read/);
});

test('a full disk ends an import with one line, and the same command continues exactly there', async () => {
  const appId = newAppId();
  const count = 4_000;
  put('full.csv', `user,when\n${'ada,soon\n'.repeat(count)}`);
  const args = ['full.csv', '--event', 'x', '--identity', 'user', '--timestamp', 'when', ...to(appId)];
  // No file of the process may grow beyond this, which is about a sixth of the rejects, in the middle of a row.
  const limited = await runProgram([...args, ...files('full')], '', ['prlimit', '--fsize=100000']);
  assert.equal(limited.code, 1);
  assert.equal(
    limited.words,
    'import: --rejects full-r: it cannot be written: EFBIG: file too large, write\n',
  );
  const piped = await runProgram(['-', ...args.slice(1), ...files('full')], 'x'.repeat(60_000), [
    'prlimit',
    '--fsize=30000',
  ]);
  assert.match(
    piped.words,
    /^import: -: it cannot be read: \S+ has no room for a copy of it \(EFBIG: file too large, write\); free some, or set TMPDIR to another folder\n$/,
  );
  const { code, counts, words } = await run([...args, ...files('full')]);
  assert.deepEqual([code, counts], [1, { read: count, stored: 0, repeats: 0, refused: count }], words);
  const places = readFileSync(join(folder, 'full-r'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as { _sluice_row: string })._sluice_row);
  assert.deepEqual(
    places,
    Array.from({ length: count }, (_, row) => `full.csv:${row + 2}`),
  );
});

describe('a command line that is wrong', () => {
  const cases: Readonly<Record<string, { args: readonly string[]; words: RegExp }>> = {
    'no app_id': {
      args: ['x.csv', '--event', 'x', '--identity', 'y'],
      words: /^--app-id is missing: the environment to import into$/,
    },
    'an unknown option': {
      args: ['x.csv', '--app-id', '1', '--evnt', 'x'],
      words: /^Unknown option '--evnt'/,
    },
    'no column of users': {
      args: ['x.csv', '--app-id', '1', '--event', 'x'],
      words: /^--identity, --user-id or --anonymous-id must say which column holds the user$/,
    },
    'a pattern of times without a zone': {
      args: [
        ...'x.csv --app-id 7 --event x --identity a --timestamp t --timestamp-format'.split(' '),
        'DD.MM.YYYY',
      ],
      words:
        /^--timestamp-format: DD\.MM\.YYYY holds no zone \(Z\), so --time-zone must say which: UTC, \+02:00 or a name such as Europe\/Berlin$/,
    },
  };
  const complete = ['x.csv', '--app-id', '7', '--event', 'x', '--identity', 'a'];
  const properties = (list: string) => [...complete, '--properties', list];
  const faults: readonly (readonly [args: readonly string[], words: string])[] = [
    [properties('a,b,a=c'), '--properties a,b,a=c: a is there twice'],
    [properties('a=x,b=x'), '--properties a=x,b=x: x is there twice'],
    [properties('a=b=c'), '--properties a=b=c: a=b=c has two ='],
    ...['0x10', '', ' 5', '1e3', 'Infinity', '0', '0.0001', '-5'].map(
      (rate) =>
        [[...complete, `--rate=${rate}`], `--rate ${rate}: it must be a number of rows a second`] as const,
    ),
    [[...complete, '--url', 'ftp://me:secret@x'], '--url ftp://x: it must begin with http:// or https://'],
    [[...complete, '--url', 'http://me:secret@x:99999'], '--url http://x:99999: it is not a URL'],
    [
      ['x.csv', '--app-id', '7', '--preset', 'heap', '--time-zone', 'Europe/Berlin'],
      '--preset heap says which column is what, so --time-zone must not be given',
    ],
  ];
  test('such as a name twice, an odd number or a preset with columns is one clear line', () => {
    for (const [args, words] of faults)
      assert.throws(() => readOptions(args, {}), { message: words }, args.join(' '));
    assert.equal(readOptions([...complete, '--rate', '0.5'], {})?.rowsPerSecondMax, 0.5);
  });
  for (const [name, { args, words }] of Object.entries(cases)) {
    test(`such as ${name} is one clear line`, () => {
      assert.throws(
        () => readOptions(args, {}),
        (error) => error instanceof ImportError && words.test(error.message),
      );
    });
  }
});

describe('input that is wrong', () => {
  const own = (file: string, column = 'a') => [
    file,
    '--event',
    'x',
    '--identity',
    column,
    ...to(sluice.appId),
  ];
  const cases: Readonly<Record<string, readonly [args: () => string[], words: RegExp]>> = {
    'a file that is not there': [() => own('nowhere.csv'), /^import: nowhere\.csv: there is no such file\n$/],
    'a name that a terminal would obey': [
      () => own('no\u001b[31mwhere.csv'),
      /^import: no\ufffd\[31mwhere\.csv: there is no such file\n$/,
    ],
    'a pattern without files': [() => own('nowhere-*.csv'), /^import: nowhere-\*\.csv: no file matches\n$/],
    'an unknown app_id': [
      () => [...own(put('x.csv', 'a\n1\n')), '--app-id', '7'],
      /^import: --app-id 7: No environment has this app_id\.\n$/,
    ],
    'a service that is away': [
      () => [...own(put('x.csv', 'a\n1\n')), '--url', 'http://127.0.0.1:1'],
      /^import: --url http:\/\/127\.0\.0\.1:1: connect ECONNREFUSED 127\.0\.0\.1:1\n$/,
    ],
    'a column that is not there': [
      () => own(put('x.csv', 'a,b\n1,2\n'), 'c'),
      /import: x\.csv: there is no column c; there are a, b\n$/,
    ],
    'a file of another format': [
      () => own(put('x.parquet', 'no')),
      /import: x\.parquet: it cannot be read as parquet: /,
    ],
    'a state that cannot be written': [
      () => [...own(put('x.csv', 'a\n1\n')), '--state', 'nowhere/state'],
      /^import: --state nowhere\/state: it cannot be written: ENOENT: [^\n]*\n$/,
    ],
    'a state without its files': [
      () => [...own(put('x.csv', 'a\n1\n')), '--state', put('half.json', '{"version":1}')],
      /^import: --state half\.json: it is not the state of an import\n$/,
    ],
    'gzip that ends too early': [
      () => own(put('x.csv.gz', gzipSync('a\n'.repeat(1_000)).subarray(0, 25))),
      /^import: x\.csv\.gz: it is corrupt: it ends too early; nothing of it was imported\n$/,
    ],
  };
  for (const [name, [args, words]] of Object.entries(cases)) {
    test(`such as ${name} is one clear line`, async () => {
      const ran = await run(args());
      assert.equal(ran.code, 1);
      assert.match(ran.words, words);
    });
  }
});

describe('the allowance for imports', () => {
  const limited = ['--limit', 'bulk_app=2', '--limit', 'bulk_identity=1'];
  const sendTwo = (appId: string, token?: string) =>
    fetch(`${sluice.baseUrl}/api/track`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(token && { 'sluice-import': token }) },
      body: JSON.stringify({ app_id: appId, events: Array(2).fill({ event: 'x', identity: 'ada' }) }),
    });

  test('lifts the limits of bulk requests for callers with its token, until it ends', async () => {
    const appId = await createEnvironment(sluice, ...limited);
    const set = (until: string) => sluice.admin('environments', 'set', appId, '--import-until', until);
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
    const { import_token: token, ...environment } = (await set(tomorrow)) as Record<string, string>;
    assert.deepEqual([environment.import_until, environment.import_token_hash], [tomorrow, undefined]);
    put('allowed.csv', `user\n${'ada\n'.repeat(1_500)}`);
    const columns = ['--event', 'x', '--identity', 'user'];
    const { code, counts, words } = await into(
      appId,
      'allowed.csv',
      ...columns,
      '--import-token',
      String(token),
    );
    assert.equal(code, 0, words);
    assert.equal(keptOf(counts).kept, 1_500);
    assert.equal((await sendTwo(appId)).status, 400, 'nobody else passes');
    assert.equal((await sendTwo(appId, token)).status, 200);
    assert.equal((await sendTwo(appId, `${token}x`)).status, 401);
    const collected = await fetch(`${sluice.baseUrl}/api/collect`, {
      method: 'POST',
      headers: { 'sluice-import': `${token}x` },
      body: JSON.stringify({ app_id: appId, sent_at: new Date().toISOString(), messages: [{}] }),
    });
    assert.equal(collected.status, 200, 'pages send no imports');
    const wrong = await into(appId, 'allowed.csv', ...columns, '--import-token', 'sli_x');
    assert.match(wrong.words, /Unauthorized: the token for imports is wrong or has expired\./);
    await set('none');
    await until(async () => (await sendTwo(appId, token)).status === 401, 'the allowance has ended');
    for (const until of ['2020-01-01', 'soon', '2999-01-01'])
      await assert.rejects(set(until), /import_until must be none, or a date/);
  });
});

describe('exports of other systems', () => {
  const shown = async (appId: string) =>
    (await stored(appId)).map(({ event, identity, user_id, time, properties }) => [
      event,
      identity || user_id,
      time,
      properties,
    ]);
  const users = (appId: string) =>
    sluice.rows<{ identity: string; user_ids: string[]; properties: object }>(
      `SELECT identity, arrayMap(x -> toString(x), user_ids) AS user_ids, properties FROM users WHERE app_id = '${appId}'`,
    );
  const ndjson = (name: string, rows: readonly object[]) =>
    put(name, rows.map((row) => JSON.stringify(row)).join('\n'));

  test('of Segment: messages with the times of the archive', async () => {
    const appId = newAppId();
    const common = { sentAt: '2023-05-05T00:00:09Z', receivedAt: '2023-05-05T00:00:10Z', anonymousId: 'tv' };
    ndjson('segment.json', [
      {
        ...common,
        type: 'track',
        event: 'Opened',
        messageId: '1',
        timestamp: '2023-05-05T00:00:00.000Z',
        properties: { a: { b: 1 } },
      },
      { ...common, type: 'identify', userId: 'ada', messageId: '2', traits: { plan: 'pro' } },
      { ...common, type: 'delete', messageId: '3' },
    ]);
    const { counts } = await into(appId, 'segment.json', '--preset', 'segment', '--format', 'ndjson');
    assert.deepEqual(counts, { read: 3, stored: 2, repeats: 0, refused: 1 });
    assert.deepEqual(await shown(appId), [
      ['Opened', userIdOfAnonymousId('tv'), '2023-05-05 00:00:00.000', { 'a.b': '1' }],
    ]);
    assert.deepEqual(await users(appId), [
      { identity: 'ada', user_ids: [userIdOfAnonymousId('tv')], properties: { plan: 'pro' } },
    ]);
    const again = await into(appId, 'segment.json', '--preset', 'segment', '--format', 'ndjson');
    assert.equal(again.counts.repeats, 2);
    const archived = { type: 'identify', userId: 'ada', messageId: '9', traits: { plan: 'free', seat: 3 } };
    ndjson('archive.json', [{ ...archived, timestamp: '2023-05-04T00:00:00Z' }]);
    assert.equal((await into(appId, 'archive.json', '--preset', 'segment', '--format', 'ndjson')).code, 0);
    await untilStored(sluice);
    assert.deepEqual(
      (await users(appId)).map(({ properties }) => properties),
      [{ plan: 'pro', seat: '3' }],
      'older values replace nothing',
    );
    // The import's first request has no record that could have been refused.
    assert.deepEqual(await sluice.admin('rejected', 'list', appId), []);
  });

  test('of Google Analytics 4 and PostHog as Parquet, with lists of structures and with texts of JSON', async () => {
    const value =
      'Tuple(string_value Nullable(String), int_value Nullable(Int64), double_value Nullable(Float64))';
    const params = `Array(Tuple(key String, value ${value}))`;
    const ga4 = `SELECT 'purchase' AS event_name, toInt64(1721469600123456) AS event_timestamp, '11.22' AS user_pseudo_id,
      CAST([('ga_session_id', (NULL, 7, NULL)), ('currency', ('EUR', NULL, NULL)), ('value', (NULL, NULL, 12.5))], '${params}')
        AS event_params,
      CAST(tuple('mobile'), 'Tuple(category String)') AS device`;
    const posthog = `SELECT 'u-1' AS uuid, 'Paid' AS event, 'ada' AS distinct_id, toDateTime64('2024-07-20 10:00:00.5', 6, 'UTC')
      AS timestamp, '{"n": 12345678901234567890}' AS properties, '{"plan": "pro"}' AS person_properties`;
    const appId = newAppId();
    put('ga4.parquet', Buffer.from(await written(ga4, 'Parquet')));
    put('posthog.parquet', Buffer.from(await written(posthog, 'Parquet')));
    for (const preset of ['ga4', 'posthog'])
      assert.equal((await into(appId, `${preset}.parquet`, '--preset', preset)).code, 0);
    assert.deepEqual(await shown(appId), [
      [
        'purchase',
        userIdOfAnonymousId('11.22'),
        '2024-07-20 10:00:00.123',
        { 'device.category': 'mobile', currency: 'EUR', value: '12.5' },
      ],
      ['Paid', 'ada', '2024-07-20 10:00:00.500', { n: '12345678901234567890' }],
    ]);
    assert.deepEqual((await users(appId)).find(({ identity }) => identity === 'ada')?.properties, {
      plan: 'pro',
    });
  });
});
