// Everything to be sent for one app, the current or a former one: its queue, its sender, and whether the user permits sending.

import type { Adapters } from './adapters.js';
import { createBackoff } from './backoff.js';
import { createConsent } from './consent.js';
import { createHolds } from './holds.js';
import { keysOf } from './keys.js';
import type { CollectAnswer, Message, Properties, UserPropertiesMessage } from './messages.js';
import { createQueue } from './queue.js';
import { randomMessageId } from './random-ids.js';
import { checkProperties, userRules, type Warn } from './sanitize.js';
import { createSender } from './sender.js';

/** What the outboxes of one client share. */
export type OutboxOptions = {
  readonly adapters: Adapters;
  readonly intervalMs: () => number;
  readonly pairing: (appId: string) => string | undefined;
  readonly onDropped: (count: number, reason: string) => void;
  readonly onAnswer: (appId: string, answer: CollectAnswer, pairing: string | undefined) => void;
  readonly warn: Warn;
};

export type Outbox = ReturnType<typeof createOutbox>;

export function createOutbox(appId: string, options: OutboxOptions) {
  const { storage, clock, randomBytes, transport, turn } = options.adapters;
  const keys = keysOf(appId);
  const newId = (): string => randomMessageId(randomBytes);
  let optedOutByDefault = false;
  /**
   * Set once everything was removed after an opt-out. If tabs kept removing what others put back, they would never come to rest. Only
   * messages may still appear, from a tab that does not know of the choice yet.
   */
  let isForgotten = false;
  let baseUrl: string | undefined;
  let beforeSending = (): number => 0;
  /** The last user properties that this page added. */
  let waiting: { readonly key: string; readonly message: UserPropertiesMessage } | undefined;

  const consent = createConsent(storage, keys.consent, appId, options.adapters.consentStore);
  const holds = createHolds(storage, keys.holds, clock, newId);
  const queue = createQueue({
    storage,
    prefix: keys.queue,
    clock,
    held: holds.current,
    onDropped: options.onDropped,
  });
  const sender = createSender({
    appId,
    turnName: keys.turn,
    queue,
    holds,
    backoff: createBackoff(storage, keys.backoff, clock, randomBytes),
    transport,
    clock,
    turn: turn ?? { take: (_, work) => work() },
    baseUrl: () => baseUrl ?? storage.get(keys.url),
    intervalMs: options.intervalMs,
    pairing: () => options.pairing(appId),
    isOptedOut,
    applyOptOut,
    beforeSending: () => beforeSending(),
    onDropped: options.onDropped,
    onAnswer: (answer, pairing) => options.onAnswer(appId, answer, pairing),
    warn: options.warn,
  });

  function isOptedOut(): boolean {
    const choice = consent.choice();
    return choice === undefined ? optedOutByDefault : choice === 'out';
  }

  function add(message: Message): string {
    // Kept for later pages, which may start another app. Stored only once there is something to send.
    if (baseUrl !== undefined && storage.get(keys.url) !== baseUrl) storage.set(keys.url, baseUrl);
    const { key, bytes } = queue.add(message);
    sender.wake(bytes);
    return key;
  }

  /** Adds user properties. Joins them with those of the same user that are waiting and were not sent yet. */
  function addUserProperties(message: UserPropertiesMessage): void {
    const joined = waiting === undefined ? undefined : join(waiting, message);
    const key = add(joined ?? message);
    if (waiting !== undefined && joined !== undefined) queue.remove(waiting.key);
    waiting = { key, message: joined ?? message };
  }

  /**
   * Joins both into one message, or returns undefined if they have to stay separate. The joined message has a new id, so nothing is lost if
   * another tab is sending the former one at that moment.
   */
  function join(
    former: { readonly key: string; readonly message: UserPropertiesMessage },
    later: UserPropertiesMessage,
  ): UserPropertiesMessage | undefined {
    const { key, message } = former;
    if (message.user_id !== later.user_id || message.identity !== later.identity) return undefined;
    if (sender.wasSent(key) || holds.current().has(key) || !queue.isLastOfItsType(key)) return undefined;
    let fits = true;
    const properties: Properties = checkProperties(
      { ...message.properties, ...later.properties },
      userRules,
      () => {
        fits = false;
      },
    );
    return fits ? { ...later, properties } : undefined;
  }

  /** If the user has opted out, removes everything that is stored for the app except the choice. Returns whether they have. */
  function applyOptOut(): boolean {
    const isOut = consent.choice() === 'out';
    if (isOut) {
      for (const key of storage.keys(keys.app))
        if (key.startsWith(keys.queue) || (!isForgotten && key !== keys.consent)) storage.remove(key);
    }
    isForgotten = isOut;
    return isOut;
  }

  return {
    /** Sets the address for messages from now on, and whether users count as opted out until they choose. */
    start(url: string, optedOut: boolean): void {
      baseUrl = url;
      optedOutByDefault = optedOut;
    },
    add,
    addUserProperties,
    /**
     * Moves unsent messages of this page to another user or session. Their ids stay, so nothing is stored twice if another tab is sending
     * them at that moment.
     */
    reassign(field: 'user_id' | 'session_id', from: string, to: string): void {
      const held = holds.current();
      queue.rewrite((message, key) =>
        message[field] !== from || sender.wasSent(key) || held.has(key)
          ? undefined
          : { ...message, [field]: to },
      );
    },
    isOptedOut,
    optOut(): void {
      isForgotten = false;
      consent.choose('out');
    },
    applyOptOut,
    optIn: () => consent.choose('in'),
    /** Sets the function that is called before anything is sent. It returns for how many milliseconds sending still has to wait. */
    setBeforeSending(called: () => number): void {
      beforeSending = called;
    },
    sender,
  };
}
