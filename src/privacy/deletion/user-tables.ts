// Every table in ClickHouse with users' data, in the order in which a deletion empties them: the tables of all kinds of records, and the
// failed rows. The table that resolves merged users comes last; otherwise a crash in between would lose which users a request means.

import { type StoredTable, storedTable } from '../../clickhouse/tables.js';
import { type TableName, tables } from '../../contract/records.js';

export type UserTable = StoredTable | 'failed_events';

const resolvedFrom: TableName = 'user_identities';

export const userTables: readonly UserTable[] = [
  ...tables.filter((table) => table !== resolvedFrom).map(storedTable),
  'failed_events',
  storedTable(resolvedFrom),
];

/** The table of targets. It has a user column but no users' data, and is emptied separately. */
export const targetTable = 'deletion_targets';
