// What is known about sent messages: which may have arrived, which the server wants later, and how large a batch it accepts. Processes each
// answer, and removes answered messages from the queue.

import type { Clock, TransportAnswer } from './adapters.js';
import { readAnswer } from './answers.js';
import type { Backoff } from './backoff.js';
import { type Batch, limitKeyOf } from './batch.js';
import { clientLimits } from './limits.js';
import type { CollectAnswer, Message, MessageAnswer } from './messages.js';
import type { Queue } from './queue.js';
import { msUntil } from './time.js';

export type DeliveryOptions = {
  readonly queue: Queue;
  readonly backoff: Backoff;
  readonly clock: Clock;
  /** Called when messages were dropped, with their number and the reason. */
  readonly onDropped: (count: number, reason: string) => void;
  /** `pairing`: the pairing that the batch carried. */
  readonly onAnswer: (answer: CollectAnswer, pairing: string | undefined) => void;
  readonly warn: (line: string) => void;
};

export function createDelivery(options: DeliveryOptions) {
  const { queue, backoff, clock } = options;
  /** For each kind and user: until when the server wants no message, and the length of that whole wait. */
  const limited = new Map<string, { readonly until: number; readonly ms: number }>();
  const sent = new Set<string>();
  let messagesMax: number = clientLimits.batchMessagesMax;
  let bytesMax: number = clientLimits.batchBytesFirst;
  /** Above this size batches grow slowly, since twice as many bytes took too long. */
  let doubledBytesMax: number = clientLimits.batchBytesMax;
  let messageBytesMax = Number.POSITIVE_INFINITY;
  let refusals = 0;
  let warnedOf: string | undefined;

  /** Processes the answer to a batch, or its absence, `tookMs` after it was sent. */
  function settle(batch: Batch, answer: TransportAnswer, pairing: string | undefined, tookMs: number): void {
    const { messages, keys } = batch;
    const verdict = readAnswer(answer, messages);
    if (verdict.kind === 'answered') {
      messagesMax = Math.min(messagesMax * 2, clientLimits.batchMessagesMax);
      // The success of a small batch says nothing about larger ones.
      if (batch.bytes * 2 > bytesMax) {
        const step = bytesMax < doubledBytesMax ? bytesMax : bytesMax >> 3;
        bytesMax = Math.min(bytesMax + step, clientLimits.batchBytesMax);
      }
      refusals = 0;
      let unanswered = false;
      messages.forEach((message, at) => {
        if (!settleMessage(message, keys[at] as string, verdict.each[at])) unanswered = true;
      });
      if (unanswered) fail(answer);
      else backoff.succeed();
      options.onAnswer(verdict.answer, pairing);
      return;
    }
    const tooLarge = verdict.kind === 'too_large';
    if (tooLarge || verdict.kind === 'failed') {
      // Servers and proxies end a body that is too slow for them, often without an answer. A device without a network fails at once, which
      // does not slow down later batches.
      const least = clientLimits.batchBytesMin;
      const mayBeSize = batch.bytes > least && (tooLarge || verdict.isCut);
      const tooSlow = mayBeSize && !tooLarge && tookMs >= clientLimits.slowMsMin;
      if (mayBeSize) bytesMax = Math.min(bytesMax, Math.max(batch.bytes >> 1, least));
      if (tooSlow) doubledBytesMax = bytesMax;
      if (tooLarge && messages.length > 1) messagesMax = Math.ceil(messages.length / 2);
      // A single message that is too large for something on the way is held back, and does not block the others.
      else if (tooLarge || (tooSlow && messages.length === 1)) messageBytesMax = batch.bytes - 1;
      fail(answer, verdict.reason);
      return;
    }
    if (verdict.kind === 'refused' && messages.length > 1) {
      // Halving finds the bad message, or the largest size that is accepted; the good messages are sent.
      messagesMax = Math.ceil(messages.length / 2);
    } else {
      for (const key of keys) forget(key);
      options.onDropped(keys.length, verdict.reason);
    }
    refusals++;
    if (refusals > clientLimits.refusalsMax) backoff.fail(answer);
  }

  function fail(answer: TransportAnswer, reason?: string): void {
    if (reason !== undefined && reason !== warnedOf) {
      options.warn(`a batch is sent again: ${reason}`);
    }
    warnedOf = reason;
    if (backoff.fail(answer) < clientLimits.failuresForGivingUp) return;
    const count = queue.removeOlderThan(clientLimits.messageMsMax);
    if (count > 0) options.onDropped(count, 'they could not be sent for 30 days');
  }

  /** Processes the answer to one message; returns false if there is none. */
  function settleMessage(message: Message, key: string, answer: MessageAnswer | undefined): boolean {
    if (answer?.status === 'stored' || answer?.status === 'repeat') {
      forget(key);
    } else if (answer?.status === 'rejected') {
      forget(key);
      options.onDropped(1, `${message.type} ${answer.field ?? ''} ${answer.code}: ${answer.message}`);
    } else if (answer?.status === 'limited') {
      const seconds = answer.retry_after > 0 ? answer.retry_after : 1;
      const ms = Math.min(seconds * 1000, clientLimits.retryAfterMsMax);
      limited.set(limitKeyOf(message), { until: clock.now() + ms, ms });
      // It was certainly not stored before: a repeat is never limited.
      sent.delete(key);
    } else {
      return false;
    }
    return true;
  }

  function forget(key: string): void {
    sent.delete(key);
    queue.remove(key);
  }

  return {
    /** Records that these messages may have arrived from now on. */
    begin: (keys: readonly string[]): void => {
      for (const key of keys) sent.add(key);
    },
    settle,
    /** Lets messages be tried again that were held back because of their size. */
    resume: (): void => {
      messageBytesMax = Number.POSITIVE_INFINITY;
    },
    /** Records that no message is waiting. */
    forgetAll: (): void => sent.clear(),
    /** Whether this page has put the message into a request that may have arrived. */
    wasSent: (key: string): boolean => sent.has(key),
    /** For how many milliseconds the server wants no message of this kind and user. */
    limitedMs(message: Message): number {
      const limit = limited.get(limitKeyOf(message));
      return limit === undefined ? 0 : msUntil(limit.until, limit.ms, clock);
    },
    /** How many messages and bytes the next batch may have. */
    batchMax: () => ({ messages: messagesMax, bytes: bytesMax, messageBytes: messageBytesMax }),
  };
}
