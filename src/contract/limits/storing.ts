// From the commit of a record to its row in ClickHouse.

const MiB = 1024 * 1024;

/** How long a command may take before its sender gives up on the answer. */
export const waits = {
  /** A command to Redis that a request needs, besides its commit. */
  requestMsMax: 1_500,
  /** Any other command to Redis. Submitting the largest deletion takes longer than `requestMsMax`. */
  redisMsMax: 5_000,
  /** A statement for ClickHouse, including inserts. */
  clickhouseMsMax: 120_000,
  /** A mutation that makes no progress for this long is ended. ClickHouse may have other merges to make before it. */
  mutationStandstillMsMax: 10 * 60_000,
} as const;

export const commits = {
  /** Bytes of checked requests that wait for a commit of a shard in one API process. An account gets at most three quarters (ingest/commit-queue.ts). */
  waitingBytesMax: 64 * MiB,
  /** Packed bytes of one request. A larger request could wait for ever, so it is refused. */
  groupBytesMax: 32 * MiB,
  /** The longest time from a request's arrival at the commit to its answer, whatever fails. */
  deadlineMs: 1_800,
} as const;

export const storing = {
  shardsMax: 64,
  /** A segment is sealed at this age: the default of `SEGMENT_AGE_MS_MAX`. */
  segmentAgeMs: 400,
} as const;

/** How long Redis remembers idempotency keys. Each remembered key is a claim. */
export const claims = {
  /** A key is remembered at least this long, whatever the byte budget says. */
  windowMsMin: 15 * 60 * 1000,
  windowMsMax: 24 * 60 * 60 * 1000,
  /** What one claim takes of the byte budget. Measured: 27.2 bytes with 6 claims per bucket, 22.4 with 12. */
  bytesPerClaim: 27,
} as const;

/** Redis's memory: the default of `REDIS_MEMORY_BYTES_MAX`. */
export const redisMemoryBytes = 6 * 1024 * MiB;

/** How soon another worker takes over the work of a killed one. */
export const takeovers = {
  /** How long the lock on a job outlives its worker: the default of `JOB_LOCK_MS`. */
  lockMs: 5_000,
  /** How long a worker that stops waits for the jobs that it has begun. */
  stopMsMax: 20_000,
  /** A deletion whose worker was killed is complete by then, unless the work itself takes longer. */
  completeMsMax: 10_000,
} as const;

/** Rows that ClickHouse refused. */
export const failedRows = {
  /** Rows that one retry sends. */
  perRetryMax: 100_000,
} as const;

export const rejectedRecords = {
  perEnvironmentMax: 100,
  ageMsMax: 7 * 24 * 60 * 60 * 1000,
} as const;

/** What became of all records, and whether they add up. */
export const ledger = {
  /** How long Redis keeps the numbers of records that ClickHouse must have of each minute. */
  sumsKeptMs: 4 * 24 * 60 * 60 * 1000,
  /** The latest day that can be asked for, in milliseconds since 1970. */
  dayMsMax: Date.UTC(2100, 0, 1),
  /** Differences that are kept; only these are shown and counted. */
  differencesMax: 1_000,
} as const;
