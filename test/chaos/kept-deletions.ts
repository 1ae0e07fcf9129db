// Which deletion requests a restore would bring back if Redis were emptied now: those whose second copies ClickHouse has, with all targets
// or with the note that these are no longer needed.

import type { DeletionRequest } from '../../src/privacy/deletion/request.js';
import { targetTable } from '../../src/privacy/deletion/user-tables.js';
import type { SluiceHandle } from '../harness/services.js';

export type KeptDeletions = {
  readonly all: ReadonlySet<string>;
  readonly pending: ReadonlySet<string>;
};

export async function readKeptDeletions(sluice: SluiceHandle): Promise<KeptDeletions> {
  // Reads the targets first: if a request is verified meanwhile, its targets are removed, but then the copy read later says so.
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
