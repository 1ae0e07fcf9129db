// ClickHouse's words about data that it refuses quote that data. Owns what is kept of them: the name of the error and of the
// column, never a value.

import type { TableVersion } from '../contract/records.js';
import { ClickHouseError } from '../packages/clickhouse.js';
import { type ClickHouseClient, codeOfFault } from './client.js';
import { columnsOf } from './tables.js';

/** What may be kept of an error that refused a row: `CANNOT_PARSE_DATETIME in the column time`. */
export function refusalText(table: TableVersion, error: unknown): string {
  if (!(error instanceof ClickHouseError)) return 'unknown';
  const name = error.type ?? error.code;
  const [, key] = /\(while reading the value of key (\w+)\)/.exec(error.message) ?? [];
  // The row may say so itself; the name of a column of ours gives nothing away.
  const column = columnsOf(table).find((known) => known === key);
  return column === undefined ? name : `${name} in the column ${column}`;
}

/**
 * ClickHouse remembers its last words for each code in `system.errors`. Raises each of these codes once more with words that
 * quote nothing. Rejects if a server answers something else.
 */
export async function forgetErrorTexts(client: ClickHouseClient, codes: Iterable<number>): Promise<void> {
  for (const code of new Set(codes)) {
    if (code === 0) continue;
    try {
      const { stream } = await client.exec({
        query: `SELECT throwIf(1, 'forgotten', toInt16(${Math.trunc(code)})) FORMAT Null`,
        clickhouse_settings: { allow_custom_error_code_in_throwif: 1 },
      });
      stream.resume();
    } catch (error) {
      if (codeOfFault(error) !== code) throw error;
    }
  }
}
