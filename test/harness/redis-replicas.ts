// A primary with replicas for tests, and sentinels that make another server the primary when it is away. Each server is configured
// like the embedded Redis. What leads to a server, and between servers, can lead through proxies.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Child, startChild } from './child.js';
import { freePort } from './free-port.js';
import { type RedisHandle, type RedisOptions, startRedis } from './redis.js';
import { ask } from './redis-cluster.js';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
import { tempDir } from './temp-dir.js';
import { until } from './wait.js';

export type RedisReplicasHandle = {
  /** The first one begins as the primary. */
  readonly servers: readonly RedisHandle[];
  readonly sentinels: readonly Child[];
  /** By which the servers and sentinels reach each server, if `isProxied`. */
  readonly ways: readonly TcpProxy[];
  /** `REDIS_URL` that names the sentinels. */
  readonly url: string;
  /** The server that the sentinels call the primary. */
  primary(): Promise<RedisHandle>;
  /** Settles when the primary has so many replicas that are up to date. */
  untilReplicated(replicas: number): Promise<void>;
  remove(): Promise<void>;
};

export type RedisReplicasOptions = Pick<RedisOptions, 'appendfsync'> & {
  /** 1 by default. */
  readonly replicas?: number;
  /** None by default. */
  readonly sentinels?: number;
  /** The port under which a replica reaches the primary, by the primary's port. */
  readonly way?: (port: number) => number;
  /** Whether servers and sentinels reach each other by proxies; what names a server, names its proxy. */
  readonly isProxied?: boolean;
  /** Further lines of each redis.conf. */
  readonly more?: readonly string[];
};

const name = 'sluice';
const downMs = 1_000;

/** Settles when all replicas are up to date. */
export async function startRedisReplicas(options: RedisReplicasOptions = {}): Promise<RedisReplicasHandle> {
  const {
    replicas = 1,
    sentinels = 0,
    appendfsync = 'always',
    way = (port) => port,
    more = [],
    isProxied,
  } = options;
  const settings = [
    'min-replicas-to-write 1',
    'min-replicas-max-lag 3',
    'repl-diskless-sync-delay 0',
    ...more,
  ];
  const ways: TcpProxy[] = [];
  const startServer = async (...own: string[]) => {
    if (!isProxied) return startRedis({ appendfsync, more: [...settings, ...own] });
    const target = { port: 0 };
    const proxy = await startTcpProxy(target);
    ways.push(proxy);
    const announced = ['replica-announce-ip 127.0.0.1', `replica-announce-port ${proxy.port}`];
    const server = await startRedis({ appendfsync, more: [...settings, ...own, ...announced] });
    target.port = server.port;
    return server;
  };
  const first = await startServer();
  const servers = [first];
  /** The port by which others reach a server. */
  const portOf = (server: RedisHandle) => ways[servers.indexOf(server)]?.port ?? server.port;
  const watching: Child[] = [];
  const ports: number[] = [];
  try {
    const replicaof = `replicaof 127.0.0.1 ${way(portOf(first))}`;
    for (let number = 1; number <= replicas; number += 1) servers.push(await startServer(replicaof));
    await untilReplicatedAt(() => first, replicas);
    for (let number = 1; number <= sentinels; number += 1) {
      ports.push(await freePort());
      watching.push(await startSentinel(ports.at(-1) as number, portOf(first)));
    }
    for (const port of ports)
      await until(async () => isComplete(await ask(port, 'sentinel', 'master', name), replicas, sentinels), {
        deadlineMs: 30_000,
        what: 'each sentinel knows all servers',
      });
  } catch (error) {
    await Promise.all([...servers.map((server) => server.remove()), ...watching.map((each) => each.kill9())]);
    throw error;
  }
  const primary = async () => {
    const at = watching.findIndex(({ running }) => running);
    const [, port] = (await ask(ports[at] as number, 'sentinel', 'get-master-addr-by-name', name)).split(
      '\n',
    );
    return servers.find((server) => portOf(server) === Number(port)) as RedisHandle;
  };
  return {
    servers,
    sentinels: watching,
    ways,
    url: `redis-sentinel://${ports.map((port) => `127.0.0.1:${port}`).join(',')}/${name}`,
    primary,
    untilReplicated: (count) => untilReplicatedAt(sentinels === 0 ? () => first : primary, count),
    remove: async () => {
      await Promise.all([
        ...watching.map((each) => each.kill9()),
        ...servers.map((server) => server.remove()),
      ]);
      await Promise.all(ways.map((proxy) => proxy.close()));
    },
  };
}

/** Whoever is the primary meanwhile: sentinels may choose again, and move replicas that follow a former one only after a time. */
async function untilReplicatedAt(
  primary: () => RedisHandle | Promise<RedisHandle>,
  replicas: number,
): Promise<void> {
  const areThere = async () => {
    const { port } = await primary();
    return (await ask(port, 'info', 'replication')).split('state=online').length > replicas;
  };
  await until(areThere, { deadlineMs: 60_000, what: `${replicas} replicas are up to date` });
}

function isComplete(told: string, replicas: number, sentinels: number): boolean {
  const has = (field: string, count: number) => new RegExp(`^${field}\\n${count}$`, 'm').test(told);
  return has('num-slaves', replicas) && has('num-other-sentinels', sentinels - 1);
}

async function startSentinel(port: number, primaryPort: number): Promise<Child> {
  const dir = tempDir('sentinel');
  mkdirSync(dir, { recursive: true });
  const file = join(dir, 'sentinel.conf');
  const lines = [
    'bind 127.0.0.1',
    `port ${port}`,
    `dir ${dir}`,
    `sentinel monitor ${name} 127.0.0.1 ${primaryPort} 2`,
    `sentinel down-after-milliseconds ${name} ${downMs}`,
    `sentinel failover-timeout ${name} 5000`,
    `sentinel parallel-syncs ${name} 2`,
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  return startChild({
    name: 'redis-sentinel',
    program: { command: 'redis-server', args: [file, '--sentinel'], env: process.env },
    healthy: async () => (await ask(port, 'ping').catch(() => '')).startsWith('PONG'),
    healthyDeadlineMs: 30_000,
  });
}
