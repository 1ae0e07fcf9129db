// The operations of a web page, provided by one copy of the library.

import type { Lifecycle } from '../core/adapters.js';
import { type Client, createClient } from '../core/client.js';
import { createGuard, protect } from '../core/guard.js';
import { clientLimits } from '../core/limits.js';
import { type Browser, takeBrowser, type Window, warnIn } from './browser.js';
import { createCookieStore } from './cookies.js';
import { createLifecycle } from './lifecycle.js';
import { createLocalStorage } from './local-storage.js';
import { pageViewEvent, watchPageViews } from './page-views.js';
import { type Method, methods } from './snippet.js';
import type { LoadOptions, Sluice, WebOperations } from './surface.js';
import { createSendingTurn } from './tabs.js';
import { createTransport } from './transport.js';

export type Own = ReturnType<typeof createOwn>;

/** Before these calls, a page view stops waiting for its title: what follows may be another user's, or must be sent now. */
const settling: readonly Method[] = ['load', 'identify', 'resetIdentity', 'optOut', 'flush'];

/** The operations of one copy of the library, for a window. */
export function createOwn(window: Window) {
  const { guarded, warn } = createGuard(warnIn(window));
  let browser: Browser | undefined;
  let client: Client | undefined;
  let calledAtMs: number | undefined;
  let loadedAppId: string | undefined;
  let pageViewsAsked: unknown;
  let settlePageView: (() => void) | undefined;

  /** Made at the first use, since importing the library must touch nothing. */
  function use(): Client | undefined {
    browser ??= takeBrowser(window);
    if (!browser.isPage || client !== undefined) return client;
    const lifecycle = createLifecycle(browser);
    client = createWebClient(browser, warn, () => calledAtMs, {
      ...lifecycle,
      onHide: (listener) =>
        lifecycle.onHide(() => {
          settlePageView?.();
          listener();
        }),
    });
    return client;
  }

  function load(appId: string, options: LoadOptions): void {
    const found = use();
    if (found === undefined) return;
    const { baseUrl, collectPath, pageViews, optedOut, globalPrivacyControl, beforeSend, ...more } = Object(
      options,
    ) as LoadOptions;
    const { allowIdentities, intervalMs, sessionIdleMinutes } = more;
    const page = browser as Browser;
    const idleMinutes = Number(sessionIdleMinutes);
    const isAccepted = found.start(appId, {
      baseUrl,
      collectPath,
      intervalMs: Number(intervalMs) > 0 ? Number(intervalMs) : clientLimits.webIntervalMs,
      sessionIdleMs:
        idleMinutes >= 1 && idleMinutes <= 1440 ? idleMinutes * 60_000 : clientLimits.webSessionIdleMs,
      sessionPerStart: false,
      optedOut: optedOut === true || (globalPrivacyControl === true && page.hasPrivacyControl()),
      allowIdentities: Array.isArray(allowIdentities) ? allowIdentities : [],
      beforeSend,
    });
    if (isAccepted) loadedAppId = appId;
    pageViewsAsked = pageViews;
    if (pageViews === false || settlePageView !== undefined) return;
    settlePageView = () => {};
    createLifecycle(page).whenReady(() =>
      guarded(() => {
        settlePageView = watchPageViews(
          page,
          () => pageViewsAsked,
          calledAtMs ?? page.now(),
          guarded,
          (properties, atMs) => at(atMs, () => found.autocapture(pageViewEvent, properties)),
        );
      }),
    );
  }

  function at(ms: unknown, call: () => void): void {
    const former = calledAtMs;
    calledAtMs = typeof ms === 'number' && ms > 0 && ms <= (browser?.now() ?? 0) ? ms : undefined;
    try {
      call();
    } finally {
      calledAtMs = former;
    }
  }

  const operations = {} as Record<Method, (...args: never[]) => unknown>;
  for (const name of methods) {
    operations[name] = (...args) => {
      if (settling.includes(name)) settlePageView?.();
      if (name === 'load') return load(...(args as unknown as Parameters<typeof load>));
      const found: Partial<typeof operations> = use() ?? {};
      return found[name]?.(...args);
    };
  }

  return {
    sluice: surfaceOf(guarded, operations, () => client),
    /** Makes a call as if at an earlier time, at which it was really made. */
    at: (ms: unknown, call: () => void): void =>
      void guarded(() => {
        use();
        at(ms, call);
      }),
    /** Counts earlier calls that were dropped. */
    addLost(count: number): void {
      if (count > 0) use()?.addDropped(count, 'too many calls waited');
    },
    /** The app_id of the last `load`. */
    appId: () => loadedAppId,
    warn,
  };
}

/** The surface over operations that may throw. `shown`: what tells about the user, once there is one. */
export function surfaceOf(
  guarded: (call: () => unknown) => unknown,
  operations: Readonly<Record<Method, (...args: never[]) => unknown>>,
  shown: () => Pick<Sluice, 'userId' | 'identity' | 'droppedCount'> | undefined,
): Sluice {
  return {
    ...(protect(guarded, operations) as WebOperations),
    flush: async () => guarded(operations.flush) as Promise<void>,
    get userId() {
      return shown()?.userId;
    },
    get identity() {
      return shown()?.identity;
    },
    get droppedCount() {
      return shown()?.droppedCount ?? 0;
    },
  };
}

function createWebClient(
  browser: Browser,
  warn: (line: string) => void,
  calledAtMs: () => number | undefined,
  lifecycle: Lifecycle,
): Client {
  const storage = createLocalStorage(browser, warn);
  const randomBytes = (count: number): Uint8Array => {
    const bytes = new Uint8Array(count);
    browser.randomBytes(bytes);
    // If ids repeated, strangers would be merged and messages lost. If the cryptographic source is absent, or a page has replaced it by one
    // that fills in nothing, the ordinary source is the next best. Mixing it in does not weaken a good source.
    return bytes.map((byte) => byte ^ (Math.random() * 256));
  };
  return createClient({
    storage,
    propertyStore: createCookieStore(browser, '', () =>
      warn('cookies are denied: no property outlives the page.'),
    ),
    // If this is denied nothing is lost: the choice is in `storage` too.
    consentStore: createCookieStore(browser, '_consent', () => {}),
    transport: createTransport(browser),
    clock: browser,
    calledAtMs,
    lifecycle,
    randomBytes,
    turn: createSendingTurn(browser),
    warn: browser.warn,
  });
}
