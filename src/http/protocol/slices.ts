// Long work of requests, done a few milliseconds at a time, so that other requests are answered in between. Since a request's work holds
// what it has read, only one is under way at a time; networks take turns.

import { atOnce, type Steps } from '../../parsing/steps.js';
import { largeBodies } from '../../tuning.js';
import { networkOf } from './caller-address.js';
import type { Exchange } from './exchange.js';

type Work = { readonly exchange: Exchange; readonly steps: Steps<void> };

/** Waiting work by the network of the caller, in the order of the networks' turns. */
const waiting = new Map<string, Work[]>();
let current: Work | undefined;
/** Whether a step of `current` is running, and the work that this step asked for. */
let isStepping = false;
let next: Work | undefined;

/**
 * Runs the steps of a request's work: at once if they are few and no other work is under way, otherwise slice by slice. If a step throws,
 * the request fails. The steps end early when the client is gone. A step may ask for more work, which follows directly.
 */
function runInSlices(exchange: Exchange, steps: Steps<void>): void {
  if (exchange.ended) return;
  const work = { exchange, steps };
  if (isStepping) {
    next = work;
  } else if (current === undefined) {
    current = work;
    doSlice();
  } else {
    const network = networkOf(exchange.address);
    const earlier = waiting.get(network);
    if (earlier === undefined) waiting.set(network, [work]);
    else earlier.push(work);
    // Otherwise the queue would hold the bodies of callers who have left, whose room is already given back.
    exchange.onGone(() => forget(network, work));
  }
}

function forget(network: string, work: Work): void {
  const works = waiting.get(network) ?? [];
  const index = works.indexOf(work);
  if (index >= 0) works.splice(index, 1);
  if (works.length === 0) waiting.delete(network);
}

/** Continues with the result of a request's work: done at once unless it `isLarge`, otherwise slice by slice. */
export function withResult<Result>(
  exchange: Exchange,
  isLarge: boolean,
  steps: Steps<Result>,
  proceed: (result: Result) => void,
): void {
  if (!isLarge) return proceed(atOnce(steps));
  const whole = function* (): Steps<void> {
    proceed(yield* steps);
  };
  runInSlices(exchange, whole());
}

function doSlice(): void {
  const until = performance.now() + largeBodies.sliceMs;
  do {
    if (current === undefined || isDone(current)) {
      current = next ?? nextWaiting();
      next = undefined;
    }
  } while (current !== undefined && performance.now() < until);
  if (current !== undefined) setImmediate(doSlice);
}

/** Runs a step. Returns whether it was the last. */
function isDone({ exchange, steps }: Work): boolean {
  if (exchange.ended) return true;
  isStepping = true;
  try {
    return steps.next().done === true;
  } catch (error) {
    exchange.fail(error);
    return true;
  } finally {
    isStepping = false;
  }
}

function nextWaiting(): Work | undefined {
  for (const [network, works] of waiting) {
    const work = works.shift();
    // The network goes behind all others.
    waiting.delete(network);
    if (works.length > 0) waiting.set(network, works);
    return work;
  }
  return undefined;
}
