// Numbers that no caller can observe but on which other numbers depend: internal intervals, shares and sizes. Changing one changes
// speed or memory, not what is promised (`contract/limits.ts`). The end of the file asserts how they relate to each other and to the
// promises. A number on which no other depends is beside the code that uses it.

import {
  bodies,
  commits,
  counts,
  loads,
  previews,
  rejectedRecords,
  relation,
  storing,
  takeovers,
  userExports,
  waits,
} from './contract/limits.js';

const KiB = 1024;
const MiB = 1024 * KiB;

export const writeAccess = {
  /** Authorization headers that are remembered as valid, per environment. */
  headersKeptMax: 100,
} as const;

/** Work on large bodies, in one API process. */
export const largeBodies = {
  /**
   * The work is done in slices of about this length. Meanwhile an event waits for three or four slices: to be read, committed and answered.
   */
  sliceMs: 1,
  /** Inflations at a time; each takes a thread. */
  inflationsAtOnce: 2,
} as const;

/** What goes to Redis in one commit. */
export const commitBatches = {
  recordsMax: 2000,
  bytesMax: MiB,
  /**
   * The most groups plus limits that they have to pass, unless a single request has more: 1,000 messages of 1,000 users have 6,000, which
   * take the script 4 ms, or 8 ms if it also joins the users.
   */
  decisionsMax: 4000,
  /** A request with more records is large. Large requests of one account and small ones of all accounts take turns. */
  smallRecordsMax: 100,
  /** While requests keep coming, a commit begins this long after the previous one began, or at once if the previous one took longer. */
  spacingMs: 5,
  /** How long one attempt at a commit waits for its reply: a lost reply shows only as silence. */
  attemptMs: 900,
  /** The part of that time that replicas may take to confirm it. */
  replicasMs: 700,
  /** A segment that is overdue for sealing by this long takes no further commit. */
  overdueSegmentMsMax: 1_000,
  /** How long Redis keeps the answer of a process's last commit, measured by the clock of claims. */
  answerKeptMs: 24 * 60 * 60 * 1000,
} as const;

/** ClickHouse skips an insert whose token it has already seen. */
export const insertTokens = {
  /** Tokens that ClickHouse remembers for each table, as the migrations set it. */
  keptMax: 100_000,
  /** A worker that checked for a segment's marker longer ago than this does not insert it, but checks again. */
  markerCheckMsMax: 5 * 60 * 1000,
} as const;

/** The files in which ClickHouse keeps the definitions of tables (`clickhouse/definitions.ts`). */
export const definitions = {
  /** The free room on ClickHouse's disk that a change of a definition needs, besides what ClickHouse itself keeps free. */
  roomBytesMin: 16 * MiB,
} as const;

/** Sealed segments that have to wait for ClickHouse. Workers compress them. */
export const waitingSegments = {
  /** Segments are compressed after waiting this long; usually ClickHouse has a segment within a second. */
  waitMs: 5_000,
  /** About once a second one worker looks for such segments. */
  turnMs: 900,
  /** A search ends after this many segments or bytes of rows, which is more than can arrive in that time. */
  perTurnMax: 200,
  bytesPerTurn: 64 * MiB,
} as const;

/** How workers forget claims. */
export const claimSweeps = {
  /** Buckets of a shard that each worker sweeps once a second. */
  bucketsMax: 300,
  /** A sweep moves the clock of claims on by at most this, however long ago the last one was. */
  clockStepMsMax: 50_000,
} as const;

/** The index of keys on disk. */
export const keyIndex = {
  /** Once Redis has forgotten keys, segments are indexed at the latest this long after they were opened. */
  unindexedMsMax: 5 * 60 * 1000,
  /** About how many rows one statement adds: the segments of a minute are not divided. */
  rowsPerStatement: 4_000_000,
  /** The most memory of a worker's filter, which rules out keys that are not in the index: enough for 170 million keys. */
  filterBytesMax: 256 * MiB,
  /** Bits of the filter for each key: with this many, one new key in two hundred has to be looked up. */
  filterBitsPerKey: 12,
  /** Rows of the index that are counted to say how many keys it has. Of a larger index only a part is counted. */
  countedRows: 1_048_576,
  /** About how many hashes of keys one answer of ClickHouse has. */
  hashesPerAnswer: 4_000_000,
  /** A new filter has room for this many times the keys that the index has then. */
  filterRoom: 1.25,
  /** A filter that replaces a full one has room for this many times the keys. */
  filterGrowth: 1.5,
  /** One worker at a time builds the index of a shard. */
  lease: { holdMs: 10_000, renewEveryMs: 3_000 },
  /** After this long a rebuild makes way for keys that were stored meanwhile, once its step is done. */
  rebuildMsMax: 60_000,
  /** How often the command line checks the progress of a rebuild. */
  rebuildPollMs: 500,
  /** From this many keys that may be in the index, a sample of them is looked up first. */
  sampledFrom: 2_000,
  sample: 128,
  /** A segment that holds this share of the sample is read as a whole, unless it has more than `rowsReadPerKey`. */
  shareOfOwner: 1 / 16,
  /** Rows of such a segment for each key to look up: reading a row costs ClickHouse 0.02 µs, a look-up 15 µs. */
  rowsReadPerKey: 64,
} as const;

export const receiptReads = {
  /** Rows that ClickHouse may read for a request for receipts whose keys the index lacks: half a second of CPU. */
  rowsReadMax: 20_000_000,
  /** The time that each statement may take. */
  clickhouseMsMax: 5_000,
} as const;

/** How far apart a process takes fences: each ends the open segments of all accounts, which costs an insert for each shard and table. */
export const fenceSpacingMs = 100;

export const deletionRounds = {
  /** Rounds start at least this far apart, so that requests share mutations: at most 15 per minute. */
  everyMs: 4_000,
  /** The free room on each ClickHouse server's disk that a round needs to begin, besides what ClickHouse itself keeps free. */
  roomBytesMin: 64 * MiB,
  /** Targets and requests that one round takes. */
  targetsMax: 50_000,
  requestsMax: 2_000,
  /** The most that their lists may weigh together, unless one alone weighs more. ClickHouse holds several copies of them in memory. */
  weightMax: 16 * MiB,
  /** Rows of a table that a round lists by position, with their keys: ClickHouse holds about 50 bytes a row in memory. */
  positionsMax: 1_000_000,
  /** The most that the lists which a worker copies to ClickHouse at a time may weigh together. */
  copiedWeightMax: 8 * MiB,
  /** Bytes of hashes of deleted users that one command to Redis carries. */
  hashBytesPerWrite: MiB / 4,
  /**
   * How many writes to Redis a round has under way at once, so that they share syncs; and about how many bytes of documents each carries,
   * which takes 3 ms.
   */
  writesAtOnceMax: 50,
  documentBytesPerWrite: MiB / 4,
} as const;

/** Passes that erase what was masked (workers/erase.ts). */
export const erasures = {
  /**
   * How often a worker checks whether a pass is due: while requests wait for one, and while none does, since retention may have masked
   * rows.
   */
  checkEveryMs: 5_000,
  checkWhenIdleEveryMs: 60_000,
  /** How many bytes one core is assumed to rewrite in a millisecond. Measured: 71,000. */
  bytesPerMs: 50_000,
  /** A pass gives way to users who are to be hidden this long after it last did, and later by the time that its largest part takes. */
  givesWayEveryMs: 60_000,
  /**
   * CPU that erasing may use in advance where all tables are small. Fifteen rounds, a minute's worth, that each rewrite tables of 10 million
   * events count as four minutes of it.
   */
  advanceCpuMs: 400_000,
  /** Passes do not rest while the lists of pending users weigh this much or more. The lists of one account may weigh twice that. */
  listsWeightMax: 32 * MiB,
} as const;

/** Each preview of a deletion has tables of its own. Tables older than this are left over. */
export const strayPreviewMsMin = 10 * 60_000;

export const suppressionChanges = {
  /** Names and roots of names that one script looks at: 2 ms on a quiet machine. */
  workMax: 200,
  /** Changes that are kept for API processes. A process that has missed more reads everything again. */
  keptMax: 2_000,
  /** Changes that one command reads. */
  changesPerReadMax: 20,
  /** Names that one command reads. */
  namesPerReadMax: 1_000,
  /** About how many joined users of a shard are moved at a time. */
  joinsPerRoundMax: 2_000,
  /** Rows of one insert when ClickHouse's copy is written again. */
  rowsPerInsertMax: 10_000,
} as const;

export const retentionRuns = {
  /** Expired rows are deleted this often: within a day, even if two runs fail. */
  everyMs: 6 * 60 * 60 * 1000,
  /** How soon a run is tried again if something else holds the tables. */
  retryMs: 5 * 60 * 1000,
  /** A run that is overdue for this long is late: rows that expired after the previous run may stay for more than a day. */
  lateMs: 12 * 60 * 60 * 1000,
  /** How long a run waits for what was accepted before it to be stored, and for inserts under way. */
  storedMsMax: 30_000,
} as const;

/** Deletions end the exports that name their users. */
export const exportEnds = {
  /** Requests for exports that are read at a time: up to 2 MB. */
  exportsPerRead: 10,
  /** Deletions submitted before an export that one command looks up. */
  deletionsPerRead: 100,
  /**
   * How many users of exports, and how many deletions, one statement of ClickHouse compares. Those of one account may be 50,000 more users.
   */
  usersPerStatement: 50_000,
  deletionsPerStatement: 1_000,
} as const;

export const callbackJobs = {
  /**
   * How many run at a time in one worker process. A call that waits for a silent server costs only a connection. Half of the places are
   * reserved for accounts without a call under way, so that silent servers of a few do not hold up the others.
   */
  places: { atOnceMax: 100, ofAccountMax: 4, reserved: 50, waitMsMax: 0, waitingOfAccountMax: 0 },
  /** A call that finds no place is tried again after this long, and each further one of its account this much later. */
  busyMs: 1_000,
  busySpacingMs: 50,
  /** How many callbacks get jobs at a time. */
  perTurnMax: 1000,
} as const;

/** ClickHouse servers that replicate the same tables. */
export const replicas = {
  /** How long one statement waits for the other replicas. */
  waitMsMax: 60_000,
} as const;

/** How the ledger gets to ClickHouse. */
export const ledgerWrites = {
  /** How long a process gathers what it counts. */
  everyMs: 1_000,
  /** How often a worker looks for minutes that are over. */
  turnMs: 5_000,
  /** A minute is over this long after its end: by then its segments are sealed. */
  afterMs: 2_000,
  /** A minute is in ClickHouse this long after its end, unless something is wrong. */
  writtenMsMax: 15_000,
  /** Entries that a script or a command takes at once. */
  fieldsAtOnceMax: 500,
  logBytesAtOnceMax: MiB,
  /** Rows of one insert. */
  rowsAtOnceMax: 10_000,
  /** If a minute has more entries than this, those that nothing relies on are left out. */
  fieldsOfMinuteMax: 100_000,
} as const;

/** How the ledger is compared with what is stored. */
export const ledgerChecks = {
  /** A check is followed by a rest this many times as long, so that checks of older minutes take a hundredth of a core. */
  restFactor: 100,
  /** The longest rest after a check of new minutes, which is cheap: on a busy machine it takes long without costing much. */
  newRestMsMax: 30_000,
  everyMsMin: 5_000,
  /** The most minutes that one check of new minutes covers. */
  newMinutesMax: 60,
  /** How far back recent minutes are checked again, and how often. */
  lastMinutes: 60,
  lastEveryMs: 2 * 60 * 1000,
  /** How far back all minutes are checked again, and how often. */
  recentMinutes: 2 * 24 * 60,
  recentEveryMs: 60 * 60 * 1000,
  /** How often one past month is checked again. */
  oldEveryMs: 24 * 60 * 60 * 1000,
  /** A difference has to be found this many times in a row, this far apart, since counts are not taken at one instant. */
  looks: 3,
  looksEveryMs: 2_000,
  /** Environments that one statement checks minute by minute. */
  environmentsAtOnceMax: 100,
  /** Minutes with known differences that one check compares again. */
  minutesAgainMax: 5,
} as const;

/** The list of running processes that people see. */
export const runningProcesses = {
  sayEveryMs: 5_000,
  /** A process without a sign of life for this long has ended. */
  staleMs: 20_000,
} as const;

/** How the service notices that a store was set back (registry/witness.ts). */
export const witnesses = {
  everyMs: 1_000,
  /** Within this time only one process raises the witness's number. It is shorter than the time between two rounds. */
  turnMs: 900,
  /** Once in this many rounds, the number is compared with ClickHouse's copy and copied there. */
  roundsPerCopy: 5,
  /** The timeout of a statement, which takes seconds on a busy machine. */
  clickhouseMsMax: 10_000,
  /** How long a starting process waits for ClickHouse before it continues without it. */
  firstAnswerMsMax: 2_000,
  /** A process that gets no confirmation from replicas for this long is not ready. */
  unconfirmedMsMax: 10_000,
  /** How many rounds a Redis that does not wait for its disk may lose. */
  slack: 3,
  /** How many rounds a new primary may lack if that must not stop the service (`REDIS_LOSS=go-on`). */
  slackOfLoss: 60,
} as const;

/** Metrics of one host's processes. */
export const sharedMetrics = {
  writeEveryMs: 2_000,
  /** A process that has not written for this long, while the one that is asked did, has ended. */
  staleMs: 10_000,
  /** Redis forgets the metrics of a host this long after its last process has ended. */
  keptMs: 60 * 60_000,
} as const;

/**
 * A larger piece of a download is divided. With the line that gives its length, a piece has to fit the 16 KiB that uWebSockets.js
 * collects before it writes: if the socket is full just then, version 6.0.1 keeps what it has collected and silently drops the rest
 * of a larger piece.
 */
export const exportPieceBytesMax = 15 * KiB;

/** How many characters of an export's page are made at a time: two milliseconds of CPU, and then other requests get their turn. */
export const exportPageStepCharacters = 32 * KiB;

/**
 * While the reader of a download takes nothing, one of the bytes that were held back is sent now and then: uWebSockets.js closes a
 * connection that takes nothing for some 10 s after a write. A slow reader often needs longer: Linux reports that a socket can be
 * written to only when a third of its buffer is free again, which may be more than 1 MB.
 */
export const slowReaders = { byteEveryMs: 3_000, heldBytes: 32 } as const;

/** How often workers check for jobs whose lock has expired. Another worker takes a job at the second check: after 7 s at most. */
export const lockChecksEveryMsMax = 1_000;

/** Rounds of deletions, retention, retries of failed rows, restores and moves exclude each other. */
export const maintenanceLock = {
  /** The lock of a killed process ends after this long. */
  holdMs: 60_000,
  renewEveryMs: 10_000,
  /** How long a deletion waits for a failed row that is being sent again: longer than the sender waits for the insert. */
  insertMsMax: 150_000,
} as const;

/** Locks of processes that make or restore a backup. */
export const processLocks = {
  /** The lock of a killed process ends after this long. */
  holdMs: 20_000,
  renewEveryMs: 4_000,
  /** How long another process waits: longer than the lock of a killed one lasts. */
  waitMsMax: 25_000,
} as const;

/** How the list of rejected records is written. */
export const rejectedWrites = {
  everyMs: 1_000,
  /** How many entries, of all environments together, may wait in one process. */
  waitingMax: 2_000,
  /** Entries that could not be written within this time are dropped. */
  waitingMsMax: 5_000,
  /** Once the listed elements of a request have more bytes, the others are not listed: measuring 16 MB takes 0.1 to 0.3 s. */
  measuredBytesMax: 256 * KiB,
} as const;

export const wrongTokensLoggedEveryMs = 10_000;

/** Stack frames of an internal error that are logged. */
export const faultFramesMax = 8;

/** Loading the deployment's state into an emptied Redis. */
export const stateLoads = {
  /** The lock of the loading process ends after this long unless the process renews it, which a killed process does not. */
  holdMs: 5_000,
  renewEveryMs: 1_000,
  /** How long a load waits for inserts that began before it: longer than a worker waits for an insert. */
  insertMsMax: 150_000,
  /** The documents and bytes that one call of a script may carry. */
  documentsPerCallMax: 500,
  bytesPerCallMax: 4 * MiB,
  /** Targets that one query asks for. The targets of one request are never divided. */
  targetsPerQueryMax: 20_000,
  /** Where versions do not follow the clock, none is given twice as long as a lost Redis was at most this many ahead of its copy. */
  lostVersionsMax: 1_000_000n,
} as const;

assertRelations();

function assertRelations(): void {
  relation(counts.bulkEventsMax <= commitBatches.recordsMax, 'one bulk request must fit one commit');
  relation(
    counts.collectMessagesMax <= commitBatches.recordsMax,
    'the messages of one request must fit one commit, which keeps their order',
  );
  relation(
    waits.clickhouseMsMax < stateLoads.insertMsMax && waits.clickhouseMsMax < maintenanceLock.insertMsMax,
    'a wait for an insert must be longer than its sender waits',
  );
  relation(
    ((insertTokens.markerCheckMsMax + waits.clickhouseMsMax) / storing.segmentAgeMs) * storing.shardsMax <
      insertTokens.keptMax,
    'ClickHouse must remember the tokens of all inserts from a check to the insert that relies on it',
  );
  relation(
    2 * waits.clickhouseMsMax <= insertTokens.markerCheckMsMax,
    'a segment whose keys are looked up slowly is stored in the end',
  );
  relation(
    previews.msMax + 2 * waits.clickhouseMsMax < strayPreviewMsMin,
    'the tables of a running preview must not count as left over',
  );
  relation(
    takeovers.lockMs + 2 * lockChecksEveryMsMax < takeovers.completeMsMax,
    "a killed worker's deletion must be taken over with time left to complete it",
  );
  relation(3 * maintenanceLock.renewEveryMs <= maintenanceLock.holdMs, 'a slow renewal must not end a retry');
  relation(
    rejectedRecords.perEnvironmentMax <= rejectedWrites.waitingMax &&
      2 * rejectedWrites.everyMs <= rejectedWrites.waitingMsMax,
    'the list of an environment must find room, and its entries a second attempt to be written',
  );
  relation(
    10 * callbackJobs.places.ofAccountMax < callbackJobs.places.atOnceMax - callbackJobs.places.reserved,
    'ten silent accounts leave others more than one place each',
  );
  relation(3 * sharedMetrics.writeEveryMs <= sharedMetrics.staleMs, 'a late write must not hide a process');
  relation(
    3 * runningProcesses.sayEveryMs <= runningProcesses.staleMs,
    'a late sign of life must not hide a process from people',
  );
  relation(3 * stateLoads.renewEveryMs <= stateLoads.holdMs, 'a slow renewal must not end a load');
  relation(
    3 * processLocks.renewEveryMs <= processLocks.holdMs && processLocks.holdMs < processLocks.waitMsMax,
    "a slow renewal must not end a restore, and a killed one's right ends while another waits",
  );
  relation(
    exportPieceBytesMax + '\r\nffff\r\n'.length <= 16 * KiB,
    'the bytes that are collected before a write must hold a piece and the line with its length',
  );
  relation(slowReaders.byteEveryMs * 2 < 8_000, 'a late byte still keeps a connection open');
  relation(
    slowReaders.heldBytes * slowReaders.byteEveryMs > userExports.stalledMsMax,
    'the bytes held back last until a reader counts as gone',
  );
  relation(stateLoads.holdMs < loads.restoreWaitMsMax, "a killed load's right ends while a restore waits");
  relation(
    stateLoads.insertMsMax < loads.startWaitMsMax,
    'a start waits for another load that waits for inserts',
  );
  relation(commitBatches.recordsMax <= 10_000, 'the number of a row has at most four digits');
  relation(
    commitBatches.attemptMs * 2 <= commits.deadlineMs,
    'a commit must be repeatable before its deadline',
  );
  relation(
    commitBatches.replicasMs < commitBatches.attemptMs,
    'it must be known that replicas do not confirm a commit before it counts as lost',
  );
  relation(
    commitBatches.spacingMs * 100 <= commitBatches.attemptMs,
    'the time that a commit waits for more requests is small beside its deadline',
  );
  relation(
    2 * counts.segmentMessagesMax <= commitBatches.recordsMax,
    'the messages of a batch, which may leave two records each, must fit one commit',
  );
  relation(bodies.singleBytesMax <= commitBatches.bytesMax, 'a single request must fit one commit');
  relation(
    claimSweeps.clockStepMsMax < 60_000,
    'a claim lags by up to a step, so it is kept a minute longer than promised',
  );
  relation(
    deletionRounds.targetsMax >= counts.deletionTargetsMax,
    'one round must be able to take the largest request',
  );
  relation(
    deletionRounds.roomBytesMin > definitions.roomBytesMin,
    'a round that has begun can change definitions',
  );
  relation(60_000 / deletionRounds.everyMs <= 20, 'requests share at most 20 mutations a minute and table');
  relation(
    10 * keyIndex.sample <= keyIndex.sampledFrom && 4 <= keyIndex.shareOfOwner * keyIndex.sample,
    'a sample costs little beside all keys, and distinguishes a segment that holds many of them from chance',
  );
  relation(3 * retentionRuns.everyMs <= 24 * 60 * 60 * 1000, 'rows go within a day even if two runs fail');
  relation(replicas.waitMsMax < waits.clickhouseMsMax, 'a replica that is away is reported, not waited for');
}
