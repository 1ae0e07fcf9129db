// What a worker does for one shard: its ticks, its store jobs and its upkeep.

import { ClickHouseSetBack, serversOf } from '../src/clickhouse/servers.js';
import { createClaimAging } from '../src/redis/claim-window.js';
import { type Segment, shardKeys } from '../src/redis/keys.js';
import { createCompressor } from './compress-waiting.js';
import type { WorkerContext } from './context.js';
import { indexKeys } from './index-keys.js';
import { createKeyFilter } from './key-filter.js';
import { KeyIndexIncomplete } from './late-repeats.js';
import { serveQueue, storeQueueName } from './queues.js';
import { maySkipMarkerCheck, storeSegment } from './store.js';
import { repeatTicks } from './tick.js';

/** Starts the ticks and the store jobs of a shard. */
export function serveShard(context: WorkerContext, shard: number) {
  const { redis, config, shards, epoch, crash, log } = context;
  const servers = serversOf(context.clickhouse);
  const keyFilter = createKeyFilter(() => servers.ofShard(shard), shard, shards, log);
  let wantsIndex = false;
  /** Why the shard's segments have to wait; undefined if they need not. */
  const whyToWait = (): Error | undefined => {
    const server = servers.numberOf(shard);
    if (servers.setBack().includes(server)) return new ClickHouseSetBack([server]);
    return servers.isMoving(shard)
      ? new Error(`shard ${shard} is being moved to another ClickHouse server`)
      : undefined;
  };
  const clickhouseNow = () => {
    const why = whyToWait();
    if (why !== undefined) throw why;
    return servers.ofShard(shard);
  };
  const store = async (segment: Segment, skipsFirstCheck = false) => {
    try {
      const options = { redis, clickhouse: clickhouseNow(), shard, crash, log, keyFilter };
      return await storeSegment(options, segment, skipsFirstCheck);
    } catch (error) {
      if (error instanceof KeyIndexIncomplete) wantsIndex = true;
      throw error;
    }
  };
  const { queue, worker, close } = serveQueue<Segment>(
    context,
    storeQueueName,
    shard,
    ({ data, attemptsStarted }) =>
      store(data, maySkipMarkerCheck(data, attemptsStarted, Date.now(), config.segmentAgeMsMax)),
    { concurrency: config.storeConcurrency },
  );
  worker.on('failed', (job, error) =>
    log.warn({ shard, job: job?.id, attempt: job?.attemptsMade, error }, 'job failed'),
  );
  const stopTicking = repeatTicks({
    redis,
    storeQueue: queue,
    shard,
    epoch,
    segmentAgeMsMax: config.segmentAgeMsMax,
    // Without jobs, segments are sealed and then wait.
    jobsMax: () => (whyToWait() ? 0 : 4 * config.storeConcurrency * Math.max(1, config.workerProcesses)),
    store,
    crash,
    log,
  });
  const moveClock = createClaimAging({ redis, shard, claimBytesMax: config.claimBytesMax / shards });
  return {
    /** Call it once a second. */
    ageClaims: async () => {
      if ((await moveClock())?.wantsIndex) wantsIndex = true;
      if ((await redis.hexists(shardKeys.state(shard), 'keys_rebuild')) === 1) wantsIndex = true;
    },
    /** Call it once a second. */
    compressWaiting: createCompressor({ redis, shard, crash }),
    /** Call it often: adds keys to the index if claims or segments wait for that. Needs ClickHouse. */
    indexKeysIfWanted: async () => {
      if (!wantsIndex || whyToWait()) return;
      wantsIndex = false;
      await indexKeys({ ...context, clickhouse: clickhouseNow() }, shard);
    },
    close: async () => {
      await Promise.all([stopTicking(), worker.close()]);
      await close();
    },
  };
}
