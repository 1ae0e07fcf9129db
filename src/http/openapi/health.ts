// The part of the OpenAPI document about health.

import { liveSchema, readySchema } from '../../contract/answers.js';
import { json, type OpenApiPart, ref } from './document.js';

export const healthPart: OpenApiPart = {
  tag: { name: 'Health', description: 'For load balancers and supervisors.' },
  schemas: { Live: liveSchema, Ready: readySchema },
  paths: {
    '/health/live': {
      get: {
        operationId: 'live',
        tags: ['Health'],
        summary: 'Whether the process answers',
        security: [{}],
        responses: {
          200: {
            description: 'It does.',
            content: json(ref('Live'), { live: { summary: 'Live', value: { live: true } } }),
          },
        },
      },
    },
    '/health/ready': {
      get: {
        operationId: 'ready',
        tags: ['Health'],
        summary: 'Whether a record sent now would be accepted',
        security: [{}],
        responses: {
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
      },
    },
  },
};
