// Turns calls for one app into messages, each for the user and session of that moment.

import type { Adapters } from './adapters.js';
import type { Review } from './before-send.js';
import { createEventProperties } from './event-properties.js';
import { keysOf } from './keys.js';
import type { Properties } from './messages.js';
import type { Outbox } from './outbox.js';
import { randomMessageId } from './random-ids.js';
import { mergeProperties, type Warn } from './sanitize.js';
import { createSession, type SharedState } from './session.js';
import { timestampOf } from './time.js';
import { createUserState } from './user.js';

export type Recorder = ReturnType<typeof createRecorder>;

export function createRecorder(
  appId: string,
  adapters: Adapters,
  outbox: Outbox,
  sessionIdleMs: () => number,
  review: Review,
  warn: Warn,
) {
  const { storage, clock, randomBytes } = adapters;
  const keys = keysOf(appId);
  const shared = (key: string, field: 'user_id' | 'session_id'): SharedState => {
    const onReplaced = (lost: string, kept: string): void => outbox.reassign(field, lost, kept);
    return { storage, key, clock, randomBytes, onReplaced };
  };
  const user = createUserState(shared(keys.user, 'user_id'));
  const session = createSession({ ...shared(keys.session, 'session_id'), idleMs: sessionIdleMs });
  const eventProperties = createEventProperties(
    adapters.propertyStore,
    appId,
    storage.onChange === undefined ? undefined : clock,
    warn,
  );

  /**
   * Adopts what the tabs have agreed on: the user and the session, also for messages that were not sent yet; and an opt-out, after which
   * only the choice stays on the device.
   */
  function agree(): void {
    if (outbox.applyOptOut()) eventProperties.clear();
    user.peek();
    session.noticeReplacement();
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
    /** Records an event with the global event properties; records nothing while opted out. `atMs`: when the call was made. */
    event(event: string, own: Properties, atMs: number, autocaptured?: true): void {
      if (outbox.isOptedOut()) return;
      const properties = mergeProperties(eventProperties.current(), own, warn);
      const draft = review({ type: 'event', event, properties, autocaptured });
      // The page's `beforeSend` may have opted out.
      if (draft === undefined || outbox.isOptedOut()) return;
      const { event: name, properties: kept } = draft;
      outbox.add({ type: 'event', ...common(atMs), event: name, properties: kept, autocaptured });
    },
    identify(identity: string, atMs: number): void {
      if (!outbox.isOptedOut()) outbox.add({ type: 'identify', ...common(atMs), identity });
    },
    userProperties(properties: Properties, atMs: number): void {
      if (outbox.isOptedOut()) return;
      const kept = review({ type: 'user_properties', properties })?.properties;
      if (kept === undefined || Object.keys(kept).length === 0 || outbox.isOptedOut()) return;
      outbox.addUserProperties({ type: 'user_properties', ...common(atMs), properties: kept });
    },
    agree,
  };
}
