// Every promised bound: those that callers, administrators or people can run into, with the unit in the name. They are in `limits/` by
// subject; here are the relations between them. Three kinds are elsewhere: bounds of single records in `lengths.ts`, what a variable may be
// set to in `config.ts`, and what a library holds back by itself in `libraries/client/core/limits.ts` and `libraries/producer/limits.ts`.
// A number that callers cannot observe is not promised: it is in `tuning.ts` if other numbers depend on it, else beside the code that
// uses it.

import { arrayDelimiter, counts, lengths } from './lengths.js';
import { administration, people, queries, signIns } from './limits/administration.js';
import { callbacks, deletions, previews, userExports, userWeight } from './limits/privacy.js';
import {
  bodies,
  connections,
  flattened,
  limitedRetrySeconds,
  rateLimits,
  receipts,
  receiving,
  requestRecordsMax,
} from './limits/requests.js';
import { claims, commits, redisMemoryBytes, waits } from './limits/storing.js';
import { visualizer } from './limits/visualizer.js';

export * from './lengths.js';
export * from './limits/administration.js';
export * from './limits/operations.js';
export * from './limits/privacy.js';
export * from './limits/requests.js';
export * from './limits/storing.js';
export * from './limits/visualizer.js';

const KiB = 1024;
const MiB = 1024 * KiB;

/** The most bytes that a row adds to its record: ids, a time, separators, and its part of a commit. */
const rowOverheadBytesMax = KiB;
/** The most bytes of a row per byte of its record: `1e20` is stored with 21 digits, and the `,` of an array as `||`. */
const rowGrowthMax = 5;

/** Throws unless a relation between bounds holds. */
export function relation(holds: boolean, reason: string): void {
  if (!holds) throw new Error(`limits contradict each other: ${reason}`);
}

// Marked as pure, so that the client library's bundle leaves the calls out, with everything that they read.
/* @__PURE__ */ assertRequestsFit();
/* @__PURE__ */ assertRoom();
/* @__PURE__ */ assertTimes();
/* @__PURE__ */ assertPairings();

/** Whatever callers may send fits every bound on its way. */
function assertRequestsFit(): void {
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
  relation(
    Math.max(...Object.values(rateLimits).map(({ max }) => max)) <= administration.rateLimitMax,
    'the defaults of rate limits must be allowed',
  );
  relation(administration.rateLimitMax < 2 ** 32, 'a commit carries a limit in four bytes');
  relation(
    limitedRetrySeconds.tokenFailures >= 60 && limitedRetrySeconds.statusRequests >= 1,
    'what is counted per minute or per second has room again after the wait',
  );
  relation(
    flattened.singleBytesMax <= bodies.singleBytesMax &&
      flattened.bulkBytesMax <= bodies.bulkBytesMax &&
      flattened.collectBytesMax <= bodies.collectBytesMax &&
      flattened.segmentBytesMax <= bodies.segmentBytesMax,
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
    'the largest request for receipts, escaped the same way, must fit the body and the limit of a second',
  );
  relation(counts.documentDepthMax <= 256, 'what recurses over a document must not exhaust the stack');
  relation(lengths.joinedArrayMax >= arrayDelimiter.length, 'a joined array must hold its delimiter');
}

/** There is room for the largest requests, and nobody can take all of it. */
function assertRoom(): void {
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
    commits.waitingBytesMax >= 2 * commits.groupBytesMax,
    'the largest request must fit beside another one that waits',
  );
  relation(
    deletions.liveTokensPerKeyMax * 4 < deletions.tokensPerAccountMax,
    'an account whose key was misused can replace it',
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
}

/** Every period is long enough, and none is too long. */
function assertTimes(): void {
  relation(waits.requestMsMax < 2_000, 'a request is answered within 2 s when Redis is silent');
  relation(commits.deadlineMs < 2_000, 'a request is answered within 2 s when Redis is away');
  relation(
    claims.windowMsMin > commits.deadlineMs,
    'a key must be remembered for longer than a request may take',
  );
  relation(
    claims.windowMsMax / 60_000 < 2 ** 15,
    'minutes of claims are told apart by 2 bytes, with room for segments that are outstanding for long',
  );
  relation(
    callbacks.triedForMs / callbacks.pauseMsMax + Math.log2(callbacks.pauseMsMax / callbacks.pauseMsMin) <
      callbacks.triesKept,
    'all tries of a day fit the document',
  );
  relation(
    signIns.address.spacingMsMax <= signIns.waitMsMax,
    'wrong passwords of an address slow down the others behind it and lock nobody out',
  );
  relation(
    signIns.person.spacingMsMax <= signIns.rememberedMs,
    'the spacing of attempts is not forgotten while it lasts',
  );
}

/** Nobody guesses a pairing, and no page loses one by chance. */
function assertPairings(): void {
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
}
