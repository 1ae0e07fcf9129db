// Submitting a deletion: the fence is taken, then the request is stored durably, then it may be answered. Every record that was
// acknowledged before the submission is at or below the fence, and every record that is acknowledged after the answer is above it. No
// clocks are compared.

import { randomUUID } from 'node:crypto';
import { erasesNow } from '../../accounts/accounts.js';
import type { Caller } from '../../accounts/tokens.js';
import { StateNotLoaded } from '../../contract/errors.js';
import { deletions } from '../../contract/limits.js';
import type { CrashPoint } from '../../crash-point.js';
import { deletionsErasedNow } from '../../metrics.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { runScript, scripts } from '../../redis/scripts.js';
import { takeFences } from './fences.js';
import { digestOfReference, hashOfList } from './references.js';
import type { DeletionRequest } from './request.js';
import { type Submission, targetsOf, weightOfList } from './targets.js';

export type SubmitOptions = {
  readonly redis: Redis;
  readonly epoch: string;
  readonly shards: number;
  /** The deployment's secret, for keyed hashes. */
  readonly secret: string;
  readonly crash: CrashPoint;
};

/**
 * `stored`: it is in Redis's append-only file. `known`: the account has already submitted the same users with the same reference.
 * `reference_taken`: it has submitted other users with that reference. `too_many`: the account has too many pending requests. `too_heavy`:
 * its pending requests have too many users or too long names. `full`: those of all accounts together do. `erased_lately`: it recently had
 * rows erased at once.
 */
export type Submitted =
  | { readonly how: 'stored' | 'known'; readonly requestId: string }
  | { readonly how: 'reference_taken' | Refused; readonly requestId?: never };

type Refused = 'too_many' | 'too_heavy' | 'full' | 'erased_lately';

/** Stores a request. Throws StateNotLoaded while Redis does not belong to the deployment. */
export async function submitDeletion(
  { redis, epoch, shards, secret, crash }: SubmitOptions,
  caller: Caller,
  { list, reference, eraseNow }: Submission,
): Promise<Submitted> {
  const targets = targetsOf(list);
  const fences = Object.fromEntries((await takeFences({ redis, epoch, shards })).entries());
  crash('fence_taken');
  const text = JSON.stringify(list);
  const weight = weightOfList(text, targets.length);
  const wantsErasure = eraseNow || (await erasesNow(redis, caller.accountId));
  const request: DeletionRequest = {
    deletion_request_id: randomUUID(),
    account_id: caller.accountId,
    app_id: caller.appId,
    key_created_at: caller.keyCreatedAt,
    ...(caller.submittedBy === undefined ? {} : { submitted_by: caller.submittedBy }),
    submitted_at: new Date().toISOString(),
    ...(reference === undefined ? {} : { reference }),
    targets: targets.length,
    weight,
    fences,
    status: 'pending',
    state: 'submitted',
    resolved: false,
    mutations: [],
  };
  const store = (more: Pick<DeletionRequest, 'erase'>) =>
    runScript(
      redis,
      scripts.submitDeletion,
      [
        registryKeys.epoch,
        registryKeys.deletions,
        registryKeys.pendingDeletions,
        registryKeys.deletionTargets(request.deletion_request_id),
        registryKeys.uncopied,
        registryKeys.deletionsAwaitingTargetCopy,
        registryKeys.listedDeletions,
        registryKeys.deletionReference(
          reference === undefined ? 'none' : digestOfReference(caller.accountId, reference),
        ),
        registryKeys.deletionWeights,
        registryKeys.pendingDeletionsByAccount,
        registryKeys.erasureAsked(caller.accountId),
      ],
      [
        epoch,
        request.deletion_request_id,
        JSON.stringify({ ...request, ...more }),
        text,
        caller.accountId,
        deletions.pendingPerAccountMax,
        reference === undefined ? '' : hashOfList(secret, targets),
        deletions.referenceMs,
        weight,
        deletions.pendingWeightPerAccountMax,
        deletions.pendingWeightMax,
        more.erase === 'now' ? deletions.eraseNowEveryMs : '',
      ],
    );
  let stored = await store(wantsErasure ? { erase: 'now' } : {});
  if (stored === 1 && wantsErasure) deletionsErasedNow.inc();
  // If the account's setting asked for erasure at once, not this submission, it is not refused: its rows are erased later.
  if (howRefused.get(Number(stored)) === 'erased_lately' && !eraseNow) stored = await store({});
  crash('deletion_stored');
  if (stored === -2) throw new StateNotLoaded();
  if (stored === 1) return { how: 'stored', requestId: request.deletion_request_id };
  if (typeof stored === 'string') return { how: 'known', requestId: stored };
  return { how: howRefused.get(Number(stored)) ?? 'reference_taken' };
}

const howRefused: ReadonlyMap<number, Refused> = new Map([
  [0, 'too_many'],
  [-3, 'too_heavy'],
  [-4, 'full'],
  [-5, 'erased_lately'],
]);
