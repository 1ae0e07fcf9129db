// Statements that may read a whole table, and so run for an unpredictable time. (They are not divided: no table of rows is sorted by
// segment, so each step would read all of it.) Other statements have a limit for their duration, `waits.clickhouseMsMax`. These have a
// limit for the time without progress instead: they continue while ClickHouse reads or writes rows for them. One that makes no progress
// is ended, so that it does not run beside its retry. A process that repeats the work of another one, which may have been killed, first
// ends that one's statements (`endLong`), since ClickHouse continues them.

import { randomUUID } from 'node:crypto';
import { waits } from '../contract/limits.js';
import { readRow, readRows } from './answers.js';
import { type ClickHouseClient, patientOf } from './client.js';
import { createProgressDeadline, realTime, type Time } from './progress-deadline.js';
import { databaseIn, onAllReplicas, onCluster } from './replication.js';

type Statement = Pick<
  Parameters<ClickHouseClient['command']>[0],
  'query' | 'query_params' | 'clickhouse_settings'
>;

/** Runs a statement. Rejects, like all of these, once it makes no progress. */
export async function commandLong(client: ClickHouseClient, statement: Statement): Promise<void> {
  await whileItProgresses(client, (patient, handles) => patient.command({ ...statement, ...handles }));
}

export async function readLong<Row>(client: ClickHouseClient, statement: Statement): Promise<Row[]> {
  return whileItProgresses(client, (patient, handles) =>
    readRows<Row>(patient, { ...statement, ...handles }),
  );
}

/** For a query that has exactly one row. */
export async function readRowLong<Row>(client: ClickHouseClient, statement: Statement): Promise<Row> {
  return whileItProgresses(client, (patient, handles) => readRow<Row>(patient, { ...statement, ...handles }));
}

/** The parameters with which `run` must send its statement. */
type Handles = { readonly query_id: string; readonly abort_signal: AbortSignal };

const idPrefix = 'long-';
/** Most statements are done before the first check. */
const checkEveryMs = 5_000;
/** Checking progress and ending a statement must not wait for an unreachable ClickHouse. */
const answerMsMax = 5_000;

/** Settles as `run` does, which sends one statement. */
export async function whileItProgresses<Result>(
  client: ClickHouseClient,
  run: (patient: ClickHouseClient, handles: Handles) => Promise<Result>,
  time: Time = realTime,
): Promise<Result> {
  const queryId = `${idPrefix}${randomUUID()}`;
  const [done, givenUp] = [new AbortController(), new AbortController()];
  const handles = { query_id: queryId, abort_signal: givenUp.signal };
  const [result] = await Promise.all([
    run(patientOf(client), handles).finally(() => done.abort()),
    watch(client, queryId, done.signal, time).catch((error: unknown) => {
      givenUp.abort();
      throw error;
    }),
  ]);
  return result;
}

async function watch(
  client: ClickHouseClient,
  queryId: string,
  done: AbortSignal,
  { nowMs, pause }: Time,
): Promise<void> {
  const standsStill = createProgressDeadline(waits.clickhouseMsMax, nowMs);
  for (;;) {
    await pause(checkEveryMs, done);
    if (done.aborted) return;
    const sign = await readProgress(client, queryId);
    if (done.aborted || !standsStill(sign)) continue;
    await kill(client, 'query_id = {queryId:String}', { queryId });
    throw new Error('a ClickHouse statement made no progress and was ended');
  }
}

/** How many rows a statement has read and written. Undefined if it is not running, or ClickHouse does not answer. */
async function readProgress(client: ClickHouseClient, queryId: string): Promise<string | undefined> {
  try {
    const [row] = await readRows<{ read: string; written: string }>(client, {
      query: `SELECT toString(sum(read_rows)) AS read, toString(sum(written_rows)) AS written
        FROM ${onAllReplicas(client, 'system.processes')} WHERE query_id = {queryId:String} HAVING count() > 0`,
      query_params: { queryId },
      abort_signal: AbortSignal.timeout(answerMsMax),
    });
    return row === undefined ? undefined : `${row.read} ${row.written}`;
  } catch {
    // The next check asks again.
    return undefined;
  }
}

/** Ends the long statements whose text has one of these names. Does nothing for a ClickHouse that does not answer. */
export async function endLong(client: ClickHouseClient, names: readonly string[]): Promise<void> {
  if (names.length === 0) return;
  const isLong = `startsWith(query_id, '${idPrefix}') AND current_database = ${databaseIn(client)}`;
  await kill(client, `${isLong} AND arrayExists(name -> position(query, name) > 0, {names:Array(String)})`, {
    names,
  });
}

async function kill(
  client: ClickHouseClient,
  condition: string,
  query_params: Readonly<Record<string, unknown>>,
): Promise<void> {
  try {
    await client.command({
      query: `KILL QUERY ${onCluster(client)} WHERE ${condition} SYNC`,
      query_params: { ...query_params },
      abort_signal: AbortSignal.timeout(answerMsMax),
    });
  } catch {
    // The process that repeats this work ends the statement first.
  }
}

/** Once `isOver` is true, ends the long statements with this name in their text, until the returned function is called. */
export function endLongWhen(
  clients: readonly ClickHouseClient[],
  name: string,
  isOver: () => boolean,
): () => void {
  const timer = setInterval(() => {
    if (isOver()) for (const client of clients) void endLong(client, [name]);
  }, overEveryMs);
  return () => clearInterval(timer);
}

const overEveryMs = 1_000;
