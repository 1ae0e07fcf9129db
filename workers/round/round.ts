// A round of deletions under way: what its steps share.

import type { ClickHouseClient } from '../../src/clickhouse/client.js';
import { assertRoom } from '../../src/clickhouse/definitions.js';
import { reachableServers, serversOf } from '../../src/clickhouse/servers.js';
import { type DeletionRequest, updateDeletions } from '../../src/privacy/deletion/request.js';
import type { RoundParts } from '../../src/privacy/deletion/round-parts.js';
import { dropRoundTables } from '../../src/privacy/deletion/round-tables.js';
import type { UserTable } from '../../src/privacy/deletion/user-tables.js';
import { deletionRounds } from '../../src/tuning.js';
import type { ErasureOptions } from '../erase.js';

export type RoundOptions = ErasureOptions & {
  readonly shards: number;
  /** The epoch of the deployment. Nothing is decided by a Redis with another epoch or none. */
  readonly epoch: string;
  /** The deployment's secret, for keyed hashes. */
  readonly secret: string;
  /** Told when all requests wait for ClickHouse servers, so that the next look need not be soon. */
  readonly onServersAwaited?: () => void;
  readonly onCallbacksDue?: (requestIds: readonly string[]) => Promise<void>;
};

/** A round under way: its tables, and its requests as they are in Redis now, by their numbers in the tables. */
export type Resolved = { readonly parts: RoundParts; readonly requests: Map<number, DeletionRequest> };

/** The environments in which each place has rows that the round reaches. */
export type Round = Resolved & { readonly reached: ReadonlyMap<UserTable, readonly string[]> };

/** A part of a round. */
export function requestsOf({ parts, requests }: Resolved, isWanted: (number: number) => boolean): Resolved {
  return { parts, requests: new Map([...requests].filter(([number]) => isWanted(number))) };
}

/**
 * Sets waiting requests to `finding_users`; settles with all of them as they are now. Why an attempt failed stays in a request
 * until the next one gets further.
 */
export async function noteBegin(
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

/** Writes progress into the requests of a round. */
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

/** A round that begins on a full disk cannot rewrite anything, and only adds to what ClickHouse tries there. */
export async function assertRoomEverywhere(clickhouse: ClickHouseClient): Promise<void> {
  const servers = serversOf(clickhouse);
  const there = await reachableServers(servers);
  for (const [number, client] of servers.all.entries())
    if (there.has(number)) await assertRoom(client, 'a round of deletions', deletionRounds.roomBytesMin);
}

/** Drops the tables of all rounds. A server that is away has nothing in its memory when it is back, or is asked by a later round. */
export async function dropTablesEverywhere(clickhouse: ClickHouseClient): Promise<void> {
  const servers = serversOf(clickhouse);
  const there = await reachableServers(servers);
  for (const [number, client] of servers.all.entries()) {
    // The home must answer, so it is asked even if it seems to be away.
    if (number === 0 || there.has(number)) await dropRoundTables(client);
  }
}
