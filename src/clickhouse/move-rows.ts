// Copying a shard's rows from one server to another, comparing and removing them. One process owns a move; a process that continues it
// becomes the new owner. Statements of an earlier owner that arrive late change nothing: while the shard's door on a server (`setDoor`) names
// the owner's copy, the server takes only this copy, and only this owner removes rows.

import { randomUUID } from 'node:crypto';
import { pipeline, Transform } from 'node:stream';
import { moves } from '../contract/limits.js';
import { tables } from '../contract/records.js';
import { readRows } from './answers.js';
import { type ClickHouseClient, drain } from './client.js';
import { readLong, readRowLong } from './long-statement.js';
import { applyMasks, withMasked } from './masks.js';
import { deleteRows, killMutations } from './mutate.js';
import { lastDoor } from './shard-limits.js';
import { copyNameOf, shardNumberSpacing } from './store.js';
import { numberedTables, storedTable } from './tables.js';
import { takenRecordsTable } from './taken-records.js';

export const movedTables = [...numberedTables, 'stored_keys', takenRecordsTable] as const;
export type MovedTable = (typeof movedTables)[number];

/** The owner is hexadecimal digits. */
export type OwnedMove = { readonly shard: number; readonly owner: string };

/** The rows of a shard, including the index's markers. FINAL, since merges drop duplicates in the index and in taken records. */
function rowsOf(table: MovedTable, shard: number): { readonly from: string; readonly where: string } {
  const isOfShard = `segment % ${shardNumberSpacing} = ${shard}`;
  if (table === takenRecordsTable) return { from: `${table} FINAL`, where: isOfShard };
  if (table !== 'stored_keys') return { from: table, where: isOfShard };
  return {
    from: 'stored_keys FINAL',
    where: `(hash != 0 AND ${isOfShard} OR hash = 0 AND rest = ${shard})`,
  };
}

/** Ends the removal of a shard's rows that an earlier owner has begun. */
export async function endRemovals(client: ClickHouseClient, shard: number): Promise<void> {
  await killMutations(client, copyNameOf(shard, ''));
}

export async function readPartitions(
  client: ClickHouseClient,
  table: MovedTable,
  shard: number,
  settings: Partial<typeof withMasked> = {},
): Promise<ReadonlyMap<string, number>> {
  const { from, where } = rowsOf(table, shard);
  const rows = await readLong<{ partition: string; rows: string }>(client, {
    query: `SELECT _partition_id AS partition, toString(count()) AS rows FROM ${from} WHERE ${where}
      GROUP BY partition ORDER BY partition`,
    clickhouse_settings: { max_execution_time: 0, ...settings },
  });
  return new Map(rows.map(({ partition, rows: count }) => [partition, Number(count)]));
}

/** The number of the shard's rows in a partition and a hash of all of them, which does not depend on their order. */
export async function readFingerprint(
  client: ClickHouseClient,
  table: MovedTable,
  shard: number,
  partition: string,
): Promise<string> {
  const { from, where } = rowsOf(table, shard);
  const columns = await columnsOf(client, table);
  const { rows, sum, xor } = await readRowLong<{ rows: string; sum: string; xor: string }>(client, {
    // The hash of a tuple, since the hash of several values is null if one of them is null, and sums skip nulls.
    // Its name must not be a column's: in the condition ClickHouse would use the hash in place of the column.
    query: `SELECT toString(count()) AS rows, toString(sum(row_hash)) AS sum, toString(groupBitXor(row_hash)) AS xor
      FROM (SELECT sipHash64((${columns})) AS row_hash FROM ${from} WHERE _partition_id = {partition:String} AND ${where})`,
    query_params: { partition },
    clickhouse_settings: { max_execution_time: 0 },
  });
  return `${rows} ${sum} ${xor}`;
}

/** The columns that are not computed from others; for the index also the owner, in which a marker stores how far it reaches. */
async function columnsOf(client: ClickHouseClient, table: MovedTable): Promise<string> {
  if (table === 'stored_keys') return 'hash, rest, segment, owner';
  const found = await readRows<{ name: string }>(client, {
    query: `SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String}
      AND default_kind NOT IN ('MATERIALIZED', 'ALIAS') ORDER BY position`,
    query_params: { table },
  });
  return found.map(({ name }) => name).join(', ');
}

/**
 * Called while rows are copied: `passed` after each piece was passed on, `arrived` from time to time with the number of rows that have
 * arrived.
 */
export type CopyProgress = { readonly passed: () => void; readonly arrived: (rows: number) => void };

/** Copies the shard's rows of a partition; settles when the other server has stored them. If interrupted, it may leave some rows. */
export async function copyRows(
  source: ClickHouseClient,
  target: ClickHouseClient,
  table: MovedTable,
  { shard, owner }: OwnedMove,
  partition: string,
  { passed, arrived }: CopyProgress,
): Promise<void> {
  const { from, where } = rowsOf(table, shard);
  const columns = await columnsOf(source, table);
  const { stream } = await source.exec({
    query: `SELECT ${columns} FROM ${from} WHERE _partition_id = {partition:String} AND ${where} FORMAT Native`,
    query_params: { partition },
    clickhouse_settings: { max_execution_time: 0 },
  });
  const queryId = randomUUID();
  const timer = setInterval(() => {
    // The copying process notices failures itself.
    readArrived(target, queryId).then(arrived, () => undefined);
  }, moves.progressEveryMs);
  const passing = new Transform({
    transform: (piece, _, done) => {
      done(null, piece);
      // After the piece has been passed on.
      setImmediate(passed);
    },
  });
  // An error of one end destroys the other, whose statement fails.
  pipeline(stream, passing, () => undefined);
  const inserting = target.exec({
    query: `INSERT INTO ${table} (${columns}) FORMAT Native`,
    query_id: queryId,
    values: passing,
    clickhouse_settings: {
      // A new token, so that rows that were copied before and removed since are stored again. From 26.2 on ClickHouse ignores
      // `insert_deduplicate = 0` here.
      insert_deduplication_token: randomUUID(),
      insert_allow_materialized_columns: 1,
      max_execution_time: 0,
      log_comment: copyNameOf(shard, owner),
    },
  });
  try {
    await drain((await inserting).stream);
  } finally {
    clearInterval(timer);
  }
}

/** The rows that a running insert has received. */
async function readArrived(client: ClickHouseClient, queryId: string): Promise<number> {
  const [row] = await readRows<{ rows: string }>(client, {
    query:
      'SELECT greatest(read_rows, written_rows) AS rows FROM system.processes WHERE query_id = {queryId:String}',
    query_params: { queryId },
  });
  return Number(row?.rows ?? 0);
}

/** Removes the shard's rows of a table, or of one partition, if the process still owns the move there. */
export async function removeRows(
  client: ClickHouseClient,
  table: MovedTable,
  { shard, owner }: OwnedMove,
  partition?: string,
): Promise<void> {
  const isPartition = partition === undefined ? '' : ` AND _partition_id = '${partition}'`;
  const isOwner = `${lastDoor(client, shard)} = '${copyNameOf(shard, owner)}'`;
  const condition = `${rowsOf(table, shard).where}${isPartition} AND ${isOwner}`;
  await deleteRows(client, table, { condition, mark: owner });
  // From now on no round erases masked rows of this shard here.
  await applyMasks(client, table);
  const left = await readPartitions(client, table, shard, withMasked);
  if (partition === undefined ? left.size > 0 : left.has(partition))
    throw new Error(`rows of shard ${shard} are left in ${table}`);
}

/** How many rows each shard has on a server, and approximately how many bytes they take. */
export async function readSizes(
  client: ClickHouseClient,
): Promise<ReadonlyMap<number, { readonly rows: number; readonly bytes: number }>> {
  const counts = tables
    .map(storedTable)
    .map(
      (table) =>
        `SELECT '${table}' AS table, segment % ${shardNumberSpacing} AS shard, count() AS rows FROM ${table} WHERE app_id != '' GROUP BY shard`,
    );
  const rows = await readLong<{ shard: number; rows: number; bytes: number }>(client, {
    query: `SELECT shard, toFloat64(sum(c.rows)) AS rows, sum(c.rows * p.bytes / p.rows) AS bytes
      FROM (${counts.join(' UNION ALL ')}) AS c
      INNER JOIN (SELECT table, sum(rows) AS rows, sum(bytes_on_disk) AS bytes FROM system.parts
        WHERE active AND database = currentDatabase() GROUP BY table) AS p ON c.table = p.table
      GROUP BY shard`,
    clickhouse_settings: { max_execution_time: 0 },
  });
  return new Map(
    rows.map(({ shard, rows: count, bytes }) => [Number(shard), { rows: count, bytes: Math.round(bytes) }]),
  );
}
