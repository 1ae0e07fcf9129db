// A private Redis Cluster for tests. Each server is configured like the embedded Redis.

import { execFile } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Cluster } from '../../src/packages/ioredis.js';
import { slotOf, tagOf } from '../../src/redis/slots.js';
import { freePort } from './free-port.js';
import type { Host } from './hosts.js';
import { type RedisHandle, type RedisOptions, startRedis } from './redis.js';
import { until } from './wait.js';

const slotCount = 16_384;

export type RedisClusterHandle = {
  /** All servers as `REDIS_URL` names them; a master with a proxy is named by that. */
  readonly url: string;
  /** The servers that began as masters, in the order of their slots; all have equally many. */
  readonly masters: readonly RedisHandle[];
  /** The servers that began as replicas: the first replica of each master in their order, then the second ones. */
  readonly replicas: readonly RedisHandle[];
  /** The server that began as the master of a key. */
  masterOf(key: string): Promise<RedisHandle>;
  /** The server that has a key now. */
  ownerOf(key: string): Promise<RedisHandle>;
  /** Settles when each master has this many replicas that are up to date. */
  untilReplicated(replicas: number): Promise<void>;
  /** The test's own connection. It goes past the proxies, and waits for a master without a limit. */
  readonly redis: Cluster;
  /** Settles when every running master serves its slots. */
  untilOk(): Promise<void>;
  remove(): Promise<void>;
};

export type RedisClusterOptions = Pick<RedisOptions, 'appendfsync' | 'maxmemory'> & {
  /** 3 by default. */
  readonly count?: number;
  /** How many each master has; none by default. */
  readonly replicas?: number;
  /** Returns the port of the proxy before a master's port; the cluster sends its clients to that. */
  readonly announced?: (port: number) => number | Promise<number>;
  /** The host of each server, first of the masters, then of the replicas. By default all run on the test's own. */
  readonly hosts?: readonly Host[];
  /** Further lines of each redis.conf. */
  readonly more?: readonly string[];
};

/** Starts the masters and makes them a cluster; settles when all slots are served. */
export async function startRedisCluster(options: RedisClusterOptions = {}): Promise<RedisClusterHandle> {
  // Most tests are about processes, not disks.
  const { count = 3, appendfsync = 'no', maxmemory, announced = (port) => port, hosts = [] } = options;
  const servers: RedisHandle[] = [];
  const busPorts: number[] = [];
  const replicasOfEach = options.replicas ?? 0;
  try {
    for (let number = 1; number <= count * (1 + replicasOfEach); number += 1) {
      const busPort = await freePort();
      busPorts.push(busPort);
      const more = [
        'cluster-enabled yes',
        `cluster-port ${busPort}`,
        'cluster-node-timeout 2000',
        // A master that is away stops only its own shards.
        'cluster-require-full-coverage no',
        ...(options.more ?? []),
      ];
      const host = hosts[servers.length];
      servers.push(
        await startRedis({ appendfsync, more, ...(maxmemory && { maxmemory }), ...(host && { host }) }),
      );
    }
    await meet(servers, count, busPorts);
  } catch (error) {
    await Promise.all(servers.map((server) => server.remove()));
    throw error;
  }
  const [masters, replicas] = [servers.slice(0, count), servers.slice(count)];
  const ports = await announce(masters, announced);
  const redis = new Cluster(
    servers.map(({ url, port }) => ({ host: new URL(url).hostname, port })),
    {
      // A host that is cut off never answers.
      redisOptions: { connectTimeout: 1_000, socketTimeout: 3_000 },
      // A master may be away for the whole test.
      maxRedirections: 1_000,
      retryDelayOnFailover: 100,
      clusterRetryStrategy: () => 50,
      natMap: Object.fromEntries(
        masters.map(({ port }, index) => [`127.0.0.1:${ports[index]}`, { host: '127.0.0.1', port }]),
      ),
    },
  );
  redis.on('error', () => {
    // The client reconnects by itself; a test that waits too long fails by its own deadline.
  });
  redis.on('node error', () => undefined);

  const cluster: RedisClusterHandle = {
    url: servers.map(({ url }, at) => atPort(url, ports[at])).join(','),
    masters,
    replicas,
    redis,
    ownerOf: async (key) => {
      const slot = slotOf(tagOf(key));
      // A frozen server does not answer, and one that is cut off may answer with what was true before.
      const answers = await Promise.allSettled(
        servers.map(({ socket }) => lookAt(socket, 'cluster', 'nodes')),
      );
      const nodes = answers.flatMap((each) => (each.status === 'fulfilled' ? each.value.split('\n') : []));
      const owners = nodes.flatMap((line) => {
        const [, port, epoch, from, to] =
          /:(\d+)@\S+ (?:myself,)?master - \d+ \d+ (\d+) connected (\d+)-(\d+)$/.exec(line) ?? [];
        return slot >= Number(from) && slot <= Number(to) ? [{ port, epoch: Number(epoch) }] : [];
      });
      const [newest] = owners.sort((one, other) => other.epoch - one.epoch);
      // The former master is gone, and no other has taken over yet.
      if (newest === undefined) throw new Error('no master has the key now');
      return servers.find((server) => server.port === Number(newest?.port)) as RedisHandle;
    },
    untilReplicated: (wanted) =>
      until(async () => {
        const answers = await Promise.all(servers.map(({ socket }) => ask(socket, 'info', 'replication')));
        const ofMasters = answers.filter((info) => /^role:master/m.test(info));
        return (
          ofMasters.length === count && ofMasters.every((info) => info.split('state=online').length > wanted)
        );
      }, `each master has ${wanted} replicas`).then(() => undefined),
    masterOf: async (key) => {
      const slot = await redis.cluster('KEYSLOT', key);
      return masters[Math.floor((Number(slot) * masters.length) / slotCount)] as RedisHandle;
    },
    untilOk: async () => {
      for (const { socket, port } of servers.filter(({ running }) => running)) {
        await until(
          async () => (await ask(socket, 'cluster', 'info')).includes('cluster_state:ok'),
          `the master on port ${port} serves its slots`,
        );
      }
    },
    remove: async () => {
      redis.disconnect();
      await Promise.all(servers.map((server) => server.remove()));
    },
  };
  await cluster.untilOk();
  await cluster.untilReplicated(replicasOfEach);
  return cluster;
}

function atPort(url: string, port: number | undefined): string {
  return port === undefined ? url : `redis://${new URL(url).hostname}:${port}`;
}

/** Makes the servers a cluster, as `redis-cli --cluster create` does, which refuses fewer than three masters. */
async function meet(
  servers: readonly RedisHandle[],
  count: number,
  busPorts: readonly number[],
): Promise<void> {
  const masters = servers.slice(0, count);
  const firstSlot = (index: number) => Math.ceil((index * slotCount) / masters.length);
  const [first] = masters;
  for (const [index, { socket, url, port }] of servers.entries()) {
    // Masters with equal epochs would agree on different ones by themselves, but only after a while.
    await ask(socket, 'cluster', 'set-config-epoch', String(index + 1));
    const slots = [firstSlot(index), firstSlot(index + 1) - 1].map(String);
    if (index < count) await ask(socket, 'cluster', 'addslotsrange', ...slots);
    const address = [new URL(url).hostname, String(port), String(busPorts[index])];
    if (first !== undefined && index > 0) await ask(first.socket, 'cluster', 'meet', ...address);
  }
  for (const { socket, port } of servers)
    await until(
      async () => (await ask(socket, 'cluster', 'info')).includes(`cluster_slots_assigned:${slotCount}`),
      `the server on port ${port} knows all masters`,
    );
  for (const [index, { socket, port }] of servers.entries()) {
    if (index < count) continue;
    const id = (await ask(masters[index % count]?.socket ?? '', 'cluster', 'myid')).trim();
    await until(
      async () => (await ask(socket, 'cluster', 'replicate', id)).startsWith('OK'),
      `the server on port ${port} is a replica`,
    );
  }
}

/** Lets each master announce a port, now and after restarts; settles with these ports. */
async function announce(
  masters: readonly RedisHandle[],
  announced: (port: number) => number | Promise<number>,
): Promise<readonly number[]> {
  const ports = await Promise.all(masters.map(({ port }) => announced(port)));
  for (const [index, { port, dir }] of masters.entries()) {
    const setting = ['cluster-announce-port', String(ports[index])] as const;
    if (ports[index] === port) continue;
    appendFileSync(join(dir, 'redis.conf'), `${setting.join(' ')}\n`);
    await ask(port, 'config', 'set', ...setting);
  }
  return ports;
}

/** Runs a command on the server with a port or a socket; settles with what `redis-cli` prints. A slow disk may hold it up for 30 s. */
export function ask(at: number | string, ...command: readonly string[]): Promise<string> {
  return askWithin(30_000, at, ...command);
}

/** The same for a server that may be frozen: gives up after 2 s. */
export function lookAt(at: number | string, ...command: readonly string[]): Promise<string> {
  return askWithin(2_000, at, ...command);
}

async function askWithin(
  timeout: number,
  at: number | string,
  ...command: readonly string[]
): Promise<string> {
  const address = typeof at === 'number' ? ['-p', String(at)] : ['-s', at];
  const { stdout } = await promisify(execFile)('redis-cli', [...address, ...command], { timeout });
  return stdout;
}
