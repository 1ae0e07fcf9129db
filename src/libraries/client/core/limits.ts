// The bounds that the client library adds to the contract's, and the relations between them.

import { counts, lengths } from '../../../contract/lengths.js';
import { bodies, relation } from '../../../contract/limits.js';

const KiB = 1024;

export const clientLimits = {
  /** Calls that may wait in memory for the start. */
  callsMax: 1000,
  /** Messages and bytes of one app that may wait to be sent; beyond that the oldest are dropped. */
  queueMessagesMax: 5000,
  queueBytesMax: 2048 * KiB,
  /** The size as JSON of the properties of one call, and of the global event properties. */
  propertiesBytesMax: 128 * KiB,
  /** After this many bad properties in one call, the rest is dropped unread. */
  propertiesDroppedMax: 100,
  batchMessagesMax: 200,
  batchBytesMax: 512 * KiB,
  /**
   * A page begins with batches of this size. Each answer doubles it, up to the most; each failure that leaves open whether the batch has
   * arrived halves it, down to the least. After a slow one it is doubled up to that half, and then grows by an eighth.
   */
  batchBytesFirst: 64 * KiB,
  batchBytesMin: 4 * KiB,
  /** A failure after at least this long is attributed to a slow network. */
  slowMsMin: 5_000,
  /** Bytes of a batch besides its messages: app_id, time, pairing. */
  envelopeBytesMax: 8 * KiB,
  /** Browsers allow at most 64 KiB to be under way when a page ends. */
  exitBytesMax: 60_000,
  /** The time for one attempt to send a batch, in addition to the time for its bytes. */
  requestMsMin: 20_000,
  /** An upload slower than 64 kbit/s is aborted and retried with fewer bytes. */
  uploadBytesPerMs: 8,
  /** For how long after its deadline other tabs still leave a batch alone. */
  holdMarginMs: 2_000,
  /** A hold that expires later than this was made before the clock was set back. */
  holdMsMax: 90_000,
  /** The length of a hold for a batch sent when the page was hidden, whose answer may never be seen. */
  exitHoldMs: 5_000,
  /** A tab that becomes visible waits this long before it sends, since the tab that became hidden sends everything at once. */
  resumeMs: 250,
  /** How long `flush` waits for another tab that is sending. */
  flushTurnMs: 3_000,
  /**
   * For this long, nothing about a new user is sent, so that tabs that open at once can agree on one user. Each tab has to see what another
   * one wrote within a third of this time; browsers take a few milliseconds.
   */
  settleMs: 1_000,
  /** The longest time until a tab sees what another one wrote, however busy the device is. */
  unseenMs: 10_000,
  backoffMsMin: 1_000,
  backoffMsMax: 5 * 60_000,
  /** After this many refused batches in a row, further batches wait as after a failure. */
  refusalsMax: 20,
  /** Messages that have waited this long are dropped once `failuresForGivingUp` attempts in a row have failed. */
  messageMsMax: 30 * 24 * 60 * 60_000,
  failuresForGivingUp: 20,
  /** A longer `Retry-After` is treated as this. */
  retryAfterMsMax: 60 * 60_000,
  intervalMsMin: 50,
  intervalMsMax: 24 * 60 * 60_000,
  webIntervalMs: 3_000,
  mobileIntervalMs: 15_000,
  /** While paired with the Event Visualizer. */
  pairedIntervalMs: 1_000,
  webSessionIdleMs: 30 * 60_000,
  mobileSessionIdleMs: 5 * 60_000,
  /** How often, and how many times, a tab checks whether another one overwrote the properties that it added. */
  propertiesCheckMs: 300,
  propertiesChecks: 5,
  /** The size of a cookie: name, `=` and value. */
  cookieBytesMax: 4096,
} as const;

/** Milliseconds that a request with a body of this many bytes may take. */
export function requestMs(bytes: number): number {
  return clientLimits.requestMsMin + Math.ceil(bytes / clientLimits.uploadBytesPerMs);
}

// Marked as pure, so that the bundle leaves it out; every test run makes it.
/* @__PURE__ */ assertRelations();

function assertRelations(): void {
  const { batchBytesMax, envelopeBytesMax, propertiesBytesMax, queueBytesMax } = clientLimits;
  relation(clientLimits.batchMessagesMax <= counts.collectMessagesMax, 'the server must take a whole batch');
  relation(batchBytesMax + envelopeBytesMax <= bodies.collectBytesMax, "a batch must fit the server's body");
  relation(
    2 * propertiesBytesMax + 12 * (lengths.clientEventMax + lengths.clientIdentityMax) + KiB <= batchBytesMax,
    'a message with all its properties, its names escaped, must fit a batch',
  );
  relation(queueBytesMax >= 2 * batchBytesMax, 'a batch must be able to wait beside one that is under way');
  relation(queueBytesMax <= 2560 * KiB, 'the queue must leave the page half of its five million units');
  relation(clientLimits.exitBytesMax < 64 * KiB, 'browsers refuse more when a page ends');
  relation(
    clientLimits.holdMsMax >= requestMs(batchBytesMax + envelopeBytesMax) + clientLimits.holdMarginMs,
    'no other tab resends a batch that is under way',
  );
  relation(
    clientLimits.batchBytesMin <= clientLimits.batchBytesFirst &&
      clientLimits.batchBytesFirst <= batchBytesMax,
    'a page must be able to begin',
  );
  relation(clientLimits.settleMs <= clientLimits.webIntervalMs, 'a first visit waits no longer than others');
  relation(
    clientLimits.webSessionIdleMs > clientLimits.backoffMsMin &&
      clientLimits.pairedIntervalMs >= clientLimits.intervalMsMin,
    'the defaults must lie within the bounds',
  );
}
