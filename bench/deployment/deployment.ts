// The deployment under test: the processes of production on loopback ports, a Redis that syncs its file before every answer,
// and data in a temporary folder. Each run gets an environment of its own, so that its rows can be counted.

import { resolve } from 'node:path';
import { createEnvironments } from '../../harness/accounts.js';
import type { Child } from '../../harness/child.js';
import { startRedisCluster } from '../../harness/redis-cluster.js';
import { type RedisHandle, type SluiceHandle, startRedis, startSluice } from '../../harness/services.js';
import { rateLimits } from '../../src/contract/limits.js';
import { BenchError } from '../failure.js';
import { cpuMicroseconds, memoryBytes, systemMicroseconds } from './processes.js';
import { readStored, type Store } from './stored.js';

export const processNames = ['api', 'redis', 'worker', 'clickhouse'] as const;
export type ProcessName = (typeof processNames)[number];
export type CpuTimes = Readonly<Partial<Record<ProcessName, number>>>;

export type Limits = 'default' | 'none' | Readonly<Record<string, number>>;

export type Deployment = Store & {
  readonly url: string;
  readonly redisUrl: string;
  readonly own: OwnProcesses;
  /** Runs a statement in the deployment's database. */
  rows<Row>(sql: string): Promise<Row[]>;
  /** CPU time in µs per kind of process, since it started. */
  cpu(): Readonly<Record<ProcessName, number>>;
  /** The kernel's part of it. */
  systemCpu(): CpuTimes;
  /** Creates environments; settles with their app_ids when the API knows them and their limits. */
  addEnvironments(count: number, limits: Limits): Promise<string[]>;
  stop(): Promise<void>;
};

export type OwnProcesses = {
  readonly sluice: SluiceHandle;
  readonly redis: RedisHandle;
  /** Resident bytes per kind of process. */
  memory(): Record<ProcessName, number>;
};

export type DeploymentOptions = {
  /** Environment of the API processes and the workers; overrides the defaults. */
  readonly env?: NodeJS.ProcessEnv;
  readonly workerEnv?: NodeJS.ProcessEnv;
  readonly clickhouse?: SluiceHandle['clickhouse'];
  /** So many Redis masters and so many ClickHouse servers; everybody reaches them by ports. Otherwise one each, by a socket. */
  readonly servers?: number;
  /** Writes V8 CPU profiles of the API process and the worker into this folder when they stop. */
  readonly profileDir?: string | undefined;
};

/** As the embedded Redis of `npm start`; above 2 GiB of backlog the API refuses records anyway. */
export const redisMemoryBytesMax = 6 * 1024 ** 3;
const limitNames = Object.keys(rateLimits);

const profiler = new URL('./profile-process.js', import.meta.url);

/** Starts everything; settles when the API is ready. */
export async function startDeployment(options: DeploymentOptions = {}): Promise<Deployment> {
  const { servers } = options;
  const { redises, redisUrl, removeRedis } = await startRedises(servers);
  const [redis] = redises;
  const profile =
    options.profileDir === undefined
      ? {}
      : { NODE_OPTIONS: `--import ${profiler.href}`, PROFILE_DIR: resolve(options.profileDir) };
  const sluice = await startSluice({
    redis,
    ...(servers !== undefined && { clickhouseServers: servers }),
    env: { ...(servers !== undefined && { REDIS_URL: redisUrl }), ...options.env },
    apiEnv: profile,
    workerEnv: { ...profile, ...options.workerEnv },
    ...(options.clickhouse === undefined ? {} : { clickhouse: options.clickhouse }),
  });
  // Functions, since a restarted process has another pid.
  const children: Record<ProcessName, () => readonly Child[]> = {
    api: () => sluice.api,
    redis: () => redises,
    worker: () => sluice.workers,
    clickhouse: () => sluice.clickhouses,
  };
  const ofEach = (value: (pid: number) => number) =>
    Object.fromEntries(
      processNames.map((name) => [name, children[name]().reduce((sum, { pid }) => sum + value(pid), 0)]),
    ) as Record<ProcessName, number>;
  const rows: Deployment['rows'] = (sql) => queryRows(sluice.clickhouse.testerUrl, sluice.database, sql);
  return {
    url: sluice.baseUrl,
    redisUrl: sluice.redisUrl,
    own: { sluice, redis, memory: () => ofEach(memoryBytes) },
    rows,
    stored: (appId) => readStored({ rows }, appId),
    cpu: () => ofEach(cpuMicroseconds),
    systemCpu: () => ofEach(systemMicroseconds),
    addEnvironments: (count, limits) =>
      createEnvironments(sluice, new Array<readonly string[]>(count).fill(optionsOf(limits))),
    stop: async () => {
      await sluice.stop();
      await removeRedis();
    },
  };
}

async function startRedises(masters = 1) {
  const redisOptions = { appendfsync: 'always', maxmemory: redisMemoryBytesMax } as const;
  if (masters === 1) {
    const redis = await startRedis(redisOptions);
    return { redises: [redis] as const, redisUrl: redis.url, removeRedis: () => redis.remove() };
  }
  const cluster = await startRedisCluster({ ...redisOptions, count: masters });
  const redises = cluster.masters as [RedisHandle, ...RedisHandle[]];
  return { redises, redisUrl: cluster.url, removeRedis: () => cluster.remove() };
}

/** As options of the command `environments set`. */
function optionsOf(limits: Limits): readonly string[] {
  if (limits === 'default') return [];
  const values = limits === 'none' ? limitNames.map((name) => [name, 'none']) : Object.entries(limits);
  return values.flatMap(([name, value]) => ['--limit', `${name}=${value}`]);
}

/** Runs a statement; settles with its rows. Rejects with ClickHouse's message. */
export async function queryRows<Row>(url: string, database: string, sql: string): Promise<Row[]> {
  const parameters = new URLSearchParams({ database, default_format: 'JSONEachRow' });
  const { origin, username, password } = new URL(url);
  const authorization = `Basic ${Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')}`;
  // A new connection each time: the server closes idle ones while the bench is busy for seconds.
  const connection = { connection: 'close' };
  const headers: Record<string, string> = username === '' ? connection : { ...connection, authorization };
  const reply = await fetch(`${origin}/?${parameters}`, { method: 'POST', headers, body: sql });
  const text = await reply.text();
  if (!reply.ok) throw new BenchError(`ClickHouse answered ${reply.status}: ${text.slice(0, 2_000)}`);
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as Row);
}
