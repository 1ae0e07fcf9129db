// The users of a round, by key. A named user has one key for all environments of the account; a merged user has a key in its environment.
// Each key has the fences of its requests by shard. The keys decide whether the round deletes a row and for which requests, and yield the
// predicate of the mutations. The text of a statement never contains targets: ten thousand exceed its maximum length, and hand-written
// quoting has deleted whole tables.
//
// A row's environment and keys are looked up directly in tables in ClickHouse's memory. On replicas the tables are on disk
// (clickhouse/scratch.ts); there each replica reads a table into two lists of constants, from which `transform` builds a hash table.
// 100,000 keys and a million rows took 0.2 s.

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { readLong } from '../../clickhouse/long-statement.js';
import { withMasked } from '../../clickhouse/masks.js';
import { emptyScratch, fillScratch } from '../../clickhouse/scratch.js';
import { assertIntact, type RoundTables, recordSizes } from './round-tables.js';
import { type UserTable, userTables } from './user-tables.js';

/** Fills the tables of keys with the users of the requests whose number meets a condition in SQL. */
export async function fillKeys(
  client: ClickHouseClient,
  tables: RoundTables,
  isWanted: string,
): Promise<void> {
  const sets = [tables.identities, tables.userIds];
  await emptyScratch(
    client,
    [tables.keys, ...sets].filter((table) => tables.sizes.has(table)),
  );
  for (const set of sets) tables.sizes.delete(set);
  const users = `(SELECT * FROM ${tables.users} WHERE ${isWanted})`;
  await fillScratch(
    client,
    tables.keys,
    `SELECT key, maxForEach(fences), groupUniqArray(request) FROM (
      SELECT
        multiIf(
          u.app_id = '' AND u.user_id IS NULL, ${keyOf('I', 'r.account_id', 'u.identity')},
          u.app_id = '', ${keyOf('U', 'r.account_id', 'toString(assumeNotNull(u.user_id))')},
          u.user_id IS NULL, ${keyOf('i', 'u.app_id', 'u.identity')},
          ${keyOf('u', 'u.app_id', 'toString(assumeNotNull(u.user_id))')}
        ) AS key,
        r.fences AS fences, r.request AS request
      FROM ${users} AS u INNER JOIN ${tables.requests} AS r ON u.request = r.request
    ) GROUP BY key`,
  );
  if (!hasFewUsers(tables)) {
    await fillScratch(
      client,
      tables.identities,
      `SELECT DISTINCT identity FROM ${users} WHERE user_id IS NULL`,
    );
    await fillScratch(
      client,
      tables.userIds,
      `SELECT DISTINCT assumeNotNull(user_id) FROM ${users} WHERE user_id IS NOT NULL`,
    );
  }
  await recordSizes(client, tables, hasFewUsers(tables) ? [tables.keys] : [tables.keys, ...sets]);
}

/** How many rows of the round a table still has, by environment; environments without any are missing. */
export async function countLeft(
  client: ClickHouseClient,
  tables: RoundTables,
  table: UserTable,
): Promise<Map<string, number>> {
  const rows = await readLong<{ app_id: string; rows: number }>(client, {
    query: `SELECT app_id, count() AS rows FROM ${table}
      WHERE ${inEnvironments(tables)} AND ${isReached(tables)} GROUP BY app_id`,
  });
  await assertIntact(client, tables);
  return new Map(rows.map((row) => [row.app_id, Number(row.rows)]));
}

export type OnDisk = { readonly request: number; readonly table: UserTable; readonly isShown: boolean };

/** The requests that still have rows on disk, including masked rows, and whether queries show any of these, for each table. */
export async function readOnDisk(client: ClickHouseClient, tables: RoundTables): Promise<readonly OnDisk[]> {
  const found = userTables.map(
    (table) => `SELECT request, '${table}' AS found_in, max(_row_exists) AS shown
      FROM (${rowsReached(tables, table, '_row_exists')}) GROUP BY request`,
  );
  const rows = await readLong<{ request: number; found_in: UserTable; shown: number }>(client, {
    query: found.join(' UNION ALL '),
    clickhouse_settings: withMasked,
  });
  await assertIntact(client, tables);
  return rows.map(({ request, found_in: table, shown }) => ({
    request: Number(request),
    table,
    isShown: Number(shown) === 1,
  }));
}

/** More environments than this do not fit into the text of a statement (262,144 bytes). */
const namedEnvironmentsMax = 5_000;

/** The predicate of a mutation: the rows of these environments that the round deletes. `fences`: those of all its requests. */
export function mutationPredicate(
  tables: RoundTables,
  appIds: readonly string[],
  fences: readonly string[],
): string {
  const fenceMax = fences.reduce(
    (highest, fence) => (BigInt(fence) > BigInt(highest) ? fence : highest),
    '0',
  );
  for (const text of [...appIds, fenceMax])
    if (!/^\d+$/.test(text)) throw new Error('an app_id or fence is not decimal');
  if (appIds.length === 0) throw new Error('a mutation must name its environments');
  // Naming the environments lets ClickHouse skip whole parts and granules.
  const list =
    appIds.length > namedEnvironmentsMax
      ? inEnvironments(tables)
      : `app_id IN (${appIds.map((appId) => `'${appId}'`).join(', ')})`;
  return `${list} AND segment <= ${fenceMax} AND ${isReached(tables)}`;
}

/** SQL for the rows of a table that requests delete, with these columns and `request`: one row for each request that deletes it. */
export function rowsReached(tables: RoundTables, table: UserTable, columns: string): string {
  return `SELECT ${columns}, e.request AS request FROM (
      SELECT ${columns}, segment AS row_segment, ${shardOfRow(tables)} AS shard,
        arrayJoin(${requestsOfKeys(tables, keysOfRow(tables))}) AS request
      FROM ${table} WHERE ${inEnvironments(tables)} AND ${isNamed(tables)}
    ) AS e INNER JOIN (SELECT request, fences FROM ${tables.requests}) AS r ON e.request = r.request
    WHERE row_segment <= r.fences[shard + 1]`;
}

/** SQL: whether a row belongs to an environment of the round. */
export function inEnvironments(tables: RoundTables): string {
  return `app_id IN (SELECT app_id FROM ${tables.environments})`;
}

/** SQL for the account and the shard of a row. */
export function environmentOf(tables: RoundTables): string {
  return `${accountOf(tables)} AS account_id, ${shardOfRow(tables)} AS shard`;
}

function isReached(tables: RoundTables): string {
  return `(${isNamed(tables)} AND ${fenceOfKeys(tables, keysOfRow(tables))} >= segment)`;
}

/** Up to this many users are looked up in a granule's Bloom filter one by one; with more, reading the granule is cheaper. */
const indexedUsersMax = 1_000;

/** Whether the round's users are looked up in the indexes. */
export function hasFewUsers({ sizes, users }: RoundTables): boolean {
  return (sizes.get(users) ?? Number.POSITIVE_INFINITY) <= indexedUsersMax;
}

/**
 * A first filter: passes all rows that the round deletes, and perhaps others. Without it, computing the keys of every row and looking up
 * their fences takes twice as long. A few users are named by a subquery, since the indexes by_identity and by_user_id cannot use a table of
 * the engine Set. So `fillKeys` fills the Sets only with many.
 */
function isNamed(tables: RoundTables): string {
  const { users, identities, userIds, sizes } = tables;
  if (sizes.has(identities)) return `(identity IN ${identities} OR assumeNotNull(user_id) IN ${userIds})`;
  const named = `FROM ${users} WHERE user_id IS`;
  return `(identity IN (SELECT identity ${named} NULL)
    OR user_id IN (SELECT assumeNotNull(user_id) ${named} NOT NULL))`;
}

/**
 * The keys of a row. Each begins with its kind, since the identity "7" and the user_id 7 are two users. Kinds for whole accounts are
 * capital letters, since account ids look like app_ids.
 */
function keysOfRow(tables: RoundTables): readonly string[] {
  const account = accountOf(tables);
  const userId = "ifNull(toString(user_id), '')";
  return [
    keyOf('I', account, 'identity'),
    keyOf('U', account, userId),
    keyOf('i', 'app_id', 'identity'),
    keyOf('u', 'app_id', userId),
  ];
}

function keyOf(kind: 'I' | 'U' | 'i' | 'u', scope: string, id: string): string {
  return `concat('${kind}', ${scope}, ' ', ${id})`;
}

/** SQL for the account of a row. */
export function accountOf(tables: RoundTables): string {
  return ofEnvironment(tables, 'account_id', "''");
}

export function shardOfRow(tables: RoundTables): string {
  return ofEnvironment(tables, 'shard', 'toUInt16(0)');
}

/** SQL for the requests of a row's keys, each once. */
export function requestsOfKeys(tables: RoundTables, keys: readonly string[]): string {
  if (tables.areOnDisk) return `arrayDistinct(arrayMap(r -> toUInt32(r), ${writtenRequests(tables, keys)}))`;
  return `arrayDistinct(arrayConcat(${keys.map((key) => joined(tables.keys, 'requests', key)).join(', ')}))`;
}

/** SQL for the highest fence of a row's keys in its shard. A missing key has the fence 0, which every segment is above. */
export function fenceOfKeys(tables: RoundTables, keys: readonly string[]): string {
  const shard = shardOfRow(tables);
  if (!tables.areOnDisk) {
    const fences = keys.map((key) => `${joined(tables.keys, 'fences', key)}[${shard} + 1]`);
    return `greatest(${fences.join(', ')})`;
  }
  const fenceKey = (number: string) => `toUInt64(request) * ${shardsMax} + ${number}`;
  const source = `${tables.requests} ARRAY JOIN arrayEnumerate(fences) AS number`;
  const fence = listed(
    `toUInt64(r) * ${shardsMax} + shard`,
    fenceKey('number - 1'),
    'fences[number]',
    source,
    'toUInt64(0)',
  );
  return `arrayMax(arrayMap((r, shard) -> ${fence}, ${writtenRequests(tables, keys)}, arrayWithConstant(length(${writtenRequests(tables, keys)}), ${shard})))`;
}

const shardsMax = 65_536;

/** SQL for the requests of all keys, in decimal digits. */
function writtenRequests(tables: RoundTables, keys: readonly string[]): string {
  const source = tables.keys;
  const texts = keys.map((key) => listed(key, 'key', "arrayStringConcat(requests, ' ')", source, "''"));
  return `splitByWhitespace(concat(${texts.join(", ' ', ")}))`;
}

function ofEnvironment(tables: RoundTables, column: string, missing: string): string {
  return tables.areOnDisk
    ? listed('app_id', 'app_id', column, tables.environments, missing)
    : joined(tables.environments, column, 'app_id');
}

function joined(table: string, column: string, key: string): string {
  return `joinGet('${table}', '${column}', ${key})`;
}

/** SQL for the value that a table has for a key, from two lists of constants in the same order: the keys and the values. */
function listed(
  key: string,
  keyColumn: string,
  valueColumn: string,
  source: string,
  missing: string,
): string {
  const list = (column: string) =>
    `(SELECT groupArray(listed) FROM (SELECT ${column} AS listed FROM ${source} ORDER BY ${keyColumn}))`;
  return `transform(${key}, ${list(keyColumn)}, ${list(valueColumn)}, ${missing})`;
}
