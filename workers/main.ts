// The worker process: wiring and signals.

import { serversIn } from '../src/clickhouse/client.js';
import {
  connectServers,
  type ServersWatch,
  serversOf,
  setBackIn,
  watchServers,
} from '../src/clickhouse/servers.js';
import { readConfigOrExit } from '../src/config.js';
import { takeovers } from '../src/contract/limits.js';
import { createCrashPoint } from '../src/crash-point.js';
import { adminRoutes } from '../src/http/endpoints/admin.js';
import { healthRoutes } from '../src/http/endpoints/health.js';
import { listen } from '../src/http/protocol/server.js';
import { createLog } from '../src/log.js';
import { processRegistry, watchProcess } from '../src/metrics.js';
import { connect, connectForQueue } from '../src/redis/client.js';
import { announceProcess } from '../src/redis/processes.js';
import { shareMetrics } from '../src/redis/shared-metrics.js';
import { followPrimary } from '../src/redis/take-over.js';
import { followShardTable } from '../src/registry/shard-servers.js';
import { followWitness } from '../src/registry/witness.js';
import { exitAfter, stopRequested } from '../src/stop.js';
import { inTime } from '../src/wait.js';
import type { WorkerContext } from './context.js';
import { waitForDeployment } from './wait-for-deployment.js';
import { startWork } from './work.js';

const config = readConfigOrExit();
const log = createLog('worker', config.logLevel);
const redis = connect(config, log);
const queueRedis = connectForQueue(config, log);
const clickhouse = connectServers(serversIn(config));
const crash = createCrashPoint(config.crashAt);
const stop = stopRequested();
let stopping = false;
void stop.then(() => {
  stopping = true;
});

watchProcess('worker');
let working = false;
let serversWatch: ServersWatch | undefined;
function readiness() {
  const missing = whatIsMissing();
  return { ready: missing.length === 0, missing };
}

function whatIsMissing(): string[] {
  if (stopping) return ['running: the process is stopping'];
  if (redis.status !== 'ready') return ['redis'];
  if (!working) return ['state: run "npm run admin -- state reload" or start again'];
  // Without its only server a worker can do nothing; with several, the shards of the others continue.
  const [away, servers] = [serversWatch?.away() ?? [], serversOf(clickhouse)];
  return [
    ...(away.length === servers.all.length ? away : []),
    ...setBackIn(servers),
    ...servers.misconfigurations(),
  ];
}

/** A worker with its own port serves its metrics itself; otherwise the API process of its host does. */
const servesMetrics = config.workerAdminPort !== 0;
if (servesMetrics) {
  const routes = [...healthRoutes(readiness), ...adminRoutes(() => processRegistry.metrics(), log)];
  await listen(config.host, config.workerAdminPort, 'WORKER_ADMIN_PORT', false, routes, log).catch(exitAfter);
}

const deployment = await waitForDeployment(redis, clickhouse, () => stopping, log).catch(exitAfter);
if (deployment === undefined) process.exit(0);
const { epoch, secret, shards } = deployment;
const stopFollowingShards = await followShardTable(redis, clickhouse, log).catch(exitAfter);
serversWatch = watchServers(clickhouse);
const context: WorkerContext = { redis, queueRedis, clickhouse, config, shards, epoch, secret, crash, log };

// Before any work, which must not act on the state of an older store.
const witness = await followWitness({ redis, clickhouse, deployment: () => deployment, log });
witness.guard(redis);
followPrimary(redis, { deployment: () => deployment, log });
const work = startWork(context);
const stopSharingMetrics = servesMetrics ? undefined : shareMetrics(redis, `worker-${process.pid}`, log);
const stopAnnouncing = announceProcess(redis, 'worker', log);
working = true;
log.info({ shards }, 'working');

await stop;
log.info('stopping');
// If a job does not end in time, another worker takes it over; abandoning it loses nothing.
await inTime(work.stop(), takeovers.stopMsMax, undefined);
await stopSharingMetrics?.();
await stopAnnouncing();
stopFollowingShards();
witness.close();
serversWatch.close();
await clickhouse.close();
redis.disconnect();
queueRedis.disconnect();
log.info('stopped');
process.exit(0);
