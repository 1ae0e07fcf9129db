// The stored tables: their names, the order of their columns in a row, and the marker row that opens every
// segment. The migrations create them; the encoders and the commit script write their rows.

/** Index in this list is the table's number in a packed record. */
export const tables = ['events', 'user_properties', 'user_identities'] as const;

export type TableName = (typeof tables)[number];

export const tableIndex: Readonly<Record<TableName, number>> = {
  events: 0,
  user_properties: 1,
  user_identities: 2,
};

/** The stamps that the commit script adds to every row, in this order; with `row_number` the order of acceptance. */
const stamps = ['row_number', 'segment', 'commit_number', 'received_at'] as const;

/** Columns of a row, in the order of its values. */
export const columns: Readonly<Record<TableName, readonly string[]>> = {
  events: [
    'app_id',
    'event_id',
    'event',
    'user_id',
    'identity',
    'session_id',
    'time',
    'properties',
    ...stamps,
  ],
  user_properties: ['app_id', 'user_id', 'identity', 'properties', ...stamps],
  user_identities: ['app_id', 'user_id', 'identity', ...stamps],
};

const zeroUuid = '00000000000000000000000000000000';

/**
 * The first row of every segment, up to its row number: an empty app_id and the segment's stamps. Reading it
 * back proves that the segment is stored, and it keeps a part from ever becoming empty, which would erase
 * the part's deduplication token.
 */
export const markerRows: Readonly<Record<TableName, string>> = {
  events: `["","${zeroUuid}","",null,"","",null,{},0`,
  user_properties: '["",null,"",{},0',
  user_identities: '["",0,"",0',
};

/** The name of the table behind the view. */
export function storedTable(table: TableName): string {
  return `stored_${table}`;
}
