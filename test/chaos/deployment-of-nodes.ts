// The layout in which a host of Redis may burn: a primary, two replicas and three sentinels on three hosts of their own, two
// ClickHouse servers, two API processes and two workers, which reach each host by its address.

import { readConfig } from '../../src/config.js';
import { Redis } from '../../src/packages/ioredis.js';
import { bySentinels } from '../../src/redis/sentinels.js';
import { createHosts, type Host } from '../harness/hosts.js';
import { type RedisReplicasHandle, startRedisReplicas } from '../harness/redis-replicas.js';
import { type Child, type RedisHandle, startSluice } from '../harness/services.js';
import { type AnyDeployment, backlogBytesMax, jobLockMs, oursByPart } from './deployment.js';
import { untilMovesEnd } from './faults-moves.js';
import type { ProcessPart } from './parts.js';

const numbers = [1, 2, 3] as const;
const replicas = numbers.length - 1;
const clickhouseServers = 2;
export const shardsOfNodes = 2;

/** A host with its server and its sentinel. */
export type Node = { readonly host: Host; readonly server: RedisHandle; readonly sentinel: Child };

export type DeploymentOfNodes = AnyDeployment & {
  readonly nodes: readonly Node[];
  readonly replicated: RedisReplicasHandle;
};

export async function startDeploymentOfNodes(): Promise<DeploymentOfNodes> {
  const hosts = createHosts(numbers.length);
  const replicated = await startRedisReplicas({ replicas, sentinels: numbers.length, hosts: hosts.all });
  const nodes = hosts.all.map((host, at) => ({
    host,
    server: replicated.servers[at] as RedisHandle,
    sentinel: replicated.sentinels[at] as Child,
  }));
  const failedMoves = new Map<number, number>();
  const sluice = await startSluice({
    redis: replicated.servers[0] as RedisHandle,
    clickhouseServers,
    apiProcesses: 2,
    workers: 2,
    env: {
      REDIS_URL: replicated.url,
      REDIS_REPLICAS_ACK: '1',
      SHARDS: String(shardsOfNodes),
      JOB_LOCK_MS: String(jobLockMs),
      CALLBACK_ALLOW: '127.0.0.1',
      BACKLOG_BYTES_MAX: String(backlogBytesMax),
    },
  });
  const clickhouses = sluice.clickhouses.map((server, at): [ProcessPart, Child] => [
    `clickhouse-${numbers[at] ?? 1}`,
    server,
  ]);
  const processes = new Map<ProcessPart, Child>([
    ...oursByPart(sluice),
    ...clickhouses,
    ...nodes.map(({ server }, at): [ProcessPart, Child] => [`redis-${numbers[at] ?? 1}`, server]),
  ]);
  const redis = connectTo(replicated.url);

  async function heal(): Promise<void> {
    const stores = [
      ...nodes.flatMap(({ server, sentinel }) => [server, sentinel]),
      ...clickhouses.map(([, child]) => child),
    ];
    for (const { host } of nodes) host.join();
    for (const child of [...stores, ...processes.values()]) child.sigcont();
    const startDead = (children: readonly Child[]) =>
      Promise.all(children.filter(({ running }) => !running).map((child) => child.restart()));
    await startDead(stores);
    await replicated.untilReplicated(replicas);
    await startDead([...sluice.api, ...sluice.workers]);
    await untilMovesEnd({ sluice, failedMoves });
  }

  return {
    layout: 'nodes',
    sluice,
    processes,
    links: new Map(),
    redis,
    shards: shardsOfNodes,
    nodes,
    replicated,
    untilRedisServes: () => replicated.untilReplicated(replicas),
    failedMoves,
    heal,
    stop: async () => {
      redis.disconnect();
      await sluice.stop();
      await replicated.remove();
      hosts.remove();
    },
  };
}

/** The harness's own connection to whoever is the primary; it waits for one. */
function connectTo(url: string): Redis {
  const { redisSentinels } = readConfig({ REDIS_URL: url });
  const redis = new Redis({
    ...(redisSentinels && bySentinels(redisSentinels, () => 50)),
    retryStrategy: () => 50,
    maxRetriesPerRequest: null,
    connectTimeout: 1_000,
    socketTimeout: 3_000,
  });
  redis.on('error', () => undefined);
  return redis;
}
