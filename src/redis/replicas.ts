// What is acknowledged has to survive the loss of Redis's host. So a script's acknowledgement counts only once `REDIS_REPLICAS_ACK`
// replicas have on disk what the script wrote and what it read. Hence a primary without its replicas, because it was cut off or another
// server took over, acknowledges nothing, grants no lease, and causes no segment to be stored.

import { Cluster, Redis } from '../packages/ioredis.js';
import { sharing, untilTrue } from '../wait.js';
import { followSentinels, isStillPrimary } from './sentinels.js';
import { masterOf, tagOf } from './slots.js';

type Demand = { readonly replicas: number; readonly msMax: number };

const demands = new WeakMap<Redis | Cluster, Demand>();

/** The command was carried out, but perhaps not by the replicas, or not by those of the next primary: it may be lost with this server. */
export class NotOnReplicas extends Error {}

/** From now on each command that `onReplicas` sends over this connection has to reach `replicas` replicas within `msMax`. */
export function demandReplicas(connection: Redis | Cluster, demand: Demand): void {
  demands.set(connection, demand);
  if (connection instanceof Redis) return followSentinels(connection);
  // Some checks at the beginning of a connection go straight to one server of the cluster.
  connection.on('+node', (server: Redis) => {
    demands.set(server, demand);
    ofClusters.add(server);
  });
}

const ofClusters = new WeakSet<Redis>();
const writesMark = "#!lua flags=allow-oom\nredis.call('SET', KEYS[1], '')";

export function areReplicasDemanded(redis: Redis | Cluster): boolean {
  return demands.has(redis);
}

/**
 * Sends one command about a key, or other keys of its server, and settles with the reply once the server's replicas have it. Rejects with
 * NotOnReplicas if they do not have it in time; then the command may be sent again if it may be repeated.
 */
export async function onReplicas<Reply>(
  redis: Redis | Cluster,
  key: string,
  send: () => Promise<Reply>,
): Promise<Reply> {
  const demand = demands.get(redis);
  if (demand === undefined) return send();
  const server = redis instanceof Redis ? redis : masterOf(redis, key);
  const reply = send();
  if (server === undefined)
    throw await reply.then(() => new NotOnReplicas('Redis has no server for this key'));
  // WAIT waits only for what this connection wrote. A script that found its work done wrote nothing, but replicas may still lack what it
  // found. So a message is published after it, which needs no key, memory or disk. Masters of a cluster do not pass messages on to
  // replicas, so they write a key, even if they are full: the scripts that make room wait for replicas too.
  const mark = ofClusters.has(server)
    ? server.eval(writesMark, 1, `${tagOf(key)}:replicated`)
    : server.publish('replicated', '');
  // If these two are refused, the command itself was carried out all the same.
  const confirmed = Promise.all([mark, server.wait(demand.replicas, Math.floor(demand.msMax))]).then(
    ([, replicas]) => replicas,
    () => 0,
  );
  const [answer, found] = await Promise.all([reply, confirmed]);
  const isConfirmed = found >= demand.replicas;
  if (isConfirmed && (await isStillPrimary(server))) return answer;
  leaveServer(redis);
  throw new NotOnReplicas(
    isConfirmed
      ? 'the sentinels do not confirm that Redis is still the primary'
      : `Redis has ${found} of ${demand.replicas} confirmations of replicas`,
  );
}

/**
 * Settles with what was read once the replicas have it. So no answer shows what a take-over may undo, or what only a former primary still
 * has. `key`: one of the keys that are read. Rejects with NotOnReplicas, also if the server was replaced during the reading.
 */
export async function readOnReplicas<Found>(
  redis: Redis | Cluster,
  key: string,
  read: () => Promise<Found>,
): Promise<Found> {
  return readThen(redis, key, read, () => onReplicas(redis, key, async () => undefined));
}

async function readThen<Found>(
  redis: Redis | Cluster,
  key: string,
  read: () => Promise<Found>,
  confirm: (found: Found) => Promise<unknown> | undefined,
): Promise<Found> {
  if (!areReplicasDemanded(redis)) return read();
  const serverNow = () => (redis instanceof Redis ? redis : masterOf(redis, key));
  const server = serverNow();
  const closesBefore = closesOf(server);
  const found = await read();
  const confirmed = confirm(found);
  if (confirmed === undefined) return found;
  await confirmed;
  if (serverNow() === server && closesOf(server) === closesBefore) return found;
  throw new NotOnReplicas('another server of Redis was found while it was read');
}

/**
 * Settles with what `find` finds; with undefined only once the replicas have confirmed that there is nothing, since a former primary lacks
 * what the next one has. Rejects with NotOnReplicas. Anybody can ask for things that do not exist, and other commands wait while replicas
 * confirm. So all calls that come meanwhile share one confirmation. `key`: the same for all calls with a connection.
 */
export function findOrConfirmAbsence<Found>(
  redis: Redis | Cluster,
  key: string,
  find: () => Promise<Found | undefined>,
): Promise<Found | undefined> {
  const confirm = absences.get(redis) ?? sharing(() => onReplicas(redis, key, async () => undefined));
  absences.set(redis, confirm);
  return readThen(redis, key, find, (found) => (found === undefined ? confirm() : undefined));
}

const absences = new WeakMap<Redis | Cluster, () => Promise<unknown>>();

const closes = new WeakMap<Redis, number>();

/** How often a connection has ended. */
export function closesOf(server: Redis | undefined): number {
  if (server === undefined) return 0;
  if (!closes.has(server)) {
    closes.set(server, 0);
    server.on('close', () => closes.set(server, (closes.get(server) ?? 0) + 1));
  }
  return closes.get(server) ?? 0;
}

/** Asks the sentinels or the cluster for the primary again, but not too often: this server may no longer be the primary. */
export function leaveServer(redis: Redis | Cluster): void {
  if (redis instanceof Cluster) return redis.refreshSlotsCache();
  if (redis.options.sentinels === null || redis.status !== 'ready') return;
  if (performance.now() - (leftMs.get(redis) ?? Number.NEGATIVE_INFINITY) < leaveEveryMs) return;
  leftMs.set(redis, performance.now());
  redis.disconnect(true);
}

const leftMs = new WeakMap<Redis, number>();
/** A connection is left at most this often, since everything else that is under way on it fails then. */
const leaveEveryMs = 2_000;

const tolerant = new WeakSet<Redis | Cluster>();

/** From now on a new primary may lack seconds of what the former one had (`REDIS_LOSS=go-on`). */
export function tolerateLoss(connection: Redis | Cluster): void {
  tolerant.add(connection);
}

export function toleratesLoss(redis: Redis | Cluster): boolean {
  return tolerant.has(redis);
}

/** Whether another server may become the primary behind a connection. */
export function hasReplicas(redis: Redis | Cluster): boolean {
  return demands.has(redis) || (redis instanceof Redis && redis.options.sentinels !== null);
}

/** How many replicas a server has now. */
export async function countReplicas(server: Redis): Promise<number> {
  return Number(/^connected_slaves:(\d+)/m.exec(await server.info('replication'))?.[1] ?? 0);
}

/** Connections to the replicas of the primary behind a connection, by their addresses. */
const connections = new WeakMap<Redis, Map<string, Redis>>();

/** The replicas that a primary has now, if it is known to have some. They end with the connection to it. */
export async function replicasOf(redis: Redis): Promise<readonly Redis[]> {
  if (!hasReplicas(redis)) return [];
  const {
    sentinels: _sentinels,
    Connector: _connector,
    path: _path,
    name: _name,
    ...options
  } = redis.options;
  const known = connections.get(redis) ?? new Map<string, Redis>();
  if (!connections.has(redis))
    redis.once('end', () => {
      for (const replica of known.values()) replica.disconnect();
    });
  connections.set(redis, known);
  const info = await redis.info('replication');
  const listed = new Map(
    [...info.matchAll(/^slave\d+:ip=(.+?),port=(\d+),/gm)].map((found) => [found[0], found]),
  );
  for (const [address, replica] of known) {
    if (listed.has(address)) continue;
    replica.disconnect();
    known.delete(address);
  }
  for (const [address, [, host, port]] of listed) {
    if (known.has(address)) continue;
    const replica = new Redis({ ...options, host: String(host), port: Number(port) });
    // Its commands report the error.
    replica.on('error', () => undefined);
    known.set(address, replica);
  }
  const replicas = [...known.values()];
  await untilTrue(() => replicas.every(({ status }) => status === 'ready'), { msMax: 1_000, everyMs: 10 });
  return replicas;
}
