// The answer to a request whose work rejects.

import { Fault } from '../../contract/errors.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import type { Log } from '../../log.js';
import type { Exchange } from './exchange.js';
import { isOwnFault } from './fault.js';

export type Failing = {
  readonly log: Log;
  readonly what: string;
  /** The answer when Redis, ClickHouse or the network fails. It says whether something may have been stored. */
  readonly otherwise: Rejection;
  readonly isForCallers: boolean;
};

/**
 * Watches the work that answers a request. If it rejects with a Fault, the Fault decides the answer; other errors are logged and answered
 * `otherwise`.
 */
export function attendOrRefuse(exchange: Exchange, failing: Failing, work: Promise<unknown>): void {
  const { log, what, otherwise, isForCallers } = failing;
  const refuse = (error: unknown) => {
    if (error instanceof Fault) {
      const message = isForCallers ? error.toCallers : error.message;
      if (message !== undefined) return exchange.refuse(rejection(error.outcome, message));
    }
    if (isOwnFault(error)) throw error;
    log.warn({ error }, what);
    exchange.refuse(otherwise);
  };
  exchange.attend(work.catch(refuse));
}
