// What makes any of several servers answer any query: the views of analysts become `Distributed` tables over local views of
// the same form. A local view reads only other local views and stored tables, so joins run where the rows are. A user's rows
// are all on one server, since an environment's are. A single server needs none of this.

import { isDeepStrictEqual } from 'node:util';
import { tables } from '../contract/records.js';
import { readRow, readRows } from './answers.js';
import type { ClickHouseClient } from './client.js';
import { changeDefinition } from './definitions.js';
import { shardNumberSpacing } from './store.js';

/** The views that span all servers: one of each kind of record, and the views that join them. */
export const spanningViews: readonly string[] = [...tables, 'users', 'user_events'];

/** The views that the spanning ones read, in an order in which each comes after the ones that it reads. */
const localViews: readonly string[] = [
  ...tables,
  'merged_identities',
  'merged_user_properties',
  'users',
  'user_events',
];

/**
 * The statements that make the local views, from the migrations that make the views of a single server. `hidden`: shards
 * whose rows are here but do not count, since they are on their way from one server to another.
 */
export function localViewStatements(
  migrations: readonly { readonly sql: string }[],
  hidden: readonly number[] = [],
): string[] {
  return localViews.map((view) => {
    const creation = new RegExp(
      `^CREATE (?:OR REPLACE )?VIEW (?:IF NOT EXISTS )?${view} \\{\\{on_cluster\\}\\}([^]*?) AS\\n([^]*)$`,
      'm',
    );
    const found = migrations.map(({ sql }) => creation.exec(sql)).findLast((match) => match !== null);
    if (found === undefined) throw new Error(`no migration makes the view ${view}`);
    // The comments of the view and its columns come before the SELECT.
    const [, described = '', select = ''] = found;
    const here = select
      .trim()
      .replace(new RegExp(`\\b(FROM|JOIN)(\\s+)(${localViews.join('|')})\\b`, 'g'), '$1$2local_$3')
      .replace(/ WHERE app_id != ''$/, ` WHERE app_id != ''${isShown(hidden)}`);
    return `CREATE OR REPLACE VIEW local_${view}${described} AS\n${here}`;
  });
}

function isShown(hidden: readonly number[]): string {
  return hidden.length === 0 ? '' : ` AND segment % ${shardNumberSpacing} NOT IN (${hidden.join(', ')})`;
}

/** Where shards are, and which are on their way, as far as the views need it. */
export type ShardPlaces = {
  readonly servers: readonly number[];
  readonly moves?: readonly { readonly shard: number; readonly from: number; readonly to: number }[];
};

/**
 * Makes the local views of the server of a place, or makes them anew: they hide the shards that are stored elsewhere while there may be
 * rows of them. Shards may be moved meanwhile, and several processes may make the views: whoever makes them last has read all moves, so
 * it makes them again until what it read has not changed. `readPlaces` must know of a move's step before the move makes the views.
 */
export async function makeLocalViews(
  client: ClickHouseClient,
  place: number,
  migrations: readonly { readonly sql: string }[],
  readPlaces: () => Promise<ShardPlaces | undefined>,
): Promise<void> {
  let made: readonly number[] | undefined;
  for (;;) {
    const hidden = hiddenOn(place, await readPlaces());
    if (isDeepStrictEqual(made, hidden)) return;
    const names = localViews.map((view) => `local_${view}`);
    for (const [i, query] of localViewStatements(migrations, hidden).entries())
      await changeDefinition(client, names.slice(i, i + 1), query);
    made = hidden;
  }
}

function hiddenOn(place: number, { servers, moves = [] }: ShardPlaces = { servers: [] }): readonly number[] {
  return moves
    .filter(({ shard, from, to }) => [from, to].includes(place) && servers[shard] !== place)
    .map(({ shard }) => shard);
}

/** The places in the second copy of the registry, which a home has; undefined if it has none. */
export async function readCopiedPlaces(home: ClickHouseClient): Promise<ShardPlaces | undefined> {
  const { document } = await readRow<{ document: string }>(home, {
    query: `SELECT argMax(registry.document, (registry.version, written_at)) AS document
      FROM registry WHERE document_key = 'shard_servers:'`,
  });
  return document === '' ? undefined : (JSON.parse(document) as ShardPlaces);
}

/**
 * Lets a server's views span all servers of the cluster, whose local views there are. A server of which the cluster knows
 * nothing is not asked, so the number of its shards is compared.
 */
export async function spanServers(client: ClickHouseClient, cluster: string, servers: number): Promise<void> {
  const { shards } = await readRow<{ shards: number }>(client, {
    query: 'SELECT max(shard_num) AS shards FROM system.clusters WHERE cluster = {cluster:String}',
    query_params: { cluster },
  });
  if (Number(shards) !== servers) {
    throw new Error(
      `the cluster ${cluster} has ${shards} shards in ClickHouse's configuration, but CLICKHOUSE_URL names ${servers} servers`,
    );
  }
  const there = await readTables(client);
  for (const view of spanningViews) {
    const [spanning, local] = [there.get(view), there.get(`local_${view}`)];
    const engine = `Distributed('${cluster}', '${local?.database}', 'local_${view}')`;
    if (spanning?.engine_full === engine && spanning.columns === local?.columns) continue;
    // Made beside the one in use and exchanged with it, so that there is one at any moment.
    const next = `next_${view}`;
    await client.command({ query: `DROP TABLE IF EXISTS ${next} SYNC` });
    await changeDefinition(client, [next], `CREATE TABLE ${next} AS local_${view} ENGINE = ${engine}`);
    if (spanning === undefined) {
      await changeDefinition(client, [view], `RENAME TABLE ${next} TO ${view}`);
    } else {
      await changeDefinition(client, [view], `EXCHANGE TABLES ${next} AND ${view}`);
      await client.command({ query: `DROP TABLE ${next} SYNC` });
    }
  }
}

type Table = {
  readonly name: string;
  readonly database: string;
  readonly engine_full: string;
  /** The comment of the whole, then names, types and comments in their order. */
  readonly columns: string;
};

async function readTables(client: ClickHouseClient): Promise<ReadonlyMap<string, Table>> {
  const rows = await readRows<Table>(client, {
    query: `SELECT t.name AS name, t.database AS database, t.engine_full AS engine_full, concat(t.comment, c.columns) AS columns
      FROM (SELECT name, database, engine_full, comment FROM system.tables WHERE database = currentDatabase()) AS t
      INNER JOIN (SELECT table, toString(arrayMap(c -> (c.2, c.3, c.4), arraySort(groupArray((position, name, type, comment))))) AS columns
        FROM system.columns WHERE database = currentDatabase() GROUP BY table) AS c ON t.name = c.table`,
  });
  return new Map(rows.map((table) => [table.name, table]));
}
