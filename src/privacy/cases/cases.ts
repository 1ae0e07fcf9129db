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

/** What is done in cases besides. */
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
  const isWork = 'has({workActions:Array(String)}, action)';
  const text = (name: string) => `JSONExtractString(details, '${name}')`;
  const lastOf = (name: string) =>
    `argMaxIf(${text(name)}, place, NOT ${isWork} AND JSONHas(details, '${name}')) AS ${name}`;
  const isWanted = state === undefined ? '' : ` AND is_closed = ${state === 'closed' ? 1 : 0}`;
  // Of the lines of an action the last one counts.
  const rows = await readRows<Row>(clickhouse, {
    query: `SELECT case_id,
        ${['reference', 'received_on', 'due_on', 'result'].map(lastOf).join(', ')},
        argMaxIf(action, place, NOT ${isWork} AND action != '${caseActions.change}') = '${caseActions.close}' AS is_closed,
        countIf(action = '${caseActions.open}') AS count_opened,
        ${isoTime(`minIf(at, action = '${caseActions.open}')`)} AS opened_at,
        argMinIf(actor_name, place, action = '${caseActions.open}') AS opened_by,
        max(if(action = '${caseActions.close}', at, toDateTime64(0, 3, 'UTC'))) AS last_closed,
        ${isoTime('last_closed')} AS closed_at,
        argMaxIf(actor_name, place, action = '${caseActions.close}') AS closed_by,
        sumMapIf(map(action, 1), ${isWork}) AS work
      FROM (
        SELECT any(line.at) AS at, (at, line.id) AS place, any(line.action) AS action, any(line.actor_name) AS actor_name,
          argMax(line.details, stage) AS details, ${text('case_id')} AS case_id
        FROM audit_log AS line
        WHERE line.account_id = {accountId:String} AND (has({caseActions:Array(String)}, line.action) OR has({workActions:Array(String)}, line.action))
        GROUP BY line.id
        HAVING argMax(line.outcome, stage) = 'done' AND case_id ${caseId === undefined ? "!= ''" : '= {caseId:String}'}
      ) GROUP BY case_id HAVING count_opened > 0${isWanted}
      ORDER BY ${state === 'closed' ? 'last_closed DESC' : 'due_on'}, case_id LIMIT {countMax:UInt32}`,
    query_params: {
      accountId,
      caseActions: Object.values(caseActions),
      workActions,
      countMax: bounds.listedMax,
      ...(caseId === undefined ? {} : { caseId }),
    },
  });
  return rows.map(({ is_closed, closed_at, closed_by, result, work, ...shown }) => ({
    case_id: shown.case_id,
    reference: shown.reference,
    received_on: shown.received_on,
    due_on: shown.due_on,
    opened_at: shown.opened_at,
    opened_by: shown.opened_by,
    ...(is_closed === 1 ? { state: 'closed', closed_at, closed_by } : { state: 'open' }),
    ...(result === '' ? {} : { result }),
    done: Object.fromEntries(Object.entries(work).map(([action, times]) => [action, Number(times)])),
  }));
}

type Row = {
  readonly [Name in 'case_id' | 'reference' | 'received_on' | 'due_on' | 'result']: string;
} & { readonly [Name in 'opened_at' | 'opened_by' | 'closed_at' | 'closed_by']: string } & {
  readonly is_closed: number;
  /** How often each action was done. */
  readonly work: Readonly<Record<string, number | string>>;
};
