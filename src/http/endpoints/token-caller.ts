// What all endpoints under tokens of the deletion API share: how to refuse a caller without credentials, and how to answer an
// error.

import { StateNotLoaded } from '../../accounts/registry.js';
import { AuditLogFull } from '../../audit/audit.js';
import { outcomes, rejection } from '../../contract/outcomes.js';
import { describeError, type Log } from '../../log.js';
import { TooManyNames } from '../../suppression/change.js';
import type { Exchange } from '../protocol/exchange.js';
import { isOwnFault } from '../protocol/fault.js';
import { refuseUnauthorized } from '../protocol/unauthorized.js';

export function unauthorized(exchange: Exchange, scheme: 'Basic' | 'Bearer' = 'Bearer'): void {
  refuseUnauthorized(exchange, unauthorizedReason, `${scheme} realm="sluice"`);
}

const unauthorizedReason = rejection('unauthorized', 'Unauthorized: the credentials are invalid.');

export type Failing = {
  readonly log: Log;
  /** What to answer when Redis or ClickHouse fails: whether something may have been stored. */
  readonly code?: 'overloaded' | 'unknown';
  /** Answers errors that only this endpoint knows; whether it has. */
  readonly isAnswered?: (error: unknown) => boolean;
};

/** Answers 503 when Redis or ClickHouse fails. */
export function answerOrFail(
  exchange: Exchange,
  { log, code = 'unknown', isAnswered }: Failing,
  work: () => Promise<void>,
): void {
  const nothing = (why: string) => exchange.refuse(rejection('overloaded', `Nothing was stored: ${why}.`));
  const answered = work().catch((error: unknown) => {
    if (isAnswered?.(error)) return;
    if (error instanceof StateNotLoaded) return nothing('the state of the service is not loaded');
    if (error instanceof AuditLogFull) return nothing('the audit log is full');
    if (error instanceof TooManyNames) return exchange.refuse(rejection('not_possible', error.message));
    if (isOwnFault(error)) throw error;
    log.warn({ error: describeError(error) }, 'a request of the deletion API failed');
    exchange.refuse(rejection(code, outcomes[code].meaning));
  });
  exchange.attend(answered);
}
