// Page views: the first one, the ones that a page makes through the history (single-page applications), and the ones of a page
// that the browser had kept and shows again.

import type { Properties } from '../core/messages.js';
import type { Browser } from './browser.js';

export const pageViewEvent = 'Page View';

/** What counts as a page view, and which parts of the page's and the referrer's address are recorded: by default neither query nor fragment. */
export type PageViewOptions = {
  /** Record the query too. */
  readonly query?: boolean;
  /** Record the fragment too, and count a change of it as a page view: for applications that route by it. */
  readonly fragment?: boolean;
  /** Gets the whole address and returns what to record of it. If it throws, or returns no text, the page view is not recorded. */
  readonly redact?: (url: string) => string;
};

/** Calls back with each page view's properties. Views of the same address in a row count once. */
export function watchPageViews(
  browser: Browser,
  asked: unknown,
  guarded: (call: () => unknown) => unknown,
  onPageView: (properties: Properties) => void,
): void {
  const { query, fragment, redact } = Object(asked) as PageViewOptions;
  const { location, history } = browser;
  if (location === undefined) return;
  let lastAddress: string | undefined;
  let referrer = browser.readText('referrer');

  const recorded = (url: string): string => {
    if (redact) return redact(url);
    const [address = ''] = url.split('#', 1);
    return (query ? address : address.replace(/\?.*/, '')) + (fragment ? url.slice(address.length) : '');
  };

  const checkAddress = (): unknown =>
    guarded(() => {
      const href = `${location.href}`;
      const address = fragment ? href : href.split('#')[0];
      if (address === lastAddress) return;
      lastAddress = address;
      const url = recorded(href);
      onPageView({
        url,
        // What was taken out of the address stays out.
        path: url.replace(/^.*?\/\/[^/]*|[?#].*/g, ''),
        title: browser.readText('title'),
        referrer: referrer && recorded(referrer),
        ...campaignOf(redact ? url : href),
      });
      referrer = href;
    });

  /** Runs after the application has had time to set the new title. */
  const checkAddressSoon = (): void => void browser.setTimer(0, checkAddress);

  function wrap(name: 'pushState' | 'replaceState'): void {
    const former = history?.[name];
    if (history === undefined || typeof former !== 'function') return;
    history[name] = function (this: unknown, ...args: unknown[]) {
      const result: unknown = former.apply(history, args);
      checkAddressSoon();
      return result;
    };
  }

  checkAddress();
  browser.on('window', 'popstate', checkAddressSoon);
  browser.on('window', 'pageshow', ({ persisted }) => {
    if (!persisted) return;
    lastAddress = undefined;
    checkAddress();
  });
  try {
    wrap('pushState');
    wrap('replaceState');
    // For `navigation.navigate`, which uses no method of the history.
    browser.navigation?.addEventListener('currententrychange', checkAddressSoon);
  } catch {
    // The page has frozen its history: it counts as one view.
  }
}

/** The labels that the author of a link gave its campaign, such as `utm_source`. They name no visitor. */
function campaignOf(url: string): Properties {
  const found: Record<string, string> = {};
  url.replace(
    /[?&](utm_(?:id|source|medium|campaign|term|content))=([^&#]+)/g,
    (all, key: string, value: string) => {
      try {
        found[key] = decodeURIComponent(value.replace(/\+/g, ' '));
      } catch {
        // It is no text.
      }
      return all;
    },
  );
  return found;
}
