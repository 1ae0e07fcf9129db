// The statements for replicated tables. A deployment works as usual and sends them to plain tables. Then each of them goes to replicated
// tables of two servers with a keeper. Without a port between servers the embedded ClickHouse keeps such tables read-only, so a statement
// counts as accepted if that is its only fault. Statements that query all replicas are tried on plain tables of the same two servers.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type ClickHouseClient, codeOfFault, connectClickHouse } from '../../src/clickhouse/client.js';
import { deleteRows } from '../../src/clickhouse/mutate.js';
import { engineOf, settingsFor, settingsOfAll, syncReplicas } from '../../src/clickhouse/replication.js';
import { createScratch } from '../../src/clickhouse/scratch.js';
import { insertNameOf, insertSettings, isInsertRunning, isStored } from '../../src/clickhouse/store.js';
import { createTestAccount } from '../harness/accounts.js';
import { runAdmin } from '../harness/administration.js';
import type { Child } from '../harness/child.js';
import { type ClickHouseGate, type Statement, startClickHouseGate } from '../harness/clickhouse-gate.js';
import {
  assertExact,
  dumpTables,
  getToken,
  submitAccepted,
  untilComplete,
  untilStored,
  writeHistory,
} from '../harness/deletion.js';
import { freePort } from '../harness/free-port.js';
import {
  type ClickHouseHandle,
  type SluiceHandle,
  startClickHouse,
  startSluice,
} from '../harness/services.js';
import { readRecords, submitExport, untilExportComplete } from '../harness/user-export.js';
import { until } from '../harness/wait.js';
import { readDeployFile } from '../support/deploy-file.js';
import { startKeeper } from '../support/keeper.js';
import { startStockClickHouse } from '../support/stock-clickhouse.js';

type Server = Awaited<ReturnType<typeof startStockClickHouse>>;

let clickhouse: ClickHouseHandle;
let gate: ClickHouseGate;
let sluice: SluiceHandle;
const started: Child[] = [];
const clients: ClickHouseClient[] = [];
let one: Server;
let other: Server;
/** The statements of the service, in their order. Of those that differ only in names and numbers, it has the first. */
const sent = new Map<string, Statement>();

before(async () => {
  clickhouse = await startClickHouse();
  gate = await startClickHouseGate(clickhouse.testerUrl);
  gate.hold((statement) => {
    const kind = statement.sql.replaceAll(/[0-9a-f]{12}|\d+/g, '#');
    if (!sent.has(kind)) sent.set(kind, statement);
    return false;
  });
  sluice = await startSluice({
    clickhouse,
    env: { CLICKHOUSE_TABLES: 'rehearsed', CLICKHOUSE_URL: gate.url },
  });
  const keeper = await startKeeper();
  started.push(keeper);
  const ports = [await freePort(), await freePort()];
  [one, other] = (await Promise.all(
    ports.map((port, number) =>
      startStockClickHouse({ 'replicas.xml': replicasXml(keeper.port, ports, number) }, { nativePort: port }),
    ),
  )) as [Server, Server];
  started.push(one, other);
});

after(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await sluice?.stop();
  await gate?.close();
  await clickhouse?.remove();
  await Promise.all(started.map((child) => child.kill9()));
});

function replicasXml(keeperPort: number, ports: readonly number[], number: number): string {
  const peers = ports.map((port) => `<replica><host>127.0.0.1</host><port>${port}</port></replica>`);
  return `<clickhouse>
    <zookeeper><node><host>127.0.0.1</host><port>${keeperPort}</port></node></zookeeper>
    <macros><shard>1</shard><replica>${number}</replica></macros>
    <remote_servers><pair><shard><internal_replication>true</internal_replication>${peers.join('')}</shard></pair></remote_servers>
  </clickhouse>`;
}

/** Sends text to a server unchanged; settles with the code of ClickHouse's error, or 0. */
async function sendTo(
  server: Server,
  text: string | Buffer,
  parameters = new URLSearchParams(),
  headers: Record<string, string> = {},
): Promise<{ code: number; text: string }> {
  const reply = await fetch(`${server.origin}/?${parameters}`, { method: 'POST', body: text, headers });
  return { code: Number(reply.headers.get('x-clickhouse-exception-code') ?? 0), text: await reply.text() };
}

async function run(server: Server, ...statements: readonly string[]): Promise<void> {
  for (const statement of statements) {
    const { code, text } = await sendTo(server, statement);
    assert.equal(code, 0, text);
  }
}

/** A connection of the service to a server of the pair. */
function connectTo(server: Server, database: string): ClickHouseClient {
  const client = connectClickHouse({ url: server.origin, database, tables: 'replicated', cluster: 'pair' });
  clients.push(client);
  return client;
}

test('with the statements for replicas an export and a deletion are as exact as without', async () => {
  const account = await createTestAccount(sluice, 'Replicas');
  const stranger = await createTestAccount(sluice, 'Others');
  const token = await getToken(sluice, account);
  const history = await writeHistory(sluice, account, stranger, 'ada@example.com');
  await untilStored(sluice);
  const asked = await submitExport(sluice, token, history.users);
  await untilExportComplete(sluice, token, asked);
  const rows = Object.values(history.found).reduce((sum, count) => sum + count, 0);
  // Failed rows of which no field can be read have no line in an export.
  assert.ok((await readRecords(sluice, token, asked)).length >= rows - 2);

  const before = await dumpTables(sluice);
  const requestId = await submitAccepted(sluice, token, history.users);
  const accepted = await history.returnToService();
  await untilComplete(sluice, token, requestId);
  await untilStored(sluice);
  assertExact(before, await dumpTables(sluice), history.identificationsToGo, accepted);

  const texts = [...sent.values()].map(({ sql }) => sql);
  assert.ok(texts.some((sql) => /^ALTER TABLE stored_events DELETE/.test(sql)));
  for (const sql of texts) assert.doesNotMatch(sql, /joinGet|ENGINE = (Memory|Join|Set)|TEMPORARY/);
});

/** The errors of a table that reaches the keeper but no other server, by the kind of statement. */
const readOnly: readonly (readonly [kind: RegExp, ...codes: number[]])[] = [
  // TABLE_IS_READ_ONLY, or TOO_FEW_LIVE_REPLICAS, since the insert requires a quorum.
  [/^INSERT INTO/, 242, 285],
  [/^TRUNCATE/, 242],
  // ABORTED: the mutation was parsed and checked, but no replica can assign it.
  [/^ALTER TABLE \w+\s+(DELETE|UPDATE)/, 236],
  [/^ALTER TABLE/, 242],
];

test('replicated tables of two servers with a keeper accept every statement, but are read-only', async () => {
  const database = sluice.database;
  const tables = (await sluice.rows(
    `SELECT create_table_query AS query FROM system.tables
      WHERE database = '${database}' AND (engine LIKE '%MergeTree' OR engine = 'View') ORDER BY engine = 'View', metadata_modification_time`,
  )) as { query: string }[];
  for (const server of [one, other]) {
    await run(server, `CREATE DATABASE ${database}`);
    for (const { query } of tables) await run(server, asReplicated(query));
  }
  const replicas = await sendTo(
    one,
    `SELECT min(total_replicas), max(total_replicas) FROM system.replicas WHERE database = '${database}' FORMAT CSV`,
  );
  assert.equal(replicas.text.trim(), '2,2', 'both servers have each table');

  const path = engineOf('replicated', 'MergeTree').replace('{database}', database);
  const replies: Record<string, number> = {};
  for (const { sql, parameters, body } of sent.values()) {
    const statement = sql.replaceAll(/^--.*\n/gm, '');
    if (/^(CREATE DATABASE|DROP TABLE)|\bmigrations\b/.test(statement)) continue;
    const [replayed, change] = [new URLSearchParams(parameters), onReplicas(path)];
    const query = replayed.get('query');
    if (query !== null) replayed.set('query', change(query));
    const boundary = /^--(\w+)\r\n/.exec(body.toString('latin1'))?.[1];
    const headers: Record<string, string> =
      boundary === undefined ? {} : { 'Content-Type': `multipart/form-data; boundary=${boundary}` };
    const answer = await sendTo(one, query === null ? change(body.toString()) : body, replayed, headers);
    const [, ...codes] = readOnly.find(([kind]) => kind.test(statement)) ?? [];
    assert.ok([0, ...codes].includes(answer.code), `${sql}\n${answer.text}`);
    const [verb = ''] = statement.split(' ');
    replies[verb] = (replies[verb] ?? 0) + 1;
  }
  const { ALTER = 0, INSERT = 0, SELECT = 0 } = replies;
  assert.ok(ALTER >= 4 && INSERT >= 10 && SELECT >= 20, JSON.stringify(replies));
});

/** Turns the statement that creates a table into one for a replicated table. */
function asReplicated(query: string): string {
  return query.replace(/ENGINE = (\w*MergeTree)(?:\((\w+)\))?/, (_, engine, argument) => {
    return `ENGINE = ${engineOf('replicated', engine, argument)}`;
  });
}

/** Turns statements for plain tables into statements for replicated ones. */
function onReplicas(engine: string): (sql: string) => string {
  return (sql) => sql.replace(/ENGINE = MergeTree ORDER BY tuple\(\)/, `ENGINE = ${engine} ORDER BY tuple()`);
}

test('the rights of replicas.sql are rights that ClickHouse knows', async () => {
  const grants = readDeployFile('clickhouse', 'replicas.sql')
    .replaceAll(/^--.*\n/gm, '')
    .trim()
    .split('\n');
  assert.equal(grants.length, 6);
  // ClickHouse checks the right before it looks for the user, who does not exist here.
  for (const grant of grants) {
    const answer = await sendTo(one, grant.replace(/;$/, ''));
    assert.match(answer.text, /There is no .*sluice/, grant);
  }
});

test('a mutation without the settings for replicas is refused', async () => {
  const [mutation] = [...sent.values()].filter(({ sql }) =>
    sql.startsWith('ALTER TABLE stored_events DELETE'),
  );
  assert.ok(mutation !== undefined);
  const parameters = new URLSearchParams(mutation.parameters);
  assert.equal(parameters.get('allow_nondeterministic_mutations'), '1');
  parameters.delete('allow_nondeterministic_mutations');
  assert.match((await sendTo(one, mutation.body, parameters)).text, /see allow_nondeterministic_mutations/);
});

test('an insert that all replicas must have names their number, and other inserts need a majority', async () => {
  const client = connectTo(one, sluice.database);
  assert.deepEqual(await settingsOfAll(client), { insert_quorum: '2' });
  assert.equal(settingsFor('replicated').insert_quorum, 'auto');
});

test('rows are stored as often as they are sent, but only once with a token', async () => {
  const { testerUrl: url, query } = sluice.clickhouse;
  const table = `${sluice.database}.sent_again`;
  await query(
    `CREATE TABLE ${table} (a UInt8) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 10`,
  );
  const client = connectClickHouse({
    url,
    database: sluice.database,
    tables: 'rehearsed',
    cluster: undefined,
  });
  clients.push(client);
  const store = (settings: object) =>
    client.command({
      query: `INSERT INTO ${table} VALUES (1)`,
      clickhouse_settings: { async_insert: 0, ...settings },
    });
  const stored = async () => (await query(`SELECT count() FROM ${table}`)).trim();
  for (const count of ['1', '2']) {
    await store({});
    assert.equal(await stored(), count);
  }
  for (const _ of [1, 2]) {
    await store({ ...insertSettings, insert_deduplication_token: 'once' });
    assert.equal(await stored(), '3');
  }
});

test('tables of a round are made and synced on the whole cluster', async () => {
  const client = connectTo(one, sluice.database);
  const codeOf = (promise: Promise<unknown>) => promise.then(() => 0, codeOfFault);
  // The embedded engine parses both statements, but has no queue for statements of a cluster.
  assert.equal(await codeOf(createScratch(client, 'scratch', 'a UInt64')), 392);
  assert.equal(await codeOf(syncReplicas(client, ['stored_events'])), 139);
});

test('finds a marker on another replica, and counts no marker as absent while that replica is away', async () => {
  for (const server of [one, other])
    await run(
      server,
      'CREATE DATABASE pair',
      `CREATE TABLE pair.stored_events (app_id String, segment UInt64, a UInt8 DEFAULT 0) ENGINE = MergeTree ORDER BY segment`,
    );
  const client = connectTo(one, 'pair');
  const segment = { table: 'events', number: '1700000000000000' } as const;
  assert.equal(await isStored(client, segment, true), false);
  await run(other, `INSERT INTO pair.stored_events (app_id, segment) VALUES ('', ${segment.number})`);
  assert.equal(await isStored(client, segment), true);

  // The insert of this segment runs on the other server.
  const insert = `INSERT INTO pair.stored_events (a) SELECT sleepEachRow(1) FROM numbers(120) SETTINGS max_block_size = 1, function_sleep_max_microseconds_per_block = 200000000`;
  const parameters = new URLSearchParams({
    database: 'pair',
    log_comment: insertNameOf(segment),
    query_id: 'slow',
  });
  const slow = sendTo(other, insert, parameters);
  await until(() => isInsertRunning(client, segment), 'the insert is seen');
  await run(other, `KILL QUERY WHERE query_id = 'slow' SYNC`);
  await slow;
  assert.equal(await isInsertRunning(client, segment), false);
});

test('a mutation is done when each replica has done it', async () => {
  // The tables are alike from the start, so both servers give the mutation the same id, as replicas do.
  for (const server of [one, other])
    await run(
      server,
      'CREATE TABLE pair.mutated (segment UInt64) ENGINE = MergeTree ORDER BY segment',
      'INSERT INTO pair.mutated VALUES (7)',
    );
  const predicate = "segment = 7 AND notEmpty('mark')";
  await run(
    other,
    'SYSTEM STOP MERGES pair.mutated',
    `ALTER TABLE pair.mutated DELETE WHERE ${predicate} SETTINGS mutations_sync = 0`,
  );
  let isDone = false;
  const deleted = deleteRows(connectTo(one, 'pair'), 'mutated', { condition: predicate, mark: 'mark' }).then(
    () => {
      isDone = true;
    },
  );
  const left = async () => (await sendTo(one, 'SELECT count() FROM pair.mutated')).text.trim();
  await until(async () => (await left()) === '0', 'one replica has done it');
  assert.equal(isDone, false);
  await run(other, 'SYSTEM START MERGES pair.mutated');
  await deleted;
});

test('rows are gone when their removal settles, even if it repeats another one of the same second', async () => {
  const { testerUrl: url, query } = sluice.clickhouse;
  const client = connectClickHouse({ url, database: sluice.database, tables: 'plain', cluster: undefined });
  clients.push(client);
  await query(`CREATE TABLE ${sluice.database}.emptied (a UInt8) ENGINE = MergeTree ORDER BY a`);
  for (let round = 0; round < 12; round += 1) {
    await query(`INSERT INTO ${sluice.database}.emptied VALUES (${round})`);
    await deleteRows(client, 'emptied', { condition: "notEmpty('again')", mark: 'again' });
    assert.equal(await query(`SELECT count() FROM ${sluice.database}.emptied`), '0\n');
  }
});

test('backups of replicated and of shared tables are neither made nor restored', async () => {
  for (const tables of ['replicated', 'shared']) {
    const env = { ...sluice.env, CLICKHOUSE_TABLES: tables, CLICKHOUSE_CLUSTER: 'pair' };
    const refused = new RegExp(`does not back up or restore ${tables} tables: use ClickHouse's own backups`);
    await assert.rejects(runAdmin(['backup', 'create', 'one'], env), refused);
    await assert.rejects(runAdmin(['backup', 'restore', 'one', '--yes'], env), refused);
  }
  assert.deepEqual(await sluice.admin('backup', 'list'), []);
});

test('a replica that is away is left out, unless the answer has to be certain', async () => {
  const client = connectTo(one, 'pair');
  const absent = { table: 'events', number: '1700000000000064' } as const;
  await other.kill9();
  assert.equal(await isStored(client, absent), false);
  await assert.rejects(isStored(client, absent, true));
});
