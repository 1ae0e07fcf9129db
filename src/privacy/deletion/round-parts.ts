// A round on several ClickHouse servers: each server that has environments of the round's accounts has tables of the round for
// those. The home, which always takes part, has the targets, and gets what the others find and count; so everything about
// a request as a whole is computed there. With one server, a round has only this part.

import { Readable } from 'node:stream';
import { type Lines, streamLines } from '../../clickhouse/answers.js';
import { type ClickHouseClient, drain } from '../../clickhouse/client.js';
import { byServer } from '../../registry/shard-servers.js';
import {
  assertIntact,
  createRoundTables,
  noteSizes,
  type RoundEnvironment,
  type RoundRequest,
  type RoundTables,
} from './round-tables.js';

/** What one server has of a round. */
export type RoundPart = {
  readonly client: ClickHouseClient;
  readonly tables: RoundTables;
  /** The environments of the round whose rows it has. */
  readonly appIds: ReadonlySet<string>;
};

export type RoundParts = {
  readonly home: RoundPart;
  /** All parts, the home first. */
  readonly all: readonly RoundPart[];
};

/** Makes the tables of a round on the servers that have its environments. The users that requests name are at the home only. */
export async function createParts(
  home: ClickHouseClient,
  round: string,
  requests: readonly RoundRequest[],
  environments: readonly RoundEnvironment[],
  prefix?: string,
): Promise<RoundParts> {
  const environmentOf = new Map(environments.map((environment) => [environment.appId, environment]));
  const part = async (client: ClickHouseClient, appIds: readonly string[]): Promise<RoundPart> => {
    const here = appIds.flatMap((appId) => environmentOf.get(appId) ?? []);
    const tables = await createRoundTables(client, round, requests, here, prefix);
    return { client, tables, appIds: new Set(appIds) };
  };
  const divided = byServer(home, [...environmentOf.keys()]);
  const atHome = divided.find(([client]) => client === home)?.[1] ?? [];
  const homePart = await part(home, atHome);
  const others: RoundPart[] = [];
  for (const [client, appIds] of divided) if (client !== home) others.push(await part(client, appIds));
  return { home: homePart, all: [homePart, ...others] };
}

/** Gives the other parts the users that the requests name, and the ones that an interrupted round had found. */
export async function distributeUsers({ home, all }: RoundParts): Promise<void> {
  for (const part of all) if (part !== home) await copyRows(home, part, 'users');
}

/** Adds the users that the other parts have found for some requests to the home's part, which has found its own. */
export async function gatherUsers({ home, all }: RoundParts, requests: readonly number[]): Promise<void> {
  if (requests.length === 0) return;
  const found = `app_id != '' AND request IN (${requests.join(', ')})`;
  for (const part of all) if (part !== home) await copyRows(part, home, 'users', found);
}

/** Adds what the other parts have counted to what the home has. */
export async function gatherCounts({ home, all }: RoundParts, table: 'reached' | 'alike'): Promise<void> {
  for (const part of all) if (part !== home) await copyRows(part, home, table);
}

/** Copies rows of a table of the round to the same table of another part. */
async function copyRows(
  from: RoundPart,
  to: RoundPart,
  name: 'users' | 'reached' | 'alike',
  condition = '1',
): Promise<void> {
  const table = from.tables[name];
  const lines = streamLines(from.client, { query: `SELECT DISTINCT * FROM ${table} WHERE ${condition}` });
  // If an answer is cut off, so is the insert, and it fails.
  const inserted = await to.client.exec({
    query: `INSERT INTO ${table} FORMAT JSONEachRow`,
    values: Readable.from(bytesOf(lines)),
    clickhouse_settings: { async_insert: 0 },
  });
  await drain(inserted.stream);
  await noteSizes(to.client, to.tables, [table]);
  await assertIntact(from.client, from.tables);
}

async function* bytesOf(lines: AsyncIterable<Lines>): AsyncGenerator<Buffer> {
  for await (const { bytes } of lines) yield bytes;
}
