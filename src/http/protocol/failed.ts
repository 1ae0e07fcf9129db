// The answer to a request whose work rejects. Errors of ours are counted and logged without their messages, which may quote a request.

import { AssertionError } from 'node:assert';
import { Fault } from '../../contract/errors.js';
import { type Rejection, rejection } from '../../contract/outcomes.js';
import type { Log } from '../../log.js';
import { requestsFailed } from '../../metrics.js';
import { faultFramesMax } from '../../tuning.js';
import type { Exchange } from './exchange.js';

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

/** Whether an error is a bug in this program, rather than a failure of Redis, ClickHouse or the network. */
export function isOwnFault(error: unknown): boolean {
  return [TypeError, RangeError, ReferenceError, AssertionError].some((kind) => error instanceof kind);
}

/** Counts and logs an error of ours during a request. `path`: that of its route. */
export function noteFault(log: Log, path: string, error: unknown): void {
  requestsFailed.inc({ path });
  log.error({ path, ...whereThrown(error) }, 'a request failed for an error of the service');
}

function whereThrown(error: unknown): { readonly fault: string; readonly frames?: readonly string[] } {
  if (!(error instanceof Error)) return { fault: 'something that is not an error was thrown' };
  const { message, stack = '' } = error;
  const frames = stack
    .slice(Math.max(0, stack.indexOf(message)) + message.length)
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith('at '));
  return { fault: error.constructor.name, frames: frames.slice(0, faultFramesMax) };
}
