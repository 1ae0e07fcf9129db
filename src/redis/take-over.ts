// When another server has become Redis's primary, each process notices it by its new connections: before anything else that matters
// goes over one, the scripts `take-over-…` make the deployment's state the new primary's. A server that became the primary again, or
// was started again, counts as another one.

import { describeError, type Log } from '../log.js';
import { Redis as Single } from '../packages/ioredis.js';
import { takeOvers } from '../tuning.js';
import type { Redis } from './client.js';
import { registryKeys, shardKeys } from './keys.js';
import { hasReplicas } from './replicas.js';
import { runScript, scripts } from './scripts.js';

export type Primary = {
  /** The server to which the connection leads, once the state is its own; undefined until then. Empty: there is only one. */
  readonly id: () => string | undefined;
};

export type PrimaryOptions = {
  readonly deployment: () => { readonly epoch: string; readonly shards: number } | undefined;
  readonly log: Log;
};

/** Of a Redis that has no replicas. */
export const onlyPrimary: Primary = { id: () => '' };

/** Starts to notice by a connection when another server takes over. */
export function followPrimary(redis: Redis, { deployment, log }: PrimaryOptions): Primary {
  if (!(redis instanceof Single) || !hasReplicas(redis)) return onlyPrimary;
  let id: string | undefined;
  let isSettling = false;
  let reported = '';
  /** Counts the connections: what began on an earlier one decides nothing. */
  let connections = 0;

  async function settle(): Promise<void> {
    const known = deployment();
    if (known === undefined || redis.status !== 'ready') return;
    const here = connections;
    const info = await redis.info('replication');
    const found = /^master_replid:(\w+)/m.exec(info)?.[1];
    if (found === undefined || !/^role:master/m.test(info)) throw new Error('this server is no primary');
    if ((await takeOver(redis, known, found, log)) && here === connections) id = found;
    reported = '';
  }

  async function attempt(): Promise<void> {
    if (isSettling) return;
    isSettling = true;
    await settle().catch((error: unknown) => {
      const described = describeError(error);
      if (described.message !== reported) log.warn({ error: described }, 'redis is not taken over yet');
      reported = described.message;
    });
    isSettling = false;
  }

  redis.on('close', () => {
    connections += 1;
    id = undefined;
  });
  redis.on('ready', attempt);
  return {
    id: () => {
      if (id === undefined) void attempt();
      return id;
    },
  };
}

/** Settles with whether the state is this server's now; false if it does not hold the deployment. */
async function takeOver(
  redis: Redis,
  { epoch, shards }: { readonly epoch: string; readonly shards: number },
  id: string,
  log: Log,
): Promise<boolean> {
  const { epoch: epochKey, primary, version, suppressions, deletionVersion } = registryKeys;
  const keys = [epochKey, primary, version, suppressions, deletionVersion];
  const { versionsSkipped, skippedUs } = takeOvers;
  const args = [epoch, id, versionsSkipped, skippedUs];
  const reply = (await runScript(redis, scripts.takeOverRegistry, keys, args)) as [number, string] | null;
  if (reply === null) return false;
  const [count, suppressed] = reply;
  const taken = await Promise.all(
    Array.from({ length: shards }, (_, shard) =>
      runScript(redis, scripts.takeOverShard, [shardKeys.state(shard)], [epoch, id, skippedUs, suppressed]),
    ),
  );
  if (taken.includes(1)) log.warn({ take_overs: count }, 'another server has become the primary of redis');
  return !taken.includes(null);
}
