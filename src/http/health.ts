// GET /health/live and /health/ready. Ready means that a record sent now would be accepted; ClickHouse being
// away does not change that until the backlog is full.

import { Exchange } from './exchange.js';
import { type Route, withoutBody } from './server.js';

/** Names what is missing; empty when the process can take records. */
export type Readiness = () => string[];

export function healthRoutes(missing: Readiness): Route[] {
  return [
    {
      method: 'get',
      path: '/health/live',
      handle: (res, req) => withoutBody(new Exchange(res, req)).reply(200, '{"live":true}'),
    },
    {
      method: 'get',
      path: '/health/ready',
      handle: (res, req) => {
        const lacking = missing();
        const body = JSON.stringify({ ready: lacking.length === 0, missing: lacking });
        withoutBody(new Exchange(res, req)).reply(lacking.length === 0 ? 200 : 503, body);
      },
    },
  ];
}
