// Mutations: issuing one, waiting for it, and ending one that fails. A mark in its text finds a mutation again. Its entry
// may vanish in a crash, so callers count rows and do not trust the list.

import type { ClickHouseClient } from './client.js';
import { databaseIn, hasReplicas, onAllReplicas } from './replication.js';

export class MutationFailed extends Error {}

/** How long one call waits for a mutation before it gives up and leaves it running. */
const waitMsMax = 10 * 60_000;
const pollMs = 50;
/** How long replicas may take to read a new mutation. */
const listedMsMax = 2_000;

/**
 * Deletes the matching rows of a table by rewriting the parts that hold them. `mark` is a name that occurs in this
 * mutation's predicate and in no other's. Settles with the mutation's id when ClickHouse has done it. Rejects with
 * MutationFailed when it fails; the mutation is then ended.
 */
export async function deleteRows(
  client: ClickHouseClient,
  table: string,
  predicate: string,
  mark: string,
): Promise<string> {
  await client.command({
    query: `ALTER TABLE ${table} DELETE WHERE ${predicate}`,
    clickhouse_settings: { mutations_sync: '0' },
  });
  const startedAt = performance.now();
  let mutationId = '';
  while (performance.now() < startedAt + waitMsMax) {
    const mutation = await readMutation(client, table, mark);
    if (mutation === undefined) {
      // The list no longer has it: it was done long ago, or lost in a crash. The caller counts. A replica lists it only when
      // it has read it from the keeper.
      if (!hasReplicas(client) || performance.now() > startedAt + listedMsMax) return mutationId;
      await new Promise((resolve) => setTimeout(resolve, pollMs));
      continue;
    }
    mutationId = mutation.mutation_id;
    if (mutation.failure !== '') {
      await killMutations(client, mark);
      throw new MutationFailed(
        `the mutation ${mutationId} of ${table} failed: ${nameOfFailure(mutation.failure)}`,
      );
    }
    if (mutation.done) return mutationId;
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
  throw new MutationFailed(`the mutation ${mutationId} of ${table} is not done yet`);
}

/** `Code: 6. DB::Exception: … (CANNOT_PARSE_TEXT) (version …)`: the name alone, since the words in between quote values. */
function nameOfFailure(failure: string): string {
  return [...failure.matchAll(/\(([A-Z][A-Z0-9_]*)\)/g)].at(-1)?.[1] ?? 'unknown';
}

/** The id of the mutation with this mark, as long as ClickHouse lists it. */
export async function findMutationId(
  client: ClickHouseClient,
  table: string,
  mark: string,
): Promise<string | undefined> {
  return (await readMutation(client, table, mark))?.mutation_id;
}

/** Ends all mutations whose text contains the mark. */
export async function killMutations(client: ClickHouseClient, mark: string): Promise<void> {
  await client.command({
    query: `KILL MUTATION WHERE database = currentDatabase() AND position(command, {mark:String}) > 0 AND NOT is_done SYNC`,
    query_params: { mark },
  });
}

/** The newest mutation with a mark. It is done when every replica has done it, and fails when it fails on one. */
async function readMutation(client: ClickHouseClient, table: string, mark: string) {
  const result = await client.query({
    query: `SELECT mutation_id, max(create_time) AS created,
        count() = (SELECT count() FROM ${onAllReplicas(client, 'system.one')}) AND min(is_done) AS done,
        anyIf(latest_fail_reason, latest_fail_reason != '') AS failure
      FROM ${onAllReplicas(client, 'system.mutations')}
      WHERE database = ${databaseIn(client)} AND table = {table:String} AND position(command, {mark:String}) > 0
      GROUP BY mutation_id ORDER BY created DESC LIMIT 1`,
    query_params: { table, mark },
    format: 'JSONEachRow',
  });
  const [row] = await result.json<{ mutation_id: string; done: number; failure: string }>();
  return row === undefined ? undefined : { ...row, done: Boolean(row.done) };
}
