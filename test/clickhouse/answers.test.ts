// An answer that ClickHouse cuts off, as it does when its disk is full, is never taken for a short one or an empty one. The engine
// is real; a gate before it cuts its answers off, in correct HTTP.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import {
  AnswerCutOff,
  type Answering,
  readBytes,
  readRow,
  readRows,
  readRowsInTime,
  streamLines,
  streamRows,
} from '../../src/clickhouse/answers.js';
import { type ClickHouseClient, codeOfFault } from '../../src/clickhouse/client.js';
import { readKeyHashes, readMarkers } from '../../src/clickhouse/key-index.js';
import { lookUpKeys } from '../../src/clickhouse/key-look-up.js';
import { keyBytes } from '../../src/clickhouse/row-keys.js';
import { readNotedPlans } from '../../src/clickhouse/staging.js';
import { isInsertRunning, isStored } from '../../src/clickhouse/store.js';
import { findSimilar } from '../../src/insights/users/similar.js';
import { readFoundRows } from '../../src/privacy/deletion/round-counts.js';
import { countLeft } from '../../src/privacy/deletion/round-keys.js';
import { createRoundTables, type RoundTables, recordSizes } from '../../src/privacy/deletion/round-tables.js';
import { restoreDeletions } from '../../src/privacy/deletion/second-copy.js';
import { restoreSuppressions } from '../../src/privacy/suppression/second-copy.js';
import type { Loading } from '../../src/registry/loading.js';
import { readSecondCopy } from '../../src/registry/second-copy.js';
import type { Answer, Choice } from '../harness/clickhouse-gate.js';
import { startGatedStores } from '../support/stores.js';

const { clickhouse, gate, gated } = await startGatedStores();
afterEach(() => gate.pass());

const asked: Choice = ({ sql }) => sql.includes('AS asked') || sql.includes('FROM numbers');

async function all<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const found: Item[] = [];
  for await (const item of items) found.push(item);
  return found;
}

// Values that look like the ends of answers.
const query = `SELECT number AS asked, ['\n]', '}\n]\n', '__exception__'][number + 1] AS text FROM numbers(3)`;
const rows = ['\n]', '}\n]\n', '__exception__'].map((text, number) => ({ asked: number, text }));
const lines = rows.map((row) => `${JSON.stringify(row)}\n`).join('');
const strings = `SELECT concat('a', toString(number)), '\n]' FROM numbers(3)`;

const readers: Readonly<Record<string, (client: Answering) => Promise<unknown>>> = {
  readRows: (client) => readRows(client, { query }),
  'readRows, of no rows': (client) => readRows(client, { query: `${query} WHERE 0` }),
  readRow: (client) => readRow(client, { query: 'SELECT 7 AS asked' }),
  streamRows: (client) => all(streamRows(client, { query })),
  'streamRows, of no rows': (client) => all(streamRows(client, { query: `${query} WHERE 0` })),
  streamLines: async (client) =>
    Buffer.concat((await all(streamLines(client, { query }))).map(({ bytes }) => bytes)).toString(),
  readBytes: async (client) => (await readBytes(client, { query: strings })).toString(),
  'readBytes, of no rows': async (client) =>
    (await readBytes(client, { query: `${strings} WHERE 0` })).toString(),
};
const answers: Readonly<Record<keyof typeof readers, unknown>> = {
  readRows: rows,
  'readRows, of no rows': [],
  readRow: { asked: 7 },
  streamRows: rows,
  'streamRows, of no rows': [],
  streamLines: lines,
  readBytes: 'a0\n]a1\n]a2\n]',
  'readBytes, of no rows': '',
};

for (const [name, read] of Object.entries(readers)) {
  test(`${name}: takes a whole answer, and refuses it cut off after any number of bytes`, async () => {
    let length = Number.NaN;
    gate.change(asked, ({ body }) => {
      length = body.length;
      return body;
    });
    assert.deepEqual(await read(gated), answers[name]);
    // An array of rows is complete even without its last line feed.
    for (let bytes = 0; bytes < length - 1; bytes++) {
      gate.change(asked, ({ body }) => body.subarray(0, bytes));
      await assert.rejects(read(gated), AnswerCutOff, `${bytes} of ${length} bytes`);
    }
  });

  test(`${name}: rejects with the error that ClickHouse writes behind the beginning of an answer`, async () => {
    for (const bytes of [0, 1, 12]) {
      gate.change(asked, (answer) => failedAfter(answer, bytes));
      await assert.rejects(read(gated), (error) => codeOfFault(error) === 243, `${bytes} bytes`);
    }
  });
}

/** An answer in the middle of which ClickHouse ran out of disk. */
function failedAfter({ headers, body }: Answer, bytes: number): Buffer {
  const tag = String(headers['x-clickhouse-exception-tag']);
  const error = 'Code: 243. DB::Exception: Cannot reserve 1.00 MiB: not enough space. (NOT_ENOUGH_SPACE)\n';
  const behind = `\r\n__exception__\r\n${tag}\r\n${error}${error.length} ${tag}\r\n__exception__\r\n`;
  return Buffer.concat([body.subarray(0, bytes), Buffer.from(behind)]);
}

test('readRowsInTime: settles with the rows that came before the time was up, and rejects with an error or half a row', async () => {
  // Finds 0, 1 and 2 at once, and never ends.
  const endless = 'SELECT number AS asked FROM system.numbers WHERE number % 18446744073709551557 < 3';
  const found = await readRowsInTime<{ asked: number }>(clickhouse, { query: endless }, 1);
  assert.deepEqual(found, [{ asked: 0 }, { asked: 1 }, { asked: 2 }].slice(0, found.length));
  const read = () => readRowsInTime(gated, { query }, 60);
  assert.deepEqual(await read(), rows);
  const second = ({ body }: Answer) => body.indexOf('{', body.indexOf('{') + 1);
  gate.change(asked, (answer) => answer.body.subarray(0, second(answer) - 2));
  assert.deepEqual(await read(), rows.slice(0, 1));
  gate.change(asked, (answer) => answer.body.subarray(0, second(answer) + 2));
  await assert.rejects(read(), AnswerCutOff);
  gate.change(asked, (answer) => failedAfter(answer, 12));
  await assert.rejects(read(), (error) => codeOfFault(error) === 243);
});

test('similar users that were found before the time was up are shown', async () => {
  gate.change(
    ({ sql }) => sql.includes('SELECT DISTINCT identity FROM'),
    () => Buffer.from('[\n{"identity":"Ada"},\n{"identity":"ADA"}'),
  );
  assert.deepEqual(await findSimilar(gated, ['7'], 'ada'), ['ADA', 'Ada']);
});

test('a statement that has begun to answer and fails, rejects with its error', async () => {
  const failing = (from: number) =>
    `SELECT number, throwIf(number = ${from}, 'failed') AS asked FROM numbers(1000000)`;
  for (const from of [10, 600_000]) {
    const options = { query: failing(from), clickhouse_settings: { max_block_size: '1000' } };
    await assert.rejects(readRows(clickhouse, options), (error) => codeOfFault(error) === 395);
    await assert.rejects(all(streamRows(clickhouse, options)));
  }
});

test('statements without an answer reject when they fail', async () => {
  const failing = [
    ["INSERT INTO failed_events (segment) SELECT throwIf(number = 5, 'failed') FROM numbers(10)", 395],
    ['CREATE TABLE registry (a UInt8) ENGINE = Memory', 57],
    ['ALTER TABLE registry ADD COLUMN version UInt8', 15],
    ["ALTER TABLE registry DELETE WHERE throwIf(1, 'failed') SETTINGS mutations_sync = 2", 341],
    ['DROP TABLE nothing', 60],
  ] as const;
  await clickhouse.command({ query: "INSERT INTO registry (document_key, version) VALUES ('a', 1)" });
  for (const [statement, code] of failing) {
    await assert.rejects(clickhouse.command({ query: statement }), (error) => {
      assert.equal(codeOfFault(error), code, `${statement}: ${String(error)}`);
      return true;
    });
  }
  await clickhouse.command({
    query: 'KILL MUTATION WHERE database = currentDatabase() AND NOT is_done SYNC',
  });
  await clickhouse.command({ query: 'TRUNCATE TABLE registry' });
});

const appId = '1000000001';

/** Decisions that follow from the absence of rows. Each is right while ClickHouse's answers arrive whole. */
const decisions: Readonly<
  Record<string, (client: ClickHouseClient, tables: RoundTables) => Promise<unknown>>
> = {
  'a segment is not stored': async (client) => !(await isStored(client, { table: 'events', number: '9' })),
  'no insert runs': async (client) => !(await isInsertRunning(client)),
  'a deletion has left nothing': async (client, tables) =>
    (await countLeft(client, tables, 'stored_events')).size === 0,
  'a deletion reaches no rows': async (client, tables) => (await readFoundRows(client, tables)).size === 0,
  'there is no deployment': async (client) =>
    Object.keys((await readSecondCopy(client)).documents).length === 0,
  'no key is taken': async (client) => {
    const keys = { rows: [0], bytes: Buffer.alloc(keyBytes, 1), count: 1 };
    return (await lookUpKeys(client, 0, 'events', keys)).ownerOf(0) === undefined;
  },
  'the index of keys has no marker': async (client) => (await readMarkers(client)).size === 0,
  'the index of keys has no keys': async (client) =>
    (await all(readKeyHashes(client, 0, 0n, 9n, 1))).length === 0,
  'no restore is noted': async (client) => (await readNotedPlans(client, 'answers_test')).length === 0,
  'no user is suppressed': async (client) => {
    const loading = { write: async () => null } as unknown as Loading;
    return (await restoreSuppressions(client, loading)) === '0';
  },
  'no deletion request is kept': async (client) => {
    const loading = { write: async () => null } as unknown as Loading;
    return (await restoreDeletions(client, loading)) === 0;
  },
};

test('nothing is decided by the absence of rows while answers are cut off', async () => {
  const request = { deletion_request_id: 'r', account_id: '7', fences: ['9'], resolved: false };
  const environment = { app_id: appId, account_id: '7' };
  const tables = await createRoundTables(clickhouse, 'cut', 1, [request], [environment]);
  await recordSizes(clickhouse, tables, []);
  for (const [what, decide] of Object.entries(decisions)) {
    assert.equal(await decide(gated, tables), true, what);
    for (const share of [0, 0.5, 0.9]) {
      gate.change(
        () => true,
        // An array is complete even without its last line feed.
        ({ body }) => body.subarray(0, Math.min(share * body.length, body.length - 2)),
      );
      await assert.rejects(decide(gated, tables), AnswerCutOff, `${what}, ${share} of its answer`);
      assert.ok(gate.changed.length > 0);
    }
    gate.pass();
  }
});
