// What a worker reports over HTTP when WORKER_ADMIN_PORT is set: liveness, readiness and its metrics. On one host an API process
// reports the metrics too, from what the workers leave in Redis; in containers only the worker can. No records pass through here, so
// Node's own server suffices.

import { createServer, type ServerResponse } from 'node:http';

export type HealthOptions = {
  readonly host: string;
  readonly port: number;
  /** Names what is missing; empty if the worker works. */
  readonly missing: () => readonly string[];
  /** The metrics in Prometheus's text format. */
  readonly metrics: () => Promise<string>;
};

export class PortTaken extends Error {}

/** Settles once the server listens, with a function that stops it. Rejects with PortTaken if it cannot listen. */
export async function serveHealth(options: HealthOptions): Promise<() => void> {
  const { host, port } = options;
  const server = createServer((request, response) => {
    answer(options, request.method ?? '', request.url ?? '', response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', () =>
      reject(new PortTaken(`WORKER_ADMIN_PORT: cannot listen on ${host}:${port}; is it in use?`)),
    );
    server.listen(port, host, resolve);
  });
  return () => {
    server.close();
    server.closeAllConnections();
  };
}

async function answer(
  options: HealthOptions,
  method: string,
  path: string,
  response: ServerResponse,
): Promise<void> {
  const reply = (status: number, body: string, type = 'application/json') =>
    response.writeHead(status, { 'Content-Type': type }).end(body);
  if (method !== 'GET') return void reply(405, '{}');
  if (path === '/health/live') return void reply(200, '{"live":true}');
  if (path === '/health/ready') {
    const missing = options.missing();
    return void reply(
      missing.length === 0 ? 200 : 503,
      JSON.stringify({ ready: missing.length === 0, missing }),
    );
  }
  if (path === '/metrics') {
    return void reply(200, await options.metrics(), 'text/plain; version=0.0.4; charset=utf-8');
  }
  reply(404, '{}');
}
