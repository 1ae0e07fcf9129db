// The messages of one app that wait to be sent, in storage, one key each: tabs that share the storage add and
// remove without overwriting each other, and another page sends what a page leaves behind. The key contains the order,
// the size and the id, so the queue can be limited without reading its texts.
//
//   sluice:<app>:q:<order>.<bytes>.<kind>.<id>
//
// Order and bytes are in base 36, the order of fixed length; the kind is the first letter of the message's type.

import type { Clock, KeyValueStorage } from './adapters.js';
import { parseJson } from './json.js';
import { clientLimits } from './limits.js';
import type { Message } from './messages.js';
import { utf8Bytes } from './text.js';

export type Queue = ReturnType<typeof createQueue>;

export type QueueOptions = {
  readonly storage: KeyValueStorage;
  readonly prefix: string;
  readonly clock: Clock;
  /** The keys of messages that are being sent. They are not dropped to make room. */
  readonly held: () => ReadonlyMap<string, unknown>;
  /** Called with how many messages were dropped to make room or found damaged. */
  readonly onDropped: (count: number, reason: string) => void;
};

/**
 * How many messages this page adds before it checks whether other tabs have changed the queue. Sorting 5,000 keys takes milliseconds, so
 * they are sorted only if the queue has changed; and a full queue makes room for many messages at once.
 */
const lookEvery = 50;
const roomPart = 1 / 100;

/** The number of digits of the order in a key. */
const orderLength = 11;

/** A clock beyond this (the year 2255) is ignored, since the order would lose digits. */
const latestMs = 9e12;

export function createQueue({ storage, prefix, clock, held, onDropped }: QueueOptions) {
  let lastOrder = 0;
  let count = 0;
  let bytes = 0;
  let addedSinceLook = lookEvery;
  /** The keys of messages that this page added and has not seen removed. */
  const own = new Set<string>();

  /** The keys of all waiting messages, from the oldest. */
  function keys(): string[] {
    const all = storage.keys(prefix).sort();
    count = all.length;
    if (count === 0) own.clear();
    bytes = 0;
    for (const key of all) bytes += bytesOf(key);
    const newest = all[count - 1];
    // Limited, since beyond 2^53 all later messages would get the same order.
    if (newest !== undefined) lastOrder = Math.max(lastOrder, Math.min(orderOf(newest), latestMs * 1000));
    return all;
  }

  /** The time, so that tabs agree on the order; but never lower than before, even if the clock was set back. */
  function nextOrder(): string {
    const now = clock.now();
    lastOrder = Math.max(lastOrder + 1, now > 0 && now < latestMs ? Math.floor(now) * 1000 : 0);
    return lastOrder.toString(36).padStart(orderLength, '0');
  }

  function makeRoom(size: number): void {
    if (addedSinceLook < lookEvery && fits(size, 1)) return;
    addedSinceLook = 0;
    // If the number differs, other tabs have added or removed messages.
    if (storage.keys(prefix).length !== count) keys();
    if (fits(size, 1)) return;
    const kept = held();
    let dropped = 0;
    for (const key of keys()) {
      if (fits(size, 1 - roomPart)) break;
      if (kept.has(key)) continue;
      remove(key);
      dropped++;
    }
    if (dropped > 0) onDropped(dropped, 'too many wait to be sent');
  }

  /** Whether one more message of this size fits into a certain part of the limits. */
  function fits(size: number, part: number): boolean {
    return count < clientLimits.queueMessagesMax * part && bytes + size <= clientLimits.queueBytesMax * part;
  }

  function remove(key: string): void {
    storage.remove(key);
    own.delete(key);
    count--;
    bytes -= bytesOf(key);
  }

  /** The message's text; undefined if it is gone or damaged. A damaged message is removed. */
  function read(key: string): { text: string; message: Message } | undefined {
    const text = storage.get(key);
    if (text === undefined) return undefined;
    const message = parseMessage(text);
    if (message !== undefined) return { text, message };
    remove(key);
    onDropped(1, 'its text is damaged');
    return undefined;
  }

  function bytesOf(key: string): number {
    return Number.parseInt(key.slice(prefix.length + orderLength + 1), 36) || 0;
  }

  function kindOf(key: string): string | undefined {
    return key.slice(prefix.length).split('.')[2];
  }

  function orderOf(key: string): number {
    return Number.parseInt(key.slice(prefix.length), 36) || 0;
  }

  return {
    /** Appends a message, and returns its key and size. Drops the oldest messages if there are too many. */
    add(message: Message) {
      const text = JSON.stringify(message);
      const size = utf8Bytes(text);
      makeRoom(size);
      const key = `${prefix}${nextOrder()}.${size.toString(36)}.${message.type[0]}.${message.id}`;
      storage.set(key, text, true);
      own.add(key);
      count++;
      bytes += size;
      addedSinceLook++;
      return { key, bytes: size };
    },
    keys,
    read,
    remove,
    /**
     * Replaces waiting messages that this page added by what `change` returns, which must be of about the same size; undefined leaves a
     * message as it is. Only this page's own: two tabs that changed the same message would undo each other's changes.
     */
    rewrite(change: (message: Message, key: string) => Message | undefined): void {
      for (const key of [...own]) {
        const message = read(key)?.message;
        const changed = message && change(message, key);
        if (changed !== undefined) storage.set(key, JSON.stringify(changed), true);
        if (message === undefined) own.delete(key);
      }
    },
    /** Whether a message waits under the key, and no later one of the same type. */
    isLastOfItsType(key: string): boolean {
      // Reads the keys unsorted, which is fast, since every call that sets user properties does this.
      let isThere = false;
      for (const other of storage.keys(prefix)) {
        if (other === key) isThere = true;
        else if (other > key && kindOf(other) === kindOf(key)) return false;
      }
      return isThere;
    },
    /** Drops messages of at least this age in milliseconds; returns how many. */
    removeOlderThan(ms: number): number {
      const before = (clock.now() - ms) * 1000;
      const old = keys().filter((key) => orderOf(key) < before);
      for (const key of old) remove(key);
      return old.length;
    },
  };
}

function parseMessage(text: string): Message | undefined {
  const message = parseJson(text);
  return typeof message.id === 'string' && typeof message.user_id === 'string' ? message : undefined;
}
