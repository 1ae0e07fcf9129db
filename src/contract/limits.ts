// Every bound of the service in one place, with its unit in its name (those of single records in
// `lengths.ts`), and the relations between them asserted at the end.

import { arrayDelimiter, counts, lengths } from './lengths.js';

export * from './lengths.js';

const KiB = 1024;
const MiB = 1024 * KiB;

export const userIdMax = Number.MAX_SAFE_INTEGER;

/** Sizes of request bodies, after inflating. */
export const bodies = {
  singleBytesMax: MiB,
  bulkBytesMax: 16 * MiB,
  collectBytesMax: MiB,
  deletionBytesMax: 32 * MiB,
} as const;

/**
 * Bytes that flattening may add to one request of a lenient environment: a flattened key repeats those above it, so that
 * 8 kB of properties could become 1 MB. Counted as JSON.
 */
export const flattened = {
  singleBytesMax: MiB,
  bulkBytesMax: 12 * MiB,
  collectBytesMax: MiB,
} as const;

/** What a row has beside the bytes of its record: ids, a time, what stands between, and its part of a commit. */
const rowOverheadBytesMax = KiB;
/** A row's bytes per byte of its record, at most: `1e20` is stored with 21 digits, and `,` between elements as `||`. */
const rowGrowthMax = 5;

/** A timestamp may lie this far ahead of the clock. */
export const timestampAheadMsMax = 24 * 60 * 60 * 1000;

export const commits = {
  recordsMax: 2000,
  bytesMax: MiB,
  /** Bytes of checked requests that wait for a commit in one API process. */
  waitingBytesMax: 64 * MiB,
  /** Packed bytes of one request. Above it, it could wait for ever and is refused. */
  groupBytesMax: 32 * MiB,
  /** One attempt at a commit; a lost reply shows only as silence. */
  attemptMs: 900,
  /** From a request's arrival at the commit to its answer, whatever happens. */
  deadlineMs: 1_800,
  /** A segment that should have been sealed so long ago takes no further commit. */
  overdueSegmentMsMax: 1_000,
  /** How long Redis keeps the answer of a process's last commit, by the clock of claims. */
  answerKeptMs: 24 * 60 * 60 * 1000,
} as const;

/** Sealed segments that wait for ClickHouse, which workers compress. */
export const waitingSegments = {
  /** Those that have waited for so long; usually ClickHouse has a segment within a second. */
  waitMs: 5_000,
  /** One worker at a time looks, about once a second. */
  turnMs: 900,
  /** A look ends after so many segments, or bytes of rows: more than can arrive in the time. */
  perTurnMax: 200,
  bytesPerTurn: 64 * MiB,
} as const;

export const claims = {
  /** Remembered at least this long, whatever the byte budget says. */
  windowMsMin: 15 * 60 * 1000,
  windowMsMax: 24 * 60 * 60 * 1000,
  /** Measured: 27.2 bytes with 6 claims a bucket, 22.4 with 12. The byte budget is divided by it. */
  bytesPerClaim: 27,
  /** Of a shard, once a second and worker. */
  bucketsPerSweep: 300,
  /** A worker's look moves the clock of claims by at most this, however long the last one is past. */
  clockStepMsMax: 50_000,
} as const;

export const deletions = {
  tokenMsMax: 60 * 60 * 1000,
  /**
   * Live tokens that an API key may have. None that was given is ended for another, so the newest is refused: only a
   * caller that mints 28 a second for an hour meets it. Measured: 503 bytes of Redis's memory a token, 50 MB in all.
   */
  liveTokensPerKeyMax: 100_000,
  /** Failed token requests a minute and (app_id, address). */
  tokenFailuresPerMinuteMax: 20,
  statusRequestsPerSecondMax: 100,
  pendingPerAccountMax: 2000,
  /** Rounds start at least this far apart, so that requests share mutations: at most 15 a minute. */
  roundEveryMs: 4_000,
  /** Targets and requests that one round takes on. */
  targetsPerRoundMax: 50_000,
  requestsPerRoundMax: 2_000,
} as const;

/** Loading the deployment's state into an emptied Redis. */
export const loads = {
  /** Whoever loads renews the right to it; that of a killed one ends after this long. */
  holdMs: 5_000,
  renewEveryMs: 1_000,
  /** A command that only restores waits so long for another load, which is the killed one's right. */
  restoreWaitMsMax: 7_000,
  /** Inserts that were begun before are waited for so long: longer than a worker waits for one. */
  insertMsMax: 150_000,
  /** A start waits so long for another load, such as that of another start. */
  startWaitMsMax: 180_000,
  /** What one call of a script carries. */
  documentsPerCallMax: 500,
  bytesPerCallMax: 4 * MiB,
  /** Targets that one query asks for; those of one request are not divided. */
  targetsPerQueryMax: 100_000,
} as const;

/** The Event Visualizer. */
export const visualizer = {
  /** How long a code waits to be entered. */
  waitingMsMax: 10 * 60 * 1000,
  waitingMax: 10_000,
  waitingPerAppMax: 100,
  waitingPerAddressMax: 30,
  /** A live pairing ends when no page has renewed it for this long; a page that reconnects has as long. */
  leaseMs: 60 * 1000,
  renewEveryMs: 15 * 1000,
  liveMsMax: 4 * 60 * 60 * 1000,
  /** Pages that one API process serves. */
  pagesMax: 200,
  /** A page says who it is within this time, in a message of at most so many bytes. */
  helloMsMax: 5_000,
  helloBytesMax: 4 * KiB,
  /** Wrong tokens and codes a minute and address. */
  failuresPerMinuteMax: 20,
  /** What one batch of a device may send to a page; the rest is counted. */
  batchBytesMax: 256 * KiB,
  /** What may wait for a slow page; above it batches are counted instead. */
  backpressureBytesMax: MiB,
  /** The answer to a device waits so long for Redis to say whether its pairing lives. */
  lookupMsMax: 250,
  bodyBytesMax: 4 * KiB,
} as const;

/** `Retry-After` of a 503, in whole seconds. */
export const overloadedRetrySeconds = 2;

export type LimitName = 'track' | 'user_properties' | 'bulk_identity' | 'bulk_app';

export type RateLimit = {
  /** How many are accepted in any window. */
  readonly max: number;
  readonly windowMs: number;
  /** Acceptances within this time share one entry of the log and leave the window together. */
  readonly granularityMs: number;
};

export const rateLimits: Readonly<Record<LimitName, RateLimit>> = {
  track: { max: 30, windowMs: 30_000, granularityMs: 1 },
  user_properties: { max: 30, windowMs: 30_000, granularityMs: 1 },
  bulk_identity: { max: 1000, windowMs: 60_000, granularityMs: 1000 },
  bulk_app: { max: 15_000, windowMs: 60_000, granularityMs: 1000 },
};

function relation(holds: boolean, reason: string): void {
  if (!holds) throw new Error(`limits contradict each other: ${reason}`);
}

// One call that is marked as pure, so that the client library's bundle leaves it and all that it reads out.
/* @__PURE__ */ assertRelations();

function assertRelations(): void {
  relation(counts.bulkEventsMax <= commits.recordsMax, 'one bulk request must fit one commit');
  relation(
    counts.collectMessagesMax <= commits.recordsMax,
    'the messages of one request must fit one commit, which keeps their order',
  );
  relation(3 * loads.renewEveryMs <= loads.holdMs, 'a slow renewal must not end a load');
  relation(loads.holdMs < loads.restoreWaitMsMax, "a killed load's right ends while a restore waits");
  relation(loads.insertMsMax < loads.startWaitMsMax, 'a start waits for another load that waits for inserts');
  relation(commits.recordsMax <= 10_000, 'the number of a row has at most four digits');
  relation(commits.attemptMs * 2 <= commits.deadlineMs, 'a commit must be repeatable before its deadline');
  relation(commits.deadlineMs < 2_000, 'a request is answered within 2 s when Redis is away');
  relation(
    commits.waitingBytesMax >= 2 * commits.groupBytesMax,
    'the largest request must fit beside another one that waits',
  );
  relation(
    flattened.singleBytesMax <= bodies.singleBytesMax &&
      flattened.bulkBytesMax <= bodies.bulkBytesMax &&
      flattened.collectBytesMax <= bodies.collectBytesMax,
    'flattening must at most double a request',
  );
  const bulkOverheadBytesMax = Math.max(counts.bulkEventsMax, counts.bulkUsersMax) * rowOverheadBytesMax;
  relation(
    bodies.bulkBytesMax + flattened.bulkBytesMax + bulkOverheadBytesMax <= commits.groupBytesMax,
    'a bulk request must fit one group, unless its numbers are stored with many more digits than were sent',
  );
  relation(
    bodies.collectBytesMax * rowGrowthMax +
      flattened.collectBytesMax +
      counts.collectMessagesMax * rowOverheadBytesMax <=
      commits.groupBytesMax,
    'the messages of one request must fit one group, whatever their numbers are',
  );
  relation(
    bodies.singleBytesMax * rowGrowthMax + flattened.singleBytesMax + rowOverheadBytesMax <=
      commits.groupBytesMax,
    'a single record must fit one group, whatever its numbers are',
  );
  relation(bodies.singleBytesMax <= commits.bytesMax, 'a single request must fit one commit');
  relation(
    claims.windowMsMin > commits.deadlineMs,
    'a key must be remembered for longer than a request may take',
  );
  relation(
    claims.clockStepMsMax < 60_000,
    'a claim lags by up to a step, and is kept a minute longer than told for it',
  );
  relation(
    claims.windowMsMax / 60_000 < 2 ** 15,
    'minutes of claims are told apart by 2 bytes, with room for segments that are outstanding for long',
  );
  relation(
    deletions.targetsPerRoundMax >= counts.deletionTargetsMax,
    'one round must be able to take the largest request',
  );
  relation(60_000 / deletions.roundEveryMs <= 20, 'requests share at most 20 mutations a minute and table');
  relation(
    counts.deletionTargetsMax * lengths.identityMax * 12 + MiB <= bodies.deletionBytesMax,
    'the largest list, every character escaped as a surrogate pair, must fit the body',
  );
  relation(
    visualizer.renewEveryMs * 3 <= visualizer.leaseMs,
    'a live pairing must survive two renewals that fail',
  );
  relation(counts.documentDepthMax <= 256, 'what recurses over a document must not exhaust the stack');
  relation(lengths.joinedArrayMax >= arrayDelimiter.length, 'a joined array must hold its delimiter');
}
