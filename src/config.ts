// Owns the environment: the only reader of process.env. Every variable has its name, unit, default and
// bounds in one table; a bad value is one line that names the variable, and the process ends with code 1.

import { existsSync, readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { join, resolve } from 'node:path';
import {
  administration,
  bearerMax,
  receiving,
  redisMemoryBytes,
  storing,
  takeovers,
} from './contract/limits.js';
import { isCrashSpec } from './crash-point.js';

/**
 * How ClickHouse keeps the tables: on one server (`plain`), on replicas (`replicated`), or as a managed ClickHouse does (`shared`).
 * `rehearsed`, for tests: plain tables that get the statements for replicated ones.
 */
export type TableKind = 'plain' | 'replicated' | 'shared' | 'rehearsed';

export type Config = {
  /** Address that the API and a worker's own port bind to. */
  readonly host: string;
  readonly port: number;
  /** Address that the administration's port binds to. */
  readonly adminHost: string;
  readonly adminPort: number;
  /** Origin of the console, for its links and cookies; never taken from a request. */
  readonly adminBaseUrl: string;
  /** Port of a worker's own health and metrics; 0: none, and the API process of its host serves the worker's metrics. */
  readonly workerAdminPort: number;
  /** Origin used in every URL that the service hands out; never taken from a request. */
  readonly publicBaseUrl: string;
  /** Addresses and networks of the proxies that are believed when they forward a caller's address. */
  readonly trustedProxies: readonly string[];
  /** The addresses, networks and hosts of the internal network that callbacks may go to. */
  readonly callbackAllow: readonly string[];
  readonly dataDir: string;
  /** A URL, or the path of a socket. For a cluster: the URLs of some of its nodes, separated by commas. */
  readonly redisUrl: string;
  readonly redisCluster: boolean;
  /** The sentinels that say which server is the primary; undefined: `redisUrl` says where Redis is. */
  readonly redisSentinels: RedisSentinels | undefined;
  /** How many replicas must have a commit on disk before it is acknowledged. */
  readonly redisReplicasAck: number;
  /** What the service does when a new primary lacks acknowledged commits. */
  readonly redisLoss: 'stop' | 'go-on';
  /** Password of the embedded Redis; undefined before its first start, and for another Redis, whose URL has it. */
  readonly redisPassword: string | undefined;
  readonly redisEmbedded: boolean;
  /** Port of the embedded Redis; the port of another Redis is in its URL. */
  readonly redisPort: number;
  /** How many embedded servers of Redis there are. Several have three sentinels, on the ports after theirs. */
  readonly redisNodes: number;
  readonly redisAppendfsync: 'always' | 'everysec';
  readonly redisMemoryBytesMax: number;
  /** A URL for each ClickHouse server, with user and password. */
  readonly clickhouseUrls: readonly string[];
  readonly clickhouseEmbedded: boolean;
  /** How many embedded servers of ClickHouse there are. */
  readonly clickhouseServers: number;
  /** Ports of the first embedded server, for HTTP and for the native protocol; each further server has the next ones. */
  readonly clickhousePort: number;
  readonly clickhouseTcpPort: number;
  readonly clickhouseDatabase: string;
  readonly clickhouseCluster: string | undefined;
  readonly clickhouseTables: TableKind;
  /** Empty: the administration over HTTP is off. */
  readonly adminToken: string;
  /** The identity provider by which people can sign in to the console, as well as by password; undefined: none. */
  readonly provider: ProviderConfig | undefined;
  /** The user who called sudo; empty without sudo. */
  readonly sudoUser: string;
  /** Whether ADMIN_PORT serves the demo page, which shows data of the demo account without a token. */
  readonly demo: boolean;
  /** Bytes of one request's headers. */
  readonly headerBytesMax: number;
  /** Paths of the client library's script, and of the endpoint that it sends to; pages are told the first of each. */
  readonly sdkPaths: Paths;
  readonly collectPaths: Paths;
  /** Connections to PORT that one API process takes. */
  readonly connectionsMax: number;
  readonly apiProcesses: number;
  readonly workerProcesses: number;
  /** How many shards the first start makes; the number never changes afterwards. */
  readonly shards: number;
  /** Whether SHARDS is set. If not, a later start takes the number that the deployment has. */
  readonly areShardsGiven: boolean;
  /** An open segment older than this is sealed by the next tick. */
  readonly segmentAgeMsMax: number;
  readonly segmentBytesMax: number;
  /** Bytes of rows in Redis that ClickHouse does not have yet; above this, requests are answered 503. */
  readonly backlogBytesMax: number;
  /** Bytes that remembered idempotency keys may take in Redis. */
  readonly claimBytesMax: number;
  /** Bytes of bodies that an address may send to `/api/collect` in a minute, in one API process. */
  readonly collectAddressBytesMax: number;
  /** The same for large or compressed bodies without a write key, to the endpoints for servers. */
  readonly addressBytesMax: number;
  /** How many segments one worker process stores at once. */
  readonly storeConcurrency: number;
  /** When a worker has been silent for this long, another worker gets its job. */
  readonly jobLockMs: number;
  /** How rows that deletions and retention remove leave the disk. */
  readonly erasure: {
    /** Tables up to this size are rewritten at once. In larger ones rows are hidden, and erased in passes for many requests. */
    readonly atOnceBytesMax: number;
    /** The share of one core that passes may use on average. */
    readonly cpuShare: number;
    /** How long a request waits for a pass at most, whatever share of the core that takes. */
    readonly withinMs: number;
  };
  readonly logLevel: string;
  /** For tests only: where the process dies, `name:n`. */
  readonly crashAt: string | undefined;
};

/** The sentinels that know which server is the primary; they and the servers have one user and password. */
export type RedisSentinels = {
  readonly sentinels: readonly { readonly host: string; readonly port: number }[];
  /** The name by which the sentinels know the primary. */
  readonly name: string;
  readonly tls: boolean;
  readonly username: string;
  readonly password: string;
};

/** A provider of OpenID Connect. */
export type ProviderConfig = {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  readonly roleClaim: string;
};

/** Paths of the public server, in the order in which they were given. */
export type Paths = readonly [string, ...string[]];

export class ConfigError extends Error {}

/** Reads and checks the environment. Throws ConfigError, whose message names the variable. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const host = text(env, 'HOST', '127.0.0.1');
  const adminHost = text(env, 'ADMIN_HOST', '127.0.0.1');
  const port = integer(env, 'PORT', 8080, 1, 65_535);
  const adminPort = integer(env, 'ADMIN_PORT', 8081, 1, 65_535);
  const redisPort = integer(env, 'REDIS_PORT', 6390, 1, 65_535);
  const dataDir = resolve(text(env, 'DATA_DIR', '.data'));
  const clickhousePort = integer(env, 'CLICKHOUSE_PORT', 8123, 1, 65_535);
  const redisNodes = integer(env, 'REDIS_NODES', 1, 1, 5);
  const namedSentinels = sentinels(env.REDIS_URL?.trim() ?? '');
  const redisUrl = namedSentinels
    ? (env.REDIS_URL as string).trim()
    : (socketPath(env) ?? urls(env, 'REDIS_URL', ['redis:', 'rediss:']));
  const hasNodes = redisUrl === undefined && redisNodes > 1;
  const redisSentinels = hasNodes ? embeddedSentinels(dataDir, redisPort + redisNodes) : namedSentinels;
  const isCluster = redisSentinels === undefined && redisUrl?.includes(',');
  const redisCluster = oneOf(env, 'REDIS_CLUSTER', ['0', '1'], isCluster ? '1' : '0') === '1';
  if (redisSentinels === undefined) checkCluster(redisUrl, redisCluster);
  const redisReplicasAck = integer(env, 'REDIS_REPLICAS_ACK', hasNodes ? 1 : 0, 0, 8);
  if (redisCluster && redisSentinels !== undefined)
    throw new ConfigError('REDIS_CLUSTER must be 0 with sentinels');
  const clickhouseUrls = urls(env, 'CLICKHOUSE_URL', ['http:', 'https:'])?.split(',');
  if (new Set(clickhouseUrls).size < (clickhouseUrls?.length ?? 0))
    throw new ConfigError('CLICKHOUSE_URL must name each server once');
  const clickhouseServers = integer(env, 'CLICKHOUSE_SERVERS', 1, 1, clickhouseServersMax);
  const embeddedUrls = Array.from({ length: clickhouseServers }, (_, number) =>
    embeddedClickHouseUrl(dataDir, clickhousePort + number),
  );
  const publicBaseUrl = url(env, 'PUBLIC_BASE_URL', ['http:', 'https:']) ?? `http://${host}:${port}`;
  return {
    host,
    port,
    adminHost,
    adminPort,
    adminBaseUrl:
      originOf(url(env, 'ADMIN_BASE_URL', ['http:', 'https:'])) ?? localOrigin(adminHost, adminPort),
    workerAdminPort: integer(env, 'WORKER_ADMIN_PORT', 0, 0, 65_535),
    publicBaseUrl: publicBaseUrl.replace(/\/+$/, ''),
    trustedProxies: networks(env, 'TRUSTED_PROXIES'),
    callbackAllow: hostsAndNetworks(env, 'CALLBACK_ALLOW'),
    dataDir,
    redisUrl: redisUrl ?? (hasNodes ? sentinelUrl(redisSentinels) : embeddedRedisUrl(dataDir, redisPort)),
    redisCluster,
    redisSentinels,
    redisReplicasAck,
    redisLoss: oneOf(env, 'REDIS_LOSS', ['stop', 'go-on'], 'stop'),
    redisPassword: redisUrl === undefined ? readFileOf(redisPasswordFile(dataDir)) : undefined,
    redisEmbedded: redisUrl === undefined,
    redisPort,
    redisNodes,
    redisAppendfsync: oneOf(env, 'REDIS_APPENDFSYNC', ['always', 'everysec'], 'always'),
    redisMemoryBytesMax: integer(env, 'REDIS_MEMORY_BYTES_MAX', redisMemoryBytes, 64 * MiB, 1024 * GiB),
    clickhouseUrls: clickhouseUrls ?? embeddedUrls,
    clickhouseEmbedded: clickhouseUrls === undefined,
    clickhouseServers,
    clickhousePort,
    clickhouseTcpPort: integer(env, 'CLICKHOUSE_TCP_PORT', 9010, 1, 65_535),
    clickhouseDatabase: identifier(env, 'CLICKHOUSE_DATABASE', 'sluice'),
    clickhouseCluster: clickhouseCluster(
      env,
      (clickhouseUrls ?? embeddedUrls).length,
      clickhouseUrls === undefined,
    ),
    clickhouseTables: tableKind(env, (clickhouseUrls ?? embeddedUrls).length),
    adminToken: adminToken(env),
    provider: provider(env),
    sudoUser: text(env, 'SUDO_USER', ''),
    demo: demo(env, [host, adminHost]),
    headerBytesMax: integer(env, 'HEADER_BYTES_MAX', receiving.headerBytesMax, 4096, 65_536),
    ...clientPaths(env),
    connectionsMax: integer(env, 'CONNECTIONS_MAX', 10_000, 10, 1_000_000),
    apiProcesses: integer(env, 'API_PROCESSES', 1, 1, 64),
    workerProcesses: integer(env, 'WORKER_PROCESSES', 1, 0, 64),
    // Each embedded ClickHouse server needs a shard of its own.
    shards: integer(
      env,
      'SHARDS',
      clickhouseUrls === undefined ? clickhouseServers : 1,
      1,
      storing.shardsMax,
    ),
    areShardsGiven: text(env, 'SHARDS', '') !== '',
    segmentAgeMsMax: integer(env, 'SEGMENT_AGE_MS_MAX', storing.segmentAgeMs, 10, 60_000),
    segmentBytesMax: integer(env, 'SEGMENT_BYTES_MAX', 4 * MiB, 64 * 1024, 64 * MiB),
    backlogBytesMax: integer(env, 'BACKLOG_BYTES_MAX', 2 * GiB, 64 * 1024, 1024 * GiB),
    claimBytesMax: integer(env, 'CLAIM_BYTES_MAX', GiB, MiB, 1024 * GiB),
    collectAddressBytesMax: integer(env, 'COLLECT_ADDRESS_BYTES_MAX', 32 * MiB, MiB, 1024 * GiB),
    addressBytesMax: integer(env, 'ADDRESS_BYTES_MAX', 256 * MiB, 16 * MiB, 1024 * GiB),
    storeConcurrency: integer(env, 'STORE_CONCURRENCY', 2, 1, 16),
    jobLockMs: integer(env, 'JOB_LOCK_MS', takeovers.lockMs, 500, 600_000),
    erasure: {
      atOnceBytesMax: integer(env, 'ERASE_AT_ONCE_BYTES_MAX', GiB, 0, 1024 * GiB),
      cpuShare: fraction(env, 'ERASE_CPU_SHARE', 0.1),
      withinMs: duration(env, 'ERASE_WITHIN', '24h'),
    },
    crashAt: crashSpec(env),
    logLevel: oneOf(env, 'LOG_LEVEL', ['debug', 'info', 'warn', 'error', 'silent'], 'info'),
  };
}

/**
 * The variables that a start records in DATA_DIR, so that commands find its servers without settings of their own. REDIS_URL and
 * CLICKHOUSE_URL are not among them, since they may hold secrets.
 */
const notedVariables = [
  ...['HOST', 'PORT', 'ADMIN_HOST', 'ADMIN_PORT', 'ADMIN_BASE_URL', 'PUBLIC_BASE_URL'],
  ...['REDIS_PORT', 'REDIS_NODES', 'REDIS_REPLICAS_ACK'],
  ...['CLICKHOUSE_PORT', 'CLICKHOUSE_TCP_PORT', 'CLICKHOUSE_SERVERS', 'CLICKHOUSE_DATABASE'],
];

/** The file in which the start that uses DATA_DIR records its processes and its variables. */
export function startFile(dataDir: string): string {
  return join(dataDir, 'lock');
}

/** The part of its environment that a start records. */
export function variablesToNote(env: NodeJS.ProcessEnv): Readonly<Record<string, string>> {
  return Object.fromEntries(
    notedVariables.map((name) => [name, text(env, name, '')] as const).filter(([, value]) => value !== ''),
  );
}

/** The configuration of a command. Variables that its own environment does not set come from the start that uses its DATA_DIR. */
export function readConfigBesideStart(env: NodeJS.ProcessEnv = process.env): Config {
  const noted = readFileOf(startFile(resolve(text(env, 'DATA_DIR', '.data')))) ?? '';
  const own = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
  return readConfig({ ...notedIn(noted), ...own });
}

/** The recorded variables: none if no start is recorded, or while the file is being written. */
function notedIn(noted: string): NodeJS.ProcessEnv {
  try {
    const { variables = {} } = JSON.parse(noted || '{}') as { variables?: NodeJS.ProcessEnv };
    return variables;
  } catch {
    return {};
  }
}

/**
 * Reads the configuration of a process that starts; if it is bad, prints why and ends the process. Commands, which may run beside a
 * start, pass `readConfigBesideStart`.
 */
export function readConfigOrExit(read: () => Config = readConfig): Config {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`sluice: ${error.message}\n`);
    process.exit(1);
  }
}

/** The name of the cluster: several servers need it to read each other's tables. */
function clickhouseCluster(env: NodeJS.ProcessEnv, servers: number, isEmbedded: boolean): string | undefined {
  const isNamed = env.CLICKHOUSE_CLUSTER !== undefined && env.CLICKHOUSE_CLUSTER !== '';
  if (isNamed) return identifier(env, 'CLICKHOUSE_CLUSTER', '');
  if (servers === 1) return undefined;
  if (isEmbedded) return 'sluice';
  throw new ConfigError('CLICKHOUSE_CLUSTER must name the cluster of the servers of CLICKHOUSE_URL');
}

/** A few are enough: several servers on one machine are for trials only. */
const clickhouseServersMax = 8;

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

/** From a hundredth to 1. */
function fraction(env: NodeJS.ProcessEnv, name: string, fallback: number): number {
  const value = text(env, name, String(fallback));
  if (!/^(0\.\d{1,4}|1)$/.test(value) || Number(value) < 0.01)
    throw new ConfigError(`${name} must be a number from 0.01 to 1, not ${JSON.stringify(value)}`);
  return Number(value);
}

/** A time such as 24h, in milliseconds; at most 30 days. */
function duration(env: NodeJS.ProcessEnv, name: string, fallback: string): number {
  const value = text(env, name, fallback);
  const [, count, unit] = /^(\d{1,5})([smhd])$/.exec(value) ?? [];
  const ms = Number(count) * ({ s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit ?? ''] ?? Number.NaN);
  if (!(ms <= 30 * 86_400_000))
    throw new ConfigError(
      `${name} must be a time such as 30m, 24h or 7d, at most 30d, not ${JSON.stringify(value)}`,
    );
  return ms;
}

function crashSpec(env: NodeJS.ProcessEnv): string | undefined {
  const value = text(env, 'CRASH_AT', '');
  if (value === '') return undefined;
  if (!isCrashSpec(value)) {
    throw new ConfigError(
      `CRASH_AT must be name:n, a crash point and at which pass it crashes, not ${JSON.stringify(value)}`,
    );
  }
  return value;
}

/** Issuer, id and secret must be set together or not at all. */
function provider(env: NodeJS.ProcessEnv): ProviderConfig | undefined {
  const issuer = url(env, 'OIDC_ISSUER', ['http:', 'https:']);
  if (issuer !== undefined && !isSafeAddress(issuer))
    throw new ConfigError(
      'OIDC_ISSUER must begin with https:// unless the provider runs on this machine (127.0.0.1)',
    );
  const clientId = text(env, 'OIDC_CLIENT_ID', '');
  const clientSecret = text(env, 'OIDC_CLIENT_SECRET', '');
  const roleClaim = text(env, 'OIDC_ROLE_CLAIM', 'sluice_role');
  if (issuer === undefined && clientId === '' && clientSecret === '') return undefined;
  if (issuer === undefined || clientId === '' || clientSecret === '')
    throw new ConfigError('OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET must be set together');
  return { issuer, clientId, clientSecret, roleClaim };
}

const tokenForm = new RegExp(`^[A-Za-z0-9._~+/-]{1,${bearerMax}}=*$`);
const placeholderForm = /replace.?me|change.?me|placeholder|example|your.?token|admin.?token/i;

/** The messages do not repeat the token. */
function adminToken(env: NodeJS.ProcessEnv): string {
  const token = text(env, 'ADMIN_TOKEN', '');
  if (token === '') return '';
  const { tokenLengthMin, tokenSymbolsMin } = administration;
  const advice = 'make one with "openssl rand -hex 24"';
  if (!tokenForm.test(token)) {
    throw new ConfigError(
      `ADMIN_TOKEN must be at most ${bearerMax} letters, digits and . _ ~ + / -, with = only at its end, since a header carries no others: ${advice}`,
    );
  }
  if (placeholderForm.test(token) || new Set(token).size < tokenSymbolsMin) {
    throw new ConfigError(`ADMIN_TOKEN must be random, not a placeholder: ${advice}`);
  }
  if (token.length < tokenLengthMin) {
    throw new ConfigError(`ADMIN_TOKEN must have at least ${tokenLengthMin} characters: ${advice}`);
  }
  return token;
}

/** The demo shows data without a token, so no other machine may reach it. */
function demo(env: NodeJS.ProcessEnv, hosts: readonly string[]): boolean {
  if (oneOf(env, 'DEMO', ['0', '1'], '0') === '0') return false;
  if (!hosts.every(isLoopback)) {
    throw new ConfigError('DEMO must be 0 unless HOST and ADMIN_HOST are loopback addresses');
  }
  return true;
}

/** Whether only this machine can reach this host. */
export function isLoopback(host: string): boolean {
  return /^(?:localhost|127(?:\.\d{1,3}){3}|::1)$/i.test(host);
}

/** Whether nobody on the way to a URL can read or change the messages: it is HTTPS, or on this machine. */
export function isSafeAddress(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')));
}

function url(env: NodeJS.ProcessEnv, name: string, protocols: string[]): string | undefined {
  const value = env[name];
  if (value === undefined || value === '') return undefined;
  if (!URL.canParse(value) || !protocols.includes(new URL(value).protocol)) {
    // The message does not repeat the value, which may hold a password.
    throw new ConfigError(`${name} must be a URL that begins with ${protocols.join('// or ')}//`);
  }
  return value;
}

/** The origin of ADMIN_BASE_URL. It has no path, since the console's links and cookies apply to a whole origin. */
function originOf(url: string | undefined): string | undefined {
  if (url === undefined) return undefined;
  if (new URL(url).pathname !== '/')
    throw new ConfigError('ADMIN_BASE_URL must be an origin, without a path');
  return new URL(url).origin;
}

/** The URL by which this machine reaches a server that listens on a host. */
function localOrigin(host: string, port: number): string {
  const reachable = { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host;
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
}

/** The file in DATA_DIR with a user's password. The embedded ClickHouse makes it at its first start. */
export function clickhousePasswordFile(dataDir: string, user: 'sluice' | 'reader'): string {
  return join(dataDir, user === 'sluice' ? 'clickhouse-password' : 'clickhouse-reader-password');
}

/** The file in DATA_DIR with the secret that several embedded servers share. */
export function clickhouseClusterSecretFile(dataDir: string): string {
  return join(dataDir, 'clickhouse-cluster-secret');
}

/** The URL of an embedded server. The password comes from the file that its first start made, so no command line or environment has it. */
function embeddedClickHouseUrl(dataDir: string, port: number): string {
  const password = readFileOf(clickhousePasswordFile(dataDir, 'sluice'));
  return `http://${password === undefined ? '' : `sluice:${password}@`}127.0.0.1:${port}`;
}

/** The file in DATA_DIR with the password of the embedded Redis, which makes it at its first start. */
export function redisPasswordFile(dataDir: string): string {
  return join(dataDir, 'redis-password');
}

/** The text of a file in DATA_DIR; undefined before the first start, which makes it. */
function readFileOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new ConfigError(`DATA_DIR: ${file} cannot be read (${code})`);
  }
}

/** The longest path of a unix socket that Linux allows, in bytes. */
const socketPathBytesMax = 107;

/** The socket on which the embedded Redis listens besides its port; undefined if its path is too long. */
export function redisSocket(dataDir: string): string | undefined {
  const path = join(dataDir, 'redis', 'redis.sock');
  return Buffer.byteLength(path) <= socketPathBytesMax ? path : undefined;
}

/** The socket of the embedded Redis if it has started, else its port: over the socket a command costs both ends half as much. */
function embeddedRedisUrl(dataDir: string, port: number): string {
  const socket = redisSocket(dataDir);
  return socket !== undefined && existsSync(socket) ? socket : `redis://127.0.0.1:${port}`;
}

/** REDIS_URL when it is the path of a unix socket. */
function socketPath(env: NodeJS.ProcessEnv): string | undefined {
  const path = env.REDIS_URL?.trim() ?? '';
  if (!path.startsWith('/')) return undefined;
  if (Buffer.byteLength(path) > socketPathBytesMax) {
    throw new ConfigError(
      `REDIS_URL must be at most ${socketPathBytesMax} bytes long when it is the path of a socket`,
    );
  }
  if (/[,?]/.test(path)) throw new ConfigError('REDIS_URL must be the path of one socket, without options');
  return path;
}

/** The three embedded sentinels, on consecutive ports, with the password of the embedded Redis. */
function embeddedSentinels(dataDir: string, firstPort: number): RedisSentinels {
  return {
    sentinels: [0, 1, 2].map((more) => ({ host: '127.0.0.1', port: firstPort + more })),
    name: 'sluice',
    tls: false,
    username: '',
    password: readFileOf(redisPasswordFile(dataDir)) ?? '',
  };
}

function sentinelUrl(named: RedisSentinels | undefined): string {
  const hosts = named?.sentinels.map(({ host, port }) => `${host}:${port}`).join(',');
  return `redis-sentinel://${hosts}/${named?.name}`;
}

const sentinelForm = /^redis(s?)-sentinel:\/\/(?:([^@/]*)@)?([^@/?#]+)\/([\w.-]+)$/;

/** REDIS_URL when it names sentinels. The message does not repeat the value, which may hold a password. */
function sentinels(value: string): RedisSentinels | undefined {
  if (!/^rediss?-sentinel:/.test(value)) return undefined;
  const [, tls, credentials = '', hosts = '', name = ''] = sentinelForm.exec(value) ?? [];
  const nodes = hosts.split(',').map((host) => `redis://${host}`);
  const isNode = (node: string) => URL.canParse(node) && new URL(node).hostname !== '';
  const areGood = URL.canParse(`redis://${credentials}@host`) && !/%(?![\da-f]{2})/i.test(credentials);
  if (name === '' || !nodes.every(isNode) || !areGood) {
    throw new ConfigError(
      'REDIS_URL must be redis-sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT,HOST:PORT/NAME when it names sentinels',
    );
  }
  const { username, password } = new URL(`redis://${credentials}@host`);
  return {
    sentinels: nodes.map((node) => {
      const { hostname, port } = new URL(node);
      return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 26_379) };
    }),
    name,
    tls: tls === 's',
    username: decodeURIComponent(username),
    password: decodeURIComponent(password),
  };
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
  if (redisUrl?.startsWith('/') && redisCluster) {
    throw new ConfigError('REDIS_CLUSTER must be 0 when REDIS_URL is the path of a socket');
  }
  if (redisUrl === undefined && redisCluster) throw new ConfigError('REDIS_CLUSTER needs REDIS_URL');
  if (redisUrl?.includes(',') && !redisCluster) {
    throw new ConfigError('REDIS_CLUSTER must not be 0 when REDIS_URL names several servers');
  }
  if (
    redisCluster &&
    redisUrl?.split(',').some((node) => !['', '/', '/0'].includes(new URL(node).pathname))
  ) {
    throw new ConfigError('REDIS_URL must not name a database: a cluster has none');
  }
}

/** Addresses and networks in CIDR notation, separated by commas. */
function networks(env: NodeJS.ProcessEnv, name: string): string[] {
  const values = listed(env, name);
  for (const value of values) {
    if (!isNetwork(value)) {
      throw new ConfigError(
        `${name} must be addresses or networks such as 10.0.0.0/8, separated by commas, not ${JSON.stringify(value)}`,
      );
    }
  }
  return values;
}

/** The same, or names of hosts. */
function hostsAndNetworks(env: NodeJS.ProcessEnv, name: string): string[] {
  const values = listed(env, name);
  const hostForm = /^(?=.*[a-z])[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/i;
  for (const value of values) {
    if (!isNetwork(value) && !hostForm.test(value)) {
      throw new ConfigError(
        `${name} must be hosts, addresses or networks such as 10.0.0.0/8, separated by commas, not ${JSON.stringify(value)}`,
      );
    }
  }
  return values;
}

function listed(env: NodeJS.ProcessEnv, name: string): string[] {
  const values = text(env, name, '')
    .split(',')
    .map((value) => value.trim());
  return values.length === 1 && values[0] === '' ? [] : values;
}

function isNetwork(value: string): boolean {
  const [address = '', bits, ...more] = value.split('/');
  const bitsMax = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
  const fits = bits === undefined ? bitsMax > 0 : /^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax;
  return fits && more.length === 0 && !address.includes('%');
}

function oneOf<T extends string>(env: NodeJS.ProcessEnv, name: string, values: readonly T[], fallback: T): T {
  const value = text(env, name, fallback);
  const found = values.find((candidate) => candidate === value);
  if (found === undefined) {
    throw new ConfigError(`${name} must be one of ${values.join(', ')}, not ${JSON.stringify(value)}`);
  }
  return found;
}

/** Operators can choose these paths, so that ad blockers' lists do not match them. They must not be paths of other endpoints. */
function clientPaths(env: NodeJS.ProcessEnv): Pick<Config, 'sdkPaths' | 'collectPaths'> {
  const sdkPaths = paths(env, 'SDK_PATH', '/sdk.js');
  const collectPaths = paths(env, 'COLLECT_PATH', '/api/collect');
  const all = [...sdkPaths.flatMap((path) => [path, `${path}.map`]), ...collectPaths];
  const twice = all.find((path, at) => all.indexOf(path) < at);
  if (twice !== undefined) throw new ConfigError(`SDK_PATH and COLLECT_PATH name ${twice} twice`);
  return { sdkPaths, collectPaths };
}

function paths(env: NodeJS.ProcessEnv, name: string, usual: string): Paths {
  const [first = usual, ...others] = text(env, name, usual)
    .split(',')
    .map((path) => path.trim());
  for (const path of [first, ...others]) {
    const isPath = path.length <= 255 && /^(\/(?!\.+(\/|$))[\w.~-]+)+$/.test(path);
    if (!isPath || (path !== usual && /^\/(api|v1|health|micro|openapi\.json)(\/|$)/.test(path)))
      throw new ConfigError(
        `${name} must be paths such as ${usual}, separated by commas, none of them another endpoint's, not ${JSON.stringify(path)}`,
      );
  }
  return [first, ...others];
}

/** How the tables are kept. A cluster of which CLICKHOUSE_URL names one server consists of replicas. */
function tableKind(env: NodeJS.ProcessEnv, servers: number): TableKind {
  const hasCluster = text(env, 'CLICKHOUSE_CLUSTER', '') !== '';
  const kinds = ['plain', 'replicated', 'shared', 'rehearsed'] as const;
  const kind = oneOf(env, 'CLICKHOUSE_TABLES', kinds, hasCluster && servers === 1 ? 'replicated' : 'plain');
  if (kind !== 'plain' && kind !== 'rehearsed' && servers > 1)
    throw new ConfigError('CLICKHOUSE_TABLES must be plain when CLICKHOUSE_URL names several servers');
  if (kind === 'replicated' && !hasCluster)
    throw new ConfigError('CLICKHOUSE_TABLES=replicated needs CLICKHOUSE_CLUSTER');
  return kind;
}

function identifier(env: NodeJS.ProcessEnv, name: string, fallback: string): string {
  const value = text(env, name, fallback);
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(value)) {
    throw new ConfigError(`${name} must be letters, digits and underscores, not ${JSON.stringify(value)}`);
  }
  return value;
}
