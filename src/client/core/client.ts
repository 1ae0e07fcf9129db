// The client library's operations, the same for all surfaces: a table of contents.

import type { Adapters } from './adapters.js';
import { createDropCount, createGuard, protect } from './guard.js';
import { appsWithMessages, keysOf } from './keys.js';
import { clientLimits } from './limits.js';
import type { CollectAnswer, Properties } from './messages.js';
import { createOutbox, type Outbox, type OutboxOptions } from './outbox.js';
import { createRecorder, type Recorder } from './recorder.js';
import {
  autocaptureRules,
  checkEventName,
  checkIdentity,
  checkProperties,
  eventRules,
  type PropertyRules,
  userRules,
} from './sanitize.js';
import { isBroken } from './text.js';

export type Settings = {
  /** Origin, perhaps with a path, of the Sluice to send to, such as `https://events.example.com`. */
  readonly baseUrl: string;
  /** Messages wait at most this long for others to go with; from 50 ms to a day. */
  readonly intervalMs: number;
  /** A session ends after this long without a call. */
  readonly sessionIdleMs: number;
  /** Whether each start begins a session, even when the last one is not idle. */
  readonly sessionPerStart: boolean;
  /** Record nothing until `optIn` is called, unless the user chose before. */
  readonly optedOut?: boolean;
  /** Identities that are taken although they look like a word that many users would share. */
  readonly allowIdentities?: readonly string[];
  /** Sees each answer to a batch of the app, after it was dealt with, and the pairing that the batch carried. */
  readonly onAnswer?: (appId: string, answer: CollectAnswer, pairing: string | undefined) => void;
};

type Operations = {
  /**
   * Begins to record for an app; called again, a session of that app begins (`sessionPerStart`), or recording
   * goes on for another app. What waits for former apps is still sent to them, where they were last started.
   * Calls of other operations before the first start wait for it.
   */
  start(appId: string, settings: Settings): void;
  track(event: string, properties?: Properties | null): void;
  /** Records what the library itself saw; properties over a length are cut, reserved keys are allowed. */
  autocapture(event: string, properties: Properties): void;
  identify(identity: string): void;
  resetIdentity(): void;
  addUserProperties(properties: Properties): void;
  addEventProperties(properties: Properties): void;
  removeEventProperty(property: string): void;
  clearEventProperties(): void;
  /** Stops recording, forgets what waits to be sent, and remembers the choice. */
  optOut(): void;
  optIn(): void;
  /** Takes effect at the next send. */
  changeInterval(intervalMs: number): void;
  /** While given, each batch carries it, and batches go out every second. */
  setPairing(pairing: string | undefined): void;
  /** Counts calls that never reached the library. */
  addDropped(count: number, reason: string): void;
};

/** No operation throws, whatever its arguments. */
export type Client = Operations & {
  /** The current user's id; undefined before the start, and while opted out if there never was a user. */
  readonly userId: string | undefined;
  readonly identity: string | undefined;
  /** Sends what waits now, as far as the server lets; settles when that was tried. Never rejects. */
  flush(): Promise<void>;
  /** Messages that were given up since the start of the page: pushed out, too large or refused. */
  readonly droppedCount: number;
  /** Shows a line to the developer; never throws. */
  warn(line: string): void;
};

/** Makes a client. It does nothing until it is started. */
export function createClient(adapters: Adapters): Client {
  const { clock, lifecycle, storage } = adapters;
  const calledAt = (): number => adapters.calledAtMs?.() ?? clock.now();
  const outboxes = new Map<string, Outbox>();
  const { warn, guarded } = createGuard(adapters.warn);
  const drops = createDropCount(warn);
  /** Calls that came before the recording could begin, or before it was known whether it may. */
  const calls: { readonly run: (recorder: Recorder) => void; readonly isStart?: true }[] = [];
  let asked = false;
  let ready = false;
  let settings: Settings | undefined;
  let recorder: Recorder | undefined;
  /** Whether it is known what the user of the recorder's app chose. */
  let known = false;
  let changedIntervalMs: number | undefined;
  let paired: { readonly appId: string; readonly pairing: string } | undefined;

  const outboxOptions: OutboxOptions = {
    adapters,
    intervalMs,
    pairing: (appId) => (paired?.appId === appId ? paired.pairing : undefined),
    onDropped: drops.add,
    onAnswer: (appId, answer, pairing) => guarded(() => settings?.onAnswer?.(appId, answer, pairing)),
    warn,
  };

  function intervalMs(): number {
    const asked = changedIntervalMs ?? settings?.intervalMs ?? clientLimits.webIntervalMs;
    // A timer set to more than 24 days goes off at once.
    const ms = Math.min(Math.max(asked, clientLimits.intervalMsMin), clientLimits.intervalMsMax);
    return paired === undefined ? ms : Math.min(ms, clientLimits.pairedIntervalMs);
  }

  function outboxOf(appId: string): Outbox {
    const outbox = outboxes.get(appId) ?? createOutbox(appId, outboxOptions);
    outboxes.set(appId, outbox);
    return outbox;
  }

  function allOutboxes(): Outbox[] {
    return [...outboxes.values()];
  }

  function start(appId: string, given: Settings): void {
    const fault = faultOfStart(appId, given);
    if (fault !== undefined) return warn(`nothing is recorded: ${fault}.`);
    const run = (): void => begin(appId, { ...given });
    if (ready && known) return run();
    if (asked) {
      // What waits was called for the former app.
      calls.push({ run, isStart: true });
      return;
    }
    asked = true;
    lifecycle.whenReady(() =>
      guarded(() => {
        if (ready) return;
        ready = true;
        listen();
        run();
      }),
    );
  }

  function begin(appId: string, given: Settings): void {
    settings = given;
    const outbox = outboxOf(appId);
    outbox.start(given.baseUrl, given.optedOut === true);
    if (recorder?.appId !== appId) {
      recorder = createRecorder(appId, adapters, outbox, () => settings?.sessionIdleMs ?? 0, warn);
    }
    known = false;
    const whenKnown = storage.whenKnown ?? ((_, callback) => callback());
    whenKnown(keysOf(appId).consent, () => guarded(() => proceed(appId)));
    // What earlier pages left behind, of this app and of others.
    for (const former of appsWithMessages(storage.keys('sluice:'))) outboxOf(former).sender.wake(0);
  }

  /** Records for the app from now on, beginning with the calls that wait. */
  function proceed(appId: string): void {
    if (recorder?.appId !== appId || known) return;
    known = true;
    if (settings?.sessionPerStart && !recorder.outbox.isOptedOut()) recorder.session.renew();
    while (known && calls.length > 0) guarded(() => calls.shift()?.run(recorder as Recorder));
  }

  function listen(): void {
    lifecycle.onHide(() =>
      guarded(() => {
        let bytesLeft = clientLimits.exitBytesMax;
        for (const { sender } of allOutboxes()) bytesLeft -= sender.exit(bytesLeft);
      }),
    );
    lifecycle.onResume(() =>
      guarded(() => {
        for (const { sender } of allOutboxes()) sender.resume();
      }),
    );
    storage.onChange?.((key) =>
      guarded(() => {
        recorder?.agree();
        // After an emptied storage each page sends what it put back itself.
        for (const appId of appsWithMessages(key === undefined ? [] : [key])) outboxOf(appId).sender.watch();
      }),
    );
  }

  /**
   * Runs the call now, or once recording has begun. Too many that wait are given up where they add something; one
   * that says whose or whether never is, for what comes after it would be another user's.
   */
  function whenStarted(run: (recorder: Recorder) => void, adds?: true): void {
    if (recorder !== undefined && known) run(recorder);
    else if (adds && calls.length >= clientLimits.callsMax) drops.add(1, 'too many calls waited');
    else calls.push({ run });
  }

  function identify(app: Recorder, identity: string, atMs: number): void {
    const current = app.user.peek()?.identity;
    if (current === identity) return;
    if (app.outbox.isOptedOut()) {
      // Not recorded, but what comes after an opt-in is not the former user's.
      if (current !== undefined) app.user.renew();
      return warn('identify is not recorded: the user has not opted in.');
    }
    if (current === undefined) {
      app.user.identify(identity);
    } else {
      app.user.renew(identity);
      app.session.renew();
    }
    app.identify(identity, atMs);
  }

  function event(event: string, properties: unknown, rules: PropertyRules, autocaptured?: true): void {
    const atMs = calledAt();
    const name = checkEventName(event, warn);
    if (name === undefined) return;
    const checked = checkProperties(properties, rules, warn);
    whenStarted((app) => app.event(name, checked, atMs, autocaptured), true);
  }

  const operations: Operations = {
    start,
    track: (name, properties) => event(name, properties, eventRules),
    autocapture: (name, properties) => event(name, properties, autocaptureRules, true),
    identify(identity) {
      const atMs = calledAt();
      whenStarted((app) => {
        const checked = checkIdentity(identity, settings?.allowIdentities ?? [], warn);
        if (checked !== undefined) identify(app, checked, atMs);
      });
    },
    resetIdentity: () =>
      whenStarted(({ user, session }) => {
        if (user.peek()?.identity === undefined) return;
        user.renew();
        session.renew();
      }),
    addUserProperties(properties) {
      const atMs = calledAt();
      const checked = checkProperties(properties, userRules, warn);
      if (Object.keys(checked).length > 0) whenStarted((app) => app.userProperties(checked, atMs), true);
    },
    addEventProperties(properties) {
      const checked = checkProperties(properties, eventRules, warn);
      if (Object.keys(checked).length === 0) return;
      whenStarted(({ eventProperties, outbox }) => {
        if (!outbox.isOptedOut()) eventProperties.add(checked);
      }, true);
    },
    removeEventProperty(property) {
      if (typeof property !== 'string') warn('removeEventProperty is ignored: it is no string.');
      else whenStarted(({ eventProperties }) => eventProperties.remove(property));
    },
    clearEventProperties: () => whenStarted(({ eventProperties }) => eventProperties.clear()),
    optOut() {
      // Said now: whatever was chosen before need not be known any more, and what waits for that is not recorded.
      // Once another app was started, it is said for that one.
      if (recorder !== undefined && !known && !calls.some(({ isStart }) => isStart)) {
        recorder.outbox.optOut();
        drops.add(calls.splice(0).length, 'the user opted out');
        return proceed(recorder.appId);
      }
      whenStarted(({ outbox }) => outbox.optOut());
    },
    optIn: () => whenStarted(({ outbox }) => outbox.optIn()),
    changeInterval(ms) {
      if (!(Number.isFinite(ms) && ms > 0)) {
        return warn('changeInterval is ignored: it is no positive number.');
      }
      changedIntervalMs = ms;
    },
    setPairing: (pairing) =>
      whenStarted(({ appId, outbox }) => {
        paired = pairing === undefined ? undefined : { appId, pairing };
        if (paired !== undefined) void outbox.sender.flush();
      }),
    addDropped: drops.add,
  };

  return {
    ...protect(guarded, operations),
    flush: async () => {
      for (const sent of allOutboxes().map(({ sender }) => sender.flush())) await sent;
    },
    get userId() {
      return guarded(() => {
        if (recorder === undefined || !known) return undefined;
        const { user, outbox } = recorder;
        return (outbox.isOptedOut() ? user.peek() : user.current())?.id;
      });
    },
    get identity() {
      return guarded(() => (known ? recorder?.user.peek()?.identity : undefined));
    },
    get droppedCount() {
      return drops.count();
    },
    warn,
  };
}

function faultOfStart(appId: unknown, settings: Settings): string | undefined {
  if (typeof appId !== 'string' || appId === '' || isBroken(appId)) return 'app_id is no text';
  const baseUrl: unknown = settings?.baseUrl;
  if (typeof baseUrl !== 'string' || !/^https?:\/\/[^\s?#]+$/i.test(baseUrl)) {
    return 'baseUrl is no http or https URL';
  }
  return undefined;
}
