// Chooses the waiting messages of the next request, in order: limited in number and bytes, without those that are already being sent, and
// without overtaking where the server depends on the order.

import { clientLimits } from './limits.js';
import type { Message } from './messages.js';
import type { Queue } from './queue.js';
import { utf8Bytes } from './text.js';

export type Batch = ReturnType<typeof chooseBatch>;

export type BatchBounds = {
  /** Messages that were added after this key wait for a later round. */
  readonly lastKey: string;
  readonly messagesMax: number;
  /** Limit on the bytes of the messages with the commas between them. The first message is sent regardless of its size. */
  readonly bytesMax: number;
  /** A message with more bytes is held back; others pass it where the order does not matter. */
  readonly messageBytesMax: number;
  /** The messages that are being sent, each with the milliseconds that this may still take. */
  readonly held: ReadonlyMap<string, number>;
  /** Milliseconds until the server's limit lets a message of this kind and user pass again. */
  readonly limitedMs: (message: Message) => number;
};

export function chooseBatch(queue: Queue, bounds: BatchBounds) {
  const keys: string[] = [];
  const messages: Message[] = [];
  const texts: string[] = [];
  const blocked = new Map<string, number>();
  /** The bytes of the messages with the commas between them. */
  let bytes = 0;
  /** If none can be sent now: milliseconds until one may. */
  let laterMs: number | undefined;

  for (const key of queue.keys()) {
    if (key > bounds.lastKey) break;
    const queued = queue.read(key);
    if (queued === undefined) continue;
    const { message, text } = queued;
    const heldMs = bounds.held.get(key);
    const waitMs = heldMs ?? Math.max(bounds.limitedMs(message), blockedMs(blocked, message));
    if (waitMs > 0) {
      laterMs = Math.min(laterMs ?? waitMs, waitMs);
      block(blocked, message, waitMs, heldMs !== undefined);
      continue;
    }
    const size = utf8Bytes(text) + 1;
    if (size > bounds.messageBytesMax) {
      block(blocked, message, clientLimits.backoffMsMax, true);
      continue;
    }
    if (messages.length >= bounds.messagesMax || (bytes > 0 && bytes + size > bounds.bytesMax)) break;
    keys.push(key);
    messages.push(message);
    texts.push(text);
    bytes += size;
  }
  return { keys, messages, texts, bytes, laterMs };
}

/**
 * Waiting user properties hold back later ones of the same user, since the last accepted ones win. An identification that is being sent
 * holds back all later messages of its user.
 */
function block(blocked: Map<string, number>, message: Message, ms: number, held: boolean): void {
  if (message.type === 'user_properties') blocked.set(limitKeyOf(message), ms);
  if (message.type === 'identify' && held) blocked.set(message.user_id, ms);
}

function blockedMs(blocked: ReadonlyMap<string, number>, message: Message): number {
  return Math.max(blocked.get(message.user_id) ?? 0, blocked.get(limitKeyOf(message)) ?? 0);
}

/** The kind and user by which the server limits the rate of a message. */
export function limitKeyOf(message: Message): string {
  return `${message.type} ${message.user_id}`;
}
