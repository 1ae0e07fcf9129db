// The worker process: wiring and signals.

import { exitAfter, followShardTable } from '../src/accounts/shard-servers.js';
import { tablesOf } from '../src/clickhouse/client.js';
import { connectServers, serversOf } from '../src/clickhouse/servers.js';
import { readConfigOrExit } from '../src/config.js';
import { takeovers } from '../src/contract/limits.js';
import { createCrashPoint } from '../src/crash-point.js';
import { createLog } from '../src/log.js';
import { processRegistry } from '../src/metrics.js';
import { watchProcess } from '../src/process-metrics.js';
import { rewriteAppendOnlyFileIfWanted } from '../src/redis/append-only-file.js';
import { connect, connectForQueue } from '../src/redis/client.js';
import { announceProcess } from '../src/redis/processes.js';
import { shareMetrics } from '../src/redis/shared-metrics.js';
import { stopRequested } from '../src/stop.js';
import { serveCallbacks } from './callback-queue.js';
import type { WorkerContext } from './context.js';
import { serveDeletions } from './deletion-queue.js';
import { PortTaken, serveHealth } from './health.js';
import { deletionsCheckedEveryMs } from './queues.js';
import { repeat } from './repeat.js';
import { expireRowsIfDue, retentionCheckedEveryMs } from './retention.js';
import { writeSecondCopies } from './second-copies.js';
import { serveShard } from './shard.js';
import { waitForDeployment } from './wait-for-deployment.js';

const config = readConfigOrExit();
const log = createLog('worker', config.logLevel);
const redis = connect(config, log);
const queueRedis = connectForQueue(config, log);
const clickhouse = connectServers(config.clickhouseUrls, config.clickhouseDatabase, tablesOf(config));
const crash = createCrashPoint(config.crashAt);
const stop = stopRequested();
let stopping = false;
void stop.then(() => {
  stopping = true;
});

watchProcess('worker');
let working = false;
function missing(): string[] {
  if (stopping) return ['running: the process is stopping'];
  if (redis.status !== 'ready') return ['redis'];
  if (!working) return ['state: run "npm run admin -- restore" or start again'];
  return [...serversOf(clickhouse).misfits()];
}

/** With a port of its own a worker serves its metrics itself; otherwise the API process of its host does. */
const servesMetrics = config.workerAdminPort !== 0;
const stopHealth = servesMetrics
  ? await serveHealth({
      host: config.host,
      port: config.workerAdminPort,
      missing,
      metrics: () => processRegistry.metrics(),
    }).catch((error: unknown) => {
      if (!(error instanceof PortTaken)) throw error;
      process.stderr.write(`sluice: ${error.message}\n`);
      process.exit(1);
    })
  : undefined;

const deployment = await waitForDeployment(redis, clickhouse, () => stopping, log).catch(exitAfter);
if (deployment === undefined) process.exit(0);
const { epoch, secret, shards } = deployment;
const stopFollowingShards = await followShardTable(redis, clickhouse, log).catch(exitAfter);
const context: WorkerContext = { redis, queueRedis, clickhouse, config, shards, epoch, secret, crash, log };

const shardWork = Array.from({ length: shards }, (_, shard) => serveShard(context, shard));
const stopSharingMetrics = servesMetrics ? undefined : shareMetrics(redis, `worker-${process.pid}`, log);
const stopAnnouncing = announceProcess(redis, 'worker', log);
const deletionWork = serveDeletions(context);
const callbackWork = serveCallbacks(context);

async function upkeep(): Promise<void> {
  await Promise.all([...shardWork, deletionWork, callbackWork].map((work) => work.upkeep()));
  await rewriteAppendOnlyFileIfWanted(redis, log);
}

const stopUpkeep = repeat({ work: upkeep, everyMs: 1_000, what: 'upkeep', log });
// Runs separately: a ClickHouse that does not answer must not delay work that needs only Redis.
const stopCopying = repeat({
  work: () => writeSecondCopies(context),
  everyMs: 1_000,
  what: 'the copying to ClickHouse',
  log,
});
const stopIndexing = repeat({
  work: async () => void (await Promise.all(shardWork.map((work) => work.indexKeysIfWanted()))),
  everyMs: 200,
  what: 'the index of keys',
  log,
});
const stopCheckingDeletions = repeat({
  work: deletionWork.addRoundIfPending,
  everyMs: deletionsCheckedEveryMs,
  what: 'the check for pending deletions',
  log,
});
const stopExpiring = repeat({
  work: () => expireRowsIfDue(context),
  everyMs: retentionCheckedEveryMs,
  what: 'the deletion of what is over',
  log,
});
const stopAddingCallbacks = repeat({
  work: callbackWork.addDue,
  everyMs: 500,
  what: 'the check for due callbacks',
  log,
});
working = true;
log.info({ shards }, 'working');

await stop;
log.info('stopping');
// If a job does not end in time, another worker gets it; leaving it loses nothing.
const bound = new Promise((resolve) => setTimeout(resolve, takeovers.stopMsMax).unref());
const closing = [
  stopUpkeep(),
  stopCopying(),
  stopIndexing(),
  stopCheckingDeletions(),
  stopExpiring(),
  stopAddingCallbacks(),
  deletionWork.close(),
  callbackWork.close(),
  ...shardWork.map((work) => work.close()),
];
await Promise.race([Promise.all(closing), bound]);
await stopSharingMetrics?.();
await stopAnnouncing();
stopHealth?.();
stopFollowingShards();
await clickhouse.close();
redis.disconnect();
queueRedis.disconnect();
log.info('stopped');
process.exit(0);
