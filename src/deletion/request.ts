// Deletion requests: their documents, and reading and writing them in Redis. A document holds no identity, so
// that it can stay as the evidence when the data is gone.

import { StateNotLoaded } from '../accounts/registry.js';
import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import { valuesOf } from '../redis/transactions.js';
import type { Target } from './targets.js';

export type DeletionRequest = {
  readonly deletion_request_id: string;
  readonly account_id: string;
  /** Which key asked: its environment and when it was created. */
  readonly app_id: string;
  readonly key_created_at: string;
  readonly submitted_at: string;
  /** How many distinct users were named. */
  readonly targets: number;
  /** For each shard the highest segment number given before the submission was answered. */
  readonly fences: Readonly<Record<string, string>>;
  readonly status: 'pending' | 'complete';
  /** Counts the writes of its progress, so that a worker that another one overtook writes nothing. */
  readonly revision?: number;
  /** What a pending request is doing or waiting for. */
  readonly state: DeletionState;
  /** ClickHouse has the targets, so that they outlive an emptied Redis. */
  readonly targets_kept?: true;
  /** The users are resolved and kept; they are not resolved again. */
  readonly resolved: boolean;
  /** Rows found, by environment and table, before any was deleted; undefined until they were counted. */
  readonly found?: readonly FoundRows[];
  /** Rows of those that are left, by environment and table, while it runs. */
  readonly left?: readonly FoundRows[];
  /** Every mutation that was issued, by the mark in its text; its id once it is known. */
  readonly mutations: readonly {
    readonly table: string;
    readonly mark: string;
    readonly mutation_id?: string;
  }[];
  /** When every place was counted and held nothing. */
  readonly verified_at?: string;
  readonly completed_at?: string;
  /** When an administrator ended it, not carried out. */
  readonly ended_at?: string;
};

export type FoundRows = { readonly app_id: string; readonly table: string; readonly rows: number };

/**
 * `waiting_for_backlog`: records acknowledged before it are not in ClickHouse yet. `targets_lost`: Redis was
 * emptied before ClickHouse had them; it is never carried out, and its caller has to submit again. `ended`: so it was,
 * and an administrator ended it. The last three say why the last attempt ended; another one follows.
 */
export type DeletionState =
  | 'submitted'
  | 'waiting_for_backlog'
  | 'deleting'
  | 'verifying'
  | 'complete'
  | 'targets_lost'
  | 'ended'
  | 'clickhouse_unavailable'
  | 'mutation_failed'
  | 'failed';

export function pendingMember(request: DeletionRequest): string {
  return `${request.account_id} ${request.deletion_request_id}`;
}

/**
 * A request by its id. Throws StateNotLoaded when Redis was emptied: then it knows none, and that one is unknown means
 * nothing.
 */
export async function readDeletion(redis: Redis, requestId: string): Promise<DeletionRequest | undefined> {
  const replies = await redis
    .multi()
    .exists(registryKeys.epoch)
    .hget(registryKeys.deletions, requestId)
    .exec();
  const [isLoaded, text] = valuesOf(replies);
  if (isLoaded === 0) throw new StateNotLoaded();
  return text === null ? undefined : (JSON.parse(text as string) as DeletionRequest);
}

/** Requests by their ids, in their order; one that Redis does not have is left out. */
export async function readDeletions(redis: Redis, ids: readonly string[]): Promise<DeletionRequest[]> {
  if (ids.length === 0) return [];
  const texts = await redis.hmget(registryKeys.deletions, ...ids);
  return texts.flatMap((text) => (text === null ? [] : [JSON.parse(text) as DeletionRequest]));
}

export type PendingMember = { readonly accountId: string; readonly requestId: string };

/**
 * The pending requests, the oldest first. Read in one step with the epoch: an emptied Redis has none either, and
 * whoever took that for the truth would forget whom they name. Throws StateNotLoaded when the epoch is another one.
 */
export async function readPendingMembers(redis: Redis, epoch: string): Promise<PendingMember[]> {
  const replies = await redis
    .multi()
    .get(registryKeys.epoch)
    .zrange(registryKeys.pendingDeletions, '0', '-1')
    .exec();
  const [found, members] = valuesOf(replies);
  if (found !== epoch) throw new StateNotLoaded();
  return (members as string[]).map(memberOfText);
}

function memberOfText(text: string): PendingMember {
  const gap = text.indexOf(' ');
  return { accountId: text.slice(0, gap), requestId: text.slice(gap + 1) };
}

/** What an observer sees of the pending requests; nobody decides by it. */
export async function observePending(
  redis: Redis,
): Promise<{ pending: DeletionRequest[]; lostCount: number }> {
  const [members, lostCount] = await Promise.all([
    redis.zrange(registryKeys.pendingDeletions, '0', '-1'),
    redis.zcard(registryKeys.lostDeletions),
  ]);
  const ids = members.map((member) => memberOfText(member).requestId);
  return { pending: await readDeletions(redis, ids), lostCount };
}

/** All requests, the newest first. */
export async function listDeletions(redis: Redis, countMax: number): Promise<DeletionRequest[]> {
  const texts = await redis.hvals(registryKeys.deletions);
  return texts
    .map((text) => JSON.parse(text) as DeletionRequest)
    .sort((a, b) => b.submitted_at.localeCompare(a.submitted_at))
    .slice(0, countMax);
}

/** The text of a pending request's targets; empty when Redis does not have them (any more). */
export async function readDeletionTargets(redis: Redis, requestId: string): Promise<string> {
  return (await redis.get(registryKeys.deletionTargets(requestId))) ?? '';
}

/** The targets that a text of them tells; undefined unless they are as many as the request has. */
export function targetsOfText(request: DeletionRequest, text: string): Target[] | undefined {
  if (text === '') return undefined;
  const targets = JSON.parse(text) as Target[];
  return targets.length === request.targets ? targets : undefined;
}

/** Somebody else has written the progress of a request, or ended it, since it was read. */
export class Overtaken extends Error {}

/** Writes progress. Settles with the changed document; throws Overtaken, having written nothing. */
export async function updateDeletion(
  redis: Redis,
  request: DeletionRequest,
  changes: Partial<DeletionRequest>,
): Promise<DeletionRequest> {
  const changed = { ...request, ...changes, revision: (request.revision ?? 0) + 1 };
  const written = await runScript(
    redis,
    scripts.updateDeletion,
    [registryKeys.deletions, registryKeys.pendingDeletions, registryKeys.unmirroredDeletions],
    [request.deletion_request_id, JSON.stringify(changed), pendingMember(request), changed.revision],
  );
  if (Number(written) === 0) throw new Overtaken('another worker has gone on with this deletion');
  return changed;
}

/** Marks a request complete, which ClickHouse knows by now, and forgets its targets. */
export async function completeDeletion(redis: Redis, request: DeletionRequest): Promise<void> {
  await runScript(
    redis,
    scripts.completeDeletion,
    [
      registryKeys.deletions,
      registryKeys.pendingDeletions,
      registryKeys.deletionTargets(request.deletion_request_id),
      registryKeys.rewriteWanted,
    ],
    [request.deletion_request_id, JSON.stringify(request), pendingMember(request)],
  );
}

/** Notes that nobody has the targets of a request; it is not pending any longer. `seen`: what Redis has of them. */
export async function loseTargets(redis: Redis, request: DeletionRequest, seen: string): Promise<void> {
  const lost: DeletionRequest = { ...request, state: 'targets_lost' };
  await runScript(
    redis,
    scripts.loseDeletionTargets,
    [
      registryKeys.deletions,
      registryKeys.pendingDeletions,
      registryKeys.lostDeletions,
      registryKeys.unmirroredDeletions,
      registryKeys.unkeptDeletions,
      registryKeys.deletionTargets(request.deletion_request_id),
    ],
    [request.deletion_request_id, JSON.stringify(lost), pendingMember(request), seen],
  );
}

/** Ends a request whose targets are lost; settles with it, or with undefined when they are not lost. */
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
      registryKeys.unmirroredDeletions,
      registryKeys.deletionTargets(request.deletion_request_id),
    ],
    [request.deletion_request_id, JSON.stringify(ended), pendingMember(request)],
  );
  return Number(written) === 1 ? ended : undefined;
}
