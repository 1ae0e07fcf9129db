// Exports of users' data: who may ask for one, what is in it, and when it ends. Random histories show that it has just what
// a deletion would take.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { after } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { parse } from 'csv-parse/sync';
import { connectClickHouse } from '../../src/clickhouse/client.js';
import { columnsOf } from '../../src/clickhouse/tables.js';
import { userExports } from '../../src/contract/limits.js';
import { userIdOfAnonymousId } from '../../src/contract/user-id.js';
import { csvOf } from '../../src/parsing/csv/write.js';
import { resolveAlone } from '../../src/privacy/deletion/resolve-users.js';
import { similarPredicate } from '../../src/privacy/deletion/round-counts.js';
import { mutationPredicate } from '../../src/privacy/deletion/round-keys.js';
import { createRoundTables } from '../../src/privacy/deletion/round-tables.js';
import { registryKeys } from '../../src/redis/keys.js';
import { createTestAccount, type TestAccount } from '../harness/accounts.js';
import { atPort } from '../harness/clickhouse.js';
import {
  ask,
  type Dump,
  dumpTables,
  getToken,
  type NamedUser,
  send,
  sendEvents,
  sendIdentify,
  sendProperties,
  storeFailedRow,
  submitAccepted,
  untilComplete,
  untilStored,
  withoutRounds,
} from '../harness/deletion.js';
import { withRedis } from '../harness/redis-client.js';
import { type Child, startClickHouse, startTcpProxy } from '../harness/services.js';
import {
  askForExport,
  exportPath,
  filesOfArchive,
  linesOf,
  readExportData,
  readExportStatus,
  readRecords,
  recordsOf,
  submitExport,
  untilExportComplete,
} from '../harness/user-export.js';
import { until, within } from '../harness/wait.js';
import { type ConsolePage, signedIn } from '../support/console.js';
import fc from '../support/fast-check.js';
import { addExports, removeExports } from '../support/pending.js';
import { ownSluice } from '../support/sluice.js';
import { test } from '../support/test.js';

const clickhouse = await startClickHouse();
const proxy = await startTcpProxy({ port: clickhouse.port });
const sluice = await ownSluice({
  clickhouse,
  apiEnv: { CLICKHOUSE_URL: atPort(clickhouse.testerUrl, proxy.port) },
});
const account = await createTestAccount(sluice, 'Exports');
const stranger = await createTestAccount(sluice, 'Stranger');
const token = await getToken(sluice, account);
const [main = '', staging = ''] = account.appIds;

after(async () => {
  await proxy.close();
  await clickhouse.remove();
});

test('exports every record of a merged user in every environment, and nothing else', async () => {
  await send(sluice, '/api/track', {
    app_id: main,
    event: 'Order Completed',
    identity: 'ada@example.com',
    session_id: 's1',
    properties: { amount: 12.5, note: 'line\nfeed "quoted" ü' },
    timestamp: '2026-03-01T12:30:00.250+01:00',
    idempotency_key: 'order-1',
  });
  await sendEvents(sluice, main, 'go', [{ user_id: '71' }, { user_id: '72' }]);
  await sendIdentify(sluice, main, '71', 'ada@example.com');
  await sendIdentify(sluice, main, '72', 'ada@example.com');
  await sendIdentify(sluice, main, '72', 'bob@example.com');
  await sendProperties(sluice, main, 'go', ['ada@example.com']);
  await sendEvents(sluice, staging, 'go', [{ user_id: '72' }]);
  // In Staging nobody was merged.
  await sendEvents(sluice, staging, 'stay', [{ user_id: '71' }, { identity: 'ada@example.com' }]);
  await sendEvents(sluice, stranger.appIds[0] ?? '', 'stay', [{ identity: 'ada@example.com' }]);
  const row = `["${main}","${'0'.repeat(32)}","Odd",null,"ada@example.com","",null,{},1,1,1,"2026-01-01 00:00:00.000"]`;
  await storeFailedRow(sluice, main, 'go', { identity: 'ada@example.com', row });
  await storeFailedRow(sluice, main, 'stay', { identity: 'bob@example.com' });
  const id = await submitExport(sluice, token, [{ user_id: 72 }, { identity: 'nobody@example.com' }]);
  await sendEvents(sluice, main, 'stay', [{ identity: 'ada@example.com' }]);
  await untilExportComplete(sluice, token, id);

  const lines = linesOf((await readExportData(sluice, token, id)).text);
  assert.deepEqual(
    lines.filter(({ kind }) => kind === 'user'),
    [{ kind: 'user', app_id: main, identity: 'ada@example.com', user_ids: ['71', '72'] }],
  );
  const records = recordsOf(lines);
  const kindsOf = (appId: string) =>
    records
      .filter(({ app_id }) => app_id === appId)
      .map(({ kind, user_id, identity }) => `${kind} ${user_id ?? identity}`)
      .sort();
  assert.deepEqual(kindsOf(main), [
    'event 71',
    'event 72',
    'event ada@example.com',
    'failed_record ada@example.com',
    'user_identity 71',
    'user_identity 72',
    'user_identity 72',
    'user_properties ada@example.com',
  ]);
  assert.deepEqual(kindsOf(staging), ['event 72']);
  assert.equal(records.length, 9);
  const order = records.find(({ event }) => event === 'Order Completed');
  assert.ok(order !== undefined);
  const { received_at: receivedAt, event_id: eventId, ...rest } = order;
  assert.deepEqual(rest, {
    kind: 'event',
    app_id: main,
    event: 'Order Completed',
    user_id: null,
    identity: 'ada@example.com',
    session_id: 's1',
    time: '2026-03-01T11:30:00.250Z',
    properties: { amount: '12.5', note: 'line\nfeed "quoted" ü' },
  });
  assert.match(String(receivedAt), /^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.match(String(eventId), /^(?!00000000)[0-9a-f-]{36}$/);
  const failed = records.find(({ kind }) => kind === 'failed_record');
  assert.ok(failed !== undefined);
  assert.equal(failed.row, row);
  assert.deepEqual((failed.columns as string[]).slice(0, 5), [
    'app_id',
    'event_id',
    'event',
    'user_id',
    'identity',
  ]);
});

test('answers 429 when the account has as many exports as it may', async () => {
  const { accountId } = stranger;
  const strangers = await getToken(sluice, stranger);
  await withRedis(sluice, async (redis) => {
    const has = Array.from({ length: userExports.perAccountMax - 1 }, (_, n) => `${accountId} full-${n}`);
    await addExports(redis, has, Date.now() + 3_600_000);
    await addExports(redis, [`${accountId} over`], 1);
    assert.equal((await askForExport(sluice, strangers, [{ user_id: 1 }])).status, 201);
    const refused = await askForExport(sluice, strangers, [{ user_id: 1 }]);
    assert.deepEqual([refused.status, refused.headers['retry-after']], [429, '600']);
    assert.equal((await askForExport(sluice, token, [{ user_id: 1 }])).status, 201);
    await removeExports(redis, has);
  });
});

test('an export is found for 24 hours', async () => {
  const id = await submitExport(sluice, token, [{ identity: 'ada@example.com' }]);
  await withRedis(sluice, async (redis) => {
    const left = await redis.pttl(registryKeys.export(id));
    assert.ok(left > userExports.keptMs - 60_000 && left <= userExports.keptMs, `${left} ms`);
    await redis.pexpire(registryKeys.export(id), 1);
    await until(async () => (await redis.exists(registryKeys.export(id))) === 0, 'the request has expired');
  });
  assert.equal((await readExportStatus(sluice, token, id)).status, 404);
  assert.equal((await readExportData(sluice, token, id)).status, 404);
});

test('an export is pending until every record acknowledged before it is stored', async () => {
  const [worker] = sluice.workers;
  await untilStored(sluice);
  worker?.sigstop();
  let id: string;
  try {
    await sendEvents(sluice, main, 'go', [{ identity: 'late@example.com' }]);
    id = await submitExport(sluice, token, [{ identity: 'late@example.com' }]);
    assert.match((await readExportStatus(sluice, token, id)).text, /"status":"pending"/);
    const early = await readExportData(sluice, token, id);
    assert.deepEqual(
      [early.status, (JSON.parse(early.text) as { err: { code: string } }).err.code],
      [409, 'not_complete'],
    );
  } finally {
    worker?.sigcont();
  }
  await untilExportComplete(sluice, token, id);
  assert.equal((await readRecords(sluice, token, id)).length, 1);
});

test('an export waits for deletions before it, and has only what came after them', async () => {
  const users = [{ identity: 'again@example.com' }];
  await sendEvents(sluice, main, 'go', users);
  let id = '';
  await withoutRounds(sluice, async () => {
    await submitAccepted(sluice, token, users);
    await sendEvents(sluice, main, 'stay', [...users, ...users]);
    id = await submitExport(sluice, token, users);
    await untilStored(sluice);
    assert.match((await readExportStatus(sluice, token, id)).text, /"status":"pending"/);
    assert.equal((await readExportData(sluice, token, id)).status, 409);
  });
  await untilExportComplete(sluice, token, id);
  const records = await readRecords(sluice, token, id);
  assert.deepEqual(
    records.map(({ properties }) => properties),
    [{ fate: 'stay' }, { fate: 'stay' }],
  );
});

test('an export ends with a later deletion of one of its users by any of their ids, and shows nothing of it, though workers die meanwhile', async () => {
  await sendEvents(sluice, main, 'go', [{ identity: 'ended@example.com' }]);
  await sendIdentify(sluice, main, '81', 'ended@example.com');
  const ended = await submitExport(sluice, token, [{ identity: 'x' }, { identity: 'ended@example.com' }]);
  const other = await submitExport(sluice, token, [{ identity: 'other@example.com' }]);
  const strangers = await getToken(sluice, stranger);
  const elsewhere = await submitExport(sluice, strangers, [{ identity: 'ended@example.com' }]);
  const overtaken = await completeExportOf([{ identity: 'ended@example.com' }]);
  // The worker is killed while the deletion still knows its users, so the next round can end the remaining exports.
  const [worker] = sluice.workers as [Child];
  await worker.restart({ CRASH_AT: 'exports_ended:1' });
  const deletion = await submitAccepted(sluice, token, [{ user_id: 81 }]);
  await until(() => !worker.running, 'the worker has ended the export');
  assert.equal((await readExportStatus(sluice, token, ended)).status, 404);
  await worker.restart({ CRASH_AT: 'after_mutation:1' });
  await until(() => !worker.running, 'one of two tables has no rows of the user');
  for (const id of [ended, overtaken]) {
    const { status, text } = await readExportData(sluice, token, id);
    assert.equal(status, 404, text);
  }
  await worker.restart();
  await untilComplete(sluice, token, deletion);
  assert.equal((await readExportData(sluice, token, ended)).status, 404);
  assert.equal((await readExportStatus(sluice, token, other)).status, 200);
  assert.equal((await readExportStatus(sluice, strangers, elsewhere)).status, 200);
  await withRedis(sluice, async (redis) => {
    assert.equal(await redis.exists(registryKeys.export(ended)), 0);
    assert.equal(await redis.zscore(registryKeys.exports, `${account.accountId} ${ended}`), null);
  });
});

test('the audit log’s lines about an export name it and no user', async () => {
  const id = await submitExport(sluice, token, [{ identity: 'audited@example.com' }]);
  await untilExportComplete(sluice, token, id);
  await readRecords(sluice, token, id);
  // A download's line is written when the reader has all of it.
  await until(async () => {
    const lines = (await sluice.admin('audit', 'list', '--limit', '50')) as {
      action: string;
      outcome: string;
      details: unknown;
    }[];
    const its = lines.filter(({ details }) => JSON.stringify(details).includes(id));
    assert.deepEqual(
      new Set(its.map(({ action, outcome }) => `${action} ${outcome}`)),
      new Set(['submit_export done', 'read_export done']),
    );
    assert.doesNotMatch(JSON.stringify(lines), /audited@/);
    return true;
  }, 'the audit log has its lines and no user');
});

// A user whose export is much larger than all buffers on its way. The rows are few and long, since each row costs time.

const heavy = { identity: 'heavy@example.com' };
const heavyRows = 20_000;
/** The rows of the heavy user and of others. */
const allRows = 100_000;
let heavyExport: string;
/** Another account with such a user. */
let second: TestAccount;

async function storeHeavyRows(appId = main): Promise<void> {
  // Compressed, too, they are larger than the buffers.
  const hashes = 'arrayMap(n -> hex(cityHash64(number, n)), range(150))';
  const note = `if(number < ${heavyRows}, arrayStringConcat(${hashes}), '')`;
  await sluice.rows(`INSERT INTO stored_events
    SELECT '${appId}', generateUUIDv4(), 'Page View', NULL, if(number < ${heavyRows}, '${heavy.identity}', concat('u', toString(number % 5000))), 's', now64(3),
      map('note', ${note}, 'number', toString(number)), number, 1, 1, now64(3)
    FROM numbers(${allRows})`);
}

/** Begins to read an export and stops reading after the first bytes. */
function beginReading(id: string, ofToken = token): Promise<IncomingMessage> {
  const url = `${sluice.baseUrl}${exportPath}/${id}/data`;
  return begin({ url, headers: { authorization: `Bearer ${ofToken}` } });
}

type Asked = { readonly url: string; readonly headers: Record<string, string> };

async function begin({ url, headers }: Asked): Promise<IncomingMessage> {
  // An earlier download ends only once its line in the audit log is written, so a 503 is tried again.
  const reply = await until(async () => {
    const begun = await new Promise<IncomingMessage>((settle, reject) => {
      const sent = request(url, { headers, agent: false }, settle);
      sent.once('error', reject);
      sent.end();
    });
    if (begun.statusCode === 503) begun.resume();
    return begun.statusCode !== 503 && begun;
  }, 'a download begins');
  assert.equal(reply.statusCode, 200);
  await new Promise((settle) => reply.once('readable', settle));
  assert.ok(reply.read(1) !== null);
  return reply;
}

/** Reads the rest of an answer, perhaps with a pause after each piece; settles with its text and with whether it is whole. */
async function readRest(
  reply: IncomingMessage,
  pause: () => unknown = () => undefined,
): Promise<{ tail: string; bytes: number; isWhole: boolean }> {
  let tail = '';
  let bytes = 0;
  try {
    for await (const piece of reply as AsyncIterable<Buffer>) {
      bytes += piece.length;
      tail = (tail + piece.toString('latin1')).slice(-300);
      await pause();
    }
    return { tail, bytes, isWhole: true };
  } catch {
    return { tail, bytes, isWhole: false };
  }
}

/** What downloads still use in ClickHouse. */
async function readLeft(): Promise<{ tables: number; queries: number }> {
  const [left] = await sluice.rows<{ tables: number; queries: number }>(`SELECT
    toUInt32((SELECT count() FROM system.tables WHERE startsWith(database, currentDatabase()) AND startsWith(name, 'user_export_'))) AS tables,
    toUInt32((SELECT count() FROM system.processes WHERE startsWith(query_id, 'user_export_'))) AS queries`);
  assert.ok(left !== undefined);
  return left;
}

async function untilNothingIsLeft(): Promise<void> {
  await until(
    async () => Object.values(await readLeft()).every((count) => count === 0),
    'nothing of a download is left in ClickHouse',
  );
}

async function completeExportOf(users: readonly NamedUser[]): Promise<string> {
  const id = await submitExport(sluice, token, users);
  await untilExportComplete(sluice, token, id);
  return id;
}

function residentBytes(): number {
  const status = readFileSync(`/proc/${sluice.api[0]?.pid}/status`, 'utf8');
  return 1024 * Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]);
}

test('streams a user with many records through little memory, however slowly it is read', async () => {
  await storeHeavyRows();
  heavyExport = await completeExportOf([heavy]);
  // The first download makes the process grow to its usual size.
  const { headers, text } = await ask(sluice.baseUrl, {
    method: 'GET',
    path: `${exportPath}/${await completeExportOf([{ identity: 'ada@example.com' }])}/data`,
    headers: [['Authorization', `Bearer ${token}`]],
  });
  assert.equal(headers['content-type'], 'application/x-ndjson');
  recordsOf(linesOf(text));
  const before = residentBytes();
  let highest = before;
  const reply = await beginReading(heavyExport);
  const watch = setInterval(() => {
    highest = Math.max(highest, residentBytes());
  }, 20);
  // The service has sent what fits into the buffers of both sides by now, and waits.
  let looks = 0;
  await until(
    async () => {
      assert.equal((await readLeft()).queries, 1, 'the query waits for the reader');
      looks += 1;
      return looks === 15;
    },
    { what: 'the query waits', everyMs: 50 },
  );
  const { tail, bytes, isWhole } = await readRest(reply);
  clearInterval(watch);
  assert.ok(isWhole && tail.endsWith(`{"kind":"end","records":${heavyRows}}\n`), tail);
  const grownMiB = (highest - before) / 2 ** 20;
  // A process that held the whole export would have it as bytes and as text; garbage that a busy machine collects late is less.
  assert.ok(bytes > 45 * 2 ** 20 && grownMiB < 80, `${bytes} bytes, ${grownMiB} MiB more`);
  await untilNothingIsLeft();
});

test('compresses the lines when the reader accepts gzip', async () => {
  const id = await completeExportOf([{ identity: 'ada@example.com' }]);
  const read = async (coding: string) => {
    const sent = await new Promise<IncomingMessage>((settle, reject) => {
      const headers = { authorization: `Bearer ${token}`, 'accept-encoding': coding };
      request(`${sluice.baseUrl}${exportPath}/${id}/data`, { headers, agent: false }, settle)
        .once('error', reject)
        .end();
    });
    const pieces: Buffer[] = [];
    for await (const piece of sent as AsyncIterable<Buffer>) pieces.push(piece);
    return { coding: sent.headers['content-encoding'], body: Buffer.concat(pieces) };
  };
  const plain = await read('br, gzip;q=0');
  const gzip = await read('br;q=0.5, gzip');
  assert.deepEqual([plain.coding, gzip.coding], [undefined, 'gzip']);
  const sorted = (body: Buffer) =>
    linesOf(body.toString())
      .map((line) => JSON.stringify(line))
      .sort();
  assert.deepEqual(sorted(gunzipSync(gzip.body)), sorted(plain.body));
  assert.ok(plain.body.length > gzip.body.length);
});

async function readArchive(id: string, zone = 'UTC'): Promise<Map<string, string>> {
  const url = `${sluice.baseUrl}${exportPath}/${id}/data?format=zip&zone=${encodeURIComponent(zone)}`;
  const sent = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
  assert.equal(sent.headers.get('content-type'), 'application/zip');
  assert.equal(sent.headers.get('content-disposition'), `attachment; filename="export-${id}.zip"`);
  return filesOfArchive(Buffer.from(await sent.arrayBuffer()));
}

test('no spreadsheet takes a text for a formula, whatever invisible characters precede it', () => {
  for (const sign of ['=', '+', '-', '@', '＝', '＋', '－', '＠'])
    for (const before of [
      '',
      ' ',
      '\t',
      '\u00a0',
      '\ufeff',
      '\u200b',
      '\u202e',
      '\u2066',
      '\0',
      '\x1b',
      '\x7f',
      '\u00ad',
    ])
      assert.match(csvOf([[`${before}${sign}1+1`]]), /^"?'/, JSON.stringify(before + sign));
  assert.equal(csvOf([['a=1', 'é-1', -1]]), 'a=1,é-1,-1');
});

test('an archive has every line twice: on a page to read, which runs no code, and in files beside the page', async () => {
  const hostile = `</dl><script>alert('1')</script><img src="https://example.com/x">&amp;`;
  const properties = { [hostile]: hostile, note: 'zwei\nZeilen', empty: '' };
  const at = (hour: string) => `2026-03-01T${hour}:00:00Z`;
  await send(sluice, '/api/track', {
    app_id: main,
    events: [
      { event: hostile, identity: hostile, properties, timestamp: at('15') },
      { event: 'Signed Up', identity: hostile, properties, timestamp: at('09') },
    ],
  });
  await sendIdentify(sluice, main, '4711', hostile);
  await send(sluice, '/api/add_user_properties', {
    app_id: main,
    identity: hostile,
    properties: { plan: 'pro' },
  });
  const row = `["${main}","${'0'.repeat(32)}","Odd",null,"${hostile.replaceAll('"', '\\"')}","",null,{},1,1,1,"2026-01-01 00:00:00.000"]`;
  await storeFailedRow(sluice, main, 'go', { identity: hostile, row });
  const id = await completeExportOf([{ identity: hostile }]);
  const files = await readArchive(id);
  assert.deepEqual([...files.keys()], ['data-1.html', 'data-1.csv', 'data-1.ndjson']);
  const lines = files.get('data-1.ndjson') ?? '';
  assert.equal(recordsOf(linesOf(lines)).length, 5);
  const sorted = (text: string) => text.split('\n').sort();
  assert.deepEqual(sorted(lines), sorted((await readExportData(sluice, token, id)).text));
  const page = files.get('data-1.html') ?? '';
  const shown =
    '&lt;/dl&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&lt;img src=&quot;https://example.com/x&quot;&gt;&amp;amp;';
  // It is the name and the value of a property of two events, the name of one event, and the user in each of six lines.
  assert.equal(page.split(shown).length - 1, 2 * 2 + 1 + 6);
  assert.doesNotMatch(page, /<script|<img|https?:(?!\/\/example\.com\/x&quot;)/);
  assert.match(page, /content="default-src 'none'; style-src 'unsafe-inline'"/);
  const order = [
    ...['<h2>Main Production</h2>', '>4711<', '>pro<', '>Signed Up<', '>2026-03-01 15:00:00<', '>Odd<'],
    'the end: 5 records',
  ];
  const places = order.map((text) => page.indexOf(text));
  assert.deepEqual(
    places,
    places.toSorted((a, b) => a - b),
  );
  assert.ok(!places.includes(-1), String(places));
  assert.ok(page.includes('zwei\nZeilen'));
  assert.match(page, /<dt><bdi>empty<\/bdi><\/dt><dd><bdi><\/bdi><\/dd>/);
  // The spreadsheet has the same: a row for each line, without formulas, and a column for each property.
  const [head, ...rows] = parse(files.get('data-1.csv') ?? '', { bom: true }) as string[][];
  assert.deepEqual(head?.slice(0, 6), ['environment', 'kind', 'time', 'event', 'identity', 'user_id']);
  assert.deepEqual([...new Set(rows.map(([name]) => name))], ['Main Production']);
  assert.equal(rows.length, 6);
  const note = head?.indexOf('property note') ?? -1;
  assert.deepEqual(rows.map((cells) => cells[note]).filter(Boolean), ['zwei\nZeilen', 'zwei\nZeilen']);
  // Times are in the reader's zone, with summer time.
  const inRome = await readArchive(id, 'Europe/Rome');
  assert.match(inRome.get('data-1.html') ?? '', /zone Europe\/Rome[\s\S]*>2026-03-01 16:00:00</);
  assert.match(inRome.get('data-1.csv') ?? '', /,2026-03-01 16:00:00,/);
  assert.deepEqual(sorted(inRome.get('data-1.ndjson') ?? ''), sorted(lines), 'programs get UTC');
});

test('an archive of many records has pages, is made in little memory, and is no archive if it breaks off', async () => {
  const url = `${sluice.baseUrl}${exportPath}/${heavyExport}/data?format=zip`;
  const headers = { authorization: `Bearer ${token}` };
  const before = residentBytes();
  let highest = before;
  const watch = setInterval(() => {
    highest = Math.max(highest, residentBytes());
  }, 20);
  const files = await readArchive(heavyExport);
  clearInterval(watch);
  const grownMiB = (highest - before) / 2 ** 20;
  assert.ok(grownMiB < 120, `${grownMiB} MiB more`);
  const pages = files.size / 3;
  assert.ok(pages > 90 && pages < 120, String(pages));
  const all = Array.from({ length: pages }, (_, index) => files.get(`data-${index + 1}.ndjson`)).join('');
  assert.equal(recordsOf(linesOf(all)).length, heavyRows);
  for (const [number, others] of [
    [1, ['data-2.html']],
    [2, ['data-1.html', 'data-3.html']],
    [pages, [`data-${pages - 1}.html`]],
  ] as const) {
    const page = files.get(`data-${number}.html`) ?? '';
    const links = [...page.matchAll(/href="([^"]*)"/g)].map(([, link]) => link);
    assert.deepEqual([...new Set(links)], others);
    assert.equal(page.includes('This is the end'), number === pages);
  }
  const begun = await begin({ url, headers });
  await sluice.rows(`KILL QUERY WHERE startsWith(query_id, 'user_export_') SYNC`);
  let read = Buffer.alloc(0);
  await assert.rejects(async () => {
    for await (const piece of begun as AsyncIterable<Buffer>) read = Buffer.concat([read, piece]);
  });
  assert.ok(read.length > 0);
  assert.ok(!read.includes('PK\x05\x06', 0, 'latin1'), 'an archive has its end');
  await untilNothingIsLeft();
  // The service does not wait for a reader who leaves.
  (await begin({ url, headers })).destroy();
  await untilNothingIsLeft();
  const wrong = await fetch(`${sluice.baseUrl}${exportPath}/${heavyExport}/data?format=pdf`, { headers });
  assert.equal(wrong.status, 400);
  assert.deepEqual(await wrong.json(), {
    err: { code: 'invalid_parameter', field: 'format', message: 'format must be one of: ndjson, zip.' },
  });
  const nowhere = await fetch(`${url}&zone=Atlantis`, { headers });
  assert.equal(nowhere.status, 400);
  assert.equal(((await nowhere.json()) as { err: { field: string } }).err.field, 'zone');
});

test('a download breaks off visibly when ClickHouse fails in the middle, and is answered 503 when it is away', async () => {
  for (const fail of [
    () => sluice.rows(`KILL QUERY WHERE startsWith(query_id, 'user_export_') SYNC`),
    async () => proxy.reset(),
    // It is away for so long that the API process cannot clean up at once.
    async () => {
      proxy.cut();
      await new Promise((settle) => setTimeout(settle, 500));
      proxy.pass();
    },
  ]) {
    const reply = await beginReading(heavyExport);
    await fail();
    const { tail, isWhole } = await readRest(reply);
    assert.equal(isWhole, false);
    assert.doesNotMatch(tail, /"kind":"end"|xception/);
    await untilNothingIsLeft();
  }
  proxy.cut();
  const away = await readExportData(sluice, token, heavyExport);
  proxy.pass();
  assert.deepEqual(
    [away.status, (JSON.parse(away.text) as { err: { code: string } }).err.code],
    [503, 'overloaded'],
  );
  const next = await completeExportOf([{ user_id: 1 }]);
  // A query on a connection that was cut makes ClickHouse count as away once more, so a download may have to be repeated.
  await until(async () => (await readExportData(sluice, token, next)).status === 200, {
    deadlineMs: 180_000,
    what: 'downloads begin again',
  });
});

test('a few downloads per account run at once; a query ends when its reader hangs up, even if ClickHouse does not notice', async () => {
  const replies = [await beginReading(heavyExport), await beginReading(heavyExport)];
  const small = await completeExportOf([{ user_id: 1 }]);
  const third = readExportData(sluice, token, small);
  // A download has several queries, and between two of them none runs.
  const running = await until(async () => {
    const found = await sluice.rows<{ query_id: string }>(
      "SELECT query_id FROM system.processes WHERE startsWith(query_id, 'user_export_')",
    );
    return found.length === 2 && found;
  }, 'two queries run');
  // This query has a name like one of a download. It sends nothing, and its connection stays open.
  const client = connectClickHouse({ url: clickhouse.testerUrl, database: sluice.database });
  const unheard = client
    .command({
      query: 'SELECT sum(sleepEachRow(1)) FROM numbers(120) SETTINGS max_block_size = 1',
      query_id: `${running[0]?.query_id}9`,
    })
    .then(
      () => 'ran to its end',
      () => 'was ended',
    );
  await until(async () => (await readLeft()).queries === 3, 'it runs');
  for (const reply of replies) reply.destroy();
  await untilNothingIsLeft();
  assert.equal(await unheard, 'was ended');
  await client.close();
  assert.equal((await third).status, 200, 'it waited for its turn');
});

test('requests that name long users are bounded by account, and a deletion ends just the ones that name its users', async () => {
  const crowd = await createTestAccount(sluice, 'Crowd', ['Main Production']);
  const crowdToken = await getToken(sluice, crowd);
  const longest = '\u{1F600}'.repeat(240);
  const usersOf = (n: number) =>
    Array.from({ length: 100 }, (_, at) => ({ identity: `${longest} ${n} ${at}` }));
  const ids: string[] = [];
  let refused: string | undefined;
  const submitAll = async () => {
    while (refused === undefined && ids.length < userExports.perAccountMax) {
      const number = ids.push('') - 1;
      let reply = await askForExport(sluice, crowdToken, usersOf(number));
      // A token may ask a hundred times a second, and a quick machine does so more often.
      while (reply.text.includes('with this token')) {
        await new Promise((resolve) => setTimeout(resolve, 250));
        reply = await askForExport(sluice, crowdToken, usersOf(number));
      }
      if (reply.status === 201)
        ids[number] = (JSON.parse(reply.text) as { user_export_id: string }).user_export_id;
      else refused = `${reply.status} ${reply.text}`;
    }
  };
  await Promise.all([submitAll(), submitAll(), submitAll(), submitAll()]);
  assert.match(refused ?? '', /^429 .*name too many users/);
  const kept = ids.filter((id) => id !== '');
  assert.ok(kept.length > 100 && kept.length * 100_000 < userExports.weightPerAccountMax, `${kept.length}`);
  assert.equal((await askForExport(sluice, token, [{ user_id: 1 }])).status, 201, 'another account');
  const named = ids.indexOf(kept[50] ?? '');
  await untilComplete(
    sluice,
    crowdToken,
    await submitAccepted(sluice, crowdToken, usersOf(named).slice(7, 8)),
  );
  const statuses = await Promise.all(
    [kept[49], kept[50], kept[51]].map(
      async (id = '') => (await readExportStatus(sluice, crowdToken, id)).status,
    ),
  );
  assert.deepEqual(statuses, [200, 404, 200]);
  await withRedis(sluice, async (redis) => {
    const weights = await redis.hgetall(registryKeys.exportWeights);
    const sum = Object.entries(weights).reduce(
      (all, [name, weight]) => (name.includes(' ') ? all + Number(weight) : all),
      0,
    );
    assert.equal(Number(weights['']), sum);
  });
});

test('slow readers of two accounts hold up no download of a third one', async () => {
  second = await createTestAccount(sluice, 'Second');
  const slow = await getToken(sluice, second);
  const third = await getToken(sluice, await createTestAccount(sluice, 'Third'));
  await storeHeavyRows(second.appIds[0]);
  const exportOf = async (itsToken: string, user: NamedUser) => {
    const id = await submitExport(sluice, itsToken, [user]);
    await untilExportComplete(sluice, itsToken, id);
    return id;
  };
  const slowExport = await exportOf(slow, heavy);
  const id = await exportOf(third, { user_id: 1 });
  const replies = [
    await beginReading(heavyExport),
    await beginReading(heavyExport),
    await beginReading(slowExport, slow),
    await beginReading(slowExport, slow),
  ];
  for (let n = 0; n < 3; n += 1) assert.equal((await readExportData(sluice, third, id)).status, 200);
  await until(async () => (await readLeft()).queries === 4, 'the others go on');
  for (const reply of replies) reply.destroy();
  await untilNothingIsLeft();
});

test('a download goes on when its reader has paused for longer than ClickHouse waits by default', async () => {
  const reply = await beginReading(heavyExport);
  await new Promise((settle) => setTimeout(settle, 36_000));
  const { tail, isWhole } = await readRest(reply);
  assert.ok(isWhole && tail.endsWith(`{"kind":"end","records":${heavyRows}}\n`), tail);
  await untilNothingIsLeft();
});

test('the rows of a few users, and who looks like them, are found without reading all others', async () => {
  const [all] = await sluice.rows<{ rows: string }>('SELECT toString(count()) AS rows FROM stored_events');
  assert.ok(Number(all?.rows) >= allRows);
  const rare = 'rare@example.com';
  await sendEvents(sluice, main, 'go', [{ identity: rare }, { identity: 'Rare@Example.com ' }]);
  await untilStored(sluice);
  const client = connectClickHouse({ url: clickhouse.testerUrl, database: sluice.database });
  try {
    const fences = [String(Number.MAX_SAFE_INTEGER)];
    const tables = await createRoundTables(
      client,
      'found',
      1,
      [{ deletion_request_id: 'found', account_id: account.accountId, fences, resolved: false }],
      [{ app_id: main, account_id: account.accountId }],
      'user_index_test_',
    );
    await client.command({
      query: `INSERT INTO ${tables.users} (request, identity) VALUES (0, '${rare}')`,
    });
    tables.sizes.set(tables.users, 1);
    await resolveAlone(client, tables);
    const conditions = [
      [mutationPredicate(tables, [main], fences), '1'],
      [similarPredicate(tables), '2'],
    ];
    for (const [condition, found] of conditions) {
      const query = `FROM stored_events WHERE ${condition}`;
      const [rows] = await sluice.rows<{ rows: string }>(`SELECT toString(count()) AS rows ${query}`);
      assert.equal(rows?.rows, found);
      const parts = await sluice.rows<{ rows: string }>(`EXPLAIN ESTIMATE SELECT count() ${query}`);
      const read = parts.reduce((sum, { rows }) => sum + Number(rows), 0);
      assert.ok(read < Number(all?.rows) / 10, `reads ${read} of ${all?.rows} rows`);
    }
  } finally {
    await client.close();
  }
});

test('a download ends when its reader is removed, signs out or lacks a second factor, its key is revoked or its environment is no longer main, and not before', async () => {
  const people = ['stays', 'signs out', 'is removed'].map(async (what) => {
    const email = `${what.replace(' ', '-')}@example.com`;
    return { email, page: await signedIn(sluice, email, 'privacy', account.accountId) };
  });
  const [stays, signsOut, isRemoved] = (await Promise.all(people)) as [Reader, Reader, Reader];
  const ownToken = await getToken(sluice, second);
  const ownExport = await submitExport(sluice, ownToken, [heavy]);
  await untilExportComplete(sluice, ownToken, ownExport);
  const ofPerson = ({ page }: Reader) => ({
    url: `${sluice.adminUrl}/admin/v1/user_exports/${heavyExport}/data`,
    headers: { cookie: [...page.cookies].map((pair) => pair.join('=')).join('; ') },
  });
  // An account may have two downloads at a time, and these are of two accounts.
  const readers = [
    await begin(ofPerson(stays)),
    await begin(ofPerson(signsOut)),
    await begin({
      url: `${sluice.baseUrl}${exportPath}/${ownExport}/data`,
      headers: { authorization: `Bearer ${ownToken}` },
    }),
  ] as const;
  let isSlow = true;
  const slowly = () => isSlow && new Promise((settle) => setTimeout(settle, 100));
  const [whole, ...broken] = readers.map((reply) => readRest(reply, slowly));
  await signsOut.page.ask('DELETE', '/session');
  await sluice.admin('keys', 'revoke', String(second.appIds[0]));
  const ended = await within(Promise.all(broken), 60_000);
  isSlow = false;
  const { isWhole, tail } = (await whole) as Awaited<ReturnType<typeof readRest>>;
  assert.ok(isWhole && tail.endsWith(`{"kind":"end","records":${heavyRows}}\n`), tail);

  const removed = await begin(ofPerson(isRemoved));
  const listed = (await sluice.admin('people', 'list')) as { email: string; person_id: string }[];
  const { person_id = '' } = listed.find(({ email }) => email === isRemoved.email) ?? {};
  await sluice.admin('people', 'remove', person_id);
  // The removed reader reads nothing meanwhile. A download has several queries, and between two of them none runs.
  const isEnded = async () => {
    for (let looks = 0; looks < 10; looks++) {
      if ((await readLeft()).queries !== 0) return false;
      await new Promise((settle) => setTimeout(settle, 50));
    }
    return true;
  };
  await until(isEnded, { deadlineMs: userExports.stalledMsMax - 5_000, what: 'its query is ended' });

  isSlow = true;
  const [former = '', next = ''] = second.appIds;
  const { api_key: apiKey } = (await sluice.admin('keys', 'create', former)) as { api_key: string };
  const others = [
    await begin(ofPerson(stays)),
    await begin({
      url: `${sluice.baseUrl}${exportPath}/${ownExport}/data`,
      headers: { authorization: `Bearer ${await getToken(sluice, { ...second, apiKey })}` },
    }),
  ];
  const cutOff = others.map((reply) => readRest(reply, slowly));
  const requireFactor = (second_factor: string) =>
    sluice.admin('accounts', 'set', account.accountId, '--second-factor', second_factor);
  await requireFactor('required');
  await sluice.admin('environments', 'set', next, '--main');
  ended.push(...(await within(Promise.all(cutOff), 60_000)));
  await requireFactor('optional');
  for (const { isWhole, tail } of [...ended, await readRest(removed)]) {
    assert.equal(isWhole, false);
    assert.doesNotMatch(tail, /"kind":"end"/);
  }
  await untilNothingIsLeft();
});

type Reader = { readonly email: string; readonly page: ConsolePage };

test('an export has the failed row that is sent again while it is read', async () => {
  const stamps = [allRows, 1, 1, '2026-01-01 00:00:00.000'];
  const row = [
    main,
    '0123456789abcdef0123456789abcdef',
    'Seen',
    null,
    heavy.identity,
    '',
    null,
    {},
    ...stamps,
  ];
  await storeFailedRow(sluice, main, 'go', { ...heavy, row: `${JSON.stringify(row)}\n` });
  const reply = await beginReading(heavyExport);
  const isReadingEvents = async () =>
    (
      await sluice.rows(
        "SELECT 1 FROM system.processes WHERE startsWith(query_id, 'user_export_') AND position(query, 'FROM stored_events') > 0",
      )
    ).length === 1;
  await until(isReadingEvents, 'the events are read');
  assert.notEqual(((await sluice.admin('failed', 'retry')) as { retried: number }).retried, 0);
  const { tail, isWhole } = await readRest(reply);
  assert.ok(isWhole && tail.endsWith(`{"kind":"end","records":${heavyRows + 1}}\n`), tail);
});

test('a deletion of the user ends a download that runs', async () => {
  // A reader that reads nothing would be cut off for that alone, so this one reads slowly: to the end it would take minutes.
  let isSlow = true;
  const pause = () => isSlow && new Promise((settle) => setTimeout(settle, 400));
  const rest = readRest(await beginReading(heavyExport), pause);
  assert.equal((await readLeft()).queries, 1);
  await untilComplete(sluice, token, await submitAccepted(sluice, token, [heavy]));
  await untilNothingIsLeft();
  isSlow = false;
  const { tail, isWhole } = await rest;
  assert.equal(isWhole, false);
  assert.doesNotMatch(tail, /"kind":"end"/);
});

// Random histories: an export must have exactly the rows that a deletion at the same moment takes.

type Name = { readonly user: number } | { readonly identity: number };
type Step =
  | {
      readonly kind: 'event';
      readonly name: Name;
      readonly inStaging: boolean;
      readonly values: Readonly<Record<string, unknown>>;
    }
  | { readonly kind: 'failed'; readonly name: Name; readonly inStaging: boolean }
  | {
      readonly kind: 'identify';
      readonly user: number;
      readonly identity: number;
      readonly inStaging: boolean;
    }
  | { readonly kind: 'properties'; readonly identity: number; readonly inStaging: boolean };
type History = {
  readonly before: readonly Step[];
  /** The users of a deletion before the export. It may not be carried out yet when the export is requested. */
  readonly deleted: readonly Name[];
  readonly after: readonly Step[];
  readonly exported: readonly Name[];
  /** Steps after both were submitted. Neither reaches these records, nor the users whom they merge. */
  readonly later: readonly Step[];
};

const few = fc.integer({ min: 0, max: 3 });
const name: fc.Arbitrary<Name> = fc.oneof(fc.record({ user: few }), fc.record({ identity: few }));
const inStaging = fc.boolean();
const text = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 8 });
/** What an event may have besides its user. */
const values = fc.record(
  {
    event: text,
    session_id: text,
    timestamp: fc
      .date({ min: new Date(0), max: new Date('2026-01-01'), noInvalidDate: true })
      .map((date) => date.toISOString()),
    properties: fc.dictionary(
      text.map((key) => `key ${key}`),
      fc.oneof(
        text,
        fc.integer(),
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        fc.array(text, { minLength: 1, maxLength: 3 }),
      ),
      { maxKeys: 3 },
    ),
  },
  { requiredKeys: [] },
);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('event' as const), name, inStaging, values }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('failed' as const), name, inStaging }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('identify' as const), user: few, identity: few, inStaging }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('properties' as const), identity: few, inStaging }) },
);
const steps = fc.array(step, { maxLength: 10 });
const history: fc.Arbitrary<History> = fc.record({
  before: steps,
  deleted: fc.array(name, { maxLength: 1 }),
  after: steps,
  exported: fc.array(name, { minLength: 1, maxLength: 2 }),
  // Failed rows are left out here: they look as if they were from the oldest segment, whenever they are stored.
  later: fc.array(
    step.filter(({ kind }) => kind !== 'failed'),
    { maxLength: 4 },
  ),
});

let histories = 0;
let failedRows = 0;

/** Carries steps out for the users of one history. */
async function play(number: number, list: readonly Step[]): Promise<void> {
  const { userOf, identityOf } = namesOf(number);
  for (const each of list) {
    const appId = each.inStaging ? staging : main;
    if (each.kind === 'identify') {
      await sendIdentify(sluice, appId, userOf(each.user), identityOf(each.identity));
    } else if (each.kind === 'properties') {
      await sendProperties(sluice, appId, 'go', [identityOf(each.identity)]);
    } else {
      const user =
        'user' in each.name
          ? { user_id: userOf(each.name.user) }
          : { identity: identityOf(each.name.identity) };
      if (each.kind === 'event') {
        await sendEvents(sluice, appId, 'go', [user], each.values);
        continue;
      }
      failedRows += 1;
      const row = `["row ${failedRows}"]`;
      await storeFailedRow(
        sluice,
        appId,
        'go',
        'identity' in user ? { ...user, row } : { userId: user.user_id, row },
      );
    }
  }
}

/** The anonymous_id of a history's user 0. */
function deviceOf(number: number): string {
  return `device ${number}`;
}

function namesOf(number: number) {
  return {
    userOf: (user: number) =>
      user === 0 ? String(userIdOfAnonymousId(deviceOf(number))) : String(5_000_000 + 10 * number + user),
    identityOf: (identity: number) => `history-${number}-${identity}@example.com`,
  };
}

function usersOf(number: number, names: readonly Name[]): NamedUser[] {
  const { userOf, identityOf } = namesOf(number);
  return names.map((each) => {
    if ('identity' in each) return { identity: identityOf(each.identity) };
    return each.user === 0 ? { anonymous_id: deviceOf(number) } : { user_id: userOf(each.user) };
  });
}

/** A line with its fields in the order of their names, to compare it with others. */
function textOf(line: object): string {
  return JSON.stringify(Object.fromEntries(Object.entries(line).sort()));
}

type Row = Readonly<Record<string, unknown>>;

const kindOfPlace: Readonly<Record<string, string>> = {
  stored_events: 'event',
  stored_user_properties: 'user_properties',
  stored_user_identities: 'user_identity',
};
const stamps = new Set(['segment', 'commit_number', 'row_number']);

function lineOf(place: string, { user_id, ...row }: Row): object {
  const userId = user_id === null ? null : String(user_id);
  const timed = Object.entries(row).map(([name, value]) => [
    name,
    ['time', 'received_at', 'failed_at'].includes(name) ? `${String(value).replace(' ', 'T')}Z` : value,
  ]);
  const values = Object.fromEntries(timed.filter(([name]) => !stamps.has(name as string)));
  if (place !== 'failed_events') return { kind: kindOfPlace[place], ...values, user_id: userId };
  const { table_name: table, app_id, identity, row: text, failed_at } = values;
  const columns = columnsOf('events');
  return { kind: 'failed_record', app_id, user_id: userId, identity, table, columns, row: text, failed_at };
}

/** The lines of the merged users, by the identifications that were accepted; `all` has the identifications of all users. */
function userLines(all: readonly Row[], taken: ReadonlySet<Row>): object[] {
  const first = new Map<string, Row>();
  const order = ({ segment, commit_number, row_number }: Row) =>
    [segment, commit_number, row_number].map(Number);
  const isBefore = (one: readonly number[], other: readonly number[]) => {
    const at = one.findIndex((number, index) => number !== other[index]);
    return at !== -1 && Number(one[at]) < Number(other[at]);
  };
  for (const row of all) {
    const user = `${row.app_id} ${row.user_id}`;
    const known = first.get(user);
    if (known === undefined || isBefore(order(row), order(known))) first.set(user, row);
  }
  const merged = new Map<string, Row[]>();
  for (const row of [...first.values()].filter((each) => taken.has(each))) {
    const name = `${row.app_id} ${row.identity}`;
    merged.set(name, [...(merged.get(name) ?? []), row]);
  }
  return [...merged.values()].map((rows) => ({
    kind: 'user',
    app_id: rows[0]?.app_id,
    identity: rows[0]?.identity,
    user_ids: rows
      .map(({ user_id }) => Number(user_id))
      .sort((a, b) => a - b)
      .map(String),
  }));
}

/** The lines of an export of all that is gone, in the order of their texts. */
function linesTaken(before: Dump, after: Dump): string[] {
  return [...before]
    .flatMap(([place, texts]) => {
      const left = new Set(after.get(place));
      const rows = texts.map((text) => ({ text, row: JSON.parse(text) as Row }));
      const gone = rows.filter(({ text }) => !left.has(text)).map(({ row }) => row);
      const lines = gone.map((row) => lineOf(place, row));
      if (place !== 'stored_user_identities') return lines;
      const all = rows.map(({ row }) => row);
      return [...lines, ...userLines(all, new Set(gone))];
    })
    .map(textOf)
    .sort();
}

test('an export has exactly what a deletion at the same moment takes, whatever the history', async () => {
  await sluice.rows("ALTER TABLE stored_events DELETE WHERE app_id != '' SETTINGS mutations_sync = 2");
  await fc.assert(
    fc.asyncProperty(fc.array(history, { minLength: 16, maxLength: 16 }), async (list) => {
      const first = histories;
      histories += list.length;
      const inEach = <Result>(work: (its: History, number: number) => Promise<Result>) =>
        Promise.all(list.map((its, index) => work(its, first + index)));
      const users = list.map(({ exported }, index) => usersOf(first + index, exported));
      // Each export costs much more than the users in it, so most histories share one.
      const exportAll = (alone: number) =>
        Promise.all(
          [...users.slice(0, alone), users.slice(alone).flat()].map((its) =>
            submitExport(sluice, token, its),
          ),
        );
      const readEach = async (exports: readonly string[]) => {
        const lines: string[] = [];
        for (const id of exports) {
          const its = linesOf((await readExportData(sluice, token, id)).text);
          recordsOf(its);
          lines.push(...its.slice(0, -1).map(textOf));
        }
        return lines.sort();
      };

      await inEach((its, number) => play(number, its.before));
      await inEach(async ({ deleted }, number) => {
        if (deleted.length > 0) await submitAccepted(sluice, token, usersOf(number, deleted));
      });
      await inEach((its, number) => play(number, its.after));
      const early = await exportAll(0);
      for (const id of early) await untilExportComplete(sluice, token, id);
      const exportedEarly = await readEach(early);

      await untilStored(sluice);
      const before = await dumpTables(sluice);
      let exported: string[] = [];
      let deletions: string[] = [];
      await withoutRounds(sluice, async () => {
        const exports = await exportAll(4);
        deletions = await Promise.all(users.map((its) => submitAccepted(sluice, token, its)));
        await inEach((its, number) => play(number, its.later));
        await untilStored(sluice);
        exported = await readEach(exports);
      });
      for (const id of deletions) await untilComplete(sluice, token, id);
      const taken = linesTaken(before, await dumpTables(sluice));
      assert.deepEqual(exported, taken);
      assert.deepEqual(exportedEarly, taken);
    }),
    { numRuns: 1, endOnFailure: true, includeErrorInReport: true },
  );
});
