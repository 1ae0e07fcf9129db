// Asks about users whom a query must not name, since texts of statements are logged: their names travel beside the statement, as a
// table of that query alone, in ClickHouse's memory. So a query about users is one statement, which any replica answers.

import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import type { ClickHouseClient } from './client.js';

export type NamedUsers = { readonly identities: readonly string[]; readonly userIds: readonly string[] };

/** What a query calls the table of its users: a row has an identity or a user_id, the other one is empty or null. */
export const namedUsers = 'named_users';

export type AskOptions = {
  readonly params?: Readonly<Record<string, unknown>>;
  /** The query is given up when it takes longer. */
  readonly secondsMax?: number;
};

/** Settles with the rows of a query that reads `namedUsers`. */
export async function askAbout<Row>(
  client: ClickHouseClient,
  users: NamedUsers,
  query: string,
  options: AskOptions = {},
): Promise<Row[]> {
  const all: Row[] = [];
  for await (const rows of askInPieces<Row>(client, users, query, options))
    for (const row of rows) all.push(row);
  return all;
}

/** The rows of such a query as they come, if they may be millions. */
export async function* askInPieces<Row>(
  client: ClickHouseClient,
  { identities, userIds }: NamedUsers,
  query: string,
  { params = {}, secondsMax }: AskOptions = {},
): AsyncGenerator<Row[]> {
  const rows = [
    ...identities.map((identity) => ({ identity, user_id: null })),
    ...userIds.map((user_id) => ({ identity: '', user_id })),
  ];
  const boundary = randomBytes(24).toString('hex');
  const body = [
    `--${boundary}\r\nContent-Disposition: form-data; name="${namedUsers}"; filename="${namedUsers}"\r\n\r\n`,
    ...rows.map((row) => `${JSON.stringify(row)}\n`),
    `\r\n--${boundary}--\r\n`,
  ].join('');
  const { stream } = await client.exec({
    query: `${query} FORMAT JSONEachRow`,
    query_params: { ...params },
    values: Readable.from([body]),
    http_headers: { 'Content-Type': `multipart/form-data; boundary=${boundary}` },
    clickhouse_settings: {
      ...({
        [`${namedUsers}_structure`]: 'identity String, user_id Nullable(UInt64)',
        [`${namedUsers}_format`]: 'JSONEachRow',
      } as object),
      ...(secondsMax === undefined ? {} : { max_execution_time: secondsMax }),
    },
  });
  const decoder = new StringDecoder('utf8');
  let begun = '';
  for await (const piece of stream) {
    const lines = (begun + decoder.write(piece as Buffer)).split('\n');
    begun = lines.pop() ?? '';
    const rows = rowsOf<Row>(lines);
    if (rows.length > 0) yield rows;
    // Pieces that are there already would come without a pause for others.
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (begun !== '') yield rowsOf<Row>([begun]);
}

function rowsOf<Row>(lines: readonly string[]): Row[] {
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Row);
}
