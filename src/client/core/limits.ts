// The client library's own bounds, beside those of the contract, and the relations between them.

import { counts, lengths } from '../../contract/lengths.js';
import { bodies } from '../../contract/limits.js';

const KiB = 1024;

export const clientLimits = {
  /** Calls that wait in memory for the start. */
  callsMax: 1000,
  /** Messages and bytes of one app that wait to be sent; beyond them the oldest go. */
  queueMessagesMax: 5000,
  queueBytesMax: 2048 * KiB,
  /** Of the properties of one call, and of the global event properties, as JSON. */
  propertiesBytesMax: 128 * KiB,
  batchMessagesMax: 200,
  batchBytesMax: 512 * KiB,
  /** Of a batch around its messages: app_id, time, pairing. */
  envelopeBytesMax: 8 * KiB,
  /** Browsers let 64 KiB be under way when a page ends. */
  exitBytesMax: 60_000,
  /** One attempt to send a batch. */
  requestMsMax: 20_000,
  /** For this long nobody else sends a batch that is under way. */
  holdMs: 22_000,
  /** The same for one sent when the page was hidden, whose answer may never be seen. */
  exitHoldMs: 5_000,
  /** A tab that is shown sends after this: the one that was hidden for it sends at once what it has. */
  resumeMs: 250,
  /** A tab without the browser's locks that sends says so again within this time. */
  leaseMs: 6_000,
  /**
   * Nothing of a first user is sent before: until then tabs that open at once agree on one, where each sees within
   * a third of it what another one wrote (browsers take some milliseconds).
   */
  settleMs: 1_000,
  /** For this long at most a tab does not see what another one wrote, however busy the device is. */
  unseenMs: 10_000,
  backoffMsMin: 1_000,
  backoffMsMax: 5 * 60_000,
  /** A longer `Retry-After` counts as this. */
  retryAfterMsMax: 60 * 60_000,
  intervalMsMin: 50,
  intervalMsMax: 24 * 60 * 60_000,
  webIntervalMs: 3_000,
  mobileIntervalMs: 15_000,
  /** While paired with the Event Visualizer. */
  pairedIntervalMs: 1_000,
  webSessionIdleMs: 30 * 60_000,
  mobileSessionIdleMs: 5 * 60_000,
  /** Name, `=` and value of a cookie. */
  cookieBytesMax: 4096,
} as const;

function relation(holds: boolean, reason: string): void {
  if (!holds) throw new Error(`limits contradict each other: ${reason}`);
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
  relation(clientLimits.holdMs > clientLimits.requestMsMax, 'nobody resends a batch that is under way');
  relation(clientLimits.settleMs <= clientLimits.webIntervalMs, 'a first visit waits no longer than others');
  relation(
    clientLimits.webSessionIdleMs > clientLimits.backoffMsMin &&
      clientLimits.pairedIntervalMs >= clientLimits.intervalMsMin,
    'the defaults must lie within the bounds',
  );
}
