// What became of the records of a request. All endpoints that take records count it here, in the same way: in the metrics of the
// endpoint, in the counts of the environment, and for its charts.

import type { Rejection } from '../../contract/outcomes.js';
import type { Mending } from '../../ingest/mend.js';
import type { EnvironmentCounts } from '../../insights/data-quality/environment-counts.js';
import type { EndpointName } from '../../insights/data-quality/rejected-records.js';
import type { MinuteCounts } from '../../insights/traffic/minute-counts.js';
import {
  recordsAccepted,
  recordsRejected,
  recordsRepeated,
  recordsSuppressed,
  requestsLimited,
  usersUnjoined,
} from '../../metrics.js';

/** A record is a message where the endpoint takes messages. */
export type RecordOutcomes = {
  readonly stored: number;
  readonly repeated: number;
  /** Repeats whose content differs from the first record. */
  readonly differing: number | undefined;
  /** Records of suppressed users, which are answered as if they were stored. */
  readonly suppressed: number;
  /** Identifications among them whose anonymous user could not be joined to the suppressed one. */
  readonly unjoined: number;
  readonly errors: readonly Pick<Rejection, 'code'>[];
  readonly mendings: ReadonlyMap<Mending, number>;
};

export type RecordCounts = {
  countRecords(appId: string, outcomes: RecordOutcomes): void;
  /** Counts one record that is stored: most requests. */
  countStored(appId: string): void;
  /** Counts what a limit had no room for. */
  countLimited(appId: string, limit: string, requests: number, records: number): void;
};

export type RecordCountsOptions = {
  readonly counts: Pick<EnvironmentCounts, 'addMendings' | 'add'>;
  readonly traffic: Pick<MinuteCounts, 'add'>;
};

export function createRecordCounts(
  endpoint: EndpointName,
  { counts, traffic }: RecordCountsOptions,
): RecordCounts {
  const accepted = recordsAccepted.labels(endpoint);
  const repeats = recordsRepeated.labels(endpoint);

  function countRecords(appId: string, outcomes: RecordOutcomes): void {
    const { stored, repeated, differing, suppressed, unjoined, errors, mendings } = outcomes;
    if (stored > 0) {
      accepted.inc(stored);
      traffic.add(appId, 'accepted', stored);
    }
    if (repeated > 0) {
      repeats.inc(repeated);
      traffic.add(appId, 'repeated', repeated);
    }
    if (differing !== undefined) counts.add(appId, 'differing_repeats', differing);
    if (suppressed > 0) {
      recordsSuppressed.inc({ endpoint }, suppressed);
      counts.add(appId, 'suppressed', suppressed);
    }
    if (unjoined > 0) usersUnjoined.inc(unjoined);
    for (const { code } of errors) recordsRejected.inc({ endpoint, code });
    if (mendings.size > 0) counts.addMendings(appId, mendings);
  }

  function countStored(appId: string): void {
    accepted.inc(1);
    traffic.add(appId, 'accepted', 1);
  }

  function countLimited(appId: string, limit: string, requests: number, records: number): void {
    requestsLimited.inc({ endpoint, limit }, requests);
    traffic.add(appId, 'limited', records);
  }

  return { countRecords, countStored, countLimited };
}
