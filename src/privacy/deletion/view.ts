// What a caller sees of a request: its status, what it is doing while it is pending, and what was counted once it is
// complete. No identity.

import { deletionStates } from '../../contract/deletion-states.js';
import type { DeletionRequest } from './request.js';

/** The status of a request, as `deletionStatusSchema` describes it. */
export function statusOf(request: DeletionRequest): object {
  const { status, state, submitted_at, reference } = request;
  return {
    deletion_request_id: request.deletion_request_id,
    status,
    ...(status === 'pending' ? { state, message: deletionStates[state] } : {}),
    submitted_at,
    ...(reference === undefined ? {} : { reference }),
    users: request.targets,
    ...(status === 'complete' ? countsOf(request) : {}),
  };
}

function countsOf({ completed_at, users_found, evidence_until, found, callback }: DeletionRequest): object {
  return {
    completed_at,
    users_found,
    rows_deleted: rowsOf(found),
    ...(callback === undefined ? {} : { callback }),
    ...(evidence_until === undefined ? {} : { evidence_until }),
  };
}

/** How many rows a request found, of which none is left once it is complete. */
export function rowsOf(found: DeletionRequest['found'] = []): number {
  return found.reduce((sum, { rows }) => sum + rows, 0);
}
