// What a round of deletions counts: before it deletes, the rows that it will delete, for the requests and as evidence; after all
// mutations, whether any are left.

import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { MutationFailed } from '../../src/clickhouse/mutate.js';
import { serversOf } from '../../src/clickhouse/servers.js';
import { evidence } from '../../src/contract/limits.js';
import { keepEvidence } from '../../src/privacy/deletion/evidence.js';
import { untilNoRetryRuns } from '../../src/privacy/deletion/maintenance-lock.js';
import type { FoundRows } from '../../src/privacy/deletion/request.js';
import { forgetCounts } from '../../src/privacy/deletion/round-counts.js';
import { countLeft, readOnDisk } from '../../src/privacy/deletion/round-keys.js';
import { countRows } from '../../src/privacy/deletion/round-parts.js';
import { type UserTable, userTables } from '../../src/privacy/deletion/user-tables.js';
import { type Resolved, type RoundOptions, requestsOf, update } from './round.js';

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

/**
 * Reads every table after all mutations, since a crash may lose a mutation that was reported as done. Settles with the requests
 * that have masked rows on a disk. Rejects with MutationFailed if queries still show rows, after writing them into the requests.
 */
export async function verify(options: RoundOptions, round: Resolved): Promise<ReadonlySet<number>> {
  const left: FoundRows[] = [];
  const onDisk = new Set<number>();
  const shown = new Set<number>();
  for (const { client } of round.parts.all) await untilNoRetryRuns(client);
  for (const { client, tables } of round.parts.all) {
    const found = await readOnDisk(client, tables);
    for (const { request } of found) onDisk.add(request);
    const shownHere = found.filter(({ isShown }) => isShown);
    for (const { request } of shownHere) shown.add(request);
    for (const table of new Set(shownHere.map((each) => each.table)))
      for (const [app_id, rows] of await countLeft(client, tables, table)) left.push({ app_id, table, rows });
  }
  if (left.length === 0) {
    await assertSameServers(options.clickhouse, round);
    return onDisk;
  }
  // These requests are no longer hidden; the others stay so.
  const affected = requestsOf(round, (number) => shown.has(number));
  await update(options, affected, () => ({ left, hidden_at: undefined, state: 'mutation_failed' }));
  const names = new Set(left.map(({ table }) => table));
  throw new MutationFailed(`rows are left in ${[...names].join(', ')} after the mutations`);
}

/** Rejects if a URL now leads to another server, which would have no rows of the round's users. */
async function assertSameServers(clickhouse: ClickHouseClient, { parts }: Resolved): Promise<void> {
  const servers = serversOf(clickhouse);
  if (servers.table() === undefined) return;
  for (const { client } of parts.all) await servers.compare(servers.all.indexOf(client));
}
