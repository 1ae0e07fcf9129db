// The tables of one round of deletions, in ClickHouse's memory only, so that no copy of a target is left on its
// disk, and checked after every use, since a restart empties them and an empty one finds nothing: whom each request reaches in which
// environment up to which fence, and the same by key for the predicate of the mutations. Targets never occur
// in the text of a statement: ten thousand exceed its length, and quoting by hand has deleted whole tables.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { killMutations } from '../clickhouse/mutate.js';
import { storedTable } from '../clickhouse/tables.js';
import { type Place, placesInOrder, targetTable } from './places.js';
import type { FoundRows } from './request.js';

/** Where one request reaches: an environment, and the fence of its shard. */
export type Scope = {
  readonly requestId: string;
  readonly appId: string;
  readonly fence: string;
  /** Its users are resolved and kept already. */
  readonly resolved: boolean;
};

export type RoundTables = {
  readonly database: string;
  /** Name that occurs in the texts of this round's mutations only. */
  readonly mark: string;
  readonly scope: string;
  readonly keys: string;
  readonly fences: string;
  /** Whoever is reached in any environment up to any fence: they let all other rows pass for the price of a look. */
  readonly identities: string;
  readonly userIds: string;
  /** Rows that the tables must have; a restart of ClickHouse empties them. */
  readonly sizes: Map<string, number>;
};

const namePrefix = 'deletion_round_';

/** Makes the tables of a round and fills in its scope. `round` is letters and digits. */
export async function createRoundTables(
  client: ClickHouseClient,
  database: string,
  round: string,
  scopes: readonly Scope[],
): Promise<RoundTables> {
  const mark = `${namePrefix}${round}_fences`;
  const tables: RoundTables = {
    database,
    mark,
    scope: `${namePrefix}${round}_scope`,
    keys: `${namePrefix}${round}_keys`,
    fences: mark,
    identities: `${namePrefix}${round}_identities`,
    userIds: `${namePrefix}${round}_user_ids`,
    sizes: new Map(),
  };
  const run = (query: string) => client.command({ query });
  await run(
    `CREATE TABLE ${tables.scope} (request_id String, app_id String, fence UInt64, resolved UInt8) ENGINE = Memory`,
  );
  await run(
    `CREATE TABLE ${tables.keys} (request_id String, app_id String, key String, fence UInt64) ENGINE = Memory`,
  );
  // Not persistent: nothing of it ever reaches the disk, and one lost in a crash matches nothing.
  await run(
    `CREATE TABLE ${tables.fences} (key String, fence UInt64) ENGINE = Join(ANY, LEFT, key) SETTINGS persistent = 0`,
  );
  await run(`CREATE TABLE ${tables.identities} (identity String) ENGINE = Set SETTINGS persistent = 0`);
  await run(`CREATE TABLE ${tables.userIds} (user_id UInt64) ENGINE = Set SETTINGS persistent = 0`);
  await client.insert({
    table: tables.scope,
    values: scopes.map(({ requestId, appId, fence, resolved }) => ({
      request_id: requestId,
      app_id: appId,
      fence,
      resolved: resolved ? 1 : 0,
    })),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
  tables.sizes.set(tables.scope, scopes.length);
  return tables;
}

/** Ends the mutations and drops the tables of every round, this one's and those that a crash left behind. */
export async function dropRoundTables(client: ClickHouseClient): Promise<void> {
  const result = await client.query({
    query:
      'SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, {prefix:String})',
    query_params: { prefix: namePrefix },
    format: 'JSONEachRow',
  });
  const names = (await result.json<{ name: string }>()).map(({ name }) => name);
  if (names.length === 0) return;
  // A mutation that loses its table is stuck for ever.
  await killMutations(client, namePrefix);
  for (const name of names) await client.command({ query: `DROP TABLE IF EXISTS ${name} SYNC` });
}

/**
 * Resolves the named users of requests to all ids of the merged users, as merged up to each request's fence,
 * in every environment of their scope, and keeps the result in the target table. May be repeated until
 * something was deleted.
 */
export async function resolveUsers(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  const identifications = `${storedTable('user_identities')} WHERE app_id IN (SELECT app_id FROM ${tables.scope})`;
  // Of a few users, found by the table's key. To merge all users first took 0.6 s where 200,000 were identified.
  const mergedOf = (userIds: string) =>
    // The first identity of a user_id stands, so at a fence it is either that one or, before it, none.
    `SELECT app_id, user_id, argMin(identity, (segment, commit_number, row_number)) AS merged_identity, min(segment) AS since
    FROM ${identifications} AND user_id IN (${userIds}) GROUP BY app_id, user_id`;
  const unresolved = `${targetTable} AS t INNER JOIN ${tables.scope} AS s ON t.request_id = s.request_id`;
  const namedIds = `SELECT assumeNotNull(t.user_id) AS id FROM ${unresolved}
    WHERE t.app_id = '' AND s.resolved = 0 AND t.user_id IS NOT NULL`;
  await client.command({
    query: `INSERT INTO ${targetTable} (request_id, app_id, identity, user_id)
      SELECT DISTINCT request_id, app_id, identity, NULL FROM (
        SELECT t.request_id AS request_id, s.app_id AS app_id, t.identity AS identity
        FROM ${unresolved} WHERE t.app_id = '' AND s.resolved = 0 AND t.identity != ''
        UNION ALL
        SELECT n.request_id AS request_id, n.app_id AS app_id, m.merged_identity AS identity
        FROM (
          SELECT t.request_id AS request_id, s.app_id AS app_id, s.fence AS fence, t.user_id AS id
          FROM ${unresolved} WHERE t.app_id = '' AND s.resolved = 0 AND t.user_id IS NOT NULL
        ) AS n INNER JOIN (${mergedOf(namedIds)}) AS m ON n.app_id = m.app_id AND n.id = m.user_id
        WHERE m.since <= n.fence
      )`,
  });
  const identities = `SELECT t.request_id AS request_id, t.app_id AS app_id, s.fence AS fence, t.identity AS identity
    FROM ${unresolved} AND t.app_id = s.app_id WHERE s.resolved = 0 AND t.user_id IS NULL`;
  const idsOfIdentities = `SELECT user_id FROM ${identifications} AND identity IN (SELECT identity FROM (${identities}))`;
  await client.command({
    query: `INSERT INTO ${targetTable} (request_id, app_id, identity, user_id)
      SELECT DISTINCT request_id, app_id, '', id FROM (
        SELECT t.request_id AS request_id, s.app_id AS app_id, assumeNotNull(t.user_id) AS id
        FROM ${unresolved} WHERE t.app_id = '' AND s.resolved = 0 AND t.user_id IS NOT NULL
        UNION ALL
        SELECT i.request_id AS request_id, i.app_id AS app_id, m.user_id AS id
        FROM (${identities}) AS i INNER JOIN (${mergedOf(idsOfIdentities)}) AS m
          ON i.app_id = m.app_id AND i.identity = m.merged_identity
        WHERE m.since <= i.fence
      )`,
  });
  await assertIntact(client, tables);
}

/** Fills the keys of the round from the resolved users of its requests; settles with the requests that have any. */
export async function fillKeys(client: ClickHouseClient, tables: RoundTables): Promise<ReadonlySet<string>> {
  await client.command({
    query: `INSERT INTO ${tables.keys}
      SELECT DISTINCT t.request_id, t.app_id,
        if(t.user_id IS NULL, ${keyOf("'i'", 't.app_id', 't.identity')}, ${keyOf("'u'", 't.app_id', 'toString(assumeNotNull(t.user_id))')}) AS key,
        s.fence
      FROM ${targetTable} AS t INNER JOIN ${tables.scope} AS s ON t.request_id = s.request_id AND t.app_id = s.app_id
      WHERE t.app_id != ''`,
  });
  const run = (query: string) => client.command({ query });
  await run(`INSERT INTO ${tables.fences} SELECT key, max(fence) AS fence FROM ${tables.keys} GROUP BY key`);
  const resolved = `FROM ${targetTable} WHERE app_id != '' AND request_id IN (SELECT request_id FROM ${tables.scope})`;
  await run(`INSERT INTO ${tables.identities} SELECT DISTINCT identity ${resolved} AND user_id IS NULL`);
  await run(
    `INSERT INTO ${tables.userIds} SELECT DISTINCT assumeNotNull(user_id) ${resolved} AND user_id IS NOT NULL`,
  );
  await assertIntact(client, tables);
  const filled = [tables.keys, tables.fences, tables.identities, tables.userIds];
  const sizes = await readSizes(client, filled);
  for (const table of filled) tables.sizes.set(table, sizes.get(table) ?? 0);
  // Last: a restart before it has emptied the keys too.
  const result = await client.query({
    query: `SELECT DISTINCT request_id FROM ${tables.keys}`,
    format: 'JSONEachRow',
  });
  return new Set((await result.json<{ request_id: string }>()).map((row) => row.request_id));
}

/**
 * Rejects when a table of the round is not what it was filled with. A count that was taken before this call
 * was taken over whole tables: an emptied one is never filled again.
 */
async function assertIntact(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  const sizes = await readSizes(client, [...tables.sizes.keys()]);
  for (const [table, rows] of tables.sizes) {
    if (sizes.get(table) !== rows) throw new Error('clickhouse lost a table of the round');
  }
}

/** Rows of tables that are in memory. They are asked for together: a statement costs ten milliseconds. */
async function readSizes(client: ClickHouseClient, names: readonly string[]): Promise<Map<string, number>> {
  const result = await client.query({
    query: `SELECT name, toString(total_rows) AS rows FROM system.tables
      WHERE database = currentDatabase() AND name IN ({names:Array(String)})`,
    query_params: { names },
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ name: string; rows: string | null }>();
  return new Map(rows.map(({ name, rows: count }) => [name, Number(count ?? Number.NaN)]));
}

async function readNumber(client: ClickHouseClient, query: string): Promise<number> {
  const result = await client.query({ query, format: 'JSONEachRow' });
  const [row] = await result.json<{ number: number | string }>();
  return Number(row?.number);
}

/** The environments that the round reaches. */
export async function readScopedAppIds(client: ClickHouseClient, tables: RoundTables): Promise<string[]> {
  const result = await client.query({
    query: `SELECT DISTINCT app_id FROM ${tables.scope}`,
    format: 'JSONEachRow',
  });
  return (await result.json<{ app_id: string }>()).map((row) => row.app_id);
}

/** The users that the round reaches in an environment, by every id they have. */
export async function readResolvedUsers(
  client: ClickHouseClient,
  tables: RoundTables,
  appId: string,
): Promise<({ identity: string } | { userId: string })[]> {
  const result = await client.query({
    query: `SELECT DISTINCT identity, toString(user_id) AS user_id FROM ${targetTable}
      WHERE app_id = {appId:String} AND request_id IN (SELECT request_id FROM ${tables.scope})`,
    query_params: { appId },
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ identity: string; user_id: string | null }>();
  return rows.map((row) => (row.user_id === null ? { identity: row.identity } : { userId: row.user_id }));
}

/**
 * Removes targets of requests that are not pending: a worker that had stopped may have kept them too late.
 * `readPendingIds` is asked after the targets are listed, so that those of a new request are not taken for it.
 */
export async function purgeStrayTargets(
  client: ClickHouseClient,
  readPendingIds: () => Promise<ReadonlySet<string>>,
): Promise<void> {
  const result = await client.query({
    query: `SELECT DISTINCT request_id FROM ${targetTable}`,
    format: 'JSONEachRow',
  });
  const kept = (await result.json<{ request_id: string }>()).map((row) => row.request_id);
  const pendingIds = await readPendingIds();
  for (const requestId of kept) {
    if (pendingIds.has(requestId)) continue;
    await client.command({
      query: `ALTER TABLE ${targetTable} DELETE WHERE request_id = {requestId:String}`,
      query_params: { requestId },
      clickhouse_settings: { mutations_sync: '2' },
    });
  }
}

/** Removes the targets of the round's requests. */
export async function purgeTargets(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  const those = `request_id IN (SELECT request_id FROM ${tables.database}.${tables.scope})`;
  await client.command({
    query: `ALTER TABLE ${targetTable} DELETE WHERE ${those}`,
    clickhouse_settings: { mutations_sync: '2' },
  });
  const left = await readNumber(client, `SELECT count() AS number FROM ${targetTable} WHERE ${those}`);
  await assertIntact(client, tables);
  if (left > 0) throw new Error(`rows are left in ${targetTable}`);
}

/** Rows that the requests reach, by request, environment and table. */
export async function countFound(
  client: ClickHouseClient,
  tables: RoundTables,
): Promise<Map<string, FoundRows[]>> {
  const found = new Map<string, FoundRows[]>();
  for (const place of placesInOrder) {
    // A row with both an identity and a user_id is one row, though two keys reach it.
    const result = await client.query({
      query: `SELECT k.request_id AS request_id, e.app_id AS app_id, uniqExact(e.row_name) AS rows
        FROM (
          SELECT app_id, segment, ${rowName(place)} AS row_name, arrayJoin([${identityKey}, ${userIdKey}]) AS key
          FROM ${place} WHERE app_id IN (SELECT app_id FROM ${tables.scope}) AND ${named(tables)}
        ) AS e INNER JOIN ${tables.keys} AS k ON e.key = k.key
        WHERE e.segment <= k.fence
        GROUP BY request_id, app_id ORDER BY request_id, app_id`,
      format: 'JSONEachRow',
    });
    for (const row of await result.json<{ request_id: string; app_id: string; rows: number }>()) {
      const list = found.get(row.request_id) ?? [];
      list.push({ app_id: row.app_id, table: place, rows: Number(row.rows) });
      found.set(row.request_id, list);
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
      WHERE app_id IN (SELECT app_id FROM ${tables.scope}) AND ${reached(tables)} GROUP BY app_id`,
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ app_id: string; rows: number }>();
  await assertIntact(client, tables);
  return new Map(rows.map((row) => [row.app_id, Number(row.rows)]));
}

/** The predicate of a mutation: rows of these environments that the round reaches. */
export function mutationPredicate(tables: RoundTables, appIds: readonly string[], fenceMax: string): string {
  for (const text of [...appIds, fenceMax])
    if (!/^\d+$/.test(text)) throw new Error('an app_id or fence is not decimal');
  if (appIds.length === 0) throw new Error('a mutation must name its environments');
  const list = appIds.map((appId) => `'${appId}'`).join(', ');
  return `app_id IN (${list}) AND segment <= ${fenceMax} AND ${reached(tables)}`;
}

function reached(tables: RoundTables): string {
  // A key that is not there has the fence 0, which no segment is at or below.
  const fenceOf = (key: string) => `joinGet('${tables.database}.${tables.fences}', 'fence', ${key})`;
  return `(${named(tables)} AND (${fenceOf(identityKey)} >= segment OR ${fenceOf(userIdKey)} >= segment))`;
}

/**
 * Rows that the round may reach: all that it does, and perhaps others. To make keys for every row and look
 * for their fences takes twice as long.
 */
function named({ database, identities, userIds }: RoundTables): string {
  return `(identity IN ${database}.${identities} OR assumeNotNull(user_id) IN ${database}.${userIds})`;
}

/** Kind first: the identity "7" and the user_id 7 are two users. */
function keyOf(kind: string, appId: string, id: string): string {
  return `concat(${kind}, ${appId}, ' ', ${id})`;
}

const identityKey = keyOf("'i'", 'app_id', 'identity');
const userIdKey = keyOf("'u'", 'app_id', "ifNull(toString(user_id), '')");

function rowName(place: Place): string {
  return place === 'failed_events' ? '(table_name, segment, line)' : '(segment, commit_number, row_number)';
}
