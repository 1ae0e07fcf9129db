// Compares the ledger with what is stored. For each minute, environment and kind:
//
//   accepted = late repeats + stored + failed rows + removed by deletions and retention
//
// (The same commit counts repeats and suppressed records separately.) `accepted` is counted by the commit that keeps a record; the other
// terms are counted where the records are now. The counts are taken one after another, so a difference is checked again. A count reads the
// columns of segments and environments of every part that has one of the minutes, whatever else the part holds: 0.66 s of CPU for a part of
// 54 million events, a few milliseconds for the parts of the last minutes.

import { inBatches } from '../../batches.js';
import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import {
  isWithin,
  ledgerTable,
  type Minutes,
  minuteOf,
  paramsOf,
  readVoids,
  type Void,
} from '../../clickhouse/ledger-table.js';
import { readLong } from '../../clickhouse/long-statement.js';
import { shardNumberSpacing } from '../../clickhouse/store.js';
import { storedTable } from '../../clickhouse/tables.js';
import { kindOfFailed, takenRecordsTable } from '../../clickhouse/taken-records.js';
import { ledger } from '../../contract/limits.js';
import { type TableName, tables } from '../../contract/records.js';
import { ledgerChecks } from '../../tuning.js';
import { firstSegmentOf } from './write.js';

/** How many records of a minute are missing or, if negative, surplus. */
export type Difference = {
  readonly app_id: string;
  readonly kind: TableName;
  readonly minute: number;
  readonly records: number;
};

/** One server with its shards, to be compared with the ledger. */
export type Side = {
  readonly primary: ClickHouseClient;
  readonly server: ClickHouseClient;
  readonly shards: readonly number[];
  readonly shardOf: (appId: string) => number;
};

/** What is counted for an environment and kind, in total or by minute. */
export type Sums = {
  readonly app_id: string;
  readonly kind: TableName;
  /** 0 for the total. */
  readonly minute: number;
  accepted: number;
  late: number;
  stored: number;
  failed: number;
  deleted: number;
  expired: number;
  /** Records that were noted as deleted or expired, but are still there. */
  stillPresent: number;
};

/** How many accepted records are missing; negative if there are more than were accepted. */
export function missingOf({ accepted, late, stored, failed, deleted, expired, stillPresent }: Sums): number {
  return accepted - late - stored - failed - deleted - expired + stillPresent;
}

/** Settles with the differences in these minutes. Skips minutes that cannot be compared. */
export async function findDifferences(side: Side, minutes: Minutes): Promise<Difference[]> {
  const [voids, expired] = [await readVoids(side.primary), await readExpired(side.primary)];
  const found: Difference[] = [];
  for (const part of without(minutes, voids)) found.push(...(await compare(side, part, expired)));
  return found;
}

/** The parts of a period that are outside of all voids. */
export function without({ from, to }: Minutes, voids: readonly Void[]): Minutes[] {
  let parts: Minutes[] = from <= to ? [{ from, to }] : [];
  for (const gap of voids)
    parts = parts.flatMap((part) => {
      if (gap.to < part.from || gap.from > part.to) return [part];
      return [
        { from: part.from, to: gap.from - 1 },
        { from: gap.to + 1, to: part.to },
      ].filter((rest) => rest.from <= rest.to);
    });
  return parts;
}

const minutesADay = 1_440;

async function compare(
  side: Side,
  minutes: Minutes,
  expired: ReadonlyMap<string, number>,
  among?: readonly string[],
): Promise<Difference[]> {
  const isLong = minutes.to - minutes.from >= minutesADay;
  /** Events up to the minute of retention expire at an unknown time, so only later ones can be compared. */
  const mayDiffer = (row: Sums) => {
    const expiredTo = row.kind === 'events' ? (expired.get(row.app_id) ?? -1) : -1;
    if (expiredTo >= minutes.to) return false;
    return expiredTo >= minutes.from || missingOf(row) !== 0;
  };
  const sums = await readSums(side, minutes, { among });
  const differing = new Set(sums.filter(mayDiffer).map(({ app_id }) => app_id));
  const found: Difference[] = [];
  for (const apps of inBatches(differing, ledgerChecks.environmentsAtOnceMax)) {
    if (found.length >= ledger.differencesMax) break;
    if (!isLong) found.push(...(await compareMinutes(side, minutes, expired, apps)));
    else
      for (let { from } = minutes; from <= minutes.to; from += minutesADay) {
        const day = { from, to: Math.min(minutes.to, from + minutesADay - 1) };
        found.push(...(await compare(side, day, expired, apps)));
      }
  }
  return found;
}

async function compareMinutes(
  side: Side,
  minutes: Minutes,
  expired: ReadonlyMap<string, number>,
  among: readonly string[],
): Promise<Difference[]> {
  const sums = await readSums(side, minutes, { among, byMinute: true });
  return sums.flatMap((row) => {
    const { app_id, kind, minute, failed } = row;
    if (kind === 'events' && minute <= (expired.get(app_id) ?? -1)) return [];
    const records = missingOf(row);
    // A failed row that was sent again still counts as failed until it is removed from the failed rows.
    return records === 0 || (records < 0 && -records <= failed) ? [] : [{ app_id, kind, minute, records }];
  });
}

/** For each environment with expired events, the last minute whose events may have expired. */
export async function readExpired(primary: ClickHouseClient): Promise<ReadonlyMap<string, number>> {
  const rows = await readRows<{ app_id: string; minute: number }>(primary, {
    query: `SELECT app_id, ${minuteOf('max(minute)')} AS minute FROM ${ledgerTable}
      WHERE term = 'expired_to' GROUP BY app_id`,
  });
  return new Map(rows.map(({ app_id, minute }) => [app_id, minute]));
}

type Choice = { readonly among?: readonly string[] | undefined; readonly byMinute?: boolean };

/** Settles with all terms, counted one after another. `stillPresent` is counted only if counts are by minute. */
export async function readSums(
  { primary, server, shards, shardOf }: Side,
  { from, to }: Minutes,
  { among, byMinute = false }: Choice,
): Promise<Sums[]> {
  const sums = new Map<string, Sums>();
  const own = new Set(shards);
  const params = {
    from: firstSegmentOf(from),
    end: firstSegmentOf(to + 1),
    ...paramsOf({ from, to }),
    among: among ?? [],
  };
  const isAmong = among === undefined ? `app_id != ''` : 'app_id IN {among:Array(String)}';
  const isInMinutes = `segment >= {from:UInt64} AND segment < {end:UInt64} AND ${isAmong}
    AND segment % ${shardNumberSpacing} IN (${shards.join(', ')})`;
  const minute = (expression: string) => (byMinute ? expression : 'toUInt32(0)');

  async function add(client: ClickHouseClient, query: string, term: Exclude<keyof Sums, keyof Difference>) {
    type Row = { app_id: string; kind: TableName; minute: number; records: number };
    const rows = await readLong<Row>(client, {
      query,
      query_params: params,
      clickhouse_settings: { max_threads: 1, max_execution_time: 0 },
    });
    for (const { records, ...of } of rows) {
      if (!own.has(shardOf(of.app_id))) continue;
      const key = `${of.app_id} ${of.kind} ${of.minute}`;
      const row = sums.get(key) ?? { ...of, ...nothing };
      row[term] += records;
      sums.set(key, row);
    }
  }

  const count = (
    from: string,
    kind: string,
    more = '',
  ) => `SELECT app_id, ${kind} AS kind, ${minute('toUInt32(intDiv(segment, 60000000))')} AS minute,
      toFloat64(count()) AS records FROM ${from} WHERE ${isInMinutes} ${more} GROUP BY app_id, kind, minute`;
  const booked = (term: string) => `SELECT app_id, kind, ${minute(minuteOf())} AS at,
      toFloat64(sum(records)) AS records FROM ${ledgerTable} FINAL
      WHERE term = '${term}' AND ${isAmong} AND ${isWithin} GROUP BY app_id, kind, at`;
  const asMinute = (query: string) => `SELECT app_id, kind, at AS minute, records FROM (${query})`;

  for (const table of tables) await add(server, count(storedTable(table), `'${table}'`), 'stored');
  await add(server, count('failed_events', kindOfFailed, `AND table_name != ''`), 'failed');
  for (const term of ['deleted', 'expired'] as const)
    await add(server, count(`${takenRecordsTable} FINAL`, 'kind', `AND term = '${term}'`), term);
  await add(primary, asMinute(booked('accepted')), 'accepted');
  await add(primary, asMinute(booked('late_repeats')), 'late');
  if (!byMinute) return [...sums.values()];
  const taken = `SELECT segment, commit_number, row_number FROM ${takenRecordsTable} WHERE ${isInMinutes}`;
  for (const table of tables)
    await add(
      server,
      count(storedTable(table), `'${table}'`, `AND (segment, commit_number, row_number) IN (${taken})`),
      'stillPresent',
    );
  const isTaken = `AND table_name != '' AND (segment, toUInt32(0), line) IN (${taken})`;
  await add(server, count('failed_events', kindOfFailed, isTaken), 'stillPresent');
  return [...sums.values()];
}

const nothing = { accepted: 0, late: 0, stored: 0, failed: 0, deleted: 0, expired: 0, stillPresent: 0 };
