// Requests to the public port: connections, bodies, rate limits and answers.

import { counts } from '../lengths.js';
import { commits } from './storing.js';

const KiB = 1024;
const MiB = 1024 * KiB;

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

/** Receiving requests in one API process: headers, and bodies that come in pieces or compressed. */
export const receiving = {
  /** All headers of a request together: the default of `HEADER_BYTES_MAX`. uWebSockets.js takes at most 100 headers. */
  headerBytesMax: 16 * KiB,
  /** A request whose headers exceed that by at most this is refused with an answer in JSON; a larger one is refused by uWebSockets.js. */
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
  /** A process that stops waits this long for bodies that are arriving: some clients would take minutes. */
  stoppingMsMax: 5_000,
  /** Each piece costs 2 µs. A body may have `piecesMax` pieces and one more per `pieceBytesMin` bytes; then it is cut off. */
  piecesMax: 500,
  pieceBytesMin: 32,
  /** A compressed body may inflate to this many times its size. Real traffic inflates to 20 times at most. */
  inflatedTimesMax: 200,
  /** Up to this inflated size the ratio is not checked. */
  inflatedBytesAlways: 64 * KiB,
  /** A larger body is parsed and checked in slices, so that other requests get their turn, and must keep the bounds of `counts`. */
  largeBytesMin: 64 * KiB,
  /** A body that exceeds its limit by at most this is received and dropped, so that its sender sees the refusal. */
  overshootBytesMax: 16 * MiB,
  /** The same for a body that the request does not need. */
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

/**
 * One API process takes a limited number of bytes of bodies from an address per window: `COLLECT_ADDRESS_BYTES_MAX` to `/api/collect`, and
 * `ADDRESS_BYTES_MAX` of large or compressed bodies to the endpoints for servers.
 */
export const addressAllowances = {
  windowMs: 60_000,
  /** Addresses that are remembered; beyond this the oldest one is forgotten. Measured: 96 bytes each. */
  keptMax: 100_000,
} as const;

export const userIdMax = Number.MAX_SAFE_INTEGER;

/** A timestamp may be this far ahead of the clock. */
export const timestampAheadMsMax = 24 * 60 * 60 * 1000;

/**
 * Where milliseconds are expected, a number in this range must be a time in seconds: as seconds it is after February 1973, as
 * milliseconds before.
 */
export const epochSeconds = { min: 1e8, endsBefore: 1e11 } as const;

/** Characters of a bearer token. A longer one is never valid. */
export const bearerMax = 200;

/** Characters of a field's path in an answer; a longer path is cut. */
export const answerFieldMax = 100;

/** The answer's header that names unknown fields. */
export const ignoredFields = {
  namesMax: 10,
  /** UTF-16 units of a name; a longer name is cut. Percent-encoded, a unit takes at most 9 bytes. */
  nameMax: 40,
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

export const receipts = {
  keysPerSecondMax: 10_000,
  /** How many are answered at a time in one API process. */
  places: { atOnceMax: 4, ofAccountMax: 2, reserved: 1, waitMsMax: 1_500, waitingOfAccountMax: 20 },
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

/** The most records of one request: a message of a Segment batch may become two. */
export const requestRecordsMax = 2 * counts.segmentMessagesMax;

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
