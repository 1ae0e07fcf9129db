// Redis keeps deleted data in its append-only file until it rewrites the file. After deletions every server is asked to rewrite it, at most
// every half minute. The servers' slow logs are emptied too then, since deletions do not wait for replicas to empty theirs.

import type { Log } from '../log.js';
import { type Redis, serversOf } from './client.js';
import { registryKeys } from './keys.js';
import { takeTurn } from './lease.js';
import { emptySlowLogs } from './slow-log.js';

const spacingMs = 30_000;

/** Asks for a rewrite of the append-only file if a deletion left something in it. */
export async function rewriteAppendOnlyFileIfWanted(redis: Redis, log: Log): Promise<void> {
  if ((await redis.exists(registryKeys.rewriteWanted)) === 0) return;
  if (!(await takeTurn(redis, registryKeys.rewriteSpacing, spacingMs))) return;
  // The request is removed first: a deletion during the rewrite makes another one.
  await redis.del(registryKeys.rewriteWanted);
  try {
    const servers = await serversOf(redis);
    const asked = await Promise.allSettled(servers.map((server) => server.bgrewriteaof()));
    for (const answer of asked) if (answer.status === 'rejected') throw answer.reason;
    await emptySlowLogs(servers, log);
  } catch (error) {
    await redis.set(registryKeys.rewriteWanted, '1');
    throw error;
  }
}
