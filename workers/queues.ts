// The BullMQ queues of a shard: names, options, and the job of a segment. Jobs are derived from the set of
// outstanding segments and can be lost without harm; their options only decide how soon work is done.

import {
  type ConnectionOptions,
  type JobsOptions,
  Queue,
  type QueueOptions,
  type WorkerOptions,
} from 'bullmq';
import type { Config } from '../src/config.js';
import type { Redis } from '../src/redis/client.js';
import { type Segment, shardKeys, shardTag } from '../src/redis/keys.js';

export const storeQueueName = 'store';
export const tickQueueName = 'tick';

/** A tick seals what is old enough and makes the jobs. */
export const tickEveryMs = 250;
/** A tick is remembered for so long. */
const tickedMs = 2_000;
/** How often a worker looks for pending deletions: one command. */
export const lookEveryMs = 100;

const retryMsMin = 200;
const retryMsMax = 5_000;

export function queueOptions(shard: number, connection: ConnectionOptions): QueueOptions {
  return { connection, prefix: shardTag(shard), streams: { events: { maxLen: 100 } } };
}

/**
 * A killed worker's job is given to another one when its lock has ended and two looks for such jobs went by: after 7 s
 * at most, with the usual lock of 5 s.
 */
const stalledLookMsMax = 1_000;

/**
 * A worker killed twice on one job would by default make that job fail for good, and a removed failed job
 * would be gone: so stalls are counted without end and failed jobs stay, for the tick to drive them again.
 */
export function workerOptions(shard: number, connection: ConnectionOptions, config: Config): WorkerOptions {
  return {
    connection,
    prefix: shardTag(shard),
    lockDuration: config.jobLockMs,
    stalledInterval: Math.min(config.jobLockMs, stalledLookMsMax),
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

/** The same id for the same segment, so that adding its job again changes nothing. No colon: BullMQ refuses it. */
export function storeJobId(segment: Segment): string {
  return `segment-${segment.table}-${segment.number}`;
}

export function openQueue(name: string, shard: number, connection: ConnectionOptions): Queue {
  return new Queue(name, queueOptions(shard, connection));
}

export const deletionQueueName = 'deletion';

/** One job for all requests: they share their mutations. */
export const deletionJobOptions: JobsOptions = { ...storeJobOptions, jobId: 'round' };

export function openDeletionQueue(connection: ConnectionOptions): Queue {
  return new Queue(deletionQueueName, { ...queueOptions(0, connection), prefix: '{registry}' });
}

/** What no job of ours waits for. */
const delayMsMax = 2 * retryMsMax;

/**
 * Ends what a wrong clock would make last for hours: a job's delay, which BullMQ notes by the clock of the worker on which
 * it failed; and, after Redis's clock was ahead, the locks of killed workers and the pause until the next look for
 * stalled jobs. Locks of workers that live are renewed as ever.
 */
export async function undoWrongClocks(
  redis: Redis,
  queue: Queue,
  jobLockMs: number,
  nowMs: number,
): Promise<void> {
  await redis.pexpire(queue.toKey('stalled-check'), stalledLookMsMax, 'LT');
  for (const id of await redis.lrange(queue.toKey('active'), 0, 99)) {
    await redis.pexpire(`${queue.toKey(id)}:lock`, jobLockMs, 'LT');
  }
  // Scores are milliseconds times 4096.
  const dueLate = (nowMs + delayMsMax) * 4096;
  const ids = await redis.zrangebyscore(queue.toKey('delayed'), dueLate, '+inf', 'LIMIT', 0, 100);
  // Another worker may be first.
  for (const id of ids) await (await queue.getJob(id))?.promote().catch(() => undefined);
}

/** Notes that a shard's ticks run. */
export async function noteTick(redis: Redis, shard: number): Promise<void> {
  await redis.set(shardKeys.ticked(shard), '1', 'PX', tickedMs);
}

/** Whether a shard has ticked lately. */
export async function hasTicked(redis: Redis, shard: number): Promise<boolean> {
  const leftMs = await redis.pttl(shardKeys.ticked(shard));
  // More than a tick sets: Redis's clock was set back since.
  return leftMs >= 0 && leftMs <= tickedMs;
}
