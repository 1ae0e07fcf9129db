// The worker process: wiring and signals. Runs the ticks and the store jobs of every shard.

import { type Job, type Queue, Worker } from 'bullmq';
import { mirrorRegistry } from '../src/accounts/mirror.js';
import { readRegistry } from '../src/accounts/registry.js';
import { connectClickHouse } from '../src/clickhouse/client.js';
import { readConfigOrExit } from '../src/config.js';
import { createCrashPoint } from '../src/crash-point.js';
import { purgeStrayTargets } from '../src/deletion/kept-targets.js';
import { mirrorDeletions } from '../src/deletion/mirror.js';
import { readPendingMembers } from '../src/deletion/request.js';
import { createLog, describeError } from '../src/log.js';
import { registry } from '../src/metrics.js';
import { rewriteWhenWanted } from '../src/redis/append-only-file.js';
import { createClaimAging } from '../src/redis/claim-window.js';
import { connect, connectForQueue, ready } from '../src/redis/client.js';
import { registryKeys, type Segment } from '../src/redis/keys.js';
import { shareMetrics } from '../src/redis/shared-metrics.js';
import { takeTurn } from '../src/redis/turn.js';
import { stopRequested } from '../src/stop.js';
import { createCompressor } from './compress-waiting.js';
import { runDeletionRound } from './delete.js';
import { PortTaken, serveHealth } from './health.js';
import {
  deletionJobOptions,
  deletionQueueName,
  hasTicked,
  lookEveryMs,
  openDeletionQueue,
  openQueue,
  storeQueueName,
  tickEveryMs,
  tickQueueName,
  undoWrongClocks,
  workerOptions,
} from './queues.js';
import { isFresh, storeSegment } from './store.js';
import { tick } from './tick.js';

const config = readConfigOrExit();
const log = createLog('worker', config.logLevel);
const redis = connect(config, log);
const queueRedis = connectForQueue(config, log);
const clickhouse = connectClickHouse({ url: config.clickhouseUrl, database: config.clickhouseDatabase });
const crash = createCrashPoint(config.crashAt);
const stop = stopRequested();
let stopping = false;
void stop.then(() => {
  stopping = true;
});

let working = false;
function missing(): string[] {
  if (stopping) return ['running: the process is stopping'];
  if (redis.status !== 'ready') return ['redis'];
  return working ? [] : ['state: run "npm run admin -- restore" or start again'];
}

/** With a port of its own a worker tells its metrics itself; else the API process of its host does. */
const tellsItself = config.workerAdminPort !== 0;
const stopTelling = tellsItself
  ? await serveHealth({
      host: config.host,
      port: config.workerAdminPort,
      missing,
      metrics: () => registry.metrics(),
    }).catch((error: unknown) => {
      if (!(error instanceof PortTaken)) throw error;
      process.stderr.write(`sluice: ${error.message}\n`);
      process.exit(1);
    })
  : undefined;

/** Waits for the deployment: a worker may start before the first start has made it. */
async function waitForDeployment() {
  for (;;) {
    try {
      await ready(redis, 2_000);
      const { deployment } = await readRegistry(redis);
      if (deployment !== undefined) return deployment;
      log.warn('waiting for the state to be loaded');
    } catch (error) {
      log.warn({ error: describeError(error) }, 'waiting for redis');
    }
    if (stopping) process.exit(0);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

const { epoch, shards } = await waitForDeployment();

/** Starts the ticks and the store jobs of one shard; the function returned ends them when they are done. */
function serveShard(shard: number): {
  readonly everySecond: () => Promise<void>;
  readonly close: () => Promise<void>;
} {
  const storeQueue = openQueue(storeQueueName, shard, queueRedis);
  const tickQueue = openQueue(tickQueueName, shard, queueRedis);
  const store = (segment: Segment, fresh = false) =>
    storeSegment({ redis, clickhouse, shard, crash, log }, segment, fresh);
  const runTick = () =>
    tick({
      redis,
      storeQueue,
      shard,
      epoch,
      segmentAgeMsMax: config.segmentAgeMsMax,
      jobsMax: 4 * config.storeConcurrency * config.workerProcesses,
      store,
      crash,
      log,
    });
  const ageClaims = createClaimAging({ redis, shard, claimBytesMax: config.claimBytesMax / shards });
  const compressWaiting = createCompressor({ redis, shard, crash });
  const options = workerOptions(shard, queueRedis, config);
  const storeWorker = new Worker<Segment>(
    storeQueueName,
    async (job: Job<Segment>) => {
      await store(job.data, isFresh(job.data, job.attemptsStarted, Date.now(), config.segmentAgeMsMax));
    },
    { ...options, concurrency: config.storeConcurrency },
  );
  const tickWorker = new Worker(tickQueueName, runTick, { ...options, concurrency: 1 });
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
    // Ticks that stopped (a killed worker held one, an emptied Redis forgot them) are started again.
    everySecond: async () => {
      if (!(await hasTicked(redis, shard))) {
        const scheduled = await scheduleTicks(tickQueue).catch((error: unknown) => error);
        await runTick();
        if (scheduled instanceof Error) throw scheduled;
      }
      await undoWrongClocks(redis, storeQueue, config.jobLockMs, Date.now());
      await ageClaims();
      await compressWaiting();
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

/** Starts the rounds of deletions; they run while requests are pending. */
function serveDeletions(): {
  readonly look: () => Promise<void>;
  readonly everySecond: () => Promise<void>;
  readonly close: () => Promise<void>;
} {
  const queue = openDeletionQueue(queueRedis);
  const worker = new Worker(
    deletionQueueName,
    async () => {
      await runDeletionRound({
        redis,
        clickhouse,
        database: config.clickhouseDatabase,
        shards,
        epoch,
        crash,
        log,
      });
    },
    { ...workerOptions(0, queueRedis, config), prefix: '{registry}', concurrency: 1 },
  );
  worker.on('error', (error) => log.warn({ error: describeError(error) }, 'queue fails'));
  return {
    // The job's id is fixed: there is one round at a time, and adding it again changes nothing.
    look: async () => {
      if ((await redis.zcard(registryKeys.pendingDeletions)) === 0) return;
      await queue.add('round', {}, deletionJobOptions);
      if ((await queue.getFailedCount()) > 0) await queue.retryJobs({ state: 'failed' });
    },
    everySecond: () => undoWrongClocks(redis, queue, config.jobLockMs, Date.now()),
    close: async () => {
      await worker.close();
      await queue.close();
    },
  };
}

const served = Array.from({ length: shards }, (_, shard) => serveShard(shard));
const stopSharing = tellsItself ? undefined : shareMetrics(redis, `worker-${process.pid}`, log);

const deletionRounds = serveDeletions();

async function everySecond(): Promise<void> {
  await Promise.all([...served, deletionRounds].map((each) => each.everySecond()));
  await rewriteWhenWanted(redis);
}

/** Runs by itself: a ClickHouse that does not answer must not hold up what needs Redis alone. */
async function everySecondWithClickHouse(): Promise<void> {
  await mirrorRegistry(redis, clickhouse, crash);
  await mirrorDeletions(redis, clickhouse, crash);
  await purgeStrays();
}

/** Removes targets that a stopped worker kept after their request was complete; looks twice a minute. */
async function purgeStrays(): Promise<void> {
  if (!(await takeTurn(redis, registryKeys.strayTargets, 30_000))) return;
  await purgeStrayTargets(clickhouse, async () => {
    const pending = await readPendingMembers(redis, epoch);
    return new Set(pending.map(({ requestId }) => requestId));
  });
}

/** Runs `work` again and again, one run at a time; the function returned stops that. */
function repeat(work: () => Promise<void>, everyMs: number, what: string): () => Promise<void> {
  let running: Promise<void> | undefined;
  const run = () => {
    running ??= work()
      .catch((error: unknown) => log.warn({ error: describeError(error) }, `${what} failed`))
      .finally(() => {
        running = undefined;
      });
  };
  run();
  const timer = setInterval(run, everyMs);
  return async () => {
    clearInterval(timer);
    await running;
  };
}

const stopUpkeep = repeat(everySecond, 1_000, 'upkeep');
const stopCopying = repeat(everySecondWithClickHouse, 1_000, 'the copying to ClickHouse');
const stopLooking = repeat(deletionRounds.look, lookEveryMs, 'the look for deletions');
working = true;
log.info({ shards }, 'working');

await stop;
log.info('stopping');
// A job that does not end in time is given to another worker; nothing is lost by leaving it.
const bound = new Promise((resolve) => setTimeout(resolve, 20_000).unref());
const closing = [
  stopUpkeep(),
  stopCopying(),
  stopLooking(),
  deletionRounds.close(),
  ...served.map((shard) => shard.close()),
];
await Promise.race([Promise.all(closing), bound]);
await stopSharing?.();
stopTelling?.();
await clickhouse.close();
redis.disconnect();
queueRedis.disconnect();
log.info('stopped');
process.exit(0);
