// Whether the servers of Redis are set up so that what is acknowledged survives the loss of one: looked at when a process starts.

import { type Redis, serversOf } from './client.js';

/** What is wrong, in sentences; nothing without replicas to wait for. A server that does not tell its settings is taken as right. */
export async function replicaFaults(redis: Redis, replicasAck = 0): Promise<readonly string[]> {
  if (replicasAck === 0) return [];
  const servers = await serversOf(redis);
  const found = servers.length - 1;
  const faults = await Promise.all(
    servers.map(async (server, at) => {
      const read = async (name: string) => {
        const reply = (await server.call('CONFIG', 'GET', name).catch(() => [])) as string[];
        return reply[1];
      };
      const who =
        at === 0 ? 'the primary of Redis' : `the replica ${server.options.host}:${server.options.port}`;
      const [onDisk, syncs, writesWith] = await Promise.all([
        read('appendonly'),
        read('appendfsync'),
        read('min-replicas-to-write'),
      ]);
      return [
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
  const missing =
    found < replicasAck ? [`Redis has ${found} replicas, and REDIS_REPLICAS_ACK is ${replicasAck}`] : [];
  return [...missing, ...faults.flat()];
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
