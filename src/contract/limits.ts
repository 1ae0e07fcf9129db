// Every promised bound: those that callers, administrators or people can run into, with the unit in the name. The end of the
// file asserts the relations between them. Three kinds are elsewhere: bounds of single records in `lengths.ts`, what a
// variable may be set to in `config.ts`, and what a library holds back by itself in `libraries/client/core/limits.ts` and
// `libraries/producer/limits.ts`. A number that callers cannot observe is not promised: it is in `tuning.ts` if other numbers
// depend on it, else beside the code that uses it.

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
  /** An administrator's request with a list of users, or with a certificate. */
  adminListBytesMax: 512 * KiB,
  /** A sign-in, or a change to one's own access. It is read before the caller has signed in, so it is small. */
  accessBytesMax: 16 * KiB,
} as const;

/** Connections of one API process. `PORT` takes at most `CONNECTIONS_MAX`. */
export const connections = {
  /** `ADMIN_PORT` takes at most this many, and at most this share of the file descriptors. */
  adminMax: 1_000,
  adminShare: 0.25,
  /** While more than this share of a port's maximum is open, one address may open at most its own share per window. */
  busyFrom: 0.5,
  shareOfAddress: 0.25,
  /** Longer than the parser keeps a silent connection. */
  windowMs: 15_000,
  /** File descriptors that a process needs for everything else. */
  otherDescriptors: 100,
} as const;

/** Characters of a field's path in an answer; a longer path is cut. */
export const answerFieldMax = 100;

/** The answer's header that names unknown fields. */
export const ignoredFields = {
  namesMax: 10,
  /** UTF-16 units of a name; a longer name is cut. Percent-encoded, a unit takes at most 9 bytes. */
  nameMax: 40,
} as const;

/** Characters of a bearer token. A longer one is never valid. */
export const bearerMax = 200;

/**
 * One API process takes only so many bytes of bodies from an address per window: `COLLECT_ADDRESS_BYTES_MAX` to `/api/collect`, and
 * `ADDRESS_BYTES_MAX` of large or compressed bodies to the endpoints for servers.
 */
export const addressAllowances = {
  windowMs: 60_000,
  /** Addresses that are remembered; beyond this the oldest one is forgotten. Measured: 96 bytes each. */
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

/** The memory of sluice-micro, the collector for tests. The first two bounds hold for accepted and for refused records, separately. */
export const micro = {
  entriesMax: 10_000,
  bytesMax: 64 * MiB,
  keysMax: 100_000,
  /** Deletion requests and, counted separately, tokens. */
  requestsMax: 1_000,
} as const;

/** Receiving requests in one API process: headers, and bodies that come in pieces or compressed. */
export const receiving = {
  /** All headers of a request together: the default of `HEADER_BYTES_MAX`. uWebSockets.js takes at most 100 headers. */
  headerBytesMax: 16 * KiB,
  /** A request with up to this many bytes more is refused in JSON; a larger one is refused by uWebSockets.js. */
  headerBytesAnswered: 16 * KiB,
  /** A body up to this size takes room as its pieces come; a larger one is read on only once there is room for all of it. */
  smallBytesMax: 64 * KiB,
  small: { bytesMax: 32 * MiB, bytesPerAddressMax: 16 * MiB, waitMsMax: 0 },
  large: { bytesMax: 96 * MiB, bytesPerAddressMax: 64 * MiB, waitMsMax: 5_000 },
  /** Room for what compressed bodies may inflate to; once inflated, they take only their real size. */
  inflated: { bytesMax: 48 * MiB, bytesPerAddressMax: 32 * MiB, waitMsMax: 5_000 },
  /**
   * A body must be complete within `bodyMsMin` plus its size divided by `bodyBytesPerMs`, counted from its first byte or from when
   * it got room. The parser closes silent connections, and those below 16 kB/s, before that.
   */
  bodyMsMin: 15_000,
  bodyBytesPerMs: 128,
  /** Each piece costs 2 µs. A body may have `piecesMax` pieces and one more per `pieceBytesMin` bytes; then it is cut off. */
  piecesMax: 500,
  pieceBytesMin: 32,
  /** A compressed body may inflate to this many times its size. Real traffic inflates to 20 times at most. */
  inflatedTimesMax: 200,
  /** Up to this inflated size the ratio is not checked. */
  inflatedBytesAlways: 64 * KiB,
  /** A larger body is parsed and checked in slices, so that others get their turn, within the bounds of `counts`. */
  largeBytesMin: 64 * KiB,
  /** A body that exceeds its limit by at most this is received and dropped, so that its sender sees the refusal. */
  overshootBytesMax: 16 * MiB,
  /** The same for the body of a request that needs none. */
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

/** The most records of one request: a message of a Segment batch may become two. */
const requestRecordsMax = 2 * counts.segmentMessagesMax;
/** The most bytes that a row adds to its record: ids, a time, separators, and its part of a commit. */
const rowOverheadBytesMax = KiB;
/** The most bytes of a row per byte of its record: `1e20` is stored with 21 digits, and the `,` of an array as `||`. */
const rowGrowthMax = 5;

/** A timestamp may be this far ahead of the clock. */
export const timestampAheadMsMax = 24 * 60 * 60 * 1000;

/**
 * Where milliseconds are expected, a number in this range must be a time in seconds: as seconds it is after February 1973, as
 * milliseconds before.
 */
export const epochSeconds = { min: 1e8, endsBefore: 1e11 } as const;

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

/** How long Redis remembers idempotency keys. Each remembered key is a claim. */
export const claims = {
  /** A key is remembered at least this long, whatever the byte budget says. */
  windowMsMin: 15 * 60 * 1000,
  windowMsMax: 24 * 60 * 60 * 1000,
  /** What one claim takes of the byte budget. Measured: 27.2 bytes with 6 claims per bucket, 22.4 with 12. */
  bytesPerClaim: 27,
} as const;

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
  /** Requests on one page of an account's list, */
  listedMax: 100,
  /** those that are looked at to fill a page, */
  listLookedAtMax: 2_000,
  /** and those that are read from Redis at a time. */
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

/** Redis's memory: the default of `REDIS_MEMORY_BYTES_MAX`. */
export const redisMemoryBytes = 6 * 1024 * MiB;

/** Suppressed users. */
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
  /** Such identifications by environment. Each device makes one, so 100,000 suppressed users make a few a minute. */
  joins: { max: 1_000, windowMs: 60_000, granularityMs: 1_000 },
  /** Those of a shard that may wait for the workers, which take them once a second. */
  joinsWaitingMax: 50_000,
  requestsPerSecondMax: 10,
  /** How long a submission waits until all records accepted before it are stored, so that it finds all merged users. */
  storedMsMax: 8_000,
} as const;

/** Environments that keep rows for a limited number of days. */
export const retention = {
  daysMax: 36_500,
} as const;

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

/** Previews of deletions: what a dry run would find. */
export const previews = {
  /** A preview is answered within this time, waiting for its turn included, even if ClickHouse does not answer. */
  msMax: 20_000,
  /** How many run at a time in one API process; further ones of an account wait. */
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
  /** How many are answered at a time in one API process. */
  places: { atOnceMax: 4, ofAccountMax: 2, reserved: 1, waitMsMax: 1_500, waitingOfAccountMax: 20 },
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

/** Charts of the records of each environment by minute. */
export const traffic = {
  /** How many reasons of rejections an answer tells apart. */
  reasonsMax: 20,
} as const;

/** The console's first page reports a problem when … */
export const overview = {
  /** … the oldest record has waited longer than this to be queryable, */
  lateMs: 30_000,
  /** … records of a shard without ticks have waited longer than this, */
  tickMissedMs: 5_000,
  /** … more than this share of BACKLOG_BYTES_MAX is in use, */
  fullRatio: 0.8,
  /** … a deletion has been pending longer than this, where seconds are normal, */
  deletionPendingMs: 15 * 60_000,
  /** … more changes than this wait for their second copy, which is made every second, */
  copiesWaitingMax: 1_000,
  /** … or ClickHouse takes longer than this to answer. */
  clickhouseMsMax: 2_000,
} as const;

/** Single sign-on. */
export const signOn = {
  /** Refused sign-ins, per minute and network, that get a line in the audit log; the process's log has all of them. */
  refusalsAuditedMax: 20,
  /** How long a person may take to the provider and back. */
  attemptMsMax: 10 * 60_000,
  /** How long to wait for an answer of the provider. */
  timeoutSeconds: 10,
} as const;

/** The list of event names on the console's page Data quality. */
export const eventNames = {
  listedMax: 500,
  /** How many events of a name are sampled for their properties. */
  sampledMax: 10_000,
  querySecondsMax: 5,
} as const;

/** The console's page that shows what arrives in an environment. */
export const live = {
  /** Events in one answer. A page asks every two seconds, so it shows at most ten a second. */
  eventsPerPage: 20,
  /** How far back the first answer reaches. */
  beforeMs: 10_000,
  /** How long a person may watch before they have to begin again, which adds a line to the audit log. */
  lookedOnMsMax: 60 * 60 * 1000,
  querySecondsMax: 2,
} as const;

/** What the console shows of one user. */
export const userLookUps = {
  /** How many user_ids of a merged user are looked up: the most for which ClickHouse uses its Bloom filters. */
  userIdsMax: 1_000,
  eventNamesMax: 500,
  propertiesMax: 1_000,
  eventsPerPage: 50,
  /** The latest events of a user are looked for in this many days first and, if those hold too few, in all. */
  timeLineDays: 3,
  similarMax: 20,
  /** A statement that takes longer is given up. */
  querySecondsMax: 10,
  /** The same for the search for similar users, which then shows what it has found so far. */
  similarSecondsMax: 1,
} as const;

/** The deletions that concern a user are looked for among this many of the latest, by this many names of the user. */
export const requestsOfUser = { deletionsMax: 1_000, namesMax: 20 } as const;

/** How often long work checks whether its caller still has access, besides after every change: access can also expire. */
export const accessWatch = { askedEveryMs: 5_000 } as const;

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
   * A download that has waited for its reader for so long, and whose reader took fewer bytes a second, makes way for an account that
   * downloads nothing and finds no place.
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

/** The list of rejected records. */
export const rejectedRecords = {
  perEnvironmentMax: 100,
  ageMsMax: 7 * 24 * 60 * 60 * 1000,
} as const;

/** The audit log. */
export const audit = {
  /**
   * Lines that may wait for ClickHouse, some 500 bytes each. Above this, and where an account's lines would take more than is left, actions
   * that need a line are refused.
   */
  waitingLinesMax: 100_000,
} as const;

/** How many certificates one API process checks at once, for anybody who asks; at most two for one network. */
export const certificateChecks = {
  atOnceMax: 4,
  ofAccountMax: 2,
  reserved: 1,
  waitMsMax: 2_000,
  waitingOfAccountMax: 10,
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

/** What administrators may set. */
export const administration = {
  /** How long a change waits for its second copy in ClickHouse: over HTTP, and on the command line. */
  copyMsMax: 5_000,
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
  /** The highest number that a command's option takes for a count. */
  countMax: 999_999_999,
  /** The fewest characters of an ADMIN_TOKEN, and the fewest different ones: a repeated word is not a secret. */
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
  /** People of a deployment, and of one account. Those whose invitation has expired make room for others. */
  countMax: 2_000,
  perAccountMax: 200,
  /** How many of the deployment's places are reserved for operators. */
  operatorPlaces: 100,
  /** How many former people of an account are remembered: only an operator may invite them again. */
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
  /** Passwords that a process hashes at once, 19 MiB and about 40 ms of CPU each, and how many of a network may wait for that. */
  hashes: {
    atOnceMax: 2,
    ofAccountMax: 2,
    reserved: 0,
    waitMsMax: 5_000,
    waitingOfAccountMax: 20,
    waitingOfPersonMax: 10,
  },
  /** How long a code of the second factor is valid, and how many codes before and after the present one are accepted. */
  codeSeconds: 30,
  codesBesideMax: 1,
} as const;

/**
 * Wrong passwords. The first `freeMax` are answered at once; each further one doubles the time until the next attempt, from
 * `spacingMsMin` up to `spacingMsMax`. An attempt that would wait longer than `waitMsMax` is refused. Wrong passwords are
 * forgotten after `rememberedMs` without an attempt.
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

/** What the demo page may ask for in one request and gets in one answer. */
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
  /** How long `restore` waits for another load: longer than a killed process keeps its right to load. */
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

/** Backups of ClickHouse. */
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

/** The Event Visualizer. */
export const visualizer = {
  /** How long a code waits to be entered. */
  waitingMsMax: 10 * 60 * 1000,
  /** Codes that may wait: in all, for an environment, and from an address. */
  waitingMax: 10_000,
  waitingPerAppMax: 100,
  waitingPerAddressMax: 30,
  /** A live pairing ends when no page has renewed it for this long. So a page has this long to reconnect. */
  leaseMs: 60 * 1000,
  renewEveryMs: 15 * 1000,
  liveMsMax: 4 * 60 * 60 * 1000,
  /** Pages that one API process serves. */
  pagesMax: 200,
  /** Those of them that are not paired yet: from one address, and in all. */
  unpairedPerAddressMax: 30,
  unpairedMax: 100,
  /** Paired pages of an account's people, and what all of these get in a second: each may show the same device. */
  pagesOfAccountMax: 20,
  bytesOfAccount: { max: 4 * MiB, windowMs: 1_000 },
  /** A page must identify itself within this time, in a message of at most this many bytes. */
  helloMsMax: 5_000,
  helloBytesMax: 4 * KiB,
  /** A page that was asked to close is disconnected after this time, whether or not it reacts. */
  closingMsMax: 20_000,
  /** Wrong tokens and, counted separately, wrong codes, per minute and address. */
  failuresPerMinuteMax: 20,
  /** After that many wrong codes, each further code is looked up with this delay. */
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

/** Events of a user in a request to `/api/collect` that pass its limits as one group. Larger groups cost less but waste room. */
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
  /** The lowest value that it can be set to; 1 if absent. */
  readonly least?: number;
};

export const rateLimits: Readonly<Record<LimitName, RateLimit>> = {
  track: { max: 30, windowMs: 30_000, granularityMs: 1 },
  user_properties: { max: 30, windowMs: 30_000, granularityMs: 1 },
  bulk_identity: { max: 1000, windowMs: 60_000, granularityMs: 1000 },
  bulk_app: { max: 15_000, windowMs: 60_000, granularityMs: 1000 },
  collect_user: { max: 3000, windowMs: 60_000, granularityMs: 1000 },
  collect_app: { max: 60_000, windowMs: 60_000, granularityMs: 1000 },
  // These two count over all endpoints, so that new names and other endpoints do not evade the limits above. Unless an operator
  // allows more, an environment gets 5,000 records of 1.3 kB a second, 432 million a day; two cores take several times as many
  // (`deploy/SCALE.md`). The lowest values still let the largest request pass.
  app_records: { max: 300_000, windowMs: 60_000, granularityMs: 1000, least: requestRecordsMax },
  app_bytes: { max: 64 * MiB, windowMs: 10_000, granularityMs: 1000, least: commits.groupBytesMax },
};

/** About how many entries a limit's log may have. They are few, since each commit under the limit rewrites the log. */
export const limitEntriesMax = 1_000;

/**
 * A limit that an environment has set. A large one counts more coarsely: an entry may then count longer, by up to a thousandth of the
 * window.
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

// Marked as pure, so that the client library's bundle leaves the call out, with everything that it reads.
/* @__PURE__ */ assertRelations();

function assertRelations(): void {
  relation(
    counts.collectMessagesMax <= rateLimits.collect_user.max,
    'a full request of one user must fit its limit',
  );
  relation(
    Math.max(counts.bulkEventsMax, counts.bulkUsersMax, counts.collectMessagesMax) <= requestRecordsMax,
    'every request must fit the lowest limit that can be set',
  );
  relation(
    Object.values(rateLimits).every(({ max, least = 1 }) => least <= max),
    'an environment must be able to set the default of a limit',
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
    'the messages of one request must fit one group, whatever numbers they hold',
  );
  relation(
    bodies.segmentBytesMax * rowGrowthMax +
      flattened.segmentBytesMax +
      2 * counts.segmentMessagesMax * rowOverheadBytesMax <=
      commits.groupBytesMax,
    'a batch must fit one group, whatever numbers it holds, and a message may become two records',
  );
  relation(
    bodies.singleBytesMax * rowGrowthMax + flattened.singleBytesMax + rowOverheadBytesMax <=
      commits.groupBytesMax,
    'a single record must fit one group, whatever numbers it holds',
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
    'a caller who waits gets the place of a slow reader, and has time left for the work',
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
    'the largest list, every character escaped, fits beside those of others',
  );
  relation(
    counts.deletionTargetsMax * lengths.identityMax * 12 + MiB <= bodies.deletionBytesMax,
    'the largest list, every character escaped as a surrogate pair, must fit the body',
  );
  relation(
    counts.lookupUsersMax * lengths.identityMax * 12 + MiB <= bodies.lookupBytesMax,
    'the largest look-up, every character escaped as a surrogate pair, must fit the body',
  );
  relation(
    counts.receiptKeysMax * lengths.idempotencyKeyMax * 12 + MiB <= bodies.lookupBytesMax &&
      counts.receiptKeysMax <= receipts.keysPerSecondMax,
    'the largest request for receipts, escaped alike, must fit the body and the limit of a second',
  );
  // Codes have 30 bits. Here all pages of a process guess for as long as a code waits, while the most codes wait.
  relation(
    (visualizer.pagesMax / visualizer.guessMs) * visualizer.waitingMsMax * visualizer.waitingMax < 2 ** 30,
    'guessing must find less than one code, on average, in the time that a code waits',
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
