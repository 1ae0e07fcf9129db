// Owns the environment: nothing else reads process.env. One table has every variable's name, unit, default and bounds (Redis's variables
// are in config-redis.ts). For a bad value the process prints one line that names the variable, and ends with code 1.

import { join, resolve } from 'node:path';
import { readRedis } from './config-redis.js';
import {
  ConfigError,
  duration,
  fraction,
  hostsAndNetworks,
  identifier,
  integer,
  networks,
  oneOf,
  readFileOf,
  text,
  url,
  urls,
} from './config-values.js';
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
  const host = text(env, 'HOST', '127.0.0.1');
  const adminHost = text(env, 'ADMIN_HOST', '127.0.0.1');
  const port = integer(env, 'PORT', 8080, 1, 65_535);
  const adminPort = integer(env, 'ADMIN_PORT', 8081, 1, 65_535);
  const dataDir = resolve(text(env, 'DATA_DIR', '.data'));
  const redis = readRedis(env, dataDir);
  const clickhousePort = integer(env, 'CLICKHOUSE_PORT', 8123, 1, 65_535);
  const namedUrls = urls(env, 'CLICKHOUSE_URL', ['http:', 'https:'])?.split(',');
  if (new Set(namedUrls).size < (namedUrls?.length ?? 0))
    throw new ConfigError('CLICKHOUSE_URL must name each server once');
  const clickhouseServers = integer(env, 'CLICKHOUSE_SERVERS', 1, 1, clickhouseServersMax);
  const clickhouseUrls: readonly string[] =
    namedUrls ??
    Array.from({ length: clickhouseServers }, (_, number) =>
      embeddedClickHouseUrl(dataDir, clickhousePort + number),
    );
  const clickhouseEmbedded = namedUrls === undefined;
  const publicBaseUrl = url(env, 'PUBLIC_BASE_URL', ['http:', 'https:']) ?? `http://${host}:${port}`;
  return {
    /** Address that the API and a worker's own port bind to. */
    host,
    port,
    /** Address that the administration's port binds to. */
    adminHost,
    adminPort,
    /** Origin of the console, for its links and cookies; never taken from a request. */
    adminBaseUrl: originOf(
      url(env, 'ADMIN_BASE_URL', ['http:', 'https:']) ??
        `http://${adminHost.includes(':') ? `[${adminHost}]` : adminHost}:${adminPort}`,
    ),
    /** Port of a worker's own health and metrics; 0: none, and the API process of its host serves the worker's metrics. */
    workerAdminPort: integer(env, 'WORKER_ADMIN_PORT', 0, 0, 65_535),
    /** Origin used in every URL that the service hands out; never taken from a request. */
    publicBaseUrl: publicBaseUrl.replace(/\/+$/, ''),
    /** Addresses and networks of the proxies that are believed when they forward a caller's address. */
    trustedProxies: networks(env, 'TRUSTED_PROXIES'),
    /** The addresses, networks and hosts of the internal network that callbacks may go to. */
    callbackAllow: hostsAndNetworks(env, 'CALLBACK_ALLOW'),
    dataDir,
    ...redis,
    redisAppendfsync: oneOf(env, 'REDIS_APPENDFSYNC', ['always', 'everysec'], 'always'),
    redisMemoryBytesMax: integer(env, 'REDIS_MEMORY_BYTES_MAX', redisMemoryBytes, 64 * MiB, 1024 * GiB),
    /** A URL for each ClickHouse server, with user and password. */
    clickhouseUrls,
    clickhouseEmbedded,
    /** How many embedded servers of ClickHouse there are. */
    clickhouseServers,
    /** Ports of the first embedded server, for HTTP and for the native protocol; each further server has the next ones. */
    clickhousePort,
    clickhouseTcpPort: integer(env, 'CLICKHOUSE_TCP_PORT', 9010, 1, 65_535),
    clickhouseDatabase: identifier(env, 'CLICKHOUSE_DATABASE', 'sluice'),
    clickhouseCluster: clickhouseCluster(env, clickhouseUrls.length, clickhouseEmbedded),
    clickhouseTables: tableKind(env, clickhouseUrls.length),
    /** Empty: the administration over HTTP is off. */
    adminToken: adminToken(env),
    /** The identity provider by which people can sign in to the console, as well as by password; undefined: none. */
    provider: provider(env),
    /** The user who called sudo; empty without sudo. */
    sudoUser: text(env, 'SUDO_USER', ''),
    /** Whether ADMIN_PORT serves the demo page, which shows data of the demo account without a token. */
    demo: demo(env, [host, adminHost]),
    /** Bytes of one request's headers. */
    headerBytesMax: integer(env, 'HEADER_BYTES_MAX', receiving.headerBytesMax, 4096, 65_536),
    ...clientPaths(env),
    /** Connections to PORT that one API process takes. */
    connectionsMax: integer(env, 'CONNECTIONS_MAX', 10_000, 10, 1_000_000),
    apiProcesses: integer(env, 'API_PROCESSES', 1, 1, 64),
    workerProcesses: integer(env, 'WORKER_PROCESSES', 1, 0, 64),
    /**
     * How many shards the first start makes; the number never changes afterwards. Each embedded ClickHouse server needs a shard of its
     * own.
     */
    shards: integer(env, 'SHARDS', clickhouseEmbedded ? clickhouseServers : 1, 1, storing.shardsMax),
    /** Whether SHARDS is set. If not, a later start takes the number that the deployment has. */
    areShardsGiven: text(env, 'SHARDS', '') !== '',
    /** An open segment older than this is sealed by the next tick. */
    segmentAgeMsMax: integer(env, 'SEGMENT_AGE_MS_MAX', storing.segmentAgeMs, 10, 60_000),
    segmentBytesMax: integer(env, 'SEGMENT_BYTES_MAX', 4 * MiB, 64 * 1024, 64 * MiB),
    /** Bytes of rows in Redis that ClickHouse does not have yet; above this, requests are answered 503. */
    backlogBytesMax: integer(env, 'BACKLOG_BYTES_MAX', 2 * GiB, 64 * 1024, 1024 * GiB),
    /** Bytes that remembered idempotency keys may take in Redis. */
    claimBytesMax: integer(env, 'CLAIM_BYTES_MAX', GiB, MiB, 1024 * GiB),
    /** Bytes of bodies that an address may send to `/api/collect` in a minute, in one API process. */
    collectAddressBytesMax: integer(env, 'COLLECT_ADDRESS_BYTES_MAX', 32 * MiB, MiB, 1024 * GiB),
    /**
     * Bytes of large or compressed bodies without a write key that an address may send to the endpoints for servers in a minute, in one API
     * process.
     */
    addressBytesMax: integer(env, 'ADDRESS_BYTES_MAX', 256 * MiB, 16 * MiB, 1024 * GiB),
    /** How many segments one worker process stores at once. */
    storeConcurrency: integer(env, 'STORE_CONCURRENCY', 2, 1, 16),
    /** When a worker has been silent for this long, another worker gets its job. */
    jobLockMs: integer(env, 'JOB_LOCK_MS', takeovers.lockMs, 500, 600_000),
    /** How rows that deletions and retention remove leave the disk. */
    erasure: {
      /**
       * Tables up to this size are rewritten at once, unless that costs too much. In larger ones rows are hidden, and erased in passes for
       * many requests.
       */
      atOnceBytesMax: integer(env, 'ERASE_AT_ONCE_BYTES_MAX', GiB, 0, 1024 * GiB),
      /** The share of one core that erasing may use on average. */
      cpuShare: fraction(env, 'ERASE_CPU_SHARE', 0.1),
      /** The longest that a request waits for a pass, even if the pass then needs more than `cpuShare`. */
      withinMs: duration(env, 'ERASE_WITHIN', '24h'),
    },
    /** For tests only: where the process dies, `name:n`. */
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

/** How the tables are kept. If CLICKHOUSE_URL names only one server of a cluster, the cluster's servers are replicas. */
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
function clientPaths(env: NodeJS.ProcessEnv): { readonly sdkPaths: Paths; readonly collectPaths: Paths } {
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
