// Each of several servers knows its number and the deployment's first server. So a server that CLICKHOUSE_URL names at another
// place than before, twice, or by mistake is noticed before anything is stored or counted there.

import { randomBytes } from 'node:crypto';
import { type Answering, readRow, readRows } from './answers.js';
import { type ClickHouseClient, codeOfFault, faultCodes } from './client.js';
import { changeDefinition } from './definitions.js';
import { MigrationError } from './migration-error.js';

export type ServerNumber = { readonly number: number; readonly deployment: string };

/** Numbers the servers that have no number yet. Rejects with MigrationError if one has another number than its place. */
export async function numberServers(clients: readonly ClickHouseClient[]): Promise<void> {
  const noted: (ServerNumber | undefined)[] = [];
  for (const client of clients) {
    await changeDefinition(
      client,
      ['server_number'],
      `CREATE TABLE IF NOT EXISTS server_number (number UInt16, deployment String)
        ENGINE = MergeTree ORDER BY number SETTINGS fsync_after_insert = 1`,
    );
    noted.push(await readServerNumber(client));
  }
  // The first server may be a new one in the place of one that is lost.
  const deployment = noted.find((each) => each !== undefined)?.deployment ?? randomBytes(16).toString('hex');
  for (const [place, number] of noted.entries()) {
    const misconfiguration = number === undefined ? undefined : misconfigurationOf(place, number, deployment);
    if (misconfiguration !== undefined) throw new MigrationError(misconfiguration);
  }
  for (const [place, client] of clients.entries())
    if (noted[place] === undefined) await note(client, { number: place, deployment });
}

/** Why a server is not the one of its place, as it says itself; undefined if it is. */
export function misconfigurationOf(
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

/** Why a home is another deployment's than the one of Redis, as far as both are known. */
export function foreignOf(epoch: string | undefined, inRedis: string | undefined): string | undefined {
  const isKnown = epoch !== undefined && inRedis !== undefined;
  return isKnown && epoch !== inRedis ? notOfRedis(0) : undefined;
}

export function notOfRedis(place: number): string {
  return `server ${place} of CLICKHOUSE_URL (from 0) belongs to another deployment than Redis`;
}

/** The epoch of the deployment whose registry a home has; undefined if it has none. */
export async function readEpoch(client: Answering, signal: AbortSignal): Promise<string | undefined> {
  const { epoch } = await readRow<{ epoch: string }>(client, {
    query: `SELECT JSONExtractString(argMax(registry.document, (registry.version, written_at)), 'epoch') AS epoch
      FROM registry WHERE document_key = 'deployment:'`,
    abort_signal: signal,
  });
  return epoch === '' ? undefined : epoch;
}

/** Undefined if the server has none. */
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

async function note(client: ClickHouseClient, number: ServerNumber): Promise<void> {
  await client.insert({
    table: 'server_number',
    values: [number],
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0 },
  });
}
