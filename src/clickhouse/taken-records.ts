// Which records deletions and retention have removed, by their position in the order of acceptance (the table `taken_records`). The
// ledger counts them. The table is a set, so an interrupted process may write records again, and nothing is counted twice.

import type { ClickHouseClient } from './client.js';
import { commandLong } from './long-statement.js';
import type { StoredTable } from './tables.js';

export const takenRecordsTable = 'taken_records';

/** Why a record is gone. */
export type Taking = 'deleted' | 'expired';

/** A row's position in the order of acceptance, as three columns. No two rows of a table have the same one. */
export function positionOf(table: StoredTable | 'failed_events'): string {
  return table === 'failed_events' ? 'segment, toUInt32(0), line' : 'segment, commit_number, row_number';
}

/** The kind of the record that a failed row was. */
export const kindOfFailed = "splitByChar('.', table_name)[1]";

/**
 * Records the rows of a table that meet a condition. Call it before they are removed: afterwards nothing shows how many there were.
 * `from`: a table that has copies of these rows.
 */
export async function recordTaken(
  client: ClickHouseClient,
  table: StoredTable | 'failed_events',
  condition: string,
  taking: Taking,
  from: string = table,
): Promise<void> {
  const kind = table === 'failed_events' ? kindOfFailed : `'${table.slice('stored_'.length)}'`;
  await commandLong(client, {
    query: `INSERT INTO ${takenRecordsTable} (segment, commit_number, row_number, app_id, kind, term)
      SELECT ${positionOf(table)}, app_id, ${kind}, '${taking}' FROM ${from} WHERE app_id != '' AND ${condition}`,
    // A replicated table ignores a block that equals an earlier one, but the rows may have been restored since.
    clickhouse_settings: { max_insert_threads: '1', insert_deduplicate: 0 },
  });
}
