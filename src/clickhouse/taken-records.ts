// Which records deletions and retention have taken, by their places in the order of acceptance (the table `taken_records`). The
// ledger counts them. It is a set, so whoever is cut off and begins again writes what is left once more, and nothing is counted twice.

import type { ClickHouseClient } from './client.js';
import { commandLong } from './long-statement.js';
import type { StoredTable } from './tables.js';

export const takenRecordsTable = 'taken_records';

/** Why a record is gone. */
export type Taking = 'deleted' | 'expired';

/** The kind of the record that a failed row was. */
export const kindOfFailed = "splitByChar('.', table_name)[1]";

/** Writes down the records that meet a condition. To be called before they go: afterwards nothing shows how many there were. */
export async function noteTaken(
  client: ClickHouseClient,
  from: StoredTable | 'failed_events',
  condition: string,
  taking: Taking,
): Promise<void> {
  const [place, kind] =
    from === 'failed_events'
      ? ['segment, 0, line', kindOfFailed]
      : ['segment, commit_number, row_number', `'${from.slice('stored_'.length)}'`];
  await commandLong(client, {
    query: `INSERT INTO ${takenRecordsTable} (segment, commit_number, row_number, app_id, kind, term)
      SELECT ${place}, app_id, ${kind}, '${taking}' FROM ${from} WHERE app_id != '' AND ${condition}`,
    // A replicated table takes blocks that are equal only once; the rows may have been restored since.
    clickhouse_settings: { max_insert_threads: '1', insert_deduplicate: 0 },
  });
}
