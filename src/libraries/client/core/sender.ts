// Sends one app's queue in batches after an interval, one request at a time over all tabs, and again after failures. A message leaves the
// queue only when the server has answered for it.

import type { SendingTurn, Transport, TransportAnswer } from './adapters.js';
import { type Batch, chooseBatch } from './batch.js';
import { createDelivery, type DeliveryOptions } from './delivery.js';
import type { Holds } from './holds.js';
import { clientLimits, requestMs } from './limits.js';
import { utf8Bytes } from './text.js';
import { timestampOf } from './time.js';

export type SenderOptions = DeliveryOptions & {
  readonly appId: string;
  readonly turnName: string;
  readonly holds: Holds;
  readonly transport: Transport;
  readonly turn: SendingTurn;
  /**
   * Read at each use, since both change during the sender's life. Without an address nothing is sent. A path other than `/api/collect`
   * follows the address after `#`.
   */
  readonly baseUrl: () => string | undefined;
  readonly intervalMs: () => number;
  readonly pairing: () => string | undefined;
  readonly isOptedOut: () => boolean;
  readonly applyOptOut: () => unknown;
  /** Called before messages are chosen for sending. Returns for how many milliseconds sending still has to wait. */
  readonly beforeSending: () => number;
};

type Request = { readonly keys: readonly string[]; outlivesPage: boolean; lift: () => void };

export function createSender(options: SenderOptions) {
  const { queue, holds, backoff, transport, clock } = options;
  const delivery = createDelivery(options);
  let cancelTimer: (() => void) | undefined;
  let timerAt = 0;
  let wokenMessages = 0;
  let wokenBytes = 0;
  let underWay: Request | undefined;
  let current: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  let hasTurn = false;
  /** Whether messages that were held back because of their size should be tried, after all others. */
  let isResumed = false;

  /** Schedules a round in this many milliseconds, unless an earlier one is scheduled. */
  function arm(ms: number): void {
    const at = clock.now() + ms;
    if (cancelTimer !== undefined && timerAt <= at) return;
    cancelTimer?.();
    timerAt = at;
    cancelTimer = clock.setTimer(ms, () => {
      cancelTimer = undefined;
      void run();
    });
  }

  /** Begins a round now, or right after the current one. */
  function run(): Promise<void> {
    if (current === undefined) {
      current = round()
        .then(undefined, onFault)
        .then(() => {
          current = undefined;
        });
      return current;
    }
    next ??= current.then(() => {
      next = undefined;
      return run();
    });
    return next;
  }

  /** After a fault of ours or of an adapter. Nothing is lost, since messages stay in the queue. */
  function onFault(): void {
    options.warn('sending failed inside the library.');
  }

  async function round(): Promise<void> {
    cancelTimer?.();
    cancelTimer = undefined;
    wokenMessages = 0;
    wokenBytes = 0;
    if (isBackedOff() || queue.keys().length === 0) return;
    await settled();
    await options.turn.take(options.turnName, async () => {
      hasTurn = true;
      try {
        await sendAll();
      } finally {
        hasTurn = false;
      }
    });
  }

  /** Sends what may be sent now. Settles once that was tried, or after three seconds if another tab is still sending. Never rejects. */
  function flush(): Promise<void> {
    return new Promise((resolve) => {
      const cancel = clock.setTimer(clientLimits.flushTurnMs, () => {
        if (!hasTurn) resolve();
      });
      void run().then(() => {
        cancel();
        resolve();
      });
    });
  }

  async function settled(): Promise<void> {
    // Meanwhile another tab may have brought a newer user, for whom it has to wait again.
    for (let ms = options.beforeSending(); ms > 0; ms = options.beforeSending()) {
      await new Promise<void>((resolve) => void clock.setTimer(ms, resolve));
    }
  }

  /** Whether nothing may be sent: there is no address, or the user opted out. */
  function isStopped(): boolean {
    // The user may have opted out in another tab, which cannot clear this page's memory. As long as nobody has chosen, other pages may
    // record and send.
    options.applyOptOut();
    return options.isOptedOut() || options.baseUrl() === undefined;
  }

  function isBackedOff(): boolean {
    const { ms } = backoff.left();
    if (ms > 0) arm(ms);
    return ms > 0;
  }

  async function sendAll(): Promise<void> {
    const lastKey = newestKey();
    while (!isStopped() && !isBackedOff()) {
      const batch = choose(lastKey, holds.current());
      if (batch.messages.length === 0) {
        if (isResumed) {
          isResumed = false;
          delivery.resume();
          continue;
        }
        if (batch.laterMs !== undefined) arm(batch.laterMs);
        else if (queue.keys().length === 0) delivery.forgetAll();
        return;
      }
      await send(batch);
    }
  }

  /** Only messages up to this one belong to the round. Otherwise a page that records its own requests would never end a round. */
  function newestKey(): string {
    return queue.keys().slice(-1)[0] ?? '';
  }

  function choose(
    lastKey: string,
    held: ReadonlyMap<string, number>,
    bytesMax?: number,
    messageBytesMax = Number.POSITIVE_INFINITY,
  ): Batch {
    options.beforeSending();
    const { limitedMs } = delivery;
    const max = delivery.batchMax();
    return chooseBatch(queue, {
      lastKey,
      messagesMax: max.messages,
      bytesMax: bytesMax ?? max.bytes,
      messageBytesMax: Math.min(messageBytesMax, max.messageBytes),
      held,
      limitedMs,
    });
  }

  async function send(batch: Batch): Promise<void> {
    const body = bodyOf(batch.texts);
    const timeoutMs = requestMs(utf8Bytes(body));
    const lift = hold(batch.keys, timeoutMs + clientLimits.holdMarginMs);
    const request: Request = { keys: batch.keys, outlivesPage: false, lift };
    const pairing = options.pairing();
    const sentMs = clock.now();
    let answer: TransportAnswer = { status: 0, body: '' };
    try {
      const sending = transport.send(url(), body, timeoutMs);
      underWay = request;
      request.outlivesPage = sending.outlivesPage;
      answer = await sending.answer;
    } catch {
      onFault();
    }
    underWay = undefined;
    // The hold is removed last: other tabs see these changes late, but in this order.
    try {
      delivery.settle(batch, answer, pairing, clock.now() - sentMs);
    } finally {
      request.lift();
    }
  }

  function hold(keys: readonly string[], ms: number): () => void {
    delivery.begin(keys);
    return holds.place(keys, ms);
  }

  function url(): string {
    const [base = '', path = '/api/collect'] = (options.baseUrl() ?? '').split('#');
    return base.replace(/\/+$/, '') + path;
  }

  /** Joined from the stored texts, so that a repeated request has the same bytes. */
  function bodyOf(texts: readonly string[]): string {
    const pairing = options.pairing();
    return `{"app_id":${JSON.stringify(options.appId)},"sent_at":"${timestampOf(clock.now())}"${
      pairing === undefined ? '' : `,"pairing":${JSON.stringify(pairing)}`
    },"messages":[${texts.join(',')}]}`;
  }

  /** To be called when the page may be ending. Sends what fits into this many bytes, and returns how many bytes it used. */
  function exit(bytesMax: number): number {
    const { ms, asked } = backoff.left();
    if (isStopped() || (ms > 0 && asked)) return 0;
    const held = new Map(holds.current());
    if (underWay !== undefined) {
      // The answer may never be seen, and the next page should not have to wait for the time-out.
      underWay.lift();
      underWay.lift = holds.place(underWay.keys, clientLimits.exitHoldMs);
      if (!underWay.outlivesPage) for (const key of underWay.keys) held.delete(key);
    }
    const envelopeBytes = utf8Bytes(bodyOf([]));
    const lastKey = newestKey();
    let used = 0;
    for (;;) {
      // A message that is too large to be sent when a page ends waits for the next page, and does not block the others.
      const messageBytesMax = clientLimits.exitBytesMax - envelopeBytes;
      const batch = choose(lastKey, held, bytesMax - used - envelopeBytes, messageBytesMax);
      if (batch.messages.length === 0) break;
      const bytes = sendAtExit(batch, bytesMax - used);
      if (bytes === 0) break;
      used += bytes;
      for (const key of batch.keys) held.set(key, clientLimits.exitHoldMs);
    }
    if (used > 0) arm(clientLimits.exitHoldMs);
    return used;
  }

  /** Returns how many bytes were handed over; 0 if that was not possible. */
  function sendAtExit(batch: Batch, bytesMax: number): number {
    const body = bodyOf(batch.texts);
    const bytes = utf8Bytes(body);
    if (bytes > bytesMax) return 0;
    const lift = hold(batch.keys, clientLimits.exitHoldMs);
    const pairing = options.pairing();
    const sentMs = clock.now();
    const answer = transport.sendAtExit?.(url(), body);
    if (answer === undefined) {
      lift();
      return 0;
    }
    answer
      .then((settled) => {
        // Without an answer the hold stays: the request may have arrived, and the page may be ending.
        if (settled.status === 0) return;
        delivery.settle(batch, settled, pairing, clock.now() - sentMs);
        lift();
      })
      .catch(onFault);
    return bytes;
  }

  return {
    /** To be called when a message of this many bytes was added. It goes with the next batch. */
    wake(bytes: number): void {
      wokenMessages++;
      wokenBytes += bytes;
      const max = delivery.batchMax();
      const full = wokenMessages >= max.messages || wokenBytes >= max.bytes;
      arm(full ? 0 : options.intervalMs());
    },
    /** Checks within about two intervals whether another tab has left messages. */
    watch: () => arm(2 * options.intervalMs()),
    flush,
    /** To be called when another attempt makes sense. Ends waits that the server did not ask for. */
    resume(): void {
      backoff.hurry();
      isResumed = true;
      arm(clientLimits.resumeMs);
    },
    exit,
    wasSent: delivery.wasSent,
  };
}
