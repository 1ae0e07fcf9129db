// One round of deletions: all requests that wait, taken through the same steps together, so that they share
// one mutation a table. Every step may be repeated; a round that is cut off leaves its requests pending, and
// the next one goes on where it was. A request is complete only when every place was counted and holds
// nothing up to its fence; after that nothing can come back, since every segment up to the fence is stored.

import { randomBytes } from 'node:crypto';
import { readRegistry } from '../src/accounts/registry.js';
import { type ClickHouseClient, codeOfFault } from '../src/clickhouse/client.js';
import { deleteRows, findMutationId, MutationFailed } from '../src/clickhouse/mutate.js';
import { deletions } from '../src/contract/limits.js';
import type { CrashPoint } from '../src/crash-point.js';
import { withFailedRowsLocked } from '../src/deletion/failed-rows-lock.js';
import { type Place, placesInOrder, targetTable } from '../src/deletion/places.js';
import {
  completeDeletion,
  type DeletionRequest,
  type DeletionState,
  type FoundRows,
  readDeletion,
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
import type { Redis } from '../src/redis/client.js';
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
    const kept = await keepTargets(options, pending);
    options.crash('targets_kept');
    round = await thoseWithoutBacklog(options, kept);
    if (round.length === 0 || !(await mayStart(options.redis))) return 0;
    const done = await withFailedRowsLocked(options.redis, 'round', () => deleteTogether(options, round));
    return done === 'locked' ? 0 : done;
  } catch (error) {
    const state = stateOfFault(error);
    const ids = round.map((request) => request.deletion_request_id);
    options.log.error(
      { requests: ids.length, state, error: describeError(error) },
      'a round of deletions failed',
    );
    await noteFailure(options.redis, ids, state).catch((cause: unknown) =>
      options.log.warn({ error: describeError(cause) }, 'the reason is not written'),
    );
    throw error;
  }
}

async function deleteTogether(options: RoundOptions, ready: DeletionRequest[]): Promise<number> {
  const { clickhouse, database, log } = options;
  const { stepMs, endStep } = startSteps();
  await dropRoundTables(clickhouse);

  // Those that a crash cut off after they were verified have only their targets left.
  const verified = ready.filter((request) => request.verified_at !== undefined);
  if (verified.length > 0) {
    const tables = await createRoundTables(
      clickhouse,
      database,
      newRoundName(),
      await scopesOf(options, verified),
    );
    await finish(options, tables, verified);
  }
  let requests = ready.filter((request) => request.verified_at === undefined);
  if (requests.length === 0) return verified.length;

  const tables = await createRoundTables(
    clickhouse,
    database,
    newRoundName(),
    await scopesOf(options, requests),
  );
  endStep('prepare');
  requests = await resolve(options, tables, requests);
  endStep('resolve');
  const counted = await countReached(options, tables, requests);
  requests = counted.requests;
  endStep('count');
  options.crash('found_recorded');

  for (const place of placesInOrder) {
    const appIds = counted.appIds.get(place);
    if (appIds === undefined) continue;
    requests = await emptyPlace(options, tables, place, appIds, requests);
    endStep(place);
  }
  options.crash('places_emptied');
  await verify(options, tables, requests);
  await forgetRejected(options, tables);
  const verifiedAt = new Date().toISOString();
  requests = await updateAll(options, requests, () => ({
    state: 'verifying',
    left: [],
    verified_at: verifiedAt,
  }));
  endStep('verify');
  options.crash('verified');

  await finish(options, tables, requests);
  endStep('complete');
  log.info({ requests: requests.length, stepMs }, 'deletions are complete');
  return verified.length + requests.length;
}

function newRoundName(): string {
  return randomBytes(6).toString('hex');
}

/** The end of requests that are verified: their targets go, then they are complete. */
async function finish(
  options: RoundOptions,
  tables: RoundTables,
  requests: readonly DeletionRequest[],
): Promise<void> {
  await purgeTargets(options.clickhouse, tables);
  await dropRoundTables(options.clickhouse);
  options.crash('targets_purged');
  for (const request of requests) {
    const completed_at = new Date().toISOString();
    await completeDeletion(options.redis, {
      ...request,
      status: 'complete',
      state: 'complete',
      completed_at,
    });
    options.crash('completed');
  }
}

/** Writes why a round failed into its requests as they are now, which may be further than when it began. */
async function noteFailure(redis: Redis, requestIds: readonly string[], state: DeletionState): Promise<void> {
  for (const requestId of requestIds) {
    const request = await readDeletion(redis, requestId);
    if (request !== undefined) await updateDeletion(redis, request, { state });
  }
}

/** Durations of the steps of a round, which its log entry tells. */
function startSteps() {
  const stepMs: Record<string, number> = {};
  let startedAt = performance.now();
  const endStep = (name: string) => {
    const endedAt = performance.now();
    stepMs[name] = Math.round(endedAt - startedAt);
    startedAt = endedAt;
  };
  return { stepMs, endStep };
}

/**
 * Copies the requests' targets to ClickHouse, where they outlive an emptied Redis and are resolved from: those
 * of all requests at once, since an insert is synced. Settles with the requests whose targets are there; one
 * whose targets are lost says so and holds up nobody else.
 */
async function keepTargets(
  { redis, clickhouse }: RoundOptions,
  requests: readonly DeletionRequest[],
): Promise<DeletionRequest[]> {
  const result = await clickhouse.query({
    query: `SELECT request_id, uniqExact(identity, ifNull(toString(user_id), '')) AS targets FROM ${targetTable} WHERE app_id = '' GROUP BY request_id`,
    format: 'JSONEachRow',
  });
  const rows = await result.json<{ request_id: string; targets: number }>();
  const countKept = new Map(rows.map((row) => [row.request_id, Number(row.targets)]));
  const kept: DeletionRequest[] = [];
  const values: TargetRow[] = [];
  for (const request of requests) {
    const complete = (countKept.get(request.deletion_request_id) ?? 0) >= request.targets;
    const missing = complete || request.verified_at !== undefined ? [] : await readTargetRows(redis, request);
    if (missing === undefined) {
      await updateDeletion(redis, request, { state: 'targets_lost' });
      continue;
    }
    kept.push(request);
    for (const row of missing) values.push(row);
  }
  if (values.length > 0) {
    await clickhouse.insert({
      table: targetTable,
      values,
      format: 'JSONEachRow',
      clickhouse_settings: { async_insert: 0 },
    });
  }
  return kept;
}

type TargetRow = {
  readonly request_id: string;
  readonly app_id: '';
  readonly identity: string;
  readonly user_id: string | null;
};

/** The targets of a request as rows; undefined when Redis does not have all of them. */
async function readTargetRows(redis: Redis, request: DeletionRequest): Promise<TargetRow[] | undefined> {
  const requestId = request.deletion_request_id;
  const targets = await readDeletionTargets(redis, requestId);
  if (targets?.length !== request.targets) return undefined;
  return targets.map((target) => ({
    request_id: requestId,
    app_id: '',
    identity: target.startsWith('i') ? target.slice(1) : '',
    user_id: target.startsWith('u') ? target.slice(1) : null,
  }));
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

/** Resolves the users of requests that were not, once, and fills the round's keys with all of them. */
async function resolve(
  options: RoundOptions,
  tables: RoundTables,
  requests: DeletionRequest[],
): Promise<DeletionRequest[]> {
  if (requests.some((request) => !request.resolved)) await resolveUsers(options.clickhouse, tables);
  options.crash('resolved');
  const resolved = await updateAll(options, requests, () => ({ resolved: true, state: 'deleting' }));
  const reaching = await fillKeys(options.clickhouse, tables);
  const lost = resolved.filter((request) => !reaching.has(request.deletion_request_id));
  await updateAll(options, lost, () => ({ state: 'targets_lost' }));
  return resolved.filter((request) => reaching.has(request.deletion_request_id));
}

/**
 * Counts what the round reaches, and records it in the requests that have no count yet: that is before any of
 * their rows is deleted. Settles with the requests, and the environments in which each place has such rows.
 */
async function countReached(
  options: RoundOptions,
  tables: RoundTables,
  requests: DeletionRequest[],
): Promise<{ requests: DeletionRequest[]; appIds: Map<Place, string[]> }> {
  const appIds = new Map<Place, string[]>();
  if (requests.every((request) => request.found !== undefined)) {
    for (const place of placesInOrder) {
      const left = await countLeft(options.clickhouse, tables, place);
      if (left.size > 0) appIds.set(place, [...left.keys()]);
    }
    return { requests, appIds };
  }
  const found = await countFound(options.clickhouse, tables);
  for (const place of placesInOrder) {
    const reached = new Set<string>();
    for (const rows of found.values())
      for (const { app_id, table } of rows) if (table === place) reached.add(app_id);
    if (reached.size > 0) appIds.set(place, [...reached]);
  }
  const recorded = await updateAll(options, requests, (request) => {
    const rows = request.found ?? found.get(request.deletion_request_id) ?? [];
    return { found: rows, left: rows };
  });
  return { requests: recorded, appIds };
}

/** Deletes what the round reaches in one table. That nothing is left is counted when all tables are done. */
async function emptyPlace(
  options: RoundOptions,
  tables: RoundTables,
  place: Place,
  appIds: readonly string[],
  requests: readonly DeletionRequest[],
): Promise<DeletionRequest[]> {
  const fenceMax = requests
    .flatMap((request) => Object.values(request.fences))
    .reduce((highest, fence) => (BigInt(fence) > BigInt(highest) ? fence : highest), '0');
  const predicate = mutationPredicate(tables, appIds, fenceMax);
  const mutation = { table: place, mark: tables.mark };
  const issued = await updateAll(options, requests, (request) => ({
    mutations: [...request.mutations, mutation],
  }));
  options.crash('before_mutation');
  await deleteRows(options.clickhouse, place, predicate, tables.mark);
  options.crash('after_mutation');
  const named = await nameMutations(options.clickhouse, issued);
  return updateAll(options, named, ({ mutations, left }) => ({
    mutations,
    left: (left ?? []).filter(({ table }) => table !== place),
  }));
}

/** Fills in the ids of mutations, also of those that a crash kept from being written down. */
async function nameMutations(
  clickhouse: ClickHouseClient,
  requests: readonly DeletionRequest[],
): Promise<DeletionRequest[]> {
  const ids = new Map<string, string | undefined>();
  for (const { table, mark, mutation_id } of requests.flatMap(({ mutations }) => mutations)) {
    const name = `${table} ${mark}`;
    if (!ids.has(name)) ids.set(name, mutation_id ?? (await findMutationId(clickhouse, table, mark)));
  }
  return requests.map((request) => ({
    ...request,
    mutations: request.mutations.map(({ table, mark }) => {
      const mutation_id = ids.get(`${table} ${mark}`);
      return mutation_id === undefined ? { table, mark } : { table, mark, mutation_id };
    }),
  }));
}

/**
 * Counts every place, now that all mutations are done: a mutation's own word may be lost in a crash. Rejects
 * with MutationFailed when something is left, which the requests then tell.
 */
async function verify(
  options: RoundOptions,
  tables: RoundTables,
  requests: readonly DeletionRequest[],
): Promise<void> {
  const left: FoundRows[] = [];
  for (const place of placesInOrder) {
    for (const [app_id, rows] of await countLeft(options.clickhouse, tables, place)) {
      left.push({ app_id, table: place, rows });
    }
  }
  if (left.length === 0) return;
  await updateAll(options, requests, () => ({ left }));
  const places = new Set(left.map(({ table }) => table));
  throw new MutationFailed(`rows are left in ${[...places].join(', ')} after the mutations`);
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
