// The bounds and defaults that the library adds to the contract's, and the relations between them.

import { counts } from '../../contract/lengths.js';
import { bodies, relation, waits } from '../../contract/limits.js';

const KiB = 1024;
const MiB = 1024 * KiB;

export const producerLimits = {
  /** Records and bytes of one request. It is sent when either is reached. */
  batchRecordsMax: 500,
  batchBytesMax: 1 * MiB,
  /** A request has at least one record, so no record is larger than this. */
  recordBytesMax: 1 * MiB,
  /** How long a record waits for others to be sent with. */
  intervalMs: 500,
  intervalMsMax: 60 * 60_000,
  /** Requests under way at the same time. */
  parallelRequests: 4,
  parallelRequestsMax: 64,
  /** How many identifications of different users a lane sends in parallel; each is a request of its own. */
  identificationsMax: 8,
  /** Records and bytes that may wait in memory. Beyond that, `track` makes its caller wait, or drops the record. */
  queueRecordsMax: 50_000,
  queueBytesMax: 64 * MiB,
  /** Callers that do not wait may exceed these limits by this factor. Beyond that, records are dropped in any case. */
  queueOvershoot: 2,
  /** Bodies of fewer bytes are not compressed. */
  gzipBytesMin: 1 * KiB,
  /** Time for one attempt. The service answers within 2 s; the rest is for the network. */
  requestMs: 30_000,
  backoffMsMin: 250,
  backoffMsMax: 30_000,
  /** A longer `Retry-After` is treated as this. */
  retryAfterMsMax: 60 * 60_000,
  /** An answer is read up to this size. */
  answerBytesMax: 16 * MiB,
  closeMs: 10_000,
  /** A spool begins a new file when the current one has this size. */
  spoolFileBytes: 4 * MiB,
  spoolBytesMax: 1024 * MiB,
  /** How long the spool waits after a write has failed. */
  spoolRetryMs: 1_000,
  /** How often, and after which pauses, an incomplete claim of a folder is read again. */
  claimLooksMax: 50,
  claimLookMs: 10,
  /** The time between two checks of deletion requests, from the shortest to the longest. */
  pollMsMin: 500,
  pollMsMax: 5_000,
  /**
   * Without a listener, one line is printed per kind of report and per this time. The first line is delayed so that more reports can
   * gather.
   */
  warnEveryMs: 60_000,
  warnGatherMs: 250,
  /** Reports of further kinds share one line. */
  warnKindsMax: 20,
} as const;

const { batchBytesMax, recordBytesMax, batchRecordsMax } = producerLimits;
relation(batchRecordsMax <= counts.bulkEventsMax, 'the service must take a whole batch');
relation(batchRecordsMax <= counts.bulkUsersMax, 'the service must take a whole batch of users');
relation(batchBytesMax + recordBytesMax + KiB <= bodies.bulkBytesMax, "a batch must fit the service's body");
relation(recordBytesMax <= bodies.singleBytesMax, 'an identification is a request of its own');
relation(producerLimits.queueBytesMax >= 4 * batchBytesMax, 'batches must be able to gather');
relation(producerLimits.requestMs > waits.requestMsMax, 'an answer must be able to arrive');
