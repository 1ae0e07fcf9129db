// Records that were acknowledged but not kept, by minute: repeats and suppressed records.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { isWithin, ledgerTable, type Minutes, minuteOf, paramsOf } from '../../clickhouse/ledger-table.js';

export type TermsOfMinute = {
  readonly minute: number;
  readonly acknowledged: number;
  readonly repeats?: number;
  readonly suppressed?: number;
};

const termsOf = { repeated: 'repeats', differing: 'repeats', suppressed: 'suppressed' } as const;

export async function readTermsOfDay(
  clickhouse: ClickHouseClient,
  appId: string,
  minutes: Minutes,
): Promise<TermsOfMinute[]> {
  const rows = await readRows<{ at: number; term: keyof typeof termsOf; records: number }>(clickhouse, {
    query: `SELECT ${minuteOf()} AS at, term, toFloat64(sum(records)) AS records
      FROM ${ledgerTable} FINAL
      WHERE app_id = {appId:String} AND term IN {terms:Array(String)} AND ${isWithin}
      GROUP BY at, term`,
    query_params: { appId, terms: Object.keys(termsOf), ...paramsOf(minutes) },
  });
  return rows.map(({ at, term, records }) => ({
    minute: at,
    acknowledged: records,
    [termsOf[term]]: records,
  }));
}
