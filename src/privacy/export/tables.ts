// What a download uses in ClickHouse while it runs: tables in memory that name users, as in a deletion round, and queries. The names of
// both contain the export's id, so a process that ends the export finds them, even after the downloading process was killed.

import { setTimeout } from 'node:timers/promises';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { reachableClients } from '../../clickhouse/servers.js';
import { succeeds } from '../../wait.js';
import { dropTables } from '../deletion/round-tables.js';

const prefix = 'user_export_';

/** The prefix of an export's table names and query ids; without an id, the prefix of all exports. */
export function exportPrefix(exportId = ''): string {
  return `${prefix}${exportId.replaceAll('-', '')}`;
}

/**
 * Ends the reading of exports on all servers, by their `exportPrefix`. If a server cannot be reached, its tables are lost with its
 * restart or are dropped later by the workers' upkeep; a reader notices that its server is disconnected.
 */
export async function endReadingEverywhere(
  clickhouse: ClickHouseClient,
  prefixes: readonly string[],
): Promise<void> {
  if (prefixes.length === 0) return;
  for (const [, client] of await reachableClients(clickhouse)) await endReading(client, prefixes);
}

/**
 * Ends the reading of one download. If ClickHouse fails, this is repeated in the background; the workers' upkeep drops what is left after
 * two minutes.
 */
export async function endDownload(clickhouse: ClickHouseClient, namePrefix: string): Promise<void> {
  const end = () => endReadingEverywhere(clickhouse, [namePrefix]);
  const repeat = async () => {
    for (let waitMs = 500; waitMs <= 64_000; waitMs *= 2) {
      await setTimeout(waitMs, undefined, { ref: false });
      if (await succeeds(end())) return;
    }
  };
  if (!(await succeeds(end()))) void repeat();
}

/**
 * Drops the tables of exports and ends their queries. No later query can use a table that is being dropped, but the drop waits for earlier
 * ones, and a slow reader takes minutes. So queries are ended while the drop waits, and once more afterwards.
 */
async function endReading(client: ClickHouseClient, prefixes: readonly string[]): Promise<void> {
  const dropped = new AbortController();
  const dropping = dropTables(client, prefixes).finally(() => dropped.abort());
  const ending = async () => {
    while (!dropped.signal.aborted) {
      await endQueries(client, prefixes);
      await setTimeout(endAgainMs, undefined, { signal: dropped.signal }).catch(() => undefined);
    }
    await endQueries(client, prefixes);
  };
  await Promise.all([dropping, ending()]);
}

const endAgainMs = 200;

async function endQueries(client: ClickHouseClient, prefixes: readonly string[]): Promise<void> {
  await client.command({
    query: `KILL QUERY WHERE startsWith(query_id, '${prefix}')
      AND arrayExists(begin -> startsWith(query_id, begin), {prefixes:Array(String)}) ASYNC`,
    query_params: { prefixes },
  });
}
