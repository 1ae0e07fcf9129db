// Redis's log of slow commands keeps the first bytes of their arguments, and so identities. The embedded Redis keeps none;
// any other server's is emptied with each deletion.

import type { Log } from '../log.js';
import type { SingleRedis } from './client.js';
import { classifyRedisFault, isTemporary } from './faults.js';

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
