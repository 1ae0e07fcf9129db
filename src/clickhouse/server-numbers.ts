// Each of several servers knows its number and the deployment's first server, so that a server that CLICKHOUSE_URL names at
// another place than before, twice, or by mistake, is noticed before anything is stored on it or counted there.

import { randomBytes } from 'node:crypto';
import { type ClickHouseClient, codeOfFault, faultCodes } from './client.js';
import { MigrationError } from './migration-error.js';

export type ServerNumber = { readonly number: number; readonly deployment: string };

/** Numbers the servers that have no number yet. Rejects with MigrationError if one has another number than its place. */
export async function numberServers(clients: readonly ClickHouseClient[]): Promise<void> {
  let deployment: string | undefined;
  for (const [place, client] of clients.entries()) {
    await client.command({
      query: `CREATE TABLE IF NOT EXISTS server_number (number UInt16, deployment String)
        ENGINE = MergeTree ORDER BY number SETTINGS fsync_after_insert = 1`,
    });
    const noted = await readServerNumber(client);
    if (noted === undefined) {
      deployment ??= randomBytes(16).toString('hex');
      await note(client, { number: place, deployment });
      continue;
    }
    deployment ??= noted.deployment;
    const misfit = misfitOf(place, noted, deployment);
    if (misfit !== undefined) throw new MigrationError(misfit);
  }
}

/** Why a server is not the one of its place, as it says itself; undefined if it is. */
export function misfitOf(
  place: number,
  noted: ServerNumber | undefined,
  deployment: string | undefined,
): string | undefined {
  const it = `server ${place} of CLICKHOUSE_URL (from 0)`;
  if (noted === undefined) return `${it} has no number: run "npm run migrate" with all servers`;
  if (deployment !== undefined && noted.deployment !== deployment)
    return `${it} belongs to another deployment than the first one`;
  if (Number(noted.number) !== place)
    return `${it} is server ${Number(noted.number)} of this deployment: keep the order of the servers, and name each once`;
  return undefined;
}

/** Undefined if the server has none. */
export async function readServerNumber(
  client: Pick<ClickHouseClient, 'query'>,
  signal?: AbortSignal,
): Promise<ServerNumber | undefined> {
  try {
    const result = await client.query({
      query: 'SELECT number, deployment FROM server_number LIMIT 1',
      format: 'JSONEachRow',
      ...(signal !== undefined && { abort_signal: signal }),
    });
    const [row] = await result.json<ServerNumber>();
    return row;
  } catch (error) {
    if (codeOfFault(error) === faultCodes.unknownTable) return undefined;
    throw error;
  }
}

async function note(client: ClickHouseClient, number: ServerNumber): Promise<void> {
  await client.insert({
    table: 'server_number',
    values: [number],
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
}
