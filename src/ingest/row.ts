// From the values of a checked record to its row: a line of `JSONCompactEachRow` with the columns of `contract/records.ts`, up to its
// number in the commit. On the path of every record.

import { type ColumnType, recordColumns, type TableName } from '../contract/records.js';
import { encodeProperties, type Properties } from './properties.js';

/** The values of a row by column; a missing text is empty. */
export type RowFields = {
  /** Decimal digits. */
  readonly user_id?: string | undefined;
  readonly properties?: Properties | undefined;
  readonly [text: string]: unknown;
};

/**
 * Encodes a row. `hasArrays`: some property is an array and has to be joined. `eventId` and `time` (UTC, in ClickHouse's format;
 * undefined: the time of acceptance) are for tables that have these columns.
 */
export type RowEncoder = (
  appId: string,
  fields: RowFields,
  hasArrays?: boolean,
  eventId?: string,
  time?: string,
) => string;

/**
 * Makes the encoder of a table's rows. It is compiled, like the schemas' checks: a loop over the columns takes 0.2 to 0.4 µs more per
 * event.
 */
export function rowEncoder(table: TableName): RowEncoder {
  const values = Object.entries(recordColumns[table]).map(([name, type]) =>
    name === 'app_id' ? placeholder('appId', '"') : valueOfType[type](name),
  );
  const body = `return (appId, fields, hasArrays, eventId, time) => \`[${values.join(',')},\`;`;
  return new Function('encodeProperties', body)(encodeProperties);
}

/** The text of a column's value, as source of a template. */
const valueOfType: Readonly<Record<ColumnType, (column: string) => string>> = {
  text: (column) => placeholder(`JSON.stringify(fields.${column} ?? '')`),
  event_id: () => placeholder('eventId', '"'),
  user_id: (column) => placeholder(`fields.${column}`),
  optional_user_id: (column) => placeholder(`fields.${column} ?? 'null'`),
  time: () => placeholder(`time === undefined ? 'null' : '"' + time + '"'`),
  properties: (column) => placeholder(`encodeProperties(fields.${column}, hasArrays === true)`),
};

function placeholder(expression: string, around = ''): string {
  return `${around}\${${expression}}${around}`;
}
