// What a caller sees of a request: its status, its state while it is pending, and the counts once it is complete. No identities.

import { deletionStates } from '../../contract/deletion-states.js';
import type { DeletionRequest } from './request.js';

/** In JSON, which leaves out what is undefined. */
export function statusOf(request: DeletionRequest): object {
  const { status, state, submitted_at, reference, hidden_at } = request;
  return {
    deletion_request_id: request.deletion_request_id,
    status,
    ...(status === 'pending' ? { state, message: deletionStates[state] } : {}),
    submitted_at,
    reference,
    users: request.targets,
    hidden_at,
    ...(status === 'complete' ? countsOf(request) : {}),
  };
}

function countsOf(request: DeletionRequest): object {
  const { completed_at, backups_end_at, users_found, evidence_until, found, callback } = request;
  return { completed_at, backups_end_at, users_found, rows_deleted: rowsOf(found), callback, evidence_until };
}

/** How many rows a request found. Once it is complete, none of them is left. */
export function rowsOf(found: DeletionRequest['found'] = []): number {
  return found.reduce((sum, { rows }) => sum + rows, 0);
}
