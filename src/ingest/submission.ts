// A request on its way to the commit. Its groups leave out the records of suppressed users, and are made again when the
// suppressions have changed by the time of the commit: those records count towards no limit and claim no key.

import type { LiveEnvironment } from '../accounts/environments.js';
import type { Join, SuppressedUsers, Suppressions } from '../suppression/suppressions.js';
import type { Group } from './pack.js';
import type { Checked } from './record-kind.js';

/** Groups that go in one commit, in their order. */
export type Submission<G extends Group = Group> = {
  /** The version of the registry in which its environment was found. */
  readonly registryVersion: number;
  /** Without the records of users who are suppressed at the version. */
  readonly groups: () => readonly G[];
  /** The records that are left out, by their index; undefined if none is. */
  readonly leftOut: () => readonly number[] | undefined;
  /** Anonymous users among them who were to be identified as suppressed users. */
  readonly joins: () => readonly Join[];
  /** Makes the groups again if the suppressions have changed since. */
  readonly renew: () => void;
};

export type SubmissionContext = {
  readonly environment: LiveEnvironment;
  readonly suppressions: Suppressions;
};

/** The records of a request that are stored, by their index, and the ones that are skipped. */
export type Selection = {
  readonly kept: readonly number[];
  readonly leftOut: readonly number[];
  readonly joins: readonly Join[];
};

/**
 * Makes a submission. `select` divides its records, undefined if all of them stay; `build` makes groups of all of them or
 * of some.
 */
export function createSubmission<G extends Group>(
  { environment, suppressions }: SubmissionContext,
  select: (suppressed: SuppressedUsers, environment: LiveEnvironment) => Selection | undefined,
  build: (kept?: readonly number[]) => readonly G[],
): Submission<G> {
  let selection: Selection | undefined;
  let groups: readonly G[] = [];
  let version = -2;

  function renew(): void {
    if (version === suppressions.version()) return;
    version = suppressions.version();
    const suppressed = suppressions.of(environment);
    const selected = suppressed === undefined ? undefined : select(suppressed, environment);
    // No user of the request was suppressed before, or is now, so the groups stay as they are.
    if (groups.length > 0 && selection === undefined && selected === undefined) return;
    selection = selected;
    groups = build(selection?.kept);
  }

  renew();
  return {
    registryVersion: environment.registryVersion,
    groups: () => groups,
    leftOut: () => selection?.leftOut,
    joins: () => selection?.joins ?? noJoins,
    renew,
  };
}

const noJoins: readonly Join[] = [];

/** Divides records by their users. Both names of an identification count. */
export function selectUsers(users: readonly Checked[]) {
  return (suppressed: SuppressedUsers, environment: LiveEnvironment): Selection | undefined => {
    const kept: number[] = [];
    const leftOut: number[] = [];
    const joins: Join[] = [];
    for (const [index, { identity, userId }] of users.entries()) {
      const ofUserId = userId !== undefined && suppressed.hasUserId(userId);
      const ofIdentity = identity !== '' && suppressed.hasIdentity(identity);
      if (ofIdentity && userId !== undefined && !ofUserId) joins.push({ environment, userId, identity });
      (ofIdentity || ofUserId ? leftOut : kept).push(index);
    }
    return leftOut.length === 0 ? undefined : { kept, leftOut, joins };
  };
}

/** The elements at these indexes; all of them without any. */
export function pickKept<T>(all: readonly T[], kept: readonly number[] | undefined): readonly T[] {
  return kept === undefined ? all : kept.map((index) => all[index] as T);
}
