// The API process: wiring and signals.

import { fileURLToPath } from 'node:url';
import { createAccessWatch } from './accounts/access-watch.js';
import { createPasswords } from './accounts/people/passwords.js';
import { createProvider } from './accounts/people/provider.js';
import { createAdministration } from './admin/administration.js';
import { readArrived } from './clickhouse/arrived.js';
import { tablesOf } from './clickhouse/client.js';
import { observeDisk } from './clickhouse/observe-disk.js';
import { connectServers, serversOf, setBackIn, watchServers } from './clickhouse/servers.js';
import { describeSetAside, watchSetAside } from './clickhouse/set-aside-parts.js';
import { readConfigOrExit } from './config.js';
import { commits, queries, waits } from './contract/limits.js';
import { createCrashPoint } from './crash-point.js';
import { adminRoutes } from './http/endpoints/admin.js';
import { adminApiRoutes } from './http/endpoints/admin-api.js';
import { createAdminCallers } from './http/endpoints/admin-caller.js';
import type { Ingestion } from './http/endpoints/admission.js';
import { largeBodiesOfServers } from './http/endpoints/byte-allowance.js';
import { collectRoutes } from './http/endpoints/collect.js';
import { type DeletionApiOptions, deletionRoutes } from './http/endpoints/deletion.js';
import { accountDeletionRoute } from './http/endpoints/deletion-submission.js';
import { healthPart, healthRoutes, type Readiness } from './http/endpoints/health.js';
import { ingestRoutes } from './http/endpoints/ingest.js';
import { segmentRoutes } from './http/endpoints/segment.js';
import { type SignInOptions, signInRoutes } from './http/endpoints/sign-in.js';
import { signOnDocs, signOnRoutes } from './http/endpoints/sign-on.js';
import {
  accountExportRoute,
  type ExportApiOptions,
  exportPart,
  exportRoutes,
} from './http/endpoints/user-export.js';
import { suppressionPart, suppressionRoutes } from './http/endpoints/user-suppression.js';
import { pairingRoutes, visualizerPart } from './http/endpoints/visualizer.js';
import { createLivePages } from './http/endpoints/visualizer-live.js';
import { createFindWatcher } from './http/endpoints/visualizer-people.js';
import { administrationPart } from './http/openapi/administration.js';
import { collectPart } from './http/openapi/collect.js';
import { deletionPart } from './http/openapi/deletion.js';
import { openApiRoute } from './http/openapi/document.js';
import { ingestPart } from './http/openapi/ingest.js';
import { segmentPart } from './http/openapi/segment.js';
import { type DemoOptions, demoRoutes } from './http/pages/demo.js';
import { consoleRoutes } from './http/pages/pages.js';
import { sdkRoutes } from './http/pages/sdk.js';
import { createCallerAddress, createProxyCheck } from './http/protocol/caller-address.js';
import { divideConnections, limitConnections } from './http/protocol/connections.js';
import { front } from './http/protocol/front.js';
import { listen, PortTaken, type Route, type Server } from './http/protocol/server.js';
import { createWrongTokens } from './http/protocol/wrong-tokens.js';
import { createCommitter } from './ingest/commit.js';
import { createLimitKeys } from './ingest/limit-key.js';
import { keepCountsIn } from './insights/data-quality/environment-counts.js';
import { keepRejectedIn } from './insights/data-quality/rejected-records.js';
import { keepMinuteCounts } from './insights/traffic/minute-counts.js';
import { createChannel } from './insights/visualizer/channel.js';
import { observePairings } from './insights/visualizer/observe.js';
import { createBatchPublisher } from './insights/visualizer/show.js';
import { createLog } from './log.js';
import { bounds, deploymentRegistry } from './metrics.js';
import { findDemoAccount } from './operations/deployment.js';
import { createPlaces } from './places.js';
import { observeDeletions } from './privacy/deletion/observe.js';
import { createPreviews } from './privacy/deletion/preview.js';
import type { SubmitOptions } from './privacy/deletion/submit.js';
import { createDownloads } from './privacy/export/downloads.js';
import { observeRetention } from './privacy/retention/due.js';
import type { SuppressOptions } from './privacy/suppression/submit.js';
import { followSuppressions } from './privacy/suppression/suppressions.js';
import { watchProcess } from './process-metrics.js';
import { observeBacklog } from './redis/backlog.js';
import { connect, connectForCommits, connectForMessages, untilReady } from './redis/client.js';
import { observeServers } from './redis/observe-servers.js';
import { announceProcess } from './redis/processes.js';
import { readSharedMetrics, shareMetrics } from './redis/shared-metrics.js';
import { followEnvironments } from './registry/environments.js';
import { clickhouseOf, exitAfter, followShardTable } from './registry/shard-servers.js';
import { followShards } from './registry/shard-states.js';
import { followWitness } from './registry/witness.js';
import { stopRequested } from './stop.js';
import { commitBatches } from './tuning.js';

const config = readConfigOrExit();
const log = createLog('api', config.logLevel);
const processName = `api-${process.pid}`;
const crash = createCrashPoint(config.crashAt);

const commitRedis = connectForCommits(config, commitBatches.attemptMs, log);
// A request that needs this connection is answered within 2 s, whatever happens to Redis.
const redis = connect(config, log, waits.requestMsMax);
await untilReady(redis, 2_000).catch(() => log.warn('redis does not answer yet'));
// Sending a list of ten thousand users takes longer.
const deletionRedis = connect(config, log);
const clickhouse = connectServers(config.clickhouseUrls, config.clickhouseDatabase, tablesOf(config));
const stopFollowingShards = await followShardTable(redis, clickhouse, log).catch(exitAfter);
const serversWatch = watchServers(clickhouse);
const setAside = watchSetAside(clickhouse);
const environments = await followEnvironments(redis, log);
const watchAccess = createAccessWatch(environments.onChange);
const shardStates = followShards(redis, environments.deployment);
const suppressions = await followSuppressions(redis, environments.deployment, log);
const witness = await followWitness({ redis, clickhouse, deployment: environments.deployment, log });
for (const connection of [redis, commitRedis, deletionRedis]) witness.guard(connection);
const counts = keepCountsIn(redis, log);
const rejected = keepRejectedIn(redis, log);
const traffic = keepMinuteCounts({ clickhouse, log });

const channel = createChannel({
  redis,
  connectForMessages: () => connectForMessages(config, log),
  log,
});
const callerAddress = createCallerAddress(config.trustedProxies);
const isProxy = createProxyCheck(config.trustedProxies);
const connectionsMax = divideConnections(config.connectionsMax);
const adminConnections = limitConnections(connectionsMax.admin, isProxy);
const wrongTokens = createWrongTokens(log);
const callers = createAdminCallers({ ...config, redis, wrongTokens });
const livePages = createLivePages({
  callerAddress,
  callers,
  watchAccess,
  findWatcher: createFindWatcher({
    redis,
    audit: { redis, clickhouse, log },
    accountOf: (appId) => environments.get(appId)?.accountId,
  }),
  wrongTokens,
  adminToken: config.adminToken,
  adminBaseUrl: config.adminBaseUrl,
  redis,
  channel,
  secret: () => environments.deployment()?.secret,
  onDisconnected: adminConnections.webSocketEnded,
  log,
});

const downloads = createDownloads();
const queryPlaces = createPlaces(queries);

let startedIngestion: (Ingestion & { readonly close: () => Promise<void> }) | undefined;

/** Commits are possible once the deployment is known. It never changes while the process lives. */
function ingestion(): Ingestion | undefined {
  const deployment = environments.deployment();
  if (startedIngestion !== undefined || deployment === undefined) return startedIngestion;
  if (!witness.hasCompared()) return undefined;
  const committers = Array.from({ length: deployment.shards }, (_, shard) =>
    createCommitter({
      redis: commitRedis,
      shard,
      suppressions,
      epoch: deployment.epoch,
      backlogBytesMax: Math.floor(config.backlogBytesMax / deployment.shards),
      segmentBytesMax: config.segmentBytesMax,
      segmentAgeMsMax: config.segmentAgeMsMax,
      crash,
      log,
    }),
  );
  startedIngestion = {
    limitKeys: createLimitKeys(deployment.secret),
    suppressions,
    committerOf: (shard) => {
      const committer = committers[shard];
      if (committer === undefined) throw new Error('there is no such shard');
      return committer;
    },
    close: async () => {
      await Promise.all(committers.map((committer) => committer.close()));
    },
  };
  return startedIngestion;
}

/** What submitting a deletion needs, once the deployment is known. */
function submission(): SubmitOptions | undefined {
  const deployment = environments.deployment();
  return deployment === undefined
    ? undefined
    : {
        redis: deletionRedis,
        epoch: deployment.epoch,
        shards: deployment.shards,
        secret: deployment.secret,
        crash,
      };
}

/** What suppressing users needs, once the deployment is known. */
function suppression(): SuppressOptions | undefined {
  const deployment = environments.deployment();
  if (deployment === undefined) return undefined;
  const { epoch, shards, secret } = deployment;
  return { redis: deletionRedis, clickhouse, epoch, shards, secret, crash };
}

function readiness(): Readiness {
  const unready = (missing: string) => ({ ready: false, missing: [missing] });
  const remedy = 'run "npm run admin -- restore" or start again';
  if (stopping) return unready('running: the process is stopping');
  if (commitRedis.status !== 'ready') return unready('redis');
  if (!environments.isLoaded()) return unready(`state: ${remedy}`);
  if (!witness.hasCompared()) return unready('state: it is being compared with ClickHouse');
  // If one shard was emptied, the others go on.
  const missing = shardStates.shardsWithoutState().map((shard) => `state of shard ${shard}: ${remedy}`);
  const ready = missing.length < (environments.deployment()?.shards ?? 1);
  // Records are accepted without ClickHouse until the backlog is full, so no process is taken out for it.
  const servers = serversOf(clickhouse);
  const ofServers = [...serversWatch.away(), ...setBackIn(servers), ...servers.misconfigurations()];
  return { ready, missing: [...missing, ...ofServers, ...describeSetAside(setAside.counts())] };
}

async function readMetrics(): Promise<string> {
  const shards = environments.deployment()?.shards ?? 0;
  const deployment = await Promise.all([
    observeBacklog(redis, shards),
    observeDeletions(redis),
    observeRetention(redis),
    observePairings(redis),
    observeServers(redis),
    observeDisk(clickhouse),
  ])
    .then(() => deploymentRegistry.metrics())
    .catch(() => '');
  return `${await readSharedMetrics(redis, processName)}\n${deployment}`;
}

watchProcess('api');
bounds.backlogBytes.set(config.backlogBytesMax);
bounds.claimBytes.set(config.claimBytesMax);
bounds.commitWaitingBytes.set(commits.waitingBytesMax);

let stopping = false;
const servers: Server[] = [];
try {
  const shared = config.apiProcesses > 1;
  const largeBodies = largeBodiesOfServers(config.addressBytesMax, environments);
  const options = { environments, ingestion, counts, rejected, traffic, largeBodies };
  const consoleFolder = fileURLToPath(new URL('./console/', import.meta.url));
  const demo: DemoOptions = {
    publicBaseUrl: config.publicBaseUrl,
    host: config.adminHost,
    adminPort: config.adminPort,
    account: () => findDemoAccount(redis),
    accountOf: (appId) => environments.get(appId)?.accountId,
    readArrived: (query) =>
      readArrived(clickhouseOf(clickhouse, query.appId), query, serversOf(clickhouse).table() !== undefined),
    built: consoleFolder,
    log,
  };
  const deletionOptions: DeletionApiOptions = {
    submission,
    suppression,
    clickhouse,
    previews: createPreviews(clickhouse),
    queries: queryPlaces,
    audit: { redis: deletionRedis, clickhouse, log },
    redis: deletionRedis,
    publicBaseUrl: config.publicBaseUrl,
    crash,
    log,
  };
  const signInOptions: SignInOptions = {
    callers,
    redis,
    passwords: createPasswords(),
    audit: { redis, clickhouse, log },
    secret: () => environments.deployment()?.secret,
    isSecure: config.adminBaseUrl.startsWith('https:'),
    hasProvider: config.provider !== undefined,
    log,
  };
  const exportOptions: ExportApiOptions = {
    submission,
    audit: { redis: deletionRedis, clickhouse, log },
    reading: { redis: deletionRedis, clickhouse },
    downloads,
    watchAccess,
    publicBaseUrl: config.publicBaseUrl,
    log,
  };
  const routes: Route[] = [
    ...ingestRoutes(options),
    ...collectRoutes({
      ...options,
      addressBytesMax: config.collectAddressBytesMax,
      onCollected: createBatchPublisher({ redis, channel, log }),
    }),
    ...segmentRoutes({ ...options, publicBaseUrl: config.publicBaseUrl }),
    ...sdkRoutes({ folder: fileURLToPath(new URL('..', import.meta.url)), log }),
    ...deletionRoutes(deletionOptions),
    ...suppressionRoutes({
      suppression,
      audit: { redis: deletionRedis, clickhouse, log },
      redis: deletionRedis,
      log,
    }),
    ...exportRoutes(exportOptions),
    ...pairingRoutes({ redis, environments, channel, log }),
    ...healthRoutes(readiness),
  ];
  const publicDocument = openApiRoute(
    config.publicBaseUrl,
    [
      ingestPart,
      collectPart,
      segmentPart,
      deletionPart,
      suppressionPart,
      exportPart,
      visualizerPart,
      healthPart,
    ],
    routes,
  );
  const administration: Route[] = [
    ...adminApiRoutes({
      callers,
      administrationFor: (actor, principal) =>
        createAdministration({ redis, clickhouse, config, log }, actor, principal, queryPlaces),
      log,
    }),
    accountDeletionRoute(deletionOptions, callers),
    accountExportRoute(exportOptions, callers),
    ...signInRoutes(signInOptions),
    ...(config.provider === undefined
      ? []
      : signOnRoutes({
          ...signInOptions,
          provider: createProvider(config.provider),
          adminBaseUrl: config.adminBaseUrl,
        })),
  ];
  front(config.headerBytesMax);
  const limited = limitConnections(connectionsMax.public, isProxy);
  servers.push(
    await listen(
      config.host,
      config.port,
      'PORT',
      shared,
      [...routes, publicDocument],
      log,
      callerAddress,
      limited.attach,
    ),
  );
  servers.push(
    await listen(
      config.adminHost,
      config.adminPort,
      'ADMIN_PORT',
      shared,
      [
        ...adminRoutes(readMetrics, log),
        publicDocument,
        openApiRoute(
          config.adminBaseUrl,
          [administrationPart],
          [...administration, ...signOnDocs],
          '/admin/v1/openapi.json',
        ),
        ...administration,
        ...consoleRoutes(consoleFolder, config.adminToken !== '', log),
        ...(config.demo ? demoRoutes(demo) : []),
      ],
      log,
      callerAddress,
      (app) => {
        adminConnections.attach(app);
        livePages.attach(app);
      },
    ),
  );
} catch (error) {
  if (!(error instanceof PortTaken)) throw error;
  process.stderr.write(`sluice: ${error.message}\n`);
  process.exit(1);
}
const stopSharing = shareMetrics(redis, processName, log);
const stopAnnouncing = announceProcess(redis, 'api', log);
log.info({ port: config.port, adminPort: config.adminPort }, 'listening');

await stopRequested();
stopping = true;
log.info('stopping');
livePages.close();
downloads.close();
// Accepted requests are answered before anything that they need is closed.
await Promise.all(servers.map((server) => server.close()));
await startedIngestion?.close();
await counts.close();
await rejected.close();
await traffic.close();
await stopSharing();
await stopAnnouncing();
environments.close();
witness.close();
channel.close();
shardStates.close();
stopFollowingShards();
serversWatch.close();
setAside.close();
suppressions.close();
await clickhouse.close();
commitRedis.disconnect();
deletionRedis.disconnect();
redis.disconnect();
log.info('stopped');
process.exit(0);
