// Where Redis itself keeps deleted data. Its log of slow commands has the first bytes of their arguments, and so identities: the embedded
// Redis keeps none, any other server's is emptied with each deletion. The append-only file has everything until it is rewritten: after
// deletions every server is asked for that, at most every half minute. All logs are emptied then too, since deletions do not wait for
// replicas to empty theirs.

import type { Log } from '../log.js';
import { type Redis, type SingleRedis, serversOf } from './client.js';
import { classifyRedisFault, isTemporary } from './faults.js';
import { registryKeys } from './keys.js';
import { deleteEqual, takeTurn } from './lease.js';

/**
 * Empties the logs of these servers. If a server refuses the command, this settles too: its operator has forbidden it and is
 * responsible for that log. Rejects when a server does not answer, or cannot do so now.
 */
export async function emptySlowLogs(servers: readonly SingleRedis[], log: Log): Promise<void> {
  const answers = await Promise.allSettled(servers.map((server) => server.slowlog('RESET')));
  for (const answer of answers) {
    if (answer.status === 'fulfilled') continue;
    // A server that is busy or still loading can be asked again; the log of a busy one is about to grow.
    if (classifyRedisFault(answer.reason) === 'no_answer' || isTemporary(answer.reason)) throw answer.reason;
    log.warn(
      { error: answer.reason },
      'redis refuses SLOWLOG RESET: its slow log may hold identities, switch it off',
    );
  }
}

const spacingMs = 30_000;

/** Asks for a rewrite of the append-only file if a deletion left something in it. */
export async function rewriteAppendOnlyFileIfWanted(redis: Redis, log: Log): Promise<void> {
  const deleted = await redis.get(registryKeys.rewriteWanted);
  if (deleted === null || !(await takeTurn(redis, registryKeys.rewriteSpacing, spacingMs))) return;
  const servers = await serversOf(redis);
  const asked = await Promise.allSettled(servers.map((server) => server.bgrewriteaof()));
  for (const answer of asked) if (answer.status === 'rejected') throw answer.reason;
  await emptySlowLogs(servers, log);
  // A deletion during the rewrite needs another one.
  await deleteEqual(redis, registryKeys.rewriteWanted, deleted);
}
