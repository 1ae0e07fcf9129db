// Checks, when a process starts, that the servers of Redis are set up so that what is acknowledged survives the loss of one.

import { mastersOf, type Redis, serversOf } from './client.js';
import { countReplicas } from './replicas.js';

/**
 * What is wrong, in one sentence for each fault; none if no replicas have to confirm. A server that hides its settings is assumed to be set
 * up right.
 */
export async function replicaFaults(redis: Redis, replicasAck = 0): Promise<readonly string[]> {
  if (replicasAck === 0) return [];
  const servers = await serversOf(redis);
  const masters = mastersOf(redis);
  const faults = await Promise.all(
    servers.map(async (server) => {
      const read = async (name: string) => {
        const reply = (await server.call('CONFIG', 'GET', name).catch(() => [])) as string[];
        return reply[1];
      };
      const isMaster = masters.includes(server);
      const address = `${server.options.host}:${server.options.port}`;
      const isOnlyMaster = isMaster && masters.length === 1;
      const who = isOnlyMaster ? 'the primary of Redis' : `the ${isMaster ? 'master' : 'replica'} ${address}`;
      const found = isMaster ? await countReplicas(server) : replicasAck;
      const [onDisk, syncs, writesWith] = await Promise.all([
        read('appendonly'),
        read('appendfsync'),
        read('min-replicas-to-write'),
      ]);
      return [
        ...(found >= replicasAck
          ? []
          : [`${who} has ${found} replicas, but REDIS_REPLICAS_ACK is ${replicasAck}`]),
        ...((onDisk ?? 'yes') === 'yes' ? [] : [`${who} keeps nothing on disk: set appendonly yes there`]),
        ...((syncs ?? 'always') === 'always'
          ? []
          : [`${who} confirms writes that a power cut can lose: set appendfsync always there`]),
        // Any server may become the primary and then be cut off.
        ...(Number(writesWith ?? 1) > 0
          ? []
          : [`${who} would accept writes while it is cut off: set min-replicas-to-write 1 there`]),
      ];
    }),
  );
  return faults.flat();
}

/** Logs what is wrong. */
export async function warnOfReplicas(
  redis: Redis,
  replicasAck: number,
  log: { readonly warn: (fields: object, text: string) => void },
): Promise<void> {
  for (const fault of await replicaFaults(redis, replicasAck).catch(() => []))
    log.warn({ fault }, 'the replicas of redis are not set up to keep what is acknowledged');
}
