// A Redis primary with replicas for tests, and sentinels that promote another server when the primary is away. Each server is configured
// like the embedded Redis. All connections can go through proxies, or each server can have a host of its own.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Child, startChild } from './child.js';
import { freePort } from './free-port.js';
import type { Host } from './hosts.js';
import { type RedisHandle, type RedisOptions, startRedis } from './redis.js';
import { ask, lookAt } from './redis-cluster.js';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
import { tempDir } from './temp-dir.js';
import { until } from './wait.js';

export type RedisReplicasHandle = {
  /** The first one begins as the primary. */
  readonly servers: readonly RedisHandle[];
  readonly sentinels: readonly Child[];
  /** The proxy before each server, if `isProxied`. */
  readonly ways: readonly TcpProxy[];
  /** `REDIS_URL` that names the sentinels. */
  readonly url: string;
  /** The server that the sentinels call the primary. */
  primary(): Promise<RedisHandle>;
  /** Settles when the primary has this many replicas that are up to date. */
  untilReplicated(replicas: number): Promise<void>;
  /**
   * Settles when each sentinel has seen that all other servers follow the primary. For ten seconds after a take-over a sentinel may still
   * be about to make the former primary a replica; if that one is promoted meanwhile, the next take-over waits half a minute. So does each
   * sentinel that has noticed a pause of the machine (TILT).
   */
  untilSeen(): Promise<void>;
  remove(): Promise<void>;
};

export type RedisReplicasOptions = Pick<RedisOptions, 'appendfsync'> & {
  /** 1 by default. */
  readonly replicas?: number;
  /** None by default. */
  readonly sentinels?: number;
  /** Returns the port by which replicas reach the primary's port. */
  readonly way?: (port: number) => number;
  /** Whether each server has a proxy. Then servers, sentinels and clients know only the proxies' addresses. */
  readonly isProxied?: boolean;
  /** The host of each server, and of the sentinel with the same number. */
  readonly hosts?: readonly Host[];
  /** Further lines of each redis.conf. */
  readonly more?: readonly string[];
};

const name = 'sluice';
/** More than the second between two pings; else a server that has just taken over sometimes counts as down. */
const downMs = 2_000;

/** Settles when all replicas are up to date. */
export async function startRedisReplicas(options: RedisReplicasOptions = {}): Promise<RedisReplicasHandle> {
  const {
    replicas = 1,
    sentinels = 0,
    appendfsync = 'always',
    way = (port) => port,
    more = [],
    isProxied,
    hosts = [],
  } = options;
  const settings = [
    'min-replicas-to-write 1',
    'min-replicas-max-lag 3',
    'repl-diskless-sync-delay 0',
    ...more,
  ];
  const ways: TcpProxy[] = [];
  const servers: RedisHandle[] = [];
  /** By which others reach a server. */
  const addressOf = (server: RedisHandle) => {
    const at = servers.indexOf(server);
    return { host: hosts[at]?.ip ?? '127.0.0.1', port: ways[at]?.port ?? server.port };
  };
  const startServer = async (...own: string[]) => {
    const host = hosts[servers.length];
    const started = { appendfsync, more: [...settings, ...own], ...(host && { host }) };
    if (!isProxied) return startRedis(started);
    const target = { port: 0 };
    const proxy = await startTcpProxy(target);
    ways.push(proxy);
    const announced = ['replica-announce-ip 127.0.0.1', `replica-announce-port ${proxy.port}`];
    const server = await startRedis({ ...started, more: [...started.more, ...announced] });
    target.port = server.port;
    return server;
  };
  const first = await startServer();
  servers.push(first);
  const watching: Sentinel[] = [];
  const primary = async () => {
    const answers = await Promise.all(watching.map(({ socket }) => primaryOf(socket)));
    const [newest] = answers.flatMap((one) => one ?? []).sort((one, other) => other.epoch - one.epoch);
    const isIt = (server: RedisHandle) => {
      const { host, port } = addressOf(server);
      return newest?.at === `${host}:${port}`;
    };
    const found = servers.find(isIt);
    if (found === undefined) throw new Error('no sentinel answers');
    return found;
  };
  try {
    const { host, port } = addressOf(first);
    const replicaof = `replicaof ${host} ${way(port)}`;
    for (let number = 1; number <= replicas; number += 1) servers.push(await startServer(replicaof));
    await untilReplicatedAt(() => first, replicas);
    for (let number = 1; number <= sentinels; number += 1)
      watching.push(await startSentinel(addressOf(first), hosts[number - 1]));
    for (const { socket } of watching)
      await until(
        async () => isComplete(await ask(socket, 'sentinel', 'master', name), replicas, sentinels),
        'each sentinel knows all servers',
      );
  } catch (error) {
    await Promise.all([
      ...servers.map((server) => server.remove()),
      ...watching.map(({ child }) => child.kill9()),
    ]);
    throw error;
  }
  return {
    servers,
    sentinels: watching.map(({ child }) => child),
    ways,
    url: `redis-sentinel://${watching.map(({ at }) => at).join(',')}/${name}`,
    primary,
    untilSeen: async () => {
      for (const { socket } of watching)
        await until(async () => {
          const answer = await ask(socket, 'sentinel', 'replicas', name);
          const isCalm = (await ask(socket, 'info', 'sentinel')).includes('sentinel_tilt:0');
          return isCalm && answer.split('role-reported\nslave').length > replicas;
        }, 'a sentinel has seen that all follow the primary');
    },
    untilReplicated: (count) => untilReplicatedAt(sentinels === 0 ? () => first : primary, count),
    remove: async () => {
      await Promise.all([
        ...watching.map(({ child }) => child.kill9()),
        ...servers.map((server) => server.remove()),
      ]);
      await Promise.all(ways.map((proxy) => proxy.close()));
    },
  };
}

/** Looks for the primary each time: sentinels may choose another, and move the replicas of a former one only after a while. */
async function untilReplicatedAt(
  primary: () => RedisHandle | Promise<RedisHandle>,
  replicas: number,
): Promise<void> {
  const areThere = async () => {
    const { socket } = await primary();
    return (await ask(socket, 'info', 'replication')).split('state=online').length > replicas;
  };
  await until(areThere, `${replicas} replicas are up to date`);
}

function isComplete(answer: string, replicas: number, sentinels: number): boolean {
  const has = (field: string, count: number) => new RegExp(`^${field}\\n${count}$`, 'm').test(answer);
  return has('num-slaves', replicas) && has('num-other-sentinels', sentinels - 1);
}

/** Which server a sentinel calls the primary, and since which epoch; undefined if the sentinel does not answer. */
async function primaryOf(socket: string) {
  const about = (...command: string[]) => lookAt(socket, 'sentinel', ...command, name);
  try {
    const epoch = /^config-epoch\n(\d+)$/m.exec(await about('master'))?.[1];
    const [host, port] = (await about('get-master-addr-by-name')).split('\n');
    return { epoch: Number(epoch), at: `${host}:${port}` };
  } catch {
    return undefined; // It is killed or frozen.
  }
}

type Sentinel = { readonly child: Child; readonly socket: string; readonly at: string };

async function startSentinel(
  primary: { readonly host: string; readonly port: number },
  host?: Host,
): Promise<Sentinel> {
  const dir = tempDir('sentinel');
  const port = await freePort();
  mkdirSync(dir, { recursive: true });
  const file = join(dir, 'sentinel.conf');
  const socket = join(dir, 'sentinel.sock');
  const lines = [
    ...(host === undefined ? ['bind 127.0.0.1'] : ['bind 0.0.0.0', 'protected-mode no']),
    `port ${port}`,
    `dir ${dir}`,
    `unixsocket ${socket}`,
    `sentinel monitor ${name} ${primary.host} ${primary.port} 2`,
    `sentinel down-after-milliseconds ${name} ${downMs}`,
    `sentinel failover-timeout ${name} 5000`,
    `sentinel parallel-syncs ${name} 2`,
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  const program = { command: 'redis-server', args: [file, '--sentinel'], env: process.env };
  const child = await startChild({
    name: 'redis-sentinel',
    program: host === undefined ? program : host.on(program),
    healthy: async () => (await ask(socket, 'ping').catch(() => '')).startsWith('PONG'),
    healthyDeadlineMs: 30_000,
  });
  return { child, socket, at: `${host?.ip ?? '127.0.0.1'}:${port}` };
}
