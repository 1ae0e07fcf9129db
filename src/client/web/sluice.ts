// The JavaScript surface: the operations of a web page.

import { type Client, createClient } from '../core/client.js';
import { createGuard, protect } from '../core/guard.js';
import { clientLimits } from '../core/limits.js';
import { type Browser, takeBrowser, type Window, warnIn } from './browser.js';
import { createCookieStore } from './cookies.js';
import { createLifecycle } from './lifecycle.js';
import { createLocalStorage } from './local-storage.js';
import { pageViewEvent, watchPageViews } from './page-views.js';
import { type Method, methods } from './snippet.js';
import { createSendingTurn } from './tabs.js';
import { createTransport } from './transport.js';

/** Properties of events and users: numbers, or strings of fewer than 1024 characters (of users at most 255). */
export type SluiceProperties = { readonly [key: string]: string | number };

export type LoadOptions = {
  /** Where the Sluice of the data centre is, such as `https://events.example.com`. */
  readonly baseUrl: string;
  /** Record page views; default true. */
  readonly pageViews?: boolean;
  /** Record and store nothing until `optIn()`, unless the visitor has chosen before; default false. */
  readonly optedOut?: boolean;
  /** Identities to take although many users might share them, such as `user`. */
  readonly allowIdentities?: readonly string[];
  /** Milliseconds that messages wait for others to go with, from 50 to a day; default 3000. */
  readonly intervalMs?: number;
};

type Operations = {
  /** Begins to record for the environment of this app_id. Calls made before wait for it. */
  load(appId: string, options: LoadOptions): void;
  /** Records an event; its name has at most 255 characters. */
  track(event: string, properties?: SluiceProperties): void;
  /** Gives the user an identity: case-sensitive, fewer than 255 characters, unique to the user. */
  identify(identity: string): void;
  /** Begins a new anonymous user and session, for example at logout. Nothing when already anonymous. */
  resetIdentity(): void;
  /** Attaches properties to the user, for all past and future activity. */
  addUserProperties(properties: SluiceProperties): void;
  /** Attaches properties to all events from now on, over pages and sessions. */
  addEventProperties(properties: SluiceProperties): void;
  removeEventProperty(property: string): void;
  clearEventProperties(): void;
  /** Stops recording, forgets what waits to be sent, and remembers that. */
  optOut(): void;
  optIn(): void;
};

/** None of these throws, whatever it is given; what cannot be taken is told in the console. */
export type Sluice = Operations & {
  /** Sends what waits; settles when that was tried. Never rejects. */
  flush(): Promise<void>;
  /** The user's id, for the server-side API; undefined before the library has begun to record. */
  readonly userId: string | undefined;
  /** The user's identity; undefined for an anonymous user. */
  readonly identity: string | undefined;
  /** Messages that this page had to give up: too many waited, or the server refused them. */
  readonly droppedCount: number;
};

/** The surface for a window. Where there is no document (on a server), it does nothing. */
export function createSluice(window: Window): Sluice {
  return connect(window).sluice;
}

export type Connected = {
  readonly sluice: Sluice;
  /** Makes a call that came earlier, at its time. */
  at(ms: unknown, call: () => void): void;
  /** Counts calls that came earlier and were not kept. */
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
    const { baseUrl, pageViews, optedOut, allowIdentities, intervalMs } = Object(options) as LoadOptions;
    found.start(appId, {
      baseUrl,
      intervalMs: Number(intervalMs) > 0 ? Number(intervalMs) : clientLimits.webIntervalMs,
      sessionIdleMs: clientLimits.webSessionIdleMs,
      sessionPerStart: false,
      optedOut: optedOut === true,
      allowIdentities: Array.isArray(allowIdentities) ? allowIdentities : [],
    });
    if (pageViews === false || watchesPageViews) return;
    watchesPageViews = true;
    const page = browser as Browser;
    createLifecycle(page).whenReady(() =>
      guarded(() => watchPageViews(page, (properties) => found.autocapture(pageViewEvent, properties))),
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
    // Ids that repeat would merge strangers and lose messages: where the cryptographic source is absent, or a page has
    // put one in its place that fills in nothing, the common one is the next best. It takes nothing from a good one.
    return bytes.map((byte) => byte ^ (Math.random() * 256));
  };
  return createClient({
    storage,
    propertyStore: createCookieStore(browser, '', () =>
      warn('cookies are denied: global event properties do not outlive this page.'),
    ),
    // Nothing is lost without: the choice is in `storage` too.
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
