// One round of deletions. It takes requests of all accounts in turn through the same steps together, so that they share
// one mutation per table. Every step may be repeated. A round that is cut off leaves its requests pending, and the next
// one continues. In large tables a round masks the rows, and its requests are hidden until masked rows are erased
// (erase.ts). A request is complete only when every place was counted, without masks, and holds nothing up to its fence. After that
// nothing can come back, since every segment up to the fence is stored.

import { randomBytes } from 'node:crypto';
import {
  type ClickHouseClient,
  codeOfFault,
  faultCodes,
  isConnectionFault,
} from '../src/clickhouse/client.js';
import { assertRoom, NoRoom } from '../src/clickhouse/definitions.js';
import { indexKeysOf } from '../src/clickhouse/key-index.js';
import { deleteOrMask } from '../src/clickhouse/masks.js';
import { findMutationId, MutationFailed } from '../src/clickhouse/mutate.js';
import { reachableServers, serversOf } from '../src/clickhouse/servers.js';
import { noteTaken } from '../src/clickhouse/taken-records.js';
import type { DeletionState } from '../src/contract/deletion-states.js';
import { evidence } from '../src/contract/limits.js';
import { describeError } from '../src/log.js';
import { inPieces } from '../src/pieces.js';
import { type ChosenRequests, chooseRequests } from '../src/privacy/deletion/choose-requests.js';
import { keepDeletedUsers } from '../src/privacy/deletion/deleted-users.js';
import { keepEvidence } from '../src/privacy/deletion/evidence.js';
import { keepTargets, purgeTargets } from '../src/privacy/deletion/kept-targets.js';
import { untilNoRetryRuns, withMaintenanceLock } from '../src/privacy/deletion/maintenance-lock.js';
import { mirrorCompleted, mirrorDeletions } from '../src/privacy/deletion/mirror.js';
import {
  ConcurrentUpdate,
  completeDeletion,
  type DeletionRequest,
  type FoundRows,
  readDeletion,
  updateDeletion,
  updateDeletions,
} from '../src/privacy/deletion/request.js';
import { fillKeysWithout, findReachedUsers, keepResolved } from '../src/privacy/deletion/resolve-users.js';
import {
  countReachedRows,
  findSimilarIdentities,
  forgetCounts,
  readFoundRows,
} from '../src/privacy/deletion/round-counts.js';
import { countLeft, mutationPredicate, readOnDisk } from '../src/privacy/deletion/round-keys.js';
import {
  createParts,
  distributeUsers,
  gatherCounts,
  gatherUsers,
  type RoundPart,
  type RoundParts,
} from '../src/privacy/deletion/round-parts.js';
import { countNamed, dropRoundTables } from '../src/privacy/deletion/round-tables.js';
import { type UserTable, userTables } from '../src/privacy/deletion/user-tables.js';
import { endExportsOf } from '../src/privacy/export/end.js';
import { endRuns } from '../src/privacy/retention/expired-rows.js';
import { mastersOf, type Redis } from '../src/redis/client.js';
import { registryKeys, shardOf } from '../src/redis/keys.js';
import { isTurnTaken, takeTurn } from '../src/redis/lease.js';
import { runScript, scripts } from '../src/redis/scripts.js';
import { emptySlowLogs } from '../src/redis/slow-log.js';
import { readBackups } from '../src/registry/backups.js';
import type { Environment } from '../src/registry/documents.js';
import { readLoadedRegistry } from '../src/registry/registry.js';
import { assertCurrent } from '../src/registry/witness.js';
import { deletionRounds } from '../src/tuning.js';
import { untilTrue } from '../src/wait.js';
import {
  type ErasureOptions,
  eraseInPasses,
  giveWay,
  isErasureDue,
  isPassRunning,
  noteWanted,
  resumeAfterCrash,
} from './erase.js';

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

/**
 * Runs a round. Settles with how many requests it completed. Rejects when ClickHouse or Redis fails, after it has written
 * the reason into the requests. Call it again while requests are pending.
 */
export async function runDeletionRound(options: RoundOptions): Promise<number> {
  let ids: readonly string[] = [];
  try {
    ids = await options.redis.smembers(registryKeys.deletionsAwaitingTargetCopy);
    await keepNewTargets(options);
    // Requests gather between rounds. Choosing among them reads the whole registry, which is too much ten times a second.
    const turn = turnOf(options.redis);
    if ((await isTurnTaken(...turn)) || (await isBackupRestored(options.redis))) return 0;
    const chosen = await chooseRequests(options);
    if (chosen.waitsForServers) options.onServersAwaited?.();
    ids = chosen.requests.map((request) => request.deletion_request_id);
    if (ids.length === 0 && !(await isErasureDue(options))) return 0;
    if (!(await takeTurn(...turn))) return 0;
    const done = await withMaintenanceLock(options.redis, 'round', async () => {
      // The restore may have begun after the requests were chosen, and changed them.
      if (await isBackupRestored(options.redis)) return 0;
      await assertCurrent(options.redis, options.clickhouse);
      await resumeAfterCrash(options);
      const completed = ids.length === 0 ? 0 : await deleteTogether(options, chosen);
      return completed + (await eraseMasked(options));
    });
    return done === 'locked' ? 0 : done;
  } catch (error) {
    // Another worker has continued with its requests.
    if (error instanceof ConcurrentUpdate) return 0;
    const state = stateOfFault(error);
    options.log.error(
      { requests: ids.length, state, error: describeError(error) },
      'a round of deletions failed',
    );
    await noteFailure(options, ids, state).catch((cause: unknown) =>
      options.log.warn({ error: describeError(cause) }, 'the reason could not be written'),
    );
    throw error;
  }
}

function turnOf(redis: Redis) {
  return [redis, registryKeys.deletionRound, deletionRounds.everyMs] as const;
}

/** Whether a restore is about to exchange the tables that a round would empty. */
async function isBackupRestored(redis: Redis): Promise<boolean> {
  return (await redis.exists(registryKeys.restoringBackup)) === 1;
}

/**
 * Copies what must outlive an emptied Redis: first the new requests, then their targets. So a request that is known after a
 * loss has lost its targets only if Redis was emptied between the two.
 */
async function keepNewTargets({ redis, clickhouse, crash }: RoundOptions): Promise<void> {
  if ((await redis.scard(registryKeys.deletionsAwaitingTargetCopy)) === 0) return;
  await mirrorDeletions(redis, clickhouse, crash);
  await keepTargets(redis, clickhouse);
  crash('targets_kept');
}

async function deleteTogether(
  options: RoundOptions,
  { requests, environments }: ChosenRequests,
): Promise<number> {
  const { clickhouse, log } = options;
  const { stepMs, endStep } = startSteps();
  await dropTablesEverywhere(clickhouse);

  // Requests that were verified before a crash only have targets left to remove.
  const verified = requests.filter((request) => request.verified_at !== undefined);
  await finish(options, verified);
  const unverified = requests.filter((request) => request.verified_at === undefined);
  if (unverified.length === 0) return verified.length;
  await assertRoomEverywhere(clickhouse);
  const begun = await noteBegin(options, unverified);

  const resolved = await resolve(options, begun, environments);
  await update(options, resolved, () => ({ resolved: true, state: 'deleting' }));
  endStep('resolve');
  const round: Round = { ...resolved, reached: await countReached(options, resolved) };
  endStep('count');
  options.crash('found_recorded');

  if ([...round.reached.values()].some((appIds) => appIds.length > 0)) await giveWay(options);
  for (const place of userTables) {
    await emptyPlace(options, round, place);
    endStep(place);
    await keepNewTargets(options);
  }
  options.crash('places_emptied');
  await update(options, round, () => ({ state: 'verifying' }));
  const onDisk = await verify(options, round);
  endStep('verify');
  const hidden = requestsOf(round, (number) => onDisk.has(number));
  await noteHidden(options, hidden);
  endStep('hide');
  const completed = await complete(
    options,
    requestsOf(round, (number) => !onDisk.has(number)),
  );
  endStep('complete');
  log.info(
    { requests: round.requests.size, hidden: hidden.requests.size, stepMs },
    'a round of deletions is done',
  );
  return verified.length + completed;
}

/** Erases in passes what rounds have masked, and completes the requests of which nothing is left on any disk. */
async function eraseMasked(options: RoundOptions): Promise<number> {
  const { redis, clickhouse } = options;
  if (!(await isErasureDue(options))) return 0;
  await assertRoomEverywhere(clickhouse);
  if (await eraseInPasses(options)) {
    // A short one ends before the next round may begin; requests of a longer one are counted by a later round.
    const hasEnded = async () => !(await isPassRunning(clickhouse));
    const isOver = async () => (await hasEnded()) || !(await isTurnTaken(...turnOf(redis)));
    await untilTrue(isOver, { msMax: deletionRounds.everyMs });
    if (!(await hasEnded())) return 0;
  }
  options.crash('erased');
  const completed = await completeErased(options);
  // Another worker may be giving way by now, if this one was paused.
  await runScript(redis, scripts.deleteEqual, [registryKeys.erasurePass], ['1']);
  return completed;
}

async function completeErased(options: RoundOptions): Promise<number> {
  const seen = new Set<string>();
  let completed = 0;
  for (;;) {
    const { requests, environments, waitsForServers } = await chooseRequests(
      options,
      'hiddenDeletions',
      seen,
    );
    if (waitsForServers) options.onServersAwaited?.();
    await dropTablesEverywhere(options.clickhouse);
    if (requests.length === 0) return completed;
    for (const { deletion_request_id } of requests) seen.add(deletion_request_id);
    const round = await resolve(options, requests, environments);
    const onDisk = await verify(options, round);
    completed += await complete(
      options,
      requestsOf(round, (number) => !onDisk.has(number)),
    );
  }
}

/** The end of a round for the requests that still have masked rows on the disk. */
async function noteHidden(options: RoundOptions, round: Resolved): Promise<void> {
  const { redis, clickhouse } = options;
  const requests = [...round.requests.values()];
  if (requests.length === 0) return;
  // What was read before shows them.
  await endExportsOf(redis, clickhouse, requests);
  await noteWanted(redis, requests);
  const now = new Date().toISOString();
  await update(options, round, ({ hidden_at = now }) => ({ state: 'hidden', left: [], hidden_at }));
  options.crash('hidden');
  await dropTablesEverywhere(clickhouse);
}

/** A part of a round. */
function requestsOf({ parts, requests }: Resolved, isWanted: (number: number) => boolean): Resolved {
  return { parts, requests: new Map([...requests].filter(([number]) => isWanted(number))) };
}

/** The end of a round for the requests of which nothing is left. Settles with their number. */
async function complete(options: RoundOptions, round: Resolved): Promise<number> {
  if (round.requests.size === 0) return 0;
  const verified_at = new Date().toISOString();
  const backups_end_at = (await readBackups(options.redis))
    .map(({ keep_until }) => keep_until)
    .sort()
    .at(-1);
  await update(options, round, ({ hidden_at = verified_at }) => ({
    state: 'verifying',
    left: [],
    hidden_at,
    verified_at,
    verified_tables: userTables,
    ...(backups_end_at === undefined ? {} : { backups_end_at }),
  }));
  options.crash('verified');
  await finish(options, [...round.requests.values()]);
  return round.requests.size;
}

/** A round under way: its tables, and its requests as they are in Redis now, by their numbers in the tables. */
type Resolved = { readonly parts: RoundParts; readonly requests: Map<number, DeletionRequest> };
/** The environments in which each place has rows that the round reaches. */
type Round = Resolved & { readonly reached: ReadonlyMap<UserTable, readonly string[]> };

/** The end of verified requests: removes their targets and what Redis noted of slow commands, then marks them complete. */
async function finish(options: RoundOptions, requests: readonly DeletionRequest[]): Promise<void> {
  const { redis, clickhouse, crash, log } = options;
  if (requests.length === 0) return;
  // This comes before the targets are removed: if Redis is emptied now, the restored state must say that they are not needed.
  await mirrorDeletions(redis, clickhouse, crash);
  const ids = requests.map((request) => request.deletion_request_id);
  await keepDeletedUsers(redis, clickhouse, ids);
  await endExportsOf(redis, clickhouse, requests);
  crash('exports_ended');
  await purgeTargets(clickhouse, ids);
  await dropTablesEverywhere(clickhouse);
  await emptySlowLogs(mastersOf(redis), log);
  crash('targets_purged');
  // It may have been set back since the places were counted.
  await assertCurrent(redis, clickhouse);
  const completed_at = new Date().toISOString();
  // An emptied Redis has no callbacks. Copying that state would lose the pending call for good.
  const { callbacks } = await readLoadedRegistry(redis);
  const completed = requests.map(
    (request): DeletionRequest => ({
      ...request,
      status: 'complete',
      state: 'complete',
      completed_at,
      ...(callbacks.has(request.account_id) ? { callback: { state: 'pending', tries: [] } } : {}),
    }),
  );
  await mirrorCompleted(redis, clickhouse, completed);
  crash('completion_copied');
  for (const some of inPieces(completed, deletionRounds.writesAtOnceMax)) {
    await Promise.all(some.map((request) => completeDeletion(redis, request).then(() => crash('completed'))));
  }
  const called = completed.filter(({ callback }) => callback !== undefined);
  await options.onCallbacksDue?.(called.map((request) => request.deletion_request_id));
}

/** A round that begins on a full disk cannot rewrite anything, and only adds to what ClickHouse tries there. */
async function assertRoomEverywhere(clickhouse: ClickHouseClient): Promise<void> {
  const servers = serversOf(clickhouse);
  const there = await reachableServers(servers);
  for (const [number, client] of servers.all.entries())
    if (there.has(number)) await assertRoom(client, 'a round of deletions', deletionRounds.roomBytesMin);
}

/** Drops the tables of all rounds. A server that is away has nothing in its memory when it is back, or is asked by a later round. */
async function dropTablesEverywhere(clickhouse: ClickHouseClient): Promise<void> {
  const servers = serversOf(clickhouse);
  const there = await reachableServers(servers);
  for (const [number, client] of servers.all.entries()) {
    // The home must answer, so it is asked even if it seems to be away.
    if (number === 0 || there.has(number)) await dropRoundTables(client);
  }
}

/** Writes into its requests why a round failed. They may have progressed since the round began, so they are read again. */
async function noteFailure(
  { redis }: RoundOptions,
  requestIds: readonly string[],
  state: DeletionState,
): Promise<void> {
  for (const requestId of requestIds) {
    const request = await readDeletion(redis, requestId);
    // What failed then was to erase its rows, which nobody sees.
    if (request === undefined || request.state === 'hidden') continue;
    await updateDeletion(redis, request, { state }).catch((error: unknown) => {
      // A request that another worker has picked up needs no note from this round; the others do.
      if (!(error instanceof ConcurrentUpdate)) throw error;
    });
  }
}

/** Durations of the steps of a round, for its log entry. */
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
 * Makes the tables of the round, and resolves whom its requests reach. Leaves out requests whose targets ClickHouse lacks,
 * and requests that have to wait for others of the same user.
 */
async function resolve(
  options: RoundOptions,
  unverified: readonly DeletionRequest[],
  environments: readonly Environment[],
): Promise<Resolved> {
  const { redis, clickhouse, shards } = options;
  const parts = await createParts(
    clickhouse,
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
  // A run of retention from which this round took over must not remove what merges users from now on.
  for (const part of parts.all) await endRuns(part.client);
  await distributeUsers(parts);
  const named = await countNamed(clickhouse, parts.home.tables);
  const leftOut = new Set<number>();
  const heldUp = new Set<string>();
  for (const [number, request] of unverified.entries()) {
    const isKept = (named.get(number) ?? 0) >= request.targets;
    if (isKept && !heldUp.has(request.account_id)) continue;
    leftOut.add(number);
    // The users that this request deletes decide which users later requests of the account reach.
    heldUp.add(request.account_id);
    if (isKept) continue;
    // ClickHouse had its targets and lost them, since a backup was restored. The next round copies them from Redis again and
    // resolves their users again. If Redis has none either, the request is lost.
    await updateDeletion(redis, request, { resolved: false, state: 'finding_users' });
    await redis.sadd(registryKeys.deletionsAwaitingTargetCopy, request.deletion_request_id);
  }
  const unresolved = [...unverified.keys()].filter(
    (number) => !unverified[number]?.resolved && !leftOut.has(number),
  );
  const accounts = unverified.map(({ account_id }) => account_id);
  const waiting = await resolveUsers(parts, unresolved, accounts, leftOut);
  options.crash('resolved');
  const requests = new Map(
    [...unverified.entries()].filter(([number]) => !leftOut.has(number) && !waiting.has(number)),
  );
  const resolved = { parts, requests };
  // This is kept now already: a backup that is restored before the request is complete may lack the identifications that
  // merged them.
  await keepDeletedUsers(
    redis,
    clickhouse,
    [...requests.values()].map((request) => request.deletion_request_id),
  );
  return resolved;
}

/**
 * Finds the users that the unresolved requests reach on every server, and keeps them. A request that waits on one server waits on all.
 * Later requests of its account wait too, because they must not delete rows that it still needs. Settles with the requests
 * that wait for the next round.
 */
async function resolveUsers(
  parts: RoundParts,
  unresolved: readonly number[],
  accounts: readonly string[],
  leftOut: ReadonlySet<number>,
): Promise<ReadonlySet<number>> {
  const waiting = new Set<number>();
  for (const { client, tables } of parts.all) {
    for (const request of await findReachedUsers(client, tables, unresolved, accounts, leftOut))
      waiting.add(request);
  }
  if (parts.all.length > 1) {
    for (const earlier of [...waiting])
      for (const request of unresolved)
        if (request > earlier && accounts[request] === accounts[earlier]) waiting.add(request);
  }
  const done = unresolved.filter((request) => !waiting.has(request));
  await gatherUsers(parts, done);
  const { home } = parts;
  if (done.length > 0) await keepResolved(home.client, home.tables, done);
  for (const { client, tables } of parts.all) await fillKeysWithout(client, tables, [...waiting, ...leftOut]);
  return waiting;
}

/**
 * Counts what the round reaches, and records it in the requests that have no count yet, before any of their rows is
 * deleted. Settles with the environments in which each place has such rows.
 */
async function countReached(
  options: RoundOptions,
  round: Resolved,
): Promise<ReadonlyMap<UserTable, readonly string[]>> {
  const { parts } = round;
  const { client: clickhouse, tables } = parts.home;
  const reached = new Map<UserTable, string[]>();
  if ([...round.requests.values()].every((request) => request.found !== undefined)) {
    for (const place of userTables) {
      const left = await Promise.all(parts.all.map((part) => countLeft(part.client, part.tables, place)));
      reached.set(
        place,
        left.flatMap((rows) => [...rows.keys()]),
      );
    }
    return reached;
  }
  for (const part of parts.all) await countReachedRows(part.client, part.tables);
  await gatherCounts(parts, 'reached');
  const found = await readFoundRows(clickhouse, tables);
  for (const part of parts.all) await findSimilarIdentities(part.client, part.tables);
  await gatherCounts(parts, 'alike');
  const uncounted = [...round.requests].filter(([, request]) => request.found === undefined);
  const until = new Date(Date.now() + evidence.keptMs);
  const ids = new Map(uncounted.map(([number, { deletion_request_id }]) => [number, deletion_request_id]));
  const usersFound = await keepEvidence(clickhouse, tables, options.secret, ids, until);
  options.crash('evidence_kept');
  for (const part of parts.all) await forgetCounts(part.client, part.tables);
  const evidence_until = until.toISOString();
  for (const place of userTables) {
    const rows = [...found.values()].flat().filter(({ table }) => table === place);
    reached.set(place, [...new Set(rows.map(({ app_id }) => app_id))]);
  }
  await update(options, round, (request, number) => {
    if (request.found !== undefined) return { left: request.found };
    const rows = found.get(number) ?? [];
    return { found: rows, left: rows, users_found: usersFound.get(number) ?? 0, evidence_until };
  });
  return reached;
}

/** Deletes or masks what the round reaches in one table. When all tables are done, a count shows that nothing is left. */
async function emptyPlace(options: RoundOptions, round: Round, place: UserTable): Promise<void> {
  const appIds = round.reached.get(place) ?? [];
  if (appIds.length === 0) return;
  for (const part of round.parts.all) {
    const here = appIds.filter((appId) => part.appIds.has(appId));
    if (here.length > 0) await emptyPart(options, round, place, part, here);
  }
  await update(options, round, ({ left }) => ({ left: (left ?? []).filter(({ table }) => table !== place) }));
}

/** Deletes or masks what the round reaches in one table of one server. */
async function emptyPart(
  options: RoundOptions,
  round: Round,
  place: UserTable,
  { client: clickhouse, tables }: RoundPart,
  appIds: readonly string[],
): Promise<void> {
  const { crash } = options;
  const { requests } = round;
  const fenceMax = [...requests.values()]
    .flatMap((request) => Object.values(request.fences))
    .reduce((highest, fence) => (BigInt(fence) > BigInt(highest) ? fence : highest), '0');
  const predicate = mutationPredicate(tables, appIds, fenceMax);
  const mutation = { table: place, mark: tables.mark };
  await update(options, round, (request) => ({ mutations: [...request.mutations, mutation] }));
  // A repeat of a deleted record must never be stored. So its key goes into the index first: once the row is gone, nothing
  // else shows the repeat.
  await indexKeysOf(clickhouse, place, predicate);
  await noteTaken(clickhouse, place, predicate, 'deleted');
  crash('keys_kept');
  crash('before_mutation');
  await deleteOrMask(clickhouse, place, predicate, tables.mark, options.erasure.atOnceBytesMax);
  crash('after_mutation');
  const idOf = await findMutationIds(clickhouse, round);
  await update(options, round, ({ mutations }) => ({
    mutations: mutations.map((each) => ({ ...each, ...idOf(each) })),
  }));
}

type Issued = DeletionRequest['mutations'][number];

/** Finds the ids of mutations that have none yet, also where a crash came before an id was written. */
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
 * Looks into every place after all mutations, since a crash may lose a mutation that was reported as done. Settles with the requests of
 * which masked rows are on a disk. Rejects with MutationFailed when queries still show something; the requests then say what.
 */
async function verify(options: RoundOptions, round: Resolved): Promise<ReadonlySet<number>> {
  const left: FoundRows[] = [];
  const onDisk = new Set<number>();
  for (const { client } of round.parts.all) await untilNoRetryRuns(client);
  for (const place of userTables) {
    for (const { client, tables } of round.parts.all) {
      const found = await readOnDisk(client, tables, place);
      for (const number of found.keys()) onDisk.add(number);
      if (![...found.values()].some(({ isShown }) => isShown)) continue;
      for (const [app_id, rows] of await countLeft(client, tables, place))
        left.push({ app_id, table: place, rows });
    }
  }
  if (left.length === 0) {
    await compareAgain(options.clickhouse, round);
    return onDisk;
  }
  // From then on they are not hidden.
  await update(options, round, () => ({ left, hidden_at: undefined, state: 'mutation_failed' }));
  const places = new Set(left.map(({ table }) => table));
  throw new MutationFailed(`rows are left in ${[...places].join(', ')} after the mutations`);
}

/** Rejects if a URL now leads to another server, which would hold nothing of the round's users. */
async function compareAgain(clickhouse: ClickHouseClient, { parts }: Resolved): Promise<void> {
  const servers = serversOf(clickhouse);
  if (servers.table() === undefined) return;
  for (const { client } of parts.all) await servers.compare(servers.all.indexOf(client));
}

/**
 * Sets waiting requests to `finding_users`; settles with all of them as they are now. Why an attempt failed stays in a request
 * until the next one gets further.
 */
async function noteBegin(
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
async function update(
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

function stateOfFault(error: unknown): DeletionState {
  if (error instanceof NoRoom || codeOfFault(error) === faultCodes.notEnoughSpace) return 'no_room';
  if (error instanceof MutationFailed) return 'mutation_failed';
  return isConnectionFault(error) ? 'clickhouse_unavailable' : 'failed';
}
