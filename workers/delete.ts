// One round of deletions: all requests that wait, taken through the same steps together, so that they share
// one mutation a table. Every step may be repeated; a round that is cut off leaves its requests pending, and
// the next one goes on where it was. A request is complete only when every place was counted and holds
// nothing up to its fence; after that nothing can come back, since every segment up to the fence is stored.

import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { readRegistry } from '../src/accounts/registry.js';
import { type ClickHouseClient, codeOfFault } from '../src/clickhouse/client.js';
import { deleteRows, MutationFailed } from '../src/clickhouse/mutate.js';
import { deletions } from '../src/contract/limits.js';
import type { CrashPoint } from '../src/crash-point.js';
import { placesInOrder, targetTable } from '../src/deletion/places.js';
import {
  completeDeletion,
  type DeletionRequest,
  type DeletionState,
  type FoundRows,
  readDeletionTargets,
  readPendingDeletions,
  updateDeletion,
} from '../src/deletion/request.js';
import {
  countFound,
  countLeft,
  createRoundTables,
  dropRoundTables,
  fillKeys,
  mutationPredicate,
  purgeTargets,
  type RoundTables,
  readResolvedUsers,
  readScopedAppIds,
  resolveUsers,
  type Scope,
} from '../src/deletion/round-tables.js';
import type { LimitKeys } from '../src/ingest/limit-key.js';
import { rejectedUserHash, removeRejected } from '../src/ingest/rejected-records.js';
import { describeError, type Log } from '../src/log.js';
import { registryKeys, shardKeys, shardOf } from '../src/redis/keys.js';

export type RoundOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly database: string;
  readonly shards: number;
  /** By which rejected records of a user are found. */
  readonly limitKeys: LimitKeys;
  readonly crash: CrashPoint;
  readonly log: Log;
};

/**
 * Runs a round. Settles with how many requests it completed; rejects when ClickHouse or Redis fail, after
 * writing the reason into the requests. Call again while requests are pending.
 */
export async function runDeletionRound(options: RoundOptions): Promise<number> {
  const pending = await readPendingDeletions(options.redis, deletions.targetsPerRoundMax);
  if (pending.length === 0) return 0;
  let round: DeletionRequest[] = pending;
  try {
    for (const request of pending) await keepTargets(options, request);
    options.crash('targets_kept');
    round = await thoseWithoutBacklog(options, pending);
    if (round.length === 0 || !(await mayStart(options.redis))) return 0;
    return await deleteTogether(options, round);
  } catch (error) {
    const state = stateOfFault(error);
    options.log.error(
      { requests: round.length, state, error: describeError(error) },
      'a round of deletions failed',
    );
    for (const request of round)
      await updateDeletion(options.redis, request, { state }).catch(() => undefined);
    throw error;
  }
}

async function deleteTogether(options: RoundOptions, ready: DeletionRequest[]): Promise<number> {
  const { clickhouse, database, log } = options;
  await dropRoundTables(clickhouse);
  const tables = await createRoundTables(
    clickhouse,
    database,
    randomBytes(6).toString('hex'),
    await scopesOf(options, ready),
  );
  let requests = await resolve(options, tables, ready);
  await fillKeys(clickhouse, tables);
  requests = await recordFound(options, tables, requests);
  options.crash('found_recorded');

  for (const place of placesInOrder) requests = await emptyPlace(options, tables, place, requests);
  options.crash('places_emptied');
  requests = await updateAll(options, requests, () => ({ state: 'verifying' }));
  await verify(clickhouse, tables);
  const verifiedAt = new Date().toISOString();
  options.crash('verified');

  await forgetRejected(options, tables);
  await purgeTargets(clickhouse, tables);
  await dropRoundTables(clickhouse);
  options.crash('targets_purged');
  for (const request of requests) {
    await completeDeletion(options.redis, {
      ...request,
      status: 'complete',
      state: 'complete',
      left: [],
      verified_at: verifiedAt,
      completed_at: new Date().toISOString(),
    });
    options.crash('completed');
  }
  // What was deleted is still in the append-only file until it is written anew.
  await options.redis.set(registryKeys.rewriteWanted, '1');
  log.info({ requests: requests.length }, 'deletions are complete');
  return requests.length;
}

/** Copies a request's targets to ClickHouse, where they outlive an emptied Redis and are resolved from. */
async function keepTargets({ redis, clickhouse }: RoundOptions, request: DeletionRequest): Promise<void> {
  const requestId = request.deletion_request_id;
  const result = await clickhouse.query({
    query: `SELECT count() AS rows FROM ${targetTable} WHERE request_id = {requestId:String} AND app_id = ''`,
    query_params: { requestId },
    format: 'JSONEachRow',
  });
  const [kept] = await result.json<{ rows: number }>();
  if (Number(kept?.rows) >= request.targets) return;
  const targets = await readDeletionTargets(redis, requestId);
  if (targets?.length !== request.targets) throw new Error('the targets of a deletion request are lost');
  await clickhouse.insert({
    table: targetTable,
    values: targets.map((target) => ({
      request_id: requestId,
      app_id: '',
      identity: target.startsWith('i') ? target.slice(1) : '',
      user_id: target.startsWith('u') ? target.slice(1) : null,
    })),
    format: 'JSONEachRow',
    clickhouse_settings: { async_insert: 0, insert_deduplicate: 0 },
  });
}

/** Requests of which every record acknowledged before them is in ClickHouse. The others wait, and say so. */
async function thoseWithoutBacklog(
  options: RoundOptions,
  requests: DeletionRequest[],
): Promise<DeletionRequest[]> {
  const ready: DeletionRequest[] = [];
  for (const request of requests) {
    const outstanding = await Promise.all(
      Object.entries(request.fences).map(([shard, fence]) =>
        options.redis.zcount(shardKeys.segments(Number(shard)), '-inf', fence),
      ),
    );
    if (outstanding.every((count) => count === 0)) ready.push(request);
    else if (request.state !== 'waiting_for_backlog') {
      await updateDeletion(options.redis, request, { state: 'waiting_for_backlog' });
    }
  }
  return ready;
}

/** Whether enough time has passed since the last round; requests gather meanwhile. */
async function mayStart(redis: Redis): Promise<boolean> {
  return (await redis.set(registryKeys.deletionRound, '1', 'PX', deletions.roundEveryMs, 'NX')) === 'OK';
}

/** All environments of the requests' accounts, as they are now, with the fences of their shards. */
async function scopesOf(
  { redis, shards }: RoundOptions,
  requests: readonly DeletionRequest[],
): Promise<Scope[]> {
  const { environments } = await readRegistry(redis);
  return requests.flatMap((request) =>
    [...environments.values()]
      .filter((environment) => environment.account_id === request.account_id)
      .map(({ app_id: appId }) => ({
        requestId: request.deletion_request_id,
        appId,
        fence: request.fences[shardOf(appId, shards)] ?? '0',
        resolved: request.resolved,
      })),
  );
}

async function resolve(
  options: RoundOptions,
  tables: RoundTables,
  requests: DeletionRequest[],
): Promise<DeletionRequest[]> {
  if (requests.some((request) => !request.resolved)) await resolveUsers(options.clickhouse, tables);
  options.crash('resolved');
  return updateAll(options, requests, () => ({ resolved: true, state: 'deleting' }));
}

/** Records how many rows each request reaches: once, before any of them is deleted. */
async function recordFound(
  options: RoundOptions,
  tables: RoundTables,
  requests: DeletionRequest[],
): Promise<DeletionRequest[]> {
  if (requests.every((request) => request.found !== undefined)) return requests;
  const found = await countFound(options.clickhouse, tables);
  return updateAll(options, requests, (request) =>
    request.found === undefined ? { found: found.get(request.deletion_request_id) ?? [] } : {},
  );
}

/** Deletes what the round reaches in one table. Rejects with MutationFailed when something is left. */
async function emptyPlace(
  options: RoundOptions,
  tables: RoundTables,
  place: (typeof placesInOrder)[number],
  requests: DeletionRequest[],
): Promise<DeletionRequest[]> {
  const left = await countLeft(options.clickhouse, tables, place);
  if (left.size === 0) return requests;
  const fenceMax = requests
    .flatMap((request) => Object.values(request.fences))
    .reduce((highest, fence) => (BigInt(fence) > BigInt(highest) ? fence : highest), '0');
  const predicate = mutationPredicate(tables, [...left.keys()], fenceMax);
  options.crash('before_mutation');
  const mutationId = await deleteRows(options.clickhouse, place, predicate, tables.mark);
  options.crash('after_mutation');
  const survivors = await countLeft(options.clickhouse, tables, place);
  const leftNow: FoundRows[] = [...survivors].map(([appId, rows]) => ({ app_id: appId, table: place, rows }));
  const updated = await updateAll(options, requests, (request) => ({
    left: leftNow,
    mutations: [...request.mutations, { table: place, mutation_id: mutationId }],
  }));
  if (survivors.size > 0) throw new MutationFailed(`rows are left in ${place} after its mutation`);
  return updated;
}

/** Counts every place once more, now that all mutations are done. */
async function verify(clickhouse: ClickHouseClient, tables: RoundTables): Promise<void> {
  for (const place of placesInOrder) {
    const left = await countLeft(clickhouse, tables, place);
    if (left.size > 0) throw new MutationFailed(`rows are left in ${place}`);
  }
}

/** Removes the notes about rejected records of the users, in the environments that have such notes. */
async function forgetRejected(
  { redis, clickhouse, limitKeys }: RoundOptions,
  tables: RoundTables,
): Promise<void> {
  for (const appId of await readScopedAppIds(clickhouse, tables)) {
    if ((await redis.exists(registryKeys.rejected(appId))) === 0) continue;
    const users = await readResolvedUsers(clickhouse, tables, appId);
    await removeRejected(
      redis,
      appId,
      new Set(users.map((user) => rejectedUserHash(limitKeys, appId, user))),
    );
  }
}

async function updateAll(
  { redis }: RoundOptions,
  requests: readonly DeletionRequest[],
  changesOf: (request: DeletionRequest) => Partial<DeletionRequest>,
): Promise<DeletionRequest[]> {
  return Promise.all(requests.map((request) => updateDeletion(redis, request, changesOf(request))));
}

function stateOfFault(error: unknown): DeletionState {
  if (error instanceof MutationFailed) return 'mutation_failed';
  const away = error instanceof Error && 'code' in error && codeOfFault(error) === 0;
  return away ? 'clickhouse_unavailable' : 'failed';
}
