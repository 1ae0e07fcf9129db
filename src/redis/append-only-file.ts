// Redis keeps what was deleted in its append-only file until that is written anew. Every server is asked for
// it after deletions, at most every half minute.

import { type Redis, serversOf } from './client.js';
import { registryKeys } from './keys.js';
import { takeTurn } from './turn.js';

const spacingMs = 30_000;

/** Has the append-only file written anew when a deletion left something in it. */
export async function rewriteWhenWanted(redis: Redis): Promise<void> {
  if ((await redis.exists(registryKeys.rewriteWanted)) === 0) return;
  if (!(await takeTurn(redis, registryKeys.rewriteSpacing, spacingMs))) return;
  // Taken down first: what is deleted while it runs asks again.
  await redis.del(registryKeys.rewriteWanted);
  try {
    const servers = await serversOf(redis);
    const asked = await Promise.allSettled(servers.map((server) => server.bgrewriteaof()));
    for (const answer of asked) if (answer.status === 'rejected') throw answer.reason;
  } catch (error) {
    await redis.set(registryKeys.rewriteWanted, '1');
    throw error;
  }
}
