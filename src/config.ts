// Owns the environment: the only reader of process.env. Every variable has its name, unit, default and
// bounds in one table; a bad value is one line that names the variable, and the process ends with code 1.

import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isCrashSpec } from './crash-point.js';

export type Config = {
  /** Address all listeners bind to. */
  readonly host: string;
  readonly port: number;
  readonly adminPort: number;
  /** Where a worker tells its own health and metrics; 0: it does not, and the host's API tells its metrics. */
  readonly workerAdminPort: number;
  /** Origin used in every URL that the service hands out; never taken from a request. */
  readonly publicBaseUrl: string;
  readonly dataDir: string;
  /** Of a cluster some of its nodes, separated by commas. */
  readonly redisUrl: string;
  readonly redisCluster: boolean;
  readonly redisEmbedded: boolean;
  readonly redisPort: number;
  readonly redisAppendfsync: 'always' | 'everysec';
  readonly redisMemoryBytesMax: number;
  /** With user and password. */
  readonly clickhouseUrl: string;
  readonly clickhouseEmbedded: boolean;
  readonly clickhousePort: number;
  readonly clickhouseTcpPort: number;
  readonly clickhouseDatabase: string;
  readonly clickhouseCluster: string | undefined;
  /** Empty: the administration over HTTP is off. */
  readonly adminToken: string;
  /** Whether ADMIN_PORT serves the demo page, which shows data of the demo account without a token. */
  readonly demo: boolean;
  readonly apiProcesses: number;
  readonly workerProcesses: number;
  readonly shards: number;
  /** An open segment older than this is sealed by the next tick. */
  readonly segmentAgeMsMax: number;
  readonly segmentBytesMax: number;
  /** Bytes of rows in Redis that ClickHouse does not have yet; above it requests are answered 503. */
  readonly backlogBytesMax: number;
  /** Bytes that remembered idempotency keys may take in Redis. */
  readonly claimBytesMax: number;
  /** Store jobs at once in one worker process. */
  readonly storeConcurrency: number;
  /** A job whose worker is silent for this long is given to another one. */
  readonly jobLockMs: number;
  readonly logLevel: string;
  /** Tests only: where the process is to die, `name:n`. */
  readonly crashAt: string | undefined;
};

export class ConfigError extends Error {}

/** Reads and checks the environment. Throws ConfigError, whose message names the variable. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const host = text(env, 'HOST', '127.0.0.1');
  const port = integer(env, 'PORT', 8080, 1, 65_535);
  const redisPort = integer(env, 'REDIS_PORT', 6390, 1, 65_535);
  const dataDir = resolve(text(env, 'DATA_DIR', '.data'));
  const clickhousePort = integer(env, 'CLICKHOUSE_PORT', 8123, 1, 65_535);
  const redisUrl = urls(env, 'REDIS_URL', ['redis:', 'rediss:']);
  const redisCluster = oneOf(env, 'REDIS_CLUSTER', ['0', '1'], redisUrl?.includes(',') ? '1' : '0') === '1';
  checkCluster(redisUrl, redisCluster);
  const clickhouseUrl = url(env, 'CLICKHOUSE_URL', ['http:', 'https:']);
  const publicBaseUrl = url(env, 'PUBLIC_BASE_URL', ['http:', 'https:']) ?? `http://${host}:${port}`;
  return {
    host,
    port,
    adminPort: integer(env, 'ADMIN_PORT', 8081, 1, 65_535),
    workerAdminPort: integer(env, 'WORKER_ADMIN_PORT', 0, 0, 65_535),
    publicBaseUrl: publicBaseUrl.replace(/\/+$/, ''),
    dataDir,
    redisUrl: redisUrl ?? `redis://127.0.0.1:${redisPort}`,
    redisCluster,
    redisEmbedded: redisUrl === undefined,
    redisPort,
    redisAppendfsync: oneOf(env, 'REDIS_APPENDFSYNC', ['always', 'everysec'], 'always'),
    redisMemoryBytesMax: integer(env, 'REDIS_MEMORY_BYTES_MAX', 6 * GiB, 64 * MiB, 1024 * GiB),
    clickhouseUrl: clickhouseUrl ?? embeddedClickHouseUrl(dataDir, clickhousePort),
    clickhouseEmbedded: clickhouseUrl === undefined,
    clickhousePort,
    clickhouseTcpPort: integer(env, 'CLICKHOUSE_TCP_PORT', 9010, 1, 65_535),
    clickhouseDatabase: identifier(env, 'CLICKHOUSE_DATABASE', 'sluice'),
    clickhouseCluster:
      env.CLICKHOUSE_CLUSTER === undefined || env.CLICKHOUSE_CLUSTER === ''
        ? undefined
        : identifier(env, 'CLICKHOUSE_CLUSTER', ''),
    adminToken: text(env, 'ADMIN_TOKEN', ''),
    demo: oneOf(env, 'DEMO', ['0', '1'], '0') === '1',
    apiProcesses: integer(env, 'API_PROCESSES', 1, 1, 64),
    workerProcesses: integer(env, 'WORKER_PROCESSES', 1, 1, 64),
    shards: integer(env, 'SHARDS', 1, 1, 64),
    segmentAgeMsMax: integer(env, 'SEGMENT_AGE_MS_MAX', 200, 10, 60_000),
    segmentBytesMax: integer(env, 'SEGMENT_BYTES_MAX', 4 * MiB, 64 * 1024, 64 * MiB),
    backlogBytesMax: integer(env, 'BACKLOG_BYTES_MAX', 2 * GiB, 64 * 1024, 1024 * GiB),
    claimBytesMax: integer(env, 'CLAIM_BYTES_MAX', GiB, MiB, 1024 * GiB),
    storeConcurrency: integer(env, 'STORE_CONCURRENCY', 2, 1, 16),
    jobLockMs: integer(env, 'JOB_LOCK_MS', 5_000, 500, 600_000),
    crashAt: crashSpec(env),
    logLevel: oneOf(env, 'LOG_LEVEL', ['debug', 'info', 'warn', 'error', 'silent'], 'info'),
  };
}

/** Reads the configuration for a process entry: prints the error and ends the process when it is bad. */
export function readConfigOrExit(): Config {
  try {
    return readConfig();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`sluice: ${error.message}\n`);
    process.exit(1);
  }
}

const MiB = 1024 * 1024;
const GiB = 1024 * MiB;

function text(env: NodeJS.ProcessEnv, name: string, fallback: string): string {
  const value = env[name];
  return value === undefined || value === '' ? fallback : value;
}

function integer(env: NodeJS.ProcessEnv, name: string, fallback: number, min: number, max: number): number {
  const value = text(env, name, String(fallback));
  const number = Number(value);
  if (!/^\d+$/.test(value) || number < min || number > max) {
    throw new ConfigError(
      `${name} must be a whole number from ${min} to ${max}, not ${JSON.stringify(value)}`,
    );
  }
  return number;
}

function crashSpec(env: NodeJS.ProcessEnv): string | undefined {
  const value = text(env, 'CRASH_AT', '');
  if (value === '') return undefined;
  if (!isCrashSpec(value)) {
    throw new ConfigError(
      `CRASH_AT must be a crash point and a passing, name:n, not ${JSON.stringify(value)}`,
    );
  }
  return value;
}

function url(env: NodeJS.ProcessEnv, name: string, protocols: string[]): string | undefined {
  const value = env[name];
  if (value === undefined || value === '') return undefined;
  if (!URL.canParse(value) || !protocols.includes(new URL(value).protocol)) {
    // The value is not repeated: it may hold a password.
    throw new ConfigError(`${name} must be a URL that begins with ${protocols.join('// or ')}//`);
  }
  return value;
}

/** The file of DATA_DIR with the password of a user of the embedded ClickHouse, which makes it at its first start. */
export function clickhousePasswordFile(dataDir: string, user: 'sluice' | 'reader'): string {
  return join(dataDir, user === 'sluice' ? 'clickhouse-password' : 'clickhouse-reader-password');
}

/** Processes that start after the embedded ClickHouse find the password there; no command line or environment has it. */
function embeddedClickHouseUrl(dataDir: string, port: number): string {
  const file = clickhousePasswordFile(dataDir, 'sluice');
  try {
    const password = readFileSync(file, 'utf8').trim();
    return `http://sluice:${password}@127.0.0.1:${port}`;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return `http://127.0.0.1:${port}`;
    throw new ConfigError(`DATA_DIR: ${file} cannot be read (${code})`);
  }
}

/** One URL, or several of one protocol separated by commas. */
function urls(env: NodeJS.ProcessEnv, name: string, protocols: string[]): string | undefined {
  const values = (env[name] ?? '').split(',').map((value) => value.trim());
  const checked = values.map((value) => url({ [name]: value }, name, protocols));
  if (values.length > 1 && checked.some((value) => value?.split(':')[0] !== values[0]?.split(':')[0])) {
    throw new ConfigError(`${name} must be URLs of one protocol, separated by commas`);
  }
  return checked[0] === undefined ? undefined : checked.join(',');
}

/** The embedded Redis is one server, several servers are a cluster, and a cluster has no numbered databases. */
function checkCluster(redisUrl: string | undefined, redisCluster: boolean): void {
  if (redisUrl === undefined && redisCluster) throw new ConfigError('REDIS_CLUSTER needs REDIS_URL');
  if (redisUrl?.includes(',') && !redisCluster) {
    throw new ConfigError('REDIS_CLUSTER must not be 0 when REDIS_URL names several servers');
  }
  if (
    redisCluster &&
    redisUrl?.split(',').some((node) => !['', '/', '/0'].includes(new URL(node).pathname))
  ) {
    throw new ConfigError('REDIS_URL must name no database of a cluster');
  }
}

function oneOf<T extends string>(env: NodeJS.ProcessEnv, name: string, values: readonly T[], fallback: T): T {
  const value = text(env, name, fallback);
  const found = values.find((candidate) => candidate === value);
  if (found === undefined) {
    throw new ConfigError(`${name} must be one of ${values.join(', ')}, not ${JSON.stringify(value)}`);
  }
  return found;
}

function identifier(env: NodeJS.ProcessEnv, name: string, fallback: string): string {
  const value = text(env, name, fallback);
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(value)) {
    throw new ConfigError(`${name} must be letters, digits and underscores, not ${JSON.stringify(value)}`);
  }
  return value;
}
