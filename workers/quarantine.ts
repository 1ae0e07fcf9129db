// Poison rows: finds the rows of a segment that ClickHouse refuses for their data, keeps them in the table
// failed_events with the error, and takes them out of the segment. The rows are found by letting ClickHouse
// parse halves without storing anything, so the segment keeps one insert and one token.

import { type ClickHouseClient, classifyFault, codeOfFault } from '../src/clickhouse/client.js';
import { splitLines, stampRows, withoutRows } from '../src/clickhouse/stamps.js';
import { askedNameOf, parseRows } from '../src/clickhouse/store.js';
import { type TableName, tables } from '../src/clickhouse/tables.js';
import type { CrashPoint } from '../src/crash-point.js';
import { isUserId } from '../src/ingest/user-id.js';
import { describeError, type Log } from '../src/log.js';
import { rowsQuarantined } from '../src/metrics.js';
import type { Redis } from '../src/redis/client.js';
import { memberOf, shardKeys } from '../src/redis/keys.js';
import { runScript, scripts } from '../src/redis/scripts.js';

// A counter that appears with its first count never rises: an alert on the rise would miss the first rows.
for (const table of tables) rowsQuarantined.inc({ table }, 0);

type QuarantineOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly shard: number;
  readonly crash: CrashPoint;
  readonly log: Log;
};

type BadRow = { readonly line: number; readonly row: Buffer; readonly error: unknown };

/**
 * Settles when the segment in Redis holds only rows that ClickHouse parses. Rejects with `cause` when the
 * marker row is refused too: then the schema is at fault, not the data, and nothing is taken out.
 */
export async function quarantine(
  options: QuarantineOptions,
  segment: { readonly table: TableName; readonly number: string },
  bytes: Buffer,
  cause: unknown,
  isAsked = false,
): Promise<void> {
  const { redis, clickhouse, shard, crash, log } = options;
  const lines = splitLines(stampRows(bytes).bytes);
  const bad = await findBadRows(clickhouse, segment.table, lines, 0);
  if (bad.length === 0 || bad.some(({ line }) => line === 0)) throw cause;

  crash('bad_rows_found');
  await keepFailed(clickhouse, segment, bad, isAsked);
  crash('bad_rows_kept');
  const remaining = withoutRows(bytes, new Set(bad.map(({ line }) => line)));
  await runScript(
    redis,
    scripts.quarantine,
    [
      shardKeys.state(shard),
      shardKeys.segments(shard),
      shardKeys.segmentRows(shard),
      shardKeys.segment(shard, segment),
    ],
    [memberOf(segment), bytes.length, remaining, bad.length],
  );
  crash('bad_rows_taken_out');
  rowsQuarantined.inc({ table: segment.table }, bad.length);
  log.error({ segment, rows: bad.length, error: describeError(cause) }, 'rows were put into failed_events');
}

/** Halves until single rows are refused: about 2 · bad · log2(rows) parses. */
async function findBadRows(
  clickhouse: ClickHouseClient,
  table: TableName,
  lines: readonly Buffer[],
  firstLine: number,
): Promise<BadRow[]> {
  try {
    await parseRows(clickhouse, table, Buffer.concat(lines));
    return [];
  } catch (error) {
    if (classifyFault(error) !== 'poison') throw error;
    if (lines.length === 1) return [{ line: firstLine, row: lines[0] as Buffer, error }];
  }
  const half = lines.length >> 1;
  return [
    ...(await findBadRows(clickhouse, table, lines.slice(0, half), firstLine)),
    ...(await findBadRows(clickhouse, table, lines.slice(half), firstLine + half)),
  ];
}

/** Stores the bad rows once: a repeat after a crash finds them by segment. */
async function keepFailed(
  clickhouse: ClickHouseClient,
  segment: { readonly table: TableName; readonly number: string },
  bad: readonly BadRow[],
  isAsked: boolean,
): Promise<void> {
  const kept = await clickhouse.query({
    query: 'SELECT line FROM failed_events WHERE segment = {number:UInt64} AND table_name = {table:String}',
    query_params: { number: segment.number, table: segment.table },
    format: 'JSONEachRow',
  });
  const keptLines = new Set((await kept.json<{ line: number }>()).map(({ line }) => Number(line)));
  const values = bad
    .filter(({ line }) => !keptLines.has(line))
    .map(({ line, row, error }) => ({
      table_name: segment.table,
      segment: segment.number,
      line,
      ...userOfRow(segment.table, row),
      row: row.toString('utf8'),
      error_code: codeOfFault(error),
      error: error instanceof Error ? error.message.slice(0, 2000) : '',
    }));
  if (values.length === 0) return;
  await clickhouse.insert({
    table: 'failed_events',
    values,
    format: 'JSONEachRow',
    // Two workers at once would otherwise keep the same rows twice.
    clickhouse_settings: {
      async_insert: 0,
      ...(isAsked ? { log_comment: askedNameOf(segment) } : {}),
      insert_deduplication_token: `failed-${segment.table}-${segment.number}-${values.map(({ line }) => line).join('-')}`,
    },
  });
}

/** The user of a row, so that a deletion finds it; what cannot be read stays empty. */
function userOfRow(
  table: TableName,
  row: Buffer,
): { app_id: string; user_id: string | null; identity: string } {
  try {
    const values = JSON.parse(row.toString('utf8')) as unknown[];
    const [userAt, identityAt] = table === 'events' ? [3, 4] : [1, 2];
    const userId = values[userAt];
    return {
      app_id: String(values[0]),
      user_id: isUserId(String(userId)) ? String(userId) : null,
      identity: String(values[identityAt]).toWellFormed(),
    };
  } catch {
    return { app_id: '', user_id: null, identity: '' };
  }
}
