// What went wrong with a request of the administration or the console, as an answer.

import { TooManyPasswords } from '../../accounts/people/passwords.js';
import { Forbidden } from '../../admin/access.js';
import { TakesTooLong } from '../../admin/users.js';
import { NoRoom } from '../../clickhouse/definitions.js';
import { AdministrationError, StateNotLoaded } from '../../contract/errors.js';
import { outcomes, rejection } from '../../contract/outcomes.js';
import { describeError, type Log } from '../../log.js';
import { AuditLogFull } from '../../registry/audit/audit.js';
import { NotCopied } from '../../registry/mirror.js';
import type { Exchange } from '../protocol/exchange.js';
import { isOwnFault } from '../protocol/fault.js';

const notNow = [StateNotLoaded, AuditLogFull, TakesTooLong, NoRoom, TooManyPasswords];

/** Answers a request whose work was rejected. Faults of ours are thrown on. */
export function refuseFailed(exchange: Exchange, error: unknown, log: Log): void {
  if (error instanceof AdministrationError) exchange.refuse(rejection('not_possible', error.message));
  else if (error instanceof Forbidden) exchange.refuse(rejection('forbidden', outcomes.forbidden.meaning));
  else if (error instanceof NotCopied)
    exchange.refuse(rejection(error.holds ? 'unknown' : 'overloaded', error.message));
  else if (notNow.some((kind) => error instanceof kind))
    exchange.refuse(rejection('overloaded', (error as Error).message));
  else if (isOwnFault(error)) throw error;
  else {
    log.warn({ error: describeError(error) }, 'a request of the administration failed');
    exchange.refuse(rejection('unknown', outcomes.unknown.meaning));
  }
}
