// Deletions that a second person has to confirm, if the account requires it. The person who proposes and the person who confirms each
// submit the same list; in between only a keyed hash of it is kept, and no name. Proposals are in Redis only: one that is lost, or that
// nobody confirms within a week, has to be made again. Confirming takes the proposal away first, so it can be confirmed only once.

import { randomUUID } from 'node:crypto';
import type { AdministrationAnswers } from '../../contract/administration-answers.js';
import { proposals as bounds } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import { registryKeys } from '../../redis/keys.js';
import { onReplicas } from '../../redis/replicas.js';
import { transactionValues } from '../../redis/transactions.js';
import { hashOfList } from './references.js';
import { type Submission, targetsOf } from './targets.js';

export type Proposal = AdministrationAnswers['withdrawProposal'];

export type Proposed =
  /** The proposal waits for a confirmation; the same person may have made it earlier. */
  | { readonly how: 'proposed'; readonly proposal: Proposal }
  /** Somebody else had proposed it, so it may be carried out. Call `putBack` if that fails. */
  | { readonly how: 'confirms'; readonly proposal: Proposal; readonly putBack: () => Promise<void> }
  | { readonly how: 'too_many' };

export type ProposeOptions = {
  readonly redis: Redis;
  /** The deployment's secret, for keyed hashes. */
  readonly secret: string;
  readonly accountId: string;
  /** Who proposes or confirms. */
  readonly by: string;
  readonly caseId: string | undefined;
  /** Whether somebody who proposed a deletion is still allowed to delete. */
  readonly mayStill: (by: string) => Promise<boolean>;
};

/** Takes another person's proposal with the same list; undefined if there is none. If several take it at once, one gets it. */
export async function takeProposal(
  { redis, secret, accountId, by, mayStill }: ProposeOptions,
  submission: Submission,
): Promise<Proposed | undefined> {
  const key = registryKeys.deletionProposals(accountId);
  const field = fieldOf(secret, submission);
  const text = await redis.hget(key, field);
  const proposal = text === null ? undefined : (JSON.parse(text) as Proposal);
  if (proposal === undefined || proposal.proposed_by === by || hasEnded(proposal)) return undefined;
  if (!(await mayStill(proposal.proposed_by))) return undefined;
  const putBack = async (what: unknown) => {
    if (typeof what === 'string') await keepFirst(redis, key, field, what);
  };
  let taken: unknown;
  const take = async () => {
    [taken] = transactionValues(await redis.multi().hget(key, field).hdel(key, field).exec());
  };
  try {
    await onReplicas(redis, key, take);
  } catch (error) {
    // The replicas have not confirmed the removal, so it does not count.
    await putBack(taken).catch(() => undefined);
    throw error;
  }
  if (taken === text) return { how: 'confirms', proposal, putBack: () => putBack(text) };
  await putBack(taken);
  return undefined;
}

/** Keeps a proposal unless one is there already. Settles with whether it did. */
async function keepFirst(redis: Redis, key: string, field: string, text: string): Promise<boolean> {
  const isFirst = (await redis.hsetnx(key, field, text)) === 1;
  await onReplicas(redis, key, () => redis.pexpire(key, bounds.keptMs));
  return isFirst;
}

/** Proposes a deletion. If another person has proposed it in the meantime, this confirms theirs. */
export async function propose(options: ProposeOptions, submission: Submission): Promise<Proposed> {
  const { redis, secret, accountId, by, caseId } = options;
  const { list, reference, suppress } = submission;
  if ((await listProposals(redis, accountId)).length >= bounds.perAccountMax) return { how: 'too_many' };
  const key = registryKeys.deletionProposals(accountId);
  const nowMs = Date.now();
  const proposal: Proposal = {
    proposal_id: randomUUID(),
    proposed_at: new Date(nowMs).toISOString(),
    proposed_by: by,
    ends_at: new Date(nowMs + bounds.keptMs).toISOString(),
    users: targetsOf(list).length,
    suppress,
    ...(reference === undefined ? {} : { reference }),
    ...(caseId === undefined ? {} : { case_id: caseId }),
  };
  const field = fieldOf(secret, submission);
  if (await keepFirst(redis, key, field, JSON.stringify(proposal))) return { how: 'proposed', proposal };
  const ofOther = await takeProposal(options, submission);
  if (ofOther !== undefined) return ofOther;
  // The existing proposal is their own, or is by somebody who may no longer delete: a new one replaces it.
  await onReplicas(redis, key, () => redis.hset(key, field, JSON.stringify(proposal)));
  return { how: 'proposed', proposal };
}

/** The key of a proposal: equal for the same users in any order with the same options. */
function fieldOf(secret: string, { list, suppress, eraseNow }: Submission): string {
  return [hashOfList(secret, targetsOf(list)), suppress ? 'suppress' : '', eraseNow ? 'now' : ''].join(' ');
}

function hasEnded({ ends_at }: Proposal): boolean {
  return Date.parse(ends_at) <= Date.now();
}

/** An account's proposals, from the latest. Removes those that have ended. */
export async function listProposals(redis: Redis, accountId: string): Promise<readonly Proposal[]> {
  const key = registryKeys.deletionProposals(accountId);
  const found = Object.entries(await redis.hgetall(key)).map(
    ([field, text]) => [field, JSON.parse(text) as Proposal] as const,
  );
  const ended = found.filter(([, proposal]) => hasEnded(proposal));
  if (ended.length > 0) await redis.hdel(key, ...ended.map(([field]) => field));
  return found
    .filter((each) => !ended.includes(each))
    .map(([, proposal]) => proposal)
    .sort((a, b) => b.proposed_at.localeCompare(a.proposed_at));
}

/** Withdraws a proposal. Settles with it, or with undefined if there is none with this id. */
export async function withdrawProposal(
  redis: Redis,
  accountId: string,
  id: string,
): Promise<Proposal | undefined> {
  const key = registryKeys.deletionProposals(accountId);
  for (const [field, text] of Object.entries(await redis.hgetall(key))) {
    const proposal = JSON.parse(text) as Proposal;
    if (proposal.proposal_id !== id) continue;
    // A withdrawn proposal must not come back for somebody to confirm.
    await onReplicas(redis, key, () => redis.hdel(key, field));
    return proposal;
  }
  return undefined;
}
