// A request on its way to the commit. Its groups are made once. In them the records of suppressed users are marked, and marked again if
// the suppressions change before the commit. A marked record has no row, but is decided and answered like any other, so that no answer
// reveals who is suppressed.

import { suppressions as bounds } from '../contract/limits.js';
import type { SuppressedUsers, Suppressions } from '../privacy/suppression/suppressions.js';
import type { LiveEnvironment } from '../registry/environments.js';
import type { LimitKeys } from './limit-key.js';
import type { Group, Mark } from './pack.js';
import type { Checked } from './record-kind.js';

/** Groups that go into one commit, in their order. */
export type Submission<G extends Group = Group> = {
  readonly accountId: string;
  /** The version of the registry in which its environment was found. */
  readonly registryVersion: number;
  /** Marked by the suppressions as they were at the last `renew`. */
  readonly groups: readonly G[];
  /** Marks the groups again if the suppressions have changed since. */
  readonly renew: () => void;
};

export type SubmissionContext = {
  readonly environment: LiveEnvironment;
  readonly suppressions: Pick<Suppressions, 'version' | 'of'>;
  readonly limitKeys: Pick<LimitKeys, 'ofApp'>;
};

/** The marks of a request's records, in the order of its groups; undefined if no record has one. */
export type Marks = readonly (Mark | undefined)[] | undefined;

/** Makes a submission. `marksOf` marks the records of all groups. */
export function createSubmission<G extends Group>(
  { environment, suppressions, limitKeys }: SubmissionContext,
  groups: readonly G[],
  marksOf: (suppressed: SuppressedUsers) => Marks,
): Submission<G> {
  let version = -2;
  let areMarked = false;

  function renew(): void {
    if (version === suppressions.version()) return;
    version = suppressions.version();
    const suppressed = suppressions.of(environment);
    const marks = suppressed === undefined ? undefined : marksOf(suppressed);
    if (marks !== undefined || areMarked) setMarks(groups, marks, () => joinLimitOf(environment, limitKeys));
    areMarked = marks !== undefined;
  }

  renew();
  const { accountId, registryVersion } = environment;
  return { accountId, registryVersion, groups, renew };
}

/** Changes the groups in place: copying a thousand blocked the process for 2 ms. */
function setMarks(
  groups: readonly Group[],
  marks: Marks,
  joinLimit: () => NonNullable<Group['joinLimit']>,
): void {
  const isJoin = (mark: Mark | undefined) => typeof mark === 'object' && mark.joins !== undefined;
  const limit = marks?.some(isJoin) ? joinLimit() : undefined;
  let from = 0;
  for (const group of groups) {
    group.marks = marks?.slice(from, from + group.records.length);
    group.joinLimit = limit;
    from += group.records.length;
  }
}

function joinLimitOf({ appId }: LiveEnvironment, limitKeys: Pick<LimitKeys, 'ofApp'>) {
  return { digest: limitKeys.ofApp('joins', appId), limit: bounds.joins };
}

/** Marks records by their users. Both names of an identification count. */
export function markUsers(users: readonly Checked[], suppressed: SuppressedUsers): Marks {
  let marks: (Mark | undefined)[] | undefined;
  for (let i = 0; i < users.length; i++) {
    const { identity, userId } = users[i] as Checked;
    const mark = markOf(identity, userId, suppressed);
    if (mark === undefined) continue;
    marks ??= new Array<Mark | undefined>(users.length).fill(undefined);
    marks[i] = mark;
  }
  return marks;
}

function markOf(identity: string, userId: string | undefined, suppressed: SuppressedUsers): Mark | undefined {
  if (userId !== undefined && suppressed.hasUserId(userId)) return 'skipped';
  const isSuppressed = identity !== '' && suppressed.hasIdentity(identity);
  if (userId === undefined) return isSuppressed ? 'skipped' : undefined;
  const name = suppressed.nameOfUserId(userId);
  return isSuppressed ? { name, joins: suppressed.joinOf(identity) } : { name };
}
