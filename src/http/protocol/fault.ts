// Errors of ours: recognising, counting and logging them. Their messages are not logged, since they may quote a request.

import { AssertionError } from 'node:assert';
import type { Log } from '../../log.js';
import { requestsFailed } from '../../metrics.js';
import { faultFramesMax } from '../../tuning.js';

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
