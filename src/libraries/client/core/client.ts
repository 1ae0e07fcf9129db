// The client library's operations, the same for all surfaces, as a table of contents.

import type { Adapters } from './adapters.js';
import { type BeforeSend, createReview } from './before-send.js';
import { createDropCount, createGuard, protect } from './guard.js';
import { appsWithMessages, keysOf } from './keys.js';
import { clientLimits } from './limits.js';
import type { CollectAnswer, Properties } from './messages.js';
import type { Operations as SharedOperations } from './operations.js';
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
import { hasLoneSurrogate } from './text.js';

export type Settings = {
  /** The address of the Sluice to send to: an origin, perhaps with a path, such as `https://events.example.com`. */
  readonly baseUrl: string;
  /** The path below `baseUrl` to send to, instead of `/api/collect`. */
  readonly collectPath?: string | undefined;
  /** How long a message waits for others, to be sent together with them; from 50 ms to a day. */
  readonly intervalMs: number;
  /** A session ends after this long without a call. */
  readonly sessionIdleMs: number;
  /** Whether each start begins a session, even if the last one is not idle yet. */
  readonly sessionPerStart: boolean;
  /** Record nothing until `optIn` is called, unless the user has already chosen. */
  readonly optedOut?: boolean;
  /** Identities to accept although they are words that many users might share. */
  readonly allowIdentities?: readonly string[];
  /** Called before anything is recorded; can change or drop it. */
  readonly beforeSend?: BeforeSend | undefined;
  /** Called with each answer to a batch of the app, once it was processed, and with the pairing that the batch carried. */
  readonly onAnswer?: (appId: string, answer: CollectAnswer, pairing: string | undefined) => void;
};

type Operations = SharedOperations & {
  /**
   * Begins to record for an app. A further call begins a new session of that app (`sessionPerStart`), or switches to another app. Messages
   * of former apps are still sent, each to the address of its app's last start. Operations called before the first start wait for it.
   * Returns whether the arguments were accepted.
   */
  start(appId: string, settings: Settings): boolean;
  /** Records an event that the library itself noticed. Properties that are too long are cut, and reserved keys are allowed. */
  autocapture(event: string, properties: Properties): void;
  /** Sets `intervalMs`, from the next send on. */
  changeInterval(intervalMs: number): void;
  /** While this is set, every batch carries it, and batches are sent every second. */
  setPairing(pairing: string | undefined): void;
  /** Adds calls that never reached the library to the number of dropped messages. */
  addDropped(count: number, reason: string): void;
};

/** No operation throws, regardless of its arguments. */
export type Client = Operations & {
  /** The current user's id; undefined before the start, and while opted out if there has never been a user. */
  readonly userId: string | undefined;
  readonly identity: string | undefined;
  /** Sends what is waiting, as far as the server allows it. Settles once that was tried. Never rejects. */
  flush(): Promise<void>;
  /** How many messages were dropped since the start of the page: displaced by newer ones, too large, or refused. */
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
  const review = createReview(
    () => settings?.beforeSend,
    () => settings?.allowIdentities ?? [],
    warn,
  );
  /** Calls made before recording could begin, or before it was known whether it may. */
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
    // Limited, since a timer of more than 24 days fires at once.
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

  function start(appId: string, given: Settings): boolean {
    const fault = faultOfStart(appId, given);
    if (fault !== undefined) {
      warn(`nothing is recorded: ${fault}.`);
      return false;
    }
    const run = (): void => begin(appId, { ...given });
    if (ready && known) {
      run();
      return true;
    }
    if (asked) {
      // The start waits behind the calls that were made for the former app.
      calls.push({ run, isStart: true });
      return true;
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
    return true;
  }

  function begin(appId: string, given: Settings): void {
    settings = given;
    const outbox = outboxOf(appId);
    const { baseUrl, collectPath } = given;
    outbox.start(collectPath === undefined ? baseUrl : `${baseUrl}#${collectPath}`, given.optedOut === true);
    if (recorder?.appId !== appId) {
      recorder = createRecorder(appId, adapters, outbox, () => settings?.sessionIdleMs ?? 0, review, warn);
    }
    known = false;
    const whenKnown = storage.whenKnown ?? ((_, callback) => callback());
    whenKnown(keysOf(appId).consent, () => guarded(() => proceed(appId)));
    // Messages of this app and of others that earlier pages left.
    for (const former of appsWithMessages(storage.keys('sluice:'))) outboxOf(former).sender.wake(0);
  }

  /** Records for the app from now on, starting with the waiting calls. */
  function proceed(appId: string): void {
    if (recorder?.appId !== appId || known) return;
    known = true;
    // If the user has opted out, another tab may have stored something at that moment.
    recorder.agree();
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
        // If the storage was emptied, each page sends only what it has put back itself.
        for (const appId of appsWithMessages(key === undefined ? [] : [key])) outboxOf(appId).sender.watch();
      }),
    );
  }

  /**
   * Runs the call now, or once recording has begun. If too many calls wait, drops calls that only add something, but never calls that
   * change the user or the choice: later calls would then belong to the wrong user.
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
      // Nothing is recorded, but what follows an opt-in must not belong to the former user.
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
        if (checked === undefined) return;
        const draft = app.outbox.isOptedOut() || review({ type: 'identify', identity: checked });
        if (draft) identify(app, draft === true ? checked : draft.identity, atMs);
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
      if (typeof property !== 'string') warn('removeEventProperty is ignored: the key must be a string.');
      else whenStarted(({ eventProperties }) => eventProperties.remove(property));
    },
    clearEventProperties: () => whenStarted(({ eventProperties }) => eventProperties.clear()),
    optOut() {
      // This choice replaces the one that is still being read, and calls that wait for that one are not recorded. But if a start of another
      // app is waiting, the choice is for that app.
      if (recorder !== undefined && !known && !calls.some(({ isStart }) => isStart)) {
        recorder.outbox.optOut();
        drops.add(calls.splice(0).length, 'the user opted out');
        return proceed(recorder.appId);
      }
      whenStarted((app) => {
        app.outbox.optOut();
        app.agree();
      });
    },
    optIn: () => whenStarted(({ outbox }) => outbox.optIn()),
    changeInterval(ms) {
      if (!(Number.isFinite(ms) && ms > 0)) {
        return warn('changeInterval is ignored: it must be a positive number.');
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
  if (typeof appId !== 'string' || appId === '' || hasLoneSurrogate(appId)) return 'app_id must be a string';
  const baseUrl: unknown = settings?.baseUrl;
  if (typeof baseUrl !== 'string' || !/^https?:\/\/[^\s?#]+$/i.test(baseUrl)) {
    return 'baseUrl must be an http or https URL';
  }
  if (!/^(\/[\w.~-]+)+$/.test(String(settings.collectPath ?? '/a')))
    return 'collectPath must be a path such as /m';
  return undefined;
}
