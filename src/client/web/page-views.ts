// Page views: the first, those that a page makes of itself by the history (single-page applications), and those of a
// page that the browser had kept and shows again.

import type { Properties } from '../core/messages.js';
import type { Browser } from './browser.js';

export const pageViewEvent = 'Page View';

/** Calls back with each page view's properties. One after another of the same address counts once. */
export function watchPageViews(browser: Browser, onPageView: (properties: Properties) => void): void {
  const { location, history } = browser;
  if (location === undefined) return;
  let lastAddress: string | undefined;
  let referrer = browser.readText('referrer');

  function look(): void {
    const href = String(location?.href);
    const address = href.replace(/#.*$/, '');
    if (address === lastAddress) return;
    onPageView({ url: href, path: String(location?.pathname), title: browser.readText('title'), referrer });
    lastAddress = address;
    referrer = href;
  }

  /** After the application has had the time to set the new title. */
  const lookSoon = (): void => void browser.setTimer(0, look);

  function wrap(name: 'pushState' | 'replaceState'): void {
    const former = history?.[name];
    if (history === undefined || typeof former !== 'function') return;
    history[name] = function (this: unknown, ...args: unknown[]) {
      const result: unknown = former.apply(history, args);
      lookSoon();
      return result;
    };
  }

  look();
  browser.on('window', 'popstate', lookSoon);
  browser.on('window', 'pageshow', ({ persisted }) => {
    if (!persisted) return;
    lastAddress = undefined;
    look();
  });
  try {
    wrap('pushState');
    wrap('replaceState');
    // Of `navigation.navigate`, which goes by no method of the history.
    browser.navigation?.addEventListener('currententrychange', lookSoon);
  } catch {
    // The page has frozen its history: what it makes of itself is one view.
  }
}
