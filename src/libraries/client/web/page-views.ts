// Page views: the first one, those that a single-page application makes through the history, and those of a page that the browser restores
// from its cache.

import type { Properties } from '../core/messages.js';
import type { Browser } from './browser.js';

export const pageViewEvent = 'Page View';

/**
 * What counts as a page view, and what is recorded of the addresses of the page and the referrer. By default neither query nor fragment is
 * recorded.
 */
export type PageViewOptions = {
  /** Record the query too. */
  readonly query?: boolean;
  /** Record the fragment too, and count its changes as page views: for applications that use it for routing. */
  readonly fragment?: boolean;
  /** Gets the whole address and returns what to record of it. If it throws, or returns no text, the page view is not recorded. */
  readonly redact?: (url: string) => string;
};

/** How long a page view waits for the title of its page at most, and how often it checks the title. */
const titleMsMax = 2_000;
const titleLookMs = 50;

/**
 * Calls back with each page view's properties and the time of its navigation. A change of the address counts if it changes what is recorded
 * of it. Applications set the title some time after the address, so a page view waits until the title has changed too. Returns a function
 * that ends this wait, to be called before the page ends or the user changes. `asked`: returns the options at that moment; `false` records
 * nothing. `startedAtMs`: the time of the first page view.
 */
export function watchPageViews(
  browser: Browser,
  asked: () => unknown,
  startedAtMs: number,
  guarded: (call: () => unknown) => unknown,
  onPageView: (properties: Properties, atMs: number) => void,
): () => void {
  const { location, history } = browser;
  if (location === undefined) return () => {};
  let lastView: string | undefined;
  let referrer = browser.readText('referrer');
  let settle = (_title?: string): void => {};

  const options = (): PageViewOptions => Object(asked());
  const title = (): string => browser.readText('title');

  function recorded(url: string): string {
    const { query, fragment, redact } = options();
    if (redact) return redact(url);
    const [address = ''] = url.split('#', 1);
    return shown(query ? address : pageOf(url)) + (fragment ? url.slice(address.length) : '');
  }

  /** `formerTitle`: the title at the time when the address changed. */
  function checkAddress(formerTitle: string, atMs: number): void {
    if (asked() === false) return;
    const href = `${location?.href}`;
    const url = recorded(href);
    // If a function hides a part of the path, different paths are still different pages.
    const view = `${url} ${options().redact ? pageOf(href) : ''}`;
    if (view === lastView) return;
    settle(formerTitle);
    lastView = view;
    const from = referrer;
    referrer = href;
    let cancel = (): void => {};
    settle = (shownTitle = title()) => {
      settle = () => {};
      cancel();
      onPageView(
        {
          url,
          // What was removed from the address is not added again.
          path: url.replace(/^[\w+.-]+:(\/\/[^/?#]*)?|[?#].*/g, ''),
          title: shownTitle,
          referrer: from && recorded(from),
          ...campaignOf(options().redact ? url : href),
        },
        atMs,
      );
    };
    const look = (): void => {
      const now = title();
      if ((now && now !== formerTitle) || browser.now() - atMs >= titleMsMax) settle(now);
      else cancel = browser.setTimer(titleLookMs, () => guarded(look));
    };
    look();
  }

  function onNavigation(): void {
    const formerTitle = title();
    const atMs = browser.now();
    // Redirects within the application count as one navigation.
    browser.setTimer(0, () => guarded(() => checkAddress(formerTitle, atMs)));
  }

  function wrap(name: 'pushState' | 'replaceState'): void {
    const former = history?.[name];
    if (history === undefined || typeof former !== 'function') return;
    history[name] = function (this: unknown, ...args: unknown[]) {
      const result: unknown = former.apply(history, args);
      onNavigation();
      return result;
    };
  }

  const checkShown = (atMs: number): unknown => guarded(() => checkAddress('', atMs));
  checkShown(startedAtMs);
  browser.on('window', 'popstate', onNavigation);
  browser.on('window', 'pageshow', ({ persisted }) => {
    if (!persisted) return;
    lastView = undefined;
    checkShown(browser.now());
  });
  try {
    wrap('pushState');
    wrap('replaceState');
    // For `navigation.navigate`, which uses no method of the history.
    browser.navigation?.addEventListener('currententrychange', onNavigation);
  } catch {
    // The page has frozen its history, so it counts as one view.
  }
  return () => void guarded(() => settle());
}

/** An address without its query and fragment. */
function pageOf(url: string): string {
  return url.replace(/[?#].*/s, '');
}

/** An address; if it contains a document or names a file on the visitor's device, only its kind. */
function shown(url: string): string {
  return /^(?!file:)[\w+.-]+:\/\/[^/]|^(?![\w+.-]+:)/i.test(url) ? url : url.replace(/:.*/s, ':');
}

/** The labels by which the author of a link named its campaign, such as `utm_source`. They identify no visitor. */
function campaignOf(url: string): Properties {
  const found: Record<string, string> = {};
  url.replace(
    /[?&](utm_(?:id|source|medium|campaign|term|content))=([^&#]+)/g,
    (all, key: string, value: string) => {
      try {
        found[key] = decodeURIComponent(value.replace(/\+/g, ' '));
      } catch {
        // The value is not valid.
      }
      return all;
    },
  );
  return found;
}
