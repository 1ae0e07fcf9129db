// The answer to a request without the right credentials: 401, the same at all endpoints.

import type { Rejection } from '../../contract/outcomes.js';
import type { Exchange } from './exchange.js';

/** Refuses with the text under every name that callers look for. `challenge` names what the endpoint accepts. */
export function refuseUnauthorized(exchange: Exchange, reason: Rejection, challenge: string): void {
  const { message } = reason;
  exchange.refuse(reason, { error: message, message }, [['WWW-Authenticate', challenge]]);
}
