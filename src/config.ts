// Owns the environment: nothing else reads process.env. One table has every variable's name, unit, default and bounds (Redis's variables
// are in config-redis.ts). For a bad value the process prints one line that names the variable, and ends with code 1.

import { join, resolve } from 'node:path';
import { readRedis } from './config-redis.js';
import { ConfigError, readFileOf, Variables } from './config-values.js';
import {
  administration,
  bearerMax,
  receiving,
  redisMemoryBytes,
  storing,
  takeovers,
} from './contract/limits.js';
import { isCrashSpec } from './crash-point.js';

const MiB = 1024 * 1024;
const GiB = 1024 * MiB;

/**
 * How ClickHouse keeps the tables: on one server (`plain`), on replicas (`replicated`), or as a managed ClickHouse does (`shared`).
 * `rehearsed`, for tests: plain tables that get the statements for replicated ones.
 */
export type TableKind = 'plain' | 'replicated' | 'shared' | 'rehearsed';

/** Paths of the public server, in the order in which they were given. */
export type Paths = readonly [string, ...string[]];

export type Config = Readonly<ReturnType<typeof readConfig>>;

/** Reads and checks the environment. Throws ConfigError, whose message names the variable. */
export function readConfig(env: NodeJS.ProcessEnv = process.env) {
  const read = new Variables(env);
  const host = read.text('HOST', '127.0.0.1');
  const adminHost = read.text('ADMIN_HOST', '127.0.0.1');
  const port = read.integer('PORT', 8080, 1, 65_535);
  const adminPort = read.integer('ADMIN_PORT', 8081, 1, 65_535);
  const dataDir = resolve(read.text('DATA_DIR', '.data'));
  const clickhousePort = read.integer('CLICKHOUSE_PORT', 8123, 1, 65_535);
  const namedUrls = read.urls('CLICKHOUSE_URL');
  if (new Set(namedUrls).size < (namedUrls?.length ?? 0))
    throw new ConfigError('CLICKHOUSE_URL must name each server once');
  const clickhouseServers = read.integer('CLICKHOUSE_SERVERS', 1, 1, clickhouseServersMax);
  const clickhouseUrls =
    namedUrls ??
    Array.from({ length: clickhouseServers }, (_, number) =>
      embeddedClickHouseUrl(dataDir, clickhousePort + number),
    );
  const clickhouseEmbedded = namedUrls === undefined;
  const publicBaseUrl = read.url('PUBLIC_BASE_URL') ?? urlOf(host, port);
  return {
    /** Address that the API and a worker's own port bind to. */
    host,
    port,
    /** Address that the administration's port binds to. */
    adminHost,
    adminPort,
    /** Origin of the console, for its links and cookies; never taken from a request. */
    adminBaseUrl: originOf(read.url('ADMIN_BASE_URL') ?? urlOf(adminHost, adminPort)),
    /** Port of a worker's own health and metrics; 0: none, and the API process of its host serves the worker's metrics. */
    workerAdminPort: read.integer('WORKER_ADMIN_PORT', 0, 0, 65_535),
    /** Origin used in every URL that the service hands out; never taken from a request. */
    publicBaseUrl: publicBaseUrl.replace(/\/+$/, ''),
    /** Addresses and networks of the proxies that are believed when they forward a caller's address. */
    trustedProxies: read.networks('TRUSTED_PROXIES'),
    /** The addresses, networks and hosts of the internal network that callbacks may go to. */
    callbackAllow: read.hostsAndNetworks('CALLBACK_ALLOW'),
    dataDir,
    ...readRedis(read, dataDir),
    redisAppendfsync: read.oneOf('REDIS_APPENDFSYNC', ['always', 'everysec'], 'always'),
    redisMemoryBytesMax: read.integer('REDIS_MEMORY_BYTES_MAX', redisMemoryBytes, 64 * MiB, 1024 * GiB),
    /** A URL for each ClickHouse server, with user and password. */
    clickhouseUrls,
    clickhouseEmbedded,
    /** How many embedded servers of ClickHouse there are. */
    clickhouseServers,
    /** Ports of the first embedded server, for HTTP and for the native protocol; each further server has the next ones. */
    clickhousePort,
    clickhouseTcpPort: read.integer('CLICKHOUSE_TCP_PORT', 9010, 1, 65_535),
    clickhouseDatabase: read.identifier('CLICKHOUSE_DATABASE', 'sluice'),
    clickhouseCluster: clickhouseCluster(read, clickhouseUrls.length, clickhouseEmbedded),
    clickhouseTables: tableKind(read, clickhouseUrls.length),
    /** Empty: the administration over HTTP is off. */
    adminToken: adminToken(read),
    /** The identity provider by which people can sign in to the console, as well as by password; undefined: none. */
    provider: provider(read),
    /** The user who called sudo; empty without sudo. */
    sudoUser: read.text('SUDO_USER'),
    /** Whether ADMIN_PORT serves the demo page, which shows data of the demo account without a token. */
    demo: demo(read, [host, adminHost]),
    /** Bytes of one request's headers. */
    headerBytesMax: read.integer('HEADER_BYTES_MAX', receiving.headerBytesMax, 4096, 65_536),
    ...clientPaths(read),
    /** Connections to PORT that one API process takes. */
    connectionsMax: read.integer('CONNECTIONS_MAX', 10_000, 10, 1_000_000),
    apiProcesses: read.integer('API_PROCESSES', 1, 1, 64),
    workerProcesses: read.integer('WORKER_PROCESSES', 1, 0, 64),
    /**
     * How many shards the first start makes; the number never changes afterwards. Each embedded ClickHouse server needs a shard of its
     * own.
     */
    shards: read.integer('SHARDS', clickhouseEmbedded ? clickhouseServers : 1, 1, storing.shardsMax),
    /** Whether SHARDS is set. If not, a later start takes the number that the deployment has. */
    areShardsGiven: read.text('SHARDS') !== '',
    /** An open segment older than this is sealed by the next tick. */
    segmentAgeMsMax: read.integer('SEGMENT_AGE_MS_MAX', storing.segmentAgeMs, 10, 60_000),
    segmentBytesMax: read.integer('SEGMENT_BYTES_MAX', 4 * MiB, 64 * 1024, 64 * MiB),
    /** Bytes of rows in Redis that ClickHouse does not have yet; above this, requests are answered 503. */
    backlogBytesMax: read.integer('BACKLOG_BYTES_MAX', 2 * GiB, 64 * 1024, 1024 * GiB),
    /** Bytes that remembered idempotency keys may take in Redis. */
    claimBytesMax: read.integer('CLAIM_BYTES_MAX', GiB, MiB, 1024 * GiB),
    /** Bytes of bodies that an address may send to `/api/collect` in a minute, in one API process. */
    collectAddressBytesMax: read.integer('COLLECT_ADDRESS_BYTES_MAX', 32 * MiB, MiB, 1024 * GiB),
    /**
     * Bytes of large or compressed bodies without a write key that an address may send to the endpoints for servers in a minute, in one API
     * process.
     */
    addressBytesMax: read.integer('ADDRESS_BYTES_MAX', 256 * MiB, 16 * MiB, 1024 * GiB),
    /** How many segments one worker process stores at once. */
    storeConcurrency: read.integer('STORE_CONCURRENCY', 2, 1, 16),
    /** When a worker has been silent for this long, another worker gets its job. */
    jobLockMs: read.integer('JOB_LOCK_MS', takeovers.lockMs, 500, 600_000),
    /** How rows that deletions and retention remove leave the disk. */
    erasure: {
      /**
       * Tables up to this size are rewritten at once, unless that costs too much. In larger ones rows are hidden, and erased in passes for
       * many requests.
       */
      atOnceBytesMax: read.integer('ERASE_AT_ONCE_BYTES_MAX', GiB, 0, 1024 * GiB),
      /** The share of one core that erasing may use on average. */
      cpuShare: read.fraction('ERASE_CPU_SHARE', 0.1),
      /** The longest that a request waits for a pass, even if the pass then needs more than `cpuShare`. */
      withinMs: read.duration('ERASE_WITHIN', '24h'),
    },
    /** For tests only: where the process dies, `name:n`. */
    crashAt: crashSpec(read),
    logLevel: read.oneOf('LOG_LEVEL', ['debug', 'info', 'warn', 'error', 'silent'], 'info'),
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
  const read = new Variables(env);
  const noted = notedVariables.map((name) => [name, read.text(name)] as const);
  return Object.fromEntries(noted.filter(([, value]) => value !== ''));
}

/** The configuration of a command. Variables that its own environment does not set come from the start that uses its DATA_DIR. */
export function readConfigBesideStart(env: NodeJS.ProcessEnv = process.env): Config {
  const noted = readFileOf(startFile(resolve(new Variables(env).text('DATA_DIR', '.data')))) ?? '';
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
function clickhouseCluster(read: Variables, servers: number, isEmbedded: boolean): string | undefined {
  if (read.text('CLICKHOUSE_CLUSTER') !== '') return read.identifier('CLICKHOUSE_CLUSTER', '');
  if (servers === 1) return undefined;
  if (isEmbedded) return 'sluice';
  throw new ConfigError('CLICKHOUSE_CLUSTER must name the cluster of the servers of CLICKHOUSE_URL');
}

/** A few are enough: several servers on one machine are for trials only. */
const clickhouseServersMax = 8;

/** How the tables are kept. If CLICKHOUSE_URL names only one server of a cluster, the cluster's servers are replicas. */
function tableKind(read: Variables, servers: number): TableKind {
  const hasCluster = read.text('CLICKHOUSE_CLUSTER') !== '';
  const kinds = ['plain', 'replicated', 'shared', 'rehearsed'] as const;
  const kind = read.oneOf('CLICKHOUSE_TABLES', kinds, hasCluster && servers === 1 ? 'replicated' : 'plain');
  if (kind !== 'plain' && kind !== 'rehearsed' && servers > 1)
    throw new ConfigError('CLICKHOUSE_TABLES must be plain when CLICKHOUSE_URL names several servers');
  if (kind === 'replicated' && !hasCluster)
    throw new ConfigError('CLICKHOUSE_TABLES=replicated needs CLICKHOUSE_CLUSTER');
  return kind;
}

/** The URL of an embedded server. The password comes from the file that its first start made, so no command line or environment has it. */
function embeddedClickHouseUrl(dataDir: string, port: number): string {
  const password = readFileOf(clickhousePasswordFile(dataDir, 'sluice'));
  return `http://${password === undefined ? '' : `sluice:${encodeURIComponent(password)}@`}127.0.0.1:${port}`;
}

/** The file in DATA_DIR with a user's password. The embedded ClickHouse makes it at its first start. */
export function clickhousePasswordFile(dataDir: string, user: 'sluice' | 'reader'): string {
  return join(dataDir, user === 'sluice' ? 'clickhouse-password' : 'clickhouse-reader-password');
}

/** The file in DATA_DIR with the secret that several embedded servers share. */
export function clickhouseClusterSecretFile(dataDir: string): string {
  return join(dataDir, 'clickhouse-cluster-secret');
}

function crashSpec(read: Variables): string | undefined {
  const value = read.text('CRASH_AT');
  if (value !== '' && !isCrashSpec(value))
    throw ConfigError.of('CRASH_AT', 'name:n, a crash point and at which pass it crashes', value);
  return value || undefined;
}

/** A provider of OpenID Connect. */
export type ProviderConfig = {
  /** The address of the provider. */
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** The claim that names the role. */
  readonly roleClaim: string;
};

/** Issuer, id and secret must be set together or not at all. */
function provider(read: Variables): ProviderConfig | undefined {
  const issuer = read.url('OIDC_ISSUER');
  if (issuer !== undefined && !isSafeAddress(issuer))
    throw new ConfigError(
      'OIDC_ISSUER must begin with https:// unless the provider runs on this machine (127.0.0.1)',
    );
  const clientId = read.text('OIDC_CLIENT_ID');
  const clientSecret = read.text('OIDC_CLIENT_SECRET');
  const roleClaim = read.text('OIDC_ROLE_CLAIM', 'sluice_role');
  if (issuer === undefined && clientId === '' && clientSecret === '') return undefined;
  if (issuer === undefined || clientId === '' || clientSecret === '')
    throw new ConfigError('OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET must be set together');
  return { issuer, clientId, clientSecret, roleClaim };
}

const tokenForm = new RegExp(`^[A-Za-z0-9._~+/-]{1,${bearerMax}}=*$`);
const placeholderForm = /replace.?me|change.?me|placeholder|example|your.?token|admin.?token/i;

/** The messages do not repeat the token. */
function adminToken(read: Variables): string {
  const token = read.text('ADMIN_TOKEN');
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
function demo(read: Variables, hosts: readonly string[]): boolean {
  if (read.oneOf('DEMO', ['0', '1'], '0') === '0') return false;
  if (!hosts.every(isLoopback)) {
    throw new ConfigError('DEMO must be 0 unless HOST and ADMIN_HOST are loopback addresses');
  }
  return true;
}

function urlOf(host: string, port: number): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
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

/**
 * The origin of ADMIN_BASE_URL. It has no path, since the console's links and cookies apply to a whole origin. A wildcard address (0.0.0.0
 * or ::) becomes the loopback address.
 */
function originOf(address: string): string {
  const found = new URL(address);
  if (found.pathname !== '/') throw new ConfigError('ADMIN_BASE_URL must be an origin, without a path');
  found.hostname = { '0.0.0.0': '127.0.0.1', '[::]': '[::1]' }[found.hostname] ?? found.hostname;
  return found.origin;
}

/** Operators can choose these paths, so that ad blockers' lists do not match them. They must not be paths of other endpoints. */
function clientPaths(read: Variables): { readonly sdkPaths: Paths; readonly collectPaths: Paths } {
  const sdkPaths = paths(read, 'SDK_PATH', '/sdk.js');
  const collectPaths = paths(read, 'COLLECT_PATH', '/api/collect');
  const all = [...sdkPaths.flatMap((path) => [path, `${path}.map`]), ...collectPaths];
  const twice = all.find((path, at) => all.indexOf(path) < at);
  if (twice !== undefined) throw new ConfigError(`SDK_PATH and COLLECT_PATH name ${twice} twice`);
  return { sdkPaths, collectPaths };
}

function paths(read: Variables, name: string, usual: string): Paths {
  const isOne = (path: string) => {
    const isPath = path.length <= 255 && /^(\/(?!\.+(\/|$))[\w.~-]+)+$/.test(path);
    return isPath && (path === usual || !/^\/(api|v1|health|micro|openapi\.json)(\/|$)/.test(path));
  };
  const [first = usual, ...others] = read.list(
    name,
    `paths such as ${usual}, none of them another endpoint's`,
    isOne,
  );
  return [first, ...others];
}
