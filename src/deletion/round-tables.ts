// The tables of one round of deletions, in ClickHouse's memory only, so that no copy of a target is left on its disk:
// which requests it takes, which environments it reaches, whom it was asked for and whom it found, and the same by key
// for the predicate of the mutations. Their size is that of the lists of targets, however many environments an account
// has: who was named is named in all of them. Checked after every use, since a restart empties them and an empty one
// finds nothing.

import type { ClickHouseClient } from '../clickhouse/client.js';
import { killMutations } from '../clickhouse/mutate.js';
import { targetTable } from './places.js';

/** A request of a round. Its place in the list is its number, from 0: the order of submission in each account. */
export type RoundRequest = {
  readonly requestId: string;
  readonly accountId: string;
  /** By shard, from 0: the highest segment number that it reaches. */
  readonly fences: readonly string[];
  /** Its users are resolved and kept already. */
  readonly resolved: boolean;
};

/** An environment of an account with requests in the round. */
export type RoundEnvironment = {
  readonly appId: string;
  readonly accountId: string;
  readonly shard: number;
};

export type RoundTables = {
  readonly database: string;
  /** Name that occurs in the texts of this round's mutations only. */
  readonly mark: string;
  readonly requests: string;
  readonly environments: string;
  /** Whom the requests reach: as they were asked (app_id empty), and who was found in single environments. */
  readonly users: string;
  /** Identities that requests ask for while it is found out which of them have to wait for others. */
  readonly asked: string;
  /** User_ids whose identifications requests may look at, each with the first that does. */
  readonly linked: string;
  /** Identifications that requests of the round take, each with the first that does. */
  readonly covered: string;
  /** By key: its fences by shard, and the requests that reach it. */
  readonly keys: string;
  /** Whoever is reached in any environment up to any fence: they let all other rows pass for the price of a look. */
  readonly identities: string;
  readonly userIds: string;
  /** Rows that the tables must have; a restart of ClickHouse empties them. */
  readonly sizes: Map<string, number>;
};

const namePrefix = 'deletion_round_';

/** Makes the tables of a round and fills in what it is about. `round` is letters and digits. */
export async function createRoundTables(
  client: ClickHouseClient,
  database: string,
  round: string,
  requests: readonly RoundRequest[],
  environments: readonly RoundEnvironment[],
): Promise<RoundTables> {
  const name = (table: string) => `${namePrefix}${round}_${table}`;
  const tables: RoundTables = {
    database,
    mark: name('keys'),
    requests: name('requests'),
    environments: name('environments'),
    users: name('users'),
    asked: name('asked'),
    linked: name('linked'),
    covered: name('covered'),
    keys: name('keys'),
    identities: name('identities'),
    userIds: name('user_ids'),
    sizes: new Map(),
  };
  // Not persistent: nothing of it ever reaches the disk, and one lost in a crash matches nothing.
  const inMemory = 'SETTINGS persistent = 0';
  const structures: readonly [table: string, structure: string][] = [
    [
      tables.requests,
      '(request UInt32, request_id String, account_id String, fences Array(UInt64), resolved UInt8) ENGINE = Memory',
    ],
    [
      tables.environments,
      `(app_id String, account_id String, shard UInt16) ENGINE = Join(ANY, LEFT, app_id) ${inMemory}`,
    ],
    [
      tables.users,
      '(request UInt32, app_id String, identity String, user_id Nullable(UInt64)) ENGINE = Memory',
    ],
    [tables.asked, '(request UInt32, app_id String, identity String) ENGINE = Memory'],
    [tables.linked, '(app_id String, user_id UInt64, first_request UInt32) ENGINE = Memory'],
    [
      tables.covered,
      '(app_id String, segment UInt64, commit_number UInt32, row_number UInt32, first_request UInt32) ENGINE = Memory',
    ],
    [
      tables.keys,
      `(key String, fences Array(UInt64), requests Array(UInt32)) ENGINE = Join(ANY, LEFT, key) ${inMemory}`,
    ],
    [tables.identities, `(identity String) ENGINE = Set ${inMemory}`],
    [tables.userIds, `(user_id UInt64) ENGINE = Set ${inMemory}`],
  ];
  for (const [table, structure] of structures) {
    await client.command({ query: `CREATE TABLE ${table} ${structure}` });
  }
  const insert = async (table: string, values: readonly object[]) => {
    await client.insert({ table, values, format: 'JSONEachRow', clickhouse_settings: { async_insert: 0 } });
    tables.sizes.set(table, values.length);
  };
  await insert(
    tables.requests,
    requests.map(({ requestId, accountId, fences, resolved }, request) => ({
      request,
      request_id: requestId,
      account_id: accountId,
      fences,
      resolved: resolved ? 1 : 0,
    })),
  );
  await insert(
    tables.environments,
    environments.map(({ appId, accountId, shard }) => ({ app_id: appId, account_id: accountId, shard })),
  );
  // What a round that was cut off had found is found again; a crash may have left only some of it.
  await client.command({
    query: `INSERT INTO ${tables.users}
      SELECT DISTINCT r.request, t.app_id, t.identity, t.user_id
      FROM ${targetTable} AS t INNER JOIN ${tables.requests} AS r ON t.request_id = r.request_id
      WHERE t.app_id = '' OR r.resolved = 1`,
  });
  await noteSizes(client, tables, [tables.users]);
  return tables;
}

/** Drops the tables of all rounds, and ends the mutations that need them. */
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

/** How many distinct users each request of the round was asked for, by its number. */
export async function countNamed(
  client: ClickHouseClient,
  tables: RoundTables,
): Promise<ReadonlyMap<number, number>> {
  const result = await client.query({
    query: `SELECT request, count() AS users FROM ${tables.users} WHERE app_id = '' GROUP BY request`,
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ request: number; users: number | string }>();
  await assertIntact(client, tables);
  return new Map(rows.map(({ request, users }) => [Number(request), Number(users)]));
}

/**
 * Rejects when a table of the round is not what it was filled with. A count that was taken before this call
 * was taken over whole tables: an emptied one is never filled again.
 */
export async function assertIntact(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  const sizes = await readSizes(client, [...tables.sizes.keys()]);
  for (const [table, rows] of tables.sizes) {
    if (sizes.get(table) !== rows) throw new Error('clickhouse lost a table of the round');
  }
}

/** Remembers how many rows tables have now, having checked that the others lost none. */
export async function noteSizes(
  client: ClickHouseClient,
  tables: RoundTables,
  changed: readonly string[],
): Promise<void> {
  const sizes = await readSizes(client, [...new Set([...tables.sizes.keys(), ...changed])]);
  for (const table of changed) tables.sizes.set(table, sizes.get(table) ?? Number.NaN);
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
