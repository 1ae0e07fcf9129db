// Lets any of several servers answer any query: analysts' views become `Distributed` tables over local views of the same form. A local
// view reads only other local views and stored tables, so joins run where the rows are. All rows of a user are on one server, since
// those of an environment are. A single server needs none of this.

import { isDeepStrictEqual } from 'node:util';
import { tables } from '../contract/records.js';
import { readRow, readRows } from './answers.js';
import type { ClickHouseClient } from './client.js';
import { changeDefinition, NoRoom } from './definitions.js';
import { shardNumberSpacing } from './store.js';

/** The views that span all servers: one of each kind of record, and the views that join them. */
export const spanningViews: readonly string[] = [...tables, 'users', 'user_events'];

/** The views that the spanning ones read, each after those that it reads itself. */
const localViews: readonly string[] = [
  ...tables,
  'merged_identities',
  'merged_user_properties',
  'users',
  'user_events',
];

type LocalView = {
  readonly name: string;
  readonly select: string;
  readonly creation: string;
};

/**
 * The local views, derived from the migrations for a single server. `hidden`: shards whose rows on this server must not be shown, since
 * they are being moved.
 */
function describeLocalViews(
  migrations: readonly { readonly sql: string }[],
  hidden: readonly number[],
): LocalView[] {
  return localViews.map((view) => {
    const creation = new RegExp(
      `^CREATE (?:OR REPLACE )?VIEW (?:IF NOT EXISTS )?${view} \\{\\{on_cluster\\}\\}([^]*?) AS\\n([^]*)$`,
      'm',
    );
    const found = migrations.map(({ sql }) => creation.exec(sql)).findLast((match) => match !== null);
    if (found === undefined) throw new Error(`no migration makes the view ${view}`);
    // The comments of the view and its columns come before the SELECT.
    const [, described = '', select = ''] = found;
    const name = `local_${view}`;
    const here = select
      .trim()
      .replace(new RegExp(`\\b(FROM|JOIN)(\\s+)(${localViews.join('|')})\\b`, 'g'), '$1$2local_$3')
      .replace(/ WHERE app_id != ''$/, ` WHERE app_id != ''${isShown(hidden)}`);
    return { name, select: here, creation: `CREATE OR REPLACE VIEW ${name}${described} AS\n${here}` };
  });
}

function isShown(hidden: readonly number[]): string {
  return hidden.length === 0 ? '' : ` AND segment % ${shardNumberSpacing} NOT IN (${hidden.join(', ')})`;
}

/** Which server has which shard, and which are being moved, as far as the views need it. */
export type ShardPlaces = {
  readonly servers: readonly number[];
  readonly moves?: readonly { readonly shard: number; readonly from: number; readonly to: number }[];
};

/**
 * Creates or replaces the local views of a server: they hide shards that are stored elsewhere while the server may have rows of them. On a
 * full disk, views that show the right rows stay as they are, so a deployment that has stopped there starts again.
 * Shards may be moved meanwhile, and several processes may create the views. So each process repeats this until the moves that it read
 * have not changed. `readPlaces` must include a step of a move before the move creates the views.
 */
export async function makeLocalViews(
  client: ClickHouseClient,
  index: number,
  migrations: readonly { readonly sql: string }[],
  readPlaces: () => Promise<ShardPlaces | undefined>,
): Promise<void> {
  let made: readonly number[] | undefined;
  for (;;) {
    const hidden = hiddenOn(index, await readPlaces());
    if (isDeepStrictEqual(made, hidden)) return;
    const views = describeLocalViews(migrations, hidden);
    await changeDefinition(
      client,
      views.map(({ name }) => name),
      ...views.map(({ creation }) => creation),
    ).catch(async (error: unknown) => {
      if (!(error instanceof NoRoom) || !(await areMade(client, views))) throw error;
    });
    made = hidden;
  }
}

/** Whether a server has these views with these SELECTs. ClickHouse keeps a SELECT in its own form, with the database before each name. */
async function areMade(client: ClickHouseClient, views: readonly LocalView[]): Promise<boolean> {
  const plain = (select: string) => `replaceAll(${select}, concat(database, '.'), '')`;
  const { made } = await readRow<{ made: string }>(client, {
    query: `SELECT toString(countIf(${plain('as_select')} = ${plain('formatQuerySingleLine(selects[name])')})) AS made
      FROM (SELECT database, name, as_select, {selects:Map(String, String)} AS selects FROM system.tables
        WHERE database = currentDatabase() AND mapContains(selects, name))`,
    query_params: { selects: Object.fromEntries(views.map(({ name, select }) => [name, select])) },
  });
  return Number(made) === views.length;
}

function hiddenOn(index: number, { servers, moves = [] }: ShardPlaces = { servers: [] }): readonly number[] {
  return moves
    .filter(({ shard, from, to }) => [from, to].includes(index) && servers[shard] !== index)
    .map(({ shard }) => shard);
}

/** The places in the second copy of the registry, on the primary server; undefined if it has none. */
export async function readCopiedPlaces(primary: ClickHouseClient): Promise<ShardPlaces | undefined> {
  const { document } = await readRow<{ document: string }>(primary, {
    query: `SELECT argMax(registry.document, (registry.version, written_at)) AS document
      FROM registry WHERE document_key = 'shard_servers:'`,
  });
  return document === '' ? undefined : (JSON.parse(document) as ShardPlaces);
}

/**
 * Makes a server's views span all servers of the cluster, which have their local views. Servers that are missing in the cluster would
 * not be queried, so the number of its shards is checked.
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
  const tablesNow = await readTables(client);
  for (const view of spanningViews) {
    const [spanning, local] = [tablesNow.get(view), tablesNow.get(`local_${view}`)];
    const engine = `Distributed('${cluster}', '${local?.database}', 'local_${view}')`;
    if (spanning?.engine_full === engine && spanning.columns === local?.columns) continue;
    // Created beside the one in use and exchanged with it, so that the view always exists.
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
  /** The table's comment, then the names, types and comments of its columns in order. */
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
