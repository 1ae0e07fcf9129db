// The tick of a shard: seals open segments that are old enough, makes a job for each of the oldest outstanding segments, and
// retries failed jobs. Running it twice, or in two processes at once, does no harm.

import type { Queue } from '../src/packages/bullmq.js';
import { classifyRedisFault } from '../src/redis/faults.js';
import { type Segment, segmentOfMember, shardKeys } from '../src/redis/keys.js';
import { takeTurn } from '../src/redis/lease.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { repeat } from '../src/repeat.js';
import type { ShardContext } from './context.js';
import { recordTick, storeJobId, storeJobOptions, tickEveryMs, tickRestMs, tickTurnMs } from './queues.js';

export type TickOptions = Omit<ShardContext, 'clickhouse'> & {
  readonly storeQueue: Queue;
  readonly epoch: string;
  readonly segmentAgeMsMax: number;
  /** How many segments get jobs at one time. */
  readonly jobsMax: number;
  /** Stores a segment directly, without a job. */
  readonly store: (segment: Segment) => Promise<unknown>;
};

/**
 * Settles when the segments are sealed and their jobs are in the queue, with whether Redis holds this deployment. If it does not,
 * nothing is done.
 */
export async function tick(options: TickOptions): Promise<boolean> {
  const { redis, shard } = options;
  const members = await runScript(
    redis,
    scripts.seal,
    [shardKeys.state(shard), shardKeys.segments(shard)],
    [options.epoch, options.segmentAgeMsMax, options.jobsMax],
  );
  if (members === null) {
    options.log.error(
      { shard },
      'redis does not hold this deployment; nothing is stored until it is restored',
    );
    return false;
  }
  const segments = (members as string[]).map(segmentOfMember);
  options.crash('segments_sealed');
  try {
    await addJobs(options, segments);
  } catch (error) {
    if (classifyRedisFault(error) !== 'full') throw error;
    // A full Redis has no room for jobs, and only storing segments makes room.
    options.log.warn({ shard, segments: segments.length }, 'redis is full: storing without jobs');
    await storeWithoutJobs(options, segments);
  }
  return true;
}

/** How many segments may fail: a ClickHouse that hangs must not be asked once per segment. */
const failuresMax = 3;

/** Stores one segment after another; one that fails does not hold up the others. Rejects with the first fault. */
async function storeWithoutJobs({ store }: TickOptions, segments: readonly Segment[]): Promise<void> {
  const faults: unknown[] = [];
  for (const segment of segments) {
    await store(segment).catch((error: unknown) => faults.push(error));
    if (faults.length === failuresMax) break;
  }
  if (faults.length > 0) throw faults[0];
}

async function addJobs({ redis, storeQueue, shard, crash }: TickOptions, segments: Segment[]): Promise<void> {
  await recordTick(redis, shard);
  if (segments.length === 0) return;

  await storeQueue.addBulk(
    segments.map((segment) => ({
      name: 'store',
      data: segment,
      opts: { ...storeJobOptions, jobId: storeJobId(segment) },
    })),
  );
  crash('jobs_added');
  // BullMQ silently ignores a new job with the id of a failed one.
  if ((await storeQueue.getFailedCount()) > 0) await storeQueue.retryJobs({ state: 'failed' });
}

export type TicksOptions = Pick<TickOptions, 'redis' | 'shard' | 'log'> & {
  /** Settles with whether Redis holds this deployment. */
  readonly run: () => Promise<boolean>;
};

/**
 * Has this process take turns with others at the ticks of a shard. They are not BullMQ jobs, which cost ten times as much: four ticks a
 * second took 2 % of a core on an idle deployment. The returned function stops them, and settles when the last one has ended.
 */
export function repeatTicks({ redis, shard, run, log }: TicksOptions): () => Promise<void> {
  let restsUntilMs = 0;
  return repeat({
    work: async () => {
      if (performance.now() < restsUntilMs) return;
      if (!(await takeTurn(redis, shardKeys.tickTurn(shard), tickTurnMs))) return;
      // If it does not succeed, other processes get the next turns: perhaps only this one cannot reach what a tick needs.
      restsUntilMs = performance.now() + tickRestMs;
      if (await run()) restsUntilMs = 0;
    },
    everyMs: tickEveryMs,
    failed: (error) => log.warn({ error }, 'a tick failed'),
  }).stop;
}
