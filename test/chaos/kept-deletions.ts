// Which deletion requests ClickHouse would bring back if Redis were emptied now: those whose second copy it has,
// with all of their targets, or with the note that they need them no longer.

import { targetTable } from '../../src/deletion/places.js';
import type { DeletionRequest } from '../../src/deletion/request.js';
import type { SluiceHandle } from '../support/services.js';

export type KeptDeletions = {
  readonly all: ReadonlySet<string>;
  /** Of these the ones that have their rounds, or the rest of them, before them. */
  readonly pending: ReadonlySet<string>;
};

export async function readKeptDeletions(sluice: SluiceHandle): Promise<KeptDeletions> {
  // Targets first: those of a request that is verified meanwhile go, and its copy says so afterwards.
  const targets = await sluice.rows<{ request_id: string; count: string }>(
    `SELECT request_id, toString(uniqExact(identity, ifNull(toString(user_id), ''))) AS count
      FROM ${targetTable} WHERE app_id = '' GROUP BY request_id`,
  );
  const counts = new Map(targets.map(({ request_id, count }) => [request_id, Number(count)]));
  const copies = await sluice.rows<{ document: string }>(
    `SELECT argMax(deletion_requests.document, deletion_requests.version) AS document
      FROM deletion_requests GROUP BY request_id`,
  );
  const kept = copies
    .map(({ document }) => JSON.parse(document) as DeletionRequest)
    .filter(
      ({ deletion_request_id: id, status, verified_at, targets: wanted }) =>
        status === 'complete' || verified_at !== undefined || (counts.get(id) ?? 0) >= wanted,
    );
  const idsOf = (requests: readonly DeletionRequest[]) =>
    new Set(requests.map(({ deletion_request_id }) => deletion_request_id));
  return { all: idsOf(kept), pending: idsOf(kept.filter(({ status }) => status === 'pending')) };
}
