// The answer to a request without the right credentials: 401, the same at all endpoints.

import type { Rejection } from '../../contract/outcomes.js';
import type { Exchange } from './exchange.js';
import { ref } from './guard.js';

/** Refuses a request, with the message in every field where callers look for it. `challenge`: what the endpoint accepts. */
export function refuseUnauthorized(exchange: Exchange, reason: Rejection, challenge: string): void {
  const { message } = reason;
  exchange.refuse(reason, { error: message, message }, [['WWW-Authenticate', challenge]]);
}

/** For guards that refuse in this way: the header and body of their 401. */
export const asUnauthorized = {
  schemas: { 401: ref('Unauthorized') },
  headers: {
    401: {
      'WWW-Authenticate': {
        required: true,
        description: 'The scheme that the endpoint accepts.',
        schema: { type: 'string' },
      },
    },
  },
};
