// A round of deletions under way: what its steps share.

import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { resumeMerges } from '../../src/clickhouse/masks.js';
import { reachableServers, serversOf } from '../../src/clickhouse/servers.js';
import { type DeletionRequest, updateDeletions } from '../../src/privacy/deletion/request.js';
import type { RoundParts } from '../../src/privacy/deletion/round-parts.js';
import { dropMutating, namePrefix } from '../../src/privacy/deletion/round-tables.js';
import { type UserTable, userTables } from '../../src/privacy/deletion/user-tables.js';
import type { Lease } from '../../src/redis/lease.js';
import type { Environment } from '../../src/registry/documents.js';
import { byServer } from '../../src/registry/shard-servers.js';
import type { WorkerContext } from '../context.js';
import type { ErasureOptions } from '../erase.js';

export type RoundOptions = ErasureOptions &
  Pick<WorkerContext, 'shards' | 'epoch' | 'secret'> & {
    /** Accounts whose requests ClickHouse has refused alone. Rounds add and remove them. */
    readonly refused?: Set<string>;
    /** Called when all requests wait for ClickHouse servers, so that the next check need not be soon. */
    readonly onServersAwaited?: () => void;
    /** Called when no round may begin, because the restore of a backup is running or was interrupted. */
    readonly onRestoreAwaited?: () => void;
    readonly onCallbacksDue?: (requestIds: readonly string[]) => Promise<void>;
  };

/** For work with the tables of rounds. Another worker may take the maintenance lock over, and drops them then. */
export type LockedOptions = RoundOptions & Pick<Lease, 'isHeld'>;

/** A round under way: its tables, and its requests as they are in Redis now, by their numbers in the tables. */
export type Resolved = { readonly parts: RoundParts; readonly requests: Map<number, DeletionRequest> };

export type Round = Resolved & {
  /** The environments in which each table has rows that the round deletes. */
  readonly reached: ReadonlyMap<UserTable, readonly string[]>;
  /** Whether rows of small tables are erased by the round itself. */
  readonly mayEraseAtOnce: boolean;
};

export function requestsOf({ parts, requests }: Resolved, isWanted: (number: number) => boolean): Resolved {
  return { parts, requests: new Map([...requests].filter(([number]) => isWanted(number))) };
}

/**
 * Sets waiting requests to `finding_users`; settles with all requests as they are now. A request keeps the reason of a failed
 * attempt until a later attempt gets further.
 */
export async function markStarted(
  { redis }: RoundOptions,
  requests: readonly DeletionRequest[],
): Promise<DeletionRequest[]> {
  const waiting = requests.filter(({ state }) => ['submitted', 'waiting_for_backlog'].includes(state));
  const begun = await updateDeletions(
    redis,
    waiting.map((request) => [request, { state: 'finding_users' }]),
  );
  const byId = new Map(begun.map((request) => [request.deletion_request_id, request]));
  return requests.map((request) => byId.get(request.deletion_request_id) ?? request);
}

export async function update(
  { redis }: RoundOptions,
  { requests }: Resolved,
  changesOf: (request: DeletionRequest, number: number) => Partial<DeletionRequest>,
): Promise<void> {
  const numbers = [...requests.keys()];
  const changed = await updateDeletions(
    redis,
    [...requests].map(([number, request]) => [request, changesOf(request, number)]),
  );
  for (const [at, request] of changed.entries()) requests.set(numbers[at] as number, request);
}

/** The environments of the accounts whose requests these are. */
export function environmentsOf(
  requests: readonly DeletionRequest[],
  environments: readonly Environment[],
): Environment[] {
  const accounts = new Set(requests.map(({ account_id }) => account_id));
  return environments.filter(({ account_id }) => accounts.has(account_id));
}

/**
 * Ends on all servers what earlier rounds have left, for a round of these environments: tables, mutations, and stopped merges, without which
 * no mutation runs. A killed round has stopped merges on its own servers alone, and its requests are taken up by a round on the same ones.
 */
export async function clearServers(
  options: LockedOptions,
  environments: readonly Environment[],
): Promise<void> {
  const { clickhouse } = options;
  const divided = byServer(
    clickhouse,
    environments.map(({ app_id }) => app_id),
  );
  const used = new Set([clickhouse, ...divided.map(([client]) => client)]);
  await dropTablesEverywhere(options, used);
  for (const client of used) await resumeMerges(client, userTables);
}

/**
 * Drops the tables of all rounds. `used`: servers that must answer, and are asked even if they seem to be unreachable, since a busy one may
 * seem so for a moment. The tables are in memory, so any other unreachable server has lost them by its return, or a later round drops them.
 */
export async function dropTablesEverywhere(
  { clickhouse, isHeld }: LockedOptions,
  used: ReadonlySet<ClickHouseClient> = new Set([clickhouse]),
): Promise<void> {
  // The tables would be those of the round that has taken over.
  if (!(await isHeld())) throw new Error('another worker has taken over the round');
  const servers = serversOf(clickhouse);
  const reachable = await reachableServers(servers);
  for (const [number, client] of servers.all.entries())
    if (used.has(client) || reachable.has(number)) await dropMutating(client, namePrefix);
}
