// The ledger for people: an environment's day, minute by minute, and the check of a period.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import {
  isWithin,
  ledgerTable,
  type Minutes,
  minuteOf,
  paramsOf,
  readVoids,
} from '../../clickhouse/ledger-table.js';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { AdministrationError } from '../../contract/errors.js';
import { ledger } from '../../contract/limits.js';
import { readDay, readDayOrTime } from '../../parsing/day-or-time.js';
import { shardOf } from '../../redis/keys.js';
import { ledgerChecks } from '../../tuning.js';
import { missingOf, readExpired, readSums, type Sums, without } from './balance.js';
import {
  type AnyDifference,
  type CheckOptions,
  confirm,
  findUnwritten,
  readSettled,
  readWritten,
  sidesOf,
  timeOf,
} from './check.js';

export type DayOfBooks = AdministrationAnswers['showLedger'];
/** What happened to the records of a minute, or of a day. */
export type Books = Omit<DayOfBooks['minutes'][number], 'minute'>;

/**
 * The records that an environment accepted on a day, in UTC, by minute. Leaves out minutes without records, and minutes that are not
 * written yet: the last one or two of the present day.
 */
export async function showDay(options: CheckOptions, appId: string, day: string): Promise<DayOfBooks> {
  const from = dayOfText(day) / 60_000;
  const shard = shardOf(appId, options.shards);
  const written = await readWritten(options.redis, [shard]);
  const minutes: Minutes = { from, to: Math.min(written, from + 1_439) };
  const side = (await sidesOf(options)).find(({ shards }) => shards.includes(shard));
  if (side === undefined)
    throw new AdministrationError(
      'the server of this environment does not answer, or its shard is being moved',
    );
  const unkept = await readUnkept(options.clickhouse, appId, minutes);
  const sums = await readSums(side, minutes, { among: [appId], byMinute: true });
  const expiredTo = (await readExpired(options.clickhouse)).get(appId) ?? -1;
  const settled = await readSettled(options, [shard]);
  const voids = (await readVoids(options.clickhouse)).filter(
    (each) => each.to >= minutes.from && each.from <= minutes.to,
  );
  const isVoid = (minute: number) => without({ from: minute, to: minute }, voids).length === 0;
  const found = new Map<number, Books>();
  const add = (minute: number, terms: Partial<Books>) =>
    found.set(minute, added(found.get(minute) ?? nothing, terms));
  for (const { at, term, records } of unkept)
    add(at, { acknowledged: records, [unkeptTerms[term]]: records });
  for (const row of sums) add(row.minute, booksOf(row, { expiredTo, settled, isVoid }));
  const list = [...found]
    .sort(([a], [b]) => a - b)
    .map(([minute, books]) => [minute, minute > settled ? withWaiting(books) : books] as const);
  return {
    app_id: appId,
    day,
    ...list.reduce((sum, [, books]) => added(sum, books), nothing),
    not_balanced: voids.map((each) => ({
      from: timeOf(each.from),
      to: timeOf(each.to),
      reason: each.reason,
    })),
    minutes: list.map(([minute, books]) => ({ minute: timeOf(minute), ...books })),
  };
}

/** The time in milliseconds since 1970 at which the day begins. Throws AdministrationError if the text is no day. */
function dayOfText(day: string): number {
  const ms = readDay(day) ?? -1;
  if (!(ms >= 0 && ms < ledger.dayMsMax))
    throw new AdministrationError('the day must be a date from 1970 to 2099: YYYY-MM-DD');
  return ms;
}

/** The terms of the ledger for records that were acknowledged and not kept, and what people see them as. */
const unkeptTerms = { repeated: 'repeats', differing: 'repeats', suppressed: 'suppressed' } as const;

function readUnkept(clickhouse: ClickHouseClient, appId: string, minutes: Minutes) {
  return readRows<{ at: number; term: keyof typeof unkeptTerms; records: number }>(clickhouse, {
    query: `SELECT ${minuteOf()} AS at, term, toFloat64(sum(records)) AS records
      FROM ${ledgerTable} FINAL
      WHERE app_id = {appId:String} AND term IN {terms:Array(String)} AND ${isWithin}
      GROUP BY at, term`,
    query_params: { appId, terms: Object.keys(unkeptTerms), ...paramsOf(minutes) },
  });
}

type Known = {
  readonly expiredTo: number;
  readonly settled: number;
  readonly isVoid: (minute: number) => boolean;
};

/**
 * The terms of the records that were kept. Missing records have expired or, once everything of their minute is stored, are a difference.
 */
function booksOf(row: Sums, { expiredTo, settled, isVoid }: Known): Partial<Books> {
  const missing = missingOf(row);
  const isExpired = row.kind === 'events' && row.minute <= expiredTo;
  return {
    acknowledged: row.accepted,
    stored: row.stored - row.stillPresent,
    repeats: row.late,
    deleted: row.deleted,
    expired: row.expired + (isExpired ? Math.max(0, missing) : 0),
    failed: row.failed,
    difference: isExpired || row.minute > settled || isVoid(row.minute) ? 0 : missing,
  };
}

/** Adds the records that are in no other term, which may be in waiting segments of that minute. */
function withWaiting(books: Books): Books {
  const { acknowledged, stored, repeats, suppressed, deleted, expired, failed } = books;
  return {
    ...books,
    waiting: Math.max(0, acknowledged - stored - repeats - suppressed - deleted - expired - failed),
  };
}

const nothing: Books = {
  acknowledged: 0,
  stored: 0,
  repeats: 0,
  suppressed: 0,
  deleted: 0,
  expired: 0,
  failed: 0,
  waiting: 0,
  difference: 0,
};

function added(sum: Books, more: Partial<Books>): Books {
  const entries = Object.entries(sum).map(([term, count]) => [
    term,
    count + ((more as Record<string, number>)[term] ?? 0),
  ]);
  return Object.fromEntries(entries) as Books;
}

export type CheckedBooks = AdministrationAnswers['showLedgerCheck'];

/** Checks all environments over a period; by default the last days, up to the latest minute that is stored. */
export async function checkBooks(
  options: CheckOptions,
  given: { readonly from?: string | undefined; readonly to?: string | undefined },
): Promise<CheckedBooks> {
  const all = Array.from({ length: options.shards }, (_, shard) => shard);
  const settled = await readSettled(options, all);
  const minuteFrom = (text: string | undefined, otherwise: number) => {
    if (text === undefined) return otherwise;
    const ms = readDayOrTime(text);
    if (ms === undefined)
      throw new AdministrationError('from and to must be days or times with offset: 2026-03-01T12:00:00Z');
    return Math.floor(ms / 60_000);
  };
  const to = Math.min(settled, minuteFrom(given.to, settled));
  const from = Math.max(0, minuteFrom(given.from, to - ledgerChecks.recentMinutes));
  if (from > to)
    throw new AdministrationError(
      `nothing can be compared: from must be before to, and by now everything is stored up to ${timeOf(settled + 1)}`,
    );
  const sides = await sidesOf(options);
  const found: AnyDifference[] = [];
  for (const side of sides) found.push(...(await confirm(side, { from, to })));
  found.push(...(await findUnwritten(options, { from, to })));
  const checked = new Set(sides.flatMap(({ shards }) => shards));
  const unchecked = all.filter((shard) => !checked.has(shard));
  const voids = (await readVoids(options.clickhouse)).filter((each) => each.to >= from && each.from <= to);
  return {
    balanced: found.length === 0,
    from: timeOf(from),
    to: timeOf(to + 1),
    differences: found.map(({ minute, ...each }) => ({ ...each, minute: timeOf(minute) })),
    not_checked: [
      ...(unchecked.length === 0
        ? []
        : [`shards ${unchecked.join(', ')}: their server does not answer, or they are being moved`]),
      ...voids.map((each) => `from ${timeOf(each.from)} to ${timeOf(each.to + 1)}: ${each.reason}`),
    ],
  };
}
