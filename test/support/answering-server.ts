// A server in place of the service, for tests of what a client sends, when, and after which answer. It keeps the requests and answers
// as the test says.

import type { IncomingHttpHeaders } from 'node:http';
import { gunzipSync } from 'node:zlib';
import { bodyServer, listen } from '../harness/listen.js';

export type Arrived = {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** The parsed JSON. */
  readonly body: {
    readonly app_id?: string;
    readonly events?: readonly { readonly [field: string]: unknown }[];
    readonly users?: readonly { readonly [field: string]: unknown }[];
  };
  readonly atMs: number;
};

export type ToAnswer = {
  readonly status: number;
  readonly body?: object | string;
  readonly headers?: Readonly<Record<string, string>>;
};

export type AnsweringServer = {
  readonly baseUrl: string;
  readonly arrived: Arrived[];
  /** Returns the answer to each complete request; 200 `{}` by default. */
  answer: (request: Arrived) => ToAnswer | Promise<ToAnswer>;
  close(): void;
};

export async function startAnsweringServer(): Promise<AnsweringServer> {
  const arrived: Arrived[] = [];
  const server = bodyServer(async (request, reply, bytes) => {
    const { url = '', headers } = request;
    const text = headers['content-encoding'] === 'gzip' ? gunzipSync(bytes) : bytes;
    const one = { path: url, headers, body: JSON.parse(text.toString() || '{}'), atMs: performance.now() };
    arrived.push(one);
    const { status, body = {}, headers: more = {} } = await handle.answer(one);
    reply.writeHead(status, more).end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  const { url, stop } = await listen(server);
  const handle: AnsweringServer = {
    baseUrl: url,
    arrived,
    answer: () => ({ status: 200 }),
    close: stop,
  };
  return handle;
}
