// What deletions make of every record, from the histories alone: who was named, who was merged with whom at that
// time, and what was acknowledged before and after. Where two things were under way at once, either order may
// have been the true one.

import { type Fate, type Sending, sendingsOf } from '../support/exactly-once.js';
import type { Invocation, Settlement } from '../support/load.js';
import type { Submission } from './deletions.js';

/** Whom a deletion reaches, surely and perhaps. */
type Reach = { readonly submission: Submission; readonly surely: Set<string>; readonly perhaps: Set<string> };

type Merge = { readonly users: readonly [string, string]; readonly sending: Sending };

/** A request that nobody got an answer to may still be carried out for so long after it was given up. */
const lateMs = 15_000;

/**
 * The fates of records of an environment of the submissions' account, by its history. `forgotten` are the markers
 * of records that may be missing: who was merged by one of these may be two users again.
 */
export function createFates(
  history: readonly (Invocation & Partial<Settlement>)[],
  submissions: readonly Submission[],
  forgotten: ReadonlySet<string> = new Set(),
): (sendings: readonly Sending[]) => Fate {
  const merges = history
    .flatMap(sendingsOf)
    .filter(({ event, verdict }) => event.kind === 'identify' && verdict !== 'absent')
    .map(
      (sending): Merge => ({ users: [`u${sending.event.user_id}`, `i${sending.event.identity}`], sending }),
    );
  const reaches: Reach[] = [];
  const inOrder = submissions
    .filter(({ outcome }) => outcome !== 'refused')
    .sort((a, b) => a.invokedMs - b.invokedMs);
  for (const submission of inOrder) reaches.push(reachOf(submission, merges, forgotten, reaches));

  return (sendings) => {
    const sent = sendings.filter(({ verdict }) => verdict !== 'absent');
    const users = usersOf(sendings[0] as Sending);
    let fate: Fate = 'stays';
    for (const { submission, surely, perhaps } of reaches) {
      if (!users.some((user) => perhaps.has(user))) continue;
      if (fate === 'stays') fate = 'near';
      const isBefore = sent.some(
        ({ verdict, settledMs }) => verdict === 'stored' && settledMs < submission.invokedMs,
      );
      const isNamed = users.some((user) => surely.has(user));
      if (isBefore && isNamed && submission.outcome === 'accepted') return 'goes';
      if (!sent.every(({ invokedMs }) => invokedMs > endOf(submission))) fate = 'free';
    }
    return fate;
  };
}

function reachOf(
  submission: Submission,
  merges: readonly Merge[],
  forgotten: ReadonlySet<string>,
  earlier: readonly Reach[],
): Reach {
  const named = submission.users.map((user) =>
    'identity' in user ? `i${user.identity}` : `u${user.user_id}`,
  );
  const possible = merges.filter(({ sending }) => sending.invokedMs < endOf(submission));
  const certain = possible.filter(
    ({ users, sending }) =>
      sending.verdict === 'stored' &&
      sending.settledMs < submission.invokedMs &&
      !forgotten.has(sending.event.properties.marker) &&
      // A deletion before this one may have taken the identification with it.
      !earlier.some(({ perhaps }) => users.some((user) => perhaps.has(user))),
  );
  return { submission, surely: spread(named, certain), perhaps: spread(named, possible) };
}

/** Everybody merged with one of these. */
function spread(named: readonly string[], merges: readonly Merge[]): Set<string> {
  const reached = new Set(named);
  for (let size = 0; size !== reached.size; ) {
    size = reached.size;
    for (const { users } of merges) {
      if (!users.some((user) => reached.has(user))) continue;
      for (const user of users) reached.add(user);
    }
  }
  return reached;
}

function usersOf({ event }: Sending): string[] {
  const users = event.identity === undefined ? [] : [`i${event.identity}`];
  if (event.user_id !== undefined) users.push(`u${event.user_id}`);
  return users;
}

function endOf({ outcome, settledMs }: Submission): number {
  return outcome === 'perhaps' ? settledMs + lateMs : settledMs;
}
