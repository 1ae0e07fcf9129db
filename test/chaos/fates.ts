// Derives what deletions do to every record from the histories alone: who was named, who was merged with whom at that time, and what was
// acknowledged before and after. A later deletion does not see records that the fence of an earlier one covers. Of two requests that
// overlapped in time, either may have come first.

import { keyAt } from '../harness/endpoints.js';
import { type Fate, type Sending, sendingsOf } from '../harness/exactly-once.js';
import type { Invocation, Settlement } from '../harness/load.js';
import type { Submission } from './deletions.js';

/** Whom a deletion certainly reaches, and whom it may reach. */
type Reach = {
  readonly submission: Submission;
  readonly surely: Set<string>;
  readonly perhaps: Set<string>;
};

/** Everybody whom a deletion may reach if no other deletion removed an identification before it. */
type Widest = { readonly submission: Submission; readonly users: ReadonlySet<string> };

type Merge = {
  readonly userId: string;
  readonly users: readonly [string, string];
  readonly sending: Sending;
};

/**
 * How long after its caller gave up a request without an answer may be carried out, and how long after its acknowledgement a worker may
 * look up the key of a record.
 */
const lateMs = 15_000;

/**
 * Returns the fates of the records of one environment of the submitting account, by its history. `forgotten` has the markers of records
 * that may be missing: users whom such a record merged may be separate again. `keysForgotten`: a repeat may have been stored as a new
 * record. `indexLostMs`: when the index of keys was lost, which is the only place with the keys of deleted records.
 */
export function createFates(
  history: readonly (Invocation & Partial<Settlement>)[],
  submissions: readonly Submission[],
  forgotten: ReadonlySet<string> = new Set(),
  keysForgotten = false,
  indexLostMs: readonly number[] = [],
): (sendings: readonly Sending[]) => Fate {
  const merges = mergesOf(history.flatMap(sendingsOf), keysForgotten || indexLostMs.length > 0);
  const inOrder = submissions
    .filter(({ outcome }) => outcome !== 'refused')
    .sort((a, b) => a.invokedMs - b.invokedMs);
  const widest = inOrder.map((submission) => ({
    submission,
    users: spread(
      namedBy(submission),
      merges.filter(({ sending }) => sending.invokedMs < endOf(submission)),
    ),
  }));
  const reaches: Reach[] = [];
  for (const submission of inOrder) {
    const others = widest.filter((other) => other.submission !== submission);
    reaches.push(reachOf(submission, merges, forgotten, reaches, others));
  }

  return (sendings) => {
    const sent = sendings.filter(({ verdict }) => verdict !== 'absent');
    const users = usersOf(sendings[0] as Sending);
    const mayReturn = ({ invokedMs }: Submission) =>
      sent.some(
        ({ settledMs }) => settledMs > invokedMs && indexLostMs.some((lostMs) => lostMs < settledMs + lateMs),
      );
    let fate: Fate = 'stays';
    for (const { submission, surely, perhaps } of reaches) {
      if (!users.some((user) => perhaps.has(user))) continue;
      if (fate === 'stays') fate = 'near';
      const isBefore = sent.some((sending) => isSurelyBefore(sending, submission));
      const isNamed = users.some((user) => surely.has(user));
      if (isBefore && isNamed && submission.outcome === 'accepted' && !mayReturn(submission)) return 'goes';
      if (!sent.every(({ invokedMs }) => invokedMs > endOf(submission))) fate = 'free';
    }
    return fate;
  };
}

/** The identifications. Those with the same key count as one, since repeats change nothing. */
function mergesOf(sendings: readonly Sending[], keysForgotten: boolean): Merge[] {
  const merges: Merge[] = [];
  const keyed = new Map<string, Sending[]>();
  const add = (sending: Sending) => {
    const userId = `u${sending.event.user_id}`;
    merges.push({ userId, users: [userId, `i${sending.event.identity}`], sending });
  };
  for (const sending of sendings) {
    const { endpoint, event, verdict } = sending;
    if (event.kind !== 'identify' || verdict === 'absent') continue;
    const key = keyAt(endpoint, event);
    if (key === undefined) add(sending);
    else keyed.set(key, [...(keyed.get(key) ?? []), sending]);
  }
  for (const sent of keyed.values()) add(asOne(sent, keysForgotten));
  return merges;
}

/** Joins the repeats of one identification: it was stored between the first sending and the first acknowledgement. */
function asOne(sent: readonly Sending[], keysForgotten: boolean): Sending {
  const [first] = sent as [Sending];
  if (sent.length === 1) return first;
  const stored = sent.filter(({ verdict }) => verdict === 'stored');
  const invokedMs = Math.min(...sent.map((sending) => sending.invokedMs));
  return stored.length === 0 || keysForgotten
    ? {
        ...first,
        verdict: 'perhaps',
        invokedMs,
        settledMs: Math.max(...sent.map(({ settledMs }) => settledMs)),
      }
    : {
        ...first,
        verdict: 'stored',
        invokedMs,
        settledMs: Math.min(...stored.map(({ settledMs }) => settledMs)),
      };
}

function reachOf(
  submission: Submission,
  merges: readonly Merge[],
  forgotten: ReadonlySet<string>,
  earlier: readonly Reach[],
  others: readonly Widest[],
): Reach {
  const named = namedBy(submission);
  const there = merges.filter(
    (merge) =>
      merge.sending.invokedMs < endOf(submission) &&
      !earlier.some((reach) => isSurelyCovered(merge, reach, submission)),
  );
  const surelyThere = there.filter(
    (merge) =>
      isSurelyBefore(merge.sending, submission) &&
      !forgotten.has(merge.sending.event.properties.marker) &&
      !others.some((other) => mayCover(other, merge, submission)),
  );
  // Of several identifications of a user_id, the first that exists counts.
  const rivals = (among: readonly Merge[], merge: Merge) =>
    among.filter(({ userId, users }) => userId === merge.userId && users[1] !== merge.users[1]);
  const possible = there.filter(
    (merge) => !rivals(surelyThere, merge).some(({ sending }) => sending.settledMs < merge.sending.invokedMs),
  );
  const certain = surelyThere.filter((merge) =>
    rivals(there, merge).every(({ sending }) => sending.invokedMs > merge.sending.settledMs),
  );
  return { submission, surely: spread(named, certain), perhaps: spread(named, possible) };
}

/**
 * Whether the fence of an earlier deletion covers an identification: for a later deletion it then does not exist, whether or not the
 * earlier one is complete.
 */
function isSurelyCovered({ users, sending }: Merge, earlier: Reach, later: Submission): boolean {
  const { submission, surely } = earlier;
  return (
    submission.outcome === 'accepted' &&
    submission.settledMs < later.invokedMs &&
    isSurelyBefore(sending, submission) &&
    users.some((user) => surely.has(user))
  );
}

/** Whether the fence of another, possibly earlier deletion may cover an identification. */
function mayCover(other: Widest, { users, sending }: Merge, submission: Submission): boolean {
  return (
    other.submission.invokedMs < endOf(submission) &&
    sending.invokedMs < endOf(other.submission) &&
    users.some((user) => other.users.has(user))
  );
}

function isSurelyBefore({ verdict, settledMs }: Sending, { invokedMs }: Submission): boolean {
  return verdict === 'stored' && settledMs < invokedMs;
}

function namedBy({ users }: Submission): string[] {
  return users.map((user) => ('identity' in user ? `i${user.identity}` : `u${user.user_id}`));
}

/** Everybody who is merged with one of these. */
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
