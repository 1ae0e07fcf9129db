// The life of a deployment, and programs beside the service.

const KiB = 1024;
const MiB = 1024 * KiB;

/** Loading the deployment's state into an emptied Redis. */
export const loads = {
  /** How long `state reload` waits for another load: longer than a killed process keeps its right to load. */
  restoreWaitMsMax: 7_000,
  /** How long a start waits while another process loads the state. */
  startWaitMsMax: 180_000,
} as const;

/** Moves of a shard from one ClickHouse server to another. */
export const moves = {
  /** How many times at most the rows of a partition are copied until they are the same on both servers. */
  attemptsMax: 3,
  /** How often the copying of a partition reports its progress. */
  progressEveryMs: 2_000,
} as const;

export const backups = {
  /** How long a backup is kept unless `--keep-days` says otherwise, and the most that it may say. */
  keepDays: 35,
  keepDaysMax: 3650,
  nameCharactersMax: 64,
  /** How long a restore waits for a round of deletions that has begun. */
  roundWaitMsMax: 15 * 60_000,
  /**
   * Only a deletion that was completed this long before a backup began counts as done before it: the two times come from the
   * clocks of a worker and of the administrator's machine, which may differ.
   */
  clockDifferenceMsMax: 10 * 60_000,
} as const;

export const logs = {
  /** Bytes of entries that are kept while they cannot be written; later ones are dropped. */
  unwrittenBytesMax: MiB,
  /** Characters of an error's message. */
  messageMax: 500,
} as const;

export const imports = {
  /** A longer row of a CSV file is taken for a quote that is never closed. */
  rowCharactersMax: MiB,
  headerBytesMax: 64 * KiB,
  /** A longer line or element of a JSON file is not taken for a row: the file probably has another format. */
  elementBytesMax: 64 * MiB,
  /** The largest window, which the decoder keeps in memory. The program zstd takes no larger one either unless told to. */
  zstdWindowBytesMax: 128 * MiB,
  /** Digits of a time. Real ones have far fewer, and the work grows with the square of their number. */
  timeDigitsMax: 30,
  /** The most that a block may hold (RFC 8878). */
  zstdBlockBytesMax: 128 * KiB,
  /** Users whose latest properties are remembered, so that they are not sent with each of their events. */
  rememberedUsersMax: 100_000,
  /** Keys from the file that are remembered, to compare later rows with the first of the same key: some 75 MB of memory. */
  comparedKeysMax: 500_000,
  /** How long the service may be silent before a request is sent again. */
  answerMsMax: 30_000,
  /** An import gives up after failing for this long; otherwise nobody might notice that it makes no progress. */
  failingMsMax: 15 * 60_000,
  /** When none of the accepted rows has been stored for this long, they are reported as waiting: ClickHouse is away. */
  waitingMsMax: 60_000,
} as const;

/** The memory of sluice-micro, the collector for tests. The first two bounds hold for accepted and for refused records, separately. */
export const micro = {
  entriesMax: 10_000,
  bytesMax: 64 * MiB,
  keysMax: 100_000,
  /** Deletion requests and, counted separately, tokens. */
  requestsMax: 1_000,
} as const;
