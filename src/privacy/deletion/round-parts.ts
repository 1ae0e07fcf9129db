// A round on several ClickHouse servers. Each server that has environments of the round's accounts has round tables for them. The primary
// server, which always takes part, has the targets and receives what the others find and count; so whatever concerns a whole request is
// computed there. With one server, a round has only the primary part.

import { Readable } from 'node:stream';
import { type Lines, streamLines } from '../../clickhouse/answers.js';
import { type ClickHouseClient, drain } from '../../clickhouse/client.js';
import { byServer } from '../../registry/shard-servers.js';
import type { FoundRows } from './request.js';
import { fillCounts, readFoundRows } from './round-counts.js';
import {
  assertIntact,
  createRoundTables,
  type RoundEnvironment,
  type RoundRequest,
  type RoundTables,
  recordSizes,
} from './round-tables.js';

export type RoundPart = {
  readonly client: ClickHouseClient;
  readonly tables: RoundTables;
  /** The environments of the round whose rows this server has. */
  readonly appIds: ReadonlySet<string>;
};

export type RoundParts = {
  readonly primary: RoundPart;
  /** All parts, the primary one first. */
  readonly all: readonly RoundPart[];
};

/** Creates the tables of a round on the servers that have its environments. Only the primary part has the named users at first. */
export async function createParts(
  primary: ClickHouseClient,
  round: string,
  shards: number,
  requests: readonly RoundRequest[],
  environments: readonly RoundEnvironment[],
  prefix?: string,
): Promise<RoundParts> {
  const environmentOf = new Map(environments.map((environment) => [environment.app_id, environment]));
  const part = async (client: ClickHouseClient, appIds: readonly string[]): Promise<RoundPart> => {
    const here = appIds.flatMap((appId) => environmentOf.get(appId) ?? []);
    const tables = await createRoundTables(client, round, shards, requests, here, prefix);
    return { client, tables, appIds: new Set(appIds) };
  };
  const divided = byServer(primary, [...environmentOf.keys()]);
  const onPrimary = divided.find(([client]) => client === primary)?.[1] ?? [];
  const first = await part(primary, onPrimary);
  const others: RoundPart[] = [];
  for (const [client, appIds] of divided) if (client !== primary) others.push(await part(client, appIds));
  return { primary: first, all: [first, ...others] };
}

/** Copies the named users, and those that an interrupted round had found, to the other parts. */
export async function distributeUsers({ primary, all }: RoundParts): Promise<void> {
  for (const part of all) if (part !== primary) await copyRows(primary, part, 'users');
}

/** Copies the users that the other parts have found for these requests to the primary part, which already has its own. */
export async function gatherUsers({ primary, all }: RoundParts, requests: readonly number[]): Promise<void> {
  if (requests.length === 0) return;
  const found = `app_id != '' AND request IN (${requests.join(', ')})`;
  for (const part of all) if (part !== primary) await copyRows(part, primary, 'users', found);
}

/**
 * Counts the rows that the requests delete, and finds the identities that look like a named one, on all servers. Settles with the rows by
 * environment and table, for each request.
 */
export async function countRows({
  primary,
  all,
}: RoundParts): Promise<ReadonlyMap<number, readonly FoundRows[]>> {
  for (const part of all) await fillCounts(part.client, part.tables);
  for (const part of all) {
    if (part === primary) continue;
    await copyRows(part, primary, 'reached');
    await copyRows(part, primary, 'alike');
  }
  return readFoundRows(primary.client, primary.tables);
}

/** Copies rows of one of the round's tables to the same table of another part. */
async function copyRows(
  from: RoundPart,
  to: RoundPart,
  name: 'users' | 'reached' | 'alike',
  condition = '1',
): Promise<void> {
  const table = from.tables[name];
  const lines = streamLines(from.client, { query: `SELECT DISTINCT * FROM ${table} WHERE ${condition}` });
  // If the answer breaks off, the insert is incomplete too and fails.
  const inserted = await to.client.exec({
    query: `INSERT INTO ${table} FORMAT JSONEachRow`,
    values: Readable.from(bytesOf(lines)),
  });
  await drain(inserted.stream);
  await recordSizes(to.client, to.tables, [table]);
  await assertIntact(from.client, from.tables);
}

async function* bytesOf(lines: AsyncIterable<Lines>): AsyncGenerator<Buffer> {
  for await (const { bytes } of lines) yield bytes;
}
