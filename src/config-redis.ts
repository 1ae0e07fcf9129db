// Where Redis is: REDIS_URL in all its forms, and the variables of the embedded one.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError, readFileOf, type Variables } from './config-values.js';

/** The sentinels that know which server is the primary. They and the servers share one user and password. */
export type RedisSentinels = {
  readonly sentinels: readonly { readonly host: string; readonly port: number }[];
  /** The name by which the sentinels know the primary. */
  readonly name: string;
  readonly tls: boolean;
  readonly username: string;
  readonly password: string;
};

/** Reads where Redis is, and how it is reached. Throws ConfigError. */
export function readRedis(read: Variables, dataDir: string) {
  const redisPort = read.integer('REDIS_PORT', 6390, 1, 65_535);
  const redisNodes = read.integer('REDIS_NODES', 1, 1, 5);
  const given = read.text('REDIS_URL').trim();
  const namedSentinels = sentinels(given);
  const redisUrl =
    namedSentinels !== undefined || isSocket(given)
      ? given
      : read.urls('REDIS_URL', ['redis:', 'rediss:'])?.join(',');
  const hasNodes = redisUrl === undefined && redisNodes > 1;
  const redisSentinels = hasNodes ? embeddedSentinels(dataDir, redisPort + redisNodes) : namedSentinels;
  const isCluster = redisSentinels === undefined && redisUrl?.includes(',');
  const redisCluster = read.oneOf('REDIS_CLUSTER', ['0', '1'], isCluster ? '1' : '0') === '1';
  if (redisSentinels === undefined) checkCluster(redisUrl, redisCluster);
  else if (redisCluster) throw new ConfigError('REDIS_CLUSTER must be 0 with sentinels');
  return {
    /** A URL, or the path of a socket. For a cluster: the URLs of some of its nodes, separated by commas. */
    redisUrl: redisUrl ?? (hasNodes ? sentinelUrl(redisSentinels) : embeddedRedisUrl(dataDir, redisPort)),
    redisCluster,
    /** The sentinels that say which server is the primary; undefined: `redisUrl` says where Redis is. */
    redisSentinels,
    /** How many replicas must have a commit on disk before it is acknowledged. */
    redisReplicasAck: read.integer('REDIS_REPLICAS_ACK', hasNodes ? 1 : 0, 0, 8),
    /** What the service does when a new primary lacks acknowledged commits. */
    redisLoss: read.oneOf('REDIS_LOSS', ['stop', 'go-on'], 'stop'),
    /** Password of the embedded Redis; undefined before its first start, and for another Redis, whose URL has it. */
    redisPassword: redisUrl === undefined ? readFileOf(redisPasswordFile(dataDir)) : undefined,
    redisEmbedded: redisUrl === undefined,
    /** Port of the embedded Redis; the port of another Redis is in its URL. */
    redisPort,
    /** How many embedded servers of Redis there are. If there are several, three sentinels follow on the next ports. */
    redisNodes,
  };
}

/** The file in DATA_DIR with the password of the embedded Redis. The first start makes it. */
export function redisPasswordFile(dataDir: string): string {
  return join(dataDir, 'redis-password');
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

/** Whether REDIS_URL is the path of a unix socket. */
function isSocket(url: string): boolean {
  if (!url.startsWith('/')) return false;
  if (Buffer.byteLength(url) > socketPathBytesMax)
    throw new ConfigError(
      `REDIS_URL must be at most ${socketPathBytesMax} bytes long when it is the path of a socket`,
    );
  if (/[,?]/.test(url)) throw new ConfigError('REDIS_URL must be the path of one socket, without options');
  return true;
}

/** The three embedded sentinels, on consecutive ports, with the password of the embedded Redis. */
function embeddedSentinels(dataDir: string, firstPort: number): RedisSentinels {
  return {
    sentinels: [0, 1, 2].map((offset) => ({ host: '127.0.0.1', port: firstPort + offset })),
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
  const areCredentialsValid =
    URL.canParse(`redis://${credentials}@host`) && !/%(?![\da-f]{2})/i.test(credentials);
  if (name === '' || !nodes.every(isNode) || !areCredentialsValid) {
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

/**
 * Throws unless REDIS_CLUSTER suits REDIS_URL: several servers are a cluster, a socket or the embedded Redis is not, and a cluster has no
 * numbered databases.
 */
function checkCluster(redisUrl: string | undefined, redisCluster: boolean): void {
  const nodes = redisUrl?.split(',') ?? [];
  if (nodes.length > 1 && !redisCluster)
    throw new ConfigError('REDIS_CLUSTER must not be 0 when REDIS_URL names several servers');
  if (!redisCluster) return;
  if (redisUrl === undefined) throw new ConfigError('REDIS_CLUSTER needs REDIS_URL');
  if (redisUrl.startsWith('/'))
    throw new ConfigError('REDIS_CLUSTER must be 0 when REDIS_URL is the path of a socket');
  if (nodes.some((node) => !['', '/', '/0'].includes(new URL(node).pathname)))
    throw new ConfigError('REDIS_URL must not name a database: a cluster has none');
}
