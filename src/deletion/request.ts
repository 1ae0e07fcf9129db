// Deletion requests: their documents, and reading and writing them in Redis. A document holds no identity, so
// that it can stay as the evidence when the data is gone.

import type { Redis } from '../redis/client.js';
import { registryKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
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
  /** What a pending request is doing or waiting for. */
  readonly state: DeletionState;
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
};

export type FoundRows = { readonly app_id: string; readonly table: string; readonly rows: number };

/**
 * `waiting_for_backlog`: records acknowledged before it are not in ClickHouse yet. `targets_lost`: Redis was
 * emptied before ClickHouse had them; submit again. The last three say why the last attempt ended; another one
 * follows.
 */
export type DeletionState =
  | 'submitted'
  | 'waiting_for_backlog'
  | 'deleting'
  | 'verifying'
  | 'complete'
  | 'targets_lost'
  | 'clickhouse_unavailable'
  | 'mutation_failed'
  | 'failed';

export function pendingMember(request: DeletionRequest): string {
  return `${request.account_id} ${request.deletion_request_id}`;
}

/** A request by its id. */
export async function readDeletion(redis: Redis, requestId: string): Promise<DeletionRequest | undefined> {
  const text = await redis.hget(registryKeys.deletions, requestId);
  return text === null ? undefined : (JSON.parse(text) as DeletionRequest);
}

/** Pending requests, the oldest first, until they have `targetsMax` targets together; at least one. */
export async function readPendingDeletions(redis: Redis, targetsMax: number): Promise<DeletionRequest[]> {
  const members = await redis.zrange(registryKeys.pendingDeletions, '0', '-1');
  const requests: DeletionRequest[] = [];
  let targets = 0;
  for (const member of members) {
    const request = await readDeletion(redis, member.slice(member.indexOf(' ') + 1));
    if (request === undefined) continue;
    targets += request.targets;
    if (requests.length > 0 && targets > targetsMax) break;
    requests.push(request);
  }
  return requests;
}

/** All requests, the newest first. */
export async function listDeletions(redis: Redis, countMax: number): Promise<DeletionRequest[]> {
  const texts = await redis.hvals(registryKeys.deletions);
  return texts
    .map((text) => JSON.parse(text) as DeletionRequest)
    .sort((a, b) => b.submitted_at.localeCompare(a.submitted_at))
    .slice(0, countMax);
}

/** The targets of a pending request; undefined when Redis does not have them (any more). */
export async function readDeletionTargets(redis: Redis, requestId: string): Promise<Target[] | undefined> {
  const text = await redis.get(registryKeys.deletionTargets(requestId));
  return text === null ? undefined : (JSON.parse(text) as Target[]);
}

/**
 * Writes progress, unless the request is complete by now, or verified and the progress knows nothing of it. Settles
 * with the changed document.
 */
export async function updateDeletion(
  redis: Redis,
  request: DeletionRequest,
  changes: Partial<DeletionRequest>,
): Promise<DeletionRequest> {
  const changed = { ...request, ...changes };
  await runScript(
    redis,
    scripts.updateDeletion,
    [registryKeys.deletions, registryKeys.pendingDeletions, registryKeys.unmirroredDeletions],
    [request.deletion_request_id, JSON.stringify(changed), pendingMember(request)],
  );
  return changed;
}

/** Marks a request complete and forgets its targets. */
export async function completeDeletion(redis: Redis, request: DeletionRequest): Promise<void> {
  await runScript(
    redis,
    scripts.completeDeletion,
    [
      registryKeys.deletions,
      registryKeys.pendingDeletions,
      registryKeys.deletionTargets(request.deletion_request_id),
      registryKeys.unmirroredDeletions,
      registryKeys.rewriteWanted,
    ],
    [request.deletion_request_id, JSON.stringify(request), pendingMember(request)],
  );
}
