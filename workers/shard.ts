// What a worker does for one shard: its ticks, its store jobs, and its upkeep.

import { ShardIsMoving, serversOf } from '../src/clickhouse/servers.js';
import { describeError } from '../src/log.js';
import { type Job, type Queue, Worker } from '../src/packages/bullmq.js';
import { createClaimAging } from '../src/redis/claim-window.js';
import type { Segment } from '../src/redis/keys.js';
import { createCompressor } from './compress-waiting.js';
import type { WorkerContext } from './context.js';
import { indexKeys } from './index-keys.js';
import { createKeyFilter } from './key-filter.js';
import {
  asJob,
  hasTickedLately,
  openQueue,
  storeQueueName,
  tickEveryMs,
  tickQueueName,
  undoEffectsOfWrongClocks,
  workerOptions,
} from './queues.js';
import { maySkipMarkerCheck, storeSegment } from './store.js';
import { tick } from './tick.js';

export type ShardWork = {
  /** To be called once a second. Restarts ticks that have stopped: a killed worker held one, or an emptied Redis forgot them. */
  readonly upkeep: () => Promise<void>;
  /** To be called often: adds keys to the index if claims or segments wait for that. Needs ClickHouse. */
  readonly indexKeysIfWanted: () => Promise<void>;
  /** Settles once running jobs are done. */
  readonly close: () => Promise<void>;
};

/** Starts the ticks and the store jobs of a shard. */
export function serveShard(context: WorkerContext, shard: number): ShardWork {
  const { redis, queueRedis, config, shards, epoch, crash, log } = context;
  const servers = serversOf(context.clickhouse);
  const storeQueue = openQueue(storeQueueName, shard, queueRedis);
  const tickQueue = openQueue(tickQueueName, shard, queueRedis);
  const keyFilter = createKeyFilter(() => servers.ofShard(shard), shard, shards, log);
  let wantsIndex = false;
  const onKeyIndexIncomplete = () => {
    wantsIndex = true;
  };
  /** While the shard is being moved its segments wait. */
  const clickhouseNow = () => {
    if (servers.isMoving(shard)) throw new ShardIsMoving(shard);
    return servers.ofShard(shard);
  };
  const store = async (segment: Segment, skipsFirstCheck = false) =>
    storeSegment(
      { redis, clickhouse: clickhouseNow(), shard, crash, log, keyFilter, onKeyIndexIncomplete },
      segment,
      skipsFirstCheck,
    );
  const runTick = () =>
    tick({
      redis,
      storeQueue,
      shard,
      epoch,
      segmentAgeMsMax: config.segmentAgeMsMax,
      // While the shard is being moved its segments are sealed and wait.
      jobsMax: servers.isMoving(shard)
        ? 0
        : 4 * config.storeConcurrency * Math.max(1, config.workerProcesses),
      store,
      crash,
      log,
    });
  const ageClaims = createClaimAging({ redis, shard, claimBytesMax: config.claimBytesMax / shards });
  const compressWaiting = createCompressor({ redis, shard, crash });
  const options = workerOptions(shard, queueRedis, config);
  const storeWorker = new Worker<Segment>(
    storeQueueName,
    asJob((job: Job<Segment>) =>
      store(job.data, maySkipMarkerCheck(job.data, job.attemptsStarted, Date.now(), config.segmentAgeMsMax)),
    ),
    { ...options, concurrency: config.storeConcurrency },
  );
  const tickWorker = new Worker(tickQueueName, asJob(runTick), { ...options, concurrency: 1 });
  for (const worker of [storeWorker, tickWorker]) {
    worker.on('error', (error) => log.warn({ shard, error: describeError(error) }, 'queue fails'));
    worker.on('failed', (job, error) =>
      log.warn(
        { shard, job: job?.id, attempt: job?.attemptsMade, error: describeError(error) },
        'job failed',
      ),
    );
  }
  return {
    upkeep: async () => {
      if (!(await hasTickedLately(redis, shard))) {
        const scheduled = await scheduleTicks(tickQueue).catch((error: unknown) => error);
        await runTick();
        if (scheduled instanceof Error) throw scheduled;
      }
      await undoEffectsOfWrongClocks(redis, storeQueue, config.jobLockMs, Date.now());
      if ((await ageClaims())?.wantsIndex) wantsIndex = true;
      await compressWaiting();
    },
    indexKeysIfWanted: async () => {
      if (!wantsIndex || servers.isMoving(shard)) return;
      wantsIndex = false;
      await indexKeys({ ...context, clickhouse: clickhouseNow() }, shard);
    },
    close: async () => {
      await Promise.all([tickWorker.close(), storeWorker.close()]);
      await Promise.all([tickQueue.close(), storeQueue.close()]);
    },
  };
}

async function scheduleTicks(tickQueue: Queue): Promise<void> {
  await tickQueue.upsertJobScheduler(
    'tick',
    { every: tickEveryMs },
    { name: 'tick', opts: { removeOnComplete: true, removeOnFail: 10 } },
  );
}
