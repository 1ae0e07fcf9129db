// The traffic of an account's environments over the last hour or week, for charts and rates.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { minuteCountsTable, outcomesOfTraffic, type TrafficOutcome } from './minute-counts.js';

export const spans = {
  hour: { seconds: 3_600, stepSeconds: 60 },
  week: { seconds: 7 * 86_400, stepSeconds: 3_600 },
} as const;
export type Span = keyof typeof spans;

export type Traffic = {
  readonly step_seconds: number;
  /** The begin of each step, in seconds since 1970, without gaps. */
  readonly at: readonly number[];
} & Readonly<Record<TrafficOutcome, readonly number[]>>;

/** The steps of a span that ends with the minute before `nowMs`, which is the last that can be whole. */
export async function readTraffic(
  client: ClickHouseClient,
  appIds: readonly string[],
  span: Span,
  nowMs: number,
): Promise<Traffic> {
  const { seconds, stepSeconds } = spans[span];
  const end = Math.floor(nowMs / 60_000) * 60;
  const from = Math.floor((end - seconds) / stepSeconds) * stepSeconds;
  const result = await client.query({
    query: `SELECT intDiv(toUnixTimestamp(minute), {step:UInt32}) * {step:UInt32} AS at,
        ${outcomesOfTraffic.map((name) => `sum(${name}) AS ${name}`).join(', ')}
      FROM ${minuteCountsTable} FINAL
      WHERE app_id IN ({appIds:Array(String)}) AND minute >= {from:UInt32} AND minute < {end:UInt32}
      GROUP BY at`,
    query_params: { appIds, from, end, step: stepSeconds },
    format: 'JSONEachRow',
  });
  const rows = await result.json<Record<TrafficOutcome | 'at', number | string>>();
  const byStep = new Map(rows.map((row) => [Number(row.at), row]));
  const at = Array.from({ length: Math.ceil((end - from) / stepSeconds) }, (_, i) => from + i * stepSeconds);
  const countsOf = (name: TrafficOutcome) => at.map((step) => Number(byStep.get(step)?.[name] ?? 0));
  return {
    step_seconds: stepSeconds,
    at,
    accepted: countsOf('accepted'),
    repeated: countsOf('repeated'),
    limited: countsOf('limited'),
    rejected: countsOf('rejected'),
  };
}
