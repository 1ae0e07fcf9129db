// What was counted for each user that a request named, kept for 30 days without the user: the place in the submitted list,
// and a keyed hash by which a caller who can name the user finds it. It is in ClickHouse only, expires there, and
// is in no backup.

import { createHmac } from 'node:crypto';
import { readRows } from '../../clickhouse/answers.js';
import { type ClickHouseClient, insertRows } from '../../clickhouse/client.js';
import { evidence } from '../../contract/limits.js';
import { readNamedUsers } from './round-counts.js';
import type { RoundTables } from './round-tables.js';
import type { Target } from './targets.js';

/** Hashes the users that a request names. Each request hashes differently, so that requests cannot be joined by hashes. */
export function evidenceHasher(secret: string, requestId: string): (target: Target) => string {
  const ofDeployment = createHmac('sha256', secret).update('evidence of deletions').digest();
  const key = createHmac('sha256', ofDeployment).update(requestId).digest();
  return (target) => createHmac('sha256', key).update(target).digest().toString('hex', 0, hashBytes);
}

const hashBytes = 16;

/**
 * Keeps the evidence of requests of a round, given by number and id. Call it when their rows are counted and before any is deleted. It may
 * be repeated; the last call stands. Settles with how many users of each request were found.
 */
export async function keepEvidence(
  clickhouse: ClickHouseClient,
  tables: RoundTables,
  secret: string,
  requestIds: ReadonlyMap<number, string>,
  until: Date,
): Promise<ReadonlyMap<number, number>> {
  const expires_at = until.toISOString().slice(0, -1);
  const found = new Map<number, number>();
  const hashers = new Map(
    [...requestIds].map(([number, requestId]) => [number, evidenceHasher(secret, requestId)]),
  );
  const values: object[] = [];
  for await (const { request, place, target, rows, similar } of readNamedUsers(clickhouse, tables)) {
    const hash = hashers.get(request)?.(target);
    const request_id = requestIds.get(request);
    if (hash === undefined || request_id === undefined) continue;
    values.push({ request_id, place, hash, rows, similar, expires_at });
    if (rows !== '0') found.set(request, (found.get(request) ?? 0) + 1);
  }
  await insertRows(clickhouse, 'deletion_evidence', values);
  return found;
}

/** What was counted for one named user. */
export type UserEvidence = {
  readonly place: number;
  readonly found: boolean;
  readonly rows: number;
  readonly similar: number;
};

/** The users of a request from a place on, in the order of their places; empty when there are none or they have expired. */
export async function listEvidence(
  clickhouse: ClickHouseClient,
  requestId: string,
  fromPlace: number,
): Promise<{ readonly users: readonly UserEvidence[]; readonly next: number | undefined }> {
  const rows = await readRows<{ place: number; rows: string; similar: number }>(clickhouse, {
    query: `SELECT place, toString(rows) AS rows, similar FROM deletion_evidence FINAL
      WHERE request_id = {requestId:String} AND place >= {fromPlace:UInt32} AND expires_at > now64(3)
      ORDER BY place LIMIT {limit:UInt32}`,
    query_params: { requestId, fromPlace, limit: evidence.usersPerPage + 1 },
  });
  const users = rows.map((row) => ({ place: Number(row.place), ...countsOf(row) }));
  return { users: users.slice(0, evidence.usersPerPage), next: users[evidence.usersPerPage]?.place };
}

/** What was counted for those users of a request that have one of these hashes. */
export async function lookUpEvidence(
  clickhouse: ClickHouseClient,
  requestId: string,
  hashes: readonly string[],
): Promise<ReadonlyMap<string, Omit<UserEvidence, 'place'>>> {
  const rows = await readRows<{ hash: string; rows: string; similar: number }>(clickhouse, {
    query: `SELECT hash, toString(rows) AS rows, similar FROM deletion_evidence FINAL
      WHERE request_id = {requestId:String} AND hash IN ({hashes:Array(String)}) AND expires_at > now64(3)`,
    query_params: { requestId, hashes },
  });
  return new Map(rows.map((row) => [row.hash, countsOf(row)]));
}

function countsOf({ rows, similar }: { rows: string; similar: number }) {
  return { found: rows !== '0', rows: Number(rows), similar: Number(similar) };
}
