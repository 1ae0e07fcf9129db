// Each of several servers stores its number and an id of the deployment. So a server that CLICKHOUSE_URL names in another position
// than before, twice, or by mistake is noticed before anything is stored or counted there.

import { randomBytes } from 'node:crypto';
import { type Answering, readRow, readRows } from './answers.js';
import { type ClickHouseClient, codeOfFault, faultCodes, insertRows } from './client.js';
import { createUnlessThere, MigrationError } from './definitions.js';
import { databaseOf } from './replication.js';

export type ServerNumber = { readonly number: number; readonly deployment: string };

/** Numbers the servers that have no number yet. Rejects with MigrationError if one has another number than its index. */
export async function numberServers(clients: readonly ClickHouseClient[]): Promise<void> {
  const stored: (ServerNumber | undefined)[] = [];
  for (const client of clients) {
    await createUnlessThere(
      client,
      `${databaseOf(client)}.server_number`,
      `CREATE TABLE IF NOT EXISTS server_number (number UInt16, deployment String)
        ENGINE = MergeTree ORDER BY number SETTINGS fsync_after_insert = 1`,
    );
    stored.push(await readServerNumber(client));
  }
  // The first server may be a new one that replaces a lost one.
  const deployment = stored.find((each) => each !== undefined)?.deployment ?? randomBytes(16).toString('hex');
  for (const [index, number] of stored.entries()) {
    const misconfiguration = number === undefined ? undefined : misconfigurationOf(index, number, deployment);
    if (misconfiguration !== undefined) throw new MigrationError(misconfiguration);
  }
  for (const [index, client] of clients.entries())
    if (stored[index] === undefined)
      await insertRows(client, 'server_number', [{ number: index, deployment } satisfies ServerNumber]);
}

/** Why a server is not the one that belongs at its index, by the number that it has stored; undefined if it is. */
export function misconfigurationOf(
  index: number,
  stored: ServerNumber | undefined,
  deployment: string | undefined,
): string | undefined {
  const server = `server ${index} of CLICKHOUSE_URL (from 0)`;
  if (stored === undefined) return `${server} has no number: run "npm run migrate" with all servers`;
  if (deployment !== undefined && stored.deployment !== deployment)
    return `${server} belongs to another deployment than the first one`;
  if (Number(stored.number) !== index)
    return `${server} is server ${Number(stored.number)} of this deployment: keep the order of the servers, and name each once`;
  return undefined;
}

export function notOfRedis(index: number): string {
  return `server ${index} of CLICKHOUSE_URL (from 0) belongs to another deployment than Redis`;
}

/** The epoch of the deployment whose registry the primary server has; undefined if it has none. */
export async function readEpoch(client: Answering, signal: AbortSignal): Promise<string | undefined> {
  const { epoch } = await readRow<{ epoch: string }>(client, {
    query: `SELECT JSONExtractString(argMax(registry.document, (registry.version, written_at)), 'epoch') AS epoch
      FROM registry WHERE document_key = 'deployment:'`,
    abort_signal: signal,
  });
  return epoch === '' ? undefined : epoch;
}

/** The number that a server has stored; undefined if it has none. */
export async function readServerNumber(
  client: Answering,
  signal?: AbortSignal,
): Promise<ServerNumber | undefined> {
  try {
    const [row] = await readRows<ServerNumber>(client, {
      query: 'SELECT number, deployment FROM server_number LIMIT 1',
      ...(signal !== undefined && { abort_signal: signal }),
    });
    return row;
  } catch (error) {
    if (codeOfFault(error) === faultCodes.unknownTable) return undefined;
    throw error;
  }
}
