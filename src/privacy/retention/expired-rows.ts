// Which rows of an environment have expired: events that were accepted longer ago than the environment retains them, and the data of users
// who have sent no event since. The time of acceptance counts, not the time of the event, which the caller chooses: otherwise imported
// history would be deleted as soon as it is stored.
//
// Users are merged users: an event of one user_id keeps the properties and identifications of all of them. The records that identify a user
// are deleted last, when nothing older of that user is left: without them a deletion would not find the rest. Users who return after the
// expired users were found count as returning after the whole run. What they send is newer, so it stays; if it names a user_id, it belongs
// to a new user.

import { grouped } from '../../batches.js';
import { anySize, type ClickHouseClient } from '../../clickhouse/client.js';
import { readLong } from '../../clickhouse/long-statement.js';
import { syncReplicas } from '../../clickhouse/replication.js';
import { createScratch, fillScratch, scratchName } from '../../clickhouse/scratch.js';
import { storedTable } from '../../clickhouse/tables.js';
import { dropMutating } from '../deletion/round-tables.js';
import { type UserTable, userTables } from '../deletion/user-tables.js';

/** Environments with the same retention, and the time of acceptance before which their rows have expired. */
export type Retained = { readonly appIds: readonly string[]; readonly cutoffMs: number };

/** Sets of names in ClickHouse's memory. After a restart they are gone, and statements that use them fail, so nothing is deleted. */
export type ExpiredUsers = {
  /** A name that occurs only in the texts of this run's mutations. */
  readonly mark: string;
  /** Users without events since the cutoff, under the names that rows use. */
  readonly names: string;
  /** user_ids of users without a record that is newer than the cutoff. */
  readonly userIds: string;
};

/** Begins the names of the tables and marks of all runs. */
const namePrefix = 'retention_run_';

const events = storedTable('events');
const identifications = storedTable('user_identities');

/** The column that says when the rows of a table were accepted. */
function timeIn(table: UserTable): string {
  return table === 'failed_events' ? 'failed_at' : 'received_at';
}

/** SQL for the users that rows of these tables name. An identification counts for its user_id. */
function usersIn(tables: readonly UserTable[], conditionOf: (table: UserTable) => string): string {
  const namesOf = (table: UserTable) =>
    table === identifications ? "'' AS identity, toNullable(user_id) AS user_id" : 'identity, user_id';
  return tables
    .map((table) => `SELECT DISTINCT app_id, ${namesOf(table)} FROM ${table} WHERE ${conditionOf(table)}`)
    .join('\n    UNION DISTINCT ');
}

const dayMs = 24 * 60 * 60 * 1000;

/** Groups environments by how long they retain events. */
export function retainedOf(
  environments: Iterable<{ readonly app_id: string; readonly retain_days?: number }>,
  nowMs: number,
): Retained[] {
  const retaining = [...environments].flatMap(({ app_id, retain_days: days }) => {
    if (days === undefined) return [];
    if (!/^\d+$/.test(app_id)) throw new Error('an app_id is not decimal');
    return [{ app_id, cutoffMs: nowMs - days * dayMs }];
  });
  const groups = grouped(retaining, ({ cutoffMs }) => cutoffMs);
  return [...groups].map(([cutoffMs, its]) => ({ appIds: its.map(({ app_id }) => app_id), cutoffMs }));
}

function compared(retained: readonly Retained[], column: string, comparison: '<' | '>='): string {
  const conditions = retained.map(({ appIds, cutoffMs }) => {
    const list = appIds.map((appId) => `'${appId}'`).join(', ');
    return `(app_id IN (${list}) AND ${column} ${comparison} fromUnixTimestamp64Milli(${Math.floor(cutoffMs)}, 'UTC'))`;
  });
  return `(${conditions.join(' OR ')})`;
}

/** Finds the users whose data has expired. Call it before anything is deleted. */
export async function findExpiredUsers(
  client: ClickHouseClient,
  retained: readonly Retained[],
  run: string,
): Promise<ExpiredUsers> {
  const mark = `${namePrefix}${run}`;
  const users: ExpiredUsers = {
    mark,
    names: scratchName(client, `${mark}_names`),
    userIds: scratchName(client, `${mark}_user_ids`),
  };
  for (const table of [users.names, users.userIds]) await createScratch(client, table, 'name String', 'Set');
  await syncReplicas(client, userTables);
  const appIds = retained.flatMap((each) => each.appIds.map((appId) => `'${appId}'`)).join(', ');
  const { merged, withUser, usersOf } = mergedBy(
    `SELECT * FROM ${identifications} WHERE app_id IN (${appIds})`,
  );
  const isRecent = (table: UserTable) => compared(retained, timeIn(table), '>=');
  const recentEvents = usersIn([events], isRecent);
  const recentRows = usersIn(userTables, isRecent);
  // Events expire by their time alone.
  const candidates = usersIn(
    userTables.filter((table) => table !== events && table !== identifications),
    (table) => compared(retained, timeIn(table), '<'),
  );
  await fillScratch(
    client,
    users.names,
    `SELECT DISTINCT ${nameOfRow} FROM (${withUser(candidates)})
      WHERE (app_id, merged_user) NOT IN (${usersOf(recentEvents)})`,
  );
  await fillScratch(
    client,
    users.userIds,
    `SELECT concat(app_id, ' u', toString(user_id)) FROM (${merged})
      WHERE (app_id, concat('i', merged_identity)) NOT IN (${usersOf(recentRows)})`,
  );
  return users;
}

function mergedBy(rowsOfIdentifications: string) {
  const merged = `SELECT app_id, user_id, argMin(identity, (segment, commit_number, row_number)) AS merged_identity
    FROM (${rowsOfIdentifications}) GROUP BY app_id, user_id`;
  // A row has an identity or a user_id.
  const withUser = (rows: string) => `SELECT r.app_id AS app_id, r.identity AS identity, r.user_id AS user_id,
      multiIf(r.identity != '', concat('i', r.identity), m.merged_identity != '', concat('i', m.merged_identity),
        concat('u', ifNull(toString(r.user_id), ''))) AS merged_user
    FROM (${rows}) AS r LEFT ANY JOIN (${merged}) AS m ON r.app_id = m.app_id AND assumeNotNull(r.user_id) = m.user_id`;
  const usersOf = (rows: string) => `SELECT app_id, merged_user FROM (${withUser(rows)})`;
  return { merged, withUser, usersOf };
}

const nameOfRow =
  "concat(app_id, if(identity != '', concat(' i', identity), concat(' u', ifNull(toString(user_id), ''))))";

/** Ends all runs: the later mutations of one that has lost the maintenance lock name a table that no longer exists, and fail. */
export function endRuns(client: ClickHouseClient): Promise<void> {
  return dropMutating(client, namePrefix);
}

export function expiredPredicate(
  table: UserTable,
  retained: readonly Retained[],
  { mark, names, userIds }: ExpiredUsers,
): string {
  const isMarked = `notEmpty('${mark}')`;
  const isOver = compared(retained, timeIn(table), '<');
  if (table === 'failed_events') {
    const isEvent = "(table_name = 'events' OR startsWith(table_name, 'events.'))";
    return `${isOver} AND (${isEvent} OR ${nameOfRow} IN ${names}) AND ${isMarked}`;
  }
  if (table === events) return `${isOver} AND ${isMarked}`;
  if (table === identifications)
    return `${isOver} AND concat(app_id, ' u', toString(user_id)) IN ${userIds} AND ${isMarked}`;
  return `${isOver} AND ${nameOfRow} IN ${names} AND ${isMarked}`;
}

export async function countExpired(
  client: ClickHouseClient,
  table: UserTable,
  predicate: string,
): Promise<ReadonlyMap<string, number>> {
  const rows = await readLong<{ app_id: string; rows: string | number }>(client, {
    query: `SELECT app_id, count() AS rows FROM ${table} WHERE ${predicate} GROUP BY app_id`,
  });
  return new Map(rows.map((row) => [row.app_id, Number(row.rows)]));
}

const partitionOf = (segment: string) => `toYYYYMM(fromUnixTimestamp64Micro(toInt64(${segment}), 'UTC'))`;

/** The partitions older than that of a segment that would have only markers left. */
export async function findWholePartitions(
  client: ClickHouseClient,
  table: UserTable,
  predicate: string,
  beforeSegment: string,
): Promise<string[]> {
  const partitions = await readLong<{ partition: string }>(client, {
    query: `SELECT toString(month) AS partition FROM (
        SELECT ${partitionOf('segment')} AS month, countIf(app_id != '') AS rows, countIf(app_id != '' AND ${predicate}) AS expired
        FROM ${table} GROUP BY month
      ) WHERE rows = expired AND rows > 0 AND month < ${partitionOf('{beforeSegment:UInt64}')} ORDER BY month`,
    query_params: { beforeSegment },
  });
  return partitions.map(({ partition }) => partition);
}

export function inPartition(partition: string): string {
  return `${partitionOf('segment')} = ${partition} AND app_id != ''`;
}

export async function dropPartition(
  client: ClickHouseClient,
  table: UserTable,
  partition: string,
): Promise<void> {
  if (!/^\d{6}$/.test(partition)) throw new Error('a partition is not a month');
  await client.command({
    query: `ALTER TABLE ${table} DROP PARTITION ${partition}`,
    clickhouse_settings: anySize,
  });
}
