// What happens to users' data: deletions, suppressions, exports, retention, cases.

const KiB = 1024;
const MiB = 1024 * KiB;

export const deletions = {
  tokenMsMax: 60 * 60 * 1000,
  /**
   * Live tokens of one API key. No token is ended to make room, so beyond this a new one is refused; only a caller that
   * mints 28 a second for an hour gets there. Measured: 503 bytes of Redis's memory per token, 50 MB in all.
   */
  liveTokensPerKeyMax: 100_000,
  /**
   * Unexpired tokens of an account, including those of keys that are gone: otherwise an administrator who replaces keys again and
   * again could fill Redis. A key that has used up its own limit leaves room for the next one.
   */
  tokensPerAccountMax: 500_000,
  /** Failed token requests per minute and (app_id, address). */
  tokenFailuresPerMinuteMax: 20,
  statusRequestsPerSecondMax: 100,
  pendingPerAccountMax: 2000,
  /**
   * What the lists of pending requests may weigh, for one account and for all: the bytes of the names, plus `userWeight` for each
   * user. As much of the total as one account may have is reserved for accounts that have nothing pending. With names of 30 bytes an
   * account can have a million users pending, which rounds work off in two minutes.
   */
  pendingWeightPerAccountMax: 64 * MiB,
  pendingWeightMax: 256 * MiB,
  /** How often an account may have rows erased at once, whatever that costs. */
  eraseNowEveryMs: 60 * 60 * 1000,
  /** How long hashes of deleted users are kept, to delete them again if ClickHouse is set back. Longer if a backup is kept longer. */
  deletedUsersKeptMs: 30 * 24 * 60 * 60 * 1000,
  /** Characters of a caller's reference, and how long it is remembered. */
  referenceMax: 255,
  referenceMs: 30 * 24 * 60 * 60 * 1000,
  /** Requests on one page of an account's list. */
  listedMax: 100,
  /** The most requests that are read to fill a page. */
  listLookedAtMax: 2_000,
  /** Requests that are read from Redis at a time. */
  listReadMax: 200,
} as const;

/** Deletions that a second person has to confirm by the same list. */
export const proposals = {
  /** How long a proposal waits for the second person. */
  keptMs: 7 * 24 * 60 * 60 * 1000,
  perAccountMax: 200,
  /** The highest number of users from which an account may demand a confirmation. */
  fromUsersMax: 1_000_000,
} as const;

/** What each user in the list of a deletion or an export weighs, besides the bytes of its name. */
export const userWeight = 32;

/** The counts that are kept for each user whom a deletion request named. */
export const evidence = {
  keptMs: 30 * 24 * 60 * 60 * 1000,
  usersPerPage: 1000,
} as const;

/** Calls that tell an account that a deletion is complete. */
export const callbacks = {
  urlMax: 2048,
  /** The whole call, from the look-up of the host name to the status of the answer. */
  callMsMax: 10_000,
  /** How many addresses of a host name a call tries until one connects. */
  addressesTriedMax: 4,
  triedForMs: 24 * 60 * 60 * 1000,
  /** The pause before the next try: it doubles each time, from the least to the most. */
  pauseMsMin: 5_000,
  pauseMsMax: 60 * 60 * 1000,
  /** The latest tries that a request's document keeps. */
  triesKept: 50,
} as const;

/** Previews of deletions, which are dry runs. */
export const previews = {
  /** A preview is answered within this time, waiting for its turn included, even if ClickHouse does not answer. */
  msMax: 20_000,
  /** How many run at a time in one API process; further ones of an account wait. */
  places: { atOnceMax: 3, ofAccountMax: 1, reserved: 0, waitMsMax: 15_000, waitingOfAccountMax: 5 },
} as const;

/** How many certificates one API process checks at once, for anybody who asks; at most two for one network. */
export const certificateChecks = {
  atOnceMax: 4,
  ofAccountMax: 2,
  reserved: 1,
  waitMsMax: 2_000,
  waitingOfAccountMax: 10,
} as const;

export const suppressions = {
  /** Suppressed names of an account. Measured in Redis: 107 bytes for a user, up to 400 for a name merged with one. */
  namesPerAccountMax: 5_000_000,
  /** The most other names because of which a name can be suppressed. Freeing one name of a merged user frees them all. */
  rootsPerNameMax: 16,
  /**
   * Anonymous users who are suppressed because they were identified as one suppressed identity, and all of them in an account.
   * They are bounded, apart from the account's own names, since anybody can send identifications and each takes 209 bytes of
   * Redis for ever; no person has ten thousand devices. Above these bounds or that of `joins`, an identification is skipped like
   * any record of a suppressed user, and the anonymous user is not suppressed.
   */
  joinedPerIdentityMax: 10_000,
  joinedPerAccountMax: 500_000,
  /** How many such identifications an environment may have. Each device makes one, so 100,000 suppressed users make a few a minute. */
  joins: { max: 1_000, windowMs: 60_000, granularityMs: 1_000 },
  /** Such users of a shard that may wait for the workers, which take them once a second. */
  joinsWaitingMax: 50_000,
  requestsPerSecondMax: 10,
  /** Changes at a time in one API process. 10,000 users take 0.3 s of its CPU and, in an account of 1,000 environments, 16 s. */
  changes: { atOnceMax: 8, ofAccountMax: 4, reserved: 4, waitMsMax: 15_000, waitingOfAccountMax: 20 },
  /** How long a submission waits until all records accepted before it are stored, so that it finds all merged users. */
  storedMsMax: 8_000,
} as const;

/** Exports of what is held about users. */
export const userExports = {
  /** A request for an export is kept this long; then the export is no longer found. */
  keptMs: 24 * 60 * 60 * 1000,
  /** Exports that an account may have, and what their lists may weigh for one account and for all (as in `deletions`). */
  perAccountMax: 500,
  weightPerAccountMax: 16 * MiB,
  weightMax: 128 * MiB,
  /** Downloads at a time in one API process. The last places are for accounts that download nothing else. */
  downloads: { atOnceMax: 6, ofAccountMax: 2, reserved: 2, waitMsMax: 20_000, waitingOfAccountMax: 4 },
  /**
   * A download that has waited for its reader for this long, and whose reader took fewer bytes a second than this, makes way for an account
   * that downloads nothing and finds no place.
   */
  slowAfterMs: 10_000,
  slowBytesPerSecondMax: 256 * KiB,
  /**
   * A download is cut off when its reader takes nothing for `stalledMsMax`, or when it lasts longer than `downloadMsMax`. What a
   * reader takes shows only in steps of up to 1.4 MB (a third of a socket's buffer), so a reader of 25 kB/s is not cut off.
   */
  stalledMsMax: 60_000,
  downloadMsMax: 15 * 60_000,
  /** A page of the readable format (`zip`) ends after this many records or this many characters of JSON. */
  pageRecordsMax: 1_000,
  pageCharactersMax: 512 * KiB,
  /** Properties with a column of their own in the CSV of a page; all others share one. */
  propertyColumnsMax: 200,
  /** Exports of an account that are listed. They are few, since each is read whole and may name many users. */
  listedMax: 20,
} as const;

/** Environments that keep rows for a limited number of days. */
export const retention = {
  daysMax: 36_500,
} as const;

/** Cases: what people have asked of an account. */
export const cases = {
  openMax: 1_000,
  /** Cases in a list; of closed ones, the latest. */
  listedMax: 1_000,
  resultMax: 1_000,
  /** The days from the receipt of a request until it is due, and the most that an account may set instead. */
  dueDays: 30,
  dueDaysMax: 366,
} as const;

/** The deletions that concern a user are searched for among this many of the latest deletions, by this many names of the user. */
export const requestsOfUser = { deletionsMax: 1_000, namesMax: 20 } as const;
