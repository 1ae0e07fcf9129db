// Submitting a deletion: the fence first, then the request is stored durably, then it may be answered. Every
// record acknowledged before lies below the fence, every one acknowledged after the answer above it; no
// clocks are compared.

import { randomUUID } from 'node:crypto';
import { StateNotLoaded } from '../accounts/registry.js';
import type { Caller } from '../accounts/tokens.js';
import { tables } from '../clickhouse/tables.js';
import { deletions } from '../contract/limits.js';
import type { CrashPoint } from '../crash-point.js';
import type { Redis } from '../redis/client.js';
import { registryKeys, shardKeys } from '../redis/keys.js';
import { runScript, scripts } from '../redis/scripts.js';
import type { DeletionRequest } from './request.js';
import type { Target } from './targets.js';

export type SubmitOptions = {
  readonly redis: Redis;
  readonly epoch: string;
  readonly shards: number;
  readonly crash: CrashPoint;
};

/**
 * Stores a request. Settles with it when it is in Redis's append-only file, or with `too_many` when the
 * account has too many pending ones. Throws StateNotLoaded while Redis is not the deployment's.
 */
export async function submitDeletion(
  { redis, epoch, shards, crash }: SubmitOptions,
  caller: Caller,
  targets: readonly Target[],
): Promise<DeletionRequest | 'too_many'> {
  const fences: Record<string, string> = {};
  for (let shard = 0; shard < shards; shard++) {
    const fence = await runScript(redis, scripts.fence, [shardKeys.state(shard)], [epoch, ...tables]);
    if (fence === null) throw new StateNotLoaded();
    fences[shard] = String(fence);
  }
  crash('fence_taken');
  const request: DeletionRequest = {
    deletion_request_id: randomUUID(),
    account_id: caller.accountId,
    app_id: caller.appId,
    key_created_at: caller.keyCreatedAt,
    submitted_at: new Date().toISOString(),
    targets: targets.length,
    fences,
    status: 'pending',
    state: 'submitted',
    resolved: false,
    mutations: [],
  };
  const stored = await runScript(
    redis,
    scripts.submitDeletion,
    [
      registryKeys.epoch,
      registryKeys.deletions,
      registryKeys.pendingDeletions,
      registryKeys.deletionTargets(request.deletion_request_id),
      registryKeys.unmirroredDeletions,
      registryKeys.unkeptDeletions,
    ],
    [
      epoch,
      request.deletion_request_id,
      JSON.stringify(request),
      JSON.stringify(targets),
      caller.accountId,
      deletions.pendingPerAccountMax,
    ],
  );
  crash('deletion_stored');
  if (Number(stored) === -2) throw new StateNotLoaded();
  return Number(stored) === 1 ? request : 'too_many';
}
