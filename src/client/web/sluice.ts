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
import type { LoadOptions, Operations, Sluice } from './surface.js';
import { createSendingTurn } from './tabs.js';
import { createTransport } from './transport.js';

export type { LoadOptions, Sluice, SluiceProperties } from './surface.js';

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
