// Connections to Redis: one server, the primary that sentinels name, or the masters of a cluster. The commit connection must never
// send a command twice by itself: the owner of a commit repeats it when the reply was lost, under the same sequence number.
// Redirections of a cluster are followed, since they come before a command runs.

import { promisify } from 'node:util';
import type { readRedis } from '../config-redis.js';
import { waits } from '../contract/limits.js';
import type { Log } from '../log.js';
import { Cluster, type ClusterOptions, type RedisOptions, Redis as Single } from '../packages/ioredis.js';
import { commitBatches } from '../tuning.js';
import { inTime, untilTrue } from '../wait.js';
import { demandReplicas, hasReplicas, replicasOf, tolerateLoss } from './replicas.js';
import { bySentinels } from './sentinels.js';

/** A connection to one server. */
export type SingleRedis = Single;
/** A connection to one Redis or to a cluster; both take the same commands. */
export type Redis = Single | Cluster;

type Configured = ReturnType<typeof readRedis>;

export type RedisAddress = Pick<Configured, 'redisUrl' | 'redisCluster'> &
  Partial<Pick<Configured, 'redisSentinels' | 'redisReplicasAck' | 'redisLoss' | 'redisPassword'>>;

const retryMs = (attempt: number) => Math.min(50 * attempt, 500);

const shared: RedisOptions = {
  lazyConnect: false,
  connectTimeout: 1_000,
  // A connection that is given up is closed at once, without waiting for its peer, which may never answer.
  disconnectTimeout: 1,
  retryStrategy: retryMs,
  // Otherwise a reconnect would run in-flight commands again: one INCR would count twice.
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
 * The connection of commits. It fails at once when there is no connection, never queues, never resends, and gives up on a
 * reply after a time, since a promise may otherwise never settle after a drop. That time is much longer than `attemptMs`,
 * after which the sender of a commit gives up on it, having looked at what has arrived.
 */
export function connectForCommits(address: RedisAddress, log: Log): Redis {
  const { attemptMs, replicasMs } = commitBatches;
  const options = { ...shared, commandTimeout: 10 * attemptMs };
  // Only the connection to a silent node of a cluster is given up, so that commits of other shards go on. So on a cluster a process that
  // was paused gives up on replies that it has not read yet, and answers `unknown`.
  const redisOptions = { commandTimeout: attemptMs, socketTimeout: attemptMs };
  // A silent primary behind sentinels is given up too: another one may have taken over.
  const silentMsMax = address.redisSentinels === undefined ? {} : { socketTimeout: 2 * attemptMs };
  // Commits do not follow redirections to a server that took over: the state has to be made that server's first (take-over.ts).
  const redirected = (address.redisReplicasAck ?? 0) > 0 ? { maxRedirections: 0 } : {};
  const ofCluster = { ...withoutResending, ...redirected, redisOptions };
  const commits = open(address, { ...options, ...silentMsMax }, ofCluster, log);
  return confirming(commits, address, replicasMs);
}

/**
 * A connection for everything that may be repeated: registry, worker scripts, health. A command without an answer within
 * `commandMsMax` rejects; it may have run.
 */
export function connect(address: RedisAddress, log: Log, commandMsMax: number = waits.redisMsMax): Redis {
  const options = {
    ...shared,
    commandTimeout: commandMsMax,
    // A silent connection may stay silent for a quarter of an hour; a new connection may work at once.
    socketTimeout: commandMsMax,
  };
  const connection = open(address, options, withoutResending, log);
  return confirming(connection, address, Math.min(commandMsMax * 0.8, replicasMsMax));
}

/** While one command waits for replicas, all later ones of its connection wait too. */
const replicasMsMax = 2_000;

function confirming(connection: Redis, address: RedisAddress, msMax: number): Redis {
  const { redisReplicasAck = 0, redisLoss } = address;
  if (redisReplicasAck > 0) demandReplicas(connection, { replicas: redisReplicasAck, msMax });
  if (redisLoss === 'go-on' && hasReplicas(connection)) tolerateLoss(connection);
  return connection;
}

/** A connection for BullMQ, which needs blocking commands (of 10 s at most) and retries by its own rules. */
export function connectForQueue(address: RedisAddress, log: Log, commandMsMax = 30_000): Redis {
  const options: RedisOptions = {
    connectTimeout: 1_000,
    // Otherwise a promise may never settle after a drop: a job would stay active for ever, with its lock renewed.
    commandTimeout: commandMsMax,
    disconnectTimeout: 1,
    socketTimeout: 15_000,
    retryStrategy: retryMs,
    maxRetriesPerRequest: null,
  };
  // The library's health check of a cluster is off: when it fails, `connect()` never settles, so BullMQ, which awaits it, would never ask
  // for jobs again. Without it an unhealthy cluster refuses commands, which BullMQ repeats. `failoverDetector`: sentinels announce at once
  // that another server has taken over. Silence does not show it, since a blocking command is silent for long anyway.
  return withSureInfo(
    open(address, { ...options, failoverDetector: true }, { enableReadyCheck: false }, log),
  );
}

/**
 * BullMQ asks once over each of its connections, with INFO, which Redis it has. If that fails, the connection never serves a job again. A
 * cluster sends a command without a key to any node, perhaps to a silent one. So INFO is sent to all masters, again and again until one
 * answers. The copies that BullMQ makes of the connection do the same.
 */
function withSureInfo(connection: Redis): Redis {
  const info = connection.info.bind(connection) as (...args: unknown[]) => Promise<string>;
  const duplicate = connection.duplicate.bind(connection) as (...args: unknown[]) => Redis;
  const ask = () =>
    connection instanceof Single ? info() : Promise.any(mastersOf(connection).map((master) => master.info()));
  // Once the connection has ended nobody waits for the answer.
  const askOrEnd = () => ask().catch(() => (connection.status === 'end' ? '\n' : ''));
  const sureInfo = () => untilTrue(askOrEnd, { everyMs: 500, msMax: Number.POSITIVE_INFINITY });
  return Object.assign(connection, {
    // A call with a callback comes from the library itself, which checks whether a connection is ready.
    info: (...args: unknown[]) => (args.length === 0 ? sureInfo() : info(...args)),
    duplicate: (...args: unknown[]) => withSureInfo(duplicate(...args)),
  });
}

function open(address: RedisAddress, options: RedisOptions, more: ClusterOptions, log: Log): Redis {
  if (address.redisSentinels !== undefined)
    return logged(new Single({ ...options, ...bySentinels(address.redisSentinels, retryMs) }), log);
  if (!address.redisCluster)
    return logged(new Single(address.redisUrl, { ...options, ...passwordOf(address) }), log);
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
 * Connects to the masters as soon as they are known, and again when one is lost. The library itself would connect only
 * with the first command, and refuse others until it is connected.
 */
function keepConnected(cluster: Cluster): void {
  cluster.on('+node', (node: Single) => {
    if (node.status !== 'wait' || node.options.readOnly) return;
    node.connect().catch(() => {
      // The library then removes the node; it is tried again below.
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

function passwordOf({ redisPassword }: RedisAddress): RedisOptions {
  return redisPassword === undefined ? {} : { password: redisPassword };
}

/** User, password and TLS, which all nodes of a cluster share, from the URL of the first one. */
function credentialsOf({ protocol, username, password }: URL): RedisOptions {
  return {
    ...(username === '' ? {} : { username: decodeURIComponent(username) }),
    ...(password === '' ? {} : { password: decodeURIComponent(password) }),
    ...(protocol === 'rediss:' ? { tls: {} } : {}),
  };
}

/**
 * A connection that only listens to channels, and to the same ones again after a drop. A cluster passes every message to
 * all its nodes, so it listens to one node, and to the next one when that node is away.
 */
export function connectForMessages(address: RedisAddress, log: Log): Redis {
  const options: RedisOptions = {
    ...shared,
    enableOfflineQueue: true,
    commandTimeout: waits.redisMsMax,
    socketTimeout: waits.redisMsMax,
    autoResubscribe: true,
  };
  if (address.redisSentinels !== undefined)
    return open(address, { ...options, failoverDetector: true }, {}, log);
  const urls = address.redisUrl.split(',');
  const nodes = urls[0]?.startsWith('/') ? [{ path: urls[0] }] : urls.map(nodeOf);
  const redis = new Single(urls[0] as string, {
    ...options,
    ...passwordOf(address),
    retryStrategy: (attempt) => {
      Object.assign(redis.options, nodes[attempt % nodes.length]);
      return retryMs(attempt);
    },
  });
  return logged(redis, log);
}

/**
 * Settles when the connection is usable; rejects after `deadlineMs`. Until then it waits for all masters of a cluster. Masters that are
 * still silent then hold up only their own shards.
 */
export async function untilReady(redis: Redis, deadlineMs: number): Promise<void> {
  await untilTrue(() => isReady(redis), { everyMs: 5, msMax: deadlineMs });
  if (redis.status !== 'ready') throw new Error('Redis did not answer in time');
}

/** Whether a connection is ready. To a cluster: whether it has reached all masters that are not away. */
function isReady(redis: Redis): boolean {
  if (redis.status !== 'ready') return false;
  return mastersOf(redis).every(({ status }) => status === 'ready');
}

/** The servers that take writes. */
export function mastersOf(redis: Redis): readonly Single[] {
  return redis instanceof Single ? [redis] : redis.nodes('master');
}

/** Every server behind a connection, including replicas and servers that are away. */
export async function serversOf(redis: Redis): Promise<readonly Single[]> {
  if (redis instanceof Single) return [redis, ...(await replicasOf(redis))];
  await promisify(redis.refreshSlotsCache.bind(redis))();
  return redis.nodes('all');
}

/**
 * Whether the server of a key is reachable. Asked before a command for which it matters whether it was sent: a cluster accepts commands
 * even for a master that is gone, and their failure does not show whether they were sent.
 */
export function probeOf(redis: Redis, key: string) {
  if (!(redis instanceof Cluster)) {
    return { isReachable: async () => redis.status === 'ready', markSuspect: () => undefined };
  }
  let known = false;
  redis.on('-node', () => {
    known = false;
  });
  const markSuspect = () => {
    known = false;
    // Another server may have the key now.
    redis.refreshSlotsCache();
  };
  return {
    /** Whether a command on the key would be sent now. Costs a round trip only after a failure, and at most this long. */
    isReachable: async (msMax: number): Promise<boolean> => {
      if (redis.status !== 'ready') return false;
      if (known) return true;
      const answered = redis.exists(key).then(() => true, markSuspect);
      known = Boolean(await inTime(answered, msMax, false));
      return known;
    },
    /** To be called when a command on the key failed. */
    markSuspect,
  };
}

/** Closes a connection that stays silent, so that the next attempt gets a new one. */
export function dropSilentConnection(redis: Redis): void {
  // In a cluster the connection to one node ends by its own time-out, and the others stay.
  if (redis instanceof Single && redis.status === 'ready') redis.disconnect(true);
}

function logged<Connection extends Redis>(redis: Connection, log: Log): Connection {
  let reported = '';
  const report = (error: Error & { code?: string }) => {
    // Every attempt to reconnect reports the same fault; one line per change is enough.
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
