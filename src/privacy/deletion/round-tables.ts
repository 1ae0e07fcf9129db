// The tables of one round of deletions (clickhouse/scratch.ts); on a single server they are in ClickHouse's memory. They hold the round's
// requests and environments, its named and found users, and these users by key for the predicate of the mutations. Their size depends on
// the lists of targets, not on the number of environments, since a named user is stored once for all of them. Every use is followed by a
// check: a restart empties the tables, and an empty table matches no rows.

import { readRows } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { endLong } from '../../clickhouse/long-statement.js';
import { killMutations } from '../../clickhouse/mutate.js';
import { hasReplicas, syncReplicas } from '../../clickhouse/replication.js';
import {
  createScratch,
  dropScratch,
  fillScratch,
  insertScratch,
  listScratch,
  type ScratchKind,
  scratchName,
} from '../../clickhouse/scratch.js';
import { shardOf } from '../../redis/keys.js';
import type { Environment } from '../../registry/documents.js';
import type { DeletionRequest } from './request.js';
import { columnsOfTarget, type Target } from './targets.js';
import { targetTable, userTables } from './user-tables.js';

/** A request of a round. Its number is its index in the list, which within an account is in the order of submission. */
export type RoundRequest = Pick<DeletionRequest, 'deletion_request_id' | 'account_id' | 'resolved'> & {
  /** By shard: the highest segment number of which it deletes rows. */
  readonly fences: Readonly<Record<number, string>>;
};

export type RoundEnvironment = Pick<Environment, 'app_id' | 'account_id'>;

const structures = {
  requests: ['request UInt32, request_id String, account_id String, fences Array(UInt64), resolved UInt8'],
  environments: ['app_id String, account_id String, shard UInt16', { lookUp: 'app_id' }],
  /**
   * The users of the requests: the named ones (with an empty app_id), and those found in single environments, with the identity that
   * a user_id was merged into there.
   */
  users: ['request UInt32, app_id String, identity String, user_id Nullable(UInt64), merged_identity String'],
  /** The counts before anything is deleted: rows by request, environment, table and the user in the row. */
  reached: [
    'request UInt32, app_id String, place String, identity String, user_id Nullable(UInt64), rows UInt64',
  ],
  /** Identities that look like named ones, each with the first segment that contains it, by account and shard. */
  alike: ['account_id String, shard UInt16, identity String, since UInt64'],
  /** Identities that decide which requests have to wait for others. */
  asked: ['request UInt32, app_id String, identity String'],
  /** The user_ids whose identifications requests may use, each with the first such request. */
  linked: ['app_id String, user_id UInt64, first_request UInt32'],
  /** The identifications that requests of the round delete, each with the first such request. */
  covered: ['app_id String, segment UInt64, commit_number UInt32, row_number UInt32, first_request UInt32'],
  /** For each key: its fences by shard, and its requests. */
  keys: ['key String, fences Array(UInt64), requests Array(UInt32)', { lookUp: 'key' }],
  /** Every user of the round, whatever the environment or fence: one look-up rules out all other rows. */
  identities: ['identity String', 'Set'],
  userIds: ['user_id UInt64', 'Set'],
  /** Positions of the rows that the current mutation removes, with their keys (round-rows.ts). */
  rows: [
    'segment UInt64, commit_number UInt32, row_number UInt32, app_id LowCardinality(String), event_id UUID',
  ],
} as const satisfies Readonly<Record<string, readonly [structure: string, kind?: ScratchKind]>>;

type TableOfRound = keyof typeof structures;

export type RoundTables = Readonly<Record<TableOfRound, string>> & {
  /** Whether the tables are on the disks of all replicas, rather than in the memory of one server. */
  readonly areOnDisk: boolean;
  /** A name that occurs only in the texts of this round's mutations. */
  readonly mark: string;
  /** How many rows the tables must have; a restart of ClickHouse empties them. */
  readonly sizes: Map<string, number>;
};

export const namePrefix = 'deletion_round_';
/** Begins the names of the tables of previews, which no round drops. */
export const previewPrefix = 'deletion_preview_';

/** Creates the tables of a round and fills in its requests and environments. `round`: letters and digits. */
export async function createRoundTables(
  client: ClickHouseClient,
  round: string,
  shards: number,
  requests: readonly RoundRequest[],
  environments: readonly RoundEnvironment[],
  prefix = namePrefix,
): Promise<RoundTables> {
  const name = (table: string) => scratchName(client, `${prefix}${round}_${table}`);
  const all = Object.keys(structures) as TableOfRound[];
  const names = Object.fromEntries(all.map((table) => [table, name(table)])) as Record<TableOfRound, string>;
  const tables: RoundTables = { ...names, areOnDisk: hasReplicas(client), mark: name(''), sizes: new Map() };
  await Promise.all(
    all.map((table) => {
      const [structure, kind] = structures[table] as readonly [string, ScratchKind?];
      return createScratch(client, tables[table], structure, kind);
    }),
  );
  // From here on every replica has what was stored before.
  await syncReplicas(client, [...userTables, targetTable]);
  const insert = async (table: string, values: readonly object[]) => {
    await insertScratch(client, table, values);
    tables.sizes.set(table, values.length);
  };
  await insert(
    tables.requests,
    requests.map(({ deletion_request_id: request_id, account_id, fences, resolved }, request) => ({
      request,
      request_id,
      account_id,
      fences: Array.from({ length: shards }, (_, shard) => fences[shard] ?? '0'),
      resolved: resolved ? 1 : 0,
    })),
  );
  await insert(
    tables.environments,
    environments.map(({ app_id, account_id }) => ({ app_id, account_id, shard: shardOf(app_id, shards) })),
  );
  // Includes users that an interrupted round had found, but only of resolved requests: for others, a crash may have left only some of them.
  await fillScratch(
    client,
    tables.users,
    `SELECT DISTINCT r.request, t.app_id, t.identity, t.user_id, t.merged_identity
      FROM ${targetTable} AS t INNER JOIN ${tables.requests} AS r ON t.request_id = r.request_id
      WHERE t.app_id = '' OR r.resolved = 1`,
  );
  await recordSizes(client, tables, [tables.users]);
  return tables;
}

/** Names users for the only request of a preview or an export, whose users are not in the table of targets. */
export async function nameUsers(
  client: ClickHouseClient,
  tables: RoundTables,
  targets: readonly Target[],
): Promise<void> {
  await insertScratch(
    client,
    tables.users,
    targets.map((target) => ({
      request: 0,
      app_id: '',
      ...columnsOfTarget(target),
      merged_identity: '',
    })),
  );
  tables.sizes.set(tables.users, targets.length);
}

/**
 * Drops the tables whose names begin with one of these prefixes and that are at least this old, also those of a process that was killed, and
 * ends the statements that use them. Settles with how many there were.
 */
export async function dropTables(
  client: ClickHouseClient,
  prefixes: readonly string[],
  ageSecondsMin = 0,
): Promise<number> {
  const names = await listScratch(client, prefixes, ageSecondsMin);
  // Dropping a table waits for statements that use it.
  await endLong(client, names);
  await dropScratch(client, names);
  return names.length;
}

/**
 * Drops the tables of rounds or of runs of retention, whose mutations name them, and ends these mutations, also of a process that has lost
 * its lock. May be called at any time, and repeatedly.
 */
export async function dropMutating(client: ClickHouseClient, prefix: string): Promise<void> {
  // Without its table, which a restart may have dropped, a mutation is stuck for ever.
  await killMutations(client, prefix);
  // A mutation may have started in the meantime. Without the table no further one can start.
  if ((await dropTables(client, [prefix])) > 0) await killMutations(client, prefix);
}

/** How many distinct users each request of the round names, by number of the request. */
export async function countNamed(
  client: ClickHouseClient,
  tables: RoundTables,
): Promise<ReadonlyMap<number, number>> {
  const rows = await readRows<{ request: number; users: number | string }>(client, {
    query: `SELECT request, count() AS users FROM ${tables.users} WHERE app_id = '' GROUP BY request`,
  });
  await assertIntact(client, tables);
  return new Map(rows.map(({ request, users }) => [Number(request), Number(users)]));
}

/**
 * Rejects if a table of the round lacks rows that it was filled with. Otherwise every count before this call saw complete tables, since an
 * emptied table is never refilled.
 */
export async function assertIntact(client: ClickHouseClient, tables: RoundTables): Promise<void> {
  await recordSizes(client, tables, []);
}

/** Checks that the other tables have lost no rows, then records how many rows these tables have now. */
export async function recordSizes(
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

/** The row counts of these tables in memory. One statement reads all of them, since each statement costs ten milliseconds. */
async function readSizes(client: ClickHouseClient, names: readonly string[]): Promise<Map<string, number>> {
  const rows = await readRows<{ sized: string; rows: string | null }>(client, {
    query: `SELECT concat(database, '.', name) AS sized, toString(total_rows) AS rows FROM system.tables
      WHERE (database, name) IN (${names.map((name) => `('${name.replace('.', "', '")}')`).join(', ')})`,
  });
  return new Map(rows.map(({ sized, rows: count }) => [sized, Number(count ?? Number.NaN)]));
}
