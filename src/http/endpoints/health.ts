// GET /health/live and /health/ready. Ready means that a record sent now would be accepted, at least for some
// environments. While ClickHouse is away that stays true until the backlog is full.

import { type Route, withoutBody } from '../protocol/server.js';

/** Whether the process can take records, and if it can take none, what is missing. */
export type Readiness = { readonly ready: boolean; readonly missing: readonly string[] };

export function healthRoutes(readiness: () => Readiness): Route[] {
  return [
    {
      method: 'get',
      path: '/health/live',
      handle: (exchange) => withoutBody(exchange).reply(200, '{"live":true}'),
    },
    {
      method: 'get',
      path: '/health/ready',
      handle: (exchange) => {
        const { ready, missing } = readiness();
        const body = JSON.stringify({ ready, missing });
        withoutBody(exchange).reply(ready ? 200 : 503, body);
      },
    },
  ];
}
