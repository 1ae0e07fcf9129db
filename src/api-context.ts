// The context of a running API process: its connections, the state of other processes that it follows, and what its routes share.

import { createAccessWatch } from './accounts/access-watch.js';
import { serversIn } from './clickhouse/client.js';
import { connectServers, watchServers } from './clickhouse/servers.js';
import { watchSetAside } from './clickhouse/set-aside-parts.js';
import { createPlaces } from './concurrency.js';
import type { Config } from './config.js';
import { queries, waits } from './contract/limits.js';
import { createCrashPoint } from './crash-point.js';
import type { Ingestion } from './http/endpoints/admission.js';
import { createCommitter } from './ingest/commit.js';
import { createLimitKeys } from './ingest/limit-key.js';
import { keepRejectedIn } from './insights/data-quality/rejected-records.js';
import { keepTermCounts } from './insights/ledger/count.js';
import { createChannel } from './insights/visualizer/channel.js';
import type { Log } from './log.js';
import { createPreviews } from './privacy/deletion/preview.js';
import { createDownloads } from './privacy/export/downloads.js';
import { followSuppressions } from './privacy/suppression/suppressions.js';
import { warnOfReplicas } from './redis/check-replicas.js';
import { connect, connectForCommits, connectForMessages, untilReady } from './redis/client.js';
import { followPrimary, type Primary } from './redis/take-over.js';
import { followEnvironments } from './registry/environments.js';
import { createLosses } from './registry/losses.js';
import { followShardTable } from './registry/shard-servers.js';
import { followWitness } from './registry/witness.js';
import { exitAfter } from './stop.js';

/** What the routes share. */
export type ApiContext = Awaited<ReturnType<typeof openContext>>;

/** Opens the connections and starts to follow the state. Settles even while Redis or ClickHouse is away. */
export async function openContext(config: Config, log: Log) {
  const followed = await connectAndFollow(config, log);
  const { redis, clickhouse, environments } = followed;
  return {
    ...followed,
    ingestion: createIngestion(config, followed),
    watchAccess: createAccessWatch(environments.onChange),
    audit: { redis, clickhouse, log },
    counts: keepTermCounts(redis, followed.environments.deployment, log),
    rejected: keepRejectedIn(redis, log),
    downloads: createDownloads(),
    queryPlaces: createPlaces(queries),
    previews: createPreviews(clickhouse),
  };
}

type Followed = Awaited<ReturnType<typeof connectAndFollow>>;

async function connectAndFollow(config: Config, log: Log) {
  const crash = createCrashPoint(config.crashAt);
  const commitRedis = connectForCommits(config, log);
  // A request that needs this connection is answered within 2 s, whatever happens to Redis.
  const redis = connect(config, log, waits.requestMsMax);
  await untilReady(redis, 2_000).catch(() => log.warn('redis does not answer yet'));
  void warnOfReplicas(redis, config.redisReplicasAck, log);
  // A connection without that limit, since sending a list of ten thousand users takes longer.
  const deletionRedis = connect(config, log);
  const clickhouse = connectServers(serversIn(config));
  const stopFollowingShards = await followShardTable(redis, clickhouse, log).catch(exitAfter);
  const serversWatch = watchServers(clickhouse);
  const setAside = watchSetAside(clickhouse);
  const environments = await followEnvironments(redis, log);
  const suppressions = await followSuppressions(redis, environments.deployment, log);
  const witness = await followWitness({ redis, clickhouse, deployment: environments.deployment, log });
  for (const connection of [redis, commitRedis, deletionRedis]) witness.guard(connection);
  const [primary] = [commitRedis, redis, deletionRedis].map((connection) =>
    followPrimary(connection, { deployment: environments.deployment, log }),
  ) as [Primary, ...Primary[]];
  const losses = createLosses(redis, environments.deployment, log);
  const channel = createChannel({
    redis,
    connectForMessages: () => connectForMessages(config, log),
    log,
  });
  async function close(): Promise<void> {
    environments.close();
    witness.close();
    channel.close();
    stopFollowingShards();
    serversWatch.close();
    setAside.close();
    suppressions.close();
    await clickhouse.close();
    commitRedis.disconnect();
    deletionRedis.disconnect();
    redis.disconnect();
  }

  return {
    log,
    crash,
    redis,
    commitRedis,
    primary,
    losses,
    deletionRedis,
    clickhouse,
    serversWatch,
    setAside,
    environments,
    suppressions,
    witness,
    channel,
    close,
  };
}

/**
 * Makes the committers as soon as the deployment is known and has been compared with ClickHouse. The deployment never changes while the
 * process lives.
 */
function createIngestion(
  config: Config,
  { environments, witness, suppressions, commitRedis, primary, losses, crash, log }: Followed,
) {
  let started: (Ingestion & { readonly close: () => Promise<void> }) | undefined;

  function get(): Ingestion | undefined {
    const deployment = environments.deployment();
    if (started !== undefined || deployment === undefined) return started;
    if (!witness.hasCompared()) return undefined;
    const committers = Array.from({ length: deployment.shards }, (_, shard) =>
      createCommitter({
        redis: commitRedis,
        primary,
        onLost: (commits) => losses.note(shard, commits),
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
    started = {
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
    return started;
  }

  return { get, close: async () => started?.close() };
}
