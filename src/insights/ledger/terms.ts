// Records that were acknowledged but not kept, by minute: repeats and suppressed records.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { ledgerTable } from '../../clickhouse/ledger-table.js';
import type { Minutes } from './balance.js';

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
  { from, to }: Minutes,
): Promise<TermsOfMinute[]> {
  const rows = await readRows<{ at: number; term: keyof typeof termsOf; records: number }>(clickhouse, {
    query: `SELECT toUInt32(intDiv(toUnixTimestamp(minute), 60)) AS at, term, toFloat64(sum(records)) AS records
      FROM ${ledgerTable} FINAL
      WHERE app_id = {appId:String} AND term IN {terms:Array(String)}
        AND minute >= {from:UInt32} AND minute < {end:UInt32}
        AND toStartOfHour(minute) >= toStartOfHour(toDateTime({from:UInt32}, 'UTC'))
      GROUP BY at, term`,
    query_params: { appId, terms: Object.keys(termsOf), from: from * 60, end: (to + 1) * 60 },
  });
  return rows.map(({ at, term, records }) => ({
    minute: at,
    acknowledged: records,
    [termsOf[term]]: records,
  }));
}
