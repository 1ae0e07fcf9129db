// A whole private deployment for tests: Redis, ClickHouse, migrations, the demo account, API processes and workers. They
// are the processes that run in production, on loopback ports and with data of their own.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text as textOf } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { launch } from '../../deploy/local/launch.js';
import { runAdmin, runMigrations } from './administration.js';
import { type Child, startChild } from './child.js';
import { type ClickHouseHandle, query } from './clickhouse.js';
import { briefly, plainEnvironment } from './environment.js';
import { freePort } from './free-port.js';
import { startMigratedClickHouse, startMigratedServers } from './migrated-database.js';
import { type RedisHandle, startRedis } from './redis.js';
import { removeTempDir, tempDir } from './temp-dir.js';

export type SluiceOptions = {
  /** 1 by default. Each listens on ports of its own, so that a test can choose which one it asks. */
  readonly apiProcesses?: number;
  /** 1 by default. */
  readonly workers?: number;
  /** An existing folder where each of these processes has a file with its output, for tests in other processes. */
  readonly outputs?: string;
  /** Environment of all processes; overrides what is set here. */
  readonly env?: NodeJS.ProcessEnv;
  /** The same for one kind of process, for example a `REDIS_URL` that leads through a proxy. */
  readonly apiEnv?: NodeJS.ProcessEnv;
  readonly workerEnv?: NodeJS.ProcessEnv;
  /**
   * Services to share instead of starting own ones; `stop` leaves them running. A Redis that is started here does not
   * wait for the disk.
   */
  readonly redis?: RedisHandle;
  readonly clickhouse?: ClickHouseHandle;
  /** 1 by default. Several are one cluster, each of them with some of the shards. */
  readonly clickhouseServers?: number;
  /** Environment of the API processes and workers that depends on the servers, for example URLs of proxies before them. */
  readonly ways?: (clickhouses: readonly ClickHouseHandle[]) => Promise<NodeJS.ProcessEnv>;
};

export type ApiHandle = Child & { readonly baseUrl: string; readonly adminUrl: string };

export type Environment = { readonly app_id: string; readonly name: string; readonly main: boolean };

/** What `admin bootstrap` printed. */
export type Bootstrap = {
  readonly created: boolean;
  readonly restored: boolean;
  readonly account_id: string;
  readonly environments: readonly Environment[];
  readonly api_key?: string;
};

/** How a test reaches a deployment whose processes belong to whoever started it. */
export type Deployment = {
  /** The URL of the first API process. */
  readonly baseUrl: string;
  readonly adminUrl: string;
  readonly adminToken: string;
  readonly redisUrl: string;
  readonly clickhouseUrl: string;
  /** The first server. */
  readonly clickhouse: Pick<ClickHouseHandle, 'origin' | 'tester' | 'reader'>;
  readonly database: string;
  readonly api: readonly Pick<ApiHandle, 'baseUrl' | 'adminUrl' | 'name' | 'pid' | 'output'>[];
  readonly workers: readonly Pick<Child, 'name' | 'output'>[];
  readonly env: NodeJS.ProcessEnv;
  /** The app_id of Main Production. */
  readonly appId: string;
  /** Runs `npm run admin -- …`: settles with the JSON that it prints, rejects with its error message. */
  admin(...args: readonly string[]): Promise<unknown>;
  /** Runs a statement in the deployment's database; settles with the rows. */
  rows<Row = Record<string, unknown>>(sql: string): Promise<Row[]>;
};

export type SluiceHandle = Omit<Deployment, 'api' | 'workers' | 'clickhouse'> & {
  readonly redis: RedisHandle;
  readonly clickhouse: ClickHouseHandle;
  readonly clickhouses: readonly ClickHouseHandle[];
  readonly api: readonly ApiHandle[];
  readonly workers: readonly Child[];
  readonly bootstrap: Bootstrap;
  /** Starts one more worker; `stop` ends it too. */
  addWorker(env?: NodeJS.ProcessEnv): Promise<Child>;
  /** Stops everything that was started here, the API first, and removes the data. */
  stop(): Promise<void>;
};

let deployments = 0;

/**
 * Starts a deployment; settles when the API is ready. This takes seconds, mostly for ClickHouse, so share it within a
 * file.
 */
export async function startSluice(options: SluiceOptions = {}): Promise<SluiceHandle> {
  const dataDir = tempDir('data');
  const [redis, clickhouses] = await Promise.all([
    options.redis ?? startRedis({ appendfsync: 'no' }),
    startServers(options),
  ]);
  const clickhouse = clickhouses[0] as ClickHouseHandle;
  deployments += 1;
  // The service's own user has rights only on the database `sluice`.
  const clickhouseUrl =
    options.clickhouse === undefined ? clickhouses.map(({ url }) => url).join(',') : clickhouse.testerUrl;
  const adminToken = randomBytes(16).toString('hex');
  const shared: NodeJS.ProcessEnv = {
    ...plainEnvironment(),
    DATA_DIR: dataDir,
    // The processes of `npm start` use the socket too.
    REDIS_URL: redis.socket,
    CLICKHOUSE_URL: clickhouseUrl,
    CLICKHOUSE_DATABASE: options.clickhouse === undefined ? 'sluice' : `sluice_${process.pid}_${deployments}`,
    ...(clickhouses.length === 1 ? {} : { CLICKHOUSE_CLUSTER: 'sluice' }),
    ADMIN_TOKEN: adminToken,
    // Short, since tests wait hundreds of times until something is stored.
    SEGMENT_AGE_MS_MAX: '100',
    // All tests call from one address, so limits per address must not stop them.
    COLLECT_ADDRESS_BYTES_MAX: String(1024 ** 4),
    ADDRESS_BYTES_MAX: String(1024 ** 4),
    ...options.env,
  };
  const ours = { ...shared, ...(await options.ways?.(clickhouses)) };
  await runMigrations(shared);
  const bootstrap = (await runAdmin(['bootstrap'], shared)) as Bootstrap;

  const outputFile = (name: string) =>
    options.outputs === undefined ? undefined : join(options.outputs, name);
  const workers: Child[] = [];
  const beginWorker = (number: number, env: NodeJS.ProcessEnv = {}) =>
    startWorker(`worker-${number}`, { ...ours, ...options.workerEnv, ...env }, outputFile);
  const addWorker = async (env: NodeJS.ProcessEnv = {}) => {
    const worker = await beginWorker(workers.length + 1, env);
    workers.push(worker);
    return worker;
  };
  const ports = [];
  for (let number = 1; number <= (options.apiProcesses ?? 1); number += 1) {
    ports.push({ number, port: await freePort(), adminPort: await freePort() });
  }
  const publicPort = ports[0]?.port;
  const [api, first] = await Promise.all([
    Promise.all(
      ports.map(({ number, port, adminPort }) =>
        startApi(
          `api-${number}`,
          port,
          adminPort,
          {
            ...ours,
            ...(number > 1 ? { PUBLIC_BASE_URL: `http://127.0.0.1:${publicPort}` } : {}),
            ...options.apiEnv,
          },
          outputFile,
        ),
      ),
    ),
    Promise.all(Array.from({ length: options.workers ?? 1 }, (_, index) => beginWorker(index + 1))),
  ]);
  workers.push(...first);

  const database = shared.CLICKHOUSE_DATABASE as string;
  return {
    baseUrl: api[0]?.baseUrl ?? '',
    adminUrl: api[0]?.adminUrl ?? '',
    adminToken,
    redisUrl: redis.url,
    clickhouseUrl,
    redis,
    clickhouse,
    clickhouses,
    database,
    api,
    workers,
    env: shared,
    bootstrap,
    appId: bootstrap.environments.find((environment) => environment.main)?.app_id ?? '',
    addWorker,
    admin: (...args) => runAdmin(args, shared),
    rows: (sql) => queryRows(clickhouse, database, sql),
    async stop() {
      await Promise.all(api.map((child) => child.stop()));
      await Promise.all(workers.map((child) => child.stop()));
      // The first server's folder has the data of all, so that one is removed last.
      if (options.clickhouse === undefined)
        for (const server of clickhouses.toReversed()) await server.remove();
      if (options.redis === undefined) await redis.remove();
      removeTempDir(dataDir);
    },
  };
}

/** Starts one more API process of a deployment that somebody else started, with some variables of its own. */
export async function startApiOf(sluice: Deployment, env: NodeJS.ProcessEnv): Promise<ApiHandle> {
  return startApi('api-own', await freePort(), await freePort(), { ...sluice.env, ...env }, () => undefined);
}

async function startServers({ clickhouse, clickhouseServers = 1 }: SluiceOptions) {
  if (clickhouse !== undefined) return [clickhouse];
  return clickhouseServers === 1
    ? [await startMigratedClickHouse()]
    : startMigratedServers(clickhouseServers);
}

async function startApi(
  name: string,
  port: number,
  adminPort: number,
  env: NodeJS.ProcessEnv,
  outputFile: (name: string) => string | undefined,
): Promise<ApiHandle> {
  const baseUrl = `http://127.0.0.1:${port}`;
  const child = await startChild({
    name,
    program: {
      command: process.execPath,
      args: [...briefly, compiled('src/main.js')],
      env: { ...env, PORT: String(port), ADMIN_PORT: String(adminPort) },
    },
    ipc: true,
    healthy: async () => {
      const reply = await fetch(`${baseUrl}/health/ready`, { signal: AbortSignal.timeout(5_000) });
      await reply.arrayBuffer();
      return reply.status === 200;
    },
    healthyDeadlineMs: 120_000,
    outputFile: outputFile(name),
  });
  return Object.defineProperties(child as ApiHandle, {
    baseUrl: { value: baseUrl },
    adminUrl: { value: `http://127.0.0.1:${adminPort}` },
  });
}

function startWorker(
  name: string,
  env: NodeJS.ProcessEnv,
  outputFile: (name: string) => string | undefined,
): Promise<Child> {
  return startChild({
    name,
    program: { command: process.execPath, args: [...briefly, compiled('workers/main.js')], env },
    ipc: true,
    healthy: () => true,
    healthyDeadlineMs: 30_000,
    outputFile: outputFile(name),
  });
}

/** Beside other tests a restore over several servers takes minutes. */
const commandMsMax = 300_000;

/** Runs one of our programs until it ends; settles with its stdout, rejects with its stderr when it fails. */
export async function runProgram(
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<string> {
  const child = launch(
    { command: process.execPath, args: [compiled(program), ...args], env },
    ['ignore', 'pipe', 'pipe'],
    'KILL',
  );
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    child.kill('SIGKILL');
  }, commandMsMax);
  const [output, errors, [code, signal]] = await Promise.all([
    textOf(child.stdout as Readable),
    textOf(child.stderr as Readable),
    once(child, 'close'),
  ]);
  clearTimeout(timer);
  const how = isLate ? `was killed after ${commandMsMax} ms` : `ended with ${signal ?? code}`;
  if (code !== 0) throw new Error(`${program} ${args.join(' ')} ${how}:\n${errors}`);
  return output;
}

/** Runs a statement as the tester; settles with the rows. */
export async function queryRows<Row>(
  clickhouse: Deployment['clickhouse'],
  database: string,
  sql: string,
): Promise<Row[]> {
  const parameters = new URLSearchParams({ database, default_format: 'JSONEachRow' });
  const text = await query(`${clickhouse.origin}/?${parameters}`, clickhouse.tester, sql);
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Row);
}

function compiled(path: string): string {
  return fileURLToPath(new URL(`../../${path}`, import.meta.url));
}
