// Removing rows in two steps where tables are large. `DELETE FROM` masks rows: it writes one column of one byte per row and links all
// others. For one user of three million events that cost 0.16 s of CPU, and rewriting the parts 1.4 s. From then on no query shows the
// rows, unless it sets `apply_deleted_mask` to 0, which the user `reader` may not do. `APPLY DELETED MASK` then rewrites all parts that
// have masked rows, for all users together.
// What trials with ClickHouse 26.7 have shown:
//
// - A mask survives a kill, DETACH and ATTACH, moves of partitions, a backup and its restore. Merges drop masked rows.
// - `count()`, minimum and maximum leave masked rows out, even if ClickHouse takes them from a part's metadata. `total_rows` and
//   `system.parts` count masked rows.
// - ALTER DELETE drops the masked rows of the parts that it rewrites, but does not rewrite parts in which it only matches masked rows.
// - A restored part ignores both until it is attached again, as it ignores any mutation (backups.ts).
// - A part keeps its token as long as one row is left: predicates never match a segment's marker.
// - Masking waits for all masked parts that are being rewritten. Masking that must not wait ends the rewriting first (`endErasing`).
//
// The modes of lightweight deletes that write patch parts are not used: they have lost updates on plain MergeTree.

import type { CrashPoint } from '../crash-point.js';
import { untilTrue } from '../wait.js';
import { readRow } from './answers.js';
import { type ClickHouseClient, codeOfFault, faultCodes } from './client.js';
import { readRowLong } from './long-statement.js';
import { killMutations, MutationFailed, mutate, type Removal, readUndone, statementFor } from './mutate.js';
import { realTime } from './progress-deadline.js';
import { databaseIn, onAllReplicas, onCluster } from './replication.js';

/** Masks rows of a table: from here on no query shows them. Settles as `deleteRows` does. */
export async function maskRows(client: ClickHouseClient, table: string, removal: Removal): Promise<string> {
  const { condition, mark, byPartition } = removal;
  if (byPartition === undefined)
    return mutate(client, table, `DELETE FROM ${table} WHERE ${condition}`, mark);
  // ClickHouse makes this of DELETE FROM, which can name one partition at most.
  const statement = statementFor(table, 'UPDATE _row_exists = 0', removal);
  return mutate(client, table, statement, mark, realTime, [...byPartition.keys()]);
}

export function readStoredBytes(client: ClickHouseClient, tables: readonly string[]): Promise<number> {
  return readPartBytes(client, tables, 'active');
}

/** The bytes of a table's parts that have rows which meet a condition. It may have to be evaluated for every row. */
export async function readRewrittenBytes(
  client: ClickHouseClient,
  table: string,
  condition: string,
): Promise<number> {
  const parts = `active AND name IN (SELECT DISTINCT _part FROM ${table} WHERE ${condition})`;
  return (await readRowLong<PartBytes>(client, partBytes([table], parts))).bytes;
}

export function readMaskedBytes(
  client: ClickHouseClient,
  tables: readonly string[],
  settings: object = {},
): Promise<number> {
  return readPartBytes(client, tables, 'active AND has_lightweight_delete', settings);
}

/** The bytes of the largest part with masked rows. */
export async function readLargestMasked(
  client: ClickHouseClient,
  tables: readonly string[],
): Promise<number> {
  const masked = partBytes(tables, 'active AND has_lightweight_delete', 'max');
  return (await readRow<PartBytes>(client, masked)).bytes;
}

/** Erases all masked rows of these tables. Rejects with MutationFailed if some are left. */
export async function eraseMasked(client: ClickHouseClient, tables: readonly string[]): Promise<void> {
  for (const table of tables) {
    await applyMasks(client, table);
    if ((await readMaskedBytes(client, [table])) > 0)
      throw new MutationFailed(`masked rows are left in ${table}`);
  }
}

const eraseMark = 'APPLY DELETED MASK';
const eraseStatement = (table: string) => `ALTER TABLE ${table} ${eraseMark}`;

export async function applyMasks(client: ClickHouseClient, table: string): Promise<void> {
  if ((await readMaskedBytes(client, [table])) === 0) return;
  await mutate(client, table, eraseStatement(table), eraseMark);
}

/** Starts erasing without waiting, in several tables: `isErasing` says when it is done. */
export async function beginErasing(client: ClickHouseClient, tables: readonly string[]): Promise<void> {
  for (const table of tables) {
    if ((await readMaskedBytes(client, [table])) === 0) continue;
    await client.command({
      query: eraseStatement(table),
      clickhouse_settings: { mutations_sync: '0' },
    });
  }
}

/** Whether masked rows are being erased. If that fails, ends it and rejects with MutationFailed. */
export async function isErasing(client: ClickHouseClient): Promise<boolean> {
  const { count, failure } = await readUndone(client, eraseMark);
  if (failure === '') return count > 0;
  await killMutations(client, eraseMark);
  throw new MutationFailed(`masked rows could not be erased: ${failure}`);
}

/**
 * Stops erasing within about a second; settles with whether parts were being rewritten. All other parts keep their masks. Merges are
 * stopped meanwhile, since ClickHouse would otherwise finish the current part of a killed mutation. After a crash in between,
 * `resumeMerges` must be called before the next mutation.
 */
export async function endErasing(
  client: ClickHouseClient,
  tables: readonly string[],
  crash: CrashPoint,
): Promise<boolean> {
  let hasEnded = false;
  await killMutations(client, eraseMark);
  for (const table of tables) {
    if (!(await isRewritten(client, table))) continue;
    hasEnded = true;
    try {
      await client.command({ query: `SYSTEM STOP MERGES ${onCluster(client)} ${table}` });
      crash('merges_stopped');
      await untilTrue(async () => !(await isRewritten(client, table)), { msMax: rewritingMsMax });
    } catch (error) {
      // Without the privilege to stop merges, the current part is waited for.
      if (codeOfFault(error) !== faultCodes.accessDenied) throw error;
    } finally {
      await resumeMerges(client, [table]);
    }
  }
  return hasEnded;
}

/** ClickHouse stops at the next block of rows, which takes a busy one longer. Afterwards it would rewrite the whole part. */
const rewritingMsMax = 30_000;

/** Lets the merges of these tables run again. Does nothing without the privilege, since `endErasing` could not stop them either. */
export async function resumeMerges(client: ClickHouseClient, tables: readonly string[]): Promise<void> {
  for (const table of tables)
    await client
      .command({ query: `SYSTEM START MERGES ${onCluster(client)} ${table}` })
      .catch((error: unknown) => {
        if (codeOfFault(error) !== faultCodes.accessDenied) throw error;
      });
}

async function isRewritten(client: ClickHouseClient, table: string): Promise<boolean> {
  const { parts } = await readRow<{ parts: string }>(client, {
    query: `SELECT toString(count()) AS parts FROM ${onAllReplicas(client, 'system.merges')}
      WHERE database = ${databaseIn(client)} AND table = {table:String} AND is_mutation`,
    query_params: { table },
  });
  return parts !== '0';
}

/** The settings of a query that counts masked rows too. */
export const withMasked = { apply_deleted_mask: 0 } as const;

async function readPartBytes(
  client: ClickHouseClient,
  tables: readonly string[],
  condition: string,
  settings: object = {},
): Promise<number> {
  return (await readRow<PartBytes>(client, { ...partBytes(tables, condition), ...settings })).bytes;
}

type PartBytes = { readonly bytes: number };

function partBytes(tables: readonly string[], condition: string, of: 'sum' | 'max' = 'sum') {
  return {
    query: `SELECT toFloat64(${of}(bytes_on_disk)) AS bytes FROM system.parts
      WHERE database = currentDatabase() AND table IN {tables:Array(String)} AND ${condition}`,
    query_params: { tables },
  };
}
