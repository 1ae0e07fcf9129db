// The API as one function of its configuration: it opens its context, and listens.

import { type ApiContext, openContext } from './api-context.js';
import { observeDisk } from './clickhouse/observe-disk.js';
import { serversOf, setBackIn } from './clickhouse/servers.js';
import { describeSetAside } from './clickhouse/set-aside-parts.js';
import type { Config } from './config.js';
import { commits } from './contract/limits.js';
import { createAdminCallers } from './http/endpoints/admin-caller.js';
import type { Readiness } from './http/endpoints/health.js';
import { createLivePages } from './http/endpoints/visualizer-live.js';
import { createCallerAddress, createProxyCheck } from './http/protocol/caller-address.js';
import { divideConnections, limitConnections } from './http/protocol/connections.js';
import { front } from './http/protocol/front.js';
import { listen } from './http/protocol/server.js';
import { createWrongTokens } from './http/protocol/wrong-tokens.js';
import { observeLedger } from './insights/ledger/schedule.js';
import type { Log } from './log.js';
import { bounds, deploymentRegistry, watchProcess } from './metrics.js';
import { observeDeletions, observeMasked } from './privacy/deletion/observe.js';
import { observeRetention } from './privacy/retention/due.js';
import { observeBacklog } from './redis/backlog.js';
import { observeServers } from './redis/observe-servers.js';
import { announceProcess } from './redis/processes.js';
import { readSharedMetrics, shareMetrics } from './redis/shared-metrics.js';
import { administratorsRoutes, publicRoutes } from './routes.js';

/**
 * Settles when it listens. Rejects with PortTaken. `close` settles when every accepted request is answered and everything is closed.
 */
export async function startApp(config: Config, log: Log): Promise<{ readonly close: () => Promise<void> }> {
  const processName = `api-${process.pid}`;
  const context = await openContext(config, log);
  const { redis } = context;
  const isProxy = createProxyCheck(config.trustedProxies);
  const callerAddress = createCallerAddress(config.trustedProxies);
  const connectionsMax = divideConnections(config.connectionsMax);
  const adminConnections = limitConnections(connectionsMax.admin, isProxy);
  const wrongTokens = createWrongTokens(log);
  const callers = createAdminCallers({ ...config, redis, environments: context.environments, wrongTokens });
  const livePages = createLivePages({
    callerAddress,
    callers,
    watchAccess: context.watchAccess,
    wrongTokens,
    adminToken: config.adminToken,
    adminBaseUrl: config.adminBaseUrl,
    redis,
    channel: context.channel,
    log,
    audit: context.audit,
    accountOf: (appId) => context.environments.get(appId)?.accountId,
    secret: () => context.environments.deployment()?.secret,
    onDisconnected: adminConnections.webSocketEnded,
  });
  let isStopping = false;
  const readiness = (): Readiness =>
    isStopping ? unready('running: the process is stopping') : readinessOf(context);

  watchProcess('api');
  bounds.backlogBytes.set(config.backlogBytesMax);
  bounds.claimBytes.set(config.claimBytesMax);
  bounds.eraseWithinSeconds.set(config.erasure.withinMs / 1000);
  bounds.commitWaitingBytes.set(commits.waitingBytesMax);
  front(config.headerBytesMax);
  const isShared = config.apiProcesses > 1;
  const ofPublic = publicRoutes(config, context, readiness);
  const limited = limitConnections(connectionsMax.public, isProxy);
  const servers = [
    await listen(
      config.host,
      config.port,
      'PORT',
      isShared,
      ofPublic.all,
      log,
      callerAddress,
      limited.attach,
    ),
    await listen(
      config.adminHost,
      config.adminPort,
      'ADMIN_PORT',
      isShared,
      [
        ...ofPublic.documents,
        ...administratorsRoutes(config, context, callers, () => readMetrics(context, processName)),
      ],
      log,
      callerAddress,
      (app) => {
        adminConnections.attach(app);
        livePages.attach(app);
      },
    ),
  ];
  const stopSharing = shareMetrics(redis, processName, log);
  const stopAnnouncing = announceProcess(redis, 'api', log);

  async function close(): Promise<void> {
    isStopping = true;
    livePages.close();
    context.downloads.close();
    // Accepted requests are answered before anything that they need is closed.
    await Promise.all(servers.map((server) => server.close()));
    await context.ingestion.close();
    await context.counts.close();
    await context.rejected.close();
    await stopSharing();
    await stopAnnouncing();
    await context.close();
  }
  return { close };
}

function unready(missing: string): Readiness {
  return { ready: false, missing: [missing] };
}

function readinessOf(context: ApiContext): Readiness {
  const { commitRedis, environments, witness, clickhouse, serversWatch, setAside, losses } = context;
  const remedy = 'run "npm run admin -- state reload" or start again';
  if (commitRedis.status !== 'ready') return unready('redis');
  const lost = losses.commits() > 0 ? [`records_lost: ${losses.commits()} acknowledged commits`] : [];
  if (!environments.isLoaded()) return { ready: false, missing: [`state: ${remedy}`, ...lost] };
  if (!witness.hasCompared()) return unready('state: it is being compared with ClickHouse');
  if (!witness.isConfirmed()) return unready('redis: its replicas confirm nothing');
  // If one of several shards was emptied, the process still serves the others.
  const missing = witness.shardsWithoutState().map((shard) => `state of shard ${shard}: ${remedy}`);
  const ready = missing.length < (environments.deployment()?.shards ?? 1);
  // Records are accepted without ClickHouse until the backlog is full, so no process is taken out for it.
  const servers = serversOf(clickhouse);
  const ofServers = [...serversWatch.away(), ...setBackIn(servers), ...servers.misconfigurations()];
  return { ready, missing: [...missing, ...lost, ...ofServers, ...describeSetAside(setAside.counts())] };
}

async function readMetrics(
  { redis, clickhouse, environments }: ApiContext,
  processName: string,
): Promise<string> {
  const shards = environments.deployment()?.shards ?? 0;
  const deployment = await Promise.all([
    observeBacklog(redis, shards),
    observeDeletions(redis),
    observeMasked(clickhouse),
    observeRetention(redis),
    observeLedger(redis),
    observeServers(redis),
    observeDisk(clickhouse),
  ])
    .then(() => deploymentRegistry.metrics())
    .catch(() => '');
  return `${await readSharedMetrics(redis, processName)}\n${deployment}`;
}
