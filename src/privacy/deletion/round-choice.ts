// Chooses the pending requests of the next round. Accounts take turns, so an account waits for no more requests of another account than fit
// into one round beside its own. An account's own requests stay in the order of submission, since the users of a later request depend on
// what an earlier one deletes. Pure.

import { deletionRounds } from '../../tuning.js';
import type { DeletionRequest, PendingMember } from './request.js';

/** The properties of a request that decide whether a round includes it. */
export type Candidate = Pick<DeletionRequest, 'account_id' | 'targets' | 'weight'>;

/**
 * The ids of candidates in turns: the oldest request of every account, then the second oldest of each, and so on. `members`: the pending
 * requests, the oldest first.
 */
export function requestIdsInTurns(members: readonly PendingMember[], countMax: number): string[][] {
  const turns: string[][] = [];
  const taken = new Map<string, number>();
  for (const { accountId, requestId } of members) {
    const turn = taken.get(accountId) ?? 0;
    taken.set(accountId, turn + 1);
    turns[turn] ??= [];
    turns[turn]?.push(requestId);
  }
  let left = countMax;
  const chosen: string[][] = [];
  for (const turn of turns) {
    if (left <= 0) break;
    chosen.push(turn.slice(0, left));
    left -= turn.length;
  }
  return chosen;
}

/**
 * Fills a round from requests in turns. The oldest ready request comes first, so that no request waits for ever. In each turn small
 * requests come before large ones. An account takes no further part in the round once its next request is not ready or does not fit.
 */
export function fillRound<R extends Candidate>(
  turns: readonly (readonly R[])[],
  isReady: (request: R) => boolean,
  targetsMax: number = deletionRounds.targetsMax,
  weightMax: number = deletionRounds.weightMax,
): R[] {
  const round: R[] = [];
  const out = new Set<string>();
  let targets = 0;
  let weight = 0;
  for (const [turn, requests] of turns.entries()) {
    const ready = requests.filter((request) => {
      if (out.has(request.account_id)) return false;
      if (isReady(request)) return true;
      out.add(request.account_id);
      return false;
    });
    const [oldest] = ready;
    if (oldest === undefined) continue;
    const small = [...ready].sort((a, b) => a.targets - b.targets);
    const order = turn === 0 ? [oldest, ...small.filter((request) => request !== oldest)] : small;
    for (const request of order) {
      const isFull = targets + request.targets > targetsMax || weight + request.weight > weightMax;
      if (round.length > 0 && isFull) {
        out.add(request.account_id);
        continue;
      }
      round.push(request);
      targets += request.targets;
      weight += request.weight;
    }
  }
  return round;
}
