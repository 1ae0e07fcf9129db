// The layouts in which a host of Redis may be lost: a primary, two replicas and three sentinels on three hosts, or a cluster of three
// masters with two replicas each on nine hosts. Two ClickHouse servers, two API processes and two workers run beside them.

import { readConfig } from '../../src/config.js';
import { type Cluster, Redis } from '../../src/packages/ioredis.js';
import { bySentinels } from '../../src/redis/sentinels.js';
import { createHosts, type Host } from '../harness/hosts.js';
import { startRedisCluster } from '../harness/redis-cluster.js';
import { startRedisReplicas } from '../harness/redis-replicas.js';
import { type Child, type RedisHandle, startSluice } from '../harness/services.js';
import { type AnyDeployment, oursByPart, startDead, usualEnvironment } from './deployment.js';
import { untilMovesEnd } from './faults-moves.js';
import type { ProcessPart } from './parts.js';

const numbers = [1, 2, 3] as const;
const replicas = 2;
const clickhouseServers = 2;
export const shardsOfNodes = 2;

export type Node = { readonly host: Host; readonly server: RedisHandle; readonly sentinel?: Child };

type Servers = {
  readonly servers: readonly RedisHandle[];
  readonly sentinels: readonly Child[];
  readonly url: string;
  /** The harness's own connection. */
  readonly redis: Redis | Cluster;
  /** The server that has a key now. */
  ownerOf(key: string): Promise<RedisHandle>;
  /** Settles when each primary has all of its replicas. */
  untilReplicated(): Promise<void>;
  remove(): Promise<void>;
};

export type DeploymentOfNodes = AnyDeployment &
  Pick<Servers, 'ownerOf' | 'untilReplicated'> & { readonly nodes: readonly Node[] };

export async function startDeploymentOfNodes(layout: 'nodes' | 'cluster'): Promise<DeploymentOfNodes> {
  const hosts = createHosts(layout === 'nodes' ? numbers.length : numbers.length * (1 + replicas));
  const servers = await (layout === 'nodes' ? startWithSentinels(hosts.all) : startCluster(hosts.all));
  const nodes = hosts.all.map((host, at): Node => {
    const sentinel = servers.sentinels[at];
    return { host, server: servers.servers[at] as RedisHandle, ...(sentinel && { sentinel }) };
  });
  const failedMoves = new Map<number, number>();
  const sluice = await startSluice({
    redis: servers.servers[0] as RedisHandle,
    clickhouseServers,
    apiProcesses: 2,
    workers: 2,
    env: {
      ...usualEnvironment,
      REDIS_URL: servers.url,
      REDIS_REPLICAS_ACK: '1',
      SHARDS: String(shardsOfNodes),
    },
  });
  const clickhouses = sluice.clickhouses.map((server, at): [ProcessPart, Child] => [
    `clickhouse-${numbers[at] ?? 1}`,
    server,
  ]);
  const processes = new Map<ProcessPart, Child>([...oursByPart(sluice), ...clickhouses]);
  const stores = [...servers.servers, ...servers.sentinels, ...sluice.clickhouses];

  async function heal(): Promise<void> {
    for (const { host } of nodes) host.join();
    for (const child of [...stores, ...processes.values()]) child.sigcont();
    await startDead(stores);
    await servers.untilReplicated();
    await startDead([...sluice.api, ...sluice.workers]);
    await untilMovesEnd({ sluice, failedMoves });
  }

  const { redis, ownerOf, untilReplicated } = servers;
  return {
    layout,
    sluice,
    processes,
    links: new Map(),
    redis,
    shards: shardsOfNodes,
    nodes,
    ownerOf,
    untilReplicated,
    untilRedisServes: untilReplicated,
    failedMoves,
    heal,
    stop: async () => {
      redis.disconnect();
      await sluice.stop();
      await servers.remove();
      hosts.remove();
    },
  };
}

async function startWithSentinels(hosts: readonly Host[]): Promise<Servers> {
  const replicated = await startRedisReplicas({ replicas, sentinels: numbers.length, hosts });
  const { redisSentinels } = readConfig({ REDIS_URL: replicated.url });
  // This client waits for a primary without a limit.
  const redis = new Redis({
    ...(redisSentinels && bySentinels(redisSentinels, () => 50)),
    retryStrategy: () => 50,
    maxRetriesPerRequest: null,
    connectTimeout: 1_000,
    socketTimeout: 3_000,
  });
  redis.on('error', () => undefined);
  return {
    ...replicated,
    redis,
    ownerOf: () => replicated.primary(),
    untilReplicated: () => replicated.untilReplicated(replicas),
  };
}

async function startCluster(hosts: readonly Host[]): Promise<Servers> {
  const cluster = await startRedisCluster({
    replicas,
    appendfsync: 'always',
    hosts,
    more: ['min-replicas-to-write 0', 'repl-diskless-sync-delay 0', 'cluster-replica-validity-factor 0'],
  });
  return {
    ...cluster,
    servers: [...cluster.masters, ...cluster.replicas],
    sentinels: [],
    untilReplicated: async () => {
      await cluster.untilReplicated(replicas);
      // A restarted master serves no slots for its first seconds.
      await cluster.untilOk();
    },
  };
}
