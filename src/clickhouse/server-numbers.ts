// Each of several servers knows its number and the deployment's first server, so that a server that CLICKHOUSE_URL names at
// another place than before, twice, or by mistake, is noticed before anything is stored on it.

import { randomBytes } from 'node:crypto';
import type { ClickHouseClient } from './client.js';
import { MigrationError } from './migration-error.js';

type ServerNumber = { readonly number: number; readonly deployment: string };

/** Numbers the servers that have no number yet. Rejects with MigrationError if one has another number than its place. */
export async function numberServers(clients: readonly ClickHouseClient[]): Promise<void> {
  let deployment: string | undefined;
  for (const [number, client] of clients.entries()) {
    const noted = await read(client);
    if (noted === undefined) {
      deployment ??= randomBytes(16).toString('hex');
      await note(client, { number, deployment });
      continue;
    }
    deployment ??= noted.deployment;
    if (noted.deployment !== deployment)
      throw new MigrationError(
        `server ${number} of CLICKHOUSE_URL (from 0) belongs to another deployment than the first one`,
      );
    if (Number(noted.number) !== number)
      throw new MigrationError(
        `server ${number} of CLICKHOUSE_URL (from 0) is server ${Number(noted.number)} of this deployment: keep the order of the servers, and name each once`,
      );
  }
}

async function read(client: ClickHouseClient): Promise<ServerNumber | undefined> {
  await client.command({
    query: `CREATE TABLE IF NOT EXISTS server_number (number UInt16, deployment String)
      ENGINE = MergeTree ORDER BY number SETTINGS fsync_after_insert = 1`,
  });
  const result = await client.query({
    query: 'SELECT number, deployment FROM server_number LIMIT 1',
    format: 'JSONEachRow',
  });
  const [row] = await result.json<ServerNumber>();
  return row;
}

async function note(client: ClickHouseClient, number: ServerNumber): Promise<void> {
  await client.insert({
    table: 'server_number',
    values: [number],
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
}
