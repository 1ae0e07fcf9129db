// Every promised bound: those that callers, administrators or people can meet, with the unit in the name. The end of the
// file asserts the relations between them. Three kinds are elsewhere: bounds of single records in `lengths.ts`, what a
// variable may be set to in `config.ts`, and what a library holds back by itself in `libraries/client/core/limits.ts` and
// `libraries/producer/limits.ts`. Numbers that callers cannot observe are not promised. If other numbers depend on one, it is in
// `tuning.ts`, else beside the code that uses it.

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
  /** A batch of Segment's protocol; its libraries send at most 500 kB. */
  segmentBytesMax: 4 * MiB,
  deletionBytesMax: 32 * MiB,
  lookupBytesMax: 4 * MiB,
  pairingBytesMax: 4 * KiB,
  adminBytesMax: 64 * KiB,
  /** With a list of users, or a certificate. */
  adminListBytesMax: 512 * KiB,
  /** Of a sign-in and of changes to people's own access: read before the caller is signed in. */
  accessBytesMax: 16 * KiB,
} as const;

/** Connections of an API process: to `PORT` at most `CONNECTIONS_MAX`. */
export const connections = {
  /** To `ADMIN_PORT`, and no more than this part of the descriptors. */
  adminMax: 1_000,
  adminShare: 0.25,
  /** While more than this part is open, an address gets no more than its share of new ones within a window. */
  busyFrom: 0.5,
  shareOfAddress: 0.25,
  /** The parser closes a silent connection by then. */
  windowMs: 15_000,
  /** Descriptors that a process needs for everything else. */
  otherDescriptors: 100,
} as const;

/** Characters of a field's path in an answer; what is longer is cut. */
export const answerFieldMax = 100;

/** Names of unknown fields in the header of an answer. */
export const ignoredFields = {
  namesMax: 10,
  /** UTF-16 units of a name; what is longer is cut. Encoded, a unit takes at most 9 bytes. */
  nameMax: 40,
} as const;

/** Characters of a bearer token. A longer one is never valid. */
export const bearerMax = 200;

/**
 * Bytes of bodies by address, in one API process: to `/api/collect` (`COLLECT_ADDRESS_BYTES_MAX`), and large or compressed ones to
 * the endpoints of servers (`ADDRESS_BYTES_MAX`).
 */
export const addressAllowances = {
  windowMs: 60_000,
  /** Addresses that are remembered; beyond that the oldest is forgotten. Measured: 96 bytes each. */
  keptMax: 100_000,
} as const;

/** How long browsers may cache answers. */
export const browserCaches = {
  /** The answer to a preflight; most browsers keep it for two hours at most. */
  preflightSeconds: 24 * 60 * 60,
  /** The client library's script. */
  scriptSeconds: 60 * 60,
  /** The settings that Segment's library for pages asks for. */
  segmentSettingsSeconds: 5 * 60,
} as const;

/** How many accepted and refused records, and how many keys, a collector for tests remembers. */
export const micro = {
  entriesMax: 10_000,
  bytesMax: 64 * MiB,
  keysMax: 100_000,
  /** Of deletions and of tokens. */
  requestsMax: 1_000,
} as const;

/** Bodies that come in pieces or compressed, in one API process. */
export const receiving = {
  /** Of one request, all together. uWebSockets.js takes 100 headers at most. */
  headerBytesMax: 16 * KiB,
  /** A request with so many more is refused in JSON, and beyond that by uWebSockets.js. */
  headerBytesAnswered: 16 * KiB,
  /** A body up to this size takes room as it comes; a larger one is read on once there is room for all of it. */
  smallBytesMax: 64 * KiB,
  small: { bytesMax: 32 * MiB, bytesPerAddressMax: 16 * MiB, waitMsMax: 0 },
  large: { bytesMax: 96 * MiB, bytesPerAddressMax: 64 * MiB, waitMsMax: 5_000 },
  /** Room for what compressed bodies may inflate to; once inflated, they take only their real size. */
  inflated: { bytesMax: 48 * MiB, bytesPerAddressMax: 32 * MiB, waitMsMax: 5_000 },
  /**
   * From its first byte, or since it has room, a body takes no longer than this and the time of its bytes. The parser closes
   * silent connections, and those below 16 kB/s, before that.
   */
  bodyMsMin: 15_000,
  bodyBytesPerMs: 128,
  /** Each piece costs 2 µs. A body in more pieces than this is cut off unless its pieces have at least this many bytes. */
  piecesMax: 500,
  pieceBytesMin: 32,
  /** A compressed body inflates to at most so many times its size; what people send to 20 times. */
  inflatedTimesMax: 200,
  /** Up to this size the ratio is not checked. */
  inflatedBytesAlways: 64 * KiB,
  /** A larger body is read and checked in turns, within the bounds of a large document (`counts`). */
  largeBytesMin: 64 * KiB,
  /** A body that exceeds its limit by at most this is received, dropped and then answered. */
  overshootBytesMax: 16 * MiB,
  /** The body of a request that needs none is waited for up to this size. */
  droppedBytesMax: MiB,
} as const;

/**
 * Bytes that flattening may add to one request of a lenient environment, counted as JSON. A flattened key repeats the keys
 * above it, so 8 kB of properties could become 1 MB.
 */
export const flattened = {
  singleBytesMax: MiB,
  bulkBytesMax: 12 * MiB,
  collectBytesMax: MiB,
  segmentBytesMax: 4 * MiB,
} as const;

/** Records of one request: a message of a Segment batch may leave two. */
const requestRecordsMax = 2 * counts.segmentMessagesMax;
/** The bytes that a row adds to its record: ids, a time, separators, and its part of a commit. */
const rowOverheadBytesMax = KiB;
/** The most bytes of a row per byte of its record: `1e20` is stored with 21 digits, and `,` between elements as `||`. */
const rowGrowthMax = 5;

/** A timestamp may be this far ahead of the clock. */
export const timestampAheadMsMax = 24 * 60 * 60 * 1000;

/**
 * A number in this range is a time in seconds where milliseconds are wanted: as seconds it is after February 1973, as milliseconds it
 * would be before.
 */
export const epochSeconds = { min: 1e8, endsBefore: 1e11 } as const;

/** How long a command may take before its sender gives up on the answer. */
export const waits = {
  /** A command to Redis that a request needs, besides its commit. */
  requestMsMax: 1_500,
  /** Any other command to Redis; submitting the largest deletion takes longer than a request's. */
  redisMsMax: 5_000,
  /** A statement of ClickHouse, so also an insert. */
  clickhouseMsMax: 120_000,
  /** A mutation that makes no progress for this long is ended. ClickHouse may have other merges to make before it. */
  mutationStandstillMsMax: 10 * 60_000,
} as const;

export const commits = {
  /** Bytes of checked requests that wait for a commit in one API process. */
  waitingBytesMax: 64 * MiB,
  /** Packed bytes of one request. A larger request could wait for ever, so it is refused. */
  groupBytesMax: 32 * MiB,
  /** The longest time from a request's arrival at the commit to its answer, whatever fails. */
  deadlineMs: 1_800,
} as const;

/** Storing a segment in ClickHouse. */
export const storing = {
  shardsMax: 64,
  /** A segment is sealed at this age: the default of `SEGMENT_AGE_MS_MAX`. */
  segmentAgeMs: 400,
} as const;

export const claims = {
  /** Remembered at least this long, whatever the byte budget says. */
  windowMsMin: 15 * 60 * 1000,
  windowMsMax: 24 * 60 * 60 * 1000,
  /** The byte budget is divided by this. Measured: 27.2 bytes with 6 claims per bucket, 22.4 with 12. */
  bytesPerClaim: 27,
} as const;

export const deletions = {
  tokenMsMax: 60 * 60 * 1000,
  /**
   * Live tokens that an API key may have. No token is ended to make room for another one, so beyond this a new one is
   * refused; only a caller that mints 28 a second for an hour gets there. Measured: 503 bytes of Redis's memory per token,
   * 50 MB in all.
   */
  liveTokensPerKeyMax: 100_000,
  /**
   * Tokens issued for an account within their time, also those of keys that are gone: otherwise an administrator who replaces keys
   * could fill Redis. It leaves room for the next key when one had all that it may have.
   */
  tokensPerAccountMax: 500_000,
  /** Failed token requests per minute and (app_id, address). */
  tokenFailuresPerMinuteMax: 20,
  statusRequestsPerSecondMax: 100,
  pendingPerAccountMax: 2000,
  /**
   * What the lists of pending requests may weigh, of one account and of all: the bytes of their names, and so much for each user. The
   * last part of it, as much as one account may have, is for accounts that have nothing pending. Of names of 30 bytes an account can
   * have a million users pending, which rounds take in two minutes.
   */
  pendingWeightPerAccountMax: 64 * MiB,
  pendingWeightMax: 256 * MiB,
  /** An account may ask so often for rows to be erased at once, whatever that costs. */
  eraseNowEveryMs: 60 * 60 * 1000,
  /** How long hashes of deleted users are kept, to delete them again from a ClickHouse that was set back. Longer for a backup. */
  deletedUsersKeptMs: 30 * 24 * 60 * 60 * 1000,
  /** Characters of a caller's reference, and how long it is remembered. */
  referenceMax: 255,
  referenceMs: 30 * 24 * 60 * 60 * 1000,
  /** The most requests on one page of an account's list, that are looked at to fill it, and that are read at a time. */
  listedMax: 100,
  listLookedAtMax: 2_000,
  listReadMax: 200,
} as const;

/** Deletions that a second person has to confirm by the same list. */
export const proposals = {
  keptMs: 7 * 24 * 60 * 60 * 1000,
  perAccountMax: 200,
  fromUsersMax: 1_000_000,
} as const;

/** What a named user weighs besides its name, in the lists of deletions and exports. */
export const userWeight = 32;

/** Redis's memory: the default of `REDIS_MEMORY_BYTES_MAX`. */
export const redisMemoryBytes = 6 * 1024 * MiB;

/** Suppressed users. */
export const suppressions = {
  /** Names of an account. Measured in Redis: 107 bytes for a suppressed user, up to 400 for a name that is merged with one. */
  namesPerAccountMax: 5_000_000,
  /** Names because of which a name is suppressed, beside itself. Freeing one of a merged user's names frees them all. */
  rootsPerNameMax: 16,
  /**
   * Anonymous users who are suppressed because they were identified as one identity, and all of an account: anybody may send
   * identifications, and each takes 209 bytes of Redis for ever. No person has ten thousand devices. They take nothing of the
   * account's own room. Above it, and above the limit by environment, an identification is skipped like any record of a suppressed
   * user, and the anonymous user stays one.
   */
  joinedPerIdentityMax: 10_000,
  joinedPerAccountMax: 500_000,
  /** By environment. A suppressed user joins a device once, so an environment with 100,000 of them has a few a minute. */
  joins: { max: 1_000, windowMs: 60_000, granularityMs: 1_000 },
  /** Joined users of a shard that wait for the workers, which move them once a second. */
  joinsWaitingMax: 50_000,
  requestsPerSecondMax: 10,
  /** How long a submission waits until what was accepted before it is stored, so that it finds merged users. */
  storedMsMax: 8_000,
} as const;

/** Environments that retain rows for some days only. */
export const retention = {
  daysMax: 36_500,
} as const;

/** What is kept of each user that a deletion request named. */
export const evidence = {
  keptMs: 30 * 24 * 60 * 60 * 1000,
  usersPerPage: 1000,
} as const;

/** Calls of accounts whose deletions are complete. */
export const callbacks = {
  urlMax: 2048,
  /** The whole time from the look-up of the name to the status of the answer. */
  callMsMax: 10_000,
  /** The addresses of a name that a call tries, until one of them connects. */
  addressesTriedMax: 4,
  triedForMs: 24 * 60 * 60 * 1000,
  /** The pause between two tries, doubled from the least to the most. */
  pauseMsMin: 5_000,
  pauseMsMax: 60 * 60 * 1000,
  /** The latest tries that a request's document keeps. */
  triesKept: 50,
} as const;

/** Previews of deletions: what a dry run would find. */
export const previews = {
  /** A preview is answered within this time, even if ClickHouse is not; what it waits for its turn is part of it. */
  msMax: 20_000,
  /** How many run at a time in one API process; the others of an account wait for it. */
  places: { atOnceMax: 3, ofAccountMax: 1, reserved: 0, waitMsMax: 15_000, waitingOfAccountMax: 5 },
} as const;

/** Queries about an account's users and records, by its people and its tokens, in one API process. */
export const queries = {
  atOnceMax: 4,
  ofAccountMax: 2,
  ofPersonMax: 2,
  reserved: 1,
  waitMsMax: 15_000,
  /** A page of the console asks up to ten things at once. */
  waitingOfAccountMax: 60,
  waitingOfPersonMax: 30,
} as const;

/** Requests for receipts. */
export const receipts = {
  keysPerSecondMax: 10_000,
  /** In one API process, by account. */
  places: { atOnceMax: 4, ofAccountMax: 2, reserved: 1, waitMsMax: 1_500, waitingOfAccountMax: 20 },
} as const;

/** What became of all records, and whether they add up. */
export const ledger = {
  /** How long Redis keeps what ClickHouse must have of each minute. */
  sumsKeptMs: 4 * 24 * 60 * 60 * 1000,
  /** Days that can be asked for, in milliseconds since 1970. */
  dayMsMax: Date.UTC(2100, 0, 1),
  /** Differences that are kept and shown, and so counted. */
  differencesMax: 1_000,
} as const;

/** Charts of the records of each environment by minute. */
export const traffic = {
  /** How many reasons of rejections an answer tells apart. */
  reasonsMax: 20,
} as const;

/** When the console's first page says that something is wrong. */
export const overview = {
  /** The oldest record waits longer than this to be queried. */
  lateMs: 30_000,
  /** A shard without ticks has records that wait for longer. */
  tickMissedMs: 5_000,
  /** More of the backlog's bytes are in use. */
  fullRatio: 0.8,
  /** A deletion is pending for longer; seconds are normal. */
  deletionPendingMs: 15 * 60_000,
  /** More changes wait for their second copy, which is made every second. */
  copiesWaitingMax: 1_000,
  /** ClickHouse takes longer than this to answer. */
  clickhouseMsMax: 2_000,
} as const;

/** Single sign-on. */
export const signOn = {
  /** Of people who are not let in, so many of a network and minute have a line in the audit log; the log has all. */
  refusalsAuditedMax: 20,
  /** How long the way to the provider and back may take. */
  attemptMsMax: 10 * 60_000,
  /** A provider that takes longer to answer is given up. */
  timeoutSeconds: 10,
} as const;

/** The list of event names on the console's page Data quality. */
export const eventNames = {
  listedMax: 500,
  /** How many events of a name are sampled for their properties. */
  sampledMax: 10_000,
  querySecondsMax: 5,
} as const;

/** What the console shows of an environment live. */
export const live = {
  /** A page asks every two seconds: ten a second. */
  eventsPerPage: 20,
  /** How far back it begins. */
  beforeMs: 10_000,
  /** After this time one has to begin again, which adds a line to the audit log. */
  lookedOnMsMax: 60 * 60 * 1000,
  querySecondsMax: 2,
} as const;

/** What the console shows of one user. */
export const userLookUps = {
  /** How many user_ids of a merged user are looked up: as many as the Bloom filters are used for. */
  userIdsMax: 1_000,
  eventNamesMax: 500,
  propertiesMax: 1_000,
  eventsPerPage: 50,
  /** The latest events of a user are looked for in so many days, and only then in all. */
  timeLineDays: 3,
  similarMax: 20,
  /** A statement that takes longer is given up. */
  querySecondsMax: 10,
  /** The same for the search for similar users, which shows what it has found by then. */
  similarSecondsMax: 1,
} as const;

/** The requests that concern a user are looked for among so many of the latest, by so many names. */
export const requestsOfUser = { deletionsMax: 1_000, namesMax: 20 } as const;

/** How often the access of long work is checked, besides after changes, since access may also expire. */
export const accessWatch = { askedEveryMs: 5_000 } as const;

/** Exports of what is held about users. */
export const userExports = {
  /** A request for an export is kept this long; then the export is no longer found. */
  keptMs: 24 * 60 * 60 * 1000,
  /** Requests that are held for an account, and what they may weigh in Redis, of one account and of all, as deletions do. */
  perAccountMax: 500,
  weightPerAccountMax: 16 * MiB,
  weightMax: 128 * MiB,
  /** Downloads at a time in one API process. The last places are for accounts that download nothing else. */
  downloads: { atOnceMax: 6, ofAccountMax: 2, reserved: 2, waitMsMax: 20_000, waitingOfAccountMax: 4 },
  /**
   * A download that has run for so long, and whose reader took fewer bytes a second, makes way for an account that downloads
   * nothing and finds no place.
   */
  slowAfterMs: 10_000,
  slowBytesPerSecondMax: 256 * KiB,
  /**
   * A download is cut off when its reader has taken nothing for this long, or when it takes longer than this in all. What was
   * taken shows in steps of up to 1.4 MB (a third of a socket's buffer), so whoever reads 25 KB/s is not cut off.
   */
  stalledMsMax: 60_000,
  downloadMsMax: 15 * 60_000,
  /** A page of the form to read has so many records, or ends after so many characters of JSON. */
  pageRecordsMax: 1_000,
  pageCharactersMax: 512 * KiB,
  /** Properties with a column of their own in the CSV of a page; others are together in one. */
  propertyColumnsMax: 200,
  /** Requests of an account that are listed: each is read whole, and may name many users. */
  listedMax: 20,
} as const;

/** How soon another worker takes over the work of a killed one. */
export const takeovers = {
  /** How long the lock on a job outlives its worker: the default of `JOB_LOCK_MS`. */
  lockMs: 5_000,
  /** How long a worker that stops waits for the jobs that it has begun. */
  stopMsMax: 20_000,
  /** By then a deletion of a killed worker is complete, unless the work itself takes longer. */
  completeMsMax: 10_000,
} as const;

/** Rows that ClickHouse refused. */
export const failedRows = {
  /** Rows that one retry sends. */
  perRetryMax: 100_000,
} as const;

/** The list of rejected records. */
export const rejectedRecords = {
  perEnvironmentMax: 100,
  ageMsMax: 7 * 24 * 60 * 60 * 1000,
} as const;

/** The audit log. */
export const audit = {
  /** Lines that may wait for ClickHouse, some 500 bytes each. Above it nothing is done that needs one. */
  waitingLinesMax: 100_000,
} as const;

/** How many certificates are checked at once for anybody; two of them for one network. */
export const certificateChecks = {
  atOnceMax: 4,
  ofAccountMax: 2,
  reserved: 1,
  waitMsMax: 2_000,
  waitingOfAccountMax: 10,
} as const;

/** Requests of persons that an account works on. */
export const cases = {
  openMax: 1_000,
  /** Of the closed ones, the latest. */
  listedMax: 1_000,
  resultMax: 1_000,
  /** From the day when a request was received; an account may set another number. */
  dueDays: 30,
  dueDaysMax: 366,
} as const;

/** What administrators may set. */
export const administration = {
  /** How long a change waits for ClickHouse, which keeps its second copy: over HTTP, and on the command line. */
  copyMsMax: 2_000,
  commandLineCopyMsMax: 10_000,
  /** UTF-16 units of the name of an account or environment. */
  nameMax: 200,
  environmentsPerAccountMax: 1_000,
  /**
   * Bytes of an account's environments, keys and callback as JSON. Every API process reads all accounts again after each
   * change. Measured: 6 MB held up the requests of all accounts for 0.7 s.
   */
  accountBytesMax: 2 * MiB,
  /** Keys of one kind that an environment can have. */
  keysMax: 20,
  /** How long replaced API keys may stay valid. */
  overlapMsMax: 90 * 24 * 60 * 60 * 1000,
  /** A change that others overtake this often is given up. */
  changeAttemptsMax: 20,
  /** How far ahead an allowance for imports may end. */
  importMsMax: 92 * 24 * 60 * 60 * 1000,
  /** Origins that an environment can list, and UTF-16 units of each: a host name has at most 253. */
  originsMax: 100,
  originMax: 300,
  /** Identities that an environment can allow although they are generic words; there are some thirty such words. */
  allowedIdentitiesMax: 100,
  /** The highest value of a rate limit. */
  rateLimitMax: 1_000_000_000,
  /** Entries of a list, unless the command says otherwise. */
  listedMax: 100,
  /** How many days back a list may begin. */
  daysMax: 9_999,
  /** The highest number that an option of a command counts to. */
  countMax: 999_999_999,
  /** Characters of an ADMIN_TOKEN, and how many different ones: a repeated word is not a secret. */
  tokenLengthMin: 32,
  tokenSymbolsMin: 8,
  /** How late a wrong ADMIN_TOKEN is answered, and how many such answers wait at once. */
  wrongTokenMs: 1_000,
  wrongTokensWaitingMax: 100,
} as const;

/** People of the console, and how they sign in. */
export const people = {
  /** UTF-16 units of any field of a form. */
  fieldMax: 1_000,
  emailMax: 254,
  passwordLengthMin: 10,
  passwordLengthMax: 200,
  /** People that a deployment can have, and an account. People with an invitation that has ended make room for others. */
  countMax: 2_000,
  perAccountMax: 200,
  /** Of all places, only operators get the last ones. */
  operatorPlaces: 100,
  /** For how many people who had access to an account it is remembered that only an operator may invite them again. */
  formerMax: 1_000,
  /** How long an invitation is valid. */
  invitationMs: 7 * 24 * 60 * 60 * 1000,
  sessionMs: 12 * 60 * 60 * 1000,
  /** Sessions of a person; the oldest ends when there is one more. */
  sessionsMax: 20,
  /** Characters of a browser's name that are kept with a session. */
  agentMax: 200,
  /** How long a browser in which a person has signed in is recognised. */
  browserMs: 180 * 24 * 60 * 60 * 1000,
  /** Passwords that a process hashes at once, 19 MiB and about 40 ms of CPU each, and how many may wait for that. */
  hashesAtOnceMax: 2,
  hashesWaitingMax: 20,
  /** How long a code of the second factor is valid, and how many codes before and after the present one are accepted. */
  codeSeconds: 30,
  codesBesideMax: 1,
} as const;

/**
 * Wrong passwords. So many are answered at once; each further one doubles the time until the next attempt, up to a bound.
 * An attempt that would wait longer than `waitMsMax` is refused. It is forgotten after `rememberedMs` without an attempt.
 */
export const signIns = {
  waitMsMax: 5_000,
  rememberedMs: 15 * 60 * 1000,
  spacingMsMin: 1_000,
  /** For one person: from all unknown browsers together, or from a known one. */
  person: { freeMax: 5, spacingMsMax: 30_000 },
  /** For one address, which many people may share. */
  address: { freeMax: 20, spacingMsMax: 4_000 },
} as const;

/** What the demo's page gets in one answer, and asks for in one request. */
export const demo = {
  /** Users by user_id, and as many by identity. */
  idsMax: 10,
  eventsMax: 30,
  usersMax: 20,
  /** Queries at a time in one API process; a page asks again a second later anyway. */
  queriesMax: 4,
  querySecondsMax: 3,
} as const;

export const logs = {
  /** Bytes of entries that are kept while they cannot be written; later ones are dropped. */
  unwrittenBytesMax: MiB,
  /** Characters of an error's message. */
  messageMax: 500,
} as const;

/** Loading the deployment's state into an emptied Redis. */
export const loads = {
  /** How long `restore` waits for another load: long enough for the right of a killed process to end. */
  restoreWaitMsMax: 7_000,
  /** How long a start waits while another process loads the state. */
  startWaitMsMax: 180_000,
} as const;

/** Moves of a shard from one ClickHouse server to another. */
export const moves = {
  /** How often the rows of a partition are copied until they are the same on both. */
  attemptsMax: 3,
  /** How often the copying of a partition reports its progress. */
  progressEveryMs: 2_000,
} as const;

/** The importer of files. */
export const imports = {
  /** A longer row of a CSV file is not a row, but a quote that nothing closes. */
  rowCharactersMax: MiB,
  headerBytesMax: 64 * KiB,
  /** A longer line or element of a JSON file is not a row; the file may have another format. */
  elementBytesMax: 64 * MiB,
  /** More than zstd itself takes unless told otherwise; a decoder keeps so much of the content. */
  zstdWindowBytesMax: 128 * MiB,
  /** Times have far fewer digits, and the work on more of them grows with their square. */
  timeDigitsMax: 30,
  /** What RFC 8878 lets a block hold. */
  zstdBlockBytesMax: 128 * KiB,
  /** Users whose latest properties are remembered, so that they are not sent with each of their events. */
  rememberedUsersMax: 100_000,
  /** Keys that rows have of their own, of which later rows are compared with the first: some 75 MB of memory. */
  comparedKeysMax: 500_000,
  /** How long the service may be silent before a request is sent again. */
  answerMsMax: 30_000,
  /** After failing for this long an import gives up; otherwise it could go unnoticed that it makes no progress. */
  failingMsMax: 15 * 60_000,
  /** Rows that wait for so long without any of them being stored are reported as waiting: ClickHouse is away. */
  waitingMsMax: 60_000,
} as const;

/** Backups of ClickHouse. */
export const backups = {
  /** How long a backup is kept unless `--keep-days` says otherwise, and at most. */
  keepDays: 35,
  keepDaysMax: 3650,
  nameCharactersMax: 64,
  /** How long a restore waits for a round of deletions that has begun. */
  roundWaitMsMax: 15 * 60_000,
  /**
   * A request that was completed by a worker's clock this long before a backup began by the administrator's is not in it,
   * however the two clocks differ.
   */
  clockDifferenceMsMax: 10 * 60_000,
} as const;

/** The Event Visualizer. */
export const visualizer = {
  /** How long a code waits to be entered. */
  waitingMsMax: 10 * 60 * 1000,
  waitingMax: 10_000,
  waitingPerAppMax: 100,
  waitingPerAddressMax: 30,
  /** A live pairing ends when no page has renewed it for this long. So a page has this long to reconnect. */
  leaseMs: 60 * 1000,
  renewEveryMs: 15 * 1000,
  liveMsMax: 4 * 60 * 60 * 1000,
  /** Pages that one API process serves, and those among them that are not paired yet: of one address, and in all. */
  pagesMax: 200,
  /** Paired pages of an account's people, and what they all get in a second: one device may be shown on each of them. */
  pagesOfAccountMax: 20,
  bytesOfAccount: { max: 4 * MiB, windowMs: 1_000 },
  unpairedPerAddressMax: 30,
  unpairedMax: 100,
  /** A page must identify itself within this time, in a message of at most this many bytes. */
  helloMsMax: 5_000,
  helloBytesMax: 4 * KiB,
  /** A page that was asked to close is disconnected after this time, whether or not it reacts. */
  closingMsMax: 20_000,
  /** Wrong tokens, and wrong codes, per minute and address. */
  failuresPerMinuteMax: 20,
  /** After as many wrong codes each further one is looked up this much later. */
  guessMs: 2_000,
  /** How much of one batch is sent to a page; the rest is counted. */
  batchBytesMax: 256 * KiB,
  /** How much may wait for a slow page; beyond it batches are only counted. */
  backpressureBytesMax: MiB,
  /** How long the answer to a device waits for Redis to say whether its pairing is live. */
  lookupMsMax: 250,
} as const;

/** `Retry-After` of a 503, in whole seconds. */
export const overloadedRetrySeconds = 2;

/** `Retry-After` of a 429 for anything but a rate limit of records, in whole seconds. */
export const limitedRetrySeconds = {
  tokenFailures: 60,
  statusRequests: 1,
  suppressionRequests: 1,
  pendingDeletions: 60,
  eraseNow: 3_600,
  waitingPairings: 60,
  exports: 600,
} as const;

/** Events of one user in a request to `/api/collect` that are limited together: more of them cost less, and waste more room. */
export const collectEventsTogetherMax = 20;

/** Each limit counts under a name of its own (`ingest/request-limits.ts`): two with one name would share a window. */
export type LimitName =
  | 'track'
  | 'user_properties'
  | 'bulk_identity'
  | 'bulk_app'
  | 'collect_user'
  | 'collect_app'
  | 'app_records'
  | 'app_bytes';

export type RateLimit = {
  /** How many are accepted in any window. */
  readonly max: number;
  readonly windowMs: number;
  /** Acceptances within this time share one entry of the log and leave the window together. */
  readonly granularityMs: number;
  /** The least that it can be set to; 1 without it. */
  readonly least?: number;
};

export const rateLimits: Readonly<Record<LimitName, RateLimit>> = {
  track: { max: 30, windowMs: 30_000, granularityMs: 1 },
  user_properties: { max: 30, windowMs: 30_000, granularityMs: 1 },
  bulk_identity: { max: 1000, windowMs: 60_000, granularityMs: 1000 },
  bulk_app: { max: 15_000, windowMs: 60_000, granularityMs: 1000 },
  collect_user: { max: 3000, windowMs: 60_000, granularityMs: 1000 },
  collect_app: { max: 60_000, windowMs: 60_000, granularityMs: 1000 },
  // Over all endpoints, so that new names and another endpoint do not evade the limits above. Two cores take 25,000 single
  // events a second (`deploy/SCALE.md`): without an operator's leave one environment gets a fifth of that, 432 million
  // records a day, of 1.3 kB each. The least values let every request pass that may be sent.
  app_records: { max: 300_000, windowMs: 60_000, granularityMs: 1000, least: requestRecordsMax },
  app_bytes: { max: 64 * MiB, windowMs: 10_000, granularityMs: 1000, least: commits.groupBytesMax },
};

/** Entries that the log of a limit may have, about: each commit that counts towards it writes the log anew. */
export const limitEntriesMax = 1_000;

/**
 * A limit that an environment has set. A large one counts more coarsely: an entry may then count for up to a thousandth of the window
 * longer.
 */
export function rateLimitOf(name: LimitName, max: number): RateLimit {
  const limit = rateLimits[name];
  const { windowMs, granularityMs } = limit;
  if (max <= limitEntriesMax) return { ...limit, max };
  return { ...limit, max, granularityMs: Math.max(granularityMs, Math.ceil(windowMs / limitEntriesMax)) };
}

/** Throws unless a relation between bounds holds. */
export function relation(holds: boolean, reason: string): void {
  if (!holds) throw new Error(`limits contradict each other: ${reason}`);
}

// A call marked as pure: the client library's bundle leaves it out, with everything that it reads.
/* @__PURE__ */ assertRelations();

function assertRelations(): void {
  relation(
    counts.collectMessagesMax <= rateLimits.collect_user.max,
    'a full request of one user must fit its limit',
  );
  relation(
    Math.max(counts.bulkEventsMax, counts.bulkUsersMax, counts.collectMessagesMax) <= requestRecordsMax,
    'every request must fit the least limit of an environment',
  );
  relation(
    Object.values(rateLimits).every(({ max, least = 1 }) => least <= max),
    'the default of a limit may be set',
  );
  relation(waits.requestMsMax < 2_000, 'a request is answered within 2 s when Redis is silent');
  relation(
    callbacks.triedForMs / callbacks.pauseMsMax + Math.log2(callbacks.pauseMsMax / callbacks.pauseMsMin) <
      callbacks.triesKept,
    'all tries of a day fit the document',
  );
  relation(
    Math.max(...Object.values(rateLimits).map(({ max }) => max)) <= administration.rateLimitMax,
    'the defaults of rate limits must be allowed',
  );
  relation(administration.rateLimitMax < 2 ** 32, 'a commit carries a limit in four bytes');
  relation(
    signIns.address.spacingMsMax <= signIns.waitMsMax,
    'wrong passwords of an address slow down the others behind it and lock nobody out',
  );
  relation(
    signIns.person.spacingMsMax <= signIns.rememberedMs,
    'the spacing of attempts is not forgotten while it lasts',
  );
  relation(
    limitedRetrySeconds.tokenFailures >= 60 && limitedRetrySeconds.statusRequests >= 1,
    'what is counted per minute or per second has room again after the wait',
  );
  relation(commits.deadlineMs < 2_000, 'a request is answered within 2 s when Redis is away');
  relation(
    commits.waitingBytesMax >= 2 * commits.groupBytesMax,
    'the largest request must fit beside another one that waits',
  );
  relation(
    flattened.singleBytesMax <= bodies.singleBytesMax &&
      flattened.bulkBytesMax <= bodies.bulkBytesMax &&
      flattened.collectBytesMax <= bodies.collectBytesMax &&
      flattened.segmentBytesMax <= bodies.segmentBytesMax,
    'flattening must at most double a request',
  );
  relation(
    deletions.liveTokensPerKeyMax * 4 < deletions.tokensPerAccountMax,
    'an account whose key was misused can replace it',
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
    bodies.segmentBytesMax * rowGrowthMax +
      flattened.segmentBytesMax +
      2 * counts.segmentMessagesMax * rowOverheadBytesMax <=
      commits.groupBytesMax,
    'a batch must fit one group, whatever its numbers are, and a message may leave two records',
  );
  relation(
    bodies.singleBytesMax * rowGrowthMax + flattened.singleBytesMax + rowOverheadBytesMax <=
      commits.groupBytesMax,
    'a single record must fit one group, whatever its numbers are',
  );
  const { small, large, inflated } = receiving;
  relation(
    receiving.smallBytesMax <= small.bytesPerAddressMax &&
      bodies.deletionBytesMax <= Math.min(large.bytesPerAddressMax, inflated.bytesPerAddressMax),
    'the largest body must find room',
  );
  relation(
    [small, large, inflated].every((room) => room.bytesPerAddressMax < room.bytesMax),
    'no address takes all room',
  );
  relation(
    small.bytesMax + large.bytesMax + inflated.bytesMax + commits.waitingBytesMax <= 240 * MiB,
    'with 110 MiB at rest and one large document, a process stays below 400 MiB',
  );
  relation(
    claims.windowMsMin > commits.deadlineMs,
    'a key must be remembered for longer than a request may take',
  );
  relation(
    claims.windowMsMax / 60_000 < 2 ** 15,
    'minutes of claims are told apart by 2 bytes, with room for segments that are outstanding for long',
  );
  relation(
    counts.exportUsersMax * lengths.identityMax * 12 + KiB <=
      Math.min(bodies.singleBytesMax, bodies.adminListBytesMax),
    'the largest list of an export, every character escaped as a surrogate pair, must fit the body',
  );
  relation(
    (people.emailMax + 2 * people.passwordLengthMax) * 12 + KiB <= bodies.accessBytesMax,
    'an address and two passwords, every character escaped as a surrogate pair, must fit the body',
  );
  relation(
    people.perAccountMax < people.countMax - people.operatorPlaces,
    'the people of one account leave room for those of another one',
  );
  // A ClickHouse server takes 128 KiB in a field of its URL. A quoted and encoded app_id has 19 bytes.
  relation(
    administration.environmentsPerAccountMax * 20 <= 64 * KiB,
    'the app_ids of an account must fit the URL of a statement',
  );
  relation(
    administration.environmentsPerAccountMax * (6 * administration.nameMax + KiB / 2) <=
      administration.accountBytesMax,
    'all environments of an account, every character of their names escaped, must fit its documents',
  );
  relation(
    [previews.places, queries, userExports.downloads, receipts.places].every(
      ({ atOnceMax, ofAccountMax, reserved }) =>
        2 * ofAccountMax <= atOnceMax && ofAccountMax + reserved <= atOnceMax,
    ),
    'the places of one account leave as many for others',
  );
  relation(
    userExports.slowAfterMs < userExports.downloads.waitMsMax && previews.places.waitMsMax < previews.msMax,
    'who waits finds a place that a slow reader leaves, and has time left for its work',
  );
  relation(
    deletions.pendingWeightMax + userExports.weightMax <= redisMemoryBytes / 16,
    'lists of users leave Redis its room for records and keys, also where it has a quarter of the usual memory',
  );
  relation(
    [
      [deletions.pendingWeightPerAccountMax, deletions.pendingWeightMax],
      [userExports.weightPerAccountMax, userExports.weightMax],
    ].every(([ofAccount = 0, ofAll = 0]) => 4 * ofAccount <= ofAll) &&
      counts.deletionTargetsMax * (6 * lengths.identityMax + userWeight) <=
        deletions.pendingWeightPerAccountMax &&
      counts.exportUsersMax * (6 * lengths.identityMax + userWeight) + MiB <= userExports.weightPerAccountMax,
    'the largest list, every character escaped, fits beside the ones of others',
  );
  relation(
    counts.deletionTargetsMax * lengths.identityMax * 12 + MiB <= bodies.deletionBytesMax,
    'the largest list, every character escaped as a surrogate pair, must fit the body',
  );
  relation(
    counts.lookupUsersMax * lengths.identityMax * 12 + MiB <= bodies.lookupBytesMax,
    'so must the largest look-up',
  );
  relation(
    counts.receiptKeysMax * lengths.idempotencyKeyMax * 12 + MiB <= bodies.lookupBytesMax &&
      counts.receiptKeysMax <= receipts.keysPerSecondMax,
    'and the largest request for receipts, which has room in a second',
  );
  // The codes have 30 bits. All waiting devices and all pages of a process, for as long as a code waits.
  relation(
    (visualizer.pagesMax / visualizer.guessMs) * visualizer.waitingMsMax * visualizer.waitingMax < 2 ** 30,
    'guessing must not find as much as one code in the time that a code waits',
  );
  relation(
    visualizer.renewEveryMs * 3 <= visualizer.leaseMs,
    'a live pairing must survive two renewals that fail',
  );
  relation(
    visualizer.unpairedPerAddressMax < visualizer.unpairedMax &&
      2 * visualizer.pagesOfAccountMax <= visualizer.pagesMax - visualizer.unpairedMax,
    'pages that say nothing leave room for other addresses, and for those with a token and a code',
  );
  relation(
    visualizer.pagesMax < connections.adminMax * connections.busyFrom,
    'all pages of the visualizer may come from one address',
  );
  relation(counts.documentDepthMax <= 256, 'what recurses over a document must not exhaust the stack');
  relation(lengths.joinedArrayMax >= arrayDelimiter.length, 'a joined array must hold its delimiter');
}
