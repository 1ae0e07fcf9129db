// Page views: the first, and those that a page makes of itself by the history (single-page applications).

import type { Properties } from '../core/messages.js';
import type { Browser } from './browser.js';

export const pageViewEvent = 'Page View';

/** Calls back with each page view's properties. One after another of the same address counts once. */
export function watchPageViews(browser: Browser, onPageView: (properties: Properties) => void): void {
  const { document, location, history } = browser;
  if (document === undefined || location === undefined) return;
  let lastAddress: string | undefined;
  let referrer = document.referrer;

  function look(): void {
    const href = String(location?.href);
    const address = href.replace(/#.*$/, '');
    if (address === lastAddress || document === undefined) return;
    onPageView({ url: href, path: String(location?.pathname), title: String(document.title), referrer });
    lastAddress = address;
    referrer = href;
  }

  /** After the application has had the time to set the new title. */
  const lookSoon = (): void => void browser.setTimeout(look, 0);

  look();
  browser.addEventListener?.('popstate', lookSoon);
  const pushState = history?.pushState;
  if (history === undefined || typeof pushState !== 'function') return;
  try {
    history.pushState = function (this: unknown, ...args: unknown[]) {
      const result: unknown = pushState.apply(history, args);
      lookSoon();
      return result;
    };
  } catch {
    // The page has frozen its history: what it makes of itself is one view.
  }
}
