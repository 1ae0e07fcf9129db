// Mutations: issuing one, waiting for it, and ending one that fails. A mutation is found again by a mark in its text. Its entry may
// vanish in a crash, so callers count rows instead of trusting the list. A mutation may run as long as it makes progress: one that
// makes none is ended, and the caller's next try starts a new one.

import { waits } from '../contract/limits.js';
import { readRow, readRows } from './answers.js';
import type { ClickHouseClient } from './client.js';
import { createProgressDeadline, realTime, type Time } from './progress-deadline.js';
import { databaseIn, hasReplicas, onAllReplicas } from './replication.js';

export class MutationFailed extends Error {}

/** It made no progress on this server, so the next one would probably make none either. */
export class MutationStoodStill extends MutationFailed {
  readonly client: ClickHouseClient;

  constructor(client: ClickHouseClient, mutation: string) {
    super(`${mutation} made no progress`);
    this.client = client;
  }
}

export type Removal = {
  readonly condition: string;
  /** A name that occurs in this mutation's text. No other one with it may be running; of those that are done, the newest counts. */
  readonly mark: string;
  /** Conditions for the same rows in each partition that has some: the mutation then leaves the others unread. */
  readonly byPartition?: ReadonlyMap<string, string>;
};

/** The statement that does something to these rows. */
export function statementFor(
  table: string,
  action: string,
  { condition, mark, byPartition }: Removal,
): string {
  if (byPartition === undefined) return `ALTER TABLE ${table} ${action} WHERE ${condition}`;
  const commands = [...byPartition].map(
    ([partition, rows]) => `${action} IN PARTITION ID '${partition}' WHERE ${rows} AND '${mark}' != ''`,
  );
  return `ALTER TABLE ${table} ${commands.join(', ')}`;
}

/** The wait between two looks at a mutation grows up to this. The first is short, since a mutation of a small table takes 10 ms. */
const pollMsMax = 50;
const firstPollMs = 10;
/** How often progress is checked: rarely, since most mutations are done before the first check. */
const progressEveryMs = 10_000;
/** How long replicas may take to read a new mutation. */
const listedMsMax = 2_000;

/**
 * Deletes rows of a table by rewriting the parts that hold them. Settles with the mutation's id when ClickHouse has done it. Rejects with
 * MutationFailed when it fails, or with MutationStoodStill; the mutation is then ended.
 */
export async function deleteRows(
  client: ClickHouseClient,
  table: string,
  removal: Removal,
  time?: Time,
): Promise<string> {
  return mutate(client, table, statementFor(table, 'DELETE', removal), removal.mark, time);
}

/**
 * Runs a mutation whose text contains this mark; settles and rejects as `deleteRows` does. With `partitions` it settles once those are
 * done: in the others the mutation changes nothing, and waits for merges that are running there. The caller ends it afterwards.
 */
export async function mutate(
  client: ClickHouseClient,
  table: string,
  query: string,
  mark: string,
  { nowMs, pause }: Time = realTime,
  partitions?: readonly string[],
): Promise<string> {
  await client.command({
    query,
    clickhouse_settings: { mutations_sync: '0', lightweight_deletes_sync: '0' },
  });
  const startedAt = nowMs();
  let askedAt = startedAt;
  const standsStill = createProgressDeadline(waits.mutationStandstillMsMax, nowMs);
  let mutationId = '';
  for (let pollMs = firstPollMs; ; pollMs = Math.min(2 * pollMs, pollMsMax)) {
    const mutation = await readMutation(client, table, mark, partitions);
    if (mutation === undefined) {
      // No longer listed: it was done long ago or lost in a crash, so the caller counts. Or not yet: a replica lists a mutation only
      // after reading it from the keeper.
      if (!hasReplicas(client) || nowMs() > startedAt + listedMsMax) return mutationId;
      await pause(pollMs);
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
    if (nowMs() >= askedAt + progressEveryMs) {
      askedAt = nowMs();
      if (standsStill(await readProgress(client, table, mutationId))) {
        // A server on which it stands still may not end it either.
        await killMutations(client, mark).catch(() => undefined);
        throw new MutationStoodStill(client, `the mutation ${mutationId} of ${table}`);
      }
    }
    await pause(pollMs);
  }
}

/**
 * A text that changes while parts of a mutation are being rewritten, or merged to be rewritten together: the parts that are left, and
 * the progress of each current one.
 */
export async function readProgress(
  client: ClickHouseClient,
  table: string,
  mutationId: string,
): Promise<string> {
  const ofMutation = (what: string) => `(SELECT ${what} FROM ${onAllReplicas(client, 'system.mutations')}
    WHERE database = ${databaseIn(client)} AND table = {table:String} AND mutation_id = {mutationId:String})`;
  const { sign } = await readRow<{ sign: string }>(client, {
    query: `SELECT toString((${ofMutation('sum(parts_to_do)')},
        arraySort(groupArray((result_part_name, progress, rows_read, rows_written))))) AS sign
      FROM ${onAllReplicas(client, 'system.merges')}
      WHERE database = ${databaseIn(client)} AND table = {table:String}
        AND hasAny(source_part_names, ${ofMutation('groupUniqArrayArray(parts_to_do_names)')})`,
    query_params: { table, mutationId },
  });
  return sign;
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

/** How many mutations whose text contains the mark are running, and why one of them fails, if one does. */
export async function readUndone(
  client: ClickHouseClient,
  mark: string,
): Promise<{ readonly count: number; readonly failure: string }> {
  const { undone, failure } = await readRow<{ undone: string; failure: string }>(client, {
    query: `SELECT toString(count()) AS undone, anyIf(latest_fail_reason, latest_fail_reason != '') AS failure
      FROM ${onAllReplicas(client, 'system.mutations')}
      WHERE database = ${databaseIn(client)} AND position(command, {mark:String}) > 0 AND NOT is_done`,
    query_params: { mark },
  });
  return { count: Number(undone), failure: failure === '' ? '' : nameOfFailure(failure) };
}

/** Ends all mutations whose text contains the mark. */
export async function killMutations(client: ClickHouseClient, mark: string): Promise<void> {
  await client.command({
    query: `KILL MUTATION WHERE database = currentDatabase() AND position(command, {mark:String}) > 0 AND NOT is_done SYNC`,
    query_params: { mark },
  });
}

/**
 * The newest mutation with a mark; within a second the one with the highest id. It is done when every replica has done it, and fails
 * when one replica fails.
 */
async function readMutation(
  client: ClickHouseClient,
  table: string,
  mark: string,
  partitions?: readonly string[],
) {
  const isDone =
    partitions === undefined
      ? 'is_done'
      : "is_done OR NOT arrayExists(name -> has({partitions:Array(String)}, splitByChar('_', name)[1]), parts_to_do_names)";
  const isListedByAll = hasReplicas(client)
    ? `count() = (SELECT count() FROM ${onAllReplicas(client, 'system.one')})`
    : '1';
  const [row] = await readRows<{ mutation_id: string; done: number; failure: string }>(client, {
    query: `SELECT mutation_id, max(create_time) AS created, ${isListedByAll} AND min(${isDone}) AS done,
        anyIf(latest_fail_reason, latest_fail_reason != '') AS failure
      FROM ${onAllReplicas(client, 'system.mutations')}
      WHERE database = ${databaseIn(client)} AND table = {table:String} AND position(command, {mark:String}) > 0
      GROUP BY mutation_id ORDER BY created DESC, length(mutation_id) DESC, mutation_id DESC LIMIT 1`,
    query_params: { table, mark, partitions: partitions ?? [] },
  });
  return row === undefined ? undefined : { ...row, done: Boolean(row.done) };
}
