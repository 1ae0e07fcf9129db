// Chooses the requests of the next round from Redis, with the environments of their accounts. A request is ready when every record that
// was acknowledged before it is stored. Accounts take turns (round-choice.ts).

import type { ClickHouseClient } from '../../clickhouse/client.js';
import { serversOf } from '../../clickhouse/servers.js';
import type { DeletionState } from '../../contract/deletion-states.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys, shardOf } from '../../redis/keys.js';
import type { Environment } from '../../registry/documents.js';
import { readLoadedRegistry } from '../../registry/registry.js';
import { refreshShardTable } from '../../registry/shard-servers.js';
import { deletionRounds } from '../../tuning.js';
import { readStored } from './fences.js';
import { readObstacles } from './obstacles.js';
import { type DeletionRequest, readDeletions, readPendingMembers, updateDeletions } from './request.js';
import { fillRound, requestIdsInTurns } from './round-choice.js';

export type ChooseOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly epoch: string;
  readonly shards: number;
  /** Accounts whose requests ClickHouse refused to count at the last attempt. */
  readonly refused?: ReadonlySet<string>;
};

export type ChosenRequests = {
  /** In the order of submission. */
  readonly requests: readonly DeletionRequest[];
  /** The chosen requests of refused accounts, by account: no other request shares a mutation with them. */
  readonly refusedBefore: readonly (readonly DeletionRequest[])[];
  readonly environments: readonly Environment[];
  /** No requests were chosen: all of them wait for a server or for the move of a shard. */
  readonly waitsForServers: boolean;
};

/**
 * Chooses pending requests for a round, and records in the others what they wait for. With `hiddenDeletions`, chooses hidden requests that
 * can be counted together, leaving out those in `seen`. Throws StateNotLoaded when Redis was emptied.
 */
export async function chooseRequests(
  { redis, clickhouse, epoch, shards, refused = new Set() }: ChooseOptions,
  from: 'pendingDeletions' | 'hiddenDeletions' = 'pendingDeletions',
  seen: ReadonlySet<string> = new Set(),
): Promise<ChosenRequests> {
  const all = await readPendingMembers(redis, epoch, registryKeys[from]);
  const members = seen.size === 0 ? all : all.filter(({ requestId }) => !seen.has(requestId));
  const ids = requestIdsInTurns(members, deletionRounds.requestsMax);
  const pending = await readDeletions(redis, ids.flat());
  // Read after the requests, so that a record acknowledged before one of them is either stored or still seen as outstanding.
  const isStored = await readStored({ redis, epoch, shards });
  const isStoredIn = (request: DeletionRequest, shard: number) => isStored(shard, request.fences[shard]);
  const mayBeReady = (request: DeletionRequest) =>
    request.verified_at !== undefined ||
    Array.from({ length: shards }).some((_, shard) => isStoredIn(request, shard));
  // This reads the whole registry, so only if some request may be ready.
  const environments = pending.some(mayBeReady)
    ? [...(await readLoadedRegistry(redis)).environments.values()]
    : [];
  const obstacleOf =
    environments.length === 0 ? () => undefined : await readObstaclesOfShards(redis, clickhouse);
  const shardsOf = new Map<string, Set<number>>();
  for (const { app_id, account_id } of environments) {
    const shardsOfAccount = shardsOf.get(account_id) ?? new Set();
    shardsOf.set(account_id, shardsOfAccount.add(shardOf(app_id, shards)));
  }

  const waiting: [DeletionRequest, { readonly state: DeletionState }][] = [];
  const unserved: typeof waiting = [];
  const unkept: string[] = [];
  const isReady = (request: DeletionRequest) => {
    if (request.verified_at !== undefined) return true;
    const itsShards = [...(shardsOf.get(request.account_id) ?? [])];
    const state = itsShards.map(obstacleOf).find((obstacle) => obstacle !== undefined);
    const isItStored = itsShards.length > 0 && itsShards.every((shard) => isStoredIn(request, shard));
    if (request.targets_kept !== true) unkept.push(request.deletion_request_id);
    else if (state !== undefined) unserved.push([request, { state }]);
    else if (isItStored) return true;
    else waiting.push([request, { state: 'waiting_for_backlog' }]);
    return false;
  };
  const byId = new Map(pending.map((request) => [request.deletion_request_id, request]));
  const turns = ids.map((turn) => turn.flatMap((id) => byId.get(id) ?? []));
  const positions = new Map(members.map(({ requestId }, index) => [requestId, index]));
  const positionOf = ({ deletion_request_id }: DeletionRequest) => positions.get(deletion_request_id) ?? 0;
  const fill = (isWanted: (request: DeletionRequest) => boolean) =>
    fillRound(
      turns.map((turn) => turn.filter(isWanted)),
      isReady,
    ).sort((a, b) => positionOf(a) - positionOf(b));
  const requests = fill(({ account_id }) => !refused.has(account_id));
  const refusedBefore = [...refused]
    .map((accountId) => fill(({ account_id }) => account_id === accountId))
    .filter(({ length }) => length > 0);

  if (unkept.length > 0) await redis.sadd(registryKeys.deletionsAwaitingTargetCopy, ...unkept);
  const held = [...waiting, ...unserved].filter(([request, { state }]) => request.state !== state);
  if (from === 'pendingDeletions') await updateDeletions(redis, held);
  const others = requests.length + refusedBefore.length + waiting.length + unkept.length;
  return { requests, refusedBefore, environments, waitsForServers: unserved.length > 0 && others === 0 };
}

/** Why the rows of a shard cannot be deleted now: its server's or the primary's obstacle, or other servers have some of its rows. */
async function readObstaclesOfShards(
  redis: Redis,
  clickhouse: ClickHouseClient,
): Promise<(shard: number) => DeletionState | undefined> {
  const servers = serversOf(clickhouse);
  await refreshShardTable(redis, servers);
  const obstacles = await readObstacles({ redis, clickhouse });
  return (shard) =>
    obstacles.get(0) ??
    obstacles.get(servers.numberOf(shard)) ??
    (servers.isNamed(shard) && !servers.isUnsettled(shard) ? undefined : 'clickhouse_unavailable');
}
