// The BullMQ queues: names, options, and the job of a segment. Jobs are derived from the set of outstanding segments and can be lost
// without harm; their options only decide how soon the work is done.

import type { Config } from '../src/config.js';
import { describeError } from '../src/log.js';
import {
  type ConnectionOptions,
  DelayedError,
  type Job,
  type JobsOptions,
  Queue,
  type QueueOptions,
  Worker,
  type WorkerOptions,
} from '../src/packages/bullmq.js';
import type { Redis } from '../src/redis/client.js';
import { type Segment, shardTag } from '../src/redis/keys.js';
import { repeat } from '../src/repeat.js';
import { lockChecksEveryMsMax } from '../src/tuning.js';
import type { WorkerContext } from './context.js';

export const storeQueueName = 'store';

/** A tick seals what is old enough and makes the jobs. Each worker tries this often to get its turn. */
export const tickEveryMs = 250;
/** How long a turn lasts: less than the time between two tries, so that a single worker gets it every time. */
export const tickTurnMs = 200;
/** How long a worker's ticks pause after one that failed or found an emptied Redis, since each of them logs that. */
export const tickRestMs = 1_000;
/** How long a tick is remembered, for everything that checks whether ticks are still running. */
export const tickRememberedMs = 2_000;
/** A worker checks this often whether deletions are pending, which costs one command. */
export const deletionsCheckedEveryMs = 250;
/** How long that check pauses while all of them wait for ClickHouse servers. */
export const serversAwaitedMs = 1_000;
/** How often each queue is checked for what a wrong clock prolongs, which takes three commands and rarely finds anything. */
const clocksCheckedEveryMs = 5_000;

const retryMsMin = 200;
const retryMsMax = 5_000;

/** The shard that a queue belongs to, or the registry. */
type Owner = number | 'registry';

function prefixOf(owner: Owner): string {
  return owner === 'registry' ? '{registry}' : shardTag(owner);
}

export function queueOptions(owner: Owner, connection: ConnectionOptions): QueueOptions {
  return { connection, prefix: prefixOf(owner), streams: { events: { maxLen: 100 } } };
}

/**
 * By default a job whose worker is killed twice fails for good, and a failed job may be removed. So here a job may stall
 * any number of times, and failed jobs stay, so that the tick can retry them.
 */
export function workerOptions(owner: Owner, connection: ConnectionOptions, config: Config): WorkerOptions {
  return {
    connection,
    prefix: prefixOf(owner),
    lockDuration: config.jobLockMs,
    stalledInterval: Math.min(config.jobLockMs, lockChecksEveryMsMax),
    maxStalledCount: 1_000_000_000,
    settings: {
      backoffStrategy: (attempts) =>
        Math.min(retryMsMin * 2 ** Math.min(attempts - 1, 10), retryMsMax) * (0.75 + Math.random() / 2),
    },
  };
}

export const storeJobOptions: JobsOptions = {
  attempts: 1_000_000_000,
  backoff: { type: 'custom' },
  removeOnComplete: true,
  removeOnFail: false,
  stackTraceLimit: 1,
};

/** The same segment always has the same id, so that adding its job again changes nothing. BullMQ does not allow colons in it. */
export function storeJobId(segment: Segment): string {
  return `segment-${segment.table}-${segment.number}`;
}

export function openQueue(name: string, owner: Owner, connection: ConnectionOptions): Queue {
  return new Queue(name, queueOptions(owner, connection));
}

/** The error of a failed job as BullMQ may write it into Redis: only what may be logged, without a stack trace. */
class JobFailed extends Error {
  readonly code: string;

  constructor(error: unknown) {
    const { name, code = '', message } = describeError(error);
    super(`${name}: ${message}`);
    this.code = code;
    this.stack = this.message;
  }
}

/** Wraps the work of a job. Its errors go into Redis, and ClickHouse's errors would quote the data that it refused. */
function asJob<Arguments extends unknown[]>(
  work: (...args: Arguments) => Promise<unknown>,
): (...args: Arguments) => Promise<void> {
  return async (...args) => {
    try {
      await work(...args);
    } catch (error) {
      // This error says that the job waits, which is not a failure.
      if (error instanceof DelayedError) throw error;
      throw new JobFailed(error);
    }
  };
}

export type ServedQueue = {
  /** Settles once running jobs are done. */
  readonly close: () => Promise<void>;
};

/** Starts to do the jobs of a queue. `delayMsMax`: no job is delayed for longer. */
export function serveQueue<Data>(
  { redis, queueRedis, config, log }: WorkerContext,
  name: string,
  owner: Owner,
  work: (job: Job<Data>, lock?: string) => Promise<unknown>,
  options: Pick<WorkerOptions, 'concurrency' | 'settings'>,
  delayMsMax = jobDelayMsMax,
): ServedQueue & { readonly queue: Queue; readonly worker: Worker<Data> } {
  const queue = openQueue(name, owner, queueRedis);
  const worker = new Worker<Data>(name, asJob(work), {
    ...workerOptions(owner, queueRedis, config),
    ...options,
  });
  worker.on('error', (error) => log.warn({ shard: owner, error }, 'the queue has failed'));
  const clocks = repeat({
    work: () => undoEffectsOfWrongClocks(redis, queue, config.jobLockMs, Date.now(), delayMsMax),
    everyMs: clocksCheckedEveryMs,
    failed: (error) => log.warn({ shard: owner, error }, 'the check for wrong clocks failed'),
  });
  return {
    queue,
    worker,
    close: async () => {
      await Promise.all([clocks.stop(), worker.close()]);
      await queue.close();
    },
  };
}

export const deletionQueueName = 'deletion';

/** One job for all requests: they share their mutations. */
export const deletionJobOptions: JobsOptions = { ...storeJobOptions, jobId: 'round' };

export const callbackQueueName = 'callback';

/** Longer than any delay of a store or deletion job. */
const jobDelayMsMax = 2 * retryMsMax;

/**
 * Ends what a wrong clock would prolong for hours: the delay of a job, which BullMQ computes from the clock of the worker on which
 * it failed; and, after Redis's clock was ahead, the locks of killed workers and the pause until the next check for stalled jobs.
 * Living workers renew their locks as usual.
 */
export async function undoEffectsOfWrongClocks(
  redis: Redis,
  queue: Queue,
  jobLockMs: number,
  nowMs: number,
  delayMsMax = jobDelayMsMax,
): Promise<void> {
  await redis.pexpire(queue.toKey('stalled-check'), lockChecksEveryMsMax, 'LT');
  for (const id of await redis.lrange(queue.toKey('active'), 0, 99)) {
    await redis.pexpire(`${queue.toKey(id)}:lock`, jobLockMs, 'LT');
  }
  // Scores are milliseconds times 4096.
  const dueLate = (nowMs + delayMsMax) * 4096;
  const ids = await redis.zrangebyscore(queue.toKey('delayed'), dueLate, '+inf', 'LIMIT', 0, 100);
  // Another worker may have done it first.
  for (const id of ids) await (await queue.getJob(id))?.promote().catch(() => undefined);
}
