// GET /health/live and /health/ready. Ready means that a record sent now would be accepted, of some environments
// at least; ClickHouse being away does not change that until the backlog is full.

import { type Route, withoutBody } from './server.js';

/** Whether the process can take records, and what is missing for all of them. */
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
