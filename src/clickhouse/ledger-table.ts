// The table `ledger`, on the primary server: what became of the records of each environment, minute by minute. The migration describes
// its rows; `insights/ledger/` counts and compares.

import { readRows } from './answers.js';
import { type ClickHouseClient, insertRows } from './client.js';

export const ledgerTable = 'ledger';

export type LedgerRow = {
  readonly app_id: string;
  /** Minutes since 1970. */
  readonly minute: number;
  /** Empty for what is counted before the kind is known. */
  readonly kind: string;
  readonly term: string;
  readonly detail: string;
  readonly records: number;
};

/** Minutes since 1970, from the first to the last. */
export type Minutes = { readonly from: number; readonly to: number };

/** SQL: whether a row is of the minutes of `paramsOf`. Names hours too, since the table is sorted by them. */
export const isWithin = `minute >= {begin:UInt32} AND minute < {over:UInt32}
  AND toStartOfHour(minute) >= toStartOfHour(toDateTime({begin:UInt32}, 'UTC'))
  AND toStartOfHour(minute) < toDateTime({over:UInt32}, 'UTC')`;

export function paramsOf({ from, to }: Minutes) {
  return { begin: from * 60, over: (to + 1) * 60 };
}

/** SQL for a time of a minute, in minutes since 1970. */
export function minuteOf(time = 'minute'): string {
  return `toUInt32(intDiv(toUnixTimestamp(${time}), 60))`;
}

/** Writes rows; writing one again changes nothing. */
export async function writeLedger(client: ClickHouseClient, rows: readonly LedgerRow[]): Promise<void> {
  await insertRows(
    client,
    ledgerTable,
    rows.map(({ minute, ...row }) => ({ ...row, minute: minute * 60 })),
  );
}

/** Minutes that cannot be balanced, and why. */
export type Void = Minutes & { readonly reason: string };

/** Records that these minutes cannot be balanced. Does nothing if `to` is before `from`. */
export async function writeVoid(client: ClickHouseClient, { to, reason, ...begin }: Void): Promise<void> {
  const from = Math.max(0, begin.from);
  if (to < from) return;
  const row = { app_id: '', minute: from, kind: '', term: 'void', detail: reason };
  await writeLedger(client, [{ ...row, records: to - from + 1 }]);
}

/**
 * Records that nothing can be balanced from the last written minute, or from `earliest`, up to `to`, by default this one: what was counted
 * since is lost or belongs to other rows. The last written minutes may lack the counts of some shards.
 */
export async function voidSince(
  client: ClickHouseClient,
  { to = thisMinute(), reason, earliest = Number.POSITIVE_INFINITY }: VoidSince,
): Promise<void> {
  const last = await readLastBooked(client);
  await writeVoid(client, { from: Math.min(earliest, last - unsureMinutes), to, reason });
}

type VoidSince = { readonly to?: number; readonly reason: string; readonly earliest?: number | undefined };

function thisMinute(): number {
  return Math.floor(Date.now() / 60_000);
}

const unsureMinutes = 10;

export async function extendVoid(client: ClickHouseClient, reason: string, to = thisMinute()): Promise<void> {
  const last = (await readVoids(client)).findLast((each) => each.reason === reason);
  if (last !== undefined && last.to < to) await writeVoid(client, { ...last, to });
}

/** All minutes that cannot be balanced, the earliest first. */
export async function readVoids(client: ClickHouseClient): Promise<Void[]> {
  const rows = await readRows<{ from: number; records: number; reason: string }>(client, {
    query: `SELECT ${minuteOf()} AS from, toFloat64(records) AS records, detail AS reason
      FROM ${ledgerTable} FINAL WHERE app_id = '' AND term = 'void' ORDER BY from`,
  });
  return rows.map(({ from, records, reason }) => ({ from, to: from + records - 1, reason }));
}

/** The sums of what was neither accepted nor rejected, over all minutes. */
export function readTermTotals(client: ClickHouseClient): Promise<Omit<LedgerRow, 'minute'>[]> {
  return readRows(client, {
    query: `SELECT app_id, kind, term, detail, toFloat64(sum(records)) AS records FROM ${ledgerTable} FINAL
      WHERE app_id != '' AND term NOT IN ('accepted', 'late_repeats', 'rejected', 'expired_to')
      GROUP BY app_id, kind, term, detail`,
  });
}

/** The last minute with accepted records, in minutes since 1970; 0 if there is none. */
async function readLastBooked(client: ClickHouseClient): Promise<number> {
  const [row] = await readRows<{ minute: number }>(client, {
    query: `SELECT ${minuteOf('max(minute)')} AS minute FROM ${ledgerTable} WHERE term = 'accepted'`,
  });
  return row?.minute ?? 0;
}
