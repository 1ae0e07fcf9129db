// Deletion requests: their documents, and reading and writing them in Redis. A document has no identities, so it can stay as evidence
// when the data is gone.

import { inBatches } from '../../batches.js';
import { type DeletionState, isStuck } from '../../contract/deletion-states.js';
import { StateNotLoaded } from '../../contract/errors.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { transactionValues } from '../../redis/transactions.js';
import { readLoaded } from '../../registry/registry.js';
import { deletionRounds } from '../../tuning.js';
import { succeeds } from '../../wait.js';
import type { CallbackProgress } from './callback-call.js';
import type { Target, TargetList } from './targets.js';

export type DeletionRequest = {
  readonly deletion_request_id: string;
  readonly account_id: string;
  /** The caller's API key: its environment, and when it was created. */
  readonly app_id: string;
  readonly key_created_at: string;
  /** Only without an API key: a person in the console, or a program. Then `app_id` is the main environment. */
  readonly submitted_by?: 'person' | 'admin_token' | 'program_key';
  readonly submitted_at: string;
  /** The caller's own name for the request. */
  readonly reference?: string;
  /** Its rows are erased at once, whatever that costs. */
  readonly erase?: 'now';
  /** How many distinct users were named. */
  readonly targets: number;
  /** The weight of their list (`weightOfList`). */
  readonly weight: number;
  /** For each shard the highest segment number that was in use before the submission was answered. */
  readonly fences: Readonly<Record<string, string>>;
  readonly status: 'pending' | 'complete';
  /** Counts the updates of its progress, so that a worker writes nothing after another one has taken over. */
  readonly revision?: number;
  /** What a pending request is doing or waiting for. */
  readonly state: DeletionState;
  /** ClickHouse has the targets, so they survive a loss of Redis. */
  readonly targets_kept?: true;
  /** The users are resolved and stored, and will not be resolved again. */
  readonly resolved: boolean;
  /** Rows found before any was deleted, by environment and table; undefined until they are counted. */
  readonly found?: readonly FoundRows[];
  /** How many of the named users had rows; known with `found`. */
  readonly users_found?: number;
  /** Until when the counts of each named user are kept; known with `found`. */
  readonly evidence_until?: string;
  /** When queries stopped showing any of its rows. */
  readonly hidden_at?: string | undefined;
  /** How many of the found rows are left while a round runs, by environment and table. */
  readonly left?: readonly FoundRows[];
  /** The latest mutations of each table, with the mark in their text, and their ids once these are known. */
  readonly mutations: readonly {
    readonly table: string;
    readonly mark: string;
    readonly mutation_id?: string;
  }[];
  /** When every table was counted and none had a row left. */
  readonly verified_at?: string;
  /** The tables that were counted at that time. */
  readonly verified_tables?: readonly string[];
  readonly completed_at?: string;
  /** When the last of the backups that existed at completion ends: until then a backup may still have the users. */
  readonly backups_end_at?: string;
  /** Only if its account had a callback when the request was completed. */
  readonly callback?: CallbackProgress;
  /** When an administrator ended the request without carrying it out. */
  readonly ended_at?: string;
};

export type FoundRows = { readonly app_id: string; readonly table: string; readonly rows: number };

export function pendingMember(request: DeletionRequest): string {
  return `${request.account_id} ${request.deletion_request_id}`;
}

/**
 * A request by its id. Throws StateNotLoaded when Redis was emptied: then it has no requests, and a missing one means nothing.
 */
export async function readDeletion(redis: Redis, requestId: string): Promise<DeletionRequest | undefined> {
  const [text] = await readLoaded(redis, (transaction) =>
    transaction.hget(registryKeys.deletions, requestId),
  );
  return text === null ? undefined : (JSON.parse(text as string) as DeletionRequest);
}

/** Requests by their ids, in the order of the ids; requests that Redis does not have are missing. */
export async function readDeletions(redis: Redis, ids: readonly string[]): Promise<DeletionRequest[]> {
  const requests: DeletionRequest[] = [];
  for (const some of inBatches(ids, requestsPerRead)) {
    const texts = await redis.hmget(registryKeys.deletions, ...some);
    for (const text of texts) if (text !== null) requests.push(JSON.parse(text) as DeletionRequest);
  }
  return requests;
}

/** Bounds how long other callers of Redis wait: this many requests are about a megabyte. */
const requestsPerRead = 1_000;

export type PendingMember = { readonly accountId: string; readonly requestId: string };

/**
 * The requests that are pending both at the call and when they are read, from the oldest. Checks the epoch as it reads: an emptied Redis
 * has no pending requests, and a caller that believed this would drop the targets of all of them. Throws StateNotLoaded when the epoch is
 * not `epoch`. Hidden requests are in another list.
 */
export async function readPendingMembers(
  redis: Redis,
  epoch: string,
  list: string = registryKeys.pendingDeletions,
): Promise<PendingMember[]> {
  const members = new Set<string>();
  // From newest to oldest: if Redis is loaded in between, requests get lower scores, so none is missed.
  for (let below = '+inf'; ; ) {
    const replies = await redis
      .multi()
      .get(registryKeys.epoch)
      .zrevrangebyscore(list, below, '-inf', 'WITHSCORES', 'LIMIT', 0, membersPerRead)
      .exec();
    const [found, page] = transactionValues(replies) as [string, string[]];
    if (found !== epoch) throw new StateNotLoaded();
    for (let at = 0; at < page.length; at += 2) members.add(page[at] ?? '');
    if (page.length < 2 * membersPerRead) return [...members].reverse().map(memberOfText);
    below = `(${page.at(-1)}`;
  }
}

/**
 * Pending and hidden requests. Reads one list twice, so that a request that moves between the lists is not missed; so some may be repeated.
 */
export async function readUnfinishedMembers(redis: Redis, epoch: string): Promise<PendingMember[]> {
  const { hiddenDeletions, pendingDeletions } = registryKeys;
  const members: PendingMember[] = [];
  for (const list of [hiddenDeletions, pendingDeletions, hiddenDeletions])
    members.push(...(await readPendingMembers(redis, epoch, list)));
  return members;
}

/** Redis reads this many in less than a millisecond. */
const membersPerRead = 1_000;

function memberOfText(text: string): PendingMember {
  const gap = text.indexOf(' ');
  return { accountId: text.slice(0, gap), requestId: text.slice(gap + 1) };
}

/** The ids of an account's pending requests that are not hidden, in any order. Throws StateNotLoaded when the epoch differs. */
export async function readPendingIds(redis: Redis, epoch: string, accountId: string): Promise<string[]> {
  const [members] = await readLoaded(
    redis,
    (transaction) =>
      transaction.zrangebylex(registryKeys.pendingDeletionsByAccount, `[${accountId} `, `[${accountId}!`),
    epoch,
  );
  return (members as string[]).map((member) => memberOfText(member).requestId);
}

/** The oldest requests of a list. For observers only: an emptied Redis is not noticed, so nothing may be decided from this. */
export async function observeOldest(redis: Redis, list: string, count: number): Promise<DeletionRequest[]> {
  const members = await redis.zrange(list, '0', String(count - 1));
  return readDeletions(
    redis,
    members.map((member) => memberOfText(member).requestId),
  );
}

/** The requests that can never be carried out, until an administrator ends them. */
export async function readLostMembers(redis: Redis): Promise<PendingMember[]> {
  return (await redis.zrange(registryKeys.lostDeletions, '0', '-1')).map(memberOfText);
}

/** The text of a pending request's list of users; empty if Redis does not have it. */
export async function readDeletionTargets(redis: Redis, requestId: string): Promise<string> {
  return (await redis.get(registryKeys.deletionTargets(requestId))) ?? '';
}

/** The targets in such a text, each with its place in the list; undefined unless their number is that in the request. */
export function targetsOfText(request: DeletionRequest, text: string): PlacedTarget[] | undefined {
  if (text === '') return undefined;
  const placed = (JSON.parse(text) as TargetList).flatMap((target, place) =>
    target === '' ? [] : [{ target, place }],
  );
  return placed.length === request.targets ? placed : undefined;
}

export type PlacedTarget = { readonly target: Target; readonly place: number };

/** Another process has changed or ended the request since it was read. */
export class ConcurrentUpdate extends Error {}

export const isConcurrentUpdate = (error: unknown): boolean => error instanceof ConcurrentUpdate;

/** Writes progress. Settles with the changed document, or throws ConcurrentUpdate and has written nothing. */
export async function updateDeletion(
  redis: Redis,
  request: DeletionRequest,
  changes: Partial<DeletionRequest>,
): Promise<DeletionRequest> {
  const [changed] = await updateDeletions(redis, [[request, changes]]);
  return changed as DeletionRequest;
}

/**
 * Writes the progress of many requests, piece by piece. If another process has changed a request, its piece and all later ones are not
 * written, and this throws ConcurrentUpdate.
 */
export async function updateDeletions(
  redis: Redis,
  all: readonly (readonly [request: DeletionRequest, changes: Partial<DeletionRequest>])[],
): Promise<DeletionRequest[]> {
  const changed = all.map(([request, changes]) => {
    const next = { ...request, ...changes, revision: (request.revision ?? 0) + 1 };
    return { next, text: JSON.stringify(next) };
  });
  const { writesAtOnceMax, documentBytesPerWrite } = deletionRounds;
  for (const some of inBatches(changed, writesAtOnceMax, ({ text }) => text.length, documentBytesPerWrite)) {
    const written = await runScript(
      redis,
      scripts.updateDeletions,
      [
        registryKeys.deletions,
        registryKeys.pendingDeletions,
        registryKeys.hiddenDeletions,
        registryKeys.pendingDeletionsByAccount,
        registryKeys.uncopied,
      ],
      some.flatMap(({ next, text }) => [
        next.deletion_request_id,
        text,
        pendingMember(next),
        next.revision,
        next.state === 'hidden' ? 'hidden' : wasHidden(next) ? 'erased' : '',
      ]),
    );
    if (Number(written) === 0) throw new ConcurrentUpdate('another worker continues this deletion');
  }
  return changed.map(({ next }) => next);
}

/** Whether a verified request was hidden first. For callers who asked for something after that, it is over. */
function wasHidden({ hidden_at, verified_at }: DeletionRequest): boolean {
  return verified_at !== undefined && hidden_at !== undefined && hidden_at !== verified_at;
}

/**
 * Changes a pending or hidden request, however often others change it meanwhile. Settles with false if it is over: complete, lost or
 * ended.
 */
export async function updateUnfinished(
  redis: Redis,
  requestId: string,
  changes: Partial<DeletionRequest>,
): Promise<boolean> {
  for (;;) {
    const request = await readDeletion(redis, requestId);
    if (request === undefined || request.status === 'complete' || isStuck(request.state)) return false;
    if (await succeeds(updateDeletion(redis, request, changes), isConcurrentUpdate)) return true;
  }
}

/** Marks a request complete and removes its targets. ClickHouse must already have the complete form. */
export async function completeDeletion(redis: Redis, request: DeletionRequest): Promise<void> {
  await runScript(
    redis,
    scripts.completeDeletion,
    [
      registryKeys.deletions,
      registryKeys.pendingDeletions,
      registryKeys.deletionTargets(request.deletion_request_id),
      registryKeys.rewriteWanted,
      registryKeys.dueCallbacks,
      registryKeys.deletionWeights,
      registryKeys.pendingDeletionsByAccount,
      registryKeys.uncopied,
    ],
    [
      request.deletion_request_id,
      JSON.stringify(request),
      pendingMember(request),
      request.callback === undefined ? '' : '1',
    ],
  );
}

/** Records that a request's targets are lost, so that it is no longer pending. `seen`: the text of its targets that was read in Redis. */
export async function markTargetsLost(redis: Redis, request: DeletionRequest, seen: string): Promise<void> {
  const lost: DeletionRequest = { ...request, state: 'targets_lost' };
  await runScript(
    redis,
    scripts.loseDeletionTargets,
    [
      registryKeys.deletions,
      registryKeys.pendingDeletions,
      registryKeys.lostDeletions,
      registryKeys.uncopied,
      registryKeys.deletionsAwaitingTargetCopy,
      registryKeys.deletionTargets(request.deletion_request_id),
      registryKeys.deletionWeights,
      registryKeys.pendingDeletionsByAccount,
    ],
    [request.deletion_request_id, JSON.stringify(lost), pendingMember(request), seen],
  );
}

/** Ends a request whose targets are lost. Settles with the request, or with undefined if they are not lost. */
export async function endDeletion(
  redis: Redis,
  request: DeletionRequest,
): Promise<DeletionRequest | undefined> {
  const ended: DeletionRequest = { ...request, state: 'ended', ended_at: new Date().toISOString() };
  const written = await runScript(
    redis,
    scripts.endDeletion,
    [
      registryKeys.deletions,
      registryKeys.lostDeletions,
      registryKeys.uncopied,
      registryKeys.deletionTargets(request.deletion_request_id),
    ],
    [request.deletion_request_id, JSON.stringify(ended), pendingMember(request)],
  );
  return Number(written) === 1 ? ended : undefined;
}
