// Names the rows that a round removes by their positions. A mutation evaluates its predicate for every row of each part that it touches.
// Evaluating the keys of users and their fences costs 0.33 µs of CPU a row, evaluating the position 0.07: for one user with 38 rows in half
// of the parts of 100 million events, 20 s or 4.6 s. The indexes find the positions in 0.3 s, and checking that no other row has one of
// them takes 0.6 s. A few positions are written into the mutation by partition: it leaves other partitions unread, and a mask
// need not wait for their merges. The list also has the keys of the rows, which are noted before the rows are removed, so that the
// table is not read again for them.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { readRowLong } from '../../clickhouse/long-statement.js';
import type { Removal } from '../../clickhouse/mutate.js';
import { hasReplicas } from '../../clickhouse/replication.js';
import { emptyScratch, fillScratch } from '../../clickhouse/scratch.js';
import { positionOf } from '../../clickhouse/taken-records.js';
import { deletionRounds } from '../../tuning.js';
import { type RoundTables, recordSizes } from './round-tables.js';
import type { UserTable } from './user-tables.js';

/** More positions than this are not written into the text of a statement (262,144 bytes). */
const writtenMax = 1_000;

/** What a mutation removes, and from which table, under which condition, the keys and positions of these rows are noted before. */
export type RowsRemoved = Removal & { readonly noted: { readonly from: string; readonly condition: string } };

/**
 * The mutation that removes the rows which meet a condition, all of which must be stored. It lists their positions; if there are too many, or
 * if another row has one of the positions, it has the condition itself.
 */
export async function removalOf(
  client: ClickHouseClient,
  tables: RoundTables,
  table: UserTable,
  condition: string,
): Promise<RowsRemoved> {
  const { rows, mark } = tables;
  const position = positionOf(table);
  const unlisted = { condition, mark, noted: { from: table, condition } };
  // The keys of failed rows, which are few, are in their texts.
  const keys = table === 'failed_events' ? '' : ', app_id, event_id';
  if (tables.sizes.has(rows)) await emptyScratch(client, [rows]);
  await fillScratch(
    client,
    rows,
    `(segment, commit_number, row_number${keys}) SELECT ${position}${keys} FROM ${table} WHERE ${condition}
      LIMIT ${deletionRounds.positionsMax + 1}`,
  );
  await recordSizes(client, tables, [rows]);
  const count = tables.sizes.get(rows) ?? 0;
  if (count > deletionRounds.positionsMax) return unlisted;
  const listed = `(${position}) IN (SELECT segment, commit_number, row_number FROM ${rows})`;
  const found = await readRowLong<{ rows: number | string; written: readonly [string, string][] }>(client, {
    query: `SELECT count() AS rows, groupArray(${writtenMax + 1})((_partition_id, toString((${position})))) AS written
      FROM ${table} WHERE ${listed}`,
  });
  // Also if the list was lost meanwhile.
  if (Number(found.rows) !== count) return unlisted;
  const noted = keys === '' ? { from: table, condition: listed } : { from: rows, condition: '1' };
  const removal = { condition: listed, mark, noted };
  if (count === 0 || count > writtenMax || hasReplicas(client)) return removal;
  const byPartition = new Map<string, string[]>();
  for (const [partition, written] of found.written)
    byPartition.set(partition, [...(byPartition.get(partition) ?? []), written]);
  return {
    ...removal,
    byPartition: new Map(
      [...byPartition].map(([partition, all]) => [partition, `(${position}) IN (${all.join(', ')})`]),
    ),
  };
}
