// Counts what happened to the records of a request, in the same way for all endpoints that take records: in the endpoint's metrics and,
// unless the commit counts it, in the environment's ledger.

import type { Rejection } from '../../contract/outcomes.js';
import type { Mending } from '../../ingest/mend.js';
import type { EndpointName } from '../../insights/data-quality/rejected-records.js';
import type { TermCounts } from '../../insights/ledger/count.js';
import {
  recordsAccepted,
  recordsRejected,
  recordsRepeated,
  recordsSuppressed,
  requestsLimited,
  usersUnjoined,
} from '../../metrics.js';

/** Where an endpoint takes messages, a record is a message. */
export type RecordOutcomes = {
  readonly stored: number;
  readonly repeated: number;
  /** Records of suppressed users. They are answered as if they were stored. */
  readonly suppressed: number;
  /** Those among the suppressed that are identifications whose anonymous user could not be joined to the suppressed one. */
  readonly unjoined: number;
  readonly errors: readonly Pick<Rejection, 'code'>[];
  readonly mendings: ReadonlyMap<Mending, number>;
};

export type RecordCounts = {
  countRecords(appId: string, outcomes: RecordOutcomes): void;
  countStored(): void;
  countLimited(appId: string, limit: string, requests: number, records: number): void;
};

export type RecordCountsOptions = {
  readonly counts: Pick<TermCounts, 'addMendings' | 'add'>;
};

export function createRecordCounts(endpoint: EndpointName, { counts }: RecordCountsOptions): RecordCounts {
  const accepted = recordsAccepted.labels(endpoint);
  const repeats = recordsRepeated.labels(endpoint);

  function countRecords(appId: string, outcomes: RecordOutcomes): void {
    const { stored, repeated, suppressed, unjoined, errors, mendings } = outcomes;
    if (stored > 0) accepted.inc(stored);
    if (repeated > 0) repeats.inc(repeated);
    if (suppressed > 0) recordsSuppressed.inc({ endpoint }, suppressed);
    if (unjoined > 0) usersUnjoined.inc(unjoined);
    for (const { code } of errors) recordsRejected.inc({ endpoint, code });
    if (mendings.size > 0) counts.addMendings(appId, mendings);
  }

  function countStored(): void {
    accepted.inc(1);
  }

  function countLimited(appId: string, limit: string, requests: number, records: number): void {
    requestsLimited.inc({ endpoint, limit }, requests);
    counts.add(appId, 'limited', records);
  }

  return { countRecords, countStored, countLimited };
}
