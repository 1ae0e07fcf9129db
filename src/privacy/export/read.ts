// Reads an export: every record that a deletion submitted when the export was requested would delete, from every table that a deletion
// empties. The code of deletions finds them: users are resolved as in a round with only this request, and the rows are those that its
// mutations would delete. The names of users are in tables in ClickHouse's memory, never in a statement.

import { randomBytes } from 'node:crypto';
import { type Lines, streamLines } from '../../clickhouse/answers.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { endLongWhen } from '../../clickhouse/long-statement.js';
import { serversOf } from '../../clickhouse/servers.js';
import { columnsOf, storedTable } from '../../clickhouse/tables.js';
import { Fault } from '../../contract/errors.js';
import { outcomes } from '../../contract/outcomes.js';
import {
  type ColumnType,
  earlierColumns,
  exportedKinds,
  recordColumns,
  tables as recordTables,
  type TableVersion,
} from '../../contract/records.js';
import type { Redis } from '../../redis/client.js';
import { shardOf } from '../../redis/keys.js';
import { appIdsOf, readLoadedRegistry } from '../../registry/registry.js';
import { byServer, refreshShardTable } from '../../registry/shard-servers.js';
import { assertCurrent } from '../../registry/witness.js';
import { resolveAlone } from '../deletion/resolve-users.js';
import { mutationPredicate } from '../deletion/round-keys.js';
import { assertIntact, createRoundTables, nameUsers, type RoundTables } from '../deletion/round-tables.js';
import { readExport, type StoredExport } from './request.js';
import { endDownload, exportPrefix } from './tables.js';

export type ReadOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
};

/** The export was ended between the start of the download and its first query. */
export class ExportEnded extends Fault {
  readonly outcome = 'not_found';
  override readonly toCallers = outcomes.not_found.meaning;
}

/**
 * Yields the lines of an export: merged users, then every record. Throws if any part of it could not be read, or ExportEnded. When the
 * reading has ended, or `signal` is aborted, its tables in ClickHouse are dropped; if ClickHouse fails at that moment, as soon as it
 * answers again.
 */
export async function* readUsersRecords(
  { redis, clickhouse }: ReadOptions,
  request: StoredExport,
  signal: AbortSignal,
): AsyncGenerator<Lines & { readonly records: number }> {
  const names = `${exportPrefix(request.user_export_id)}_${randomBytes(6).toString('hex')}`;
  const stopEnding = endLongWhen(serversOf(clickhouse).all, names, () => signal.aborted);
  try {
    await assertCurrent(redis, clickhouse);
    const ofAccount = appIdsOf(await readLoadedRegistry(redis), request.account_id);
    const servers = serversOf(clickhouse);
    await refreshShardTable(redis, servers);
    const divided = byServer(clickhouse, ofAccount);
    const table = servers.table();
    if (ofAccount.some((appId) => servers.isMoving(shardOf(appId, request.fences.length))))
      throw new Error('rows are on their way to another ClickHouse server');
    const parts: Part[] = [];
    for (const [client, appIds] of divided) {
      const tables = await createTables(client, names, request, appIds);
      parts.push({ client, tables, reached: mutationPredicate(tables, appIds, request.fences) });
    }
    // A deletion that ends the export removes the request before it drops the tables, so an export that is still there has its tables.
    if ((await readExport(redis, request.user_export_id)) === undefined) throw new ExportEnded();
    // First the users of all servers, then each kind of record.
    const kindCount = statements('', '').length;
    for (let kind = 0; kind < kindCount; kind++) {
      for (const { client, tables, reached } of parts) {
        const query = statements(reached, tables.users)[kind] as string;
        for await (const lines of readLines(client, query, `${names}_${kind}`, signal))
          yield { ...lines, records: kind === 0 ? 0 : lines.count };
        // A restart of ClickHouse empties the tables, and then no rows would be found.
        await assertIntact(client, tables);
      }
    }
    await refreshShardTable(redis, servers);
    // Some rows may be missing if a shard was moved while its server was read.
    if (JSON.stringify(servers.table()) !== JSON.stringify(table))
      throw new Error('rows were moved to another ClickHouse server meanwhile');
  } finally {
    stopEnding();
    await endDownload(clickhouse, names);
  }
}

type Part = { readonly client: ClickHouseClient; readonly tables: RoundTables; readonly reached: string };

/** Creates the tables and resolves the named users to merged ones. */
async function createTables(
  clickhouse: ClickHouseClient,
  names: string,
  { user_export_id: deletion_request_id, account_id, fences, targets }: StoredExport,
  appIds: readonly string[],
): Promise<RoundTables> {
  const tables = await createRoundTables(
    clickhouse,
    '',
    fences.length,
    [{ deletion_request_id, account_id, fences, resolved: false }],
    appIds.map((app_id) => ({ app_id, account_id })),
    names,
  );
  await nameUsers(clickhouse, tables, targets);
  await resolveAlone(clickhouse, tables);
  return tables;
}

function readLines(
  clickhouse: ClickHouseClient,
  query: string,
  queryId: string,
  signal: AbortSignal,
): AsyncGenerator<Lines> {
  return streamLines(clickhouse, {
    query,
    query_id: queryId,
    abort_signal: signal,
    clickhouse_settings: {
      date_time_output_format: 'iso',
      // The reader decides how long it takes, within the limits of a download.
      max_execution_time: 0,
    },
  });
}

/**
 * The statements of an export, with the predicate of a deletion's mutations. `users`: the table of the found users. The first statement is
 * of them, since rows do not show which users are merged: a row may match by its identity although its user_id is merged with another
 * identity.
 */
function statements(reached: string, users: string): readonly string[] {
  const merged = `SELECT 'user' AS kind, app_id, merged_identity AS identity, arrayMap(id -> toString(id), arraySort(groupUniqArray(assumeNotNull(user_id)))) AS user_ids
    FROM ${users} WHERE app_id != '' AND user_id IS NOT NULL GROUP BY app_id, merged_identity`;
  // The tables that say most about a user come first, however many events follow.
  const ofTables = recordTables.toReversed().map((table) => {
    const described: Readonly<Record<string, ColumnType>> = recordColumns[table];
    const columns = [...Object.keys(described), 'received_at'];
    const shown = columns.map((column) => (column === 'user_id' ? 'toString(r.user_id) AS user_id' : column));
    return `SELECT '${exportedKinds[table].kind}' AS kind, ${shown.join(', ')}
      FROM (SELECT ${columns.join(', ')} FROM ${storedTable(table)} WHERE ${reached}) AS r`;
  });
  const failed = `SELECT 'failed_record' AS kind, app_id, toString(r.user_id) AS user_id, identity, table_name AS table,
      ${columnsByVersion()} AS columns, row, failed_at
    FROM (SELECT app_id, user_id, identity, table_name, row, failed_at FROM failed_events WHERE ${reached}) AS r`;
  // The failed rows come first: one that is retried during the export may then be in two lines, but never in none.
  return [merged, failed, ...ofTables];
}

/** The column names of the values in a failed row's text, by the version of its table. */
function columnsByVersion(): string {
  const versions = recordTables.flatMap((table) => {
    const count = 1 + (earlierColumns[table]?.length ?? 0);
    return Array.from({ length: count }, (_, index) => (index === 0 ? table : `${table}.${index + 1}`));
  }) as TableVersion[];
  const listOf = (version: TableVersion) =>
    `[${columnsOf(version)
      .map((column) => `'${column}'`)
      .join(', ')}]`;
  const cases = versions.map((version) => `table_name = '${version}', ${listOf(version)}`);
  return `multiIf(${cases.join(', ')}, CAST([], 'Array(String)'))`;
}
