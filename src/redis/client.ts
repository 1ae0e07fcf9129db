// Connections to Redis: one server, or the masters of a cluster. The commit connection must never send a
// command twice by itself: a commit whose reply was lost is repeated by its owner, under the same sequence
// number. Redirections of a cluster are followed: they come before a command runs.

import { Cluster, type ClusterOptions, type RedisOptions, Redis as Single } from 'ioredis';
import type { Log } from '../log.js';

/** A connection to one Redis or to a cluster; both take the same commands. */
export type Redis = Single | Cluster;

/** Where Redis is, as the configuration says it. */
export type RedisAddress = {
  /** One URL, or for a cluster some of its nodes, separated by commas. */
  readonly redisUrl: string;
  readonly redisCluster: boolean;
};

const retryMs = (attempt: number) => Math.min(50 * attempt, 500);

const shared: RedisOptions = {
  lazyConnect: false,
  connectTimeout: 1_000,
  // A connection given up is left at once: its peer may never say that it is closed.
  disconnectTimeout: 1,
  retryStrategy: retryMs,
  // Reconnects would otherwise run in-flight commands again: one INCR counted twice.
  autoResendUnfulfilledCommands: false,
  autoResubscribe: false,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
};

/** A cluster's own ways of sending a command again after its connection was lost, switched off. */
const withoutResending: ClusterOptions = {
  enableOfflineQueue: false,
  retryDelayOnFailover: 0,
  retryDelayOnClusterDown: 0,
  maxRedirections: 5,
};

/**
 * The connection of commits: fails at once when there is no connection, never queues, never resends, and
 * gives up a reply (without that a promise may never settle after a drop). That is long after `attemptMs`, when
 * whoever sends a commit gives it up, having looked at what has arrived.
 */
export function connectForCommits(address: RedisAddress, attemptMs: number, log: Log): Redis {
  const options = { ...shared, commandTimeout: 10 * attemptMs };
  // A silent node of a cluster is left alone, so that commits of other shards go on. So there a process that stood
  // still gives its replies up unseen, and answers `unknown`.
  const redisOptions = { commandTimeout: attemptMs, socketTimeout: attemptMs };
  return open(address, options, { ...withoutResending, redisOptions }, log);
}

/**
 * A connection for everything that may be repeated: registry, worker scripts, health. A command that is not
 * answered within `commandMsMax` rejects; it may have run.
 */
export function connect(address: RedisAddress, log: Log, commandMsMax = 5_000): Redis {
  const options = {
    ...shared,
    commandTimeout: commandMsMax,
    // A connection that stays silent may stay so for a quarter of an hour; a new one may not.
    socketTimeout: commandMsMax,
  };
  return open(address, options, withoutResending, log);
}

/** A connection for BullMQ, which needs blocking commands (of 10 s at most) and its own patience. */
export function connectForQueue(address: RedisAddress, log: Log, commandMsMax = 30_000): Redis {
  const options: RedisOptions = {
    connectTimeout: 1_000,
    // After a drop a promise may never settle: a job would stay active for ever, its lock renewed.
    commandTimeout: commandMsMax,
    disconnectTimeout: 1,
    socketTimeout: 15_000,
    retryStrategy: retryMs,
    maxRetriesPerRequest: null,
  };
  return open(address, options, {}, log);
}

function open(address: RedisAddress, options: RedisOptions, more: ClusterOptions, log: Log): Redis {
  if (!address.redisCluster) return logged(new Single(address.redisUrl, options), log);
  const urls = address.redisUrl.split(',');
  const first = new URL(urls[0] as string);
  const cluster = new Cluster(urls.map(nodeOf), {
    clusterRetryStrategy: retryMs,
    ...more,
    // Certificates name hosts, not addresses.
    ...(first.protocol === 'rediss:'
      ? { dnsLookup: (host: string, settle: (error: null, address: string) => void) => settle(null, host) }
      : {}),
    redisOptions: { ...options, ...more.redisOptions, ...credentialsOf(first) },
  });
  // Every shard's committer listens.
  cluster.setMaxListeners(0);
  keepConnected(cluster);
  return logged(cluster, log);
}

/**
 * Connects to the masters as soon as they are known, and again when one is lost. By itself the library connects
 * with the first command, and refuses others until it is connected.
 */
function keepConnected(cluster: Cluster): void {
  cluster.on('+node', (node: Single) => {
    if (node.status !== 'wait' || node.options.readOnly) return;
    node.connect().catch(() => {
      // The node is taken out then, and tried again below.
    });
  });
  let waits = false;
  cluster.on('-node', () => {
    if (waits) return;
    waits = true;
    setTimeout(() => {
      waits = false;
      if (cluster.status === 'ready') cluster.refreshSlotsCache();
    }, 500).unref();
  });
}

function nodeOf(url: string): { readonly host: string; readonly port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 6379) };
}

/** What all nodes of a cluster share, from the first one's URL. */
function credentialsOf({ protocol, username, password }: URL): RedisOptions {
  return {
    ...(username === '' ? {} : { username: decodeURIComponent(username) }),
    ...(password === '' ? {} : { password: decodeURIComponent(password) }),
    ...(protocol === 'rediss:' ? { tls: {} } : {}),
  };
}

/**
 * A connection that only listens to channels; after a drop it listens to the same ones again. A cluster passes
 * every message to all its nodes, so it listens to one of them, and to the next one when that is away.
 */
export function connectForMessages(address: RedisAddress, log: Log): Redis {
  const urls = address.redisUrl.split(',');
  const nodes = urls.map(nodeOf);
  const redis = new Single(urls[0] as string, {
    ...shared,
    enableOfflineQueue: true,
    commandTimeout: 5_000,
    socketTimeout: 5_000,
    autoResubscribe: true,
    retryStrategy: (attempt) => {
      Object.assign(redis.options, nodes[attempt % nodes.length]);
      return retryMs(attempt);
    },
  });
  return logged(redis, log);
}

/** Settles when the connection is usable; rejects after `deadlineMs`. */
export async function ready(redis: Redis, deadlineMs: number): Promise<void> {
  const endsAt = performance.now() + deadlineMs;
  while (!isReady(redis)) {
    if (performance.now() > endsAt) throw new Error('Redis did not answer in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Of a cluster: connected to all masters but those that are away. */
function isReady(redis: Redis): boolean {
  if (redis.status !== 'ready') return false;
  return redis instanceof Single || redis.nodes('master').every(({ status }) => status === 'ready');
}

/** Every server behind a connection, replicas and those that are away too. */
export async function serversOf(redis: Redis): Promise<readonly Single[]> {
  if (redis instanceof Single) return [redis];
  await new Promise<void>((resolve, reject) => {
    redis.refreshSlotsCache((error) => (error ? reject(error) : resolve()));
  });
  return redis.nodes('all');
}

export type Reach = {
  /** Whether a command on the key would be sent now; costs a round trip only after a doubt. */
  reaches(): Promise<boolean>;
  /** Says that a command on the key failed. */
  doubt(): void;
};

/**
 * Whether the server of a key is there, asked before a command whose sending matters: a cluster takes commands
 * also for a master that is gone, and their failure does not tell whether they were sent.
 */
export function reachOf(redis: Redis, key: string): Reach {
  if (!(redis instanceof Cluster)) {
    return { reaches: async () => redis.status === 'ready', doubt: () => undefined };
  }
  let known = false;
  const doubt = () => {
    known = false;
  };
  redis.on('-node', doubt);
  return {
    reaches: async () => {
      if (redis.status !== 'ready') return false;
      known ||= await redis.exists(key).then(
        () => true,
        () => false,
      );
      return known;
    },
    doubt,
  };
}

/** Gives up a connection that stays silent, so that the next attempt has a new one. */
export function leaveSilent(redis: Redis): void {
  // A cluster's connection to one node ends by its own time-out, and those to the others stay.
  if (redis instanceof Single && redis.status === 'ready') redis.disconnect(true);
}

function logged<Connection extends Redis>(redis: Connection, log: Log): Connection {
  let reported = '';
  const report = (error: Error & { code?: string }) => {
    // The same fault comes with every attempt to reconnect; one line a change is enough.
    const fault = error.code ?? error.message;
    if (fault !== reported) log.warn({ fault }, 'redis connection fails');
    reported = fault;
  };
  redis.on('error', report);
  redis.on('node error', report);
  redis.on('ready', () => {
    if (reported !== '') log.info('redis connection is back');
    reported = '';
  });
  redis.on('+node', (node: Single) => {
    node.once('ready', () => {
      reported = '';
    });
  });
  return redis;
}
