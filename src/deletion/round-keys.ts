// Whom a round reaches, by key: a named user is one key in all environments of the account, a merged one a key in its
// environment. Each key has the fences of its requests by shard. And what that means for a row of a table: whether the
// round reaches it, by which requests, and the predicate of the mutations. Targets never occur in the text of a
// statement: ten thousand exceed its length, and quoting by hand has deleted whole tables.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { type Place, placesInOrder } from './places.js';
import type { FoundRows } from './request.js';
import { assertIntact, noteSizes, type RoundTables } from './round-tables.js';

/** Fills the keys with the users of some requests, given by a condition on their number. */
export async function fillKeys(
  client: ClickHouseClient,
  tables: RoundTables,
  isWanted: string,
): Promise<void> {
  const filled = [tables.keys, tables.identities, tables.userIds];
  const run = (query: string) => client.command({ query });
  for (const table of filled) if (tables.sizes.has(table)) await run(`TRUNCATE TABLE ${table}`);
  const users = `(SELECT * FROM ${tables.users} WHERE ${isWanted})`;
  await run(`INSERT INTO ${tables.keys}
    SELECT key, maxForEach(fences), groupUniqArray(request) FROM (
      SELECT
        multiIf(
          u.app_id = '' AND u.user_id IS NULL, ${keyOf('I', 'r.account_id', 'u.identity')},
          u.app_id = '', ${keyOf('U', 'r.account_id', 'toString(assumeNotNull(u.user_id))')},
          u.user_id IS NULL, ${keyOf('i', 'u.app_id', 'u.identity')},
          ${keyOf('u', 'u.app_id', 'toString(assumeNotNull(u.user_id))')}
        ) AS key,
        r.fences AS fences, r.request AS request
      FROM ${users} AS u INNER JOIN ${tables.requests} AS r ON u.request = r.request
    ) GROUP BY key`);
  await run(`INSERT INTO ${tables.identities} SELECT DISTINCT identity FROM ${users} WHERE user_id IS NULL`);
  await run(
    `INSERT INTO ${tables.userIds} SELECT DISTINCT assumeNotNull(user_id) FROM ${users} WHERE user_id IS NOT NULL`,
  );
  await noteSizes(client, tables, filled);
}

/** Rows that the requests reach, by the number of the request, environment and table. */
export async function countFound(
  client: ClickHouseClient,
  tables: RoundTables,
): Promise<Map<number, FoundRows[]>> {
  const found = new Map<number, FoundRows[]>();
  for (const place of placesInOrder) {
    const result = await client.query({
      query: `SELECT request, app_id, count() AS rows FROM (${rowsReached(tables, place, 'app_id')})
        GROUP BY request, app_id ORDER BY request, app_id`,
      format: 'JSONEachRow',
    });
    for (const row of await result.json<{ request: number; app_id: string; rows: number | string }>()) {
      const list = found.get(Number(row.request)) ?? [];
      list.push({ app_id: row.app_id, table: place, rows: Number(row.rows) });
      found.set(Number(row.request), list);
    }
  }
  await assertIntact(client, tables);
  return found;
}

/** Environments in which rows of the round are left in a table, and how many. */
export async function countLeft(
  client: ClickHouseClient,
  tables: RoundTables,
  place: Place,
): Promise<Map<string, number>> {
  const result = await client.query({
    query: `SELECT app_id, count() AS rows FROM ${place}
      WHERE ${inEnvironments(tables)} AND ${isReached(tables)} GROUP BY app_id`,
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ app_id: string; rows: number }>();
  await assertIntact(client, tables);
  return new Map(rows.map((row) => [row.app_id, Number(row.rows)]));
}

/** More of them than this do not fit the text of a statement (262,144 bytes). */
const namedEnvironmentsMax = 5_000;

/** The predicate of a mutation: rows of these environments that the round reaches. */
export function mutationPredicate(tables: RoundTables, appIds: readonly string[], fenceMax: string): string {
  for (const text of [...appIds, fenceMax])
    if (!/^\d+$/.test(text)) throw new Error('an app_id or fence is not decimal');
  if (appIds.length === 0) throw new Error('a mutation must name its environments');
  // Their names let whole parts and granules pass.
  const list =
    appIds.length > namedEnvironmentsMax
      ? inEnvironments(tables)
      : `app_id IN (${appIds.map((appId) => `'${appId}'`).join(', ')})`;
  return `${list} AND segment <= ${fenceMax} AND ${isReached(tables)}`;
}

/** Each row of a table with each request that reaches it, once, with its columns. */
export function rowsReached(tables: RoundTables, place: Place, columns: string): string {
  const requestsOf = (key: string) => `joinGet('${tables.database}.${tables.keys}', 'requests', ${key})`;
  return `SELECT ${columns}, e.request AS request FROM (
      SELECT ${columns}, segment AS row_segment, ${shardOfRow(tables)} AS shard,
        arrayJoin(arrayDistinct(arrayConcat(${keysOfRow(tables).map(requestsOf).join(', ')}))) AS request
      FROM ${place} WHERE ${inEnvironments(tables)} AND ${isNamed(tables)}
    ) AS e INNER JOIN (SELECT request, fences FROM ${tables.requests}) AS r ON e.request = r.request
    WHERE row_segment <= r.fences[shard + 1]`;
}

/** The environments that the round reaches. */
export function inEnvironments(tables: RoundTables): string {
  return `app_id IN (SELECT app_id FROM ${tables.database}.${tables.environments})`;
}

function isReached(tables: RoundTables): string {
  // A key that is not there has no fences, and so the fence 0, which no segment is at or below.
  const fenceOf = (key: string) =>
    `joinGet('${tables.database}.${tables.keys}', 'fences', ${key})[${shardOfRow(tables)} + 1]`;
  const fences = keysOfRow(tables).map(fenceOf);
  return `(${isNamed(tables)} AND greatest(${fences.join(', ')}) >= segment)`;
}

/**
 * Rows that the round may reach: all that it does, and perhaps others. To make keys for every row and look
 * for their fences takes twice as long.
 */
function isNamed({ database, identities, userIds }: RoundTables): string {
  return `(identity IN ${database}.${identities} OR assumeNotNull(user_id) IN ${database}.${userIds})`;
}

/**
 * The keys of a row. Kind first: the identity "7" and the user_id 7 are two users. Capitals are kinds of whole accounts,
 * whose ids look like those of environments.
 */
function keysOfRow(tables: RoundTables): readonly string[] {
  const account = `joinGet('${tables.database}.${tables.environments}', 'account_id', app_id)`;
  const userId = "ifNull(toString(user_id), '')";
  return [
    keyOf('I', account, 'identity'),
    keyOf('U', account, userId),
    keyOf('i', 'app_id', 'identity'),
    keyOf('u', 'app_id', userId),
  ];
}

function keyOf(kind: 'I' | 'U' | 'i' | 'u', place: string, id: string): string {
  return `concat('${kind}', ${place}, ' ', ${id})`;
}

function shardOfRow(tables: RoundTables): string {
  return `joinGet('${tables.database}.${tables.environments}', 'shard', app_id)`;
}
