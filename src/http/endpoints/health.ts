// GET /health/live and /health/ready. Ready means that a record sent now would be accepted, at least for some environments. While
// ClickHouse is away, the process stays ready until the backlog is full.

import { liveSchema, readySchema } from '../../contract/answers.js';
import { documents, json, type OpenApiPart, ref } from '../openapi/document.js';
import { type Route, withHead } from '../protocol/server.js';

/** Whether the process can take records, and what is missing if it cannot. */
export type Readiness = { readonly ready: boolean; readonly missing: readonly string[] };

const tag = 'Health';
const documented = documents(tag);

export const healthPart: OpenApiPart = {
  tag: { name: tag, description: 'For load balancers and supervisors.' },
  schemas: { Live: liveSchema, Ready: readySchema },
};

export function healthRoutes(readiness: () => Readiness): Route[] {
  return [
    ...withHead({
      path: '/health/live',
      handle: (exchange) => exchange.dropBody().reply(200, '{"live":true}'),
      doc: documented({
        id: 'live',
        summary: 'Whether the process answers',
        answers: {
          200: {
            description: 'It does.',
            content: json(ref('Live'), { live: { summary: 'Live', value: { live: true } } }),
          },
        },
      }),
    }),
    ...withHead({
      path: '/health/ready',
      handle: (exchange) => {
        const { ready, missing } = readiness();
        const body = JSON.stringify({ ready, missing });
        exchange.dropBody().reply(ready ? 200 : 503, body);
      },
      doc: documented({
        id: 'ready',
        summary: 'Whether a record sent now would be accepted',
        answers: {
          200: {
            description: 'It would.',
            content: json(ref('Ready'), { ready: { summary: 'Ready', value: { ready: true, missing: [] } } }),
          },
          503: {
            description: 'Something is missing.',
            content: json(ref('Ready'), {
              missing: { summary: 'Redis is away', value: { ready: false, missing: ['redis'] } },
            }),
          },
        },
      }),
    }),
  ];
}
