// Administrators, the people of the console, and its pages.

const MiB = 1024 * 1024;

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
  /** How long the answer to a wrong ADMIN_TOKEN is delayed, and how many such answers may wait at once. */
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

export const signOn = {
  /** Refused sign-ins, per minute and network, that get a line in the audit log; the process's log has all of them. */
  refusalsAuditedMax: 20,
  /** How long a person may take to the provider and back. */
  attemptMsMax: 10 * 60_000,
  /** How long to wait for an answer of the provider. */
  timeoutSeconds: 10,
} as const;

/** How often long work checks whether its caller still has access, besides after every change: access can also expire. */
export const accessWatch = { askedEveryMs: 5_000 } as const;

export const audit = {
  /**
   * Lines that may wait for ClickHouse, some 500 bytes each. Above this, and where an account's lines would take more than is left, actions
   * that need a line are refused.
   */
  waitingLinesMax: 100_000,
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

/** Charts of the records of each environment by minute. */
export const traffic = {
  /** How many reasons of rejections an answer tells apart. */
  reasonsMax: 20,
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
  watchMsMax: 60 * 60 * 1000,
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
