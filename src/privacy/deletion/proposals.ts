// Deletions that a second person has to confirm, where an account wants that. Who proposes one and who confirms it each submit the
// same list: what is kept in between is a keyed hash of it, and no name. It is in Redis only; a proposal that is lost, or that
// nobody confirms in a week, is made again. Who confirms one takes it away first, so it is confirmed once.

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
  /** The proposal waits, now or since the same person made it earlier. */
  | { readonly how: 'proposed'; readonly proposal: Proposal }
  /** Somebody else had proposed it: it may be carried out. If nothing comes of that, it is put back. */
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
  /** Whether somebody who has proposed a deletion may still delete. */
  readonly mayStill: (by: string) => Promise<boolean>;
};

/** Takes what another person has proposed by the same list; undefined if nobody has. Of several at once, one gets it. */
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
    // What the replicas do not confirm is not taken.
    await putBack(taken).catch(() => undefined);
    throw error;
  }
  if (taken === text) return { how: 'confirms', proposal, putBack: () => putBack(text) };
  await putBack(taken);
  return undefined;
}

/** Keeps a proposal unless there is one; whether it is kept. */
async function keepFirst(redis: Redis, key: string, field: string, text: string): Promise<boolean> {
  const isFirst = (await redis.hsetnx(key, field, text)) === 1;
  await onReplicas(redis, key, () => redis.pexpire(key, bounds.keptMs));
  return isFirst;
}

/** Proposes a deletion. If another person was faster, it confirms theirs. */
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
  // Their own, or of somebody who may not delete any more: it begins anew.
  await onReplicas(redis, key, () => redis.hset(key, field, JSON.stringify(proposal)));
  return { how: 'proposed', proposal };
}

/** The same for the same users, in any order, and the same wishes. */
function fieldOf(secret: string, { list, suppress, eraseNow }: Submission): string {
  return [hashOfList(secret, targetsOf(list)), suppress ? 'suppress' : '', eraseNow ? 'now' : ''].join(' ');
}

function hasEnded({ ends_at }: Proposal): boolean {
  return Date.parse(ends_at) <= Date.now();
}

/** The proposals of an account, the latest first. Those that have ended are taken away. */
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

/** Takes a proposal away; settles with it, or with undefined if there is none of this id. */
export async function withdrawProposal(
  redis: Redis,
  accountId: string,
  id: string,
): Promise<Proposal | undefined> {
  const key = registryKeys.deletionProposals(accountId);
  for (const [field, text] of Object.entries(await redis.hgetall(key))) {
    const proposal = JSON.parse(text) as Proposal;
    if (proposal.proposal_id !== id) continue;
    // One that was withdrawn must not be there again for somebody to confirm.
    await onReplicas(redis, key, () => redis.hdel(key, field));
    return proposal;
  }
  return undefined;
}
