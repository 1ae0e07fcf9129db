// How many records of each environment a process accepted, knew already, refused for a limit and rejected, minute by minute.
// A minute is written to ClickHouse once it is over, in one insert for all environments, so an API process costs one small
// insert a minute, and another one if records were rejected: why. While ClickHouse is away minutes wait; a crash loses the last
// one. Charts show it; nothing relies on it.

import { randomUUID } from 'node:crypto';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { describeError, type Log } from '../../log.js';
import { minuteWrites } from '../../tuning.js';
import { countedField } from '../data-quality/rejected-records.js';

export const outcomesOfTraffic = ['accepted', 'repeated', 'limited', 'rejected'] as const;
export type TrafficOutcome = (typeof outcomesOfTraffic)[number];

/** How many were rejected with a code for a field; `field` is empty for the whole record. */
type Reason = { readonly code: string; readonly field: string; rejected: number };
type Counts = Record<TrafficOutcome, number> & { readonly reasons: Map<string, Reason> };
type Minute = { readonly startMs: number; readonly environments: Map<string, Counts> };

export type MinuteCounts = {
  add(appId: string, outcome: Exclude<TrafficOutcome, 'rejected'>, count: number): void;
  /** Counts each as rejected, and why. */
  addRejected(
    appId: string,
    refusals: readonly { readonly code: string; readonly field?: string | undefined }[],
  ): void;
  /** Writes the minutes that are over. Settles when nothing is left to write; rejects when ClickHouse fails. */
  flush(): Promise<void>;
  /** Writes what is left. */
  close(): Promise<void>;
};

export const minuteCountsTable = 'minute_counts';
export const minuteRejectionsTable = 'minute_rejections';
const minuteMs = 60_000;

export type MinuteCountsOptions = {
  readonly clickhouse: Pick<ClickHouseClient, 'insert'>;
  readonly log: Log;
  readonly nowMs?: () => number;
};

export function keepMinuteCounts({ clickhouse, log, nowMs = Date.now }: MinuteCountsOptions): MinuteCounts {
  const instance = randomUUID();
  /** The oldest first. */
  let minutes: Minute[] = [];
  let current: Minute | undefined;
  let latestMs = 0;

  function countsOf(appId: string): Counts {
    // While a clock that was set back catches up, everything counts for the latest minute, since a minute is written only once.
    const startMs = Math.max(Math.floor(nowMs() / minuteMs) * minuteMs, latestMs);
    if (current?.startMs !== startMs) current = begin(startMs);
    const { environments } = current;
    let counts = environments.get(appId);
    if (counts === undefined) {
      counts = { accepted: 0, repeated: 0, limited: 0, rejected: 0, reasons: new Map() };
      environments.set(appId, counts);
    }
    return counts;
  }

  const addRejected: MinuteCounts['addRejected'] = (appId, refusals) => {
    const counts = countsOf(appId);
    counts.rejected += refusals.length;
    for (const { code, field: given } of refusals) {
      const field = given === undefined ? '' : countedField(given);
      const reason = counts.reasons.get(`${code} ${field}`);
      if (reason === undefined) counts.reasons.set(`${code} ${field}`, { code, field, rejected: 1 });
      else reason.rejected += 1;
    }
  };

  function begin(startMs: number): Minute {
    const begun: Minute = { startMs, environments: new Map() };
    minutes.push(begun);
    latestMs = startMs;
    return begun;
  }

  async function write(isOver: (minute: Minute) => boolean): Promise<void> {
    dropOldest();
    const over = minutes.filter(isOver);
    if (over.length === 0) return;
    const rows = over.flatMap(({ startMs, environments }) =>
      [...environments].map(([app_id, { reasons, ...counts }]) => {
        const row = { app_id, minute: Math.floor(startMs / 1000), instance };
        return {
          counts: { ...row, ...counts },
          reasons: [...reasons.values()].map((each) => ({ ...row, ...each })),
        };
      }),
    );
    const reasons = rows.flatMap((row) => row.reasons);
    await insert(
      minuteCountsTable,
      rows.map(({ counts }) => counts),
    );
    if (reasons.length > 0) await insert(minuteRejectionsTable, reasons);
    minutes = minutes.filter((minute) => !over.includes(minute));
    if (current !== undefined && over.includes(current)) current = undefined;
  }

  async function insert(table: string, values: readonly object[]): Promise<void> {
    await clickhouse.insert({
      table,
      values,
      format: 'JSONEachRow',
      clickhouse_settings: { async_insert: 0 },
      abort_signal: AbortSignal.timeout(minuteWrites.insertMsMax),
    });
  }

  /** What waits for ClickHouse has a bound. */
  function dropOldest(): void {
    const rowsOf = ({ environments }: Minute) =>
      [...environments.values()].reduce((sum, { reasons }) => sum + 1 + reasons.size, 0);
    const rows = () => minutes.reduce((sum, minute) => sum + rowsOf(minute), 0);
    while (minutes.length > 1 && rows() > minuteWrites.waitingRowsMax) minutes.shift();
  }

  const flush = () => write(({ startMs }) => startMs + minuteMs <= nowMs());
  let writing: Promise<void> = Promise.resolve();
  const timer = setInterval(() => {
    writing = writing.then(flush).catch((error: unknown) => {
      log.debug({ error: describeError(error) }, 'counts of minutes wait for clickhouse');
    });
  }, minuteWrites.everyMs);
  return {
    add: (appId, outcome, count) => {
      countsOf(appId)[outcome] += count;
    },
    addRejected,
    flush,
    close: async () => {
      clearInterval(timer);
      await writing;
      await write(() => true).catch((error: unknown) =>
        log.warn({ error: describeError(error) }, 'the last counts of minutes are lost'),
      );
    },
  };
}
