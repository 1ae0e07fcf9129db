// Moves lines of the audit log from Redis to ClickHouse, and reads them there.

import { readRow, readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { auditLinesPerInsert } from '../../tuning.js';
import type { AuditLine } from './line.js';

/**
 * Moves the waiting lines. A process that copies changes to ClickHouse calls this after it has read them and before it writes
 * them. So no change outlives an emptied Redis without its line. Several processes may call it at once; a line that two of them
 * move counts once.
 */
export async function mirrorAudit(
  redis: Redis,
  clickhouse: ClickHouseClient,
  abort_signal?: AbortSignal,
): Promise<void> {
  let cursor = '0';
  do {
    const [next, entries] = await redis.hscan(registryKeys.audit, cursor, 'COUNT', auditLinesPerInsert);
    cursor = next;
    const names = entries.filter((_, at) => at % 2 === 0);
    if (names.length === 0) continue;
    const lines = entries.filter((_, at) => at % 2 === 1);
    await insertLines(
      clickhouse,
      lines.map((line) => JSON.parse(line) as AuditLine),
      abort_signal,
    );
    await redis.hdel(registryKeys.audit, ...names);
  } while (cursor !== '0');
}

/** Settles when ClickHouse has the lines. */
export async function insertLines(
  clickhouse: ClickHouseClient,
  lines: readonly AuditLine[],
  abort_signal?: AbortSignal,
): Promise<void> {
  await clickhouse.insert({
    table: 'audit_log',
    values: lines.map(wellFormed),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
    ...(abort_signal && { abort_signal }),
  });
}

/** ClickHouse refuses all lines of a statement if a text of one is not Unicode, and everything else waits for them. */
function wellFormed(line: AuditLine): object {
  return Object.fromEntries(
    Object.entries(line).map(([name, value]) => [
      name,
      typeof value === 'string' ? value.toWellFormed() : value,
    ]),
  );
}

/** An action as administrators see it. What is not known is empty. */
export type AuditEntry = Omit<AuditLine, 'stage' | 'details'> & { readonly details: object };

/** What to show of the log: lines that name the account or one of its environments, and of one person only, if it has `person`. */
export type AuditScope = {
  readonly accountId: string;
  readonly appIds: readonly string[];
  readonly person?: string;
};

function ofPerson(scope: AuditScope | undefined): readonly string[] {
  return scope?.person === undefined ? [] : ["actor = 'person' AND actor_name = {person:String}"];
}

/** An action of the log: only older ones are wanted. */
export type AuditPlace = { readonly at: string; readonly id: string };

/**
 * The last actions, or the last ones before a place, the newest first. Actions whose lines have not reached ClickHouse are missing.
 */
export async function readAuditLog(
  clickhouse: ClickHouseClient,
  countMax: number,
  scope?: AuditScope,
  before?: AuditPlace,
): Promise<AuditEntry[]> {
  const from = await beginOf(clickhouse, countMax, scope, before);
  const found = await readEntries(clickhouse, countMax, scope, before, from);
  // Of an account whose lines another one's outcome took away, which is rare, the whole log is read.
  return found.length < countMax && from > 0 ? readEntries(clickhouse, countMax, scope, before, 0) : found;
}

/**
 * The time of the oldest action that a page can have, in milliseconds; 0 if it may have all. The log is sorted by time, so only
 * its end is read, as far as there are as many times as the page has actions.
 */
async function beginOf(
  clickhouse: ClickHouseClient,
  countMax: number,
  scope: AuditScope | undefined,
  before: AuditPlace | undefined,
): Promise<number> {
  const where = [
    ...(before === undefined ? [] : [`at <= ${placeTime}`]),
    ...(scope === undefined
      ? []
      : ["(account_id = {accountId:String} OR (app_id != '' AND has({appIds:Array(String)}, app_id)))"]),
    ...ofPerson(scope),
  ];
  const { times, begin } = await readRow<{ times: number; begin: number }>(clickhouse, {
    query: `SELECT toFloat64(count()) AS times, toFloat64(toUnixTimestamp64Milli(min(at))) AS begin FROM (
        SELECT DISTINCT at FROM audit_log ${where.length === 0 ? '' : `WHERE ${where.join(' AND ')}`}
        ORDER BY at DESC LIMIT {times:UInt32}
      )`,
    // One more, since of the time of the place before some are over.
    query_params: { times: countMax + 1, ...parametersOf(scope, before) },
  });
  return times <= countMax ? 0 : begin;
}

function parametersOf(scope: AuditScope | undefined, before: AuditPlace | undefined) {
  return {
    ...scope,
    ...(before === undefined ? {} : { beforeAt: Date.parse(before.at), beforeId: before.id }),
  };
}

async function readEntries(
  clickhouse: ClickHouseClient,
  countMax: number,
  scope: AuditScope | undefined,
  before: AuditPlace | undefined,
  from: number,
): Promise<AuditEntry[]> {
  const columns = ['account_id', 'app_id', 'key_id', 'deletion_request_id', 'details', 'outcome'];
  const rows = await readRows<Record<string, string>>(clickhouse, {
    query: `SELECT formatDateTime(at, '%Y-%m-%dT%H:%i:%S', 'UTC') || '.' || leftPad(toString(toUnixTimestamp64Milli(at) % 1000), 3, '0') || 'Z' AS time,
        id, any(actor) AS actor_kind, any(actor_name) AS name, any(address) AS from_address, any(action) AS what,
        ${columns.map((column) => `argMax(audit_log.${column}, stage) AS last_${column}`).join(', ')}
      FROM audit_log
      WHERE ${["at >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')", ...ofPerson(scope)].join(' AND ')}
      ${before === undefined ? '' : `AND at <= ${placeTime} AND (at < ${placeTime} OR id > {beforeId:String})`}
      GROUP BY at, id
      ${scope === undefined ? '' : "HAVING last_account_id = {accountId:String} OR (last_app_id != '' AND has({appIds:Array(String)}, last_app_id))"}
      ORDER BY at DESC, id LIMIT {countMax:UInt32}`,
    query_params: { countMax, from, ...parametersOf(scope, before) },
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
