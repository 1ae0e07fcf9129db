// Poison rows: finds the rows of a segment that ClickHouse refuses because of their data, stores them in the table failed_events
// with the error (`failed-row.ts`), and removes them from the segment. To find them it lets ClickHouse parse halves without storing
// anything, so the segment still has one insert and one token.

import { createHash } from 'node:crypto';
import { type ClickHouseClient, codeOfFault, isPoison } from '../src/clickhouse/client.js';
import { forgetErrorTexts } from '../src/clickhouse/error-texts.js';
import { hasRow } from '../src/clickhouse/replication.js';
import { splitLines, stampRows, withoutRows } from '../src/clickhouse/stamps.js';
import {
  exemptInsertNameOf,
  insertNameOf,
  insertSettings,
  isInsertRunning,
  parseRows,
  type SegmentName,
} from '../src/clickhouse/store.js';
import { type TableVersion, tableOf, tables } from '../src/contract/records.js';
import { rowsQuarantined } from '../src/metrics.js';
import { keysOfSegment, memberOf, shardKeys } from '../src/redis/keys.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import type { ShardContext } from './context.js';
import { type BadRow, failedRowOf } from './failed-row.js';
import { beginMarkerCheck } from './marker-check.js';

// Every counter starts at 0: if it appeared only with its first count, an alert on its increase would miss the first rows.
for (const table of tables) rowsQuarantined.inc({ table }, 0);

type Rows = {
  /** The segment's bytes without repeats: a repeat must not become a failed row, since a retry would store it. */
  readonly bytes: Buffer;
  /** The length of the bytes in Redis, and how many repeats were left out. */
  readonly lengthRead: number;
  readonly repeats: number;
};

/**
 * Settles when the segment in Redis holds only rows that ClickHouse can parse, or is no longer outstanding. Rejects with `cause` when
 * ClickHouse refuses the marker row too: then the schema is at fault, not the data, and no rows are removed.
 */
export async function quarantine(
  options: ShardContext,
  segment: SegmentName,
  { bytes, lengthRead, repeats }: Rows,
  cause: unknown,
  isExempt: boolean,
): Promise<void> {
  const { redis, clickhouse, shard, crash, log } = options;
  const lines = splitLines(stampRows(bytes).bytes);
  const bad = await findBadRows(clickhouse, segment.table, lines, 0);
  await forgetErrorTexts(clickhouse, [cause, ...bad.map(({ error }) => error)].map(codeOfFault));
  if (bad.length === 0 || bad.some(({ line }) => line === 0)) throw cause;

  crash('bad_rows_found');
  if ((await keepFailed(options, segment, bad, isExempt)) === 'gone') return;
  crash('bad_rows_kept');
  const remaining = withoutRows(bytes, new Set(bad.map(({ line }) => line)));
  const taken = await runScript(redis, scripts.replaceSegment, keysOfSegment(shard, segment), [
    memberOf(segment),
    lengthRead,
    remaining,
    bad.length + repeats,
  ]);
  crash('bad_rows_taken_out');
  // If another worker removed the rows, that worker has counted them.
  if (Number(taken) !== 1) return;
  rowsQuarantined.inc({ table: tableOf(segment.table) }, bad.length);
  log.error({ segment, rows: bad.length, error: cause }, 'rows were put into failed_events');
}

/** Halves the rows until the refused ones stand alone: about 2 · bad · log2(rows) parses. */
async function findBadRows(
  clickhouse: ClickHouseClient,
  table: TableVersion,
  lines: readonly Buffer[],
  firstLine: number,
): Promise<BadRow[]> {
  try {
    await parseRows(clickhouse, table, Buffer.concat(lines));
    return [];
  } catch (error) {
    if (!isPoison(error)) throw error;
    if (lines.length === 1) return [{ line: firstLine, row: lines[0] as Buffer, error }];
  }
  const half = lines.length >> 1;
  return [
    ...(await findBadRows(clickhouse, table, lines.slice(0, half), firstLine)),
    ...(await findBadRows(clickhouse, table, lines.slice(half), firstLine + half)),
  ];
}

const tokensMax = 5;

/**
 * Stores the bad rows exactly once, even if other workers do it at the same time, and however late an insert arrives. `gone`: the
 * segment is no longer outstanding, so another worker stored them, and a deletion may have removed them since.
 */
async function keepFailed(
  { redis, clickhouse, shard, log }: ShardContext,
  segment: SegmentName,
  bad: readonly BadRow[],
  isExempt: boolean,
): Promise<'kept' | 'gone'> {
  const mark = markOf(segment, bad);
  const values = [markerOf(segment, mark), ...bad.map((row) => failedRowOf(segment, row))];
  // If ClickHouse logged a token in a crash without storing the rows, the next token is used.
  for (let burnt = 0; burnt < tokensMax; burnt++) {
    const assertFresh = beginMarkerCheck();
    if (await isKept(clickhouse, segment, mark)) return 'kept';
    if ((await redis.zscore(shardKeys.segments(shard), memberOf(segment))) === null) return 'gone';
    assertFresh();
    await clickhouse.insert({
      table: 'failed_events',
      values,
      format: 'JSONEachRow',
      clickhouse_settings: {
        ...insertSettings,
        log_comment: isExempt ? exemptInsertNameOf(segment) : insertNameOf(segment),
        insert_deduplication_token: `failed ${mark} ${burnt}`,
      },
    });
    if (await isKept(clickhouse, segment, mark)) return 'kept';
    if (await isInsertRunning(clickhouse, segment))
      throw new Error('another insert of this segment is running');
    if (await isKept(clickhouse, segment, mark, true)) return 'kept';
    log.warn({ segment, burnt: burnt + 1 }, 'a token of failed rows is burnt');
  }
  throw new Error('the rows that ClickHouse refuses could not be stored in failed_events');
}

/** The name of these rows of this segment: every worker computes the same one, and other rows get another. */
function markOf(segment: SegmentName, bad: readonly BadRow[]): string {
  const content = createHash('sha256');
  for (const { line, row } of bad) content.update(`${line} `).update(row);
  return `${segment.table} ${segment.number} ${content.digest('hex').slice(0, 32)}`;
}

/**
 * The marker of one insert of failed rows. Like a segment's marker, it proves that the rows were stored, even if they were deleted
 * since. It also keeps their part from becoming empty, which would erase the part's token. Only markers have an empty table_name.
 */
function markerOf(segment: SegmentName, mark: string) {
  return { table_name: '', segment: segment.number, line: 0, app_id: '', identity: '', row: mark };
}

async function isKept(
  clickhouse: ClickHouseClient,
  segment: SegmentName,
  mark: string,
  isCertain = false,
): Promise<boolean> {
  const condition = "app_id = '' AND segment = {number:UInt64} AND table_name = '' AND row = {mark:String}";
  return hasRow(clickhouse, 'failed_events', condition, { number: segment.number, mark }, isCertain);
}
