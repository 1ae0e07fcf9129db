// Removing rows in two steps where tables are large. `DELETE FROM` masks rows: it writes a column of a byte a row and links all
// others. One user of three million events cost 0.16 s of CPU, rewriting the parts 1.4. From then on no query shows the rows, unless it
// sets `apply_deleted_mask` to 0, which the user `reader` may not. `APPLY DELETED MASK` then rewrites all masked parts, whoever has
// masked rows in them.
// What trials with ClickHouse 26.7 have shown:
//
// - A mask outlives a kill, DETACH and ATTACH, moves of partitions, a backup and its restore. Merges drop masked rows.
// - `count()`, minimum and maximum, also those that ClickHouse takes from a part's description, leave masked rows out.
//   `total_rows` and `system.parts` count them.
// - ALTER DELETE drops the masked rows of the parts that it rewrites, and rewrites no part in which it matches masked rows only.
// - A restored part takes part in neither until it is attached again, like in any mutation (backups.ts).
// - A part keeps its token as long as one row is left: predicates never match a segment's marker.
// - A mask that is written while masked parts are being rewritten waits for all of them. So what must not wait ends that first
//   (`endErasing`).
//
// The modes of lightweight deletes that write patch parts are not used: they have lost updates on plain MergeTree.

import type { CrashPoint } from '../crash-point.js';
import { untilTrue } from '../wait.js';
import { readRow } from './answers.js';
import { type ClickHouseClient, codeOfFault, faultCodes } from './client.js';
import { deleteRows, killMutations, MutationFailed, mutate, readUndone } from './mutate.js';
import { databaseIn, onAllReplicas, onCluster } from './replication.js';

/** Masks the matching rows of a table: from here on no query shows them. */
export async function maskRows(
  client: ClickHouseClient,
  table: string,
  predicate: string,
  mark: string,
): Promise<void> {
  await mutate(client, table, `DELETE FROM ${table} WHERE ${predicate}`, mark);
}

/** The same for rows that should be erased soon: in a table of up to so many bytes they are at once, as by `deleteRows`. */
export async function deleteOrMask(
  client: ClickHouseClient,
  table: string,
  predicate: string,
  mark: string,
  erasedBytesMax: number,
): Promise<void> {
  if ((await readBytes(client, [table], 'active')) <= erasedBytesMax)
    await deleteRows(client, table, predicate, mark);
  else await maskRows(client, table, predicate, mark);
}

/** The bytes of the parts that have masked rows. */
export function readMaskedBytes(
  client: ClickHouseClient,
  tables: readonly string[],
  settings: object = {},
): Promise<number> {
  return readBytes(client, tables, 'active AND has_lightweight_delete', settings);
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

/** Erases the rows of a table that are masked now. */
export async function applyMasks(client: ClickHouseClient, table: string): Promise<void> {
  if ((await readMaskedBytes(client, [table])) === 0) return;
  await mutate(client, table, eraseStatement(table), eraseMark);
}

/** The same without waiting, for several tables: `isErasing` tells when it is done. */
export async function beginErasing(client: ClickHouseClient, tables: readonly string[]): Promise<void> {
  for (const table of tables) {
    if ((await readMaskedBytes(client, [table])) === 0) continue;
    await client.command({
      query: eraseStatement(table),
      clickhouse_settings: { mutations_sync: '0' },
    });
  }
}

/** Whether masked rows are being erased. Rejects with MutationFailed if that fails; it is then ended. */
export async function isErasing(client: ClickHouseClient): Promise<boolean> {
  const { count, failure } = await readUndone(client, eraseMark);
  if (failure === '') return count > 0;
  await killMutations(client, eraseMark);
  throw new MutationFailed(`masked rows could not be erased: ${failure}`);
}

/**
 * Ends it within about a second; settles with whether parts were being rewritten. The others keep their masks. Merges are stopped
 * meanwhile: ClickHouse goes on with the part in work of a mutation that is killed. Whoever is killed there has to call `resumeMerges`.
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
      // Without the right for it that part is waited for.
      if (codeOfFault(error) !== faultCodes.accessDenied) throw error;
    } finally {
      await resumeMerges(client, [table]);
    }
  }
  return hasEnded;
}

/** It is noticed with the next block of rows. */
const rewritingMsMax = 10_000;

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

async function readBytes(
  client: ClickHouseClient,
  tables: readonly string[],
  condition: string,
  settings: object = {},
): Promise<number> {
  const { bytes } = await readRow<{ bytes: number }>(client, {
    query: `SELECT toFloat64(sum(bytes_on_disk)) AS bytes FROM system.parts
      WHERE database = currentDatabase() AND table IN {tables:Array(String)} AND ${condition}`,
    query_params: { tables },
    ...settings,
  });
  return bytes;
}
