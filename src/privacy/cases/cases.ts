// Cases: requests that people make to an account, such as for access or erasure, each from the day it was received until it is closed. A
// case names no user, only the account's own reference. It has no document: its state is computed from its lines in the audit log, which
// nobody can change. A line has the fields that it sets, and for each field the latest line wins. So a case lasts as long as its lines.

import { isoTime, readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { cases as bounds } from '../../contract/limits.js';

export type Case = AdministrationAnswers['showCase'];

/** The actions that change a case. The details of their lines are the fields that they set. */
export const caseActions = {
  open: 'open_case',
  change: 'change_case',
  close: 'close_case',
  reopen: 'reopen_case',
} as const;

const workActions = [
  'preview_deletion',
  'propose_deletion',
  'submit_deletion',
  'submit_export',
  'suppress_users',
  'free_users',
];

export type CasesAsked = {
  readonly accountId: string;
  readonly state?: Case['state'] | undefined;
  readonly caseId?: string | undefined;
};

/** An account's cases, at most `listedMax`: open ones by due date, closed ones from the latest. */
export async function readCases(
  clickhouse: ClickHouseClient,
  { accountId, state, caseId }: CasesAsked,
): Promise<readonly Case[]> {
  const text = (name: string) => `JSONExtractString(details, '${name}')`;
  const lastOf = (name: string) => `argMaxIf(${text(name)}, place, JSONHas(details, '${name}'))`;
  const isWanted = state === undefined ? '' : ` AND is_closed = ${state === 'closed' ? 1 : 0}`;
  const rows = await readRows<Record<string, string | number>>(clickhouse, {
    query: `SELECT case_id,
        ${lastOf('reference')} AS reference, ${lastOf('received_on')} AS received_on, ${lastOf('due_on')} AS due_on,
        ${lastOf('result')} AS result,
        argMaxIf(action, place, action != '${caseActions.change}') = '${caseActions.close}' AS is_closed,
        countIf(action = '${caseActions.open}') AS count_opened,
        ${isoTime(`minIf(at, action = '${caseActions.open}')`)} AS opened_at,
        argMinIf(actor_name, place, action = '${caseActions.open}') AS opened_by,
        max(if(action = '${caseActions.close}', at, toDateTime64(0, 3, 'UTC'))) AS last_closed,
        ${isoTime('last_closed')} AS closed_at,
        argMaxIf(actor_name, place, action = '${caseActions.close}') AS closed_by
      FROM (${linesOf(Object.values(caseActions), caseId)})
      GROUP BY case_id HAVING count_opened > 0${isWanted}
      ORDER BY ${state === 'closed' ? 'last_closed DESC' : 'due_on'}, case_id LIMIT {countMax:UInt32}`,
    query_params: {
      accountId,
      countMax: bounds.listedMax,
      ...(caseId === undefined ? {} : { caseId }),
    },
  });
  const done = await readWork(clickhouse, accountId, caseId, rows.length);
  return rows.map((row) => ({
    case_id: String(row.case_id),
    reference: String(row.reference),
    received_on: String(row.received_on),
    due_on: String(row.due_on),
    opened_at: String(row.opened_at),
    opened_by: String(row.opened_by),
    ...(row.is_closed === 1
      ? { state: 'closed', closed_at: String(row.closed_at), closed_by: String(row.closed_by) }
      : { state: 'open' }),
    ...(row.result === '' ? {} : { result: String(row.result) }),
    done: done.get(String(row.case_id)) ?? {},
  }));
}

/**
 * SQL for the actions of these kinds in the given case, or in any case without `caseId`: one row for each action, merged from its lines.
 */
function linesOf(actions: readonly string[], caseId: string | undefined): string {
  const named = actions.map((action) => `'${action}'`).join(', ');
  return `SELECT any(line.at) AS at, line.id AS id, (at, id) AS place, any(line.action) AS action,
      any(line.actor_name) AS actor_name, argMax(line.details, stage) AS details,
      JSONExtractString(details, 'case_id') AS case_id
    FROM audit_log AS line WHERE line.account_id = {accountId:String} AND line.action IN (${named})
    GROUP BY line.id
    HAVING argMax(line.outcome, stage) = 'done' AND case_id ${caseId === undefined ? "!= ''" : '= {caseId:String}'}`;
}

/** How often each action was done in each case, by case id. `count`: how many cases there are; 0 skips the query. */
async function readWork(
  clickhouse: ClickHouseClient,
  accountId: string,
  caseId: string | undefined,
  count: number,
): Promise<ReadonlyMap<string, Readonly<Record<string, number>>>> {
  const found = new Map<string, Record<string, number>>();
  if (count === 0) return found;
  const rows = await readRows<{ case_id: string; action: string; times: number }>(clickhouse, {
    query: `SELECT case_id, action, toUInt32(count()) AS times FROM (${linesOf(workActions, caseId)})
      GROUP BY case_id, action ORDER BY action`,
    query_params: { accountId, ...(caseId === undefined ? {} : { caseId }) },
  });
  for (const { case_id, action, times } of rows)
    found.set(case_id, { ...found.get(case_id), [action]: Number(times) });
  return found;
}
