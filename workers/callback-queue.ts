// The queue of callbacks: a job for each complete deletion whose account wants to be called, until a call succeeds or a day has
// passed. The round that completes a deletion adds its job. A lost job is added again, since jobs follow from the calls that are due.

import { createPlaces } from '../src/concurrency.js';
import { callbacks } from '../src/contract/limits.js';
import { DelayedError, type Job } from '../src/packages/bullmq.js';
import { callOptionsOf } from '../src/privacy/deletion/callback-call.js';
import { readDueCallbacks, tryCallback, type WithinShare } from '../src/privacy/deletion/callbacks.js';
import { transactionValues } from '../src/redis/transactions.js';
import { callbackJobs } from '../src/tuning.js';
import type { WorkerContext } from './context.js';
import { callbackQueueName, serveQueue, storeJobOptions } from './queues.js';

/** Starts to make the calls. */
export function serveCallbacks(context: WorkerContext) {
  const { redis, config, crash } = context;
  const calling = callOptionsOf(config.callbackAllow);
  const places = createPlaces(callbackJobs.places);
  const delayMs = createWaitingLine();
  const call = async (job: Job<{ requestId: string }>, jobLock?: string) => {
    let busyMs = 0;
    const withinShare: WithinShare = async (accountId, makeCall) => {
      const end = places.tryTake({ account: accountId });
      if (end !== undefined) return makeCall().finally(end);
      busyMs = delayMs(accountId, performance.now());
      return 'busy';
    };
    const outcome = await tryCallback(redis, job.data.requestId, calling, crash, withinShare);
    if (outcome === 'busy') {
      await job.moveToDelayed(Date.now() + busyMs, jobLock);
      throw new DelayedError();
    }
    // BullMQ tries the job again.
    if (outcome === 'due') throw new Error('the callback was not accepted');
  };
  const options = {
    concurrency: callbackJobs.places.atOnceMax,
    settings: { backoffStrategy: (attempts: number) => callbackPauseMs(attempts, Math.random()) },
  };
  const delayMsMax = 2 * callbacks.pauseMsMax;
  const { queue, ...served } = serveQueue(context, callbackQueueName, 'registry', call, options, delayMsMax);
  const add = async (requestIds: readonly string[], lifo: boolean): Promise<void> => {
    if (requestIds.length === 0) return;
    await queue.addBulk(
      requestIds.map((requestId) => ({
        name: 'call',
        data: { requestId },
        opts: { ...storeJobOptions, jobId: jobIdOf(requestId), lifo },
      })),
    );
  };
  return {
    ...served,
    /** Adds jobs for calls that have just become due, ahead of those that wait. */
    addFirst: (requestIds: readonly string[]) => add(requestIds, true),
    /** Adds the missing jobs of calls that are due. */
    addDue: async () => {
      const due = await readDueCallbacks(redis);
      if (due.length === 0) return;
      // An existing job waits for its next try. Adding it again would cost some thirty commands.
      const known = redis.multi();
      for (const requestId of due) known.exists(queue.toKey(jobIdOf(requestId)));
      const isKnown = transactionValues(await known.exec());
      await add(
        due.filter((_, at) => isKnown[at] === 0),
        false,
      );
    },
  };
}

/**
 * Makes a function that says after how many milliseconds a call that found no free place may try again: later than those of its account
 * before it.
 */
export function createWaitingLine(): (accountId: string, nowMs: number) => number {
  const lineEnds = new Map<string, number>();
  return (accountId, nowMs) => {
    for (const [other, endsMs] of lineEnds) if (endsMs < nowMs) lineEnds.delete(other);
    const lineEndMs = lineEnds.get(accountId) ?? 0;
    const atMs = Math.max(nowMs + callbackJobs.busyMs, lineEndMs + callbackJobs.busySpacingMs);
    lineEnds.set(accountId, atMs);
    return atMs - nowMs;
  };
}

function jobIdOf(requestId: string): string {
  return `callback-${requestId}`;
}

/** How long to wait after this many tries. `random`, from 0 to 1, keeps calls from coming all at once. */
export function callbackPauseMs(tries: number, random: number): number {
  const pauseMs = Math.min(callbacks.pauseMsMin * 2 ** Math.min(tries - 1, 20), callbacks.pauseMsMax);
  return pauseMs * (0.75 + random / 2);
}
