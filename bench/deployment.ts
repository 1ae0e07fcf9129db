// The deployment under test. Mostly one that the scenario starts for itself: the processes of production on
// loopback ports, Redis syncing its file before every answer, data in a temporary folder; or one that runs
// elsewhere. Each measurement gets an environment of its own, so that its rows can be counted; elsewhere all
// share the one that was given, and are told apart by what was there before.

import { resolve } from 'node:path';
import type { Child } from '../test/support/child.js';
import { type RedisHandle, type SluiceHandle, startRedis, startSluice } from '../test/support/services.js';
import { untilValidation } from '../test/support/track.js';
import { BenchError } from './failure.js';
import { cpuMicroseconds, memoryBytes } from './processes.js';
import { readStored, type Store } from './stored.js';

export const processNames = ['api', 'redis', 'worker', 'clickhouse'] as const;
export type ProcessName = (typeof processNames)[number];
/** Of no process where the deployment runs elsewhere. */
export type CpuTimes = Readonly<Partial<Record<ProcessName, number>>>;

export type Limits = 'default' | 'none' | Readonly<Record<string, number>>;

export type Deployment = Store & {
  readonly url: string;
  /** Empty when it runs elsewhere. */
  readonly redisUrl: string;
  /** Of the scenario's own deployment. */
  readonly own?: OwnProcesses;
  /** Runs one statement in the deployment's database. */
  rows<Row>(sql: string): Promise<Row[]>;
  /** CPU time in µs that each kind of process has used since its start. */
  cpu(): CpuTimes;
  /**
   * Makes environments and settles with their app_ids when the API knows them and their limits. Elsewhere it is
   * the given one for each.
   */
  addEnvironments(count: number, limits: Limits): Promise<string[]>;
  stop(): Promise<void>;
};

/** What can only be asked of processes that run here. */
export type OwnProcesses = {
  readonly sluice: SluiceHandle;
  readonly redis: RedisHandle;
  /** Resident bytes of each kind of process. */
  memory(): Record<ProcessName, number>;
};

export type DeploymentOptions = {
  /** Environment of the API processes and the workers, over the defaults. */
  readonly env?: NodeJS.ProcessEnv;
  readonly workerEnv?: NodeJS.ProcessEnv;
  readonly clickhouse?: SluiceHandle['clickhouse'];
  /** Writes V8 CPU profiles of the API process and the worker into this folder when they stop. */
  readonly profileDir?: string | undefined;
};

/** The embedded Redis of a start has as much; above 2 GiB of backlog the API refuses anyway. */
const redisMemoryBytesMax = 6 * 1024 ** 3;
const limitNames = ['track', 'user_properties', 'bulk_identity', 'bulk_app'];
/** A request of the administration has a body of at most 64 KiB. */
const environmentsPerRequest = 2_000;

const profiler = new URL('./profile-process.js', import.meta.url);

/** Starts all of it; settles when the API is ready. */
export async function startDeployment(options: DeploymentOptions = {}): Promise<Deployment> {
  const redis: RedisHandle = await startRedis({ appendfsync: 'always', maxmemory: redisMemoryBytesMax });
  const profile =
    options.profileDir === undefined
      ? {}
      : { NODE_OPTIONS: `--import ${profiler.href}`, PROFILE_DIR: resolve(options.profileDir) };
  const sluice = await startSluice({
    redis,
    env: options.env ?? {},
    apiEnv: profile,
    workerEnv: { ...profile, ...options.workerEnv },
    ...(options.clickhouse === undefined ? {} : { clickhouse: options.clickhouse }),
  });
  // Looked up each time: a process that was started again has another id.
  const children: Record<ProcessName, () => readonly Child[]> = {
    api: () => sluice.api,
    redis: () => [redis],
    worker: () => sluice.workers,
    clickhouse: () => [sluice.clickhouse],
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
    addEnvironments: (count, limits) => addEnvironments(sluice, count, limits),
    stop: async () => {
      await sluice.stop();
      await redis.remove();
    },
  };
}

async function addEnvironments(sluice: SluiceHandle, count: number, limits: Limits): Promise<string[]> {
  const appIds: string[] = [];
  while (appIds.length < count) {
    const added = Math.min(count - appIds.length, environmentsPerRequest);
    const environments = Array.from({ length: added }, (_, i) => `Bench ${i + 1}`);
    const account = await administrate(sluice, 'POST', '/accounts', { name: 'Bench', environments });
    appIds.push(
      ...(account as { environments: { app_id: string }[] }).environments.map(({ app_id }) => app_id),
    );
  }
  if (limits !== 'default') {
    const all = Object.fromEntries(limitNames.map((name) => [name, 'none']));
    const body = { limits: limits === 'none' ? all : limits };
    for (const appId of appIds) await administrate(sluice, 'PATCH', `/environments/${appId}`, body);
  }
  // Of limits nothing shows from outside; the validation does, and what was set before it is known with it.
  for (const validation of ['lenient', 'strict'] as const) {
    const last = appIds.at(-1) ?? '';
    await administrate(sluice, 'PATCH', `/environments/${last}`, { validation });
    await untilValidation(sluice, last, validation);
  }
  return appIds;
}

async function administrate(
  sluice: SluiceHandle,
  method: string,
  path: string,
  body: object,
): Promise<unknown> {
  const reply = await fetch(`${sluice.adminUrl}/admin/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${sluice.adminToken}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await reply.text();
  if (!reply.ok) throw new Error(`the administration answered ${reply.status}: ${text.slice(0, 500)}`);
  return JSON.parse(text);
}

export type Elsewhere = {
  readonly url: string;
  readonly clickhouseUrl: string;
  readonly database: string;
  /** The environment that all load is sent to. */
  readonly appId?: string;
};

/** A deployment that runs already; its processes are not measured, and nothing of it is stopped. */
export function attachDeployment(running: Elsewhere): Deployment {
  const { appId } = running;
  const rows: Deployment['rows'] = (sql) => queryRows(running.clickhouseUrl, running.database, sql);
  return {
    url: running.url.replace(/\/+$/, ''),
    redisUrl: '',
    rows,
    stored: (id) => readStored({ rows }, id),
    cpu: () => ({}),
    addEnvironments: (count) =>
      appId === undefined
        ? Promise.reject(new BenchError('environments are made by npm run admin'))
        : Promise.resolve(Array.from({ length: count }, () => appId)),
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
