// The API process: wiring and signals.

import { fileURLToPath } from 'node:url';
import { findDemoAccount } from './accounts/deployment.js';
import { followEnvironments } from './accounts/environments.js';
import { followShards } from './accounts/shard-states.js';
import { runCommand } from './admin/commands.js';
import { readArrived } from './clickhouse/arrived.js';
import { connectClickHouse } from './clickhouse/client.js';
import { readConfigOrExit } from './config.js';
import { commits } from './contract/limits.js';
import { createCrashPoint } from './crash-point.js';
import { observeDeletions } from './deletion/observe.js';
import type { SubmitOptions } from './deletion/submit.js';
import { adminRoutes } from './http/admin.js';
import { adminApiRoutes } from './http/admin-api.js';
import { collectRoutes } from './http/collect.js';
import { deletionRoutes } from './http/deletion.js';
import { type DemoOptions, demoRoutes } from './http/demo.js';
import { healthRoutes, type Readiness } from './http/health.js';
import { type Ingestion, ingest } from './http/ingest.js';
import { openApiRoute } from './http/openapi.js';
import { collectPart } from './http/openapi-collect.js';
import { deletionPart } from './http/openapi-deletion.js';
import { healthPart } from './http/openapi-health.js';
import { ingestPart } from './http/openapi-ingest.js';
import { visualizerPart } from './http/openapi-visualizer.js';
import { pageFileRoutes, visualizerPageRoute } from './http/pages.js';
import { sdkRoutes } from './http/sdk.js';
import { listen, PortTaken, type Route, type Server } from './http/server.js';
import { pairingRoutes } from './http/visualizer.js';
import { createLivePages } from './http/visualizer-live.js';
import { createCommitter } from './ingest/commit.js';
import { eventKind } from './ingest/event.js';
import { identifyKind } from './ingest/identify.js';
import { createLimitKeys } from './ingest/limit-key.js';
import { countMendingsInto } from './ingest/mending-counts.js';
import { keepRejectedIn } from './ingest/rejected-records.js';
import { userPropertiesKind } from './ingest/user-properties.js';
import { createLog } from './log.js';
import { deploymentRegistry } from './metrics.js';
import { observeBacklog } from './redis/backlog.js';
import { connect, connectForCommits, connectForMessages, ready } from './redis/client.js';
import { readSharedMetrics, shareMetrics } from './redis/shared-metrics.js';
import { stopRequested } from './stop.js';
import { createChannel } from './visualizer/channel.js';
import { observePairings } from './visualizer/observe.js';
import { createShow } from './visualizer/show.js';

const config = readConfigOrExit();
const log = createLog('api', config.logLevel);
const processName = `api-${process.pid}`;
const crash = createCrashPoint(config.crashAt);

const commitRedis = connectForCommits(config, commits.attemptMs, log);
// A request that needs it is answered within 2 s, whatever becomes of Redis.
const redis = connect(config, log, 1_500);
await ready(redis, 2_000).catch(() => log.warn('redis is not there yet'));
// A list of ten thousand users takes longer than that to send.
const deletionRedis = connect(config, log);
const clickhouse = connectClickHouse({ url: config.clickhouseUrl, database: config.clickhouseDatabase });
const environments = await followEnvironments(redis, log);
const shardStates = followShards(redis, environments.deployment);
const mendings = countMendingsInto(redis, log);
const rejected = keepRejectedIn(redis, log);

const channel = createChannel({
  redis,
  connectForMessages: () => connectForMessages(config, log),
  log,
});
const livePages = createLivePages({
  adminToken: config.adminToken,
  redis,
  channel,
  secret: () => environments.deployment()?.secret,
  log,
});

let made: (Ingestion & { readonly close: () => Promise<void> }) | undefined;

/** Commits can be made once the deployment is known; it never changes while the process lives. */
function ingestion(): Ingestion | undefined {
  const deployment = environments.deployment();
  if (made !== undefined || deployment === undefined) return made;
  const committers = Array.from({ length: deployment.shards }, (_, shard) =>
    createCommitter({
      redis: commitRedis,
      shard,
      epoch: deployment.epoch,
      backlogBytesMax: Math.floor(config.backlogBytesMax / deployment.shards),
      segmentBytesMax: config.segmentBytesMax,
      segmentAgeMsMax: config.segmentAgeMsMax,
      crash,
      log,
    }),
  );
  made = {
    limitKeys: createLimitKeys(deployment.secret),
    committerOf: (shard) => {
      const committer = committers[shard];
      if (committer === undefined) throw new Error('there is no such shard');
      return committer;
    },
    close: async () => {
      await Promise.all(committers.map((committer) => committer.close()));
    },
  };
  return made;
}

/** What a deletion is submitted to, once the deployment is known. */
function submission(): SubmitOptions | undefined {
  const deployment = environments.deployment();
  return deployment === undefined
    ? undefined
    : { redis: deletionRedis, epoch: deployment.epoch, shards: deployment.shards, crash };
}

function readiness(): Readiness {
  const unready = (missing: string) => ({ ready: false, missing: [missing] });
  const remedy = 'run "npm run admin -- restore" or start again';
  if (stopping) return unready('running: the process is stopping');
  if (commitRedis.status !== 'ready') return unready('redis');
  if (!environments.loaded()) return unready(`state: ${remedy}`);
  // Other shards go on without one that was emptied.
  const missing = shardStates.lacking().map((shard) => `state of shard ${shard}: ${remedy}`);
  return { ready: missing.length < (environments.deployment()?.shards ?? 1), missing };
}

async function readMetrics(): Promise<string> {
  const shards = environments.deployment()?.shards ?? 0;
  const deployment = await Promise.all([
    observeBacklog(redis, shards),
    observeDeletions(redis),
    observePairings(redis),
  ])
    .then(() => deploymentRegistry.metrics())
    .catch(() => '');
  return `${await readSharedMetrics(redis, processName)}\n${deployment}`;
}

/** The administration's commands, as over the command line. */
function runAdminCommand(args: readonly string[]): Promise<unknown> {
  return runCommand({ redis, clickhouse, config, log }, args);
}

let stopping = false;
const servers: Server[] = [];
try {
  const shared = config.apiProcesses > 1;
  const options = { environments, ingestion, countMendings: mendings.count, rejected };
  const demo: DemoOptions = {
    publicBaseUrl: config.publicBaseUrl,
    host: config.host,
    adminPort: config.adminPort,
    account: () => findDemoAccount(redis),
    accountOf: (appId) => environments.get(appId)?.accountId,
    readArrived: (query) => readArrived(clickhouse, query),
    phoneScript: fileURLToPath(new URL('../sluice-ios.js', import.meta.url)),
    log,
  };
  const routes: Route[] = [
    { method: 'post', path: '/api/track', handle: ingest(eventKind, options) },
    { method: 'post', path: '/api/add_user_properties', handle: ingest(userPropertiesKind, options) },
    { method: 'post', path: '/api/v1/identify', handle: ingest(identifyKind, options) },
    ...collectRoutes({ ...options, onCollected: createShow({ redis, channel, log }) }),
    ...sdkRoutes({ folder: fileURLToPath(new URL('..', import.meta.url)), log }),
    ...deletionRoutes({ submission, redis: deletionRedis, publicBaseUrl: config.publicBaseUrl, crash, log }),
    ...pairingRoutes({ redis, environments, channel, log }),
    ...healthRoutes(readiness),
    openApiRoute(config.publicBaseUrl, [ingestPart, collectPart, deletionPart, visualizerPart, healthPart]),
  ];
  servers.push(await listen(config.host, config.port, 'PORT', shared, routes, log));
  servers.push(
    await listen(
      config.host,
      config.adminPort,
      'ADMIN_PORT',
      shared,
      [
        ...adminRoutes(readMetrics, log),
        ...adminApiRoutes({ adminToken: config.adminToken, run: runAdminCommand, log }),
        visualizerPageRoute(config.adminToken !== ''),
        ...pageFileRoutes(),
        ...(config.demo ? demoRoutes(demo) : []),
      ],
      log,
      livePages.attach,
    ),
  );
} catch (error) {
  if (!(error instanceof PortTaken)) throw error;
  process.stderr.write(`sluice: ${error.message}\n`);
  process.exit(1);
}
const stopSharing = shareMetrics(redis, processName, log);
log.info({ port: config.port, adminPort: config.adminPort }, 'listening');

await stopRequested();
stopping = true;
log.info('stopping');
livePages.close();
// Accepted requests are answered before anything they need is closed.
await Promise.all(servers.map((server) => server.close()));
await made?.close();
await mendings.close();
await rejected.close();
await stopSharing();
environments.close();
channel.close();
shardStates.close();
await clickhouse.close();
commitRedis.disconnect();
deletionRedis.disconnect();
redis.disconnect();
log.info('stopped');
process.exit(0);
