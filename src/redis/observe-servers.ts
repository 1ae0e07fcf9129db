// Metrics of Redis's servers: their memory, and the append-only file on their disk.

import { redisReplicas, redisServer, redisTakeOvers } from '../metrics.js';
import { inTime } from '../wait.js';
import { mastersOf, type Redis, serversOf } from './client.js';
import { registryKeys } from './keys.js';
import { countReplicas, hasReplicas } from './replicas.js';

/** A server that is silent for longer is left out, so that the metrics of all others can be read. */
const silentMsMax = 2_000;

/** Settles with the answer; with undefined if it does not come in time. */
function ofServer<Answer>(answer: Promise<Answer>): Promise<Answer | undefined> {
  return inTime(answer, silentMsMax, undefined).catch(() => undefined);
}

/** Sets the gauges of every server. */
export async function observeServers(redis: Redis): Promise<void> {
  const servers = await serversOf(redis);
  const infos = await Promise.all(servers.map((server) => ofServer(server.info('memory', 'persistence'))));
  for (const gauge of Object.values(redisServer)) gauge.reset();
  const counted = hasReplicas(redis) ? mastersOf(redis).map((master) => ofServer(countReplicas(master))) : [];
  // Of a silent master the number is unknown. It counts as 0, which is worth the same alert.
  const counts = (await Promise.all(counted)).map((count) => count ?? 0);
  redisReplicas.set(counts.length === 0 ? 0 : Math.min(...counts));
  redisTakeOvers.set(Number((await redis.hget(registryKeys.primary, 'take_overs')) ?? 0));
  for (const [at, info] of infos.entries()) {
    if (info === undefined) continue;
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
