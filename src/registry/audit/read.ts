// Reads pages of the audit log from ClickHouse, the newest action first. Lines that wait in Redis are missing, so callers move them
// first (outbox.ts).

import { readRow, readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { AuditLine } from './audit.js';

/** An action as administrators see it. What is not known is empty. */
export type AuditEntry = Omit<AuditLine, 'stage' | 'details'> & { readonly details: object };

/** Which actions are wanted: those for which all given conditions hold. */
export type AuditFilter = {
  /** Actions that name the account or one of its environments. */
  readonly account?: { readonly accountId: string; readonly appIds: readonly string[] } | undefined;
  /** What a role may see of an account: these actions, and whatever this person did. */
  readonly seen?: { readonly actions: readonly string[]; readonly by: string } | undefined;
  /** Who did it: the actor's name in the line. */
  readonly who?: string | undefined;
  /** One of these actions. */
  readonly wanted?: readonly string[] | undefined;
  readonly requestId?: string | undefined;
  readonly caseId?: string | undefined;
  /** Milliseconds since 1970, both inclusive. */
  readonly sinceMs?: number | undefined;
  readonly untilMs?: number | undefined;
};

/** The position of an action in the log, after which a page continues with older ones. */
export type AuditPlace = { readonly at: string; readonly id: string };

/** The latest actions, or the latest ones older than `before`. */
type Asked = {
  readonly clickhouse: ClickHouseClient;
  readonly countMax: number;
  readonly filter: AuditFilter;
  readonly before: AuditPlace | undefined;
};

/** The newest action comes first. */
export async function readAuditLog(asked: Asked): Promise<AuditEntry[]> {
  const from = await beginOf(asked);
  const found = await readEntries(asked, from);
  // Rarely the page stays short, since a condition held for an action's first line but not for its last: then the whole log is read.
  return found.length < asked.countMax && from > 0 ? readEntries(asked, 0) : found;
}

/**
 * The conditions of a filter in SQL: `same` on columns that are equal in both lines of an action, `last` on columns that only the last
 * line may have. The names of the latter get the `prefix`.
 */
function conditionsOf(filter: AuditFilter, prefix: string): { same: string[]; last: string[] } {
  const { account, seen, who, wanted, requestId, caseId, sinceMs, untilMs } = filter;
  const given = (value: unknown, condition: string) => (value === undefined ? [] : [condition]);
  const detail = (name: string) => `JSONExtractString(${prefix}details, '${name}')`;
  return {
    same: [
      ...given(
        seen,
        "(has({actions:Array(String)}, action) OR (actor = 'person' AND actor_name = {by:String}))",
      ),
      ...given(who, 'actor_name = {who:String}'),
      ...given(wanted, 'has({wanted:Array(String)}, action)'),
      ...given(sinceMs, "at >= fromUnixTimestamp64Milli({sinceMs:Int64}, 'UTC')"),
      ...given(untilMs, "at <= fromUnixTimestamp64Milli({untilMs:Int64}, 'UTC')"),
    ],
    last: [
      ...given(
        account,
        `(${prefix}account_id = {accountId:String} OR (${prefix}app_id != '' AND has({appIds:Array(String)}, ${prefix}app_id)))`,
      ),
      ...given(
        requestId,
        `(${prefix}deletion_request_id = {requestId:String} OR ${detail('user_export_id')} = {requestId:String})`,
      ),
      // Also what was done later with the case's deletions and exports, such as a download.
      ...given(
        caseId,
        `(${detail('case_id')} = {caseId:String}
          OR (${prefix}deletion_request_id != '' AND ${prefix}deletion_request_id IN (SELECT deletion_request_id ${ofCase}))
          OR (${detail('user_export_id')} != '' AND ${detail('user_export_id')} IN (SELECT JSONExtractString(details, 'user_export_id') ${ofCase})))`,
      ),
    ],
  };
}

const ofCase =
  "FROM audit_log WHERE account_id = {accountId:String} AND JSONExtractString(details, 'case_id') = {caseId:String}";

/**
 * The time of the oldest action that the page can need, in milliseconds since 1970; 0 if it may need the whole log. The log is sorted
 * by time, so this reads only its end, until it has as many different times as the page has actions.
 */
async function beginOf({ clickhouse, countMax, filter, before }: Asked): Promise<number> {
  const { same, last } = conditionsOf(filter, '');
  const where = [...(before === undefined ? [] : [`at <= ${placeTime}`]), ...same, ...last];
  const { times, begin } = await readRow<{ times: number; begin: number }>(clickhouse, {
    query: `SELECT toFloat64(count()) AS times, toFloat64(toUnixTimestamp64Milli(min(at))) AS begin FROM (
        SELECT DISTINCT at FROM audit_log ${where.length === 0 ? '' : `WHERE ${where.join(' AND ')}`}
        ORDER BY at DESC LIMIT {times:UInt32}
      )`,
    // One more, since some actions at the time of `before` were on the previous page.
    query_params: { times: countMax + 1, ...parametersOf(filter, before) },
  });
  return times <= countMax ? 0 : begin;
}

function parametersOf({ account, seen, ...others }: AuditFilter, before: AuditPlace | undefined) {
  const given = Object.entries(others).filter(([, value]) => value !== undefined);
  return {
    ...account,
    ...seen,
    ...Object.fromEntries(given),
    ...(before === undefined ? {} : { beforeAt: Date.parse(before.at), beforeId: before.id }),
  };
}

async function readEntries(
  { clickhouse, countMax, filter, before }: Asked,
  from: number,
): Promise<AuditEntry[]> {
  const columns = ['account_id', 'app_id', 'key_id', 'deletion_request_id', 'details', 'outcome'];
  const { same, last } = conditionsOf(filter, 'last_');
  const rows = await readRows<Record<string, string>>(clickhouse, {
    query: `SELECT formatDateTime(at, '%Y-%m-%dT%H:%i:%S', 'UTC') || '.' || leftPad(toString(toUnixTimestamp64Milli(at) % 1000), 3, '0') || 'Z' AS time,
        id, any(actor) AS actor_kind, any(actor_name) AS name, any(address) AS from_address, any(action) AS what,
        ${columns.map((column) => `argMax(audit_log.${column}, stage) AS last_${column}`).join(', ')}
      FROM audit_log
      WHERE ${["at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')", ...same].join(' AND ')}
      ${before === undefined ? '' : `AND at <= ${placeTime} AND (at < ${placeTime} OR id > {beforeId:String})`}
      GROUP BY at, id
      ${last.length === 0 ? '' : `HAVING ${last.join(' AND ')}`}
      ORDER BY at DESC, id LIMIT {countMax:UInt32}`,
    query_params: { countMax, from, ...parametersOf(filter, before) },
  });
  return rows.map((row) => ({
    at: row.time as string,
    id: row.id as string,
    actor: row.actor_kind as AuditLine['actor'],
    actor_name: row.name as string,
    address: row.from_address as string,
    action: row.what as string,
    account_id: row.last_account_id as string,
    app_id: row.last_app_id as string,
    key_id: row.last_key_id as string,
    deletion_request_id: row.last_deletion_request_id as string,
    details: JSON.parse(row.last_details as string) as object,
    outcome: row.last_outcome as AuditLine['outcome'],
  }));
}

const placeTime = "fromUnixTimestamp64Milli({beforeAt:Int64}, 'UTC')";
