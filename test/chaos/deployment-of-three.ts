// The layout `three`: a Redis Cluster of three masters and three ClickHouse servers with shards on all of them, each behind a proxy that
// only the harness bypasses, two API processes and two workers.

import { atPort } from '../harness/clickhouse.js';
import { startRedisCluster } from '../harness/redis-cluster.js';
import {
  type Child,
  type RedisHandle,
  startSluice,
  startTcpProxy,
  type TcpProxy,
} from '../harness/services.js';
import { type AnyDeployment, oursByPart, startDead, usualEnvironment } from './deployment.js';
import { untilMovesEnd } from './faults-moves.js';
import type { Link, ProcessPart } from './parts.js';

const numbers = [1, 2, 3] as const;
export const shardsOfThree = 6;

export async function startDeploymentOfThree(): Promise<AnyDeployment> {
  const links = new Map<Link, TcpProxy>();
  const failedMoves = new Map<number, number>();
  const cluster = await startRedisCluster({
    announced: async (port) => {
      const proxy = await startTcpProxy({ port });
      links.set(`to-redis-${numbers[links.size] ?? 1}`, proxy);
      return proxy.port;
    },
  });
  const { masters, redis } = cluster;
  // A proxy can start only when its ClickHouse server's port is known, and our processes only after the proxies.
  const proxied: string[] = [];
  const sluice = await startSluice({
    redis: masters[0] as RedisHandle,
    clickhouseServers: numbers.length,
    apiProcesses: 2,
    workers: 2,
    env: { ...usualEnvironment, REDIS_URL: cluster.url, SHARDS: String(shardsOfThree) },
    ways: async (clickhouses) => {
      for (const [index, { url, port }] of clickhouses.entries()) {
        const proxy = await startTcpProxy({ port });
        links.set(`to-clickhouse-${numbers[index] ?? 1}`, proxy);
        proxied.push(atPort(url, proxy.port));
      }
      return { CLICKHOUSE_URL: proxied.join(',') };
    },
  });
  const stores: [ProcessPart, Child][] = numbers.flatMap((number, index) => [
    [`redis-${number}`, masters[index] as Child],
    [`clickhouse-${number}`, sluice.clickhouses[index] as Child],
  ]);
  const processes = new Map<ProcessPart, Child>([...oursByPart(sluice), ...stores]);

  async function heal(): Promise<void> {
    for (const proxy of links.values()) proxy.pass();
    for (const child of processes.values()) child.sigcont();
    await startDead(stores.map(([, child]) => child));
    await cluster.untilOk();
    await startDead([...sluice.api, ...sluice.workers]);
    await untilMovesEnd({ sluice, failedMoves });
  }

  return {
    layout: 'three',
    sluice,
    processes,
    links,
    redis,
    shards: shardsOfThree,
    untilRedisServes: cluster.untilOk,
    failedMoves,
    heal,
    stop: async () => {
      redis.disconnect();
      await sluice.stop();
      await Promise.all([...links.values()].map((proxy) => proxy.close()));
      await cluster.remove();
    },
  };
}
