// The JavaScript surface: the operations of a web page.

import type { BeforeSend } from '../core/before-send.js';
import { type Client, createClient } from '../core/client.js';
import { createGuard, protect } from '../core/guard.js';
import { clientLimits } from '../core/limits.js';
import type { PropertiesInput, PropertyInput } from '../core/messages.js';
import { type Browser, takeBrowser, type Window, warnIn } from './browser.js';
import { createCookieStore } from './cookies.js';
import { createLifecycle } from './lifecycle.js';
import { createLocalStorage } from './local-storage.js';
import { type PageViewOptions, pageViewEvent, watchPageViews } from './page-views.js';
import { type Method, methods } from './snippet.js';
import { createSendingTurn } from './tabs.js';
import { createTransport } from './transport.js';

/**
 * Properties of events and users: numbers, strings of fewer than 1024 characters (of users at most 255), booleans and lists of
 * these, which are joined with `||`. What is null or undefined is left out.
 */
export type SluiceProperties = { readonly [key: string]: PropertyInput };

export type LoadOptions = {
  /** Where the Sluice of the data centre is, such as `https://events.example.com`. */
  readonly baseUrl: string;
  /** Record page views; default true: addresses without query and fragment. */
  readonly pageViews?: boolean | PageViewOptions;
  /** Record and store nothing until `optIn()`, unless the visitor has chosen before; default false. */
  readonly optedOut?: boolean;
  /** Identities to take although many users might share them, such as `user`. */
  readonly allowIdentities?: readonly string[];
  /**
   * Called before anything is recorded; returns what to record instead, or null for nothing. If it throws, or returns
   * nothing, nothing is recorded. Calls that it makes itself are dropped.
   */
  readonly beforeSend?: BeforeSend;
  /** A session ends after this many minutes without a call, from 1 to 1440; default 30. */
  readonly sessionIdleMinutes?: number;
  /** Milliseconds that messages wait for others to go with, from 50 to a day; default 3000. */
  readonly intervalMs?: number;
};

type Operations = {
  /** Begins to record for the environment of this app_id. Calls made before wait for it. */
  load(appId: string, options: LoadOptions): void;
  /** Records an event; its name has at most 255 characters. */
  track<T extends PropertiesInput<T>>(event: string, properties?: T): void;
  /** Gives the user an identity: case-sensitive, fewer than 255 characters, unique to the user. */
  identify(identity: string): void;
  /** Begins a new anonymous user and session, for example at logout. Nothing when already anonymous. */
  resetIdentity(): void;
  /** Attaches properties to the user, for all past and future activity. */
  addUserProperties<T extends PropertiesInput<T>>(properties: T): void;
  /** Attaches properties to all events from now on, across pages and sessions. */
  addEventProperties<T extends PropertiesInput<T>>(properties: T): void;
  removeEventProperty(property: string): void;
  clearEventProperties(): void;
  /** Stops recording, forgets the user and what waits to be sent, and remembers the choice alone. */
  optOut(): void;
  optIn(): void;
};

/** None of these throws, whatever it is given. The console says what cannot be accepted. */
export type Sluice = Operations & {
  /** Sends what waits; settles when that was tried. Never rejects. */
  flush(): Promise<void>;
  /** The user's id, for the server-side API; undefined before the library has begun to record. */
  readonly userId: string | undefined;
  /** The user's identity; undefined for an anonymous user. */
  readonly identity: string | undefined;
  /** How many messages this page had to drop: too many waited, or the server refused them. */
  readonly droppedCount: number;
};

/** The surface for a window. Where there is no document (on a server), it does nothing. */
export function createSluice(window: Window): Sluice {
  return connect(window).sluice;
}

export type Connected = {
  readonly sluice: Sluice;
  /** Makes an earlier call, with its time. */
  at(ms: unknown, call: () => void): void;
  /** Counts earlier calls that were not kept. */
  addLost(count: number): void;
};

/** The surface of a window, and what the snippet's calls need. */
export function connect(window: Window): Connected {
  const { guarded, warn } = createGuard(warnIn(window));
  let browser: Browser | undefined;
  let client: Client | undefined;
  let calledAtMs: number | undefined;
  let watchesPageViews = false;

  /** Made at the first use: importing the library touches nothing. */
  function use(): Client | undefined {
    browser ??= takeBrowser(window);
    if (browser.isPage) client ??= createWebClient(browser, warn, () => calledAtMs);
    return client;
  }

  function load(appId: string, options: LoadOptions): void {
    const found = use();
    if (found === undefined) return;
    const { baseUrl, pageViews, optedOut, allowIdentities, intervalMs, sessionIdleMinutes, beforeSend } =
      Object(options) as LoadOptions;
    const idleMinutes = Number(sessionIdleMinutes);
    found.start(appId, {
      baseUrl,
      intervalMs: Number(intervalMs) > 0 ? Number(intervalMs) : clientLimits.webIntervalMs,
      sessionIdleMs:
        idleMinutes >= 1 && idleMinutes <= 1440 ? idleMinutes * 60_000 : clientLimits.webSessionIdleMs,
      sessionPerStart: false,
      optedOut: optedOut === true,
      allowIdentities: Array.isArray(allowIdentities) ? allowIdentities : [],
      beforeSend,
    });
    if (pageViews === false || watchesPageViews) return;
    watchesPageViews = true;
    const page = browser as Browser;
    createLifecycle(page).whenReady(() =>
      guarded(() =>
        watchPageViews(page, pageViews, guarded, (properties) =>
          found.autocapture(pageViewEvent, properties),
        ),
      ),
    );
  }

  const operations = {} as Record<Method, (...args: never[]) => unknown>;
  for (const name of methods) {
    operations[name] = (...args) => {
      const found: Partial<typeof operations> = use() ?? {};
      return found[name]?.(...args);
    };
  }
  operations.load = load;

  return {
    sluice: {
      ...(protect(guarded, operations) as Operations),
      flush: async () => guarded(operations.flush) as Promise<void>,
      get userId() {
        return client?.userId;
      },
      get identity() {
        return client?.identity;
      },
      get droppedCount() {
        return client?.droppedCount ?? 0;
      },
    },
    at(ms, call) {
      guarded(() => {
        use();
        calledAtMs = typeof ms === 'number' && ms > 0 && ms <= (browser?.now() ?? 0) ? ms : undefined;
        try {
          call();
        } finally {
          calledAtMs = undefined;
        }
      });
    },
    addLost(count) {
      if (count > 0) use()?.addDropped(count, 'too many calls waited');
    },
  };
}

function createWebClient(
  browser: Browser,
  warn: (line: string) => void,
  calledAtMs: () => number | undefined,
): Client {
  const storage = createLocalStorage(browser, warn);
  const randomBytes = (count: number): Uint8Array => {
    const bytes = new Uint8Array(count);
    browser.randomBytes(bytes);
    // Repeated ids would merge strangers and lose messages. If the cryptographic source is absent, or a page has replaced it
    // by one that fills in nothing, the ordinary source is the next best. Mixing it in does not weaken a good source.
    return bytes.map((byte) => byte ^ (Math.random() * 256));
  };
  return createClient({
    storage,
    propertyStore: createCookieStore(browser, '', () =>
      warn('cookies are denied: no property outlives the page.'),
    ),
    // Nothing is lost without it: the choice is in `storage` too.
    consentStore: createCookieStore(browser, '_consent', () => {}),
    transport: createTransport(browser),
    clock: browser,
    calledAtMs,
    lifecycle: createLifecycle(browser),
    randomBytes,
    turn: createSendingTurn(browser, storage, browser, randomBytes),
    warn: browser.warn,
  });
}
