// A private Redis Cluster for tests: three masters on loopback without replicas, each configured like the embedded Redis.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Cluster } from '../src/packages/ioredis.js';
import { freePort } from './free-port.js';
import { type RedisHandle, startRedis } from './redis.js';
import { until } from './wait.js';

const slotCount = 16_384;

export type RedisClusterHandle = {
  /** All masters, as `REDIS_URL` names them. */
  readonly url: string;
  /** In the order of their slots; each has a third. */
  readonly masters: readonly RedisHandle[];
  /** The master that holds a key. */
  masterOf(key: string): Promise<RedisHandle>;
  /** The test's own connection, which waits for a master without a limit. */
  readonly redis: Cluster;
  /** Settles when every running master serves its slots. */
  untilOk(): Promise<void>;
  remove(): Promise<void>;
};

/** Starts three masters and makes them a cluster; settles when all slots are served. */
export async function startRedisCluster(): Promise<RedisClusterHandle> {
  const masters: RedisHandle[] = [];
  try {
    for (let number = 1; number <= 3; number += 1) {
      const more = [
        'cluster-enabled yes',
        `cluster-port ${await freePort()}`,
        'cluster-node-timeout 2000',
        // A master that is away stops only its own shards.
        'cluster-require-full-coverage no',
      ];
      // The tests are about processes, not disks.
      masters.push(await startRedis({ appendfsync: 'no', more }));
    }
    const addresses = masters.map(({ port }) => `127.0.0.1:${port}`);
    await promisify(execFile)('redis-cli', ['--cluster', 'create', ...addresses, '--cluster-yes']);
  } catch (error) {
    await Promise.all(masters.map((master) => master.remove()));
    throw error;
  }
  const redis = new Cluster(
    masters.map(({ port }) => ({ host: '127.0.0.1', port })),
    // A master may be away for the whole test.
    { maxRedirections: 1_000, retryDelayOnFailover: 100, clusterRetryStrategy: () => 50 },
  );
  redis.on('error', () => {
    // The client reconnects by itself; a test that waits too long fails by its own deadline.
  });
  redis.on('node error', () => undefined);

  const cluster: RedisClusterHandle = {
    url: masters.map(({ url }) => url).join(','),
    masters,
    redis,
    masterOf: async (key) => {
      const slot = await redis.cluster('KEYSLOT', key);
      return masters[Math.floor((Number(slot) * masters.length) / slotCount)] as RedisHandle;
    },
    untilOk: async () => {
      for (const { port } of masters.filter(({ running }) => running)) {
        await until(async () => (await ask(port, 'cluster', 'info')).includes('cluster_state:ok'), {
          deadlineMs: 30_000,
          what: `the master on port ${port} serves its slots`,
        });
      }
    },
    remove: async () => {
      redis.disconnect();
      await Promise.all(masters.map((master) => master.remove()));
    },
  };
  await cluster.untilOk();
  return cluster;
}

/** What `redis-cli` prints for a command to one server. */
export async function ask(port: number, ...command: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('redis-cli', ['-p', String(port), ...command]);
  return stdout;
}
