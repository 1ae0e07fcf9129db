// The Event Visualizer.

const KiB = 1024;
const MiB = 1024 * KiB;

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
  /**
   * How many pages of an account's people may be paired, and how many bytes they get in a second, all together: each may show the same
   * device.
   */
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
