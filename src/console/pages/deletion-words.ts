// The states of deletions in words.

import type { DeletionState } from '../../contract/deletion-states.js';
import type { Deletion } from '../api.js';

export const states: Readonly<Record<DeletionState, string>> = {
  submitted: 'submitted',
  finding_users: 'looks up its users',
  waiting_for_backlog: 'waits for records that came before it',
  deleting: 'deletes',
  verifying: 'counts what is left',
  hidden: 'hidden, will be erased from the disk',
  complete: 'complete',
  targets_lost: 'lost its list: submit it again',
  ended: 'ended without being carried out',
  clickhouse_unavailable: 'waits until the database answers',
  no_room: 'waits for room on a disk',
  mutation_failed: 'deletes again what was left',
  failed: 'tries again after an error',
};

type Told = Pick<Deletion, 'status' | 'state' | 'users_found'>;

/** The request is complete, and none of its users had any rows: perhaps the wrong names were submitted. */
function isOfNobody({ status, users_found }: Told): boolean {
  return status === 'complete' && users_found === 0;
}

export function stateText(deletion: Told): string {
  return isOfNobody(deletion) ? 'complete, found nobody' : states[deletion.state];
}

/** The tone of a state's chip. */
export function toneOf(deletion: Told): string {
  if (deletion.status !== 'complete') return 'warn';
  return isOfNobody(deletion) ? '' : 'good';
}
