// What a worker does for one shard: its ticks, its store jobs and its upkeep. Workers take turns at ticks, so one that is killed or
// stopped does not hold them up.

import { ClickHouseSetBack, ShardIsMoving, serversOf } from '../src/clickhouse/servers.js';
import { type Job, Worker } from '../src/packages/bullmq.js';
import { createClaimAging } from '../src/redis/claim-window.js';
import { type Segment, shardKeys } from '../src/redis/keys.js';
import { createCompressor } from './compress-waiting.js';
import type { WorkerContext } from './context.js';
import { indexKeys } from './index-keys.js';
import { createKeyFilter } from './key-filter.js';
import { asJob, openQueue, storeQueueName, undoEffectsOfWrongClocks, workerOptions } from './queues.js';
import { maySkipMarkerCheck, storeSegment } from './store.js';
import { repeatTicks, tick } from './tick.js';

export type ShardWork = {
  /** Call it once a second. */
  readonly upkeep: () => Promise<void>;
  /** Call it often: adds keys to the index if claims or segments wait for that. Needs ClickHouse. */
  readonly indexKeysIfWanted: () => Promise<void>;
  /** Settles once running jobs are done. */
  readonly close: () => Promise<void>;
};

/** Starts the ticks and the store jobs of a shard. */
export function serveShard(context: WorkerContext, shard: number): ShardWork {
  const { redis, queueRedis, config, shards, epoch, crash, log } = context;
  const servers = serversOf(context.clickhouse);
  const storeQueue = openQueue(storeQueueName, shard, queueRedis);
  const keyFilter = createKeyFilter(() => servers.ofShard(shard), shard, shards, log);
  let wantsIndex = false;
  const onKeyIndexIncomplete = () => {
    wantsIndex = true;
  };
  const isSetBack = () => servers.setBack().includes(servers.numberOf(shard));
  /** Throws while the shard is being moved or its server has been set back: its segments wait. */
  const clickhouseNow = () => {
    if (isSetBack()) throw new ClickHouseSetBack([servers.numberOf(shard)]);
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
      // Without jobs, segments are sealed and then wait.
      jobsMax:
        servers.isMoving(shard) || isSetBack()
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
  storeWorker.on('error', (error) => log.warn({ shard, error }, 'the queue has failed'));
  storeWorker.on('failed', (job, error) =>
    log.warn({ shard, job: job?.id, attempt: job?.attemptsMade, error }, 'job failed'),
  );
  const stopTicking = repeatTicks({ redis, shard, run: runTick, log });
  return {
    upkeep: async () => {
      await undoEffectsOfWrongClocks(redis, storeQueue, config.jobLockMs, Date.now());
      if ((await ageClaims())?.wantsIndex) wantsIndex = true;
      if ((await redis.hexists(shardKeys.state(shard), 'keys_rebuild')) === 1) wantsIndex = true;
      await compressWaiting();
    },
    indexKeysIfWanted: async () => {
      if (!wantsIndex || servers.isMoving(shard) || isSetBack()) return;
      wantsIndex = false;
      await indexKeys({ ...context, clickhouse: clickhouseNow() }, shard);
    },
    close: async () => {
      await Promise.all([stopTicking(), storeWorker.close()]);
      await storeQueue.close();
    },
  };
}
