// Queries about users whose names must not be in the statement, since statements are logged: the names are sent beside it, as a table in
// ClickHouse's memory for this query alone. So a query about users is a single statement, which any replica answers.

import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { type Question, readRows, readRowsInTime, streamLines } from './answers.js';
import type { ClickHouseClient } from './client.js';

export type NamedUsers = { readonly identities: readonly string[]; readonly userIds: readonly string[] };

/** The name of that table in queries: a row has an identity or a user_id; the other one is empty or null. */
export const namedUsers = 'named_users';

export type AskOptions = {
  readonly params?: Readonly<Record<string, unknown>>;
  /** The query is ended when it takes longer. */
  readonly secondsMax?: number;
};

export function askAbout<Row>(
  client: ClickHouseClient,
  users: NamedUsers,
  query: string,
  options: AskOptions = {},
): Promise<Row[]> {
  return readRows<Row>(client, questionAbout(users, query, options));
}

/** Settles with what is found within so many seconds, for show only: see `readRowsInTime`. */
export function askInTime<Row>(
  client: ClickHouseClient,
  users: NamedUsers,
  query: string,
  { secondsMax, ...options }: AskOptions & { readonly secondsMax: number },
): Promise<Row[]> {
  return readRowsInTime<Row>(client, questionAbout(users, query, options), secondsMax);
}

/** Yields the rows of such a query as they arrive, since they may be millions. They are valid once it has ended, as in `streamRows`. */
export async function* askInPieces<Row>(
  client: ClickHouseClient,
  users: NamedUsers,
  query: string,
  options: AskOptions,
): AsyncGenerator<Row[]> {
  for await (const { bytes } of streamLines(client, questionAbout(users, query, options))) {
    const lines = bytes.toString('utf8').split('\n');
    yield lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Row);
    // Pieces that have already arrived would otherwise be yielded without a pause for other work.
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function questionAbout(
  { identities, userIds }: NamedUsers,
  query: string,
  { params = {}, secondsMax }: AskOptions,
): Question {
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
  return {
    query,
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
  };
}
