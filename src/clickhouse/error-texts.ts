// ClickHouse's error messages quote the data that it refuses. Of such a message only the names of the error and of the column are kept,
// never a value.

import type { TableVersion } from '../contract/records.js';
import { ClickHouseError } from '../packages/clickhouse.js';
import { type ClickHouseClient, codeOfFault } from './client.js';
import { columnsOf } from './tables.js';

/** What may be kept of an error that refused a row: `CANNOT_PARSE_DATETIME in the column time`. */
export function refusalText(table: TableVersion, error: unknown): string {
  if (!(error instanceof ClickHouseError)) return 'unknown';
  const name = error.type ?? error.code;
  const [, key] = /\(while reading the value of key (\w+)\)/.exec(error.message) ?? [];
  // The row's data may imitate this text, but the name of a known column reveals nothing.
  const column = columnsOf(table).find((known) => known === key);
  return column === undefined ? name : `${name} in the column ${column}`;
}

/**
 * `system.errors` has the last message of each error code. Raises each of these codes once more with a message that quotes nothing.
 * Rejects if a server answers something else.
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
