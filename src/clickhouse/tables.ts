// The stored tables: their names, the columns of a row with the stamps of its acceptance, and the marker row that opens
// every segment; all from the description of records in `contract/records.ts`.

import {
  type ColumnType,
  columnTypes,
  currentVersionOf,
  earlierColumns,
  recordColumns,
  type TableName,
  type TableVersion,
  tableOf,
  tables,
} from '../contract/records.js';

/** The stamps that every row gets when it is accepted, in this order: with `row_number` the order of acceptance. */
export const stampTypes = {
  row_number: 'UInt32',
  segment: 'UInt64',
  commit_number: 'UInt32',
  received_at: "DateTime64(3, 'UTC')",
} as const;

/** Columns of a row, in the order of its values. */
export const columns: Readonly<Record<TableName, readonly string[]>> = ofEachTable((described) => [
  ...Object.keys(described),
  ...Object.keys(stampTypes),
]);

/** Rows have columns that only a newer version of the service knows. They wait until a process of that version stores them. */
export class UnknownColumns extends Error {
  constructor(version: TableVersion) {
    super(
      `the columns of ${version} are unknown: a newer version of the service accepted these rows and has to store them`,
    );
  }
}

/** Columns of a row of any version, in the order of its values. Throws UnknownColumns. */
export function columnsOf(version: TableVersion): readonly string[] {
  const table = tableOf(version);
  if (!tables.includes(table)) throw new UnknownColumns(version);
  if (version === currentVersionOf(table)) return columns[table];
  const number = Number(version.slice(table.length + 1) || 1);
  const earlier = earlierColumns[table]?.[number - 1];
  if (earlier === undefined) throw new UnknownColumns(version);
  return [...earlier, ...Object.keys(stampTypes)];
}

/**
 * The first row of every segment, up to its row number: an empty app_id and the segment's stamps. Reading it
 * back proves that the segment is stored, and it keeps a part from ever becoming empty, which would erase
 * the part's deduplication token.
 */
export const markerRows: Readonly<Record<TableName, string>> = ofEachTable((described) => {
  const values = Object.values(described).map((type) => columnTypes[type].empty);
  return `[${values.join(',')},0`;
});

/** The value of a column in a row that was parsed. */
export function columnValue(version: TableVersion, row: readonly unknown[], column: RecordColumn): unknown {
  return row[columnsOf(version).indexOf(column)];
}

type RecordColumn = 'app_id' | 'user_id' | 'identity';

export type StoredTable = `stored_${TableName}`;

/** The name of the table behind the view. */
export function storedTable(version: TableVersion): StoredTable {
  return `stored_${tableOf(version)}`;
}

/** The tables of records and of refused rows, whose rows have segment numbers. The index of keys has them too, but is not among these. */
export const numberedTables = [...tables.map(storedTable), 'failed_events'] as const;

function ofEachTable<Value>(make: (described: Readonly<Record<string, ColumnType>>) => Value) {
  const entries = tables.map((table) => [table, make(recordColumns[table])]);
  return Object.fromEntries(entries) as Record<TableName, Value>;
}

/** A regular expression, valid in RE2 too, that finds the event_id in the text of a row: in every table it follows the app_id. */
export const eventIdInRow = '^\\["[0-9]+","([0-9a-f]{32})"';

/** The name of the database, beside another one, in which tables of one round, export or run are (`scratch.ts`), on a single server. */
export function scratchDatabase(database: string): string {
  return `${database}_scratch`;
}

/** Names in the database in which a backup is restored (`staging.ts`): of the plan, and between a table's name and that of its process. */
export const planTable = 'restore_plan';
export const takenBy = '_taken_by_';
