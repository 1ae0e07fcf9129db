// Each process notices by its new connections that another server has become Redis's primary. Before anything else that matters is sent
// over such a connection, the scripts `take-over-…` hand the deployment's state over to the new primary. A server that was started again,
// or became the primary again, counts as another one.

import { type Log, reportOnce } from '../log.js';
import { Redis as Single } from '../packages/ioredis.js';
import type { Redis } from './client.js';
import { registryKeys, shardKeys } from './keys.js';
import { closesOf, hasReplicas } from './replicas.js';
import { runScript, scripts } from './scripts.js';
import { masterOf } from './slots.js';

export type Primary = {
  /**
   * Identifies the server that has a shard, once the shard was handed over to it; undefined until then. On a cluster the id also changes
   * when another server gets the registry. Empty if there is only one server.
   */
  readonly id: (shard: number) => string | undefined;
};

export type PrimaryOptions = {
  readonly deployment: () => Known | undefined;
  readonly log: Log;
};

type Known = { readonly epoch: string; readonly shards: number };

/** The primary of a Redis without replicas. */
export const onlyPrimary: Primary = { id: () => '' };

/** Starts to watch a connection for another server that takes over. */
export function followPrimary(redis: Redis, { deployment, log }: PrimaryOptions): Primary {
  if (!hasReplicas(redis)) return onlyPrimary;
  /** The parts of the state that were handed over to their servers over this connection. */
  const settled = new Map<Part, Settled>();
  let isSettling = false;
  let retry: NodeJS.Timeout | undefined;
  const faults = reportOnce(log, 'redis is not taken over yet');

  const settledId = (part: Part) => {
    const found = settled.get(part);
    const isOpen = found?.server === serverOf(redis, part) && found?.closes === closesOf(found?.server);
    return isOpen ? found?.id : undefined;
  };

  /**
   * Hands a part over to its server, unless the connection ends meanwhile. Settles as `take` does: with undefined if that server does not
   * hold the deployment.
   */
  async function settle<Taken extends { readonly id: string }>(
    part: Part,
    take: (id: string) => Promise<Taken | undefined>,
  ): Promise<Taken | undefined> {
    const server = serverOf(redis, part);
    if (server?.status !== 'ready') return undefined;
    const closes = closesOf(server);
    const taken = await take(await idOf(server));
    if (taken !== undefined) settled.set(part, { server, closes, id: taken.id });
    return taken;
  }

  async function settleAll(): Promise<void> {
    const known = deployment();
    if (known === undefined || redis.status !== 'ready') return;
    const former = settled.get('registry')?.id;
    const registry = await settle('registry', (id) => takeOverRegistry(redis, known, id));
    if (registry === undefined) return;
    // Shards are handed over again with the registry: they need the new version of the suppressions.
    if (registry.id !== former) for (let shard = 0; shard < known.shards; shard += 1) settled.delete(shard);
    const parts = Array.from({ length: known.shards }, (_, shard) => shard);
    const ofShards = parts
      .filter((shard) => settledId(shard) === undefined)
      .map((shard) =>
        settle(shard, async (serverId) => {
          const id = serverId === registry.id ? serverId : `${registry.id} ${serverId}`;
          const args = [known.epoch, id, skippedUs, registry.suppressions];
          const reply = await runScript(redis, scripts.takeOverShard, [shardKeys.state(shard)], args);
          if (reply === 1)
            log.warn(
              { shard, take_overs: registry.takeOvers },
              'another server has become the primary of redis',
            );
          return reply === null ? undefined : { id };
        }),
      );
    const failed = (await Promise.allSettled(ofShards)).find(({ status }) => status === 'rejected');
    if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
    faults.forget();
  }

  async function attempt(): Promise<void> {
    if (isSettling) return;
    isSettling = true;
    await settleAll().catch((error: unknown) => {
      faults.report(error);
      // Perhaps nobody asks for the id over this connection, and it lasts. So a failed attempt is repeated here.
      clearTimeout(retry);
      retry = setTimeout(attempt, retryMs).unref();
    });
    isSettling = false;
  }

  redis.on('ready', attempt);
  redis.on('+node', (server: Single) => server.once('ready', attempt));
  // The connection may be ready already.
  void attempt();
  return {
    id: (shard) => {
      const id = settledId(shard);
      if (id === undefined || settledId('registry') === undefined) void attempt();
      return id;
    },
  };
}

/**
 * How much a new primary skips, so that no number is given out twice: a former primary that was cut off went on alone for seconds at most.
 * Microseconds of the clock from which segments get their numbers, and suppressions and second copies their versions; and versions of the
 * registry, which are not below the clock either.
 */
const skippedUs = 60_000_000;
const versionsSkipped = 10_000;

/** How soon a failed attempt is repeated: a new primary may have no replica at first. */
const retryMs = 500;

type Part = 'registry' | number;
/** `closes`: how often the connection had ended by then. What began on an earlier connection decides nothing. */
type Settled = { readonly server: Single; readonly closes: number; readonly id: string };
type Registry = { readonly id: string; readonly takeOvers: number; readonly suppressions: string };

function serverOf(redis: Redis, part: Part): Single | undefined {
  if (redis instanceof Single) return redis;
  return masterOf(redis, part === 'registry' ? registryKeys.epoch : shardKeys.state(part));
}

/** The id that a server gives itself whenever it becomes a primary. Throws if it is not one. */
async function idOf(server: Single): Promise<string> {
  const info = await server.info('replication');
  const id = /^master_replid:(\w+)/m.exec(info)?.[1];
  if (id === undefined || !/^role:master/m.test(info)) throw new Error('this server is not a primary');
  return id;
}

/** Hands the registry over to this server. Settles with undefined if it does not hold the deployment. */
async function takeOverRegistry(redis: Redis, { epoch }: Known, id: string): Promise<Registry | undefined> {
  const { epoch: epochKey, primary, version, suppressions, copyVersion, suppressionChanges } = registryKeys;
  const keys = [epochKey, primary, version, suppressions, copyVersion, suppressionChanges];
  const args = [epoch, id, versionsSkipped, skippedUs];
  const reply = (await runScript(redis, scripts.takeOverRegistry, keys, args)) as [number, string] | null;
  return reply === null ? undefined : { id, takeOvers: reply[0], suppressions: reply[1] };
}
