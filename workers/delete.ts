// One round of deletions. It picks requests of all accounts in turn and takes them through the same steps together, so that they
// share one mutation per table. Every step may be repeated. If a round is cut off, its requests stay pending and the next round
// continues with them. In large tables a round only masks rows, and its requests are hidden until the masked rows are erased
// (erase.ts). A request is complete only when every table, masked rows included, was counted and holds nothing up to its fence.
// Nothing can come back after that, since every segment up to the fence is stored. If ClickHouse refuses a step, the round goes on with
// fewer accounts, and an account that was refused alone stays out of the following rounds of others. The steps are in round/.

import { rotatedAtRandom } from '../src/batches.js';
import { endLong } from '../src/clickhouse/long-statement.js';
import { serversOf } from '../src/clickhouse/servers.js';
import type { DeletionState } from '../src/contract/deletion-states.js';
import { StateNotLoaded } from '../src/contract/errors.js';
import { type ChosenRequests, chooseRequests } from '../src/privacy/deletion/choose-requests.js';
import { keepTargets } from '../src/privacy/deletion/kept-targets.js';
import { withMaintenanceLock } from '../src/privacy/deletion/maintenance-lock.js';
import { isRefusal, leaveOutStuck, stateOfFault } from '../src/privacy/deletion/obstacles.js';
import {
  type DeletionRequest,
  isConcurrentUpdate,
  readDeletion,
  readDeletions,
  updateDeletion,
} from '../src/privacy/deletion/request.js';
import { namePrefix } from '../src/privacy/deletion/round-tables.js';
import { userTables } from '../src/privacy/deletion/user-tables.js';
import { endExportsOf } from '../src/privacy/export/end.js';
import type { Redis } from '../src/redis/client.js';
import { registryKeys } from '../src/redis/keys.js';
import { isTurnTaken, takeTurn } from '../src/redis/lease.js';
import type { Environment } from '../src/registry/documents.js';
import { copyChanges, kindsOfCopies } from '../src/registry/outbox.js';
import { assertCurrent } from '../src/registry/witness.js';
import { deletionRounds } from '../src/tuning.js';
import { succeeds, untilTrue } from '../src/wait.js';
import { eraseInPasses, interruptPass, isErasureDue, isPassRunning, mayEraseAtOnce } from './erase.js';
import { countReached, verify } from './round/count.js';
import { complete, finish, markHidden } from './round/finish.js';
import { removeFrom } from './round/remove.js';
import { resolve } from './round/resolve.js';
import {
  clearServers,
  dropTablesEverywhere,
  environmentsOf,
  type LockedOptions,
  markStarted,
  type Round,
  type RoundOptions,
  requestsOf,
  update,
} from './round/round.js';

/**
 * Runs a round. Settles with the number of requests that it completed. Rejects when ClickHouse or Redis fails, after writing the
 * reason into the requests; what ClickHouse refuses of an account fails for that account only. Call it again while requests are
 * pending.
 */
export async function runDeletionRound(options: RoundOptions): Promise<number> {
  const refusal = await tryToKeepTargets(options);
  const completed = await deleteInTurn(options);
  // Only now, so that new requests whose targets ClickHouse refuses hold up no others.
  if (refusal !== undefined) throw refusal;
  return completed;
}

/** Keeps new targets. If ClickHouse refuses them, settles with the error after writing the reason into their requests. */
async function tryToKeepTargets(options: RoundOptions): Promise<unknown> {
  try {
    await keepNewTargets(options);
    return undefined;
  } catch (error) {
    const ids = await options.redis.smembers(registryKeys.deletionsAwaitingTargetCopy).catch(() => []);
    await reportFailure(options, ids, error);
    if (!isRefusal(options, error)) throw error;
    return error;
  }
}

/** Works on pending requests, unless the last round began too recently. */
async function deleteInTurn(options: RoundOptions): Promise<number> {
  let ids: readonly string[] = [];
  try {
    // Requests gather between rounds. Choosing among them reads the whole registry, which is too expensive ten times a second.
    const { redis } = options;
    if (await isTurnTaken(...turnOf(redis))) return 0;
    const chosen = await chooseRequests(options);
    if (chosen.waitsForServers) options.onServersAwaited?.();
    ids = idsOf([chosen.requests, ...chosen.refusedBefore].flat());
    // A round that only erases takes a turn of its own, so that requests that are submitted meanwhile need not wait.
    const turn = turnOf(redis, ids.length > 0 ? 'deletionRound' : 'erasureTurn');
    if (ids.length === 0 && ((await isTurnTaken(...turn)) || !(await isErasureDue(options)))) return 0;
    if (!(await takeTurn(...turn))) return 0;
    const done = await withMaintenanceLock(redis, 'round', async ({ isHeld }) => {
      await assertCurrent(redis, options.clickhouse);
      return deleteAndErase({ ...options, isHeld }, chosen).catch(async (error: unknown) => {
        // An emptied Redis has lost the lock too.
        if (error instanceof StateNotLoaded || (await isHeld())) throw error;
        // Another worker has dropped the round's tables, and continues with its requests.
        return 0;
      });
    });
    if (done !== 'locked') return done;
    if ((await redis.exists(registryKeys.restoringBackup)) === 1) options.onRestoreAwaited?.();
    return 0;
  } catch (error) {
    // Another worker has continued with its requests.
    if (isConcurrentUpdate(error)) return 0;
    await reportFailure(options, ids, error);
    throw error;
  }
}

async function deleteAndErase(
  options: LockedOptions,
  { requests, refusedBefore, environments }: ChosenRequests,
): Promise<number> {
  let completed = 0;
  const work = (group: readonly DeletionRequest[]) =>
    tryApart(options, group, 1, async (some) => {
      completed += await deleteTogether(options, some, environments);
    });
  for (const accountId of await work(requests)) options.refused?.add(accountId);
  // Each of these accounts may be refused again, which delays newer requests. So the round ends with the first that is refused.
  for (const alone of rotatedAtRandom(refusedBefore)) {
    const isRefused = (await work(alone)).length > 0;
    if (!isRefused) for (const { account_id } of alone) options.refused?.delete(account_id);
    if (isRefused || !(await isTurnTaken(...turnOf(options.redis)))) break;
  }
  return completed + (await eraseMasked(options));
}

/**
 * Works on requests together. If ClickHouse refuses them, splits their accounts into halves until an account is refused alone; its requests
 * get the reason. After `refusedMax` such accounts, a refused group of several is left to the next rounds, since ClickHouse may refuse
 * everybody. Settles with the accounts refused alone, after all groups or when `work` says that it is over.
 */
async function tryApart(
  options: LockedOptions,
  requests: readonly DeletionRequest[],
  refusedMax: number,
  work: (requests: readonly DeletionRequest[]) => Promise<'over' | undefined>,
): Promise<readonly string[]> {
  const groups = requests.length === 0 ? [] : [requests];
  const refused: string[] = [];
  for (let group = groups.pop(); group !== undefined; group = groups.pop()) {
    try {
      if ((await work(group)) === 'over') break;
    } catch (error) {
      // The tables of a round that was overtaken are gone, which is no refusal.
      if (!isRefusal(options, error) || !(await options.isHeld())) throw error;
      logFailure(options, group.length, error);
      const accounts = rotatedAtRandom([...new Set(group.map(({ account_id }) => account_id))]);
      if (accounts.length === 1) {
        refused.push(accounts[0] as string);
        await writeFailure(options, idsOf(group), stateOfFault(error));
      } else if (refused.length < refusedMax) {
        const half = new Set(accounts.slice(0, accounts.length / 2));
        const left = await readStillPending(options, group);
        const halves = [true, false].map((isIn) =>
          left.filter(({ account_id }) => half.has(account_id) === isIn),
        );
        groups.push(...halves.filter(({ length }) => length > 0));
      }
    }
  }
  return refused;
}

/** Reads the requests that are still pending, as they are now: they may have progressed before ClickHouse refused something. */
async function readStillPending(
  { redis }: RoundOptions,
  requests: readonly DeletionRequest[],
): Promise<DeletionRequest[]> {
  const wereHidden = requests[0]?.state === 'hidden';
  const now = await readDeletions(redis, idsOf(requests));
  return now.filter(({ status, state }) => status === 'pending' && (state === 'hidden') === wereHidden);
}

function idsOf(requests: readonly DeletionRequest[]): string[] {
  return requests.map(({ deletion_request_id }) => deletion_request_id);
}

function logFailure({ log }: RoundOptions, requests: number, error: unknown): void {
  log.error({ requests, state: stateOfFault(error), error }, 'a round of deletions failed');
}

function turnOf(redis: Redis, which: 'deletionRound' | 'erasureTurn' = 'deletionRound') {
  return [redis, registryKeys[which], deletionRounds.everyMs] as const;
}

/** Whether requests are ready whose round may begin. */
async function isRoundDue(options: RoundOptions): Promise<boolean> {
  const { redis } = options;
  if (await isTurnTaken(...turnOf(redis))) return false;
  if ((await redis.zcard(registryKeys.pendingDeletions)) === 0) return false;
  await keepNewTargets(options).catch((error: unknown) => {
    // The next round reports it; other requests may be ready.
    if (!isRefusal(options, error)) throw error;
  });
  return (await chooseRequests(options)).requests.length > 0;
}

/**
 * Copies to ClickHouse what must survive a loss of Redis: first the new requests, then their targets. So a request that survives
 * such a loss lacks its targets only if Redis was emptied between the two.
 */
async function keepNewTargets({ redis, clickhouse, crash }: RoundOptions): Promise<void> {
  if ((await redis.scard(registryKeys.deletionsAwaitingTargetCopy)) === 0) return;
  await copyChanges(redis, clickhouse, { kind: kindsOfCopies.deletion, crash });
  await keepTargets(redis, clickhouse);
  crash('targets_kept');
}

async function deleteTogether(
  options: LockedOptions,
  requests: readonly DeletionRequest[],
  environments: readonly Environment[],
): Promise<number> {
  const { clickhouse, log } = options;
  const { stepMs, endStep } = startSteps();
  const unverified = requests.filter((request) => request.verified_at === undefined);
  await clearServers(options, environmentsOf(unverified, environments));

  // For requests that were verified before a crash only the targets remain to be removed.
  const verified = requests.filter((request) => request.verified_at !== undefined);
  await finish(options, verified);
  if (unverified.length === 0) return verified.length;
  const begun = await markStarted(options, unverified);

  const resolved = await resolve(options, begun, environments);
  await update(options, resolved, () => ({ resolved: true, state: 'deleting' }));
  endStep('resolve');
  const round: Round = {
    ...resolved,
    reached: await countReached(options, resolved),
    mayEraseAtOnce: await mayEraseAtOnce(options),
  };
  endStep('count');
  options.crash('found_recorded');

  // From here on an export that was asked for earlier would lack rows but look complete, so it ends. Requests that are hidden already end
  // none: an export that was asked for since then is of users who came back.
  const removing = [...round.requests.values()].filter(({ hidden_at }) => hidden_at === undefined);
  await endExportsOf(options.redis, clickhouse, removing);
  options.crash('exports_ended');

  if ([...round.reached.values()].some((appIds) => appIds.length > 0))
    await interruptPass(
      options,
      round.parts.all.map(({ client }) => client),
    );
  for (const table of userTables) {
    await removeFrom(options, round, table);
    endStep(table);
    await tryToKeepTargets(options);
  }
  options.crash('places_emptied');
  await update(options, round, () => ({ state: 'verifying' }));
  const onDisk = await verify(options, round);
  endStep('verify');
  const hidden = requestsOf(round, (number) => onDisk.has(number));
  await markHidden(options, hidden);
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

/** Erases in passes what rounds have masked, and completes the requests that have nothing left on any disk. */
async function eraseMasked(options: LockedOptions): Promise<number> {
  const { redis } = options;
  if (!(await isErasureDue(options))) return 0;
  if (await eraseInPasses(options)) {
    // A short pass ends before the next round may begin; a later round counts the requests of a longer pass.
    const hasEnded = async () => !(await isPassRunning(options));
    const endedOrNextRoundDue = async () => (await hasEnded()) || !(await isTurnTaken(...turnOf(redis)));
    await untilTrue(endedOrNextRoundDue, { msMax: deletionRounds.everyMs });
    if (!(await hasEnded())) return 0;
  }
  options.crash('erased');
  return completeErased(options);
}

/** How soon counting notices that a round is due. While only requests that are not ready wait, each look may read the whole registry. */
const roundLooksEveryMs = 500;

/** Accounts that may be refused alone before the others are left to the next round: ClickHouse may refuse everybody. */
const refusedCountsMax = 5;

/**
 * Completes the requests whose rows are erased, and settles with their number. A count makes way at once for users who wait to be hidden, and
 * a later round continues with it. Then it is late, and makes way again only after the oldest requests: if it has completed none of them,
 * the pass was interrupted early, and the next one does not wait for the others to be counted.
 */
async function completeErased(options: LockedOptions): Promise<number> {
  const { redis } = options;
  const wasLate = (await redis.get(registryKeys.erasurePass)) === 'late';
  const makesWay = async () => !wasLate && (await isRoundDue(options));
  const seen = new Set<string>();
  let completed = 0;
  /** What a later round finds of this count: nothing if it is over. Undefined while it goes on. */
  let left = undefined as '' | '1' | 'late' | undefined;
  while (left === undefined) {
    const { requests, environments, waitsForServers } = await chooseRequests(
      { ...options, refused: new Set() },
      'hiddenDeletions',
      seen,
    );
    if (waitsForServers) options.onServersAwaited?.();
    if (requests.length === 0) {
      await dropTablesEverywhere(options);
      break;
    }
    for (const { deletion_request_id } of requests) seen.add(deletion_request_id);
    const refused = await tryApart(options, requests, refusedCountsMax, async (group) => {
      const counted = await unlessOver(options, makesWay, async () => {
        await clearServers(options, environmentsOf(group, environments));
        const round = await resolve(options, group, environments);
        return { round, onDisk: await verify(options, round) };
      });
      if (counted === 'over') {
        left = 'late';
        return 'over';
      }
      const { round, onDisk } = counted;
      completed += await complete(
        options,
        requestsOf(round, (number) => !onDisk.has(number)),
      );
      if (!(await isRoundDue(options))) return undefined;
      left = completed > 0 ? '1' : wasLate ? '' : 'late';
      return 'over';
    });
    if (refused.length < refusedCountsMax) continue;
    // If none was completed, the next pass must not wait for these requests.
    if (completed === 0) break;
    left = '1';
  }
  await (left ? redis.set(registryKeys.erasurePass, left) : redis.del(registryKeys.erasurePass));
  return completed;
}

/**
 * Runs `work`. Once `isOver`, ends the statements of rounds under way; settles with `over` if `work` fails because of that. Afterwards nothing
 * is being ended any more: the next round's statements have the same names.
 */
async function unlessOver<Result>(
  { clickhouse }: RoundOptions,
  isOver: () => Promise<boolean>,
  work: () => Promise<Result>,
): Promise<Result | 'over'> {
  let [hasEnded, over] = [false, false];
  const watching = untilTrue(
    async () => {
      // If Redis fails, so does the work.
      over ||= await isOver().catch(() => false);
      if (over && !hasEnded)
        await Promise.all(serversOf(clickhouse).all.map((client) => endLong(client, [namePrefix])));
      return hasEnded;
    },
    { everyMs: roundLooksEveryMs, msMax: Number.POSITIVE_INFINITY },
  );
  try {
    return await work();
  } catch (error) {
    if (over) return 'over';
    throw error;
  } finally {
    hasEnded = true;
    await watching;
  }
}

/** Logs why work on these requests failed, and writes the reason into them if possible. */
async function reportFailure(options: RoundOptions, ids: readonly string[], error: unknown): Promise<void> {
  logFailure(options, ids.length, error);
  await leaveOutStuck(options, error)
    .then(() => writeFailure(options, ids, stateOfFault(error)))
    .catch((cause: unknown) =>
      options.log.warn({ error: cause }, 'the reason could not be written into the requests'),
    );
}

/** Writes the reason of a failed round into its requests. They may have progressed since it began, so they are read again. */
async function writeFailure(
  { redis }: RoundOptions,
  requestIds: readonly string[],
  state: DeletionState,
): Promise<void> {
  for (const requestId of requestIds) {
    const request = await readDeletion(redis, requestId);
    // If it is hidden, only the erasing of its rows has failed, and no query shows them.
    if (request === undefined || ['hidden', state].includes(request.state)) continue;
    // A request that another worker has picked up does not need this round's reason; the others do.
    await succeeds(updateDeletion(redis, request, { state }), isConcurrentUpdate);
  }
}
