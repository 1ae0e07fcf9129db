// Requests to the embedded ClickHouse, sent as programs other than the official client do.

import { type ClickHouseHandle, type ClickHouseUser, credentials } from '../harness/clickhouse.js';

/** Runs until it is killed, and uses no CPU. */
export const longStatement =
  'SELECT sleepEachRow(0.05) FROM numbers(100000) SETTINGS max_block_size = 1, max_threads = 1';

export type Question = {
  /** The user, `tester` by default; null sends none. */
  readonly as?: ClickHouseUser | null;
  readonly parameters?: Readonly<Record<string, string>>;
  readonly body?: string;
};

/** Sends a statement in the body, or data for the statement in `parameters.query`; settles with the answer. */
export async function ask(server: ClickHouseHandle, { as, parameters, body = '' }: Question) {
  const user = as === undefined ? server.tester : as;
  const response = await fetch(`${server.origin}/?${new URLSearchParams(parameters)}`, {
    method: 'POST',
    headers: { connection: 'close', ...(user === null ? {} : credentials(user)) },
    body,
  });
  const exceptionCode = response.headers.get('x-clickhouse-exception-code') ?? undefined;
  const { status, headers } = response;
  return { status, headers, body: await response.text(), exceptionCode };
}

/** How many statements with this id are running. */
export async function running(server: ClickHouseHandle, queryId: string): Promise<number> {
  const body = 'SELECT count() FROM system.processes WHERE query_id = {id:String}';
  return Number((await ask(server, { parameters: { param_id: queryId }, body })).body);
}
