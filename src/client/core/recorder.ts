// Turns calls for one app into messages, each for the user and the session of its moment.

import type { Adapters } from './adapters.js';
import { createEventProperties, type EventProperties } from './event-properties.js';
import { keysOf } from './keys.js';
import type { Properties } from './messages.js';
import type { Outbox } from './outbox.js';
import { randomMessageId } from './random-ids.js';
import { mergeProperties, type Warn } from './sanitize.js';
import { createSession, type Session } from './session.js';
import { timestampOf } from './time.js';
import { createUserState, type UserState } from './user.js';

export type Recorder = {
  readonly appId: string;
  readonly user: UserState;
  readonly session: Session;
  readonly eventProperties: EventProperties;
  readonly outbox: Outbox;
  /** Records an event with the global event properties; nothing while opted out. `atMs`: when it was called. */
  event(event: string, properties: Properties, atMs: number, autocaptured?: true): void;
  identify(identity: string, atMs: number): void;
  userProperties(properties: Properties, atMs: number): void;
  /** Takes over the user and session on which the tabs agreed, also for what waits and was not sent yet. */
  agree(): void;
};

export function createRecorder(
  appId: string,
  adapters: Adapters,
  outbox: Outbox,
  sessionIdleMs: () => number,
  warn: Warn,
): Recorder {
  const { storage, clock, randomBytes } = adapters;
  const keys = keysOf(appId);
  const user = createUserState({
    storage,
    key: keys.user,
    clock,
    randomBytes,
    onReplaced: (lost, kept) => outbox.reassign('user_id', lost, kept),
  });
  const session = createSession({
    storage,
    key: keys.session,
    clock,
    randomBytes,
    idleMs: sessionIdleMs,
    onReplaced: (lost, kept) => outbox.reassign('session_id', lost, kept),
  });
  const eventProperties = createEventProperties(
    adapters.propertyStore,
    appId,
    storage.onChange === undefined ? undefined : clock,
    warn,
  );

  function agree(): void {
    user.peek();
    session.look();
  }

  outbox.setBeforeSending(() => {
    agree();
    return user.unsettledMs();
  });

  function common(atMs: number) {
    const { id, identity } = user.current();
    return {
      id: randomMessageId(randomBytes),
      user_id: id,
      session_id: session.use(),
      time: timestampOf(atMs),
      identity,
    };
  }

  return {
    appId,
    user,
    session,
    eventProperties,
    outbox,
    event(event, own, atMs, autocaptured) {
      if (outbox.isOptedOut()) return;
      const properties = mergeProperties(eventProperties.current(), own, warn);
      outbox.add({ type: 'event', ...common(atMs), event, properties, autocaptured });
    },
    identify(identity, atMs) {
      if (!outbox.isOptedOut()) outbox.add({ type: 'identify', ...common(atMs), identity });
    },
    userProperties(properties, atMs) {
      if (outbox.isOptedOut()) return;
      outbox.addUserProperties({ type: 'user_properties', ...common(atMs), properties });
    },
    agree,
  };
}
