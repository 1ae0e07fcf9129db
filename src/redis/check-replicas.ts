// Whether the servers of Redis are set up so that what is acknowledged survives the loss of one: looked at when a process starts.

import { mastersOf, type Redis, serversOf } from './client.js';
import { countReplicas } from './replicas.js';

/** What is wrong, in sentences; nothing without replicas to wait for. A server that does not tell its settings is taken as right. */
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
      const place = `${server.options.host}:${server.options.port}`;
      const who = isMaster
        ? masters.length === 1
          ? 'the primary of Redis'
          : `the master ${place}`
        : `the replica ${place}`;
      const found = isMaster ? await countReplicas(server) : replicasAck;
      const [onDisk, syncs, writesWith] = await Promise.all([
        read('appendonly'),
        read('appendfsync'),
        read('min-replicas-to-write'),
      ]);
      return [
        ...(found >= replicasAck
          ? []
          : [`${who} has ${found} replicas, and REDIS_REPLICAS_ACK is ${replicasAck}`]),
        ...((onDisk ?? 'yes') === 'yes' ? [] : [`${who} keeps nothing on disk: set appendonly yes there`]),
        ...((syncs ?? 'always') === 'always'
          ? []
          : [`${who} confirms what a power cut can take: set appendfsync always there`]),
        // Any of them may be cut off as the primary later.
        ...(Number(writesWith ?? 1) > 0
          ? []
          : [`${who} would take writes when it is cut off: set min-replicas-to-write 1 there`]),
      ];
    }),
  );
  return faults.flat();
}

/** Logs them. */
export async function warnOfReplicas(
  redis: Redis,
  replicasAck: number,
  log: { readonly warn: (fields: object, text: string) => void },
): Promise<void> {
  for (const fault of await replicaFaults(redis, replicasAck).catch(() => []))
    log.warn({ fault }, 'the replicas of redis are not set up to keep what is acknowledged');
}
