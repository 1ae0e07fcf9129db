// The administration's commands that ask ClickHouse, in turns: a person who asks for much at once, or whose account does, waits
// for it and holds up nobody else's queries, deletions or storing.

import type { Actor } from '../audit/audit.js';
import type { Places } from '../places.js';
import type { Principal } from './access.js';
import type { AdminCommands } from './commands.js';
import { TakesTooLong } from './users.js';

/** Commands of people with queries whose cost depends on how much is stored. */
const querying: ReadonlySet<keyof AdminCommands> = new Set([
  'countUserEvents',
  'findSimilarUsers',
  'listAudit',
  'listDeletionUsers',
  'listEventNames',
  'listEventProperties',
  'lookUpUser',
  'readUserEvents',
  'showLive',
  'showOverview',
  'showRejections',
  'showTraffic',
]);

type Commands = Readonly<Record<string, (parameters: never) => Promise<unknown>>>;

/** The same commands; those with queries reject with TakesTooLong when they find no place in time. */
export function queriesInTurn(
  commands: AdminCommands,
  places: Places,
  actor: Actor,
  principal: Principal,
): AdminCommands {
  const account = principal.role === 'operator' ? 'operators' : principal.accountId;
  const holder = { account, person: `${actor.kind} ${actor.name}` };
  const entries = Object.entries(commands as unknown as Commands).map(([name, run]) => {
    if (!querying.has(name as keyof AdminCommands)) return [name, run] as const;
    const inTurn = async (parameters: never) => {
      const result = await places.within(holder, () => run(parameters));
      if (result === 'busy') throw new TakesTooLong('Too many queries at once: ask again in a while.');
      return result;
    };
    return [name, inTurn] as const;
  });
  return Object.fromEntries(entries) as unknown as AdminCommands;
}
