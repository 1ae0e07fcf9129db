// What a download uses in ClickHouse while it runs: tables in memory that name users, as in a round of deletions, and its
// queries. Both carry the export's id, so any process that ends the export finds them, even after the downloading process was killed.

import { setTimeout } from 'node:timers/promises';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { endLong } from '../../clickhouse/long-statement.js';
import { dropScratch, listScratch } from '../../clickhouse/scratch.js';
import { reachableServers, serversOf } from '../../clickhouse/servers.js';

const prefix = 'user_export_';

/** Begins the names of the tables, and the ids of the queries, of an export; of all exports without an id. */
export function exportPrefix(exportId = ''): string {
  return `${prefix}${exportId.replaceAll('-', '')}`;
}

/**
 * Ends the reading of exports on all servers, by the beginnings of their names. A server of several that is away lost its tables,
 * or the upkeep of workers drops them when it is back; a reader notices when its server is cut off.
 */
export async function endReadingEverywhere(
  clickhouse: ClickHouseClient,
  names: readonly string[],
): Promise<void> {
  if (names.length === 0) return;
  const servers = serversOf(clickhouse);
  const there = await reachableServers(servers);
  for (const [number, client] of servers.all.entries()) {
    if (there.has(number)) await endReading(client, names);
  }
}

/**
 * The same at the end of a download. If ClickHouse fails meanwhile, it is repeated in the background; what is left after two
 * minutes is dropped by the upkeep of workers.
 */
export async function endDownload(clickhouse: ClickHouseClient, names: string): Promise<void> {
  const end = () => endReadingEverywhere(clickhouse, [names]);
  const repeat = async () => {
    for (let waitMs = 500; waitMs <= 64_000; waitMs *= 2) {
      await setTimeout(waitMs, undefined, { ref: false });
      if (await isDone(end())) return;
    }
  };
  if (!(await isDone(end()))) void repeat();
}

function isDone(work: Promise<void>): Promise<boolean> {
  return work.then(
    () => true,
    () => false,
  );
}

/**
 * Drops the tables of exports and ends their queries. A table that is being dropped is found by no later query, but is there
 * until the earlier ones have ended, and a slow reader takes minutes. So they are ended meanwhile, and once more afterwards.
 */
async function endReading(client: ClickHouseClient, names: readonly string[]): Promise<void> {
  const dropped = new AbortController();
  const dropping = dropExportTables(client, names, 0).finally(() => dropped.abort());
  const ending = async () => {
    while (!dropped.signal.aborted) {
      await endQueries(client, names);
      await setTimeout(endAgainMs, undefined, { signal: dropped.signal }).catch(() => undefined);
    }
    await endQueries(client, names);
  };
  await Promise.all([dropping, ending()]);
}

const endAgainMs = 200;

async function endQueries(client: ClickHouseClient, names: readonly string[]): Promise<void> {
  await client.command({
    query: `KILL QUERY WHERE startsWith(query_id, '${prefix}')
      AND arrayExists(begin -> startsWith(query_id, begin), {names:Array(String)}) ASYNC`,
    query_params: { names },
  });
}

/** Drops tables by the beginning of their names that are at least so old. */
export async function dropExportTables(
  client: ClickHouseClient,
  names: readonly string[],
  ageSecondsMin: number,
): Promise<void> {
  const found = await listScratch(client, prefix, ageSecondsMin);
  const tables = found.filter((table) => names.some((begin) => table.includes(`.${begin}`)));
  // A table would wait for a statement that fills it, or from which it is filled.
  await endLong(client, tables);
  for (const name of tables) await dropScratch(client, name);
}
