// The client library's operations, the same for all surfaces: a table of contents.

import type { Adapters } from './adapters.js';
import { createDropCount, createGuard } from './guard.js';
import { appsWithMessages } from './keys.js';
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

export type Client = {
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
  /** The current user's id; undefined before the start, and while opted out if there never was a user. */
  readonly userId: string | undefined;
  readonly identity: string | undefined;
  /** Stops recording, forgets what waits to be sent, and remembers the choice. */
  optOut(): void;
  optIn(): void;
  /** Sends what waits now, as far as the server lets; settles when that was tried. Never rejects. */
  flush(): Promise<void>;
  /** Takes effect at the next send. */
  changeInterval(intervalMs: number): void;
  /** While given, each batch carries it, and batches go out every second. */
  setPairing(pairing: string | undefined): void;
  /** Messages that were given up since the start of the page: pushed out, too large or refused. */
  readonly droppedCount: number;
  /** Shows a line to the developer; never throws. */
  warn(line: string): void;
};

/** Makes a client. It does nothing until it is started. No operation throws, whatever its arguments. */
export function createClient(adapters: Adapters): Client {
  const { clock, lifecycle, storage } = adapters;
  const outboxes = new Map<string, Outbox>();
  const { warn, guarded } = createGuard(adapters.warn);
  const drops = createDropCount(warn);
  /** Calls that came before the recording could begin. */
  const calls: ((recorder: Recorder) => void)[] = [];
  let asked = false;
  let ready = false;
  let settings: Settings | undefined;
  let recorder: Recorder | undefined;
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

  function start(appId: string, given: Settings): void {
    const fault = faultOfStart(appId, given);
    if (fault !== undefined) return warn(`nothing is recorded: ${fault}.`);
    if (ready) return begin(appId, { ...given });
    if (asked) {
      calls.push(() => begin(appId, { ...given }));
      return;
    }
    asked = true;
    lifecycle.whenReady(() =>
      guarded(() => {
        if (ready) return;
        ready = true;
        listen();
        begin(appId, { ...given });
        for (const call of calls.splice(0)) guarded(() => call(recorder as Recorder));
      }),
    );
  }

  function begin(appId: string, given: Settings): void {
    settings = given;
    const outbox = outboxOf(appId);
    outbox.setBaseUrl(given.baseUrl);
    outbox.setOptedOutByDefault(given.optedOut === true);
    if (recorder?.appId !== appId) {
      recorder = createRecorder(appId, adapters, outbox, () => settings?.sessionIdleMs ?? 0, warn);
    }
    if (given.sessionPerStart && !outbox.isOptedOut()) recorder.session.renew();
    // What earlier pages left behind, of this app and of others.
    for (const former of appsWithMessages(storage.keys('sluice:'))) outboxOf(former).sender.wake(0);
  }

  function listen(): void {
    lifecycle.onHide(() =>
      guarded(() => {
        let bytesLeft = clientLimits.exitBytesMax;
        for (const { sender } of Array.from(outboxes.values())) bytesLeft -= sender.exit(bytesLeft);
      }),
    );
    lifecycle.onResume(() =>
      guarded(() => {
        for (const { sender } of Array.from(outboxes.values())) sender.resume();
      }),
    );
    storage.onChange?.((key) =>
      guarded(() => {
        recorder?.agree();
        for (const appId of appsWithMessages([key])) outboxOf(appId).sender.watch();
      }),
    );
  }

  /** Runs the call now, or after the start. */
  function whenStarted(call: (recorder: Recorder) => void): void {
    if (recorder !== undefined) call(recorder);
    else if (calls.length < clientLimits.callsMax) calls.push(call);
    else drops.add(1, 'too many calls wait for the start');
  }

  function identify(app: Recorder, identity: string, atMs: number): void {
    const current = app.user.peek()?.identity;
    if (current === identity) return;
    if (app.outbox.isOptedOut()) {
      // Not recorded, but what comes after an opt-in is not the former user's.
      if (current !== undefined) app.user.renew();
      return;
    }
    if (current === undefined) {
      app.user.identify(identity);
    } else {
      app.user.renew(identity);
      app.session.renew();
    }
    app.identify(identity, atMs);
  }

  return {
    start: (appId, given) => guarded(() => start(appId, given)),
    track: (event, properties) =>
      guarded(() => {
        const atMs = clock.now();
        const name = checkEventName(event, warn);
        if (name === undefined) return;
        const checked = checkProperties(properties, eventRules, warn);
        whenStarted((app) => app.event(name, checked, atMs));
      }),
    autocapture: (event, properties) =>
      guarded(() => {
        const atMs = clock.now();
        const name = checkEventName(event, warn);
        if (name === undefined) return;
        const checked = checkProperties(properties, autocaptureRules, warn);
        whenStarted((app) => app.event(name, checked, atMs, true));
      }),
    identify: (identity) =>
      guarded(() => {
        const atMs = clock.now();
        whenStarted((app) => {
          const checked = checkIdentity(identity, settings?.allowIdentities ?? [], warn);
          if (checked !== undefined) identify(app, checked, atMs);
        });
      }),
    resetIdentity: () =>
      guarded(() =>
        whenStarted(({ user, session }) => {
          if (user.peek()?.identity === undefined) return;
          user.renew();
          session.renew();
        }),
      ),
    addUserProperties: (properties) =>
      guarded(() => {
        const atMs = clock.now();
        const checked = checkProperties(properties, userRules, warn);
        if (Object.keys(checked).length > 0) whenStarted((app) => app.userProperties(checked, atMs));
      }),
    addEventProperties: (properties) =>
      guarded(() => {
        const checked = checkProperties(properties, eventRules, warn);
        if (Object.keys(checked).length === 0) return;
        whenStarted(({ eventProperties, outbox }) => {
          if (!outbox.isOptedOut()) eventProperties.add(checked);
        });
      }),
    removeEventProperty: (property) =>
      guarded(() => {
        if (typeof property !== 'string') warn('removeEventProperty is ignored: the key is no string.');
        else whenStarted(({ eventProperties }) => eventProperties.remove(property));
      }),
    clearEventProperties: () => guarded(() => whenStarted(({ eventProperties }) => eventProperties.clear())),
    get userId() {
      return guarded(() => {
        if (recorder === undefined) return undefined;
        const { user, outbox } = recorder;
        return (outbox.isOptedOut() ? user.peek() : user.current())?.id;
      });
    },
    get identity() {
      return guarded(() => recorder?.user.peek()?.identity);
    },
    optOut: () =>
      guarded(() =>
        whenStarted(({ outbox }) => {
          outbox.setOptedOut(true);
          outbox.clear();
        }),
      ),
    optIn: () => guarded(() => whenStarted(({ outbox }) => outbox.setOptedOut(false))),
    flush: async () => {
      await Promise.all(Array.from(outboxes.values()).map(({ sender }) => sender.flush()));
    },
    changeInterval: (ms) =>
      guarded(() => {
        if (typeof ms !== 'number' || !(ms > 0 && ms < Number.POSITIVE_INFINITY)) {
          return warn('changeInterval is ignored: the interval is no positive number.');
        }
        changedIntervalMs = ms;
      }),
    setPairing: (pairing) =>
      guarded(() =>
        whenStarted(({ appId, outbox }) => {
          paired = pairing === undefined ? undefined : { appId, pairing };
          if (paired !== undefined) void outbox.sender.flush();
        }),
      ),
    get droppedCount() {
      return drops.count();
    },
    warn,
  };
}

function faultOfStart(appId: unknown, settings: Settings): string | undefined {
  if (typeof appId !== 'string' || appId === '' || isBroken(appId)) return 'the app_id is no text';
  const baseUrl: unknown = settings?.baseUrl;
  if (typeof baseUrl !== 'string' || !/^https?:\/\/[^\s?#]+$/i.test(baseUrl)) {
    return 'baseUrl is no URL that begins with http:// or https://';
  }
  return undefined;
}
