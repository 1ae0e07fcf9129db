// Counts the rows of requests before they are deleted: by environment and table, and by the users that they name. Every table is read
// once, and its rows are counted by the user in them. Everything else is computed from that.

import { grouped } from '../../batches.js';
import { readRows, streamRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { hasPlainForm, plainForm } from '../../clickhouse/plain-form.js';
import { emptyScratch, fillScratch } from '../../clickhouse/scratch.js';
import type { FoundRows } from './request.js';
import { environmentOf, hasFewUsers, inEnvironments, rowsReached } from './round-keys.js';
import { assertIntact, type RoundTables, recordSizes } from './round-tables.js';
import type { Target } from './targets.js';
import { targetTable, userTables } from './user-tables.js';

/**
 * Counts the rows that the requests in the tables of keys delete, and finds the identities that look like a named one. The other functions
 * of this file read these counts.
 */
export async function fillCounts(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  await Promise.all([countReachedRows(client, tables), findSimilarIdentities(client, tables)]);
  await recordSizes(client, tables, [tables.reached, tables.alike]);
}

async function countReachedRows(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  const columns = 'app_id, identity, user_id';
  const counts = userTables.map(
    (table) => `SELECT request, app_id, '${table}', identity, user_id, count()
      FROM (${rowsReached(tables, table, columns)}) GROUP BY request, app_id, identity, user_id`,
  );
  await fillScratch(client, tables.reached, counts.join(' UNION ALL '));
}

/** Stores each identity that looks like a named one with the first segment that contains it, by shard. */
async function findSimilarIdentities(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  const found = userTables.map(
    (table) => `SELECT account_id, shard, identity, min(segment) FROM (
        SELECT ${environmentOf(tables)}, identity, segment FROM ${table}
        WHERE ${inEnvironments(tables)} AND ${similarPredicate(tables)}
      ) GROUP BY account_id, shard, identity`,
  );
  await fillScratch(client, tables.alike, found.join(' UNION ALL '));
}

/** SQL: whether a row's identity looks like a named one. With few named users it uses the indexes. */
export function similarPredicate(tables: RoundTables): string {
  const named = `SELECT ${plainForm('identity')} FROM ${tables.users} WHERE app_id = '' AND user_id IS NULL`;
  return hasFewUsers(tables)
    ? hasPlainForm(named)
    : `identity != '' AND ${plainForm('identity')} IN (${named})`;
}

/** Frees the memory of the counts. */
export async function forgetCounts(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  const counted = [tables.reached, tables.alike];
  await emptyScratch(client, counted);
  for (const table of counted) tables.sizes.set(table, 0);
}

/** The counted rows by environment and table, for each request by its number. */
export async function readFoundRows(
  client: ClickHouseClient,
  tables: RoundTables,
): Promise<ReadonlyMap<number, readonly FoundRows[]>> {
  const rows = await readRows<Row>(client, {
    query: `SELECT request, app_id, place, toString(sum(rows)) AS rows FROM ${tables.reached}
      GROUP BY request, app_id, place`,
  });
  type Row = { request: number; app_id: string; place: string; rows: string };
  const order: readonly string[] = userTables;
  const sorted = rows.sort(
    (a, b) => order.indexOf(a.place) - order.indexOf(b.place) || a.app_id.localeCompare(b.app_id),
  );
  await assertIntact(client, tables);
  return new Map(
    Array.from(
      grouped(sorted, ({ request }) => Number(request)),
      ([request, its]) => [
        request,
        its.map(({ app_id, place, rows: count }) => ({ app_id, table: place, rows: Number(count) })),
      ],
    ),
  );
}

export type NamedUser = {
  readonly request: number;
  readonly place: number;
  readonly target: Target;
  /** In decimal digits. */
  readonly rows: string;
  /** How many other identities up to the fence look like it. */
  readonly similar: number;
};

/**
 * The counts of every user that a request of the round names, including users without rows. `areKept`: false for a preview, which has no
 * places.
 */
export async function* readNamedUsers(
  client: ClickHouseClient,
  tables: RoundTables,
  areKept = true,
): AsyncGenerator<NamedUser> {
  const named = areKept
    ? `SELECT r.request AS request, min(t.place) AS place, t.identity AS identity, ifNull(toString(t.user_id), '') AS user_id
        FROM ${targetTable} AS t INNER JOIN ${tables.requests} AS r ON t.request_id = r.request_id
        WHERE t.app_id = '' GROUP BY request, identity, user_id`
    : `SELECT request, 0 AS place, identity, ifNull(toString(user_id), '') AS user_id
        FROM ${tables.users} WHERE app_id = ''`;
  const found = `SELECT request, identity, ifNull(toString(user_id), '') AS user_id, rows FROM (${rowsOfNamedUsers(tables)})`;
  const alike = `SELECT n.request AS request, n.identity AS identity, uniqExact(a.identity) AS similar
    FROM (SELECT request, identity, ${plainForm('identity')} AS plain FROM ${tables.users} WHERE app_id = '' AND user_id IS NULL) AS n
    INNER JOIN ${tables.requests} AS r ON n.request = r.request
    INNER JOIN (SELECT *, ${plainForm('identity')} AS plain FROM ${tables.alike}) AS a
      ON r.account_id = a.account_id AND n.plain = a.plain
    WHERE n.identity != a.identity AND a.since <= r.fences[a.shard + 1] GROUP BY request, identity`;
  const rows = streamRows<Row>(client, {
    query: `SELECT n.request AS request, n.place AS place, n.identity AS identity, n.user_id AS user_id,
        toString(f.rows) AS rows, s.similar AS similar
      FROM (${named}) AS n
      LEFT ANY JOIN (${found}) AS f ON n.request = f.request AND n.identity = f.identity AND n.user_id = f.user_id
      LEFT ANY JOIN (${alike}) AS s ON n.request = s.request AND n.identity = s.identity`,
  });
  type Row = {
    request: number;
    place: number;
    identity: string;
    user_id: string;
    rows: string;
    similar: number | string;
  };
  for await (const { request, place, identity, user_id: userId, rows: count, similar } of rows) {
    yield {
      request: Number(request),
      place: Number(place),
      target: userId === '' ? `i${identity}` : `u${userId}`,
      rows: count,
      similar: Number(similar),
    };
  }
  await assertIntact(client, tables);
}

/**
 * SQL for the named users that have rows, with columns (request, identity, user_id, rows). `rows` counts those of the whole merged user, in
 * all environments. If one merged user has two named users, its rows count for both. A merged user is written as `i` and its identity, or
 * `u` and its only user_id. So the cost is linear in the names and the users found, however many names one user has.
 */
function rowsOfNamedUsers(tables: RoundTables): string {
  const ofUserId = "concat('u', toString(assumeNotNull(user_id)))";
  const links = `SELECT request, app_id, user_id, concat('i', merged_identity) AS merged_user
    FROM ${tables.users} WHERE app_id != '' AND user_id IS NOT NULL AND merged_identity != ''`;
  const rowsOfMergedUsers = `SELECT request, app_id, merged_user, sum(rows) AS rows FROM (
      SELECT c.request AS request, c.app_id AS app_id, c.rows AS rows, arrayJoin(arrayDistinct(arrayConcat(
          if(c.identity = '', [], [concat('i', c.identity)]),
          if(c.user_id IS NULL, [], [if(l.merged_user = '', concat('u', toString(assumeNotNull(c.user_id))), l.merged_user)])
        ))) AS merged_user
      FROM ${tables.reached} AS c LEFT ANY JOIN (${links}) AS l
        ON c.request = l.request AND c.app_id = l.app_id AND c.user_id = l.user_id
    ) GROUP BY request, app_id, merged_user`;
  const named = `SELECT request, identity, user_id, if(user_id IS NULL, concat('i', identity), ${ofUserId}) AS merged_user
    FROM ${tables.users} WHERE app_id = ''`;
  return `SELECT request, identity, user_id, sum(rows) AS rows FROM (
      SELECT n.request AS request, n.identity AS identity, n.user_id AS user_id, m.rows AS rows
      FROM (${named}) AS n INNER JOIN (${rowsOfMergedUsers}) AS m ON n.request = m.request AND n.merged_user = m.merged_user
      UNION ALL
      SELECT n.request AS request, '' AS identity, n.user_id AS user_id, m.rows AS rows
      FROM (${named}) AS n
      INNER JOIN (${links}) AS l ON n.request = l.request AND n.user_id = l.user_id
      INNER JOIN (${rowsOfMergedUsers}) AS m
        ON l.request = m.request AND l.app_id = m.app_id AND l.merged_user = m.merged_user
    ) GROUP BY request, identity, user_id`;
}
