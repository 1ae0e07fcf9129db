// The deployment under test in the layouts `one` and `disks`: Redis on a small disk, ClickHouse behind a gate, two API processes, two
// workers, and a proxy on every connection between them.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Cluster, Redis } from 'ioredis';
import { registryKeys } from '../../src/redis/keys.js';
import { atPort } from '../harness/clickhouse.js';
import { type Choice, type ClickHouseGate, startClickHouseGate } from '../harness/clickhouse-gate.js';
import { connectTestRedis } from '../harness/redis-client.js';
import {
  type Child,
  type ClickHouseHandle,
  type RedisHandle,
  type SluiceHandle,
  startClickHouse,
  startRedis,
  startSluice,
  startTcpProxy,
  type TcpProxy,
} from '../harness/services.js';
import { type CutDisk, createCutDisk } from './cut-disk.js';
import type { Link, ProcessPart } from './parts.js';
import { canSetRedisClock, createRedisClock, type RedisClock } from './redis-clock.js';
import { createSmallDisk, type FileSystem, type SmallDisk } from './small-disk.js';

/**
 * `one` Redis and one ClickHouse; `three` of each (deployment-of-three.ts); one of each with `disks` that can be filled; a Redis with
 * replicas (`nodes`) or a `cluster` with replicas, on hosts of their own (deployment-of-nodes.ts).
 */
export type Layout = 'one' | 'three' | 'disks' | 'nodes' | 'cluster';

export type AnyDeployment = {
  readonly layout: Layout;
  readonly sluice: SluiceHandle;
  readonly processes: ReadonlyMap<ProcessPart, Child>;
  readonly links: ReadonlyMap<Link, TcpProxy>;
  /** The harness's own connection, without a proxy. */
  readonly redis: Redis | Cluster;
  readonly shards: number;
  /** The target server by shard of each failed move, which `heal` repeats. */
  readonly failedMoves: Map<number, number>;
  /** Settles when Redis serves all keys. All of its servers must be running. */
  untilRedisServes(): Promise<void>;
  /** Ends every fault: connections open, processes run as usual, Redis holds the deployment's state. */
  heal(): Promise<void>;
  stop(): Promise<void>;
};

export type Deployment = AnyDeployment & {
  readonly server: RedisHandle;
  readonly clickhouse: ClickHouseHandle;
  readonly disk: SmallDisk;
  readonly cutDisk: CutDisk | undefined;
  /** The clock of Redis, if it can be set. Healing does not set it right again. */
  readonly clock: RedisClock | undefined;
  readonly gate: ClickHouseGate;
  readonly redis: Redis;
  /** The names of processes that `heal` must restart even if they run, because they have an unusual environment. */
  readonly altered: Set<string>;
};

/** ClickHouse's code for data that it cannot parse. */
const cannotParse = 117;

/** Chooses statements with rows that ClickHouse must always refuse. */
const isPoison: Choice = ({ body }) => body.includes('"poison":');

export type DeploymentOptions = {
  readonly appendfsync?: 'always' | 'everysec';
  readonly cutsPower?: boolean;
  /** The disk that can be filled, and whose data is on it; by default a tmpfs for Redis. */
  readonly full?: FullDisk;
};

export type FullDisk = {
  readonly fileSystem: FileSystem;
  readonly holds: 'redis' | 'clickhouse' | 'both';
};

/** Redis's memory limit, which a fault lowers for a while. */
export const memoryBytesMax = 1024 ** 3;

/** The memory for remembered keys: so few buckets that a fault can find two keys in one. */
export const claimBytesMax = 1024 * 1024;

export const usualEnvironment = {
  // Short, so that another worker takes over the job of a paused one, which then returns as a zombie.
  JOB_LOCK_MS: '1000',
  CALLBACK_ALLOW: '127.0.0.1',
  // So small that a fault can fill the backlog.
  BACKLOG_BYTES_MAX: String(4 * 1024 * 1024),
  // Deletions only mask rows of tables larger than this: at first of none, soon of the events, later of all.
  ERASE_AT_ONCE_BYTES_MAX: String(16 * 1024),
  ERASE_CPU_SHARE: '1',
};

export async function startDeployment({
  cutsPower = false,
  full,
  ...options
}: DeploymentOptions = {}): Promise<Deployment> {
  const disk = createSmallDisk(full?.fileSystem);
  const cutDisk = cutsPower ? createCutDisk() : undefined;
  const clock = canSetRedisClock() ? createRedisClock() : undefined;
  const [server, clickhouse] = await Promise.all([
    startRedis({
      ...(full?.holds === 'clickhouse' ? {} : { dir: folderOn(disk, 'redis') }),
      maxmemory: memoryBytesMax,
      env: clock?.env ?? {},
      ...options,
    }),
    startClickHouse({
      ...(full === undefined || full.holds === 'redis' ? {} : { dir: folderOn(disk, 'clickhouse') }),
      prepare: (folder) => cutDisk?.mountAt(folder),
    }),
  ]);
  const gate = await startClickHouseGate(clickhouse.testerUrl, { choice: isPoison, code: cannotParse });
  const apiRedis = await startTcpProxy({ port: server.port });
  const workerRedis = await startTcpProxy({ port: server.port });
  const workerClickHouse = await startTcpProxy({ port: Number(new URL(gate.url).port) });
  const links = new Map<Link, TcpProxy>([
    ['api-redis', apiRedis],
    ['worker-redis', workerRedis],
    ['worker-clickhouse', workerClickHouse],
  ]);
  const sluice = await startSluice({
    redis: server,
    clickhouse,
    apiProcesses: 2,
    workers: 2,
    env: { ...usualEnvironment, CLAIM_BYTES_MAX: String(claimBytesMax) },
    apiEnv: { REDIS_URL: `redis://127.0.0.1:${apiRedis.port}` },
    workerEnv: {
      REDIS_URL: `redis://127.0.0.1:${workerRedis.port}`,
      CLICKHOUSE_URL: atPort(gate.url, workerClickHouse.port),
    },
  });
  // A power cut must not lose what the first start wrote.
  cutDisk?.sync();
  const redis = connectTestRedis(server.url);
  const altered = new Set<string>();
  const processes = new Map<ProcessPart, Child>([
    ...oursByPart(sluice),
    ['redis', server],
    ['clickhouse', clickhouse],
  ]);
  const children = [...processes.values()];

  async function heal(): Promise<void> {
    for (const proxy of links.values()) proxy.pass();
    gate.pass();
    disk.free();
    for (const child of children) child.sigcont();
    const again = (names: readonly string[]) =>
      children.filter((child) => names.includes(child.name) && (!child.running || altered.has(child.name)));
    await Promise.all(again(['redis-server', 'clickhouse']).map((child) => child.restart()));
    await redis.config('SET', 'maxmemory', memoryBytesMax);
    if ((await redis.get(registryKeys.epoch)) === null) await sluice.admin('state', 'reload');
    await Promise.all(
      again(children.map(({ name }) => name))
        .filter((child) => child !== server && child !== clickhouse)
        .map((child) => child.restart()),
    );
    altered.clear();
  }

  return {
    layout: full === undefined ? 'one' : 'disks',
    processes,
    shards: 1,
    failedMoves: new Map(),
    untilRedisServes: async () => undefined,
    sluice,
    server,
    clickhouse,
    disk,
    cutDisk,
    clock,
    gate,
    links,
    redis,
    heal,
    altered,
    stop: async () => {
      redis.disconnect();
      await sluice.stop();
      await Promise.all([...links.values(), gate].map((way) => way.close()));
      // ClickHouse must end before its disk can be unmounted.
      if (cutDisk !== undefined) await clickhouse.kill9();
      cutDisk?.remove();
      await Promise.all([server.stop(), clickhouse.remove()]);
      disk.remove();
      clock?.remove();
    },
  };
}

function folderOn(disk: SmallDisk, name: string): string {
  const folder = join(disk.dir, name);
  mkdirSync(folder);
  return folder;
}

export function oursByPart({ api, workers }: SluiceHandle): [ProcessPart, Child][] {
  return [...api, ...workers].map((child) => [child.name as ProcessPart, child]);
}

export async function startDead(children: readonly Child[]): Promise<void> {
  await Promise.all(children.filter(({ running }) => !running).map((child) => child.restart()));
}
