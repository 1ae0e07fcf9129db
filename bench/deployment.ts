// The deployment under test. Mostly one that the scenario starts for itself: the processes of production on
// loopback ports, Redis syncing its file before every answer, data in a temporary folder; or one that runs
// elsewhere. Each measurement gets an environment of its own, so that its rows can be counted.

import { resolve } from 'node:path';
import { type RedisHandle, startRedis, startSluice } from '../test/support/services.js';
import { BenchError } from './failure.js';
import { cpuMicroseconds } from './processes.js';

export const processNames = ['api', 'redis', 'worker', 'clickhouse'] as const;
export type ProcessName = (typeof processNames)[number];
/** Of no process where the deployment runs elsewhere. */
export type CpuTimes = Readonly<Partial<Record<ProcessName, number>>>;

export type Limits = 'default' | 'none' | Readonly<Record<string, number>>;

export type Deployment = {
  readonly url: string;
  /** Empty when it runs elsewhere. */
  readonly redisUrl: string;
  /** Runs one statement in the deployment's database. */
  rows<Row>(sql: string): Promise<Row[]>;
  /** CPU time in µs that each kind of process has used since its start. */
  cpu(): CpuTimes;
  /** Makes an environment and settles with its app_id when the API knows it and its limits. */
  addEnvironment(name: string, limits: Limits): Promise<string>;
  stop(): Promise<void>;
};

export type DeploymentOptions = {
  /** Environment of the API processes and the workers, over the defaults. */
  readonly env?: NodeJS.ProcessEnv;
  /** Writes V8 CPU profiles of the API process and the worker into this folder when they stop. */
  readonly profileDir?: string | undefined;
};

/** The embedded Redis of a start has as much; above 2 GiB of backlog the API refuses anyway. */
const redisMemoryBytesMax = 6 * 1024 ** 3;
const limitNames = ['track', 'bulk_identity', 'bulk_app'];
/** API processes read the registry twice a second. */
const registryReadMs = 1_500;

const profiler = new URL('./profile-process.js', import.meta.url);

export async function startDeployment(options: DeploymentOptions = {}): Promise<Deployment> {
  const redis: RedisHandle = await startRedis({ appendfsync: 'always', maxmemory: redisMemoryBytesMax });
  const profile =
    options.profileDir === undefined
      ? {}
      : { NODE_OPTIONS: `--import ${profiler.href}`, PROFILE_DIR: resolve(options.profileDir) };
  const sluice = await startSluice({ redis, env: options.env ?? {}, apiEnv: profile, workerEnv: profile });
  const pids: Record<ProcessName, number[]> = {
    api: sluice.api.map(({ pid }) => pid),
    redis: [redis.pid],
    worker: sluice.workers.map(({ pid }) => pid),
    clickhouse: [sluice.clickhouse.pid],
  };
  const accountId = sluice.bootstrap.account_id;
  return {
    url: sluice.baseUrl,
    redisUrl: sluice.redisUrl,
    rows: (sql) => sluice.rows(sql),
    cpu: () => {
      const used = (name: ProcessName) => pids[name].reduce((sum, pid) => sum + cpuMicroseconds(pid), 0);
      return {
        api: used('api'),
        redis: used('redis'),
        worker: used('worker'),
        clickhouse: used('clickhouse'),
      };
    },
    addEnvironment: async (name, limits) => {
      const { app_id: appId } = (await sluice.admin('environments', 'add', accountId, name)) as {
        app_id: string;
      };
      const given = Object.entries(
        typeof limits === 'object'
          ? limits
          : Object.fromEntries(limitNames.map((limitName) => [limitName, limits])),
      ).flatMap(([limitName, value]) => ['--limit', `${limitName}=${value}`]);
      await sluice.admin('environments', 'set', appId, ...given);
      await new Promise((resolve) => setTimeout(resolve, registryReadMs));
      return appId;
    },
    stop: async () => {
      await sluice.stop();
      await redis.remove();
    },
  };
}

/** A deployment that runs already; its processes are not measured, and nothing of it is stopped. */
export function attachDeployment(running: {
  readonly url: string;
  readonly clickhouseUrl: string;
  readonly database: string;
}): Deployment {
  return {
    url: running.url.replace(/\/+$/, ''),
    redisUrl: '',
    rows: (sql) => queryRows(running.clickhouseUrl, running.database, sql),
    cpu: () => ({}),
    addEnvironment: () => Promise.reject(new BenchError('environments are made by npm run admin')),
    stop: () => Promise.resolve(),
  };
}

async function queryRows<Row>(url: string, database: string, sql: string): Promise<Row[]> {
  const parameters = new URLSearchParams({ database, default_format: 'JSONEachRow' });
  const { origin, username, password } = new URL(url);
  const authorization = `Basic ${Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')}`;
  // A connection of its own: a bench that is busy for seconds finds a kept one closed by the server.
  const connection = { connection: 'close' };
  const headers: Record<string, string> = username === '' ? connection : { ...connection, authorization };
  const reply = await fetch(`${origin}/?${parameters}`, { method: 'POST', headers, body: sql });
  const text = await reply.text();
  if (!reply.ok) throw new BenchError(`ClickHouse answered ${reply.status}: ${text.slice(0, 2_000)}`);
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as Row);
}
