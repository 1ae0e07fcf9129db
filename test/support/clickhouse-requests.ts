// Requests to the embedded ClickHouse, sent as programs other than the official client do.

import assert from 'node:assert/strict';
import { type IncomingMessage, request } from 'node:http';
import { type ClickHouseHandle, type ClickHouseUser, credentials } from '../harness/clickhouse.js';

/** Runs until it is killed, and uses no CPU. */
export const longStatement =
  'SELECT sleepEachRow(0.05) FROM numbers(100000) SETTINGS max_block_size = 1, max_threads = 1';

export type Question = {
  /** The user, `tester` by default; null sends none. */
  readonly as?: ClickHouseUser | null;
  readonly parameters?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
};

export type Reply = {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly bytes: Buffer;
  readonly body: string;
  readonly exceptionCode: string | undefined;
  /** False if the connection broke before the end. */
  readonly isComplete: boolean;
};

/** Sends a statement in the body, or data for the statement in `parameters.query`; settles with the whole answer. */
export async function ask(server: ClickHouseHandle, question: Question): Promise<Reply> {
  const response = await begin(server, question).response;
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of response) chunks.push(chunk as Buffer);
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ECONNRESET');
  }
  const bytes = Buffer.concat(chunks);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    bytes,
    body: bytes.toString(),
    exceptionCode: response.headers['x-clickhouse-exception-code'] as string | undefined,
    isComplete: response.complete,
  };
}

/** Like `ask`, but `response` settles with the head of the answer before its body is read. */
export function begin(server: ClickHouseHandle, { as, parameters, headers, body }: Question) {
  const user = as === undefined ? server.tester : as;
  const outgoing = request(`${server.origin}/?${new URLSearchParams(parameters)}`, {
    method: 'POST',
    headers: { Connection: 'close', ...(user === null ? {} : credentials(user)), ...headers },
  });
  const response = new Promise<IncomingMessage>((settle, reject) => {
    outgoing.once('response', settle);
    outgoing.once('error', reject);
  });
  response.catch(() => undefined); // A test that destroys the request does not wait for its answer.
  outgoing.end(body);
  return { outgoing, response };
}

/** How many statements with this id are running. */
export async function running(server: ClickHouseHandle, queryId: string): Promise<number> {
  const body = 'SELECT count() FROM system.processes WHERE query_id = {id:String}';
  return Number((await ask(server, { parameters: { param_id: queryId }, body })).body);
}
