// What Redis's servers use, as metrics: memory, and the append-only file on their disk.

import { redisReplicas, redisServer, redisTakeOvers } from '../metrics.js';
import { mastersOf, type Redis, serversOf } from './client.js';
import { registryKeys } from './keys.js';
import { countReplicas, hasReplicas } from './replicas.js';

/** Sets the gauges of every server. */
export async function observeServers(redis: Redis): Promise<void> {
  const servers = await serversOf(redis);
  const infos = await Promise.all(servers.map((server) => server.info('memory', 'persistence')));
  for (const gauge of Object.values(redisServer)) gauge.reset();
  const counts = hasReplicas(redis) ? await Promise.all(mastersOf(redis).map(countReplicas)) : [0];
  redisReplicas.set(Math.min(...counts));
  redisTakeOvers.set(Number((await redis.hget(registryKeys.primary, 'take_overs')) ?? 0));
  for (const [at, info] of infos.entries()) {
    const labels = { server: String(at) };
    const value = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? '';
    redisServer.memoryBytes.set(labels, Number(value('used_memory')));
    redisServer.memoryBytesMax.set(labels, Number(value('maxmemory')));
    redisServer.fileBytes.set(labels, Number(value('aof_current_size')));
    const isOk =
      value('aof_enabled') === '1' &&
      value('aof_last_write_status') === 'ok' &&
      value('aof_last_bgrewrite_status') === 'ok';
    redisServer.fileOk.set(labels, isOk ? 1 : 0);
  }
}
