// One round of deletions: requests of all accounts in turn, taken through the same steps together, so that they share
// one mutation a table. Every step may be repeated; a round that is cut off leaves its requests pending, and
// the next one goes on where it was. A request is complete only when every place was counted and holds
// nothing up to its fence; after that nothing can come back, since every segment up to the fence is stored.

import { randomBytes } from 'node:crypto';
import type { Environment } from '../src/accounts/documents.js';
import { type ClickHouseClient, codeOfFault } from '../src/clickhouse/client.js';
import { deleteRows, findMutationId, MutationFailed } from '../src/clickhouse/mutate.js';
import { deletions } from '../src/contract/limits.js';
import type { CrashPoint } from '../src/crash-point.js';
import { type Chosen, chooseRequests } from '../src/deletion/choose-requests.js';
import { untilNoRetryRuns, withFailedRowsLocked } from '../src/deletion/failed-rows-lock.js';
import { keepTargets, purgeTargets } from '../src/deletion/kept-targets.js';
import { mirrorCompleted, mirrorDeletions } from '../src/deletion/mirror.js';
import { type Place, placesInOrder } from '../src/deletion/places.js';
import {
  completeDeletion,
  type DeletionRequest,
  type DeletionState,
  type FoundRows,
  Overtaken,
  readDeletion,
  updateDeletion,
} from '../src/deletion/request.js';
import { resolveUsers } from '../src/deletion/resolve-users.js';
import { countFound, countLeft, mutationPredicate } from '../src/deletion/round-keys.js';
import {
  countNamed,
  createRoundTables,
  dropRoundTables,
  type RoundTables,
} from '../src/deletion/round-tables.js';
import { describeError, type Log } from '../src/log.js';
import type { Redis } from '../src/redis/client.js';
import { registryKeys, shardOf } from '../src/redis/keys.js';
import { isTurnTaken, takeTurn } from '../src/redis/turn.js';

export type RoundOptions = {
  readonly redis: Redis;
  readonly clickhouse: ClickHouseClient;
  readonly database: string;
  readonly shards: number;
  /** Epoch of the deployment. A Redis with another one, or none, decides nothing. */
  readonly epoch: string;
  readonly crash: CrashPoint;
  readonly log: Log;
};

/**
 * Runs a round. Settles with how many requests it completed; rejects when ClickHouse or Redis fail, after
 * writing the reason into the requests. Call again while requests are pending.
 */
export async function runDeletionRound(options: RoundOptions): Promise<number> {
  let ids: readonly string[] = [];
  try {
    ids = await options.redis.smembers(registryKeys.unkeptDeletions);
    await keepNewTargets(options);
    // Requests gather between rounds. To choose among them takes the whole registry, which is too much for ten looks a
    // second.
    const turn = [options.redis, registryKeys.deletionRound, deletions.roundEveryMs] as const;
    if (await isTurnTaken(...turn)) return 0;
    const chosen = await chooseRequests(options);
    ids = chosen.requests.map((request) => request.deletion_request_id);
    if (ids.length === 0 || !(await takeTurn(...turn))) return 0;
    const done = await withFailedRowsLocked(options.redis, 'round', () => deleteTogether(options, chosen));
    return done === 'locked' ? 0 : done;
  } catch (error) {
    // Another worker has gone on with its requests.
    if (error instanceof Overtaken) return 0;
    const state = stateOfFault(error);
    options.log.error(
      { requests: ids.length, state, error: describeError(error) },
      'a round of deletions failed',
    );
    await noteFailure(options, ids, state).catch((cause: unknown) =>
      options.log.warn({ error: describeError(cause) }, 'the reason is not written'),
    );
    throw error;
  }
}

/**
 * Copies what outlives an emptied Redis: first that there are new requests, then whom they name. So a request that is
 * known after a loss has lost its targets only if Redis was emptied between the two.
 */
async function keepNewTargets({ redis, clickhouse, crash }: RoundOptions): Promise<void> {
  if ((await redis.scard(registryKeys.unkeptDeletions)) === 0) return;
  await mirrorDeletions(redis, clickhouse, crash);
  await keepTargets(redis, clickhouse);
  crash('targets_kept');
}

async function deleteTogether(options: RoundOptions, { requests, environments }: Chosen): Promise<number> {
  const { clickhouse, log } = options;
  const { stepMs, endStep } = startSteps();
  await dropRoundTables(clickhouse);

  // Those that a crash cut off after they were verified have only their targets left.
  const verified = requests.filter((request) => request.verified_at !== undefined);
  await finish(options, verified);
  const unverified = requests.filter((request) => request.verified_at === undefined);
  if (unverified.length === 0) return verified.length;

  const resolved = await resolve(options, unverified, environments);
  endStep('resolve');
  const round: Round = { ...resolved, reached: await countReached(options, resolved) };
  endStep('count');
  options.crash('found_recorded');

  for (const place of placesInOrder) {
    await emptyPlace(options, round, place);
    endStep(place);
    await keepNewTargets(options);
  }
  options.crash('places_emptied');
  await verify(options, round);
  const verifiedAt = new Date().toISOString();
  await update(options, round, () => ({ state: 'verifying', left: [], verified_at: verifiedAt }));
  endStep('verify');
  options.crash('verified');

  await finish(options, [...round.requests.values()]);
  endStep('complete');
  log.info({ requests: round.requests.size, stepMs }, 'deletions are complete');
  return verified.length + round.requests.size;
}

/** A round under way: its tables, and its requests by their numbers there, as they are in Redis by now. */
type Resolved = { readonly tables: RoundTables; readonly requests: Map<number, DeletionRequest> };
/** With the environments in which each place has rows that it reaches. */
type Round = Resolved & { readonly reached: ReadonlyMap<Place, readonly string[]> };

/** The end of requests that are verified: their targets go, then they are complete. */
async function finish(options: RoundOptions, requests: readonly DeletionRequest[]): Promise<void> {
  const { redis, clickhouse, crash } = options;
  if (requests.length === 0) return;
  // Before the targets go: a Redis that is emptied now must come back knowing that nobody needs them.
  await mirrorDeletions(redis, clickhouse, crash);
  await purgeTargets(
    clickhouse,
    requests.map((request) => request.deletion_request_id),
  );
  await dropRoundTables(clickhouse);
  crash('targets_purged');
  const completed_at = new Date().toISOString();
  const completed = requests.map(
    (request): DeletionRequest => ({ ...request, status: 'complete', state: 'complete', completed_at }),
  );
  await mirrorCompleted(redis, clickhouse, completed);
  crash('completion_copied');
  for (const request of completed) {
    await completeDeletion(redis, request);
    crash('completed');
  }
}

/** Writes why a round failed into its requests as they are now, which may be further than when it began. */
async function noteFailure(
  { redis }: RoundOptions,
  requestIds: readonly string[],
  state: DeletionState,
): Promise<void> {
  for (const requestId of requestIds) {
    const request = await readDeletion(redis, requestId);
    if (request === undefined) continue;
    await updateDeletion(redis, request, { state }).catch((error: unknown) => {
      // A request that somebody else has gone on with needs no word of this round, and the others do.
      if (!(error instanceof Overtaken)) throw error;
    });
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
 * Makes the tables of the round, and resolves whom its requests reach. A request whose targets ClickHouse lacks is left
 * out, and so is one that has to wait for others of its user.
 */
async function resolve(
  options: RoundOptions,
  unverified: readonly DeletionRequest[],
  environments: readonly Environment[],
): Promise<Resolved> {
  const { redis, clickhouse, database, shards } = options;
  const tables = await createRoundTables(
    clickhouse,
    database,
    randomBytes(6).toString('hex'),
    unverified.map(({ deletion_request_id, account_id, fences, resolved }) => ({
      requestId: deletion_request_id,
      accountId: account_id,
      fences: Array.from({ length: shards }, (_, shard) => fences[shard] ?? '0'),
      resolved,
    })),
    environments.map(({ app_id, account_id }) => ({
      appId: app_id,
      accountId: account_id,
      shard: shardOf(app_id, shards),
    })),
  );
  const named = await countNamed(clickhouse, tables);
  const leftOut = new Set<number>();
  const heldUp = new Set<string>();
  for (const [number, request] of unverified.entries()) {
    const isKept = (named.get(number) ?? 0) >= request.targets;
    if (isKept && !heldUp.has(request.account_id)) continue;
    leftOut.add(number);
    // Whom later requests of the account reach depends on what this one takes.
    heldUp.add(request.account_id);
    if (isKept) continue;
    // ClickHouse had its targets and has not any more: a backup came back. The next round copies them from Redis once
    // more, and whoever was found with them is found again; if Redis has none either, the request is lost.
    await updateDeletion(redis, request, { resolved: false });
    await redis.sadd(registryKeys.unkeptDeletions, request.deletion_request_id);
  }
  const unresolved = [...unverified.keys()].filter(
    (number) => !unverified[number]?.resolved && !leftOut.has(number),
  );
  const accounts = unverified.map(({ account_id }) => account_id);
  const waiting = await resolveUsers(clickhouse, tables, unresolved, accounts, leftOut);
  options.crash('resolved');
  const requests = new Map(
    [...unverified.entries()].filter(([number]) => !leftOut.has(number) && !waiting.has(number)),
  );
  const resolved = { tables, requests };
  await update(options, resolved, () => ({ resolved: true, state: 'deleting' }));
  return resolved;
}

/**
 * Counts what the round reaches, and records it in the requests that have no count yet: that is before any of
 * their rows is deleted. Settles with the environments in which each place has such rows.
 */
async function countReached(
  options: RoundOptions,
  round: Resolved,
): Promise<ReadonlyMap<Place, readonly string[]>> {
  const { clickhouse } = options;
  const reached = new Map<Place, string[]>();
  if ([...round.requests.values()].every((request) => request.found !== undefined)) {
    for (const place of placesInOrder) {
      reached.set(place, [...(await countLeft(clickhouse, round.tables, place)).keys()]);
    }
    return reached;
  }
  const found = await countFound(clickhouse, round.tables);
  for (const place of placesInOrder) {
    const rows = [...found.values()].flat().filter(({ table }) => table === place);
    reached.set(place, [...new Set(rows.map(({ app_id }) => app_id))]);
  }
  await update(options, round, (request, number) => {
    const rows = request.found ?? found.get(number) ?? [];
    return { found: rows, left: rows };
  });
  return reached;
}

/** Deletes what the round reaches in one table. That nothing is left is counted when all tables are done. */
async function emptyPlace(options: RoundOptions, round: Round, place: Place): Promise<void> {
  const { clickhouse, crash } = options;
  const { tables, requests } = round;
  const appIds = round.reached.get(place) ?? [];
  if (appIds.length === 0) return;
  const fenceMax = [...requests.values()]
    .flatMap((request) => Object.values(request.fences))
    .reduce((highest, fence) => (BigInt(fence) > BigInt(highest) ? fence : highest), '0');
  const predicate = mutationPredicate(tables, appIds, fenceMax);
  const mutation = { table: place, mark: tables.mark };
  await update(options, round, (request) => ({ mutations: [...request.mutations, mutation] }));
  crash('before_mutation');
  await deleteRows(clickhouse, place, predicate, tables.mark);
  crash('after_mutation');
  const idOf = await findMutationIds(clickhouse, round);
  await update(options, round, ({ mutations, left }) => ({
    mutations: mutations.map((each) => ({ ...each, ...idOf(each) })),
    left: (left ?? []).filter(({ table }) => table !== place),
  }));
}

type Issued = DeletionRequest['mutations'][number];

/** The ids of mutations that have none yet, also of those that a crash kept from being written down. */
async function findMutationIds(
  clickhouse: ClickHouseClient,
  { requests }: Resolved,
): Promise<(mutation: Issued) => { mutation_id?: string }> {
  const nameOf = ({ table, mark }: Issued) => `${table} ${mark}`;
  const ids = new Map<string, string | undefined>();
  for (const mutation of [...requests.values()].flatMap(({ mutations }) => mutations)) {
    if (mutation.mutation_id !== undefined || ids.has(nameOf(mutation))) continue;
    ids.set(nameOf(mutation), await findMutationId(clickhouse, mutation.table, mutation.mark));
  }
  return (mutation) => {
    const mutation_id = mutation.mutation_id ?? ids.get(nameOf(mutation));
    return mutation_id === undefined ? {} : { mutation_id };
  };
}

/**
 * Counts every place, now that all mutations are done: a mutation's own word may be lost in a crash. Rejects
 * with MutationFailed when something is left, which the requests then tell.
 */
async function verify(options: RoundOptions, round: Round): Promise<void> {
  const left: FoundRows[] = [];
  await untilNoRetryRuns(options.clickhouse);
  for (const place of placesInOrder) {
    for (const [app_id, rows] of await countLeft(options.clickhouse, round.tables, place)) {
      left.push({ app_id, table: place, rows });
    }
  }
  if (left.length === 0) return;
  await update(options, round, () => ({ left }));
  const places = new Set(left.map(({ table }) => table));
  throw new MutationFailed(`rows are left in ${[...places].join(', ')} after the mutations`);
}

/** Writes progress into the requests of a round. */
async function update(
  { redis }: RoundOptions,
  { requests }: Resolved,
  changesOf: (request: DeletionRequest, number: number) => Partial<DeletionRequest>,
): Promise<void> {
  await Promise.all(
    [...requests].map(async ([number, request]) => {
      requests.set(number, await updateDeletion(redis, request, changesOf(request, number)));
    }),
  );
}

function stateOfFault(error: unknown): DeletionState {
  if (error instanceof MutationFailed) return 'mutation_failed';
  const away = error instanceof Error && 'code' in error && codeOfFault(error) === 0;
  return away ? 'clickhouse_unavailable' : 'failed';
}
