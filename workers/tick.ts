// The tick of a shard: seals open segments that are old enough, makes a job for each of the oldest outstanding segments, and
// retries failed jobs. Workers take turns at ticks, so that one which is killed does not hold them up. Running a tick twice, or in two
// processes at once, does no harm.

import type { Queue } from '../src/packages/bullmq.js';
import { classifyRedisFault } from '../src/redis/faults.js';
import { type Segment, segmentOfMember, shardKeys } from '../src/redis/keys.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { repeat } from '../src/repeat.js';
import type { ShardContext } from './context.js';
import {
  storeJobId,
  storeJobOptions,
  tickEveryMs,
  tickRememberedMs,
  tickRestMs,
  tickTurnMs,
} from './queues.js';

export type TickOptions = Omit<ShardContext, 'clickhouse'> & {
  readonly storeQueue: Queue;
  readonly epoch: string;
  readonly segmentAgeMsMax: number;
  /** How many segments get jobs now. */
  readonly jobsMax: () => number;
  /** Stores a segment directly, without a job. */
  readonly store: (segment: Segment) => Promise<unknown>;
};

/**
 * Settles when the segments are sealed and their jobs are in the queue, or when it is another process's turn. Settles with false, and does
 * nothing, if Redis does not hold this deployment.
 */
export async function tick(options: TickOptions): Promise<boolean> {
  const { redis, shard } = options;
  const { state, segments: outstanding, tickTurn, ticked } = shardKeys;
  const members = await runScript(
    redis,
    scripts.tick,
    [state, outstanding, tickTurn, ticked].map((key) => key(shard)),
    [options.epoch, options.segmentAgeMsMax, options.jobsMax(), tickTurnMs, tickRememberedMs],
  );
  if (members === null) {
    options.log.error(
      { shard },
      'redis does not hold this deployment; nothing is stored until it is restored',
    );
    return false;
  }
  if (!Array.isArray(members)) return true;
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

async function addJobs({ storeQueue, crash }: TickOptions, segments: Segment[]): Promise<void> {
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

/**
 * Repeats the ticks of a shard. They are not BullMQ jobs, which cost ten times as much: four ticks a second took 2 % of a core on an idle
 * deployment. The returned function stops them, and settles when the last one has ended.
 */
export function repeatTicks(options: TickOptions): () => Promise<void> {
  let restsUntilMs = 0;
  return repeat({
    work: async () => {
      if (performance.now() < restsUntilMs) return;
      // If it does not succeed, other processes get the next turns: perhaps only this one cannot reach what a tick needs.
      restsUntilMs = performance.now() + tickRestMs;
      if (await tick(options)) restsUntilMs = 0;
    },
    everyMs: tickEveryMs,
    failed: (error) => options.log.warn({ error }, 'a tick failed'),
  }).stop;
}
