// The traffic of an account's environments over the last hour or week, for charts and rates, and why records were rejected.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { isWithin, ledgerTable } from '../../clickhouse/ledger-table.js';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { traffic } from '../../contract/limits.js';
import { ledgerWrites } from '../../tuning.js';

const outcomesOfTraffic = ['accepted', 'repeated', 'limited', 'rejected'] as const;
type TrafficOutcome = (typeof outcomesOfTraffic)[number];

/** The terms of the ledger that make up each outcome. */
const termsOf: Readonly<Record<TrafficOutcome, readonly string[]>> = {
  accepted: ['accepted'],
  repeated: ['repeated', 'differing'],
  limited: ['limited'],
  rejected: ['rejected'],
};

const spans = {
  hour: { seconds: 3_600, stepSeconds: 60 },
  week: { seconds: 7 * 86_400, stepSeconds: 3_600 },
} as const;
export type Span = keyof typeof spans;

export type Traffic = AdministrationAnswers['showTraffic'];

/** A minute that is not written yet would look like a minute without records. */
const { writtenMsMax } = ledgerWrites;

/** The steps of a span that ends with the last minute that every process has written, and its parameters for `isWithin`. */
function stepsOf(span: Span, nowMs: number) {
  const { seconds, stepSeconds } = spans[span];
  const end = Math.floor((nowMs - writtenMsMax) / 60_000) * 60;
  const from = Math.floor((end - seconds) / stepSeconds) * stepSeconds;
  const at = Array.from({ length: Math.ceil((end - from) / stepSeconds) }, (_, i) => from + i * stepSeconds);
  return { stepSeconds, begin: from, over: end, at };
}

const codeAndField = `splitByChar(' ', detail)[1] AS code, splitByChar(' ', detail)[2] AS field`;

/** The records of environments, by their outcome. */
export async function readTraffic(
  client: ClickHouseClient,
  appIds: readonly string[],
  span: Span,
  nowMs: number,
): Promise<Traffic> {
  const { stepSeconds, at, ...within } = stepsOf(span, nowMs);
  const query_params = { appIds, ...within, step: stepSeconds };
  const isOfThem = `app_id IN ({appIds:Array(String)}) AND ${isWithin}`;
  const rows = await readRows<Record<TrafficOutcome | 'at', number | string>>(client, {
    query: `SELECT intDiv(toUnixTimestamp(minute), {step:UInt32}) * {step:UInt32} AS at,
        ${outcomesOfTraffic.map((name) => `sumIf(records, term IN ('${termsOf[name].join("', '")}')) AS ${name}`).join(', ')}
      FROM ${ledgerTable} FINAL
      WHERE ${isOfThem}
      GROUP BY at`,
    query_params,
  });
  const reasons = await readRows<{ code: string; field: string; rejected: number }>(client, {
    query: `SELECT ${codeAndField}, toFloat64(sum(records)) AS rejected
      FROM ${ledgerTable} FINAL
      WHERE ${isOfThem} AND term = 'rejected'
      GROUP BY code, field ORDER BY rejected DESC, code, field LIMIT ${traffic.reasonsMax}`,
    query_params,
  });
  const byStep = new Map(rows.map((row) => [Number(row.at), row]));
  const countsOf = (name: TrafficOutcome) => at.map((step) => Number(byStep.get(step)?.[name] ?? 0));
  return {
    step_seconds: stepSeconds,
    at,
    accepted: countsOf('accepted'),
    repeated: countsOf('repeated'),
    limited: countsOf('limited'),
    rejected: countsOf('rejected'),
    rejected_for: reasons.map(({ code, field, rejected }) => ({
      code,
      field: field || null,
      records: rejected,
    })),
  };
}

export type Rejections = AdministrationAnswers['showRejections'];

/** The rejected records of an environment, by code and field. */
export async function readRejections(
  client: ClickHouseClient,
  appId: string,
  span: Span,
  nowMs: number,
): Promise<Rejections> {
  const { stepSeconds, at, ...within } = stepsOf(span, nowMs);
  const rows = await readRows<{
    code: string;
    field: string;
    steps: readonly [number | string, number][];
  }>(client, {
    query: `SELECT code, field, groupArray((at, rejected)) AS steps
      FROM (
        SELECT ${codeAndField},
          intDiv(toUnixTimestamp(minute), {step:UInt32}) * {step:UInt32} AS at, toFloat64(sum(records)) AS rejected
        FROM ${ledgerTable} FINAL
        WHERE app_id = {appId:String} AND term = 'rejected' AND ${isWithin}
        GROUP BY code, field, at
      )
      GROUP BY code, field ORDER BY arraySum(steps.2) DESC, code, field`,
    query_params: { appId, ...within, step: stepSeconds },
  });
  const countsOf = (reasons: readonly (typeof rows)[number][]) => {
    const counts = at.map(() => 0);
    for (const { steps } of reasons)
      for (const [step, count] of steps) {
        const index = (Number(step) - within.begin) / stepSeconds;
        counts[index] = (counts[index] ?? 0) + count;
      }
    return counts;
  };
  const others = rows.slice(traffic.reasonsMax);
  return {
    step_seconds: stepSeconds,
    at,
    reasons: [
      ...rows.slice(0, traffic.reasonsMax).map((row) => ({
        code: row.code,
        field: row.field === '' ? null : row.field,
        counts: countsOf([row]),
      })),
      ...(others.length === 0 ? [] : [{ code: null, field: null, counts: countsOf(others) }]),
    ],
  };
}
