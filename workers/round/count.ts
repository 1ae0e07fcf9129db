// The second step of a round of deletions: counts the rows that it will delete, for the requests and as evidence.

import { evidence } from '../../src/contract/limits.js';
import { keepEvidence } from '../../src/privacy/deletion/evidence.js';
import { forgetCounts } from '../../src/privacy/deletion/round-counts.js';
import { countLeft } from '../../src/privacy/deletion/round-keys.js';
import { countRows } from '../../src/privacy/deletion/round-parts.js';
import { type UserTable, userTables } from '../../src/privacy/deletion/user-tables.js';
import { type Resolved, type RoundOptions, update } from './round.js';

/**
 * Counts the rows that the round will delete, and records the counts in the requests that have none yet, before any of their rows
 * is deleted. Settles with the environments in which each table has such rows.
 */
export async function countReached(
  options: RoundOptions,
  round: Resolved,
): Promise<ReadonlyMap<UserTable, readonly string[]>> {
  const { parts } = round;
  const { client: clickhouse, tables } = parts.primary;
  const reached = new Map<UserTable, string[]>();
  if ([...round.requests.values()].every((request) => request.found !== undefined)) {
    for (const table of userTables) {
      const left = await Promise.all(parts.all.map((part) => countLeft(part.client, part.tables, table)));
      reached.set(
        table,
        left.flatMap((rows) => [...rows.keys()]),
      );
    }
    return reached;
  }
  const found = await countRows(parts);
  const uncounted = [...round.requests].filter(([, request]) => request.found === undefined);
  const until = new Date(Date.now() + evidence.keptMs);
  const ids = new Map(uncounted.map(([number, { deletion_request_id }]) => [number, deletion_request_id]));
  const usersFound = await keepEvidence(clickhouse, tables, options.secret, ids, until);
  options.crash('evidence_kept');
  for (const part of parts.all) await forgetCounts(part.client, part.tables);
  const evidence_until = until.toISOString();
  for (const table of userTables) {
    const rows = [...found.values()].flat().filter((counted) => counted.table === table);
    reached.set(table, [...new Set(rows.map(({ app_id }) => app_id))]);
  }
  await update(options, round, (request, number) => {
    if (request.found !== undefined) return { left: request.found };
    const rows = found.get(number) ?? [];
    return { found: rows, left: rows, users_found: usersFound.get(number) ?? 0, evidence_until };
  });
  return reached;
}
