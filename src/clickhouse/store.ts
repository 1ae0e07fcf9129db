// Storing one segment: the insert, the marker that proves it, and the check whether an insert of it is still running. One block, one
// partition, one token.

import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { type TableVersion, tableOf } from '../contract/records.js';
import { readRow, readRows } from './answers.js';
import { type ClickHouseClient, codeOfFault, drain, faultCodes } from './client.js';
import { databaseIn, hasRow, onAllReplicas } from './replication.js';
import { columnsOf, storedTable } from './tables.js';

export type SegmentName = { readonly table: TableVersion; readonly number: string };

// The same settings for every attempt: with other settings a retry may be split into other blocks, and tokens belong to blocks, not to
// inserts. `async_insert` is on by default in newer servers and follows other rules.
export const insertSettings = {
  async_insert: 0,
  insert_deduplicate: 1,
  input_format_parallel_parsing: 0,
  max_insert_block_size: '1048449',
  min_insert_block_size_rows: '1048449',
  min_insert_block_size_bytes: '268402944',
  max_insert_threads: '1',
  input_format_json_read_numbers_as_strings: 1,
  input_format_null_as_default: 1,
  input_format_defaults_for_omitted_fields: 1,
} as const;

/**
 * A token of a segment: its number, a hash of its bytes, and how many of its tokens were burnt before. Other bytes need
 * another token, since ClickHouse silently drops rows under a known token.
 */
export function tokenOf(segment: SegmentName, bytes: Buffer, burnt: number): string {
  const content = createHash('sha256').update(bytes).digest('hex').slice(0, 32);
  return `${segment.number}-${content}-${burnt}`;
}

/**
 * Inserts a segment's rows, as `stampRows` returns them, under a token. Settles when ClickHouse answers OK, whether it
 * stored the rows or knew the token. `isExempt`: ClickHouse refused the segment before (see `shard-limits.ts`), and Redis
 * still wants it.
 */
export async function insertSegment(
  client: ClickHouseClient,
  segment: SegmentName,
  rows: Buffer,
  token: string,
  isExempt = false,
): Promise<void> {
  const { stream } = await client.exec({
    query: `INSERT INTO ${storedTable(segment.table)} (${columnsOf(segment.table).join(', ')}) FORMAT JSONCompactEachRow`,
    values: Readable.from([rows]),
    clickhouse_settings: {
      ...insertSettings,
      insert_deduplication_token: token,
      log_comment: isExempt ? exemptInsertNameOf(segment) : insertNameOf(segment),
    },
  });
  await drain(stream);
}

/**
 * Whether ClickHouse has the segment's marker row, and so all of its rows. `isCertain`: rejects rather than say no while a
 * replica cannot be asked.
 */
export async function isStored(
  client: ClickHouseClient,
  segment: SegmentName,
  isCertain = false,
): Promise<boolean> {
  const condition = `app_id = '' AND segment = {number:UInt64}
      AND toYYYYMM(fromUnixTimestamp64Micro(toInt64(segment), 'UTC'))
        = toYYYYMM(fromUnixTimestamp64Micro(toInt64({number:UInt64}), 'UTC'))`;
  return hasRow(client, storedTable(segment.table), condition, { number: segment.number }, isCertain);
}

/** Whether an insert of this segment, or of any segment of this database, is still running, by whatever process. */
export async function isInsertRunning(client: ClickHouseClient, segment?: SegmentName): Promise<boolean> {
  if (segment === undefined) return runs(client, 'startsWith(comment, {name:String})', { name: namePrefix });
  const names = { name: insertNameOf(segment), exempt: exemptInsertNameOf(segment) };
  return runs(client, 'comment IN ({name:String}, {exempt:String})', names);
}

/** Whether an insert is running that is exempt from the constraint, such as a retried failed row. */
export async function isExemptInsertRunning(client: ClickHouseClient): Promise<boolean> {
  const condition = 'startsWith(comment, {name:String}) AND NOT startsWith(comment, {copy:String})';
  return runs(client, condition, { name: exemptPrefix, copy: copyPrefix });
}

/** Whether an insert of a segment, of a failed row, or of keys of this shard is running, by whatever process. */
export async function isInsertOfShardRunning(client: ClickHouseClient, shard: number): Promise<boolean> {
  const number = `toUInt64OrZero(extract(comment, ' ([0-9]+)(?:-[0-9]+)?$'))`;
  const condition = `startsWith(comment, {name:String}) AND NOT startsWith(comment, {copy:String})
    AND ${number} % ${shardNumberSpacing} = ${shard} OR comment = {index:String}`;
  return runs(client, `(${condition})`, { name: namePrefix, copy: copyPrefix, index: indexNameOf(shard) });
}

/** Whether rows of the shard are being copied to this server, by whatever process. */
export async function isCopyRunning(client: ClickHouseClient, shard: number): Promise<boolean> {
  return runs(client, 'startsWith(comment, {name:String})', { name: `${copyPrefix}${shard} ` });
}

/** The name of a copy of a shard's rows; it includes the owner of the move. */
export function copyNameOf(shard: number, owner: string): string {
  return `${copyPrefix}${shard} ${owner}`;
}

/** Whether a statement with a matching comment is running in this database. */
async function runs(
  client: ClickHouseClient,
  condition: string,
  names: Record<string, string>,
): Promise<boolean> {
  const { running } = await readRow<{ running: string | number }>(client, {
    query: `SELECT count() AS running FROM (
        SELECT Settings['log_comment'] AS comment, current_database FROM ${onAllReplicas(client, 'system.processes')}
      ) WHERE current_database = ${databaseIn(client)} AND ${condition}`,
    query_params: names,
  });
  return Number(running) > 0;
}

/** Parses rows as an insert would, without storing them. Rejects as the insert would. */
export async function parseRows(client: ClickHouseClient, table: TableVersion, bytes: Buffer): Promise<void> {
  const { stream } = await client.exec({
    query: `INSERT INTO FUNCTION null('${await structureOf(client, table)}') FORMAT JSONCompactEachRow`,
    values: Readable.from([bytes]),
    clickhouse_settings: insertSettings,
  });
  await drain(stream);
}

/**
 * Stores one failed row. The statement itself reads the row from the failed rows, so a row that was deleted before is not stored,
 * however late the statement arrives. Otherwise it works like sending the row's bytes: nulls become defaults, here through nullable
 * columns. Rejects as the insert would, or, if the row is gone, with the code of `isRowGone`.
 */
export async function insertFailedRow(
  client: ClickHouseClient,
  failed: FailedRow,
  burnt: number,
): Promise<void> {
  const { table_name: table, app_id, segment, line, row } = failed;
  const columns = columnsOf(table).join(', ');
  const name = { table, number: `${segment}-${line}` };
  const structure = await structureOf(client, table, (type) =>
    /^(Nullable|Map|Array|Tuple)\(/.test(type) ? type : `Nullable(${type})`,
  );
  await client.command({
    query: `INSERT INTO ${storedTable(table)} (${columns})
      SELECT ${columns} FROM format(JSONCompactEachRow, '${structure}', (
        SELECT row FROM failed_events WHERE app_id = {app_id:String} AND segment = {segment:UInt64}
        AND line = {line:UInt32} AND table_name = {table:String} AND lower(hex(SHA256(row))) = {hash:String} LIMIT 1))`,
    query_params: { app_id, segment, line, table, hash: createHash('sha256').update(row).digest('hex') },
    clickhouse_settings: {
      ...insertSettings,
      insert_null_as_default: 1,
      insert_deduplication_token: tokenOf(name, Buffer.from(row), burnt),
      log_comment: exemptInsertNameOf(name),
    },
  });
}

/** Whether a failed row was not stored because it is gone: the statement's subquery was empty. */
export function isRowGone(error: unknown): boolean {
  return codeOfFault(error) === faultCodes.badArguments;
}

export type FailedRow = {
  readonly table_name: TableVersion;
  readonly segment: string;
  readonly line: number;
  readonly app_id: string;
  readonly row: string;
};

/** The columns of rows with their types, as text for a statement. */
async function structureOf(
  client: ClickHouseClient,
  table: TableVersion,
  changed = (type: string) => type,
): Promise<string> {
  const rows = await readRows<{ name: string; type: string }>(client, {
    query: `SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}`,
    query_params: { table: storedTable(table) },
  });
  const types = new Map(rows.map((row) => [row.name, row.type]));
  return columnsOf(table)
    .map((column) => {
      const type = types.get(column);
      if (type === undefined) throw new Error(`${storedTable(table)} has no column ${column}`);
      return `${column} ${changed(type)}`.replaceAll("'", "\\'");
    })
    .join(', ');
}

/** Whether an insert was refused because Redis was emptied since its segment was read. */
export function isRefusedSegment(error: unknown): boolean {
  return codeOfFault(error) === faultCodes.violatedConstraint;
}

/** A segment number modulo this is its shard; see commit-3.lua. */
export const shardNumberSpacing = 64;

const namePrefix = 'store ';
/** Begins the names of inserts that `refuseSegments` does not refuse. The constraints `shard_limits` contain it, like the others. */
const exemptPrefix = `${namePrefix}asked `;

/** Begins the names of copies of rows from another server. */
const copyPrefix = `${exemptPrefix}move `;

/** The name of every insert of a worker into a shard's index of keys. */
export function indexNameOf(shard: number): string {
  return `index ${shard}`;
}

/** The name of every insert of the segment in system.processes. */
export function insertNameOf(segment: SegmentName): string {
  return `${namePrefix}${tableOf(segment.table)} ${segment.number}`;
}

/** The name of an insert of the segment that `refuseSegments` does not refuse. */
export function exemptInsertNameOf(segment: SegmentName): string {
  return `${exemptPrefix}${tableOf(segment.table)} ${segment.number}`;
}
